"""Tables as DataFrames of Spark: one version, whose fragments are read by tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ..execution import noting_task, stage_of
from ..lance import TableSnapshot, UserTable
from ..spark import arrow_of, running_session, spark_array, spark_form, spark_schema

if TYPE_CHECKING:
    from ..execution import DataFrame as SparkFrame

_MOST_TASKS: Final = 1024


@dataclass(frozen=True)
class TableJob:
    """The function of a Spark task that gives the rows of some fragments, as Spark wants them. It pickles."""

    table: UserTable
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


def spark_frame_of(table: UserTable, snapshot: TableSnapshot) -> SparkFrame:
    """The rows of a version as a lazy DataFrame of Spark, in types that Spark has."""
    forms = [(field.name, spark_form(field.type)) for field in snapshot.schema]
    parts = tuple(map(tuple, snapshot.parts(_MOST_TASKS)))
    schema = spark_schema(pa.schema(forms))
    job = TableJob(table, snapshot.version, parts, arrow_of(schema))
    return stage_of(running_session(), job, range(len(parts) + 1), schema)
