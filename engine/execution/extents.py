"""Extents: where the messages of tasks lie, and how tasks bring untouched ones there.

A commit takes extents in the order of the tasks. One that lies where the file goes on is adopted; others are copied
there, by the kernel or inside a store. Three things keep bytes from being copied twice, each behind this one shape
(figures: 200 MB, 2 cores; ``benchmarks/bench_rrd.py`` guards them). Tasks that give nothing but untouched messages
write them into regions of the one file, whose sizes are known beforehand: 0.14 s instead of 0.34. Beside other tasks
they leave them at their source, and the commit copies them from there: 0.25 s instead of 0.4. And a thread of the
commit copies parts while other tasks still run.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

from ..errors import ReadError
from ..failing import writing
from ..phases import passed_through
from ..rrd import (
    ChunkEntry,
    FileRun,
    Listed,
    PositionalFile,
    RrdWriter,
    Run,
    StoreEntry,
    copy_range,
    start_writing_back,
)
from .chunk_rows import Note, PartChunk
from .folders import Folder, LocalFolder
from .work import Work, whole_run_of


@dataclass(frozen=True, slots=True)
class Extent:
    """The messages of one task: ``size`` bytes (None: all) of a file of the staging folder, from ``start``.

    ``chunks`` are listed, or entries with their offsets in that file. With ``at_source`` there is no such file: they
    are a run, whose messages are still where they were read.
    """

    task: int
    file: str
    start: int
    size: int | None
    chunks: Listed | Sequence[ChunkEntry]
    at_source: bool = False

    @property
    def listed(self) -> Listed:
        """The chunks of an extent that one row told of."""
        assert isinstance(self.chunks, Listed)
        return self.chunks

    def adopt(self, writer: RrdWriter, store: StoreEntry) -> None:
        """Take the messages as part of the file that is written: they lie where it goes on."""
        assert self.size is not None
        if isinstance(self.chunks, Listed):
            columns = self.chunks.columns(store, writer.position)
            assert columns is not None
            writer.adopt(store, columns, self.size)
        else:
            writer.adopt(store, self.chunks, self.size)

    def copied(self, store: StoreEntry, folder: Folder, file: Path, start: int, destination: str) -> Extent:
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
                assert isinstance(self.chunks, FileRun)
                if not self.chunks.copy(target.fileno(), start, store, destination=destination):
                    raise ReadError(
                        "messages do not lie where they lay when the run began",
                        path=self.chunks.path,
                        hint="Another program writes to the file; run again when that is done.",
                    )
        return replace(self.at(file.name, start), size=size, at_source=False)

    def append(self, writer: RrdWriter, store: StoreEntry, folder: Folder) -> None:
        """Copy the messages to the end of another file."""
        place = folder.place(self.file)
        if isinstance(self.chunks, Listed):
            assert self.size is not None
            columns = self.chunks.columns(store, writer.position)
            assert columns is not None
            writer.append_passed(store, place, columns, self.start, self.size)
        else:
            writer.append_part(store, place, self.chunks, self.start, self.size)

    def at(self, file: str, start: int, size: int | None = None) -> Extent:
        """The same messages, that were copied to another place."""
        chunks, by = self.chunks, start - self.start
        if not isinstance(chunks, Listed):
            chunks = [replace(entry, offset=entry.offset + by) for entry in chunks]
        return Extent(self.task, file, start, self.size if size is None else size, chunks)


@dataclass(frozen=True, slots=True)
class Regions:
    """A file in the staging folder on ``host``, and where in it each task begins to write.

    Only tasks on that host use it: file systems differ in what they make of a file that two machines write.
    """

    file: str
    starts: tuple[int, ...]
    host: str

    @classmethod
    def of(cls, file: str, start: int, sizes: Sequence[int]) -> Regions:
        """One behind the other, from ``start`` on."""
        return cls(file, tuple(accumulate(sizes, initial=start))[:-1], socket.gethostname())


@dataclass(frozen=True, slots=True)
class RunPlaces:
    """The places of the runs that tasks give: in ``regions`` where all of them give nothing else, or in parts.

    With ``at_source``, they leave them where they lie, and who commits copies them: once instead of twice.
    """

    regions: Regions | None = None
    at_source: bool = False

    @property
    def is_quick(self) -> bool:
        """Whether the driver can do it as well as a worker on its machine: there is no part to write."""
        return self.at_source or self.regions is not None

    def bring(
        self, index: int, run: Run, store: StoreEntry, folder: Folder, part: str, destination: str
    ) -> dict[str, Any] | None:
        """Copy all that task ``index`` gives; tells where it lies now. None where it can't be copied like that.

        A region is written as often as its task is tried, always with the same bytes.
        """
        size = run.size_in(store)
        if self.regions is not None and self.regions.host == socket.gethostname():
            start = self.regions.starts[index]
            with writing(destination):
                file = Path(folder.place(self.regions.file)).open("r+b", buffering=0)  # noqa: SIM115 - closed below
            with file:
                file.seek(start)
                if not run.copy(file.fileno(), start, store, destination=destination):
                    return None
            return {"file": self.regions.file, "start": start, "size": size}
        if self.at_source and isinstance(run, FileRun):
            if not run.lies_as_listed():
                return None
            passed_through(run.source_size)
            return {"file": part, "start": 0, "size": size, "at_source": True}
        if not isinstance(folder, LocalFolder):
            return None
        with writing(destination):
            new = folder.new(part)
        try:
            if not run.copy(new.file.fileno(), 0, store, destination=destination):
                return None
            with writing(destination):
                new.finish()
        finally:
            new.discard()
        return {"file": part, "start": 0, "size": size}


def listed_extents(work: Work, notes: Sequence[Note]) -> list[Extent]:
    """The extents that tasks wrote without a row for each chunk, by their notes."""
    return list(_listed_extents(work, notes))


def _listed_extents(work: Work, notes: Sequence[Note]) -> Iterator[Extent]:
    for note in notes:
        if note.kind == "listing":
            listed = Listed(note.data["table"])
            yield Extent(note.task, note.data["part"], 0, listed.framed_size, listed)
        place = note.data.get("extent") if note.kind == "task" else None
        if place is not None:
            run = whole_run_of(work, note.task)
            assert run is not None
            yield Extent(note.task, place["file"], place["start"], place["size"], run, place.get("at_source", False))


def all_extents(chunks: Sequence[PartChunk], listed: Sequence[Extent]) -> list[Extent]:
    """Those that are listed, and those of the chunks that have rows, in the order of the tasks."""
    parts = groupby(chunks, key=lambda c: (c.task, c.part))
    found = [*listed, *(Extent(task, part, 0, None, [c.entry for c in some]) for (task, part), some in parts)]
    return sorted(found, key=lambda extent: extent.task)


def lying_in_place(extents: Sequence[Extent], file: str, start: int) -> tuple[int, int] | None:
    """Count those that lie in ``file`` one behind the other from ``start`` on; gives the end of the last, too.

    None where others lie in it too, further on.
    """
    count = 0
    while count < len(extents) and (extents[count].file, extents[count].start) == (file, start):
        start += extents[count].size or 0
        count += 1
    return None if any(extent.file == file for extent in extents[count:]) else (count, start)
