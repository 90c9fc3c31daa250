"""Decoded ROS messages for tests, as chunks, and what mappings make of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from chunkmill.engine.chunk import Chunk, ComponentColumn, ComponentDescriptor, TimeColumn
from chunkmill.lenses import LensSet
from chunkmill.lenses.ros2 import ros2_lenses

STAMP = pa.struct([("sec", pa.int32()), ("nanosec", pa.uint32())])
HEADER = pa.struct([("stamp", STAMP), ("frame_id", pa.string())])
VECTOR = pa.struct([(axis, pa.float64()) for axis in "xyz"])
QUATERNION = pa.struct([(axis, pa.float64()) for axis in "xyzw"])
BYTES = pa.list_(pa.uint8())
DOUBLES = pa.list_(pa.float64())

LOG_TIMES = "message_log_time"
STAMPS = "ros2_timestamp"


def header(i: int = 0, frame: str = "base") -> dict[str, Any]:
    """A header at ``i`` seconds and 5 ns."""
    return {"stamp": {"sec": i, "nanosec": 5}, "frame_id": frame}


def vector(*xyz: float) -> dict[str, float]:
    return dict(zip("xyzw", xyz, strict=False))


def message(fields: dict[str, pa.DataType], *, stamped: bool = True) -> pa.StructType:
    return pa.struct({**({"header": HEADER} if stamped else {}), **fields})


def chunk(name: str, kind: pa.DataType, rows: list[dict[str, Any]], topic: str = "/t") -> Chunk:
    """Messages of the type ``name`` at log times 0, 10, 20, …"""
    column = pa.array([[row] for row in rows], pa.list_(kind))
    times = [TimeColumn(LOG_TIMES, timestamp=pa.array(range(0, 10 * len(rows), 10), pa.timestamp("ns")))]
    descriptor = ComponentDescriptor(f"{name.replace('::', '.').replace('/', '.')}:message")
    return Chunk.from_columns(topic, times, [ComponentColumn(descriptor, column)])


def mapped(name: str, kind: pa.DataType, rows: list[dict[str, Any]], topic: str = "/t") -> list[Chunk]:
    """The chunks that the mapping of ``name`` makes of the rows, without empty ones. Raises where a lens fails."""
    lenses = LensSet(ros2_lenses(name, topic), "forward_unmatched")
    return [c for c in lenses.apply(chunk(name, kind, rows, topic)) if c.num_rows]


def columns(chunks: list[Chunk], entity: str = "/t") -> dict[str, list[Any]]:
    """All cells at an entity by component, chunks one after the other."""
    found: dict[str, list[Any]] = {}
    for made in chunks:
        if made.entity_path == entity:
            for component in made.data.components:
                found.setdefault(component.descriptor.component, []).extend(component.values.to_pylist())
    return found


def times(chunks: list[Chunk], timeline: str = STAMPS) -> list[int]:
    """The times of a timeline, of all chunks that have it."""
    return [t for c in chunks for line in c.data.timelines if line.name == timeline for t in line.ticks.tolist()]


def types(chunks: list[Chunk]) -> dict[str, str]:
    """Arrow types by component."""
    return {c.descriptor.component: str(c.values.type) for made in chunks for c in made.data.components}
