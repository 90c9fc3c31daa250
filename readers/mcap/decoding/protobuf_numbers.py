"""Protobuf numbers from their places, and packed fields."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from .gather import gather, pick
from .varints import split_varints, zigzag

_FIXED: Final[dict[int, np.dtype[Any]]] = {
    FieldDescriptor.TYPE_DOUBLE: np.dtype("<f8"),
    FieldDescriptor.TYPE_FIXED64: np.dtype("<u8"),
    FieldDescriptor.TYPE_SFIXED64: np.dtype("<i8"),
    FieldDescriptor.TYPE_FLOAT: np.dtype("<f4"),
    FieldDescriptor.TYPE_FIXED32: np.dtype("<u4"),
    FieldDescriptor.TYPE_SFIXED32: np.dtype("<i4"),
}


class Repeated(NamedTuple):
    """The values of packed stretches, how many each has, and the indices of stretches that are malformed."""

    values: np.ndarray
    counts: np.ndarray
    wrong: np.ndarray


def read_numbers(data: np.ndarray, kind: int, first: np.ndarray) -> np.ndarray:
    """Numbers of ``kind`` (``FieldDescriptor.TYPE_…``): at places, if their width is fixed, else from their bits."""
    dtype = _FIXED.get(kind)
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
    dtype = _FIXED.get(kind)
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
    bits, stops, too_long = split_varints(gather(data, first, lengths))
    ends = np.cumsum(lengths)
    upto = np.searchsorted(stops, ends, side="right")
    counts = np.diff(upto, prepend=0)
    owners = np.searchsorted(upto, np.flatnonzero(too_long), side="right")
    return Repeated(from_bits(kind, bits.view(np.int64)), counts, np.concatenate([open_ended, owners]))
