"""The columns of a table that functions and files fill, and its search indexes."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from ..errors import UnsupportedCallError, UsageError, check_argument
from ..execution import RunOptions, executor_name, progress_shown
from ..lance import FragmentReader, LanceTable, make_index
from ..spark import resources_of
from .adding import target_of
from .checkpoints import CheckpointStore
from .fill import BackfillRun
from .function import UDF
from .jobs import DONE, BackfillJobResult, JobFuture, JobTable, UdfResult, kept, rows_shown
from .planning import (
    BackfillOptions,
    BackfillPlan,
    Piece,
    SelectedFragment,
    TaskNeeds,
    admit,
    backfill_options,
    checked_job_id,
    checked_task_size,
    selection_of,
    task_rows_of,
    tasks_of,
    warn_of_mismatch,
    window_of,
)
from .search import METRICS, NearRows, RowsWithWords, TableQuery, vector_column, vector_of, word_columns
from .targets import Definition, FunctionColumns, resolve, stale_rows
from .view import check_own


@dataclass(frozen=True)
class TableParts:
    """The parts of a table: its rows in Lance, its jobs, and the options of its computed columns."""

    lance: LanceTable
    jobs: JobTable
    modules: Collection[str]
    executor: str | None

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.lance.label

    def run_options(self, executor: str | None) -> RunOptions:
        """Options for a run by this executor, by default the table's."""
        return RunOptions(executor=executor_name(executor or self.executor))

    def workers(self, concurrency: int, run: RunOptions) -> int:
        """The number of tasks at once: at most ``concurrency``, and at most the number of the session's cores."""
        if run.executor != "spark":
            return 1
        return min(concurrency, resources_of(is_spark=True, master=run.master, conf=run.conf).slots)


R = TypeVar("R")


@dataclass(frozen=True)
class PreparedJob(Generic[R]):
    """A job that is ready to run: the columns that it fills, and the way to wait for it."""

    job: str
    columns: Sequence[str]
    run: Callable[[], R]
    timeout: timedelta | None = None
    is_future_alone: bool = False

    @property
    def future(self) -> JobFuture[R]:
        """The job, started in the background."""
        return JobFuture(self.job, self.run)


def backfill_plan(
    parts: TableParts,
    /,
    col_name: str,
    *,
    udf: UDF | None = None,
    where: str | None = None,
    read_version: int | None = None,
    num_frags: int | None = None,
    skip_frags: int = 0,
    task_size: int | None = None,
    recompute_stale: bool = False,
) -> BackfillPlan:
    """The plan of ``Table.plan_backfill``."""
    window = window_of(num_frags, skip_frags)
    reader = parts.lance.at(read_version)
    target = fill_target(parts, reader, col_name, udf)
    selection = selection_of(reader, target, where, window, recompute_stale=recompute_stale)
    store = CheckpointStore(parts.lance.place)
    written = [choice for choice in selection.fragments if any(True for _ in store.of(choice.key).files())]
    todo = [choice for choice in selection.fragments if choice not in written]
    rows = task_rows_of(
        checked_task_size(task_size) or target.udf.task_size,
        sum(choice.fragment.rows for choice in todo),
        os.cpu_count() or 1,
    )
    fragments = reader.fragments
    return BackfillPlan(
        table_name=parts.name,
        version=reader.version,
        has_work=bool(selection.fragments),
        total_tasks=sum(map(len, tasks_of(list(map(Piece.whole, todo)), rows))),
        total_rows_pending=sum(choice.fragment.rows - choice.fragment.deleted for choice in todo),
        skipped_fragments=len(written),
        skipped_rows=sum(choice.fragment.rows - choice.fragment.deleted for choice in written),
        total_fragments=len(fragments),
        total_rows=sum(fragment.rows - fragment.deleted for fragment in fragments),
        column_name=col_name,
        where=selection.where,
        udf_mismatch=selection.udf_mismatch,
        srcfiles_mismatch=selection.srcfiles_mismatch,
        stale_rows=sum(stale_rows(reader, target.columns, fragments[slice(*window)])),
    )


