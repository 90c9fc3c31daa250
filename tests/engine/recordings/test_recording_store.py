"""A store of many recordings: versions, damage, commits of which nothing is known, and what a vacuum leaves."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.errors import (
    CommitUnknownError,
    ReadError,
    SameRecordingError,
    SourceMissingError,
    UnsupportedError,
    WriteError,
)
from chunkmill.engine.recordings import Commit, LiveEntries, RecordingEntry, times_in, verify_store
from chunkmill.engine.recordings.compaction import compact_store
from chunkmill.engine.recordings.folder import FORMAT, RecordingsFolder
from chunkmill.engine.recordings.versions import RecordingsVersion
from chunkmill.engine.rrd.payloads import digest_of
from chunkmill.engine.storage.folder import LocalFolder
from chunkmill.engine.storage.versions import VersionFiles
from chunkmill.engine.store import RecordingStore
from stored_recordings import MadeRecordings, assert_times_of_chunks, contents, times_of


@pytest.fixture
def made(tmp_path: Path) -> MadeRecordings:
    return MadeRecordings(tmp_path / "lake")


def damages(data: bytes) -> list[bytes]:
    """A file as damage leaves it: cut, empty, with a byte that differs, with something else in it."""
    flipped = [
        data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :] for at in range(0, len(data), max(len(data) // 40, 1))
    ]
    return [b"", data[: len(data) // 2], data[:-1], b"{}", b"\0" * len(data), *flipped]


def meanwhile(made: MadeRecordings, monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Let something happen right before the next version is published."""
    publish = RecordingsFolder.publish

    def late(folder: RecordingsFolder, version: RecordingsVersion) -> bool:
        monkeypatch.setattr(RecordingsFolder, "publish", publish)
        do()
        return publish(folder, version)

    monkeypatch.setattr(RecordingsFolder, "publish", late)


class TestVersions:
    def test_each_commit_is_a_version_and_old_ones_stay(self, made: MadeRecordings) -> None:
        made.commit({"id": "a"}, {"id": "b"})
        made.commit({"id": "c"})
        made.commit({"id": "d", "source": "/landing/a.rrd"})
        assert [v.number for v in made.open().versions()] == [1, 2, 3]
        assert [[e.recording_id for e in made.open(n)] for n in (1, 2, 3)] == [list("ab"), list("abc"), list("bcd")]
        assert made.open().version.totals == {"added": 4}
        assert made.open().version.rows == sum(e.rows for e in made.open())
        with pytest.raises(SourceMissingError, match="There are: 1, 2, 3"):
            made.open(4)

    def test_an_open_store_stays_at_its_version(self, made: MadeRecordings) -> None:
        made.commit({"id": "a"})
        early = made.open()
        made.commit({"id": "b"})
        compact_store(made.writer)
        made.commit({"id": "c", "source": "/landing/a.rrd"})
        assert set(contents(early)) == {"a"}
        assert set(contents(made.open())) == {"b", "c"}

    def test_recordings_of_one_batch_share_a_shard_and_large_batches_roll(self, tmp_path: Path) -> None:
        made = MadeRecordings(tmp_path / "lake", shard_bytes=8_000)
        made.commit(*({"id": f"r{i}", "rows": 10} for i in range(10)))
        sizes = dict(made.folder.shards.entries())
        assert len(sizes) > 2
        assert len(made.files()["manifests"]) == 1
        assert all(len(e.shards) <= 2 for e in made.open())
        assert len(contents(made.open())) == 10

    def test_tables_merge_logarithmically(self, made: MadeRecordings) -> None:
        for at in range(40):
            made.commit({"id": f"r{at}"})
        most = max(len(v.tables) for v in made.open().versions())
        assert most <= 6
        written = sum(pair for v in made.open().versions() for pair in [v.tables[-1].entries])
        assert written < 40 * 6
        assert [e.recording_id for e in made.open()] == [f"r{at}" for at in range(40)]

    def test_what_is_not_there(self, tmp_path: Path, made: MadeRecordings) -> None:
        with pytest.raises(SourceMissingError, match="no store"):
            RecordingStore.open(tmp_path / "none")
        made.commit({"id": "a"})
        with pytest.raises(SourceMissingError, match="'b'"):
            made.open().recording("b")


