"""``chunkmill.dataset``: the rows of a reader, in Spark's types, and what filters leave of what is read."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunkmill import CatalogClient, Chunk, LazyChunkStream, register
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.data_sources.sources import DatasetReader, DatasetRequest, DatasetTask, data_source_of
from chunkmill.engine.errors import NotFoundError, UsageError
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, In, IsNotNull, LessThan

SECOND = 1_000_000_000


def chunk(entity: str, times: list[int], values: list[int]) -> Chunk:
    index = {
        "frame": pa.array(times, pa.int64()),
        "log_time": pa.array([SECOND * t + 1 for t in times], pa.timestamp("ns")),
    }
    lists = pa.array([[value] for value in values], pa.list_(pa.uint8()))
    return Chunk.build(entity, index, [(ComponentDescriptor("value"), lists)])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("datasets")
    paths = []
    for name in ("a", "b", "c"):
        path = folder / f"{name}.rrd"
        parts = [chunk("/speed", [1, 2, 3], [10, 20, 30]), chunk("/gear", [2, 5], [1, 2])]
        LazyChunkStream.from_iter(parts).write_rrd(path, application_id="t", recording_id=name, executor="inline")
        paths.append(str(path))
    drives = CatalogClient(folder / "lake").create_dataset("drives")
    drives.register(paths, copy=True, executor="inline").wait()
    return folder / "lake"


def reader(lake: Path, filters: list[Filter] | None = None, **options: str) -> DatasetReader:
    request = DatasetRequest.of({"path": str(lake), "index": "frame", **options})
    made = DatasetReader(request, request.schema())
    if filters:
        assert made._take(filters) == filters
    return made


def rows(lake: Path, filters: list[Filter] | None = None, **options: str) -> list[dict[str, Any]]:
    """The rows that tasks give, each sent to its worker."""
    made = reader(lake, filters, **options)
    tasks = made.partitions()
    there = pickle.loads(pickle.dumps(made))
    batches = [batch for task in tasks for batch in there.read(pickle.loads(pickle.dumps(task)))]
    return pa.Table.from_batches(batches, made._arrow).to_pylist()


def test_rows_are_those_of_a_reader_in_types_of_spark(lake: Path) -> None:
    found = rows(lake, fill="true")
    frame = CatalogClient(lake).get_dataset("drives").reader("frame", fill_latest_at=True)
    names = ("rerun_segment_id", "frame", "/gear:value", "/speed:value")
    assert list(found[0]) == [*names[:2], "log_time", "log_time_nanoseconds", *names[2:]]
    expected = frame.sort("rerun_segment_id", "frame").to_pylist()
    assert [[row[name] for name in names] for row in found] == [[row[name] for name in names] for row in expected]
    assert found[0]["log_time_nanoseconds"] == SECOND + 1
    assert found[0]["log_time"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert reader(lake)._arrow.field("/speed:value").type.value_type == pa.int16()


def test_options(lake: Path) -> None:
    assert [r["frame"] for r in rows(lake, segments="a,c", start="2", end="5")] == [2, 3, 2, 3]
    assert rows(lake, segments="b", contents="/gear", columns="/gear:value", start="5") == [
        {"rerun_segment_id": "b", "frame": 5, "/gear:value": [2]}
    ]
    assert len(rows(lake, index="log_time", end="1970-01-01T00:00:02")) == 3
    assert len(rows(lake, index="none", dataset="drives")) == 3
    assert rows(Path(CatalogClient(lake).get_dataset("drives"))) == rows(lake)


@pytest.mark.parametrize(
    ("filters", "segments", "count"),
    [
        ([EqualTo(("rerun_segment_id",), "b")], 1, 4),
        ([In(("rerun_segment_id",), ("a", "c", "x"))], 2, 8),
        ([GreaterThanOrEqual(("frame",), 3), LessThan(("frame",), 4)], 3, 9),
        ([GreaterThanOrEqual(("frame",), 6)], 0, 0),
        ([IsNotNull(("/gear:value",)), EqualTo(("rerun_segment_id",), "a")], 1, 2),
        ([EqualTo(("/speed:value",), 3)], 3, 12),
    ],
)
def test_filters_decide_what_is_read(lake: Path, filters: list[Filter], segments: int, count: int) -> None:
    made = reader(lake, filters)
    tasks = [task for task in made.partitions() if isinstance(task, DatasetTask)]
    units = [share.segment for task in tasks for share in task.shares.shares]
    assert sum(len(getattr(unit, "segments", [unit])) for unit in units) == segments
    assert len(rows(lake, filters)) <= count


def test_filters_on_times_are_of_what_spark_shows(lake: Path) -> None:
    """Times end in one nanosecond, which a timestamp does not show."""
    second = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    whole = len(rows(lake, index="log_time"))
    for filters, count in (
        ([EqualTo(("log_time",), second)], whole // 4),
        ([LessThan(("log_time",), datetime(9999, 1, 1, tzinfo=UTC))], whole),
        ([GreaterThanOrEqual(("log_time",), datetime(1, 1, 1, tzinfo=UTC))], whole),
        ([GreaterThanOrEqual(("log_time",), datetime(9999, 1, 1, tzinfo=UTC))], 0),
        ([EqualTo(("log_time_nanoseconds",), SECOND + 1)], whole // 4),
        ([EqualTo(("log_time_nanoseconds",), SECOND)], 0),
    ):
        assert len(rows(lake, filters, index="log_time")) == count, filters


def test_bad_options(lake: Path) -> None:
    for options, said in (
        ({"index": ""}, "needs the option 'index'"),
        ({"path": ""}, "needs the option 'path'"),
        ({"topic": "/imu"}, "has no option 'topic'"),
        ({"index": "frames"}, "Did you mean 'frame'?"),
        ({"columns": "/speed"}, "There are: rerun_segment_id, frame"),
        ({"fill": "yes"}, "expected 'true' or 'false'"),
        ({"start": "noon"}, "start"),
        ({"index": "none", "start": "1"}, "the index is 'none'"),
        ({"semantics": "best"}, "expected one of contract"),
    ):
        with pytest.raises(UsageError, match=said.replace("?", r"\\?")):
            reader(lake, **options)
    with pytest.raises(NotFoundError, match="there is no segment 'd'"):
        reader(lake, segments="d")
    with pytest.raises(NotFoundError, match="drive"):
        reader(lake, dataset="drive")
    request = DatasetRequest.of({"path": str(lake), "index": "frame"})
    wrong = DatasetRequest.of({"path": str(lake), "index": "log_time"}).schema()
    wrong["frame"].dataType = wrong["rerun_segment_id"].dataType
    with pytest.raises(UsageError, match="column 'frame' is string in the schema, but int64 in the dataset"):
        DatasetReader(request, wrong)


def test_a_session_reads_it(spark: SparkSession, lake: Path) -> None:
    register(spark)
    frame = spark.read.format("chunkmill.dataset").option("index", "frame").load(str(lake))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        found = frame.where("rerun_segment_id = 'c' AND frame > 2").select("frame", "`/speed:value`").collect()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert sorted(map(tuple, found)) == [(3, [30]), (5, None)]


# --- tables, and the segments of datasets


@pytest.fixture(scope="module")
def labelled(lake: Path) -> Path:
    schema = pa.schema([("drive", pa.string()), ("label", pa.string()), ("stars", pa.uint32())])
    CatalogClient(lake).create_table("labels", schema).append(
        drive=["a", "b", None], label=["sun", "fog", "x"], stars=[1, None, 3]
    )
    return lake


def table_rows(lake: Path, **options: str) -> list[dict[str, Any]]:
    """The rows that tasks of ``chunkmill.table`` give, each sent to its worker."""
    source = data_source_of("table")({"path": str(lake), **options})
    made = source.reader(source.schema())
    tasks = made.partitions()
    there = pickle.loads(pickle.dumps(made))
    batches = [batch for task in tasks for batch in there.read(pickle.loads(pickle.dumps(task)))]
    return [row for batch in batches for row in batch.to_pylist()]


def test_tables_and_segments_are_those_of_the_catalog(labelled: Path) -> None:
    client = CatalogClient(labelled)
    assert table_rows(labelled, table="labels") == [
        {"drive": "a", "label": "sun", "stars": 1},
        {"drive": "b", "label": "fog", "stars": None},
        {"drive": None, "label": "x", "stars": 3},
    ]
    segments = client.ctx.sql('SELECT rerun_segment_id, "frame:end" AS "end" FROM drives').to_pylist()
    found = table_rows(labelled, table="drives")
    assert [{"rerun_segment_id": r["rerun_segment_id"], "end": r["frame:end"]} for r in found] == segments
    assert {row["name"] for row in table_rows(labelled, table="__entries")} >= {"drives", "labels"}
    client.create_dataset("empty", exist_ok=True)
    client.create_table("none", pa.schema([("a", pa.int32())]))
    assert table_rows(labelled, table="empty") == table_rows(labelled, table="none") == []


def test_bad_options_of_tables(labelled: Path) -> None:
    wrong: list[tuple[dict[str, str], str]] = [
        ({}, "needs the option 'table'"),
        ({"table": "labels", "path": ""}, "needs the option 'path'"),
        ({"table": "labels", "index": "frame"}, "has no option 'index'. Options: path, table."),
    ]
    for options, said in wrong:
        with pytest.raises(UsageError, match=said):
            table_rows(labelled, **options)
    with pytest.raises(NotFoundError, match=r"there is no table or dataset 'lables'\. Did you mean 'labels'"):
        table_rows(labelled, table="lables")
    source = data_source_of("table")({"path": str(labelled), "table": "labels"})
    with pytest.raises(UsageError, match="'labels' has other columns than the schema"):
        source.reader(data_source_of("table")({"path": str(labelled), "table": "drives"}).schema())


def test_spark_sql_joins_rows_segments_and_tables(spark: SparkSession, labelled: Path) -> None:
    register(spark)
    views = {
        "drives": f"chunkmill.table OPTIONS (path '{labelled}', table 'drives')",
        "labels": f"chunkmill.table OPTIONS (path '{labelled}', table 'labels')",
        "speeds": f"chunkmill.dataset OPTIONS (path '{labelled}', dataset 'drives', index 'frame', contents '/speed')",
    }
    for name, source in views.items():
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} USING {source}")
    try:
        found = spark.sql(
            "WITH top AS (SELECT rerun_segment_id, max(`/speed:value`[0]) AS speed FROM speeds WHERE frame < 3 "
            "GROUP BY 1) "
            "SELECT d.rerun_segment_id, d.`frame:end`, label, speed FROM drives d JOIN top USING (rerun_segment_id) "
            "LEFT JOIN labels ON drive = rerun_segment_id ORDER BY 1"
        )
        assert list(map(tuple, found.collect())) == [("a", 5, "sun", 20), ("b", 5, "fog", 20), ("c", 5, None, 20)]
    finally:
        for name in views:
            spark.catalog.dropTempView(name)
