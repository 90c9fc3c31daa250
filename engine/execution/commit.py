"""The one commit: extents brought together into one RRD, which then takes the destination's name.

An extent is where the messages of a task lie. A commit takes them in the order of the tasks. Those that lie where the
file goes on are adopted; others are copied there, by the kernel or inside a store. Two things keep bytes from being
copied twice, each behind this one shape (figures: 200 MB, 2 cores; ``benchmarks/bench_rrd.py`` guards them). Tasks that
give nothing but untouched messages write them into regions of the one file, whose sizes are known beforehand: 0.14 s
instead of 0.34. Beside other tasks they leave them at their source, and the commit copies them from there: 0.25 s
instead of 0.4.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..errors import ReadError, writing
from ..faults import reach
from ..locations import Location
from ..objects import ObjectUrl
from ..rrd import ChunkEntry, FileRun, Listed, RrdWriter, Run, StoreEntry
from ..task_context import passed_through
from .chunk_rows import Note, PartChunk
from .folders import OPEN_SUFFIX, Folder, LocalFolder, NewFile, replace_file
from .staging import Staging
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
        writer.adopt(store, self.listed.placed(store, writer.position), self.size)

    def append(self, writer: RrdWriter, store: StoreEntry, folder: Folder, destination: str) -> None:
        """Copy the messages to the end of another file.

        Raises :class:`ReadError` where they were left at their source, and lie there no more.
        """
        if not isinstance(self.chunks, Listed):
            writer.append_part(store, folder.place(self.file), self.chunks, self.start, self.size)
            return
        assert self.size is not None
        chunks = self.chunks.placed(store, writer.position)
        if not self.at_source:
            writer.append_passed(store, folder.place(self.file), chunks, self.start, self.size)
            return
        assert isinstance(self.chunks, FileRun)
        out = writer.messages(store).out
        out.flush()
        assert out.handle is not None
        if not self.chunks.copy(out.handle, out.position, store, destination=destination):
            raise ReadError(
                "messages do not lie where they lay when the run began",
                path=self.chunks.path,
                hint="Another program writes to the file; run again when that is done.",
            )
        out.wrote(self.size)
        writer.adopt(store, chunks, 0)


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
            passed_through(run.table.message_bytes)
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
            yield Extent(note.task, note.data["part"], 0, listed.table.framed_bytes, listed)
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


_COMMIT_NAME: Final = "commit.rrd"
_REGIONS_NAME: Final = "regions.rrd"
_REGIONS_FILE: Final = _REGIONS_NAME + OPEN_SUFFIX


class RrdCommit:
    """The commit of a run into one RRD: the file that will appear at ``destination``.

    Guarantee: until the last step (a rename; in an object store the end of the upload) the destination is untouched;
    after it the file is whole and on disk.
    """

    def __init__(self, staging: Staging, destination: Location, stores: Sequence[StoreEntry]) -> None:
        self._staging = staging
        self._destination = destination
        self._stores = stores
        self._reserved: _Target | None = None

    def reserve(self, sizes: Sequence[int]) -> Regions:
        """Begin a local file now, with a region for each task, of these sizes."""
        with writing(str(self._destination)):
            self._reserved = self._begin(_REGIONS_NAME)
        self._reserved.writer.flush()
        return Regions.of(_REGIONS_FILE, self._reserved.writer.position, sizes)

    def finish(self, stores: Sequence[StoreEntry], extents: Sequence[Extent]) -> int:
        """Bring extents together, in their order; the file then appears. Gives its size in bytes.

        ``stores`` are those of the tasks. Where all extents lie in their regions, they are adopted. Else (a source
        changed meanwhile, so that a task wrote a part) all are copied into another file, by the kernel or inside the
        store. The footer is made from what is known of their chunks.
        """
        with writing(str(self._destination)):
            reserved = self._reserved
            if reserved is not None and not _lie_behind(extents, _REGIONS_FILE, reserved.writer.position):
                reserved = None
            target = reserved or self._begin(_COMMIT_NAME)
            writer, folder = target.writer, self._staging.folder
            try:
                for extent in extents:
                    if reserved is None:
                        extent.append(writer, stores[extent.task], folder, str(self._destination))
                    else:
                        extent.adopt(writer, stores[extent.task])
                writer.finish()
                reach("rrd.write", getattr(target.file.file, "name", None))
                target.file.finish()
            except BaseException:
                target.file.discard()
                raise
            finally:
                self.close()
            if not isinstance(self._destination, ObjectUrl):
                replace_file(self._staging.local / target.name, self._destination)
            reach("rrd.rename")
        return writer.position

    def take(self, part: str) -> None:
        """Let a part of a local staging folder that is a whole RRD, on disk, appear."""
        with writing(str(self._destination)):
            assert not isinstance(self._destination, ObjectUrl)
            replace_file(self._staging.local / part, self._destination)
            reach("rrd.rename")

    def close(self) -> None:
        """Throw away what was begun and not finished."""
        if self._reserved is not None:
            self._reserved.file.discard()

    def _begin(self, name: str) -> _Target:
        if isinstance(self._destination, ObjectUrl):
            file = Folder.at(self._destination.parent).new(self._destination.name)
        else:
            file = self._staging.folder.new(name)
        writer = RrdWriter(file.file, path=str(self._destination))
        for store in self._stores:
            writer.begin_store(store)
        return _Target(name, file, writer)


class _Target(NamedTuple):
    """The file that is written, and its name in the staging folder."""

    name: str
    file: NewFile
    writer: RrdWriter


def _lie_behind(extents: Sequence[Extent], file: str, end: int) -> bool:
    """Whether extents lie in ``file`` one behind the other from ``end`` on."""
    for extent in extents:
        if (extent.file, extent.start) != (file, end):
            return False
        end += extent.size or 0
    return True
