"""``sensor_msgs``: one or a few lenses per message type; also the time and frame that most ROS messages begin with.

Source: https://github.com/ros2/common_interfaces/tree/rolling/sensor_msgs. Each function takes the component
with the decoded messages, such as ``sensor_msgs.msg.Imu:message``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...engine.chunk import ComponentDescriptor, encoding_codes, image_formats, is_depth
from ...engine.errors import SelectorError
from ...engine.limits import MAX_POINT_FIELDS
from .. import archetypes as to
from .. import arrays
from ..arrays import blobs, type_name
from ..lens import DeriveLens
from ..selector import Selector
from ..sensor_layouts import (
    DATA_ENDS_EARLY,
    DATA_GOES_ON,
    MATRIX,
    ROS_TYPES,
    CloudGroup,
    FieldTable,
    Ints,
    PackedPoints,
    cloud_rows,
    element_bytes,
    image_plane,
    image_rows,
    little_endian,
    projections_of,
)
from .compressed_depth import depth_images, png_starts, without_starts

STAMP_TIMELINE: Final = "ros2_timestamp"
"""The timeline of the times in messages' headers."""

FRAME_ID: Final = ".header.frame_id"


def at_stamp(lens: DeriveLens, stamp: str = ".header.stamp") -> DeriveLens:
    """Add the timeline ``ros2_timestamp`` (int64 ns) to the lens, from a stamp of seconds and nanoseconds.

    >>> at_stamp(DeriveLens("sensor_msgs.msg.Imu:message")).timelines[0].name
    'ros2_timestamp'
    """
    return lens.to_timeline(STAMP_TIMELINE, "timestamp_ns", Selector(stamp).nanoseconds())


@lru_cache(maxsize=256)
def stamp_of(message: pa.DataType) -> Selector | None:
    """Return the selector of a message's own time, int64 ns: ``header.stamp``, or ``stamp`` if there is no header.

    Return None for types without a stamp of 32-bit ``sec`` and ``nanosec``; a more deeply nested stamp is not the
    message's time.

    >>> time = pa.struct([("sec", pa.int32()), ("nanosec", pa.uint32())])
    >>> stamp_of(pa.struct([("header", pa.struct([("stamp", time)])), ("speed", pa.float64())]))
    Selector(".header.stamp | <nanoseconds>")
    >>> stamp_of(pa.struct([("times", pa.list_(time))])) is None
    True
    """
    path = ("header", "stamp") if pa.types.is_struct(message) and message.get_field_index("header") >= 0 else ("stamp",)
    for name in path:
        place = message.get_field_index(name) if pa.types.is_struct(message) else -1
        if place < 0:
            return None
        message = message.field(place).type
    if not pa.types.is_struct(message) or any(message.get_field_index(part) < 0 for part in ("sec", "nanosec")):
        return None
    kinds = {message.field(part).type for part in ("sec", "nanosec")}
    return Selector("." + ".".join(path)).nanoseconds() if kinds <= {pa.int32(), pa.uint32()} else None


def own_component(
    message_type: str, field: str, kind: str | None = None, *, prefix: bool = True
) -> ComponentDescriptor:
    """The component of a field that has no place in an archetype; ``kind`` is Rerun's component type, if any.

    >>> str(own_component("sensor_msgs.msg.Imu", "orientation"))
    'sensor_msgs.msg.Imu:orientation'
    >>> str(own_component("sensor_msgs.msg.NavSatFix", "altitude", prefix=False))
    'altitude'
    """
    name = f"{message_type}:{field}" if prefix else field
    return ComponentDescriptor(name, message_type, None if kind is None else f"rerun.components.{kind}")


_POSITION: Final = ("x", "y", "z")
_TABLE: Final = {"name": pa.string(), "offset": pa.uint32(), "datatype": pa.uint8(), "count": pa.uint32()}
_FIELD: Final = pa.struct([pa.field(name, kind, nullable=False) for name, kind in _TABLE.items()])


