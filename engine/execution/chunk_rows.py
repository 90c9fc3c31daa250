"""Rows that a task tells the driver: chunk tables of what it wrote, and notes. Headers and places, never a payload.

A row of kind ``chunks`` has the table of some chunks in their order, ``listing`` that of all of a task, one behind the
other, ``small`` tells of a batch of small ones; ``task`` closes a task, with its counts; ``failure`` says why a task
stopped; ``warning`` is to be shown to the user. All say more as JSON in ``note``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa

from ..rrd import ChunkEntry, ChunkTable
from .small_chunks import SmallChunks

SCHEMA: Final = pa.schema([("kind", pa.string()), ("task", pa.int32()), ("note", pa.string()), ("table", pa.binary())])
"""``table`` is a chunk table as an Arrow IPC stream: so Spark's JVM sees bytes, and no row for each chunk."""

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
    """A row that is not a chunk: its ``kind`` is one of the others of this module, or ``quarantine``."""

    kind: str
    task: int
    data: dict[str, Any]


class RowWriter:
    """Makes record batches of rows for one task; ``first`` is the position of the first chunk."""

    def __init__(self, task: int, batch_rows: int = 4096, first: int = 0) -> None:
        self.task = task
        self._rows: list[dict[str, Any]] = []
        self._most = batch_rows
        self._position = first
        self._entries: list[ChunkEntry] = []
        self._part = ""
        self._stretches: list[list[int]] = []

    def add(self, entry: ChunkEntry, part: str) -> Iterator[pa.RecordBatch]:
        """Add a chunk in ``part``; gives a batch whenever one is full."""
        if part != self._part:
            self._close_table()
            self._part = part
        if not self._stretches or sum(self._stretches[-1]) != self._position:
            self._stretches.append([self._position, 0])
        self._stretches[-1][1] += 1
        self._entries.append(entry)
        self._position += 1
        if len(self._entries) >= self._most:
            yield self.batch()

    def small(self, batch: SmallChunks, part: str) -> None:
        """Add a row for a batch of chunks in ``part``."""
        self.note("small", {"part": part, **asdict(batch)})

    def skip(self) -> None:
        """Leave out a position: that of a chunk in such a batch."""
        self._position += 1

    def listing(self, table: ChunkTable, part: str) -> None:
        """Add one row for all chunks of the task, which lie in ``part`` one behind the other."""
        self.note("listing", {"part": part}, table)

    def note(self, kind: str, data: dict[str, Any], table: ChunkTable | None = None) -> None:
        """Add any other row."""
        stream = None if table is None else table.to_stream()
        self._rows.append({"kind": kind, "task": self.task, "note": json.dumps(data), "table": stream})

    def batch(self) -> pa.RecordBatch:
        """The rows that were added since the last batch."""
        self._close_table()
        rows, self._rows = self._rows, []
        return batch_of(rows, SCHEMA)

    def _close_table(self) -> None:
        if self._entries:
            self.note("chunks", {"part": self._part, "positions": self._stretches}, ChunkTable.of(self._entries))
            self._entries, self._stretches = [], []


def parse_rows(batches: Iterable[pa.RecordBatch]) -> tuple[list[PartChunk], list[Note]]:
    """The chunks, sorted by (task, position), and the notes in a run's rows."""
    chunks: list[PartChunk] = []
    notes: list[Note] = []
    for row in (row for batch in batches for row in batch.to_pylist()):
        kind, task, data = row["kind"], row["task"], json.loads(row["note"])
        if kind == "chunks":
            positions = (at for first, count in data["positions"] for at in range(first, first + count))
            entries = ChunkTable.from_stream(row["table"]).entries()
            chunks += [PartChunk(task, at, data["part"], e) for at, e in zip(positions, entries, strict=True)]
        else:
            table = {} if row["table"] is None else {"table": ChunkTable.from_stream(row["table"])}
            notes.append(Note(kind, task, {**data, **table}))
    chunks.sort(key=lambda c: (c.task, c.position))
    return chunks, notes


def batch_of(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows as a batch; what a row lacks is null."""
    rows = list(rows)
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
