"""The tasks of a backfill: read rows, call the function, keep checkpoints, and write column files.

A task with a whole fragment writes the fragment's column file as it computes. Several tasks compute a larger fragment
into checkpoints, and one more task joins these. If an earlier run has begun a fragment, its checkpoints are joined,
too.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa

from ..errors import PipelineError, SkipThresholdExceededError, WriteError, writing
from ..execution import Body, Packed, Staging, TaskRun, failure_to_dict
from ..faults import reach
from ..lance import OFFSET, LanceTable
from ..locations import located
from ..storage.folder import Folder
from .checkpoints import COMPUTED, CheckpointStore, Computed, Offsets, WrittenFile
from .computing import FLUSH_BYTES, Batching, BatchSize
from .planning import Piece
from .policies import RowFailure
from .targets import OTHER_FUNCTION, OTHER_INPUTS, FilledColumns, has_value, stale_condition

_WINDOW: Final = 2**16
"""The number of rows that are joined at once."""

Stored = Callable[[tuple[int, int]], Iterator[pa.RecordBatch]]
"""A function that yields the stored values of the rows of a span."""


def batches_of(
    pieces: Iterable[Computed], rows: int, schema: pa.Schema, stored: Stored | None
) -> Iterator[pa.RecordBatch]:
    """Yield all ``rows`` rows of a fragment: the pieces, in order, and between them the stored values.

    Without ``stored``, the rows between pieces are null.
    """
    at = 0
    for piece in (window for computed in pieces for window in _windows(computed)):
        first, end = int(piece.offsets[0]), int(piece.offsets[-1]) + 1
        yield from _between(at, first, schema, stored)
        if end - first == len(piece):
            yield piece.values
        else:
            yield _filled(piece, first, end, schema, stored)
        at = end
    yield from _between(at, rows, schema, stored)


def _windows(piece: Computed) -> Iterator[Computed]:
    """Yield a piece in parts. A part with gaps spans at most ``_WINDOW`` rows."""
    first, last = int(piece.offsets[0]), int(piece.offsets[-1])
    if last - first + 1 == len(piece) or last - first < _WINDOW:
        yield piece
        return
    numbers = piece.offsets // _WINDOW
    bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(piece)]
    for begin, end in zip(bounds, islice(bounds, 1, None), strict=False):
        yield Computed(piece.offsets[begin:end], piece.values.slice(begin, end - begin))


def _between(first: int, end: int, schema: pa.Schema, stored: Stored | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows from one offset to another, for which nothing was computed: stored values, or nulls."""
    if first >= end:
        return
    if stored is not None:
        yield from stored((first, end))
        return
    for begin in range(first, end, _WINDOW):
        yield _nulls(min(_WINDOW, end - begin), schema)


def _filled(piece: Computed, first: int, end: int, schema: pa.Schema, stored: Stored | None) -> pa.RecordBatch:
    """Return a piece with its gaps filled: with stored values, or nulls."""
    places = piece.offsets.astype(np.int64) - first
    if stored is None:
        indices = np.zeros(end - first, np.int64)
        indices[places] = np.arange(len(piece))
        missing = np.ones(end - first, np.bool_)
        missing[places] = False
        return piece.values.take(pa.array(indices, mask=missing))
    before = pa.Table.from_batches(stored((first, end)), schema)
    indices = np.arange(end - first)
    indices[places] = before.num_rows + np.arange(len(piece))
    both = pa.concat_tables([before, pa.Table.from_batches([piece.values], schema)])
    return both.take(pa.array(indices)).combine_chunks().to_batches()[0]


def _nulls(rows: int, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(rows, field.type) for field in schema], schema=schema)


ANNOUNCED: Final = "batch-"
_REPORT_SECONDS: Final = 1.0
"""Seconds between a task's reports of its computed rows."""
_CHECK_SECONDS: Final = 0.5
"""Seconds between a task's checks for another task's failure."""


