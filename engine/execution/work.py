"""The work of an executor: tasks that yield pieces in order, and the rows with their results."""

from __future__ import annotations

import contextlib
import json
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, chain
from typing import Any, Final, NamedTuple, TypeVar, overload

import pyarrow as pa

from ..chunk import (
    Chunk,
    ChunkHeader,
    ComponentDescriptor,
    ComponentHeader,
    ComponentRange,
    Minter,
    RunIds,
    TimelineHeader,
    TimelineKind,
    tuid_text,
)
from ..errors import ChunkmillError, UsageError
from ..limits import MIB
from ..rrd import (
    COMPONENT_TYPE,
    TIMELINE_TYPE,
    ChunkEntry,
    ChunkTable,
    Compression,
    FramedPayload,
    Run,
    RunRows,
    VerifiedPayload,
    digest_of,
    encode_batch,
    types_from_bytes,
    types_to_bytes,
)
from .small_chunks import SmallChunks

T = TypeVar("T")

Piece = Chunk | RunRows
"""An output of a task: a chunk, or unread messages of RRDs."""


@dataclass(frozen=True, slots=True)
class Task:
    """The work on one split, from source to sink. ``size`` is in source bytes."""

    index: int
    label: str
    size: int


class Work(ABC):
    """A fused pipeline. Can be pickled; every Spark task gets a copy.

    Guarantee: ids from :meth:`minter` ascend in the order of the tasks, and within each task. A retried task makes the
    same ids.
    """

    @property
    @abstractmethod
    def tasks(self) -> Sequence[Task]:
        """The tasks, in the order of the output."""

    @abstractmethod
    def run(self, index: int) -> Iterator[Chunk]:
        """Yield the chunks of one task, in order."""

    @abstractmethod
    def minter(self, index: int) -> Minter:
        """Return the source of ids for the chunks that a task makes."""

    @property
    @abstractmethod
    def later(self) -> RunIds:
        """The ids for later work on the chunks."""

    @abstractmethod
    def source_paths(self) -> set[str]:
        """Return the known source files, which must not be overwritten."""

    def pieces(self, index: int) -> Iterator[Piece]:
        """Yield the pieces of one task, in order: by default its chunks."""
        return self.run(index)

    def whole_run(self, index: int) -> Run | None:  # noqa: ARG002
        """Return all messages of one task if none of them has to be read, or None (the default)."""
        return None


