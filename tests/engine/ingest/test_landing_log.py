"""The landing log: appended to in one step, merged without a gap, whole or refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from chunkmill.engine import faults
from chunkmill.engine.errors import NoSpaceError, ReadError, SourceMissingError, UnsupportedError, WriteError
from chunkmill.engine.ingest.files import LandedFile
from chunkmill.engine.ingest.landing_log import LandingLog, name_of, numbers_in


@pytest.fixture
def place(tmp_path) -> Path:
    return tmp_path / "deep" / "log"


def file(name: str, size: int = 1, modified_ns: int = 7) -> LandedFile:
    return LandedFile(f"/landing/{name}", size, modified_ns)


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def filled(place: Path, entries: int) -> LandingLog:
    """A log whose entry N offers the file N, and `same` with size N."""
    log = LandingLog(place)
    for number in range(1, entries + 1):
        assert log.append([file(str(number)), file("same", number)]) == number
    return log


def known(log: LandingLog) -> dict[str, int]:
    """The sizes that all known paths were offered with as last."""
    return {Path(path).name: log.seen(path).size for path in log.paths}


class TestAppending:
    def test_entries_are_numbered_and_kept_as_they_were_given(self, place) -> None:
        odd = [file("b"), LandedFile('/l/"ß图\n\\', 1 << 40, -5), LandedFile("s3://bucket/a b.mcap", 0, 1 << 62)]
        log = LandingLog(place)
        assert log.newest() == 0
        assert log.append(odd) == 1
        assert log.append([]) == 2
        for one in (log, LandingLog(place)):
            assert (one.newest(), one.files(1), one.files(2)) == (2, odd, [])
        assert names(place) == ["00000001.json", "00000002.json"]

    def test_a_path_is_known_as_it_was_offered_last(self, place) -> None:
        log = LandingLog(place)
        assert log.seen("/landing/a") is None
        log.append([file("a", 1)])
        log.append([file("a", 2)])
        for one in (log, LandingLog(place)):
            assert one.seen("/landing/a") == file("a", 2)

    def test_two_writers_cannot_append_the_same_entry(self, place) -> None:
        one, other = filled(place, 1), filled(place / "..", 0)
        other = LandingLog(place)
        assert other.seen("/landing/1") is not None
        one.append([file("mine")])
        with pytest.raises(WriteError, match="run only one"):
            other.append([file("theirs")])
        assert other.append([file("theirs")]) == 3

    def test_a_missing_entry_is_said_to_be(self, place) -> None:
        with pytest.raises(SourceMissingError, match=r"00000004\.json"):
            filled(place, 3).files(4)

    def test_numbers_may_grow_beyond_eight_digits(self) -> None:
        names = ["100000000.json", "99999999.json", "99999998.merged", ".x.draft", "1.json", "00000001.json.bak"]
        assert numbers_in(names) == ([99999999, 100000000], [], [99999998])
        assert numbers_in(names).newest == 100_000_000


class TestMerging:
    def test_the_sum_of_what_is_merged_stays(self, place) -> None:
        log = filled(place, 5)
        assert log.compact(4, None) == 3
        assert names(place) == ["00000003.merged", "00000004.json", "00000005.json"]
        for one in (log, LandingLog(place)):
            assert known(one) == {"1": 1, "2": 1, "3": 1, "4": 1, "5": 1, "same": 5}
            assert (one.merged, one.newest()) == (3, 5)
        assert log.append([file("6")]) == 6
        assert log.compact(6, None) == 2
        assert known(LandingLog(place)) == {"1": 1, "2": 1, "3": 1, "4": 1, "5": 1, "6": 1, "same": 5}

    def test_the_newest_entry_stays(self, place) -> None:
        log = filled(place, 2)
        assert log.compact(100, None) == 1
        assert log.compact(100, None) == 0
        assert LandingLog(place).files(2) == [file("2"), file("same", 2)]

    def test_what_is_gone_is_dropped_unless_a_later_entry_offers_it(self, place) -> None:
        log = filled(place, 4)
        log.compact(4, ["/landing/2", "/landing/never"])
        for one in (log, LandingLog(place)):
            assert known(one) == {"2": 1, "4": 1, "same": 4}
        log.append([file("5")])
        log.compact(5, [])
        for one in (log, LandingLog(place)):
            assert known(one) == {"5": 1}

    def test_nothing_to_merge_changes_nothing(self, place) -> None:
        assert LandingLog(place).compact(5, []) == 0
        assert not place.exists()

    def test_what_a_killed_process_left_is_cleared_away(self, place) -> None:
        log = filled(place, 3)
        keep = {name: (place / name).read_bytes() for name in names(place)}
        log.compact(3, None)
        for name, data in {**keep, ".5f0c.draft": b"half", name_of("merged", 1): b""}.items():
            (place / name).write_bytes(data)
        log = LandingLog(place)
        assert known(log) == {"1": 1, "2": 1, "3": 1, "same": 3}
        log.append([file("4")])
        assert names(place) == ["00000002.merged", "00000003.json", "00000004.json"]

    def test_a_log_may_be_read_while_it_is_merged(self, place, monkeypatch) -> None:
        log, other = filled(place, 6), LandingLog(place)
        names = type(other._folder).names

        def merging(folder):
            found = list(names(folder))
            monkeypatch.undo()
            log.compact(5, None)
            return found

        monkeypatch.setattr(type(other._folder), "names", merging)
        assert known(other) == known(log)


class TestForgetting:
    def test_files_that_were_gone_count_as_never_offered(self, place) -> None:
        log = filled(place, 3)
        log.forget(2, ["/landing/2", "/landing/same", "/landing/never"])
        for one in (log, LandingLog(place)):
            assert known(one) == {"1": 1, "3": 1, "same": 3}
        log.forget(3, ["/landing/same"])
        log.append([file("2", 9)])
        for one in (log, LandingLog(place)):
            assert known(one) == {"1": 1, "2": 9, "3": 1}

    def test_it_holds_when_entries_are_merged(self, place) -> None:
        log = filled(place, 3)
        log.compact(3, None)
        log.append([file("1", 5)])
        log.forget(3, ["/landing/3", "/landing/same"])
        log.forget(4, ["/landing/1"])
        log.append([file("3", 5)])
        for before in (4, 5):
            log.compact(before, None)
            for one in (log, LandingLog(place)):
                assert known(one) == {"2": 1, "3": 5}
        assert names(place) == ["00000004.merged", "00000005.json"]

    def test_the_last_time_counts(self, place) -> None:
        log = filled(place, 2)
        log.forget(2, ["/landing/2"])
        log.forget(2, ["/landing/same"])
        log.forget(1, [])
        for one in (log, LandingLog(place)):
            assert known(one) == {"1": 1, "2": 1}
        assert names(place) == ["00000001.json", "00000002.gone", "00000002.json"]

    def test_an_empty_answer_takes_an_earlier_one_back(self, place) -> None:
        log = filled(place, 2)
        log.forget(2, ["/landing/2", "/landing/same"])
        other = LandingLog(place)
        other.forget(2, [])
        for one in (other, LandingLog(place)):
            assert known(one) == {"1": 1, "2": 1, "same": 2}
        assert names(place) == ["00000001.json", "00000002.json"]

    def test_what_is_merged_is_done(self, place) -> None:
        log = filled(place, 2)
        log.compact(2, None)
        with pytest.raises(ValueError, match="its batch is done"):
            log.forget(1, ["/landing/1"])


class TestDamage:
    def test_a_log_that_ends_before_what_is_done_is_refused(self, place) -> None:
        log = filled(place, 2)
        log.check(2)
        with pytest.raises(ReadError, match="damaged: batch 3 is done, and the landing log ends at 2"):
            log.check(3)

    @pytest.mark.parametrize("size", [0, 1, 60, 120, -1])
    def test_a_torn_newest_entry_is_explained(self, place, size) -> None:
        filled(place, 3)
        path = place / "00000003.json"
        path.write_bytes(path.read_bytes()[:size])
        for read in (LandingLog(place).append, lambda _: LandingLog(place).files(3)):
            with pytest.raises(ReadError, match=r"checkpoint is damaged.*you can remove this newest entry") as caught:
                read([])
            assert caught.value.path == str(path)
        path.unlink()
        assert LandingLog(place).append([file("3")]) == 3

    @pytest.mark.parametrize("name", ["00000001.merged", "00000002.json"])
    def test_another_torn_file_is_explained(self, place, name) -> None:
        filled(place, 3).compact(2, None)
        data = (place / name).read_bytes()
        (place / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(ReadError, match=r"digest differs.*remove the whole checkpoint") as caught:
            LandingLog(place).seen("x")
        assert caught.value.path == str(place / name)

    @pytest.mark.parametrize(
        "content", [b"[]\n", b"null\n", b"{}\n", b"x" * 10_000, b"\xff\xfe\n", b"[" * 4000 + b"\n"]
    )
    def test_a_foreign_file_is_refused(self, place, content) -> None:
        filled(place, 2)
        (place / "00000002.json").write_bytes(content)
        with pytest.raises(ReadError, match="first line is not that of a landing log"):
            LandingLog(place).files(2)

    def test_an_entry_under_another_number_is_refused(self, place) -> None:
        filled(place, 3)
        (place / "00000002.json").rename(place / "00000003.json")
        with pytest.raises(ReadError, match="entry 2 under another name"):
            LandingLog(place).files(3)

    def test_a_gap_is_refused(self, place) -> None:
        filled(place, 3)
        (place / "00000002.json").unlink()
        with pytest.raises(ReadError, match=r"00000002\.json"):
            LandingLog(place).append([file("x")])

    def test_a_newer_format_is_refused(self, place) -> None:
        filled(place, 1)
        path = place / "00000001.json"
        head, _, body = path.read_bytes().partition(b"\n")
        path.write_bytes(json.dumps({**json.loads(head), "format": 2}).encode() + b"\n" + body)
        with pytest.raises(UnsupportedError, match="newer release"):
            LandingLog(place).files(1)

    def test_a_file_that_is_too_large_is_not_read(self, place) -> None:
        filled(place, 1)
        os.truncate(place / "00000001.json", 2 << 30)
        with pytest.raises(ReadError, match="2,147,483,648 bytes"):
            LandingLog(place).files(1)

    def test_no_flipped_bit_goes_unnoticed(self, place) -> None:
        filled(place, 1)
        path = place / "00000001.json"
        written = path.read_bytes()
        for position in range(len(written)):
            path.write_bytes(written[:position] + bytes([written[position] ^ 1]) + written[position + 1 :])
            with pytest.raises(ReadError):
                LandingLog(place).files(1)


POINTS = ("landing.write", "landing.append", "landing.compact")

STEPS = """
import sys
from chunkmill.engine.ingest.files import LandedFile
from chunkmill.engine.ingest.landing_log import LandingLog
log = LandingLog(__import__("pathlib").Path(sys.argv[1]))
for number in range(1, 7):
    if log.newest() < number:
        log.append([LandedFile(f"/landing/{number}", 1, 7), LandedFile("/landing/same", number, 7)])
    log.compact(number - 1, None)
