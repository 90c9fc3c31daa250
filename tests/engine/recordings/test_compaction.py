"""Compaction: fewer files with the same recordings, whoever reads meanwhile and whatever fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.errors import CommitUnknownError, ReadError, ReadWarning, UsageError, WriteError
from chunkmill.engine.execution import ProgressState
from chunkmill.engine.execution.lease import Lease
from chunkmill.engine.execution.stage import RunOptions
from chunkmill.engine.recordings import compaction
from chunkmill.engine.recordings.compaction import compact_store
from chunkmill.engine.recordings.vacuum import NewFiles
from chunkmill.engine.reports import RunReport
from chunkmill.engine.rrd import StoreEntry
from chunkmill.engine.store import OptimizationProfile, RecordingStore
from chunkmill.readers import RrdReader
from stored_recordings import QUERY, MadeRecordings, assert_times_of_chunks, contents, times_of, values_of

INLINE = RunOptions("inline")


@pytest.fixture
def made(tmp_path: Path) -> MadeRecordings:
    return MadeRecordings(tmp_path / "lake")


def batches(made: MadeRecordings, count: int, **shape: Any) -> None:
    for at in range(count):
        made.commit({"id": f"r{at}", **shape})


class TestJoining:
    def test_small_files_become_one_of_each_kind(self, made: MadeRecordings) -> None:
        batches(made, 5)
        before, was = made.open(), contents(made.open())
        report = compact_store(made.writer)
        after = made.open()
        assert contents(after) == was
        assert [e.recording_id for e in after] == [e.recording_id for e in before]
        assert (report.shards_before, report.shards_after) == (5, 1)
        assert (report.manifests_before, report.manifests_after) == (5, 1)
        assert (report.tables_after, report.moved, report.damaged) == (1, 5, ())
        assert report.versions == (6,)
        assert report.bytes_after < report.bytes_before

    def test_all_else_that_is_known_stays(self, made: MadeRecordings) -> None:
        batches(made, 3)
        made.commit({"id": "new", "source": "/landing/r1.rrd"})
        before = made.open()
        compact_store(made.writer)
        after = made.open()
        changed = {"manifest", "manifest_offset", "manifest_size", "manifest_digest", "shards"}
        for old, new in zip(before.recordings(), after.recordings(), strict=True):
            assert {n for n in old.__slots__ if getattr(old, n) != getattr(new, n)} <= changed
        assert after.entry("new").segment_version == 2
        assert after.version.operation == "compact"
        assert after.version.batches == before.version.batches == {QUERY: 4}
        assert after.version.totals == before.version.totals == {"added": 4}
        assert after.version.files == {}
        for figure in ("recordings", "chunks", "rows", "bytes"):
            assert getattr(after.version, figure) == getattr(before.version, figure)

    def test_nothing_to_do_means_no_version(self, made: MadeRecordings) -> None:
        assert compact_store(made.writer).versions == ()
        made.commit({"id": "a"})
        assert compact_store(made.writer).versions == ()
        batches(made, 3)
        assert compact_store(made.writer).versions == (5,)
        files = made.files()
        assert compact_store(made.writer).versions == ()
        assert made.files() == files

    def test_shards_are_whole_rrds(self, made: MadeRecordings) -> None:
        batches(made, 3)
        compact_store(made.writer)
        (name,) = made.open().entry("r0").shards
        reader = RrdReader(made.folder.shards.place(name))
        assert sorted(s.recording_id for s in reader.recordings()) == ["r0", "r1", "r2"]
        assert (
            sum(c.num_rows for c in reader.stream(store=StoreEntry("recording", "tests", "r1")))
            == made.open().entry("r1").rows
        )

    def test_large_shards_are_left_where_they_are(self, made: MadeRecordings) -> None:
        made.commit({"id": "large", "rows": 50, "width": 50})
        batches(made, 3)
        large = made.open().entry("large").shards
        assert compact_store(made.writer, min_shard=20_000).shards_after == 2
        assert made.open().entry("large").shards == large
        assert made.open().entry("large").manifest == made.open().entry("r0").manifest

    def test_blueprints_and_recordings_without_chunks_come_along(self, made: MadeRecordings) -> None:
        made.commit({"id": "b", "kind": "blueprint"}, {"id": "noted", "keep_chunks": False})
        batches(made, 2)
        made.commit({"id": "empty", "chunks": 0})
        noted = made.open().entry("noted")
        compact_store(made.writer)
        store = made.open()
        assert store.entry("noted") == noted
        assert len(store.recording("empty")) == 0
        assert len(store.recording(store.blueprints()[0])) == 2

    def test_a_recording_in_several_shards(self, tmp_path: Path) -> None:
        made = MadeRecordings(tmp_path / "lake", shard_bytes=30_000)
        made.commit({"id": "wide", "chunks": 6, "rows": 30, "width": 40})
        batches(made, 6)
        was = contents(made.open())
        assert len(made.open().entry("wide").shards) > 2
        compact_store(made.writer)
        assert contents(made.open()) == was
        assert compact_store(made.writer).versions == ()
        assert all(size < 60_000 for _, size in made.folder.shards.entries())

    def test_a_large_store_takes_several_commits(self, tmp_path: Path) -> None:
        made = MadeRecordings(tmp_path / "lake", shard_bytes=16_000)
        batches(made, 12)
        was = contents(made.open())
        report = compact_store(made.writer, budget=1)
        assert len(report.versions) > 1
        assert report.shards_after < report.shards_before
        assert contents(made.open()) == was
        for number in report.versions:
            assert contents(made.open(number)) == was

    def test_what_was_replaced_is_left_behind(self, made: MadeRecordings) -> None:
        made.commit({"id": "kept"}, {"id": "old", "source": "/s", "rows": 60, "width": 60})
        made.commit({"id": "new", "source": "/s"})
        report = compact_store(made.writer, min_shard=1)
        assert report.shards_before == 2
        assert report.bytes_after < report.bytes_before / 3
        assert set(contents(made.open())) == {"kept", "new"}

    @pytest.mark.heavy
    def test_every_so_often_a_byte_is_written_few_times(self, made: MadeRecordings) -> None:
        written = 0
        for at in range(32):
            made.commit({"id": f"r{at}"})
            written += compact_store(made.writer, thorough=False).written
        assert len(made.folder.shards.entries()) > 32
        assert compact_store(made.writer, thorough=False).shards_after <= 7
        size = sum(made.folder.shards.size(s) for s in {s for e in made.open() for s in e.shards})
        assert written < 7 * size
        assert len(contents(made.open())) == 32

    def test_sizes_that_make_no_sense(self, made: MadeRecordings) -> None:
        with pytest.raises(UsageError, match="positive"):
            compact_store(made.writer, min_shard=0)


class TestReaders:
    def test_old_versions_stay_until_they_are_vacuumed(self, made: MadeRecordings) -> None:
        batches(made, 3)
        before, was = made.open(), contents(made.open())
        lazy = [before.recording(e) for e in before]
        compact_store(made.writer)
        assert contents(before) == was
        assert contents(made.open(3)) == was
        assert sum(len(list(r)) for r in lazy) == 6
        made.open().vacuum()
        assert contents(made.open()) == was
        files = made.files()
        assert {k: len(v) for k, v in files.items()} == {"versions": 2, "tables": 1, "manifests": 1, "shards": 1}
        with pytest.raises(ReadError):
            contents(before)

    def test_vacuum_leaves_nothing_of_a_compaction_that_was_cut(
        self, made: MadeRecordings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        batches(made, 3)
        was = contents(made.open())

        def killed(point: str, *_: Any) -> None:
            if point == "compact.run":
                raise KeyboardInterrupt

        monkeypatch.setattr(compaction, "reach", killed)
        monkeypatch.setattr("chunkmill.engine.recordings.vacuum.NewFiles.discard", lambda _: None)
        with pytest.raises(KeyboardInterrupt):
            compact_store(made.writer)
        assert len(made.files()["shards"]) == 4
        made.open().vacuum(keep=3)
        assert {k: len(v) for k, v in made.files().items() if k != "tables"} == {
            "versions": 4,
            "manifests": 3,
            "shards": 3,
        }
        assert contents(made.open()) == was


class TestFailures:
    @pytest.mark.parametrize("point", ["shard.write", "shard.rename", "manifest.write", "compact.run", "table.write"])
    def test_before_the_version_nothing_is_left(
        self, point: str, made: MadeRecordings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        batches(made, 3)
        files, was = made.files(), contents(made.open())
        failing_at(point, monkeypatch)
        with pytest.raises(RuntimeError, match=point):
            compact_store(made.writer)
        assert made.files() == files
        assert [p.name for p in Path(made.home).iterdir() if p.name.startswith(".")] == []
        monkeypatch.undo()
        assert compact_store(made.writer).versions == (4,)
        assert contents(made.open()) == was

    @pytest.mark.parametrize("point", ["version.done", "compact.commit"])
    def test_after_the_version_all_is_there(
        self, point: str, made: MadeRecordings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        batches(made, 3)
        was = contents(made.open())
        failing_at(point, monkeypatch)
        with pytest.raises(RuntimeError, match=point):
            compact_store(made.writer)
        monkeypatch.undo()
        assert made.open().version.operation == "compact"
        assert contents(made.open()) == was
        assert compact_store(made.writer).versions == ()

    def test_a_commit_of_which_nothing_is_known_removes_nothing(
        self, made: MadeRecordings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        batches(made, 2)
        failing_at("version.publish", monkeypatch)
        with pytest.raises(CommitUnknownError):
            compact_store(made.writer)
        assert made.open().version.number == 3
        assert len(contents(made.open())) == 2

    def test_a_damaged_recording_stays_and_the_others_go_on(self, made: MadeRecordings) -> None:
        batches(made, 4)
        entry = made.open().entry("r1")
        shard = Path(made.folder.shards.place(entry.shards[0]))
        data = bytearray(shard.read_bytes())
        data[len(data) // 2 - 600] ^= 1
        offset = next(iter(made.open().recording(entry))).payload.offset  # type: ignore[union-attr]
        data = bytearray(shard.read_bytes())
        data[offset + 40] ^= 1
        shard.write_bytes(data)
        with pytest.warns(ReadWarning, match=f"recording r1 is unchanged.*{shard.name}"):
            report = compact_store(made.writer)
        assert report.damaged == ("r1",)
        store = made.open()
        assert (len(store), store.entry("r1").shards) == (4, entry.shards)
        assert report.shards_after == 2
        with pytest.raises(ReadError):
            [c.data for c in store.recording("r1")]
        with pytest.warns(ReadWarning):
            assert compact_store(made.writer).versions == ()

    def test_a_damaged_manifest_is_named(self, made: MadeRecordings) -> None:
        batches(made, 3)
        entry = made.open().entry("r2")
        place = Path(made.folder.manifests.place(entry.manifest))
        place.write_bytes(place.read_bytes()[: entry.manifest_size - 8])
        with pytest.warns(ReadWarning, match=entry.manifest):
            assert compact_store(made.writer).damaged == ("r2",)

    def test_damaged_times_are_made_anew(self, made: MadeRecordings) -> None:
        batches(made, 3)
        entry = made.open().entry("r2")
        place = Path(made.folder.manifests.place(entry.manifest))
        place.write_bytes(place.read_bytes()[:-8])
        with pytest.raises(ReadError, match="times"):
            times_of(made, "r2")
        with pytest.warns(ReadWarning, match=entry.manifest):
            assert compact_store(made.writer).damaged == ()
        assert_times_of_chunks(made)

    def test_another_writer_is_not_disturbed(self, made: MadeRecordings) -> None:
        batches(made, 2)
        with Lease.take(made.folder.path, "ingest"), pytest.raises(WriteError, match="ingest"):
            made.open().compact(executor="inline")
        other = MadeRecordings(made.home)
        made.commit({"id": "meanwhile"})
        assert compact_store(other.writer).versions == (4,)
        assert len(contents(made.open())) == 3

    def test_what_came_in_between_stays_as_it_is(self, made: MadeRecordings, monkeypatch: pytest.MonkeyPatch) -> None:
        batches(made, 3)
        other = MadeRecordings(made.home)
        finish = NewFiles.finish

        def late(files: NewFiles) -> None:
            finish(files)
            monkeypatch.setattr(NewFiles, "finish", finish)
            other.commit({"id": "new"}, {"id": "r1", "seed": 99})

        monkeypatch.setattr(NewFiles, "finish", late)
        before = contents(made.open())
        report = compact_store(made.writer)
        assert report.versions[0] == 5
        after = contents(made.open())
        assert after.keys() == {*before, "new"}
        assert after["r1"] == contents(made.open(4))["r1"] != before["r1"]
        assert {after[name] == before[name] for name in before if name != "r1"} == {True}

    def test_nothing_is_published_where_all_was_replaced_meanwhile(
        self, made: MadeRecordings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        batches(made, 2)
        other = MadeRecordings(made.home)
        finish = NewFiles.finish

        def late(files: NewFiles) -> None:
            finish(files)
            monkeypatch.setattr(NewFiles, "finish", finish)
            other.commit(*({"id": entry.recording_id, "seed": 99} for entry in made.open()))

        monkeypatch.setattr(NewFiles, "finish", late)
        report = compact_store(made.writer, thorough=False)
        assert report.versions == ()
        assert made.open().version.number == 3
        made.open().vacuum()
        assert len(made.files()["shards"]) == 1


class TestLayout:
    def test_small_chunks_are_laid_out_anew(self, made: MadeRecordings) -> None:
        made.commit({"id": "cut", "chunks": 40, "rows": 2}, {"id": "fine", "chunks": 2, "rows": 40})
        before = made.open()
        was = {i: values_of(before, i) for i in ("cut", "fine")}
        report = compact_store(made.writer, profile=OptimizationProfile.OBJECT_STORE, run=INLINE)
        after = made.open()
        assert report.laid_out == 1
        assert after.entry("cut").chunks == 2
        assert after.entry("cut").rows == before.entry("cut").rows
        assert {i: values_of(after, i) for i in was} == was
        assert after.version.chunks == 4
        assert compact_store(made.writer, profile=OptimizationProfile.OBJECT_STORE, run=INLINE).versions == ()
        assert contents(before).keys() == contents(after).keys()

    def test_a_profile_that_merges_nothing(self, made: MadeRecordings) -> None:
        made.commit({"id": "cut", "chunks": 20, "rows": 2})
        for profile in (OptimizationProfile(max_bytes=0), OptimizationProfile(max_rows_if_unsorted=0)):
            assert compact_store(made.writer, profile=profile, run=INLINE).versions == ()

    def test_one_that_cannot_be_read_is_left(self, made: MadeRecordings) -> None:
        made.commit({"id": "cut", "chunks": 20, "rows": 2})
        made.commit({"id": "other", "chunks": 20, "rows": 2})
        shard = Path(made.folder.shards.place(made.open().entry("cut").shards[0]))
        data = bytearray(shard.read_bytes())
        data[len(data) // 5] ^= 255
        shard.write_bytes(data)
        with pytest.warns(ReadWarning, match="recording cut is unchanged"):
            report = compact_store(made.writer, profile=OptimizationProfile.LIVE, run=INLINE)
        assert (report.laid_out, report.damaged) == (1, ("cut",))
        assert made.open().entry("other").chunks == 2


def test_a_store_compacts_itself(made: MadeRecordings) -> None:
    batches(made, 3)
    store = made.open()
    was = contents(store)
    assert store.compact(executor="inline").versions == (4,)
    assert store.version.number == 3
    assert contents(RecordingStore.open(made.home)) == was
    assert json.loads((Path(made.home) / "versions" / "00000004.json").read_text())["operation"] == "compact"


class Watcher:
    """A ``ProgressListener`` that keeps what it was told."""

    def __init__(self) -> None:
        self.totals: list[int] = []
        self.states: list[ProgressState] = []

    def started(self, total_splits: int, total_bytes: int) -> None:
        self.totals.append(total_splits)

    def advanced(self, done: ProgressState) -> None:
        self.states.append(done)

    def finished(self, result: RunReport) -> None: ...


def test_who_watches_is_told_of_each_recording(made: MadeRecordings) -> None:
    batches(made, 3)
    watcher = Watcher()
    assert made.open().compact(executor="inline", progress=watcher).moved == 3
    assert watcher.totals == [3]
    last = watcher.states[-1]
    assert (last.splits_done, last.bytes_done) == (3, last.bytes_total)
    assert last.chunks == sum(entry.chunks for entry in made.open())


def failing_at(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the fault point raise, once."""
    monkeypatch.setenv("CHUNKMILL_FAULTS", f"{point}:exception:{_reached(point) + 1}")


def _reached(point: str) -> int:
    from chunkmill.engine import faults

    return faults._here.get(point, 0)
