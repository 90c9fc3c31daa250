"""Messages sorted and written into MCAP chunks, in whole columns; and the runs in which a sort stores them.

Chunks: https://mcap.dev/spec. A run is a stretch of a file in the staging folder: the number of messages (u64), the
offset of each (u64), and their records in succession.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, Final, NamedTuple

import lz4.frame
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from zlib_ng.zlib_ng import crc32
from zstandard import ZstdCompressor

from ..execution import dealt
from ..limits import MIB, SPLIT_BYTES
from ..rrd import Output, PositionalFile
from ..stream import MESSAGE_HEAD, Records, RecordUnit

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

HEAD: Final = struct.Struct("<BQ")
"""The beginning of every record: opcode and body length."""

CHUNK_OPCODE, INDEX_OPCODE, MESSAGE_OPCODE = 6, 7, 5
WIDTH: Final = MESSAGE_HEAD.itemsize
_FIXED: Final = WIDTH - HEAD.size
_CHANNEL_AT: Final = HEAD.size
_CHUNK: Final = struct.Struct("<QQQII")
_INDEX: Final = struct.Struct("<HI")
_U64: Final = 8
_WRITE_BACK: Final = 32 * MIB

COMPRESSIONS: Final = ("zstd", "lz4", "none")
_LEVEL: Final = 1
"""zstd's level. Level 3 takes 1.5 times the time for CDR messages, and saves 2 % of them."""

_LARGE: Final = 2048
"""Stretches of at least this many bytes are copied one by one: a step of Python takes as long as such a copy."""

CHUNK_FACTS: Final = np.dtype(
    [
        ("offset", "<u8"),
        ("length", "<u8"),
        ("index_length", "<u8"),
        ("start", "<u8"),
        ("end", "<u8"),
        ("compressed", "<u8"),
        ("uncompressed", "<u8"),
        ("indexes", "<u4"),
    ]
)
"""A chunk in a part: its position, times, sizes, and the number of its message indexes."""

INDEX_FACTS: Final = np.dtype([("channel", "<u2"), ("offset", "<u8"), ("count", "<u8")])
"""A message index: its channel, its offset from the start of the chunk, and the number of messages."""


SORT_BYTES: Final = 256 * MIB
"""The most bytes of messages that a task sorts in memory."""


