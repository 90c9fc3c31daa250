"""A split of a bag, read from front to end: its records give groups of decompressed messages."""

from __future__ import annotations

from bz2 import BZ2Decompressor
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from lz4.frame import LZ4FrameDecompressor
from zstandard import ZstdDecompressor

from ...engine.errors import ReadError
from ...engine.limits import (
    MAX_BAG_HEADER,
    MAX_CHUNK_UNCOMPRESSED,
    MAX_OTHER_RECORDS,
    MAX_SCHEMA_BYTES,
    MIB,
    check_expansion,
    check_limit,
)
from ..mcap.records import (
    CUT_HINT,
    Bytes,
    ChunkHead,
    ChunkPool,
    Ints,
    MessageHeads,
    Registry,
    damaged,
    joined,
    placed_heads,
    take_arena,
)
from ..mcap.section import GROUP_BYTES, McapSplit, MessageGroup, Tally
from .records import (
    LAST_CONNECTION,
    U32,
    BagFile,
    BagOp,
    BagRecord,
    chunk_head,
    connection_id,
    define_connection,
    made_record,
    number,
)

ENTRY: Final = np.dtype([("seconds", "<u4"), ("nanoseconds", "<u4"), ("offset", "<u4")])
"""An entry of an index record: the time of a message, and its offset in the chunk."""

_SMALLEST: Final = 2 * U32.size
_HEAD: Final = 38
"""Bytes of the message header that writers make: ``conn``, ``op`` and ``time``, in any order."""

_WIDTH: Final = _HEAD + 2 * U32.size
_SHAPES: Final = 16
"""The number of header shapes that are tried in a group before messages are read one by one."""

_STEP: Final = 4 * MIB
"""The number of bytes to decompress at a time."""

_WINDOWS: Final = (64 * 1024, 8 * MIB)
"""The sizes of the smallest and largest piece for messages outside of chunks."""


def times_of(entries: np.ndarray) -> npt.NDArray[np.uint64]:
    """The times of an index record's entries (``ENTRY``), in ns."""
    return _nanoseconds(entries["seconds"], entries["nanoseconds"])


def _nanoseconds(seconds: np.ndarray, nanoseconds: np.ndarray) -> npt.NDArray[np.uint64]:
    times: npt.NDArray[np.uint64] = seconds.astype(np.uint64) * np.uint64(1_000_000_000)
    times += nanoseconds
    return times


class BagBlock(NamedTuple):
    """Whole records from byte ``begin`` to ``end`` of the arena; ``offset`` is the place of their chunk or first one.

    ``indexed`` has the connection and entries of each index record after the chunk; it is None if they are unusable.
    """

    begin: int
    end: int
    offset: int
    indexed: list[tuple[int, bytes]] | None


class _Shape(NamedTuple):
    """The shape of message headers: the places of two values in the first 46 bytes, and of the bytes that are fixed."""

    conn: int
    time: int
    fixed: Ints


class BagMessages(NamedTuple):
    """Messages of an arena: the start and length of each message's data, its connection (int64) and time (uint64)."""

    starts: Ints
    lengths: Ints
    connections: Ints
    times: npt.NDArray[np.uint64]


def _shape_of(head: bytes) -> _Shape | None:
    """The shape of a message's header, beginning with its length; None if writers make no such header."""
    if U32.unpack_from(head)[0] != _HEAD:
        return None
    at, values = U32.size, {}
    while at + U32.size <= U32.size + _HEAD:
        (size,) = U32.unpack_from(head, at)
        name, _, value = head[at + U32.size : at + U32.size + size].partition(b"=")
        at += U32.size + size
        values[name] = (at - len(value), len(value), value)
    sizes = {name: size for name, (_, size, _) in values.items()}
    if (
        sizes != {b"op": 1, b"conn": 4, b"time": 8}
        or at != U32.size + _HEAD
        or values[b"op"][2] != bytes([BagOp.MESSAGE])
    ):
        return None
    conn, time = values[b"conn"][0], values[b"time"][0]
    fixed = np.ones(_WIDTH, np.bool_)
    fixed[conn : conn + 4] = fixed[time : time + 8] = fixed[U32.size + _HEAD :] = False
    return _Shape(conn, time, np.flatnonzero(fixed))


