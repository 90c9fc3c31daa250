"""Chunks as a Spark DataFrame, and back: one ``mapInArrow`` stage either way.

Without payloads the rows point into parts, which the stage writes to the scratch folder (or a folder that is kept):
the first action on the frame runs the pipeline, later ones, and frames derived from it, find its parts and see the
same rows. With payloads nothing is written; every action runs the pipeline again, as actions on a DataFrame do.
"""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..chunk import minted_by, minting
from ..errors import ReadError, WriteError
from ..failing import writing
from ..rrd import MessageWriter, StoreEntry
from .frame_batches import batches_of, told_of
from .frame_rows import COLUMNS, WITHOUT_PAYLOAD, Place, ddl_of, frame_batch, frame_row, payload_rows
from .scratch import ScratchFolder
from .spark_stage import Job, stage_of
from .staging import PART_SUFFIX, Staging
from .work import Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame as DataFrame
    from pyspark.sql import SparkSession as SparkSession

_STORE = StoreEntry("recording", "chunkmill", "frame")

_kept: weakref.WeakKeyDictionary[SparkSession, list[Any]] = weakref.WeakKeyDictionary()
"""What the frames of a session read from: it must not go before them, and nothing says when the last one goes."""


def chunk_frame(work: Work, spark: SparkSession, *, payload: bool, into: Path | None) -> DataFrame:
    """The chunks of ``work`` as a DataFrame; see :meth:`LazyChunkStream.to_spark`."""
    job: Job
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


def _new_folder(path: Path) -> Path:
    path = path.absolute()
    with writing(str(path)):
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise WriteError("is not empty", path=str(path), hint="Parts go into a folder that is new or empty.")
    return path


@dataclass(frozen=True, slots=True)
class PayloadJob:
    """Rows that carry their chunks."""

    work: Work

    def run(self, index: int) -> Iterator[pa.RecordBatch]:
        """The rows of one task, in batches of some 16 MiB."""
        with told_of(self.work.tasks[index].label):
            rows = (row for chunk in self.work.run(index) for row in payload_rows(chunk, None))
            yield from minting(self.work.minter(index), batches_of(rows, index, tuple(COLUMNS)))


@dataclass(frozen=True, slots=True)
class ReferenceJob:
    """Rows that point into parts, one part for each task. A task that has run once gives the same rows ever after.

    The file with a task's rows appears whole, when the part is; of two attempts at one task the first counts.
    """

    work: Work
    folder: str
    digests: bool

    def run(self, index: int) -> Iterator[pa.RecordBatch]:
        """The rows of one task; runs it when nobody has."""
        rows = Path(self.folder) / f"{index:06d}.rows"
        with told_of(self.work.tasks[index].label):
            if not rows.exists():
                self._write(index, rows)
            yield from _stored(rows)

    def _write(self, index: int, destination: Path) -> None:
        part = destination.with_name(f"{index:06d}-{secrets.token_hex(4)}{PART_SUFFIX}")
        rows = part.with_suffix(".rows-open")
        try:
            with writing(self.folder):
                file = part.open("wb", buffering=0)
            with file:
                writer = MessageWriter(file, _STORE, path=self.folder, digests=self.digests)
                with minted_by(self.work.minter(index)):
                    entries = [writer.append(chunk) for chunk in self.work.run(index)]
                writer.flush()
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
    """Give the file its name, unless another attempt has; whether it is ours that counts."""
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
