"""Values in Parquet files: types that every Parquet reader knows, and the lossless conversion back.

==============================================  ==================================================================
Arrow                                           in the file
==============================================  ==================================================================
lists of uint8 without nulls                    binary
times since 1970 in nanoseconds, times of day   integers, in the unit that they have
floats of 16 bits                               float
decimals of more than 38 digits                 string
dates in milliseconds                            dates in days
unions                                          struct: the ``type`` of each value, and a field for each type
structs without fields                          bool, true
dictionaries, run-end encoded values, views     their plain values
values of the null type                         bool, null
all else                                        the same
==============================================  ==================================================================

Spark refuses or misreads the types on the left; polars and DuckDB refuse or misread some.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

_MOST_DIGITS: Final = 38


def portable_type(kind: pa.DataType) -> pa.DataType:
    """The type that represents a type in a Parquet file. Raises ``ValueError`` if there is none.

    >>> str(portable_type(pa.list_(pa.field("item", pa.uint8(), nullable=False))))
    'binary'
    """
    simple = _simple(kind)
    if simple is not None:
        return simple
    if kinds.is_union(kind):
        return pa.struct([("type", pa.int8()), *((f"{i}_{f.name}", portable_type(f.type)) for i, f in enumerate(kind))])
    if _is_list(kind):
        inner = _portable_field(kind.value_field)
        if kinds.is_fixed_size_list(kind):
            return pa.list_(inner, kind.list_size)
        return pa.large_list(inner) if _is_large(kind) else pa.list_(inner)
    if kinds.is_struct(kind):
        return pa.struct([_portable_field(field) for field in kind])
    if kinds.is_map(kind):
        if portable_type(kind.key_type) != kind.key_type or portable_type(kind.item_type) != kind.item_type:
            raise ValueError(f"maps of {kind.key_type} to {kind.item_type} cannot be written to Parquet")
        return kind
    if kinds.is_interval(kind) or isinstance(kind, pa.BaseExtensionType):
        raise ValueError(f"{kind} cannot be written to Parquet")
    return kind


def _simple(kind: pa.DataType) -> pa.DataType | None:
    """Return the type that replaces a whole type, or None for other types."""
    if _is_bytes(kind):
        return pa.large_binary() if _is_large(kind) else pa.binary()
    if kinds.is_timestamp(kind) and kind.unit == "ns":
        return pa.int64()
    if kinds.is_time(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if kinds.is_float16(kind):
        return pa.float32()
    if kinds.is_date64(kind):
        return pa.date32()
    if kinds.is_decimal(kind) and kind.precision > _MOST_DIGITS:
        return pa.string()
    if kinds.is_dictionary(kind) or kinds.is_run_end_encoded(kind):
        return portable_type(kind.value_type)
    if kinds.is_null(kind) or (kinds.is_struct(kind) and not kind.num_fields):
        return pa.bool_()
    if kinds.is_string_view(kind):
        return pa.string()
    return pa.binary() if kinds.is_binary_view(kind) else None


def to_portable(values: pa.Array) -> pa.Array:
    """Convert values to their :func:`portable_type`.

    >>> to_portable(pa.array([[1, 2], None], pa.list_(pa.field("item", pa.uint8(), nullable=False)))).to_pylist()
    [b'\\x01\\x02', None]
    """
    given, wanted = values.type, portable_type(values.type)
    if given.equals(wanted):
        return values
    mask = values.is_null() if values.null_count and not kinds.is_union(given) else None
    if _is_bytes(given):
        offsets, child = _flat(values)
        data = pa.py_buffer(child.buffers()[1].slice(child.offset, len(child))) if len(child) else pa.py_buffer(b"")
        return _from_offsets(wanted, offsets, mask, data)
    if kinds.is_union(given):
        return _struct_of_union(values, wanted)
    if kinds.is_dictionary(given):
        return to_portable(values.dictionary_decode())
    if kinds.is_run_end_encoded(given):
        return to_portable(pc.run_end_decode(values))
    if kinds.is_null(given):
        return pa.nulls(len(values), wanted)
    if kinds.is_struct(given) and not given.num_fields:
        return pc.if_else(values.is_valid(), pa.scalar(True), pa.scalar(None, pa.bool_()))
    if kinds.is_struct(given):
        children = [to_portable(values.field(i)) for i in range(given.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=mask)
    if _is_list(given):
        return _relisted(values, wanted, mask, back=False)
    return values.cast(wanted)


def from_portable(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert values of a file back to a type. Raises ``ValueError`` if they do not fit it."""
    given = values.type
    if given.equals(kind, check_metadata=True) and str(given) == str(kind):
        return values
    mask = values.is_null() if values.null_count and not kinds.is_union(kind) else None
    if _is_bytes(kind):
        offsets, data = _byte_offsets(values)
        child = pa.Array.from_buffers(pa.uint8(), int(offsets[-1]) if len(offsets) else 0, [None, data])
        return _list_of(kind, offsets, mask, child)
    if kinds.is_union(kind):
        return _union_of_struct(values, kind)
    if kinds.is_dictionary(kind):
        return from_portable(values, kind.value_type).dictionary_encode().cast(kind)
    if kinds.is_run_end_encoded(kind):
        return pc.run_end_encode(from_portable(values, kind.value_type), run_end_type=kind.run_end_type)
    if kinds.is_null(kind):
        return pa.nulls(len(values), kind)
    if kinds.is_struct(kind):
        children = [from_portable(values.field(i), field.type) for i, field in enumerate(kind)]
        validity = None if mask is None else pc.invert(mask).buffers()[1]
        return pa.Array.from_buffers(kind, len(values), [validity], children=children)
    if _is_list(kind):
        return _relisted(values, kind, mask, back=True)
    return values.cast(kind)


