"""Rows of a chunk frame as a task gives them to Spark: in batches, and with errors that say where they come from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ..errors import ChunkmillError
from ..limits import MIB
from .frame_rows import frame_batch

_BATCH_ROWS = 4096
_BATCH_BYTES = 16 * MIB


def batches_of(rows: Iterator[dict[str, Any]], task: int, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Rows as record batches, numbered in their order; a batch ends at 4,096 rows or 16 MiB of payload."""
    held: list[dict[str, Any]] = []
    size = 0
    for position, row in enumerate(rows):
        held.append({**row, "task": task, "position": position})
        size += len(row.get("payload") or b"")
        if len(held) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield frame_batch(held, columns)
            held, size = [], 0
    if held:
        yield frame_batch(held, columns)


@contextlib.contextmanager
def told_of(label: str) -> Iterator[None]:
    """Add the split, and the code of the project's own errors, to what is raised: only text crosses the JVM."""
    try:
        yield
    except Exception as error:
        code = f"{error.code} " if isinstance(error, ChunkmillError) else ""
        error.add_note(f"{code}in the task for {label}")
        raise
