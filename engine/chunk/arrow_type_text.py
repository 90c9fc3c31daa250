"""Arrow data types as Rerun prints them: ``List(non-null Struct("x": Float64))``."""

from __future__ import annotations

import json

import pyarrow as pa

_SCALARS = {
    "halffloat": "Float16",
    "float": "Float32",
    "double": "Float64",
    "bool": "Boolean",
    "string": "Utf8",
    "large_string": "LargeUtf8",
    "string_view": "Utf8View",
    "binary": "Binary",
    "large_binary": "LargeBinary",
    "binary_view": "BinaryView",
    "null": "Null",
    "date32[day]": "Date32",
    "date64[ms]": "Date64",
    "month_day_nano_interval": "Interval(MonthDayNano)",
}
_SCALARS |= {f"{s}int{bits}": f"{s.upper()}Int{bits}" for s in ("", "u") for bits in (8, 16, 32, 64)}
_LISTS = (
    (pa.types.is_list, "List"),
    (pa.types.is_large_list, "LargeList"),
    (pa.types.is_list_view, "ListView"),
    (pa.types.is_large_list_view, "LargeListView"),
)


def type_text(datatype: pa.DataType) -> str:
    """The name of a type, with its children.

    >>> type_text(pa.list_(pa.struct([pa.field("x", pa.float32(), nullable=False)])))
    'List(Struct("x": non-null Float32))'
    """
    plain = _SCALARS.get(str(datatype))
    if plain is not None:
        return plain
    if isinstance(datatype, pa.BaseExtensionType):
        return type_text(datatype.storage_type)
    if pa.types.is_nested(datatype):
        return _nested(datatype)
    if pa.types.is_dictionary(datatype):
        return f"Dictionary({type_text(datatype.index_type)}, {type_text(datatype.value_type)})"
    if pa.types.is_run_end_encoded(datatype):
        ends, values = type_text(datatype.run_end_type), type_text(datatype.value_type)
        return f'RunEndEncoded("run_ends": non-null {ends}, "values": {values})'
    return _parametrised(datatype)


def _parametrised(datatype: pa.DataType) -> str:
    if pa.types.is_fixed_size_binary(datatype):
        return f"FixedSizeBinary({datatype.byte_width})"
    if pa.types.is_decimal(datatype):
        return f"Decimal{datatype.bit_width}({datatype.precision}, {datatype.scale})"
    if not pa.types.is_temporal(datatype):
        return str(datatype)
    unit = datatype.unit.replace("us", "µs")
    if pa.types.is_timestamp(datatype):
        return f"Timestamp({unit})" if datatype.tz is None else f'Timestamp({unit}, "{datatype.tz}")'
    return f"Duration({unit})" if pa.types.is_duration(datatype) else f"Time{datatype.bit_width}({unit})"


def _nested(datatype: pa.DataType) -> str:
    if pa.types.is_struct(datatype):
        return "Struct(" + ", ".join(map(_named, datatype)) + ")"
    if pa.types.is_fixed_size_list(datatype):
        return f"FixedSizeList({datatype.list_size} x {_item(datatype.value_field)})"
    if pa.types.is_map(datatype):
        entries = f"Struct({_named(datatype.key_field)}, {_named(datatype.item_field)})"
        return f'Map("entries": non-null {entries}, {"sorted" if datatype.keys_sorted else "unsorted"})'
    if pa.types.is_union(datatype):
        fields = (f"{code}: ({_named(f)})" for code, f in zip(datatype.type_codes, datatype, strict=True))
        return f"Union({datatype.mode.capitalize()}, {', '.join(fields)})"
    for applies, name in _LISTS:
        if applies(datatype):
            return f"{name}({_item(datatype.value_field)})"
    return str(datatype)


def _bare(field: pa.Field) -> str:
    return type_text(field.type) if field.nullable else f"non-null {type_text(field.type)}"


def _named(field: pa.Field) -> str:
    return f"{json.dumps(field.name, ensure_ascii=False)}: {_bare(field)}{_metadata(field)}"


def _item(field: pa.Field) -> str:
    name = "" if field.name == "item" else f", field: '{field.name}'"
    return f"{_bare(field)}{name}{_metadata(field)}"


def _metadata(field: pa.Field) -> str:
    if not field.metadata:
        return ""
    entries = {k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in field.metadata.items()}
    return f", metadata: {json.dumps(dict(sorted(entries.items())), ensure_ascii=False)}"
