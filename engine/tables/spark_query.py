"""A query of a table as a DataFrame of Spark, whose tasks read the fragments of one version."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ..execution import noting_task, stage_of
from ..spark import arrow_of, running_session, spark_array, spark_form, spark_schema
from .search import AskedColumns, TableQuery

if TYPE_CHECKING:
    from ..execution import DataFrame as SparkFrame

_MOST_TASKS: Final = 1024


@dataclass(frozen=True)
class QueryJob:
    """The function of a Spark task that answers a query for some fragments, as Spark wants rows. It pickles.

    ``rows`` are the answer, where it was found before.
    """

    query: TableQuery
    version: int
    parts: tuple[tuple[int, ...], ...]
    schema: pa.Schema
    rows: pa.Table | None = None

    def run(self, index: int) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        with noting_task(f"part {index} of {self.query.table.place}"):
            for batch in self._found(index):
                columns = [
                    spark_array(column, field.type) for column, field in zip(batch.columns, self.schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _found(self, index: int) -> Iterator[pa.RecordBatch]:
        if self.rows is not None:
            yield from self.rows.to_batches()
            return
        reader = self.query.table.pinned(self.version)
        yield from AskedColumns.of(self.query, reader).scanned(self.query, reader, self.parts[index])


def spark_frame_of(query: TableQuery) -> SparkFrame:
    """The rows that a query asks for as a lazy DataFrame of Spark, in types that Spark has."""
    reader = query.table.newest()
    asked = AskedColumns.of(query, reader)
    is_found = query.is_ranked or query.most is not None or query.skipped > 0
    rows = query.to_arrow() if is_found else None
    parts = ((),) if is_found else tuple(map(tuple, query.table.snapshot(reader.version).parts(_MOST_TASKS)))
    found = asked.schema(reader) if rows is None else rows.schema
    schema = spark_schema(pa.schema([(field.name, spark_form(field.type)) for field in found]))
    job = QueryJob(query, reader.version, parts, arrow_of(schema), rows)
    return stage_of(running_session(), job, range(len(parts) + 1), schema)
