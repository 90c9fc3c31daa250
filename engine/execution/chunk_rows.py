"""Chunk rows: what a task tells the driver of each chunk it wrote. Headers and places, never a payload.

A row of kind ``chunk`` describes one chunk, ``listing`` all of a task, one behind the other, ``small`` a batch of small
ones; ``task`` closes a task, with its counts; ``failure`` says why a task stopped; ``warning`` is to be shown
to the user. The last four carry JSON in ``note``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa

from ..rrd import CHUNK_TABLE, ChunkEntry, ChunkTableRows, ManifestTable, batch_of, entry_of_row, types_from_bytes
from .small_chunks import SmallChunks

SCHEMA: Final = pa.schema(
    [("kind", pa.string()), ("task", pa.int32()), ("position", pa.int64()), *CHUNK_TABLE, ("note", pa.string())]
)
"""The columns of the chunk table, with the order of the rows. ``types_of`` counts from the task's first position. A
row of kind ``listing`` has rows of a manifest in ``digest``, as an Arrow IPC stream, and their union schema in
``types``."""

_SPARK_TYPES: Final = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "bigint",
}


def spark_type(datatype: pa.DataType) -> str:
    """Return the name that Spark has for a type of these columns.

    >>> spark_type(pa.list_(pa.struct([("name", pa.string()), ("start", pa.int64())])))
    'array<struct<name:string,start:bigint>>'
    """
    if pa.types.is_list(datatype):
        return f"array<{spark_type(datatype.value_type)}>"
    if pa.types.is_struct(datatype):
        return f"struct<{','.join(f'{field.name}:{spark_type(field.type)}' for field in datatype)}>"
    return _SPARK_TYPES[datatype]


SPARK_SCHEMA: Final = ", ".join(f"{field.name} {spark_type(field.type)}" for field in SCHEMA)


@dataclass(frozen=True, slots=True)
class PartChunk:
    """A chunk in a part: its entry, with the offset counted from the start of the part."""

    task: int
    position: int
    part: str
    entry: ChunkEntry


@dataclass(frozen=True, slots=True)
class Note:
    """A row that is no chunk: its ``kind`` is one of the others of this module, or ``quarantine``."""

    kind: str
    task: int
    data: dict[str, Any]


class RowWriter:
    """Makes record batches of chunk rows for one task; ``first`` is the position of the first chunk."""

    def __init__(self, task: int, batch_rows: int = 4096, first: int = 0) -> None:
        self.task = task
        self._rows: list[dict[str, Any]] = []
        self._batch_rows = batch_rows
        self._position = first
        self._table = ChunkTableRows()

    def add(self, entry: ChunkEntry, part: str) -> Iterator[pa.RecordBatch]:
        """Add the row of a chunk in ``part``; gives a batch whenever one is full."""
        row = self._table.row(entry, part, self._position)
        self._rows.append({"kind": "chunk", "task": self.task, "position": self._position, **row})
        self._position += 1
        if len(self._rows) >= self._batch_rows:
            yield self.batch()

    def small(self, batch: SmallChunks, part: str) -> None:
        """Add a row for a batch of chunks in ``part``."""
        self.note("small", {"part": part, **asdict(batch)})

    def skip(self) -> None:
        """Leave out a position: that of a chunk in such a batch."""
        self._position += 1

    def listing(self, table: ManifestTable, part: str) -> None:
        """Add one row for all chunks of the task, which lie in ``part``, instead of one for each."""
        self._rows.append(
            {
                "kind": "listing",
                "task": self.task,
                "types": table.schema,
                "digest": table.to_stream(),
                "part": part,
                "note": "{}",
            }
        )

    def note(self, kind: str, data: dict[str, Any]) -> None:
        """Add a row that is no chunk."""
        self._rows.append({"kind": kind, "task": self.task, "note": json.dumps(data)})

    def batch(self) -> pa.RecordBatch:
        """The rows that were added since the last batch."""
        rows, self._rows = self._rows, []
        return batch_of(rows, SCHEMA)


def parse_rows(batches: Iterable[pa.RecordBatch]) -> tuple[list[PartChunk], list[Note]]:
    """The chunks, sorted by (task, position), and the notes in a run's rows."""
    chunks: list[PartChunk] = []
    notes: list[Note] = []
    types: dict[tuple[int, int], tuple[pa.DataType, ...]] = {}
    rows = [row for batch in batches for row in batch.to_pylist()]
    for row in rows:
        if row["kind"] == "chunk" and row["types"] is not None:
            types[row["task"], row["position"]] = types_from_bytes(row["types"])
    for row in rows:
        if row["kind"] == "chunk":
            entry = entry_of_row(row, types[row["task"], row["types_of"]])
            chunks.append(PartChunk(row["task"], row["position"], row["part"], entry))
        elif row["kind"] == "listing":
            table = ManifestTable.from_stream(row["digest"], row["types"])
            notes.append(Note("listing", row["task"], {"part": row["part"], "table": table}))
        else:
            notes.append(Note(row["kind"], row["task"], json.loads(row["note"])))
    chunks.sort(key=lambda c: (c.task, c.position))
    return chunks, notes
