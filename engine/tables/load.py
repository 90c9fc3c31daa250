"""Columns that are loaded from files and other tables, joined by a primary key.

Tasks read the source. They write its values, and its keys in parts by hash, to scratch; then each part is sorted. The
rest works like a backfill: tasks read the keys of fragments, find the values by the parts, and write column files,
which the driver commits. The driver holds no rows of the source.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from ..errors import UsageError, writing
from ..execution import Body, RunOptions, Stage, Staging, Task, TaskRun, dealt, raise_failure, warn_of
from ..lance import Fragment, FragmentReader, LanceTable, is_blob
from ..locations import located
from ..storage.folder import Folder
from .checkpoints import COMPUTED, WrittenFile
from .computed_columns import PreparedJob, TableParts
from .computing import READ_BYTES, READ_ROWS
from .digests import token_of
from .fill import BackfillRun
from .jobs import RunCounts, kept
from .load_source import (
    FILE,
    ROW,
    ColumnSource,
    HashedSource,
    SourcePiece,
    check_keys,
    duplicates_in,
    forget_parts,
    hashes_of,
    opened,
    part_of,
    sorted_part,
    source_of,
    written,
)
from .planning import TaskNeeds, admit, checked_job_id, checked_task_size, load_batching, selection_of
from .policies import RowFailure
from .targets import ALL, Addresses, Definition, FilledColumns
from .view import check_own

ON_MISSING: Final = ("carry", "null", "error")
_PART_BYTES: Final = 64 << 20
"""The size of a sorted part in bytes. A task that sorts a part holds it twice."""
_TASK_BYTES: Final = 128 << 20
_MOST_PARTS: Final = 4096


@dataclass(frozen=True)
class LoadedColumns(FilledColumns):
    """Columns that are filled from a source by its key. ``keys`` are the source's rows in scratch, once written.

    One task finds a fragment's values in a second or two and writes them. With the fragment cut in two, and
    checkpoints, 1.2 million rows of 128 floats took 3.3 s instead of 1 s (scale_computed.py).
    """

    source: tuple[Any, ...]
    on_missing: str
    keys: HashedSource | None = None

    is_cheap: ClassVar[bool] = True

    @cached_property
    def token(self) -> str:
        """Return the token of the source's present state, the columns, and ``on_missing``."""
        return token_of(list(self.source), self.inputs, self.columns, self.on_missing)

    @property
    def described(self) -> dict[str, str]:
        """The name ``load_columns``, and the token as the version: a load has no function."""
        return {"udf_name": "load_columns", "udf_version": self.token}

    @property
    def keeps_others(self) -> bool:  # type: ignore[override]
        """Return whether rows that the source lacks stay as they are."""
        return self.on_missing != "null"

    def compute(
        self,
        batch: pa.RecordBatch,
        addresses: Addresses,  # noqa: ARG002 (only the key is used)
    ) -> tuple[Any, pa.RecordBatch, Sequence[RowFailure]]:
        """Return the values of the rows that the source has; with ``null``, of all rows."""
        assert self.keys is not None
        mask, values = self.keys.find(batch.column(0), self.schema)
        if self.keeps_others or mask.all():
            return mask, values, ()
        indices = np.zeros(len(mask), np.int64)
        indices[mask] = np.arange(values.num_rows)
        if not values.num_rows:
            nulls = [pa.nulls(len(mask), field.type) for field in self.schema]
            return None, pa.RecordBatch.from_arrays(nulls, schema=self.schema), ()
        return None, values.take(pa.array(indices, mask=~mask)), ()

    def state_of(self, fragment: Fragment) -> int:  # noqa: ARG002 (all are filled)
        """All fragments are filled."""
        return ALL


