"""Which files of a landing folder are ready, which wait, and which are none of ours."""

from __future__ import annotations

import os
import time

import pytest
from chunkmill.engine.errors import ReadWarning, SourceMissingError
from chunkmill.engine.ingest.landing import EMPTY_SETTLES, Lister
from landing_tools import Folder


@pytest.fixture
def folder(tmp_path) -> Folder:
    return Folder(tmp_path)


def ready(folder: Folder, lister: Lister) -> list[str]:
    return folder.names(lister.look().ready)


class TestSettling:
    def test_an_old_file_is_ready_at_the_first_look(self, folder) -> None:
        path = folder.put("a.mcap", b"12345", age=3)
        (file,) = folder.lister().look().ready
        assert (file.path, file.size, file.modified_ns) == (str(path), 5, path.stat().st_mtime_ns)

    def test_an_old_file_is_ready_however_long_the_machine_has_been_up(self, tmp_path) -> None:
        folder = Folder(tmp_path, settle=0.2)
        folder.put("a.mcap", age=3600)
        uptimes = [13.7 * 1.1**power for power in range(200)]
        assert any(uptime - (uptime - 0.2) < 0.2 for uptime in uptimes)  # differences of clocks are rounded
        for folder.clock.seconds in uptimes:
            assert ready(folder, folder.lister()) == ["a.mcap"]

    def test_a_young_file_waits_until_it_is_old_enough(self, folder) -> None:
        lister = folder.lister()
        folder.put("a.mcap", age=0.5)
        looked = lister.look()
        assert looked.ready == [] and folder.names(looked.waiting) == ["a.mcap"]
        folder.clock.wait(1.4)
        assert ready(folder, lister) == []
        folder.clock.wait(0.1)
        assert ready(folder, lister) == ["a.mcap"]

    def test_a_slow_writer_is_waited_for_however_long_it_takes(self, folder) -> None:
        lister = folder.lister()
        for size in range(1, 20):
            folder.put("a.mcap", bytes(size))
            assert ready(folder, lister) == []
            folder.clock.wait(1.5)
        assert ready(folder, lister) == []
        folder.clock.wait(0.5)
        assert ready(folder, lister) == ["a.mcap"]
        assert lister.look().oldest_seconds == 0

    def test_a_file_that_grows_waits_whatever_age_it_claims(self, folder) -> None:
        lister = folder.lister()
        folder.put("a.mcap", b"1")
        lister.look()
        for size in (2, 3, 4):
            folder.clock.wait(1.9)
            folder.put("a.mcap", bytes(size), age=1000)
            assert ready(folder, lister) == []
        folder.clock.wait(2)
        assert ready(folder, lister) == ["a.mcap"]

    def test_the_wait_is_told_from_the_first_look_on(self, folder) -> None:
        lister = folder.lister()
        for _ in range(4):
            folder.put("a.mcap", bytes(int(folder.clock.wall) % 100))
            looked = lister.look()
            folder.clock.wait(1)
        assert looked.oldest_seconds == 3

    def test_a_file_renamed_in_is_ready_as_its_content_is_old(self, folder) -> None:
        lister = folder.lister()
        lister.look()
        folder.put("a.mcap.tmp", age=100).rename(folder.path / "a.mcap")
        assert ready(folder, lister) == ["a.mcap"]

    def test_a_copy_that_keeps_its_time_is_taken_once_it_is_whole(self, folder) -> None:
        lister = folder.lister()
        folder.put("a.mcap", b"ha")
        assert ready(folder, lister) == []
        folder.put("a.mcap", b"half", age=86400)  # what `cp -p` does at its end
        assert ready(folder, lister) == []
        folder.clock.wait(2)
        assert ready(folder, lister) == ["a.mcap"]

    def test_a_time_in_the_future_holds_a_file_up_no_longer_than_others(self, folder) -> None:
        lister = folder.lister()
        folder.put("a.mcap", age=-86400)
        assert ready(folder, lister) == []
        folder.clock.wait(2)
        assert ready(folder, lister) == ["a.mcap"]

    def test_a_clock_that_is_set_back_holds_nothing_up(self, folder) -> None:
        lister = folder.lister()
        folder.put("old.mcap", age=100)
        folder.put("new.mcap")
        assert ready(folder, lister) == ["old.mcap"]
        folder.clock.set_back(3600)
        folder.put("later.mcap")
        assert ready(folder, lister) == ["old.mcap"]
        folder.clock.wait(2)
        assert ready(folder, lister) == ["later.mcap", "new.mcap", "old.mcap"]

    def test_an_empty_file_waits_longer_and_is_ready_then(self, folder) -> None:
        lister = folder.lister()
        folder.put("a.mcap", b"")
        folder.put("old.mcap", b"", age=2 * EMPTY_SETTLES)
        assert ready(folder, lister) == ["old.mcap"]
        folder.clock.wait(2 * EMPTY_SETTLES - 1)
        assert ready(folder, lister) == ["old.mcap"]
        folder.clock.wait(1)
        assert ready(folder, lister) == ["a.mcap", "old.mcap"]

    def test_a_replaced_file_waits_anew(self, folder) -> None:
        lister = folder.lister()
        folder.put("a.mcap", b"one", age=10)
        assert ready(folder, lister) == ["a.mcap"]
        folder.put("a.mcap", b"two")
        assert ready(folder, lister) == []
        folder.clock.wait(2)
        assert ready(folder, lister) == ["a.mcap"]

    def test_without_a_settle_time_everything_is_ready(self, tmp_path) -> None:
        folder = Folder(tmp_path, settle=0)
        folder.put("a.mcap", b"", age=-50)
        assert ready(folder, folder.lister()) == ["a.mcap"]

    def test_an_unchanged_file_is_the_same_object(self, folder) -> None:
        lister = folder.lister()
        folder.put("a.mcap", age=10)
        assert lister.look().ready[0] is lister.look().ready[0]


