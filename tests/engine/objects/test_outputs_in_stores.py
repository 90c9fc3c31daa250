"""RRDs, shards and kept stores written to S3: whole or not there, and the same as on a file system."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.errors import ReadError, SourceMissingError, WriteError
from chunkmill.engine.optimisation import collect
from chunkmill.engine.recordings import Commit, StoreWriter
from chunkmill.engine.recordings.folder import RecordingsFolder
from chunkmill.engine.storage import ObjectUrl, bucket_of
from chunkmill.engine.store import ChunkStore, OptimizationProfile
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.readers import McapReader, RrdReader
from s3_server import S3Server

pytestmark = pytest.mark.usefixtures("small_parts")

RNG = np.random.default_rng(4)


def blob(number: int, size: int = 100_000) -> Chunk:
    """A chunk that does not compress."""
    column = ComponentColumn("x", [RNG.integers(0, 256, size, np.uint8).tobytes()])
    return Chunk.from_columns(f"/blob/{number}", [TimeColumn("frame", sequence=[number])], [column])


def scalars(number: int) -> Chunk:
    column = ComponentColumn("x", [float(number * 100 + i) for i in range(100)])
    return Chunk.from_columns(f"/e/{number}", [TimeColumn("frame", sequence=range(100))], [column])


def names(s3: S3Server, bucket: str) -> list[str]:
    return [o["Key"] for o in s3.client.list_objects_v2(Bucket=bucket[5:]).get("Contents", [])]


def unfinished(s3: S3Server, bucket: str) -> list[str]:
    return [u["Key"] for u in s3.client.list_multipart_uploads(Bucket=bucket[5:]).get("Uploads", [])]


def content(chunks: Iterator[Chunk]) -> list[tuple[str, dict]]:
    """What chunks hold, but for the ids that every run makes anew."""
    batches = [(c.entity_path, c.to_record_batch()) for c in chunks]
    found = [(entity, {n: b.column(n) for n in b.schema.names if "RowId" not in n}) for entity, b in batches]
    return sorted(found, key=lambda f: (f[0], str(f[1])))


def write(stream: LazyChunkStream, to: str | Path, **options: object) -> None:
    stream.write_rrd(to, application_id="a", recording_id="r", executor="inline", **options)


def test_an_rrd_in_a_store_is_that_of_a_file_system(data: Path, bucket: str, s3: S3Server, tmp_path: Path) -> None:
    s3.client.upload_file(str(data / "demo.mcap"), bucket[5:], "in/demo.mcap")
    write(McapReader(f"{bucket}/in/demo.mcap").stream(), f"{bucket}/out/demo.rrd")
    write(McapReader(data / "demo.mcap").stream(), tmp_path / "demo.rrd")
    there, here = RrdReader(f"{bucket}/out/demo.rrd"), RrdReader(tmp_path / "demo.rrd")
    assert there.recordings() == here.recordings()
    assert content(there.stream().to_chunks()) == content(here.stream().to_chunks())
    assert there.store().summary() == here.store().summary()
    assert names(s3, bucket) == ["in/demo.mcap", "out/demo.rrd"]


def test_parts_are_joined_inside_the_store(bucket: str, s3: S3Server, tmp_path: Path) -> None:
    write(LazyChunkStream.from_iter(blob(i, 100_000) for i in range(10)), tmp_path / "a.rrd")
    write(RrdReader(tmp_path / "a.rrd").stream(), f"{bucket}/a.rrd")
    s3.log.clear()
    write(RrdReader(f"{bucket}/a.rrd").stream(), f"{bucket}/b.rrd")
    size = (tmp_path / "a.rrd").stat().st_size
    reads = [line.rpartition("=")[2].split("-") for line in s3.log if line.startswith("GET") and "bytes=" in line]
    fetched = sum(int(stop) - int(start) + 1 for start, stop in reads)
    assert size < fetched < size + 100_000, "all of the source, and of the part no more than its beginning"
    assert len(reads) <= 25  # windows of 80 kB, in all of 1 MB
    assert content(RrdReader(f"{bucket}/b.rrd").stream().to_chunks()) == content(
        RrdReader(tmp_path / "a.rrd").stream().to_chunks()
    )
    assert names(s3, bucket) == ["a.rrd", "b.rrd"]


def fails_late(chunk: Chunk) -> Chunk:
    if chunk.entity_path == "/blob/3":
        raise KeyError("late")
    return chunk


def test_nothing_is_visible_of_a_run_that_fails(bucket: str, s3: S3Server) -> None:
    bucket_of(ObjectUrl.of(bucket)).put("out.rrd", b"before")
    stream = LazyChunkStream.from_iter(blob(i) for i in range(4)).map(fails_late)
    with pytest.raises(KeyError, match="late"):
        write(stream, f"{bucket}/out.rrd")
    assert bucket_of(ObjectUrl.of(bucket)).get("out.rrd") == b"before"
    assert names(s3, bucket) == ["out.rrd"]
    assert unfinished(s3, bucket) == []


def test_what_a_dead_run_left_is_cleared_away_by_the_next(bucket: str, s3: S3Server) -> None:
    store, left = bucket_of(ObjectUrl.of(bucket)), "dir/.chunkmill-staging/out.rrd"
    host = os.uname().nodename
    for run, owner in {"dead": {"host": host, "pid": 2**22 + 1}, "elsewhere": {"host": "other", "pid": 1}}.items():
        store.put(f"{left}/{run}/owner.json", json.dumps(owner).encode())
        store.put(f"{left}/{run}/000000-abcd.part", b"part")
    s3.client.create_multipart_upload(Bucket=bucket[5:], Key=f"{left}/dead/000001-abcd.part")
    write(LazyChunkStream.from_iter([scalars(1)]), f"{bucket}/dir/out.rrd")
    assert names(s3, bucket) == [
        f"{left}/elsewhere/000000-abcd.part",
        f"{left}/elsewhere/owner.json",
        "dir/out.rrd",
    ]
    assert unfinished(s3, bucket) == []


def test_an_rrd_is_not_written_onto_its_source(bucket: str) -> None:
    write(LazyChunkStream.from_iter([scalars(1)]), f"{bucket}/a.rrd")
    with pytest.raises(WriteError, match="is a source of the same pipeline"):
        write(RrdReader(f"{bucket}/a.rrd").stream(), f"{bucket}/a.rrd")


def test_shards_appear_under_a_prefix(bucket: str, s3: S3Server) -> None:
    chunks = [blob(i) for i in range(5)]
    write(LazyChunkStream.from_iter(chunks), f"{bucket}/shards", shards=True, shard_bytes=240_000)
    assert names(s3, bucket) == [f"shards/shard-{i:05d}.rrd" for i in range(3)]
    found = [c for i in range(3) for c in RrdReader(f"{bucket}/shards/shard-{i:05d}.rrd").stream().to_chunks()]
    assert content(found) == content(chunks)
    with pytest.raises(WriteError, match="already exists"):
        write(LazyChunkStream.from_iter(chunks), f"{bucket}/shards", shards=True)


def test_no_shard_stays_when_one_cannot_be_finished(bucket: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    from chunkmill.engine.storage.uploads import S3Upload

    original: Callable[[S3Upload], None] = S3Upload.finish

    def failing(self: S3Upload) -> None:
        if self.url.name == "shard-00001.rrd":
            raise WriteError("cannot be written: the store answered 507", path=str(self.url))
        original(self)

    monkeypatch.setattr(S3Upload, "finish", failing)
    with pytest.raises(WriteError, match="507"):
        write(LazyChunkStream.from_iter(blob(i) for i in range(5)), f"{bucket}/s", shards=True, shard_bytes=240_000)
    assert names(s3, bucket) == []
    assert unfinished(s3, bucket) == []


class TestKept:
    """A store that is kept in a bucket."""

    @pytest.fixture
    def url(self, bucket: str) -> str:
        LazyChunkStream.from_iter([scalars(1), scalars(2)]).collect(into=f"{bucket}/store", recording_id="r")
        return f"{bucket}/store"

    def test_it_is_opened_by_its_url(self, url: str, bucket: str, s3: S3Server) -> None:
        opened = ChunkStore.open(url)
        assert content(iter(opened)) == content(iter([scalars(1), scalars(2)]))
        assert [v.number for v in opened.versions()] == [1]
        assert opened.version is not None
        shards = [n for n in names(s3, bucket) if n.endswith(".rrd")]
        assert content(RrdReader(f"{bucket}/{shards[0]}").stream().to_chunks()) == content(iter(opened))
        assert not [n for n in names(s3, bucket) if "staging" in n]

    def test_it_has_versions_and_vacuum_removes_old_ones(self, url: str, bucket: str, s3: S3Server) -> None:
        LazyChunkStream.from_iter([scalars(3)]).collect(into=url, recording_id="r")
        assert [c.entity_path for c in ChunkStore.open(url)] == ["/e/3"]
        assert [c.entity_path for c in ChunkStore.open(url, version=1)] == ["/e/1", "/e/2"]
        assert ChunkStore.open(url).vacuum() > 0
        assert [v.number for v in ChunkStore.open(url).versions()] == [2, 3]
        assert len([n for n in names(s3, bucket) if "/lease/" not in n and "/schemas/" not in n]) == 5
        assert [c.num_rows for c in ChunkStore.open(url)] == [100]
        with pytest.raises(SourceMissingError, match="there is no version 1"):
            ChunkStore.open(url, version=1)

    def test_of_two_writers_of_one_version_the_second_goes_on_top_of_the_first(
        self, url: str, bucket: str, s3: S3Server
    ) -> None:
        before = names(s3, bucket)
        first, second = (StoreWriter(RecordingsFolder(url)) for _ in range(2))
        first.rewrite(list(first.live), Commit("collect"))
        after = names(s3, bucket)
        assert len(after) == len(before) + 2
        second.rewrite(list(second.live), Commit("collect"))
        assert second.number == first.number + 1
        assert len(names(s3, bucket)) == len(after) + 2

    def test_a_commit_whose_answer_was_lost_is_a_commit(self, url: str) -> None:
        name, data = "00000001.json", bucket_of(ObjectUrl.of(url)).get("store/versions/00000001.json")
        assert RecordingsFolder(url).versions_folder.create(name, data)
        assert not RecordingsFolder(url).versions_folder.create(name, b"another")

    def test_damage_is_noticed(self, url: str, bucket: str) -> None:
        store = bucket_of(ObjectUrl.of(bucket))
        shard = next(o.url.key for o in store.list("store/shards"))
        damaged = bytearray(store.get(shard))
        damaged[len(damaged) // 3] ^= 1
        store.put(shard, bytes(damaged))
        with pytest.raises(ReadError, match="its digest differs"):
            content(iter(ChunkStore.open(url)))

    def test_large_ones_are_compacted_by_reference(
        self, bucket: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(collect, "is_small", lambda _: False)
        chunks = [blob(i, 100_000) for i in range(5)]
        stream = LazyChunkStream.from_iter(chunks)
        store = stream.collect(into=f"{bucket}/large", optimize=OptimizationProfile.LIVE, shard_bytes=350_000)
        assert content(iter(store)) == content(chunks)
        assert len([n for n in names(s3, bucket) if n.endswith(".rrd")]) == 2
        assert not [n for n in names(s3, bucket) if "staging" in n]

    def test_where_nothing_is_kept_it_is_said(self, bucket: str) -> None:
        with pytest.raises(SourceMissingError, match=f"{bucket}/other: this folder contains no store"):
            ChunkStore.open(f"{bucket}/other")
