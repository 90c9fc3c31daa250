"""What is offered to the ingestion next: each settled state of a file once, across restarts and compactions."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from chunkmill.engine.errors import ReadWarning
from chunkmill.engine.ingest import landing as landing_module
from chunkmill.engine.ingest.landing import Landing
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from landing_tools import Folder


@pytest.fixture
def folder(tmp_path) -> Folder:
    return Folder(tmp_path)


def offered(folder: Folder, landing: Landing, again=()) -> list[str] | None:
    """The names of what is offered next, in order."""
    number = landing.offer([str(folder.path / name) for name in again])
    return None if number is None else [os.path.relpath(f.path, folder.path) for f in landing.log.files(number)]


class TestOffering:
    def test_files_are_offered_once_oldest_first(self, folder) -> None:
        landing = folder.landing()
        assert offered(folder, landing) is None
        for name, age in (("new", 10), ("b-old", 20), ("a-old", 20)):
            folder.put(f"{name}.mcap", age=age)
        assert offered(folder, landing) == ["a-old.mcap", "b-old.mcap", "new.mcap"]
        assert offered(folder, landing) is None
        assert offered(folder, folder.landing()) is None

    def test_at_most_so_many_files_are_offered_at_once(self, folder) -> None:
        for number in range(5):
            folder.put(f"{number}.mcap", age=100 - number)
        landing = folder.landing(max_files=2)
        assert [offered(folder, landing) for _ in range(4)] == [
            ["0.mcap", "1.mcap"],
            ["2.mcap", "3.mcap"],
            ["4.mcap"],
            None,
        ]

    def test_at_most_so_many_bytes_are_offered_at_once_but_one_file_always(self, folder) -> None:
        for number, size in enumerate((10, 5, 5, 1)):
            folder.put(f"{number}.mcap", bytes(size), age=100 - number)
        landing = folder.landing(max_bytes=9)
        assert [offered(folder, landing) for _ in range(4)] == [["0.mcap"], ["1.mcap"], ["2.mcap", "3.mcap"], None]

    def test_all_that_is_there_may_be_offered_by_one_look(self, folder) -> None:
        for number in range(5):
            folder.put(f"{number}.mcap", age=100 - number)
        landing = folder.landing(max_files=2)
        assert landing.offer_all() == [1, 2, 3]
        assert [folder.names(landing.log.files(n)) for n in (1, 2, 3)] == [
            ["0.mcap", "1.mcap"],
            ["2.mcap", "3.mcap"],
            ["4.mcap"],
        ]
        assert landing.offer_all() == []

    def test_a_file_that_was_gone_when_it_was_to_be_read_is_offered_again(self, folder) -> None:
        landing = folder.landing()
        path = folder.put("a.mcap", age=10)
        assert offered(folder, landing) == ["a.mcap"]
        landing.log.forget(1, [str(path)])
        assert offered(folder, folder.landing()) == ["a.mcap"]

    @pytest.mark.parametrize("is_restarted", [False, True])
    def test_two_files_that_were_gone_for_one_run_are_both_offered_again(self, folder, is_restarted) -> None:
        landing = folder.landing()
        paths = [str(folder.put(name, age=10)) for name in ("a.mcap", "b.mcap")]
        assert offered(folder, landing) == ["a.mcap", "b.mcap"]
        landing.forget(1, paths)
        assert offered(folder, folder.landing() if is_restarted else landing) == ["a.mcap", "b.mcap"]

    @pytest.mark.parametrize(("again", "due"), [([], None), (["b.mcap"], ["b.mcap"])])
    def test_a_file_that_a_later_run_of_its_batch_has_read_is_not_offered_again(self, folder, again, due) -> None:
        paths = {name: str(folder.put(name, age=10)) for name in ("a.mcap", "b.mcap")}
        folder.landing().offer()
        folder.landing().forget(1, [paths["a.mcap"]])  # the process is killed before the batch is done
        folder.landing().forget(1, [paths[name] for name in again])
        assert offered(folder, folder.landing()) == due

    def test_a_file_with_new_content_is_offered_again(self, folder) -> None:
        landing = folder.landing()
        folder.put("a.mcap", b"one", age=10)
        assert offered(folder, landing) == ["a.mcap"]
        folder.put("a.mcap", b"two", age=5)
        folder.clock.wait(2)
        landing = folder.landing()
        assert offered(folder, landing) == ["a.mcap"]
        folder.put("a.mcap", b"one", age=12)
        assert offered(folder, landing) is None  # it changed since the last look
        folder.clock.wait(2)
        assert offered(folder, landing) == ["a.mcap"]

    def test_files_are_offered_again_when_asked_for_and_there(self, folder) -> None:
        for name in ("a.mcap", "b.mcap", "c.mcap"):
            folder.put(name, age=10)
        landing = folder.landing()
        offered(folder, landing)
        (folder.path / "c.mcap").unlink()
        assert offered(folder, landing, again=["b.mcap", "c.mcap", "never.mcap"]) == ["b.mcap"]
        assert offered(folder, landing) is None

    def test_a_file_that_was_gone_and_came_back_is_the_same_file(self, folder) -> None:
        landing = folder.landing()
        path = folder.put("a.mcap", age=10)
        offered(folder, landing)
        path.rename(folder.path / "a.away")
        assert offered(folder, landing) is None
        (folder.path / "a.away").rename(path)
        assert offered(folder, landing) is None

    def test_nothing_is_offered_while_the_folder_cannot_be_listed(self, folder) -> None:
        landing = folder.landing()
        folder.put("a.mcap", age=10)
        away = folder.path.rename(folder.path.with_name("away"))
        with pytest.warns(ReadWarning):
            assert offered(folder, landing) is None
        assert landing.glance.problem is not None
        away.rename(folder.path)
        assert offered(folder, landing) == ["a.mcap"]
        assert landing.glance.problem is None


class TestGlance:
    def test_it_counts_what_is_not_offered_yet(self, folder) -> None:
        landing = folder.landing(max_files=1)
        folder.put("a.mcap", b"12", age=30)
        folder.put("b.mcap", b"123", age=20)
        folder.put("c.mcap", b"1")
        landing.offer()
        assert landing.glance[:2] == (2, 1)
        folder.clock.wait(1)
        landing.offer()
        assert landing.glance == (1, 1, 1.0, None)
        folder.clock.wait(1)
        landing.look()
        assert landing.glance == (1, 0, 0.0, None)
        folder.clock.wait(3)
        landing.look()
        assert landing.glance.oldest_seconds == 3
        landing.offer()
        landing.look()
        assert landing.glance == (0, 0, 0.0, None)


class TestCompaction:
    @pytest.fixture(autouse=True)
    def _few(self, monkeypatch) -> None:
        monkeypatch.setattr(landing_module, "KEPT_ENTRIES", 3)

    def filled(self, folder: Folder, entries: int, under: str = "") -> Landing:
        landing = folder.landing(max_files=1)
        for number in range(entries):
            folder.put(f"{under}{number}.mcap", age=100 - number)
        for _ in range(entries):
            landing.offer()
        return landing

    def test_committed_entries_are_merged_when_there_are_enough(self, folder) -> None:
        landing = self.filled(folder, 10)
        assert landing.compact(committed=5) == 0
        assert landing.compact(committed=6) == 3
        assert landing.compact(committed=8) == 0
        assert landing.compact(committed=10) == 4
        assert sorted(path.name for path in folder.log_path.iterdir()) == [
            *("00000007.merged", "00000008.json", "00000009.json", "00000010.json")
        ]
        assert offered(folder, folder.landing()) is None

    def test_files_that_are_gone_are_forgotten(self, folder) -> None:
        landing = self.filled(folder, 10)
        for number in range(5):
            (folder.path / f"{number}.mcap").unlink()
        landing.look()
        landing.compact(committed=10)
        assert len(landing.log.paths) == len(folder.landing().log.paths) == 5
        folder.put("0.mcap", age=100)
        assert offered(folder, landing) == ["0.mcap"]

    def test_files_of_a_folder_that_is_empty_or_away_are_not(self, folder) -> None:
        landing = self.filled(folder, 10)
        away = folder.path.rename(folder.path.with_name("away"))
        folder.path.mkdir()
        landing.look()
        landing.compact(committed=6)
        folder.path.rmdir()
        with pytest.warns(ReadWarning):
            landing.look()
        landing.compact(committed=10)
        away.rename(folder.path)
        assert offered(folder, landing) is None

    def test_files_that_cannot_be_seen_are_not(self, folder, monkeypatch) -> None:
        folder.put("here.mcap", age=1000)
        self.filled(folder, 10, under="sub/")
        landing = folder.landing()  # it has never seen them
        scandir = os.scandir
        denied = str(folder.path / "sub")

        def refusing(path):
            if path == denied:
                raise PermissionError(13, "Permission denied", path)
            return scandir(path)

        monkeypatch.setattr(os, "scandir", refusing)
        with pytest.warns(ReadWarning):
            landing.look()
        assert landing.compact(committed=10) == 7
        monkeypatch.undo()
        assert offered(folder, landing) == ["sub/9.mcap"]


class Landings(RuleBasedStateMachine):
    """Files come, grow, are replaced and go; the ingestion is restarted and its log compacted at any moment.

    The model: a state of a path is due when it has not changed for the settle time and is not what the path was
    offered as last. Nothing that is not due is offered; at the end, all that is due is.
    """

    NAMES = st.sampled_from(["a.mcap", "b.mcap", "sub/c.mcap", "sub/d.rrd"])
    AGES = st.sampled_from([-10.0, 0.0, 0.5, 3.0, 500.0])

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.folder = Folder(self.root)
        self.landing = self.folder.landing(max_files=2)
        self.last: dict[str, tuple[int, int]] = {}
        self.gone: set[str] = set()
        self.changed: dict[str, float] = {}
        self.count = 0

    @rule(name=NAMES, age=AGES)
    def write(self, name: str, age: float) -> None:
        self.count += 1
        self.folder.put(name, bytes(self.count), age=age)
        self.changed[name] = self.folder.clock.seconds

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        (self.folder.path / name).unlink(missing_ok=True)
        self.gone.add(str(self.folder.path / name))

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.5]))
    def wait(self, seconds: float) -> None:
        self.folder.clock.wait(seconds)

    @rule(seconds=st.sampled_from([5.0, 100.0]))
    def set_clock_back(self, seconds: float) -> None:
        self.folder.clock.set_back(seconds)

    @rule()
    def restart(self) -> None:
        self.landing = self.folder.landing(max_files=2)

    @rule()
    def compact(self) -> None:
        self.landing.look()
        self.landing.log.compact(self.landing.log.newest(), self.landing._looked.present)

    @rule(names=st.sets(NAMES))
    def run_batch(self, names: set[str]) -> None:
        """Run the newest entry's batch, perhaps again; those of its files that are among ``names`` it finds gone.

        A run answers for its whole entry, and its answer replaces that of an earlier run: a file that it does not
        find gone it has read.
        """
        log, number = self.landing.log, self.landing.log.newest()
        files = log.files(number) if number else []
        paths = {str(self.folder.path / name) for name in names}
        if files:
            self.landing.forget(number, [file.path for file in files if file.path in paths])
        for file in files:
            self.last[file.path] = (file.size, file.modified_ns)
            if file.path in paths:
                del self.last[file.path]

    @rule()
    def offer(self) -> None:
        self.take()

    def take(self) -> bool:
        number = self.landing.offer()
        if number is None:
            return False
        for file in self.landing.log.files(number):
            state = (file.size, file.modified_ns)
            stat = Path(file.path).stat()
            assert state == (stat.st_size, stat.st_mtime_ns)
            # A path that was gone may have been forgotten meanwhile.
            assert state != self.last.get(file.path) or file.path in self.gone
            self.last[file.path] = state
            self.gone.discard(file.path)
        return True

    @invariant()
    def a_restart_knows_the_same(self) -> None:
        assert set(self.folder.landing().log.paths) == set(self.landing.log.paths)

    def teardown(self) -> None:
        for _ in range(2):
            while self.take():
                pass
            self.folder.clock.wait(3)
        present = {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in self.folder.path.rglob("*.*")}
        assert {path: self.last.get(path) for path in present} == present
        shutil.rmtree(self.root)


TestLandings = Landings.TestCase
TestLandings.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