def load_target(
    schema: pa.Schema, source: ColumnSource, pk: str, columns: Sequence[str], on_missing: str
) -> tuple[LoadedColumns, list[pa.Field]]:
    """Return the columns that a load fills, and those that the table lacks. Raises ``UsageError`` if types differ."""
    available = source.schema.names
    if missing := [name for name in columns if name not in available]:
        raise UsageError(f"Value column(s) {missing} not found in source schema. Available columns: {available}")
    if pk not in available:
        raise UsageError(f"Primary key column {pk!r} not found in source schema. Available columns: {available}")
    if pk not in schema.names:
        raise UsageError(f"Primary key column {pk!r} not found in table schema. Available columns: {schema.names}")
    if pk in columns:
        raise UsageError(f"the primary key {pk!r} cannot be loaded, because it identifies the rows")
    if len(set(columns)) != len(columns):
        raise UsageError(
            f"columns are given twice: {sorted({name for name in columns if list(columns).count(name) > 1})}"
        )
    wanted, given = schema.field(pk).type, source.schema.field(pk).type
    if wanted != given:
        raise UsageError(
            f"Primary key type mismatch: destination has {wanted}, source has {given}. "
            "Cast the source data before loading."
        )
    check_keys(wanted)
    fields, new = [], []
    for name in columns:
        of_source = source.schema.field(name)
        if name not in schema.names:
            field = pa.field(name, of_source.type, nullable=True)
            new.append(field)
        else:
            field = schema.field(name)
            definition = Definition.of(field)
            together = () if definition is None else definition.columns_in(schema)
            if not {*together} <= {*columns}:
                raise UsageError(
                    f"column {name!r} is one of several columns of a single function",
                    hint=f"Load all of them, {list(together)}, or another column.",
                )
            if is_blob(field):
                raise UsageError(
                    f"column {name!r} is a blob column, which cannot be loaded", hint="Load a column of large_binary."
                )
            if field.type != of_source.type:
                raise UsageError(
                    f"Type mismatch for column {name!r}: destination has {field.type}, source has {of_source.type}. "
                    "Cast the source data before loading."
                )
        fields.append(field)
    return LoadedColumns(", ".join(columns), tuple(fields), (pk,), source.identity, on_missing), new


def missing_rows(reader: FragmentReader, target: LoadedColumns) -> Callable[[Mapping[int, WrittenFile]], None]:
    """Return a check that raises ``UsageError`` if the source lacks a row of the table."""

    def check(files: Mapping[int, WrittenFile]) -> None:
        missing = sum(
            fragment.rows - fragment.deleted - files[fragment.id].computed
            for fragment in reader.fragments
            if fragment.id in files
        )
        if missing:
            raise UsageError(
                f"on_missing='error': {missing} destination rows have no match in the source",
                hint="Nothing was loaded. Add them to the source, or set on_missing to 'carry' or 'null'.",
            )

    return check if target.on_missing == "error" else lambda _: None


