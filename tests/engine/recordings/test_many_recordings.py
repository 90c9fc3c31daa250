"""Stores of thousands of recordings: what a writer that runs for weeks does with them takes little memory each time."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from chunkmill.engine.errors import ReadError
from chunkmill.engine.recordings import MANIFEST_ERRORS, Commit, RecordingEntry
from chunkmill.engine.recordings.vacuum import vacuum_folder
from stored_recordings import MadeRecordings

MANY = 3000


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> RecordingEntry:
    """The entry of a real recording."""
    made = MadeRecordings(tmp_path_factory.mktemp("one") / "lake")
    made.commit({"id": "a"})
    return made.open().entry("a")


@pytest.fixture
def made(tmp_path: Path, one: RecordingEntry) -> MadeRecordings:
    """A store that has ``MANY`` recordings, in a table of their own."""
    made = MadeRecordings(tmp_path / "lake")
    made.writer.publish(likes(one, range(MANY)), Commit("ingest"))
    return made


def likes(one: RecordingEntry, numbers: Sequence[int]) -> list[RecordingEntry]:
    """Recordings like another, of files and in files of their own."""
    return [
        replace(
            one,
            recording_id=f"r{i}",
            source=f"/landing/drive-{i}.mcap",
            source_digest=f"{i:032x}",
            manifest=f"{i:032x}.arrows",
            shards=(f"{i:032x}.rrd", f"{i:031x}x.rrd"),
        )
        for i in numbers
    ]


def peak_of(work: Callable[[], object]) -> float:
    """The bytes of Python's objects that some work takes at a time, over those that were there."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.heavy
def test_tables_are_merged_without_an_object_for_each_row(made: MadeRecordings, one: RecordingEntry) -> None:
    more = likes(one, range(MANY, MANY + MANY // 2))
    assert peak_of(lambda: made.writer.publish(more, Commit("ingest"))) < 1500 * len(more)
    assert [table.entries for table in made.open().version.tables] == [MANY + MANY // 2]
    assert made.open().recordings() == likes(one, range(MANY + MANY // 2))


@pytest.mark.heavy
def test_what_was_replaced_is_left_out_where_all_tables_become_one(made: MadeRecordings, one: RecordingEntry) -> None:
    anew = [replace(entry, rows=entry.rows + 1) for entry in likes(one, range(1000, 1000 + MANY // 2))]
    made.writer.publish(anew, Commit("ingest"))
    assert [table.entries for table in made.open().version.tables] == [MANY]
    assert {entry.recording_id: entry.rows for entry in made.open()} == {
        f"r{i}": one.rows + (1000 <= i < 1000 + MANY // 2) for i in range(MANY)
    }


def test_a_vacuum_knows_of_recordings_but_the_names_of_their_files(made: MadeRecordings, one: RecordingEntry) -> None:
    kept, dead = likes(one, [0, MANY])
    for name in (*kept.shards, *dead.shards):
        (Path(made.home) / "shards" / name).write_bytes(b"chunks")
    newest = made.open().version
    assert peak_of(lambda: vacuum_folder(made.folder, newest, keep=1, older_than_seconds=0)) < 1000 * MANY
    assert made.files()["shards"] == set(kept.shards)


@pytest.mark.heavy
def test_a_vacuum_of_many_versions_leaves_the_young_and_the_newest(made: MadeRecordings, one: RecordingEntry) -> None:
    for i in range(60):
        made.writer.publish(likes(one, [MANY + i]), Commit("ingest", f"query-{i}", 1))
    before = made.files()
    assert made.writer.vacuum(keep=2, older_than_seconds=60) == 0
    assert made.files() == before
    made.writer.vacuum(keep=2, older_than_seconds=0)
    assert made.files()["versions"] == {"00000060.json", "00000061.json", "00000062.json"}
    assert made.open().recordings() == likes(one, range(MANY + 60))


def test_manifests_that_are_read_together_give_what_each_gives(tmp_path: Path) -> None:
    made = MadeRecordings(tmp_path / "lake")
    for batch in range(3):
        made.commit(*({"id": f"{batch}-{i}", "seed": 10 * batch + i} for i in range(4)))
    entries = list(made.folder.live(made.folder.newest()))[::-1]
    for _ in range(2):  # the second time what was kept
        for entry, together in zip(entries, made.folder.references_of(entries), strict=True):
            alone = made.folder.references(entry)
            assert together.table.entries() == alone.table.entries()
            assert together.table.batch["part"].equals(alone.table.batch["part"])
            assert (together.version, together.store) == (alone.version, alone.store)
    damaged = made.folder.path / "manifests" / entries[5].manifest
    data = bytearray(damaged.read_bytes())
    data[entries[5].manifest_offset + 40] ^= 1
    damaged.write_bytes(data)
    with pytest.raises(MANIFEST_ERRORS, match="its digest differs"):
        made.folder.references_of(entries)
    with pytest.raises(ReadError, match=entries[5].recording_id):
        made.folder.references(entries[5])
    assert len(made.folder.references(entries[0]).table) == entries[0].chunks
