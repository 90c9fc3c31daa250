"""Decompression of MCAP chunks to exactly the size they declare."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from zlib_ng.zlib_ng import crc32

from ...engine.bounded import check_expansion, check_limit
from ...engine.errors import ReadError, UnsupportedError
from ...engine.limits import MIB
from .records import DAMAGED_HINT, ChunkHead


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


def decompress(head: ChunkHead, data: bytes, *, path: str, offset: int) -> np.ndarray:
    """The records of a chunk, exactly as many bytes (uint8, 1-D) as it declares, their CRC checked.

    Takes no more memory than the declared size, whatever the compressed bytes say of themselves.
    """
    records = np.frombuffer(_decompressed(head, data, path, offset), np.uint8)
    check_crc(head, records, path=path, offset=offset)
    return records


def check_crc(head: ChunkHead, records: np.ndarray, *, path: str, offset: int) -> None:
    """Compare the CRC-32 of a chunk's records with the one it declares, if it declares one."""
    if head.crc and crc32(records.data) != head.crc:
        raise ReadError("the CRC of a chunk does not match its data", path=path, offset=offset, hint=DAMAGED_HINT)


def _decompressed(head: ChunkHead, data: bytes, path: str, offset: int) -> bytes | pa.Buffer:
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


def _decompress_lz4(data: bytes, size: int) -> bytes:
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
