"""Arrow values as Rerun prints them, in pieces, so that a long value need not be rendered to its end."""

from __future__ import annotations

import codecs
import math
from collections.abc import Callable, Iterator
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from . import temporal_text

CELL_LIMIT = 100
"""Characters of a cell; what is longer loses its end to an ellipsis."""

Writer = Callable[[Any], Iterator[str]]
"""Yields the text of one scalar in pieces, each at most a little longer than :data:`CELL_LIMIT`."""


def cell_writer(datatype: pa.DataType) -> Callable[[pa.Scalar], str]:
    """What turns the scalars of one column into the text of cells.

    >>> cell_writer(pa.list_(pa.float64()))(pa.scalar([1.0, None, 1e16]))
    '[1.0, null, 1e16]'
    """
    try:
        write = writer_of(datatype)
    except ValueError as error:
        failure = _cut(f"Failed to format array: {error}")
        return lambda _: failure
    return lambda value: _cut_pieces(write(value))


def _cut_pieces(pieces: Iterator[str]) -> str:
    taken: list[str] = []
    length = 0
    for piece in pieces:
        taken.append(piece)
        length += len(piece)
        if length > CELL_LIMIT:
            break
    return _cut("".join(taken))


def _cut(text: str) -> str:
    return text if len(text) <= CELL_LIMIT else text[: CELL_LIMIT - 1] + "…"


def writer_of(datatype: pa.DataType) -> Writer:
    """The writer for values of ``datatype``; raises ``ValueError`` for a time zone that nobody knows."""
    if isinstance(datatype, pa.BaseExtensionType):
        return _nullable(_through(writer_of(datatype.storage_type)))
    if pa.types.is_dictionary(datatype):
        return _nullable(_through(writer_of(datatype.value_type)))
    if pa.types.is_run_end_encoded(datatype):
        return _run_ends(writer_of(datatype.value_type))
    if pa.types.is_union(datatype):
        return _union({c: (f.name, writer_of(f.type)) for c, f in zip(datatype.type_codes, datatype, strict=True)})
    if pa.types.is_nested(datatype):
        return _nullable(_nested(datatype))
    return _nullable(_single(_leaf(datatype)))


def _nullable(write: Writer) -> Writer:
    def checked(value: Any) -> Iterator[str]:
        return write(value) if value.is_valid else iter(("null",))

    return checked


def _single(text_of: Callable[[Any], str]) -> Writer:
    return lambda value: iter((text_of(value),))


def _through(write: Writer) -> Writer:
    return lambda value: write(value.value)


def _run_ends(write: Writer) -> Writer:
    def decoded(value: Any) -> Iterator[str]:
        return write(pa.scalar(value.as_py(), value.type.value_type))

    return _nullable(decoded)


# --- values with children


def _nested(datatype: pa.DataType) -> Writer:
    if pa.types.is_struct(datatype):
        return _struct([(f.name, writer_of(f.type)) for f in datatype])
    if pa.types.is_map(datatype):
        return _map(writer_of(datatype.key_type), writer_of(datatype.item_type))
    return _list(writer_of(datatype.value_type))


def _list(item: Writer) -> Writer:
    def write(value: Any) -> Iterator[str]:
        yield "["
        separator = ""
        for child in value.values:
            yield separator
            yield from item(child)
            separator = ", "
        yield "]"

    return write


def _struct(fields: list[tuple[str, Writer]]) -> Writer:
    def write(value: Any) -> Iterator[str]:
        yield "{"
        for i, (name, item) in enumerate(fields):
            yield f"{', ' if i else ''}{name}: "
            yield from item(value[i])
        yield "}"

    return write


def _map(key: Writer, item: Writer) -> Writer:
    def write(value: Any) -> Iterator[str]:
        yield "{"
        separator = ""
        for entry in value.values:
            yield separator
            yield from key(entry[0])
            yield ": "
            yield from item(entry[1])
            separator = ", "
        yield "}"

    return write


