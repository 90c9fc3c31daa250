"""What tasks wrote and where it lies: what a commit brings together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from ..errors import ReadError
from ..rrd import ChunkEntry, FilePassage, Listed, RrdWriter, StoreEntry
from ..rrd.copying import copy_range, start_writing_back
from ..rrd.positional import PositionalFile
from .chunk_rows import PartChunk
from .folders import Folder
from .passing import PassedPart
from .stitching import Stitched


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """The messages of one task: ``size`` bytes (None: all) of a file of the staging folder, from ``start``.

    ``chunks`` are listed, or entries with their offsets in that file. With ``at_source`` there is no such file: they
    are a passage, whose messages are still where they were read.
    """

    file: str
    start: int
    size: int | None
    store: StoreEntry
    chunks: Listed | Sequence[ChunkEntry]
    at_source: bool = False

    def adopt(self, writer: RrdWriter) -> None:
        """Take the messages as part of the file that is written: they lie where it goes on."""
        assert self.size is not None
        if isinstance(self.chunks, Listed):
            columns = self.chunks.columns(self.store, writer.position)
            assert columns is not None
            writer.adopt(self.store, columns, self.size)
        else:
            writer.adopt(self.store, self.chunks, self.size)

    def brought(self, folder: Folder, file: Path, start: int, destination: str) -> PlacedPart:
        """Copy the messages into another ``file`` of a local ``folder``; gives them as they lie there.

        Raises :class:`ReadError` where they were left at their source, and lie there no more.
        """
        size = self.size
        with file.open("r+b", buffering=0) as target:
            target.seek(start)
            if not self.at_source:
                with PositionalFile(folder.place(self.file)) as part:
                    size = part.size - self.start if size is None else size
                    copy_range(part, self.start, size, target.fileno())
                start_writing_back(target.fileno(), start, size)
            else:
                assert isinstance(self.chunks, FilePassage)
                if not self.chunks.copy(target.fileno(), start, self.store, destination=destination):
                    raise ReadError(
                        "messages do not lie where they lay when the run began",
                        path=self.chunks.path,
                        hint="Another program writes to the file; run again when that is done.",
                    )
        chunks = self.chunks if isinstance(self.chunks, Listed) else moved(self.chunks, start - self.start)
        return PlacedPart(file.name, start, size, self.store, chunks)

    def append(self, writer: RrdWriter, folder: Folder) -> None:
        """Copy the messages to the end of another file."""
        place = folder.place(self.file)
        if isinstance(self.chunks, Listed):
            assert self.size is not None
            columns = self.chunks.columns(self.store, writer.position)
            assert columns is not None
            writer.append_passed(self.store, place, columns, self.start, self.size)
        else:
            writer.append_part(self.store, place, self.chunks, self.start, self.size)


def placed_parts(
    store_of_task: Sequence[StoreEntry],
    chunks: Sequence[PartChunk],
    passed: Sequence[PassedPart],
    stitched: Mapping[str, Stitched],
    stitched_file: str,
) -> list[PlacedPart]:
    """What came of a run, in the order of the tasks; parts named in ``stitched`` lie in ``stitched_file``."""
    found = [(task, _placed(part, store_of_task, stitched, stitched_file)) for task, part in _parts(chunks, passed)]
    return [part for _, part in sorted(found, key=lambda pair: pair[0])]


def lying_in_place(parts: Sequence[PlacedPart], file: str, start: int) -> tuple[int, int] | None:
    """How many parts lie in ``file`` one behind the other from ``start`` on, and where the last of them ends.

    None where others lie in it too, further on.
    """
    count = 0
    while count < len(parts) and (parts[count].file, parts[count].start) == (file, start):
        start += parts[count].size or 0
        count += 1
    return None if any(part.file == file for part in parts[count:]) else (count, start)


def _parts(
    chunks: Sequence[PartChunk], passed: Sequence[PassedPart]
) -> Iterator[tuple[int, PassedPart | list[PartChunk]]]:
    yield from ((part.task, part) for part in passed)
    yield from ((task, list(found)) for (task, _), found in groupby(chunks, key=lambda c: (c.task, c.part)))


def _placed(
    part: PassedPart | list[PartChunk],
    store_of_task: Sequence[StoreEntry],
    stitched: Mapping[str, Stitched],
    stitched_file: str,
) -> PlacedPart:
    if isinstance(part, PassedPart):
        there = stitched.get(part.file)
        file, start = (part.file, part.start) if there is None else (stitched_file, there.start)
        at_source = part.at_source and there is None
        return PlacedPart(file, start, part.size, store_of_task[part.task], part.passage, at_source)
    store, entries = store_of_task[part[0].task], [chunk.entry for chunk in part]
    there = stitched.get(part[0].part)
    if there is None:
        return PlacedPart(part[0].part, 0, None, store, entries)
    return PlacedPart(stitched_file, there.start, there.size, store, moved(entries, there.start))


def moved(entries: Sequence[ChunkEntry], by: int) -> list[ChunkEntry]:
    """The same chunks, so many bytes further on."""
    return [replace(entry, offset=entry.offset + by) for entry in entries]
