"""Arrow arrays to numpy and back without a copy: lists as offsets and validity, blobs as their bytes.

Also the names of types, as in Rerun's messages.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..engine.chunk import rust_type_name
from ..engine.errors import SelectorError

Offsets = npt.NDArray[np.integer[Any]]
"""The starts of groups and the end of the last one: one more than there are groups."""

Validity = npt.NDArray[np.bool_]

_LARGEST_OFFSET = 2**31 - 1


def offsets_of(values: pa.ListArray) -> npt.NDArray[np.int32]:
    """The offsets of the visible lists into ``values.values``, without a copy."""
    buffer = values.buffers()[1]
    if buffer is None or len(values) == 0:
        return np.zeros(1, dtype=np.int32)
    return np.frombuffer(buffer, dtype=np.int32, count=len(values) + 1, offset=values.offset * 4)


def validity_of(values: pa.Array) -> Validity | None:
    """One bool a value, or None if all are valid."""
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
    """Return, for each group, whether it is empty or holds at least one valid element."""
    total = np.zeros(len(valid) + 1, dtype=np.int64)
    np.cumsum(valid, out=total[1:])
    starts, ends = offsets[:-1], offsets[1:]
    valid_groups: Validity = (total[ends] > total[starts]) | (ends == starts)
    return valid_groups


def is_one_each(offsets: Offsets) -> bool:
    """Return whether every group has exactly one element."""
    return bool(offsets[-1] - offsets[0] == len(offsets) - 1 and (np.diff(offsets) == 1).all())


def flattened(values: pa.Array) -> pa.Array:
    """The elements of valid lists; each slot of a null fixed-size list gives a null."""
    if not pa.types.is_fixed_size_list(values.type):
        return _reachable(values)[0] if values.null_count else _spanned(values)
    size = values.type.list_size
    flat = values.values.slice(values.offset * size, len(values) * size)
    valid = validity_of(values)
    if valid is None:
        return flat
    shown = np.repeat(valid, size)
    flat_valid = validity_of(flat)
    if flat_valid is not None and not (flat_valid & ~shown).any():
        return flat
    return pc.if_else(pa.array(shown), flat, pa.scalar(None, flat.type))


def grouped(values: pa.Array, *, hidden: bool) -> tuple[pa.Array, Offsets]:
    """Like :func:`flattened`, with the offsets of the lists.

    ``hidden``: null lists may keep the elements stored under them.
    """
    if pa.types.is_fixed_size_list(values.type):
        return flattened(values), _multiples(values.type.list_size, len(values))
    if values.null_count and not hidden:
        return _reachable(values)
    offsets = offsets_of(values)
    return _spanned(values), offsets if offsets[0] == 0 else offsets - offsets[0]


def _spanned(values: pa.ListArray) -> pa.Array:
    """Return the elements from the start of the first list to the end of the last."""
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
    elements = spanned.filter(pa.array(np.repeat(valid, lengths)))
    starts = np.zeros(len(offsets), dtype=np.int32)
    np.cumsum(lengths * valid, out=starts[1:])
    return elements, starts


def without_hidden(values: pa.ListArray) -> pa.ListArray:
    """Return the lists without elements stored under null lists; the very same array if there are none.

    These elements mean nothing, but some readers look at them and refuse nulls among them.
    """
    if values.null_count == 0 or not _hides_elements(values, offsets_of(values)):
        return values
    elements, offsets = _reachable(values)
    return list_array(elements, offsets, bitmap_of(values))


def _hides_elements(values: pa.ListArray, offsets: Offsets) -> bool:
    """Return whether a null list has elements. It compares bitmaps: null lists are common, and few have elements."""
    bitmap = bitmap_of(values)
    if bitmap is None:
        return False
    filled = np.packbits(offsets[1:] != offsets[:-1], bitorder="little")
    return bool((filled & ~np.frombuffer(bitmap, np.uint8)[: len(filled)]).any())


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


def fixed_lists(
    values: pa.Array, size: int, bitmap: pa.Buffer | None = None, *, nullable: bool = False
) -> pa.FixedSizeListArray:
    """Lists of ``size`` values each; nothing is copied. ``nullable``: whether the type allows null values."""
    kind = pa.list_(pa.field("item", values.type, nullable=nullable), size)
    return pa.Array.from_buffers(kind, len(values) // size, [bitmap], children=[values])


def without_nulls(values: pa.ListArray) -> pa.ListArray:
    """The same lists in a type whose elements cannot be null; raises if one is null. Nothing is copied."""
    if values.values.null_count and values.flatten().null_count:
        raise SelectorError("a value is null in a column that allows no nulls")
    kind = pa.list_(pa.field("item", values.type.value_type, nullable=False))
    buffers = values.buffers()[:2]
    return pa.Array.from_buffers(kind, len(values), buffers, values.null_count, values.offset, [values.values])


def bitmap_of(values: pa.Array) -> pa.Buffer | None:
    """The validity of ``values`` as a bitmap that starts at its first bit; None if all are valid."""
    if values.null_count == 0:
        return None
    if values.offset == 0:
        return values.buffers()[0]
    return pa.py_buffer(np.packbits(values.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))


def taken(values: pa.Array, places: Offsets, valid: Validity | None) -> pa.Array:
    """The values at ``places``; null where ``valid`` is false, whatever the place."""
    if valid is None or valid.all():
        return pc.take(values, pa.array(places), boundscheck=False)
    if not valid.any():
        return pa.nulls(len(places), values.type)
    safe = pa.array(np.multiply(places, valid, dtype=places.dtype))
    # Another bitmap over numbers takes 60 % less time than a take with null places (a million: 1.9 ms, not 4.8). The
    # case index_null of benchmarks/bench_selectors.py guards it.
    if not _is_plain(values.type):
        return pc.take(values, pc.if_else(pa.array(valid), safe, None), boundscheck=False)
    chosen = pc.take(values, safe, boundscheck=False)
    chosen_valid = validity_of(chosen)
    bitmap = pa.py_buffer(np.packbits(valid if chosen_valid is None else valid & chosen_valid, bitorder="little"))
    return pa.Array.from_buffers(chosen.type, len(chosen), [bitmap, *chosen.buffers()[1:]])


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether arrays of the type are a bitmap and one buffer of values, so that another bitmap can set nulls."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_temporal(kind) or types.is_boolean(kind))


def is_one_a_row(column: pa.ListArray) -> bool:
    """Return whether every row is a list of exactly one element."""
    return column.null_count == 0 and is_one_each(offsets_of(column))


def lengths_of(column: pa.ListArray) -> npt.NDArray[np.int32]:
    """The number of elements of each row; 0 for a null one."""
    lengths = np.diff(offsets_of(column))
    valid = validity_of(column)
    return lengths if valid is None else lengths * valid


def source_rows(column: pa.ListArray, *, keep_empty: bool = True) -> npt.NDArray[np.int64] | None:
    """Return the input row of each output row, or None if every row gives one."""
    lengths = lengths_of(column)
    if lengths.max(initial=0) <= 1 and (keep_empty or lengths.min(initial=1) == 1):
        return None
    if not keep_empty:
        return np.repeat(np.arange(len(column), dtype=np.int64), lengths)
    return np.repeat(np.arange(len(column), dtype=np.int64), np.maximum(lengths, 1))


def exploded(column: pa.ListArray, *, keep_empty: bool = True) -> pa.ListArray:
    """One list of one element for each element, null for a null one.

    Null and empty rows stay one row each, or none without ``keep_empty``.
    """
    elements, offsets = grouped(column, hidden=False)
    present = validity_of(elements)
    lengths = offsets[1:] - offsets[:-1]
    if lengths.min(initial=1) > 0 or not keep_empty:
        return list_array(elements, np.arange(len(elements) + 1, dtype=np.int32), present)
    return _with_gaps(elements, lengths, present, validity_of(column))


def _with_gaps(
    elements: pa.Array,
    lengths: npt.NDArray[np.integer],
    present: Validity | None,
    valid: Validity | None,
) -> pa.ListArray:
    """:func:`exploded` for columns in which some rows have no element."""
    counts = np.maximum(lengths, 1)
    ends = np.cumsum(counts)
    gaps = (ends - counts)[lengths == 0]
    takes = np.ones(int(ends[-1]), dtype=np.int32)
    takes[gaps] = 0
    offsets = np.zeros(len(takes) + 1, dtype=np.int32)
    np.cumsum(takes, out=offsets[1:])
    shown = np.ones(len(takes), dtype=bool)
    if present is not None:
        shown[takes == 1] = present
    if valid is not None:
        shown[gaps] = valid[lengths == 0]
    return list_array(elements, offsets, shown)


def type_name(datatype: pa.DataType) -> str:
    """``List(Int64)``, ``Struct("x": Float64)``, ``FixedSizeList(2 x Int64)``, …

    >>> type_name(pa.list_(pa.struct({"x": pa.int64()})))
    'List(Struct("x": Int64))'
    """
    types = pa.types
    if types.is_fixed_size_list(datatype):
        return f"FixedSizeList({datatype.list_size} x {_item(datatype.value_field)})"
    for test, name in (
        (types.is_list, "List"),
        (types.is_large_list, "LargeList"),
        (types.is_list_view, "ListView"),
        (types.is_large_list_view, "LargeListView"),
    ):
        if test(datatype):
            return f"{name}({_item(datatype.value_field)})"
    if types.is_struct(datatype):
        return f"Struct({_fields(list(datatype))})"
    if types.is_map(datatype):
        entries = f"{_named(datatype.key_field, 'key')}, {_named(datatype.item_field, 'value')}"
        return f'Map("entries": non-null Struct({entries}), {"sorted" if datatype.keys_sorted else "unsorted"})'
    if types.is_dictionary(datatype):
        return f"Dictionary({type_name(datatype.index_type)}, {type_name(datatype.value_type)})"
    if types.is_union(datatype):
        members = ", ".join(f"{code}: ({_named(datatype.field(i))})" for i, code in enumerate(datatype.type_codes))
        return f"Union({datatype.mode.capitalize()}, {members})"
    if isinstance(datatype, pa.BaseExtensionType):
        return type_name(datatype.storage_type)
    return rust_type_name(datatype)


def _item(field: pa.Field) -> str:
    return ("" if field.nullable else "non-null ") + type_name(field.type)


def _named(field: pa.Field, name: str | None = None) -> str:
    return f'"{name or field.name}": {_item(field)}'


def _fields(fields: list[pa.Field]) -> str:
    return ", ".join(_named(f) for f in fields)


BLOB: Final = pa.list_(pa.field("item", pa.uint8(), nullable=False))
"""The type of a blob: bytes that cannot be null."""

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


def bytes_of(values: pa.ListArray) -> tuple[Bytes, Offsets]:
    """The joined bytes of all blobs, and the blobs' offsets (int32; one more than there are blobs)."""
    child = values.values
    data = child.buffers()[1]
    if data is None:
        return np.zeros(0, np.uint8), offsets_of(values)
    return np.frombuffer(data, np.uint8, len(child), child.offset), offsets_of(values)


def blob_array(data: Bytes, offsets: Offsets) -> pa.ListArray:
    """Blobs over ``data``: blob ``i`` is ``data[offsets[i]:offsets[i + 1]]``."""
    child = pa.Array.from_buffers(pa.uint8(), len(data), [None, pa.py_buffer(np.ascontiguousarray(data))])
    starts = pa.py_buffer(np.ascontiguousarray(offsets, np.int32))
    return pa.Array.from_buffers(BLOB, len(offsets) - 1, [None, starts], 0, 0, [child])


def _bytes_in(data: pa.Buffer | None) -> pa.Array:
    return pa.Array.from_buffers(pa.uint8(), 0 if data is None else data.size, [None, data or pa.py_buffer(b"")])


def _over(values: pa.Array, buffers: list[pa.Buffer | None], child: pa.Array) -> pa.ListArray:
    if buffers[1] is None or buffers[1].size == 0:
        return pa.array([None] * len(values), BLOB)
    return pa.Array.from_buffers(BLOB, len(values), buffers, values.null_count, values.offset, [child])