def backfill_job(
    parts: TableParts,
    /,
    columns: str | list[str],
    *,
    udf: UDF | None = None,
    where: str | None = None,
    concurrency: int = 8,
    intra_applier_concurrency: int = 1,
    _admission_check: bool | None = None,
    _admission_strict: bool | None = None,
    refresh_status_secs: float = 2.0,  # noqa: ARG001 (progress is reported continuously)
    timeout: timedelta | None = None,
    min_checkpoint_size: int | None = None,
    max_checkpoint_size: int | None = None,
    batch_checkpoint_flush_interval_seconds: float | None = None,
    blob_read_strategy: Literal["auto", "legacy", "range"] = "auto",
    blob_read_buffer_size: int | None = None,
    _enable_job_tracker_saves: bool = True,
    job_id: str | None = None,
    _return_future: bool = False,
    **kwargs: Any,
) -> PreparedJob[BackfillJobResult]:
    """The job of ``Table.backfill`` and ``Table.backfill_async``, its arguments checked."""
    check_argument("timeout", timeout, timedelta, type(None))
    column = _column_of(columns)
    if blob_read_strategy not in ("auto", "legacy", "range"):
        raise UsageError(f"blob_read_strategy must be auto, legacy or range, not {blob_read_strategy!r}")
    job = checked_job_id(job_id)
    reader = parts.lance.checked(kwargs.get("read_version"))
    target = fill_target(parts, reader, column, udf)
    run = parts.run_options(kwargs.get("executor"))
    options = backfill_options(
        target.udf,
        concurrency=concurrency,
        intra_applier_concurrency=intra_applier_concurrency,
        min_checkpoint_size=min_checkpoint_size,
        max_checkpoint_size=max_checkpoint_size,
        flush_seconds=batch_checkpoint_flush_interval_seconds,
        read_bytes=blob_read_buffer_size,
        run=run,
        more=kwargs,
    )
    selection = selection_of(reader, target, where, options.window, recompute_stale=options.recompute_stale)
    warn_of_mismatch(selection, target, where)
    if selection.fragments:
        admit(target.udf.name, TaskNeeds.of(target.udf), run, check=_admission_check, strict=_admission_strict)
    config = {"where": selection.where, "udf": repr(target.udf), "executor": run.executor, **kwargs}
    planned = _Planned(column, udf, where, reader, target, selection.fragments)

    def running() -> BackfillJobResult:
        with progress_shown(kwargs.get("progress"), f"{parts.name}.{column}", of_rows=True) as listener:
            rows = sum(choice.rows for choice in selection.fragments)
            steps = sum(choice.fragment.rows for choice in selection.fragments)
            shown = replace(options, run=rows_shown(replace(run, progress=listener), rows, steps))
            return _run(parts, job, planned, shown, config, is_saved=_enable_job_tracker_saves)

    return PreparedJob(job, [column], running, timeout, _return_future)


class _Planned(NamedTuple):
    """A requested backfill, and the fragments to compute."""

    column: str
    udf: UDF | None
    where: str | None
    reader: FragmentReader
    target: FunctionColumns
    selected: tuple[SelectedFragment, ...]


def _run(
    parts: TableParts,
    job: str,
    planned: _Planned,
    options: BackfillOptions,
    config: Mapping[str, Any],
    *,
    is_saved: bool,
) -> BackfillJobResult:
    """Run a backfill, and keep a record of it."""
    run = BackfillRun(
        parts.lance,
        job,
        options.batching,
        options.run,
        parts.workers(options.concurrency, options.run),
        options.task_size,
        options.granularity,
        planned.where,
        options.window,
        options.recompute_stale,
        jobs=parts.jobs,
    )
    launched, target = datetime.now(UTC), planned.target
    version = planned.reader.version
    with (
        kept(parts.jobs, job, "BACKFILL", planned.column, config, version, is_saved=is_saved) as counts,
        parts.lance.needing(version),
    ):
        run(
            planned.reader,
            target,
            planned.selected,
            lambda now: fill_target(parts, now, planned.column, planned.udf),
            counts,
        )
    result = UdfResult(
        target.udf.name, target.udf.version, counts.processed, sum(counts.skipped.values()), list(target.inputs)
    )
    columns = dict.fromkeys(target.columns, result)
    return BackfillJobResult(job, DONE, parts.name, launched, datetime.now(UTC), columns=columns)