"""


class TestFaults:
    """The same six appends and compactions, cut at a point and begun again, end with the same log."""

    @pytest.mark.parametrize(("point", "kind"), [*((point, "kill") for point in POINTS), ("landing.write", "torn")])
    def test_a_cut_run_is_gone_on_with(self, place, tmp_path, point, kind) -> None:
        environment = {**os.environ, faults.PLAN: f"{point}:{kind}:3", faults.LOG: str(tmp_path)}
        first, *rest = (
            subprocess.run([sys.executable, "-c", STEPS, str(place)], env=environment, capture_output=True, text=True)
            for _ in range(2)
        )
        assert (tmp_path / point).stat().st_size >= 3
        assert first.returncode == -signal.SIGKILL, first.stderr
        assert [run.returncode for run in rest] == [0], rest[0].stderr
        log = LandingLog(place)
        assert known(log) == {**{str(n): 1 for n in range(1, 7)}, "same": 6}
        assert log.files(6) == [file("6"), file("same", 6)]
        assert names(place) == ["00000004.merged", "00000005.json", "00000006.json"]

    @pytest.mark.parametrize("kind", ["exception", "enospc"])
    @pytest.mark.parametrize("point", POINTS)
    def test_a_log_that_failed_reads_anew_what_is_there(self, place, monkeypatch, point, kind) -> None:
        log = filled(place, 3)
        monkeypatch.setenv(faults.PLAN, f"{point}:{kind}")
        monkeypatch.setattr(faults, "_here", {})
        with pytest.raises((RuntimeError, OSError)):
            log.compact(3, None) if point == "landing.compact" else log.append([file("4")])
        monkeypatch.delenv(faults.PLAN)
        assert known(log) == known(LandingLog(place))
        appended = log.newest() == 4
        assert appended == (point == "landing.append")
        assert log.append([file("5")]) == log.newest() == 4 + appended

    def test_a_full_disk_is_said_to_be_one(self, place, monkeypatch) -> None:
        log = filled(place, 1)
        monkeypatch.setenv(faults.PLAN, "landing.write:enospc")
        monkeypatch.setattr(faults, "_here", {})
        with pytest.raises(NoSpaceError):
            log.append([file("2")])
        assert names(place) == ["00000001.json"]
