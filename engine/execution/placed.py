"""What tasks wrote and where it lies: what a commit brings together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ..rrd import ChunkEntry, Listed, RrdWriter, StoreEntry
from .chunk_rows import PartChunk
from .folders import Folder
from .passing import PassedPart
from .stitching import Stitched


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """The messages of one task: ``size`` bytes (None: all) of a file of the staging folder, from ``start``.

    ``chunks`` are listed, or entries with their offsets in that file.
    """

    file: str
    start: int
    size: int | None
    store: StoreEntry
    chunks: Listed | Sequence[ChunkEntry]

    def adopt(self, writer: RrdWriter) -> None:
        """Take the messages as part of the file that is written: they lie where it goes on."""
        assert self.size is not None
        if isinstance(self.chunks, Listed):
            columns = self.chunks.columns(self.store, writer.position)
            assert columns is not None
            writer.adopt(self.store, columns, self.size)
        else:
            writer.adopt(self.store, self.chunks, self.size)

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
        moved = stitched.get(part.file)
        file, start = (part.file, part.start) if moved is None else (stitched_file, moved.start)
        return PlacedPart(file, start, part.size, store_of_task[part.task], part.passage)
    store, entries = store_of_task[part[0].task], [chunk.entry for chunk in part]
    moved = stitched.get(part[0].part)
    if moved is None:
        return PlacedPart(part[0].part, 0, None, store, entries)
    entries = [replace(entry, offset=entry.offset + moved.start) for entry in entries]
    return PlacedPart(stitched_file, moved.start, moved.size, store, entries)
