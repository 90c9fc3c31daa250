"""The plan of a backfill: options, the rows of each fragment, and the resources that a function needs."""

from __future__ import annotations

import os
import re
import warnings
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa

from ..errors import ResourcesUnavailableError, UsageError, check_argument
from ..execution import RunOptions
from ..lance import Fragment, FragmentReader, LanceTable
from ..spark import Resources, resources_of
from .checkpoints import Offsets
from .computing import ASKED_READ_BYTES, FLUSH_SECONDS, LOAD_SECONDS, READ_BYTES, SECONDS, Batching
from .digests import COMPUTED_BY, SEVERAL, token_of
from .function import UDF
from .targets import (
    KNOWN,
    OTHER_FUNCTION,
    OTHER_INPUTS,
    Definition,
    FilledColumns,
    FunctionColumns,
    note_fresh,
    simplify_sql,
    stale_condition,
    stale_rows,
)

Window = tuple[int, int | None]
"""The range of fragments of a table: the first, and the one after the last."""
WHOLE: Final[Window] = (0, None)
_LEAST_TASK_ROWS: Final = 1024
"""The default minimum of rows per task: a second's work for a function that takes 1 ms per row."""
_TASKS_OF_A_WORKER: Final = 4
"""Tasks per worker for a slow function. Spark needs 10 to 20 ms for each; with two more per worker, a backfill of 1.2
million rows by a function of 1 ms took 1.6 times as long as Lance, not 1.2 (bench_computed.py)."""
_NEAR: Final = 10
"""A task may be larger or smaller by a tenth, so that a fragment is not cut."""


@dataclass(frozen=True)
class BackfillPlan:
    """The work that ``backfill`` would do.

    Parameters
    ----------
    table_name, version
        The table, and its version in this plan.
    has_work
        Whether any row would be computed.
    total_tasks, total_rows_pending
        The number of tasks, and of rows in fragments with at least one row to compute.
    skipped_fragments, skipped_rows
        Fragments that an interrupted run has already written, and their rows.
    total_fragments, total_rows
        All fragments and rows of the table.
    job_type
        ``backfill``.
    column_name, where
        The column, and the condition on the rows. None: all rows, because the function or its inputs have changed.
    udf_mismatch, srcfiles_mismatch
        Whether values are from another function, or from inputs that have been computed again since.
    stale_rows
        Rows in which any column was updated after the computation. They keep their values, unless ``recompute_stale``
        or ``where`` selects them. Without stable row ids, all rows that may have been updated.
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
    """A fragment, and its number of ``rows`` to compute: those in which ``where`` is true (None: all)."""

    fragment: Fragment
    where: str | None
    key: str
    rows: int


@dataclass(frozen=True)
class RowSelection:
    """The fragments with rows to compute, and the reasons."""

    where: str | None
    fragments: tuple[SelectedFragment, ...]
    udf_mismatch: bool = False
    srcfiles_mismatch: bool = False


@dataclass(frozen=True)
class Piece:
    """A fragment's rows from one offset to another, for a task. With ``is_whole``, the task writes the fragment's file.

    ``only`` are the offsets of the rows to compute; None: all rows in which ``where`` is true.
    """

    fragment: Fragment
    where: str | None
    key: str
    span: tuple[int, int]
    is_whole: bool
    only: Offsets | None = field(default=None, compare=False)

    @property
    def rows(self) -> int:
        """Return the number of rows in the span."""
        first, end = self.span
        if self.only is None:
            return end - first
        return bisect_left(self.only, end) - bisect_left(self.only, first)

    @classmethod
    def whole(cls, choice: SelectedFragment | Piece) -> Piece:
        """Return a piece of all rows of a fragment, for a task that writes its file."""
        return cls(choice.fragment, choice.where, choice.key, (0, choice.fragment.rows), is_whole=True)


def selection_of(
    reader: FragmentReader,
    target: FilledColumns,
    where: str | None,
    window: Window = WHOLE,
    *,
    recompute_stale: bool = False,
) -> RowSelection:
    """Return the rows to compute in a version: those of ``where``, or by default those without a current value.

    By default these are all rows of fragments with values of another function or changed inputs; in other fragments,
    rows without a value and, with ``recompute_stale``, stale rows. Raises ``UsageError`` for an invalid condition.
    """
    if recompute_stale and where is not None:
        raise UsageError("where and recompute_stale both select rows: give only one of them")
    fragments = reader.fragments[slice(*window)]
    states = [target.state_of(fragment) for fragment in fragments]
    by_function, by_inputs = OTHER_FUNCTION in states, OTHER_INPUTS in states
    wanted = (
        [target.is_null if state == KNOWN else None for state in states] if where is None else [where] * len(states)
    )
    if recompute_stale:
        stale = stale_rows(reader, target.columns, fragments)
        wanted = [
            f"({condition}) OR ({stale_condition(reader, target.columns, fragment)})"
            if condition is not None and rows
            else condition
            for fragment, condition, rows in zip(fragments, wanted, stale, strict=True)
        ]
    chosen = [
        SelectedFragment(fragment, condition, _key(target, fragment, condition, reader.schema), rows)
        for fragment, condition, rows in zip(fragments, wanted, reader.counts(fragments, wanted), strict=True)
        if rows
    ]
    shown = where if where is not None else None if by_function or by_inputs else simplify_sql(target.is_null)
    return RowSelection(shown, tuple(chosen), by_function, by_inputs)


def warn_of_mismatch(selection: RowSelection, target: FilledColumns, where: str | None) -> None:
    """Warn if a condition leaves values of another function in place."""
    if where is not None and selection.udf_mismatch:
        warnings.warn(
            f"{target.name!r} has values computed by another function; only rows where {where} are computed again",
            UserWarning,
            stacklevel=4,
        )


def tasks_of(pieces: Sequence[Piece], task_rows: int) -> list[tuple[Piece, ...]]:
    """Divide the rows of pieces into tasks of about equal size: ``task_rows``, or a little less.

    If a piece ends near a task's bound, the task ends there, too: a fragment that is cut is written twice.
    """
    ends = list(accumulate(piece.span[1] - piece.span[0] for piece in pieces))
    total = ends[-1] if ends else 0
    count = max(1, -(-total // task_rows))
    bounds = {_snapped(total * number // count, ends, total // count // _NEAR) for number in range(1, count)}
    tasks: list[list[Piece]] = [[]]
    first = number = 0
    for end in sorted({*ends, *bounds} - {0}):
        piece = pieces[number]
        begin = piece.span[1] - ends[number]
        span = (begin + first, begin + end)
        tasks[-1].append(replace(piece, span=span, is_whole=piece.is_whole and span == piece.span))
        if end in bounds:
            tasks.append([])
        number += end == ends[number]
        first = end
    return [tuple(task) for task in tasks if task]


def _snapped(bound: int, ends: Sequence[int], near: int) -> int:
    """Return a fragment's end near a bound, or else the bound."""
    at = bisect_left(ends, bound)
    nearest = min(ends[max(at - 1, 0) : at + 1], key=lambda end: abs(end - bound))
    return nearest if abs(nearest - bound) <= near else bound