def fill_target(parts: TableParts, reader: FragmentReader, column: str, udf: UDF | None) -> FunctionColumns:
    """The columns to be filled, and their function."""
    check_own(parts.lance, [column])
    schema = reader.schema
    if column not in schema.names:
        raise UsageError(f"Column {column} is not defined this table.  Use add_columns to register it first")
    definition = Definition.of(schema.field(column))
    if definition is None:
        raise UsageError(
            "Metadata is None, cannot find key virtual_column.udf", hint=f"{column!r} is not a computed column."
        )
    if udf is None:
        udf = resolve(definition, parts.modules)
    return target_of(schema, column, definition, udf)


def _column_of(columns: str | list[str]) -> str:
    check_argument("columns", columns, str, list, tuple)
    if isinstance(columns, str):
        return columns
    if not columns:
        raise UsageError("columns list cannot be empty; pass a column name string or a non-empty list.")
    if len(columns) > 1:
        raise UnsupportedCallError(
            "Multi-column backfill is not yet supported. Pass a single column name string.",
            hint="The columns of one function are computed together: give the name of one of them.",
        )
    return columns[0]


_KINDS: Final = ("vector", "fts", "hybrid", "auto")
_VECTOR_KINDS: Final = ("IVF_FLAT", "IVF_PQ", "IVF_HNSW_SQ", "IVF_HNSW_PQ")
_SCALAR_KINDS: Final = ("BTREE", "BITMAP", "LABEL_LIST")
_HEAP: Final = 1024 * 1024 * 1024


def table_query(
    parts: TableParts,
    /,
    query: Any = None,
    vector_column_name: str | None = None,
    query_type: Literal["vector", "fts", "hybrid", "auto"] = "auto",
    ordering_field_name: str | None = None,
    fts_columns: str | list[str] | None = None,
) -> TableQuery:
    """The query of ``Table.search``."""
    if query_type not in _KINDS:
        raise UsageError(f"query_type must be one of {', '.join(_KINDS)}, not {query_type!r}")
    if ordering_field_name is not None:
        raise UnsupportedCallError(f"ordering_field_name={ordering_field_name!r} is not supported")
    is_text = isinstance(query, str)
    kind: str = query_type
    if kind == "auto":
        kind = "fts" if is_text else "vector"
        if query is None:
            return TableQuery(parts.lance)
    if query is None and kind != "hybrid":
        raise UsageError(f"query_type={query_type!r} needs a query")
    if query is not None and kind in ("vector", "fts") and is_text != (kind == "fts"):
        raise UsageError(
            f"a query of query_type={kind!r} must be {'text' if kind == 'fts' else 'a vector'}, not {query!r}"
        )
    near = words = None
    if kind != "fts" and (query is None or not is_text or vector_column_name is not None):
        schema = parts.lance.newest().schema
        column = vector_column(schema, vector_column_name)
    if kind != "fts" and not is_text:
        near = None if query is None else NearRows(column, vector_of(query, column, schema.field(column).type))
    if kind != "vector":
        columns = word_columns(parts.lance.newest().schema, fts_columns) if fts_columns else ()
        words = RowsWithWords(query if isinstance(query, str) else "", columns) if is_text or columns else None
    return TableQuery(parts.lance, near=near, words=words, is_hybrid=kind == "hybrid", vector_name=vector_column_name)


