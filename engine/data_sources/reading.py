"""Recordings as chunk rows and value rows: tasks over files, and pushed-down filters and columns.

The columns are those of :data:`COLUMNS` in ``engine/execution/work.py``; ``path`` is the file. Rows point to the chunks
of an RRD in its file; chunks of other formats have no such place, so ``from_spark`` needs their ``payload``.
"""

from __future__ import annotations

import functools
import re
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from ...readers import Format, RecordingFile, detect_format, stem_of
from ..chunk import Chunk, Origin, Schema, TimeBounds, ValueSchema, minting, timeline_called
from ..errors import ReadWarning, SourceMissingError, UsageError
from ..execution import Place, Work, batches_of, frame_row, noting_task, payload_rows, rows_frame
from ..inputs import APPLICATION_ID, search_inputs
from ..locations import Location, located, reading_location
from ..rrd import EncodedPayload, FramedPayload, StoreEntry, VerifiedPayload
from ..spark import arrow_of, spark_array, spark_form, spark_schema
from ..stream import ContentFilter, FrameRequest, LazyChunkStream, Plan, framed, task_plan, value_columns
from ..task_context import as_task
from ..units import counted
from .options import PushedFilter, Request

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class ChunkTask(InputPartition):
    """One Spark task: the file, the recording in it, and the work that is done there."""

    value: int
    path: str
    store: StoreEntry
    work: Work

    def batches(self, request: Request) -> Iterator[pa.RecordBatch]:
        """Yield the rows of its chunks, with the requested columns."""
        columns = request.columns
        with noting_task(self.work.tasks[0].label):
            ids = {"application_id": self.store.application_id, "recording_id": self.store.recording_id}
            rows = ({**row, **ids} for chunk in self.work.run(0) for row in self._rows(chunk, columns))
            yield from minting(self.work.minter(0), batches_of(rows, self.value, columns))

    def _rows(self, chunk: Chunk, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        place = _place(chunk, self.path)
        if "payload" in columns:
            return payload_rows(chunk, place)
        size = _stream_size(chunk) if "uncompressed_size" in columns else None
        return iter([frame_row(chunk.header, place, size)])


def chunk_tasks(paths: Iterable[str], request: Request) -> list[ChunkTask]:
    """The tasks over some files, numbered across all files."""
    tasks: list[ChunkTask] = []
    plans: list[Plan] = []
    for path in paths:
        with noting_task(path):
            for store, stream in recordings_of(path, request):
                plans.append(task_plan(narrowed(stream, request)))
                tasks += [ChunkTask(len(tasks) + i, path, store, w) for i, w in enumerate(plans[-1].singles())]
    warn_of_nothing(plans)
    return tasks


def warn_of_nothing(plans: Sequence[Plan]) -> None:
    """Warn (``ReadWarning``) if nothing of any recording is chosen; the first recording words the warning."""
    if plans and all(plan.nothing for plan in plans):
        others = f" The same applies to {counted(len(plans) - 1, 'more recording')}." if len(plans) > 1 else ""
        warnings.warn(type(plans[0].nothing[0])(f"{plans[0].nothing[0]}{others}"), stacklevel=2)


class FilteredReader(DataSourceReader):
    """A reader that looks at the filters of a query."""

    @property
    def pushFilters(self) -> Callable[[list[Filter]], list[Filter]]:  # noqa: N802 (Spark's name)
        """Take the filters of a query: what they exclude is not read.

        Spark refuses a reader with a method of this name if a session has not turned filters on. A data source found by
        its name cannot know that. So Spark sees the method of its own class, which calls this one if filters are on.
        """
        take = functools.partial(self._take)
        take.__func__ = DataSourceReader.pushFilters  # type: ignore[attr-defined]
        return take

    @abstractmethod
    def _take(self, filters: list[Filter]) -> list[Filter]:
        """Remember the usable filters; return those that Spark still has to apply."""


class ChunkFrameReader(FilteredReader):
    """Plans the tasks over the files, and makes rows of their chunks.

    Order: ``task`` counts splits across all files. A repeated task gives the same chunks, under the same ids.
    """

    def __init__(self, request: Request) -> None:
        self._request = request

    def partitions(self) -> list[InputPartition]:
        """A partition for each split of each file."""
        return list(self._tasks(input_files(self._request.paths, self._request.row)))

    def _tasks(self, paths: Iterable[str]) -> Sequence[ChunkTask]:
        return chunk_tasks(paths, self._request)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one split."""
        if isinstance(partition, ChunkTask):  # if there is none, Spark invents a partition
            yield from as_task(partition.batches(self._request))

    def _take(self, filters: list[Filter]) -> list[Filter]:
        """Remember the usable filters. Spark applies all filters again, so results do not depend on this."""
        for wanted in filter(None, map(wanted_by, filters)):
            self._request = self._request.pushing(wanted)
        return filters


def wanted_by(item: Filter) -> PushedFilter | None:
    """Return a filter that selects the same rows, or more; None for an unusable filter."""
    attribute, value = getattr(item, "attribute", None), getattr(item, "value", None)
    is_equal = isinstance(item, EqualTo | EqualNullSafe)
    if attribute == ("entity_path",):
        values: Any = value if isinstance(item, In) else (value,) if is_equal else ()
        return PushedFilter(tuple(values)) if values and all(isinstance(v, str) for v in values) else None
    if is_equal and attribute == ("is_static",) and isinstance(value, bool):
        return PushedFilter(is_static=value)
    if attribute is None or len(attribute) != 1 or isinstance(value, bool):
        return None
    first, last = _ticks(value)
    if first is None or last is None:
        return None
    starts = is_equal or isinstance(item, GreaterThan | GreaterThanOrEqual)
    ends = is_equal or isinstance(item, LessThan | LessThanOrEqual)
    bounds = (first if starts else None, last + 1 if ends else None)
    return PushedFilter(None, None, attribute[0], *bounds) if starts or ends else None


def _ticks(value: Any) -> tuple[int | None, int | None]:
    """Return the first and last tick that Spark shows as a value: a time in microseconds stands for 1000 ticks."""
    if isinstance(value, int):
        return value, value
    if not isinstance(value, datetime | timedelta):
        return None, None
    zero = timedelta(0) if isinstance(value, timedelta) else datetime(1970, 1, 1, tzinfo=UTC)
    if isinstance(value, datetime) and value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    microseconds = (value - zero) // timedelta(microseconds=1)
    return microseconds * 1000, microseconds * 1000 + 999


def recordings_of(path: str, request: Request) -> Iterator[tuple[StoreEntry, LazyChunkStream]]:
    """The recordings of a file, without blueprints, each with the stream whose chunks become rows."""
    for name, file in _files_of(path, request):
        recordings = [(s, stream) for s, stream in file.stores() if s is None or s.kind == "recording"]
        if request.frame is not None and len(recordings) < 2:
            recordings = [(recordings[0][0] if recordings else None, file.values())]
        for store, stream in recordings or [(None, file.stream())]:
            yield store or StoreEntry("recording", APPLICATION_ID, name), stream


def _files_of(path: str, request: Request) -> Iterator[tuple[str, RecordingFile]]:
    """A file with its name, or each of the recordings in a folder that holds many."""
    location = located(path)
    row = detect_format(location) if request.row is None else request.row
    file = row.open(location, request.given)
    name = _name_of(path, request.paths)
    choice = row.file.episode_option
    episodes = () if choice in request.given else file.episodes()
    if not episodes:
        yield name, file
    for episode in episodes:
        yield f"{name}/{episode.name}", row.open(location, {**request.given, choice: episode.number})


def _name_of(path: str, roots: Iterable[str]) -> str:
    """Return the id for a recording without one: the file's name with its folders below a root."""
    for root in roots:
        folder = str(located(root)).rstrip("/") + "/"
        if path.startswith(folder):
            return stem_of(path[len(folder) :])
    return stem_of(path.rstrip("/").rpartition("/")[2])


def narrowed(stream: LazyChunkStream, request: Request) -> LazyChunkStream:
    """Return a stream that reads only what is requested."""
    if request.content is not None:
        stream = stream.filter(content=request.content)
    for wanted in request.pushed:
        content = None if wanted.entity_paths is None else _exactly(wanted.entity_paths)
        if content is not None or wanted.is_static is not None:
            stream = stream.filter(content=content, is_static=wanted.is_static)
    return stream


def _exactly(entity_paths: Sequence[str]) -> ContentFilter | None:
    """Return a filter for these entities; None if one is no canonical path, so that only Spark's filter decides."""
    if any(re.search(r"(?<!\\)\s", path) for path in entity_paths):
        return None
    try:
        return ContentFilter(path if path.startswith("/") else "/" + path for path in entity_paths)
    except ValueError:
        return None


def _place(chunk: Chunk, path: str) -> Place:
    payload = chunk.payload
    if isinstance(payload, FramedPayload):
        digest = payload.digest or None if isinstance(payload, VerifiedPayload) else None
        return Place(payload.path, payload.offset, payload.size, digest)
    return Place(path)


def _stream_size(chunk: Chunk) -> int | None:
    """The bytes of a chunk as an Arrow IPC stream; None if the chunk would have to be read."""
    if isinstance(chunk.payload, FramedPayload | EncodedPayload):
        return None
    batch = chunk.to_record_batch()
    end_of_stream = 8
    return int(batch.schema.serialize().size) + int(pa.ipc.get_record_batch_size(batch)) + end_of_stream


def input_files(paths: Iterable[str], row: Format | None) -> list[str]:
    """All files and objects of ``paths``: absolute, each once, in the order of the paths, sorted within each path.

    A folder is searched with its subfolders for inputs of the format, hidden ones left out; a pattern may hold ``*``,
    ``?``, ``[]`` and ``**``. Without a ``row``, inputs may have any format. Raises ``SourceMissingError`` if a path
    gives nothing.
    """
    locations = (entry.path for path in paths for entry in search_inputs(reading_location(path), row, _skipped))
    return list(dict.fromkeys(map(_existing, locations)))


def _existing(place: Location) -> str:
    if isinstance(place, Path) and not place.exists():
        raise SourceMissingError("there is no such file", path=str(place), hint="Check the spelling of the path.")
    return str(place.absolute() if isinstance(place, Path) else place)


def _skipped(path: str, why: str) -> None:
    warnings.warn(f"{path} {why}", ReadWarning, stacklevel=2)


RECORDING: Final = "recording_id"
"""The column with the recording of each row; left out if columns are chosen without it."""

_Opened = tuple[str, StoreEntry, LazyChunkStream]


def value_row_schema(request: Request) -> StructType:
    """Return the columns of the requested rows. Raises ``UsageError`` if there are none."""
    from pyspark.sql.types import StringType, StructField, StructType

    assert request.frame is not None
    try:
        paths = input_files([request.schema_from] if request.schema_from else request.paths, request.row)
    except SourceMissingError as error:
        hint = "For an empty landing folder, give a recording like the expected ones as the option 'schemaFrom'."
        raise SourceMissingError(error.message, path=error.path, hint=f"{error.hint} {hint}") from None
    names = request.frame.columns
    frame = request.frame if names is None else _without_recording(request.frame)
    columns = frame.schema(*_columns(_opened(paths, request), frame))
    made = spark_schema(columns.arrow, nanoseconds=request.nanoseconds)
    first = [StructField(RECORDING, StringType())] if names is None or RECORDING in names else []
    return StructType([*first, *(column for column in made if not first or column.name != RECORDING)])


def _without_recording(frame: FrameRequest) -> FrameRequest:
    return replace(frame, columns=tuple(name for name in frame.columns or () if name != RECORDING))


@dataclass(frozen=True)
class ValueTask(ChunkTask):
    """One Spark task whose rows are values. The chunks have the columns of ``value_schema``; the others are null."""

    frame: FrameRequest = field(default_factory=FrameRequest)
    value_schema: ValueSchema = field(default_factory=lambda: ValueSchema((), {}, frozenset()))
    arrow: pa.Schema = field(default_factory=lambda: pa.schema([]))

    def batches(self, request: Request) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 (it is in the frame)
        """The rows of its messages."""
        with noting_task(self.work.tasks[0].label):
            chunks = (chunk.data for chunk in minting(self.work.minter(0), self.work.run(0)))
            for batch in self.value_schema.batches(chunks, self.frame.bounds):
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
    """The tasks over some files, numbered across all files, whose rows have a schema of Spark's.

    Raises ``UsageError`` if a column has another type in the schema.
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
    value_schema = whole.select(name for name in names if _has(whole, name))
    for column in value_schema.arrow:
        form = spark_form(column.type, nanoseconds=request.nanoseconds)
        if form != arrow.field(column.name).type:
            raise UsageError(
                f"column {column.name!r} is {form} in these recordings, "
                f"and {arrow.field(column.name).type} in the schema",
                path=paths[0],
                hint="Read the two kinds of recordings separately, or give a schema with the columns that they share.",
            )
    frame = replace(frame, columns=tuple(value_schema.arrow.names))
    tasks: list[ValueTask] = []
    plans: list[Plan] = []
    for path, store, stream in opened:
        with noting_task(path):
            plans.append(task_plan(framed(stream, frame)))
            works = plans[-1].singles()
            tasks += [
                ValueTask(len(tasks) + i, path, store, w, frame, value_schema, arrow) for i, w in enumerate(works)
            ]
    warn_of_nothing(plans)
    return tasks


@dataclass(frozen=True, slots=True)
class ValueJob:
    """The values of each task of ``work``, as rows with Spark's types."""

    work: Work
    value_schema: ValueSchema
    bounds: TimeBounds | None
    arrow: pa.Schema

    def run(self, index: int) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        with noting_task(self.work.tasks[index].label):
            chunks = (chunk.data for chunk in minting(self.work.minter(index), self.work.run(index)))
            for batch in self.value_schema.batches(chunks, self.bounds):
                columns = [spark_array(c, field.type) for c, field in zip(batch.columns, self.arrow, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, schema=self.arrow)


def value_frame(work: Work, value_schema: ValueSchema, bounds: TimeBounds | None, spark: SparkSession) -> DataFrame:
    """Return the values of a pipeline as a DataFrame; see :meth:`LazyChunkStream.to_spark`."""
    schema = spark_schema(value_schema.arrow)
    return rows_frame(work, spark, ValueJob(work, value_schema, bounds, arrow_of(schema)), schema)


def _opened(paths: Iterable[str], request: Request) -> list[_Opened]:
    opened: list[_Opened] = []
    for path in paths:
        with noting_task(path):
            opened += [(path, store, narrowed(stream, request)) for store, stream in recordings_of(path, request)]
    return opened


def _columns(opened: Iterable[_Opened], frame: FrameRequest) -> tuple[Schema, frozenset[Origin]]:
    """Return the columns of all recordings, and the components with at most one value in every row."""
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
    """The frame within the pushed-down times, if these are on its index or it has no index."""
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

    Order: within a task, rows are in the order of messages. A repeated task gives the same rows.
    """

    def __init__(self, request: Request, schema: StructType) -> None:
        super().__init__(request)
        self._schema = schema

    def _tasks(self, paths: Iterable[str]) -> Sequence[ChunkTask]:
        return value_tasks(self._schema, list(paths), self._request)
