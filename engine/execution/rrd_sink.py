"""One RRD as a sink: where it may be written, what a task writes of its pieces, and the rows that describe that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from ..errors import WriteError, writing
from ..faults import reach
from ..folders import NewFile
from ..locations import Location
from ..objects import ObjectUrl
from ..reports import RunReport
from ..rrd import ChunkEntry, ChunkTable, FileRun, MessageWriter, RrdWriter, Run, RunRows, StoreEntry, WrittenChunks
from ..task_context import ENCODE, WRITE, Clock, current, phase
from .commit import RrdCommit, RunPlaces, all_extents
from .reporting import Ran
from .sink import Part, Parts, Sink, write_to
from .small_chunks import SMALL_RESULT, SmallChunkWriter
from .stage import RunOptions, TaskRun
from .staging import PART_SUFFIX, Staging
from .work import JoinedWork, Piece, Work


class RrdSink(Sink):
    """One RRD of some stores; each has the chunks of its work.

    Guarantee: it appears whole or not at all.
    """

    def __init__(self, destination: Location, outputs: Sequence[tuple[StoreEntry, Work]]) -> None:
        self.destination = destination
        self._outputs = outputs
        self._stores = tuple(store for store, work in outputs for _ in work.tasks)
        self._commit: RrdCommit | None = None

    def begin(self, work: Work, staging: Staging) -> RrdParts:
        """Begin the file, where parts can be brought into it while tasks run."""
        self._commit = RrdCommit(staging, self.destination, [store for store, _ in self._outputs])
        whole = whole_name(self.destination, self._outputs)
        runs = RunPlaces() if whole and work.whole_run(0) is None else self._places(work, self._commit)
        return RrdParts(self._stores, str(self.destination), runs=runs, whole=(whole,) if whole else ())

    def commit(self, ran: Ran, staging: Staging) -> int:  # noqa: ARG002 (it was begun there)
        """Name the one part that is a whole RRD, or bring parts together."""
        assert self._commit is not None
        return commit_ran(self._commit, ran, self._stores)

    def abort(self) -> None:
        """Throw away what was begun."""
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
    """Run works and commit their chunks as one RRD with a store for each; see :func:`write_to`."""
    work: Work = outputs[0][1] if len(outputs) == 1 else JoinedWork([w for _, w in outputs])
    check_destination(destination, work)
    return write_to(RrdSink(destination, outputs), work, options)


def commit_ran(commit: RrdCommit, ran: Ran, stores: Sequence[StoreEntry]) -> int:
    """Let what tasks wrote appear as one RRD, ``stores`` being those of the tasks; gives its size in bytes."""
    whole = ran.whole()
    if whole is None:
        return commit.finish(stores, all_extents(ran.chunks, ran.listed))
    name, size = whole
    commit.take(name)
    return size


def whole_name(destination: Location, outputs: Sequence[tuple[StoreEntry, Work]]) -> str:
    """The name of a file that one task may write whole, as nothing else comes into it; empty where there is none."""
    alone = len(outputs) == 1 and len(outputs[0][1].tasks) == 1
    return str(destination) if alone and not isinstance(destination, ObjectUrl) else ""


def check_destination(destination: Location, work: Work, *, parents: bool = True) -> None:
    """Whether an RRD can be written there: ``parents``, its folder must be there already. Raises ``WriteError``."""
    if isinstance(destination, ObjectUrl):
        if str(destination) in work.source_paths():
            raise _is_source(destination)
        return
    if destination.is_dir():
        raise WriteError("is a folder", path=str(destination), hint="Give the name of a file in it.")
    if parents and not destination.parent.is_dir():
        raise WriteError(
            "cannot be written: No such file or directory (os error 2)",
            path=str(destination),
            hint=f"Create the folder {destination.parent} first.",
        )
    if destination.exists():
        for source in work.source_paths():
            if Path(source).exists() and destination.samefile(source):
                raise _is_source(destination)


def _is_source(destination: Location) -> WriteError:
    return WriteError(
        "is a source of the same pipeline",
        path=str(destination),
        hint="Write to another file; the source would be lost while it is read.",
    )


_MOST_LISTED: Final = 1 << 16
_MOST_QUICK: Final = 1 << 15
"""Messages up to which threads pass them on as fast as processes: each takes some microseconds of Python."""


@dataclass(frozen=True, slots=True)
class RrdParts(Parts):
    """Parts of RRDs: messages that a commit brings together with others, or whole files.

    ``stores`` has one entry for each task of the work. With ``digests`` every chunk is given one, though it be read
    for it, and a row of its own. With ``times``, too, each part ends with the times of its chunks.
    With ``runs``, tasks that give nothing but untouched messages copy them as a whole, and one row tells of all chunks
    of a task.
    With ``small``, chunks that are hardly more than a header go into the part many in one batch, not as messages.
    ``whole``, one for each task, names the file that is to be the part of a task alone, which is a whole RRD then.
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
        """Whether untouched messages may be copied as a whole."""
        return self.runs is not None

    def open(self, task: TaskRun) -> Part:
        """Begin the part of a task."""
        with writing(self.destination):
            new = task.folder.new(task.name + PART_SUFFIX)
        try:
            return _RrdPart(self, task, new)
        except BaseException:
            new.discard()
            raise

    def adopt(self, task: TaskRun, run: Run) -> dict[str, Any] | None:
        """Bring the messages to their place."""
        if self.runs is None:
            return None
        store = self.stores[task.index]
        place = self.runs.bring(task.index, run, store, task.folder, task.name + PART_SUFFIX, self.destination)
        if place is None:
            return None
        current().own(Clock).sizes_in = run.table.sizes.tolist()
        return {"chunks": run.chunks, "rows": run.rows, "bytes": place["size"], "extent": place}

    def quick_tasks(self, work: Work) -> Sequence[int]:
        """The tasks whose messages stay at their source, or are copied into their region by the kernel.

        A worker that is asked for it takes 10 to 20 ms, and the first of them 0.1 to 0.2 s, as long as to copy 400 MB
        (``benchmarks/bench_rrd.py``).
        """
        if self.runs is None or not self.runs.is_quick:
            return ()
        runs = {i: run for i in range(len(self.stores)) if (run := work.whole_run(i)) is not None}
        return () if sum(run.chunks for run in runs.values()) > _MOST_QUICK else list(runs)


