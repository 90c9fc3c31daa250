"""Which names files get in an archive."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from chunkmill.engine.ingest.files import Disposal, Occupancy, SourceDone, file_at, find_name, numbered
from hypothesis import given, settings
from hypothesis import strategies as st


class Names:
    """A folder of an archive, and what is asked of it."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = taken
        self.ours: set[str] = set()
        self.asked: list[str] = []

    def look(self, name: str) -> Occupancy:
        self.asked.append(name)
        return Occupancy.TAKEN if name in self.taken else Occupancy.OURS if name in self.ours else Occupancy.FREE


@settings(deadline=None)  # some are of a thousand names
@given(st.integers(0, 3000))
def test_the_next_number_is_found_by_few_looks(there: int) -> None:
    names = Names({numbered("drive.mcap", i + 1) for i in range(there)})
    assert find_name("drive.mcap", names.look) == (numbered("drive.mcap", there + 1), Occupancy.FREE)
    assert len(names.asked) <= 2 * there.bit_length() + 1


@given(st.sets(st.integers(1, 40)))
def test_what_a_cut_run_has_put_there_is_found_whatever_names_are_taken(numbers: set[int]) -> None:
    names = Names({numbered("drive.mcap", n) for n in numbers})
    name, place = find_name("drive.mcap", names.look)
    assert place is Occupancy.FREE
    assert name not in names.taken
    names.ours.add(name)
    assert find_name("drive.mcap", names.look) == (name, Occupancy.OURS)


@pytest.mark.parametrize(
    ("name", "second"),
    [
        ("drive.mcap", "drive-2.mcap"),
        ("drive.mcap.zst", "drive-2.mcap.zst"),
        ("drive.MCAP.LZ4", "drive-2.MCAP.LZ4"),
        ("run.1.rrd", "run.1-2.rrd"),
    ],
)
def test_the_number_stands_before_all_that_makes_it_a_recording(name: str, second: str) -> None:
    assert numbered(name, 2) == second


def archive(landing: Path, name: str, data: bytes) -> None:
    (landing / name).write_bytes(data)
    file = file_at(str(landing / name))
    assert file is not None
    Disposal(SourceDone.ARCHIVE, landing, landing.parent / "old").dispose(file)


def test_there_are_names_behind_the_thousandth(landing: Path) -> None:
    old = landing.parent / "old"
    old.mkdir()
    for number in range(1, 1201):
        (old / numbered("drive.mcap.zst", number)).write_bytes(b"old")
    archive(landing, "drive.mcap.zst", b"new")
    assert list(landing.iterdir()) == []
    assert (old / "drive-1201.mcap.zst").read_bytes() == b"new"
    assert len(list(old.iterdir())) == 1201


@pytest.mark.parametrize("kind", ["folder", "dangling"])
def test_what_is_no_file_is_not_written_over(kind: str, landing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = landing.parent / "old"
    old.mkdir()
    if kind == "folder":
        (old / "drive.mcap").mkdir()
    else:
        (old / "drive.mcap").symlink_to(old / "gone")
    monkeypatch.setattr(os, "link", _across_file_systems)
    archive(landing, "drive.mcap", b"new")
    assert (old / "drive-2.mcap").read_bytes() == b"new"
    assert (old / "drive.mcap").is_dir() == (kind == "folder")


def test_a_name_that_somebody_takes_in_that_moment_is_theirs(landing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link, taken = os.link, list[Path]()

    def linking(source: Path, target: Path) -> None:
        if not taken:
            taken.append(target)
            target.write_bytes(b"theirs")
        link(source, target)

    monkeypatch.setattr(os, "link", linking)
    archive(landing, "drive.mcap", b"new")
    assert taken[0].read_bytes() == b"theirs"
    assert taken[0].with_name("drive-2.mcap").read_bytes() == b"new"


def _across_file_systems(*_: object) -> None:
    raise OSError(18, "Invalid cross-device link")
