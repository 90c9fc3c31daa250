"""URLs of segments: ``<catalog>/dataset/<id>?segment_id=<id>``, and where a viewer is to look, as a fragment."""

from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import quote

import numpy as np

from ..chunk import numpy_ticks
from ..errors import UsageError

IndexValue = datetime | timedelta | int | np.datetime64 | np.timedelta64
"""A tick or nanoseconds, a time (in UTC where it has no zone), or a duration."""

_EARLIEST: Final = "1677-09-21T00:12:43.145224193Z"
"""What Rerun shows where nobody said when: the first time that 64 bits of nanoseconds have."""
_FIRST: Final = -(1 << 63) + 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"))


def segment_url(
    dataset: str, segment_id: str, timeline: str | None, start: IndexValue | None, end: IndexValue | None
) -> str:
    """The URL of a segment of the dataset that is at the URL ``dataset``.

    >>> segment_url("lake/dataset/1", "a b", "frame", 1, 10)
    'lake/dataset/1?segment_id=a%20b#when=frame@1&time_selection=frame@1..10'
    """
    url = f"{dataset}?segment_id={quote(segment_id, safe='')}"
    _check_timeline(timeline, start, end)
    if timeline is None:
        return url
    name = quote(timeline, safe="")
    kind = _kind(start if start is not None else end)
    when = _EARLIEST if start is None else _text(start, kind)
    if end is None:
        return f"{url}#when={name}@{when}"
    last = _text(end, kind)
    first = last if start is None else when
    return f"{url}#when={name}@{when}&time_selection={name}@{first}..{last}"


def partition_url(
    dataset: str, partition_id: str, timeline: str | None, start: IndexValue | None, end: IndexValue | None
) -> str:
    """The URL that Rerun 0.27 has for a segment of the dataset that is at the URL ``dataset``.

    >>> partition_url("lake/dataset/1", "a b", "frame", 1, 10)
    'lake/dataset/1?partition_id=a%20b&time_range=frame@1..10'
    """
    url = f"{dataset}?partition_id={quote(partition_id, safe='')}"
    _check_timeline(timeline, start, end)
    if timeline is None:
        return url
    given = start if start is not None else end
    kind = "M" if given is None else _kind(given)
    first, last = (_limit(kind, _FIRST) if start is None else start), (_limit(kind, -_FIRST) if end is None else end)
    return f"{url}&time_range={quote(timeline, safe='')}@{_text(first, kind)}..{_text(last, kind)}"


def _limit(kind: str, value: int) -> IndexValue:
    """An index value of a kind, of nanoseconds or ticks."""
    if kind == "M":
        return np.datetime64(value, "ns")
    return np.timedelta64(value, "ns") if kind == "m" else value


def _check_timeline(timeline: str | None, start: IndexValue | None, end: IndexValue | None) -> None:
    if timeline is None and not (start is None and end is None):
        raise UsageError("If `start` or `end` is specified, `timeline` must also be specified.")


def _kind(value: IndexValue | None) -> str:
    """The kind of a value: the letter that numpy has for it, or ``i``."""
    if isinstance(value, datetime | np.datetime64):
        return "M"
    return "m" if isinstance(value, timedelta | np.timedelta64) else "i"


def _text(value: IndexValue, kind: str) -> str:
    """A value as a URL has it; one of another kind than the first is a number."""
    number = _nanoseconds(value)
    if kind != _kind(value) or kind == "i":
        return str(number)
    return _time_text(number) if kind == "M" else _duration_text(number)


def _nanoseconds(value: IndexValue | str) -> int:
    """Nanoseconds (of a time since the epoch), or the number that it is."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        return int(numpy_ticks(value))
    if isinstance(value, datetime):
        value = (value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)) - _EPOCH
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1) * 1000
    return int(value) if isinstance(value, str) else operator.index(value)


def _time_text(number: int) -> str:
    """A time, to the nanosecond where it has some.

    >>> _time_text(1_500_000_000)
    '1970-01-01T00:00:01.5Z'
    """
    seconds, rest = divmod(number, 10**9)
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S") + _fraction(rest) + "Z"


def _duration_text(number: int) -> str:
    """A duration as Rerun writes it, without the spaces.

    >>> _duration_text(86_401_500_000_000), _duration_text(0)
    ('+1d1.5s', '+0s')
    """
    sign, (left, rest) = ("-" if number < 0 else "+"), divmod(abs(number), 10**9)
    text = ""
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        text += f"{count}{unit}" if count else ""
    return sign + text + (f"{left}{_fraction(rest)}s" if left or rest or not text else "")


def _fraction(nanoseconds: int) -> str:
    return f".{nanoseconds:09}".rstrip("0").rstrip(".")
