"""Forged LeRobot datasets: each is refused, soon and in little memory, and nothing outside of its folder is opened."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fuzz_lerobot import FORGED, VIDEO_3, Forge, make_set
from fuzz_recordings import Worker

SECONDS = 10.0
MIB = 600

_OPENED = 0x20
"""``IN_OPEN`` of inotify."""


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as started:
        yield started


@contextmanager
def unopened(folder: Path) -> Iterator[None]:
    """Fail if a file of a folder, of those in it, is opened in the block, by whatever library."""
    library = ctypes.CDLL(None, use_errno=True)
    watch = library.inotify_init1(os.O_NONBLOCK)
    places = [folder, *folder.rglob("*")]
    try:
        for place in places:
            assert library.inotify_add_watch(watch, os.fsencode(place), _OPENED) > 0, place
        yield
        with pytest.raises(BlockingIOError):
            os.read(watch, 4096)
    finally:
        os.close(watch)


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_what_is_not_forged_is_read(worker: Worker, tmp_path: Path, version: str) -> None:
    answer = worker.read("lerobot", make_set(tmp_path / "set", version))
    assert answer["outcome"] == "read" and not answer["warned"], answer


@pytest.mark.parametrize(
    ("version", "name", "forged"), FORGED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_forged_dataset_is_an_error(
    worker: Worker, tmp_path: Path, version: str, name: str, forged: tuple[Forge, str]
) -> None:
    forge, message = forged
    root = make_set(tmp_path / "set", version)
    beside = tmp_path / "beside"
    beside.mkdir()
    forge(root, beside)
    with unopened(beside):
        answer = worker.read("lerobot", root)
    assert answer["outcome"] == "refused", (name, answer)
    assert re.search(message, answer["text"]), answer
    assert Path(answer["path"]).is_relative_to(root) and answer["hint"], answer
    assert len(answer["text"]) < 1000
    assert answer["seconds"] < SECONDS and answer["mib"] < MIB, answer


def test_there_are_twenty() -> None:
    for version in ("v2.1", "v3.0"):
        assert sum(one[0] == version for one in FORGED) >= 20


def test_openings_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    with pytest.raises(pytest.fail.Exception), unopened(tmp_path):
        (tmp_path / "a").read_bytes()


def test_links_within_a_dataset_and_to_the_blobs_of_a_cache_are_read(worker: Worker, tmp_path: Path) -> None:
    root = make_set(tmp_path / "datasets--a--b/snapshots/0a1b", "v3.0")
    blobs = tmp_path / "datasets--a--b/blobs"
    blobs.mkdir()
    for number, place in enumerate(["meta/info.json", VIDEO_3]):
        (root / place).rename(blobs / str(number))
        (root / place).symlink_to(os.path.relpath(blobs / str(number), (root / place).parent))
    (root / "data/000/000.parquet").rename(root / "frames")
    (root / "data/000/000.parquet").symlink_to("../../frames")
    answer = worker.read("lerobot", root)
    assert answer["outcome"] == "read" and not answer["warned"], answer
