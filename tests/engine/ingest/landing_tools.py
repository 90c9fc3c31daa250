"""A clock that tests set, and files of a landing folder with the size and time that a test wants."""

from __future__ import annotations

import os
from pathlib import Path

from chunkmill.engine.ingest.landing import Landing, Lister
from chunkmill.engine.ingest.landing_log import LandingLog

SUFFIXES = (".mcap", ".rrd")
NOW = 1_700_000_000.0


class SetClock:
    """Both clocks; ``wait`` moves both, ``set_back`` the time of day alone."""

    def __init__(self) -> None:
        self.wall = NOW
        self.seconds = 50.0

    def wall_ns(self) -> int:
        return int(self.wall * 1e9)

    def steady(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> None:
        self.wall += seconds
        self.seconds += seconds

    def set_back(self, seconds: float) -> None:
        self.wall -= seconds


class Folder:
    """A landing folder, its clock, and whoever looks at it."""

    def __init__(self, root: Path, settle: float = 2.0) -> None:
        self.path = root / "landing"
        self.path.mkdir(exist_ok=True)
        self.log_path = root / "log"
        self.clock = SetClock()
        self.settle = settle

    def put(self, name: str, content: bytes = b"content", *, age: float = 0.0) -> Path:
        """Write a file, as last changed ``age`` seconds before the clock's time."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        self.date(name, age)
        return path

    def date(self, name: str, age: float) -> None:
        changed = self.clock.wall_ns() - int(age * 1e9)
        os.utime(self.path / name, ns=(changed, changed))

    def lister(self) -> Lister:
        return Lister(str(self.path), settle_seconds=self.settle, suffixes=SUFFIXES, clock=self.clock)

    def landing(self, max_files: int | None = None, max_bytes: int | None = None) -> Landing:
        """What a start of the ingestion makes."""
        return Landing(self.lister(), LandingLog(self.log_path), max_files=max_files, max_bytes=max_bytes)

    def names(self, files) -> list[str]:
        return sorted(os.path.relpath(file.path, self.path) for file in files)