class TimeWindow(NamedTuple):
    """Log times from ``start`` to before ``end`` (None: open), and the units that may have them, by source."""

    start: int | None
    end: int | None
    units: tuple[tuple[int, tuple[RecordUnit, ...]], ...]
    size: int

    def holds(self, times: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Return, for each log time, whether it is in the window."""
        inside = np.ones(len(times), np.bool_)
        if self.start is not None:
            inside &= times >= np.uint64(self.start)
        if self.end is not None:
            inside &= times < np.uint64(self.end)
        return inside


def windows_of(units: Sequence[tuple[int, RecordUnit]], *, by_time: bool, strict: bool) -> list[TimeWindow] | None:
    """Divide messages into windows of about ``SPLIT_BYTES``; without ``by_time``, in the order of the sources.

    Few units are on both sides of a border, as these are read twice. With ``strict``, return None if the units of a
    window are more than a task can sort.
    """
    if not by_time:
        return [TimeWindow(None, None, _by_source(some), sum(u.size for _, u in some)) for some in packed_units(units)]
    if not units:
        return []
    starts = np.array([unit.start for _, unit in units], np.uint64)
    ends = np.array([unit.end for _, unit in units], np.uint64)
    sizes = np.array([unit.size for _, unit in units], np.int64)
    by_start, by_end = np.argsort(starts, kind="stable"), np.argsort(ends, kind="stable")
    begun = np.concatenate([[0], np.cumsum(sizes[by_start])])
    over = np.concatenate([[0], np.cumsum(sizes[by_end])])
    candidates = np.unique(starts)
    before = begun[np.searchsorted(starts[by_start], candidates, "left")]
    straddling = before - over[np.searchsorted(ends[by_end], candidates, "left")]
    borders: list[int | None] = [None]
    at = 0
    while int(begun[-1] - at) > SPLIT_BYTES * 5 // 4:
        first = int(np.searchsorted(before, at + SPLIT_BYTES // 2, "left"))
        last = max(int(np.searchsorted(before, at + SPLIT_BYTES, "right")), first + 1)
        if first >= len(candidates):
            break
        best = first + int(np.argmin(straddling[first:last][::-1]))
        best = min(last, len(candidates)) - 1 - (best - first)
        borders.append(int(candidates[best]))
        at = int(before[best])
    windows = []
    for start, end in zip(borders, [*borders[1:], None], strict=True):
        which = np.ones(len(units), np.bool_)
        if start is not None:
            which &= ends >= np.uint64(start)
        if end is not None:
            which &= starts < np.uint64(end)
        if strict and int(sizes[which].sum()) > SORT_BYTES:
            return None
        some = [units[i] for i in np.flatnonzero(which).tolist()]
        windows.append(TimeWindow(start, end, _by_source(some), int(sizes[which].sum())))
    return windows


def packed_units(units: Sequence[tuple[int, RecordUnit]]) -> Iterator[tuple[tuple[int, RecordUnit], ...]]:
    """Units of sources in their order, in groups of about ``SPLIT_BYTES``."""
    return dealt(units, lambda each: each[1].size, SPLIT_BYTES)


def _by_source(units: Iterable[tuple[int, RecordUnit]]) -> tuple[tuple[int, tuple[RecordUnit, ...]], ...]:
    return tuple((n, tuple(unit for _, unit in some)) for n, some in groupby(units, key=itemgetter(0)))


class RecordStretch(NamedTuple):
    """Messages to write, in order: ``records`` with the channel ids of the output in their heads.

    With ``patched``, the arena still has the old ids.
    """

    records: Records
    patched: bool

    @property
    def sizes(self) -> Ints:
        """The size of each message's record, in bytes."""
        sizes: Ints = self.records.lengths + WIDTH
        return sizes


class RecordBody(NamedTuple):
    """Message records in succession: their offsets, and their heads."""

    data: Bytes
    offsets: Ints
    heads: np.ndarray


def renumbered(records: Records, ids: npt.NDArray[np.uint16] | None) -> RecordStretch:
    """Return messages with other channel ids; ``ids`` has the new id for each old id; None changes nothing."""
    if ids is None:
        return RecordStretch(records, patched=False)
    heads = records.heads.copy()
    heads["channel"] = ids[records.heads["channel"]]
    return RecordStretch(
        records._replace(heads=heads), patched=not np.array_equal(heads["channel"], records.heads["channel"])
    )


def compacted(stretches: Iterable[RecordStretch]) -> Iterator[RecordStretch]:
    """Yield the same messages; those that use less than half of their arena are copied to memory of their own."""
    for _, group in groupby(stretches, lambda stretch: id(stretch.records.arena)):
        some = list(group)
        is_used = 2 * sum(int(stretch.sizes.sum()) for stretch in some) > len(some[0].records.arena)
        yield from some if is_used else map(_compact, some)


def _compact(stretch: RecordStretch) -> RecordStretch:
    body = _gathered(stretch, np.arange(len(stretch.records.starts)))
    data = body.data if not np.shares_memory(body.data, stretch.records.arena) else body.data.copy()
    lengths = stretch.records.lengths
    return RecordStretch(Records(data, body.offsets + WIDTH, lengths, body.heads, framed=True), patched=False)


def _gathered(stretch: RecordStretch, rows: Ints) -> RecordBody:
    """Return the records of some messages, in this order."""
    records = stretch.records
    sizes = records.lengths[rows] + WIDTH
    ends = np.cumsum(sizes)
    offsets = ends - sizes
    heads = records.heads[rows]
    if records.framed:
        data = _copied(records.arena, records.starts[rows] - WIDTH, sizes, offsets, int(ends[-1]))
        if stretch.patched:
            if np.shares_memory(data, records.arena) or not data.flags.writeable:
                data = data.copy()
            channels = np.ascontiguousarray(heads["channel"]).view(np.uint8).reshape(-1, 2)
            data[offsets + _CHANNEL_AT], data[offsets + _CHANNEL_AT + 1] = channels[:, 0], channels[:, 1]
        return RecordBody(data, offsets, heads)
    return RecordBody(_with_heads(records, rows, offsets, int(ends[-1])), offsets, heads)


def _gathered_rows(stretch: RecordStretch, first: int, end: int) -> RecordBody:
    return _gathered(stretch, np.arange(first, end))


def _copied(arena: Bytes, starts: Ints, sizes: Ints, offsets: Ints, total: int) -> Bytes:
    """Return stretches of bytes in succession; without gaps between them, they are not copied."""
    stops = starts + sizes
    breaks = np.flatnonzero(starts[1:] != stops[:-1]) + 1
    if not len(breaks):
        return arena[starts[0] : stops[-1]]
    if total // (len(breaks) + 1) < _LARGE:
        return _taken(arena, starts, sizes)
    out: Bytes = np.empty(total, np.uint8)
    borders = [0, *breaks.tolist(), len(starts)]
    for first, end in pairwise(borders):
        at = int(offsets[first])
        begin, stop = int(starts[first]), int(stops[end - 1])
        out[at : at + stop - begin] = arena[begin:stop]
    return out


def _taken(arena: Bytes, starts: Ints, sizes: Ints) -> Bytes:
    """Copy many small stretches, which do not overlap."""
    order = np.argsort(starts, kind="stable")
    borders = np.empty(2 * len(starts), np.int64)
    borders[0::2] = starts[order]
    borders[1::2] = starts[order] + sizes[order]
    places = np.empty(len(starts), np.int64)
    places[order] = np.arange(len(starts)) * 2
    cells = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(borders) - 1, [None, pa.py_buffer(borders), pa.py_buffer(arena)]
    )
    return _values(cells.take(pa.array(places)))


