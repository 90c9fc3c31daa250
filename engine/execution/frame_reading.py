"""The chunks that a DataFrame of chunk rows stands for.

A stage of tasks writes payloads to scratch parts; the driver sees headers only.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..chunk import Chunk, data_from_batch
from ..errors import ReadError, UsageError
from ..failing import writing
from ..rrd import MessageWriter, StoreEntry, decode_batch
from .chunk_rows import SPARK_SCHEMA, PartChunk, RowWriter, parse_rows
from .failures import failure_from_dict, is_transient
from .frame_rows import COLUMNS, ORDER_COLUMNS, PLACE_COLUMNS, chunk_of_row
from .scratch import ScratchFolder, lazy_chunk
from .spark_stage import rows_of
from .stage import failure_rows
from .staging import PART_SUFFIX, Staging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STORE = StoreEntry("recording", "chunkmill", "frame")
_SPOOL_SCHEMA = f"{SPARK_SCHEMA}, of_task bigint, of_position bigint"
_NEVER = 1 << 62
_ADDED = pa.schema([("of_task", pa.int64()), ("of_position", pa.int64())])


def check_frame(frame: DataFrame) -> None:
    """Raise ``UsageError`` unless the DataFrame can be one of chunk rows."""
    names = set(getattr(frame, "columns", ()))
    if "payload" not in names and not names >= set(PLACE_COLUMNS):
        raise UsageError(
            "this is no DataFrame of chunks: it has neither a column 'payload' nor 'path', 'offset' and 'size'",
            hint="LazyChunkStream.to_spark() and the data sources chunkmill.* make such frames.",
        )


def chunks_of_frame(frame: DataFrame) -> list[Chunk]:
    """Run ``frame`` and give its chunks, unread, in the order of (task, position) where it has these columns."""
    return _spooled(frame) if "payload" in frame.columns else _referred(frame)


def _referred(frame: DataFrame) -> list[Chunk]:
    wanted = [name for name in frame.columns if name in COLUMNS]
    rows = [r for b in rows_of(frame.sparkSession, frame.select(*wanted)) for r in b.to_pylist()]
    rows.sort(key=lambda row: _order(row.get("task"), row.get("position")))
    return [chunk_of_row(row) for row in rows]


def _spooled(frame: DataFrame) -> list[Chunk]:
    wanted = [f"CAST({name} AS bigint) AS of_{name}" for name in ORDER_COLUMNS if name in frame.columns]
    staging = Staging.in_scratch()
    folder = ScratchFolder(staging.local)
    payloads = frame.selectExpr("CAST(payload AS binary) AS payload", *wanted)
    stage = payloads.mapInArrow(functools.partial(spool_payloads, str(folder.path)), _SPOOL_SCHEMA)
    batches = list(rows_of(frame.sparkSession, stage))
    chunks, notes = parse_rows(batches)
    if notes:
        raise failure_from_dict(notes[0].data)
    order = _orders(batches)
    chunks.sort(key=lambda chunk: order[chunk.task, chunk.position])
    return [_lazy(chunk, folder) for chunk in chunks]


def _orders(batches: list[pa.RecordBatch]) -> dict[tuple[int, int], tuple[Any, ...]]:
    names = ("task", "position", "of_task", "of_position")
    found = zip(*([v for b in batches for v in b.column(name).to_pylist()] for name in names), strict=True)
    return {(task, position): _order(of_task, of_position) for task, position, of_task, of_position in found}


def _order(task: int | None, position: int | None) -> tuple[Any, ...]:
    """The key of a row: those without an order keep theirs, after all others."""
    return task is None, task or 0, position is None, position or 0


def _lazy(chunk: PartChunk, folder: ScratchFolder) -> Chunk:
    return lazy_chunk(str(folder.path / chunk.part), chunk.entry, folder)


def spool_payloads(folder: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The body of the stage: write the payloads of one Spark partition into a part, and describe them."""
    from pyspark import TaskContext

    context = TaskContext.get()
    task = context.partitionId() if context is not None else 0
    part = Path(folder) / f"{task:06d}-{secrets.token_hex(4)}{PART_SUFFIX}"
    try:
        yield from _spool(part, task, batches)
    except Exception as error:
        part.unlink(missing_ok=True)
        if is_transient(error):
            raise
        yield _with_order(failure_rows(task, error, f"partition {task} of the DataFrame").batch(), [(None, None)])


def _spool(part: Path, task: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = RowWriter(task, batch_rows=_NEVER)
    with writing(str(part.parent)):
        file = part.open("wb", buffering=0)
    with file:
        writer = MessageWriter(file, _STORE, path=str(part.parent))
        number = 0
        for batch in batches:
            for value in batch.column("payload"):
                list(
                    rows.add(
                        writer.append(_chunk(value, f"row {number} of partition {task} of the DataFrame")), part.name
                    )
                )
                number += 1
            if batch.num_rows:
                yield _with_order(rows.batch(), list(zip(*map(_ticks(batch), ORDER_COLUMNS), strict=True)))
        writer.flush()
    if not number:
        part.unlink()


def _chunk(value: pa.BinaryScalar, where: str) -> Chunk:
    buffer = value.as_buffer()
    if buffer is None:
        raise ReadError("the column 'payload' is null", path=where, hint="Every row must carry its chunk.")
    try:
        batch = decode_batch(buffer, path=where, offset=None, what="the payload")
        return Chunk.from_data(data_from_batch(batch))
    except ReadError:
        raise
    except (ValueError, RuntimeError, KeyError) as error:
        raise ReadError(
            f"the payload is no chunk: {error}", path=where, hint="to_spark(payload=True) makes such a column."
        ) from error


def _ticks(batch: pa.RecordBatch) -> Any:
    """The values of an order column of the input; nulls where it has none."""

    def values(name: str) -> list[int | None]:
        found: list[int | None] = (
            batch.column(f"of_{name}").to_pylist() if f"of_{name}" in batch.schema.names else [None] * batch.num_rows
        )
        return found

    return values


def _with_order(batch: pa.RecordBatch, order: list[tuple[int | None, int | None]]) -> pa.RecordBatch:
    added = [pa.array([o[i] for o in order], field.type) for i, field in enumerate(_ADDED)]
    return pa.RecordBatch.from_arrays([*batch.columns, *added], schema=pa.schema([*batch.schema, *_ADDED]))
