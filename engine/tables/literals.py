"""Values as SQL that Lance reads back without any loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from ..errors import UsageError
from ..lance import exact_array

_UNITS: Final = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}


def assignments(schema: pa.Schema, values: Mapping[str, Any]) -> dict[str, str]:
    """SQL for values by the columns that are to have them.

    Raises ``UsageError`` for a column that is not there, a value that does not go with its type, and a type of which
    SQL has no values.
    """
    found = {}
    for name, value in values.items():
        if name not in schema.names:
            raise UsageError(f"there is no column {name!r}", hint=f"There are: {', '.join(schema.names)}.")
        type_ = schema.field(name).type
        try:
            scalar = exact_array([value], type_)[0]
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise UsageError(f"{value!r} is no value of the column {name!r}, of type {type_}: {error}") from None
        text = literal(scalar)
        if text is None:
            raise UsageError(f"SQL has no value of type {type_}, of column {name!r}", hint="Give SQL, as values_sql=.")
        found[name] = text
    return found


def literal(scalar: pa.Scalar) -> str | None:
    """A value as SQL; None where its type has none.

    >>> literal(pa.scalar("it's")), literal(pa.scalar([1, None])), literal(pa.scalar(b"ab"))
    ("'it''s'", 'make_array(1, NULL)', "X'6162'")
    """
    type_ = scalar.type
    if not scalar.is_valid:
        return "NULL"
    if pa.types.is_boolean(type_) or pa.types.is_integer(type_):
        return str(scalar.as_py()).lower()
    if pa.types.is_floating(type_):
        return _number(float(scalar.as_py()))
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return _text(scalar.as_py())
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return f"X'{scalar.as_py().hex()}'"
    if pa.types.is_decimal128(type_):
        return _cast(_text(str(scalar.as_py())), f"Decimal128({type_.precision}, {type_.scale})")
    if pa.types.is_temporal(type_):
        return _of_time(scalar)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        items = [literal(item) for item in scalar.values]
        return None if None in items else f"make_array({', '.join(map(str, items))})"
    if pa.types.is_struct(type_):
        parts = [(_text(field.name), literal(scalar[field.name])) for field in type_]
        return None if None in dict(parts).values() else f"named_struct({', '.join(f'{a}, {b}' for a, b in parts)})"
    return None


def _of_time(scalar: pa.Scalar) -> str | None:
    type_ = scalar.type
    if pa.types.is_date32(type_):
        return _cast(str(scalar.value), "Date32")
    if pa.types.is_timestamp(type_):
        zone = "None" if type_.tz is None else f'Some("{type_.tz}")'
        return _cast(str(scalar.value), f"Timestamp({_UNITS[type_.unit]}, {zone})")
    if pa.types.is_duration(type_):
        return _cast(str(scalar.value), f"Duration({_UNITS[type_.unit]})")
    if pa.types.is_time(type_):
        return _cast(str(scalar.value), f"Time{type_.bit_width}({_UNITS[type_.unit]})")
    return None


def _text(value: str) -> str:
    quoted = value.replace("'", "''")
    return f"'{quoted}'"


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else f"CAST('{value}' AS DOUBLE)"


def _cast(value: str, type_: str) -> str:
    return f"arrow_cast({value}, {_text(type_)})"
