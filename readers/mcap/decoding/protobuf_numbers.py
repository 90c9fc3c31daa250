"""Protobuf numbers from their places, and packed fields."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from .gather import gather, pick
from .varints import split_varints, zigzag

FIXED: Final[dict[int, np.dtype[Any]]] = {
    FieldDescriptor.TYPE_DOUBLE: np.dtype("<f8"),
    FieldDescriptor.TYPE_FIXED64: np.dtype("<u8"),
    FieldDescriptor.TYPE_SFIXED64: np.dtype("<i8"),
    FieldDescriptor.TYPE_FLOAT: np.dtype("<f4"),
    FieldDescriptor.TYPE_FIXED32: np.dtype("<u4"),
    FieldDescriptor.TYPE_SFIXED32: np.dtype("<i4"),
}


_TILE: Final = 1 << 20
"""Bytes of variable-width numbers that are read in one go: what is needed meanwhile is many times as large."""

_LONGEST: Final = 10
"""Bytes of the longest number."""


class Repeated(NamedTuple):
    """The values of packed stretches, how many each has, and the indices of stretches that are malformed."""

    values: np.ndarray
    counts: np.ndarray
    wrong: np.ndarray


def read_numbers(data: np.ndarray, kind: int, first: np.ndarray) -> np.ndarray:
    """Numbers of ``kind`` (``FieldDescriptor.TYPE_…``): at places, if their width is fixed, else from their bits."""
    dtype = FIXED.get(kind)
    if dtype is not None:
        return pick(data, dtype.itemsize, first).view(dtype)
    return from_bits(kind, first)


def from_bits(kind: int, bits: np.ndarray) -> np.ndarray:
    """Numbers from the bits (int64) of variable-width ones; what is too wide for a type is cut, as the format says."""
    match kind:
        case FieldDescriptor.TYPE_BOOL:
            truth: np.ndarray = bits != 0
            return truth
        case FieldDescriptor.TYPE_INT32 | FieldDescriptor.TYPE_ENUM:
            return bits.astype(np.int32)
        case FieldDescriptor.TYPE_UINT32:
            return bits.astype(np.uint32)
        case FieldDescriptor.TYPE_UINT64:
            return bits.view(np.uint64)
        case FieldDescriptor.TYPE_SINT32:
            return zigzag(bits.astype(np.uint32).astype(np.uint64)).astype(np.int32)
        case FieldDescriptor.TYPE_SINT64:
            return zigzag(bits.view(np.uint64))
    return bits


def unpack(data: np.ndarray, kind: int, first: np.ndarray, last: np.ndarray) -> Repeated:
    """All values of the stretches ``data[first[i]:last[i]]``."""
    dtype = FIXED.get(kind)
    lengths = last - first
    if dtype is not None:
        wrong = lengths % dtype.itemsize != 0
        lengths = np.where(wrong, 0, lengths)
        payload = gather(data, first, lengths).view(dtype)
        values = payload if payload.flags.aligned else payload.copy()
        return Repeated(values, lengths // dtype.itemsize, np.flatnonzero(wrong))
    some = np.flatnonzero(lengths > 0)
    open_ended = some[data[last[some] - 1] >= 0x80]
    lengths[open_ended] = 0
    payload, ends = gather(data, first, lengths), np.cumsum(lengths)
    counts = np.zeros(len(lengths), np.int64)
    some = np.flatnonzero(lengths)
    if len(some):
        counts[some] = np.add.reduceat(payload < 0x80, (ends - lengths)[some], dtype=np.int64)
    values, too_long = _unpack_tiles(payload, kind, int(counts.sum()))
    return Repeated(values, counts, np.concatenate([open_ended, np.searchsorted(ends, too_long, side="right")]))


def _unpack_tiles(payload: np.ndarray, kind: int, total: int) -> tuple[np.ndarray, np.ndarray]:
    """``total`` numbers from their bytes, a tile at a time, and the places where those end that are too long."""
    values = np.empty(total, from_bits(kind, np.empty(0, np.int64)).dtype)
    wrong, start, filled = [np.empty(0, np.int64)], 0, 0
    while start < len(payload):
        stop = _number_end(payload, start + _TILE)
        bits, too_long = split_varints(payload[start:stop])
        values[filled : filled + len(bits)] = from_bits(kind, bits.view(np.int64))
        wrong.append(too_long + start)
        start, filled = stop, filled + len(bits)
    return values, np.concatenate(wrong)


def _number_end(payload: np.ndarray, place: int) -> int:
    """The first place from ``place`` on where a number ends; one does at the very end."""
    if place >= len(payload):
        return len(payload)
    near = payload[place - 1 : place + _LONGEST] < 0x80
    ends = near if near.any() else payload[place - 1 :] < 0x80
    return place + int(ends.argmax())
