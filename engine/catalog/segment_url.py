"""URLs of segments: ``<catalog>/dataset/<id>?segment_id=<id>``, and where a viewer is to look, as a fragment."""

from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import quote

from ..errors import UsageError

IndexValue = datetime | timedelta | int
"""A tick or nanoseconds, a time (in UTC where it has no zone), or a duration."""

_EARLIEST: Final = "1677-09-21T00:12:43.145224193Z"
"""What Rerun shows where nobody said when: the first time that 64 bits of nanoseconds have."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = ((86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "m"))


def segment_url(
    dataset: str, segment_id: str, timeline: str | None, start: IndexValue | None, end: IndexValue | None
) -> str:
    """The URL of a segment of the dataset that is at the URL ``dataset``.

    >>> segment_url("lake/dataset/1", "a b", "frame", 1, 10)
    'lake/dataset/1?segment_id=a%20b#when=frame@1&time_selection=frame@1..10'
    """
    url = f"{dataset}?segment_id={quote(segment_id, safe='')}"
    if timeline is None:
        if start is not None or end is not None:
            raise UsageError("If `start` or `end` is specified, `timeline` must also be specified.")
        return url
    name = quote(timeline, safe="")
    kind = type(start if start is not None else end)
    when = _EARLIEST if start is None else _text(start, kind)
    if end is None:
        return f"{url}#when={name}@{when}"
    last = _text(end, kind)
    first = last if start is None else when
    return f"{url}#when={name}@{when}&time_selection={name}@{first}..{last}"


def _text(value: IndexValue, kind: type) -> str:
    """A value as a URL has it; one of another kind than the first is a number."""
    if not isinstance(value, kind):
        return str(_number(value))
    if isinstance(value, datetime):
        return _time_text(value)
    return _duration_text(value) if isinstance(value, timedelta) else str(_number(value))


def _number(value: IndexValue) -> int:
    """Nanoseconds, or the number that it is."""
    if isinstance(value, datetime):
        value = _in_utc(value) - _EPOCH
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1) * 1000
    return int(value) if isinstance(value, str) else operator.index(value)


def _in_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _time_text(value: datetime) -> str:
    text = _in_utc(value).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return text.rstrip("0").rstrip(".") + "Z"


def _duration_text(value: timedelta) -> str:
    """A duration as Rerun writes it, without the spaces.

    >>> _duration_text(timedelta(days=1, seconds=1.5)), _duration_text(timedelta(0))
    ('+1d1.5s', '+0s')
    """
    left = value // timedelta(microseconds=1)
    sign, left = ("-" if left < 0 else "+"), abs(left)
    text = ""
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        text += f"{count}{unit}" if count else ""
    if left or not text:
        seconds, micro = divmod(left, 1_000_000)
        text += f"{seconds}.{micro:06}".rstrip("0").rstrip(".") + "s"
    return sign + text
