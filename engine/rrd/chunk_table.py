"""The chunk table: an Arrow table of fixed columns, a row for each chunk, of its header and where its message lies.

It is what tasks tell the driver (with an order), what a store keeps as its manifests, and how chunks in scratch parts
travel; a footer is made of the same entries, and read into them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class ChunkEntry:
    """One chunk of a file: its header and where its ``ArrowMsg`` lies.

    ``offset`` is that of the message itself, 16 bytes past its frame header, from the start of the stream (or of
    the part); ``size`` its length in bytes; ``uncompressed_size`` the length of the Arrow IPC stream inside. ``digest``
    is that of the message, see :func:`message_digest`, where it is known.
    """

    header: ChunkHeader
    offset: int
    size: int
    uncompressed_size: int
    digest: bytes | None = None


TIMELINE_TYPE: Final = pa.struct(
    [("name", pa.string()), ("kind", pa.string()), ("start", pa.int64()), ("end", pa.int64())]
)
COMPONENT_TYPE: Final = pa.struct(
    [
        ("component", pa.string()),
        ("archetype", pa.string()),
        ("component_type", pa.string()),
        ("is_empty", pa.bool_()),
        ("ranges", pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64()), ("num_rows", pa.int64())]))),
    ]
)

CHUNK_TABLE: Final = pa.schema(
    [
        ("chunk_id", pa.binary()),
        ("entity_path", pa.string()),
        ("num_rows", pa.int64()),
        ("is_static", pa.bool_()),
        ("timelines", pa.list_(TIMELINE_TYPE)),
        ("components", pa.list_(COMPONENT_TYPE)),
        ("types", pa.binary()),
        ("types_of", pa.int64()),
        ("part", pa.string()),
        ("offset", pa.int64()),
        ("size", pa.int64()),
        ("uncompressed_size", pa.int64()),
        ("digest", pa.binary()),
    ]
)
"""``types`` is an Arrow IPC schema with the component columns' types, given once for each distinct set; later rows name
the number of that row in ``types_of``. ``part`` is the file, ``offset`` that of the message in it, ``digest`` its
digest, where known."""

_BATCH_ROWS: Final = 4096

Row = dict[str, Any]
"""A row of the table, by column."""


class ChunkTableRows:
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


def table_of_entries(entries: Iterable[tuple[str, ChunkEntry]]) -> pa.Table:
    """Return the table of chunks that lie in files: the name of each one's file, and its entry.

    Pickled, entries of one component take two and a half times as long to make and to load: pickle makes an Arrow type
    anew for each.
    """
    rows = ChunkTableRows()
    batches: list[pa.RecordBatch] = []
    waiting: list[Row] = []
    for number, (part, entry) in enumerate(entries):
        waiting.append(rows.row(entry, part, number))
        if len(waiting) == _BATCH_ROWS:
            batches.append(batch_of(waiting, CHUNK_TABLE))
            waiting = []
    return pa.Table.from_batches([*batches, batch_of(waiting, CHUNK_TABLE)], CHUNK_TABLE)


def entries_of_table(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, ChunkEntry]]:
    """Give the chunks of a table as :func:`table_of_entries` takes them."""
    types: dict[int, tuple[pa.DataType, ...]] = {}
    number = 0
    for batch in batches:
        for row in batch.to_pylist():
            if row["types"] is not None:
                types[number] = types_from_bytes(row["types"])
            yield row["part"], entry_of_row(row, types[row["types_of"]])
            number += 1


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


def types_to_bytes(types: tuple[pa.DataType, ...], metadata: dict[bytes, bytes] | None = None) -> bytes:
    """Return Arrow types as an Arrow IPC schema."""
    serialised: bytes = pa.schema([pa.field(str(i), t) for i, t in enumerate(types)], metadata).serialize().to_pybytes()
    return serialised


def types_from_bytes(data: bytes) -> tuple[pa.DataType, ...]:
    """Return the types that :func:`types_to_bytes` wrote."""
    return tuple(f.type for f in pa.ipc.read_schema(pa.py_buffer(data)))


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
