"""Arrow lists as numpy offsets and validity, and back: what flattening and regrouping is done with."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...engine.errors import SelectorError

Offsets = npt.NDArray[np.integer[Any]]
"""The starts of groups and the end of the last one: one more than there are groups."""

Validity = npt.NDArray[np.bool_]

_LARGEST_OFFSET = 2**31 - 1
_BLOCK = 1 << 16


def offsets_of(values: pa.ListArray) -> npt.NDArray[np.int32]:
    """The offsets of the visible lists into ``values.values``, without a copy."""
    buffer = values.buffers()[1]
    if buffer is None or len(values) == 0:
        return np.zeros(1, dtype=np.int32)
    return np.frombuffer(buffer, dtype=np.int32, count=len(values) + 1, offset=values.offset * 4)


def validity_of(values: pa.Array) -> Validity | None:
    """One bool a value, or None where all are valid."""
    if values.null_count == 0:
        return None
    valid: Validity = values.is_valid().to_numpy(zero_copy_only=False)
    return valid


def both(a: Validity | None, b: Validity | None) -> Validity | None:
    """Valid where both are."""
    if a is None or b is None:
        return b if a is None else a
    return a & b


def any_in_group(valid: Validity, offsets: Offsets) -> Validity:
    """Tell, for each group, whether it is empty or holds at least one valid element."""
    total = np.zeros(len(valid) + 1, dtype=np.int64)
    np.cumsum(valid, out=total[1:])
    starts, ends = offsets[:-1], offsets[1:]
    found: Validity = (total[ends] > total[starts]) | (ends == starts)
    return found


def is_one_each(offsets: Offsets) -> bool:
    """Whether every group has one element, from the first element on."""
    count = len(offsets) - 1
    if offsets[0] != 0 or offsets[-1] != count:
        return False
    return bool((offsets[1:] - offsets[:-1] == 1).all())


def flattened(values: pa.Array) -> pa.Array:
    """The elements of valid lists; a null slot of a fixed-size list has as many elements as every other, all null."""
    if not pa.types.is_fixed_size_list(values.type):
        return _reachable(values)[0] if values.null_count else _spanned(values)
    size = values.type.list_size
    flat = values.values.slice(values.offset * size, len(values) * size)
    valid = validity_of(values)
    if valid is None:
        return flat
    shown = np.repeat(valid, size)
    there = validity_of(flat)
    if there is not None and not (there & ~shown).any():
        return flat
    return pc.if_else(pa.array(shown), flat, pa.scalar(None, flat.type))


def grouped(values: pa.Array, *, hidden: bool) -> tuple[pa.Array, Offsets]:
    """Like :func:`flattened`, and which list each element belongs to.

    ``hidden``: elements stored under null lists may stay, as elements of those.
    """
    if pa.types.is_fixed_size_list(values.type):
        return flattened(values), _multiples(values.type.list_size, len(values))
    if values.null_count and not hidden:
        return _reachable(values)
    offsets = offsets_of(values)
    return _spanned(values), offsets if offsets[0] == 0 else offsets - offsets[0]


def _spanned(values: pa.ListArray) -> pa.Array:
    """Return what lies between the start of the first list and the end of the last."""
    offsets = offsets_of(values)
    return values.values.slice(int(offsets[0]), int(offsets[-1]) - int(offsets[0]))


def _reachable(values: pa.ListArray) -> tuple[pa.Array, Offsets]:
    """The elements of valid lists, without what is stored under null ones."""
    offsets = offsets_of(values)
    spanned = _spanned(values)
    if not _hides_elements(values, offsets):
        return spanned, offsets if offsets[0] == 0 else offsets - offsets[0]
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    lengths = offsets[1:] - offsets[:-1]
    kept = spanned.filter(pa.array(np.repeat(valid, lengths)))
    starts = np.zeros(len(offsets), dtype=np.int32)
    np.cumsum(lengths * valid, out=starts[1:])
    return kept, starts


def without_hidden(values: pa.ListArray) -> pa.ListArray:
    """The same lists, without elements that are stored under null ones; the very same array where there are none.

    They mean nothing, but some readers look at them, and refuse nulls among them.
    """
    if values.null_count == 0 or not _hides_elements(values, offsets_of(values)):
        return values
    elements, offsets = _reachable(values)
    return list_array(elements, offsets, bitmap_of(values))


def _hides_elements(values: pa.ListArray, offsets: Offsets) -> bool:
    """Whether a null list has elements.

    Lists with nulls are common and such ones rare, so bitmaps are compared, block by block in memory that stays warm.
    """
    bitmap = bitmap_of(values)
    if bitmap is None:
        return False
    valid = np.frombuffer(bitmap, dtype=np.uint8)
    filled = np.empty(_BLOCK, dtype=bool)
    for start in range(0, len(values), _BLOCK):
        size = min(_BLOCK, len(values) - start)
        np.not_equal(offsets[start + 1 : start + 1 + size], offsets[start : start + size], out=filled[:size])
        bits = np.packbits(filled[:size], bitorder="little")
        if (bits & ~valid[start // 8 : start // 8 + len(bits)]).any():
            return True
    return False


def _multiples(size: int, count: int) -> Offsets:
    if size * count > _LARGEST_OFFSET:
        return np.arange(count + 1, dtype=np.int64) * size
    return np.arange(count + 1, dtype=np.int32) * np.int32(size)


def list_array(values: pa.Array, offsets: Offsets, valid: Validity | pa.Buffer | None) -> pa.ListArray:
    """Lists with a nullable child field ``item`` over ``values``; nothing of ``values`` is copied.

    ``valid`` is one bool a list, or a bitmap that starts at its first bit.
    """
    if offsets.dtype != np.int32:
        if offsets[-1] > _LARGEST_OFFSET:
            raise SelectorError(f"{int(offsets[-1]):,} elements are more than one list column can hold")
        offsets = offsets.astype(np.int32)
    if isinstance(valid, np.ndarray):
        valid = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    kind = pa.list_(values.type)
    buffers = [valid, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers, -1 if valid is not None else 0, 0, [values])


def without_nulls(values: pa.ListArray) -> pa.ListArray:
    """The same lists in a type whose elements cannot be null; raises where one is. Nothing is copied."""
    if values.values.null_count and values.flatten().null_count:
        raise SelectorError("a value is null in a column without nulls")
    kind = pa.list_(pa.field("item", values.type.value_type, nullable=False))
    buffers = values.buffers()[:2]
    return pa.Array.from_buffers(kind, len(values), buffers, values.null_count, values.offset, [values.values])


def bitmap_of(values: pa.Array) -> pa.Buffer | None:
    """The validity of ``values`` as a bitmap that starts at its first bit; None where all are valid."""
    if values.null_count == 0:
        return None
    if values.offset == 0:
        return values.buffers()[0]
    return pa.py_buffer(np.packbits(values.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))


def taken(values: pa.Array, places: Offsets, valid: Validity | None) -> pa.Array:
    """The values at ``places``; null where not ``valid``, whatever the place is there."""
    if valid is None or valid.all():
        return pc.take(values, pa.array(places), boundscheck=False)
    if not valid.any():
        return pa.nulls(len(places), values.type)
    safe = pa.array(np.multiply(places, valid, dtype=places.dtype))
    if not _is_plain(values.type):
        return pc.take(values, pc.if_else(pa.array(valid), safe, None), boundscheck=False)
    found = pc.take(values, safe, boundscheck=False)
    there = validity_of(found)
    bitmap = pa.py_buffer(np.packbits(valid if there is None else valid & there, bitorder="little"))
    return pa.Array.from_buffers(found.type, len(found), [bitmap, *found.buffers()[1:]])


def _is_plain(kind: pa.DataType) -> bool:
    """Whether arrays of the type are a bitmap and one buffer of values: nulls can be set by another bitmap."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_temporal(kind) or types.is_boolean(kind))
