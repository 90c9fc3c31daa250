"""Files that failed become rows: one a file, whoever writes beside, however often a batch is replayed."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lance
import pytest
from chunkmill.engine.errors import ReadWarning, UsageError
from chunkmill.engine.ingest import FileResult, LandedFile, Outcome
from chunkmill.engine.ingest.quarantine import FileQuarantine, FileQuarantineTable, QuarantinedFile
from quarantined_files import failed, table_of, tries, version


@pytest.fixture
def quarantine(tmp_path: Path) -> FileQuarantine:
    return FileQuarantine(tmp_path)


def test_a_failure_becomes_a_row(quarantine: FileQuarantine) -> None:
    before = datetime.now(UTC)
    quarantine.note("q", 7, [failed("/landing/a.mcap")])
    (row,) = quarantine.rows()
    assert row == QuarantinedFile(
        "/landing/a.mcap",
        10,
        1_700_000_000_123_456_789,
        "d1",
        "chunkmill.read",
        "the magic is missing",
        "Land it again.",
        8,
        7,
        "q",
        row.first_seen,
        row.first_seen,
        1,
    )
    assert before - timedelta(seconds=1) < row.first_seen <= datetime.now(UTC)


def test_a_failure_of_which_little_is_known_becomes_a_row_too(quarantine: FileQuarantine) -> None:
    far = FileResult(LandedFile("/l/\udcff'; DROP.mcap", 0, 1 << 70), Outcome.QUARANTINED)
    quarantine.note("q", 0, [far])
    (row,) = quarantine.rows()
    assert (row.path, row.code, row.digest, row.offset, row.hint) == (
        "/l/\\udcff'; DROP.mcap",
        "chunkmill.error",
        None,
        None,
        None,
    )
    assert quarantine.resolve([far.file.path]) == [row.path]


def test_a_replayed_batch_changes_nothing(quarantine: FileQuarantine, tmp_path: Path) -> None:
    batch = [failed("/l/a"), failed("/l/b")]
    quarantine.note("q", 3, batch)
    rows, at = quarantine.rows(), version(tmp_path)
    quarantine.note("q", 3, [failed("/l/b", "another message"), failed("/l/a")])
    FileQuarantine(tmp_path).note("q", 3, batch)
    assert (quarantine.rows(), version(tmp_path)) == (rows, at)


def test_a_batch_of_which_a_part_was_noted_is_noted_whole(quarantine: FileQuarantine) -> None:
    quarantine.note("q", 3, [failed("/l/a")])
    quarantine.note("q", 3, [failed("/l/a"), failed("/l/b")])
    assert tries(quarantine) == {"/l/a": 1, "/l/b": 1}


def test_a_later_failure_of_the_same_file_counts(quarantine: FileQuarantine, tmp_path: Path) -> None:
    quarantine.note("q", 1, [failed("/l/a"), failed("/l/b")])
    first = quarantine.rows()[0]
    quarantine.note("q", 2, [failed("/l/a", "cut short", offset=None, size=99)])
    quarantine.note("q", 1, [failed("/l/a")])
    again = quarantine.rows()[0]
    assert (again.path, again.tries, again.first_seen) == ("/l/a", 2, first.first_seen)
    assert (again.message, again.offset, again.size, again.batch) == ("cut short", None, 99, 2)
    assert again.last_seen > first.last_seen
    quarantine.note("another query", 0, [failed("/l/a")])
    assert tries(quarantine) == {"/l/a": 3, "/l/b": 1}


def test_each_note_is_one_commit(quarantine: FileQuarantine, tmp_path: Path) -> None:
    quarantine.note("q", 1, [failed(f"/l/{i}") for i in range(5)])
    at = version(tmp_path)
    quarantine.note("q", 2, [failed(f"/l/{i}") for i in range(3, 9)])
    assert version(tmp_path) == at + 1
    quarantine.note("q", 3, [])
    assert version(tmp_path) == at + 1


def test_what_came_through_leaves(quarantine: FileQuarantine, tmp_path: Path) -> None:
    quarantine.note("q", 1, [failed("/l/a"), failed("/l/b")])
    at = version(tmp_path)
    assert quarantine.resolve(["/l/c", "/l/d"]) == []
    assert version(tmp_path) == at
    assert quarantine.resolve(["/l/c", "/l/b"]) == ["/l/b"]
    assert (version(tmp_path), quarantine.count(), list(tries(quarantine))) == (at + 1, 1, ["/l/a"])
    quarantine.note("q", 2, [failed("/l/b")])
    assert tries(quarantine) == {"/l/a": 1, "/l/b": 1}


def test_without_failures_lance_is_not_loaded_and_nothing_written(tmp_path: Path) -> None:
    code = """
