"""Fields of Foxglove's messages as Rerun's components hold them: each function for a whole column at a time.

The same messages come encoded as protobuf, JSON, ROS or FlatBuffers, so that an enumerated value may be a number or a
struct with its name, a stamp's fraction ``nanos`` or ``nsec``, and bytes binary or a list.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...engine.errors import SelectorError
from ..selector import conversion, lists
from ..selector.type_names import type_name

CODECS: Final = MappingProxyType(
    {"h264": 0x61766331, "h265": 0x68657631, "av1": 0x61763031, "vp8": 0x76703038, "vp9": 0x76703039}
)
"""Rerun's ``VideoCodec`` for the formats of ``CompressedVideo``: the four characters that MP4 has for them."""

_IMAGE_PLANE: Final = "_image_plane"
_MATRIX_FIELDS: Final = ("K", "k")
_TRANSPOSED: Final = [0, 3, 6, 1, 4, 7, 2, 5, 8]


def stamps(values: pa.Array) -> pa.Array:
    """Stamps as int64 nanoseconds; 0 for one that was not set."""
    if pa.types.is_null(values.type):
        return pa.array(np.zeros(len(values), np.int64))
    try:
        return pc.fill_null(conversion.nanoseconds(values), 0)
    except pa.ArrowInvalid as error:
        raise SelectorError("a time lies beyond what 64 bits of nanoseconds hold") from error


def image_planes(frames: pa.Array) -> pa.Array:
    """The frames of the images of the cameras in ``frames``; one without a name stays without."""
    frames = texts(frames)
    return pc.if_else(pc.equal(frames, ""), frames, pc.binary_join_element_wise(frames, _IMAGE_PLANE, ""))


def texts(values: pa.Array) -> pa.Array:
    """Strings as they are. Raises :class:`SelectorError` for another type, unless all is null."""
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), pa.string())
    if not pa.types.is_string(values.type):
        raise SelectorError(f"Invalid argument error: expected text, got type {type_name(values.type)}")
    return values


def media_types(formats: pa.Array) -> pa.Array:
    """``image/jpeg`` for ``jpeg``."""
    return pc.binary_join_element_wise("image/", texts(formats), "")


def is_codec(formats: pa.Array) -> pa.Array:
    """Tell, for each format of a video, whether it is known."""
    return pc.is_in(pc.utf8_lower(texts(formats)), pa.array(list(CODECS)))


def codecs(formats: pa.Array) -> pa.Array:
    """Formats of videos as Rerun's codecs, uint32; null for unknown ones."""
    places = pc.index_in(pc.utf8_lower(texts(formats)), pa.array(list(CODECS)))
    return pa.array(list(CODECS.values()), pa.uint32()).take(places)


def levels(values: pa.Array) -> pa.Array:
    """Levels of log messages by Rerun's names; null for an unknown one."""
    if pa.types.is_string(values.type):
        return _levels().take(pc.index_in(values, _level_names()))
    return _levels().take(pc.index_in(enumerated(values).cast(pa.int64()), _level_codes()))


