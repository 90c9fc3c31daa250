"""The bags that are damaged, and forged ones: files that are small, or a few MB, and ask for much."""

from __future__ import annotations

import bz2
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import lz4.frame
from fuzz_sources import Source
from mutation import LengthField

sys.path.append(str(Path(__file__).parents[1]))

from bag_bytes import (
    COMPRESS,
    CONNECTIONS,
    HEADER_SIZE,
    MAGIC,
    ChunkOf,
    Message,
    bag,
    bag_header,
    chunk,
    chunk_info,
    connection,
    fields,
    message,
    messages,
    record,
    recording,
    string,
    time,
    u32,
    u64,
)


def bag_sources() -> list[Source]:
    """Each compression, with an index and without; a bag has nothing that tells right bytes from wrong ones."""
    made = []
    for compression in COMPRESS:
        for indexed in (True, False):
            data = recording(compression, indexed=indexed)
            name = f"{compression}{'' if indexed else '-unindexed'}"
            made.append(Source(name, data, _lengths(data), ((0, len(data)),)))
    return made


def _lengths(data: bytes) -> tuple[LengthField, ...]:
    """The lengths of records and of the fields of their headers, and the numbers among these."""
    found, at = [], len(MAGIC)
    while at + 8 <= len(data):
        (size,) = struct.unpack_from("<I", data, at)
        found += [LengthField(at, 4), LengthField(at + 4 + size, 4)]
        inner = at + 4
        while inner < at + 4 + size:
            (length,) = struct.unpack_from("<I", data, inner)
            found.append(LengthField(inner, 4))
            name = data[inner + 4 : inner + 4 + length].partition(b"=")[0]
            if name not in (b"topic", b"compression"):
                width = length - len(name) - 1
                found.append(LengthField(inner + 5 + len(name), min(width, 8)))
            inner += 4 + length
        at += 8 + size + struct.unpack_from("<I", data, at + 4 + size)[0]
    return tuple(found)


_STRINGS = [connection(0, "/a")]
_FEW = [Message(0, 10**9 + i, string("word")) for i in range(20)]


def _headed(index_at: int, connections: int, chunks: int, behind: bytes) -> bytes:
    return MAGIC + bag_header(index_at, connections, chunks) + behind


def _bomb(compression: str, size: int) -> bytes:
    packed = COMPRESS[compression](bytes(size))
    return bag([ChunkOf(record(5, packed, compression=compression.encode(), size=u32(size)), b"", 0, 0, {})], _STRINGS)


def _with_chunk(made: bytes) -> bytes:
    return bag([ChunkOf(made, b"", 0, 0, {0: 1})], _STRINGS)


def _of_records(records: bytes) -> bytes:
    return _with_chunk(record(5, records, compression=b"none", size=u32(len(records))))


def _nested_definition(levels: int) -> str:
    """Each type has two fields of the next: 2 to the power of ``levels`` fields."""
    parts = [f"m/T{i + 1} a\nm/T{i + 1} b\n" for i in range(levels)] + ["uint8 x\n"]
    texts = [parts[0], *(f"MSG: m/T{i}\n{text}" for i, text in enumerate(parts) if i)]
    return f"\n{'=' * 80}\n".join(texts)


def _cyclic_definition() -> str:
    return f"m/B b\n{'=' * 80}\nMSG: m/B\nm/A a\n{'=' * 80}\nMSG: m/A\nm/B b\n"


def _huge_array() -> bytes:
    """A message whose array says that it has four billion elements."""
    made = connection(0, "/a", "m/A", "float64[] x\n")
    return bag([chunk([Message(0, 1, u32(2**32 - 1) + bytes(16))])], [made])


def _fixed_array() -> bytes:
    made = connection(0, "/a", "m/A", "float64[2000000000] x\n")
    return bag([chunk([Message(0, 1, bytes(16))])], [made])


def _empty_arrays() -> bytes:
    """A sequence of messages without fields: they take no bytes each, and there are four billion of them."""
    made = connection(0, "/a", "m/A", f"m/E[] x\n{'=' * 80}\nMSG: m/E\n")
    return bag([chunk([Message(0, 1, u32(2**32 - 1))])], [made])


def _self_pointing() -> bytes:
    """The index points at a chunk in itself."""
    at = len(MAGIC) + HEADER_SIZE
    info = chunk_info(at, ChunkOf(b"", b"", 0, 0, {0: 1}))
    return _headed(at, 1, 1, info + _STRINGS[0])


def _shared_chunk() -> bytes:
    """The index has one chunk a thousand times."""
    made = chunk(_FEW, connections=_STRINGS)
    at = len(MAGIC) + HEADER_SIZE
    body = made.chunk + made.indexes
    return _headed(at + len(body), 1, 1000, body + _STRINGS[0] + chunk_info(at, made) * 1000)


