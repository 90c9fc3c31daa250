"""A table with columns that functions compute: a Lance table, its rows and its columns."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, Concatenate, Final, Literal, ParamSpec, Self, TypeVar

import pyarrow as pa

from ..errors import UsageError
from ..lance import Gate, LanceTable, TableHistory, TableVersions, exact_array, rows_of
from ..locations import located
from ..storage import VersionPoint
from ..units import Moment, age_of_moment
from .adding import added, altered, dropped
from .computed_columns import (
    PreparedJob,
    TableParts,
    backfill_job,
    backfill_plan,
    make_value_index,
    make_vector_index,
    make_word_indexes,
    table_query,
)
from .curation import TableCuration
from .function import UDF, UnpackedUDF
from .jobs import BackfillJobResult, ErrorRecord, Job, JobFuture, JobRecord, JobTable
from .load import load_job
from .planning import BackfillPlan
from .refresh import RefreshJobResult, RefreshPlan, refresh_job, refresh_plan
from .search import TableQuery
from .upkeep import WEEK, CleanupStats, cleaned, cleaned_checkpoints, joined
from .view import check_own, check_rows, sources_of

_UNITS: Final = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}

Transforms = Mapping[str, "str | UDF | tuple[UDF, Sequence[str]]"] | UDF | UnpackedUDF


P = ParamSpec("P")
J = TypeVar("J")
R = TypeVar("R")


def arguments_of(
    prepare: Callable[Concatenate[TableParts, P], J], *, without: tuple[str, ...] = ()
) -> Callable[[Callable[[Table, J], R]], Callable[Concatenate[Table, P], R]]:
    """Give a method the parameters of a function, except some keywords. The method gets the function's result.

    So a parameter list is written once, and ``help`` and type checkers show it for each such method.
    """

    def decorated(method: Callable[[Table, J], R]) -> Callable[Concatenate[Table, P], R]:
        _, *parameters = inspect.signature(prepare).parameters.values()
        taken = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        taken += [parameter for parameter in parameters if parameter.name not in without]
        shown = inspect.Signature(taken, return_annotation=method.__annotations__["return"])

        @functools.wraps(method)
        def called(self: Table, /, *args: P.args, **kwargs: P.kwargs) -> R:
            if refused := [name for name in without if name in kwargs]:
                raise TypeError(f"{method.__qualname__}() got an unexpected keyword argument {refused[0]!r}")
            try:
                prepared = prepare(self._parts, *args, **kwargs)
            except TypeError:
                try:
                    shown.bind(self, *args, **kwargs)
                except TypeError as error:  # Python's message would name the inner function
                    raise TypeError(f"{method.__qualname__}() {error}") from None
                raise
            return method(self, prepared)

        called.__annotations__ = {parameter.name: parameter.annotation for parameter in taken[1:]} | {
            "return": shown.return_annotation
        }
        vars(called)["__signature__"] = shown
        return called

    return decorated


class Table(TableVersions, TableCuration):
    """A Lance table with computed columns, search and maintenance.

    Methods raise ``NotFoundError`` if there is no table, ``ReadError`` if it is damaged, ``WriteError`` if it cannot be
    written.

    Parameters
    ----------
    place
        A folder, or a URL of an object store.
    name
        The name of the table; by default the last part of ``place``, without ``.lance``.
    udf_modules
        The modules with functions that column definitions may name; by default those of ``CHUNKMILL_UDF_MODULES``.
    executor
        The executor of tasks; by default the same as for pipelines.
    allow
        Folders outside the table that may have files of the table and its blobs; see "Tables of others" in the docs.
        Files elsewhere raise a ``ForeignFileError``.
    version
        The number of a version to read instead of the newest. The table is then read-only: changes raise a
        ``ValueError``.
    """

    def __init__(
        self,
        place: str,
        name: str | None = None,
        *,
        udf_modules: Collection[str] = (),
        executor: str | None = None,
        allow: Collection[str] | Gate = (),
        version: int | None = None,
    ) -> None:
        location = located(place)
        self.name = name or location.name.removesuffix(".lance")
        self.uri = str(location)
        self._lance = LanceTable(location, self.name, Gate.of(allow), version)
        self._jobs = JobTable(self.uri, self.name)
        self._parts = TableParts(self._lance, self._jobs, udf_modules, executor)
        self._executor = executor

    def __repr__(self) -> str:
        return f"NativeTable({self.name}, {self.uri})"

    def at(self, version: VersionPoint | None = None) -> Self:
        """A version of the table, read-only: changes raise a ``ValueError``.

        Parameters
        ----------
        version
            A version number; a tag; or a time, for the version that was newest then: a datetime (by default in UTC), a
            ``numpy.datetime64``, or RFC 3339 text. By default the newest version.

        Raises
        ------
        NotFoundError
            The version or tag does not exist, or was removed.
        ValueError
            ``version`` has another type, or is a time in the future.
        """
        number = self._history().number(version)
        modules, executor, gate = self._parts.modules, self._parts.executor, self._lance.gate
        return type(self)(self.uri, self.name, udf_modules=modules, executor=executor, allow=gate, version=number)

    def _history(self) -> TableHistory:
        return TableHistory(self._lance)

    def _read_table(self) -> LanceTable:
        return self._lance

    # --- rows

    @property
    def schema(self) -> pa.Schema:
        """The columns, with the metadata of their fields."""
        return self._lance.at().schema

    @property
    def version(self) -> int:
        """The number of the newest version."""
        return self._lance.at().version

    def count_rows(self, filter: str | None = None) -> int:  # noqa: A002 (the page's name)
        """The number of rows, by default all, or of rows that match an SQL condition."""
        return self._lance.at().count_all(filter)

    def to_arrow(self) -> pa.Table:
        """All rows of the newest version."""
        snapshot = self._lance.snapshot()
        return pa.Table.from_batches(snapshot.batches(), snapshot.schema)

    def add(self, data: Any, mode: Literal["append", "overwrite"] = "append") -> None:
        """Add rows, in one commit. Missing columns are null; computed columns are null until the next backfill.

        Parameters
        ----------
        data
            A list of mappings; a pyarrow ``Table``, ``RecordBatch`` or ``RecordBatchReader``, or a list of batches; a
            DataFrame of pandas, Spark or DataFusion, or any Arrow stream.
        mode
            ``overwrite`` replaces all rows and columns; computed columns that the rows lack are removed.

        Raises
        ------
        TypeError
            ``data`` is not of these types.
        ValueError
            The table is a view, the mode does not exist, or values do not fit the type of their column.
        WriteError
            Columns are unknown, or have other types. Nothing was written.
        """
        if mode not in ("append", "overwrite"):
            raise UsageError(f"mode must be append or overwrite, not {mode!r}")
        check_rows(self._lance)
        try:
            rows = rows_of(_of_mappings(data, self.schema), {}, lambda: self.schema)
        except TypeError as error:
            raise TypeError(f"{ROWS}, not {type(data).__name__}") from error
        if rows is None or (rows.is_empty and mode == "append"):
            return
        if mode == "append":
            self._lance.append(rows)
        else:
            self._lance.overwrite(rows)

    def update(
        self,
        where: str | None = None,
        values: dict[str, Any] | None = None,
        *,
        values_sql: dict[str, str] | None = None,
    ) -> None:
        """Change columns in the rows that match an SQL condition, in one commit.

        Computed values of these rows stay unchanged: :meth:`plan_backfill` counts them as stale, and ``backfill(column,
        recompute_stale=True)`` computes them again.

        Parameters
        ----------
        where
            The rows; by default all.
        values
            The new values, by column.
        values_sql
            SQL for the new values, by column; it reads the old row.

        Raises
        ------
        ValueError
            A column is missing or is computed by a view, a value does not fit its column, the SQL is invalid, or not
            exactly one of ``values`` and ``values_sql`` is given.
        """
        if bool(values) == bool(values_sql):
            raise UsageError("update() takes either values or values_sql")
        check_own(self._lance, [*(values or ()), *(values_sql or ())])
        schema = self._lance.at().schema
        if unknown := [name for name in values_sql or () if name not in schema.names]:
            raise UsageError(f"there is no column {unknown[0]!r}", hint=f"There are: {', '.join(schema.names)}.")
        self._lance.set_values(values_sql or _assignments(schema, values or {}), where)

    def delete(self, where: str) -> None:
        """Remove the rows that match an SQL condition. Raises ``ValueError`` for a view."""
        check_rows(self._lance)
        self._lance.delete(where)

    # --- columns

    def add_columns(self, transforms: Transforms, *args: Any, **kwargs: Any) -> None:
        """Add columns. SQL columns are computed at once; columns of functions are null until :meth:`backfill`.

        Parameters
        ----------
        transforms
            ``{"name": "SQL over the other columns"}``; ``{"name": udf}``, called with the columns named like its
            parameters; ``{"name": (udf, ["a", "b"])}``, called with these columns, by position; or several in one
            mapping, in that order. A ``udf`` that returns ``Columns[T]``, passed without a name, adds a column for each
            field of ``T``; ``UnpackedUDF(udf, prefix="img_")`` adds a prefix.

        Raises
        ------
        ValueError
            A column exists already; an input does not exist or is of another type; or the form does not suit the
            function.
        TypeError
            ``transforms`` has another type.
        """
        if args or kwargs:
            raise TypeError("add_columns() takes the columns as one argument")
        for name, udf in added(self._lance, transforms):
            if udf.auto_backfill:
                self.backfill(name, udf=udf)

    def alter_columns(self, *alterations: Mapping[str, Any]) -> None:
        """Change columns. A computed column that gets another function keeps its values until the next backfill.

        Parameters
        ----------
        *alterations
            ``{"path": column, "udf": udf}``, with ``"input_columns"`` if the inputs are not named like its parameters;
            ``{"path": column, "rename": …}``, ``"nullable"`` and ``"data_type"`` as in Lance.

        Raises ``ValueError`` for columns that do not exist, or are computed together with others.
        """
        of_lance = (alteration for alteration in alterations if not {"udf", "virtual_column"} & set(alteration))
        check_own(
            self._lance, [str(alteration.get("path")) for alteration in of_lance if isinstance(alteration, Mapping)]
        )
        altered(self._lance, alterations, sources_of(self._lance))

    def drop_columns(self, columns: Sequence[str]) -> None:
        """Remove columns. Raises ``ValueError`` if ``columns`` has only some of the columns of a function."""
        check_own(self._lance, columns)
        dropped(self._lance, columns)

    # --- jobs

    @arguments_of(backfill_plan)
    def plan_backfill(self, plan: BackfillPlan) -> BackfillPlan:
        """Return the plan of a :meth:`backfill` with the same arguments, without Spark.

        If ``where`` selects only some rows, this process reads its columns to count them.
        """
        return plan

    @arguments_of(backfill_job, without=("_return_future",))
    def backfill(self, job: PreparedJob[BackfillJobResult]) -> BackfillJobResult:
        """Compute the missing values of a column, and wait for the end.

        Guarantee: a row has its new value or the previous one. Commits are permanent, and checkpoints keep uncommitted
        values for the next run. Rows written meanwhile stay null.

        Parameters
        ----------
        columns
            The column, or a list with one column. All columns of its function are computed.
        udf
            A function to use instead of the one in the column's definition. If its parameters are not named like
            columns, it gets the inputs of the column.
        where
            An SQL condition on the rows; ``"1=1"`` selects all. By default, rows without a value, and fragments whose
            values are from another version of the function or from outdated inputs.
        concurrency
            The maximum number of tasks of the job; the session runs as many at once as it has cores.
        intra_applier_concurrency, task_shuffle_diversity
            Ignored with a warning: they have no meaning on Spark.
        _admission_check, _admission_strict
            Whether to compare the function's cores, GPUs and memory with the session before the start (default:
            ``CHUNKMILL_ADMISSION_CHECK``, or true), and whether a shortage is an error instead of a warning
            (``CHUNKMILL_ADMISSION_STRICT``).
        refresh_status_secs
            Ignored: progress is drawn continuously.
        timeout
            How long to wait.
        min_checkpoint_size, max_checkpoint_size, checkpoint_size, batch_size
            Rows per batch: the minimum, the maximum, and the number in the first; later batches take about 10 s.
            ``checkpoint_size`` is the default of ``max_checkpoint_size``. ``batch_size`` is its older name; 0 means all
            rows of one read.
        batch_checkpoint_flush_interval_seconds
            The most work, in seconds, that is lost if the process is killed: 5 by default; 0 stores every batch at
            once.
        blob_read_strategy
            ``auto``, ``range`` or ``legacy``: all three read blobs in ranges, with the other columns.
        blob_read_buffer_size
            The bytes of one read: 4 MiB by default, 32 MiB with a ``checkpoint_size``.
        _enable_job_tracker_saves
            Whether to record the job in the table's folder.
        job_id
            The id of the job; by default a new one.
        commit_granularity
            The number of fragments per commit: by default 64, or a twentieth of all if that is more. None: one commit.
        read_version
            The version to read.
        task_size
            Rows of a task.
        num_frags, skip_frags
            The number of fragments to process, and of fragments to skip before them.
        recompute_stale
            Also compute rows that were updated after their computation; by default they keep their values.
        executor, progress
            As for pipelines.

        Raises
        ------
        ValueError
            The column does not exist or has no function, or ``where`` is not a condition.
        JobFailedError
            The function failed, and no policy skips the error. It is a ``RuntimeError``, caused by the function's
            error.
        TimeoutError
            The job is not done after ``timeout``. It continues.
        """
        if job.timeout is None:
            return job.run()  # in this thread, where Ctrl-C reaches the function
        return job.future.waited(job.timeout.total_seconds(), f"backfill({job.columns[0]})")

    @arguments_of(backfill_job, without=("refresh_status_secs", "timeout"))
    def backfill_async(
        self, job: PreparedJob[BackfillJobResult]
    ) -> JobFuture[BackfillJobResult] | Job[BackfillJobResult]:
        """Run :meth:`backfill` in the background; its result raises the errors.

        The process does not end before the job does. ``_return_future`` returns only the future.
        """
        return job.future if job.is_future_alone else Job(self.name, list(job.columns), job.future)

    @arguments_of(load_job)
    def load_columns(self, job: PreparedJob[str]) -> str:
        """Fill columns from files or another table, joined by a primary key. Wait, and return the job's id.

        Missing columns are added. Every row whose key is in the source gets the source's value, even if it is null.

        Parameters
        ----------
        source
            A file, a folder of files, a Lance table, or a list of files.
        pk
            The key column, which has the same type in the table and in the source.
        columns
            The columns of the source to load.
        source_format
            ``parquet``, ``lance`` or ``ipc``; by default derived from the suffixes of the names.
        on_missing
            For rows that the source lacks: ``carry`` keeps them, ``null`` sets null, ``error`` loads nothing.
        checkpoint_interval_seconds
            The target time of a batch in seconds, 60 by default.
        _loader_cpus, _loader_memory
            Resources of a task, compared with those of the session as for functions.
        concurrency, task_size, checkpoint_size, min_checkpoint_size, max_checkpoint_size, commit_granularity
            As in :meth:`backfill`.
        refresh_status_secs, enable_job_tracker_saves, job_id
            As in :meth:`backfill`.

        Raises
        ------
        ValueError
            Columns or the key do not exist, or have other types than the table's; the source has a key twice; or the
            source lacks a row, with ``on_missing="error"``.
        ReadError
            The source cannot be read.
        """
        return job.future.waited(None, f"load_columns({', '.join(job.columns)})")

    @arguments_of(load_job, without=("refresh_status_secs",))
    def load_columns_async(self, job: PreparedJob[str]) -> JobFuture[str]:
        """Run :meth:`load_columns` in the background; its result raises the errors.

        Invalid arguments raise at once.
        """
        return job.future

    @arguments_of(refresh_plan)
    def plan_refresh(self, plan: RefreshPlan) -> RefreshPlan:
        """Return the plan of a :meth:`refresh`, exact to the row, without Spark."""
        return plan

    @arguments_of(refresh_job)
    def refresh(self, job: PreparedJob[RefreshJobResult]) -> RefreshJobResult:
        """Update the view to a version of its source, and wait.

        Rows whose source row is gone or no longer matches are removed; changed and new rows are computed. After a
        change of a function, all rows are computed again.

        Guarantee: a refresh is one commit. An interrupted refresh changes nothing, and the next one continues from its
        checkpoints. If two refreshes run at once, even on two hosts, the second waits for the first, and then does the
        remaining work. A refresh without a sign of life for half a minute counts as dead, which is logged; its commit
        is then refused.

        Parameters
        ----------
        where
            Not supported.
        src_version
            The version of the source; by default the newest. It may be older than the view's present version of the
            source.
        max_rows_per_fragment
            Rows of a new fragment of the view; by default a million.
        concurrency
            The maximum number of tasks of the job; the session runs as many at once as it has cores.
        intra_applier_concurrency
            Ignored with a warning: it has no meaning on Spark.
        _admission_check, _admission_strict
            As in :meth:`~.table.Table.backfill`.
        **kwargs
            ``min_checkpoint_size``, ``max_checkpoint_size``, ``checkpoint_size``, ``task_size``,
            ``batch_checkpoint_flush_interval_seconds``, ``job_id``, ``executor`` and ``progress``, as in
            :meth:`~.table.Table.backfill`. ``task_shuffle_diversity`` is ignored with a warning.

        Raises
        ------
        ValueError
            The table is not a view.
        RuntimeError
            The source has no stable row ids, and ``src_version`` is not the source version of the view's rows.
        JobFailedError
            A function failed, and no policy skips the error. It is a ``RuntimeError``, caused by the function's error.
        """
        return job.run()  # in this thread, where Ctrl-C reaches the function

    @arguments_of(refresh_job)
    def refresh_async(self, job: PreparedJob[RefreshJobResult]) -> Job[RefreshJobResult]:
        """Run :meth:`refresh` in the background; its result raises the errors.

        The process does not end before the job does.
        """
        return Job(self.name, [], job.future)

    def jobs(self) -> list[JobRecord]:
        """The past and running jobs of the table, oldest first."""
        return self._jobs.all()

    def get_errors(
        self, job_id: str | None = None, column_name: str | None = None, error_type: str | None = None
    ) -> list[ErrorRecord]:
        """The rows and batches for which a function failed; select them by job, column, or exception name."""
        return self._jobs.errors(job_id, column_name, error_type)

    def get_failed_row_addresses(self, job_id: str, column_name: str) -> list[int]:
        """The addresses of the rows for which a column's function failed in a job.

        They exclude the row whose exception ended the job: ``error_trace`` of :meth:`get_errors` names it, if known.
        Until the table is compacted, ``backfill(column, where=f"_rowaddr IN ({addresses})")`` computes them again.
        """
        addresses = {record.row_address for record in self.get_errors(job_id, column_name)}
        return sorted(address for address in addresses if address is not None)

    # --- search

    @arguments_of(table_query)
    def search(self, query: TableQuery) -> TableQuery:
        """A query for rows of the table, which runs on use; see :class:`~.search.TableQuery`.

        It also finds rows that no index covers.

        Parameters
        ----------
        query
            None: all rows, in the table's order. Numbers, in a list or an array: the rows with the nearest vectors,
            with ``_distance``. Text: the rows that contain its words, with ``_score``.
        vector_column_name
            The column of vectors; by default the only one.
        query_type
            ``vector`` or ``fts`` for the type of ``query``. ``hybrid`` uses both: set the missing one by ``.vector(…)``
            or ``.text(…)``. The rows have ``_relevance_score``.
        ordering_field_name
            Not supported.
        fts_columns
            The columns to search for words; by default those with an index of words.

        Raises
        ------
        ValueError
            The column does not exist, or ``query`` has another length or does not fit ``query_type``.
        """
        return query

    @arguments_of(make_vector_index)
    def create_index(self, made: None) -> None:
        """Index the vectors of a column, for :meth:`search`. The defaults suit tables of any size.

        Rows that you add later are also found, without the index; :meth:`optimize` adds them to it.

        Parameters
        ----------
        metric
            ``L2``, ``cosine`` or ``dot``; for vectors of bytes with IVF_FLAT, ``hamming``.
        num_partitions
            The number of partitions; by default Lance derives it from the number of rows.
        num_sub_vectors
            For PQ: the bytes of a compressed vector, a divisor of the vectors' dimension; by default a sixteenth or an
            eighth of the dimension, or 1.
        replace
            Whether to replace an existing index. Otherwise an existing index is an error.
        accelerator
            ``cuda`` or ``mps`` for training; needs torch.
        index_cache_size
            Not supported.
        num_bits
            For PQ: 8 or 4.
        max_iterations, sample_rate
            For training: the maximum number of rounds, and the number of vectors per partition.
        m, ef_construction
            For HNSW: the number of edges of a node, and of candidates for these.

        Raises
        ------
        ValueError
            An argument does not fit the column or another argument. The message names it.
        """

    @arguments_of(make_word_indexes)
    def create_fts_index(self, made: None) -> None:
        """Index the words in columns of text or of lists of text, for :meth:`search`: one index per column.

        Parameters
        ----------
        field_names
            The columns.
        replace
            Whether to replace an existing index. Otherwise an existing index is an error.
        with_position
            Whether to store the positions of words, which phrase searches need.
        base_tokenizer
            How texts are split: ``simple`` (at everything except letters and digits), ``whitespace``, or ``raw`` (not
            split).
        language, stem, remove_stop_words
            The language; whether to reduce words to their stems; and whether to skip frequent words.
        max_token_length
            The longest words to index; None: all.
        lower_case, ascii_folding
            Whether to ignore case, and accents.
        ordering_field_names, writer_heap_size, tokenizer_name
            Not supported, except with their defaults.

        Raises
        ------
        ValueError
            An argument does not fit a column. The message names it.
        """

    @arguments_of(make_value_index)
    def create_scalar_index(self, made: None) -> None:
        """Index a column's values to speed up conditions: BTREE, BITMAP (few distinct values), or LABEL_LIST (lists).

        Raises
        ------
        ValueError
            An argument does not fit the column, or the index exists and ``replace`` is false.
        """

    # --- upkeep

    def optimize(self, *, cleanup_older_than: Moment | None = None, delete_unverified: bool = False) -> CleanupStats:
        """Join small fragments, add all rows to the indexes, and return the result of :meth:`cleanup_old_versions`.

        Other processes may write meanwhile. Up to 64 fragments with stale values are joined only with each other, so
        that stale values remain identifiable. Raises ``ValueError`` for an invalid age, and a transient ``WriteError``
        if other writers keep changing the table.
        """
        if cleanup_older_than is not None:
            cleanup_older_than = age_of_moment("cleanup_older_than", cleanup_older_than)
        joined(self._lance)
        return self.cleanup_old_versions(cleanup_older_than, delete_unverified=delete_unverified)

    def cleanup_old_versions(
        self, older_than: Moment | None = None, *, delete_unverified: bool = False
    ) -> CleanupStats:
        """Remove old versions without a tag, and the data that only they need. Return the removed bytes and versions.

        Unused checkpoints and files of columns are removed, too. A running job keeps its version and later ones, its
        checkpoints and its files; a job on another host counts as ended after an hour of silence.

        Parameters
        ----------
        older_than
            The age as a timedelta, by default a week; or the time before which versions are old: a datetime (by default
            in UTC), ISO text, or nanoseconds since 1970. Readers of removed versions fail.
        delete_unverified
            Also remove uncommitted files, which otherwise stay for a week. Writers that try to commit them later will
            fail. While a job runs, these files stay, with a warning.
        """
        age = WEEK if older_than is None else max(age_of_moment("older_than", older_than), timedelta())
        return cleaned(self._lance, self._jobs, age, delete_unverified=delete_unverified)

    def cleanup_checkpoints(self) -> dict[str, int]:
        """Remove checkpoints that no run would use; return how many were of rows, and how many of whole fragments."""
        return cleaned_checkpoints(self._lance, self._jobs)


ROWS: Final = "rows must be a list of mappings, Arrow data, or a DataFrame"
"""The message for data that has no rows."""


NativeTable = Table
"""A table in a folder or an object store."""


def _of_mappings(data: Any, schema: pa.Schema) -> Any:
    """Convert a list of mappings to a table with the columns' types. Other data stays unchanged."""
    if not isinstance(data, (list, tuple)) or not data or not all(isinstance(row, Mapping) for row in data):
        return data
    names = dict.fromkeys(name for row in data for name in row)
    if unknown := [name for name in names if name not in schema.names]:
        raise UsageError(f"there is no column {unknown[0]!r}", hint=f"There are: {', '.join(schema.names)}.")
    try:
        return pa.table(
            [exact_array([row.get(name) for row in data], schema.field(name).type) for name in names], list(names)
        )
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"rows do not fit the columns of the table: {error}") from None


