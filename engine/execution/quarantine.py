"""Chunks on which a lens failed, kept as rows of a Lance table with their error, while the rest goes through.

Tasks write what they quarantine beside their parts; the driver appends it to the table once the whole run has
succeeded, right before the output is committed, so that a task that is tried again quarantines nothing twice.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from ..chunk import Chunk
from ..errors import ChunkmillError
from ..lance import FixedTable
from ..locations import local_path, located
from ..task_context import find

SCHEMA = pa.schema(
    [
        ("entity_path", pa.string()),
        ("component", pa.string()),
        ("selector", pa.string()),
        ("chunk_id", pa.string()),
        ("num_rows", pa.int64()),
        ("code", pa.string()),
        ("message", pa.string()),
        ("quarantined_at", pa.timestamp("us", tz="UTC")),
        ("chunk", pa.large_binary()),
    ]
)
"""One row per chunk; ``chunk`` is it as an Arrow IPC stream, for :meth:`Chunk.from_record_batch`."""

_REPAIR = "Choose another table, or repair this one; nothing was committed."

Row = tuple[str, dict[str, Any]]
"""The path of a table, and a row of it."""


class Quarantined(list[Row]):
    """The rows of one run or task, in its context."""


@dataclass(frozen=True, slots=True)
class QuarantineTable:
    """The hook that lenses call with a chunk and its error: both become a row of the Lance table at ``path``."""

    path: str

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> QuarantineTable:
        """The table at a path, which is made with its first row."""
        return cls(str(local_path(path)))

    def __call__(self, chunk: Chunk, error: ChunkmillError) -> None:
        """Keep the chunk and its error."""
        row = (self.path, _row(chunk, error))
        rows = find(Quarantined)
        if rows is None:
            append_rows([row])
        else:
            rows.append(row)


def _row(chunk: Chunk, error: ChunkmillError) -> dict[str, Any]:
    place = error.to_dict()
    sink = pa.BufferOutputStream()
    batch = chunk.to_record_batch()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return {
        "entity_path": chunk.entity_path,
        "component": place.get("component"),
        "selector": place.get("selector"),
        "chunk_id": chunk.id,
        "num_rows": chunk.num_rows,
        "code": error.code,
        "message": str(error),
        "quarantined_at": datetime.now(UTC),
        "chunk": sink.getvalue().to_pybytes(),
    }


def rows_as_bytes(rows: Sequence[Row]) -> bytes:
    """A task's rows as the file that lies beside its part until the run has succeeded."""
    tables = pa.array([table for table, _ in rows], pa.string())
    batch = pa.RecordBatch.from_pylist([row for _, row in rows], schema=SCHEMA).append_column("table", tables)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def rows_from_bytes(data: bytes) -> list[Row]:
    """The rows in such a file."""
    rows = pa.ipc.open_file(pa.py_buffer(data)).read_all().to_pylist()
    return [(row.pop("table"), row) for row in rows]


def append_rows(rows: Sequence[Row]) -> None:
    """Append rows to their tables, one commit for each table."""
    for path in dict.fromkeys(table for table, _ in rows):
        table = FixedTable(located(path), SCHEMA, name="the quarantine table", unread=_REPAIR, unwritten=_REPAIR)
        table.append(pa.Table.from_pylist([row for at, row in rows if at == path], schema=SCHEMA))
