"""MCAP records, parsed strictly, and blocks of records: decompressed chunks, and the messages in them.

A record is an opcode (u8), the length of its body (u64, little-endian) and the body. The classes of the ``mcap``
library parse bodies, over a stream that never gives fewer bytes than requested. Format: https://mcap.dev/spec
"""

from __future__ import annotations

import struct
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from io import BytesIO
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from mcap import records as library
from mcap.data_stream import ReadDataStream
from mcap.exceptions import McapError
from mcap.opcode import Opcode
from zlib_ng.zlib_ng import crc32
from zstandard import ZstdDecompressor, ZstdError, frame_header_size, get_frame_parameters

from ...engine.errors import ReadError, ReadWarning, UnsupportedError
from ...engine.limits import MAX_OTHER_RECORDS, MAX_SCHEMA_BYTES, MIB, check_expansion, check_limit
from ...engine.task_context import lasting

MAGIC: Final = b"\x89MCAP0\r\n"
HEAD: Final = struct.Struct("<BQ")
"""Opcode and body length, with which every record begins."""


class Op:
    """The opcodes as plain numbers, as they are compared for each record."""

    HEADER: Final = Opcode.HEADER.value
    FOOTER: Final = Opcode.FOOTER.value
    SCHEMA: Final = Opcode.SCHEMA.value
    CHANNEL: Final = Opcode.CHANNEL.value
    MESSAGE: Final = Opcode.MESSAGE.value
    CHUNK: Final = Opcode.CHUNK.value
    MESSAGE_INDEX: Final = Opcode.MESSAGE_INDEX.value
    CHUNK_INDEX: Final = Opcode.CHUNK_INDEX.value
    ATTACHMENT: Final = Opcode.ATTACHMENT.value
    ATTACHMENT_INDEX: Final = Opcode.ATTACHMENT_INDEX.value
    STATISTICS: Final = Opcode.STATISTICS.value
    METADATA: Final = Opcode.METADATA.value
    METADATA_INDEX: Final = Opcode.METADATA_INDEX.value
    SUMMARY_OFFSET: Final = Opcode.SUMMARY_OFFSET.value
    DATA_END: Final = Opcode.DATA_END.value


MESSAGE_FIXED: Final = 22
"""Bytes of a message body before its data: channel u16, sequence u32, log time u64, publish time u64."""

FOOTER_SIZE: Final = HEAD.size + 20
DATA_END_SIZE: Final = HEAD.size + 4

CUT_HINT: Final = (
    "The file is truncated, or its recorder was stopped. Copy it again, or read the intact part with recover=True, "
    "or with `chunkmill convert --recover`."
)
_NAMES: Final = {code.value: code.name.title().replace("_", "") for code in Opcode}

_UNREADABLE: Final = (McapError, UnicodeDecodeError, struct.error, ValueError, OverflowError)

T = TypeVar("T")


def record_name(opcode: int) -> str:
    """Return MCAP's name for records of ``opcode``.

    >>> record_name(6), record_name(0x91)
    ('Chunk', 'private (0x91)')
    """
    return _NAMES.get(opcode) or f"{'private' if opcode >= 0x80 else 'unknown'} (0x{opcode:02x})"


class _StrictStream(ReadDataStream):
    """A record body for the library's parsers; reading past its end raises instead of giving fewer bytes."""

    def __init__(self, body: bytes) -> None:
        super().__init__(BytesIO(body))
        self._left = len(body)

    def read(self, length: int) -> bytes:
        """Return exactly ``length`` bytes. Raises ``ValueError`` if fewer are left."""
        if length > self._left:
            raise ValueError(f"{length:,} bytes expected, but {self._left:,} left in the record")
        self._left -= length
        return super().read(length)


def parse_record(read: Callable[[ReadDataStream], T], opcode: int, body: bytes, *, path: str, offset: int) -> T:
    """Parse one record body, e.g. with ``mcap.records.Channel.read``; ``offset`` is where the record starts."""
    try:
        return read(_StrictStream(body))
    except _UNREADABLE as error:
        raise malformed(opcode, str(error), path=path, offset=offset) from error


