"""The chunk table: one row per chunk with its header and the location of its message; checked against the chunks.

Tasks report chunk tables to the driver, stores keep them as manifests, and runs of messages and parts describe their
chunks by them. Footers are converted to and from chunk tables without an object for each chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk import (
    Chunk,
    ChunkData,
    ChunkHeader,
    ChunkKind,
    ComponentDescriptor,
    ComponentHeader,
    ComponentRange,
    TimelineHeader,
    TimelineKind,
    alike,
)
from ..errors import ReadError
from .messages import MESSAGE_HEADER_SIZE

Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

_DENSE: Final = 1 << 22


def integers(column: pa.Array) -> Integers:
    """The 64-bit values of a column as they are in memory; undefined for nulls."""
    buffer, width = column.buffers()[1], column.type.bit_width // 8
    if buffer is None or not len(column):
        return np.zeros(len(column), dtype=np.int64)
    sign = "u" if width < 8 and pa.types.is_unsigned_integer(column.type) else "i"
    values = np.frombuffer(buffer, f"{sign}{width}", len(column), column.offset * width)
    return values.astype(np.int64, copy=False)


def valid(column: pa.Array) -> Mask:
    """The mask of the values of ``column`` that are not null."""
    if not column.null_count:
        return np.ones(len(column), dtype=bool)
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=bool)


def distinct(keys: Integers, bound: int) -> tuple[Integers, Integers]:
    """The distinct ``keys`` (below ``bound``), ascending, and the place of each key among them."""
    if bound > _DENSE:
        numbers, place = np.unique(keys, return_inverse=True)
        return numbers, place.reshape(-1)
    is_there = np.zeros(bound, dtype=bool)
    is_there[keys] = True
    numbers = np.flatnonzero(is_there)
    places = np.empty(bound, dtype=np.int64)
    places[numbers] = np.arange(len(numbers))
    return numbers, places[keys]


def sequence_codes(
    ends: Integers, values: Integers, bound: int, codes: Integers | None = None, count: int = 1
) -> tuple[Integers, int]:
    """A number for each list, and the count of numbers.

    Lists with equal values (below ``bound``) and ``codes`` have the same number.
    """
    sizes = np.diff(ends)
    numbers = np.zeros(len(sizes), dtype=np.int64) if codes is None else codes
    for position in range(int(sizes.max(initial=0))):
        goes_on = sizes > position
        value = np.zeros(len(sizes), dtype=np.int64)
        value[goes_on] = values[ends[:-1][goes_on] + position] + 1
        keys, numbers = distinct(numbers * (bound + 1) + value, count * (bound + 1))
        count = len(keys)
    return numbers, count


def encoded(column: pa.Array) -> tuple[Integers, list[str]]:
    """A number for each row, and the text of each number."""
    dictionary_array = column.dictionary_encode()
    return integers(dictionary_array.indices), dictionary_array.dictionary.to_pylist()


def coded(*columns: pa.Array) -> tuple[Integers, list[tuple[Any, ...]]]:
    """A number for each row of several columns, and the values of each number; nulls are values, too."""
    codes, bound = np.zeros(len(columns[0]), dtype=np.int64), 1
    tables = []
    for column in columns:
        dictionary_array = column.dictionary_encode("encode")
        table = dictionary_array.dictionary.to_pylist()
        codes = codes * len(table) + integers(dictionary_array.indices)
        bound *= max(len(table), 1)
        tables.append(table)
    numbers, place = distinct(codes, bound)
    keys = []
    for key in numbers.tolist():
        values = []
        for table in reversed(tables):
            key, at = divmod(key, len(table))
            values.append(table[at])
        keys.append(tuple(reversed(values)))
    return place, keys


def flat(column: pa.ListArray) -> tuple[Integers, pa.Array]:
    """The bounds of each list in the flat values, and these values."""
    ends = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    first, last = (int(ends[0]), int(ends[-1])) if len(ends) else (0, 0)
    return (ends - first if len(ends) else np.zeros(1, np.int64)), column.values.slice(first, last - first)


def lists_of(sizes: Sequence[int] | Integers, datatype: pa.StructType, columns: Sequence[Any]) -> pa.ListArray:
    """Lists of structs: ``sizes`` has their lengths, ``columns`` the flat values of the fields."""
    fields = list(datatype)
    arrays = [c if isinstance(c, pa.Array) else pa.array(c, f.type) for c, f in zip(columns, fields, strict=True)]
    ends = np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.StructArray.from_arrays(arrays, fields=fields))


def type_column(codes: npt.NDArray[Any], sets: Sequence[tuple[pa.DataType, ...]]) -> pa.DictionaryArray:
    """The column ``types``: each row's type set, by its code."""
    values = pa.array([types_to_bytes(types) for types in sets], pa.binary())
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), values)