def make_vector_index(
    parts: TableParts,
    /,
    metric: str = "L2",
    num_partitions: int | None = None,
    num_sub_vectors: int | None = None,
    vector_column_name: str = "vector",
    replace: bool = True,
    accelerator: Any = None,
    index_cache_size: int | None = None,
    *,
    index_type: Literal["IVF_FLAT", "IVF_PQ", "IVF_HNSW_SQ", "IVF_HNSW_PQ"] = "IVF_PQ",
    num_bits: int = 8,
    max_iterations: int = 50,
    sample_rate: int = 256,
    m: int = 20,
    ef_construction: int = 300,
) -> None:
    """Make the index of ``Table.create_index``."""
    if index_type not in _VECTOR_KINDS:
        raise UsageError(f"index_type must be one of {', '.join(_VECTOR_KINDS)}, not {index_type!r}")
    if not isinstance(metric, str) or metric.lower() not in METRICS:
        raise UsageError(f"metric must be one of {', '.join(METRICS)}, not {metric!r}")
    if index_cache_size is not None:
        raise UnsupportedCallError(f"index_cache_size={index_cache_size!r} is not supported by Lance any more")
    if isinstance(accelerator, str) and accelerator not in ("cuda", "mps"):
        raise UsageError(f"accelerator must be cuda or mps, not {accelerator!r}")
    if num_partitions is not None and num_partitions < 1:
        raise UsageError(f"num_partitions must be at least 1, not {num_partitions}")
    is_pq, is_hnsw = index_type.endswith("PQ"), "HNSW" in index_type
    for name, given, default, goes in (
        ("num_sub_vectors", num_sub_vectors, None, is_pq),
        ("num_bits", num_bits, 8, is_pq),
        ("m", m, 20, is_hnsw),
        ("ef_construction", ef_construction, 300, is_hnsw),
    ):
        if given != default and not goes:
            raise UsageError(f"{name}={given} is not an option of {index_type}")
    schema = parts.lance.newest().schema
    length = schema.field(vector_column(schema, vector_column_name)).type.list_size
    sub_vectors = num_sub_vectors or next(length // part for part in (16, 8, length) if length % part == 0)
    if is_pq and (sub_vectors < 1 or length % sub_vectors):
        raise UsageError(f"dimension ({length}) must be divisible by num_sub_vectors ({num_sub_vectors})")
    options: dict[str, Any] = {
        "metric": metric.lower(),
        "replace": replace,
        "num_partitions": num_partitions,
        "accelerator": accelerator,
        "max_iters": max_iterations,
        "sample_rate": sample_rate,
    }
    options |= {"num_sub_vectors": sub_vectors, "num_bits": num_bits} if is_pq else {}
    options |= {"m": m, "ef_construction": ef_construction} if is_hnsw else {}
    make_index(parts.lance, vector_column_name, index_type, options)


def make_word_indexes(
    parts: TableParts,
    /,
    field_names: str | list[str],
    *,
    ordering_field_names: str | list[str] | None = None,
    replace: bool = False,
    writer_heap_size: int | None = 1024 * 1024 * 1024,
    tokenizer_name: str | None = None,
    with_position: bool = True,
    base_tokenizer: Literal["simple", "raw", "whitespace"] = "simple",
    language: str = "English",
    max_token_length: int | None = 40,
    lower_case: bool = True,
    stem: bool = False,
    remove_stop_words: bool = False,
    ascii_folding: bool = False,
    **_kwargs: Any,
) -> None:
    """Make the indexes of ``Table.create_fts_index``."""
    for name, given, default in (
        ("ordering_field_names", ordering_field_names, None),
        ("writer_heap_size", writer_heap_size, _HEAP),
        ("tokenizer_name", tokenizer_name, None),
    ):
        if given != default and given is not None:
            hint = "Use base_tokenizer, language and stem." if name == "tokenizer_name" else None
            raise UnsupportedCallError(f"{name}={given!r} is not supported", hint=hint)
    if _kwargs:
        raise TypeError(f"create_fts_index() got an unexpected keyword argument {min(_kwargs)!r}")
    names = word_columns(parts.lance.newest().schema, field_names)
    if not names:
        raise UsageError("field_names names no column")
    options = {
        "replace": replace,
        "with_position": with_position,
        "base_tokenizer": base_tokenizer,
        "language": language,
        "max_token_length": max_token_length,
        "lower_case": lower_case,
        "stem": stem,
        "remove_stop_words": remove_stop_words,
        "ascii_folding": ascii_folding,
    }
    for name in names:
        make_index(parts.lance, name, "INVERTED", options)


def make_value_index(
    parts: TableParts,
    /,
    column: str,
    *,
    replace: bool = True,
    index_type: Literal["BTREE", "BITMAP", "LABEL_LIST"] = "BTREE",
) -> None:
    """Make the index of ``Table.create_scalar_index``."""
    if index_type not in _SCALAR_KINDS:
        raise UsageError(f"index_type must be one of {', '.join(_SCALAR_KINDS)}, not {index_type!r}")
    word_columns(parts.lance.newest().schema, column)
    make_index(parts.lance, column, index_type, {"replace": replace})