def _values(cells: pa.LargeBinaryArray) -> Bytes:
    _, offsets, values = cells.buffers()
    borders = np.frombuffer(offsets, np.int64)[cells.offset : cells.offset + len(cells) + 1]
    data: Bytes = np.frombuffer(values, np.uint8)[borders[0] : borders[-1]]
    return data


def _with_heads(records: Records, rows: Ints, offsets: Ints, total: int) -> Bytes:
    """Return messages with new heads before their data."""
    heads = np.empty(len(rows), MESSAGE_HEAD)
    for name in ("channel", "sequence", "log_time", "publish_time"):
        heads[name] = records.heads[name][rows]
    lengths, starts = records.lengths[rows], records.starts[rows]
    heads["opcode"], heads["length"] = MESSAGE_OPCODE, lengths + _FIXED
    raw = heads.view(np.uint8).reshape(-1, WIDTH)
    if total // len(rows) < _LARGE and lengths.all():
        first = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(),
            len(rows),
            [None, pa.py_buffer(np.arange(len(rows) + 1, dtype=np.int64) * WIDTH), pa.py_buffer(raw)],
        )
        data = _taken_cells(records.arena, starts, lengths)
        return _values(pc.binary_join_element_wise(first, data, pa.scalar(b"", pa.large_binary())))
    out: Bytes = np.empty(total, np.uint8)
    for row, (at, begin, length) in enumerate(zip(offsets.tolist(), starts.tolist(), lengths.tolist(), strict=True)):
        out[at : at + WIDTH] = raw[row]
        out[at + WIDTH : at + WIDTH + length] = records.arena[begin : begin + length]
    return out


def _taken_cells(arena: Bytes, starts: Ints, sizes: Ints) -> pa.LargeBinaryArray:
    data = _taken(arena, starts, sizes)
    borders = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(sizes), [None, pa.py_buffer(borders), pa.py_buffer(data)]
    )


