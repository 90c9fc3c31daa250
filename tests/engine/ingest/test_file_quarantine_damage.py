"""A quarantine table that cannot be read, or not be written, is explained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pytest
from chunkmill.engine.errors import NoSpaceError, ReadError, WriteError
from chunkmill.engine.ingest.quarantine import FileQuarantine
from quarantined_files import failed, table_of, tries


@pytest.fixture
def quarantine(tmp_path: Path) -> FileQuarantine:
    return FileQuarantine(tmp_path)


def cut_manifest(table: Path) -> None:
    newest = min((table / "_versions").glob("*.manifest"))
    newest.write_bytes(newest.read_bytes()[:20])


def empty_manifest(table: Path) -> None:
    min((table / "_versions").glob("*.manifest")).write_bytes(b"")


def cut_data(table: Path) -> None:
    for path in (table / "data").iterdir():
        path.write_bytes(path.read_bytes()[:50])


def no_data(table: Path) -> None:
    for path in (table / "data").iterdir():
        path.unlink()


def another_table(table: Path) -> None:
    import pyarrow as pa

    lance.write_dataset(pa.table({"x": [1]}), str(table), mode="overwrite")


@pytest.mark.parametrize("damage", [cut_manifest, empty_manifest, cut_data, no_data, another_table])
def test_a_damaged_table_is_explained(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    FileQuarantine(tmp_path).note("q", 1, [failed("/l/a")])
    damage(table_of(tmp_path))
    for use in (
        lambda q: q.count(),
        lambda q: q.rows(),
        lambda q: q.note("q", 2, [failed("/l/a")]),
        lambda q: q.resolve(["/l/a"]),
    ):
        with pytest.raises(ReadError, match="the quarantine table cannot be read") as caught:
            use(FileQuarantine(tmp_path))
        assert caught.value.path == str(table_of(tmp_path))
        assert caught.value.hint is not None and "move that folder away" in caught.value.hint


def test_a_new_table_takes_the_place_of_one_that_was_moved_away(quarantine: FileQuarantine, tmp_path: Path) -> None:
    quarantine.note("q", 1, [failed("/l/a")])
    table_of(tmp_path).rename(tmp_path / "away")
    assert quarantine.count() == 0
    quarantine.note("q", 2, [failed("/l/b")])
    assert tries(quarantine) == {"/l/b": 1}


def test_what_stands_in_the_way_is_named(quarantine: FileQuarantine, tmp_path: Path) -> None:
    (tmp_path / "quarantine").write_text("no folder")
    with pytest.raises((ReadError, WriteError), match=r"table\.lance"):
        quarantine.note("q", 1, [failed("/l/a")])


def test_a_full_disk_is_named(quarantine: FileQuarantine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_a: object, **_k: object) -> None:
        raise OSError("LanceError(IO): Unable to write: No space left on device (os error 28), lib.rs:12:3")

    monkeypatch.setattr(lance, "write_dataset", full)
    with pytest.raises(NoSpaceError, match="No space left on device"):
        quarantine.note("q", 1, [failed("/l/a")])
    monkeypatch.undo()
    quarantine.note("q", 1, [failed("/l/a")])
    assert tries(quarantine) == {"/l/a": 1}


def test_a_table_on_which_lance_panics_is_explained(
    quarantine: FileQuarantine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PanicException(BaseException):
        pass

    def panic(*_a: object, **_k: object) -> None:
        raise PanicException("range end index 33083 out of range")

    quarantine.note("q", 1, [failed("/l/a")])
    monkeypatch.setattr(lance, "dataset", panic)
    with pytest.raises(ReadError, match="cannot be read: range end index"):
        quarantine.rows()
