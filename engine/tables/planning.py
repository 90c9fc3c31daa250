"""The work of a backfill: rows of fragments, found on the driver, and dealt to tasks."""

from __future__ import annotations

import warnings
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final

import pyarrow as pa

from ..errors import UsageError
from ..lance import Fragment, FragmentReader
from .checkpoints import Offsets
from .provenance import token_of
from .staleness import stale_condition, stale_rows
from .targets import KNOWN, OTHER_FUNCTION, OTHER_INPUTS, FilledColumns, read_easily

Window = tuple[int, int | None]
"""The fragments of a table that are looked at: from the first to the one after the last."""
WHOLE: Final[Window] = (0, None)
_LEAST_TASK_ROWS: Final = 1024
"""Rows of a task by default, at least: of a function of 1 ms a row, a second's work."""
_TASKS_OF_A_WORKER: Final = 4
"""Tasks of a worker where a function takes long. Each is 10 to 20 ms of Spark's, and two more a worker made a backfill
of 1.2 million rows by a function of 1 ms take 1.6 times what Lance does, not 1.2 (bench_computed.py)."""
_NEAR: Final = 10
"""The part of a task's rows by which it may be larger or smaller, so that a fragment is not cut."""


@dataclass(frozen=True)
class BackfillPlan:
    """The work that ``backfill`` would do.

    Parameters
    ----------
    table_name, version
        The table, and the version that was looked at.
    has_work
        Whether any row would be computed.
    total_tasks, total_rows_pending
        The tasks, and the rows of the fragments that have a row to be computed.
    skipped_fragments, skipped_rows
        Fragments whose values a run that was cut has written already, and their rows.
    total_fragments, total_rows
        Those of the table.
    job_type
        ``backfill``.
    column_name, where
        The column, and the condition on the rows; None: all rows, as the function or its inputs are not what they were.
    udf_mismatch, srcfiles_mismatch
        Whether there are values of another function, or of inputs that were computed anew since.
    stale_rows
        Rows that were updated after they were computed, in whatever column. They keep their values, unless
        ``recompute_stale``, or ``where``, asks for them. Without stable row ids, all that may have been.
    """

    table_name: str
    version: int
    has_work: bool
    total_tasks: int
    total_rows_pending: int
    skipped_fragments: int
    skipped_rows: int
    total_fragments: int
    total_rows: int
    job_type: str = "backfill"
    column_name: str = ""
    where: str | None = None
    udf_mismatch: bool = False
    srcfiles_mismatch: bool = False
    stale_rows: int = 0


@dataclass(frozen=True)
class SelectedFragment:
    """A fragment with ``rows`` to be computed: those in which ``where`` is true (None: all of them)."""

    fragment: Fragment
    where: str | None
    key: str
    rows: int


@dataclass(frozen=True)
class RowSelection:
    """The fragments with work, and why."""

    where: str | None
    fragments: tuple[SelectedFragment, ...]
    udf_mismatch: bool = False
    srcfiles_mismatch: bool = False


@dataclass(frozen=True)
class Piece:
    """The rows of a fragment from one offset to another, for a task. ``is_whole``: it writes the fragment's file.

    ``only`` are the offsets of the rows in question; None: all in which ``where`` is true.
    """

    fragment: Fragment
    where: str | None
    key: str
    span: tuple[int, int]
    is_whole: bool
    only: Offsets | None = field(default=None, compare=False)

    @property
    def rows(self) -> int:
        """The number of rows that are looked at."""
        first, end = self.span
        if self.only is None:
            return end - first
        return bisect_left(self.only, end) - bisect_left(self.only, first)

    @classmethod
    def whole(cls, one: SelectedFragment | Piece) -> Piece:
        """All of a fragment, whose file is written."""
        return cls(one.fragment, one.where, one.key, (0, one.fragment.rows), is_whole=True)


