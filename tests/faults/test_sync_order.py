"""What would survive the loss of power: nothing is named, and no source removed, before what it needs is on the disk.

A process that is killed loses nothing that it wrote; a machine does. So this looks at the order of syncs: a file counts
as being on the disk once it was synced, its name once the folder was, after the file got that name.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.ingest.ingest import Ingest
from chunkmill.engine.recordings.folder import RecordingsFolder
from fault_world import LONG_AGO, recording, table


class Disk:
    """What is on the disk, as far as syncs tell; ``wrong`` is what was done too early."""

    def __init__(self, home: Path, landing: Path) -> None:
        self._home = home
        self._landing = landing
        self._inodes: set[int] = set()
        self._names: dict[str, set[str]] = {}
        self.versions: list[int] = []
        self.removed: list[str] = []
        self.wrong: list[str] = []

    def synced(self, handle: int) -> None:
        """A file or folder was synced."""
        place = Path(f"/proc/self/fd/{handle}").readlink()
        if place.is_dir():
            self._names.setdefault(str(place), set()).update(p.name for p in place.iterdir())
        else:
            self._inodes.add(os.fstat(handle).st_ino)

    def is_there(self, path: Path) -> bool:
        """Whether a file is on the disk, under its name."""
        return path.stat().st_ino in self._inodes and path.name in self._names.get(str(path.parent), set())

    def published(self, version: Path) -> None:
        """A version has got its name."""
        number = int(version.stem)
        self.versions.append(number)
        folder = RecordingsFolder(self._home)
        tables = folder.read_version(number).tables
        entries = folder.entries(tables)
        named = [self._home / "tables" / t.name for t in tables]
        named += [self._home / "manifests" / e.manifest for e in entries]
        named += [self._home / "shards" / shard for e in entries for shard in e.shards]
        named += [self._home.parent / "rrds" / str(e.rrd) for e in entries]
        self.wrong += [f"version {number} names {p}, which is not on the disk" for p in named if not self.is_there(p)]

    def removing(self, path: Path) -> None:
        """A source is about to go."""
        self.removed.append(path.name)
        newest = self._home / "versions" / f"{self.versions[-1]:08d}.json" if self.versions else None
        if newest is None or not self.is_there(newest):
            self.wrong.append(f"{path.name} goes, and no version that has it is on the disk")
        archived = self._home.parent / "archive" / path.name
        if archived.exists() and archived.name not in self._names.get(str(archived.parent), set()):
            self.wrong.append(f"{path.name} goes, and its name in the archive is not on the disk")


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """A disk that notes what is synced."""
    disk = Disk(tmp_path / "lake", tmp_path / "landing")
    sync, link, unlink = os.fsync, os.link, Path.unlink

    def syncing(handle: int) -> None:
        sync(handle)
        disk.synced(handle)

    def linking(source: Any, target: Any, **more: Any) -> None:
        link(source, target, **more)
        if Path(target).parent == tmp_path / "lake" / "versions":
            disk.published(Path(target))

    def unlinking(path: Path, missing_ok: bool = False) -> None:
        if path.parent == tmp_path / "landing":
            disk.removing(path)
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "fdatasync", syncing)
    monkeypatch.setattr(os, "link", linking)
    monkeypatch.setattr(Path, "unlink", unlinking)
    return disk


@pytest.mark.parametrize("done", ["archive", "delete"])
def test_what_a_version_names_is_on_the_disk_before_it_and_sources_go_after_it(
    disk: Disk, done: str, tmp_path: Path
) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    for number in range(4):
        path = landing / f"{number}{'.rrd' if number % 2 else '.parquet'}"
        (recording if number % 2 else table)(path, number, 5)
        os.utime(path, (LONG_AGO + number,) * 2)
    Ingest(
        landing,
        into=tmp_path / "lake",
        rrds=tmp_path / "rrds",
        source_done=done,
        archive=tmp_path / "archive" if done == "archive" else None,
        max_files_per_trigger=2,
        executor="inline",
    ).start(once=True).await_termination()
    assert disk.versions == [1, 2]
    assert sorted(disk.removed) == ["0.parquet", "1.rrd", "2.parquet", "3.rrd"]
    assert not disk.wrong, "\n".join(disk.wrong)