def damaged(why: str, *, path: str, offset: int | None = None) -> ReadError:
    """Return the error for bytes that no writer writes."""
    return ReadError(why, path=path, offset=offset, hint="The file is damaged; copy it again.")


def malformed(opcode: int, why: str, *, path: str, offset: int | None) -> ReadError:
    """Return the error for a record whose body does not fit its opcode."""
    return damaged(f"a {record_name(opcode)} record is malformed: {why}", path=path, offset=offset)


class RecordPlace(NamedTuple):
    """The place of a record in the file: its offset, and its length including its head."""

    offset: int
    length: int


class ChunkIndexEntry(NamedTuple):
    """A ChunkIndex record, without the places of the individual message indexes.

    ``channel_ids`` are the little-endian u16 ids of the channels that have a message index, as one bytes object.
    Times are in ns, offsets and lengths in bytes.
    """

    offset: int
    length: int
    index_length: int
    start_time: int
    end_time: int
    compression: str
    compressed_size: int
    uncompressed_size: int
    channel_ids: bytes

    @property
    def end(self) -> int:
        """The end of the chunk record."""
        return self.offset + self.length


_ENTRY: Final = struct.Struct("<QQQQI")
_ENTRY_TAIL: Final = struct.Struct("<QI")
_ENTRY_SIZES: Final = struct.Struct("<QQ")


def parse_chunk_entry(body: bytes, *, path: str, offset: int) -> ChunkIndexEntry:
    """Parse the body of a ChunkIndex record. A file may have a hundred thousand."""
    try:
        start, end, chunk, length, map_length = _ENTRY.unpack_from(body)
        ids = body[_ENTRY.size : _ENTRY.size + map_length]
        at = _ENTRY.size + map_length
        index_length, name_length = _ENTRY_TAIL.unpack_from(body, at)
        at += _ENTRY_TAIL.size
        compression = body[at : at + name_length].decode()
        compressed, uncompressed = _ENTRY_SIZES.unpack_from(body, at + name_length)
    except (struct.error, UnicodeDecodeError, OverflowError) as error:
        raise malformed(Op.CHUNK_INDEX, str(error), path=path, offset=offset) from error
    if map_length % 10:
        raise malformed(Op.CHUNK_INDEX, f"a map of {map_length} bytes", path=path, offset=offset)
    low, high = ids[0::10], ids[1::10]
    channel_ids = bytes(byte for pair in zip(low, high, strict=True) for byte in pair)
    return ChunkIndexEntry(chunk, length, index_length, start, end, compression, compressed, uncompressed, channel_ids)


class ChunkHead(NamedTuple):
    """The part of a Chunk record before its data. ``size`` is the length of the data as stored."""

    start_time: int
    end_time: int
    uncompressed_size: int
    crc: int
    compression: str
    size: int
    data_at: int


_CHUNK: Final = struct.Struct("<QQQII")
CHUNK_HEAD_MAX: Final = _CHUNK.size + 255 + 8


def parse_chunk_head(body: bytes, length: int, *, path: str, offset: int) -> ChunkHead:
    """Parse the beginning (at least ``CHUNK_HEAD_MAX`` bytes, or all) of a Chunk record's body of ``length`` bytes."""
    try:
        start, end, uncompressed, crc, name_length = _CHUNK.unpack_from(body)
        at = _CHUNK.size
        if name_length > 255:
            raise malformed(
                Op.CHUNK, f"the name of its compression has {name_length:,} bytes", path=path, offset=offset
            )
        compression = body[at : at + name_length].decode()
        (size,) = struct.unpack_from("<Q", body, at + name_length)
    except (struct.error, UnicodeDecodeError) as error:
        raise malformed(Op.CHUNK, str(error), path=path, offset=offset) from error
    data_at = at + name_length + 8
    if size > length - data_at:
        why = f"{size:,} bytes of data, but {length - data_at:,} left in the record"
        raise malformed(Op.CHUNK, why, path=path, offset=offset)
    return ChunkHead(start, end, uncompressed, crc, compression, size, data_at)


class McapSchema(NamedTuple):
    """A Schema record; ids start at 1, and 0 means no schema."""

    id: int
    name: str
    encoding: str
    data: bytes


