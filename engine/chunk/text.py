"""Chunks, Arrow types and values as text, printed as Rerun prints them."""

from __future__ import annotations

import codecs
import json
import math
import operator
import re
import unicodedata
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from . import tuid
from .data import ChunkData
from .sorbet import data_to_batch, text_metadata

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
"""The most characters of a cell; a longer text ends with an ellipsis."""

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
    """The writer for values of ``datatype``; raises ``ValueError`` for an unknown time zone."""
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
    return format(Decimal(number).quantize(shortest, ROUND_HALF_UP), "f")  # ties round up here, and to even elsewhere


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
    """The text after the seconds: empty, or a point and 3, 6 or 9 digits.

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
    """The text of a point in time in ``zone``, with the offset of the zone (``Z`` without a zone).

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
    """The time zone of an Arrow timestamp's type: an offset (``+01:30``) or an IANA name.

    Raises ``ValueError`` for other text.
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
    except OverflowError:  # a year that Python's calendar lacks: use the zone's rule of 1970
        span = datetime.fromtimestamp(0, UTC).astimezone(zone).utcoffset()
    total = 0 if span is None else round(span.total_seconds())
    if total == 0:
        return 0, "Z"
    minutes = round(abs(total) / 60)
    return total, f"{'-' if total < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"


_REDACTED = "[**REDACTED**]"
_FRESH_KEYS = frozenset({"rerun:id", "rerun:heap_size_bytes", "sorbet:version"})
_PREFIXES = (
    "rerun.archetypes.",
    "rerun.components.",
    "rerun.datatypes.",
    "rerun.controls.",
    "rerun.blueprint.archetypes.",
    "rerun.blueprint.components.",
    "rerun.blueprint.datatypes.",
    "rerun.field.",
    "rerun.chunk.",
    "rerun.",
)


def format_chunk(data: ChunkData, *, width: int = 240, redact: bool = False, trim_metadata_keys: bool = True) -> str:
    """See :meth:`Chunk.format`. Cells are cut at 100 characters; only that part of a value is rendered."""
    width = operator.index(width)
    if width < 0:
        raise OverflowError("can't convert negative int to unsigned")
    batch = data_to_batch(data)
    columns = batch.num_columns
    most = (width - (columns + 1)) * (100 // columns) // 100
    return format_batch(batch, most=most, redact=redact, trim_metadata_keys=trim_metadata_keys)


def format_batch(
    batch: pa.RecordBatch, *, most: int | None = None, redact: bool = False, trim_metadata_keys: bool = True
) -> str:
    """Format the columns, rows and metadata of a batch with at least one column.

    ``most`` is the largest width of a column. For the other parameters, see :func:`format_chunk`.
    """
    header = [_header(field, redact, trim_metadata_keys) for field in batch.schema]
    texts = [_cells(f, c, redact) for f, c in zip(batch.schema, batch.columns, strict=True)]
    rows = [header, *(list(row) for row in zip(*texts, strict=True))]
    inner = draw(rows, most=most, header=True)
    if not batch.schema.metadata:
        return "\n".join(inner)
    metadata = ["METADATA:", *_entries(batch.schema.metadata, "* ", redact, trim_metadata_keys)]
    return "\n".join(draw([[_split(metadata)], [inner]]))


def _header(field: pa.Field, redact: bool, trim: bool) -> Cell:
    kind = f"type: {'' if field.nullable else 'non-null '}{type_text(field.type)}"
    return _split([_trim_value(field.name), "---", kind, *_entries(field.metadata, "", redact, trim)])


def _entries(metadata: dict[bytes, bytes] | None, lead: str, redact: bool, trim: bool) -> list[str]:
    lines = []
    for key, value in sorted(text_metadata(metadata).items()):
        shown = _REDACTED if redact and key in _FRESH_KEYS else _trim_value(value)
        lines.append(f"{lead}{_trim_key(key) if trim else key}: {shown}")
    return lines


def _cells(field: pa.Field, column: pa.Array, redact: bool) -> list[Cell]:
    metadata = text_metadata(field.metadata)
    if metadata.get("ARROW:extension:name") == "rerun.datatypes.TUID":
        prefix = json.loads(metadata["ARROW:extension:metadata"])["namespace"] + "_"
        return [[prefix + _REDACTED if redact else tuid.tuid_text(i, prefix)] for i in column.to_pylist()]
    text_of = cell_writer(column.type)
    return [text_of(value).split("\n") for value in column]


def _split(lines: list[str]) -> Cell:
    return "\n".join(lines).split("\n")


def _trim_key(key: str) -> str:
    return _without(_without(key.strip(), "rerun:"), "sorbet:")


def _trim_value(text: str) -> str:
    text = text.strip()
    for prefix in _PREFIXES:
        text = _without(text, prefix)
    return text


def _without(text: str, prefix: str) -> str:
    while text.startswith(prefix):
        text = text[len(prefix) :]
    return text


Cell = Sequence[str]
"""The lines of a cell."""


def draw(rows: Sequence[Sequence[Cell]], *, most: int | None = None, header: bool = False) -> list[str]:
    """The lines of a table.

    ``most`` is the largest width of a column with its two blanks; longer lines are wrapped. With ``header``, a double
    line follows the first row, even if it is the only one.

    >>> print("\\n".join(draw([[["a"], ["b"]], [["1"], ["2"]]], header=True)))
    ┌───┬───┐
    │ a ┆ b │
    ╞═══╪═══╡
    │ 1 ┆ 2 │
    └───┴───┘
    """
    widths = [max(width_of(line) for row in rows for line in row[i]) for i in range(len(rows[0]))]
    if most is not None:
        widths = [max(1, min(width, most - 2)) for width in widths]
    return list(_lines(rows, widths, header))


def _lines(rows: Sequence[Sequence[Cell]], widths: list[int], header: bool) -> Iterator[str]:
    yield _rule("┌─┬┐", widths)
    between, under = _rule("├╌┼┤", widths), _rule("╞═╪╡", widths)
    for i, row in enumerate(rows):
        if i:
            yield under if header and i == 1 else between
        cells = [_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
        for k in range(max(map(len, cells))):
            texts = (_padded(c[k] if k < len(c) else "", w) for c, w in zip(cells, widths, strict=True))
            yield f"│ {' ┆ '.join(texts)} │"
    if header and len(rows) == 1:
        yield under
    yield _rule("└─┴┘", widths)


def _rule(characters: str, widths: list[int]) -> str:
    left, line, cross, right = tuple(characters)
    return left + cross.join(line * (width + 2) for width in widths) + right


def _padded(text: str, width: int) -> str:
    return text + " " * (width - width_of(text))


def _wrapped(cell: Cell, width: int) -> list[str]:
    return [part for line in cell for part in ([line] if width_of(line) <= width else wrap(line, width))]


def wrap(line: str, width: int) -> list[str]:
    """The pieces of a line, broken at blanks; a word longer than ``width`` is cut.

    A word that leaves at most two columns ends its line, and no word begins in the last two.

    >>> wrap("type: non-null FixedSizeBinary(16)", 30)
    ['type: non-null', 'FixedSizeBinary(16)']
    >>> wrap("ab cdefghijk", 8)
    ['ab cdefg', 'hijk']
    """
    words = deque(line.split(" "))
    out: list[str] = []
    current = ""
    while words:
        word = words.popleft()
        joined = f"{current} {word}" if current else word
        room = width - width_of(current) - (1 if current else 0)
        if width_of(joined) <= width:
            current = _unless_full(joined, width, out)
        elif current and room <= 2:
            out.append(current)
            current = ""
            words.appendleft(word)
        elif width_of(word) > width:
            head = _head(word, room, bool(current))
            out.append(f"{current} {head}" if current else head)
            current = ""
            words.appendleft(word[len(head) :])
        else:
            out.append(current)
            current = _unless_full(word, width, out)
    if current:
        out.append(current)
    return out


def _unless_full(line: str, width: int, out: list[str]) -> str:
    """Return ``line`` to continue; if it is almost full, append it to ``out`` and return an empty line."""
    if width_of(line) > max(width - 2, 0):
        out.append(line)
        return ""
    return line


def _head(word: str, room: int, may_be_empty: bool) -> str:
    """As much of ``word`` as fits into ``room`` columns; at least one character unless it may be empty."""
    taken = 0
    for cluster in clusters(word):
        if width_of(word[: taken + len(cluster)]) > room:
            break
        taken += len(cluster)
    return word[: taken if taken or may_be_empty else 1]


_JOINER, _EMOJI_STYLE = "\u200d", "\ufe0f"
_LAM, _ALEFS = "\u0644", frozenset("\u0622\u0623\u0625\u0627")
_SEQUENCE = re.compile("[\u200d\ufe0f\u0644\U0001f3fb-\U0001f3ff]")
_ZERO_RANGES = (
    (0x061C, 0x061C),
    (0x115F + 1, 0x11FF),  # Hangul vowels and finals, which join the syllable before them
    (0x3164, 0x3164),
    (0xD7B0, 0xD7FF),
    (0xFF9E, 0xFFA0),
    (0xE0000, 0xE0FFF),
)
_WIDE_RANGES = (
    (0x20000, 0x3FFFD),
    (0x2630, 0x2637),
    (0x268A, 0x268F),
    (0x4DC0, 0x4DFF),
    (0x1D300, 0x1D356),
    (0x1D360, 0x1D376),
)
_NARROW_FORMATS = frozenset(range(0x600, 0x605)) | {0x6DD} | {0xFFF9, 0xFFFA, 0xFFFB} | {0x110BD, 0x110CD}


def width_of(text: str) -> int:
    """The width of ``text`` in a terminal, in columns; an emoji sequence counts as one emoji.

    >>> width_of("abc"), width_of("日本"), width_of("e\\u0301"), width_of("👩‍👩‍👧")
    (3, 4, 1, 2)
    """
    if text.isascii():
        return len(text)
    if not _SEQUENCE.search(text):
        return sum(map(character_width, text))
    total = last = 0
    previous = ""
    for c in text:
        width = character_width(c)
        if (
            (last == 2 and (previous == _JOINER or "\U0001f3fb" <= c <= "\U0001f3ff") and width == 2)
            or (previous == _JOINER and last == 2 and unicodedata.category(c) == "So")
            or (previous == _LAM and c in _ALEFS)
        ):
            width = 0
        elif c == _EMOJI_STYLE and last == 1 and _may_be_emoji(previous):
            width, last = 1, 2
        total += width
        last = width if width and c != _EMOJI_STYLE else last
        previous = c
    return total


def clusters(text: str) -> Iterator[str]:
    """The characters of ``text``, each together with its combining characters.

    >>> [len(c) for c in clusters("e\\u0301x❤️")]
    [2, 1, 2]
    """
    start = 0
    for i in range(1, len(text) + 1):
        if i == len(text) or not _joins(text[i - 1], text[i]):
            yield text[start:i]
            start = i


def _joins(previous: str, c: str) -> bool:
    return character_width(c) == 0 or previous == _JOINER or "\U0001f3fb" <= c <= "\U0001f3ff"


@lru_cache(maxsize=4096)
def character_width(c: str) -> int:
    """The columns of a character: 0 if it joins the one before, 2 for East Asian wide characters and emoji, else 1."""
    code = ord(c)
    if code < 0x300:
        return 0 if code == 0xAD else 1
    if any(first <= code <= last for first, last in _ZERO_RANGES):
        return 0
    category = unicodedata.category(c)
    if category in ("Mn", "Me"):
        return 0
    if category == "Cf":
        return 1 if code in _NARROW_FORMATS else 0
    if any(first <= code <= last for first, last in _WIDE_RANGES):
        return 2
    return 2 if category != "Cn" and unicodedata.east_asian_width(c) in "WF" else 1


def _may_be_emoji(c: str) -> bool:
    return c in "0123456789#*©®‼⁉〰〽" or unicodedata.category(c) in ("So", "Sm")
