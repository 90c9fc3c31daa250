"""A robot as static chunks: frames, poses and geometry of its links. Joints are not among them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ....engine.chunk import Chunk, ComponentDescriptor
from ....engine.chunk.entity_path import join_parts
from ....engine.errors import ReadWarning
from ..file_level.static import BLOB, described, static_chunk
from .appearance import packed_color, quaternion
from .meshes import MeshError, load_mesh
from .model import WHITE, Link, Robot, Shape, Vector

Columns = list[tuple[ComponentDescriptor, pa.Array]]


def robot_chunks(robot: Robot, *, path: str) -> Iterator[Chunk]:
    """The chunks of a robot at ``/<its name>``.

    A mesh that cannot be read is left out with a ``ReadWarning`` that names ``path``; the rest of the robot stays.
    """
    root = [robot.name] if robot.name else []
    yield _frame(join_parts(root), robot.links[0].name)
    for link in robot.links:
        for i, shape in enumerate(link.visuals):
            entity = join_parts([*root, "visual_geometries", link.name, shape.name or f"visual_{i}"])
            yield from _shape_chunks(entity, link, shape, path)
        for i, shape in enumerate(link.collisions):
            name = shape.name or f"collision_{i}"
            entity = join_parts([*root, "collision_geometries", shape.kind, link.name, name])
            yield from _shape_chunks(entity, link, shape, path)


def _shape_chunks(entity: str, link: Link, shape: Shape, path: str) -> Iterator[Chunk]:
    yield static_chunk(entity, _pose(shape))
    yield _frame(entity, link.name)
    try:
        columns = _mesh(shape) if shape.kind == "mesh" else _geometry(shape)
    except MeshError as error:
        warnings.warn(f"{path}: {error}; {entity} has no geometry", ReadWarning, stacklevel=3)
        return
    yield static_chunk(entity, columns)


def _frame(entity: str, frame: str) -> Chunk:
    return static_chunk(
        entity, [(described("CoordinateFrame", "frame", "TransformFrameId"), pa.array([frame], pa.string()))]
    )


def _pose(shape: Shape) -> Columns:
    columns = [
        (described("InstancePoses3D", "translations", "Translation3D"), _vectors(shape.position)),
        (described("InstancePoses3D", "quaternions", "RotationQuat"), _vectors(quaternion(shape.rpy))),
    ]
    if "scale" in shape.numbers:
        columns.append((described("InstancePoses3D", "scales", "Scale3D"), _vectors(shape.numbers["scale"])))
    return columns


def _geometry(shape: Shape) -> Columns:
    numbers = shape.numbers
    if shape.kind == "box":
        archetype = "Boxes3D"
        columns = [(described(archetype, "half_sizes", "HalfSize3D"), _vectors([s / 2 for s in numbers["size"]]))]
    elif shape.kind == "sphere":
        archetype = "Ellipsoids3D"
        columns = [(described(archetype, "half_sizes", "HalfSize3D"), _vectors(numbers["radius"] * 3))]
    else:
        archetype = "Cylinders3D" if shape.kind == "cylinder" else "Capsules3D"
        columns = [
            (described(archetype, "lengths", "Length"), pa.array(numbers["length"], pa.float32())),
            (described(archetype, "radii", "Radius"), pa.array(numbers["radius"], pa.float32())),
        ]
    return [*columns, (described(archetype, "colors", "Color"), _colors(shape.color or WHITE))]


def _mesh(shape: Shape) -> Columns:
    mesh = load_mesh(shape.filename)
    values = pa.Array.from_buffers(pa.uint8(), len(mesh.data), [None, pa.py_buffer(mesh.data)])
    blob = pa.ListArray.from_arrays(pa.array([0, len(mesh.data)], pa.int32()), values).cast(BLOB)
    columns = [
        (described("Asset3D", "blob", "Blob"), blob),
        (described("Asset3D", "media_type", "MediaType"), pa.array([mesh.media_type], pa.string())),
    ]
    if shape.color is not None:
        columns.append((described("Asset3D", "albedo_factor", "AlbedoFactor"), _colors(shape.color)))
    return columns


def _colors(color: Vector) -> pa.Array:
    return pa.array([packed_color(color)], pa.uint32())


def _vectors(values: object) -> pa.Array:
    """One vector as a column of single precision."""
    numbers = np.asarray(values, np.float32)
    item = pa.field("item", pa.float32(), nullable=False)
    return pa.FixedSizeListArray.from_arrays(pa.array(numbers), type=pa.list_(item, len(numbers)))
