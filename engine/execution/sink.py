"""Sinks write and commit the chunks of a pipeline: to one RRD, or a folder of shards.

1. On the driver, before any task runs, :meth:`Sink.begin` returns a picklable :class:`Parts`, which opens parts.
2. In each task, :meth:`Parts.open` begins a part in the staging folder.
3. The part gets each chunk of the task, in order, and is closed; its record then goes to the driver.
4. The part of a failed task is discarded. A retry of the task has another part.
5. On the driver, :meth:`Sink.commit` joins the parts that count, in the order of the tasks, and publishes the result.
   After any failure, :meth:`Sink.abort` is called instead. The staging folder is removed in both cases.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from ..chunk import Chunk, minting
from ..errors import UsageError, WriteError, writing
from ..faults import reach
from ..locations import Location
from ..reports import RunReport
from ..rrd import (
    MESSAGE_HEADER_SIZE,
    ChunkEntry,
    ChunkTable,
    FileRun,
    MessageWriter,
    RrdWriter,
    Run,
    RunRows,
    StoreEntry,
    WrittenChunks,
)
from ..storage import ObjectUrl
from ..storage.folder import Folder, NewFile, sync_folder
from ..task_context import ENCODE, WRITE, Clock, TaskContext, current, phase
from .commit import PART_SUFFIX, Extent, RrdCommit, RunPlaces, Staging, all_extents, listed_extents
from .reporting import ProgressListener, Ran, told
from .small_chunks import SMALL_RESULT, SmallChunkWriter
from .stage import Body, Quarantined, RunOptions, Stage, TaskRun, append_rows, check, executor_name
from .work import JoinedWork, PartChunk, Piece, Work


class Part(ABC):
    """The output file of one try of a task."""

    takes_runs = False
    """Whether :meth:`write` also accepts runs of unchanged messages."""

    @abstractmethod
    def write(self, piece: Piece) -> Iterable[pa.RecordBatch] | None:
        """Write the next chunk. Return the rows to send to the driver now, or None."""

    @abstractmethod
    def close(self) -> dict[str, Any]:
        """Complete and name the part; return its record as JSON data.

        ``chunks``, ``rows`` and ``bytes`` are counts; ``part`` is the name of the file.
        """

    def rows(self) -> Iterable[pa.RecordBatch]:
        """Return rows for the driver, after :meth:`close`."""
        return ()

    @abstractmethod
    def discard(self) -> None:
        """Remove the unfinished part."""


class Parts(ABC):
    """Opens the parts of tasks. Can be pickled."""

    @property
    def adopts(self) -> bool:
        """Whether to try :meth:`adopt`."""
        return False

    @abstractmethod
    def open(self, task: TaskRun) -> Part:
        """Open a part: files in ``task.folder`` with names that begin with ``task.name``."""

    def adopt(self, task: TaskRun, run: Run) -> dict[str, Any] | None:  # noqa: ARG002
        """Copy a task's unread output ``run`` without making chunk objects; return None if this is impossible."""
        return None

    def quick_tasks(self, work: Work) -> Sequence[int]:  # noqa: ARG002
        """The tasks whose chunks no operator reads, so that the driver runs them as fast as a worker."""
        return ()


class Sink(ABC):
    """The end of a pipeline. Guarantee: until :meth:`commit` returns, ``destination`` is unchanged."""

    destination: Location

    @abstractmethod
    def begin(self, work: Work, staging: Staging) -> Parts:
        """Prepare a run of ``work`` with its parts in ``staging``."""

    @abstractmethod
    def commit(self, ran: Ran, staging: Staging) -> int:
        """Publish the result, and return its size in bytes. ``ran`` has the records of the parts, in order."""

    def abort(self) -> None:  # noqa: B027 - most have nothing to do
        """Undo :meth:`begin` and an unfinished :meth:`commit`."""


