"""Messages that are compressed one by one, as rosbag2 does in its compression mode ``message``."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ....engine.limits import FREE_EXPANSION, MAX_COMPRESSION_RATIO

_MAGIC: Final = np.frombuffer(b"\x28\xb5\x2f\xfd", np.uint8)


class Unpacked(NamedTuple):
    """Messages in one buffer: ``data[starts[i]:ends[i]]`` is what message ``rows[i]`` (all int64) holds."""

    data: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    rows: np.ndarray


def packed_rows(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The indices (int64) of the messages that begin as a Zstandard frame does, which no CDR header looks like."""
    rows = np.flatnonzero(ends - starts > len(_MAGIC))
    for offset, byte in enumerate(_MAGIC.tolist()):
        if not len(rows):
            break
        rows = rows[data[starts[rows] + offset] == byte]
    return rows


def unpack(
    data: np.ndarray, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, faults: dict[int, str]
) -> Unpacked:
    """Decompress the messages ``rows``; what is wrong with one goes to ``faults``.

    All together take at most 256 MiB or a hundred times what they have compressed, whatever they declare.
    """
    from zstandard import ZstdDecompressor, ZstdError, frame_content_size

    left = max(FREE_EXPANSION, MAX_COMPRESSION_RATIO * int((ends - starts)[rows].sum()))
    parts: list[bytes] = []
    good: list[int] = []
    decompressor = ZstdDecompressor()
    for index in rows.tolist():
        frame = data[starts[index] : ends[index]].data
        try:
            size = frame_content_size(frame)
            if size > left:
                faults[index] = f"it is compressed, and declares {size:,} bytes, too many"
                continue
            part = decompressor.decompress(frame, max_output_size=left if size < 0 else size, allow_extra_data=False)
        except ZstdError as error:
            faults[index] = f"it is compressed by itself, and cannot be decompressed: {error}"
            continue
        left -= len(part)
        parts.append(part)
        good.append(index)
    lengths = np.fromiter(map(len, parts), np.int64, len(parts))
    stops = np.cumsum(lengths)
    joined = np.frombuffer(b"".join(parts) if len(parts) != 1 else parts[0], np.uint8)
    return Unpacked(joined, stops - lengths, stops, np.array(good, np.int64))