def task_rows_of(given: int | None, rows: int, workers: int, *, many: bool = False) -> int:
    """Return the number of rows per task: the requested number, or enough that each worker gets one task or several."""
    if workers == 1:
        return given or max(rows, 1)
    return given or max(_LEAST_TASK_ROWS, -(-rows // (workers * (_TASKS_OF_A_WORKER if many else 1))))


def state_of_files(columns: Sequence[str], inputs: Sequence[str], fragment: Fragment) -> str:
    """Return the prefix of the columns' checkpoint keys in a fragment. They are useful while it has the same files."""
    return f"{fragment.id:08x}-{token_of(columns, fragment.files_of(inputs), fragment.files_of(columns))}"


def _key(target: FilledColumns, fragment: Fragment, where: str | None, schema: pa.Schema) -> str:
    """Return the checkpoint key, made of everything that the values depend on."""
    asked = [name for name in schema.names if where is not None and name in where]
    types = [str(field.type) for field in target.fields]
    rest = token_of(target.token, types, where, asked, fragment.files_of(asked))
    return f"{state_of_files(target.columns, target.inputs, fragment)}-{rest}"


IGNORED: Final = {
    "intra_applier_concurrency": "a task of Spark computes in one thread; give the session more cores",
    "task_shuffle_diversity": "Spark assigns tasks when workers become free",
}
"""Options that have no meaning on Spark, with the reasons."""

_KNOWN: Final = frozenset(
    {
        "commit_granularity",
        "read_version",
        "task_shuffle_diversity",
        "batch_size",
        "checkpoint_size",
        "task_size",
        "num_frags",
        "skip_frags",
        "executor",
        "progress",
        "recompute_stale",
    }
)


@dataclass(frozen=True)
class BackfillOptions:
    """Options of a backfill, besides its column, function and condition."""

    batching: Batching
    run: RunOptions
    concurrency: int
    task_size: int | None
    granularity: int | None
    window: Window
    recompute_stale: bool = False


def backfill_options(
    udf: UDF,
    *,
    concurrency: int,
    intra_applier_concurrency: int,
    min_checkpoint_size: int | None,
    max_checkpoint_size: int | None,
    flush_seconds: float | None,
    read_bytes: int | None,
    run: RunOptions,
    more: Mapping[str, Any],
) -> BackfillOptions:
    """Return the checked options. Raises ``TypeError`` for an unknown option, ``UsageError`` for an invalid one."""
    unknown = more.keys() - _KNOWN
    if unknown:
        raise TypeError(f"backfill() got an unexpected keyword argument {min(unknown)!r}")
    checked_count("concurrency", concurrency)
    for name in ("checkpoint_size", "batch_size", "skip_frags", "num_frags", "commit_granularity"):
        check_argument(name, more.get(name), int, type(None))
    for name, value in (("min_checkpoint_size", min_checkpoint_size), ("max_checkpoint_size", max_checkpoint_size)):
        check_argument(name, value, int, type(None))
    check_argument("batch_checkpoint_flush_interval_seconds", flush_seconds, float, int, type(None))
    checked_count("blob_read_buffer_size", read_bytes)
    if intra_applier_concurrency != 1:
        warn_ignored("intra_applier_concurrency")
    if more.get("task_shuffle_diversity") is not None:
        warn_ignored("task_shuffle_diversity")
    first = more.get("checkpoint_size")
    if more.get("batch_size") is not None:
        warnings.warn("batch_size is now called checkpoint_size", DeprecationWarning, stacklevel=4)
        first = first if first is not None else more["batch_size"] or 2**31
    first = first if first is not None else udf.checkpoint_size
    batching = Batching(
        first=first,
        least=min_checkpoint_size or udf.min_checkpoint_size,
        most=max_checkpoint_size or udf.max_checkpoint_size,
        seconds=SECONDS,
        flush_seconds=FLUSH_SECONDS if flush_seconds is None else flush_seconds,
        read_bytes=read_bytes if read_bytes is not None else READ_BYTES if first is None else ASKED_READ_BYTES,
    )
    granularity = more.get("commit_granularity", 0)
    if granularity is not None and ("commit_granularity" in more and granularity < 1):
        raise UsageError(f"commit_granularity must be at least 1, or None, got {granularity}")
    return BackfillOptions(
        batching,
        run,
        concurrency,
        checked_task_size(more.get("task_size")) or udf.task_size,
        granularity,
        window_of(more.get("num_frags"), more.get("skip_frags") or 0),
        bool(more.get("recompute_stale")),
    )


def load_batching(first: int | None, least: int | None, most: int | None, seconds: float | None) -> Batching:
    """Limits of the rows that a load reads at once."""
    if seconds is not None and seconds <= 0:
        raise UsageError(f"checkpoint_interval_seconds must be more than 0, got {seconds}")
    return Batching(first=first, least=least or 1, most=most, seconds=seconds or LOAD_SECONDS)


def checked_task_size(given: int | None) -> int | None:
    """Return the requested number of rows per task. Raises ``UsageError`` if it is invalid."""
    return checked_count("task_size", given)


def checked_count(name: str, given: int | None) -> int | None:
    """Return a checked count. Raises ``TypeError``, or ``UsageError`` if it is less than one."""
    check_argument(name, given, int, type(None))
    if given is not None and given < 1:
        raise UsageError(f"{name} must be at least 1, got {given}")
    return given


def checked_job_id(given: str | None) -> str:
    """Return a job's id, by default a new one. Raises ``UsageError`` if it cannot be a file name."""
    check_argument("job_id", given, str, type(None))
    if given and not re.fullmatch(r"\w[\w.-]{0,99}", given, re.ASCII):
        raise UsageError(f"a job_id has up to 100 letters, digits, '_', '.' and '-'; it cannot be {given!r}")
    return given or uuid4().hex


def window_of(num_frags: int | None, skip_frags: int) -> Window:
    """Return the range of fragments to process. Raises ``UsageError``.

    >>> window_of(50, 100)
    (100, 150)
    """
    check_argument("num_frags", num_frags, int, type(None))
    check_argument("skip_frags", skip_frags, int)
    if skip_frags < 0 or (num_frags is not None and num_frags < 1):
        raise UsageError(f"num_frags must be at least 1 and skip_frags at least 0, got {num_frags} and {skip_frags}")
    return skip_frags, None if num_frags is None else skip_frags + num_frags


def warn_ignored(name: str) -> None:
    """Warn that an option is ignored, with the reason."""
    warnings.warn(f"{name} is ignored: {IGNORED[name]}", UserWarning, stacklevel=5)


_CHECK: Final = "CHUNKMILL_ADMISSION_CHECK"
_STRICT: Final = "CHUNKMILL_ADMISSION_STRICT"


@dataclass(frozen=True)
class TaskNeeds:
    """The cores, GPUs and bytes of memory that a task needs."""

    cores: float = 1
    gpus: float = 0
    memory: int | None = None

    @classmethod
    def of(cls, udf: UDF) -> TaskNeeds:
        """Return the needs of a function."""
        return cls(udf.num_cpus, udf.num_gpus or 0, udf.memory)


def admit(name: str, wanted: TaskNeeds, run: RunOptions, *, check: bool | None, strict: bool | None) -> None:
    """Compare the needs of ``name`` with a task's resources. If these are too small, warn, or raise if ``strict``.

    Raises ``ResourcesUnavailableError``.
    """
    if not _asked(check, _CHECK, default=True) or wanted == TaskNeeds():
        return
    short = list(_lacks(wanted, resources_of(run.executor == "spark", run.master, run.conf)))
    if not short:
        return
    message = f"{name!r} needs {' and '.join(short)}"
    if _asked(strict, _STRICT, default=False):
        raise ResourcesUnavailableError(
            message,
            hint=f"Give the session more resources, let the function request fewer, or set {_STRICT}=0 to only warn.",
        )
    warnings.warn(f"{message}; it runs anyway", UserWarning, stacklevel=4)


def _lacks(wanted: TaskNeeds, resources: Resources) -> Iterator[str]:
    if wanted.cores > resources.cores:
        yield f"{wanted.cores:g} cores, but an executor has {resources.cores}"
    if wanted.gpus > resources.gpus:
        yield f"{wanted.gpus:g} GPUs, but an executor has {resources.gpus:g}"
    if wanted.memory is not None and resources.memory is not None and wanted.memory > resources.memory:
        yield f"{wanted.memory:,} bytes of memory, but a task has {resources.memory:,}"


def _asked(given: bool | None, name: str, *, default: bool) -> bool:
    if given is not None:
        return given
    value = os.environ.get(name, "").strip().lower()
    if value in ("", "1", "true", "yes", "0", "false", "no"):
        return default if not value else value in ("1", "true", "yes")
    raise UsageError(f"{name} must be 1 or 0, not {value!r}")


def declare(table: LanceTable, target: FilledColumns, selected: Sequence[SelectedFragment]) -> bool:
    """Record in the metadata that fragments get values. Return whether the values are then of several functions.

    Columns computed from these in the same fragments are recorded as of several functions, too: once their values are
    in other files, outdated ones could not be recognised.
    """
    schema = table.at().schema
    changes: dict[str, dict[str, str | None]] = {}
    is_mixed = False
    if isinstance(target, FunctionColumns):
        said = {_token_in(schema, column) for column in target.columns}
        is_mixed = not said <= {None, target.token}
        wanted = SEVERAL if is_mixed else target.token
        if said != {wanted}:
            changes |= {column: {COMPUTED_BY: wanted} for column in target.columns}
    for entry in schema:
        definition = Definition.of(entry)
        if definition is None or not set(definition.inputs_of(schema)) & set(target.columns):
            continue
        if _token_in(schema, entry.name) not in (None, SEVERAL) and any(
            choice.fragment.files.get(entry.name) for choice in selected
        ):
            changes[entry.name] = {COMPUTED_BY: SEVERAL}
    if changes:
        table.describe(changes)
    note_fresh(table, only={choice.fragment.id for choice in selected}, but=target.columns)
    return is_mixed


def store_single_token(table: LanceTable, target: FilledColumns) -> None:
    """Record that all values are of one function, if they are."""
    reader = table.at()
    if not isinstance(target, FunctionColumns) or not set(target.columns) <= set(reader.schema.names):
        return
    said = {_token_in(reader.schema, column) for column in target.columns}
    if said <= {None, target.token}:
        return
    now = replace(target, fields=tuple(reader.schema.field(column) for column in target.columns))
    if all(now.state_of(fragment) != OTHER_FUNCTION for fragment in reader.fragments):
        table.describe({column: {COMPUTED_BY: target.token} for column in target.columns})


def _token_in(schema: pa.Schema, column: str) -> str | None:
    """Return the token in a column's metadata, or None if it has none."""
    if column not in schema.names:
        return None
    said = (schema.field(column).metadata or {}).get(COMPUTED_BY.encode())
    return None if said is None else said.decode()
