"""Numbers with units as people write them: counts, sizes, times and lengths of time, to text and from it."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from .errors import UsageError


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "file"), counted(1200, "row")
    ('1 file', '1,200 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def rows_in_chunks(rows: int, chunks: int) -> str:
    """A number of rows, and of their chunks.

    >>> rows_in_chunks(3513, 1)
    '3,513 rows in 1 chunk'
    """
    return f"{counted(rows, 'row')} in {counted(chunks, 'chunk')}"


def utc_time(seconds: float, precision: str = "milliseconds") -> str:
    """Return seconds since 1970 in RFC 3339. Raises the error of ``datetime`` for years outside its calendar.

    >>> utc_time(1.5), utc_time(0, "seconds")
    ('1970-01-01T00:00:01.500Z', '1970-01-01T00:00:00Z')
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=precision).replace("+00:00", "Z")


def size(num_bytes: float) -> str:
    """Bytes in steps of 1000.

    >>> size(999), size(782_496), size(36_960_085)
    ('999 B', '782.5 kB', '37.0 MB')
    """
    value = float(num_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def part_of_size(done: int, total: int) -> str:
    """Two sizes; a common unit is named once.

    >>> part_of_size(63_000_000, 104_200_000), part_of_size(900, 2_000_000)
    ('63.0/104.2 MB', '900 B/2.0 MB')
    """
    (first, unit), (second, same) = size(done).split(" "), size(total).split(" ")
    return f"{first}/{second} {unit}" if unit == same else f"{first} {unit}/{second} {same}"


def duration(seconds: float) -> str:
    """A length of time, with as many digits as matter.

    >>> duration(0.0421), duration(12.34), duration(754), duration(7322)
    ('0.04 s', '12.3 s', '12 min 34 s', '2 h 02 min')
    """
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


_SECONDS: Final = {
    "": 1.0,
    "ms": 0.001,
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
}


def seconds_of(given: float | str) -> float:
    """A duration in seconds, from text or a number. Raises ``UsageError`` for other values.

    >>> seconds_of("10s"), seconds_of("5 minutes"), seconds_of("1.5h"), seconds_of(0.2)
    (10.0, 300.0, 5400.0, 0.2)
    """
    if isinstance(given, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", given.lower())
        unit = None if match is None else _SECONDS.get(match[2], _SECONDS.get(match[2].removesuffix("s")))
        if match is None or unit is None:
            raise UsageError(
                f"{given!r} is not a duration", hint="Write a duration such as 500ms, 10s, 5 minutes or 1h."
            )
        return float(match[1]) * unit
    if not math.isfinite(given) or given < 0:
        raise UsageError(f"{given!r} is not a duration", hint="Give seconds, 0 or more.")
    return float(given)


Moment = datetime | str | timedelta | int
"""A time in the past: a datetime, ISO text, how long ago it was, or nanoseconds since 1970."""

_LEAST_NANOSECONDS: Final = 10**17
"""A time of 1973 in nanoseconds. Present times in seconds, milliseconds and microseconds are smaller numbers."""
_LONGEST_AGE: Final = timedelta(days=1_000_000)
"""Longer than any age; Lance's microseconds have 64 bits."""


def age_of_moment(name: str, given: Moment) -> timedelta:
    """Return how long ago a time was; negative for a future time. A time without a zone is in UTC.

    ``name`` is the argument's name. numpy's times count as datetimes, and its lengths of time as timedeltas. Raises
    ``UsageError`` for anything else.

    >>> age_of_moment("before", timedelta(days=8))
    datetime.timedelta(days=8)
    >>> age_of_moment("before", "2024-02-30")
    Traceback (most recent call last):
    chunkmill.engine.errors.UsageError: CM501: before='2024-02-30' is not a time: day is out of range for month. Give \
a datetime, ISO text, a timedelta (how long ago), or nanoseconds since 1970.
    """
    try:
        age = _age(given)
    except (ValueError, OverflowError, OSError) as error:
        raise _no_time(name, given, f": {error}") from None
    if age is None:
        raise _no_time(name, given, "")
    return min(age, _LONGEST_AGE)


def _age(given: Any) -> timedelta | None:
    if type(given).__module__ == "numpy" and hasattr(given, "dtype"):  # numpy takes long to import
        given = (given.astype(f"{given.dtype.kind}8[us]") if given.dtype.kind in "mM" else given).item()
    if isinstance(given, timedelta):
        if given < timedelta():
            raise ValueError("it is negative")
        return given
    if isinstance(given, str):
        given = datetime.fromisoformat(given)
    elif isinstance(given, int) and not isinstance(given, bool):
        if given < _LEAST_NANOSECONDS:
            raise ValueError("in nanoseconds, it would be before 1973")
        given = datetime.fromtimestamp(given // 10**9, UTC) + timedelta(microseconds=given % 10**9 // 1000)
    if not isinstance(given, datetime) or given != given:  # such as pandas' NaT
        return None
    return datetime.now(UTC) - (given if given.tzinfo is not None else given.replace(tzinfo=UTC))


def _no_time(name: str, given: object, reason: str) -> UsageError:
    return UsageError(
        f"{name}={given!r} is not a time{reason}",
        hint="Give a datetime, ISO text, a timedelta (how long ago), or nanoseconds since 1970.",
    )


_BYTES: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30}


def bytes_of(text: str) -> int:
    """A number of bytes as people write it. Raises ``UsageError``.

    >>> bytes_of("2GB"), bytes_of("1.5 MiB"), bytes_of("4096")
    (2000000000, 1572864, 4096)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", text.lower())
    if match is None or (match[2] or "") not in _BYTES:
        raise UsageError(f"{text!r} is not a size", hint="Write a size such as 500MB, 2GB or 1GiB.")
    return int(float(match[1]) * _BYTES[match[2] or ""])
