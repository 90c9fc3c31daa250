"""SQL over the tables of a catalog, by DataFusion.

DataFusion asks for a name when it plans a query, and the entries are looked at then: tables that others make or rename
are found, and nothing has to be registered.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from datafusion import DataFrame, DataFrameWriteOptions, SessionConfig, SessionContext
from datafusion.catalog import CatalogProvider, CatalogProviderList, SchemaProvider, Table
from datafusion.plan import LogicalPlan

from ..errors import AlreadyExistsError, ReadError, UnsupportedError, UsageError
from ..frames import QueryFrame, UserCall, calling, current_call
from ..lance import TableSnapshot
from .entries import DEFAULT_CATALOG, DEFAULT_SCHEMA, TableName, parts_of
from .segments import frame_of
from .table import EntriesTable, TableEntry

_TABLE: Final = "rows"
_PARTS: Final = max(2, os.cpu_count() or 1)
"""Parts of a table that are read at once."""


class NamedTables(Protocol):
    """The tables of a catalog by the names that SQL has for them."""

    def referred(self, text: str) -> TableEntry | None:
        """The table of a reference in SQL."""
        ...


class TableFrame(QueryFrame):
    """A DataFrame of DataFusion over tables of a catalog. Its methods return frames of the same kind."""

    def __init__(self, frame: DataFrame, tables: NamedTables) -> None:
        super().__init__(frame)
        self._tables = tables

    @classmethod
    def of_entry(cls, entry: TableEntry, tables: NamedTables) -> TableFrame:
        """The rows of a table, whatever its name is by now."""
        context = SessionContext()
        context.register_dataset(_TABLE, TableScan(entry))
        return cls(context.table(_TABLE), tables)

    def derived(self, frame: DataFrame) -> TableFrame:
        """Return the result of one of this frame's methods as a frame of the same kind."""
        return TableFrame(frame, self._tables)

    def write_table(self, table_name: str, write_options: DataFrameWriteOptions | None = None) -> None:
        """Write the rows to a table of the catalog, or to another of the session, in one commit.

        They are appended, with ``InsertOp.OVERWRITE`` put in the place of all rows, and with ``InsertOp.REPLACE`` in
        that of rows with the same key. What the rows are computed from is read as it was before.
        """
        entry = self._tables.referred(table_name)
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
    """A table as DataFusion scans it, with the columns of its creation and the rows of the time of the read."""

    def __init__(self, entry: TableEntry) -> None:
        self._entry = entry
        self._schema = entry.arrow_schema()

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return self._schema

    def scanner(self, columns: Sequence[str] | None = None, **_: Any) -> _Scan:
        """The columns of a scan, which DataFusion reads when it plans."""
        return _Scan(self._schema, columns, lambda: iter(()))

    def get_fragments(self, filter: pc.Expression | None = None) -> list[_Part]:  # noqa: A002, ARG002 (pyarrow's name)
        """The parts of the newest version; DataFusion wants one at least."""
        call = current_call()
        try:
            snapshot = self._entry.snapshot()
            gone = [field.name for field in self._schema if not _has(snapshot.schema, field)]
            if gone:
                raise ReadError(
                    f"table '{self._entry.name}' has other columns than when it was asked for: {', '.join(gone)}",
                    hint="Ask for it again.",
                )
            parts = snapshot.parts(_PARTS) or [[]]
        except Exception as error:
            call.fail(error)
            raise
        return [_Part(snapshot, part, call) for part in parts]


def _has(schema: pa.Schema, field: pa.Field) -> bool:
    return field.name in schema.names and schema.field(field.name).type == field.type


