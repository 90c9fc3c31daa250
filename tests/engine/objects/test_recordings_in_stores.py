"""A store of recordings in an object store: ingested, read, compacted and vacuumed."""

from __future__ import annotations

from pathlib import Path

import pytest
from chunkmill.engine import Ingest, RecordingStore
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.errors import CommitUnknownError, SourceMissingError
from chunkmill.engine.recordings.compaction import compact_store
from chunkmill.engine.recordings.folder import RecordingsFolder
from chunkmill.engine.recordings.writer import StoreWriter
from chunkmill.engine.stream import LazyChunkStream
from s3_server import S3Server


def values(store: RecordingStore) -> dict[str, list[bytes]]:
    """The digests of the chunks of each recording; every chunk is read, and so verified."""
    found = {}
    for entry in store:
        chunks = list(store.recording(entry))
        assert sum(chunk.data.num_rows for chunk in chunks) == entry.rows
        found[entry.recording_id] = [chunk.payload.digest for chunk in chunks]  # type: ignore[union-attr]
    return found


@pytest.fixture
def lake(bucket: str, tmp_path: Path) -> str:
    """Four recordings, ingested one by one."""
    landing = tmp_path / "landing"
    landing.mkdir()
    for at in range(4):
        column = ComponentColumn("value", [[at + 0.5], [at + 1.5]])
        chunk = Chunk.from_columns("/signal", [TimeColumn("tick", sequence=range(2))], [column])
        LazyChunkStream.from_iter([chunk]).write_rrd(
            landing / f"{at}.rrd", application_id="tests", recording_id=f"r{at}", executor="inline"
        )
    url = f"{bucket}/lake"
    query = Ingest(
        landing,
        into=url,
        checkpoint=tmp_path / "checkpoint",
        executor="inline",
        settle=0,
        max_files_per_trigger=1,
    ).start(once=True)
    assert query.await_termination(60)
    return url


def test_it_is_read_compacted_and_vacuumed(lake: str, s3: S3Server) -> None:
    before = RecordingStore.open(lake)
    was = values(before)
    assert set(was) == {"r0", "r1", "r2", "r3"}
    report = before.compact(executor="inline")
    assert (report.shards_before, report.shards_after) == (4, 1)
    assert values(before) == values(RecordingStore.open(lake)) == was
    assert RecordingStore.open(lake).compact(executor="inline").versions == ()
    assert RecordingStore.open(lake).vacuum() > 0
    assert values(RecordingStore.open(lake)) == was
    bucket = lake.split("/")[2]
    found = s3.client.list_objects_v2(Bucket=bucket, Prefix="lake/")["Contents"]
    kinds = sorted(one["Key"].split("/")[1] for one in found if "/lease/" not in one["Key"])
    assert [k for k in kinds if k in ("versions", "tables", "manifests", "shards")] == [
        "manifests",
        "shards",
        "tables",
        "versions",
        "versions",
    ]
    assert not any("staging" in one["Key"] for one in found)
    with pytest.raises(SourceMissingError):
        RecordingStore.open(lake, version=1)


def test_a_version_whose_answer_was_lost_may_be_there(lake: str, s3: S3Server) -> None:
    was = values(RecordingStore.open(lake))

    def failed(start_response, _) -> list[bytes]:
        start_response("403 Forbidden", [("Content-Length", "0")])
        return [b""]

    s3.disturb("PUT", failed, times=1, path="/versions/", after=True)
    with pytest.raises(CommitUnknownError):
        compact_store(StoreWriter(RecordingsFolder(lake)))
    store = RecordingStore.open(lake)
    assert store.version.operation == "compact"
    assert values(store) == was
