"""Picking bytes out of a buffer for many places at once; messages as the bytes they are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import numpy as np
import pyarrow as pa

from ....engine.chunk import ComponentDescriptor
from .decoded import Decoded

_EQUAL_CAP: Final = 1024
"""Up to this many bytes, pieces of equal length are picked by one indexed read of a sliding view."""

_MOST_REGULAR: Final = 1 << 17
_WIDEST_REGULAR: Final = 64
_REGULAR_KINDS: Final = 8
"""Offsets of lists of regular lengths are kept up to this many, for so many different lists in each row, of so many
kinds: 4 MiB.
"""


def _sliding(data: np.ndarray, size: int) -> np.ndarray:
    """``data`` seen as a piece of ``size`` bytes at every offset; no copy. Empty when ``data`` is shorter."""
    return np.ndarray((max(len(data) - size + 1, 0),), f"V{size}", data, strides=(1,))


def pick(data: np.ndarray, size: int, places: np.ndarray) -> np.ndarray:
    """The ``size`` bytes at each of ``places`` (int64 offsets), as an array of void."""
    picked: np.ndarray = _sliding(data, size)[places]
    return picked


def read_words(data: np.ndarray, places: np.ndarray, order: str) -> np.ndarray:
    """The uint32 at each of ``places`` (int64 offsets), as int64; ``order`` is ``"<"`` or ``">"``."""
    return pick(data, 4, places).view(f"{order}u4").astype(np.int64)


def gather(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The bytes ``data[starts[i] : starts[i] + lengths[i]]``, one after the other, as uint8.

    Each is copied once; a single piece is not copied at all.
    """
    if len(starts) == 1:
        single: np.ndarray = data[starts[0] : starts[0] + lengths[0]]
        return single
    if not len(starts) or not lengths.any():
        return np.empty(0, np.uint8)
    first = int(lengths[0])
    if 0 < first <= _EQUAL_CAP and bool((lengths == first).all()):
        return pick(data, first, starts).view(np.uint8)
    stops = starts + lengths
    if bool((starts[1:] >= stops[:-1]).all()):
        return _gather_ordered(data, starts, stops)
    view = data.data
    pieces = [view[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
    return np.frombuffer(b"".join(pieces), np.uint8)


def _gather_ordered(data: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """The pieces and the gaps between them are one Arrow binary array over ``data``; take every second value."""
    wide = len(data) > np.iinfo(np.int32).max
    width = np.int64 if wide else np.int32
    offsets = np.empty(2 * len(starts) + 1, width)
    offsets[0:-1:2] = starts
    offsets[1::2] = stops
    offsets[-1] = stops[-1]
    kind = pa.large_binary() if wide else pa.binary()
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    pieces = pa.Array.from_buffers(kind, 2 * len(starts), buffers)
    picked = pieces.take(pa.Array.from_buffers(pa.int64(), len(starts), [None, pa.py_buffer(_evens(len(starts)))]))
    return np.frombuffer(picked.buffers()[2], np.uint8)[: int((stops - starts).sum())]


def _evens(count: int) -> np.ndarray:
    return np.arange(0, 2 * count, 2, dtype=np.int64)


def offsets_of(counts: np.ndarray) -> np.ndarray:
    """Arrow list offsets (int32) for lists of ``counts`` elements."""
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def regular_offsets(counts: Sequence[int], rows: int) -> np.ndarray:
    """Arrow list offsets (int32, not to be written to) for ``rows`` times lists of ``counts`` elements.

    Those asked for last are kept, so that columns of equal lists have the same memory.
    """
    key, size = tuple(counts), rows * len(counts) + 1
    kept = _regular.get(key)
    if kept is not None and size <= len(kept):
        return kept[:size]
    *starts, total = accumulate(counts, initial=0)
    offsets = np.empty(size, np.int32)
    lines = offsets[:-1].reshape(rows, -1)
    np.add.outer(np.arange(rows, dtype=np.int32) * np.int32(total), np.array(starts, np.int32), out=lines)
    offsets[-1] = rows * total
    offsets.flags.writeable = False
    if size <= _MOST_REGULAR and len(key) <= _WIDEST_REGULAR:
        if len(_regular) >= _REGULAR_KINDS:
            _regular.clear()
        _regular[key] = offsets
    return offsets


_regular: dict[tuple[int, ...], np.ndarray] = {}


def not_utf8(payload: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Indices (int64) of the strings ``payload[offsets[i] : offsets[i + 1]]`` that are not UTF-8."""
    none = np.empty(0, np.int64)
    if not len(payload) or int(payload.max()) < 0x80:
        return none
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(payload)]
    strings = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
    try:
        strings.cast(pa.string())
    except pa.ArrowInvalid:
        return np.array([i for i, value in enumerate(strings) if not _is_utf8(value.as_py())], np.int64)
    return none


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


_RAW_DESCRIPTOR: Final = ComponentDescriptor(
    "McapMessage:data", archetype="rerun.archetypes.McapMessage", component_type="rerun.components.Blob"
)
_RAW_TYPE: Final = pa.list_(pa.field("item", pa.uint8(), nullable=False))


class RawDecoder:
    """Gives each message as one blob, ``list<uint8>``; every message is good."""

    descriptor = _RAW_DESCRIPTOR
    datatype = _RAW_TYPE

    def decode(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Decoded:
        """Copy messages ``data[starts[i]:ends[i]]`` (at most 2 GiB together) into one column."""
        lengths = ends - starts
        payload = gather(data, starts, lengths)
        bytes_ = pa.Array.from_buffers(pa.uint8(), len(payload), [None, pa.py_buffer(payload)])
        offsets = pa.py_buffer(offsets_of(lengths))
        values = pa.Array.from_buffers(_RAW_TYPE, len(starts), [None, offsets], children=[bytes_])
        return Decoded(values, np.empty(0, np.int64), [])