class Order:
    """Messages of several stretches, stably sorted by log time, or in the given order."""

    def __init__(self, stretches: Sequence[RecordStretch], *, by_time: bool) -> None:
        self._stretches = list(stretches)
        self._order: Ints | None = None
        counts = [len(stretch.records.starts) for stretch in stretches]
        self._firsts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        if by_time:
            times = np.concatenate([stretch.records.heads["log_time"] for stretch in stretches])
            if (times[1:] < times[:-1]).any():
                self._order = np.argsort(times, kind="stable")

    def bodies(self, room: Callable[[], int]) -> Iterator[RecordBody]:
        """Yield all messages in pieces that fit into the room, or of a single larger message."""
        order = self._order
        if order is not None:
            sizes = np.concatenate([stretch.sizes for stretch in self._stretches])[order]
            yield from self._pieces(sizes, room, lambda first, end: self._mixed(order[first:end]))
            return
        stretches, self._stretches = self._stretches[::-1], []
        while stretches:  # the memory of one may be freed when the next one begins
            stretch = stretches.pop()
            yield from self._pieces(stretch.sizes, room, partial(_gathered_rows, stretch))
            del stretch

    @staticmethod
    def _pieces(sizes: Ints, room: Callable[[], int], piece: Callable[[int, int], RecordBody]) -> Iterator[RecordBody]:
        ends = np.cumsum(sizes)
        first = 0
        while first < len(ends):
            before = int(ends[first - 1]) if first else 0
            end = max(int(np.searchsorted(ends, before + room(), "right")), first + 1)
            yield piece(first, end)
            first = end

    def _mixed(self, chosen: Ints) -> RecordBody:
        parts = np.searchsorted(self._firsts, chosen, "right") - 1
        used = np.unique(parts)
        if len(used) == 1:
            return _gathered(self._stretches[used[0]], chosen - self._firsts[used[0]])
        places, pieces, lengths = [], [], []
        for part in used.tolist():
            own = np.flatnonzero(parts == part)
            rows = chosen[own] - self._firsts[part]
            places.append(own)
            pieces.append(_gathered(self._stretches[part], rows))
            lengths.append(self._stretches[part].records.lengths[rows])
        begins = np.cumsum([0, *(len(piece.data) for piece in pieces)])
        data = np.concatenate([piece.data for piece in pieces])
        heads = np.concatenate([piece.heads for piece in pieces])
        starts = np.concatenate([piece.offsets + begin for piece, begin in zip(pieces, begins[:-1], strict=True)])
        back = np.argsort(np.concatenate(places), kind="stable")
        joined = Records(data, starts + WIDTH, np.concatenate(lengths), heads, framed=True)
        return _gathered(RecordStretch(joined, patched=False), back)


class RecordWriter(ABC):
    """Gathers messages until they fill a chunk, and writes that to an output."""

    def __init__(self, out: Output, chunk_bytes: int) -> None:
        self.out = out
        self.messages = 0
        self._most = chunk_bytes
        self._bodies: list[RecordBody] = []
        self._size = 0
        self._sent = 0

    def room(self) -> int:
        """Return the bytes that are left in the chunk."""
        return self._most - self._size

    def write(self, order: Order) -> None:
        """Write messages in their order."""
        for body in order.bodies(self.room):
            if self._bodies and len(body.data) > self.room():
                self._close()
            self._bodies.append(body)
            self._size += len(body.data)
            if self._size >= self._most:
                self._close()

    def finish(self) -> None:
        """Write the last chunk."""
        if self._bodies:
            self._close()

    def _close(self) -> None:
        bodies, self._bodies, self._size = self._bodies, [], 0
        body = bodies[0]
        if len(bodies) > 1:
            begins = np.cumsum([0, *(len(b.data) for b in bodies)])[:-1]
            body = RecordBody(
                np.concatenate([b.data for b in bodies]),
                np.concatenate([b.offsets + begin for b, begin in zip(bodies, begins, strict=True)]),
                np.concatenate([b.heads for b in bodies]),
            )
        self.messages += len(body.offsets)
        self._put(body)
        if self.out.position - self._sent >= _WRITE_BACK:
            self._sent = self.out.position
            self.out.write_back()

    @abstractmethod
    def _put(self, body: RecordBody) -> None:
        """Write one chunk."""