class _RrdPart(Part):
    """One that is ``whole`` has a header and a footer: to commit it is to name it. Others have messages only."""

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
        told: dict[str, Any] = {"chunks": written.chunks, "rows": written.rows, "bytes": writer.position}
        if self._rrd is not None:
            told["whole"] = {"part": self._name, "size": self._rrd.position}
        return told

    def rows(self) -> Iterator[pa.RecordBatch]:
        if self._listing is not None:
            self._rows.listing(self._listing, self._name)
        return self._rows_of(self._entries)

    def discard(self) -> None:
        self._new.discard()

    def _describe(self, written: WrittenChunks) -> Iterator[pa.RecordBatch]:
        """Tell of chunks before the part is whole, so that they need not be kept."""
        entries = written.take_entries()
        self._note(entries)
        yield from self._rows_of(entries)

    def _rows_of(self, entries: Sequence[ChunkEntry]) -> Iterator[pa.RecordBatch]:
        for entry in entries:
            yield from self._rows.add(entry, self._name)

    def _note(self, chunks: ChunkTable | Sequence[ChunkEntry]) -> None:
        """Let the footer, if there will be one, tell of the chunks that were written since this was called last."""
        if self._rrd is not None:
            self._rrd.adopt(self._store, chunks, 0)

    def _write_small(self) -> None:
        """Write small chunks beside messages, and say where they lie."""
        if self._small is not None:
            for batch in self._small.write(self._writer.out):
                self._rows.small(batch, self._name)