def types_to_bytes(types: tuple[pa.DataType, ...], metadata: dict[bytes, bytes] | None = None) -> bytes:
    """Return Arrow types as an Arrow IPC schema."""
    serialised: bytes = pa.schema([pa.field(str(i), t) for i, t in enumerate(types)], metadata).serialize().to_pybytes()
    return serialised


@lru_cache(maxsize=1024)
def types_from_bytes(data: bytes) -> tuple[pa.DataType, ...]:
    """Return the types that :func:`types_to_bytes` wrote."""
    return tuple(f.type for f in pa.ipc.read_schema(pa.py_buffer(data)))


RANGE_TYPE: Final = pa.struct([("start", pa.int64()), ("end", pa.int64()), ("num_rows", pa.int64())])
TIMELINE_TYPE: Final = pa.struct(
    [("name", pa.string()), ("kind", pa.string()), ("start", pa.int64()), ("end", pa.int64())]
)
COMPONENT_TYPE: Final = pa.struct(
    [
        ("component", pa.string()),
        ("archetype", pa.string()),
        ("component_type", pa.string()),
        ("is_empty", pa.bool_()),
        ("ranges", pa.list_(RANGE_TYPE)),
    ]
)

CHUNK_TABLE: Final = pa.schema(
    [
        ("chunk_id", pa.binary(16)),
        ("entity_path", pa.string()),
        ("num_rows", pa.int64()),
        ("is_static", pa.bool_()),
        ("timelines", pa.list_(TIMELINE_TYPE)),
        ("components", pa.list_(COMPONENT_TYPE)),
        ("types", pa.dictionary(pa.int32(), pa.binary())),
        ("part", pa.string()),
        ("offset", pa.int64()),
        ("size", pa.int64()),
        ("uncompressed_size", pa.int64()),
        ("digest", pa.binary(16)),
    ]
)
"""``types`` is an Arrow IPC schema with the component columns' types. ``part`` is the file, ``offset`` the offset of
the message in it, ``digest`` the message's digest, if known. If ``components`` is null, the footer does not describe
them, and they are only in the chunk."""

NO_ROWS: Final = ComponentRange(None, None, 0)
"""The range on a timeline of a component without values there."""

_CHUNK_WORK: Final = 32 * 1024
_OF_HEADERS: Final = frozenset(("entity_codes", "timelines", "components", "type_sets", "is_static", "num_rows"))
"""Facts that do not depend on a chunk's place, and are kept when it moves."""


@dataclass(frozen=True, slots=True)
class ChunkEntry:
    """A chunk of a file: its header and the place of its ``ArrowMsg``.

    ``offset`` is the offset of the message after its frame header of 16 bytes, from the start of the stream (or of the
    part); ``size`` is its length in bytes; ``uncompressed_size`` is the length of the Arrow IPC stream inside.
    ``digest`` is the digest of the message, if known; see :func:`message_digest`.
    """

    header: ChunkHeader
    offset: int
    size: int
    uncompressed_size: int
    digest: bytes | None = None


class TimelineCells(NamedTuple):
    """The timelines of all chunks, row after row: those of row ``i`` are ``range(ends[i], ends[i + 1])``.

    ``codes`` are places in ``keys``, which are names and kinds. ``is_known`` is False for a chunk without rows.
    """

    ends: Integers
    codes: Integers
    keys: list[tuple[str, TimelineKind]]
    start: Integers
    end: Integers
    is_known: Mask

    def of_rows(self, start: int, stop: int) -> TimelineCells:
        """Return the cells of some rows."""
        ends, cells = _within(self.ends, start, stop)
        return TimelineCells(
            ends, self.codes[cells], self.keys, self.start[cells], self.end[cells], self.is_known[cells]
        )