class Channel(NamedTuple):
    """A Channel record; ``metadata`` as (key, value) pairs in file order."""

    id: int
    topic: str
    message_encoding: str
    schema_id: int
    metadata: tuple[tuple[str, str], ...]


class Registry:
    """Channels and schemas by id. The same record may repeat; another record with the same id is damage."""

    def __init__(self, path: str, channels: Iterable[Channel] = (), schemas: Iterable[McapSchema] = ()) -> None:
        self._path = path
        self._channels = {c.id: c for c in channels}
        self._schemas = {s.id: s for s in schemas}
        self._seen: dict[int, set[bytes]] = {Op.SCHEMA: set(), Op.CHANNEL: set()}

    @property
    def channels(self) -> Mapping[int, Channel]:
        """Channels by id."""
        return self._channels

    @property
    def schemas(self) -> Mapping[int, McapSchema]:
        """Schemas by id."""
        return self._schemas

    def add(self, opcode: int, body: bytes, *, offset: int) -> None:
        """Add the body of a Schema or Channel record at ``offset``, or in the chunk at ``offset``."""
        if self.is_known(opcode, body):
            return
        if opcode == Op.SCHEMA:
            self._add_schema(body, offset)
        else:
            self._add_channel(body, offset)
        self.know(opcode, body)

    def is_known(self, opcode: int, body: bytes) -> bool:
        """Return whether these very bytes of a Schema or Channel record were added before."""
        return body in self._seen[opcode]

    def know(self, opcode: int, body: bytes) -> None:
        """Note that these bytes were added."""
        self._seen[opcode].add(body)

    def channel(self, channel_id: int, *, offset: int | None) -> Channel:
        """The channel of a message at ``offset``. Raises ``ReadError`` if no record defines it."""
        channel = self._channels.get(channel_id)
        if channel is None:
            raise damaged(
                f"there is a message of the undefined channel {channel_id}",
                path=self._path,
                offset=offset,
            )
        return channel

    def schema_of(self, channel: Channel) -> McapSchema | None:
        """The schema of a channel; None if it has none or the schema's record is missing."""
        return self._schemas.get(channel.schema_id)

    def _add_schema(self, body: bytes, offset: int) -> None:
        check_limit(len(body), MAX_SCHEMA_BYTES, path=self._path, offset=offset, what="the length of a Schema record")
        record = parse_record(library.Schema.read, Op.SCHEMA, body, path=self._path, offset=offset)
        if record.id == 0:
            raise malformed(Op.SCHEMA, "its id is 0, which means no schema", path=self._path, offset=offset)
        self.define_schema(McapSchema(record.id, record.name, record.encoding, bytes(record.data)), offset=offset)

    def _add_channel(self, body: bytes, offset: int) -> None:
        check_limit(len(body), MAX_SCHEMA_BYTES, path=self._path, offset=offset, what="the length of a Channel record")
        record = parse_record(library.Channel.read, Op.CHANNEL, body, path=self._path, offset=offset)
        metadata = tuple(record.metadata.items())
        channel = Channel(record.id, record.topic, record.message_encoding, record.schema_id, metadata)
        self.define_channel(channel, offset=offset)

    def define_schema(self, schema: McapSchema, *, offset: int) -> None:
        """Add a parsed schema. Raises ``ReadError`` if its id has another one."""
        if self._schemas.setdefault(schema.id, schema) != schema:
            raise self._conflict(Op.SCHEMA, schema.id, offset)

    def define_channel(self, channel: Channel, *, offset: int) -> None:
        """Add a parsed channel. Raises ``ReadError`` if its id has another one."""
        existing = self._channels.setdefault(channel.id, channel)
        if existing[:4] != channel[:4]:
            raise self._conflict(Op.CHANNEL, channel.id, offset)

    def _conflict(self, opcode: int, id_: int, offset: int) -> ReadError:
        return damaged(
            f"the {record_name(opcode)} with id {id_} has two different definitions", path=self._path, offset=offset
        )


