"""Units and their factors to the SI unit of their kind."""

from __future__ import annotations

import math
from types import MappingProxyType

UNITS = MappingProxyType(
    {
        "length": {
            "m": 1.0, "mm": 1e-3, "cm": 1e-2, "km": 1e3, "um": 1e-6, "in": 0.0254, "ft": 0.3048, "yd": 0.9144,
            "mi": 1609.344, "nmi": 1852.0,
        },
        "angle": {"rad": 1.0, "deg": math.pi / 180, "mrad": 1e-3, "rev": 2 * math.pi},
        "angular velocity": {"rad/s": 1.0, "deg/s": math.pi / 180, "rpm": 2 * math.pi / 60},
        "time": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0},
        "velocity": {"m/s": 1.0, "mm/s": 1e-3, "km/h": 1 / 3.6, "mph": 0.44704, "kn": 1852 / 3600, "ft/s": 0.3048},
        "acceleration": {"m/s2": 1.0, "g": 9.80665, "mg": 9.80665e-3},
        "mass": {"kg": 1.0, "lb": 0.45359237, "t": 1e3},
        "magnetic flux density": {"T": 1.0, "mT": 1e-3, "uT": 1e-6, "nT": 1e-9, "G": 1e-4},
        "pressure": {"Pa": 1.0, "hPa": 100.0, "kPa": 1e3, "mbar": 100.0, "bar": 1e5, "psi": 6894.757293168},
        "voltage": {"V": 1.0, "mV": 1e-3},
        "current": {"A": 1.0, "mA": 1e-3},
    }
)  # fmt: skip
"""Factors to the first unit of each kind."""


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
        return UNITS[kind][unit]
    if _kind(to) != kind:
        raise ValueError(f"{unit!r} is a unit of {kind}, and {to!r} one of {_kind(to)}")
    return UNITS[kind][unit] / UNITS[kind][to]


def _kind(unit: str) -> str:
    for kind, factors in UNITS.items():
        if unit in factors:
            return kind
    known = ", ".join(name for factors in UNITS.values() for name in factors)
    raise ValueError(f"Unknown unit {unit!r}, expected a number or one of {known}")