import sys, pathlib
from chunkmill.engine.ingest.quarantine import FileQuarantine
quarantine = FileQuarantine(pathlib.Path(sys.argv[1]))
quarantine.note("q", 1, [])
assert quarantine.resolve(["/l/a"]) == [] and quarantine.count() == 0 and quarantine.rows() == []
assert quarantine.pending_retries() == {}
assert "lance" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert list(tmp_path.iterdir()) == []


def test_changes_of_another_process_are_seen(quarantine: FileQuarantine, tmp_path: Path) -> None:
    quarantine.note("q", 1, [failed("/l/a"), failed("/l/b")])
    other = FileQuarantine(tmp_path)
    other.drop(["/l/a"])
    assert quarantine.count() == 1
    assert quarantine.resolve(["/l/a"]) == []
    other.note("q", 2, [failed("/l/c")])
    assert quarantine.resolve(["/l/c"]) == ["/l/c"]


WRITER = """
import sys, pathlib
from chunkmill.engine.errors import ReadError
from chunkmill.engine.ingest import FileResult, LandedFile, Outcome
from chunkmill.engine.ingest.quarantine import FileQuarantine
me = sys.argv[2]
quarantine = FileQuarantine(pathlib.Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for batch in range(15):
    paths = [f"/l/{me}-{batch}", "/l/of-both"]
    error = ReadError("bad").to_dict()
    quarantine.note(me, batch, [FileResult(LandedFile(p, 1, 1), Outcome.QUARANTINED, error=error) for p in paths])
    if batch % 5 == 4:
        quarantine.resolve([f"/l/{me}-{batch}"])
"""


def test_processes_that_write_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), me], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for me in "ab"
    ]
    for writer in writers:
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    assert [writer.wait() for writer in writers] == [0, 0]
    own = {f"/l/{me}-{batch}": 1 for me in "ab" for batch in range(15) if batch % 5 != 4}
    rows = FileQuarantine(tmp_path).rows()
    assert len(rows) == len({row.path for row in rows})
    assert {row.path: row.tries for row in rows} == {**own, "/l/of-both": 30}


@pytest.mark.parametrize("there_before", [False, True])
def test_who_loses_against_another_writer_of_the_same_file_counts_on(
    quarantine: FileQuarantine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there_before: bool
) -> None:
    quarantine.note("q", 1, [failed("/l/a")] if there_before else [failed("/l/other")])
    merge = FileQuarantineTable._merge
    others = [FileQuarantine(tmp_path), FileQuarantine(tmp_path)]

    def overtaken(table: FileQuarantineTable, *arguments: object) -> None:
        if others:
            others.pop().note(f"other {len(others)}", 1, [failed("/l/a")])
        merge(table, *arguments)

    monkeypatch.setattr(FileQuarantineTable, "_merge", overtaken)
    quarantine.note("q", 2, [failed("/l/a")])
    rows = [file for file in FileQuarantine(tmp_path).rows() if file.path == "/l/a"]
    assert [file.tries for file in rows] == [4 if there_before else 3]


KILLED = """
import sys, pathlib
from datetime import timedelta
from chunkmill.engine.ingest import FileResult, LandedFile, Outcome, quarantine
from chunkmill.engine.ingest.quarantine import FileQuarantine
quarantine._UPKEEP_EVERY = 5
quarantine._KEEP = timedelta(milliseconds=100)
quarantine = FileQuarantine(pathlib.Path(sys.argv[1]))
batch = int(sys.argv[2])
while True:
    paths = [f"/l/{batch}", "/l/always"]
    quarantine.note("q", batch, [FileResult(LandedFile(p, 1, 1), Outcome.QUARANTINED) for p in paths])
    batch += 1
    print(batch, flush=True)
"""


def test_a_killed_writer_leaves_whole_batches(tmp_path: Path) -> None:
    rng, batch = random.Random(7), 0
    for _ in range(2):
        writer = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path), str(batch)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        batch = int(writer.stdout.readline())
        time.sleep(rng.random() * 0.3)
        writer.kill()
        batch = max([batch, *map(int, writer.stdout.read().splitlines())])
        writer.wait()
        found = tries(FileQuarantine(tmp_path))
        more = f"/l/{batch}" in found  # the batch that was under way
        expected = {f"/l/{i}": 1 for i in range(batch + more)}
        assert found == {**expected, "/l/always": batch + more}