@dataclass(frozen=True)
class BackfillBody(Body):
    """The stage that computes columns. ``job`` is part of the names of files with failures.

    ``is_careful``: each batch is announced before the function gets it, so that a batch that kills its worker is known.
    ``home`` is the place of the table with the checkpoints and errors; by default, of the table that is read.
    """

    table: LanceTable
    version: int
    target: FilledColumns
    batching: Batching
    tasks: Packed[tuple[Piece, ...]]
    job: str
    is_careful: bool = False
    home: str | None = None
    seconds: float | None = None
    """The time after which a task leaves its remaining rows to others; None: no limit."""

    @property
    def checkpoints(self) -> CheckpointStore:
        """The checkpoints for computed values."""
        return CheckpointStore(self.home or self.table.place)

    def label(self, index: int) -> str:
        """The fragments of a task."""
        pieces = self.tasks[index]
        first = pieces[0]
        rows = "" if first.is_whole else f", rows {first.span[0]:,} to {first.span[1]:,}"
        more = "" if len(pieces) == 1 else f", and {len(pieces) - 1} more"
        return f"{self.target.name!r} of fragment {first.fragment.id}{rows}{more}"

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """Compute the pieces of a task, and report the result of each."""
        staging = Staging(task.folder)
        amount = _Amount(task)
        rows = 0
        ends = None if self.seconds is None else time.monotonic() + self.seconds
        for number, piece in enumerate(self.tasks[task.index]):
            if number and ends is not None and time.monotonic() > ends:
                break
            work = _PieceRun(self, piece, staging, ends, amount)
            first, end = piece.span
            try:
                report = work.whole() if piece.is_whole else work.part()
            except _LeftRowsError as left:
                report, end = {"computed": 0}, left.offset
            except _CalledFunctionError as error:
                staging.mark_failed()
                errors = self.keep_errors(piece.fragment.id, error.failures)
                failure = failure_to_dict(error.error, self.label(task.index))
                task.rows.note("failed", {"failure": failure, "errors": errors})
                break
            except _EndedWorkerError:
                task.rows.note("ended", {})
                break
            if report is None:
                break
            rows += report["computed"]
            task.rows.note("piece", {"fragment": piece.fragment.id, "first": first, "end": end, **report})
        yield from ()
        return {"chunks": 0, "rows": rows, "bytes": 0}

    def keep_errors(self, fragment: int, failures: list[dict[str, Any]]) -> str:
        """Write the failures into a file, and return its name, or "" if there are none."""
        if not failures:
            return ""
        folder = Folder.at(located(self.home or self.table.place) / COMPUTED / "errors")
        about = {
            "job_id": self.job,
            "table_version": self.version,
            "column_name": self.target.name,
            **self.target.described,
            "input_columns": list(self.target.inputs),
            "output_columns": list(self.target.columns),
            "fragment_id": fragment,
        }
        name = f"{self.job}-{fragment}-{time.time_ns():x}.jsonl"
        lines = (json.dumps({"error_id": uuid4().hex, **about, **failure}) for failure in failures)
        with writing(str(folder.location)):
            folder.make()
            folder.put(name, "\n".join(lines).encode())
        reach("errors.write", folder.place(name))
        return name


class _CalledFunctionError(Exception):
    """The function failed, and no policy skips the batch, or that many rows."""

    def __init__(self, error: Exception, failures: list[dict[str, Any]]) -> None:
        super().__init__(str(error))
        self.error = error
        self.failures = failures


