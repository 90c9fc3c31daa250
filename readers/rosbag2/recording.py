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
        """Whether a folder is one recording."""
        return is_bag(folder)

    def stream(self) -> LazyChunkStream:
        """The chunks of the recording, as :class:`Rosbag2Reader` reads it."""
        return self._bag().stream()

    def values(self) -> LazyChunkStream:
        """The messages as they are decoded; see :meth:`Rosbag2Reader.values`."""
        return self._bag().values()

    def size(self) -> int:
        """Bytes of the storage files."""
        return sum(RecordingFile.size(Rosbag2Recording(file)) for file in self._files())

    def stamp(self) -> tuple[int, int]:
        """The bytes of the storage files and of the files next to them, and when one of them was last changed."""
        if not isinstance(self.path, Path):
            return self.size(), 0
        files = [Path(f"{file}{end}") for file in self._files() for end in ("", *BESIDE)]
        status = [file.stat() for file in files if file.exists()]
        return sum(s.st_size for s in status), max((s.st_mtime_ns for s in status), default=0)

    def places(self) -> Iterator[Location]:
        """Yield the folder with all below it; of a database alone the file, and what SQLite takes from beside it."""
        yield from super().places()
        if isinstance(self.path, Path) and self.path.is_file():
            yield from (Path(f"{self.path}{end}") for end in BESIDE)

    def report(self) -> FileReport:
        """Topics, counts and times; every row is looked at."""
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
            facts[f"messages in {METADATA}"] = f"{metadata.messages:,}, which is not what the files hold"
        return report_of(info, facts)

    def verify(self) -> Verification:
        """SQLite's check of each database, or the CRCs of each MCAP; then every message decoded."""
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
                        hint = "The file is damaged; copy it again if there is a good one."
                        findings.fault(ReadError(f"SQLite's check: {line}", path=str(file), hint=hint))
            findings.add(RecordingFile.verify(self))
        return findings.verification()

    def _bag(self) -> Rosbag2Reader:
        from .reader import Rosbag2Reader

        return Rosbag2Reader(self.path, **self.reading_options())

    def _files(self) -> Sequence[Location]:
        return bag_files(self.path).files