class TestTimes:
    def test_each_recording_has_those_of_its_chunks(self, tmp_path: Path) -> None:
        made = MadeRecordings(tmp_path / "lake", shard_bytes=8_000)
        made.commit(*({"id": f"r{i}", "rows": 10, "chunks": 1 + i} for i in range(4)))
        made.commit({"id": "r1", "rows": 5}, {"id": "elsewhere", "keep_chunks": False})
        assert made.open().entry("elsewhere").times_size == 0
        made.commit({"id": "elsewhere"})
        assert_times_of_chunks(made)
        assert verify_store(made.folder).faults == ()
        compact_store(made.writer)
        assert_times_of_chunks(made)
        made.open().vacuum()
        assert verify_store(made.folder).faults == ()

    def test_verify_tells_of_times_that_are_those_of_others(self, made: MadeRecordings) -> None:
        made.commit({"id": "a"})
        made.commit({"id": "b"})
        one, other = made.open().entry("a"), made.open().entry("b")
        places = [Path(made.folder.manifests.place(e.manifest)) for e in (one, other)]
        whole = [p.read_bytes() for p in places]
        places[0].write_bytes(whole[0][: -one.times_size] + whole[1][-other.times_size :])
        made.writer.catch_up()
        lying = replace(one, times_size=other.times_size, times_digest=other.times_digest)
        made.writer.rewrite([lying, other], Commit("test"))
        made.open().vacuum()
        faults = verify_store(made.folder).faults
        assert any(fault.path == str(places[0]) and "differ from those stored" in fault.message for fault in faults)

    def test_a_store_without_times_is_read_and_compaction_makes_them(self, made: MadeRecordings) -> None:
        made.commit({"id": "a"})
        made.commit({"id": "b"})
        without = [replace(entry, times_size=0, times_digest="") for entry in made.open()]
        made.writer.rewrite(without, Commit("test"))
        assert all(times_in(made.folder, entry) is None for entry in made.open())
        assert set(contents(made.open())) == {"a", "b"}
        compact_store(made.writer)
        assert_times_of_chunks(made)


class TestDamage:
    def read(self, made: MadeRecordings) -> None:
        """Read all of a recording, its times as well."""
        contents(made.open())
        times_of(made, "a").check()

    @pytest.mark.parametrize("folder", ["versions", "tables", "manifests"])
    def test_a_damaged_file_is_named(self, folder: str, made: MadeRecordings) -> None:
        made.commit({"id": "a"})
        (place,) = (Path(made.home) / folder).iterdir()
        whole = place.read_bytes()
        for damaged in damages(whole):
            place.write_bytes(damaged)
            with pytest.raises(ReadError) as caught:
                self.read(made)
            assert caught.value.path == str(place)
        place.unlink()
        with pytest.raises(ReadError):
            contents(made.open())
        place.write_bytes(whole)
        assert set(contents(made.open())) == {"a"}

    @pytest.mark.heavy
    def test_every_byte_of_a_chunk_that_differs_is_noticed(self, made: MadeRecordings) -> None:
        made.commit({"id": "a", "chunks": 1})
        entry = made.open().entry("a")
        place = Path(made.folder.shards.place(entry.shards[0]))
        whole = place.read_bytes()
        (chunk,) = made.open().recording("a")
        payload: Any = chunk.payload
        for at in range(payload.offset, payload.offset + payload.size):
            place.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(ReadError) as caught:
                contents(made.open())
            assert caught.value.path == str(place)
        for cut in (0, 1, payload.offset, payload.offset + payload.size - 1):
            place.write_bytes(whole[:cut])
            with pytest.raises(ReadError) as caught:
                contents(made.open())
            assert caught.value.path == str(place)

    def test_a_table_that_is_another_is_noticed(self, made: MadeRecordings) -> None:
        made.commit({"id": "a"})
        made.commit({"id": "b"}, {"id": "c"})
        first, second = (v.tables[-1].name for v in made.open().versions())
        tables = Path(made.home) / "tables"
        (tables / second).write_bytes((tables / first).read_bytes())
        with pytest.raises(ReadError, match="digest differs") as caught:
            made.open().recordings()
        assert caught.value.path == str(tables / second)

    def test_a_format_that_is_not_known(self, made: MadeRecordings) -> None:
        made.commit({"id": "a"})
        place = Path(made.home) / "versions" / "00000001.json"
        place.write_text(json.dumps({**json.loads(place.read_text()), "format": FORMAT + 1}))
        with pytest.raises(ReadError) as caught:
            made.open()
        assert caught.value.path == str(place)


