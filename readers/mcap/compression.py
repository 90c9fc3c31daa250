"""Decompression of MCAP chunks to exactly the size they declare, into memory that is taken again and again."""

from __future__ import annotations

import weakref
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from zlib_ng.zlib_ng import crc32
from zstandard import ZstdDecompressor, ZstdError, frame_header_size, get_frame_parameters

from ...engine.errors import ReadError, UnsupportedError
from ...engine.limits import MIB, check_expansion, check_limit
from ...engine.task_context import lasting
from .records import DAMAGED_HINT, ChunkHead
from .scan import Bytes

_MOST_KEPT: Final = 2
_LARGEST_KEPT: Final = 40 * MIB


class _Kept(NamedTuple):
    memory: Bytes
    lent: weakref.ref[Bytes]


class _Arenas:
    """The memory that a thread has kept."""

    def __init__(self) -> None:
        self.kept: list[_Kept] = []


def take_arena(size: int) -> Bytes:
    """``size`` bytes (uint8, 1-D) of any content, that are nobody else's as long as anything refers to them.

    The system clears memory before it gives it, page by page, which costs as much as a fifth of decompressing into it.
    So a thread keeps up to two arenas of 40 MiB at most, and lends them again once the array that was lent, all views
    of it, and all Arrow buffers and memoryviews over those are gone.

    >>> first = take_arena(100)
    >>> view = first[10:20].data
    >>> del first
    >>> view[:] = bytes(range(10))
    >>> take_arena(100)[:] = 255
    >>> bytes(view) == bytes(range(10))
    True
    """
    arenas = lasting(_Arenas)
    kept = arenas.kept
    for i, (memory, lent) in enumerate(kept):
        if len(memory) >= size and lent() is None:
            kept[i], arena = _lend(memory, size)
            return arena
    if size > _LARGEST_KEPT:
        return np.empty(size, np.uint8)
    lending, arena = _lend(np.empty(size, np.uint8), size)
    arenas.kept = [*kept[1 - _MOST_KEPT :], lending]
    return arena


def _lend(memory: Bytes, size: int) -> tuple[_Kept, Bytes]:
    # Over a memoryview, the base of every view of the arena is the arena; over an array it would be that array.
    arena: Bytes = np.frombuffer(memory.data, np.uint8, count=size)
    return _Kept(memory, weakref.ref(arena)), arena


_FRAME: Final = b"\x28\xb5\x2f\xfd"
_CHECKSUM_SIZE: Final = 4
_REPEATED, _RESERVED = 1, 3


def check_declared(head: ChunkHead, *, path: str, offset: int) -> int:
    """The chunk's uncompressed size, if this release reads its compression and both its sizes are believable."""
    if head.compression not in ("", "lz4", "zstd"):
        raise UnsupportedError(
            f"a chunk is compressed with {head.compression!r}",
            path=path,
            offset=offset,
            hint="MCAP defines lz4, zstd and no compression; rewrite the file, unless that name itself is damaged.",
        )
    if head.compression == "" and head.size != head.uncompressed_size:
        raise _wrong_size(head, head.size, path, offset)
    most = head.uncompressed_size + head.uncompressed_size // 64 + MIB
    check_limit(head.size, most, path=path, offset=offset, what="the compressed size of a chunk")
    return check_expansion(head.size, head.uncompressed_size, path=path, offset=offset, what="a chunk")


def decompress(
    head: ChunkHead, data: bytes | memoryview, out: Bytes, zstd: ZstdDecompressor, *, path: str, offset: int
) -> np.ndarray:
    """The records of a chunk, exactly as many bytes (uint8, 1-D) as it declares, their CRC checked.

    They lie in ``out``, which has that size, where ``data`` can be decompressed right into it, else in memory of their
    own. Takes no more than that, whatever the compressed bytes say of themselves.
    """
    if head.compression == "zstd" and _is_one_frame(data, len(out)) and _fill(out, data, zstd):
        records: np.ndarray = out
    else:
        records = np.frombuffer(_decompressed(head, data, path, offset), np.uint8)
    check_crc(head, records, path=path, offset=offset)
    return records


def check_crc(head: ChunkHead, records: np.ndarray, *, path: str, offset: int) -> None:
    """Compare the CRC-32 of a chunk's records with the one it declares, if it declares one."""
    if head.crc and crc32(records.data) != head.crc:
        raise ReadError("the CRC of a chunk does not match its data", path=path, offset=offset, hint=DAMAGED_HINT)


def _fill(out: Bytes, data: bytes | memoryview, zstd: ZstdDecompressor) -> bool:
    """Decompress one frame into ``out``, in one pass; false when there is something wrong with it."""
    try:
        with zstd.stream_reader(data) as reader:
            return reader.readinto(out) == len(out)
    except ZstdError:
        return False


def _is_one_frame(data: bytes | memoryview, size: int) -> bool:
    """Whether ``data`` is one zstd frame, from its first byte to its last, that declares ``size`` bytes of content.

    Such a frame is decompressed without a window of its own. Format: RFC 8878, 3.1.1.
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
        raise ReadError(why, path=path, offset=offset, hint=DAMAGED_HINT) from error
    if len(records) != size:
        raise _wrong_size(head, len(records), path, offset)
    return records


def _decompress_lz4(data: bytes | memoryview, size: int) -> bytes:
    """LZ4 frames, one or several, of at most ``size`` bytes together."""
    from lz4.frame import create_decompression_context, decompress_chunk

    parts: list[bytes] = []
    rest, left = memoryview(data), size
    while rest:
        part, used, whole = decompress_chunk(create_decompression_context(), rest, max_length=left)
        if not whole:
            raise EOFError("its frame is cut short, or holds more")
        parts.append(part)
        left -= len(part)
        rest = rest[used:]
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _wrong_size(head: ChunkHead, found: int, path: str, offset: int) -> ReadError:
    why = f"a chunk declares {head.uncompressed_size:,} bytes of records and holds {found:,}"
    return ReadError(why, path=path, offset=offset, hint=DAMAGED_HINT)
