"""Answers to queries as DataFrames of Spark, whose tasks read the fragments of one version."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from ..execution import noting_task, stage_of
from ..lance import FragmentReader, LanceTable
from ..spark import arrow_of, running_session, spark_array, spark_form, spark_schema
from .asked_columns import AskedColumns

if TYPE_CHECKING:
    from ..execution import DataFrame as SparkFrame

_MOST_TASKS: Final = 1024


class PartSource(Protocol):
    """Whatever gives the rows of numbered parts. It pickles."""

    def rows(self, index: int) -> Iterator[pa.RecordBatch]:
        """The rows of a part."""
        ...


@dataclass(frozen=True)
class FragmentParts:
    """The rows of fragments in which a condition is true, with the columns that are asked for."""

    table: LanceTable
    version: int
    asked: AskedColumns
    condition: str | None
    parts: tuple[tuple[int, ...], ...]

    def rows(self, index: int) -> Iterator[pa.RecordBatch]:
        """The rows of a part."""
        return self.asked.scanned(self.table.pinned(self.version), self.condition, fragments=self.parts[index])


@dataclass(frozen=True)
class FoundRows:
    """Rows that were found before."""

    found: pa.Table

    def rows(self, index: int) -> Iterator[pa.RecordBatch]:
        """All of them."""
        del index
        return iter(self.found.to_batches())


@dataclass(frozen=True)
class QueryJob:
    """The function of a Spark task that gives the rows of a part, as Spark wants them. It pickles."""

    source: PartSource
    schema: pa.Schema

    def run(self, index: int) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        with noting_task(f"part {index} of a query"):
            for batch in self.source.rows(index):
                columns = [
                    spark_array(column, field.type) for column, field in zip(batch.columns, self.schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


def frame_of_fragments(
    table: LanceTable, reader: FragmentReader, asked: AskedColumns, condition: str | None
) -> SparkFrame:
    """The rows of a version in which a condition is true as a lazy DataFrame, in types that Spark has."""
    parts = tuple(map(tuple, table.snapshot(reader.version).parts(_MOST_TASKS)))
    source = FragmentParts(table, reader.version, asked, condition, parts)
    return _frame_of(source, asked.schema(reader), len(parts))


def frame_of_rows(found: pa.Table) -> SparkFrame:
    """Rows as a DataFrame, in types that Spark has."""
    return _frame_of(FoundRows(found), found.schema, 1)


def _frame_of(source: PartSource, columns: pa.Schema, parts: int) -> SparkFrame:
    schema = spark_schema(pa.schema([(field.name, spark_form(field.type)) for field in columns]))
    return stage_of(running_session(), QueryJob(source, arrow_of(schema)), range(parts + 1), schema)