class _LeftRowsError(Exception):
    """The task's time is over. Rows from an offset on are left to others; the rows before are in checkpoints."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


class _EndedWorkerError(Exception):
    """In an earlier attempt of the task, its worker died during this batch."""


class _Amount:
    """The number of rows that a task has computed, reported from time to time."""

    def __init__(self, task: TaskRun) -> None:
        self._task = task
        self._rows = 0
        self._told = time.monotonic()

    def add(self, rows: int) -> None:
        """Count rows."""
        self._rows += rows
        now = time.monotonic()
        if now - self._told >= _REPORT_SECONDS:
            self._told = now
            with suppress(OSError, WriteError):
                self._task.tell(self._rows)


class _PieceRun:
    """The run of one piece in a task."""

    def __init__(self, body: BackfillBody, piece: Piece, staging: Staging, ends: float | None, amount: _Amount) -> None:
        self._body = body
        self._piece = piece
        self._staging = staging
        self._reader = body.table.pinned(body.version, piece.fragment)
        self._checkpoints = body.checkpoints.of(piece.key, body.target.schema)
        self._ends = ends
        self._amount = amount
        self._looked = 0.0
        self._over = self._is_begun = False

    def part(self) -> dict[str, Any] | None:
        """Compute some rows of a fragment into checkpoints. Return None if another task has failed."""
        computed_offsets = self._checkpoints.covered(self._piece.span)
        computed = sum(map(len, self._kept(self._computed(computed_offsets), at_end=True)))
        return None if self._is_over() else {"computed": computed}

    def whole(self) -> dict[str, Any] | None:
        """Compute the missing rows of a fragment, and write its file. Return None if another task has failed."""
        computed_offsets = self._checkpoints.covered(self._piece.span)
        computed = 0
        if computed_offsets:
            computed = sum(map(len, self._kept(self._computed(computed_offsets), at_end=True)))
            if self._is_over():
                return None
            pieces = self._checkpoints.in_order()
        else:
            pieces = self._computed(computed_offsets)
            if not self._body.target.is_cheap:
                pieces = self._kept(pieces, at_end=False)
        written, failures, count = self._written(pieces)
        if self._is_over():
            return None
        errors = self._body.keep_errors(self._piece.fragment.id, failures)
        file = WrittenFile(written, self._piece.fragment.rows, count, skipped_by(failures), errors)
        reach("column.write", located(self._body.table.file_address(written)) if "://" not in written else None)
        self._checkpoints.keep_file(file)
        return {"computed": computed if computed_offsets else count, "file": file.to_dict()}

    def _written(self, pieces: Iterator[Computed]) -> tuple[str, list[dict[str, Any]], int]:
        """Write the file, and return its name, the failures, and the number of computed rows."""
        body, piece = self._body, self._piece
        failures: list[dict[str, Any]] = []
        count = 0

        def noting() -> Iterator[Computed]:
            nonlocal count
            for computed in pieces:
                failures.extend(computed.failures)
                count += len(computed)
                yield computed

        columns = list(body.target.columns)
        stored = None
        if (piece.where is not None or body.target.keeps_others) and any(piece.fragment.files_of(columns)):

            def stored(span: tuple[int, int]) -> Iterator[pa.RecordBatch]:
                return self._reader.stored(piece.fragment, columns, span, size=body.batching.read_bytes)

        schema = body.target.schema
        with self._reader.new_file(self._file_name(), schema) as file:
            for batch in batches_of(noting(), piece.fragment.rows, schema, stored):
                file.write(batch)
        if file.rows != piece.fragment.rows and not self._is_over():
            raise WriteError(
                f"the file of fragment {piece.fragment.id} has {file.rows:,} rows, not {piece.fragment.rows:,}",
                path=body.table.place,
                hint="This is a fault of chunkmill; nothing was committed.",
            )
        return file.name, failures, count

    def _file_name(self) -> str:
        """Return the file's name with the provenance of all of its values, also of the kept ones."""
        target, fragment, where = self._body.target, self._piece.fragment, self._piece.where
        said = target.provenance(fragment)
        if where is None or target.keeps_others:
            return said.file_name(self._body.job)
        others = f"({where}) IS NOT TRUE AND ({has_value(target.columns)})"
        state = target.state_of(fragment)
        if state in (OTHER_FUNCTION, OTHER_INPUTS) and self._reader.count(fragment, others):
            said = said.beside(function=state == OTHER_FUNCTION, inputs=state == OTHER_INPUTS)
        stale = stale_condition(self._reader, target.columns, fragment)
        keeps = stale is not None and self._reader.count(fragment, f"({where}) IS NOT TRUE AND ({stale})") > 0
        return said.file_name(self._body.job, keeps_stale=keeps)

    def _computed(self, computed_offsets: list[Offsets]) -> Iterator[Computed]:
        """Yield the values of the piece's selected rows that have no checkpoint, in order."""
        body, piece = self._body, self._piece
        size = BatchSize(body.batching)
        base = piece.fragment.id << 32
        skipped, all_failures = Counter[str](), list[dict[str, Any]]()
        for number, batch in enumerate(self._batches(computed_offsets)):
            at = 0
            while at < batch.num_rows:
                if self._is_over():
                    return
                part = batch.slice(at, size.rows)
                at += part.num_rows
                offsets = part.column(OFFSET).to_numpy()
                if self._ends is not None and self._is_begun and time.monotonic() > self._ends:
                    raise _LeftRowsError(int(offsets[0]))
                self._is_begun = True
                taken, addresses = part.select(list(body.target.inputs)), offsets.astype(np.int64) + base
                began = time.perf_counter()
                try:
                    with _announced(self._staging, piece, offsets, wanted=body.is_careful):
                        mask, values, failed = body.target.compute(taken, addresses)
                except _EndedWorkerError:
                    raise
                except Exception as error:
                    failure = RowFailure.of(error, batch_index=number)
                    raise _CalledFunctionError(error, [failure.to_dict()]) from error
                size.took(part.num_rows, time.perf_counter() - began)
                self._amount.add(part.num_rows)
                failures = tuple(failure.to_dict() for failure in failed)
                if failures:
                    all_failures += failures
                    skipped.update(skipped_by(failures))
                    try:
                        body.target.check_skipped(skipped, None)
                    except SkipThresholdExceededError as error:
                        raise _CalledFunctionError(error, all_failures) from error
                rows = offsets if mask is None else offsets[mask]
                if len(rows):
                    yield Computed(rows, values, failures)

    def _batches(self, computed_offsets: list[Offsets]) -> Iterator[pa.RecordBatch]:
        """Yield the rows to compute, with the inputs."""
        body, piece = self._body, self._piece
        rows, size = body.batching.read_rows, body.batching.read_bytes
        inputs = list(body.target.inputs)
        if not computed_offsets and piece.only is None:
            yield from self._reader.selected(piece.fragment, inputs, piece.where, piece.span, rows=rows, size=size)
            return
        is_known = np.zeros(piece.fragment.rows, np.bool_)
        for offsets in computed_offsets:
            is_known[offsets] = True
        if is_known[slice(*piece.span)].all():
            return  # saves selecting the rows: 10 ms for a million
        is_missing = np.zeros(piece.fragment.rows, np.bool_)
        if piece.only is not None:
            is_missing[piece.only[(piece.only >= piece.span[0]) & (piece.only < piece.span[1])]] = True
        else:
            for batch in self._reader.selected(piece.fragment, [], piece.where, piece.span, rows=rows, size=size):
                is_missing[batch.column(OFFSET).to_numpy()] = True
        is_missing &= ~is_known
        missing = np.flatnonzero(is_missing)
        if not len(missing):
            return
        span = (int(missing[0]), int(missing[-1]) + 1)
        for batch in self._reader.selected(piece.fragment, inputs, piece.where, span, rows=rows, size=size):
            wanted = is_missing[batch.column(OFFSET).to_numpy()]
            yield batch if wanted.all() else batch.filter(pa.array(wanted))

    def _kept(self, pieces: Iterator[Computed], *, at_end: bool) -> Iterator[Computed]:
        """Yield the pieces, and write checkpoints from time to time, on a failure, and, with ``at_end``, at the end."""
        held: list[Computed] = []
        since, size = time.monotonic(), 0

        def keep() -> None:
            nonlocal since, size
            if held:
                self._checkpoints.write(Computed.joined(held))
                held.clear()
            since, size = time.monotonic(), 0

        try:
            for piece in pieces:
                held.append(piece)
                size += piece.values.nbytes
                if size >= FLUSH_BYTES or time.monotonic() - since >= self._body.batching.flush_seconds:
                    keep()
                yield piece
        except BaseException as error:
            try:
                keep()
            except (OSError, WriteError) as second:
                error.add_note(f"Also, the values computed before could not be stored: {second}")
            raise
        if at_end or self._is_over():
            keep()

    def _is_over(self) -> bool:
        """Return whether another task has failed, so that this one can stop."""
        if time.monotonic() - self._looked > _CHECK_SECONDS:
            self._looked = time.monotonic()
            self._over = self._staging.has_failed()
        return self._over