def dealt(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[tuple[T, ...]]:
    """Group items, in order, into tasks of a total size of at most ``most``; larger items are alone.

    >>> list(dealt([3, 4, 2, 9, 1], lambda item: item, 7))
    [(3, 4), (2,), (9,), (1,)]
    """
    group: list[T] = []
    total = 0
    for item in items:
        if group and total + size(item) > most:
            yield tuple(group)
            group, total = [], 0
        group.append(item)
        total += size(item)
    if group:
        yield tuple(group)


_AT_ONCE: Final = 64


class Packed(Sequence[T]):
    """A sequence that is pickled in packs of ``at_once`` items, for tasks.

    Every task gets the whole sequence, but unpickles only the pack with its item.

    >>> from pyspark.serializers import CloudPickleSerializer as Serializer
    >>> far = Serializer().loads(Serializer().dumps(Packed(range(1000))))
    >>> len(far), far[700], far[-1], far[998:]
    (1000, 700, 999, (998, 999))
    """

    def __init__(self, items: Iterable[T], at_once: int = _AT_ONCE) -> None:
        all_items = tuple(items)
        self._count = len(all_items)
        self._at_once = at_once
        self._pieces: list[tuple[T, ...] | bytes] = [
            all_items[i : i + at_once] for i in range(0, len(all_items), at_once)
        ]

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...

    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        numbers = range(self._count)[index]
        if isinstance(numbers, range):
            return tuple(self[i] for i in numbers)
        at, place = divmod(numbers, self._at_once)
        return self._piece(at)[place]

    def _piece(self, at: int) -> tuple[T, ...]:
        piece = self._pieces[at]
        if isinstance(piece, bytes):
            piece = self._pieces[at] = tuple(spark_serializer().loads(piece))
        return piece

    def __getstate__(self) -> dict[str, Any]:
        pieces = [piece if isinstance(piece, bytes) else spark_serializer().dumps(piece) for piece in self._pieces]
        return {"pieces": pieces, "count": self._count, "at_once": self._at_once}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._pieces, self._count, self._at_once = state["pieces"], state["count"], state["at_once"]


def spark_serializer() -> Any:
    """The pickler that Spark uses for the functions of its stages."""
    from pyspark.serializers import CloudPickleSerializer

    return CloudPickleSerializer()  # type: ignore[no-untyped-call]


class JoinedWork(Work):
    """Several works as one, with consecutive tasks. Each work is pickled separately."""

    def __init__(self, works: Sequence[Work]) -> None:
        self._works = Packed(works, at_once=1)
        self._ends = list(accumulate(len(work.tasks) for work in works))
        tasks = chain.from_iterable(work.tasks for work in works)
        self._tasks = Packed(Task(i, task.label, task.size) for i, task in enumerate(tasks))

    @property
    def tasks(self) -> Sequence[Task]:
        """The tasks of all works, with consecutive numbers."""
        return self._tasks

    def run(self, index: int) -> Iterator[Chunk]:
        """Yield the chunks of one task."""
        work, own = self._at(index)
        return work.run(own)

    def minter(self, index: int) -> Minter:
        """Return the source of ids for the chunks of one task, the same as in its own work."""
        work, own = self._at(index)
        return work.minter(own)

    @property
    def later(self) -> RunIds:
        """The ids for later work on the chunks."""
        return self._works[-1].later

    def whole_run(self, index: int) -> Run | None:
        """Return all messages of one task if none of them has to be read."""
        work, own = self._at(index)
        return work.whole_run(own)

    def pieces(self, index: int) -> Iterator[Piece]:
        """Yield the pieces of one task, in order."""
        work, own = self._at(index)
        return work.pieces(own)

    def source_paths(self) -> set[str]:
        """Return the files that any of the works reads."""
        return set().union(*(work.source_paths() for work in self._works))

    def _at(self, index: int) -> tuple[Work, int]:
        """Return the work of a task, and the number of the task there."""
        if not 0 <= index < len(self._tasks):
            raise IndexError(index)
        at = bisect_right(self._ends, index)
        return self._works[at], index - (self._ends[at - 1] if at else 0)


SCHEMA: Final = pa.schema([("kind", pa.string()), ("task", pa.int32()), ("note", pa.string()), ("table", pa.binary())])
"""``table`` is a chunk table as an Arrow IPC stream, so that Spark's JVM handles bytes instead of a row per chunk."""

_SPARK_TYPES: Final = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "bigint",
}


def spark_type(datatype: pa.DataType) -> str:
    """Return Spark's name for a type of these columns.

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
    """A chunk in a part: its table entry, with the offset from the start of the part."""

    task: int
    position: int
    part: str
    entry: ChunkEntry


@dataclass(frozen=True, slots=True)
class Note:
    """A row that is not a chunk, with another ``kind``."""

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
        """Add a chunk in ``part``; yield each full batch."""
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
        """Skip the position of a chunk in such a batch."""
        self._position += 1

    def listing(self, table: ChunkTable, part: str) -> None:
        """Add one row for all chunks of the task, which are consecutive in ``part``."""
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
    """Split the rows of a run into chunks, sorted by (task, position), and notes."""
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
    """Return rows as a batch; missing columns are null."""
    rows = list(rows)
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


PAYLOAD_LIMIT: Final = 64 * MIB
"""The size limit of a payload in a row, in bytes: larger ones go through Spark's JVM slowly and unreliably."""


class Column(NamedTuple):
    """A column of a chunk frame: its type, and its meaning."""

    arrow: pa.DataType
    meaning: str


