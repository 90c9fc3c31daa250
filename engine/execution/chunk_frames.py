"""Chunks as a Spark DataFrame, and back, each by one ``mapInArrow`` stage.

Without payloads, the rows refer to parts, which the stage writes to the scratch folder (or a permanent folder). The
first action on the frame runs the pipeline; later ones, and derived frames, use its parts and see the same rows. With
payloads, nothing is written, and every action runs the pipeline again, as usual for DataFrames.
"""

from __future__ import annotations

import functools
import secrets
import weakref
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from ..chunk import Chunk, data_from_batch, minted_by, minting
from ..errors import ReadError, UsageError, WriteError, writing
from ..rrd import decode_batch
from ..task_context import as_task
from .commit import PART_SUFFIX, Staging
from .scratch import ScratchFolder, lazy_chunk, part_writer
from .spark_stage import StageJob, register_by_value, rows_of, sending, stage_of
from .stage import Body, TaskRun, TaskRunner, raise_failure, warn_of
from .work import (
    COLUMNS,
    ORDER_COLUMNS,
    PLACE_COLUMNS,
    SPARK_SCHEMA,
    WITHOUT_PAYLOAD,
    Place,
    Work,
    batches_of,
    chunk_of_row,
    ddl_of,
    frame_batch,
    frame_row,
    noting_task,
    parse_rows,
    payload_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


_kept: weakref.WeakKeyDictionary[SparkSession, list[Any]] = weakref.WeakKeyDictionary()
"""The inputs of a session's frames, kept with the session: the end of the last frame is unknown."""


def chunk_frame(work: Work, spark: SparkSession, *, payload: bool, into: Path | None) -> DataFrame:
    """Return the chunks of ``work`` as a DataFrame; see :meth:`LazyChunkStream.to_spark`."""
    job: StageJob
    if payload:
        job = PayloadJob(work)
        _kept.setdefault(spark, []).append(work)
    elif into is not None:
        job = ReferenceJob(work, str(_new_folder(into)), True)
        _kept.setdefault(spark, []).append(work)
    else:
        folder = ScratchFolder(Staging.in_scratch().local)
        job = ReferenceJob(work, str(folder.path), False)
        _kept.setdefault(spark, []).append((work, folder))
    return stage_of(spark, job, range(len(work.tasks) + 1), ddl_of(tuple(COLUMNS) if payload else WITHOUT_PAYLOAD))


def rows_frame(work: Work, spark: SparkSession, job: StageJob, schema: StructType) -> DataFrame:
    """Return the rows that ``job`` computes for each task of ``work`` as a DataFrame, which keeps the inputs alive."""
    _kept.setdefault(spark, []).append(work)
    return stage_of(spark, job, range(len(work.tasks) + 1), schema)


def _new_folder(path: Path) -> Path:
    path = path.absolute()
    with writing(str(path)):
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise WriteError("is not empty", path=str(path), hint="Give a new or empty folder.")
    return path


@dataclass(frozen=True, slots=True)
class PayloadJob:
    """Rows that contain their chunks."""

    work: Work

    def run(self, index: int) -> Iterator[pa.RecordBatch]:
        """The rows of one task, in batches of about 16 MiB."""
        with noting_task(self.work.tasks[index].label):
            rows = (row for chunk in self.work.run(index) for row in payload_rows(chunk, None))
            yield from minting(self.work.minter(index), batches_of(rows, index, tuple(COLUMNS)))


@dataclass(frozen=True, slots=True)
class ReferenceJob:
    """Rows that refer to parts, one part for each task. After its first run, a task always gives the same rows.

    The file with a task's rows appears whole, after the part; the first of two attempts at a task counts.
    """

    work: Work
    folder: str
    digests: bool

    def run(self, index: int) -> Iterator[pa.RecordBatch]:
        """The rows of one task, which runs if it has not run before."""
        rows = Path(self.folder) / f"{index:06d}.rows"
        with noting_task(self.work.tasks[index].label):
            if not rows.exists():
                self._write(index, rows)
            yield from _stored(rows)

    def _write(self, index: int, destination: Path) -> None:
        part = destination.with_name(f"{index:06d}-{secrets.token_hex(4)}{PART_SUFFIX}")
        rows = part.with_suffix(".rows-open")
        try:
            with part_writer(part, digests=self.digests) as writer, minted_by(self.work.minter(index)):
                entries = [writer.append(chunk) for chunk in self.work.run(index)]
            described = (
                frame_row(e.header, Place(str(part), e.offset, e.size, e.digest), e.uncompressed_size) for e in entries
            )
            with writing(self.folder):
                _store(rows, batches_of(described, index, WITHOUT_PAYLOAD))
                counts = _claim(rows, destination)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        finally:
            rows.unlink(missing_ok=True)
        if not (entries and counts):
            part.unlink(missing_ok=True)


def _claim(rows: Path, destination: Path) -> bool:
    """Publish the file under its name, unless another attempt has; return whether ours counts."""
    try:
        destination.hardlink_to(rows)
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        rows.replace(destination)
    return True


def _store(path: Path, batches: Iterator[pa.RecordBatch]) -> None:
    schema = frame_batch([], WITHOUT_PAYLOAD).schema
    with path.open("wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _stored(path: Path) -> Iterator[pa.RecordBatch]:
    try:
        with path.open("rb") as file, pa.ipc.open_stream(file) as reader:
            yield from reader
    except (pa.ArrowException, OSError) as error:
        raise ReadError(f"the rows of a chunk frame cannot be read: {error}", path=str(path)) from error


def transformed_frame(frame: DataFrame, function: Callable[[Iterator[Chunk]], Iterator[Chunk]]) -> DataFrame:
    """Apply ``function`` to the chunks of each partition of a DataFrame; return rows with their payload.

    The rows keep files and recordings. The DataFrame may be streaming: this is one ``mapInArrow`` stage.
    """
    register_by_value()
    with sending(function):
        return frame.mapInArrow(functools.partial(_transformed, function), ddl_of(tuple(COLUMNS)))


def _transformed(
    function: Callable[[Iterator[Chunk]], Iterator[Chunk]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The function of the Spark stage."""
    from pyspark import TaskContext

    context = TaskContext.get()
    task = context.partitionId() if context is not None else 0
    label = f"partition {task} of the DataFrame"
    with noting_task(label):
        carried = CarriedChunks(label)
        rows = (row for batch in batches for row in carried.read(batch))
        yield from as_task(batches_of(_rows_of(function, rows), task, tuple(COLUMNS)))


def _rows_of(
    function: Callable[[Iterator[Chunk]], Iterator[Chunk]], carried: Iterator[CarriedChunk]
) -> Iterator[dict[str, Any]]:
    for (path, application_id, recording_id), rows in groupby(carried, key=lambda row: row[2:]):
        ids = {"application_id": application_id, "recording_id": recording_id}
        place = None if path is None else Place(path)
        for chunk in function(row.chunk for row in rows):
            yield from ({**row, **ids} for row in payload_rows(chunk, place))


def check_frame(frame: DataFrame) -> None:
    """Raise ``UsageError`` unless the DataFrame can be one of chunk rows."""
    check_columns(getattr(frame, "columns", ()))


def check_columns(columns: Iterable[str]) -> None:
    """Raise ``UsageError`` unless rows with these columns contain chunks or refer to them."""
    names = set(columns)
    if "payload" not in names and not names >= set(PLACE_COLUMNS):
        raise UsageError(
            "this is not a DataFrame of chunks: it has neither a column 'payload' nor 'path', 'offset' and 'size'",
            hint="LazyChunkStream.to_spark() and the data sources chunkmill.* make such frames.",
        )


def chunks_of_frame(frame: DataFrame) -> list[Chunk]:
    """Run ``frame`` and yield its chunks, unread, sorted by the columns ``task`` and ``position`` if it has them."""
    return _spooled(frame) if "payload" in frame.columns else _referred(frame)


def _referred(frame: DataFrame) -> list[Chunk]:
    wanted = [name for name in frame.columns if name in COLUMNS]
    rows = [r for b in rows_of(frame.sparkSession, frame.select(*wanted)) for r in b.to_pylist()]
    rows.sort(key=lambda row: order_key(row.get("task"), row.get("position")))
    return [chunk_of_row(row) for row in rows]


def _spooled(frame: DataFrame) -> list[Chunk]:
    wanted = [f"CAST({name} AS bigint) AS {name}" for name in ORDER_COLUMNS if name in frame.columns]
    folder = ScratchFolder(Staging.in_scratch().local)
    payloads = frame.selectExpr("CAST(payload AS binary) AS payload", *wanted)
    stage = payloads.mapInArrow(functools.partial(spool_payloads, str(folder.path)), SPARK_SCHEMA)
    chunks, notes = parse_rows(rows_of(frame.sparkSession, stage))
    raise_failure(notes)
    warn_of(notes, set())
    orders: dict[int, list[tuple[int | None, int | None]]] = defaultdict(list)
    for note in notes:
        if note.kind == "order":
            orders[note.task] += note.data["rows"]
    chunks.sort(key=lambda chunk: order_key(*orders[chunk.task][chunk.position]))
    return [lazy_chunk(str(folder.path / chunk.part), chunk.entry, folder) for chunk in chunks]


def order_key(task: int | None, position: int | None) -> tuple[Any, ...]:
    """The sort key of a row: rows without ``task`` and ``position`` keep their order, after all others."""
    return task is None, task or 0, position is None, position or 0


def spool_payloads(folder: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function of the Spark stage: write the payloads of one partition into a part, and describe them."""
    from pyspark import TaskContext

    context = TaskContext.get()
    task = context.partitionId() if context is not None else 0
    yield from TaskRunner(_SpoolBody(batches), folder, watched=False).run(task)


@dataclass(frozen=True, slots=True)
class _SpoolBody(Body):
    """The task that writes the part of these rows."""

    batches: Iterable[pa.RecordBatch]

    def label(self, index: int) -> str:
        """The name of the task's input."""
        return f"partition {index} of the DataFrame"

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """Write the part; a note for each batch has the order of its rows."""
        part = Path(task.location) / f"{task.name}{PART_SUFFIX}"
        rows = CarriedChunks(self.label(task.index))
        with part_writer(part) as writer:
            for batch in self.batches:
                carried = list(rows.read(batch))
                task.rows.note("order", {"rows": [row.order for row in carried]})
                for row in carried:
                    yield from task.rows.add(writer.append(row.chunk), part.name)
        if not rows.count:
            part.unlink()
        return {"chunks": rows.count}


class CarriedChunk(NamedTuple):
    """A chunk of a row, with its order, and its file and recording if the row has them."""

    chunk: Chunk
    order: tuple[int | None, int | None]
    path: str | None = None
    application_id: str | None = None
    recording_id: str | None = None


_CARRIED: Final = (*ORDER_COLUMNS, "path", "application_id", "recording_id")


class CarriedChunks:
    """Reads chunks from rows. ``count`` is the number of chunks so far; ``label`` names the origin in errors.

    A row contains its chunk in the column ``payload``, or else refers to a stored chunk.
    """

    def __init__(self, label: str) -> None:
        self.count = 0
        self._label = label

    def read(self, batch: pa.RecordBatch) -> Iterator[CarriedChunk]:
        """Yield the chunks of rows, in order. Raises ``ReadError`` and ``UsageError``."""
        named = batch.schema.names
        nulls = [None] * batch.num_rows
        columns = [batch.column(name).to_pylist() if name in named else nulls for name in _CARRIED]
        for chunk, (task, position, *fields) in zip(self._chunks(batch), zip(*columns, strict=True), strict=True):
            yield CarriedChunk(chunk, (task, position), *fields)

    def _chunks(self, batch: pa.RecordBatch) -> Iterator[Chunk]:
        if "payload" not in batch.schema.names:
            for row in batch.to_pylist():
                self.count += 1
                yield chunk_of_row(row)
            return
        for value in batch.column("payload"):
            self.count += 1
            yield _chunk(value, f"row {self.count - 1} of {self._label}")


def _chunk(value: pa.BinaryScalar, where: str) -> Chunk:
    buffer = value.as_buffer()
    if buffer is None:
        raise ReadError("the column 'payload' is null", path=where, hint="Every row needs a payload.")
    try:
        batch = decode_batch(buffer, path=where, offset=None, what="the payload")
        return Chunk.from_data(data_from_batch(batch))
    except ReadError:
        raise
    except (ValueError, RuntimeError, KeyError) as error:
        raise ReadError(
            f"the payload is not a chunk: {error}", path=where, hint="to_spark(payload=True) makes such a column."
        ) from error