class TestCommits:
    def test_one_that_certainly_failed_leaves_nothing(
        self, made: MadeRecordings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made.commit({"id": "a"})
        files = made.files()

        def full(*_: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        for where in ("create", "put"):
            monkeypatch.setattr(LocalFolder, where, only_in(made, "versions" if where == "create" else "tables", full))
            with pytest.raises(WriteError) as caught:
                made.commit({"id": "b"})
            assert not isinstance(caught.value, CommitUnknownError)
            assert made.files() == files
            monkeypatch.undo()
        made.commit({"id": "b"})
        assert set(contents(made.open())) == {"a", "b"}

    def test_one_of_which_nothing_is_known_removes_nothing(
        self, made: MadeRecordings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made.commit({"id": "a"})
        create = LocalFolder.create

        def broken(folder: LocalFolder, *args: Any) -> bool:
            create(folder, *args)
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(LocalFolder, "create", broken)
        with pytest.raises(CommitUnknownError):
            made.commit({"id": "b"})
        monkeypatch.undo()
        assert made.writer.is_done("query", 2)
        assert set(contents(made.open())) == {"a", "b"}

    def test_the_second_of_two_writers_goes_on_top_of_the_first(
        self, made: MadeRecordings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = MadeRecordings(made.home)
        meanwhile(made, monkeypatch, lambda: other.commit({"id": "a", "seed": 1}, {"id": "c"}))
        assert made.commit({"id": "a", "seed": 2}, {"id": "b"}).number == 2
        found = contents(made.open())
        assert set(found) == {"a", "b", "c"}
        assert found["a"] != contents(made.open(1))["a"]
        assert [entry.segment_version for entry in made.open() if entry.recording_id == "a"] == [2]
        assert {kind: len(names) for kind, names in made.files().items()} == {
            "versions": 2,
            "tables": 2,
            "manifests": 2,
            "shards": 2,
        }

    def test_an_unknown_outcome_on_top_of_another_removes_nothing(
        self, made: MadeRecordings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = MadeRecordings(made.home)
        made.commit({"id": "a"})
        publish = VersionFiles.create

        def unanswered(files: VersionFiles, number: int, data: dict[str, Any]) -> bool:
            there = publish(files, number, data)
            if number == 3:
                raise OSError(errno.EIO, "no answer")
            return there

        meanwhile(made, monkeypatch, lambda: other.commit({"id": "b"}))
        monkeypatch.setattr(VersionFiles, "create", unanswered)
        with pytest.raises(CommitUnknownError, match="unknown whether version 3 was committed"):
            made.commit({"id": "c"})
        assert set(contents(made.open())) == {"a", "b", "c"}
        assert made.writer.is_done("query", 2)
        assert set(made.folder.writers.names()) == set()

    def test_a_rule_is_asked_on_each_base_and_may_refuse(
        self, made: MadeRecordings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = MadeRecordings(made.home)
        made.commit({"id": "a"})
        (entry,) = made.writer.live
        asked: list[set[str]] = []

        def rule(live: LiveEntries, _: object, entries: Sequence[RecordingEntry]) -> Sequence[RecordingEntry]:
            asked.append({e.recording_id for e in live})
            if "b" in asked[-1]:
                raise SameRecordingError("b is there")
            return entries

        meanwhile(made, monkeypatch, lambda: other.commit({"id": "b"}))
        files = made.files()
        with pytest.raises(SameRecordingError, match="b is there"):
            made.writer.publish([replace(entry, recording_id="b")], Commit("register"), rule=rule)
        assert asked == [{"a"}, {"a", "b"}]
        assert len(made.files()["tables"] - files["tables"]) == 1
        assert made.commit({"id": "c"}).number == 3

    def test_a_failure_is_told_though_the_store_cannot_be_read_then(
        self, made: MadeRecordings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made.commit({"id": "a"})

        def gone(*_: Any) -> Any:
            monkeypatch.setattr(LocalFolder, "get", gone)
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(LocalFolder, "create", only_in(made, "versions", gone))
        with pytest.raises(WriteError, match="Input/output"):
            made.commit({"id": "b"})
        monkeypatch.undo()
        assert not made.writer.is_done("query", 2)
        assert [e.recording_id for e in made.writer.live] == ["a"]


class TestVacuum:
    def test_kept_versions_stay_whole_and_the_rest_goes(self, made: MadeRecordings) -> None:
        for at in range(6):
            made.commit({"id": f"r{at}", "source": f"/landing/{at % 2}.rrd"})
        (Path(made.home) / "shards" / "left.rrd").write_bytes(b"of a run that was killed")
        was = {n: contents(made.open(n)) for n in (5, 6)}
        freed = made.open().vacuum(keep=2)
        assert freed > 0
        assert [(v.number, v.operation) for v in made.open().versions()][-1] == (7, "vacuum")
        assert [v.number for v in made.open().versions()] == [5, 6, 7]
        assert {n: contents(made.open(n)) for n in (5, 6)} == was
        assert "left.rrd" not in made.files()["shards"]
        assert made.open().vacuum(keep=2) == 0
        made.writer.refresh()
        compact_store(made.writer)
        made.open().vacuum()
        assert contents(made.open()) == was[6]
        assert {k: len(v) for k, v in made.files().items()} == {**dict.fromkeys(made.files(), 1), "versions": 2}

    def test_young_versions_stay(self, made: MadeRecordings) -> None:
        made.commit({"id": "a"})
        made.commit({"id": "b"})
        made.open().vacuum(older_than_seconds=60)
        assert len(made.open().versions()) == 2


class TestSleptWriters:
    """Who goes on after others have cleaned up. Nothing here holds a lease for longer than a call."""

    def test_a_run_whose_files_a_vacuum_removed_publishes_nothing(
        self, made: MadeRecordings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made.commit({"id": "a"})
        slept = MadeRecordings(made.home)
        publish = RecordingsFolder.publish

        def late(folder: RecordingsFolder, version: RecordingsVersion) -> bool:
            monkeypatch.setattr(RecordingsFolder, "publish", publish)
            for name in list(folder.writers.names()):
                folder.writers.put(name, b"torn")  # so that it is taken for dead
            made.open().vacuum()
            return publish(folder, version)

        monkeypatch.setattr(RecordingsFolder, "publish", late)
        with slept.writer.files() as files:
            files.add_manifest(b"manifest")
            files.finish()
            with pytest.raises(WriteError, match="the vacuum of version") as caught:
                slept.writer.publish([], Commit("register"))
        assert caught.value.transient and not isinstance(caught.value, CommitUnknownError)
        monkeypatch.setattr(RecordingsFolder, "publish", late)
        slept.commit({"id": "b"})  # from its parts it is done once more
        assert set(contents(made.open())) == {"a", "b"}

    def test_a_run_that_is_announced_is_spared(self, made: MadeRecordings, monkeypatch: pytest.MonkeyPatch) -> None:
        made.commit({"id": "a"})
        slept = MadeRecordings(made.home)
        (Path(made.home) / "shards" / "left.rrd").write_bytes(b"left")
        publish = RecordingsFolder.publish
        there: list[set[str]] = []

        def late(folder: RecordingsFolder, version: RecordingsVersion) -> bool:
            monkeypatch.setattr(RecordingsFolder, "publish", publish)
            there.append(made.files()["shards"])
            made.open().vacuum()
            there.append(made.files()["shards"])
            return publish(folder, version)

        monkeypatch.setattr(RecordingsFolder, "publish", late)
        slept.commit({"id": "b"})
        assert there[0] - there[1] == {"left.rrd"}
        assert set(contents(made.open())) == {"a", "b"}
        assert [v.number for v in made.open().versions()][-2:] == [2, 3]
        assert made.open().versions()[-1].vacuumed == 2
        made.open().vacuum()
        assert {len(names) for kind, names in made.files().items() if kind in ("manifests", "shards")} == {2}

    def test_a_version_that_takes_a_number_that_is_free_again_does_not_count(
        self, made: MadeRecordings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made.commit(*({"id": f"a{at}"} for at in range(4)))
        slept = MadeRecordings(made.home)
        for name in "bcd":
            made.commit({"id": name})
        made.open().vacuum()
        there = made.files()
        monkeypatch.setattr(slept.writer, "catch_up", lambda: None)  # it has looked already
        with pytest.raises(CommitUnknownError, match="version 2 was removed meanwhile, or written too late"):
            slept.commit({"id": "z"})
        assert "00000002.json" in made.files()["versions"] - there["versions"]
        assert [v.number for v in made.open().versions()] == [4, 5]
        with pytest.raises(SourceMissingError, match="there is no version 2"):
            made.open(2)
        assert set(contents(made.open())) == {"a0", "a1", "a2", "a3", "b", "c", "d"}
        made.open().vacuum()
        assert {kind: names for kind, names in made.files().items() if kind != "versions"} == {
            kind: names for kind, names in there.items() if kind != "versions"
        }

    def test_a_version_that_was_built_upon_meanwhile_was_published(
        self, made: MadeRecordings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made.commit({"id": "a"})
        create = LocalFolder.create

        def slow(folder: LocalFolder, *args: Any) -> bool:
            created = create(folder, *args)
            if folder.location.name == "versions":
                monkeypatch.setattr(LocalFolder, "create", create)
                MadeRecordings(made.home).commit({"id": "c"})
            return created

        monkeypatch.setattr(LocalFolder, "create", slow)
        assert made.commit({"id": "b"}).number == 2
        assert set(contents(made.open())) == {"a", "b", "c"}

    def test_a_store_of_an_earlier_format_is_refused(self, made: MadeRecordings) -> None:
        made.commit({"id": "a"})
        path = Path(made.home) / "versions" / "00000001.json"
        said = json.loads(path.read_text()) | {"format": FORMAT - 3}
        del said["digest"]
        path.write_text(json.dumps({**said, "digest": digest_of(json.dumps(said, sort_keys=True).encode()).hex()}))
        with pytest.raises(UnsupportedError, match="An earlier release"):
            made.open()


def only_in(made: MadeRecordings, name: str, instead: Callable[..., Any]) -> Callable[..., Any]:
    """An operation of a folder, replaced for one folder of the store."""
    usual: dict[str, Any] = {"create": LocalFolder.create, "put": LocalFolder.put}
    place = Path(made.home) / name
    kind = "create" if name == "versions" else "put"

    def chosen(folder: LocalFolder, *args: Any, **options: Any) -> Any:
        return instead() if folder.location == place else usual[kind](folder, *args, **options)

    return chosen


def test_files_that_others_remove_meanwhile_are_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = MadeRecordings(tmp_path / "store")
    made.commit({"id": "a"})
    names = LocalFolder.names

    def removed_then(folder: LocalFolder) -> Iterator[str]:
        yield from names(folder)
        if folder.location.name in ("tables", "manifests", "shards"):
            yield "gone-1.arrow"

    monkeypatch.setattr(LocalFolder, "names", removed_then)
    made.open().vacuum()
    made.open().compact(executor="inline")
    assert [entry.recording_id for entry in made.open()] == ["a"]