class McapChunkWriter(RecordWriter):
    """Writes Chunk records, each followed by its MessageIndex records; ``chunks`` and ``indexes`` describe them."""

    def __init__(self, out: Output, chunk_bytes: int, compression: str) -> None:
        super().__init__(out, chunk_bytes)
        self._compression = b"" if compression == "none" else compression.encode()
        self._zstd = ZstdCompressor(level=_LEVEL)
        self.chunks: list[tuple[int, ...]] = []
        self.indexes: list[tuple[int, int, int]] = []

    def _put(self, body: RecordBody) -> None:
        begin, out = self.out.position, self.out
        times = body.heads["log_time"]
        start, end = int(times.min()), int(times.max())
        raw = np.ascontiguousarray(body.data)
        data = self._compressed(raw)
        name = self._compression
        length = _CHUNK.size + len(name) + _U64 + len(data)
        out.write(
            HEAD.pack(CHUNK_OPCODE, length)
            + _CHUNK.pack(start, end, len(raw), crc32(raw.data), len(name))
            + name
            + len(data).to_bytes(_U64, "little")
        )
        out.write(data)
        stored = out.position - begin
        pairs = np.empty((len(times), 2), "<u8")
        pairs[:, 0], pairs[:, 1] = times, body.offsets
        order = np.argsort(body.heads["channel"], kind="stable")
        channels = body.heads["channel"][order]
        pairs = pairs[order]
        firsts = np.flatnonzero(np.concatenate([[True], channels[1:] != channels[:-1]])).tolist()
        for first, stop in pairwise([*firsts, len(channels)]):
            channel, entries = int(channels[first]), pairs[first:stop].tobytes()
            self.indexes.append((channel, out.position - begin, stop - first))
            out.write(
                HEAD.pack(INDEX_OPCODE, _INDEX.size + len(entries)) + _INDEX.pack(channel, len(entries)) + entries
            )
        index_length = out.position - begin - stored
        self.chunks.append((begin, stored, index_length, start, end, len(data), len(raw), len(firsts)))

    def _compressed(self, raw: Bytes) -> bytes | memoryview:
        if self._compression == b"zstd":
            return self._zstd.compress(raw.data)
        if self._compression == b"lz4":
            return bytes(lz4.frame.compress(raw.data, store_size=False))
        return raw.data

    def facts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the descriptions of all chunks (``CHUNK_FACTS``) and of their message indexes (``INDEX_FACTS``)."""
        return np.array(self.chunks, CHUNK_FACTS), np.array(self.indexes, INDEX_FACTS)


class MessageRun(NamedTuple):
    """A run in a file: its place, its size, and the first and the last log time in it."""

    offset: int
    size: int
    start: int
    end: int


class RunWriter(RecordWriter):
    """Writes runs."""

    def __init__(self, out: Output, chunk_bytes: int) -> None:
        super().__init__(out, chunk_bytes)
        self.runs: list[MessageRun] = []

    def _put(self, body: RecordBody) -> None:
        begin, times = self.out.position, body.heads["log_time"]
        count = len(body.offsets)
        self.out.write(count.to_bytes(_U64, "little") + body.offsets.astype("<u8").tobytes())
        self.out.write(np.ascontiguousarray(body.data).data)
        self.runs.append(MessageRun(begin, self.out.position - begin, int(times.min()), int(times.max())))


def read_run(file: PositionalFile, run: MessageRun) -> Records:
    """Return the messages of a run. Raises ``ReadError`` if the file ends before the run."""
    arena = np.frombuffer(file.read(run.offset, run.size, what="a run of messages"), np.uint8)
    count = int(arena[:_U64].view("<u8")[0])
    base = _U64 * (count + 1)
    places = arena[_U64:base].view("<u8").astype(np.int64) + base
    view: Any = np.ndarray((len(arena) - WIDTH + 1,), f"V{WIDTH}", buffer=arena.data, strides=(1,))
    heads = view[places].view(MESSAGE_HEAD)
    return Records(arena, places + WIDTH, heads["length"].astype(np.int64) - _FIXED, heads, framed=True)
