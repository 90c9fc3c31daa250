"""The points of Foxglove's ``PointCloud``: packed numbers, little-endian, at the offsets that the message names."""

from __future__ import annotations

from functools import reduce
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...engine.errors import SelectorError
from ..blobs import blobs
from ..packed_layouts import FOXGLOVE_TYPES, Alike, FieldTable, Layout
from ..packed_points import PackedPoints
from ..selector import lists
from ..selector.type_names import type_name
from .values import channel, enumerated, member, number, texts, whole

_AXES: Final = ("x", "y", "z")
_COLORS: Final = ("red", "green", "blue")
_ALPHA: Final = "alpha"
_OPAQUE: Final = 255


def taken_apart(clouds: pa.Array) -> pa.StructArray:
    """Structs with the points of each cloud.

    ``positions`` are vectors of float32, from the fields x, y and z; ``colors`` are 0xRRGGBBAA, from red, green, blue
    and, where there is one, alpha. Integers are clamped to 0 to 255, other numbers go from 0 to 1. Either is null for
    clouds without these fields. ``readable`` is true for a cloud with positions, and for one without any data.
    """
    data = blobs(member(clouds, "data"))
    steps = whole(clouds, "point_stride", pa.uint32()).to_numpy()
    groups = FieldTable(fields_of(member(clouds, "fields")), steps.astype(np.int64), FOXGLOVE_TYPES).groups()
    filled = [group for group in groups if group.layout is not None and group.layout.step > 0]
    readable = np.diff(lists.offsets_of(data)) == 0
    for group in filled:
        if group.layout is not None and group.layout.has(_AXES):
            readable[group.clouds] = True
    return pa.StructArray.from_arrays(
        [pa.array(readable), PackedPoints(data, filled).vectors(_AXES), colors_of(data, filled)],
        ["readable", "positions", "colors"],
    )


def fields_of(fields: pa.Array) -> pa.ListArray:
    """The fields as a table of layouts takes them, the types as numbers."""
    if not (pa.types.is_list(fields.type) and pa.types.is_struct(fields.type.value_type)):
        raise SelectorError(f"Invalid argument error: expected fields of points, got type {type_name(fields.type)}")
    elements = fields.values
    offsets = number(elements, "offset").cast(pa.uint32())
    codes = enumerated(member(elements, "type")).cast(pa.int32())
    table = pa.StructArray.from_arrays(
        [texts(member(elements, "name")), offsets, codes], ["name", "offset", "datatype"]
    )
    return lists.list_array(table, lists.offsets_of(fields), lists.bitmap_of(fields))


def colors_of(data: pa.ListArray, groups: list[Alike]) -> pa.ListArray:
    """Colours, clouds together whose numbers are of the same types."""
    alike: dict[tuple[str, ...], list[Alike]] = {}
    for group in groups:
        if group.layout is not None and group.layout.has(_COLORS):
            alike.setdefault(_kinds(group.layout), []).append(group)
    columns = [_colors_of(PackedPoints(data, same), len(kinds) > len(_COLORS)) for kinds, same in alike.items()]
    if not columns:
        return pa.nulls(len(data), pa.list_(pa.uint32()))
    return columns[0] if len(columns) == 1 else pc.coalesce(*columns)


def _kinds(layout: Layout) -> tuple[str, ...]:
    fields = [layout.field(name) for name in (*_COLORS, _ALPHA)]
    return tuple(field.kind for field in fields if field is not None)


def _colors_of(points: PackedPoints, has_alpha: bool) -> pa.ListArray:
    columns = [points.numbers(name) for name in (*_COLORS, _ALPHA)[: len(_COLORS) + has_alpha]]
    channels = [_channel(column.values.to_numpy()) for column in columns]
    if not has_alpha:
        channels.append(np.full(len(channels[0]), _OPAQUE, np.uint32))
    rgba = reduce(lambda color, part: (color << np.uint32(8)) | part, channels)
    return lists.list_array(pa.array(rgba), lists.offsets_of(columns[0]), lists.bitmap_of(columns[0]))


def _channel(numbers: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    if numbers.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return channel(numbers * 255.0)
    clamped: npt.NDArray[np.uint32] = np.clip(numbers, 0, 255).astype(np.uint32)
    return clamped
