"""One task, from its split to a part file and the rows that describe it. The same function under every executor."""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ..chunk.tuid import minting
from ..errors import ReadError
from ..failing import writing
from ..faults import reach
from ..phases import ENCODE, WRITE, Clock, measuring, phase
from ..reports import SizeHistogram
from ..rrd import ChunkEntry, MessageWriter, PassedRun, StoreEntry, WrittenChunks, keeping_open
from ..spark import tries_before
from .chunk_rows import RowWriter
from .failures import failure_to_dict, is_transient
from .folders import OPEN_SUFFIX, Folder, NewFile
from .part_file import PartFile
from .passing import Passing, passage_of, pieces_of, task_counts
from .quarantine import Row, quarantining, rows_as_bytes
from .small_chunks import SMALL_RESULT, SmallChunkWriter
from .staging import Staging
from .work import Work

PART_SUFFIX = ".part"
DONE_SUFFIX = ".done"
QUARANTINE_SUFFIX = ".quarantine"
_MOST_LISTED = 1 << 16
_MOST_HERE = 1 << 15
"""Messages up to which threads pass them on as fast as processes: each takes some microseconds of Python."""


@dataclass(frozen=True, slots=True)
class PartJob:
    """What a task needs beside its number: the work, the store its chunks belong to, and where parts go.

    ``stores`` has one entry for each task of the work. With ``digests`` every chunk is given
    one, though it be read for it, and a row of its own.
    With ``passing``, tasks that only pass messages on copy them as a whole, and where a footer can say all there is to
    say of the chunks of a task, one row does it for all of them.
    ``groups``, one for each task, says which tasks need each other: when one fails, the others of its group need not
    begin. Without, all do.
    ``tries`` is how often the executor tries a task, 0 where that is not known: the last try gives a failure as a row,
    whatever it is.
    With ``small``, chunks that are hardly more than a header go into the part many in one batch, not as messages.
    ``whole``, one for each task, names the file that is to be the part of a task alone, which is a whole RRD then.
    """

    work: Work
    stores: tuple[StoreEntry, ...]
    folder: str
    destination: str
    digests: bool = False
    passing: Passing | None = None
    groups: tuple[int, ...] = ()
    whole: tuple[str, ...] = ()
    tries: int = 0
    small: bool = False

    def run(self, index: int) -> Iterator[pa.RecordBatch]:
        """Run task ``index``: write its part, give its chunk rows, close with a row of kind ``task``.

        A failure that would come again gives a row of kind ``failure``; one that may pass is raised, so that the
        executor tries the task once more. An unfinished part is removed either way.
        """
        staging = Staging(Folder.at(self.folder))
        if staging.has_failed(self._group(index)):
            return
        name = _name(index)
        rows = RowWriter(index)
        try:
            if self._pass(index, staging.folder, name, rows):
                yield rows.batch()
                return
        except Exception as error:
            if may_pass(error, self.tries):
                raise
            yield self._failure(index, staging, error)
            return
        with writing(self.destination):
            part = staging.folder.new(name + PART_SUFFIX)
        try:
            yield from minting(self.work.minter(index), self._write(index, staging.folder, name, part, rows))
            yield rows.batch()
        except GeneratorExit:
            raise
        except BaseException as error:
            part.discard()
            if may_pass(error, self.tries) or not isinstance(error, (Exception, SystemExit)):
                raise
            yield self._failure(index, staging, error)

    def pass_here(self, threads: int) -> dict[int, pa.RecordBatch]:
        """The rows of tasks that only pass messages on, done by so many ``threads`` of this process; others are left.

        Only where the messages stay at their source, or the kernel copies them into their region: a worker that is
        asked for it takes 10 to 20 ms, and the first of them 0.1 to 0.2 s, as long as to copy 400 MB
        (``benchmarks/bench_rrd.py``). One that fails is left, to fail again, and be reported, as any other.
        """
        if self.passing is None or not self.passing.is_done_by_driver:
            return {}
        passages = {i: p for i in range(len(self.stores)) if (p := passage_of(self.work, i)) is not None}
        if not passages or sum(p.chunks for p in passages.values()) > _MOST_HERE:
            return {}
        with ThreadPoolExecutor(threads, "chunkmill-passing") as pool:
            found = zip(passages, pool.map(self._passed_here, passages), strict=True)
            return {index: rows for index, rows in found if rows is not None}

    def _passed_here(self, index: int) -> pa.RecordBatch | None:
        rows = RowWriter(index)
        try:
            return rows.batch() if self._pass(index, Folder.at(self.folder), _name(index), rows) else None
        except Exception:  # noqa: BLE001 - it is reported, or tried again, by who runs the task then
            return None

    def begun(self) -> set[int]:
        """The tasks that began to write their part and did not end, where that can be seen."""
        try:
            return {int(name[:6]) for name in Folder.at(self.folder).names() if name.endswith(OPEN_SUFFIX)}
        except (OSError, ValueError, ReadError):
            return set()

    def _group(self, index: int) -> int:
        return self.groups[index] if self.groups else 0

    def _failure(self, index: int, staging: Staging, error: BaseException) -> pa.RecordBatch:
        staging.mark_failed(self._group(index))
        failure = RowWriter(index)
        failure.note("failure", failure_to_dict(error, self.work.tasks[index].label))
        return failure.batch()

    def _pass(self, index: int, folder: Folder, name: str, rows: RowWriter) -> bool:
        """Pass on what the task passes on, if that is all it does and it can be done without looking at chunks."""
        passage = None if self.passing is None else passage_of(self.work, index)
        if self.passing is None or passage is None:
            return False
        began, started = time.time(), time.perf_counter()
        store = self.stores[index]
        with measuring() as clock:
            place = self.passing.run(index, passage, store, folder, name + PART_SUFFIX, self.destination)
        if place is None:
            return False
        clock.sizes_in = passage.table.sizes.tolist()
        self._close(rows, folder, name, task_counts(passage, store), clock, began, started, passed_to=place)
        return True

    def _write(self, index: int, folder: Folder, name: str, new: NewFile, rows: RowWriter) -> Iterator[pa.RecordBatch]:
        began, started = time.time(), time.perf_counter()
        part = name + PART_SUFFIX
        quarantined: list[Row] = []
        with (
            keeping_open(),
            warnings.catch_warnings(record=True) as caught,
            measuring() as clock,
        ):
            warnings.simplefilter("always")
            whole = self.whole[index] if self.whole else ""
            file = PartFile(new, self.stores[index], whole or self.destination, whole=bool(whole), digests=self.digests)
            writer = file.writer
            written = WrittenChunks(self.stores[index])
            in_runs = self.passing is not None and writer.takes_runs and not self.digests
            small = SmallChunkWriter(SMALL_RESULT if self.small else 0)
            told = 0
            pieces = pieces_of(self.work, index) if in_runs else self.work.run(index)
            for piece in quarantining(pieces, quarantined):
                if isinstance(piece, PassedRun):
                    clock.sizes_in += piece.sizes.tolist()
                    written.add_run(piece, writer.append_run(piece))
                    continue
                with phase(ENCODE):
                    if small.takes(piece, written.chunks):
                        written.count(piece.num_rows)
                        rows.skip()
                        if small.is_full:
                            _write_small(small, writer, rows, part)
                        continue
                    written.add(writer.append(piece))
                if not self.digests and len(written.entries) >= (_MOST_LISTED if self.passing else 1):
                    told = written.chunks
                    entries = written.take()
                    file.describe(entries)
                    yield from _rows_of(entries, rows, part)
            listing = None if self.digests or told else written.listing()
            entries = written.take() if listing is None else []
            file.describe(entries if listing is None else listing)
            _write_small(small, writer, rows, part)
            with phase(WRITE):
                size = file.finish()
                with writing(self.destination):
                    reach("part.write", getattr(new.file, "name", None))
                    new.finish()
                    reach("part.rename")
        counts = {"chunks": written.chunks, "rows": written.rows, "bytes": writer.position}
        if listing is not None:
            rows.listing(listing.table, part)
        else:
            yield from _rows_of(entries, rows, part)
        if quarantined:
            with writing(self.destination):
                folder.put(name + QUARANTINE_SUFFIX, rows_as_bytes(quarantined))
            rows.note("quarantine", {"file": name + QUARANTINE_SUFFIX})
        for warning in caught:
            rows.note("warning", {"category": warning.category.__name__, "text": str(warning.message)})
        more = {} if size is None else {"whole": {"part": part, "size": size}}
        self._close(rows, folder, name, counts, clock, began, started, **more)

    def _close(
        self,
        rows: RowWriter,
        folder: Folder,
        name: str,
        counts: dict[str, int],
        clock: Clock,
        began: float,
        started: float,
        **more: Any,
    ) -> None:
        """Say that the task is done: to who watches the folder, and to the driver."""
        with writing(self.destination):
            folder.put(name + DONE_SUFFIX, json.dumps({"task": rows.task, **counts}).encode(), durable=False)
        seconds = time.perf_counter() - started
        rows.note("task", {**counts, "seconds": seconds, "began": began, **_measured(clock), **more})


def _name(index: int) -> str:
    """What the files of a task are named, another each time it is tried."""
    return f"{index:06d}-{secrets.token_hex(4)}"


def may_pass(error: BaseException, tries: int) -> bool:
    """Whether a task that raised this is worth another try, and gets one of ``tries`` (0: nobody knows)."""
    return is_transient(error) and not (tries and tries_before() + 1 >= tries)


def _rows_of(entries: Sequence[ChunkEntry], rows: RowWriter, part: str) -> Iterator[pa.RecordBatch]:
    """Add a row for each chunk."""
    for entry in entries:
        yield from rows.add(entry, part)


def _write_small(small: SmallChunkWriter, writer: MessageWriter, rows: RowWriter, part: str) -> None:
    """Write small chunks beside messages, and say where they lie."""
    for batch in small.write(writer.out):
        rows.small(batch, part)


def _measured(clock: Clock) -> dict[str, Any]:
    """What a task tells of itself for the report of the run."""
    return {
        "phases": clock.seconds,
        "passed": clock.passed_bytes,
        "sizes_in": SizeHistogram.of(clock.sizes_in).counts,
        "worker": f"{socket.gethostname()}:{os.getpid()}",
    }
