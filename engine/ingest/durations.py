"""Durations as people write them."""

from __future__ import annotations

import math
import re
from typing import Final

from ..errors import UsageError

_UNITS: Final = {
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


def seconds_of(duration: float | str) -> float:
    """A duration in seconds. Raises ``UsageError`` for what is none.

    >>> seconds_of("10s"), seconds_of("5 minutes"), seconds_of("1.5h"), seconds_of(0.2)
    (10.0, 300.0, 5400.0, 0.2)
    """
    if isinstance(duration, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", duration.lower())
        unit = None if found is None else _UNITS.get(found[2], _UNITS.get(found[2].removesuffix("s")))
        if found is None or unit is None:
            raise UsageError(f"{duration!r} is no duration", hint="Write it like 500ms, 10s, 5 minutes or 1h.")
        return float(found[1]) * unit
    if not math.isfinite(duration) or duration < 0:
        raise UsageError(f"{duration!r} is no duration", hint="Give seconds, 0 or more.")
    return float(duration)
