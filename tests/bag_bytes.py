"""Bags of ROS 1 made of bytes: right ones, and wrong ones on purpose."""

from __future__ import annotations

import bz2
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import lz4.frame

MAGIC = b"#ROSBAG V2.0\n"
COMPRESS = {"none": bytes, "bz2": bz2.compress, "lz4": lz4.frame.compress}
HEADER_SIZE = 4096
STAMPED = (
    "Header header\nfloat64[3] position\nstring name\n"
    + "=" * 80
    + ("\nMSG: std_msgs/Header\nuint32 seq\ntime stamp\nstring frame_id\n")
)
"""The definition of ``my_msgs/Stamped``, with that of what it depends on."""


def fields(**values: bytes) -> bytes:
    return b"".join(
        struct.pack("<I", len(name) + 1 + len(value)) + name.encode() + b"=" + value for name, value in values.items()
    )


def record(op: int, data: bytes = b"", **values: bytes) -> bytes:
    header = fields(op=bytes([op]), **values)
    return struct.pack("<I", len(header)) + header + struct.pack("<I", len(data)) + data


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def time(nanoseconds: int) -> bytes:
    return struct.pack("<II", *divmod(nanoseconds, 10**9))


def connection(
    id_: int, topic: str, type_: str = "std_msgs/String", definition: str = "string data\n", **more
) -> bytes:
    data = fields(
        topic=topic.encode(), type=type_.encode(), md5sum=b"0" * 32, message_definition=definition.encode(), **more
    )
    return record(7, data, conn=u32(id_), topic=topic.encode())


class Message(NamedTuple):
    connection: int
    time: int
    data: bytes


def message(entry: Message, order: Sequence[str] = ("conn", "op", "time"), **more: bytes) -> bytes:
    """The record of a message, with the fields of its header in this order."""
    values = {"conn": u32(entry.connection), "op": b"\x02", "time": time(entry.time), **more}
    header = fields(**{name: values[name] for name in (*order, *more)})
    return struct.pack("<I", len(header)) + header + struct.pack("<I", len(entry.data)) + entry.data


def string(text: str) -> bytes:
    return struct.pack("<I", len(text.encode())) + text.encode()


def stamped(seq: int, nanoseconds: int, name: str) -> bytes:
    """A message of ``my_msgs/Stamped``."""
    return u32(seq) + time(nanoseconds) + string("map") + struct.pack("<3d", seq, seq / 2, -seq) + string(name)


class ChunkOf(NamedTuple):
    """A chunk record with the index records behind it, and what the index of the bag says of it."""

    chunk: bytes
    indexes: bytes
    start: int
    end: int
    counts: dict[int, int]


def chunk(
    entries: Sequence[Message],
    compression: str = "none",
    *,
    connections: Iterable[bytes] = (),
    size: int | None = None,
    data: bytes | None = None,
    order: Sequence[str] = ("conn", "op", "time"),
) -> ChunkOf:
    """A chunk of messages behind connection records; ``size`` and ``data`` take the place of what is right."""
    records, pairs = b"".join(connections), {}
    for entry in entries:
        pairs.setdefault(entry.connection, []).append(time(entry.time) + u32(len(records)))
        records += message(entry, order)
    packed = COMPRESS[compression](records) if data is None else data
    declared = len(records) if size is None else size
    made = record(5, packed, compression=compression.encode(), size=u32(declared))
    indexes = b"".join(
        record(4, b"".join(places), ver=u32(1), conn=u32(id_), count=u32(len(places))) for id_, places in pairs.items()
    )
    times = [entry.time for entry in entries]
    counts = dict(Counter(entry.connection for entry in entries))
    return ChunkOf(made, indexes, min(times, default=0), max(times, default=0), counts)


def bag_header(index_at: int, connections: int, chunks: int, **more: bytes) -> bytes:
    bare = record(3, index_pos=u64(index_at), conn_count=u32(connections), chunk_count=u32(chunks), **more)
    padding = b" " * (HEADER_SIZE - len(bare))
    return bare[:-4] + u32(len(padding)) + padding


def chunk_info(at: int, of: ChunkOf) -> bytes:
    data = b"".join(u32(id_) + u32(count) for id_, count in of.counts.items())
    more = {"start_time": time(of.start), "end_time": time(of.end), "count": u32(len(of.counts))}
    return record(6, data, ver=u32(1), chunk_pos=u64(at), **more)


def bag(
    chunks: Sequence[ChunkOf], connections: Sequence[bytes] = (), *, indexed: bool = True, **header: bytes
) -> bytes:
    """A whole bag, or one that was never closed: ``indexed=False`` leaves the index out."""
    body, infos = b"", b""
    for one in chunks:
        infos += chunk_info(len(MAGIC) + HEADER_SIZE + len(body), one)
        body += one.chunk + one.indexes
    if not indexed:
        return MAGIC + bag_header(0, 0, 0, **header) + body
    index_at = len(MAGIC) + HEADER_SIZE + len(body)
    return MAGIC + bag_header(index_at, len(connections), len(chunks), **header) + body + b"".join(connections) + infos


CONNECTIONS = [
    connection(0, "/words", callerid=b"/a"),
    connection(1, "/words", callerid=b"/b", latching=b"1"),
    connection(2, "/stamped", "my_msgs/Stamped", STAMPED),
]
"""Two publishers of one topic, and one of another."""


def messages(count: int = 60, start: int = 1_600_000_000_000_000_000) -> list[Message]:
    """Messages of the connections, a millisecond apart."""
    made = []
    for i in range(count):
        at = start + i * 1_000_000
        data = stamped(i, at, f"n{i}") if i % 3 == 2 else string(f"message {i} é")
        made.append(Message(i % 3, at, data))
    return made


def recording(
    compression: str = "none", *, indexed: bool = True, count: int = 60, per_chunk: int = 10, publishers: int = 2
) -> bytes:
    """A bag of ``messages``; connections are in the first chunk, as recorders write them. ``publishers`` of a topic."""
    entries = [e if publishers == 2 or e.connection == 2 else e._replace(connection=0) for e in messages(count)]
    parts = [entries[at : at + per_chunk] for at in range(0, count, per_chunk)]
    chunks = [chunk(part, compression, connections=CONNECTIONS if i == 0 else ()) for i, part in enumerate(parts)]
    return bag(chunks, CONNECTIONS, indexed=indexed)
