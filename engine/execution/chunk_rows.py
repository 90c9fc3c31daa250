"""Chunk rows: what a task tells the driver of each chunk it wrote. Headers and places, never a payload.

A row of kind ``chunk`` describes one chunk, ``listing`` all of a task, one behind the other, ``small`` a batch of small
ones; ``task`` closes a task, with its counts; ``failure`` says why a task stopped; ``warning`` is to be shown
to the user. The last four carry JSON in ``note``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa

from ..chunk import (
    ChunkHeader,
    ComponentDescriptor,
    ComponentHeader,
    ComponentRange,
    TimelineHeader,
    TimelineKind,
    alike,
)
from ..rrd import CHUNK_TABLE, ChunkEntry, ChunkTable, types_from_bytes, types_to_bytes
from .small_chunks import SmallChunks

SCHEMA: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("task", pa.int32()),
        ("position", pa.int64()),
        *(f for f in CHUNK_TABLE if f.name not in ("types", "chunk_id", "digest")),
        ("chunk_id", pa.binary()),
        ("digest", pa.binary()),
        ("types", pa.binary()),
        ("types_of", pa.int64()),
        ("note", pa.string()),
    ]
)
"""The columns of the chunk table, with the order of the rows. ``types`` is given once for each distinct set of them;
later rows name its position in ``types_of``. A row of kind ``listing`` has a whole chunk table in ``types``."""

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
        self._table = _ChunkRows()

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

    def listing(self, table: ChunkTable, part: str) -> None:
        """Add one row for all chunks of the task, which lie in ``part``, instead of one for each."""
        stream = table.to_stream()
        self._rows.append({"kind": "listing", "task": self.task, "types": stream, "part": part, "note": "{}"})

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
            table = ChunkTable.from_stream(row["types"])
            notes.append(Note("listing", row["task"], {"part": row["part"], "table": table}))
        else:
            notes.append(Note(row["kind"], row["task"], json.loads(row["note"])))
    chunks.sort(key=lambda c: (c.task, c.position))
    return chunks, notes


# --- a row for one chunk

Row = dict[str, Any]


class _ChunkRows:
    """Makes rows of a chunk table. Numbers of rows ascend, and are the reader's to know."""

    def __init__(self) -> None:
        self._types: dict[tuple[pa.DataType, ...], tuple[tuple[pa.DataType, ...], int]] = {}

    def row(self, entry: ChunkEntry, part: str, number: int) -> Row:
        """Return row ``number``: a chunk in the file ``part``."""
        header = entry.header
        types = tuple(c.datatype for c in header.components)
        same, first = self._types.get(types, (None, number))
        is_new = same is None or not alike(same, types)
        if is_new:
            first = number
            self._types[types] = types, number
        return {
            "chunk_id": header.chunk_id,
            "entity_path": header.entity_path,
            "num_rows": header.num_rows,
            "is_static": header.is_static,
            "timelines": [(t.name, t.kind.value, t.start, t.end) for t in header.timelines],
            "components": [component_row(c) for c in header.components],
            "types": types_to_bytes(types) if is_new else None,
            "types_of": first,
            "part": part,
            "offset": entry.offset,
            "size": entry.size,
            "uncompressed_size": entry.uncompressed_size,
            "digest": entry.digest,
        }


def batch_of(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows as a batch; what a row lacks is null."""
    rows = list(rows)
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def component_row(component: ComponentHeader) -> tuple[Any, ...]:
    """Return a component as the struct of :data:`COMPONENT_TYPE`."""
    d = component.descriptor
    ranges = [(r.start, r.end, r.num_rows) for r in component.ranges]
    return d.component, d.archetype, d.component_type, component.is_empty, ranges


def entry_of_row(row: Mapping[str, Any], types: tuple[pa.DataType, ...]) -> ChunkEntry:
    """Return the entry in a row, with the types of its components."""
    header = header_of_row(row, types)
    return ChunkEntry(header, row["offset"], row["size"], row["uncompressed_size"], row["digest"])


def header_of_row(row: Mapping[str, Any], types: tuple[pa.DataType, ...]) -> ChunkHeader:
    """Return the header in a row, with the types of its components."""
    return ChunkHeader(
        chunk_id=row["chunk_id"],
        entity_path=row["entity_path"],
        num_rows=row["num_rows"],
        is_static=row["is_static"],
        timelines=tuple(
            TimelineHeader(t["name"], TimelineKind(t["kind"]), t["start"], t["end"]) for t in row["timelines"]
        ),
        components=tuple(
            ComponentHeader(
                ComponentDescriptor(c["component"], c["archetype"], c["component_type"]),
                datatype,
                tuple(ComponentRange(r["start"], r["end"], r["num_rows"]) for r in c["ranges"]),
                c["is_empty"],
            )
            for c, datatype in zip(row["components"], types, strict=True)
        ),
    )
