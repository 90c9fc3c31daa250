"""The Arrow types in which columns come out."""

from __future__ import annotations

import base64
import binascii

import pyarrow as pa

ARROW_SCHEMA = "ARROW:schema"


def plain_schema(schema: pa.Schema, stored: str | None) -> pa.Schema:
    """The schema that columns come out in: no extension types, no metadata, and dates as they were written.

    ``stored`` is the file's value for ``ARROW:schema``: of its types the library restores all but ``date64``.
    """
    written = _written(stored) if stored is not None else None
    fields = []
    for i, field in enumerate(schema):
        datatype = storage_type(field.type)
        if written is not None and len(written) == len(schema) and _is_milliseconds(datatype, written.field(i).type):
            datatype = pa.date64()
        fields.append(pa.field(field.name, datatype, field.nullable))
    return pa.schema(fields)


def storage_type(datatype: pa.DataType) -> pa.DataType:
    """The type without extension types, at any depth."""
    if isinstance(datatype, pa.BaseExtensionType):
        return storage_type(datatype.storage_type)
    if pa.types.is_struct(datatype):
        return pa.struct([_storage_field(f) for f in datatype])
    if pa.types.is_list(datatype):
        return pa.list_(_storage_field(datatype.value_field))
    if pa.types.is_large_list(datatype):
        return pa.large_list(_storage_field(datatype.value_field))
    if pa.types.is_fixed_size_list(datatype):
        return pa.list_(_storage_field(datatype.value_field), datatype.list_size)
    if pa.types.is_map(datatype):
        return pa.map_(_storage_field(datatype.key_field), _storage_field(datatype.item_field), datatype.keys_sorted)
    return datatype


def in_type(values: pa.Array, datatype: pa.DataType) -> pa.Array:
    """The values in the type of :func:`plain_schema`."""
    if values.type != datatype:
        return values.cast(datatype)
    # Maps whose entries are named differently are equal. In a file they may have the name of their column.
    return values if str(values.type) == str(datatype) else values.view(datatype)


def _storage_field(field: pa.Field) -> pa.Field:
    return field.with_type(storage_type(field.type))


def _is_milliseconds(datatype: pa.DataType, written: pa.DataType) -> bool:
    return bool(pa.types.is_date32(datatype) and pa.types.is_date64(written))


def _written(stored: str) -> pa.Schema | None:
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored)))
    except (binascii.Error, ValueError, pa.ArrowException, OSError, RuntimeError):
        return None  # the library, which reads it too, has not refused it