COLUMNS: Final[Mapping[str, Column]] = {
    "task": Column(pa.int32(), "the split that the chunk comes from; (task, position) is the order of chunks"),
    "position": Column(pa.int64(), "the chunk's place in its split"),
    "chunk_id": Column(pa.string(), "``Chunk.id``: ``chunk_`` and 32 hex digits"),
    "entity_path": Column(pa.string(), "``Chunk.entity_path``"),
    "is_static": Column(pa.bool_(), "whether the chunk has no timelines"),
    "num_rows": Column(pa.int64(), "number of rows"),
    "timelines": Column(
        pa.list_(TIMELINE_TYPE),
        "name, kind (sequence, duration, timestamp), first and last time (ns, or sequence numbers)",
    ),
    "components": Column(
        pa.list_(COMPONENT_TYPE),
        "descriptor, whether all rows are empty, and its range and row count on each timeline",
    ),
    "types": Column(pa.binary(), "Arrow IPC schema of the component columns, with a checksum of the header columns"),
    "path": Column(pa.string(), "the file with the chunk, or with its source; null if there is none"),
    "offset": Column(pa.int64(), "byte offset of the chunk's message in ``path``; null if there is none"),
    "size": Column(pa.int64(), "bytes of the message (compressed)"),
    "uncompressed_size": Column(pa.int64(), "bytes of the chunk as an Arrow IPC stream, if known"),
    "digest": Column(pa.binary(), "XXH3-128 of the message without its store id, verified on read; or null"),
    "application_id": Column(pa.string(), "application id of the recording, if known"),
    "recording_id": Column(pa.string(), "id of the recording, if known"),
    "payload": Column(pa.binary(), "the chunk as an Arrow IPC stream of one batch; only with payload=True"),
}
"""Every column, in order. All are nullable for Spark."""

HEADER_COLUMNS: Final = ("chunk_id", "entity_path", "is_static", "num_rows", "timelines", "components", "types")
PLACE_COLUMNS: Final = ("path", "offset", "size")
ORDER_COLUMNS: Final = ("task", "position")
WITHOUT_PAYLOAD: Final = tuple(name for name in COLUMNS if name != "payload")

_CHECKSUM = b"chunkmill.header"


class Place(NamedTuple):
    """The place of a chunk: a message of ``size`` bytes at ``offset`` of ``path``; if only ``path``, its source."""

    path: str
    offset: int | None = None
    size: int | None = None
    digest: bytes | None = None


def ddl_of(columns: Sequence[str]) -> str:
    """The Spark schema of some columns.

    >>> ddl_of(["entity_path", "num_rows"])
    '`entity_path` string, `num_rows` bigint'
    """
    return ", ".join(f"`{name}` {spark_type(COLUMNS[name].arrow)}" for name in columns)


