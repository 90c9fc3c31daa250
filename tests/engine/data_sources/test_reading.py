"""Recordings as Spark data sources: rows, options, splits, push-down, and back to a stream."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chunkmill.engine.data_sources.options import Request
from chunkmill.engine.data_sources.reading import ChunkFrameReader, input_files
from chunkmill.engine.errors import SourceMissingError, UsageError
from chunkmill.engine.execution.work import COLUMNS, WITHOUT_PAYLOAD
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.readers import FORMATS, McapReader, RrdReader
from comparison import cells

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MCAP = "mcap/rosbag2__cdr_test_0.mcap"


@pytest.fixture(scope="module")
def rrd(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sources") / "drive.rrd"
    McapReader(data / "demo.mcap").stream().write_rrd(path, application_id="a", recording_id="r", executor="inline")
    return path


def read(spark: SparkSession, kind: str, path: Any, **options: str) -> DataFrame:
    return spark.read.format(f"chunkmill.{kind}").options(**options).load(path if isinstance(path, list) else str(path))


@pytest.mark.quick
def test_an_rrd_is_read_where_it_lies(spark: SparkSession, rrd: Path) -> None:
    frame = read(spark, "rrd", rrd)
    assert frame.columns == list(WITHOUT_PAYLOAD)
    assert {r.path for r in frame.select("path").distinct().collect()} == {str(rrd)}
    chunks = LazyChunkStream.from_spark(frame).to_chunks(executor="inline")
    wanted = RrdReader(rrd).stream().to_chunks(executor="inline")
    assert [c.id for c in chunks] == [c.id for c in wanted]
    assert cells(chunks) == cells(wanted)


def test_an_mcap_with_payload_comes_back(spark: SparkSession, data: Path) -> None:
    source = data / MCAP
    frame = read(spark, "mcap", source, payload="true")
    assert frame.columns == list(COLUMNS)
    chunks = LazyChunkStream.from_spark(frame).to_chunks(executor="inline")
    assert cells(chunks) == cells(McapReader(source).stream().to_chunks(executor="inline"))
    sizes = frame.selectExpr("uncompressed_size = length(payload) as same", "offset").distinct().collect()
    assert [(r.same, r.offset) for r in sizes] == [(True, None)]


def test_rows_of_an_mcap_say_what_is_in_it(spark: SparkSession, data: Path) -> None:
    source = data / MCAP
    rows = read(spark, "mcap", source, columns="path,entity_path,num_rows,uncompressed_size").collect()
    chunks = McapReader(source).stream().to_chunks(executor="inline")
    assert sorted((r.entity_path, r.num_rows) for r in rows) == sorted((c.entity_path, c.num_rows) for c in chunks)
    assert {r.path for r in rows} == {str(source)}
    assert all(r.uncompressed_size > 0 for r in rows)
    with pytest.raises(UsageError, match="does not refer to a stored chunk"):
        LazyChunkStream.from_spark(read(spark, "mcap", source)).to_chunks(executor="inline")


def test_options_narrow(spark: SparkSession, data: Path, rrd: Path) -> None:
    source = data / MCAP
    everything = McapReader(source).stream().to_chunks(executor="inline")
    topic = sorted({c.entity_path for c in everything if not c.is_static})[0]
    one = read(spark, "mcap", source, topics=topic, columns="entity_path")
    assert {r.entity_path for r in one.where("entity_path not like '/\\\\_\\\\_%'").collect()} == {topic}
    entity = RrdReader(rrd).stream().to_chunks(executor="inline")[-1].entity_path
    chosen = read(spark, "rrd", rrd, content=entity)
    assert {r.entity_path for r in chosen.collect()} == {entity}


def test_folders_patterns_and_lists(spark: SparkSession, rrd: Path, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("a.rrd", "sub/b.RRD", ".hidden.rrd"):
        shutil.copy(rrd, tmp_path / name)
    (tmp_path / "notes.txt").write_text("no recording")
    both = [str(tmp_path / "a.rrd"), str(tmp_path / "sub" / "b.RRD")]
    assert input_files([str(tmp_path)], FORMATS["rrd"]) == both
    assert input_files([f"{tmp_path}/*"], FORMATS["rrd"]) == both[:1]
    assert input_files([f"{tmp_path}/**/*", tmp_path.as_uri()], FORMATS["rrd"]) == both
    frame = read(spark, "rrd", both, columns="task,path")
    assert frame.rdd.getNumPartitions() == 2
    assert sorted({(r.task, r.path) for r in frame.collect()}) == list(enumerate(both))
    for path in ("missing.rrd", "*.mcap"):
        with pytest.raises(SourceMissingError, match=r"no such file|matches this pattern"):
            input_files([str(tmp_path / path)], FORMATS["rrd"])
    with pytest.raises(UsageError, match="not a supported location"):
        input_files(["ftp://host/x.rrd"], FORMATS["rrd"])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "needs a path"),
        ({"path": "f", "topc": "/x"}, "no option 'topc'"),
        ({"path": "f", "payload": "maybe"}, "'true' or 'false'"),
        ({"path": "f", "columns": "entity"}, "no column 'entity'"),
    ],
)
def test_options_are_checked(options: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        Request.of(FORMATS["mcap"], options)
    with pytest.raises(UsageError, match="no option 'topics'"):
        Request.of(FORMATS["rrd"], {"path": "f", "topics": "/x"})


def test_what_fails_says_so_in_the_text(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import AnalysisException, PySparkException

    with pytest.raises(AnalysisException, match="no option 'colums'"):
        read(spark, "rrd", tmp_path, colums="path")
    bad = tmp_path / "bad.rrd"
    bad.write_bytes(b"RRF2" + bytes(40))
    with pytest.raises(PySparkException, match=r"(?s)bad\.rrd.*chunkmill\.\w+ in the task for .*bad\.rrd"):
        read(spark, "rrd", bad).collect()


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_filters_are_pushed_down_where_the_session_has_it_on(spark: SparkSession, rrd: Path, pushing: None) -> None:
    chunks = RrdReader(rrd).stream().to_chunks(executor="inline")
    entities = sorted({c.entity_path for c in chunks})
    first, last = entities[0], entities[-1]
    frame = read(spark, "rrd", rrd, columns="entity_path,is_static")
    for condition, holds in (
        (f"entity_path in ('{first}', '/a -{first}', 'x')", lambda c: c.entity_path == first),
        (f"is_static = false and entity_path <=> '{last}'", lambda c: c.entity_path == last and not c.is_static),
        (f"entity_path like '{last[:3]}%' and is_static", lambda c: c.entity_path[:3] == last[:3] and c.is_static),
    ):
        found = sorted((r.entity_path, r.is_static) for r in frame.where(condition).collect())
        assert found == sorted((c.entity_path, c.is_static) for c in chunks if holds(c)), condition


def test_what_was_pushed_down_is_not_read(rrd: Path) -> None:
    from pyspark.sql.datasource import EqualTo, In, StringStartsWith

    entities = sorted({c.entity_path for c in RrdReader(rrd).stream().to_chunks(executor="inline")})
    filters = [EqualTo(("entity_path",), entities[0]), StringStartsWith(("entity_path",), "/")]

    def rows(filters: list[Any]) -> list[str]:
        reader = ChunkFrameReader(Request.of(FORMATS["rrd"], {"path": str(rrd)}))
        assert reader.pushFilters(filters) == filters
        batches = (b for p in reader.partitions() for b in reader.read(p))
        return [v for b in batches for v in b.column("entity_path").to_pylist()]

    assert set(rows(filters)) == {entities[0]}
    assert set(rows([In(("entity_path",), tuple(entities[:2]))])) == set(entities[:2])
    assert set(rows([In(("entity_path",), (entities[0], "/a b"))])) == set(entities)
    assert rows([EqualTo(("is_static",), True), EqualTo(("is_static",), False)]) == []
