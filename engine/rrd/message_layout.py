"""Whether messages lie where a footer says, in the one way in which they can be copied without being parsed."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..limits import FREE_EXPANSION
from .arrow_ipc import Compression
from .framing import MESSAGE_HEADER_SIZE, MessageKind
from .manifest_table import ManifestTable, Numbers
from .positional import PositionalFile

TAIL_SIZE: Final = 22
"""Bytes after the payload: the chunk id (fields of 20 bytes) and whether the chunk is static."""

_MOST_AFTER_STORE: Final = 26
_LZ4_MAX_RATIO: Final = 255

_Bytes = npt.NDArray[np.uint8]


class _Sizes(NamedTuple):
    """Of each message: the size of its payload, and of the number that says it."""

    payload: Numbers
    varint: npt.NDArray[np.int64]


def lie_as_listed(file: PositionalFile, table: ManifestTable, store_field: bytes) -> bool:
    """Whether every row's message is what a writer makes of store, sizes, id and static-ness of that row.

    That is: a frame header, ``store_field`` (field 1 of the ``ArrowMsg``), compression, uncompressed size, encoding,
    payload, chunk id, static or not; each once, in this order and in the shortest form. Reads only what stands around
    payloads. False for anything else, which may be right all the same, or damaged: a parser has to look.
    """
    sizes = _payload_sizes(table, len(store_field))
    if sizes is None:
        return False
    head_size = MESSAGE_HEADER_SIZE + len(store_field) + _MOST_AFTER_STORE
    found = _read(file, table.offsets - np.uint64(MESSAGE_HEADER_SIZE), table.offsets + table.sizes, head_size)
    if found is None:
        return False
    heads, tails = found
    return (
        _frames_fit(heads, table, store_field)
        and bool(np.array_equal(tails, _expected_tails(table)))
        and _fields_fit(heads[:, MESSAGE_HEADER_SIZE + len(store_field) :], table, sizes)
    )


def _read(file: PositionalFile, starts: Numbers, stops: Numbers, head_size: int) -> tuple[_Bytes, _Bytes] | None:
    """The bytes that messages begin and end with, a row each; None where the file ends before.

    What lies side by side is read by one call.
    """
    heads = np.zeros((len(starts), head_size), dtype=np.uint8)
    tails = np.zeros((len(starts), TAIL_SIZE), dtype=np.uint8)
    if len(starts) and int(starts.max()) + head_size > file.size:
        return None
    begin, end, handle = heads.data.cast("B"), tails.data.cast("B"), file.fileno()
    before: memoryview | None = None
    position, at, tail_at = -1, 0, 0
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        head = begin[at : at + head_size]
        if before is None:
            if os.preadv(handle, [head], start) != head_size:
                return None
        elif start == position:
            if os.preadv(handle, [before, head], start - TAIL_SIZE) != TAIL_SIZE + head_size:
                return None
        elif (
            os.preadv(handle, [before], position - TAIL_SIZE) != TAIL_SIZE
            or os.preadv(handle, [head], start) != head_size
        ):
            return None
        before, position = end[tail_at : tail_at + TAIL_SIZE], stop
        at, tail_at = at + head_size, tail_at + TAIL_SIZE
    if before is not None and os.preadv(handle, [before], position - TAIL_SIZE) != TAIL_SIZE:
        return None
    return heads, tails


def _frames_fit(heads: _Bytes, table: ManifestTable, store_field: bytes) -> bool:
    frames = np.ascontiguousarray(heads[:, :MESSAGE_HEADER_SIZE]).view("<u8")
    stores = heads[:, MESSAGE_HEADER_SIZE : MESSAGE_HEADER_SIZE + len(store_field)]
    return bool(
        np.all(frames[:, 0] == MessageKind.ARROW_MSG)
        and np.all(frames[:, 1] == table.sizes)
        and np.all(stores == np.frombuffer(store_field, np.uint8))
    )


def _fields_fit(heads: _Bytes, table: ManifestTable, sizes: _Sizes) -> bool:
    """Compression, uncompressed size, encoding, and tag and size of the payload; and whether the sizes are possible."""
    compression = heads[:, 1]
    expanded = table.uncompressed_sizes
    is_plain = (compression == Compression.NONE) & (expanded == sizes.payload)
    is_lz4 = (compression == Compression.LZ4) & (expanded <= FREE_EXPANSION)
    if not bool(np.all(is_plain | (is_lz4 & (expanded <= sizes.payload * np.uint64(_LZ4_MAX_RATIO))))):
        return False
    lengths = np.stack([_varint_lengths(expanded), sizes.varint], axis=1)
    for first, second in np.unique(lengths, axis=0).tolist():
        rows = np.flatnonzero((lengths[:, 0] == first) & (lengths[:, 1] == second))
        expected = np.concatenate(
            [
                _same(len(rows), 0x10),
                compression[rows, None],
                _same(len(rows), 0x18),
                _varints(expanded[rows], first),
                _same(len(rows), 0x20, 0x01, 0x2A),
                _varints(sizes.payload[rows], second),
            ],
            axis=1,
        )
        if not np.array_equal(heads[rows, : expected.shape[1]], expected):
            return False
    return True


def _expected_tails(table: ManifestTable) -> _Bytes:
    count = len(table)
    ids = table.chunk_ids
    static = table.is_static.astype(np.uint8)[:, None]
    return np.concatenate(
        [
            _same(count, 0x32, 0x12, 0x09),
            ids[:, 7::-1],
            _same(count, 0x11),
            ids[:, :7:-1],
            _same(count, 0x38),
            static,
        ],
        axis=1,
    )


def _payload_sizes(table: ManifestTable, store_field_size: int) -> _Sizes | None:
    """The bytes that are left for payloads; None where a message is too small for its other fields."""
    others = 2 + 1 + _varint_lengths(table.uncompressed_sizes) + 2 + 1 + TAIL_SIZE + store_field_size
    left = table.sizes.astype(np.int64) - others
    if not bool(np.all(left > MESSAGE_HEADER_SIZE)):
        return None
    sizes = np.zeros(len(table), dtype=np.uint64)
    varint = np.zeros(len(table), dtype=np.int64)
    for length in range(1, 10):
        fits = _varint_lengths(np.maximum(left - length, 0).astype(np.uint64)) == length
        sizes[fits], varint[fits] = (left - length)[fits], length
    return _Sizes(sizes, varint) if bool(np.all(varint)) else None


def _varint_lengths(values: Numbers) -> npt.NDArray[np.int64]:
    """Bytes that each number takes as a varint."""
    lengths = np.ones(len(values), dtype=np.int64)
    for bits in range(7, 64, 7):
        lengths += values >= np.uint64(1 << bits)
    return lengths


def _varints(values: Numbers, length: int) -> _Bytes:
    """Numbers as varints of ``length`` bytes, a row each."""
    shifts = np.arange(0, 7 * length, 7, dtype=np.uint64)
    found = ((values[:, None] >> shifts) & np.uint64(0x7F)).astype(np.uint8)
    found[:, :-1] |= 0x80
    return found


def _same(count: int, *values: int) -> _Bytes:
    return np.broadcast_to(np.array(values, dtype=np.uint8), (count, len(values)))
