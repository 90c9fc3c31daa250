"""Stores as an ingestion leaves them, made without running one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from chunkmill.engine.ingest.checkpoint import Checkpoint
from chunkmill.engine.ingest.files import LandedFile
from chunkmill.engine.ingest.landing_log import LandingLog
from chunkmill.engine.recordings.folder import RecordingsFolder
from chunkmill.engine.recordings.versions import RecordingsVersion


class MadeStore:
    """A landing folder, and a store with a checkpoint beside it."""

    def __init__(self, folder: Path) -> None:
        self.landing = folder / "landing"
        self.landing.mkdir()
        self.home = folder / "lake"
        self._folder = RecordingsFolder(self.home)
        self._folder.prepare()
        self.checkpoint = Checkpoint(self.home / "ingest")
        self.query_id = self.checkpoint.begin(self.landing).query_id
        self.log = LandingLog(self.checkpoint.landing)
        self._number = self._batch = 0
        self._totals: Counter[str] = Counter()

    def land(self, name: str, size: int = 10) -> LandedFile:
        """A file in the landing folder."""
        path = self.landing / name
        path.write_bytes(bytes(size))
        return LandedFile(str(path), size, path.stat().st_mtime_ns)

    def commit(
        self, created: float, files: Mapping[str, int], size: int = 1000, *, operation: str = "ingest"
    ) -> RecordingsVersion:
        """The next version; of the next batch, if it is one of an ingestion."""
        self._number += 1
        self._batch += operation == "ingest"
        self._totals.update(files)
        version = RecordingsVersion(
            number=self._number,
            created=created,
            operation=operation,
            tables=(),
            batches={self.query_id: self._batch},
            recordings=self._totals["added"],
            chunks=2 * self._totals["added"],
            rows=20 * self._totals["added"],
            bytes=200 * self._totals["added"],
            files=dict(files),
            bytes_in=size,
            seconds=0.5,
            totals=dict(self._totals),
        )
        self._folder.publish(version)
        return version
