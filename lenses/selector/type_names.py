"""Arrow types as the messages of Rerun spell them."""

from __future__ import annotations

import pyarrow as pa

from ...engine.chunk import rust_type_name


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
