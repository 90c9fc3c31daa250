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

from ..chunk import ChunkHeader, ComponentDescriptor, ComponentHeader, ComponentRange, TimelineHeader, TimelineKind
from ..chunk.arrow_types import alike
from ..rrd import ChunkEntry, ManifestTable
from .small_chunks import SmallChunks

_RANGE = pa.struct([("start", pa.int64()), ("end", pa.int64()), ("num_rows", pa.int64())])
TIMELINE_TYPE = pa.struct([("name", pa.string()), ("kind", pa.string()), ("start", pa.int64()), ("end", pa.int64())])
COMPONENT_TYPE = pa.struct(
    [
        ("component", pa.string()),
        ("archetype", pa.string()),
        ("component_type", pa.string()),
        ("is_empty", pa.bool_()),
        ("ranges", pa.list_(_RANGE)),
    ]
)

SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("task", pa.int32()),
        ("position", pa.int64()),
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
        ("note", pa.string()),
    ]
)
"""``types`` is an Arrow IPC schema with the component columns' types, given once for each distinct set of a task;
later rows name the position of that row in ``types_of``. ``offset`` is that of the message in ``part``, ``digest`` its
digest, where known. A row of kind ``listing`` has rows of a manifest in ``digest``, as an Arrow IPC stream, and their
union schema in ``types``."""

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
        self._types: dict[tuple[pa.DataType, ...], tuple[tuple[pa.DataType, ...], int]] = {}

    def add(self, entry: ChunkEntry, part: str) -> Iterator[pa.RecordBatch]:
        """Add the row of a chunk in ``part``; gives a batch whenever one is full."""
        header = entry.header
        types = tuple(c.datatype for c in header.components)
        told, first = self._types.get(types, (None, self._position))
        is_told = told is not None and alike(told, types)
        if not is_told:
            first = self._position
            self._types[types] = types, first
        self._rows.append(
            {
                "kind": "chunk",
                "task": self.task,
                "position": self._position,
                "chunk_id": header.chunk_id,
                "entity_path": header.entity_path,
                "num_rows": header.num_rows,
                "is_static": header.is_static,
                "timelines": [(t.name, t.kind.value, t.start, t.end) for t in header.timelines],
                "components": [component_row(c) for c in header.components],
                "types": None if is_told else types_to_bytes(types),
                "types_of": first,
                "part": part,
                "offset": entry.offset,
                "size": entry.size,
                "uncompressed_size": entry.uncompressed_size,
                "digest": entry.digest,
            }
        )
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
        """What was added since the last batch."""
        rows, self._rows = self._rows, []
        columns = [pa.array([r.get(f.name) for r in rows], f.type) for f in SCHEMA]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def component_row(component: ComponentHeader) -> tuple[Any, ...]:
    """A component as the struct of :data:`COMPONENT_TYPE`."""
    d = component.descriptor
    ranges = [(r.start, r.end, r.num_rows) for r in component.ranges]
    return d.component, d.archetype, d.component_type, component.is_empty, ranges


def types_to_bytes(types: tuple[pa.DataType, ...], metadata: dict[bytes, bytes] | None = None) -> bytes:
    """Arrow types as an Arrow IPC schema."""
    serialised: bytes = pa.schema([pa.field(str(i), t) for i, t in enumerate(types)], metadata).serialize().to_pybytes()
    return serialised


def entries_to_stream(entries: Iterable[ChunkEntry]) -> bytes:
    """Entries as an Arrow IPC stream of chunk rows, which say the same.

    Pickled, entries of one component take two and a half times as long to make and to load: pickle makes an Arrow type
    anew for each.
    """
    rows = RowWriter(0)
    batches = [batch for entry in entries for batch in rows.add(entry, "")]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as stream:
        for batch in (*batches, rows.batch()):
            stream.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def entries_from_stream(data: bytes) -> tuple[ChunkEntry, ...]:
    """The entries that :func:`entries_to_stream` wrote."""
    chunks, _ = parse_rows(pa.ipc.open_stream(pa.py_buffer(data)))
    return tuple(chunk.entry for chunk in chunks)


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
            header = header_of_row(row, types[row["task"], row["types_of"]])
            entry = ChunkEntry(header, row["offset"], row["size"], row["uncompressed_size"], row["digest"])
            chunks.append(PartChunk(row["task"], row["position"], row["part"], entry))
        elif row["kind"] == "listing":
            table = ManifestTable.from_stream(row["digest"], row["types"])
            notes.append(Note("listing", row["task"], {"part": row["part"], "table": table}))
        else:
            notes.append(Note(row["kind"], row["task"], json.loads(row["note"])))
    chunks.sort(key=lambda c: (c.task, c.position))
    return chunks, notes


def types_from_bytes(data: bytes) -> tuple[pa.DataType, ...]:
    """The types that :func:`types_to_bytes` wrote."""
    return tuple(f.type for f in pa.ipc.read_schema(pa.py_buffer(data)))


def header_of_row(row: dict[str, Any], types: tuple[pa.DataType, ...]) -> ChunkHeader:
    """The header in a row, with the types of its components."""
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
