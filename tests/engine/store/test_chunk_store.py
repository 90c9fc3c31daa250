"""Stores: collected, kept with versions and digests, opened again; the same from RRDs."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.errors import (
    CommitUnknownError,
    ReadError,
    SourceMissingError,
    UnsupportedError,
    UsageError,
    WriteError,
)
from chunkmill.engine.execution.lease import Lease
from chunkmill.engine.optimisation import collect
from chunkmill.engine.recordings import Commit, StoreWriter
from chunkmill.engine.recordings.folder import FORMAT, RecordingsFolder
from chunkmill.engine.rrd import digest_of
from chunkmill.engine.storage.folder import LocalFolder
from chunkmill.engine.storage.versions import RELEASES, VersionFiles
from chunkmill.engine.store import ChunkStore, OptimizationProfile, RecordingStore
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.readers import McapReader, RrdReader
from comparison import rerun_chunks, rerun_verify


def chunk(path: str, start: int, rows: int = 3, *, static: bool = False) -> Chunk:
    times = [] if static else [TimeColumn("frame", sequence=range(start, start + rows))]
    return Chunk.from_columns(path, times, [ComponentColumn("x", [float(start + i) for i in range(rows)])])


def several() -> list[Chunk]:
    return [chunk("/b", 0), chunk("/a", 0), chunk("/b", 3), chunk("/a", 3), chunk("/s", 0, 1, static=True)]


def values(chunks: Any) -> list[tuple[str, int | None, float]]:
    """Every value with its time, in sorted order."""
    found = []
    for c in chunks:
        times = c.data.timelines[0].ticks.tolist() if c.data.timelines else [None] * c.num_rows
        for time, value in zip(times, c.data.components[0].values.to_pylist(), strict=True):
            found.append((c.entity_path, time, value[0]))
    return sorted(found, key=repr)


def test_from_chunks_merges_nothing_and_leaves_out_what_is_empty_or_double() -> None:
    chunks = several()
    store = ChunkStore.from_chunks([*chunks, chunks[0], chunk("/e", 0, 0)])
    assert len(store) == 5
    assert repr(store) == "ChunkStore(5 chunks)"
    assert [c.id for c in store] == sorted(c.id for c in chunks)
    assert bool(store) and not ChunkStore.from_chunks([])
    with pytest.raises(AttributeError):
        ChunkStore.from_chunks([1])  # type: ignore[list-item]


def test_collect_merges_neighbours() -> None:
    store = LazyChunkStream.from_iter(several()).collect()
    assert store.summary().splitlines() == [
        "/a rows=6 static=False timelines=['frame'] cols=['frame', 'x']",
        "/b rows=6 static=False timelines=['frame'] cols=['frame', 'x']",
        "/s rows=1 static=True timelines=[] cols=['x']",
    ]
    assert values(store) == values(several())
    assert [str(c) for c in store.schema().index_columns()] == ["Index(timeline:frame)"]
    assert ChunkStore.from_chunks([]).summary() == ""


def test_collect_refuses_what_is_no_profile() -> None:
    with pytest.raises(AttributeError, match="max_bytes"):
        LazyChunkStream.from_iter(several()).collect(optimize="x")  # type: ignore[arg-type]


def test_a_store_can_be_streamed_and_written_again_and_again(tmp_path: Path) -> None:
    store = LazyChunkStream.from_iter(several()).collect()
    for _ in range(2):
        assert values(store.stream().filter(content="/a/**")) == [v for v in values(several()) if v[0] == "/a"]
        store.write_rrd(tmp_path / "out.rrd", application_id="a", recording_id="r")
    (written,) = rerun_chunks(tmp_path / "out.rrd").values()
    assert values(written) == values(several())
    lazy = RrdReader(tmp_path / "out.rrd").store()
    assert (len(lazy), repr(lazy), lazy.summary()) == (3, "LazyStore(3 chunks)", store.summary())
    assert str(lazy.schema()) == str(store.schema())
    assert lazy.stream().collect().summary() == store.summary()


def test_a_result_in_scratch_goes_with_its_last_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKMILL_SCRATCH", str(tmp_path))
    store = LazyChunkStream.from_iter(several()).collect()
    kept = next(iter(store))
    del store
    assert list(tmp_path.iterdir())
    assert kept.to_record_batch().num_rows > 0
    del kept
    assert list(tmp_path.iterdir()) == []


def test_large_recordings_are_compacted_in_two_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second step works on references; what comes out is what one step gives."""
    chunks = [chunk(f"/{i % 3}", i * 10, 10) for i in range(60)]
    whole = LazyChunkStream.from_iter(chunks).collect(optimize=OptimizationProfile.OBJECT_STORE)
    monkeypatch.setattr(collect, "is_small", lambda work: False)
    two_steps = LazyChunkStream.from_iter(chunks).collect(optimize=OptimizationProfile.OBJECT_STORE)
    monkeypatch.setattr(collect, "WHOLE_ENTITY", 0)
    passing = LazyChunkStream.from_iter(chunks).collect(optimize=OptimizationProfile.OBJECT_STORE)
    for store in (two_steps, passing):
        assert store.summary() == whole.summary()
        assert values(store) == values(chunks)


