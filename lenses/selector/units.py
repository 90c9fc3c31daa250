"""Units and their factors to the SI unit of their kind."""

from __future__ import annotations

import math
from fractions import Fraction
from types import MappingProxyType

_DEGREE = math.pi / 180

_EXACT = {
    "length": "m 1, mm 1/1000, cm 1/100, km 1000, um 1/1000000, in 0.0254, ft 0.3048, yd 0.9144, mi 1609.344, nmi 1852",
    "time": "s 1, ms 1/1000, us 1/1000000, ns 1/1000000000, min 60, h 3600",
    "velocity": "m/s 1, mm/s 1/1000, km/h 5/18, mph 0.44704, kn 463/900, ft/s 0.3048",
    "acceleration": "m/s2 1, g 9.80665, mg 0.00980665",
    "mass": "kg 1, lb 0.45359237, t 1000",
    "magnetic flux density": "T 1, mT 1/1000, uT 1/1000000, nT 1/1000000000, G 1/10000",
    "pressure": "Pa 1, hPa 100, kPa 1000, mbar 100, bar 100000, psi 6894.757293168",
    "voltage": "V 1, mV 1/1000",
    "current": "A 1, mA 1/1000",
}

UNITS: MappingProxyType[str, dict[str, Fraction | float]] = MappingProxyType(
    {
        **{kind: {n: Fraction(f) for n, f in (u.split(" ") for u in row.split(", "))} for kind, row in _EXACT.items()},
        "angle": {"rad": 1.0, "deg": _DEGREE, "mrad": 1e-3, "rev": 360 * _DEGREE},
        "angular velocity": {"rad/s": 1.0, "deg/s": _DEGREE, "rpm": 6 * _DEGREE},
    }
)
"""Factors to the SI unit, by kind: exact wherever they are rational."""


def unit_factor(unit: float | str, to: str | None = None) -> float:
    """What to multiply by to get from ``unit`` to ``to`` (the SI unit, if None); a number is the factor itself.

    Raises ``ValueError`` for a unit that is not known, or of another kind than ``to``.

    >>> unit_factor("km"), unit_factor("deg", "deg"), unit_factor("m/s", "km/h")
    (1000.0, 1.0, 3.6)
    """
    if not isinstance(unit, str):
        if to is not None:
            raise ValueError("a factor given as a number has no unit to convert to")
        return float(unit)
    kind = _kind(unit)
    if to is None:
        return float(UNITS[kind][unit])
    if _kind(to) != kind:
        raise ValueError(f"{unit!r} is a unit of {kind}, and {to!r} one of {_kind(to)}")
    return float(UNITS[kind][unit] / UNITS[kind][to])


def _kind(unit: str) -> str:
    for kind, factors in UNITS.items():
        if unit in factors:
            return kind
    known = ", ".join(name for factors in UNITS.values() for name in factors)
    raise ValueError(f"Unknown unit {unit!r}, expected a number or one of {known}")
