"""MCAP records: their framing, their bodies, parsed strictly, and the channels and schemas that they define.

A record is an opcode (u8), the length of its body (u64, little endian) and the body. Bodies are parsed by the classes
of the ``mcap`` library over a stream that refuses to give less than it was asked for. Format:
https://mcap.dev/spec
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from io import BytesIO
from typing import Final, NamedTuple, TypeVar

from mcap import records as library
from mcap.data_stream import ReadDataStream
from mcap.exceptions import McapError
from mcap.opcode import Opcode

from ...engine.errors import ReadError
from ...engine.limits import MAX_SCHEMA_BYTES, check_limit

MAGIC: Final = b"\x89MCAP0\r\n"
HEAD: Final = struct.Struct("<BQ")
"""Opcode and body length: what every record begins with."""


class Op:
    """The opcodes as plain numbers: they are compared for each record."""

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
    "The file was cut short, or its recorder was stopped before it finished; copy it again if there is a whole one, or "
    "read what is there with recover=True (--recover)."
)
_NAMES: Final = {code.value: code.name.title().replace("_", "") for code in Opcode}

_UNREADABLE: Final = (McapError, UnicodeDecodeError, struct.error, ValueError, OverflowError)

T = TypeVar("T")


def record_name(opcode: int) -> str:
    """Return the format's name of records of ``opcode``.

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
        """Exactly ``length`` bytes; raises ``ValueError`` when fewer are left."""
        if length > self._left:
            raise ValueError(f"{length:,} bytes expected, {self._left:,} left in the record")
        self._left -= length
        return super().read(length)


def parse_record(read: Callable[[ReadDataStream], T], opcode: int, body: bytes, *, path: str, offset: int) -> T:
    """Parse one record body, e.g. with ``mcap.records.Channel.read``; ``offset`` is where the record starts."""
    try:
        return read(_StrictStream(body))
    except _UNREADABLE as error:
        raise malformed(opcode, str(error), path=path, offset=offset) from error


def damaged(why: str, *, path: str, offset: int | None = None) -> ReadError:
    """Return the error for bytes that no writer has written so."""
    return ReadError(why, path=path, offset=offset, hint="The file is damaged; copy it again if there is a good one.")


def malformed(opcode: int, why: str, *, path: str, offset: int | None) -> ReadError:
    """Return the error for a record whose body is not what its opcode promises."""
    return damaged(f"a {record_name(opcode)} record is malformed: {why}", path=path, offset=offset)


class RecordPlace(NamedTuple):
    """The place of a record in the file: its first byte, and its length with its head."""

    offset: int
    length: int


class ChunkIndexEntry(NamedTuple):
    """A ChunkIndex record, without the positions of the single message indexes.

    ``channel_ids`` are the little-endian u16 ids of the channels that have a message index, as one bytes object.
    Times are ns, offsets and lengths bytes.
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
    """Parse the body of a ChunkIndex record; there may be a hundred thousand of them."""
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
        why = f"{size:,} bytes of data in a record with {length - data_at:,} left"
        raise malformed(Op.CHUNK, why, path=path, offset=offset)
    return ChunkHead(start, end, uncompressed, crc, compression, size, data_at)


class McapSchema(NamedTuple):
    """A Schema record: ids are 1 and up, 0 meaning none."""

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
    """Channels and schemas by id. A record may come again and again; another one with the same id is damage."""

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
        """Take in the body of a Schema or Channel record found at (or in the chunk at) ``offset``."""
        if self.is_known(opcode, body):
            return
        if opcode == Op.SCHEMA:
            self._add_schema(body, offset)
        else:
            self._add_channel(body, offset)
        self.know(opcode, body)

    def is_known(self, opcode: int, body: bytes) -> bool:
        """Whether these very bytes of a Schema or Channel record were taken in before."""
        return body in self._seen[opcode]

    def know(self, opcode: int, body: bytes) -> None:
        """Note that these bytes were taken in."""
        self._seen[opcode].add(body)

    def channel(self, channel_id: int, *, offset: int | None) -> Channel:
        """The channel of a message met at ``offset``; raises when no record defines it."""
        channel = self._channels.get(channel_id)
        if channel is None:
            raise damaged(
                f"there is a message of channel {channel_id}, which no Channel record defines",
                path=self._path,
                offset=offset,
            )
        return channel

    def schema_of(self, channel: Channel) -> McapSchema | None:
        """The schema of a channel; None when it has none or its record is missing."""
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
        """Take in a schema that was parsed already. Raises ``ReadError`` where its id has another one."""
        if self._schemas.setdefault(schema.id, schema) != schema:
            raise self._conflict(Op.SCHEMA, schema.id, offset)

    def define_channel(self, channel: Channel, *, offset: int) -> None:
        """Take in a channel that was parsed already. Raises ``ReadError`` where its id has another one."""
        known = self._channels.setdefault(channel.id, channel)
        if known[:4] != channel[:4]:
            raise self._conflict(Op.CHANNEL, channel.id, offset)

    def _conflict(self, opcode: int, id_: int, offset: int) -> ReadError:
        return damaged(
            f"the {record_name(opcode)} with id {id_} is defined again, differently", path=self._path, offset=offset
        )