class _Part:
    """Some fragments of a table as one of a dataset."""

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
    ) -> _Scan:
        """The rows that pass the filter."""
        names = schema.names if columns is None else columns
        return _Scan(schema, columns, lambda: self._batches(names, filter))

    def _batches(self, columns: Sequence[str], predicate: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        if not self._fragments:
            return
        try:
            yield from self._snapshot.batches(columns, predicate, self._fragments)
        except Exception as error:
            self._call.fail(error)
            raise


class _Scan:
    """The batches of a scan, made as they are taken."""

    def __init__(
        self, schema: pa.Schema, columns: Sequence[str] | None, batches: Callable[[], Iterator[pa.RecordBatch]]
    ) -> None:
        names = schema.names if columns is None else columns
        self.projected_schema = pa.schema([schema.field(name) for name in names], schema.metadata)
        self.to_batches = batches


class CatalogContext(SessionContext):
    """A session of DataFusion with the tables of a catalog, beside those registered in it.

    ``tables`` gives them as of now, hidden ones included.
    """

    def __init__(self, tables: Callable[[], list[TableEntry]]) -> None:
        super().__init__(SessionConfig().with_information_schema(True))
        self._entries = _Entries(tables)
        self.register_catalog_provider_list(_Catalogs(self._entries))

    def _written(self, plan: LogicalPlan) -> DataFrame | None:
        """Write to a table of the catalog if a statement says so, and return the number of rows; else None."""
        if not plan.display().startswith("Dml"):
            return None
        statement: Any = plan.to_variant()
        entry = self._entries.referred(statement.table_name())
        if entry is None:
            return None
        operation = str(statement.op()).rpartition(".")[2]
        write = {"Append": entry.append, "Overwrite": entry.overwrite, "Replace": entry.upsert}.get(operation)
        if write is None:
            raise UnsupportedError(
                f"SQL has no {operation.upper()} of a table of the catalog",
                hint="Use upsert or overwrite of the table.",
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
        """The rows of a table, whatever its name is by now."""
        return TableFrame.of_entry(entry, self._entries)


def _of_tables(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method: it returns frames of tables, and raises the errors of the look-up of tables."""

    @wraps(method)
    def wrapper(self: CatalogContext, *args: Any, **kwargs: Any) -> Any:
        call = UserCall()
        with call.telling(), calling(call):
            result = method(self, *args, **kwargs)
        if not isinstance(result, DataFrame):
            return result
        written = self._written(result.logical_plan())
        return TableFrame(result if written is None else written, self._entries)

    return wrapper


for _name in ("sql", "sql_with_options", "table", "from_arrow", "from_pydict", "from_pylist", "from_pandas"):
    setattr(CatalogContext, _name, _of_tables(getattr(SessionContext, _name)))


class _Entries:
    """The tables of a catalog by the names that SQL has for them."""

    def __init__(self, tables: Callable[[], list[TableEntry]]) -> None:
        self._tables = tables

    def names(self) -> list[TableName]:
        """All of them."""
        return [parts_of(table.name) for table in self._tables()]

    def named(self, name: TableName) -> TableEntry | None:
        """The table of a name, or else the only one that differs from it in case alone.

        SQL says names without quotes in lower case.
        """
        tables = {parts_of(table.name): table for table in self._tables()}
        if name in tables:
            return tables[name]
        alike = [table for key, table in tables.items() if tuple(map(str.lower, key)) == name]
        return alike[0] if len(alike) == 1 else None

    def referred(self, text: str) -> TableEntry | None:
        """The table that a reference in SQL means, with quotes or without."""
        parts = [part.strip('"') if part.startswith('"') else part.lower() for part in text.split(".")]
        exact = self.named(parts_of(text))
        return exact or self.named(parts_of(".".join(parts)))

    def table(self, name: TableName) -> Table | None:
        """Return what DataFusion reads for a name."""
        entry = self.named(name)
        if entry is None:
            return None
        try:
            if isinstance(entry, EntriesTable):
                return Table(ds.dataset(entry.rows()))
            return Table(TableScan(entry))
        except Exception as error:
            current_call().fail(error)
            raise


class _Listed(list[str]):
    """Names that are an attribute for DataFusion and the result of a method for users."""

    def __call__(self) -> set[str]:
        return set(self)


class _Tables(SchemaProvider):
    """The tables of a schema, and those registered in it."""

    def __init__(self, entries: _Entries, catalog: str, schema: str) -> None:
        self._entries = entries
        self._place = (catalog, schema)
        self._registered: dict[str, Any] = {}

    @property
    def table_names(self) -> _Listed:
        """The names of all."""
        return _Listed({*self._registered, *(name.table for name in self._entries.names() if name[:2] == self._place)})

    def table(self, name: str) -> Table | None:
        """The table of a name."""
        return self._registered.get(name) or self._entries.table(TableName(*self._place, name))

    def table_exist(self, name: str) -> bool:
        """Whether there is a table of a name."""
        return name in self._registered or self._entries.named(TableName(*self._place, name)) is not None

    def register_table(self, name: str, table: Any) -> None:
        """Add a table of this session alone."""
        if self.table_exist(name):
            raise AlreadyExistsError(f"The table {name} already exists")
        self._registered[name] = table

    def deregister_table(self, name: str, cascade: bool = True) -> Any:  # noqa: ARG002 (DataFusion's name)
        """Remove a table of this session. One of the catalog stays."""
        if name not in self._registered and self.table_exist(name):
            raise UsageError(f"'{name}' is a table of the catalog", hint=f"client.get_table({name!r}).delete()")
        return self._registered.pop(name, None)


class _Schemas(CatalogProvider):
    """The schemas of a catalog of SQL."""

    def __init__(self, entries: _Entries, catalog: str) -> None:
        self._entries = entries
        self._catalog = catalog
        self._schemas: dict[str, Any] = {}

    def schema_names(self) -> set[str]:
        """The names of all that have tables."""
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
        """Add a schema of this session alone."""
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
        """The names of all that have tables."""
        return {DEFAULT_CATALOG, *self._registered, *(name.catalog for name in self._entries.names())}

    def catalog(self, name: str) -> Any:
        """The catalog of a name."""
        if name in self._registered:
            return self._registered[name]
        return self._catalogs.get(name) or _Schemas(self._entries, name)

    def register_catalog(self, name: str, catalog: Any) -> None:
        """Add a catalog of this session alone."""
        self._registered[name] = catalog
