"""SQL over the datasets and tables of a catalog, by DataFusion.

DataFusion looks up names when it plans a query. The look-up reads the current entries, so it finds entries that other
processes create or rename, and nothing needs registration. A dataset name is the table of its segments; the table
function ``reader`` returns its rows.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from datafusion import (
    DataFrame,
    DataFrameWriteOptions,
    SessionConfig,
    SessionContext,
    SQLOptions,
    udtf,
)
from datafusion.catalog import CatalogProvider, CatalogProviderList, SchemaProvider, Table
from datafusion.plan import LogicalPlan

from ..errors import AlreadyExistsError, ChunkmillError, UnsupportedError, UsageError
from ..frames import QueryFrame, UserCall, calling, current_call
from ..lance import TableSnapshot
from .dataset import DatasetEntry
from .entries import DEFAULT_CATALOG, DEFAULT_SCHEMA, HIDDEN_KINDS, EntryKind, TableName, parts_of
from .segments import frame_of
from .sql_datasets import ARGUMENTS, ReaderFunction, SegmentScan, TableBatches, check_columns_stay, failing_the_call
from .statements import READER, Refusal, Statement, explained, no_entry, reference_of, refusal_of, tokens_of
from .table import EntriesTable, TableEntry

_TABLE: Final = "rows"
_PARTS: Final = max(2, os.cpu_count() or 1)
"""The number of parts of a table that are read at once."""


class NamedTables(Protocol):
    """The entries of a catalog by their names in SQL."""

    def written(self, text: str) -> TableEntry | None:
        """The table that an SQL reference names as a target of rows. Raises ``UnsupportedError`` for a dataset."""
        ...


class TableFrame(QueryFrame):
    """A DataFrame of DataFusion over entries of a catalog. Its methods return frames of the same kind."""

    def __init__(self, frame: DataFrame, tables: NamedTables) -> None:
        super().__init__(frame)
        self._tables = tables

    @classmethod
    def of_entry(cls, entry: TableEntry, tables: NamedTables) -> TableFrame:
        """The rows of a table, read on use."""
        context = SessionContext()
        context.register_dataset(_TABLE, TableScan(entry))
        return cls(context.table(_TABLE), tables)

    def derived(self, frame: DataFrame) -> TableFrame:
        """Return the result of one of this frame's methods as a frame of the same kind."""
        return TableFrame(frame, self._tables)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """A block that raises chunkmill's errors in place of DataFusion's."""
        try:
            with super()._explaining():
                yield
        except BaseException as error:
            if not is_of_datafusion(error):
                raise
            raise explained(error) from error

    def write_table(self, table_name: str, write_options: DataFrameWriteOptions | None = None) -> None:
        """Write the rows to a table of the catalog, or to another table of the session, in one commit.

        By default, they are appended. With ``InsertOp.OVERWRITE`` they replace all rows, and with ``InsertOp.REPLACE``
        the rows with the same key. They are computed from the versions before the write.
        """
        entry = self._tables.written(table_name)
        if entry is None:
            super().write_table(table_name, write_options)
            return
        write = {"Overwrite": entry.overwrite, "Replace": entry.upsert, "Append": entry.append}
        write[_operation_of(write_options)](self)


def _operation_of(options: DataFrameWriteOptions | None) -> str:
    """Find the operation of write options by a trial: a table in memory only takes an append."""
    if options is None:
        return "Append"
    context = SessionContext()
    context.register_record_batches("probe", [[pa.record_batch({"probe": pa.array([], pa.int64())})]])
    try:
        context.table("probe").write_table("probe", options)
    except Exception as error:
        operation = next((name for name in ("Overwrite", "Replace") if name in str(error)), None)
        if operation is None:
            raise UsageError("rows cannot be written with these options") from error
        return operation
    return "Append"


