"""The columns that a query asks for: SQL over a table's columns, and functions of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ..lance import FragmentReader
from .checking import check_against
from .functions import UDF
from .ranking import ROW_ID
from .targets import quoted

QueryColumn = str | UDF
"""A column that is asked for: SQL over the table's columns, or a function of them."""

_INPUT: Final = "__input_"


@dataclass(frozen=True)
class AskedColumns:
    """The columns that a query asks for, SQL and functions, and what these are called with."""

    columns: Mapping[str, QueryColumn]
    inputs: Mapping[str, str]
    source: pa.Schema

    @classmethod
    def of(cls, columns: Mapping[str, QueryColumn] | None, more: Iterable[str], reader: FragmentReader) -> AskedColumns:
        """Those of a query of a version, by default all of the table, and ``more``.

        Raises ``UsageError`` for what is not there.
        """
        columns = dict(columns or {name: quoted(name) for name in reader.schema.names})
        columns |= {name: name for name in more if name not in columns}
        functions = (one for one in columns.values() if isinstance(one, UDF))
        inputs = {f"{_INPUT}{name}": quoted(name) for name in inputs_of(functions, reader.schema)}
        return cls(columns, inputs, reader.schema)

    @property
    def expressions(self) -> dict[str, str]:
        """SQL of what is read."""
        return {**{name: one for name, one in self.columns.items() if isinstance(one, str)}, **self.inputs}

    def schema(self, reader: FragmentReader) -> pa.Schema:
        """The columns of the answer, which is no ranking."""
        return self.finished_schema(reader.expressed_schema({**self.expressions, ROW_ID: ROW_ID}))

    def scanned(
        self,
        reader: FragmentReader,
        condition: str | None,
        most: int | None = None,
        skipped: int = 0,
        fragments: Sequence[int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows in which a condition is true in the table's order, so many after others, of some fragments."""
        found = reader.expressed(self.expressions, condition, fragments=fragments, limit=most, offset=skipped)
        return map(self.finished, found)

    def finished(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of what was read, with the functions' columns."""
        if batch.schema.names == [*self.columns]:
            return batch
        arrays = []
        for name, one in self.columns.items():
            if isinstance(one, UDF):
                names = inputs_of([one], self.source)
                given = [batch.column(f"{_INPUT}{column}") for column in names]
                arrays.append(one.compute(pa.RecordBatch.from_arrays(given, names)))
            else:
                arrays.append(batch.column(name))
        return pa.RecordBatch.from_arrays(arrays, schema=self.finished_schema(batch.schema))

    def finished_schema(self, read: pa.Schema) -> pa.Schema:
        """The columns of what was read, with those of functions."""
        return pa.schema(
            [
                pa.field(name, one.data_type) if isinstance(one, UDF) else read.field(name)
                for name, one in self.columns.items()
            ]
        )


def inputs_of(functions: Iterable[UDF], schema: pa.Schema) -> list[str]:
    """The columns of a table that functions are called with, each once. Raises ``UsageError`` for those it lacks."""
    found: dict[str, None] = {}
    for function in functions:
        check_against(schema, function)
        found |= dict.fromkeys(schema.names if function.inputs is None else function.inputs)
    return list(found)
