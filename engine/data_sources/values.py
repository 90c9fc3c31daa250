"""Value rows: one row per message, with its fields, times and recording as columns of Spark.

What is decoded is what a :class:`FrameRequest` leaves, as for :meth:`LazyChunkStream.to_arrow`: the columns, entities
and times that options and filters ask for. Names of columns are by all recordings that are read at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ..chunk import Origin, Schema, TimeBounds, ValueSchema, minting, timeline_called
from ..errors import SourceMissingError, UsageError
from ..execution import Work, noting_task, rows_frame
from ..rrd import StoreEntry
from ..spark import arrow_of, spark_array, spark_form, spark_schema
from ..stream import FrameRequest, LazyChunkStream, Plan, framed, task_plan, value_columns
from .options import Request
from .reading import ChunkFrameReader, ChunkTask, input_files, narrowed, recordings_of, warn_of_nothing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

RECORDING: Final = "recording_id"
"""The column that says of which recording a row is, unless columns were chosen and it is not among them."""

_Opened = tuple[str, StoreEntry, LazyChunkStream]


def value_row_schema(request: Request) -> StructType:
    """The columns of the rows that a request asks for. Raises ``UsageError`` where there is nothing of that kind."""
    from pyspark.sql.types import StringType, StructField, StructType

    assert request.frame is not None
    try:
        paths = input_files([request.schema_from] if request.schema_from else request.paths, request.row)
    except SourceMissingError as error:
        hint = "Of a landing folder that is empty yet: a recording like those to come, as the option 'schemaFrom'."
        raise SourceMissingError(error.message, path=error.path, hint=f"{error.hint} {hint}") from None
    names = request.frame.columns
    frame = request.frame if names is None else _without_recording(request.frame)
    known = frame.schema(*_columns(_opened(paths, request), frame))
    made = spark_schema(known.arrow, nanoseconds=request.nanoseconds)
    first = [StructField(RECORDING, StringType())] if names is None or RECORDING in names else []
    return StructType([*first, *(column for column in made if not first or column.name != RECORDING)])


def _without_recording(frame: FrameRequest) -> FrameRequest:
    return replace(frame, columns=tuple(name for name in frame.columns or () if name != RECORDING))


@dataclass(frozen=True)
class ValueTask(ChunkTask):
    """One Spark task whose rows are values: ``known`` of their columns are in the chunks, the others are null."""

    frame: FrameRequest = field(default_factory=FrameRequest)
    known: ValueSchema = field(default_factory=lambda: ValueSchema((), {}, frozenset()))
    arrow: pa.Schema = field(default_factory=lambda: pa.schema([]))

    def batches(self, request: Request) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 (it is in the frame)
        """The rows of its messages."""
        with noting_task(self.work.tasks[0].label):
            chunks = (chunk.data for chunk in minting(self.work.minter(0), self.work.run(0)))
            for batch in self.known.batches(chunks, self.frame.bounds):
                columns = [self._column(batch, column) for column in self.arrow]
                yield pa.RecordBatch.from_arrays(columns, schema=self.arrow)

    def _column(self, batch: pa.RecordBatch, column: pa.Field) -> pa.Array:
        at = batch.schema.get_field_index(column.name)
        if at >= 0:
            return spark_array(batch.column(at), column.type)
        if column.name == RECORDING:
            return pa.repeat(pa.scalar(self.store.recording_id, column.type), batch.num_rows)
        return pa.nulls(batch.num_rows, column.type)


def value_tasks(schema: StructType, paths: Sequence[str], request: Request) -> list[ValueTask]:
    """The tasks over some files, numbered through, whose rows have a schema of Spark's.

    Raises ``UsageError`` where a column is of another type there.
    """
    assert request.frame is not None
    arrow = arrow_of(schema)
    names = tuple(name for name in arrow.names if name != RECORDING)
    opened = _opened(paths, request)
    frame = replace(request.frame, columns=None)
    columns = _columns(opened, frame)
    if not list(columns[0]):
        return []
    frame = _within_times(frame, columns[0], request)
    whole = frame.schema(*columns)
    known = whole.select(name for name in names if _has(whole, name))
    for one in known.arrow:
        form = spark_form(one.type, nanoseconds=request.nanoseconds)
        if form != arrow.field(one.name).type:
            raise UsageError(
                f"column {one.name!r} is {form} in these recordings, and {arrow.field(one.name).type} in the schema",
                path=paths[0],
                hint="Read the two kinds of recordings separately, or give a schema with the columns that they share.",
            )
    frame = replace(frame, columns=tuple(known.arrow.names))
    found: list[ValueTask] = []
    plans: list[Plan] = []
    for path, store, stream in opened:
        with noting_task(path):
            plans.append(task_plan(framed(stream, frame)))
            works = plans[-1].singles()
            found += [ValueTask(len(found) + i, path, store, w, frame, known, arrow) for i, w in enumerate(works)]
    warn_of_nothing(plans)
    return found


@dataclass(frozen=True, slots=True)
class ValueJob:
    """Rows of the values that each task of a work gives, in Spark's types."""

    work: Work
    known: ValueSchema
    bounds: TimeBounds | None
    arrow: pa.Schema

    def run(self, index: int) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        with noting_task(self.work.tasks[index].label):
            chunks = (chunk.data for chunk in minting(self.work.minter(index), self.work.run(index)))
            for batch in self.known.batches(chunks, self.bounds):
                columns = [spark_array(c, field.type) for c, field in zip(batch.columns, self.arrow, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, schema=self.arrow)


def value_frame(work: Work, known: ValueSchema, bounds: TimeBounds | None, spark: SparkSession) -> DataFrame:
    """The values of a pipeline as a DataFrame; see :meth:`LazyChunkStream.to_spark`."""
    schema = spark_schema(known.arrow)
    return rows_frame(work, spark, ValueJob(work, known, bounds, arrow_of(schema)), schema)


def _opened(paths: Iterable[str], request: Request) -> list[_Opened]:
    found: list[_Opened] = []
    for path in paths:
        with noting_task(path):
            found += [(path, store, narrowed(stream, request)) for store, stream in recordings_of(path, request)]
    return found


def _columns(opened: Iterable[_Opened], frame: FrameRequest) -> tuple[Schema, frozenset[Origin]]:
    """The columns of all recordings, and the components of which no row of any has several values."""
    schemas, singles, several = [], set[Origin](), set[Origin]()
    for path, _, stream in opened:
        with noting_task(path):
            schema, alone = value_columns(stream, frame)
        schemas.append(schema)
        singles |= alone
        several |= {(c.entity_path, c.component) for c in schema.component_columns()} - alone
    indexes = {c.name: c for schema in schemas for c in schema.index_columns()}
    components = {(c.sort_key, str(c.datatype)): c for schema in schemas for c in schema.component_columns()}
    return Schema(indexes.values(), components.values()), frozenset(singles - several)


def _within_times(frame: FrameRequest, columns: Schema, request: Request) -> FrameRequest:
    """The frame within the times that were pushed down, as far as they are on its index, or it has none."""
    timelines = [index.name for index in columns.index_columns()]
    for wanted in request.pushed:
        line = None if wanted.time is None else timeline_called(wanted.time, timelines)
        mine = None if frame.index is None else timeline_called(frame.index, timelines)
        if wanted.time is None or line is None or mine not in (None, line):
            continue
        starts = [tick for tick in (frame.start, wanted.start) if tick is not None]
        ends = [tick for tick in (frame.end, wanted.end) if tick is not None]
        frame = replace(frame, index=wanted.time, start=max(starts, default=None), end=min(ends, default=None))
    return frame


def _has(schema: ValueSchema, name: str) -> bool:
    try:
        schema.select([name])
    except UsageError:
        return False
    return True


class ValueReader(ChunkFrameReader):
    """Plans the tasks over the files, and makes rows of the values in them.

    Order: that of messages within a task. A task that is run again gives the same rows.
    """

    def __init__(self, request: Request, schema: StructType) -> None:
        super().__init__(request)
        self._schema = schema

    def _tasks(self, paths: Iterable[str]) -> Sequence[ChunkTask]:
        return value_tasks(self._schema, list(paths), self._request)
