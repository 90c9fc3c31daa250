"""Selectors for Rerun's numbers and vectors, from fields of messages: what common derivations need no callback for."""

from __future__ import annotations

import pyarrow as pa

from .selector import Selector, pipeline_of, unit_factor
from .selector.parser import parse
from .selector.syntax import Cast, Each, Packed, Pipeline, Scaled, Stage

_XYZ = (".x", ".y", ".z")
_XYZW = (".x", ".y", ".z", ".w")


def scalars(selectors: tuple[Selector | str, ...], unit: float | str | None, to_unit: str | None) -> Pipeline:
    """One float64 for each selector and element, in the order of the selectors."""
    if not selectors:
        raise ValueError("to_scalars requires at least one selector")
    factor = _factor(unit, to_unit)
    if len(selectors) == 1:
        pipeline = pipeline_of(selectors[0]).then_node(Cast(pa.float64()))
        return pipeline if factor == 1.0 else pipeline.then_node(Scaled(factor))
    parts = tuple(pipeline_of(s) for s in selectors)
    packed = Packed(parts, pa.float64(), factor, whole=False, by_position=False)
    return Pipeline((Stage(packed, False), Stage(Each(), True)))


def translation(selectors: tuple[Selector | str, ...], unit: float | str | None, to_unit: str | None) -> Pipeline:
    """Three float32 from three selectors, or from one whose values have fields x, y, z or are lists of three."""
    return _vector("to_translation3d", selectors, _XYZ, _factor(unit, to_unit))


def quaternion(selectors: tuple[Selector | str, ...]) -> Pipeline:
    """Four float32, x y z w, from four selectors, or from one whose values have these fields or are lists of four."""
    return _vector("to_rotation_quat", selectors, _XYZW, 1.0)


def _vector(what: str, selectors: tuple[Selector | str, ...], fields: tuple[str, ...], factor: float) -> Pipeline:
    if len(selectors) == len(fields):
        parts = tuple(pipeline_of(s) for s in selectors)
        return Pipeline((Stage(Packed(parts, pa.float32(), factor, whole=True, by_position=False), False),))
    if len(selectors) != 1:
        raise ValueError(f"{what} takes one selector or {len(fields)}, got {len(selectors)}")
    parts = tuple(parse(f) for f in fields)
    return pipeline_of(selectors[0]).then_node(Packed(parts, pa.float32(), factor, whole=True, by_position=True))


def _factor(unit: float | str | None, to_unit: str | None) -> float:
    if unit is None:
        if to_unit is not None:
            raise ValueError("`to_unit` needs `unit`, the unit of the data")
        return 1.0
    return unit_factor(unit, to_unit)
