"""Sinks for chunk rows: files and stores that appear whole, batches that are there once, and nothing left behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine import LazyChunkStream, RecordingStore
from chunkmill.engine.data_sources.options import Request
from chunkmill.engine.data_sources.reading import chunk_tasks
from chunkmill.engine.data_sources.sinks import ChunkWriter, RrdWriterOfRows, StoreWriterOfRows, Target
from chunkmill.engine.errors import ReadError, SameRecordingError, UsageError, WriteError
from chunkmill.readers import McapReader, RrdReader
from comparison import cells
from pyspark import cloudpickle

MCAP = "mcap/rosbag2__cdr_test_0.mcap"


@pytest.fixture(scope="module")
def rows(data: Path) -> list[pa.RecordBatch]:
    """The chunk rows of a recording, with payload."""
    paths = [str(data / MCAP)]
    request = Request.of(None, {"path": paths[0], "payload": "true"})
    tasks = chunk_tasks(paths, request)
    return [batch for task in tasks for batch in task.batches(request)]


@pytest.fixture(scope="module")
def wanted(data: Path) -> Any:
    return cells(McapReader(data / MCAP).stream().to_chunks(executor="inline"))


def writer(
    kind: type[ChunkWriter], path: Path, *, overwrite: bool = False, streams: bool = False, **options: str
) -> Any:
    given = {"path": str(path), **options}
    return kind(Target.of("chunkmill.test", given, streams=streams), overwrite=overwrite)


def save(made: ChunkWriter, *partitions: list[pa.RecordBatch], batch: int | None = None) -> None:
    """Do as Spark does: tasks in other processes, then the commit."""
    far = [cloudpickle.loads(cloudpickle.dumps(made)).write(iter(part)) for part in partitions]
    messages = [cloudpickle.loads(cloudpickle.dumps(message)) for message in far]
    made.commit(messages, *([] if batch is None else [batch]))


def renamed(batches: list[pa.RecordBatch], name: str) -> list[pa.RecordBatch]:
    at = batches[0].schema.get_field_index("recording_id")
    return [b.set_column(at, "recording_id", pa.array([name] * b.num_rows, pa.string())) for b in batches]


def left(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if ".chunkmill-" in path.name]


def test_rows_become_one_rrd_in_their_order(rows: list[pa.RecordBatch], wanted: Any, tmp_path: Path) -> None:
    out = tmp_path / "out.rrd"
    table = pa.Table.from_batches(rows)
    mixed = table.take(list(range(1, len(table), 2)) + list(range(0, len(table), 2))).combine_chunks().to_batches()
    save(writer(RrdWriterOfRows, out), mixed)
    chunks = RrdReader(out).stream().to_chunks(executor="inline")
    assert cells(chunks) == wanted
    assert [s.recording_id for s in RrdReader(out).recordings()] == ["rosbag2__cdr_test_0"]
    assert left(tmp_path) == []
    with pytest.raises(WriteError, match="already exists"):
        writer(RrdWriterOfRows, out)
    save(writer(RrdWriterOfRows, out, overwrite=True, recording_id="r", application_id="a"), rows)
    assert [(s.application_id, s.recording_id) for s in RrdReader(out).recordings()] == [("a", "r")]


def test_rows_that_point_at_chunks_are_copied_from_there(
    rows: list[pa.RecordBatch], wanted: Any, tmp_path: Path
) -> None:
    save(writer(RrdWriterOfRows, tmp_path / "a.rrd"), rows)
    paths = [str(tmp_path / "a.rrd")]
    request = Request.of(None, {"path": paths[0], "columns": "task,position,path,offset,size,recording_id"})
    (task,) = chunk_tasks(paths, request)
    save(writer(RrdWriterOfRows, tmp_path / "b.rrd"), list(task.batches(request)))
    assert cells(RrdReader(tmp_path / "b.rrd").stream().to_chunks(executor="inline")) == wanted


def test_each_recording_is_one_of_the_store(rows: list[pa.RecordBatch], wanted: Any, tmp_path: Path) -> None:
    save(writer(StoreWriterOfRows, tmp_path / "store"), [*rows, *renamed(rows, "second")], renamed(rows, "third"))
    store = RecordingStore.open(tmp_path / "store")
    assert {e.recording_id for e in store} == {"rosbag2__cdr_test_0", "second", "third"}
    assert cells(store.recording("second").stream().to_chunks(executor="inline")) == wanted
    with pytest.raises(SameRecordingError, match="'third' is already in the store"):
        save(writer(StoreWriterOfRows, tmp_path / "store"), renamed(rows, "third"))
    save(writer(StoreWriterOfRows, tmp_path / "store", replacesameid="true"), renamed(rows, "third"))
    assert RecordingStore.open(tmp_path / "store").entry("third").segment_version == 2
    save(writer(StoreWriterOfRows, tmp_path / "store", overwrite=True), renamed(rows, "alone"))
    assert [e.recording_id for e in RecordingStore.open(tmp_path / "store")] == ["alone"]
    assert left(tmp_path) == []


@pytest.mark.parametrize("kind", [RrdWriterOfRows, StoreWriterOfRows])
def test_a_batch_is_there_once(kind: type[ChunkWriter], rows: list[pa.RecordBatch], tmp_path: Path) -> None:
    out = tmp_path / "out"
    for batch, name in ((0, "first"), (0, "first"), (1, "second"), (1, "second")):
        save(writer(kind, out, streams=True, query="0123456789"), renamed(rows, name), batch=batch)
    if kind is StoreWriterOfRows:
        assert [(e.recording_id, e.segment_version) for e in RecordingStore.open(out)] == [("first", 1), ("second", 1)]
        assert RecordingStore.open(out).version.number == 2
    else:
        assert sorted(path.name for path in out.iterdir()) == ["00000000-01234567.rrd", "00000001-01234567.rrd"]
    save(writer(kind, out, streams=True, query="another"), renamed(rows, "third"), batch=0)
    assert left(tmp_path) == []


def test_the_query_is_known_by_its_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="which identifies the batches of a stream"):
        writer(StoreWriterOfRows, tmp_path / "s", streams=True)
    with pytest.raises(UsageError, match="cannot be read from its checkpoint"):
        writer(StoreWriterOfRows, tmp_path / "s", streams=True, checkpointlocation=str(tmp_path))
    (tmp_path / "metadata").write_text(json.dumps({"id": "q-1"}))
    assert Target.of("x", {"path": "s", "checkpointlocation": str(tmp_path)}, streams=True).query == "q-1"


def test_what_is_given_up_leaves_nothing(rows: list[pa.RecordBatch], tmp_path: Path) -> None:
    made = writer(RrdWriterOfRows, tmp_path / "out.rrd")
    message = made.write(iter(rows))
    assert left(tmp_path)
    with pytest.raises(WriteError, match="not all tasks reported"):
        made.commit([message, None])
    made.abort([message, None])
    assert list(tmp_path.iterdir()) == []


def test_rows_that_are_not_fit_say_why(rows: list[pa.RecordBatch], tmp_path: Path) -> None:
    nameless = [b.drop_columns(["recording_id"]) for b in rows]
    with pytest.raises(UsageError, match="has no recording id"):
        save(writer(RrdWriterOfRows, tmp_path / "a.rrd"), nameless)
    at = rows[0].schema.get_field_index("payload")
    torn = [b.set_column(at, "payload", pa.array([b"junk"] * b.num_rows, pa.binary())) for b in rows]
    with pytest.raises(ReadError, match="row 0 of partition 0"):
        save(writer(RrdWriterOfRows, tmp_path / "a.rrd"), torn)
    with pytest.raises(UsageError, match="no option 'compression'"):
        writer(RrdWriterOfRows, tmp_path / "a.rrd", compression="zstd")
    assert not (tmp_path / "a.rrd").exists()


@pytest.mark.quick
def test_frames_are_written_and_read_back(spark: Any, data: Path, wanted: Any, tmp_path: Path) -> None:
    frame = spark.read.format("chunkmill").option("payload", "true").load(str(data / MCAP))
    frame.repartition(2).write.format("chunkmill.rrd").mode("append").save(str(tmp_path / "out.rrd"))
    back = spark.read.format("chunkmill.rrd").load(str(tmp_path / "out.rrd"))
    back.write.format("chunkmill.store").mode("append").save(str(tmp_path / "store"))
    stored = spark.read.format("chunkmill.store").load(str(tmp_path / "store"))
    assert cells(LazyChunkStream.from_spark(stored).to_chunks(executor="inline")) == wanted
    assert {r.recording_id for r in stored.select("recording_id").distinct().collect()} == {"rosbag2__cdr_test_0"}
