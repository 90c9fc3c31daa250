"""Chunk frames: what a stream is as a DataFrame, and a stream of one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.errors import ReadError, UsageError, WriteError
from chunkmill.engine.execution import work
from chunkmill.engine.execution.work import COLUMNS, WITHOUT_PAYLOAD, payload_rows, spark_type
from chunkmill.engine.rrd import FramedPayload
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.readers import McapReader, RrdReader
from comparison import cells

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def blob(entity: str, frame: int, size: int, rows: int = 1) -> Chunk:
    column = ComponentColumn("blob", pa.array([[bytes([frame]) * size]] * rows, pa.list_(pa.binary())))
    return Chunk.from_columns(entity, [TimeColumn("frame", sequence=list(range(frame, frame + rows)))], [column])


def made_of(*chunks: Chunk) -> LazyChunkStream:
    return LazyChunkStream.from_iter(chunks).map(lambda c: c)


def static(entity: str) -> Chunk:
    return Chunk.from_columns(entity, [], [ComponentColumn("volume", [1.0])])


def columns_of(frame: DataFrame) -> dict[str, str]:
    return {f.name: f.dataType.simpleString() for f in frame.schema}


def back(frame: DataFrame) -> LazyChunkStream:
    return LazyChunkStream.from_spark(frame)


@pytest.mark.parametrize("payload", [False, True])
def test_the_schema_is_the_documented_one(spark: SparkSession, payload: bool) -> None:
    frame = made_of(blob("/a", 1, 10), static("/s")).to_spark(payload, spark=spark)
    wanted = COLUMNS if payload else WITHOUT_PAYLOAD
    assert columns_of(frame) == {name: spark_type(COLUMNS[name].arrow) for name in wanted}
    first, second = frame.orderBy("task", "position").collect()
    assert (first.entity_path, first.is_static, first.num_rows) == ("/a", False, 1)
    assert [t.asDict() for t in first.timelines] == [{"name": "frame", "kind": "sequence", "start": 1, "end": 1}]
    assert first.components[0].component == "blob"
    assert first.components[0].ranges[0].asDict() == {"start": 1, "end": 1, "num_rows": 1}
    assert (second.is_static, second.timelines, second.components[0].ranges) == (True, [], [])
    assert first.chunk_id.startswith("chunk_")
    assert first.uncompressed_size > 0
    if payload:
        assert (first.path, first.offset, first.size) == (None, None, None)
        batch = pa.ipc.open_stream(first.payload).read_next_batch()
        assert Chunk.from_record_batch(batch).id == first.chunk_id
    else:
        assert 0 < first.offset < Path(first.path).stat().st_size


@pytest.mark.parametrize("payload", [False, True])
@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_there_and_back_is_the_same(spark: SparkSession, data: Path, payload: bool, executor: str) -> None:
    source = data / "mcap" / "rosbag2__cdr_test_0.mcap"
    there = McapReader(source).stream().to_spark(payload=payload, spark=spark)
    assert cells(back(there).to_chunks(executor=executor)) == cells(
        McapReader(source).stream().to_chunks(executor="inline")
    )


def test_it_is_one_python_stage(spark: SparkSession) -> None:
    frame = made_of(static("/s")).filter(content="/**").to_spark(spark=spark)
    plan = frame._jdf.queryExecution().executedPlan().toString()  # type: ignore[operator]
    assert plan.count("MapInArrow") == 1
    assert "Exchange" not in plan


def test_a_frame_is_made_once_and_its_derived_frames_see_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    def count(chunk: Chunk) -> Chunk:
        with ran.open("a") as file:
            file.write(chunk.entity_path)
        return chunk.with_entity_path("/new" + chunk.entity_path)

    derived = LazyChunkStream.from_iter([static("/a"), static("/b")]).map(count).to_spark(spark=spark).drop("digest")
    assert not ran.exists()
    ids = [sorted(r.chunk_id for r in derived.collect()) for _ in range(2)]
    assert ids[0] == ids[1]
    assert sorted(c.id for c in back(derived).to_chunks(executor="inline")) == ids[0]
    assert ran.read_text() == "/a/b"


def test_filters_on_a_frame_choose_chunks(spark: SparkSession) -> None:
    frame = made_of(*(blob(f"/b/{i}", i, 10) for i in range(5)), static("/s")).to_spark(spark=spark)
    chosen = frame.where("not is_static and timelines[0].start >= 3")
    assert [c.entity_path for c in back(chosen).to_chunks(executor="inline")] == ["/b/3", "/b/4"]


def test_headers_come_with_the_rows(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = made_of(blob("/a", 1, 10), blob("/b", 2, 10)).to_spark(spark=spark)
    with_header = back(frame).filter(content="/b")
    without = back(frame.select("path", "offset", "size")).filter(content="/b")
    loads = []
    real = FramedPayload._sizes
    monkeypatch.setattr(FramedPayload, "_sizes", lambda self, found: loads.append(1) or real(self, found))
    assert [c.entity_path for c in with_header.to_chunks(executor="inline")] == ["/b"]
    assert loads == []
    assert [c.entity_path for c in without.to_chunks(executor="inline")] == ["/b"]
    assert loads


def test_chunks_without_a_change_keep_their_bytes(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    first = tmp_path / "first.rrd"
    McapReader(data / "demo.mcap").stream().write_rrd(first, application_id="a", recording_id="r", executor="inline")
    frame = RrdReader(first).stream().to_spark(spark=spark)
    second = tmp_path / "second.rrd"
    back(frame).write_rrd(second, application_id="a", recording_id="r", executor="spark")
    before, after = ({c.id: c for c in RrdReader(p).stream().to_chunks(executor="inline")} for p in (first, second))
    assert list(before) == list(after)
    assert all(c.to_record_batch().equals(before[c.id].to_record_batch(), check_metadata=True) for c in after.values())


def test_kept_parts_serve_rows_saved_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    frame = made_of(static("/a"), static("/b")).to_spark(into=kept, spark=spark)
    pq.write_table(frame.toArrow(), tmp_path / "rows.parquet")
    rows = spark.createDataFrame(pq.read_table(tmp_path / "rows.parquet"))
    assert {len(r.digest) for r in rows.collect()} == {16}
    assert [c.entity_path for c in back(rows).to_chunks(executor="spark")] == ["/a", "/b"]
    (part,) = kept.glob("*.part")
    damaged = bytearray(part.read_bytes())
    damaged[-40] ^= 1
    part.write_bytes(damaged)
    with pytest.raises(ReadError, match="digest differs"):
        back(rows).map(lambda c: c).write_rrd(tmp_path / "x.rrd", application_id="a", recording_id="r")
    with pytest.raises(WriteError, match="not empty"):
        made_of(static("/a")).to_spark(into=kept, spark=spark)
    with pytest.raises(UsageError, match="`into` or `payload`, not both"):
        made_of(static("/a")).to_spark(True, into=tmp_path / "other", spark=spark)


def test_frames_of_nothing(spark: SparkSession) -> None:
    for payload in (False, True):
        frame = LazyChunkStream.from_iter([]).to_spark(payload, spark=spark)
        assert frame.count() == 0
        assert back(frame).to_chunks(executor="inline") == []


def test_a_large_chunk_comes_in_several_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "PAYLOAD_LIMIT", 8192)
    large = blob("/a", 0, 3000, rows=7)
    rows = list(payload_rows(large, None))
    assert all(len(r["payload"]) < 8192 for r in rows)
    pieces = [Chunk.from_record_batch(pa.ipc.open_stream(r["payload"]).read_next_batch()) for r in rows]
    assert [r["num_rows"] for r in rows] == [len(p) for p in pieces]
    assert pa.chunked_array([p.data.row_ids for p in pieces]).to_pylist() == large.data.row_ids.to_pylist()
    assert len({p.id for p in pieces}) == len(pieces) > 1
    with pytest.raises(UsageError, match=r"/a: one row of .* bytes does not fit"):
        list(payload_rows(blob("/a", 0, 9000), None))


def test_payload_frames_come_in_order_from_any_partition(spark: SparkSession) -> None:
    frame = made_of(*(blob(f"/b/{i}", i, 10) for i in range(9))).to_spark(True, spark=spark).repartition(3, "chunk_id")
    assert [c.entity_path for c in back(frame).to_chunks(executor="inline")] == [f"/b/{i}" for i in range(9)]
    alone = back(frame.select("payload")).to_chunks(executor="inline")
    assert sorted(c.entity_path for c in alone) == [f"/b/{i}" for i in range(9)]


def test_what_is_no_chunk_frame_is_refused(spark: SparkSession) -> None:
    with pytest.raises(UsageError, match="not a DataFrame of chunks"):
        back(spark.range(3))
    with pytest.raises(UsageError, match="not a DataFrame of chunks"):
        back("frame")  # type: ignore[arg-type]


def test_changed_headers_are_refused(spark: SparkSession) -> None:
    frame = made_of(static("/a")).to_spark(spark=spark)
    for changed in ("entity_path", "types"):
        other = frame.selectExpr(*[f"'/x' as {c}" if c == changed else c for c in frame.columns])
        if changed == "types":
            other = frame.selectExpr("*", "unhex('00') as bad").drop("types").withColumnRenamed("bad", "types")
        with pytest.raises(UsageError, match="were changed"):
            back(other).to_chunks(executor="inline")


def test_rows_that_point_nowhere_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    for place, error in (
        ("null, 1L, 1L", UsageError),
        ("'f', -1L, 1L", UsageError),
        (f"'{tmp_path}/missing', 1L, 1L", ReadError),
        (f"'{__file__}', 100L, 100L", ReadError),
        (f"'{__file__}', 1L, 1000000000L", ReadError),
    ):
        frame = spark.sql(f"select {place}").toDF("path", "offset", "size")
        with pytest.raises(error):
            [c.entity_path for c in back(frame).to_chunks(executor="inline")]


@pytest.mark.parametrize("payload", ["null", "unhex('')", "unhex('ffffffff00000000')", "'text'"])
def test_hostile_payloads_are_read_errors(spark: SparkSession, payload: str) -> None:
    frame = spark.sql(f"select cast({payload} as binary) as payload")
    with pytest.raises(ReadError, match="row 0 of partition 0 of the DataFrame"):
        back(frame).to_chunks(executor="inline")


def test_a_payload_that_is_another_table(spark: SparkSession) -> None:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"a": [1]})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    frame = spark.sql(f"select unhex('{sink.getvalue().to_pybytes().hex()}') as payload")
    with pytest.raises(ReadError, match="the payload is not a chunk"):
        back(frame).to_chunks(executor="inline")


def test_errors_of_tasks_say_what_and_where(spark: SparkSession) -> None:
    from pyspark.errors import PythonException

    def fail(chunk: Chunk) -> Chunk:
        raise ReadError("cut", path="drive.rrd", offset=3)

    text = r"(?s)drive.rrd: cut \(at byte 3\).*chunkmill.read in the task for"
    for payload in (False, True):
        frame = LazyChunkStream.from_iter([static("/a")]).map(fail).to_spark(payload, spark=spark)
        for _ in range(2):  # a failure is no result: nothing of it is kept
            with pytest.raises(PythonException, match=text):
                frame.collect()