def _assignments(schema: pa.Schema, values: Mapping[str, Any]) -> dict[str, str]:
    """Return SQL for values, by column.

    Raises ``UsageError`` for a missing column, a value that does not fit its type, and a type that SQL cannot express.
    """
    texts = {}
    for name, value in values.items():
        if name not in schema.names:
            raise UsageError(f"there is no column {name!r}", hint=f"There are: {', '.join(schema.names)}.")
        type_ = schema.field(name).type
        try:
            scalar = exact_array([value], type_)[0]
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise UsageError(f"{value!r} is not a value of the column {name!r} of type {type_}: {error}") from None
        text = literal(scalar)
        if text is None:
            raise UsageError(
                f"SQL cannot express a value of type {type_}, for column {name!r}",
                hint="Give the value in SQL, as values_sql=.",
            )
        texts[name] = text
    return texts


def literal(scalar: pa.Scalar) -> str | None:
    """Return a value as SQL that Lance reads back without loss, or None if its type has no such SQL.

    >>> literal(pa.scalar("it's")), literal(pa.scalar([1, None])), literal(pa.scalar(b"ab"))
    ("'it''s'", 'make_array(1, NULL)', "X'6162'")
    """
    type_ = scalar.type
    if not scalar.is_valid:
        return "NULL"
    if pa.types.is_boolean(type_) or pa.types.is_integer(type_):
        return str(scalar.as_py()).lower()
    if pa.types.is_floating(type_):
        return _number(float(scalar.as_py()))
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return _text(scalar.as_py())
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return f"X'{scalar.as_py().hex()}'"
    if pa.types.is_decimal128(type_):
        return _cast(_text(str(scalar.as_py())), f"Decimal128({type_.precision}, {type_.scale})")
    if pa.types.is_temporal(type_):
        return _of_time(scalar)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        items = [literal(item) for item in scalar.values]
        return None if None in items else f"make_array({', '.join(map(str, items))})"
    if pa.types.is_struct(type_):
        parts = [(_text(field.name), literal(scalar[field.name])) for field in type_]
        return None if None in dict(parts).values() else f"named_struct({', '.join(f'{a}, {b}' for a, b in parts)})"
    return None


def _of_time(scalar: pa.Scalar) -> str | None:
    type_ = scalar.type
    if pa.types.is_date32(type_):
        return _cast(str(scalar.value), "Date32")
    if pa.types.is_timestamp(type_):
        zone = "None" if type_.tz is None else f'Some("{type_.tz}")'
        return _cast(str(scalar.value), f"Timestamp({_UNITS[type_.unit]}, {zone})")
    if pa.types.is_duration(type_):
        return _cast(str(scalar.value), f"Duration({_UNITS[type_.unit]})")
    if pa.types.is_time(type_):
        return _cast(str(scalar.value), f"Time{type_.bit_width}({_UNITS[type_.unit]})")
    return None


def _text(value: str) -> str:
    quoted = value.replace("'", "''")
    return f"'{quoted}'"


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else f"CAST('{value}' AS DOUBLE)"


def _cast(value: str, type_: str) -> str:
    return f"arrow_cast({value}, {_text(type_)})"