def selection_of(
    reader: FragmentReader,
    target: FilledColumns,
    where: str | None,
    window: Window = WHOLE,
    *,
    recompute_stale: bool = False,
) -> RowSelection:
    """The rows of a version that are to be computed: of those that ``where`` names, or by default

    all of a fragment whose values are of another function, or of inputs that are not the same any more, and else those
    without a value, and, if so wanted, stale ones. Raises ``UsageError`` for a condition that is none.
    """
    if recompute_stale and where is not None:
        raise UsageError("where names the rows to compute, and recompute_stale others: give one of them")
    fragments = reader.fragments[slice(*window)]
    states = [target.state_of(fragment) for fragment in fragments]
    by_function, by_inputs = OTHER_FUNCTION in states, OTHER_INPUTS in states
    wanted = (
        [target.is_null if state == KNOWN else None for state in states] if where is None else [where] * len(states)
    )
    if recompute_stale:
        stale = stale_rows(reader, target.columns, fragments)
        wanted = [
            f"({one}) OR ({stale_condition(reader, target.columns, fragment)})" if one is not None and rows else one
            for fragment, one, rows in zip(fragments, wanted, stale, strict=True)
        ]
    chosen = [
        SelectedFragment(fragment, one, _key(target, fragment, one, reader.schema), rows)
        for fragment, one, rows in zip(fragments, wanted, reader.counts(fragments, wanted), strict=True)
        if rows
    ]
    told = where if where is not None else None if by_function or by_inputs else read_easily(target.is_null)
    return RowSelection(told, tuple(chosen), by_function, by_inputs)


def warn_of_mismatch(selection: RowSelection, target: FilledColumns, where: str | None) -> None:
    """Warn where a condition leaves values of another function in place."""
    if where is not None and selection.udf_mismatch:
        warnings.warn(
            f"{target.name!r} has values of another function, and only those of rows where {where} are computed anew",
            UserWarning,
            stacklevel=4,
        )


def tasks_of(pieces: Sequence[Piece], task_rows: int) -> list[tuple[Piece, ...]]:
    """The rows of pieces, dealt to tasks that have about as many each: ``task_rows``, or a little less.

    A task ends where a piece does, if one ends near its bound: a fragment that is cut is written twice.
    """
    ends = list(accumulate(piece.span[1] - piece.span[0] for piece in pieces))
    total = ends[-1] if ends else 0
    count = max(1, -(-total // task_rows))
    bounds = {_snapped(total * number // count, ends, total // count // _NEAR) for number in range(1, count)}
    tasks: list[list[Piece]] = [[]]
    first = number = 0
    for end in sorted({*ends, *bounds} - {0}):
        one = pieces[number]
        begin = one.span[1] - ends[number]
        span = (begin + first, begin + end)
        tasks[-1].append(replace(one, span=span, is_whole=one.is_whole and span == one.span))
        if end in bounds:
            tasks.append([])
        number += end == ends[number]
        first = end
    return [tuple(task) for task in tasks if task]


def _snapped(bound: int, ends: Sequence[int], near: int) -> int:
    """The end of a fragment that is near a bound, or else the bound."""
    at = bisect_left(ends, bound)
    nearest = min(ends[max(at - 1, 0) : at + 1], key=lambda end: abs(end - bound))
    return nearest if abs(nearest - bound) <= near else bound


def task_rows_of(given: int | None, rows: int, workers: int, *, many: bool = False) -> int:
    """The rows of a task: as asked for, or so many that each worker gets a task, or several."""
    if workers == 1:
        return given or max(rows, 1)
    return given or max(_LEAST_TASK_ROWS, -(-rows // (workers * (_TASKS_OF_A_WORKER if many else 1))))


def state_of_files(columns: Sequence[str], inputs: Sequence[str], fragment: Fragment) -> str:
    """The beginning of the keys of checkpoints of columns in a fragment: of use while these files are its own."""
    return f"{fragment.id:08x}-{token_of(columns, fragment.files_of(inputs), fragment.files_of(columns))}"


def _key(target: FilledColumns, fragment: Fragment, where: str | None, schema: pa.Schema) -> str:
    """The key of checkpoints: all that the values depend on."""
    asked = [name for name in schema.names if where is not None and name in where]
    types = [str(field.type) for field in target.fields]
    rest = token_of(target.token, types, where, asked, fragment.files_of(asked))
    return f"{state_of_files(target.columns, target.inputs, fragment)}-{rest}"