def _unpacked(clouds: pa.StructArray) -> pa.StructArray:
    """Clouds taken apart, as structs of

    - ``readable`` (bool): whether the layout of the points makes sense, and adds no fields beyond
      :data:`~chunkmill.engine.limits.MAX_POINT_FIELDS` in total;
    - ``short``, ``long``: whether data ends before its last row, or continues after it;
    - ``positions``: x, y, z as float32, null without these fields, or if points have no bytes;
    - ``fields``: a struct with the numbers of each other field, null for clouds without it or without a position.

    Rows have ``width`` points each, ``row_step`` bytes apart. Bytes after the last whole point are left out. Only
    the first number is read from fields with several.
    """
    big_endian = clouds.field("is_bigendian").to_numpy(zero_copy_only=False)
    steps = clouds.field("point_step").to_numpy(zero_copy_only=False)
    groups = FieldTable(clouds.field("fields"), steps, ROS_TYPES, big_endian).groups()
    readable = np.zeros(len(clouds), bool)
    placed: list[CloudGroup] = []
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
    rows = cloud_rows(data, *(_integers(clouds, name) for name in ("width", "height", "point_step", "row_step")))
    data = rows.packed(data)
    positions = PackedPoints(data, [g for g in placed if g.layout is not None and g.layout.step > 0])
    points = PackedPoints(data, placed)
    fields = pa.array([{}] * len(clouds), pa.struct([]))
    if names:
        fields = pa.StructArray.from_arrays([points.numbers(name) for name in names], list(names))
    parts = [pa.array(readable), pa.array(rows.short), pa.array(rows.long), positions.vectors(_POSITION), fields]
    return pa.StructArray.from_arrays(parts, ["readable", "short", "long", "positions", "fields"])