@cache
def _level_names() -> pa.Array:
    return pa.array(["UNKNOWN", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"])


@cache
def _level_codes() -> pa.Array:
    return pa.array(range(len(_level_names())), pa.int64())


@cache
def _levels() -> pa.Array:
    return pa.array([None, "DEBUG", "INFO", "WARN", "ERROR", "CRITICAL"])


def vectors(values: pa.Array) -> pa.FixedSizeListArray:
    """Structs of x, y, z as vectors of float32; a coordinate that is not set is null."""
    return packed(values, ("x", "y", "z"))


def quaternions(values: pa.Array) -> pa.FixedSizeListArray:
    """Structs of x, y, z, w as quaternions of float32; a part that is not set is null."""
    return packed(values, ("x", "y", "z", "w"))


def coordinates(fixes: pa.Array) -> pa.FixedSizeListArray:
    """Latitude and longitude of structs that have them, float64."""
    return packed(fixes, ("latitude", "longitude"), np.float64)


def resolutions(calibrations: pa.Array) -> pa.FixedSizeListArray:
    """Width and height of structs that have them, float32."""
    return packed(calibrations, ("width", "height"))


def packed(values: pa.Array, names: Sequence[str], kind: type[np.floating[Any]] = np.float32) -> pa.FixedSizeListArray:
    """The named numbers of each struct as one vector. What is not set is null, and what is null has no field here."""
    numbers = np.empty((len(values), len(names)), kind)
    missing = np.zeros((len(values), len(names)), bool)
    with np.errstate(over="ignore"):
        for i, name in enumerate(names):
            column = number(values, name)
            if column.null_count:
                missing[:, i] = ~column.is_valid().to_numpy(zero_copy_only=False)
                column = pc.fill_null(column, 0)
            numbers[:, i] = column.to_numpy(zero_copy_only=False)
    flat = pa.array(numbers.reshape(-1), mask=missing.reshape(-1) if missing.any() else None)
    item = pa.field("item", flat.type, nullable=bool(missing.any()))
    return pa.Array.from_buffers(pa.list_(item, len(names)), len(values), [None], children=[flat])


def number(values: pa.Array, name: str) -> pa.Array:
    """A field of structs that holds numbers, null where the struct is.

    Raises :class:`SelectorError` where there is no such field, or it holds something else.
    """
    return _numbers(member(values, name), name)


def whole(values: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    """A field of structs as integers of a type, 0 where it is null; else as :func:`number`."""
    column = conversion.cast(number(values, name), kind)
    return pc.fill_null(column, 0) if column.null_count else column


def enumerated(values: pa.Array) -> pa.Array:
    """Enumerated values, numbers or structs that name them, as numbers. Raises :class:`SelectorError` for others."""
    return number(values, "value") if pa.types.is_struct(values.type) else _numbers(values, "enumerated values")


def _numbers(column: pa.Array, name: str) -> pa.Array:
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.float64())
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise SelectorError(f"Invalid argument error: expected numbers in `{name}`, got type {type_name(column.type)}")
    return column


def member(values: pa.Array, *names: str) -> pa.Array:
    """The first field of structs by one of these names, null where the struct is; :class:`SelectorError` for none."""
    kind = values.type
    found = [name for name in names if pa.types.is_struct(kind) and len(kind.get_all_field_indices(name)) == 1]
    if not found:
        raise SelectorError(f"Invalid argument error: no field `{' or '.join(names)}` in type {type_name(kind)}")
    if values.null_count == 0:
        return values.field(found[0])
    return pc.struct_field(values, [found[0]])


def colors(values: pa.Array) -> pa.Array:
    """Structs of r, g, b, a (0 to 1) as 0xRRGGBBAA; null where the struct is."""
    rgba = np.zeros(len(values), np.uint32)
    for shift, name in ((24, "r"), (16, "g"), (8, "b"), (0, "a")):
        parts = pc.fill_null(number(values, name).cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
        rgba |= channel(parts * 255.0) << np.uint32(shift)
    valid = lists.validity_of(values)
    return pa.array(rgba, mask=None if valid is None else ~valid)


def channel(parts: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.uint32]:
    """Numbers rounded to 0 to 255, clamped; 0 for what is none."""
    rounded = np.floor(np.nan_to_num(parts, nan=0.0, posinf=255.0, neginf=0.0) + 0.5)
    found: npt.NDArray[np.uint32] = np.clip(rounded, 0, 255).astype(np.uint32)
    return found


def is_calibrated(calibrations: pa.Array) -> pa.Array:
    """Tell, for each camera calibration, whether it has a 3x3 intrinsic matrix: nine numbers in ``K``."""
    matrices = member(calibrations, *_MATRIX_FIELDS)
    if not (pa.types.is_list(matrices.type) or pa.types.is_fixed_size_list(matrices.type)):
        raise SelectorError(f"Invalid argument error: no list of numbers in `K`, got {type_name(matrices.type)}")
    elements, offsets = lists.grouped(matrices, hidden=False)
    there = np.zeros(len(elements) + 1, np.int64)
    np.cumsum(elements.is_valid(), out=there[1:])
    counts = there[offsets[1:]] - there[offsets[:-1]]
    return pa.array((counts == len(_TRANSPOSED)) & (np.diff(offsets) == counts))


def projections(calibrations: pa.Array) -> pa.FixedSizeListArray:
    """The intrinsic matrices of camera calibrations, by column, float32; all must be calibrated."""
    matrices = member(calibrations, *_MATRIX_FIELDS)
    if not pc.all(is_calibrated(calibrations), min_count=0).as_py():
        raise SelectorError("Invalid argument error: expected nine numbers in `K`")
    numbers = conversion.cast(lists.flattened(matrices), pa.float64()).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        by_column = numbers.reshape(-1, len(_TRANSPOSED))[:, _TRANSPOSED].astype(np.float32)
    item = pa.field("item", pa.float32(), nullable=False)
    flat = pa.array(by_column.reshape(-1))
    return pa.Array.from_buffers(pa.list_(item, len(_TRANSPOSED)), len(matrices), [None], children=[flat])