def _relisted(values: pa.Array, kind: pa.DataType, mask: pa.Array | None, *, back: bool) -> pa.Array:
    """Return lists under another list type, with their values converted."""
    if kinds.is_fixed_size_list(kind):
        size = kind.list_size
        child = values.values.slice(values.offset * size, len(values) * size)
        child = from_portable(child, kind.value_type) if back else to_portable(child)
        validity = None if mask is None else pc.invert(mask).buffers()[1]
        return pa.Array.from_buffers(kind, len(values), [validity], children=[child])
    offsets, child = _flat(values)
    return _list_of(kind, offsets, mask, from_portable(child, kind.value_type) if back else to_portable(child))


def _flat(values: pa.Array) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """The bounds of each list in the flat values of all lists, and these values; bounds start at 0."""
    if kinds.is_list_view(values.type) or kinds.is_large_list_view(values.type):
        sizes = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
        return np.concatenate([[0], np.cumsum(sizes)]), values.flatten()
    if not len(values):
        return np.zeros(1, np.int64), values.values.slice(0, 0)
    ends = values.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    first = int(ends[0])
    return ends - first, values.values.slice(first, int(ends[-1]) - first)


def _byte_offsets(values: pa.Array) -> tuple[npt.NDArray[np.int64], pa.Buffer]:
    width = np.int64 if kinds.is_large_binary(values.type) else np.int32
    _, bounds, data = values.buffers()
    if not len(values) or bounds is None:
        return np.zeros(1, np.int64), pa.py_buffer(b"")
    ends = np.frombuffer(bounds, width, len(values) + 1, values.offset * np.dtype(width).itemsize).astype(np.int64)
    first, last = int(ends[0]), int(ends[-1])
    return ends - first, pa.py_buffer(b"") if data is None else data.slice(first, last - first)


def _from_offsets(
    kind: pa.DataType, offsets: npt.NDArray[np.int64], mask: pa.Array | None, data: pa.Buffer
) -> pa.Array:
    ends = offsets.astype(np.int64 if kinds.is_large_binary(kind) else np.int32)
    validity = None if mask is None else pc.invert(mask).buffers()[1]
    return pa.Array.from_buffers(kind, len(ends) - 1, [validity, pa.py_buffer(ends), data])


def _list_of(kind: pa.DataType, offsets: npt.NDArray[np.int64], mask: pa.Array | None, child: pa.Array) -> pa.Array:
    if kinds.is_list_view(kind) or kinds.is_large_list_view(kind):
        width = np.int64 if kinds.is_large_list_view(kind) else np.int32
        validity = None if mask is None else pc.invert(mask).buffers()[1]
        buffers = [validity, *(pa.py_buffer(n.astype(width)) for n in (offsets[:-1], np.diff(offsets)))]
        return pa.Array.from_buffers(kind, len(offsets) - 1, buffers, children=[child])
    ends = offsets.astype(np.int64 if _is_large(kind) else np.int32)
    validity = None if mask is None else pc.invert(mask).buffers()[1]
    return pa.Array.from_buffers(kind, len(ends) - 1, [validity, pa.py_buffer(ends)], children=[child])


def _struct_of_union(values: pa.UnionArray, wanted: pa.StructType) -> pa.StructArray:
    _, codes_at, *places_at = values.buffers()[
        : 3 if values.type.mode == "dense" else 2
    ]  # type_codes forgets the offset
    codes = np.frombuffer(codes_at, np.int8, len(values), values.offset) if len(values) else np.zeros(0, np.int8)
    places = np.arange(len(values))
    if places_at and len(values):
        places = np.frombuffer(places_at[0], np.int32, len(values), 4 * values.offset)
    children = [pa.array(codes, pa.int8())]
    for i, code in enumerate(values.type.type_codes):
        rows = pa.array(places, pa.int64(), mask=codes != code)
        children.append(to_portable(values.field(i).take(rows)))
    return pa.StructArray.from_arrays(children, fields=list(wanted))


def _union_of_struct(values: pa.StructArray, kind: pa.UnionType) -> pa.UnionArray:
    codes = values.field(0).to_numpy(zero_copy_only=False).astype(np.int8)
    offsets = np.zeros(len(codes), np.int32)
    children = []
    for i, code in enumerate(kind.type_codes):
        chosen = codes == code
        child = from_portable(values.field(i + 1), kind.field(i).type)
        if kind.mode == "dense":
            offsets[chosen] = np.arange(int(chosen.sum()))
            child = child.take(pa.array(np.flatnonzero(chosen)))
        children.append(child)
    if not np.isin(codes, list(kind.type_codes)).all():
        raise ValueError(f"a value has a type that {kind} does not contain")
    buffers: Sequence[pa.Buffer | None] = [None, pa.py_buffer(codes)]
    if kind.mode == "dense":
        buffers = [*buffers, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, len(codes), buffers, children=children)


def _portable_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, portable_type(field.type), field.nullable)


def _is_list(kind: pa.DataType) -> bool:
    views = kinds.is_list_view(kind) or kinds.is_large_list_view(kind)
    return bool(views or kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


def _is_large(kind: pa.DataType) -> bool:
    return bool(kinds.is_large_list(kind) or kinds.is_large_list_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    """Return True for a list of bytes, such as Rerun's blobs; one value per byte would take five times the space."""
    is_plain = kinds.is_list(kind) or kinds.is_large_list(kind)
    return bool(is_plain and kind.value_type == pa.uint8() and not kind.value_field.nullable)