class TestKept:
    """A store in a folder."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        LazyChunkStream.from_iter(several()).collect(into=tmp_path / "store", application_id="app", recording_id="rec")
        return tmp_path / "store"

    def test_versions(self, folder: Path) -> None:
        LazyChunkStream.from_iter([chunk("/z", 0)]).collect(into=folder, application_id="app", recording_id="rec")
        newest = ChunkStore.open(folder)
        assert [v.number for v in newest.versions()] == [1, 2]
        assert newest.version is not None and newest.version.number == 2
        assert [c.entity_path for c in newest.stream()] == ["/z"]
        assert values(ChunkStore.open(folder, version=1).stream()) == values(several())
        with pytest.raises(SourceMissingError, match=r"there is no version 3\. There are: 1, 2\."):
            ChunkStore.open(folder, version=3)

    def test_rerun_opens_each_shard(self, folder: Path) -> None:
        shards = sorted((folder / "shards").iterdir())
        rerun_verify(*shards)
        found = [c for s in shards for chunks in rerun_chunks(s).values() for c in chunks]
        assert values(found) == values(several())

    def test_vacuum_removes_what_old_versions_alone_need(self, folder: Path) -> None:
        LazyChunkStream.from_iter([chunk("/z", 0)]).collect(into=folder)
        (folder / "shards" / "left-by-a-crash.rrd").write_bytes(b"x")
        store = ChunkStore.open(folder)
        assert store.vacuum() > 1
        assert [v.number for v in store.versions()] == [2, 3]
        assert store.vacuum() == 0
        assert len(list((folder / "shards").iterdir())) == len(list((folder / "manifests").iterdir())) == 1
        assert [c.entity_path for c in ChunkStore.open(folder).stream()] == ["/z"]

    def test_a_flipped_bit_is_noticed_on_read_and_on_copy(self, folder: Path, tmp_path: Path) -> None:
        (shard,) = (folder / "shards").iterdir()
        stored = ChunkStore.open(folder)
        payload = next(iter(stored)).payload
        assert payload is not None
        data = bytearray(shard.read_bytes())
        data[payload.offset + payload.size // 2] ^= 1  # type: ignore[attr-defined]
        shard.write_bytes(data)
        with pytest.raises(ReadError, match="its digest differs"):
            stored.stream().collect()
        with pytest.raises(ReadError, match="its digest differs"):
            stored.write_rrd(tmp_path / "copy.rrd", application_id="a", recording_id="r")
        assert not (tmp_path / "copy.rrd").exists()

    def test_of_two_writers_of_one_version_the_second_goes_on_top(self, folder: Path) -> None:
        kept = RecordingsFolder(folder)
        version = kept.version()
        first, second = StoreWriter(kept), StoreWriter(kept)
        assert first.rewrite(list(first.live), Commit("collect")).number == version.number + 1
        second.rewrite(list(second.live), Commit("collect"))
        assert kept.version().number == second.number == version.number + 2
        assert len(ChunkStore.open(folder)) == version.chunks
        assert len(set(kept.tables.names())) == 3
        assert set(kept.writers.names()) == set()

    @pytest.mark.parametrize(("crashing", "crash"), [(VersionFiles, "create"), (StoreWriter, "_publish")])
    def test_a_crash_before_the_commit_shows_nothing(
        self, crashing: type, crash: str, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*args: object, **options: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(crashing, crash, fail)
        with pytest.raises(KeyboardInterrupt):
            LazyChunkStream.from_iter([chunk("/z", 0)]).collect(into=folder)
        monkeypatch.undo()
        store = ChunkStore.open(folder)
        assert values(store.stream()) == values(several())
        store.vacuum()
        assert len(list((folder / "shards").iterdir())) == 1
        assert [p.name for p in folder.iterdir() if p.name.startswith(".")] == []

    @pytest.mark.parametrize(
        "damage",
        [
            lambda f: f.write_text("{"),
            lambda f: f.write_text("{}"),
            lambda f: f.write_text('{"format": 2}'),
            lambda f: f.write_text("[" * 100_000),
            lambda f: f.write_text(f.read_text().replace('"rows": ', '"rows": 1')),
            lambda f: f.write_bytes(f.read_bytes().replace(b"tables", b"tabl\xff")),
        ],
    )
    def test_a_damaged_version_is_named(self, damage: Callable[[Path], object], folder: Path) -> None:
        damage(folder / "versions" / "00000001.json")
        with pytest.raises(ReadError, match=r"00000001\.json") as caught:
            ChunkStore.open(folder)
        assert caught.value.hint

    def test_a_flipped_bit_of_a_manifest_is_noticed(self, folder: Path) -> None:
        (manifest,) = (folder / "manifests").iterdir()
        data = bytearray(manifest.read_bytes())
        data[data.index(b"/a")] ^= 2
        manifest.write_bytes(data)
        with pytest.raises(ReadError, match="its digest differs") as caught:
            ChunkStore.open(folder)
        assert caught.value.path == str(manifest) and caught.value.hint

    def test_a_version_of_a_newer_release_is_named(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("chunkmill.engine.recordings.folder.FORMAT", FORMAT + 1)
        monkeypatch.setitem(RELEASES, FORMAT + 1, "9.1.0")  # type: ignore[arg-type] # a dict
        LazyChunkStream.from_iter([chunk("/z", 0)]).collect(into=folder.with_name("newer"))
        monkeypatch.undo()
        with pytest.raises(
            UnsupportedError, match=r"chunkmill 9\.1\.0 or later is needed for this to be read"
        ) as raised:
            ChunkStore.open(folder.with_name("newer"))
        assert "Upgrade chunkmill to 9.1.0 or later." in (raised.value.hint or "")

    def test_a_version_that_only_a_newer_release_may_follow_is_read_and_not_written(self, folder: Path) -> None:
        place = folder / "versions" / "00000001.json"
        said = json.loads(place.read_text())
        assert said["needs"] == {"read": [FORMAT, RELEASES[FORMAT]], "write": [FORMAT, RELEASES[FORMAT]]}
        said["needs"]["write"] = [FORMAT + 1, "9.1.0"]
        del said["digest"]
        digest = digest_of(json.dumps(said, sort_keys=True).encode()).hex()
        place.write_text(json.dumps({**said, "digest": digest}))
        before = sorted(folder.rglob("*"))
        assert len(list(ChunkStore.open(folder))) > 0
        with pytest.raises(UnsupportedError, match=r"chunkmill 9\.1\.0 or later is needed for this to be written"):
            LazyChunkStream.from_iter([chunk("/z", 0)]).collect(into=folder)
        new = [path for path in folder.rglob("*") if path.is_file() and path not in before]
        assert [path for path in new if path.parent.name != "schemas"] == []

    def test_a_cut_manifest_is_named(self, folder: Path) -> None:
        (manifest,) = (folder / "manifests").iterdir()
        os.truncate(manifest, 100)
        with pytest.raises(ReadError, match="the manifest of recording rec cannot be read"):
            ChunkStore.open(folder)

    def test_it_is_a_store_of_recordings_with_one(self, folder: Path) -> None:
        store = RecordingStore.open(folder)
        (entry,) = store
        version = ChunkStore.open(folder).version
        assert version is not None and version.store == entry.store
        assert (entry.recording_id, entry.chunks, entry.rows, entry.bytes) == (
            version.recording_id,
            version.chunks,
            version.rows,
            version.bytes,
        )
        assert values(store.recording("rec")) == values(several())
        assert store.compact(executor="inline").damaged == ()
        assert values(ChunkStore.open(folder)) == values(several())

    def test_a_commit_that_may_have_happened_says_so_and_removes_nothing(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish = VersionFiles.create

        def interrupted(files: VersionFiles, number: int, data: dict[str, Any]) -> bool:
            publish(files, number, data)
            raise OSError(5, "no answer")

        monkeypatch.setattr(VersionFiles, "create", interrupted)
        with pytest.raises(CommitUnknownError, match="it is unknown whether version 2 was committed") as caught:
            LazyChunkStream.from_iter([chunk("/z", 0)]).collect(into=folder)
        assert caught.value.transient
        assert values(ChunkStore.open(folder)) == values([chunk("/z", 0)])

    def test_another_that_compacts_is_named_and_hinders_no_commit(self, folder: Path) -> None:
        with Lease.take(folder, "compact"):
            with pytest.raises(WriteError, match=r"this process is already writing here: compact \(process") as caught:
                ChunkStore.open(folder).vacuum()
            assert caught.value.transient
            LazyChunkStream.from_iter([chunk("/z", 0)]).collect(into=folder)  # commits need no lease
        assert [v.number for v in ChunkStore.open(folder).versions()] == [1, 2]

    def test_recordings_that_were_ingested_stay(self, folder: Path) -> None:
        kept = RecordingsFolder(folder)
        writer = StoreWriter(kept)
        (entry,) = writer.live
        writer.publish([replace(entry, recording_id="other", source="/landing/other.rrd")], Commit())
        with pytest.raises(UsageError, match="2 ingested recordings"):
            LazyChunkStream.from_iter([chunk("/z", 0)]).collect(into=folder)
        with pytest.raises(UsageError, match="version 2 of this store has 2 recordings, not one") as caught:
            ChunkStore.open(folder)
        assert caught.value.path == str(folder) and "RecordingStore.open" in str(caught.value.hint)
        assert values(ChunkStore.open(folder, version=1)) == values(several())
        assert len(RecordingStore.open(folder)) == 2

    def test_the_earlier_format_of_one_recording_is_refused(self, tmp_path: Path) -> None:
        folder = tmp_path / "old"
        (folder / "versions").mkdir(parents=True)
        files = VersionFiles(LocalFolder(folder / "versions"), str(folder), "")
        files.commit(1, {"number": 1, "chunks": 0, "manifest": "m.arrow", "manifest_digest": "", "first": 0})
        for use in (ChunkStore.open, RecordingStore.open, LazyChunkStream.from_iter([chunk("/z", 0)]).collect):
            with pytest.raises(UnsupportedError, match="an old format for a single recording") as caught:
                use(into=folder) if use.__name__ == "collect" else use(folder)
            assert caught.value.path == str(folder) and "shards/*.rrd" in str(caught.value.hint)

    def test_shards_have_a_size(self, folder: Path) -> None:
        with pytest.raises(UsageError, match="shard_bytes must be positive, not 0"):
            LazyChunkStream.from_iter(several()).collect(into=folder, shard_bytes=0)


def test_there_must_be_a_store(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match="this folder contains no store"):
        ChunkStore.open(tmp_path)


class TestShards:
    """Folders of RRDs of one recording."""

    @pytest.mark.parametrize("shard_bytes", [1, 30_000, 10_000_000])
    def test_shards(self, shard_bytes: int, data: Path, tmp_path: Path) -> None:
        def stream() -> LazyChunkStream:
            return McapReader(data / "demo.mcap").stream()

        out = tmp_path / "shards"
        result = stream().write_rrd(out, application_id="a", recording_id="r", shards=True, shard_bytes=shard_bytes)
        files = sorted(out.iterdir())
        rerun_verify(*files)
        found = [rerun_chunks(f) for f in files]
        assert all(list(stores) == ["recording a r"] for stores in found)
        chunks = [c for stores in found for c in stores["recording a r"]]
        assert [c.entity_path for c in chunks] == [c.entity_path for c in stream()]
        assert sum(c.num_rows for c in chunks) == result.rows
        assert sum(c.num_rows for c in chunks if not c.is_static) == 3513
        assert result.bytes_out == sum(f.stat().st_size for f in files)
        for file, stores in zip(files, found, strict=True):
            assert file.stat().st_size <= shard_bytes or len(stores["recording a r"]) == 1

    def test_the_folder_must_be_new_or_empty(self, tmp_path: Path) -> None:
        out = tmp_path / "shards"
        for _ in range(2):
            stream = LazyChunkStream.from_iter(several())
            if out.exists():
                with pytest.raises(WriteError, match="already exists"):
                    stream.write_rrd(out, application_id="a", recording_id="r", shards=True)
            else:
                stream.write_rrd(out, application_id="a", recording_id="r", shards=True)
        assert [p.name for p in tmp_path.iterdir()] == ["shards"]


def test_a_legacy_file_has_no_store(data: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError, match=r"Legacy RRD without footer: .*stream\(\)\.collect\(\)"):
            RrdReader(data / "rrd" / "unity-rerun-sdk__phase3_scene.rrd").store()