class ComponentCells(NamedTuple):
    """The components of all chunks, row after row, and their ranges on their chunk's timelines.

    ``is_empty`` is True if that is known; ``emptiness`` is None if it is unknown.
    """

    ends: Integers
    codes: Integers
    descriptors: list[ComponentDescriptor]
    emptiness: pa.Array
    range_ends: Integers
    start: Integers
    end: Integers
    num_rows: Integers
    is_known: Mask

    def of_rows(self, start: int, stop: int) -> ComponentCells:
        """Return the cells of some rows."""
        ends, cells = _within(self.ends, start, stop)
        range_ends, ranges = _within(self.range_ends, cells.start, cells.stop)
        return ComponentCells(
            ends,
            self.codes[cells],
            self.descriptors,
            self.emptiness[cells],
            range_ends,
            self.start[ranges],
            self.end[ranges],
            self.num_rows[ranges],
            self.is_known[ranges],
        )


def _within(ends: Integers, start: int, stop: int) -> tuple[Integers, slice]:
    """Return the bounds of some rows' lists, from 0 on, and the slice of their values."""
    some = ends[start : stop + 1]
    return some - some[0], slice(int(some[0]), int(some[-1]))


@dataclass(frozen=True)
class ChunkTable:
    """Rows of a chunk table, as one batch of :data:`CHUNK_TABLE`; pickles as an Arrow IPC stream."""

    batch: pa.RecordBatch

    @classmethod
    def of(cls, entries: Iterable[ChunkEntry], parts: str | Sequence[str] = "") -> ChunkTable:
        """The table of ``entries``; ``parts`` is one file for all entries, or one for each.

        Pickled entries would take two and a half times as long to write and to load, because each Arrow type is created
        again.
        """
        entries = list(entries)
        headers = [e.header for e in entries]
        return cls(
            pa.RecordBatch.from_arrays(
                [
                    pa.array([h.chunk_id for h in headers], pa.binary(16)),
                    pa.array([h.entity_path for h in headers], pa.string()),
                    pa.array([h.num_rows for h in headers], pa.int64()),
                    pa.array([h.is_static for h in headers], pa.bool_()),
                    _timeline_lists(headers),
                    _component_lists(headers),
                    _type_sets(headers),
                    pa.array([parts] * len(entries) if isinstance(parts, str) else parts, pa.string()),
                    pa.array([e.offset for e in entries], pa.int64()),
                    pa.array([e.size for e in entries], pa.int64()),
                    pa.array([e.uncompressed_size for e in entries], pa.int64()),
                    pa.array([e.digest for e in entries], pa.binary(16)),
                ],
                schema=CHUNK_TABLE,
            )
        )

    @classmethod
    def concat(cls, tables: Sequence[ChunkTable]) -> ChunkTable:
        """The rows of all tables, in the order of the tables."""
        if len(tables) == 1:
            return tables[0]
        whole = pa.Table.from_batches([t.batch for t in tables], CHUNK_TABLE).combine_chunks()
        return cls(whole.to_batches()[0]) if len(whole) else cls.of(())

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return ChunkTable.from_stream, (self.to_stream(),)

    def to_stream(self) -> bytes:
        """The rows as an Arrow IPC stream. Small tables are not compressed: that would take 0.25 of 0.27 ms."""
        sink = pa.BufferOutputStream()
        codec = "lz4" if self.batch.nbytes > 1 << 16 else None
        with pa.ipc.new_stream(sink, CHUNK_TABLE, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
            writer.write_batch(self.batch)
        return bytes(sink.getvalue().to_pybytes())

    @classmethod
    def from_stream(cls, stream: bytes) -> ChunkTable:
        """The rows that :meth:`to_stream` wrote. Raises the errors of :meth:`from_arrow`."""
        return cls.from_arrow(pa.ipc.open_stream(pa.py_buffer(stream)).read_all())

    @classmethod
    def from_arrow(cls, table: pa.Table) -> ChunkTable:
        """The rows of a chunk table; other columns are ignored. Raises ``ValueError`` if a column is missing."""
        missing = set(CHUNK_TABLE.names) - set(table.column_names)
        if missing:
            raise ValueError(f"it has no column {min(missing)!r}")
        table = table.select(CHUNK_TABLE.names).combine_chunks()
        if table.schema != CHUNK_TABLE:
            raise ValueError("its columns are not those of a chunk table")
        return cls(table.to_batches()[0]) if len(table) else cls.of(())

    # --- columns

    @cached_property
    def offsets(self) -> Numbers:
        """The offsets of the messages in their files."""
        return self._numbers("offset")

    @cached_property
    def sizes(self) -> Numbers:
        """The lengths of the messages in bytes."""
        return self._numbers("size")

    @cached_property
    def uncompressed_sizes(self) -> Numbers:
        """The lengths of the Arrow IPC streams in the messages."""
        return self._numbers("uncompressed_size")

    @cached_property
    def num_rows(self) -> Numbers:
        """The number of rows of each chunk."""
        return self._numbers("num_rows")

    @property
    def digests(self) -> pa.Array:
        """The digests of the messages, null if unknown."""
        return self.batch.column("digest")

    @cached_property
    def chunk_ids(self) -> npt.NDArray[np.uint8]:
        """The chunks' ids, shape (n, 16)."""
        ids = self.batch.column("chunk_id")
        rows = np.frombuffer(ids.buffers()[1], np.uint8).reshape(-1, 16)
        return rows[ids.offset : ids.offset + len(ids)]

    @cached_property
    def is_static(self) -> Mask:
        """The mask of static chunks."""
        return np.asarray(self.batch.column("is_static").to_numpy(zero_copy_only=False), dtype=bool)

    @cached_property
    def entity_codes(self) -> tuple[Integers, list[str]]:
        """A code for each row, and the entity path of each code."""
        return encoded(self.batch.column("entity_path"))

    @cached_property
    def part_codes(self) -> tuple[Integers, list[str]]:
        """A code for each row, and the file of each code."""
        return encoded(self.batch.column("part"))

    @cached_property
    def timelines(self) -> TimelineCells:
        """The timelines of all chunks."""
        ends, values = flat(self.batch.column("timelines"))
        codes, keys = coded(values.field("name"), values.field("kind"))
        start, end = values.field("start"), values.field("end")
        kinds = [(name, TimelineKind(kind)) for name, kind in keys]
        return TimelineCells(ends, codes, kinds, integers(start), integers(end), valid(start))

    @cached_property
    def components(self) -> ComponentCells:
        """The components of all chunks."""
        ends, values = flat(self.batch.column("components"))
        codes, keys = coded(*(values.field(name) for name in ("component", "archetype", "component_type")))
        range_ends, ranges = flat(values.field("ranges"))
        start = ranges.field("start")
        return ComponentCells(
            ends,
            codes,
            [ComponentDescriptor(*key) for key in keys],
            values.field("is_empty"),
            range_ends,
            integers(start),
            integers(ranges.field("end")),
            integers(ranges.field("num_rows")),
            valid(start),
        )

    @cached_property
    def type_sets(self) -> tuple[Integers, list[tuple[pa.DataType, ...]]]:
        """A code for each row, and the component types of each code."""
        types = self.batch.column("types")
        return integers(types.indices), [types_from_bytes(t) for t in types.dictionary.to_pylist()]

    @cached_property
    def kinds(self) -> tuple[Integers, list[ChunkKind]]:
        """A code for each row, and the properties that all chunks with this code share."""
        codes, paths = self.entity_codes
        lines, parts = self.timelines, self.components
        kind, kinds = codes * 2 + self.is_static, 2 * len(paths)
        kind, kinds = sequence_codes(lines.ends, lines.codes, len(lines.keys), kind, kinds)
        kind, _ = sequence_codes(parts.ends, parts.codes, len(parts.descriptors), kind, kinds)
        _, first, which = np.unique(kind, return_index=True, return_inverse=True)
        return which, [
            ChunkKind(
                paths[codes[row]],
                bool(self.is_static[row]),
                [lines.keys[i][0] for i in lines.codes[lines.ends[row] : lines.ends[row + 1]].tolist()],
                frozenset(
                    parts.descriptors[i].component for i in parts.codes[parts.ends[row] : parts.ends[row + 1]].tolist()
                )
                or None,
            )
            for row in first.tolist()
        ]

    @cached_property
    def is_whole(self) -> Mask:
        """The mask of chunks whose components have a value in every row, at the times of the chunk."""
        lines, parts = self.timelines, self.components
        rows = np.asarray(self.num_rows, np.int64)
        counts = np.diff(parts.range_ends)
        row = np.repeat(np.arange(len(rows)), np.diff(parts.ends))
        is_whole = counts == np.diff(lines.ends)[row]
        cell = np.repeat(np.arange(len(counts)), counts)
        fits = is_whole[cell]
        line = np.where(fits, lines.ends[row[cell]] + np.arange(len(cell)) - parts.range_ends[cell], 0)
        if len(lines.codes):
            fits &= parts.is_known & (parts.start == lines.start[line]) & (parts.end == lines.end[line])
            fits &= parts.num_rows == rows[row[cell]]
        whole = (rows > 0) & (np.diff(parts.ends) > 0)
        whole[row[~is_whole]] = False
        whole[row[cell[~fits]]] = False
        return whole

    @property
    def entity_components(self) -> set[tuple[str, ComponentDescriptor]]:
        """The components of each entity."""
        (entities, paths), cells = self.entity_codes, self.components
        count = len(cells.descriptors)
        keys, _ = distinct(np.repeat(entities, np.diff(cells.ends)) * count + cells.codes, len(paths) * count)
        return {(paths[key // count], cells.descriptors[key % count]) for key in keys.tolist()}

    @property
    def says_all(self) -> bool:
        """Return True if the rows have all facts that a footer needs."""
        return bool(np.all(self.num_rows) and np.all(np.diff(self.components.ends)))

    @cached_property
    def message_bytes(self) -> int:
        """The total bytes of the messages."""
        return int(self.sizes.sum())

    @property
    def framed_bytes(self) -> int:
        """The total bytes of the messages with their frame headers."""
        return self.message_bytes + MESSAGE_HEADER_SIZE * len(self)

    # --- other tables

    def take(self, rows: Integers) -> ChunkTable:
        """The rows at some indices, in the order of the indices."""
        if len(rows) == len(self) and bool(np.all(rows == np.arange(len(rows)))):
            return self
        return ChunkTable(self.batch.take(pa.array(rows)))

    def slice(self, start: int, stop: int) -> ChunkTable:
        """The rows from ``start`` (inclusive) to ``stop`` (exclusive)."""
        return self if start == 0 and stop == len(self) else ChunkTable(self.batch.slice(start, stop - start))

    def shares(self, sizes: Sequence[int]) -> list[ChunkTable]:
        """The rows in consecutive tables of these ``sizes``; columns are flattened once for all tables.

        Each table keeps the names of all codes.
        """
        return [self._share(start, stop) for start, stop in pairwise(np.cumsum([0, *sizes]).tolist())]

    def _share(self, start: int, stop: int) -> ChunkTable:
        table, rows = self.slice(start, stop), slice(start, stop)
        if table is self:
            return table
        for name in ("offsets", "sizes", "uncompressed_sizes", "num_rows", "chunk_ids", "is_static", "is_whole"):
            table.__dict__[name] = getattr(self, name)[rows]
        for name in ("entity_codes", "part_codes", "type_sets"):
            codes, names = getattr(self, name)
            table.__dict__[name] = codes[rows], names
        table.__dict__["timelines"] = self.timelines.of_rows(start, stop)
        table.__dict__["components"] = self.components.of_rows(start, stop)
        return table

    def moved(self, offsets: Numbers, sizes: Numbers | None = None) -> ChunkTable:
        """Return the same chunks with messages at other ``offsets``, and with other ``sizes`` if given."""
        columns = {"offset": offsets} if sizes is None else {"offset": offsets, "size": sizes}
        arrays = [
            pa.array(columns[name].astype(np.int64)) if name in columns else self.batch.column(name)
            for name in CHUNK_TABLE.names
        ]
        table = ChunkTable(pa.RecordBatch.from_arrays(arrays, schema=CHUNK_TABLE))
        table.__dict__.update({name: value for name, value in self.__dict__.items() if name in _OF_HEADERS})
        return table

    def within(self, place: Callable[[str], str]) -> ChunkTable:
        """The same chunks, with ``place(part)`` as the file of each."""
        codes, parts = self.part_codes
        parts = pa.array(list(map(place, parts)), pa.string()).take(pa.array(codes))
        return ChunkTable(self.batch.set_column(CHUNK_TABLE.get_field_index("part"), "part", parts))

    def placed(self, start: int, sizes: Numbers | None = None) -> ChunkTable:
        """The same chunks, with consecutive messages from byte ``start`` on."""
        sizes = self.sizes if sizes is None else sizes
        ends = np.cumsum(sizes + np.uint64(MESSAGE_HEADER_SIZE), dtype=np.uint64)
        return self.moved(np.uint64(start) + ends - sizes, sizes)

    def ordered(self) -> ChunkTable:
        """The rows in the order of their file; of several rows with the same offset, the last one."""
        offsets = self.offsets
        order = np.argsort(offsets, kind="stable").astype(np.int64)
        last = np.append(offsets[order][1:] != offsets[order][:-1], True)[: len(order)]
        return self.take(order[last])

    def runs(self, run_bytes: int) -> list[ChunkTable]:
        """The rows in runs of about equal work, each of about ``run_bytes`` uncompressed at most.

        The fixed work of a chunk counts as 32 KiB.
        """
        work = np.cumsum(np.maximum(self.uncompressed_sizes, self.sizes) + np.uint64(_CHUNK_WORK), dtype=np.uint64)
        return self._divided(work, -(-int(work[-1]) // run_bytes)) if len(self) else []

    def divided(self, most: int) -> list[ChunkTable]:
        """The rows in runs of about equal size, each of about ``most`` bytes of messages at most."""
        total = self.message_bytes
        ends = np.cumsum(self.sizes, dtype=np.uint64)
        return self._divided(ends, max(-(-total // most), 2 if total > most // 8 else 1))

    def _divided(self, ends: Numbers, count: int) -> list[ChunkTable]:
        """The rows in at most ``count`` runs of about equal work; ``ends`` are the running totals of the rows' work."""
        total, count = int(ends[-1]) if len(self) else 0, min(count, len(self))
        cuts = np.searchsorted(ends, [total * i // count for i in range(1, count)]) + 1
        bounds = np.unique(np.clip([0, *cuts.tolist(), len(self)], 0, len(self))).tolist()
        return [self.slice(start, stop) for start, stop in pairwise(bounds)]

    # --- objects

    def headers(self) -> list[ChunkHeader]:
        """Return the header of each row, without components if the table does not have them."""
        codes, paths = self.entity_codes
        lines, parts = self._timeline_headers(), self._component_headers()
        ids = self.batch.column("chunk_id").to_pylist()
        values = zip(ids, codes.tolist(), self.num_rows.tolist(), self.is_static.tolist(), lines, parts, strict=True)
        return [ChunkHeader(i, paths[code], rows, static, t, c) for i, code, rows, static, t, c in values]

    def entries(self) -> list[ChunkEntry]:
        """The entries of the rows, in order."""
        columns = (self.offsets.tolist(), self.sizes.tolist(), self.uncompressed_sizes.tolist())
        return [ChunkEntry(*e) for e in zip(self.headers(), *columns, self.digests.to_pylist(), strict=True)]

    def _timeline_headers(self) -> Iterator[tuple[TimelineHeader, ...]]:
        cells = self.timelines
        named = [cells.keys[code] for code in cells.codes.tolist()]
        values = zip(named, cells.start.tolist(), cells.end.tolist(), cells.is_known.tolist(), strict=True)
        headers = [
            TimelineHeader(name, kind, start if is_known else None, end if is_known else None)
            for (name, kind), start, end, is_known in values
        ]
        return (tuple(headers[start:stop]) for start, stop in pairwise(cells.ends.tolist()))

    def _component_headers(self) -> Iterator[tuple[ComponentHeader, ...]]:
        cells = self.components
        which, sets = self.type_sets
        emptiness, codes = cells.emptiness.to_pylist(), cells.codes.tolist()
        ranges = self._ranges()
        for (start, stop), kind in zip(pairwise(cells.ends.tolist()), which.tolist(), strict=True):
            types = sets[kind]
            yield tuple(
                [
                    ComponentHeader(cells.descriptors[codes[i]], types[i - start], ranges[i], emptiness[i])
                    for i in range(start, stop)
                ]
            )

    def _ranges(self) -> list[tuple[ComponentRange, ...]]:
        """Return the ranges of all components. Equal neighbours are shared, as there are millions of them."""
        cells = self.components
        values = list(
            zip(cells.start.tolist(), cells.end.tolist(), cells.num_rows.tolist(), cells.is_known.tolist(), strict=True)
        )
        ranges: list[tuple[ComponentRange, ...]] = []
        previous: list[Any] = []
        shared: tuple[ComponentRange, ...] = ()
        for start, stop in pairwise(cells.range_ends.tolist()):
            current = values[start:stop]
            if current != previous:
                previous = current
                shared = tuple([ComponentRange(a, b, n) if is_known else NO_ROWS for a, b, n, is_known in current])
            ranges.append(shared)
        return ranges

    def _numbers(self, name: str) -> Numbers:
        return integers(self.batch.column(name)).view(np.uint64)


def _timeline_lists(headers: Sequence[ChunkHeader]) -> pa.ListArray:
    lines = [t for h in headers for t in h.timelines]
    columns = ([t.name for t in lines], [t.kind for t in lines], [t.start for t in lines], [t.end for t in lines])
    return lists_of([len(h.timelines) for h in headers], TIMELINE_TYPE, columns)


def _component_lists(headers: Sequence[ChunkHeader]) -> pa.ListArray:
    components = [c for h in headers for c in h.components]
    descriptors = [c.descriptor for c in components]
    ranges = [r for c in components for r in c.ranges]
    columns = (
        [d.component for d in descriptors],
        [d.archetype for d in descriptors],
        [d.component_type for d in descriptors],
        [c.is_empty for c in components],
        lists_of(
            [len(c.ranges) for c in components],
            RANGE_TYPE,
            ([r.start for r in ranges], [r.end for r in ranges], [r.num_rows for r in ranges]),
        ),
    )
    return lists_of([len(h.components) for h in headers], COMPONENT_TYPE, columns)


def _type_sets(headers: Sequence[ChunkHeader]) -> pa.DictionaryArray:
    """The types of each chunk's components; types that are ``==`` but differ in metadata are distinct.

    A chunk mostly has the types of its entity's previous chunk: comparing them takes a third of the time of hashing.
    """
    recent: dict[str, int] = {}
    numbers: dict[tuple[pa.DataType, ...], list[int]] = {}
    sets: list[tuple[pa.DataType, ...]] = []
    codes = []
    for header in headers:
        types, code = tuple([c.datatype for c in header.components]), recent.get(header.entity_path)
        if code is None or len(sets[code]) != len(types) or not alike(sets[code], types):
            same_types = numbers.setdefault(types, [])
            code = next((i for i in same_types if alike(sets[i], types)), len(sets))
            if code == len(sets):
                sets.append(types)
                same_types.append(code)
            recent[header.entity_path] = code
        codes.append(code)
    return type_column(np.array(codes, dtype=np.int32), sets)


_HINT = "The footer is wrong: write the file again with its writer, or from RrdReader(path, recover=True)."


def difference(header: ChunkHeader, claim: ChunkHeader) -> str | None:
    """Return the first difference of a chunk from its footer row, if any. A row without components claims none."""
    for what in ("chunk_id", "entity_path", "num_rows", "is_static", "timelines"):
        is_so, is_told = getattr(header, what), getattr(claim, what)
        if is_so != is_told:
            return f"the {what} of a chunk is {_text(is_so)}; the footer has {_text(is_told)}"
    if not claim.components:
        return None
    components = {c.descriptor: c for c in header.components}
    for component in claim.components:
        actual = components.pop(component.descriptor, None)
        name = component.descriptor.component
        if actual is None or actual.ranges != component.ranges:
            return f"component {name} of a chunk is missing, or has other times than the index"
        if actual.datatype != component.datatype:
            return f"component {name} of a chunk has type {actual.datatype}, but {component.datatype} in the footer"
        if component.is_empty and not actual.is_empty:
            return f"component {name} of a chunk has values, but none in the footer"
    return None


def _text(fact: Any) -> str:
    if isinstance(fact, bytes):
        return fact.hex()
    if isinstance(fact, tuple):
        return ", ".join(f"{line.name} from {line.start} to {line.end}" for line in fact) or "none"
    return str(fact)


def missing_component(header: ChunkHeader, claim: ChunkHeader) -> str | None:
    """Return the fault if the footer row lacks a component of the chunk, or None. It may lack one that is all null."""
    names = {c.descriptor for c in claim.components}
    for component in header.components if names else ():
        if component.descriptor not in names and not _is_null(component.ranges, component.is_empty):
            return f"a chunk has component {component.descriptor.component}, which is not in the footer"
    return None


def difference_of(data: ChunkData, claim: ChunkHeader) -> str | None:
    """Return the first difference of a chunk from its footer row, missing components included, if any."""
    header = Chunk.from_data(data).header
    return difference(header, claim) or missing_component(header, claim)


def _is_null(ranges: Sequence[object], is_empty: bool | None) -> bool:
    return all(getattr(some, "num_rows", 0) == 0 for some in ranges) if ranges else bool(is_empty)


def lying_footer(what: str, path: str, offset: int) -> ReadError:
    """Return the error for a chunk that differs from its footer row."""
    return ReadError(what, path=path, offset=offset, hint=_HINT)


class _Fact(NamedTuple):
    """A chunk as its row describes it: timelines with first and last time, and components with their types."""

    entity_path: str
    num_rows: int
    lines: list[tuple[tuple[str, TimelineKind], int, int]]
    components: list[tuple[ComponentDescriptor, pa.DataType]]


class ToldChunks:
    """The chunks of a table as tasks report them."""

    def __init__(self, table: ChunkTable) -> None:
        self._table = table

    def difference(self, row: int, data: ChunkData) -> str | None:
        """Return the first difference of a chunk from the row, or None."""
        if self._is_as_told(row, data):
            return None
        (claim,) = self._table.slice(row, row + 1).headers()
        return difference_of(data, claim)

    def _is_as_told(self, row: int, data: ChunkData) -> bool:
        """Return True if a chunk without nulls surely fits its row, in a third of the time of a full comparison."""
        fact = self._fact(row)
        if fact is None or fact.num_rows != data.num_rows or fact.entity_path != data.entity_path:
            return False
        if len(fact.lines) != len(data.timelines) or len(fact.components) != len(data.components):
            return False
        for line, claim in zip(data.timelines, fact.lines, strict=True):
            ticks = line.ticks
            start, end = (ticks[0], ticks[-1]) if line.is_sorted else (ticks.min(), ticks.max())
            if (line.name, line.kind) != claim[0] or start != claim[1] or end != claim[2]:
                return False
        for component, (descriptor, datatype) in zip(data.components, fact.components, strict=True):
            values = component.values
            if values.null_count or component.descriptor != descriptor or values.type != datatype:
                return False
        return True

    def _fact(self, row: int) -> _Fact | None:
        """Return the fact of a row if the footer gives all its components a value in every row, else None."""
        if not self._table.is_whole[row]:
            return None
        table = self._table
        lines, parts = table.timelines, table.components
        (codes, paths), (sets, types) = table.entity_codes, table.type_sets
        on, of = slice(*lines.ends[row : row + 2].tolist()), slice(*parts.ends[row : row + 2].tolist())
        keys = [lines.keys[code] for code in lines.codes[on].tolist()]
        return _Fact(
            paths[codes[row]],
            int(table.num_rows[row]),
            list(zip(keys, lines.start[on].tolist(), lines.end[on].tolist(), strict=True)),
            [
                (parts.descriptors[code], datatype)
                for code, datatype in zip(parts.codes[of].tolist(), types[sets[row]], strict=True)
            ],
        )
