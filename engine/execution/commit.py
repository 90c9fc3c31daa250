"""The one commit: extents brought together into one RRD, which then takes the destination's name.

An extent is where the messages of a task lie. A commit takes them in the order of the tasks. Extents that are already
in their place in the file are adopted; others are copied there, by the kernel or inside a store. Two things keep bytes
from being copied twice, each behind this one shape (figures: 200 MB, 2 cores; ``benchmarks/bench_rrd.py`` guards them).
Tasks with only unread messages as output write them into regions of the one file, with sizes known beforehand: 0.14 s
instead of 0.34. Beside other tasks they leave them at their source, and the commit copies them from there: 0.25 s
instead of 0.4. And what is copied is copied while other tasks still run: of 4 GB in 73 tasks, 19 s of 44 were copying
after the last task, and are 0.3 s of 21 (``benchmarks/scale.py`` guards it).
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from ..errors import ReadError, WriteError, writing
from ..faults import reach
from ..locations import Location
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
from ..storage import ObjectUrl
from ..storage.folder import OPEN_SUFFIX, Folder, LocalFolder, NewFile, replace_file
from ..task_context import passed_through
from .frame_rows import Note, PartChunk
from .staging import DONE_SUFFIX, PART_SUFFIX, Staging
from .work import Work


@dataclass(frozen=True, slots=True)
class Extent:
    """The messages of one task: ``size`` bytes (None: all) of a file of the staging folder, from ``start``.

    ``chunks`` are listed, or entries with their offsets in that file. With ``at_source`` there is no such file: they
    are a run, and its messages are still where they were read.
    """

    task: int
    file: str
    start: int
    size: int | None
    chunks: Listed | Sequence[ChunkEntry]
    at_source: bool = False

    @property
    def listed(self) -> Listed:
        """The chunks of an extent, from one row."""
        assert isinstance(self.chunks, Listed)
        return self.chunks

    def adopt(self, writer: RrdWriter, store: StoreEntry) -> None:
        """Take the messages as part of the file that is written: they lie where it goes on."""
        assert self.size is not None
        chunks = self.chunks.placed(store, writer.position) if isinstance(self.chunks, Listed) else self.chunks
        writer.adopt(store, chunks, self.size)

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
                "messages are not where they were when the run began",
                path=self.chunks.path,
                hint="Another program is writing to the file; run again when it has finished.",
            )
        out.wrote(self.size)
        writer.adopt(store, chunks, 0)

    def moved(self, file: str, start: int, size: int) -> Extent:
        """The same messages, copied to another place."""
        chunks, by = self.chunks, start - self.start
        if not isinstance(chunks, Listed):
            chunks = [replace(entry, offset=entry.offset + by) for entry in chunks]
        return Extent(self.task, file, start, size, chunks)


@dataclass(frozen=True, slots=True)
class Regions:
    """A file in the staging folder on ``host``, and where in it each task begins to write.

    Only tasks on that host use it: file systems differ in the result when two machines write a file.
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

    With ``at_source``, they leave them in place, and the committing process copies them: once instead of twice.
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
        """Copy the output of task ``index`` and return its new location, or None if it must be rewritten.

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
            run = work.whole_run(note.task)
            assert run is not None
            yield Extent(note.task, place["file"], place["start"], place["size"], run, place.get("at_source", False))


def all_extents(chunks: Sequence[PartChunk], listed: Sequence[Extent]) -> list[Extent]:
    """Return the listed extents and those of chunks with rows, in the order of the tasks."""
    parts = groupby(chunks, key=lambda c: (c.task, c.part))
    extents = [*listed, *(Extent(task, part, 0, None, [c.entry for c in some]) for (task, part), some in parts)]
    return sorted(extents, key=lambda extent: extent.task)


_PERIOD: Final = 0.01
_PATIENCE: Final = 20
"""How many times as long as a look at the folder took the next one waits."""


class Follower:
    """Copies what tasks gave to the end of a file as they are done, in their order, in a thread of its own.

    Guarantee: :meth:`stop` gives the tasks from the first on whose messages were copied whole; those of others are
    untouched. Which part of a task counts is not decided here: one that was tried twice may have left two.

    Parameters
    ----------
    folder
        Where parts appear, and beside each a file that says that its task is done.
    file
        The file; what lies in it before ``start`` stays.
    tasks
        For each task, all that it gives, if that is left where it lies, and the store of its chunks.
    """

    def __init__(
        self, folder: Path, file: Path, start: int, tasks: Sequence[tuple[FileRun | None, StoreEntry]]
    ) -> None:
        self._folder = folder
        self._file = file
        self._end = start
        self._tasks = tasks
        self._copied: list[tuple[str, int, int]] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chunkmill-commit", daemon=True)
        self._thread.start()

    def stop(self) -> list[tuple[str, int, int]]:
        """Finish what is being copied and take nothing else.

        Returns the name of each copied part, one for each task, with its new start and its size.
        """
        self._stopped.set()
        self._thread.join()
        return self._copied

    def _run(self) -> None:
        wait = _PERIOD
        # A failing step is repeated when all parts are there, and then fails with a name.
        with contextlib.suppress(OSError, ReadError, WriteError), self._file.open("r+b", buffering=0) as file:
            file.seek(self._end)
            while len(self._copied) < len(self._tasks) and not self._stopped.wait(wait):
                began = time.perf_counter()
                done = self._done()
                wait = max(_PERIOD, _PATIENCE * (time.perf_counter() - began))
                while not self._stopped.is_set() and (name := done.get(len(self._copied))) is not None:
                    size = self._copy(name + PART_SUFFIX, file)
                    if size is None:
                        return
                    self._copied.append((name + PART_SUFFIX, self._end, size))
                    self._end += size

    def _done(self) -> dict[int, str]:
        """Return the base name of each finished task's files, by the task's number."""
        names = (path.name.removesuffix(DONE_SUFFIX) for path in self._folder.glob(f"*{DONE_SUFFIX}"))
        return {int(name.partition("-")[0]): name for name in names}

    def _copy(self, name: str, file: BinaryIO) -> int | None:
        """Copy the next part and return its size, or None if it is gone."""
        run, store = self._tasks[len(self._copied)]
        path = self._folder / name
        if run is not None and not path.exists():
            is_there = run.copy(file.fileno(), self._end, store, destination=str(self._file))
            return run.size_in(store) if is_there else None
        with PositionalFile(str(path)) as part:
            copy_range(part, 0, part.size, file.fileno())
            start_writing_back(file.fileno(), self._end, part.size)
            size = part.size
        path.unlink()
        return size


_COMMIT_NAME: Final = "commit.rrd"
_BEGUN_NAME: Final = "begun.rrd"
_BEGUN_FILE: Final = _BEGUN_NAME + OPEN_SUFFIX


class RrdCommit:
    """The commit of a run into one RRD: the file that will appear at ``destination``.

    Guarantee: until the last step (a rename; in an object store the end of the upload) the destination is untouched;
    after it the file is whole and on disk.
    """

    def __init__(self, staging: Staging, destination: Location, stores: Sequence[StoreEntry]) -> None:
        self._staging = staging
        self._destination = destination
        self._stores = stores
        self._begun: _Target | None = None
        self._follower: Follower | None = None

    def reserve(self, sizes: Sequence[int]) -> Regions:
        """Begin a local file now, with a region for each task, of these sizes."""
        return Regions.of(_BEGUN_FILE, self._begin_now(), sizes)

    def follow(self, runs: Sequence[tuple[FileRun | None, StoreEntry]]) -> None:
        """Begin a local file now, and copy into it what tasks give while others run.

        For each task, all that it gives, if that stays where it lies, and the store of its chunks.
        """
        folder = self._staging.local
        self._follower = Follower(folder, folder / _BEGUN_FILE, self._begin_now(), runs)

    def finish(self, stores: Sequence[StoreEntry], extents: Sequence[Extent]) -> int:
        """Bring extents together, in their order; the file then appears. Gives its size in bytes.

        ``stores`` are those of the tasks. Extents in the file that was begun are adopted, and others copied behind
        them, by the kernel or inside the store. If that is not in order (a task was tried twice, and another part than
        the copied one counts), all are copied into another file. The footer is made from what is known of their chunks.
        """
        if self._follower is not None:
            copied = {part: (start, size) for part, start, size in self._follower.stop()}
            extents = [e.moved(_BEGUN_FILE, *copied[e.file]) if e.file in copied else e for e in extents]
        with writing(str(self._destination)):
            begun, adopted = self._begun, 0
            if begun is not None and (prefix := _lie_first(extents, _BEGUN_FILE, begun.writer.position)) is not None:
                adopted, end = prefix
                os.truncate(begun.file.file.fileno(), end)
            else:
                begun = None
            target = begun or self._begin(_COMMIT_NAME)
            writer, folder = target.writer, self._staging.folder
            try:
                for extent in extents[:adopted]:
                    extent.adopt(writer, stores[extent.task])
                for extent in extents[adopted:]:
                    extent.append(writer, stores[extent.task], folder, str(self._destination))
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
        if self._follower is not None:
            self._follower.stop()
        if self._begun is not None:
            self._begun.file.discard()

    def _begin_now(self) -> int:
        """Begin a local file before the tasks do; gives where it goes on."""
        with writing(str(self._destination)):
            self._begun = self._begin(_BEGUN_NAME)
        self._begun.writer.flush()
        return self._begun.writer.position

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


def _lie_first(extents: Sequence[Extent], file: str, end: int) -> tuple[int, int] | None:
    """Count those that lie in ``file`` one behind the other from ``end`` on; gives the end of the last, too.

    None if others are in it too, further on.
    """
    count = 0
    while count < len(extents) and (extents[count].file, extents[count].start) == (file, end):
        end += extents[count].size or 0
        count += 1
    return None if any(extent.file == file for extent in extents[count:]) else (count, end)