def skipped_by(failures: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return the number of failures by the policy that skipped them."""
    return dict(Counter(str(failure["policy"]) for failure in failures))


@contextmanager
def _announced(staging: Staging, piece: Piece, offsets: Offsets, *, wanted: bool) -> Iterator[None]:
    """In the block, a file in the staging folder names the function's rows. If it exists, an earlier attempt died."""
    if not wanted:
        yield
        return
    name = f"{ANNOUNCED}{piece.fragment.id}-{offsets[0]}-{offsets[-1]}"
    if staging.folder.exists(name):
        raise _EndedWorkerError
    with writing(staging.location):
        staging.folder.put(name, b"", durable=False)
    try:
        yield
    finally:
        staging.folder.delete([name])


MOST_KILLERS: Final = 100
"""The most rows of a run that may each kill a worker. Each such row costs some seconds."""
_NAME: Final = re.compile(rf"{ANNOUNCED}(\d+)-(\d+)-(\d+)")
_SHOWN: Final = 10


class CalledRows(NamedTuple):
    """The rows of a function call: their fragment, and their first and last offset."""

    fragment: int
    first: int
    last: int


def batches_at_hand(staging: Staging) -> list[CalledRows]:
    """Return the batches in progress when the tasks of a stage ended."""
    matches = filter(None, map(_NAME.fullmatch, staging.folder.names()))
    return sorted(CalledRows(*map(int, match.groups())) for match in matches)


def rows_that_kill(run: Callable[[Piece], list[CalledRows] | None], piece: Piece, batch: CalledRows) -> list[int]:
    """Return the offsets of a batch's rows that kill their worker.

    ``run`` computes a piece. If its worker dies, it returns the rows that the function had then, otherwise None.
    """
    offsets: list[int] = []
    todo = [(batch.first, batch.last + 1)]
    while todo:
        at_hand = run(replace(piece, span=todo.pop(), is_whole=False))
        for _, first, last in at_hand or ():
            if first == last:
                offsets.append(first)
            else:
                middle = (first + last + 1) // 2
                todo += [(middle, last + 1), (first, middle)]
    return sorted(offsets)


def killed_by(name: str, rows: list[tuple[int, int]]) -> PipelineError:
    """Return the error for rows (fragment, offset) with which a column's function killed its worker."""
    shown = ", ".join(f"row {offset} of fragment {fragment}" for fragment, offset in rows[:_SHOWN])
    more = f", and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    return PipelineError(
        f"the function of {name!r} kills its worker process for {shown}{more}",
        hint="Fix the function, or leave such rows null by Skip(SessionError).",
    )
