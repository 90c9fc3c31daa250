"""Functions of the benchmarks of computed columns, as every side calls them. They need numpy and pyarrow alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SIDE = 256
"""Pixels of an image's side: 64 kB, one byte each."""
_ARM = ((0.34, 0.0, -1.57), (0.0, 0.4, 0.0), (0.0, 0.4, 0.0), (0.12, 0.0, 1.57), (0.1, 0.0, -1.57), (0.08, 0.0, 0.0))
"""Offset and length in metres, and twist, of the links of an arm."""


def manipulability(q1: pa.Array, q2: pa.Array, q3: pa.Array, q4: pa.Array, q5: pa.Array, q6: pa.Array) -> pa.Array:
    """How freely an arm of six joints can move its tool (Yoshikawa, 1985): the root of the determinant of J J'.

    Some 0.5 µs a row: the kinematics of the arm, and its Jacobian.
    """
    rows = len(q1)
    x, y, z = (np.tile(np.eye(3)[axis][:, None], rows) for axis in range(3))
    place = np.zeros((3, rows))
    axes, places = [], []
    for angle, (offset, length, twist) in zip((q1, q2, q3, q4, q5, q6), _ARM, strict=True):
        axes.append(z)
        places.append(place)
        turn = angle.to_numpy(zero_copy_only=False)
        c, s = np.cos(turn), np.sin(turn)
        x, side = x * c + y * s, y * c - x * s
        place = place + x * length + z * offset
        y, z = side * math.cos(twist) + z * math.sin(twist), z * math.cos(twist) - side * math.sin(twist)
    columns = [np.cross(axis, place - from_, axis=0) for axis, from_ in zip(axes, places, strict=True)]
    xx, yy, zz, xy, xz, yz = (
        sum(column[i] * column[j] for column in columns) for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
    )
    determinant = xx * (yy * zz - yz * yz) - xy * (xy * zz - yz * xz) + xz * (xy * yz - yy * xz)
    return pa.array(np.sqrt(np.maximum(determinant, 0.0)))


def sharpness_of(image: bytes | memoryview) -> float:
    """The variance of an image's Laplacian, by which blurred images are found; some 0.2 ms."""
    pixels = np.frombuffer(image, np.uint8).reshape(SIDE, SIDE).astype(np.float32)
    edges = pixels[:-2, 1:-1] + pixels[2:, 1:-1] + pixels[1:-1, :-2] + pixels[1:-1, 2:] - 4 * pixels[1:-1, 1:-1]
    return float(edges.var())


def sharpness(blob: pa.Array) -> pa.Array:
    """The sharpness of each of some images."""
    return pa.array([sharpness_of(image.as_buffer()) for image in blob], pa.float64())


def tilt(x: float, y: float, z: float, w: float) -> float:
    """The angle of a robot's mast to the vertical, of its orientation, in degrees; some 1 µs a row."""
    length = math.sqrt(x * x + y * y + z * z + w * w)
    if length < 1e-9:
        return math.nan
    x, y, z, w = x / length, y / length, z / length, w / length
    roll = math.atan2(2.0 * (w * x + y * z), 1.0 - 2.0 * (x * x + y * y))
    pitch = math.asin(max(-1.0, min(1.0, 2.0 * (w * y - z * x))))
    return round(math.degrees(math.acos(max(-1.0, min(1.0, math.cos(roll) * math.cos(pitch))))), 3)


def tilts(x: pa.Array, y: pa.Array, z: pa.Array, w: pa.Array) -> pa.Array:
    """:func:`tilt` in a loop over rows."""
    return pa.array([tilt(*row) for row in zip(*(column.to_numpy().tolist() for column in (x, y, z, w)), strict=True)])


def third(a: float) -> float:
    """A function of rows that takes less than to call it."""
    return a / 3.0


def thirds(a: pa.Array) -> pa.Array:
    """:func:`third` in a loop over rows."""
    return pa.array([third(value) for value in a.to_numpy().tolist()])


def one_more(a: pa.Array) -> pa.Array:
    """A function that takes 1 ms in all."""
    return pc.add(a, 1.0)


def light(a: pa.Array) -> pa.Array:
    """A function of 60 ns a row: less than to start any other process takes."""
    x = np.asarray(a)
    for _ in range(3):
        x = np.sin(x) + np.log1p(np.abs(x))
    return pa.array(x)


class Case(NamedTuple):
    """A function of whole columns, the names of these, the ratio to Lance that is held, and how often rows are fewer.

    ``of_row`` is the function that chunkmill calls row by row, where the other is a loop over it.
    """

    function: Callable[..., pa.Array]
    columns: tuple[str, ...]
    bar: float | None
    fewer: int = 1
    of_row: Callable[..., float] | None = None


CASES = {
    "vectorised": Case(manipulability, ("q1", "q2", "q3", "q4", "q5", "q6"), 0.7),
    "blobs": Case(sharpness, ("blob",), 0.7, fewer=80),
    "scalar": Case(tilts, ("x", "y", "z", "w"), 0.6, of_row=tilt),
    "trivial": Case(one_more, ("a",), 1.5),
    "light": Case(light, ("a",), None),
    "light rows": Case(thirds, ("a",), None, of_row=third),
}
