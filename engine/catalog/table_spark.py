"""Tables and Spark: tasks read the fragments of a version, and write those of new rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ..execution import noting_task, stage_of, told_by_partitions
from ..lance import LanceTable, TableRows, TableSnapshot
from ..spark import arrow_of, running_session, spark_array, spark_form, spark_schema

if TYPE_CHECKING:
    from ..execution import DataFrame as SparkFrame

_MOST_TASKS: Final = 1024


@dataclass(frozen=True)
class TableJob:
    """The function of a Spark task that gives the rows of some fragments, as Spark wants them. It pickles."""

    table: LanceTable
    version: int
    parts: tuple[tuple[int, ...], ...]
    schema: pa.Schema

    def run(self, index: int) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        with noting_task(f"part {index} of {self.table.place}"):
            for batch in self.table.snapshot(self.version).batches(fragments=self.parts[index]):
                columns = [
                    spark_array(column, field.type) for column, field in zip(batch.columns, self.schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


def spark_frame_of(table: LanceTable, snapshot: TableSnapshot) -> SparkFrame:
    """The rows of a version as a lazy DataFrame of Spark, in types that Spark has."""
    forms = [(field.name, spark_form(field.type)) for field in snapshot.schema]
    parts = tuple(map(tuple, snapshot.parts(_MOST_TASKS)))
    schema = spark_schema(pa.schema(forms))
    job = TableJob(table, snapshot.version, parts, arrow_of(schema))
    return stage_of(running_session(), job, range(len(parts) + 1), schema)


@dataclass(frozen=True)
class WriteRows:
    """The function of a Spark task that writes the rows of a partition as fragments of a table. It pickles."""

    table: LanceTable
    schema: pa.Schema
    replacing: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[str]:
        """Write them, and tell of each fragment what its commit needs."""
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return
        reader = pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))
        rows = TableRows(first.schema, reader, converted=True)
        try:
            yield from self.table.written(rows.under(self.schema), "overwrite" if self.replacing else "append")
        except Exception:
            if rows.failure is not None:
                raise rows.failure from None
            raise


def write_frame(table: LanceTable, frame: SparkFrame, *, replacing: bool) -> None:
    """Add the rows of a DataFrame, or put them in the place of all there are: written by tasks, in one commit.

    Raises as :meth:`TableEntry.append` does, and a transient ``WriteError`` where others replace the table meanwhile.
    """
    version, schema = table.version_and_schema()
    rows = TableRows(arrow_of(frame.schema), [], converted=True)
    form = table.to_write(rows.replacing(schema).schema) if replacing else rows.under(schema).schema
    written = told_by_partitions(frame, WriteRows(table, form, replacing), "the DataFrame")
    if replacing:
        table.overwrite_written(written, form)
    elif written:
        table.append_written(written, version)