class TestNames:
    def test_only_recordings_are_listed_in_all_folders(self, folder) -> None:
        taken = ["a.mcap", "B.MCAP", "c.rrd", "sub/deep/d.mcap", "e.tmp.mcap"]
        ignored = [
            *(".a.mcap", "_a.mcap", ".hidden/a.mcap", "_archive/sub/a.mcap", "sub/_x/a.mcap", "sub.part/a.mcap"),
            *(f"a.mcap{end}" for end in (".tmp", ".part", ".partial", ".crdownload", ".open", "~", ".TMP")),
            *("a.txt", "mcap", "a.mcap.txt"),
        ]
        for name in taken + ignored:
            folder.put(name, age=100)
        looked = folder.lister().look()
        assert folder.names(looked.ready) == sorted(taken)
        assert looked.waiting == []
        assert set(looked.present) == {file.path for file in looked.ready}

    def test_a_name_that_is_no_text_is_told_of(self, folder) -> None:
        (folder.path / os.fsdecode(b"\xff.mcap")).write_bytes(b"x")
        folder.put("a.mcap", age=100)
        with pytest.warns(ReadWarning, match="not UTF-8"):
            assert ready(folder, folder.lister()) == ["a.mcap"]

    def test_odd_characters_in_a_name_are_fine(self, folder) -> None:
        names = ['a "b"\n.mcap', "ß 图.mcap", "a'b\\.mcap"]
        for name in names:
            folder.put(name, age=100)
        assert ready(folder, folder.lister()) == sorted(names)


