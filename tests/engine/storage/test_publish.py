"""The one commit loop: it tries again while others come first, and never repeats a commit that may be there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.errors import CommitUnknownError, WriteError
from chunkmill.engine.storage import VersionFiles, publish
from chunkmill.engine.storage.folder import Folder
from chunkmill.engine.store import RecordingStore
from chunkmill.engine.stream import LazyChunkStream


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Note the waits, each as long as it may be, and do not wait."""
    noted: list[float] = []
    monkeypatch.setattr("random.uniform", lambda _, longest: longest)
    monkeypatch.setattr("chunkmill.engine.storage.versions.time.sleep", noted.append)
    return noted


def conflicting(times: int) -> Callable[[], int | None]:
    """Return an attempt that fails so often, and then returns 0, which is a result."""
    left = iter(range(times))
    return lambda: 0 if next(left, None) is None else None


def test_a_commit_that_others_came_before_is_tried_again_after_a_longer_wait(waits: list[float]) -> None:
    assert publish(conflicting(9), "a table") == 0
    assert waits == [0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.25, 0.25]


def test_a_commit_that_comes_first_waits_for_nobody(waits: list[float]) -> None:
    assert publish(conflicting(0), "a table") == 0
    assert waits == []


def test_who_loses_all_the_time_gets_an_error_that_says_to_try_again(waits: list[float]) -> None:
    with pytest.raises(WriteError, match=r"/lake: other writers keep changing a table, .*not made") as caught:
        publish(conflicting(4), "a table", path="/lake", hint="Later.", most=4)
    assert caught.value.transient and caught.value.hint == "Later."
    assert not isinstance(caught.value, CommitUnknownError)
    assert len(waits) == 3


def test_a_commit_whose_outcome_is_not_known_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, attempts = VersionFiles(Folder.at(tmp_path), "a store", "make one"), []
    create = VersionFiles.create

    def unanswered(self: VersionFiles, number: int, data: dict[str, Any]) -> bool:
        attempts.append(number)
        create(self, number, data)
        raise OSError(5, "no answer")

    monkeypatch.setattr(VersionFiles, "create", unanswered)
    with pytest.raises(CommitUnknownError, match="unknown whether version 1 was committed"):
        publish(lambda: files.commit(1, {}) or None, "a store")
    assert attempts == files.all_numbers() == [1]


def test_all_who_commit_at_once_come_through(tmp_path: Path) -> None:
    def work(writer: int) -> None:
        files = VersionFiles(Folder.at(tmp_path), "a store", "make one")
        for commit in range(5):
            publish(lambda: committed(files, writer, commit), "a store")  # noqa: B023 (it is called at once)

    def committed(files: VersionFiles, writer: int, commit: int) -> bool | None:
        number, data = files.latest() or (0, {"done": []})
        return files.commit(number + 1, {"done": [*data["done"], [writer, commit]]}) or None

    threads = [threading.Thread(target=work, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    number, data = VersionFiles(Folder.at(tmp_path), "a store", "make one").latest() or (0, {})
    assert number == len(data["done"]) == 20
    assert [[commit for w, commit in data["done"] if w == writer] for writer in range(4)] == [[0, 1, 2, 3, 4]] * 4


def collect(home: Path) -> None:
    times, values = [TimeColumn("frame", sequence=[0])], [ComponentColumn("x", [1.0])]
    LazyChunkStream.from_iter([Chunk.from_columns("/a", times, values)]).collect(into=home / "store")


COMMITS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "catalog.entry_log": ("the catalog", lambda home: CatalogClient(home / "lake").create_dataset("new")),
    "recordings.writer": ("this store", collect),
    "recordings.vacuum": ("this store", lambda home: RecordingStore.open(home / "store").vacuum()),
}


@pytest.mark.parametrize("module", COMMITS)
def test_nothing_is_visible_of_a_change_that_others_came_before(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    CatalogClient(tmp_path / "lake").create_dataset("d")
    for _ in range(2):
        collect(tmp_path)
    before = sorted(tmp_path.rglob("versions/*"))
    what, change = COMMITS[module]
    monkeypatch.setattr(f"chunkmill.engine.{module}.publish", partial(publish, most=3))
    monkeypatch.setattr(VersionFiles, "create", lambda *_: False)
    with pytest.raises(WriteError, match=f"other writers keep changing {what}") as caught:
        change(tmp_path)
    assert caught.value.transient and not isinstance(caught.value, CommitUnknownError)
    assert sorted(tmp_path.rglob("versions/*")) == before
