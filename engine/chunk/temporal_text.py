"""Times and spans as Rerun prints them: ISO 8601, with as many fraction digits as they need.

Years beyond 0000-9999 carry a sign. What lies outside the years ±262143 has no calendar date, and an error text
stands in its place.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from .arrow_type_text import type_text

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