def test_old_versions_go(quarantine: FileQuarantine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chunkmill.engine.ingest.quarantine._UPKEEP_EVERY", 8)
    monkeypatch.setattr("chunkmill.engine.ingest.quarantine._KEEP", timedelta(microseconds=1))
    for batch in range(40):
        quarantine.note("q", batch, [failed(f"/l/{batch}"), failed("/l/again")])
        quarantine.resolve([f"/l/{batch - 1}"])
    assert tries(quarantine) == {"/l/39": 1, "/l/again": 40}
    files = [p for p in table_of(tmp_path).rglob("*") if p.is_file()]
    assert len(files) < 60, sorted(files)


def test_versions_that_someone_may_be_reading_stay(
    quarantine: FileQuarantine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chunkmill.engine.ingest.quarantine._UPKEEP_EVERY", 8)
    quarantine.note("q", 0, [failed("/l/0")])
    reader = lance.dataset(str(table_of(tmp_path)))
    for batch in range(1, 20):
        quarantine.note("q", batch, [failed("/l/0")])
    assert reader.to_table().column("tries").to_pylist() == [1]


def test_a_retry_is_asked_for_taken_up_and_done(quarantine: FileQuarantine, tmp_path: Path) -> None:
    quarantine.note("q", 1, [failed("/l/a"), failed("/l/b"), failed("/l/c")])
    asker = FileQuarantine(tmp_path)
    assert asker.request_retry(["/l/b", "/l/a"]) == ["/l/a", "/l/b"]
    assert asker.request_retry() == ["/l/a", "/l/b", "/l/c"]
    pending = quarantine.pending_retries()
    assert sorted(pending.values()) == [["/l/a", "/l/b"], ["/l/a", "/l/b", "/l/c"]]
    quarantine.offered_again(["/l/a", "/l/b", "/l/c"])
    quarantine.offered_again(["/l/a"])
    assert quarantine.pending_retries() == {}
    assert quarantine.count() == 3


def test_files_that_found_no_room_in_a_batch_stay_asked_for(quarantine: FileQuarantine) -> None:
    quarantine.note("q", 1, [failed("/l/a"), failed("/l/b"), failed("/l/c")])
    quarantine.request_retry()
    quarantine.request_retry(["/l/a"])
    quarantine.offered_again(["/l/a", "/l/c", "/l/new"])
    assert list(quarantine.pending_retries().values()) == [["/l/b"]]
    quarantine.offered_again(["/l/b"])
    assert quarantine.pending_retries() == {}


def test_dropped_files_are_forgotten_with_the_requests_for_them(quarantine: FileQuarantine) -> None:
    quarantine.note("q", 1, [failed("/l/a"), failed("/l/b")])
    quarantine.request_retry()
    quarantine.request_retry(["/l/a"])
    assert quarantine.drop(["/l/a"]) == ["/l/a"]
    assert list(quarantine.pending_retries().values()) == [["/l/b"]]
    assert quarantine.drop() == ["/l/b"]
    assert (quarantine.count(), quarantine.pending_retries()) == (0, {})


def test_a_path_that_is_not_there_is_named_and_nothing_done(quarantine: FileQuarantine) -> None:
    quarantine.note("q", 1, [failed("/l/a")])
    for ask in (quarantine.request_retry, quarantine.drop):
        with pytest.raises(UsageError, match=r"/l/x is not in quarantine \(nor 1 more\)"):
            ask(["/l/a", "/l/x", "/l/y"])
    assert (quarantine.count(), quarantine.pending_retries()) == (1, {})


def test_what_is_no_request_is_passed_over_and_said(quarantine: FileQuarantine, tmp_path: Path) -> None:
    quarantine.note("q", 1, [failed("/l/a")])
    quarantine.request_retry()
    retries = tmp_path / "quarantine" / "retries"
    (retries / "notes.txt").write_text("not ours")
    for text in ('{"paths": ["/l', '{"paths": [1]}', "[]", "[" * 100_000):
        (retries / "x.json").write_text(text)
        with pytest.warns(ReadWarning, match=r"x\.json is not a retry request"):
            assert list(quarantine.pending_retries().values()) == [["/l/a"]]


@pytest.mark.heavy
def test_a_large_quarantine_is_quick(quarantine: FileQuarantine) -> None:
    quarantine.note("q", 1, [failed(f"/landing/drive-{i:06}.mcap") for i in range(50_000)])
    quarantine.count()
    begin = time.process_time()
    for batch in range(20):
        assert quarantine.resolve([f"/landing/good-{batch}.mcap"]) == []
    assert time.process_time() - begin < 0.5