def _many_streams() -> bytes:
    """A chunk of a hundred thousand empty bz2 streams, each of which is copied to find the next."""
    packed = bz2.compress(b"") * 100_000
    return _with_chunk(record(5, packed, compression=b"bz2", size=u32(2**20)))


def _many_frames() -> bytes:
    packed = lz4.frame.compress(b"") * 100_000
    return _with_chunk(record(5, packed, compression=b"lz4", size=u32(2**20)))


def _many_connections() -> bytes:
    """Two hundred thousand connections: more than there are ids."""
    return bag([chunk(_FEW)], [connection(i, f"/t{i}") for i in range(70_000)])


def _again_and_again() -> bytes:
    """One connection, written two hundred thousand times in a chunk."""
    return _of_records(_STRINGS[0] * 200_000)


def _odd_heads() -> bytes:
    """A hundred thousand messages, each with a header of its own length."""
    return _of_records(b"".join(message(e, pad=bytes(i % 97)) for i, e in enumerate(_FEW * 2000)))


def _marks() -> bytes:
    """A damaged bag of nothing but what the beginnings of records look like."""
    return _headed(0, 0, 0, (b"\x28\0\0\0" + fields(op=b"\x05")) * 200_000)


FORGED: dict[str, Callable[[], bytes]] = {
    "a chunk of zeros, 1 GiB from 1 MB (lz4)": lambda: _bomb("lz4", 200 * 2**20)[:-1] + b"\0",
    "a chunk of zeros, 400 MiB from few bytes (bz2)": lambda: _bomb("bz2", 400 * 2**20),
    "a chunk that says it has 4 GiB": lambda: _with_chunk(record(5, b"x", compression=b"lz4", size=u32(2**32 - 1))),
    "a chunk that holds more than it says": lambda: _with_chunk(
        record(5, bz2.compress(bytes(2**20)), compression=b"bz2", size=u32(100))
    ),
    "a chunk of empty streams": _many_streams,
    "a chunk of empty frames": _many_frames,
    "a record of 4 GiB": lambda: _headed(0, 0, 0, u32(8) + fields(op=b"\x02")[:8] + u32(2**32 - 1)),
    "a header of 4 GiB": lambda: _headed(0, 0, 0, u32(2**32 - 1) + bytes(100)),
    "an index behind the end": lambda: _headed(2**64 - 1, 1, 1, b""),
    "an index at its own header": lambda: _headed(len(MAGIC), 1, 1, b""),
    "counts of 4 billion": lambda: _headed(len(MAGIC) + HEADER_SIZE, 2**32 - 1, 2**32 - 1, _STRINGS[0]),
    "an index that points at itself": _self_pointing,
    "an index with a chunk a thousand times": _shared_chunk,
    "a chunk in a chunk": lambda: _of_records(chunk(_FEW).chunk),
    "a bag header among the chunks": lambda: _headed(0, 0, 0, bag_header(0, 0, 0) * 100),
    "messages of no connection": lambda: bag([chunk([Message(77, 1, b"x")])._replace(counts={})], _STRINGS),
    "a connection with the largest id": lambda: bag([chunk(_FEW)], [connection(2**32 - 1, "/a"), *_STRINGS]),
    "a connection defined twice": lambda: bag([chunk(_FEW, connections=[connection(0, "/b")])], _STRINGS),
    "more connections than ids": _many_connections,
    "a connection 200,000 times": _again_and_again,
    "a definition that doubles 40 times": lambda: bag(
        [chunk([Message(0, 1, b"x")])], [connection(0, "/a", "m/T0", _nested_definition(40))]
    ),
    "a definition in a circle": lambda: bag(
        [chunk([Message(0, 1, b"x")])], [connection(0, "/a", "m/R", _cyclic_definition())]
    ),
    "an array of 4 billion": _huge_array,
    "a fixed array of 2 billion": _fixed_array,
    "an array of 4 billion nothings": _empty_arrays,
    "headers of every length": _odd_heads,
    "beginnings of chunks alone": _marks,
    "an index entry behind its chunk": lambda: bag(
        [
            chunk(_FEW)._replace(
                indexes=record(4, (time(1) + u32(2**32 - 1)) * 20, ver=u32(1), conn=u32(0), count=u32(20))
            )
        ],
        _STRINGS,
    ),
    "a count of entries that overflows": lambda: bag(
        [chunk(_FEW)._replace(indexes=record(4, time(1) + u32(0), ver=u32(1), conn=u32(0), count=u32(2**32 - 1)))],
        _STRINGS,
    ),
    "a place of a chunk that overflows": lambda: _headed(
        len(MAGIC) + HEADER_SIZE,
        0,
        1,
        record(6, b"", ver=u32(1), chunk_pos=u64(2**64 - 1), start_time=time(0), end_time=time(0), count=u32(0)),
    ),
}
"""What is wrong with each forged file, and its maker."""

__all__ = ["FORGED", "bag_sources", "CONNECTIONS", "messages"]