class TableScan(ds.Dataset):  # type: ignore[misc]
    """A table that DataFusion scans: columns as of the look-up, rows as of the read."""

    def __init__(self, entry: TableEntry) -> None:
        self._entry = entry
        self._schema = entry.arrow_schema()

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return self._schema

    def scanner(self, columns: Sequence[str] | None = None, **_: Any) -> TableBatches:
        """The columns of a scan, for DataFusion's planner."""
        return TableBatches(self._schema, columns, lambda: iter(()))

    def get_fragments(self, filter: pc.Expression | None = None) -> list[_Part]:  # noqa: A002, ARG002 (pyarrow's name)
        """The parts of the newest version; DataFusion needs at least one."""
        call = current_call()
        try:
            snapshot = self._entry.snapshot()
            check_columns_stay(self._entry, self._schema, snapshot.schema)
            parts = snapshot.parts(_PARTS) or [[]]
        except Exception as error:
            call.fail(error)
            raise
        return [_Part(snapshot, part, call) for part in parts]


class _Part:
    """Some fragments of a table, as a fragment of a pyarrow dataset."""

    def __init__(self, snapshot: TableSnapshot, fragments: list[int], call: UserCall) -> None:
        self._snapshot = snapshot
        self._fragments = fragments
        self._call = call

    def scanner(
        self,
        schema: pa.Schema,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 (pyarrow's name)
        **_: Any,
    ) -> TableBatches:
        """The rows that pass the filter."""
        names = schema.names if columns is None else columns
        return TableBatches(schema, columns, lambda: self._batches(names, filter))

    def _batches(self, columns: Sequence[str], predicate: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        if not self._fragments:
            return
        try:
            yield from self._snapshot.batches(columns, predicate, self._fragments)
        except Exception as error:
            self._call.fail(error)
            raise


_READING: Final = SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
_PREPARING: Final = SQLOptions().with_allow_ddl(False).with_allow_dml(False)


class CatalogContext(SessionContext):
    """A DataFusion session with the entries of a catalog, and tables that you register in it.

    ``entries`` returns the current entries, including hidden ones. Statements cannot read or write files outside the
    catalog. ``without`` lists the columns to hide in segment tables.
    """

    def __init__(self, entries: Callable[[], list[DatasetEntry | TableEntry]], without: Collection[str] = ()) -> None:
        super().__init__(SessionConfig().with_information_schema(True))
        self._entries = _Entries(entries, without)
        self.register_catalog_provider_list(_Catalogs(self._entries))
        self.register_udtf(udtf(ReaderFunction(self._entries.dataset_of, _executing(self)), READER))

    def sql(
        self,
        query: str,
        options: SQLOptions | None = None,
        param_values: dict[str, Any] | None = None,
        **named_params: Any,
    ) -> DataFrame:
        """Return the rows of a statement as a DataFrame, read on use. A statement that writes runs at once.

        The name of a dataset stands for the table of its segments. ``reader('DATASET', index => 'INDEX')`` returns the
        rows of :meth:`DatasetView.reader`. Pass its other arguments by name, as well as ``contents``, ``segments``
        (ids, patterns such as ``drive-*``, or a query in parentheses) and ``fill`` (short for ``fill_latest_at``). Rows
        are those of the newest version::

            client.ctx.sql("SELECT frame FROM reader('drives', index => 'frame', contents => '/imu/**') LIMIT 5")

        Parameters
        ----------
        query
            One statement.
        options, param_values, named_params
            As in DataFusion's ``SessionContext.sql``.

        Raises
        ------
        NotFoundError
            An entry or a segment does not exist.
        UnsupportedError
            The statement would read or write files outside the catalog (``COPY``, ``CREATE EXTERNAL TABLE``), or write
            to a dataset.
        UsageError
            DataFusion refuses the statement: invalid SQL, or an unknown column.
        """
        statement = Statement(query)
        call = UserCall()
        try:
            with call.telling(), calling(call):
                frame = self._planned(statement.planned(ARGUMENTS), options, param_values, named_params)
        except BaseException as error:
            if not is_of_datafusion(error):
                raise
            raise explained(error, statement, self._entries.names_of_entries()) from error
        return TableFrame(frame, self._entries)

    def sql_with_options(
        self,
        query: str,
        options: SQLOptions,
        param_values: dict[str, Any] | None = None,
        **named_params: Any,
    ) -> DataFrame:
        """Like :meth:`sql`, but refuses statements that the options do not allow."""
        return self.sql(query, options, param_values, **named_params)

    def _planned(
        self, query: str, options: SQLOptions | None, values: dict[str, Any] | None, named: dict[str, Any]
    ) -> DataFrame:
        """The frame of a statement. If ``options`` allow it, a statement that changes something runs at once."""
        plan = partial(super().sql, query, param_values=values, **named)
        try:
            return plan(options=_READING)
        except Exception as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise
            _check_stays_inside(refusal, query)
        if refusal.what == "Prepare" or (refusal.group == "Statement" and options is None):
            try:
                return plan(options=_PREPARING)
            except Exception as error:
                if refusal_of(error) is None:
                    raise
                raise UnsupportedError(
                    "a statement that writes cannot be prepared", hint="Run it without preparing it."
                ) from error
        frame = plan(options=options)
        written = self._written(frame.logical_plan())
        return frame if written is None else written

    def _written(self, plan: LogicalPlan) -> DataFrame | None:
        """Execute a write to a table of the catalog, and return the number of rows. None for other statements."""
        if not plan.display().startswith("Dml"):
            return None
        statement: Any = plan.to_variant()
        entry = self._entries.written(statement.table_name())
        if entry is None:
            return None
        operation = str(statement.op()).rpartition(".")[2]
        write = {"Append": entry.append, "Overwrite": entry.overwrite, "Replace": entry.upsert}.get(operation)
        if write is None:
            raise UnsupportedError(
                f"SQL cannot {operation.upper()} a table of the catalog",
                hint="Use upsert() or overwrite() of the table.",
            )
        rows = TableFrame(self.create_dataframe_from_logical_plan(plan.inputs()[0]), self._entries)
        count = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal count
            for batch in rows.execute_stream():
                count += len(arrow_batch := batch.to_pyarrow())
                yield arrow_batch

        write(pa.RecordBatchReader.from_batches(rows.schema(), counted()))
        return frame_of(pa.table({"count": pa.array([count], pa.uint64())}))

    def frame_of(self, entry: TableEntry) -> TableFrame:
        """The rows of a table, read on use."""
        return TableFrame.of_entry(entry, self._entries)


def _executing(context: CatalogContext) -> Callable[[str], DataFrame]:
    """Return the method ``sql`` of a context, with a weak reference to the context, to avoid a cycle."""
    reference = weakref.ref(context)

    def execute(text: str) -> DataFrame:
        held = reference()
        assert held is not None, "it plans"
        return held.sql(text, _READING)

    return execute


def _check_stays_inside(refusal: Refusal, query: str) -> None:
    """Raise ``UnsupportedError`` for a statement that names files to read or write."""
    if refusal.what == "SetVariable" and any(token.name.endswith("temp_directory") for token in tokens_of(query)):
        raise UnsupportedError("SQL in a catalog cannot write files: SET temp_directory", hint="Set TMPDIR instead.")
    if refusal.what == "CreateExternalTable":
        raise UnsupportedError(
            "SQL in a catalog cannot open files: CREATE EXTERNAL TABLE",
            hint="Register the file, or create a table from it: client.create_table, client.register_table.",
        )
    if refusal.what == "COPY":
        raise UnsupportedError(
            "SQL in a catalog cannot write files: COPY",
            hint="Write the rows of a query: frame.write_parquet(path), or chunkmill sql -o OUT.parquet.",
        )


def is_of_datafusion(error: BaseException) -> bool:
    """Return whether an error or panic comes from DataFusion itself."""
    if isinstance(error, ChunkmillError | OSError | MemoryError):
        return False
    return type(error) in (Exception, ValueError) or type(error).__name__ == "PanicException"


def _of_tables(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method, so that it returns ``TableFrame``s, and raises the errors of table look-ups."""

    @wraps(method)
    def wrapper(self: CatalogContext, *args: Any, **kwargs: Any) -> Any:
        call = UserCall()
        entries = self._entries
        try:
            with call.telling(), calling(call):
                result = method(self, *args, **kwargs)
        except (ChunkmillError, OSError):
            raise
        except Exception as error:
            if method.__name__ != "table":
                raise
            raise explained(error, None, entries.names_of_entries()) from error
        return TableFrame(result, entries) if isinstance(result, DataFrame) else result

    return wrapper


for _name in ("table", "from_arrow", "from_pydict", "from_pylist", "from_pandas"):
    setattr(CatalogContext, _name, _of_tables(getattr(SessionContext, _name)))


class _Entries:
    """The entries of a catalog by their names in SQL."""

    def __init__(self, entries: Callable[[], list[DatasetEntry | TableEntry]], without: Collection[str]) -> None:
        self._entries = entries
        self._without = without

    def names(self) -> list[TableName]:
        """The SQL names of all entries except hidden datasets."""
        return [_name_of(entry) for entry in self._entries() if entry.kind not in HIDDEN_KINDS]

    def names_of_entries(self) -> list[str]:
        """The names of these entries in the catalog."""
        return [entry.name for entry in self._entries() if entry.kind not in HIDDEN_KINDS]

    def named(self, name: TableName) -> DatasetEntry | TableEntry | None:
        """The entry with a name, or else the only entry whose name differs only in case.

        SQL turns names without quotes into lower case. A name in quotes may contain dots.
        """
        all_entries = self._entries()
        entries = {_name_of(entry): entry for entry in all_entries}
        if name in entries:
            return entries[name]
        if name[:2] == (DEFAULT_CATALOG, DEFAULT_SCHEMA):
            whole = [entry for entry in all_entries if entry.name == name.table]
            if whole:
                return whole[0]
        alike = [entry for key, entry in entries.items() if tuple(map(str.lower, key)) == name]
        return alike[0] if len(alike) == 1 else None

    def referred(self, text: str) -> DatasetEntry | TableEntry | None:
        """The entry that an SQL reference names, with or without quotes."""
        parts = [part.strip('"') if part.startswith('"') else part.lower() for part in text.split(".")]
        exact = self.named(parts_of(text))
        return exact or self.named(parts_of(".".join(parts)))

    def written(self, text: str) -> TableEntry | None:
        """The table that an SQL reference names as a target of rows. Raises ``UnsupportedError`` for a dataset."""
        entry = self.referred(text)
        if isinstance(entry, DatasetEntry):
            raise UnsupportedError(
                f"'{entry.name}' is a dataset; SQL can only write to tables", hint="Add recordings by register()."
            )
        return entry

    def dataset_of(self, name: str) -> DatasetEntry:
        """The dataset that a ``reader`` call names. Raises ``UsageError``, ``NotFoundError``."""
        entry = next((entry for entry in self._entries() if entry.name == name), None) or self.referred(name)
        if isinstance(entry, TableEntry):
            raise UsageError(
                f"reader: '{name}' is a table, not a dataset", hint=f"Use its name directly: FROM {reference_of(name)}."
            )
        if entry is None:
            datasets = [entry.name for entry in self._entries() if entry.kind is EntryKind.DATASET]
            raise no_entry(name, datasets, "dataset")
        return entry

    def table(self, name: TableName) -> Table | None:
        """Return the table that DataFusion reads for a name, or None."""
        entry = self.named(name)
        if entry is None:
            return None
        with failing_the_call():
            if isinstance(entry, DatasetEntry):
                return Table(SegmentScan(entry, self._without))
            if isinstance(entry, EntriesTable):
                return Table(ds.dataset(entry.rows()))
            return Table(TableScan(entry))


def _name_of(entry: DatasetEntry | TableEntry) -> TableName:
    """The name of an entry in SQL. A name that cannot be split at its dots is the table's name."""
    parts = entry.name.split(".")
    if len(parts) > len(TableName._fields) or not all(parts):
        return TableName(DEFAULT_CATALOG, DEFAULT_SCHEMA, entry.name)
    return parts_of(entry.name)


class _Listed(list[str]):
    """Names that are an attribute for DataFusion and the result of a method for users."""

    def __call__(self) -> set[str]:
        return set(self)


class _Tables(SchemaProvider):
    """The tables of a schema, including registered ones."""

    def __init__(self, entries: _Entries, catalog: str, schema: str) -> None:
        self._entries = entries
        self._place = (catalog, schema)
        self._registered: dict[str, Any] = {}

    @property
    def table_names(self) -> _Listed:
        """The names of all tables."""
        return _Listed({*self._registered, *(name.table for name in self._entries.names() if name[:2] == self._place)})

    def table(self, name: str) -> Table | None:
        """The table of a name."""
        return self._registered.get(name) or self._entries.table(TableName(*self._place, name))

    def table_exist(self, name: str) -> bool:
        """Whether there is a table of a name."""
        return name in self._registered or self._entries.named(TableName(*self._place, name)) is not None

    def register_table(self, name: str, table: Any) -> None:
        """Add a table to this session only."""
        if self.table_exist(name):
            raise AlreadyExistsError(f"The table {name} already exists")
        self._registered[name] = table

    def deregister_table(self, name: str, cascade: bool = True) -> Any:  # noqa: ARG002 (DataFusion's name)
        """Remove a table of this session. A table of the catalog stays."""
        if name not in self._registered and self.table_exist(name):
            raise UsageError(f"'{name}' is an entry of the catalog", hint="Delete it with the client.")
        return self._registered.pop(name, None)


class _Schemas(CatalogProvider):
    """The schemas of an SQL catalog."""

    def __init__(self, entries: _Entries, catalog: str) -> None:
        self._entries = entries
        self._catalog = catalog
        self._schemas: dict[str, Any] = {}

    def schema_names(self) -> set[str]:
        """The names of all schemas that have tables."""
        default = {DEFAULT_SCHEMA} if self._catalog == DEFAULT_CATALOG else set()
        names = {name.schema for name in self._entries.names() if name.catalog == self._catalog}
        return names | default | {name for name, schema in self._schemas.items() if not isinstance(schema, _Tables)}

    def schema(self, name: str) -> Any:
        """The schema of a name."""
        if name not in self._schemas:
            if name not in self.schema_names() and name not in {
                schema_name.lower() for schema_name in self.schema_names()
            }:
                return None
            self._schemas[name] = _Tables(self._entries, self._catalog, name)
        return self._schemas[name]

    def register_schema(self, name: str, schema: Any) -> None:
        """Add a schema to this session only."""
        self._schemas[name] = schema

    def deregister_schema(self, name: str, cascade: bool) -> None:  # noqa: ARG002 (DataFusion's name)
        """Remove a schema of this session."""
        self._schemas.pop(name, None)


class _Catalogs(CatalogProviderList):
    """The SQL catalogs of table names. Any name can be looked up; those without tables are not listed."""

    def __init__(self, entries: _Entries) -> None:
        self._entries = entries
        self._catalogs: dict[str, Any] = {DEFAULT_CATALOG: _Schemas(entries, DEFAULT_CATALOG)}
        self._registered: dict[str, Any] = {}

    def catalog_names(self) -> set[str]:
        """The names of all catalogs that have tables."""
        return {DEFAULT_CATALOG, *self._registered, *(name.catalog for name in self._entries.names())}

    def catalog(self, name: str) -> Any:
        """The catalog of a name."""
        if name in self._registered:
            return self._registered[name]
        return self._catalogs.get(name) or _Schemas(self._entries, name)

    def register_catalog(self, name: str, catalog: Any) -> None:
        """Add a catalog to this session only."""
        self._registered[name] = catalog