def partitioned(
    table: LanceTable, source: ColumnSource, pk: str, columns: Sequence[str], staging: Staging, run: RunOptions
) -> HashedSource:
    """Write a source's rows into sorted parts in a staging folder. Raises ``UsageError`` for duplicate keys."""
    names = (pk, *columns)
    size = sum(piece.size for piece in source.pieces)
    parts = max(1, min(_MOST_PARTS, -(-size // _PART_BYTES)))
    groups = tuple(dealt(source.pieces, lambda piece: piece.size, _TASK_BYTES))
    sizes = [sum(piece.size for piece in group) for group in groups]
    cut = _reports_of(CutBody(source, names, groups, parts), sizes, staging, run, table)
    nulls, rows = (sum(report[name] for report in cut) for name in ("nulls", "rows"))
    if nulls:
        warnings.warn(f"{nulls} rows of the source have a null {pk!r}; they are ignored", UserWarning, stacklevel=2)
    files = {
        values: number for number, values in enumerate(sorted({entry[2] for report in cut for entry in report["runs"]}))
    }
    runs: list[list[tuple[str, int]]] = [[] for _ in range(parts)]
    for part, name, values in (entry for report in cut for entry in report["runs"]):
        runs[part].append((name, files[values]))
    body = SortBody(source.schema.field(pk), tuple(tuple(sorted(own)) for own in runs))
    ordered = _reports_of(body, [size // parts] * parts, staging, run, table)
    doubled = sum(report["duplicates"] for report in ordered)
    if doubled:
        raise UsageError(
            f"Source dataset contains {doubled} duplicate primary key values in column {pk!r}. "
            "Deduplicate the source before loading."
        )
    return HashedSource(staging.location, parts, tuple(files), sum(report["bytes"] for report in cut) // max(rows, 1))


@dataclass(frozen=True)
class CutBody(Body):
    """The stage that reads a source and writes its values, and its keys by part."""

    source: ColumnSource
    columns: tuple[str, ...]
    groups: tuple[tuple[SourcePiece, ...], ...]
    parts: int

    def label(self, index: int) -> str:
        """The first piece of a task."""
        first = self.groups[index][0]
        return f"piece {first.number} of {first.place}"

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """Write files of values, and for each of them one file of keys per part."""
        key = self.columns[0]
        held: list[pa.RecordBatch] = []
        runs: list[tuple[int, str, str]] = []
        nulls = rows = size = total = 0

        def keep() -> None:
            table = pa.Table.from_batches(held)
            values = f"{task.name}-{len(runs)}.values"
            task.put(values, written(table.drop_columns([key])))
            keys = table.column(key).combine_chunks()
            numbers = part_of(hashes_of(keys), self.parts)
            order = np.argsort(numbers, kind="stable")
            bounds = np.searchsorted(numbers[order], np.arange(self.parts + 1))
            index = pa.table([keys.take(pa.array(order)), pa.array(order)], [key, ROW])
            for part in np.unique(numbers).tolist():
                begin, end = int(bounds[part]), int(bounds[part + 1])
                name = f"{values}-{part:05d}.run"
                task.put(name, written(index.slice(begin, end - begin)))
                runs.append((part, name, values))
            held.clear()

        for piece in self.groups[task.index]:
            for batch in self.source.read(piece, self.columns):
                keyed = batch.filter(batch.column(key).is_valid())
                nulls += batch.num_rows - keyed.num_rows
                rows, size, total = rows + keyed.num_rows, size + keyed.nbytes, total + keyed.nbytes
                held += [keyed] if keyed.num_rows else []
                if size >= _TASK_BYTES:
                    keep()
                    size = 0
        if held:
            keep()
        yield from ()
        return {"runs": runs, "nulls": nulls, "rows": rows, "bytes": total}


@dataclass(frozen=True)
class SortBody(Body):
    """The stage that sorts each part's keys. ``runs`` are a part's files, with the numbers of their value files."""

    key: pa.Field
    runs: tuple[tuple[tuple[str, int], ...], ...]

    def label(self, index: int) -> str:
        """The number of a part."""
        return f"part {index} of the source"

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """Sort a part, and count its duplicate keys."""
        tables = [pa.schema([self.key, (ROW, pa.int64()), (FILE, pa.int64())]).empty_table()]
        for name, number in self.runs[task.index]:
            table = opened(task.location, name)
            tables.append(table.append_column(FILE, pa.array(np.full(table.num_rows, number))))
        part = sorted_part(tables, self.key.name)
        task.put(HashedSource.name_of(task.index), written(part))
        yield from ()
        return {"duplicates": duplicates_in(part)}


def _reports_of(
    body: CutBody | SortBody, sizes: Iterable[int], staging: Staging, run: RunOptions, table: LanceTable
) -> list[dict[str, Any]]:
    """Run a stage, and return the final report of each task."""
    tasks = [Task(number, body.label(number), size) for number, size in enumerate(sizes)]
    ran = Stage(body, tasks, staging, destination=table.place).run(run)
    warn_of(ran.notes, set())
    raise_failure(ran.notes)
    return [report for report in ran.outcomes() if isinstance(report, dict)]


def run_load(
    backfill: BackfillRun, source: ColumnSource, target: LoadedColumns, new: Sequence[pa.Field], counts: RunCounts
) -> None:
    """Load columns, and count rows and fragments. ``new`` columns are added first."""
    table = backfill.table
    home = located(table.place) / COMPUTED
    with writing(table.place):
        Folder.at(home).make()
    with Staging.beside(home / "source") as staging:
        keys = partitioned(table, source, target.inputs[0], target.columns, staging, backfill.run)
        added = _added(table, new)
        if backfill.batching.first is None:
            first = max(1, min(READ_ROWS, READ_BYTES // max(keys.row_bytes, 1)))
            backfill = replace(backfill, batching=replace(backfill.batching, first=first))
        try:
            for group in _groups(table.at(), target.columns):
                _fill(backfill, replace(target, keys=keys), group, counts)
        except UsageError:
            if added and not counts.commits:  # the source lacks rows, and nothing was loaded
                table.drop([field.name for field in added])
            raise
    forget_parts()


def _added(table: LanceTable, fields: Sequence[pa.Field]) -> list[pa.Field]:
    """Add columns, except those that another load has added meanwhile, and return the added ones.

    Raises ``UsageError`` if such a column has another type.
    """
    while True:
        schema = table.at().schema
        missing = [field for field in fields if field.name not in schema.names]
        for field in fields:
            if field not in missing and schema.field(field.name).type != field.type:
                raise UsageError(
                    f"{field.name!r} was meanwhile added, with type {schema.field(field.name).type}", path=table.place
                )
        if not missing:
            return []
        try:
            table.add_null_columns(missing)
        except UsageError:
            if {field.name for field in missing}.isdisjoint(table.at().schema.names):
                raise
        else:
            return missing


def _groups(reader: FragmentReader, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the groups of columns that share files in all fragments: only these can get new files in one commit."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for column in columns:
        groups.setdefault(tuple(fragment.files.get(column, "") for fragment in reader.fragments), []).append(column)
    return list(map(tuple, groups.values()))


def _fill(backfill: BackfillRun, target: LoadedColumns, columns: Sequence[str], counts: RunCounts) -> None:
    """Fill a group of a load's columns. Rows of several groups count once."""
    reader = backfill.table.at()
    fields = tuple(reader.schema.field(name) for name in columns)
    ready = replace(target, name=", ".join(columns), fields=fields)
    selected = selection_of(reader, ready, None).fragments
    own = RunCounts()
    replace(backfill, check=missing_rows(reader, ready))(reader, ready, selected, lambda _: ready, own)
    counts.commits += own.commits
    counts.taken |= own.taken
    counts.errors += own.errors
    counts.processed, counts.rows = max(counts.processed, own.processed), max(counts.rows, own.rows)
    counts.fragments, counts.total = max(counts.fragments, own.fragments), max(counts.total, own.total)


def load_job(
    parts: TableParts,
    /,
    source: str | list[str],
    pk: str,
    columns: list[str],
    *,
    source_format: str | None = None,
    on_missing: str = "carry",
    concurrency: int = 8,
    task_size: int | None = None,
    checkpoint_size: int | None = None,
    min_checkpoint_size: int | None = None,
    max_checkpoint_size: int | None = None,
    checkpoint_interval_seconds: float | None = None,
    _loader_cpus: float | None = None,
    _loader_memory: int | None = None,
    commit_granularity: int | None = None,
    refresh_status_secs: float = 2.0,  # noqa: ARG001 (progress is reported continuously)
    enable_job_tracker_saves: bool = True,
    job_id: str | None = None,
    **kwargs: Any,
) -> PreparedJob[str]:
    """The job of ``Table.load_columns`` and ``Table.load_columns_async``, its arguments checked."""
    if not columns:
        raise UsageError("columns must be non-empty")
    if on_missing not in ON_MISSING:
        raise UsageError(f"on_missing must be one of {{'carry', 'null', 'error'}}, got {on_missing!r}")
    check_own(parts.lance, columns)
    given = source_of(source, source_format)
    reader = parts.lance.checked()
    target, new = load_target(reader.schema, given, pk, columns, on_missing)
    run = parts.run_options(kwargs.get("executor"))
    wanted = TaskNeeds(_loader_cpus or 1, 0, _loader_memory)
    admit("load_columns", wanted, run, check=None, strict=None)
    batching = load_batching(checkpoint_size, min_checkpoint_size, max_checkpoint_size, checkpoint_interval_seconds)
    job = checked_job_id(job_id)
    backfill = BackfillRun(
        parts.lance,
        job,
        batching,
        run,
        parts.workers(concurrency, run),
        checked_task_size(task_size),
        None if on_missing == "error" else commit_granularity or 0,
        jobs=parts.jobs,
    )
    config = {"source": source, "pk": pk, "on_missing": on_missing, "executor": run.executor}

    def running() -> str:
        version = parts.lance.at().version
        with (
            kept(parts.jobs, job, "LOAD", target.name, config, version, is_saved=enable_job_tracker_saves) as counts,
            parts.lance.needing(version),
        ):
            run_load(backfill, given, target, new, counts)
        return job

    return PreparedJob(job, columns, running)
