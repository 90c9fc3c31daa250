"""``sensor_msgs/PointCloud2``: positions and all other fields of its points as columns."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from ...engine.errors import SelectorError
from ...engine.limits import MAX_POINT_FIELDS
from ..blobs import blobs
from ..packed_layouts import ROS_TYPES, Alike, FieldTable
from ..packed_points import PackedPoints
from ..selector.type_names import type_name

_POSITION: Final = ("x", "y", "z")
_TABLE: Final = {"name": pa.string(), "offset": pa.uint32(), "datatype": pa.uint8(), "count": pa.uint32()}
_FIELD: Final = pa.struct([pa.field(name, kind, nullable=False) for name, kind in _TABLE.items()])


def unpacked(clouds: pa.StructArray) -> pa.StructArray:
    """Clouds taken apart, as structs of

    - ``readable``: whether the layout of the points makes sense (bool), and has not so many new fields that there would
      be more than :data:`~chunkmill.engine.limits.MAX_POINT_FIELDS` of them together;
    - ``positions``: x, y, z as float32, null without these fields, or where points have no bytes;
    - ``fields``: a struct with the numbers of each other field, null for clouds without it or without a position.

    Bytes behind the last whole point are left out, and of fields with several numbers the first is taken.
    """
    big_endian = clouds.field("is_bigendian").to_numpy(zero_copy_only=False)
    steps = clouds.field("point_step").to_numpy(zero_copy_only=False)
    groups = FieldTable(clouds.field("fields"), steps, ROS_TYPES, big_endian).groups()
    readable = np.zeros(len(clouds), bool)
    placed: list[Alike] = []
    names: dict[str, None] = {}
    for group in sorted(groups, key=lambda group: int(group.clouds[0])):
        if group.layout is None:
            continue
        if group.layout.has(_POSITION):
            new = [f.name for f in group.layout.fields if f.name not in names and f.name not in _POSITION]
            if len(names) + len(new) > MAX_POINT_FIELDS:
                continue
            names.update(dict.fromkeys(new))
            placed.append(group)
        readable[group.clouds] = True
    data = blobs(clouds.field("data"))
    positions = PackedPoints(data, [g for g in placed if g.layout is not None and g.layout.step > 0])
    points = PackedPoints(data, placed)
    fields = pa.array([{}] * len(clouds), pa.struct([]))
    if names:
        fields = pa.StructArray.from_arrays([points.numbers(name) for name in names], list(names))
    parts = [pa.array(readable), positions.vectors(_POSITION), fields]
    return pa.StructArray.from_arrays(parts, ["readable", "positions", "fields"])


def field_table(fields: pa.Array) -> pa.ListArray:
    """The descriptions of fields as Rerun has them: nothing in them null. Nothing is copied."""
    inner = fields.values
    columns = [inner.field(name) for name in _TABLE]
    if [c.type for c in columns] != list(_TABLE.values()) or any(c.null_count for c in columns):
        raise SelectorError(f"Invalid argument error: no descriptions of point fields in type {type_name(fields.type)}")
    described = pa.StructArray.from_arrays(columns, fields=list(_FIELD))
    buffers = fields.buffers()[:2]
    kind = pa.list_(pa.field("item", _FIELD))
    return pa.Array.from_buffers(kind, len(fields), buffers, fields.null_count, fields.offset, [described])
