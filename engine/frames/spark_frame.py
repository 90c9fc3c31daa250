"""Query results as Spark DataFrames: the tasks are the same as for DataFusion, and rows have Spark's types."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from ..execution import noting_task, stage_of
from ..query import AnswerColumns, QueriedSegment, grouped
from ..spark import arrow_of, running_session, spark_array, spark_form, spark_schema
from .answer import Answer, possible_segments
from .plan import RowRequest, TaskShares, needed_bytes, stored_bytes, tasks_over

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

NANOSECONDS_SUFFIX: Final = "_nanoseconds"
"""The suffix of the name of the column with the exact nanoseconds of an index of times."""


@dataclass(frozen=True)
class SparkColumns:
    """The columns of a query result in Spark.

    An index of times is a timestamp, an index of durations an interval, both in microseconds, rounded down. A column of
    nanoseconds follows it, unless another column has that name.
    """

    columns: AnswerColumns

    @functools.cached_property
    def schema(self) -> StructType:
        """The columns with Spark's types."""
        forms = {name: spark_form(field.type, nanoseconds=field.name != name) for name, field in self._fields.items()}
        return spark_schema(pa.schema(list(forms.items())))

    @functools.cached_property
    def arrow(self) -> pa.Schema:
        """The columns as an Arrow schema for Spark."""
        return arrow_of(self.schema)

    @property
    def names_of_index(self) -> list[str]:
        """The columns of the query's index."""
        index = self.columns.query.index
        return [name for name, field in self._fields.items() if field.name == index]

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert rows of the result to rows of Spark."""
        values = zip(self._fields.values(), self.arrow, strict=True)
        return pa.RecordBatch.from_arrays(
            [spark_array(batch.column(field.name), column.type) for field, column in values], schema=self.arrow
        )

    @functools.cached_property
    def _fields(self) -> dict[str, pa.Field]:
        """The field from which each column is made."""
        fields: dict[str, pa.Field] = {}
        names = set(self.columns.arrow.names)
        for field in self.columns.arrow:
            fields[field.name] = field
            beside = field.name + NANOSECONDS_SUFFIX
            is_time = pa.types.is_timestamp(field.type) or pa.types.is_duration(field.type)
            if is_time and self._is_index(field.name) and beside not in names:
                fields[beside] = field
        return fields

    def _is_index(self, name: str) -> bool:
        return any(column.name == name for column in self.columns.indexes)


@dataclass(frozen=True)
class FrameJob:
    """The picklable function of a Spark task that returns the rows of some segments."""

    tasks: tuple[TaskShares, ...]
    columns: SparkColumns

    def run(self, index: int) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        yield from rows_for_spark(self.tasks[index], self.columns, RowRequest())


def rows_for_spark(task: TaskShares, columns: SparkColumns, request: RowRequest) -> Iterator[pa.RecordBatch]:
    """The rows of one task, for Spark. Raises ``ReadError``."""
    with noting_task(task.label):
        for share in task.shares:
            for batch in share.batches(request):
                yield columns.batch(batch)


def spark_tasks(
    columns: AnswerColumns, segments: Sequence[QueriedSegment], predicate: pc.Expression | None = None
) -> tuple[TaskShares, ...]:
    """Return the tasks for segments that may have rows that pass a predicate.

    Raises ``ReadError`` if a manifest cannot be read.
    """
    units = grouped(possible_segments(columns, segments, predicate))
    request = RowRequest(None, predicate)
    tasks, _ = tasks_over(units, needed_bytes(units, request, stored_bytes(units)))
    return tuple(tasks)


def spark_frame(answer: Answer) -> DataFrame:
    """The rows of a query result as a lazy Spark DataFrame: segment after segment, each in the order of the index.

    Raises ``ReadError`` if a manifest cannot be read.
    """
    spark = running_session(answer.options.master, answer.options.conf)
    tasks = spark_tasks(answer.columns, answer.segments)
    columns = SparkColumns(answer.columns)
    return stage_of(spark, FrameJob(tasks, columns), range(len(tasks) + 1), columns.schema)
