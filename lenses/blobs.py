"""Bytes as Arrow holds them, as Rerun's blobs: lists of uint8 over the same memory."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..engine.errors import SelectorError
from .selector import lists
from .selector.type_names import type_name

BLOB: Final = pa.list_(pa.field("item", pa.uint8(), nullable=False))
"""The type of a blob: bytes, none of them null."""

Bytes = npt.NDArray[np.uint8]


def blobs(values: pa.Array) -> pa.ListArray:
    """Binary values, or lists of bytes (uint8 or int8), as blobs; nothing is copied.

    Raises :class:`~chunkmill.engine.errors.SelectorError` for another type, and for bytes that are null.

    >>> blobs(pa.array([b"ab", None])).to_pylist()
    [[97, 98], None]
    """
    kind = values.type
    if pa.types.is_large_binary(kind):
        values, kind = values.cast(pa.binary()), pa.binary()
    if pa.types.is_binary(kind):
        validity, offsets, data = values.buffers()
        return _over(values, [validity, offsets], _bytes_in(data))
    if not pa.types.is_list(kind) or kind.value_type not in (pa.uint8(), pa.int8()):
        raise SelectorError(f"Invalid argument error: expected bytes, got type {type_name(kind)}")
    if values.values.null_count:
        raise SelectorError("Invalid argument error: expected bytes, got some that are null")
    return _over(values, values.buffers()[:2], values.values.view(pa.uint8()))


def bytes_of(values: pa.ListArray) -> tuple[Bytes, lists.Offsets]:
    """The bytes of blobs, one after the other, and where each begins (int32; one more than there are blobs)."""
    child = values.values
    data = child.buffers()[1]
    if data is None:
        return np.zeros(0, np.uint8), lists.offsets_of(values)
    return np.frombuffer(data, np.uint8, len(child), child.offset), lists.offsets_of(values)


def blob_array(data: Bytes, offsets: lists.Offsets) -> pa.ListArray:
    """Blobs over ``data``: blob ``i`` is ``data[offsets[i]:offsets[i + 1]]``."""
    child = pa.Array.from_buffers(pa.uint8(), len(data), [None, pa.py_buffer(data)])
    starts = pa.py_buffer(np.ascontiguousarray(offsets, np.int32))
    return pa.Array.from_buffers(BLOB, len(offsets) - 1, [None, starts], 0, 0, [child])


def _bytes_in(data: pa.Buffer | None) -> pa.Array:
    return pa.Array.from_buffers(pa.uint8(), 0 if data is None else data.size, [None, data or pa.py_buffer(b"")])


def _over(values: pa.Array, buffers: list[pa.Buffer | None], child: pa.Array) -> pa.ListArray:
    if buffers[1] is None or buffers[1].size == 0:
        return pa.array([None] * len(values), BLOB)
    return pa.Array.from_buffers(BLOB, len(values), buffers, values.null_count, values.offset, [child])
