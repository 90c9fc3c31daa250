"""Tables as DataFrames of DataFusion: filters and columns go to Lance, and rows come from the newest version."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from datafusion import DataFrame, DataFrameWriteOptions, SessionContext

from ..errors import ReadError, UsageError
from ..frames import QueryFrame, UserCall, current_call
from ..lance import TableSnapshot
from .table_entry import TableEntry

_TABLE: Final = "rows"
_PARTS: Final = max(2, os.cpu_count() or 1)
"""Parts of a table that are read at once."""


class NamedTables(Protocol):
    """The tables of a catalog by the names that SQL has for them."""

    def referred(self, text: str) -> TableEntry | None:
        """The table that a reference in SQL means."""
        ...


class TableFrame(QueryFrame):
    """A DataFrame of DataFusion over tables of a catalog; what its methods make of it is one, too."""

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
        """Give what a method made of this frame as one of its kind."""
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
    """Find the operation of options, which DataFusion tells nobody: a table in memory can only be appended to."""
    if options is None:
        return "Append"
    context = SessionContext()
    context.register_record_batches("probe", [[pa.record_batch({"probe": pa.array([], pa.int64())})]])
    try:
        context.table("probe").write_table("probe", options)
    except Exception as error:
        found = next((name for name in ("Overwrite", "Replace") if name in str(error)), None)
        if found is None:
            raise UsageError("rows cannot be written with these options") from error
        return found
    return "Append"


class TableScan(ds.Dataset):  # type: ignore[misc]
    """A table as DataFusion scans it. It has the columns of when it was made, and the rows of when it is read."""

    def __init__(self, entry: TableEntry) -> None:
        self._entry = entry
        self._schema = entry.arrow_schema()

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return self._schema

    def scanner(self, columns: Sequence[str] | None = None, **_: Any) -> _Scan:
        """The columns of a scan: DataFusion asks for them when it plans."""
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
        """The rows in which the filter is true."""
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