def frame_batch(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pa.RecordBatch:
    """Rows as a record batch of ``columns``; missing values are null."""
    return batch_of(rows, pa.schema([(name, COLUMNS[name].arrow) for name in columns]))


def frame_row(header: ChunkHeader, place: Place | None, uncompressed_size: int | None) -> dict[str, Any]:
    """Return a row without its order and payload."""
    row = {
        "chunk_id": tuid_text(header.chunk_id, "chunk_"),
        "entity_path": header.entity_path,
        "is_static": header.is_static,
        "num_rows": header.num_rows,
        "timelines": [{"name": t.name, "kind": t.kind.value, "start": t.start, "end": t.end} for t in header.timelines],
        "components": [_component(c) for c in header.components],
        "uncompressed_size": uncompressed_size,
        **(place._asdict() if place is not None else {}),
    }
    row["types"] = types_to_bytes(tuple(c.datatype for c in header.components), {_CHECKSUM: _checksum(row)})
    return row


def payload_rows(chunk: Chunk, place: Place | None) -> Iterator[dict[str, Any]]:
    """Return the rows with the payload of a chunk. A chunk too large for one row is divided into several.

    Raises ``UsageError`` if a single row of the chunk is too large.
    """
    stream, size = encode_batch(chunk.to_record_batch(), Compression.NONE)
    if size < PAYLOAD_LIMIT:
        assert isinstance(stream, pa.Buffer)
        yield {**frame_row(chunk.header, place, size), "payload": stream.to_pybytes()}
        return
    if chunk.num_rows < 2:
        raise UsageError(
            f"{chunk.entity_path}: one row of {size:,} bytes does not fit into a DataFrame's payload column, which"
            f" takes less than {PAYLOAD_LIMIT:,}",
            hint="Use a frame without payload: its rows refer to the stored chunks.",
        )
    half = chunk.num_rows // 2
    for start, length in ((0, half), (half, chunk.num_rows - half)):
        yield from payload_rows(Chunk.from_data(chunk.data.slice(start, length)), place and Place(place.path))


def chunk_of_row(row: Mapping[str, Any]) -> Chunk:
    """The unread chunk that a row refers to; if the row lacks header columns, the first use reads the header.

    Raises ``UsageError`` for a row that refers to no chunk, or has changed header columns.
    """
    path, offset, size = (row[name] for name in PLACE_COLUMNS)
    if path is None or offset is None or size is None or offset < 0 or size < 0:
        raise UsageError(
            f"a row of the DataFrame does not refer to a stored chunk (path {path!r}, offset {offset}, size {size})",
            hint="Rows of a source without stored chunks, such as an MCAP, need payload=True.",
        )
    header = _header(row)
    chunk_id = header.chunk_id if header is not None else None
    digest = row.get("digest")
    if digest:
        return Chunk.lazy(header, VerifiedPayload(path, offset, size, chunk_id, bytes(digest)))
    return Chunk.lazy(header, FramedPayload(path, offset, size, chunk_id))


def _header(row: Mapping[str, Any]) -> ChunkHeader | None:
    if any(name not in row for name in HEADER_COLUMNS) or row["types"] is None:
        return None
    try:
        types = bytes(row["types"])
        schema = pa.ipc.read_schema(pa.py_buffer(types))
        if (schema.metadata or {}).get(_CHECKSUM) == _checksum(row):
            chunk_id = bytes.fromhex(row["chunk_id"].removeprefix("chunk_"))
            return _header_of_row({**row, "chunk_id": chunk_id}, types_from_bytes(types))
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        raise _changed(row) from error
    raise _changed(row)


def _changed(row: Mapping[str, Any]) -> UsageError:
    return UsageError(
        f"the columns that describe chunk {row['chunk_id']} were changed",
        hint="Change chunks with the methods of the stream; or drop the column 'types', so that the chunks "
        "themselves are read.",
    )


def _component(component: ComponentHeader) -> dict[str, Any]:
    """A component as the struct of :data:`COMPONENT_TYPE`."""
    d = component.descriptor
    return {
        "component": d.component,
        "archetype": d.archetype,
        "component_type": d.component_type,
        "is_empty": component.is_empty,
        "ranges": [{"start": r.start, "end": r.end, "num_rows": r.num_rows} for r in component.ranges],
    }


def _header_of_row(row: Mapping[str, Any], types: tuple[pa.DataType, ...]) -> ChunkHeader:
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


def _checksum(row: Mapping[str, Any]) -> bytes:
    """Return a checksum of a header's columns, which detects changed ones before they are written into a file."""
    values = [row[name] for name in HEADER_COLUMNS if name != "types"]
    return digest_of(json.dumps(values, sort_keys=True).encode())


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
def noting_task(label: str) -> Iterator[None]:
    """Add the split, and the code of the error, to errors raised in the block, as only text crosses the JVM."""
    try:
        yield
    except Exception as error:
        code = f"{error.code} " if isinstance(error, ChunkmillError) else ""
        error.add_note(f"{code}in the task for {label}")
        raise
