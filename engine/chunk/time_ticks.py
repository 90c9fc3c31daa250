"""Times as users give them, as nanoseconds: numbers of seconds, Python's and NumPy's dates and spans."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOT_A_TIME = np.iinfo(np.int64).min
_MOST_SECONDS = 9_223_372_036
_MILLISECONDS_LIKELY = 100_000_000_000


def sequence_ticks(values: Iterable[Any]) -> npt.NDArray[np.int64]:
    """Sequence numbers; fractions are cut off."""
    return np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=np.int64)


def duration_ticks(values: Iterable[Any]) -> npt.NDArray[np.int64]:
    """Nanoseconds of spans: seconds, ``timedelta`` or ``timedelta64``.

    >>> duration_ticks([1.5, timedelta(milliseconds=2)]).tolist()
    [1500000000, 2000000]
    """
    return _ticks(values, "m8", _span)


def timestamp_ticks(values: Iterable[Any]) -> npt.NDArray[np.int64]:
    """Nanoseconds since the Unix epoch: seconds, ``datetime`` (without a zone: UTC), ``datetime64``, Arrow scalars.

    Raises ``ValueError`` for numbers that cannot be seconds, and for "not a time".

    >>> timestamp_ticks([1.5, datetime(1970, 1, 2)]).tolist()
    [1500000000, 86400000000000]
    """
    return _ticks(values, "M8", _moment)


def _ticks(values: Iterable[Any], dtype: str, tick: Callable[[Any], int]) -> npt.NDArray[np.int64]:
    if isinstance(values, np.ndarray) and values.dtype.str[1:3] == dtype:
        ticks = values.astype(f"{dtype}[ns]").view(np.int64)
    elif isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
        ticks = _all_seconds(values)
    else:
        ticks = np.asarray([tick(v) for v in values], dtype=np.int64)
    if bool((ticks == _NOT_A_TIME).any()):
        raise ValueError("Expected a time in every row, but one is NaT (not a time)")
    return ticks


def _all_seconds(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    possible = (values >= -_MOST_SECONDS) & (values <= _MOST_SECONDS)
    if not possible.all():
        raise _not_seconds(values[~possible][0].item())
    if values.dtype.kind == "f":
        return np.rint(values.astype(np.float64) * 1e9).astype(np.int64)
    return values.astype(np.int64) * 1_000_000_000


def _span(value: Any) -> int:
    if isinstance(value, np.timedelta64):
        return int(value.astype("timedelta64[ns]").astype(np.int64))
    if isinstance(value, timedelta):
        return (value.days * 86_400 + value.seconds) * 1_000_000_000 + value.microseconds * 1000
    if isinstance(value, pa.DurationScalar):
        return int(value.cast(pa.duration("ns")).value)
    return _seconds("duration", value, "timedelta or numpy.timedelta64")


def _moment(value: Any) -> int:
    if isinstance(value, np.datetime64):
        return int(value.astype("datetime64[ns]").astype(np.int64))
    if isinstance(value, datetime):
        return _span((value if value.tzinfo is not None else value.replace(tzinfo=UTC)) - _EPOCH)
    if isinstance(value, pa.TimestampScalar):
        return int(value.cast(pa.timestamp("ns", value.type.tz)).value)
    return _seconds("timestamp", value, "datetime, numpy.datetime64 or pyarrow.TimestampScalar")


def _seconds(what: str, value: Any, others: str) -> int:
    if not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{what} must be an int, float, {others}, got {type(value)}")
    seconds: float = value.item() if isinstance(value, np.generic) else value
    if not abs(seconds) <= _MOST_SECONDS:
        raise _not_seconds(seconds)
    return int(seconds) * 1_000_000_000 if isinstance(seconds, int) else round(seconds * 1e9)


def _not_seconds(value: float) -> ValueError:
    likely = " It looks like milliseconds or less." if abs(value) >= _MILLISECONDS_LIKELY else ""
    return ValueError(f"Expected seconds within {_MOST_SECONDS} of zero, but got {value}.{likely}")