def _messages_at(arena: Bytes, places: Ints) -> BagMessages | None:
    """The messages whose records begin at ``places`` (ascending); None if a record is not a message.

    Their lengths are not checked yet. Headers of one shape are read all at once.
    """
    count = len(places)
    starts, lengths, connections = np.zeros((3, count), np.int64)
    made = BagMessages(starts, lengths, connections, np.zeros(count, np.uint64))
    left = np.arange(count)
    if count and int(places[-1]) <= len(arena) - _WIDTH:
        windows = np.ndarray((len(arena) - _WIDTH + 1,), f"V{_WIDTH}", buffer=arena.data, strides=(1,))
        for _ in range(_SHAPES):
            if not len(left):
                break
            first = bytes(arena[places[left[0]] : places[left[0]] + _WIDTH])
            shape = _shape_of(first)
            if shape is None:
                break
            rows = windows[places[left]].view(np.uint8).reshape(-1, _WIDTH)
            same = (rows[:, shape.fixed] == rows[0, shape.fixed]).all(axis=1)
            if not same.all():
                rows = rows[same]
            _fill(made, left[same], places, rows, shape)
            left = left[~same]
    for row in left.tolist():
        if not _fill_one(made, row, arena, int(places[row])):
            return None
    return made


def _fill(made: BagMessages, which: Ints, places: Ints, rows: Bytes, shape: _Shape) -> None:
    def word(at: int) -> npt.NDArray[np.uint32]:
        return np.ascontiguousarray(rows[:, at : at + 4]).view("<u4")[:, 0]

    made.starts[which] = places[which] + _WIDTH
    made.lengths[which] = word(U32.size + _HEAD)
    made.connections[which] = word(shape.conn)
    made.times[which] = _nanoseconds(word(shape.time), word(shape.time + 4))


def _fill_one(made: BagMessages, row: int, arena: Bytes, place: int) -> bool:
    """Read a message whose header has another shape. Return False if there is none."""
    try:
        record = _record_in(arena, place, len(arena), path="", offset=0)
        time = record.fields.get(b"time", b"")
        if record.op != BagOp.MESSAGE or len(time) != 8:
            return False
        made.connections[row] = number(record, b"conn", path="")
    except ReadError:
        return False
    made.starts[row], made.lengths[row] = record.data_at, record.size
    made.times[row] = int.from_bytes(time[:4], "little") * 1_000_000_000 + int.from_bytes(time[4:], "little")
    return True


def _record_in(arena: Bytes, at: int, end: int, *, path: str, offset: int) -> BagRecord:
    """The record at byte ``at`` of the arena; its data may extend past ``end``. Raises ``ReadError`` at ``offset``."""
    left = end - at - _SMALLEST
    size = U32.unpack_from(arena.data, at)[0] if left >= 0 else -1
    if not 0 <= size <= min(left, MAX_BAG_HEADER):
        raise damaged("the header of a record in a chunk runs past its end", path=path, offset=offset)
    raw = arena[at + U32.size : at + _SMALLEST + size].tobytes()
    return made_record(raw, at, path=path, place=offset)


class Walk(NamedTuple):
    """The places of a block's messages, the end of the walk, and the fault there, if any."""

    offsets: list[int]
    end: int
    fault: ReadError | None


def walk(arena: Bytes, block: BagBlock, registry: Registry, *, path: str) -> Walk:
    """Walk from record to record up to the first one that is not whole; connections go to ``registry``."""
    view, unpack, at, end = arena.data, U32.unpack_from, block.begin, block.end
    offsets: list[int] = []
    fixed: list[tuple[int, int, bytes]] = []
    others = 0
    try:
        while at < end:
            body = at + _WIDTH
            if fixed and body <= end and all(view[at + a : at + b] == part for a, b, part in fixed):
                after = body + unpack(view, body - U32.size)[0]
                if after > end:
                    raise damaged("a message in a chunk runs past its end", path=path, offset=block.offset)
                offsets.append(at)
                at = after
                continue
            record = _record_in(arena, at, end, path=path, offset=block.offset)
            if record.end > end:
                raise damaged(f"a {record.name} in a chunk runs past its end", path=path, offset=block.offset)
            if record.op == BagOp.MESSAGE:
                if at + _WIDTH <= end:
                    fixed = _fixed_parts(bytes(view[at : at + _WIDTH]))
                offsets.append(at)
            elif record.op == BagOp.CONNECTION:
                others += 1
                what = "the number of connection records"
                check_limit(others, MAX_OTHER_RECORDS, path=path, offset=block.offset, what=what)
                what = "the length of a connection"
                check_limit(record.size, MAX_SCHEMA_BYTES, path=path, offset=block.offset, what=what)
                data = arena[record.data_at : record.end].tobytes()
                define_connection(registry, record, data, path=path, offset=block.offset)
            else:
                raise damaged(f"there is a {record.name} record inside a chunk", path=path, offset=block.offset)
            at = record.end
    except ReadError as error:
        return Walk(offsets, at, error)
    return Walk(offsets, at, None)


