"""Spark's data sources and sinks over URLs, planned and run in this process as Spark does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine import RecordingStore
from chunkmill.engine.data_sources.landings import OPTIONS, LandingStreamReader, Watch
from chunkmill.engine.data_sources.options import Request
from chunkmill.engine.data_sources.reading import ChunkFrameReader, ValueReader, chunk_tasks, value_row_schema
from chunkmill.engine.data_sources.sinks import ChunkWriter, RrdWriterOfRows, StoreWriterOfRows, Target
from chunkmill.engine.errors import WriteError
from chunkmill.engine.spark import arrow_of
from chunkmill.readers import McapReader, RrdReader
from comparison import cells
from pyspark import cloudpickle
from s3_server import S3Server

MCAP = "mcap/rosbag2__cdr_test_0.mcap"


@pytest.fixture
def url(data: Path, bucket: str, s3: S3Server) -> str:
    """A recording, which has landed."""
    s3.client.upload_file(str(data / MCAP), bucket[5:], "landing/a.mcap")
    return f"{bucket}/landing/a.mcap"


def far(thing: Any) -> Any:
    """The same in another process."""
    return cloudpickle.loads(cloudpickle.dumps(thing))


def rows_of(path: str) -> list[pa.RecordBatch]:
    request = Request.of(None, {"path": path, "payload": "true"})
    return [batch for task in far(chunk_tasks([path], request)) for batch in task.batches(request)]


def values_of(path: str, **options: str) -> pa.Table:
    request = Request.of(None, {"path": path, **options})
    schema = value_row_schema(request)
    reader = ValueReader(request, schema)
    return pa.Table.from_batches(
        [b for part in far(reader.partitions()) for b in far(reader).read(part)], arrow_of(schema)
    )


def save(kind: type[ChunkWriter], path: str, rows: list[pa.RecordBatch]) -> None:
    made = kind(Target.of("chunkmill.test", {"path": path}, streams=False), overwrite=False)
    made.commit([far(far(made).write(iter(rows)))])


def test_rows_and_values_are_those_of_the_file(url: str, data: Path) -> None:
    columns = ["entity_path", "num_rows", "timelines", "components"]
    there, here = (pa.Table.from_batches(rows_of(path)).select(columns) for path in (url, str(data / MCAP)))
    assert there == here
    there, here = (values_of(path, contents="/**").drop_columns("recording_id") for path in (url, str(data / MCAP)))
    assert len(there) > 0
    assert there == here
    paths = {path for batch in rows_of(url) for path in batch.column("path").to_pylist()}
    assert paths == {url}


def test_a_prefix_is_read_object_by_object(url: str, s3: S3Server, bucket: str, data: Path) -> None:
    s3.client.upload_file(str(data / MCAP), bucket[5:], "landing/sub/b.mcap")
    request = Request.of(None, {"path": f"{bucket}/landing"})
    tasks = ChunkFrameReader(request).partitions()
    assert len(tasks) == 2


@pytest.mark.parametrize("kind", [RrdWriterOfRows, StoreWriterOfRows])
def test_sinks_write_to_urls(kind: type[ChunkWriter], url: str, bucket: str, s3: S3Server, data: Path) -> None:
    target = f"{bucket}/out.rrd" if kind is RrdWriterOfRows else f"{bucket}/lake"
    save(kind, target, rows_of(url))
    if kind is RrdWriterOfRows:
        chunks = RrdReader(target).stream().to_chunks(executor="inline")
        with pytest.raises(WriteError, match="already exists"):
            save(kind, target, rows_of(url))
    else:
        store = RecordingStore.open(target)
        [entry] = store
        chunks = store.recording(entry).stream().to_chunks(executor="inline")
    assert cells(chunks) == cells(McapReader(data / MCAP).stream().to_chunks(executor="inline"))
    keys = [o["Key"] for o in s3.client.list_objects_v2(Bucket=bucket[5:]).get("Contents", [])]
    assert not any(".chunkmill-" in key or "staging" in key for key in keys)


def test_a_stream_takes_what_lands_under_a_prefix(url: str, bucket: str, s3: S3Server, data: Path) -> None:
    given = {"path": f"{bucket}/landing", "settle": "0s", "every": "0s", "log": f"{bucket}/log"}
    request = Request.of(None, given, OPTIONS)
    reader: LandingStreamReader = far(LandingStreamReader(request, Watch.of(request, given)))
    start = reader.initialOffset()
    end = reader.latestOffset(start, None)
    names = [
        n
        for part in far(reader.partitions(start, end))
        for b in reader.read(part)
        for n in b["recording_id"].to_pylist()
    ]
    assert set(names) == {"a"}
    assert reader.latestOffset(end, None) == end
    s3.client.upload_file(str(data / MCAP), bucket[5:], "landing/b.mcap")
    later = reader.latestOffset(end, None)
    [task] = reader.partitions(end, later)
    assert {n for batch in reader.read(task) for n in batch["recording_id"].to_pylist()} == {"b"}