@dataclass(frozen=True, slots=True)
class WriteBody(Body):
    """Tasks of ``work`` that each write a part."""

    work: Work
    parts: Parts

    def label(self, index: int) -> str:
        """The name of a task's input."""
        return self.work.tasks[index].label

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """Write the part of one task."""
        outcome = self.quick(task)
        if outcome is None:
            outcome = yield from minting(self.work.minter(task.index), self._write(task))
        return outcome

    def quick_tasks(self) -> Sequence[int]:
        """The tasks that the driver may run."""
        return self.parts.quick_tasks(self.work)

    def quick(self, task: TaskRun) -> dict[str, Any] | None:
        """Write a task's whole output without reading it, if its footer's data suffice."""
        run = self.work.whole_run(task.index) if self.parts.adopts else None
        return None if run is None else self.parts.adopt(task, run)

    def _write(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        part = self.parts.open(task)
        try:
            pieces = self.work.pieces(task.index) if part.takes_runs else self.work.run(task.index)
            for piece in pieces:
                batches = part.write(piece)
                if batches is not None:
                    yield from batches
            outcome = part.close()
            yield from part.rows()
            return outcome
        except BaseException:
            part.discard()
            raise


def write_to(sink: Sink, work: Work, options: RunOptions) -> RunReport:
    """Run ``work`` into ``sink``.

    Raises the error of a failed task. After an error or an interrupt, the destination is unchanged.
    """
    with Staging.beside(sink.destination) as staging:
        try:
            ran = run_work(work, sink.begin(work, staging), staging, options, str(sink.destination))
            committing = time.perf_counter()
            size = sink.commit(ran, staging)
        except BaseException:
            sink.abort()
            raise
    return finished_report(ran, sink.destination, size, time.perf_counter() - committing, options)


def run_work(work: Work, parts: Parts, staging: Staging, options: RunOptions, destination: str = "") -> Ran:
    """Run all tasks of a work into parts; raise failures, show warnings, and check that all tasks reported."""
    ran = run_tasks(work, parts, staging, options, destination)
    check(ran, staging)
    return ran


def run_tasks(
    work: Work,
    parts: Parts,
    staging: Staging,
    options: RunOptions,
    destination: str = "",
    groups: tuple[int, ...] = (),
) -> Ran:
    """Run all tasks of a work into parts, and return their results, failures included."""
    ran = Stage(WriteBody(work, parts), work.tasks, staging, groups, destination).run(options)
    return replace(ran, listed=listed_extents(work, ran.notes))


def inline_chunks(work: Work, listener: ProgressListener | None = None) -> Iterator[Chunk]:
    """Yield the chunks of all tasks, without parts. Quarantined chunks are written to their table at the end."""
    quarantined = Quarantined()
    tasks = (minting(work.minter(task.index), work.run(task.index)) for task in work.tasks)
    yield from TaskContext(quarantined).run(chain.from_iterable(told(work.tasks, tasks, listener)))
    append_rows(quarantined)


def finished_report(
    ran: Ran, destination: Location, size: int, commit_seconds: float, options: RunOptions
) -> RunReport:
    """Return the report of a committed run, after passing it to the listener."""
    result = ran.report(
        options.start,
        executor=executor_name(options.executor),
        destination=str(destination),
        bytes_out=size,
        commit_seconds=commit_seconds,
    )
    if options.progress is not None:
        options.progress.finished(result)
    return result


class RrdSink(Sink):
    """Writes one RRD of some stores, each with the chunks of its work.

    Guarantee: the RRD appears completely or not at all.
    """

    def __init__(self, destination: Location, outputs: Sequence[tuple[StoreEntry, Work]]) -> None:
        self.destination = destination
        self._outputs = outputs
        self._stores = tuple(store for store, work in outputs for _ in work.tasks)
        self._commit: RrdCommit | None = None

    def begin(self, work: Work, staging: Staging) -> RrdParts:
        """Begin the file, if tasks or parts can be copied into it while tasks run."""
        self._commit = RrdCommit(staging, self.destination, [store for store, _ in self._outputs])
        whole = whole_name(self.destination, self._outputs)
        runs = RunPlaces() if whole and work.whole_run(0) is None else self._places(work, self._commit)
        return RrdParts(self._stores, str(self.destination), runs=runs, whole=(whole,) if whole else ())

    def commit(self, ran: Ran, staging: Staging) -> int:  # noqa: ARG002 (it was begun there)
        """Rename the only part if it is a complete RRD, or join parts."""
        assert self._commit is not None
        return commit_ran(self._commit, ran, self._stores)

    def abort(self) -> None:
        """Discard the unfinished file."""
        if self._commit is not None:
            self._commit.close()

    def _places(self, work: Work, commit: RrdCommit) -> RunPlaces:
        if isinstance(self.destination, ObjectUrl):
            return RunPlaces()
        runs = [(work.whole_run(i), store) for i, store in enumerate(self._stores)]
        sizes = [run.size_in(store) for run, store in runs if run is not None]
        if sizes and len(sizes) == len(self._stores):
            return RunPlaces(commit.reserve(sizes))
        commit.follow([(run if isinstance(run, FileRun) else None, store) for run, store in runs])
        return RunPlaces(at_source=True)


def write_rrd(destination: Location, outputs: Sequence[tuple[StoreEntry, Work]], options: RunOptions) -> RunReport:
    """Run works, and commit their chunks as one RRD with one store per work; see :func:`write_to`."""
    work: Work = outputs[0][1] if len(outputs) == 1 else JoinedWork([w for _, w in outputs])
    check_destination(destination, work)
    return write_to(RrdSink(destination, outputs), work, options)


def commit_ran(commit: RrdCommit, ran: Ran, stores: Sequence[StoreEntry]) -> int:
    """Publish the tasks' output as one RRD, and return its size in bytes; ``stores`` are the tasks' stores."""
    whole = ran.whole()
    if whole is None:
        return commit.finish(stores, all_extents(ran.chunks, ran.listed))
    name, size = whole
    commit.take(name)
    return size


def whole_name(destination: Location, outputs: Sequence[tuple[StoreEntry, Work]]) -> str:
    """Return the file name if one task can write the whole file, else ""."""
    alone = len(outputs) == 1 and len(outputs[0][1].tasks) == 1
    return str(destination) if alone and not isinstance(destination, ObjectUrl) else ""


def check_destination(destination: Location, work: Work, *, parents: bool = True) -> None:
    """Check that an RRD can be written there; with ``parents`` its folder must exist. Raises ``WriteError``."""
    check_target(destination, work.source_paths, parents=parents)


def check_target(destination: Location, source_paths: Callable[[], Iterable[str]], *, parents: bool = True) -> None:
    """Check that the destination can be written and is not a source; see :func:`check_destination`."""
    if isinstance(destination, ObjectUrl):
        if str(destination) in set(source_paths()):
            raise _is_source(destination)
        return
    if destination.is_dir():
        raise WriteError("is a folder", path=str(destination), hint="Give the name of a file in this folder.")
    if parents and not destination.parent.is_dir():
        raise WriteError(
            "cannot be written: No such file or directory (os error 2)",
            path=str(destination),
            hint=f"Create the folder {destination.parent} first.",
        )
    if destination.exists():
        for source in source_paths():
            if Path(source).exists() and destination.samefile(source):
                raise _is_source(destination)


def _is_source(destination: Location) -> WriteError:
    return WriteError(
        "is a source of the same pipeline",
        path=str(destination),
        hint="Write to another file, as this one is read during the run.",
    )


_MOST_LISTED: Final = 1 << 16
_MOST_QUICK: Final = 1 << 15
"""Up to this many messages, threads are as fast as processes: each takes a few microseconds of Python."""


@dataclass(frozen=True, slots=True)
class RrdParts(Parts):
    """Opens parts of RRDs: messages that a commit joins, or whole files.

    ``stores`` has one entry for each task of the work. With ``digests``, every chunk has its own digest and row, even
    if it must be read for that. With ``times``, each part also ends with the times of its chunks. With ``runs``, tasks
    that only pass on unread messages copy them together, and one row describes all chunks of a task. With ``small``,
    tiny chunks are written in batches instead of as messages. ``whole`` has, for each task, the file name of its only
    part, if that is a whole RRD.
    """

    stores: tuple[StoreEntry, ...]
    destination: str
    digests: bool = False
    runs: RunPlaces | None = None
    whole: tuple[str, ...] = ()
    small: bool = False
    times: bool = False

    @property
    def adopts(self) -> bool:
        """Whether unchanged messages may be copied together."""
        return self.runs is not None

    def open(self, task: TaskRun) -> Part:
        """Open the part of a task."""
        with writing(self.destination):
            new = task.folder.new(task.name + PART_SUFFIX)
        try:
            return _RrdPart(self, task, new)
        except BaseException:
            new.discard()
            raise

    def adopt(self, task: TaskRun, run: Run) -> dict[str, Any] | None:
        """Copy the messages to their place."""
        if self.runs is None:
            return None
        store = self.stores[task.index]
        place = self.runs.bring(task.index, run, store, task.folder, task.name + PART_SUFFIX, self.destination)
        if place is None:
            return None
        current().own(Clock).sizes_in = run.table.sizes.tolist()
        return {"chunks": run.chunks, "rows": run.rows, "bytes": place["size"], "extent": place}

    def quick_tasks(self, work: Work) -> Sequence[int]:
        """The tasks whose messages stay in the source, or are copied to their region by the kernel.

        The driver runs these: a request to a worker takes 10 to 20 ms, and the first one as long as copying 400 MB
        (``benchmarks/bench_rrd.py``).
        """
        if self.runs is None or not self.runs.is_quick:
            return ()
        runs = {i: run for i in range(len(self.stores)) if (run := work.whole_run(i)) is not None}
        return () if sum(run.chunks for run in runs.values()) > _MOST_QUICK else list(runs)


class _RrdPart(Part):
    """A whole RRD with header and footer, which a rename commits, or only messages."""

    def __init__(self, parts: RrdParts, task: TaskRun, new: NewFile) -> None:
        self._parts = parts
        self._new = new
        self._rows = task.rows
        self._name = task.name + PART_SUFFIX
        self._store = store = parts.stores[task.index]
        whole = parts.whole[task.index] if parts.whole else ""
        path = whole or parts.destination
        self._rrd: RrdWriter | None = None
        if whole:
            self._rrd = RrdWriter(new.file, path=path)
            self._rrd.begin_store(store)
            self._writer = self._rrd.messages(store)
        else:
            self._writer = MessageWriter(new.file, store, path=path, digests=parts.digests, times=parts.times)
        self._written = WrittenChunks(store)
        self._small = SmallChunkWriter(SMALL_RESULT) if parts.small else None
        self._described = False
        self.takes_runs = parts.runs is not None and self._writer.takes_runs and not parts.digests

    def write(self, piece: Piece) -> Iterator[pa.RecordBatch] | None:
        written = self._written
        if isinstance(piece, RunRows):
            current().own(Clock).sizes_in += piece.sizes.tolist()
            written.add_run(piece, self._writer.append_run(piece))
            return None
        with phase(ENCODE):
            if self._small is not None and self._small.takes(piece, written.chunks):
                written.count(piece.num_rows)
                self._rows.skip()
                if self._small.is_full:
                    self._write_small()
                return None
            written.add(self._writer.append(piece))
        if not self._parts.digests and len(written.entries) >= (_MOST_LISTED if self._parts.runs else 1):
            self._described = True
            return self._describe(written)
        return None

    def close(self) -> dict[str, Any]:
        written, writer = self._written, self._writer
        self._listing: ChunkTable | None = None
        if self._parts.runs is not None and not self._parts.digests and not self._described and written.chunks:
            self._listing = written.take()
            self._note(self._listing)
        self._entries = written.take_entries()
        self._note(self._entries)
        self._write_small()
        with phase(WRITE):
            if self._rrd is None:
                writer.flush()
            else:
                self._rrd.finish()
            with writing(self._parts.destination):
                reach("part.write", getattr(self._new.file, "name", None))
                self._new.finish()
                reach("part.rename")
        outcome: dict[str, Any] = {"chunks": written.chunks, "rows": written.rows, "bytes": writer.position}
        if self._rrd is not None:
            outcome["whole"] = {"part": self._name, "size": self._rrd.position}
        return outcome

    def rows(self) -> Iterator[pa.RecordBatch]:
        if self._listing is not None:
            self._rows.listing(self._listing, self._name)
        return self._rows_of(self._entries)

    def discard(self) -> None:
        self._new.discard()

    def _describe(self, written: WrittenChunks) -> Iterator[pa.RecordBatch]:
        """Report chunks before the part is complete, so that their entries need not be kept."""
        entries = written.take_entries()
        self._note(entries)
        yield from self._rows_of(entries)

    def _rows_of(self, entries: Sequence[ChunkEntry]) -> Iterator[pa.RecordBatch]:
        for entry in entries:
            yield from self._rows.add(entry, self._name)

    def _note(self, chunks: ChunkTable | Sequence[ChunkEntry]) -> None:
        """Describe the chunks written since the last call in the footer, if there will be one."""
        if self._rrd is not None:
            self._rrd.adopt(self._store, chunks, 0)

    def _write_small(self) -> None:
        """Write small chunks between messages, and report their places."""
        if self._small is not None:
            for batch in self._small.write(self._writer.out):
                self._rows.small(batch, self._name)


SHARD_BYTES = 512 * 1024 * 1024
"""The default size limit of a shard, in bytes."""

_HEAD_BYTES = 4096
_FOOTER_BYTES_A_CHUNK = 256


class Shard:
    """A shard being written to ``folder``. The kernel copies chunks, which are not decoded.

    The caller finishes or discards its ``file``, and discards it after a failure.
    """

    def __init__(self, folder: Folder, name: str, staging: Staging, destination: str) -> None:
        self.name = name
        self.chunks = 0
        self.file = folder.new(name)
        self._parts = staging.folder
        self._writer = RrdWriter(self.file.file, path=destination)

    @property
    def size(self) -> int:
        """The bytes written so far."""
        return self._writer.position

    def append(self, store: StoreEntry, chunks: Sequence[PartChunk]) -> list[PartChunk]:
        """Copy chunks of a store, in the order of their parts; return their new places."""
        self._writer.begin_store(store)
        self.chunks += len(chunks)
        moved: list[PartChunk] = []
        for run in neighbours(chunks):
            place, entries = self._parts.place(run[0].part), [c.entry for c in run]
            entries = self._writer.append_part(store, place, entries, *_extent(run))
            moved += [replace(c, part=self.name, entry=entry) for c, entry in zip(run, entries, strict=True)]
        return moved

    def seal(self) -> None:
        """Write the footer, and sync or upload everything, without publishing the file."""
        self._writer.finish()
        name = getattr(self.file.file, "name", None)
        reach("shard.write", name if isinstance(name, str) else None)
        self.file.seal()


def neighbours(chunks: Sequence[PartChunk], most: float = math.inf) -> Iterator[list[PartChunk]]:
    """Group chunks that are adjacent in a part, up to ``most`` bytes; larger chunks are alone."""
    run: list[PartChunk] = []
    for chunk in chunks:
        if run:
            start, size = _extent(run)
            is_next = chunk.part == run[0].part and chunk.entry.offset - MESSAGE_HEADER_SIZE == start + size
            if not is_next or size + chunk.entry.size > most:
                yield run
                run = []
        run.append(chunk)
    if run:
        yield run


def extents_in_order(chunks: Sequence[PartChunk]) -> list[Extent]:
    """Return the extents of chunks, in order; they need not be adjacent in a part."""
    return [Extent(r[0].task, r[0].part, *_extent(r), [c.entry for c in r]) for r in neighbours(chunks)]


def _extent(run: Sequence[PartChunk]) -> tuple[int, int]:
    """The place of adjacent chunks in their part, and their size in bytes."""
    start = run[0].entry.offset - MESSAGE_HEADER_SIZE
    return start, run[-1].entry.offset + run[-1].entry.size - start


class ShardSink(Sink):
    """Writes a folder of RRDs of one store, of at most ``shard_bytes`` each, unless one chunk is larger.

    Guarantee: no shard appears before all are written and synced. On a file system all appear in one step. In an object
    store they appear one after the other, and are removed if that fails.
    """

    def __init__(self, destination: Location, store: StoreEntry, shard_bytes: int) -> None:
        if shard_bytes <= 0:
            raise UsageError(f"shard_bytes must be positive, not {shard_bytes}")
        self.destination = destination
        self._store = store
        self._shard_bytes = shard_bytes

    def begin(self, work: Work, staging: Staging) -> RrdParts:  # noqa: ARG002
        """Do nothing except return the parts."""
        return RrdParts((self._store,) * len(work.tasks), str(self.destination))

    def commit(self, ran: Ran, staging: Staging) -> int:
        """Divide the chunks among shards."""
        destination = self.destination
        folder = Folder.at(destination) if isinstance(destination, ObjectUrl) else staging.folder.sub("shards")
        shards: list[Shard] = []
        finished: list[str] = []
        with writing(str(destination)):
            folder.make()
            try:
                for chunks in _divided(ran.chunks, self._shard_bytes):
                    self._write(chunks, folder, staging, shards)
                for shard in shards:
                    shard.file.finish()
                    finished.append(shard.name)
            except BaseException:
                for shard in shards:
                    shard.file.discard()
                folder.delete(finished)
                raise
            if not isinstance(destination, ObjectUrl):
                sync_folder(staging.local / "shards")
                (staging.local / "shards").replace(destination)
                sync_folder(destination.parent)
        return sum(shard.size for shard in shards)

    def _write(self, chunks: Sequence[PartChunk], folder: Folder, staging: Staging, shards: list[Shard]) -> None:
        """Write chunks into the next shard, or into several if the footer is larger than estimated."""
        shard = Shard(folder, f"shard-{len(shards):05d}.rrd", staging, str(self.destination))
        shards.append(shard)
        shard.append(self._store, chunks)
        shard.seal()
        if shard.size > self._shard_bytes and len(chunks) > 1:
            shards.pop().file.discard()
            half = len(chunks) // 2
            self._write(chunks[:half], folder, staging, shards)
            self._write(chunks[half:], folder, staging, shards)


def _divided(chunks: Sequence[PartChunk], shard_bytes: int) -> Iterator[list[PartChunk]]:
    """The chunks of each shard, by an estimate of its footer's size."""
    some: list[PartChunk] = []
    size = _HEAD_BYTES
    for chunk in chunks:
        more = chunk.entry.size + _FOOTER_BYTES_A_CHUNK
        if some and size + more > shard_bytes:
            yield some
            some, size = [], _HEAD_BYTES
        some.append(chunk)
        size += more
    if some:
        yield some


def write_rrd_shards(
    destination: Location, store: StoreEntry, shard_bytes: int, work: Work, options: RunOptions
) -> RunReport:
    """Run ``work``, and commit its chunks as a folder of RRDs; see :class:`ShardSink`."""
    if isinstance(destination, ObjectUrl):
        is_taken = Folder.at(destination).exists()
    else:
        is_taken = destination.exists() and (not destination.is_dir() or any(destination.iterdir()))
    if is_taken:
        raise WriteError("already exists", path=str(destination), hint="Give a new or empty folder.")
    return write_to(ShardSink(destination, store, shard_bytes), work, options)
