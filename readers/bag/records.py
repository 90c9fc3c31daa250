"""The records, header and index of a bag of version 2.0, in the form of an MCAP's summary.

A record is a header and data, each after its length (u32, little-endian). A header is a series of fields, each
``name=value`` after its length; the field ``op`` is the record's kind. Format: http://wiki.ros.org/Bags/Format/2.0
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import ClassVar, Final, NamedTuple

from mcap.records import Statistics

from ...engine.errors import ReadError, UnsupportedError
from ...engine.limits import MAX_BAG_HEADER, MAX_FOOTER, MAX_OTHER_RECORDS, MAX_SCHEMA_BYTES, check_limit
from ..mcap.file import McapFile, McapLayout, Summary, Window
from ..mcap.records import CUT_HINT, Channel, ChunkHead, ChunkIndexEntry, McapSchema, Registry, damaged
from ..mcap.records import Op as McapOp

_LONGEST_VERSION: Final = 32
MAGIC: Final = b"#ROSBAG V2.0\n"
U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
_TIME: Final = struct.Struct("<II")
_COUNT: Final = struct.Struct("<II")

LAST_CONNECTION: Final = 2**16 - 2
"""The largest id of a connection. Its channel has the same id, and its schema that id plus one, both of 16 bits."""


class BagOp:
    """The kinds of records."""

    MESSAGE: Final = 2
    BAG_HEADER: Final = 3
    INDEX: Final = 4
    CHUNK: Final = 5
    CHUNK_INFO: Final = 6
    CONNECTION: Final = 7


_NAMES: Final = {
    BagOp.MESSAGE: "message",
    BagOp.BAG_HEADER: "bag header",
    BagOp.INDEX: "index",
    BagOp.CHUNK: "chunk",
    BagOp.CHUNK_INFO: "chunk info",
    BagOp.CONNECTION: "connection",
}

COMPRESSIONS: Final = {b"none": "", b"bz2": "bz2", b"lz4": "lz4"}
"""The compressions of chunks, with their names in an MCAP."""

Fields = Mapping[bytes, bytes]


class BagRecord(NamedTuple):
    """A record: its place in the file, its kind, the fields of its header, and the place and size of its data."""

    offset: int
    op: int
    fields: Fields
    data_at: int
    size: int

    @property
    def end(self) -> int:
        """The offset after the record."""
        return self.data_at + self.size

    @property
    def name(self) -> str:
        """The name of its kind."""
        return _NAMES.get(self.op, f"unknown ({self.op})")


class BagFile(McapFile):
    """An open bag. Use it as a context manager.

    ``counts`` are the index's numbers of messages by chunk offset; :func:`read_layout` sets them.
    """

    kind: ClassVar[str] = "bag"

    def __init__(self, path: str, version: str | None = None, stored_size: int | None = None) -> None:
        super().__init__(path, version, unwrap=False, stored_size=stored_size)
        self._window = Window(self)
        self.counts: Mapping[int, int] = {}

    def record_at(self, offset: int, end: int) -> BagRecord:
        """The record at ``offset``. Raises ``ReadError`` unless all of it is before ``end``."""
        left = end - offset
        if left < 2 * U32.size:
            raise self._cut(offset, end, f"{left} bytes are left where a record should begin")
        (size,) = U32.unpack(self._window.at(offset, U32.size, what="a record"))
        check_limit(size, MAX_BAG_HEADER, path=self.path, offset=offset, what="the length of the header of a record")
        if size > left - 2 * U32.size:
            raise self._cut(offset, end, f"the header of a record has {size:,} bytes, but {left - 8:,} are left")
        raw = bytes(self._window.at(offset + U32.size, size + U32.size, what="the header of a record"))
        record = made_record(raw, offset, path=self.path, place=offset)
        if record.size > end - record.data_at:
            why = f"a {record.name} record has {record.size:,} bytes, but {end - record.data_at:,} are left"
            raise self._cut(offset, end, why)
        return record

    def data_of(self, record: BagRecord, cap: int) -> bytes:
        """The data of a record of at most ``cap`` bytes."""
        check_limit(record.size, cap, path=self.path, offset=record.offset, what=f"the length of a {record.name}")
        return self.read_at(record.data_at, record.size, what=f"a {record.name} record")

    def view_of(self, at: int, size: int) -> memoryview:
        """Bytes that stay valid until the next call of any method."""
        return self._window.at(at, size, what="a record")

    def _cut(self, offset: int, end: int, why: str) -> ReadError:
        if end == self.size:
            return ReadError(f"the file ends inside a record: {why}", path=self.path, offset=offset, hint=CUT_HINT)
        return damaged(why, path=self.path, offset=offset)


def made_record(raw: bytes, offset: int, *, path: str, place: int) -> BagRecord:
    """The record at ``offset`` from its ``raw`` header and data length; errors are at ``place``."""
    fields = parse_fields(raw[: -U32.size], path=path, offset=place)
    op = fields.get(b"op", b"")
    if len(op) != 1:
        raise damaged("the header of a record has no valid type", path=path, offset=place)
    return BagRecord(offset, op[0], fields, offset + U32.size + len(raw), U32.unpack(raw[-U32.size :])[0])


def parse_fields(raw: bytes, *, path: str, offset: int) -> Fields:
    """The fields of a header, by their names. Raises ``ReadError``.

    >>> parse_fields(bytes([4, 0, 0, 0]) + b"op=\\x05", path="x.bag", offset=0)
    {b'op': b'\\x05'}
    """
    fields: dict[bytes, bytes] = {}
    at = 0
    while at < len(raw):
        size = U32.unpack_from(raw, at)[0] if len(raw) - at >= U32.size else -1
        at += U32.size
        if not 0 <= size <= len(raw) - at:
            raise damaged("a field of a header runs past its end", path=path, offset=offset)
        name, sign, value = raw[at : at + size].partition(b"=")
        if not sign or name in fields:
            raise damaged("a header has a field twice, or one without a name", path=path, offset=offset)
        fields[name] = value
        at += size
    return fields


def number(record: BagRecord, name: bytes, unpack: struct.Struct = U32, *, path: str) -> int:
    """Return a field of a record that is a number. Raises ``ReadError``."""
    value = record.fields.get(name, b"")
    if len(value) != unpack.size:
        raise _without(record, name, path)
    return int(unpack.unpack(value)[0])


def time_in(record: BagRecord, name: bytes, *, path: str) -> int:
    """Return a field of a record that is a time, in ns. Raises ``ReadError``."""
    value = record.fields.get(name, b"")
    if len(value) != _TIME.size:
        raise _without(record, name, path)
    seconds, nanoseconds = _TIME.unpack(value)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)


def _without(record: BagRecord, name: bytes, path: str) -> ReadError:
    why = f"a {record.name} record has no field {name.decode()!r} of the right length"
    return damaged(why, path=path, offset=record.offset)


def chunk_head(record: BagRecord, *, path: str) -> ChunkHead:
    """The compression and the sizes of a chunk. Raises ``ReadError``."""
    compression = record.fields.get(b"compression", b"")
    if compression not in COMPRESSIONS:
        raise UnsupportedError(
            f"a chunk has the unknown compression {compression.decode(errors='backslashreplace')!r}",
            path=path,
            offset=record.offset,
            hint="A bag is uncompressed, or uses bz2 or lz4. Rewrite the bag, unless only this name is damaged.",
        )
    size = number(record, b"size", path=path)
    return ChunkHead(0, 0, size, 0, COMPRESSIONS[compression], record.size, record.data_at - record.offset)


def connection_id(record: BagRecord, *, path: str) -> int:
    """The id of the connection that a record is about. Raises ``ReadError``."""
    id_ = number(record, b"conn", path=path)
    return check_limit(id_, LAST_CONNECTION, path=path, offset=record.offset, what="the number of a connection")


def define_connection(registry: Registry, record: BagRecord, data: bytes, *, path: str, offset: int) -> None:
    """Define a connection as a channel of ROS 1 messages, with its schema. Raises ``ReadError``.

    Connections with the same definition share the first one's schema.
    """
    body = b"".join((record.fields.get(b"conn", b""), record.fields.get(b"topic", b""), data))
    if registry.is_known(McapOp.CHANNEL, body):
        return
    id_ = connection_id(record._replace(offset=offset), path=path)
    fields = parse_fields(data, path=path, offset=offset)
    try:
        topic = record.fields[b"topic"].decode()
        name = fields[b"type"].decode()
        definition = fields[b"message_definition"]
    except (KeyError, UnicodeDecodeError) as error:
        why = f"connection {id_} has no topic, type or definition that is text ({error})"
        raise damaged(why, path=path, offset=offset) from error
    rest = {key: value for key, value in fields.items() if key not in (b"type", b"message_definition")}
    metadata = tuple((_text(key), _text(value)) for key, value in sorted(rest.items()))
    channel = registry.channels.get(id_)
    same = (s.id for s in registry.schemas.values() if (s.name, s.data) == (name, definition))
    schema_id = channel.schema_id if channel is not None else next(same, id_ + 1)
    registry.define_schema(McapSchema(schema_id, name, "ros1msg", definition), offset=offset)
    registry.define_channel(Channel(id_, topic, "ros1", schema_id, metadata), offset=offset)
    registry.know(McapOp.CHANNEL, body)


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


class _ChunkInfo(NamedTuple):
    """A chunk as the index describes it: its place, times (ns), and numbers of messages by connection."""

    offset: int
    start_time: int
    end_time: int
    counts: Mapping[int, int]


def check_version(file: BagFile) -> None:
    """Raise ``ReadError`` unless the file begins like a bag of version 2.0 and is not encrypted."""
    begin = file.read_up_to(0, _LONGEST_VERSION)
    if begin.startswith(MAGIC):
        return
    if MAGIC.startswith(begin):
        raise ReadError(f"the file ends after {len(begin)} bytes", path=file.path, offset=len(begin), hint=CUT_HINT)
    if begin.startswith(MAGIC[:-1]):
        raise ReadError(
            "the line endings of this bag were converted, which damages binary files",
            path=file.path,
            offset=0,
            hint="Copy it again in binary mode.",
        )
    if begin.startswith((b"#ROSBAG V", b"#ROSRECORD V", b"#ROSLOG V")):
        version = begin.partition(b"\n")[0].decode(errors="backslashreplace")
        raise UnsupportedError(
            f"this is a bag of an older format, {version!r}",
            path=file.path,
            offset=0,
            hint="Only version 2.0 is supported. Rewrite it with ROS 1: rosbag filter old.bag new.bag True",
        )
    raise ReadError(
        "the file does not begin like a bag", path=file.path, offset=0, hint="Check that it is a bag of ROS 1."
    )


def bag_header(file: BagFile) -> BagRecord:
    """The header record of a bag. Raises ``ReadError`` if the first record is another one, or the bag is encrypted."""
    record = file.record_at(len(MAGIC), file.size)
    if record.op != BagOp.BAG_HEADER:
        why = f"the file begins with a {record.name} record instead of its header"
        raise damaged(why, path=file.path, offset=record.offset)
    encryptor = record.fields.get(b"encryptor", b"")
    if encryptor not in (b"", b"rosbag/NoEncryptor"):
        raise UnsupportedError(
            f"this bag is encrypted, by {_text(encryptor)!r}",
            path=file.path,
            offset=record.offset,
            hint="Decrypt it with ROS 1: rosbag decrypt",
        )
    return record


def read_layout(file: BagFile) -> McapLayout:
    """Read the header of a bag and its index, if it has one. Raises ``ReadError`` if they are cut or damaged."""
    check_version(file)
    header = bag_header(file)
    path, size = file.path, file.size
    index_at = number(header, b"index_pos", _U64, path=path)
    connections, chunks = (number(header, name, path=path) for name in (b"conn_count", b"chunk_count"))
    if index_at == 0:
        return McapLayout(size, "ros1", "", header.end, size, 0, None)
    if index_at < header.end:
        raise damaged(f"the index cannot begin at byte {index_at:,}, inside the header", path=path, offset=len(MAGIC))
    if index_at > size or (index_at == size and connections + chunks):
        why = f"the index should begin at byte {index_at:,}, but the file ends at byte {size:,}"
        raise ReadError(why, path=path, offset=size, hint=CUT_HINT)
    registry = Registry(path)
    infos = {info.offset: info for info in _read_index(file, index_at, registry)}
    for what, expected, found in (
        ("connections", connections, len(registry.channels)),
        ("chunks", chunks, len(infos)),
    ):
        if expected != found:
            why = f"the header counts {expected:,} {what}, but the index has {found:,}"
            raise ReadError(why, path=path, offset=index_at, hint=CUT_HINT)
    entries = tuple(_entries(file, header.end, index_at, sorted(infos.values())))
    total: Counter[int] = Counter()
    for info in infos.values():
        total.update(info.counts)
    unknown = total.keys() - registry.channels.keys()
    if unknown:
        why = f"the index counts messages of connection {min(unknown)}, which it does not define"
        raise damaged(why, path=path, offset=index_at)
    filled = [info for info in infos.values() if any(info.counts.values())]
    statistics = Statistics(
        message_count=total.total(),
        schema_count=len(registry.schemas),
        channel_count=len(registry.channels),
        attachment_count=0,
        metadata_count=0,
        chunk_count=len(infos),
        message_start_time=min((info.start_time for info in filled), default=0),
        message_end_time=max((info.end_time for info in filled), default=0),
        channel_message_counts=dict(total),
    )
    channels, schemas = tuple(registry.channels.values()), tuple(registry.schemas.values())
    summary = Summary(channels, schemas, entries, statistics, (), ())
    file.counts = {info.offset: sum(info.counts.values()) for info in infos.values()}
    return McapLayout(size, "ros1", "", header.end, index_at, 0, summary)


def _read_index(file: BagFile, index_at: int, registry: Registry) -> Iterator[_ChunkInfo]:
    """The chunks of the index, each of which must occur once; connections go to ``registry``."""
    check_limit(file.size - index_at, MAX_FOOTER, path=file.path, offset=index_at, what="the length of the index")
    file.expect((index_at, file.size))
    at, seen = index_at, set()
    for _ in range(MAX_OTHER_RECORDS):
        if at == file.size:
            return
        record = file.record_at(at, file.size)
        if record.op == BagOp.CONNECTION:
            data = file.data_of(record, MAX_SCHEMA_BYTES)
            define_connection(registry, record, data, path=file.path, offset=at)
        elif record.op == BagOp.CHUNK_INFO:
            info = _chunk_info(record, file.data_of(record, MAX_FOOTER), file.path)
            if info.offset in seen:
                raise damaged(f"the index has the chunk at byte {info.offset:,} twice", path=file.path, offset=at)
            seen.add(info.offset)
            yield info
        else:
            raise damaged(f"there is a {record.name} record in the index", path=file.path, offset=at)
        at = record.end
    raise damaged(f"the index has more than {MAX_OTHER_RECORDS:,} records", path=file.path, offset=index_at)


def _chunk_info(record: BagRecord, data: bytes, path: str) -> _ChunkInfo:
    version, count = (number(record, name, path=path) for name in (b"ver", b"count"))
    if version != 1 or len(data) != count * _COUNT.size:
        why = f"a chunk info record of version {version} has {len(data):,} bytes for {count:,} connections"
        raise damaged(why, path=path, offset=record.offset)
    counts: Counter[int] = Counter()
    for id_, messages in _COUNT.iter_unpack(data):
        counts[check_limit(id_, LAST_CONNECTION, path=path, offset=record.offset, what="the id of a connection")] += (
            messages
        )
    start, end = (time_in(record, name, path=path) for name in (b"start_time", b"end_time"))
    return _ChunkInfo(number(record, b"chunk_pos", _U64, path=path), start, end, counts)


def _entries(file: BagFile, start: int, end: int, infos: list[_ChunkInfo]) -> Iterator[ChunkIndexEntry]:
    """The chunks as entries of an MCAP's index, each checked against the record that it points to."""
    file.peek((info.offset, 128) for info in infos)
    ends = [*(info.offset for info in infos), end][1:]
    at = start
    for info, until in zip(infos, ends, strict=True):
        if not at <= info.offset < end:
            why = f"the index has a chunk at byte {info.offset:,}, but there is none"
            raise damaged(why, path=file.path, offset=end)
        record = file.record_at(info.offset, until)
        if record.op != BagOp.CHUNK:
            why = f"the index has a chunk here, but this is a {record.name} record"
            raise damaged(why, path=file.path, offset=info.offset)
        head = chunk_head(record, path=file.path)
        ids = b"".join(id_.to_bytes(2, "little") for id_, count in sorted(info.counts.items()) if count)
        yield ChunkIndexEntry(
            info.offset,
            record.end - info.offset,
            until - record.end,
            info.start_time,
            info.end_time,
            head.compression,
            head.size,
            head.uncompressed_size,
            ids,
        )
        at = record.end