def _fixed_parts(head: bytes) -> list[tuple[int, int, bytes]]:
    """The parts of a header that are the same in all messages of its shape; empty if the shape is unknown."""
    shape = _shape_of(head)
    if shape is None:
        return []
    parts = np.split(shape.fixed, np.flatnonzero(np.diff(shape.fixed) > 1) + 1)
    return [(int(p[0]), int(p[-1]) + 1, head[p[0] : p[-1] + 1]) for p in parts]


def _by_index(arena: Bytes, blocks: Sequence[BagBlock], registry: Registry, path: str) -> BagMessages | None:
    """The messages by the indexes of all blocks, or None if indexes and records do not agree exactly."""
    entries = [(id_, np.frombuffer(raw, ENTRY)) for block in blocks for id_, raw in block.indexed or ()]
    counts = np.array([sum(len(raw) for _, raw in block.indexed or ()) // ENTRY.itemsize for block in blocks])
    if not entries or not counts.all():
        return None
    begins, ends = (np.array(column, np.int64) for column in zip(*((b.begin, b.end) for b in blocks), strict=True))
    places = np.concatenate([pairs["offset"] for _, pairs in entries]).astype(np.int64) + np.repeat(begins, counts)
    if (places + _SMALLEST > np.repeat(ends, counts)).any():
        return None
    order = np.argsort(places, kind="stable")
    places = places[order]
    made = _messages_at(arena, places)
    ids = np.repeat(np.array([id_ for id_, _ in entries]), [len(pairs) for _, pairs in entries])[order]
    if made is None or not (made.connections == ids).all():
        return None
    stops = made.starts + made.lengths
    lasts = np.cumsum(counts) - 1
    nexts = np.append(places[1:], 0)
    nexts[lasts] = ends
    if (nexts < stops).any():
        return None
    firsts = places[lasts - counts + 1]
    gaps = [(int(begins[i]), int(firsts[i]), i) for i in np.flatnonzero(begins < firsts).tolist()]
    inner = np.flatnonzero(stops < nexts)
    gaps += zip(stops[inner].tolist(), nexts[inner].tolist(), np.searchsorted(lasts, inner).tolist(), strict=True)
    for begin, end, i in sorted(gaps):
        between = walk(arena, blocks[i]._replace(begin=begin, end=end), registry, path=path)
        if between.offsets or between.fault is not None:
            return None
    return made


def checked_head(record: BagRecord, *, path: str) -> ChunkHead:
    """The head of a chunk, with checked sizes. Raises ``ReadError``."""
    head = chunk_head(record, path=path)
    if head.compression == "" and head.size != head.uncompressed_size:
        raise _wrong_size(head, head.size, path, record.offset)
    most = head.uncompressed_size + head.uncompressed_size // 64 + MIB
    check_limit(head.size, most, path=path, offset=record.offset, what="the compressed size of a chunk")
    check_expansion(head.size, head.uncompressed_size, path=path, offset=record.offset, what="a chunk")
    return head


def decompress(head: ChunkHead, data: bytes | memoryview, out: Bytes, *, path: str, offset: int) -> None:
    """Fill ``out`` with a compressed chunk's records, exactly as many bytes as the chunk declares.

    Writers compress a chunk as one stream or frame. Needs little other memory, whatever sizes the data declares.
    """
    size, used = head.uncompressed_size, 0
    if not len(data) and not size:
        return
    make = LZ4FrameDecompressor if head.compression == "lz4" else BZ2Decompressor
    try:
        decompressor = make()
        rest = bytes(data)
        while not decompressor.eof:
            part = decompressor.decompress(rest, min(_STEP, size - used + 1))
            if used + len(part) > size or (not part and not decompressor.eof):
                raise EOFError("its stream is truncated, or has extra data")
            out[used : used + len(part)] = np.frombuffer(part, np.uint8)
            used += len(part)
            rest = b""
        if decompressor.unused_data:
            raise EOFError("more bytes follow its stream")
    except (OSError, RuntimeError, EOFError) as error:
        why = f"a {head.compression} chunk does not decompress to the {size:,} bytes it declares: {error}"
        raise damaged(why, path=path, offset=offset) from error
    if used != size:
        raise _wrong_size(head, used, path, offset)


def _wrong_size(head: ChunkHead, size: int, path: str, offset: int) -> ReadError:
    why = f"a chunk declares {head.uncompressed_size:,} bytes of records, but has {size:,}"
    return damaged(why, path=path, offset=offset)


class BagSection:
    """Reads the records of one split.

    It reads every record of the split, or raises ``ReadError``; it skips chunks that the split does not need. Up to
    ``threads`` small chunks of a local file are decompressed at once.
    """

    def __init__(self, file: BagFile, split: McapSplit, registry: Registry, *, threads: int = 1) -> None:
        self._file = file
        self._split = split
        self._registry = registry
        self._pool: ChunkPool | None = None
        if threads > 1 and not file.is_remote:
            self._pool = ChunkPool(file.fills, self._decompress, threads)
        self._arena: Bytes = np.empty(0, np.uint8)
        self._used = 0
        self._blocks: list[BagBlock] = []
        self._behind_chunk = False
        self._window = _WINDOWS[0]
        self.tally = Tally()

    def groups(self) -> Iterator[MessageGroup]:
        """The messages of the split, in groups of about ``GROUP_BYTES``, in file order. Raises ``ReadError``."""
        try:
            yield from self._groups()
        except Exception:
            try:
                self._wait()
            except ReadError as earlier:  # in a chunk before the failed place
                raise earlier from None
            raise
        finally:
            if self._pool is not None:
                self._pool.close()
                self._pool = None

    def _groups(self) -> Iterator[MessageGroup]:
        at, end = self._split.start, self._split.end
        while at < end:
            behind = self._split.end_of_unread(self._file, at, self.tally)
            if behind is not None:
                at, self._behind_chunk = behind, False
                continue
            record = self._file.record_at(at, end)
            yield from self._make_room(record)
            at = self._take(record)
        yield from self._flush()
        split, chunks, messages = self._split, self.tally.chunks.total(), self.tally.messages
        if split.chunks is not None and chunks != split.chunks:
            raise self._miscounted("chunks", split.chunks, chunks)
        if split.messages is not None and messages < split.messages:
            raise self._miscounted("messages", split.messages, messages)

    def _miscounted(self, what: str, expected: int, actual: int) -> ReadError:
        why = f"the index counts {expected:,} {what} here, but there are {actual:,}"
        return damaged(why, path=self._file.path, offset=self._split.start)

    def _wait(self) -> None:
        """Wait until pending chunks are decompressed."""
        if self._pool is not None:
            self._pool.finish(lambda at, size: self._file.read_at(at, size, what="a chunk"))

    def _make_room(self, record: BagRecord) -> Iterator[MessageGroup]:
        """If a record does not fit into the arena, yield the arena's messages, and take a new one."""
        need = self._room_for(record)
        if need > len(self._arena) - self._used:
            yield from self._flush()
            self._arena = take_arena(max(GROUP_BYTES, need))

    def _room_for(self, record: BagRecord) -> int:
        """The arena bytes that a record needs."""
        if record.op == BagOp.CHUNK and record.offset not in self._split.unwanted:
            return checked_head(record, path=self._file.path).uncompressed_size
        if record.op == BagOp.MESSAGE:
            what = "the length of a message"
            size = record.end - record.offset
            check_limit(size, MAX_CHUNK_UNCOMPRESSED, path=self._file.path, offset=record.offset, what=what)
            return max(size, min(self._window, self._split.end - record.offset))
        return 0

    def _take(self, record: BagRecord) -> int:
        """Read one or several records, and return where the next one begins."""
        path = self._file.path
        after_chunk, self._behind_chunk = self._behind_chunk, False
        if record.op == BagOp.CHUNK:
            self._take_chunk(record)
        elif record.op == BagOp.INDEX:
            self._behind_chunk = after_chunk
            if after_chunk:
                self._take_index(record)
        elif record.op == BagOp.CONNECTION:
            data = self._file.data_of(record, MAX_SCHEMA_BYTES)
            define_connection(self._registry, record, data, path=path, offset=record.offset)
        elif record.op == BagOp.MESSAGE:
            return self._take_window(record)
        elif record.op != BagOp.CHUNK_INFO:  # from an index that the bag's header does not name yet
            raise damaged(f"there is a {record.name} record among the chunks", path=path, offset=record.offset)
        return record.end

    def _take_chunk(self, record: BagRecord) -> None:
        head = chunk_head(record, path=self._file.path)
        self.tally.chunks[head.compression] += 1
        self.tally.uncompressed += head.uncompressed_size
        self.tally.compressed += head.size
        if record.offset in self._split.unwanted:
            self.tally.skipped += 1
            return
        if head.compression and not head.size and record.end < self._split.end and not head.uncompressed_size:
            self._check_is_finished(record)
        out = self._arena[self._used : self._used + head.uncompressed_size]
        if head.compression == "":
            self._file.read_into(record.data_at, out.data, what="a chunk")
        elif self._pool is not None and self._pool.takes(head):
            self._pool.begin(head, record.data_at, out, offset=record.offset)
        else:
            data = self._file.view_of(record.data_at, head.size)
            decompress(head, data, out, path=self._file.path, offset=record.offset)
        self._blocks.append(BagBlock(self._used, self._used + len(out), record.offset, []))
        self._used += len(out)
        self._behind_chunk = True

    def _check_is_finished(self, record: BagRecord) -> None:
        """Raise if no record follows an empty chunk: a recorder fills in a chunk's sizes when it ends the chunk."""
        try:
            self._file.record_at(record.end, self._split.end)
        except ReadError as error:
            raise ReadError(
                "the recorder was stopped while it wrote this chunk",
                path=self._file.path,
                offset=record.offset,
                hint=CUT_HINT,
            ) from error

    def _decompress(
        self, head: ChunkHead, data: bytes | memoryview, out: Bytes, _zstd: ZstdDecompressor, offset: int
    ) -> None:
        decompress(head, data, out, path=self._file.path, offset=offset)

    def _take_index(self, record: BagRecord) -> None:
        """Keep the entries of an index record that belongs to the chunk before it."""
        block, path = self._blocks[-1], self._file.path
        id_ = connection_id(record, path=path)
        version, count = (number(record, name, path=path) for name in (b"ver", b"count"))
        if block.indexed is None or version != 1 or count * ENTRY.itemsize != record.size or not count:
            self._blocks[-1] = block._replace(indexed=None)
            return
        block.indexed.append((id_, bytes(self._file.view_of(record.data_at, record.size))))

    def _take_window(self, record: BagRecord) -> int:
        """Read a run of records outside of chunks, beginning with a message. They are from an unfinished chunk."""
        offset = record.offset
        size = max(record.end - offset, min(self._window, self._split.end - offset))
        out = self._arena[self._used : self._used + size]
        self._file.read_into(offset, out.data, what="a message")
        block = BagBlock(self._used, self._used + size, offset, None)
        end = walk(self._arena, block, self._registry, path=self._file.path).end
        smallest, largest = _WINDOWS
        self._window = min(4 * self._window, largest) if 2 * (end - self._used) > size else smallest
        self._blocks.append(block._replace(end=end))
        taken, self._used = end - self._used, end
        return offset + taken

    def _flush(self) -> Iterator[MessageGroup]:
        self._wait()
        arena, blocks = self._arena[: self._used], self._blocks
        self._blocks, self._used, self._behind_chunk = [], 0, False
        self._arena = np.empty(0, np.uint8)
        messages = self._messages(arena, blocks)
        if len(messages.offsets):
            self.tally.messages += len(messages.offsets)
            yield MessageGroup(arena, messages)

    def _messages(self, arena: Bytes, blocks: Sequence[BagBlock]) -> MessageHeads:
        """The messages of blocks: by their indexes if these are right, else by a walk from record to record."""
        if blocks and all(block.indexed for block in blocks):
            made = _by_index(arena, blocks, self._registry, self._file.path)
            if made is not None:
                return self._heads(made, blocks[0].offset)
        return joined([self._walked(arena, block) for block in blocks])

    def _walked(self, arena: Bytes, block: BagBlock) -> MessageHeads:
        walked = walk(arena, block, self._registry, path=self._file.path)
        if walked.fault is not None:
            raise walked.fault
        return self._heads_at(arena, walked, block)

    def _heads_at(self, arena: Bytes, walked: Walk, block: BagBlock) -> MessageHeads:
        made = _messages_at(arena, np.array(walked.offsets, np.int64))
        if made is None:
            why = "the header of a message in a chunk lacks its connection or its time"
            raise damaged(why, path=self._file.path, offset=block.offset)
        return self._heads(made, block.offset)

    def _heads(self, made: BagMessages, offset: int) -> MessageHeads:
        """The messages in the reader's common form. Raises ``ReadError`` for messages of unknown connections."""
        known = self._registry.channels
        unknown = [id_ for id_ in np.unique(made.connections).tolist() if id_ > LAST_CONNECTION or id_ not in known]
        if unknown:
            why = f"there are messages of the undefined connection {unknown[0]}"
            raise damaged(why, path=self._file.path, offset=offset)
        return placed_heads(made.starts, made.lengths, made.connections, made.times)