_MESSAGE_HEAD: Final = np.dtype(
    [
        ("opcode", "u1"),
        ("length", "<u8"),
        ("channel", "<u2"),
        ("sequence", "<u4"),
        ("log_time", "<u8"),
        ("publish_time", "<u8"),
    ]
)
"""The first 31 bytes of a Message record, packed; the data follows them."""

_WIDTH: Final = _MESSAGE_HEAD.itemsize

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Times = npt.NDArray[np.uint64] | Ints


class Block(NamedTuple):
    """Records from byte ``begin`` to ``end`` of the arena.

    ``offset`` is the place of the chunk (``in_chunk``) or of the first record in the file. ``indexed`` is the message
    index: for each channel, its id, and log time and offset in the chunk of each of its messages, as little-endian u64;
    None without a credible index. ``checked``: a CRC confirmed the records.
    """

    begin: int
    end: int
    offset: int
    in_chunk: bool
    checked: bool
    indexed: list[tuple[int, bytes]] | None


class MessageHeads(NamedTuple):
    """The messages of a block in file order: the arena offset and head (``MESSAGE_HEAD``) of each record."""

    offsets: Ints
    heads: np.ndarray

    def at(self, which: npt.NDArray[np.bool_]) -> MessageHeads:
        """Return the messages for which ``which`` is true."""
        return self if which.all() else MessageHeads(self.offsets[which], self.heads[which])


def walk(arena: Bytes, block: Block, registry: Registry, *, path: str, window: bool = False) -> tuple[list[int], int]:
    """Walk over the records; return the offsets of the messages and the end of the walk.

    It ends with the block. In a ``window`` of records outside of chunks, it ends before the first record that is cut
    short, or that is of a known kind other than message, channel and schema.
    """
    view, unpack, size, message = arena.data, HEAD.unpack_from, HEAD.size, Op.MESSAGE
    at, end = block.begin, block.end
    offsets: list[int] = []
    others = 0
    while at < end:
        body = at + size
        opcode, length = unpack(view, at) if body <= end else (0, 0)
        after = body + length
        if after > end:
            if window:
                break
            raise _overrun(block, at, opcode, length, path)
        if opcode == message:
            offsets.append(at)
        elif window and opcode <= Op.DATA_END and opcode not in (Op.SCHEMA, Op.CHANNEL):
            break
        else:
            others += 1
            check_limit(others, MAX_OTHER_RECORDS, path=path, offset=block.offset, what="the number of other records")
            _take_other(opcode, view[body:after], block, registry, path)
        at = after
    return offsets, at


def _take_other(opcode: int, body: memoryview, block: Block, registry: Registry, path: str) -> None:
    if opcode in (Op.SCHEMA, Op.CHANNEL):
        registry.add(opcode, bytes(body), offset=block.offset)
    elif opcode == Op.CHUNK:
        raise malformed(Op.CHUNK, "there is another chunk inside it", path=path, offset=block.offset)
    elif opcode == 0:
        raise damaged("a record has no opcode", path=path, offset=block.offset)


def heads_of(arena: Bytes, offsets: Ints) -> MessageHeads:
    """The messages that begin at ``offsets`` in the arena, each record whole."""
    if not len(offsets):
        return MessageHeads(offsets, np.empty(0, _MESSAGE_HEAD))
    padded = arena
    if int(offsets[-1]) > len(arena) - _WIDTH:  # the last record may be too short for a message
        padded = np.concatenate((arena, np.zeros(_WIDTH, np.uint8)))
    view = np.ndarray((len(padded) - _WIDTH + 1,), f"V{_WIDTH}", buffer=padded.data, strides=(1,))
    return MessageHeads(offsets, view[offsets].view(_MESSAGE_HEAD))


def placed_heads(
    starts: Ints, lengths: Ints, channels: Ints, log_times: Times, publish_times: Times | None = None
) -> MessageHeads:
    """The messages of another container in MCAP's form, from the start and length (int64) of each message's data.

    Times are in ns; publish times are by default the log times. As there are no records around the data, the first
    record may begin before the arena.
    """
    heads = np.zeros(len(starts), _MESSAGE_HEAD)
    heads["opcode"] = Op.MESSAGE
    heads["length"] = lengths + MESSAGE_FIXED
    heads["channel"] = channels
    heads["log_time"] = log_times
    heads["publish_time"] = log_times if publish_times is None else publish_times
    return MessageHeads(starts - _WIDTH, heads)