class TestOddFolders:
    def test_a_loop_of_links_is_told_of_once_and_stops_nothing(self, folder) -> None:
        folder.put("sub/a.mcap", age=100)
        (folder.path / "sub" / "loop").symlink_to(folder.path)
        (folder.path / "self.mcap").symlink_to(folder.path / "self.mcap")
        lister = folder.lister()
        with pytest.warns(ReadWarning) as told:
            assert ready(folder, lister) == ["sub/a.mcap"]
        assert sorted("link to a folder" in str(one.message) for one in told) == [False, True]
        assert ready(folder, lister) == ["sub/a.mcap"]  # no warning, which would be an error

    def test_a_link_to_a_file_is_a_file(self, folder, tmp_path) -> None:
        (tmp_path / "elsewhere.mcap").write_bytes(b"12")
        (folder.path / "a.mcap").symlink_to(tmp_path / "elsewhere.mcap")
        folder.clock.wall = time.time() + 10
        assert [file.size for file in folder.lister().look().ready] == [2]

    def test_a_link_that_leads_nowhere_is_told_of(self, folder) -> None:
        (folder.path / "a.mcap").symlink_to(folder.path / "nothing")
        with pytest.warns(ReadWarning, match="does not exist"):
            assert ready(folder, folder.lister()) == []

    def test_a_pipe_is_passed_over(self, folder) -> None:
        os.mkfifo(folder.path / "a.mcap")
        with pytest.warns(ReadWarning, match="not a file"):
            assert ready(folder, folder.lister()) == []

    def test_a_folder_named_like_a_recording_is_a_folder(self, folder) -> None:
        folder.put("drive.mcap/a.mcap", age=100)
        assert ready(folder, folder.lister()) == ["drive.mcap/a.mcap"]

    def test_a_folder_that_cannot_be_read_is_told_of_and_forgets_nothing(self, folder, monkeypatch) -> None:
        folder.put("sub/a.mcap", age=1)
        folder.put("b.mcap", age=100)
        lister = folder.lister()
        assert ready(folder, lister) == ["b.mcap"]
        deny(monkeypatch, folder.path / "sub")
        with pytest.warns(ReadWarning, match="cannot be listed"):
            looked = lister.look()
        assert folder.names(looked.ready) == ["b.mcap"]
        assert looked.unseen == (f"{folder.path}/sub/",)
        folder.clock.wait(1)
        lister.look()
        monkeypatch.undo()
        assert ready(folder, lister) == ["b.mcap", "sub/a.mcap"]

    def test_what_is_removed_below_a_folder_that_cannot_be_read_is_not_kept_for_ever(self, folder, monkeypatch) -> None:
        folder.put("lost+found/a.mcap", age=100)
        folder.put("b.mcap", age=100)
        lister = folder.lister()
        lister.look()
        deny(monkeypatch, folder.path / "lost+found")
        (folder.path / "b.mcap").unlink()
        with pytest.warns(ReadWarning):
            lister.look()
        assert folder.names(lister._known.values()) == ["lost+found/a.mcap"]

    def test_no_folder_is_an_error_at_the_start(self, tmp_path) -> None:
        for path in (tmp_path / "nothing", tmp_path / "file"):
            (tmp_path / "file").write_bytes(b"")
            with pytest.raises(SourceMissingError, match="cannot be listed"):
                Lister(str(path), settle_seconds=1, suffixes=(".mcap",))

    def test_a_folder_that_goes_and_comes_back_is_told_of_once_and_forgets_nothing(self, folder) -> None:
        folder.put("a.mcap")
        folder.put("b.mcap", age=100)
        lister = folder.lister()
        lister.look()
        away = folder.path.rename(folder.path.with_name("away"))
        with pytest.warns(ReadWarning, match="landing folder cannot be listed"):
            looked = lister.look()
        assert looked.ready == [] and looked.present is None
        assert looked.problem.transient and looked.problem.path == str(folder.path)
        folder.clock.wait(2)
        assert lister.look().ready == []
        away.rename(folder.path)
        folder.date("a.mcap", 2)
        assert ready(folder, lister) == ["a.mcap", "b.mcap"]

    def test_a_folder_without_anything_does_not_say_that_all_is_gone(self, folder) -> None:
        folder.put("a.mcap", age=100).unlink()
        looked = folder.lister().look()
        assert looked.present is None and looked.problem is None

    def test_a_file_that_goes_while_it_is_listed_is_gone(self, folder, monkeypatch) -> None:
        folder.put("a.mcap", age=100)
        folder.put("b.mcap", age=100)
        scandir = os.scandir

        class Removing:
            """The entries of a folder, one of which is removed after it was found."""

            def __init__(self, path) -> None:
                self.found = list(scandir(path))
                (folder.path / "a.mcap").unlink(missing_ok=True)

            def __enter__(self):
                return self.found

            def __exit__(self, *_) -> None:
                return

            close = __exit__

        monkeypatch.setattr(os, "scandir", Removing)
        lister = folder.lister()
        folder.put("a.mcap", age=100)
        assert ready(folder, lister) == ["b.mcap"]


def deny(monkeypatch, denied) -> None:
    """Let a folder be unreadable, also for a superuser."""
    scandir = os.scandir

    def refusing(path):
        if str(path) == str(denied):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)


@pytest.mark.heavy
def test_twenty_thousand_files_are_listed_in_a_moment(folder) -> None:
    for number in range(100):
        (folder.path / f"{number}").mkdir()
    for number in range(20_000):
        with (folder.path / f"{number % 100}" / f"{number}.mcap").open("wb"):
            pass
    lister = Lister(str(folder.path), settle_seconds=0, suffixes=(".mcap",))
    for _ in range(2):
        began = time.process_time()
        assert len(lister.look().ready) == 20_000
        assert time.process_time() - began < 5
