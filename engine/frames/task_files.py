"""The Arrow files that tasks on Spark write their rows into, and how they are read: mapped, without a copy."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from ..errors import writing
from ..execution import Body, TaskRun
from ..query import SegmentFigures
from .measured_scan import measured_batches
from .plan import RowRequest, SegmentShare, TaskShares

ARROW_SUFFIX: Final = ".arrow"


@dataclass(frozen=True, slots=True)
class QueryBody(Body):
    """Tasks that each write the rows of some segments into one file: an Arrow stream for each segment that has rows.

    They tell where each lies, and its rows, and where they are to measure, the figures of each. It pickles.
    """

    tasks: tuple[TaskShares, ...]
    request: RowRequest
    measures: bool = False

    def label(self, index: int) -> str:
        """The name of a task's input."""
        return self.tasks[index].label

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """Write the file of one task."""
        figures: list[SegmentFigures] | None = [] if self.measures else None
        path = Path(task.location) / (task.name + ARROW_SUFFIX)
        try:
            with writing(task.location):
                file = pa.OSFile(str(path), "wb")
            with file:
                streams = [
                    _written(_rows(share, self.request, figures), file, task.location)
                    for share in self.tasks[task.index].shares
                ]
                size = file.tell()
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        yield from ()
        told = {"file": path.name, "streams": streams, "bytes": size, "rows": sum(rows for _, _, rows in streams)}
        return told if figures is None else {**told, "figures": [one.to_dict() for one in figures]}


def _rows(share: SegmentShare, request: RowRequest, figures: list[SegmentFigures] | None) -> Iterator[pa.RecordBatch]:
    rows = share.batches(request)
    return rows if figures is None else measured_batches(rows, figures)


def _written(batches: Iterator[pa.RecordBatch], file: pa.NativeFile, location: str) -> tuple[int, int, int]:
    """Write the rows of a share; gives where they lie, and how many they are."""
    start, rows = file.tell(), 0
    writer: pa.ipc.RecordBatchStreamWriter | None = None
    for batch in batches:
        with writing(location):
            if writer is None:
                writer = pa.ipc.new_stream(file, batch.schema)
            writer.write_batch(batch)
        rows += len(batch)
    if writer is not None:
        with writing(location):
            writer.close()
    return start, file.tell() - start, rows


class TaskFile:
    """The file that a task wrote: one stream of batches for each of its segments."""

    def __init__(self, path: Path, told: dict[str, Any]) -> None:
        self.told = told
        self._path = path
        self._map: pa.Buffer | None = None

    def batches(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of the segment that is the ``number``-th of the task."""
        start, size, rows = self.told["streams"][number]
        if not rows:
            return
        if self._map is None:
            with pa.memory_map(str(self._path)) as file:
                self._map = file.read_buffer()
        with pa.ipc.open_stream(self._map.slice(start, size)) as stream:
            yield from stream

    def remove(self) -> None:
        """Remove the file; batches of it stay as long as somebody has them."""
        self._map = None
        self._path.unlink(missing_ok=True)