def _overrun(block: Block, at: int, opcode: int, length: int, path: str) -> ReadError:
    where = "inside a chunk " if block.in_chunk else ""
    what = f"a record {record_name(opcode)} of {length:,} bytes" if length else "a record"
    return damaged(f"{what} {where}runs past its end ({block.end - at:,} bytes left)", path=path, offset=block.offset)


_PAIR: Final = 16


def find_in_all(arena: Bytes, blocks: Sequence[Block], registry: Registry, *, path: str) -> MessageHeads:
    """Return the messages of ``blocks``, which are in the arena in this order, as :func:`find_messages` does for each.

    If every index is right, one pass over all indexes is enough. A walk from record to record takes 1.6 times the CPU
    time (a mixture of 300 MB); ``benchmarks/bench_convert.py`` guards it.
    """
    if blocks and all(block.indexed for block in blocks):
        messages = _by_index(arena, blocks, registry, path)
        if messages is not None:
            return messages
    return joined([find_messages(arena, block, registry, path=path) for block in blocks])


def joined(parts: Iterable[MessageHeads]) -> MessageHeads:
    """The messages of all parts, in this order."""
    parts = [part for part in parts if len(part.offsets)]
    if not parts:
        return MessageHeads(np.empty(0, np.int64), np.empty(0, _MESSAGE_HEAD))
    return MessageHeads(np.concatenate([p.offsets for p in parts]), np.concatenate([p.heads for p in parts]))


def find_messages(arena: Bytes, block: Block, registry: Registry, *, path: str) -> MessageHeads:
    """All messages of ``block``. Its channels and schemas go to ``registry``. Raises ``ReadError`` on damage."""
    if block.indexed:
        messages = _by_index(arena, [block], registry, path)
        if messages is not None:
            return messages
    offsets, _ = walk(arena, block, registry, path=path)
    messages = heads_of(arena, np.array(offsets, np.int64))
    _check_lengths(messages, block, path)
    if block.indexed and not block.checked:
        _compare_with_index(messages, block, path)
    return messages


