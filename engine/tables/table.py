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
    """Give a method the arguments of a function, except some keywords; the method gets the function's result for them.

    So an argument list is written once, and ``help`` and type checkers show it for each such method.
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
                except TypeError as error:  # Python's message names the function
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
    """The Lance table at a place, whose columns may be computed by functions.

    Raises ``NotFoundError`` if there is no table, ``ReadError`` if it is damaged, ``WriteError`` if it cannot
    be written, each when it is found.

    Parameters
    ----------
    place
        A folder, or a URL of an object store.
    name
        What it is called; by default the last part of its place, without ``.lance``.
    udf_modules
        The modules whose functions may be used because a column's definition names them; by default those of
        ``CHUNKMILL_UDF_MODULES``.
    executor
        Who runs tasks; by default as for pipelines.
    allow
        Folders, beside the table's own, in which its files and those that its blobs name may be; see "Tables of others"
        in the docs. A table with others is a ``ForeignFileError``.
    version
        The number of a version that is read in the place of the newest. It stays as it is: what would change the table
        is a ``ValueError``.
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
        """The table as of a version, for reading: what would change it is a ``ValueError``.

        Parameters
        ----------
        version
            The number of a version; a tag; or a time, whose newest version is meant: a datetime (in UTC where it has no
            zone), a ``numpy.datetime64``, or RFC 3339 text. By default the newest one.

        Raises
        ------
        NotFoundError
            There is no such version or tag, or the version of a time was removed.
        ValueError
            It is none of these, or a time to come.
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
        """The columns, with what the metadata of their fields say."""
        return self._lance.at().schema

    @property
    def version(self) -> int:
        """The number of the newest version."""
        return self._lance.at().version

    def count_rows(self, filter: str | None = None) -> int:  # noqa: A002 (the page's name)
        """The number of rows, of those in which an SQL condition is true."""
        return self._lance.at().count_all(filter)

    def to_arrow(self) -> pa.Table:
        """All rows of the newest version."""
        snapshot = self._lance.snapshot()
        return pa.Table.from_batches(snapshot.batches(), snapshot.schema)

    def add(self, data: Any, mode: Literal["append", "overwrite"] = "append") -> None:
        """Add rows, in one commit; columns that they lack are null, computed ones until the next backfill.

        Parameters
        ----------
        data
            A list of mappings; a pyarrow ``Table``, ``RecordBatch`` or ``RecordBatchReader``, or a list of batches; a
            DataFrame of pandas, Spark or DataFusion, or what else gives an Arrow stream.
        mode
            ``overwrite`` puts them in the place of all rows that there are. They bring their columns along, and
            computed ones that they lack are gone then.

        Raises
        ------
        TypeError
            ``data`` is nothing that has rows.
        ValueError
            The table is a view, there is no such mode, or values don't go with the type of their column.
        WriteError
            Columns are not the table's, or have other types. Nothing was written.
        """
        if mode not in ("append", "overwrite"):
            raise UsageError(f"mode is append or overwrite, not {mode!r}")
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
        """Change columns in the rows in which an SQL condition is true, in one commit.

        Computed values of these rows stay as they are: :meth:`plan_backfill` counts them as stale, and
        ``backfill(column, recompute_stale=True)`` computes them again.

        Parameters
        ----------
        where
            The rows; by default all.
        values
            The new values, by their columns.
        values_sql
            SQL over the columns of the row as it was, by the columns that get what it gives.

        Raises
        ------
        ValueError
            A column is missing or is computed by a view, a value does not fit its column, the SQL is invalid, or
            neither or both of ``values`` and ``values_sql`` are given.
        """
        if bool(values) == bool(values_sql):
            raise UsageError("update() takes either values or values_sql")
        check_own(self._lance, [*(values or ()), *(values_sql or ())])
        schema = self._lance.at().schema
        if unknown := [name for name in values_sql or () if name not in schema.names]:
            raise UsageError(f"there is no column {unknown[0]!r}", hint=f"There are: {', '.join(schema.names)}.")
        self._lance.set_values(values_sql or _assignments(schema, values or {}), where)

    def delete(self, where: str) -> None:
        """Remove the rows in which an SQL condition is true. Raises ``ValueError`` for a view."""
        check_rows(self._lance)
        self._lance.delete(where)

    # --- columns

    def add_columns(self, transforms: Transforms, *args: Any, **kwargs: Any) -> None:
        """Add columns: by SQL, whose values are there at once, or by functions, null until :meth:`backfill`.

        Parameters
        ----------
        transforms
            ``{"name": "SQL over the other columns"}``; ``{"name": udf}``, called with the columns of its parameters'
            names; ``{"name": (udf, ["a", "b"])}``, called with these, by position; several in one mapping, in that
            order. A ``udf`` that returns ``Columns[T]`` by itself adds a column for each field of ``T``, and
            ``UnpackedUDF(udf, prefix="img_")`` does with a prefix.

        Raises
        ------
        ValueError
            A column exists, an input does not, or is of a type that the function does not take; or a function is given
            in a form that is not its own.
        TypeError
            ``transforms`` is none of these.
        """
        if args or kwargs:
            raise TypeError("add_columns() takes the columns as one argument")
        for name, udf in added(self._lance, transforms):
            if udf.auto_backfill:
                self.backfill(name, udf=udf)

    def alter_columns(self, *alterations: Mapping[str, Any]) -> None:
        """Change columns: another function for computed ones, whose values stay until the next backfill.

        Parameters
        ----------
        *alterations
            ``{"path": column, "udf": udf}``, with ``"input_columns"`` where they have other names than its parameters;
            ``{"path": column, "rename": …}``, ``"nullable"`` and ``"data_type"`` as Lance takes them.

        Raises ``ValueError`` for columns that are not there, or are computed together with others.
        """
        of_lance = (alteration for alteration in alterations if not {"udf", "virtual_column"} & set(alteration))
        check_own(
            self._lance, [str(alteration.get("path")) for alteration in of_lance if isinstance(alteration, Mapping)]
        )
        altered(self._lance, alterations, sources_of(self._lance))

    def drop_columns(self, columns: Sequence[str]) -> None:
        """Take columns away. Those that one function computes go together; else it is a ``ValueError``."""
        check_own(self._lance, columns)
        dropped(self._lance, columns)

    # --- jobs

    @arguments_of(backfill_plan)
    def plan_backfill(self, plan: BackfillPlan) -> BackfillPlan:
        """The plan of what :meth:`backfill` would do, found without Spark; the arguments are its own.

        Counting the rows of a selective ``where`` reads its columns, in this process.
        """
        return plan

    @arguments_of(backfill_job, without=("_return_future",))
    def backfill(self, job: PreparedJob[BackfillJobResult]) -> BackfillJobResult:
        """Compute a column where it has no value, and wait for it.

        Guarantee: a row's value is the function's, or it is as it was; what a commit has brought is there for good, and
        what was computed and not committed is kept as checkpoints, for the next run. Rows that are written meanwhile
        stay null.

        Parameters
        ----------
        columns
            The column, or a list of one. Of those that one function gives, any stands for all.
        udf
            A function in the place of the one that the column's definition names. Where its parameters are not called
            as columns are, it is called with the inputs of the column.
        where
            An SQL condition on the rows. By default those without a value; and all rows of a fragment whose values are
            of another version of the function, or of inputs that were computed anew since. ``"1=1"`` is all.
        concurrency
            The most tasks for which the work is cut; as many run at once as the session has cores.
        intra_applier_concurrency, task_shuffle_diversity
            Mean nothing on Spark, and are ignored with a warning.
        _admission_check, _admission_strict
            Whether what the function wants, of cores, GPUs and memory, is compared with the session before the start
            (by default, or as ``CHUNKMILL_ADMISSION_CHECK`` says), and whether too little is an error
            (``CHUNKMILL_ADMISSION_STRICT``), not a warning.
        refresh_status_secs
            Nothing: progress is drawn as it comes.
        timeout
            How long to wait.
        min_checkpoint_size, max_checkpoint_size, checkpoint_size, batch_size
            Rows that the function gets at once: the fewest, the most, and the first time; then as many as take 10 s.
            ``checkpoint_size`` without ``max_checkpoint_size`` is the most, too. ``batch_size`` is its older name; 0
            means all rows that are read at once.
        batch_checkpoint_flush_interval_seconds
            Seconds of work that a kill may cost, 5 by default; 0 keeps every batch as soon as it is done.
        blob_read_strategy
            ``auto`` and ``range`` read blobs in ranges, with the other columns; ``legacy`` does the same.
        blob_read_buffer_size
            Bytes that are read at once, of blobs and of everything else: 4 MiB by default, 32 MiB with a
            ``checkpoint_size``.
        _enable_job_tracker_saves
            Whether the job is kept in the table's folder.
        job_id
            The id of the job; by default a new one.
        commit_granularity
            Fragments of a commit: by default 64, or one in twenty where there are more; None: one commit.
        read_version
            The version that is read.
        task_size
            Rows of a task.
        num_frags, skip_frags
            How many fragments are looked at, and how many before them are not.
        recompute_stale
            Compute rows again, too, that were updated after they were computed; by default they keep their values.
        executor, progress
            As pipelines take them.

        Raises
        ------
        ValueError
            There is no such column, or it is not a function's; ``where`` is no condition.
        JobFailedError
            The function failed, and its policy does not let that pass. A ``RuntimeError``, caused by what it raised.
        TimeoutError
            It is not done in time. It goes on.
        """
        if job.timeout is None:
            return job.run()  # in this thread, where Ctrl-C reaches the function
        return job.future.waited(job.timeout.total_seconds(), f"backfill({job.columns[0]})")

    @arguments_of(backfill_job, without=("refresh_status_secs", "timeout"))
    def backfill_async(
        self, job: PreparedJob[BackfillJobResult]
    ) -> JobFuture[BackfillJobResult] | Job[BackfillJobResult]:
        """Compute a column in the background; takes and raises what :meth:`backfill` does, the latter by its result.

        The process does not end before the job does. ``_return_future`` gives the future alone.
        """
        return job.future if job.is_future_alone else Job(self.name, list(job.columns), job.future)

    @arguments_of(load_job)
    def load_columns(self, job: PreparedJob[str]) -> str:
        """Fill columns from files or another table, by a primary key; wait for it, and return the job's id.

        Columns that the table lacks are added. A row whose key the source has gets the source's value, also where that
        is null; several rows with one key each get it.

        Parameters
        ----------
        source
            A file, a folder of files, a Lance table, or a list of files.
        pk
            The key, in both, of one type.
        columns
            The columns of the source to load.
        source_format
            ``parquet``, ``lance`` or ``ipc``; by default what names end with.
        on_missing
            What becomes of rows that the source lacks: ``carry``, they stay as they are; ``null``; or ``error``: then
            nothing is loaded.
        checkpoint_interval_seconds
            Seconds that a batch is to take, 60 by default.
        _loader_cpus, _loader_memory
            What a task wants, compared with the session as for functions.
        concurrency, task_size, checkpoint_size, min_checkpoint_size, max_checkpoint_size, commit_granularity
            As :meth:`backfill` takes them.
        refresh_status_secs, enable_job_tracker_saves, job_id
            Likewise.

        Raises
        ------
        ValueError
            Columns or the key are not there, or of other types than the table's; keys are there twice; the source lacks
            a row, with ``on_missing="error"``.
        ReadError
            The source cannot be read.
        """
        return job.future.waited(None, f"load_columns({', '.join(job.columns)})")

    @arguments_of(load_job, without=("refresh_status_secs",))
    def load_columns_async(self, job: PreparedJob[str]) -> JobFuture[str]:
        """Fill columns in the background; takes and raises what :meth:`load_columns` does, the latter by its result.

        What is wrong with the arguments is raised at once.
        """
        return job.future

    @arguments_of(refresh_plan)
    def plan_refresh(self, plan: RefreshPlan) -> RefreshPlan:
        """The plan of what :meth:`refresh` would do, to the row, found without Spark."""
        return plan

    @arguments_of(refresh_job)
    def refresh(self, job: PreparedJob[RefreshJobResult]) -> RefreshJobResult:
        """Bring the view to a version of its source, and wait for it.

        Rows whose row of the source is gone, or is no longer asked for, go; those whose row changed are computed anew;
        those of new rows are added. A change of a function of the view has all rows computed anew.

        Guarantee: all of that is one commit: a reader sees the view as it was before, or as it is then. A refresh that
        is cut has done nothing, and the next one goes on with what was computed. Of two at once, also on two hosts,
        the second waits for the first, and then does what is left. One of which nothing is heard for half a minute, as
        it is on another host or is stopped, is taken for dead, which is logged; should it live, its commit does not go
        on top of this one's.

        Parameters
        ----------
        where
            Nothing: a refresh of some rows is not offered.
        src_version
            The version of the source; by default the newest. It may be older than that of which the view is.
        max_rows_per_fragment
            Rows of a new fragment of the view; by default a million.
        concurrency
            The most tasks for which the work is cut; as many run at once as the session has cores.
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
            The table is no view.
        RuntimeError
            The rows of the source have no ids that last, and the version is not that of which the view was made.
        JobFailedError
            A function failed, and its policy does not let that pass. A ``RuntimeError``, caused by what it raised.
        """
        return job.run()  # in this thread, where Ctrl-C reaches the function

    @arguments_of(refresh_job)
    def refresh_async(self, job: PreparedJob[RefreshJobResult]) -> Job[RefreshJobResult]:
        """Refresh the view in the background; takes and raises what :meth:`refresh` does, the latter by its result.

        The process does not end before the job does.
        """
        return Job(self.name, [], job.future)

    def jobs(self) -> list[JobRecord]:
        """The jobs that ran on the table, or run, the oldest first."""
        return self._jobs.all()

    def get_errors(
        self, job_id: str | None = None, column_name: str | None = None, error_type: str | None = None
    ) -> list[ErrorRecord]:
        """The rows and batches for which a function failed: in a job, of a column, with an exception of this name."""
        return self._jobs.errors(job_id, column_name, error_type)

    def get_failed_row_addresses(self, job_id: str, column_name: str) -> list[int]:
        """The addresses of the rows of a column that failed in a job.

        ``backfill(column, where=f"_rowaddr IN ({addresses})")`` tries them again, until the table is compacted.
        """
        addresses = {record.row_address for record in self.get_errors(job_id, column_name)}
        return sorted(address for address in addresses if address is not None)

    # --- search

    @arguments_of(table_query)
    def search(self, query: TableQuery) -> TableQuery:
        """A question for rows of the table, which is asked when its answer is wanted; see :class:`~.search.TableQuery`.

        Rows that no index covers are found, too.

        Parameters
        ----------
        query
            None: all rows, in the table's order. Numbers, in a list or an array: the rows whose vectors are nearest,
            with ``_distance``. Text: the rows that have words of it, with ``_score``.
        vector_column_name
            The column of vectors; by default the only one.
        query_type
            ``vector`` or ``fts`` for what ``query`` is to be. ``hybrid`` is both: ``query`` is one of them, and
            ``.vector(…)`` or ``.text(…)`` of the result gives the other; rows are ranked by both, and have
            ``_relevance_score``.
        ordering_field_name
            Is of another engine, and refused.
        fts_columns
            The columns in which words are looked for; by default those with an index of words.

        Raises
        ------
        ValueError
            There is no such column, ``query`` is no vector of its length, or does not go with ``query_type``.
        """
        return query

    @arguments_of(make_vector_index)
    def create_index(self, made: None) -> None:
        """Index the vectors of a column, for :meth:`search`; by default as suits few rows and short vectors, too.

        Rows that are added later are found without it, and taken in by :meth:`optimize`.

        Parameters
        ----------
        metric
            ``L2``, ``cosine``, ``dot``; ``hamming`` for vectors of bytes, with IVF_FLAT.
        num_partitions
            In how many parts vectors lie; by default as many as Lance finds right for the number of rows.
        num_sub_vectors
            Of PQ: in how many bytes a vector is compressed, a divisor of its length; by default a sixteenth, an eighth
            or one.
        replace
            Whether an index that there is gives way; else it is an error.
        accelerator
            What trains, ``cuda`` or ``mps``, which needs torch.
        index_cache_size
            Is nothing of an index any more, and refused.
        num_bits
            Of PQ: 8, or 4.
        max_iterations, sample_rate
            Of the training: rounds, and vectors for each partition.
        m, ef_construction
            Of HNSW: edges of a node, and candidates for them.

        Raises
        ------
        ValueError
            An argument does not fit the column or another argument. The message names it.
        """

    @arguments_of(make_word_indexes)
    def create_fts_index(self, made: None) -> None:
        """Index the words of columns of texts, or of lists of texts, for :meth:`search`: one index for each.

        Parameters
        ----------
        field_names
            The columns.
        replace
            Whether an index that there is gives way; else it is an error.
        with_position
            Whether places of words are kept, which phrases need.
        base_tokenizer
            How texts become words: ``simple`` at whatever is no letter or digit, ``whitespace`` at white space alone,
            ``raw`` not at all.
        language, stem, remove_stop_words
            Whether words are cut to their stems, and the most frequent left out, of which language.
        max_token_length
            The longest words that count; None: all.
        lower_case, ascii_folding
            Whether words are the same whatever their case, and their accents.
        ordering_field_names, writer_heap_size, tokenizer_name
            Are of another engine: refused, unless they are what they are by default.

        Raises
        ------
        ValueError
            An argument does not fit a column. The message names it.
        """

    @arguments_of(make_value_index)
    def create_scalar_index(self, made: None) -> None:
        """Index the values of a column, for conditions: BTREE, BITMAP for few different ones, LABEL_LIST for lists.

        Raises
        ------
        ValueError
            An argument does not fit the column, or the index exists and ``replace`` is false.
        """

    # --- upkeep

    def optimize(self, *, cleanup_older_than: Moment | None = None, delete_unverified: bool = False) -> CleanupStats:
        """Join small fragments, take all rows into the indexes, and do :meth:`cleanup_old_versions`; gives its result.

        Others may write meanwhile. Fragments with stale values are joined with each other alone, so that it stays known
        which values are stale. Raises ``ValueError`` for an age that is none, and a transient ``WriteError`` where
        others change the table all the time.
        """
        if cleanup_older_than is not None:
            cleanup_older_than = age_of_moment("cleanup_older_than", cleanup_older_than)
        joined(self._lance)
        return self.cleanup_old_versions(cleanup_older_than, delete_unverified=delete_unverified)

    def cleanup_old_versions(
        self, older_than: Moment | None = None, *, delete_unverified: bool = False
    ) -> CleanupStats:
        """Remove versions of an age, except tagged ones, and all that only they need; return what was removed.

        Checkpoints and files of columns go, too, that nothing needs. A job that runs keeps the versions from its own
        on, its checkpoints and its files; a job on another host of which nothing is heard for an hour runs no more.

        Parameters
        ----------
        older_than
            The age, a week by default, as a timedelta; or the time before which they were made, as a datetime (in UTC
            where it has no zone), ISO text, or nanoseconds since 1970. Whoever still reads an older version fails.
        delete_unverified
            Remove what others have written and no version names, too, which otherwise stays for a week. Whoever is
            about to commit it fails. Nothing of that is removed while a job runs, which is warned of.
        """
        age = WEEK if older_than is None else max(age_of_moment("older_than", older_than), timedelta())
        return cleaned(self._lance, self._jobs, age, delete_unverified=delete_unverified)

    def cleanup_checkpoints(self) -> dict[str, int]:
        """Remove checkpoints, and files that hold whole fragments, which no run would use any more."""
        return cleaned_checkpoints(self._lance, self._jobs)


ROWS: Final = "rows are a list of mappings of names to values, Arrow's, or a DataFrame's"
"""The message of an error about data without rows."""


NativeTable = Table
"""A table in a folder or an object store, as all tables here are."""


def _of_mappings(data: Any, schema: pa.Schema) -> Any:
    """Rows that are a list of mappings as a table, by the types of the columns; others as they are."""
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
        raise UsageError(f"rows do not go with the columns of the table: {error}") from None


def _assignments(schema: pa.Schema, values: Mapping[str, Any]) -> dict[str, str]:
    """Return SQL for values by the columns that are to have them.

    Raises ``UsageError`` for a column that is not there, a value that does not go with its type, and a type of which
    SQL has no values.
    """
    texts = {}
    for name, value in values.items():
        if name not in schema.names:
            raise UsageError(f"there is no column {name!r}", hint=f"There are: {', '.join(schema.names)}.")
        type_ = schema.field(name).type
        try:
            scalar = exact_array([value], type_)[0]
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise UsageError(f"{value!r} is no value of the column {name!r}, of type {type_}: {error}") from None
        text = literal(scalar)
        if text is None:
            raise UsageError(f"SQL has no value of type {type_}, of column {name!r}", hint="Give SQL, as values_sql=.")
        texts[name] = text
    return texts


def literal(scalar: pa.Scalar) -> str | None:
    """Return a value as SQL that Lance reads back without any loss; None where its type has none.

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