def _union(fields: dict[int, tuple[str, Writer]]) -> Writer:
    def write(value: Any) -> Iterator[str]:
        name, item = fields[value.type_code]
        yield f"{{{name}="
        yield from item(value.value) if value.is_valid else ("null",)
        yield "}"

    return write


# --- values without children


def _leaf(datatype: pa.DataType) -> Callable[[Any], str]:
    if pa.types.is_temporal(datatype) or pa.types.is_interval(datatype):
        return _temporal(datatype)
    for applies, text_of in _LEAVES:
        if applies(datatype):
            return text_of
    return lambda value: str(value.as_py())


def _temporal(datatype: pa.DataType) -> Callable[[Any], str]:
    if pa.types.is_interval(datatype):
        return lambda value: temporal_text.interval_text(*value.as_py())
    if pa.types.is_duration(datatype):
        return lambda value: temporal_text.duration_text(value.value, datatype.unit)
    if pa.types.is_date32(datatype):
        return lambda value: temporal_text.date_text(value.value, value.value, datatype)
    if pa.types.is_date64(datatype):
        return lambda value: temporal_text.date64_text(value.value, datatype)
    if pa.types.is_time(datatype):
        return lambda value: temporal_text.time_text(value.value, datatype)
    zone = None if datatype.tz is None else temporal_text.zone_of(datatype.tz)
    return lambda value: temporal_text.timestamp_text(value.value, datatype, zone)


def _string(value: Any) -> str:
    buffer = value.as_buffer()
    start = bytes(memoryview(buffer)[: 4 * (CELL_LIMIT + 1)])
    return codecs.getincrementaldecoder("utf-8")("replace").decode(start, final=len(start) == len(buffer))


def _binary(value: Any) -> str:
    return memoryview(value.as_buffer())[: CELL_LIMIT // 2 + 1].hex()


def _boolean(value: Any) -> str:
    return "true" if value.as_py() else "false"


def _decimal(value: Any) -> str:
    number: Decimal = value.as_py()
    missing = -int(value.type.scale)
    if missing <= 0:
        return format(number, "f")
    return f"{int(number.scaleb(-missing))}{'0' * missing}"


def _half(value: Any) -> str:
    number = float(value.as_py())
    if not math.isfinite(number):
        return _not_finite(number)
    shortest = Decimal(np.format_float_positional(np.float32(number), unique=True, trim="-"))
    return format(Decimal(number).quantize(shortest, ROUND_HALF_UP), "f")  # a tie goes up here, and to even elsewhere


def _float(value: Any) -> str:
    return float_text(np.float32(value.as_py()), -6, 13)


def _double(value: Any) -> str:
    return float_text(np.float64(value.as_py()), -5, 16)


def float_text(number: np.floating[Any], low: int, high: int) -> str:
    """The shortest text that reads back as ``number``: decimal from ``10**low`` up to ``10**high``, else scientific.

    >>> [float_text(np.float64(x), -5, 16) for x in (4.0, 1e-5, 1.5e16, -0.0)]
    ['4.0', '0.00001', '1.5e16', '-0.0']
    """
    if not math.isfinite(number):
        return _not_finite(float(number))
    mantissa, _, exponent = np.format_float_scientific(number, unique=True, trim="-").partition("e")
    power = int(exponent)
    if number == 0 or low <= power < high:
        return np.format_float_positional(number, unique=True, trim="0")
    return f"{mantissa}e{power}"


def _not_finite(number: float) -> str:
    return "NaN" if math.isnan(number) else "inf" if number > 0 else "-inf"


_LEAVES: tuple[tuple[Callable[[Any], bool], Callable[[Any], str]], ...] = (
    (pa.types.is_float64, _double),
    (pa.types.is_float32, _float),
    (pa.types.is_float16, _half),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_string, _string),
    (pa.types.is_large_string, _string),
    (pa.types.is_string_view, _string),
    (pa.types.is_binary, _binary),
    (pa.types.is_large_binary, _binary),
    (pa.types.is_binary_view, _binary),
    (pa.types.is_fixed_size_binary, _binary),
    (pa.types.is_decimal, _decimal),
)
