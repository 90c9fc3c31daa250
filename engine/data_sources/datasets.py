"""Rows of datasets by an index: ``chunkmill.dataset``, a data source of queries.

What is asked for, and the types of columns, are those of :meth:`DatasetEntry.to_spark`; Spark's filters decide what is
read where a session pushes them down.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    In,
    InputPartition,
    IsNotNull,
)
from pyspark.sql.types import StructType

from ..catalog import Queried, queried_at
from ..errors import UsageError
from ..frames import RowRequest, SparkColumns, TaskShares, rows_for_spark, spark_tasks
from ..locations import located
from ..query import SEGMENT_ID, AnswerColumns, Query, QuerySemantics, no_column
from ..spark import arrow_of
from ..stream import tick_of
from .options import DATASET_NAME, flag, is_whole, listed
from .reading import FilteredReader, wanted_by

_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 63) - 1
_OPTIONS: Final = ("path", "dataset", "index", "contents", "segments", "start", "end", "fill", "columns", "semantics")


@dataclass(frozen=True, slots=True)
class DatasetRequest:
    """The options of the data source, checked: ``start`` and ``end`` are ticks of the index, from and before."""

    path: str
    dataset: str | None
    query: Query
    segments: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> DatasetRequest:
        """Check the options given. Raises ``UsageError``."""
        unknown = sorted(set(options) - set(_OPTIONS))
        if unknown:
            raise UsageError(
                f"{DATASET_NAME} has no option {', '.join(map(repr, unknown))}", hint=f"Options: {', '.join(_OPTIONS)}."
            )
        for name, example in (("path", '.load("lake")'), ("index", '.option("index", "log_time")')):
            if not options.get(name):
                hint = f'spark.read.format("{DATASET_NAME}"){example}'
                raise UsageError(f"{DATASET_NAME} needs the option {name!r}", hint=hint)
        index = None if options["index"].lower() == "none" else options["index"]
        bounds = [_tick(name, options.get(name)) for name in ("start", "end")]
        if index is None and bounds != [None, None]:
            raise UsageError("options 'start' and 'end' are on an index, and index 'none' has none")
        query = Query.of(
            index,
            options.get("contents"),
            fill_latest_at=flag("fill", options),
            semantics=QuerySemantics.of(options.get("semantics")),
        )
        segments, columns = (listed(options.get(name, "")) for name in ("segments", "columns"))
        return cls(options["path"], options.get("dataset"), query, segments, columns, *bounds)

    def queried(self) -> Queried:
        """The columns that are wanted, and the segments, as of the newest version; raises as :func:`queried_at`."""
        columns, segments = queried_at(located(self.path), self.dataset, self.query, self.segments)
        if not self.columns:
            return columns, segments
        for name in self.columns:
            if name not in columns.arrow.names:
                raise no_column(name, columns.arrow.names, path=self.path)
        kept = tuple(c for c in columns.components if c.name in self.columns)
        indexes = tuple(c for c in columns.indexes if c.name in (columns.query.index, *self.columns))
        return replace(columns, components=kept, indexes=indexes), segments

    def schema(self) -> StructType:
        """The columns with Spark's types."""
        return SparkColumns(self.queried()[0]).schema

    def bounds(self, columns: AnswerColumns) -> Iterator[pc.Expression]:
        """The filters that ``start`` and ``end`` are."""
        yield from _between(columns, self.start, self.end)


def _tick(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    return int(text) if is_whole(text) else tick_of(name, text)


def _between(columns: AnswerColumns, start: int | None, end: int | None) -> Iterator[pc.Expression]:
    index = columns.query.index
    if index is None:
        return
    kind = columns.arrow.field(index).type
    if start is not None:  # a timestamp of Spark's may be of any year
        yield pc.field(index) >= pa.scalar(min(max(start, _LEAST), _MOST), pa.int64()).cast(kind)
    if end is not None and end <= _MOST:
        yield pc.field(index) < pa.scalar(max(end, _LEAST), pa.int64()).cast(kind)


@dataclass(frozen=True)
class DatasetTask(InputPartition):
    """One Spark task: the segments that it reads, and the rows of them that are wanted."""

    value: int
    shares: TaskShares
    request: RowRequest


class DatasetReader(FilteredReader):
    """Plans the tasks over the segments of one version, and gives their rows.

    Order: the rows of a segment by the index, in one partition unless it is large. A task that is run again gives the
    same rows.
    """

    def __init__(self, request: DatasetRequest, schema: StructType) -> None:
        columns, self._segments = request.queried()
        self._columns = SparkColumns(columns)
        self._arrow = arrow_of(schema)
        self._filters = list(request.bounds(columns))
        known = {field.name: field.type for field in self._columns.arrow}
        for field in self._arrow:
            if known.get(field.name) != field.type:
                raise UsageError(
                    f"column {field.name!r} is {known.get(field.name, 'not there')}, and {field.type} in the schema",
                    path=request.path,
                    hint="Read it without a schema, which gives all columns with their types.",
                )

    def partitions(self) -> list[InputPartition]:
        """A partition for some small segments, or for a part of a large one."""
        predicate = functools.reduce(operator.and_, self._filters) if self._filters else None
        tasks = spark_tasks(self._columns.columns, self._segments, predicate)
        request = RowRequest(tuple(self._columns.columns.arrow.names), predicate)
        return [DatasetTask(number, shares, request) for number, shares in enumerate(tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if isinstance(partition, DatasetTask):  # where there is none, Spark makes one up
            for batch in rows_for_spark(partition.shares, self._columns, partition.request):
                yield batch.select(self._arrow.names)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_segments": [], "_filters": []}  # tasks have their own

    def _take(self, filters: list[Filter]) -> list[Filter]:
        """Remember what can be used. Spark applies all of them once more, so nothing depends on it."""
        for item in filters:
            self._filters += self._expressions(item)
        return filters

    def _expressions(self, item: Filter) -> list[pc.Expression]:
        """The facts in a filter of segments, of the index, and of components that are there."""
        columns, attribute = self._columns.columns, tuple[str, ...](getattr(item, "attribute", ()))
        name = attribute[0] if len(attribute) == 1 else ""
        if name == SEGMENT_ID and isinstance(item, In | EqualTo | EqualNullSafe):
            values = list(item.value) if isinstance(item, In) else [item.value]
            return [pc.field(SEGMENT_ID).isin(pa.array(values, pa.string()))]
        if isinstance(item, IsNotNull):
            return [] if columns.component(name) is None else [pc.field(name).is_valid()]
        wanted = wanted_by(item)
        if wanted is None or wanted.time is None or name not in self._columns.names_of_index:
            return []
        return list(_between(columns, wanted.start, wanted.end))
