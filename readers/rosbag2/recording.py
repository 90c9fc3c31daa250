"""rosbag2 in the registry of formats: its options, and what ``inspect`` shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ...engine.errors import ReadError
from ..mcap.recording import McapRecording, report_of
from ..recording_file import RecordingFile, option
from .folder import BESIDE, METADATA, bag_files, is_bag

if TYPE_CHECKING:
    from ...engine.locations import Location
    from ...engine.rrd import Verification
    from ...engine.stream import LazyChunkStream
    from ..inspection import FileReport
    from .reader import Rosbag2Reader


@dataclass(frozen=True)
class Rosbag2Recording(McapRecording):
    """A recording of rosbag2. Its options are those of an MCAP and ``types``."""

    types: tuple[str, ...] = option(
        (),
        "rosbag2: types that the recording does not define: a distribution (humble) or a folder of .msg or .idl files;"
        " repeatable.",
        flag="--types",
        metavar="FOLDER|NAME",
    )

    marker_suffices = False
    lands_whole: ClassVar[bool] = True

    @classmethod
    def is_one_input(cls, folder: Location, marker: str) -> bool:  # noqa: ARG003 (a recording may have lost it)
        """Return True if a folder is one recording."""
        return is_bag(folder)

    def stream(self) -> LazyChunkStream:
        """Return the chunks of the recording; see :class:`Rosbag2Reader`."""
        return self._bag().stream()

    def values(self) -> LazyChunkStream:
        """Return the decoded messages; see :meth:`Rosbag2Reader.values`."""
        return self._bag().values()

    def size(self) -> int:
        """The size of the storage files, in bytes."""
        return sum(RecordingFile.size(Rosbag2Recording(file)) for file in self._files())

    def stamp(self) -> tuple[int, int]:
        """Return the size of the storage files and their journals, and their latest modification time."""
        if not isinstance(self.path, Path):
            return self.size(), 0
        files = [Path(f"{file}{end}") for file in self._files() for end in ("", *BESIDE)]
        status = [file.stat() for file in files if file.exists()]
        return sum(s.st_size for s in status), max((s.st_mtime_ns for s in status), default=0)

    def places(self) -> Iterator[Location]:
        """Yield the folder with its content; for a single database, yield the file and its journals."""
        yield from super().places()
        if isinstance(self.path, Path) and self.path.is_file():
            yield from (Path(f"{self.path}{end}") for end in BESIDE)

    def report(self) -> FileReport:
        """Return topics, counts and times. Every row is read."""
        source = self._bag().source()
        info = source.info()
        metadata = source.files.metadata
        facts: dict[str, str | float | bool] = {
            "storage": "mcap" if source.is_mcap else "sqlite3",
            "files": len(source.files.files),
            "metadata": "derived from the files" if metadata is None else f"version {metadata.version}",
        }
        if metadata is not None and metadata.distribution:
            facts["ros_distro"] = metadata.distribution
        if metadata is not None and metadata.messages not in (None, info.messages):
            facts[f"messages in {METADATA}"] = f"{metadata.messages:,}, which differs from the files"
        return report_of(info, facts)

    def verify(self) -> Verification:
        """Run SQLite's check of each database, or verify the CRCs of each MCAP; then decode every message."""
        from ...engine.rrd import Findings
        from .database import BagDatabase, LocalCopy

        findings = Findings()
        with findings.noting():
            source = self._bag().source()
            if source.is_mcap:
                for file in source.files.files:
                    findings.add(McapRecording(file).verify())
                return findings.verification()
            for file in source.files.files:
                with findings.noting(), BagDatabase(LocalCopy(str(file))) as database:
                    for line in database.check():
                        hint = "The file is damaged; copy it again."
                        findings.fault(ReadError(f"SQLite's check: {line}", path=str(file), hint=hint))
            findings.add(RecordingFile.verify(self))
        return findings.verification()

    def _bag(self) -> Rosbag2Reader:
        from .reader import Rosbag2Reader

        return Rosbag2Reader(self.path, **self.reading_options())

    def _files(self) -> Sequence[Location]:
        return bag_files(self.path).files