def _integers(values: pa.StructArray, name: str) -> Ints:
    numbers: Ints = pc.fill_null(values.field(name).cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return numbers


def _field_table(fields: pa.Array) -> pa.ListArray:
    """The descriptions of fields in Rerun's type, which allows no nulls. Nothing is copied."""
    inner = fields.values
    columns = [inner.field(name) for name in _TABLE]
    if [c.type for c in columns] != list(_TABLE.values()) or any(c.null_count for c in columns):
        raise SelectorError(f"Invalid argument error: no descriptions of point fields in type {type_name(fields.type)}")
    described = pa.StructArray.from_arrays(columns, fields=list(_FIELD))
    buffers = fields.buffers()[:2]
    kind = pa.list_(pa.field("item", _FIELD))
    return pa.Array.from_buffers(kind, len(fields), buffers, fields.null_count, fields.offset, [described])


RVL: Final = "application/rvl"
"""The media type of depth images in RVL."""

PNG: Final = "image/png"

_H264: Final = 0x61766331
"""Rerun's code of the codec H.264."""

_PICTURE: Final = 1
_VIDEO: Final = 2
_RVL: Final = 3
_DEPTH_16: Final = 4
_DEPTH_32: Final = 5
_UNREADABLE: Final = 0


def _image_formats(images: pa.StructArray) -> pa.StructArray:
    """Rerun's formats of ``sensor_msgs/Image`` by its width, height and encoding; null for unknown encodings."""
    return image_formats(images.field("width"), images.field("height"), encoding_codes(images.field("encoding")))


def _pixels(images: pa.StructArray) -> pa.StructArray:
    """Structs with the pixels of images; all encodings must be known.

    ``buffer`` has them as Rerun does: rows without padding, numbers little-endian. ``short`` is true for data that ends
    before the last row, ``long`` for data that continues after it.
    """
    data = blobs(images.field("data"))
    codes = pc.fill_null(encoding_codes(images.field("encoding")), 0).to_numpy(zero_copy_only=False)
    widths, heights, steps = (_integers(images, name) for name in ("width", "height", "step"))
    rows = image_rows(data, widths, heights, steps, codes)
    big_endian = _integers(images, "is_bigendian") != 0
    buffers = little_endian(rows.packed(data), element_bytes(codes), big_endian)
    return pa.StructArray.from_arrays([buffers, pa.array(rows.short), pa.array(rows.long)], ["buffer", "short", "long"])


def _is_colour(encodings: pa.Array) -> pa.Array:
    """Return, for each encoding (string), whether its images are in colour or YUV."""
    return pc.fill_null(pc.invert(is_depth(encoding_codes(encodings))), False)


def _is_depth(encodings: pa.Array) -> pa.Array:
    """Return, for each encoding (string), whether its images have one channel, which is shown as depth."""
    return pc.fill_null(is_depth(encoding_codes(encodings)), False)


def _compressed(images: pa.StructArray) -> pa.StructArray:
    """Structs with the kind and data of each ``sensor_msgs/CompressedImage``, by its ``format``.

    ``is_picture``: a whole file, such as JPEG or PNG; ``is_video``: H.264; ``is_encoded_depth``: a depth image in RVL
    or PNG, as compressed_depth_image_transport writes them; ``is_depth``: a float32 depth image in PNG, which is
    decoded. None of these is true for ``compressedDepth`` that cannot be read. ``blob`` has the bytes, without the
    transport's header for PNG; ``media_type`` is for encoded depth images, ``depth`` for decoded ones.
    """
    coded = images.field("format").dictionary_encode()  # each distinct format is parsed once
    by_text = np.array([_kind_of(text) for text in coded.dictionary.to_pylist()], np.int8)
    kinds = by_text[coded.indices.to_numpy(zero_copy_only=False)] if len(images) else np.zeros(0, np.int8)
    data = blobs(images.field("data"))
    depth_16 = np.flatnonzero(kinds == _DEPTH_16)
    starts = png_starts(data, depth_16)
    kinds[depth_16[starts < 0]] = _UNREADABLE
    depth = depth_images(data, np.flatnonzero(kinds == _DEPTH_32))
    kinds[(kinds == _DEPTH_32) & ~depth.field("buffer").is_valid().to_numpy(zero_copy_only=False)] = _UNREADABLE
    flags = [kinds == _PICTURE, kinds == _VIDEO, (kinds == _RVL) | (kinds == _DEPTH_16), kinds == _DEPTH_32]
    media_types = pa.array(np.where(kinds == _RVL, RVL, PNG), pa.string())
    return pa.StructArray.from_arrays(
        [*map(pa.array, flags), without_starts(data, depth_16, np.maximum(starts, 0)), media_types, depth],
        ["is_picture", "is_video", "is_encoded_depth", "is_depth", "blob", "media_type", "depth"],
    )


def _kind_of(text: str) -> int:
    """The kind for a text such as ``jpeg``, ``rgb8; png compressed bgr8`` or ``16UC1; compressedDepth RVL``."""
    encoding, _, transport = text.lower().partition(";")
    if encoding == "h264":
        return _VIDEO if not transport else _PICTURE
    _, depth, codec = transport.partition("compresseddepth")
    if not depth:
        return _PICTURE
    if "rvl" in codec:
        return _RVL if encoding.strip() else _UNREADABLE
    return _PNG_KINDS.get(encoding.strip(), _UNREADABLE)


_PNG_KINDS: Final = {"16uc1": _DEPTH_16, "mono16": _DEPTH_16, "32fc1": _DEPTH_32}
"""The kinds of ``compressedDepth`` PNGs by encoding, in lower case."""


_IMAGE_FRAME = Selector(FRAME_ID).pipe(image_plane)


def imu(message: str) -> DeriveLens:
    """``Imu``: angular velocity (rad/s) and linear acceleration (m/s²) as six series, and the orientation."""
    turn, pull, pose = ".angular_velocity", ".linear_acceleration", ".orientation"
    orientation = Selector.pack(f"{pose}.x", f"{pose}.y", f"{pose}.z", f"{pose}.w", type="float64").pipe(Selector("[]"))
    return (
        at_stamp(DeriveLens(message))
        .to_component(to.COORDINATE_FRAME, FRAME_ID)
        .to_scalars(
            *(f"{field}.{axis}" for field in (turn, pull) for axis in "xyz"),
            names=[f"{sensor}/{axis}" for sensor in ("gyroscope", "accelerometer") for axis in "xyz"],
        )
        .to_component(own_component("sensor_msgs.msg.Imu", "orientation"), orientation)
    )


def series(message: str, fields: Sequence[str]) -> DeriveLens:
    """A series for each of the named fields: ``Range``, ``BatteryState``."""
    return at_stamp(DeriveLens(message)).to_scalars(*(f".{field}" for field in fields), names=fields)


def measurement(message: str, field: str, unit: str | None) -> DeriveLens:
    """A measured number: ``Temperature``, ``FluidPressure``, ``RelativeHumidity``, ``Illuminance``.

    Only the value is a series, named with its unit: a variance on the same axis would flatten the value's curve. The
    value, its variance and its unit are also stored as in Rerun's archetype ``Measurements`` (Rerun 0.41 and newer).
    """
    lens = (
        at_stamp(DeriveLens(message))
        .to_component(to.COORDINATE_FRAME, FRAME_ID)
        .to_scalars(f".{field}", names=[field if unit is None else f"{field} ({unit})"])
        .to_component(to.MEASUREMENT_VALUES, Selector(f".{field}").cast("float64"))
        .to_component(to.MEASUREMENT_VARIANCES, Selector(".variance").cast("float64"))
    )
    return lens if unit is None else lens.to_constant(to.MEASUREMENT_UNITS, [unit])


def magnetic_field(message: str) -> DeriveLens:
    """``MagneticField``: an arrow (tesla)."""
    field = ".magnetic_field"
    return (
        at_stamp(DeriveLens(message))
        .to_component(to.COORDINATE_FRAME, FRAME_ID)
        .to_component(to.ARROW_VECTORS, Selector.pack(f"{field}.x", f"{field}.y", f"{field}.z"))
    )


def nav_sat_fix(message: str) -> DeriveLens:
    """``NavSatFix``: a point on the map (degrees), and its altitude (m)."""
    return (
        at_stamp(DeriveLens(message))
        .to_component(to.COORDINATE_FRAME, FRAME_ID)
        .to_component(to.GEO_POSITIONS, Selector.pack(".latitude", ".longitude", type="float64"))
        .to_component(own_component("sensor_msgs.msg.NavSatFix", "altitude", prefix=False), ".altitude")
    )


def joint_state(message: str) -> tuple[DeriveLens, ...]:
    """``JointState``: a series for each joint; positions, velocities and efforts are at separate child entities."""
    return (
        *(
            at_stamp(DeriveLens(message, output_child=field))
            .to_scalars(f".{field}[]")
            .to_component(to.SERIES_NAMES, ".name[]")
            for field in ("position", "velocity", "effort")
        ),
        at_stamp(DeriveLens(message)).to_component(to.COORDINATE_FRAME, FRAME_ID),
    )


def joy(message: str) -> tuple[DeriveLens, ...]:
    """``Joy``: a series for each axis and each button, at two child entities."""
    return (
        *(at_stamp(DeriveLens(message, output_child=f)).to_scalars(f".{f}[]") for f in ("axes", "buttons")),
        at_stamp(DeriveLens(message)).to_component(to.COORDINATE_FRAME, FRAME_ID),
    )


def image(message: str) -> tuple[DeriveLens, ...]:
    """``Image``: an image, or a depth image if its encoding has one channel.

    Its buffer is little-endian and has no padding of rows (``step``).
    """
    encoding, pixels, layout = Selector(".encoding"), Selector(".").pipe(_pixels), Selector(".").pipe(_image_formats)
    stamped, unknown = at_stamp(DeriveLens(message)), "Rerun has no format for its encoding"
    colour = stamped.where(encoding.pipe(_is_colour), otherwise=unknown)
    depth = stamped.where(encoding.pipe(_is_depth), otherwise=unknown)
    return tuple(
        lens.to_component(to.COORDINATE_FRAME, _IMAGE_FRAME)
        .to_component(buffer, pixels.pipe(Selector(".buffer")))
        .to_component(form, layout)
        .remark(pixels.pipe(Selector(".short")), DATA_ENDS_EARLY)
        .remark(pixels.pipe(Selector(".long")), DATA_GOES_ON)
        for lens, buffer, form in (
            (colour, to.IMAGE_BUFFER, to.IMAGE_FORMAT),
            (depth, to.DEPTH_BUFFER, to.DEPTH_FORMAT),
        )
    )


def compressed_image(message: str) -> tuple[DeriveLens, ...]:
    """``CompressedImage``: an encoded image, a depth image, encoded or not, or a sample of H.264 video."""
    image = Selector(".").pipe(_compressed)

    def where(kind: str) -> DeriveLens:
        condition = image.pipe(Selector(f".{kind}"))
        return DeriveLens(message).where(condition, otherwise="its compressedDepth cannot be read")

    blob, depth = image.pipe(Selector(".blob")), image.pipe(Selector(".depth"))
    lenses = (
        where("is_picture").to_component(to.ENCODED_IMAGE_BLOB, blob),
        where("is_encoded_depth")
        .to_component(to.ENCODED_DEPTH_BLOB, blob)
        .to_component(to.ENCODED_DEPTH_MEDIA_TYPE, image.pipe(Selector(".media_type"))),
        where("is_depth")
        .to_component(to.DEPTH_BUFFER, depth.pipe(Selector(".buffer")))
        .to_component(to.DEPTH_FORMAT, depth.pipe(Selector(".format"))),
        where("is_video")
        .to_component(to.VIDEO_SAMPLE, blob)
        .to_constant(to.VIDEO_CODEC, pa.array([_H264], pa.uint32())),
    )
    return tuple(at_stamp(lens).to_component(to.COORDINATE_FRAME, _IMAGE_FRAME) for lens in lenses)


def camera_info(message: str) -> DeriveLens:
    """``CameraInfo``: a pinhole camera from ``k``, between the camera's frame and its image's frame (pixels)."""
    return (
        at_stamp(DeriveLens(message))
        .where(Selector(".").pipe(_has_nine), otherwise="its k does not have nine numbers")
        .to_component(to.COORDINATE_FRAME, FRAME_ID)
        .to_component(to.PINHOLE_PARENT_FRAME, FRAME_ID)
        .to_component(to.PINHOLE_CHILD_FRAME, _IMAGE_FRAME)
        .to_component(to.PINHOLE_RESOLUTION, Selector.pack(".width", ".height"))
        .to_component(to.PINHOLE_PROJECTION, Selector(".").pipe(_by_column))
    )


def point_cloud(message: str) -> DeriveLens:
    """``PointCloud2``: positions, a component for each other field of the points, and the message as it is."""
    cloud = Selector(".").pipe(_unpacked)
    lens = (
        at_stamp(DeriveLens(message))
        .where(cloud.pipe(Selector(".readable")), otherwise="its fields do not fit its points")
        .to_component(to.COORDINATE_FRAME, FRAME_ID)
        .to_component(to.POINT_POSITIONS, cloud.pipe(Selector(".positions[]")))
        .to_components("Points3D:", cloud.pipe(Selector(".fields")), archetype="rerun.archetypes.Points3D")
        .to_component(own_component(_CLOUD, "data", "Blob"), Selector(".data").pipe(blobs), nullable=False)
        .to_component(own_component(_CLOUD, "fields"), Selector(".fields").pipe(_field_table))
    )
    for field in ("height", "width", "point_step", "row_step", "is_bigendian", "is_dense"):
        lens = lens.to_component(own_component(_CLOUD, field), f".{field}")
    short, long = (cloud.pipe(Selector(f".{name}")) for name in ("short", "long"))
    return lens.remark(short, DATA_ENDS_EARLY).remark(long, DATA_GOES_ON)


_CLOUD = "sensor_msgs.msg.PointCloud2"


def _intrinsics(cameras: pa.StructArray) -> pa.ListArray | None:
    """``k``, row by row, which ROS 1 calls ``K``."""
    name = next((name for name in ("k", "K") if cameras.type.get_field_index(name) >= 0), None)
    return None if name is None else cameras.field(name)


def _has_nine(cameras: pa.StructArray) -> pa.Array | None:
    k = _intrinsics(cameras)
    return None if k is None else pa.array(np.diff(arrays.offsets_of(k)) == MATRIX)


def _by_column(cameras: pa.StructArray) -> pa.Array | None:
    """Rerun stores matrices column by column."""
    k = _intrinsics(cameras)
    if k is None:
        return None
    return projections_of(k.flatten().to_numpy(zero_copy_only=False))