def _by_index(arena: Bytes, blocks: Sequence[Block], registry: Registry, path: str) -> MessageHeads | None:
    """The messages by the indexes of all blocks, or None if indexes and records do not agree exactly."""
    entries = [entry for block in blocks for entry in block.indexed or ()]
    sizes = [len(pairs) // _PAIR for _, pairs in entries]
    counts = np.array([sum(len(pairs) for _, pairs in block.indexed or ()) // _PAIR for block in blocks], np.int64)
    begins = np.array([block.begin for block in blocks], np.int64)
    ends = np.array([block.end for block in blocks], np.int64)
    rooms = ends - begins - _MESSAGE_HEAD.itemsize
    if not counts.all() or int(rooms.min()) < 0:
        return None
    raw = _offsets(pairs for _, pairs in entries)
    if (raw > np.repeat(rooms.astype(np.uint64), counts)).any():
        return None
    places = raw.astype(np.int64) + np.repeat(begins, counts)
    order = np.argsort(places, kind="stable")
    messages = heads_of(arena, places[order])
    heads, lengths = messages.heads, messages.heads["length"]
    channels = np.repeat(np.array([channel for channel, _ in entries], np.uint16), sizes)[order]
    if not (heads["opcode"] == Op.MESSAGE).all() or not (heads["channel"] == channels).all():
        return None
    if int(lengths.max()) > int((ends - begins).max()) or int(lengths.min()) < MESSAGE_FIXED:
        return None
    lasts = np.cumsum(counts) - 1
    stops = messages.offsets + HEAD.size + lengths.astype(np.int64)
    nexts = np.append(messages.offsets[1:], 0)
    nexts[lasts] = ends
    if (nexts < stops).any():
        return None
    firsts = messages.offsets[lasts - counts + 1]
    gaps = [(int(begins[i]), int(firsts[i]), i) for i in np.flatnonzero(begins < firsts).tolist()]
    inner = np.flatnonzero(stops < nexts)
    gaps += zip(stops[inner].tolist(), nexts[inner].tolist(), np.searchsorted(lasts, inner).tolist(), strict=True)
    for begin, end, i in sorted(gaps):
        if _hides_messages(arena, blocks[i]._replace(begin=begin, end=end), registry, path):
            return None
    return messages


def _offsets(pairs: Iterable[bytes]) -> npt.NDArray[np.uint64]:
    """The offsets in pairs of log time and offset."""
    return np.frombuffer(b"".join(pairs), "<u8")[1::2]


def _hides_messages(arena: Bytes, between: Block, registry: Registry, path: str) -> bool:
    try:
        offsets, _ = walk(arena, between, registry, path=path)
    except ReadError:
        return True
    return bool(offsets)


def _check_lengths(messages: MessageHeads, block: Block, path: str) -> None:
    if (messages.heads["length"] < MESSAGE_FIXED).any():
        raise malformed(Op.MESSAGE, f"it has fewer than {MESSAGE_FIXED} bytes", path=path, offset=block.offset)


def _compare_with_index(messages: MessageHeads, block: Block, path: str) -> None:
    assert block.indexed is not None
    offsets = (messages.offsets - block.begin).astype(np.uint64)
    missing = sum(int((~np.isin(_offsets([pairs]), offsets)).sum()) for _, pairs in block.indexed)
    if missing:
        warnings.warn(
            f"{path}: the message index of the chunk at byte {block.offset:,} lists {missing} missing messages, and "
            "the chunk has no CRC; its existing messages were read",
            ReadWarning,
            stacklevel=2,
        )


_MOST_KEPT: Final = 2
_LARGEST_KEPT: Final = 40 * MIB


class _Kept(NamedTuple):
    memory: Bytes
    lent: weakref.ref[Bytes]


class _Arenas:
    """The memory that a thread keeps."""

    def __init__(self) -> None:
        self.memories: list[_Kept] = []


def take_arena(size: int) -> Bytes:
    """Return ``size`` bytes (uint8, 1-D) of any content, which are not reused while anything refers to them.

    The system clears new memory page by page, which costs up to a fifth of the time of decompressing into it. So a
    thread keeps up to two arenas of at most 40 MiB. It lends an arena again when the lent array, all views of it, and
    all Arrow buffers and memoryviews over these are gone. Without arenas, finding the messages of a mixture of 300 MB
    takes a third more CPU time (nothing decoded); ``benchmarks/bench_convert.py`` guards it.

    >>> first = take_arena(100)
    >>> view = first[10:20].data
    >>> del first
    >>> view[:] = bytes(range(10))
    >>> take_arena(100)[:] = 255
    >>> bytes(view) == bytes(range(10))
    True
    """
    arenas = lasting(_Arenas)
    memories = arenas.memories
    for i, (memory, lent) in enumerate(memories):
        if len(memory) >= size and lent() is None:
            memories[i], arena = _lend(memory, size)
            return arena
    if size > _LARGEST_KEPT:
        return np.empty(size, np.uint8)
    lending, arena = _lend(np.empty(size, np.uint8), size)
    arenas.memories = [*memories[1 - _MOST_KEPT :], lending]
    return arena


def _lend(memory: Bytes, size: int) -> tuple[_Kept, Bytes]:
    # The arena is made over a memoryview, so that it is the base of its views. Over an array, the array would be.
    arena: Bytes = np.frombuffer(memory.data, np.uint8, count=size)
    return _Kept(memory, weakref.ref(arena)), arena


_FRAME: Final = b"\x28\xb5\x2f\xfd"
_CHECKSUM_SIZE: Final = 4
_REPEATED, _RESERVED = 1, 3


def check_declared(head: ChunkHead, *, path: str, offset: int) -> int:
    """Return the chunk's uncompressed size. Raises an error for an unknown compression or incredible sizes."""
    if head.compression not in ("", "lz4", "zstd"):
        raise UnsupportedError(
            f"a chunk has the unknown compression {head.compression!r}",
            path=path,
            offset=offset,
            hint="An MCAP is uncompressed, or uses lz4 or zstd. Rewrite the file, unless only this name is damaged.",
        )
    if head.compression == "" and head.size != head.uncompressed_size:
        raise _wrong_size(head, head.size, path, offset)
    most = head.uncompressed_size + head.uncompressed_size // 64 + MIB
    check_limit(head.size, most, path=path, offset=offset, what="the compressed size of a chunk")
    return check_expansion(head.size, head.uncompressed_size, path=path, offset=offset, what="a chunk")


def decompress(
    head: ChunkHead, data: bytes | memoryview, out: Bytes, zstd: ZstdDecompressor, *, path: str, offset: int
) -> np.ndarray:
    """Return the records of a chunk, exactly as many bytes (uint8, 1-D) as it declares, with checked CRC.

    They are in ``out``, which has that size, if ``data`` can be decompressed directly into it, else in new memory. It
    takes no more memory, whatever the compressed data declares.
    """
    if head.compression == "zstd" and _is_one_frame(data, len(out)) and _fill(out, data, zstd):
        records: np.ndarray = out
    else:
        records = np.frombuffer(_decompressed(head, data, path, offset), np.uint8)
    check_crc(head, records, path=path, offset=offset)
    return records


def check_crc(head: ChunkHead, records: np.ndarray, *, path: str, offset: int) -> None:
    """Compare the CRC-32 of a chunk's records with the declared CRC, if there is one."""
    if head.crc and crc32(records.data) != head.crc:
        raise damaged("the CRC of a chunk does not match its data", path=path, offset=offset)


def _fill(out: Bytes, data: bytes | memoryview, zstd: ZstdDecompressor) -> bool:
    """Decompress one frame into ``out`` in one pass; return False if that fails."""
    try:
        with zstd.stream_reader(data) as reader:
            return reader.readinto(out) == len(out)
    except ZstdError:
        return False


def _is_one_frame(data: bytes | memoryview, size: int) -> bool:
    """Return whether ``data`` is exactly one zstd frame and declares ``size`` bytes of content.

    Such a frame is decompressed directly into the arena, without a separate window. With a window, finding the messages
    of a mixture of 300 MB takes a quarter more CPU time (nothing decoded); ``benchmarks/bench_convert.py`` guards it.
    Format: RFC 8878, 3.1.1.
    """
    if data[:4] != _FRAME:
        return False
    try:
        frame = get_frame_parameters(data)
        at = frame_header_size(data)
    except ZstdError:
        return False
    if frame.content_size != size or not size:
        return False
    end = len(data) - _CHECKSUM_SIZE * frame.has_checksum
    for _ in range(8 + size // 4096):
        head = int.from_bytes(data[at : at + 3], "little")
        kind = head >> 1 & 3
        if kind == _RESERVED:
            return False
        at += 3 + (1 if kind == _REPEATED else head >> 3)
        if head & 1:
            return at == end
    return False


_SMALLEST_AT_ONCE: Final = MIB >> 6
"""The smallest decompressed size of chunks that go to threads.

For a chunk of 4 kB, a thread costs more than the decompression (8,000 chunks with their messages: 0.61 s of CPU, 0.34 s
without threads); at 16 kB, both are equal. The size also bounds the number of pending chunks in an arena.
"""
_LARGEST_AT_ONCE: Final = 8 * MIB
"""The largest size of chunks, compressed or not, that go to threads."""

ReadInto = Callable[[int, memoryview], bool]
"""Fills memory with the bytes of a file from an offset on, in any thread; returns False if that fails."""

Fill = Callable[[ChunkHead, "bytes | memoryview", Bytes, ZstdDecompressor, int], None]
"""Fills memory with a chunk's records, from its compressed bytes and its offset. Raises ``ReadError``."""


class _Tools:
    """A decompressor and memory, for one thread."""

    def __init__(self) -> None:
        self.zstd = ZstdDecompressor()
        self.memory = bytearray()

    def room(self, size: int) -> memoryview:
        if len(self.memory) < size:
            self.memory = bytearray(size)
        return memoryview(self.memory)[:size]


class _Begun(NamedTuple):
    head: ChunkHead
    at: int
    out: Bytes
    offset: int
    done: Future[bool]


class ChunkPool:
    """Reads and decompresses chunks of a file into their places in an arena, with ``threads`` chunks at once.

    Each thread holds the compressed bytes of one chunk. The waiting thread repeats failed chunks, so that errors are
    the same as when reading chunk by chunk, and in file order. For one topic among 60 MB of images, two thirds of the
    CPU time are decompression, which can use all free cores. It takes 0.105 s of CPU, not 0.123 s as one thread did:
    nothing is read into a window first, and (measured together) no run is made for unwanted topics.
    ``benchmarks/bench_frames.py`` guards it.
    """

    def __init__(self, read_into: ReadInto, fill: Fill, threads: int) -> None:
        self._read_into = read_into
        self._fill = fill
        self._threads = ThreadPoolExecutor(threads, "chunkmill-chunks")
        self._tools = [_Tools() for _ in range(threads)]
        self._begun: list[_Begun] = []

    def takes(self, head: ChunkHead) -> bool:
        """Return whether the chunk is compressed, large enough for a thread, and small enough to be one of several."""
        is_small = max(head.size, head.uncompressed_size) <= _LARGEST_AT_ONCE
        return head.compression != "" and head.uncompressed_size >= _SMALLEST_AT_ONCE and is_small

    def begin(self, head: ChunkHead, at: int, out: Bytes, *, offset: int) -> None:
        """Start to fill ``out`` with the records of the chunk at ``offset``, whose compressed bytes begin at ``at``."""
        done = self._threads.submit(self._is_done, head, at, out, offset)
        self._begun.append(_Begun(head, at, out, offset, done))

    def finish(self, read_at: Callable[[int, int], bytes]) -> None:
        """Wait for all started chunks. Raises the error of the first chunk that cannot be read or decompressed."""
        begun, self._begun = self._begun, []
        for chunk in begun:
            if not chunk.done.result():
                data = read_at(chunk.at, chunk.head.size)
                self._fill(chunk.head, data, chunk.out, ZstdDecompressor(), chunk.offset)

    def close(self) -> None:
        """End the threads; each finishes its current chunk."""
        self._threads.shutdown(cancel_futures=True)

    def _is_done(self, head: ChunkHead, at: int, out: Bytes, offset: int) -> bool:
        tools = self._tools.pop()
        try:
            data = tools.room(head.size)
            if not self._read_into(at, data):
                return False
            self._fill(head, data, out, tools.zstd, offset)
        except Exception:  # noqa: BLE001 (raised by who does it once more)
            return False
        else:
            return True
        finally:
            self._tools.append(tools)


def _decompressed(head: ChunkHead, data: bytes | memoryview, path: str, offset: int) -> bytes | pa.Buffer:
    size = head.uncompressed_size
    records: bytes | pa.Buffer = data
    try:
        if head.compression == "zstd" and (data or size):
            records = pa.Codec("zstd").decompress(data, size)
        elif head.compression == "lz4":
            records = _decompress_lz4(data, size)
    except (OSError, RuntimeError, EOFError) as error:
        why = f"a {head.compression} chunk does not decompress to the {size:,} bytes it declares: {error}"
        raise damaged(why, path=path, offset=offset) from error
    if len(records) != size:
        raise _wrong_size(head, len(records), path, offset)
    return records


def _decompress_lz4(data: bytes | memoryview, size: int) -> bytes:
    """Decompress LZ4 frames to at most ``size`` bytes together. Raises ``EOFError`` and ``RuntimeError``."""
    from lz4.frame import create_decompression_context, decompress_chunk

    parts: list[bytes] = []
    rest, left = memoryview(data), size
    while rest:
        part, used, whole = decompress_chunk(create_decompression_context(), rest, max_length=left)
        if not whole:
            raise EOFError("its frame is truncated, or has extra data")
        parts.append(part)
        left -= len(part)
        rest = rest[used:]
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _wrong_size(head: ChunkHead, size: int, path: str, offset: int) -> ReadError:
    why = f"a chunk declares {head.uncompressed_size:,} bytes of records, but has {size:,}"
    return damaged(why, path=path, offset=offset)
