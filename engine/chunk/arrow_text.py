"""Arrow types and values as Rerun prints them: ``List(non-null Struct("x": Float64))``, ``[1.0, null]``."""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import ROUND_HALF_UP, Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
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
        return _nested_type(datatype)
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


def _nested_type(datatype: pa.DataType) -> str:
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


CELL_LIMIT = 100
"""Characters of a cell; what is longer loses its end to an ellipsis."""

Writer = Callable[[Any], Iterator[str]]
"""Yields the text of one scalar in pieces, each at most a little longer than :data:`CELL_LIMIT`."""


def cell_writer(datatype: pa.DataType) -> Callable[[pa.Scalar], str]:
    """Return a function that turns the scalars of one column into the text of cells.

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
        return lambda value: interval_text(*value.as_py())
    if pa.types.is_duration(datatype):
        return lambda value: duration_text(value.value, datatype.unit)
    if pa.types.is_date32(datatype):
        return lambda value: date_text(value.value, value.value, datatype)
    if pa.types.is_date64(datatype):
        return lambda value: date64_text(value.value, datatype)
    if pa.types.is_time(datatype):
        return lambda value: time_text(value.value, datatype)
    zone = None if datatype.tz is None else zone_of(datatype.tz)
    return lambda value: timestamp_text(value.value, datatype, zone)


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


PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY = 86_400
_FIRST_DAY, _LAST_DAY = -96_465_292, 95_026_236
_LARGEST_SPAN = (2**63 - 1) // 1000
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)?")


def fraction(nanoseconds: int) -> str:
    """The part behind the seconds: nothing, or 3, 6 or 9 digits.

    >>> fraction(0), fraction(500_000_000), fraction(1000)
    ('', '.500', '.000001')
    """
    if not nanoseconds:
        return ""
    if nanoseconds % 1_000_000 == 0:
        return f".{nanoseconds // 1_000_000:03d}"
    return f".{nanoseconds // 1000:06d}" if nanoseconds % 1000 == 0 else f".{nanoseconds:09d}"


def date_text(days: int, raw: int, datatype: pa.DataType) -> str:
    """A calendar date, from days since 1970-01-01; ``raw`` is the stored number, for the error text."""
    if not _FIRST_DAY <= days <= _LAST_DAY:
        return _failure(raw, datatype)
    text = str(np.datetime64(days, "D"))
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    year, rest = digits[:-6], digits[-6:]
    return f"{sign or ('+' if len(year) > 4 else '')}{year.rjust(4, '0')}{rest}"


def date64_text(milliseconds: int, datatype: pa.DataType) -> str:
    """A ``date64``, which prints with its time."""
    return _datetime(milliseconds, 1000, milliseconds, datatype)


def timestamp_text(ticks: int, datatype: pa.DataType, zone: tzinfo | None) -> str:
    """A point in time, in ``zone`` and with its offset when there is one (``Z`` for none).

    >>> timestamp_text(1_700_000_000_500, pa.timestamp("ms"), None)
    '2023-11-14T22:13:20.500'
    """
    scale = PER_SECOND[datatype.unit]
    if zone is None:
        return _datetime(ticks, scale, ticks, datatype)
    seconds, offset_text = _offset(ticks // scale, zone)
    text = _datetime(ticks + seconds * scale, scale, ticks, datatype)
    return text if text.startswith("ERROR") else text + offset_text


def duration_text(ticks: int, unit: str) -> str:
    """A span of time.

    >>> duration_text(1500, "ms"), duration_text(-2, "s"), duration_text(0, "ns")
    ('PT1.5S', '-PT2S', 'P0D')
    """
    if ticks == 0:
        return "P0D"
    if (unit == "s" and abs(ticks) > _LARGEST_SPAN) or (unit == "ms" and ticks == -(2**63)):
        return "<invalid>"
    seconds, rest = divmod(abs(ticks), PER_SECOND[unit])
    digits = f".{rest * (10**9 // PER_SECOND[unit]):09d}".rstrip("0") if rest else ""
    return f"{'-' if ticks < 0 else ''}PT{seconds}{digits}S"


def time_text(ticks: int, datatype: pa.DataType) -> str:
    """A time of day."""
    scale = PER_SECOND[datatype.unit]
    if not 0 <= ticks < _DAY * scale:
        return _failure(ticks, datatype)
    return _clock(ticks, scale)


def interval_text(months: int, days: int, nanoseconds: int) -> str:
    """A calendar interval.

    >>> interval_text(1, 2, 3_600_000_000_003)
    '1 mons 2 days 1 hours 0.000000003 secs'
    """
    sign = -1 if nanoseconds < 0 else 1
    seconds, rest = divmod(abs(nanoseconds), 10**9)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    amounts = ((months, "mons"), (days, "days"), (sign * hours, "hours"), (sign * minutes, "mins"))
    parts = [f"{amount} {name}" for amount, name in amounts if amount]
    if seconds or rest:
        parts.append(f"{'-' if sign < 0 else ''}{seconds}.{rest:09d} secs")
    return " ".join(parts) or "0 secs"


def zone_of(name: str) -> tzinfo:
    """The zone an Arrow timestamp names: an offset (``+01:30``) or a name of the IANA data base.

    Raises ``ValueError`` for what is neither.
    """
    offset = _OFFSET.fullmatch(name)
    if offset:
        span = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        return timezone(-span if offset[1] == "-" else span)
    try:
        return ZoneInfo(name) if name not in ("Z", "utc") else _unknown(name)
    except (OSError, ValueError, KeyError):
        return _unknown(name)


def _unknown(name: str) -> tzinfo:
    raise ValueError(f'Parser error: Invalid timezone "{name}": failed to parse timezone')


def _datetime(ticks: int, scale: int, raw: int, datatype: pa.DataType) -> str:
    days, rest = divmod(ticks, _DAY * scale)
    if not _FIRST_DAY <= days <= _LAST_DAY:
        what = "datetime for" if pa.types.is_timestamp(datatype) else "temporal for"
        return f"ERROR: Cast error: Failed to convert {raw} to {what} {type_text(datatype)}"
    return f"{date_text(days, raw, datatype)}T{_clock(rest, scale)}"


def _clock(ticks: int, scale: int) -> str:
    seconds, rest = divmod(ticks, scale)
    hours, minutes, seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}{fraction(rest * (10**9 // scale))}"


def _failure(raw: int, datatype: pa.DataType) -> str:
    return f"ERROR: Cast error: Failed to convert {raw} to temporal for {type_text(datatype)}"


def _offset(seconds: int, zone: tzinfo) -> tuple[int, str]:
    """The zone's offset at a moment, in seconds, and as text."""
    try:
        moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=seconds)
        span = moment.astimezone(zone).utcoffset()
    except OverflowError:  # a year that Python's calendar lacks: the zone's rule of 1970 will do
        span = datetime.fromtimestamp(0, UTC).astimezone(zone).utcoffset()
    total = 0 if span is None else round(span.total_seconds())
    if total == 0:
        return 0, "Z"
    minutes = round(abs(total) / 60)
    return total, f"{'-' if total < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"
