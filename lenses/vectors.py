"""Selectors for Rerun's numbers and vectors, from fields of messages: what common derivations need no callback for."""

from __future__ import annotations

import pyarrow as pa

from ..engine.errors import check_argument
from .selector import Selector, pipeline_of, unit_factor
from .selector.parser import parse
from .selector.syntax import Cast, Each, Packed, Pipeline, Scaled, Stage

_XYZ = (".x", ".y", ".z")
_XYZW = (".x", ".y", ".z", ".w")
_AXIS = pa.list_(pa.field("item", pa.float32(), nullable=False), 3)


def field_query(path: str) -> str:
    """The query of a field that is named without its dot, ``pose.x``; a query stays as it is.

    >>> field_query("pose.x"), field_query(".pose.x"), field_query('"text" | .')
    ('.pose.x', '.pose.x', '"text" | .')
    """
    check_argument("field", path, str)
    return f".{path}" if path[:1].isalpha() and not path.startswith(("map(", "pack(")) else path


def axis_angles(rotations: pa.FixedSizeListArray) -> pa.StructArray:
    """Rotations about an axis, from lists of four float32: the axis and the angle in radians. A null one stays null."""
    numbers = rotations.fill_null([0.0] * 4) if rotations.null_count else rotations
    flat = numbers.flatten().to_numpy().reshape(-1, 4)
    axis = pa.FixedSizeListArray.from_arrays(pa.array(flat[:, :3].reshape(-1)), type=_AXIS)
    mask = rotations.is_null() if rotations.null_count else None
    fields = [pa.field("axis", _AXIS, nullable=False), pa.field("angle", pa.float32(), nullable=False)]
    return pa.StructArray.from_arrays([axis, pa.array(flat[:, 3])], fields=fields, mask=mask)


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
