"""Rows of a table that are asked for: which of them, and which columns; nothing is read before it is wanted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ..errors import UsageError
from ..lance import ComputedTable
from .adding import single_function
from .checking import check_against
from .functions import UDF
from .targets import quoted

QueryColumn = str | UDF
"""A column that is asked for: SQL over the table's columns, or a function of them."""


@dataclass(frozen=True)
class TableQuery:
    """A question to a table, made by ``Table.search``. Each method gives another, and leaves this one as it is.

    ``condition`` is SQL that is true in the rows that are asked for; ``columns`` are, by their names, SQL over the
    table's columns or functions of them (None: all of the table's); ``most`` and ``skipped`` are the number of rows, of
    those that are found in the table's order, and of those before them.
    """

    table: ComputedTable
    condition: str | None = None
    columns: Mapping[str, QueryColumn] | None = None
    most: int | None = None
    skipped: int = 0

    def where(self, condition: str) -> TableQuery:
        """The rows in which an SQL condition is true, too."""
        if not isinstance(condition, str) or not condition.strip():
            raise UsageError(f"where() takes an SQL condition, not {condition!r}")
        both = condition if self.condition is None else f"({self.condition}) AND ({condition})"
        return replace(self, condition=both)

    def select(self, columns: Sequence[str] | Mapping[str, str | UDF | tuple[UDF, Sequence[str]]]) -> TableQuery:
        """Some columns: their names, or a mapping of names to SQL, functions, or functions and the names of inputs."""
        if isinstance(columns, str):
            raise TypeError("select() takes a list of names, or a mapping of names to SQL or functions")
        given = columns if isinstance(columns, Mapping) else {name: quoted(name) for name in columns}
        if not given:
            raise UsageError("select() got no columns")
        return replace(self, columns={name: _column(name, one) for name, one in given.items()})

    def limit(self, rows: int | None) -> TableQuery:
        """At most so many rows; None: all."""
        return replace(self, most=None if rows is None else _count("limit", rows))

    def offset(self, rows: int) -> TableQuery:
        """The rows after the first so many."""
        return replace(self, skipped=_count("offset", rows))

    def to_arrow(self) -> pa.Table:
        """The rows that are asked for. Functions are called in this process."""
        return _answered(self)


def _answered(query: TableQuery) -> pa.Table:
    reader = query.table.at()
    columns = query.columns or {name: quoted(name) for name in reader.schema.names}
    functions = {name: one for name, one in columns.items() if isinstance(one, UDF)}
    expressions = {name: one for name, one in columns.items() if isinstance(one, str)}
    inputs = {f"__input_{name}": quoted(name) for name in inputs_of(functions.values(), reader.schema)}
    schema = reader.expressed_schema({**expressions, **inputs})
    fields = [
        pa.field(name, one.data_type) if isinstance(one, UDF) else schema.field(name) for name, one in columns.items()
    ]
    found = [
        pa.RecordBatch.from_arrays(
            [_column_of(batch, name, functions, reader.schema) for name in columns], schema=pa.schema(fields)
        )
        for batch in reader.expressed(
            {**expressions, **inputs}, query.condition, limit=query.most, offset=query.skipped
        )
    ]
    return pa.Table.from_batches(found, pa.schema(fields))


def inputs_of(functions: Iterable[UDF], schema: pa.Schema) -> list[str]:
    """The columns of a table that functions are called with, each once. Raises ``UsageError`` for those it lacks."""
    found: dict[str, None] = {}
    for function in functions:
        check_against(schema, function)
        found |= dict.fromkeys(schema.names if function.inputs is None else function.inputs)
    return list(found)


def _column_of(batch: pa.RecordBatch, name: str, functions: Mapping[str, UDF], schema: pa.Schema) -> pa.Array:
    function = functions.get(name)
    if function is None:
        return batch.column(name)
    names = inputs_of([function], schema)
    return function.compute(pa.RecordBatch.from_arrays([batch.column(f"__input_{one}") for one in names], names))


def _column(name: str, given: object) -> QueryColumn:
    if not isinstance(name, str):
        raise TypeError(f"the name of a column is text, not {name!r}")
    if isinstance(given, str):
        return given
    return single_function(name, given)


def _count(what: str, rows: int) -> int:
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 0:
        raise UsageError(f"{what}() takes a number of rows, not {rows!r}")
    return rows
