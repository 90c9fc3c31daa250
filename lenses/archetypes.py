"""Rerun's components that messages are mapped to, by the names of Rerun's archetypes.

Source: the types reference of the Rerun documentation, and what ``rerun-sdk`` 0.33 writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

import pyarrow as pa

from ..engine.chunk import ComponentDescriptor
from .selector import datatype_of


def component(archetype: str, field: str, kind: str) -> ComponentDescriptor:
    """The descriptor of a field of one of Rerun's archetypes.

    >>> component("Image", "buffer", "ImageBuffer").component_type
    'rerun.components.ImageBuffer'
    """
    return ComponentDescriptor(f"{archetype}:{field}", f"rerun.archetypes.{archetype}", f"rerun.components.{kind}")


COORDINATE_FRAME: Final = component("CoordinateFrame", "frame", "TransformFrameId")

TRANSLATION: Final = component("Transform3D", "translation", "Translation3D")
QUATERNION: Final = component("Transform3D", "quaternion", "RotationQuat")
SCALE: Final = component("Transform3D", "scale", "Scale3D")
AXIS_ANGLE: Final = component("Transform3D", "rotation_axis_angle", "RotationAxisAngle")
PARENT_FRAME: Final = component("Transform3D", "parent_frame", "TransformFrameId")
CHILD_FRAME: Final = component("Transform3D", "child_frame", "TransformFrameId")
POSE_TRANSLATIONS: Final = component("InstancePoses3D", "translations", "Translation3D")
POSE_QUATERNIONS: Final = component("InstancePoses3D", "quaternions", "RotationQuat")

ENCODED_IMAGE_BLOB: Final = component("EncodedImage", "blob", "Blob")
ENCODED_IMAGE_MEDIA_TYPE: Final = component("EncodedImage", "media_type", "MediaType")
ENCODED_DEPTH_BLOB: Final = component("EncodedDepthImage", "blob", "Blob")
ENCODED_DEPTH_MEDIA_TYPE: Final = component("EncodedDepthImage", "media_type", "MediaType")
IMAGE_BUFFER: Final = component("Image", "buffer", "ImageBuffer")
IMAGE_FORMAT: Final = component("Image", "format", "ImageFormat")
DEPTH_BUFFER: Final = component("DepthImage", "buffer", "ImageBuffer")
DEPTH_FORMAT: Final = component("DepthImage", "format", "ImageFormat")
VIDEO_SAMPLE: Final = component("VideoStream", "sample", "VideoSample")
VIDEO_CODEC: Final = component("VideoStream", "codec", "VideoCodec")

PINHOLE_PROJECTION: Final = component("Pinhole", "image_from_camera", "PinholeProjection")
PINHOLE_RESOLUTION: Final = component("Pinhole", "resolution", "Resolution")
PINHOLE_PARENT_FRAME: Final = component("Pinhole", "parent_frame", "TransformFrameId")
PINHOLE_CHILD_FRAME: Final = component("Pinhole", "child_frame", "TransformFrameId")

POINT_POSITIONS: Final = component("Points3D", "positions", "Position3D")
POINT_COLORS: Final = component("Points3D", "colors", "Color")
ARROW_VECTORS: Final = component("Arrows3D", "vectors", "Vector3D")
GEO_POSITIONS: Final = component("GeoPoints", "positions", "LatLon")
GEO_COLORS: Final = component("GeoPoints", "colors", "Color")

GRID_DATA: Final = component("GridMap", "data", "ImageBuffer")
GRID_FORMAT: Final = component("GridMap", "format", "ImageFormat")
GRID_CELL_SIZE: Final = component("GridMap", "cell_size", "CellSize")
GRID_TRANSLATION: Final = component("GridMap", "translation", "Translation3D")
GRID_QUATERNION: Final = component("GridMap", "quaternion", "RotationQuat")
GRID_COLORMAP: Final = component("GridMap", "colormap", "Colormap")

VOXEL_INDICES: Final = component("VoxelGridMap", "voxel_indices", "VoxelIndex")
VOXEL_SIZE: Final = component("VoxelGridMap", "voxel_size", "VoxelSize")
VOXEL_COLORS: Final = component("VoxelGridMap", "colors", "Color")
VOXEL_VALUES: Final = component("VoxelGridMap", "values", "VoxelValue")
VOXEL_OPACITY: Final = component("VoxelGridMap", "opacity", "Opacity")
VOXEL_TRANSLATION: Final = component("VoxelGridMap", "translation", "Translation3D")
VOXEL_QUATERNION: Final = component("VoxelGridMap", "quaternion", "RotationQuat")

SCALARS: Final = component("Scalars", "scalars", "Scalar")
SERIES_NAMES: Final = component("SeriesLines", "names", "Name")
MEASUREMENT_VALUES: Final = component("Measurements", "values", "Scalar")
MEASUREMENT_VARIANCES: Final = component("Measurements", "variances", "Variance")
MEASUREMENT_UNITS: Final = component("Measurements", "units", "Unit")
TEXT_DOCUMENT: Final = component("TextDocument", "text", "Text")
LOG_TEXT: Final = component("TextLog", "text", "Text")
LOG_LEVEL: Final = component("TextLog", "level", "TextLogLevel")
LOG_COLOR: Final = component("TextLog", "color", "Color")


def cast_type(descriptor: ComponentDescriptor, wanted: pa.DataType | str) -> pa.DataType:
    """Return the type to which a component's values are cast: ``wanted`` or, for ``"auto"``, Rerun's own.

    Raises ``ValueError`` if Rerun's type is not known, ``TypeError`` if ``wanted`` is not a type.

    >>> cast_type(SCALARS, "auto")
    DataType(double)
    """
    if isinstance(wanted, str) and wanted == "auto":
        name = (descriptor.component_type or "").removeprefix("rerun.components.")
        if name not in arrow_types():
            raise ValueError(
                f"Cannot auto-cast output component '{descriptor}': its descriptor has no known component type. Give "
                "the type as cast_to."
            )
        return arrow_types()[name]
    return datatype_of(wanted, "cast_to")


@cache
def arrow_types() -> dict[str, pa.DataType]:
    """Return the Arrow types of instances of Rerun's component types, by name without ``rerun.components``.

    Composite types (annotations, tensors) are left out, as no cast makes them.
    """
    return dict(_arrow_types())


def _arrow_types() -> Iterator[tuple[str, pa.DataType]]:
    f32, f64, u8, u32, text = pa.float32(), pa.float64(), pa.uint8(), pa.uint32(), pa.string()
    pair = _struct(first=text, second=text)
    plane = _many(f32, 3)
    for kind, names in (
        (f32, "AxisLength CellSize DepthMeter DrawOrder FillRatio GammaCorrection"),
        (f32, "ImagePlaneDistance Length MarkerSize Opacity OpticalDensity Radius StrokeWidth VoxelValue"),
        (u8, "AggregationPolicy Colormap EntryKind FillMode GraphType InterpolationMode"),
        (u8, "MagnificationFilter MarkerShape MeshFaceRendering PointShading TransformRelation"),
        (text, "EntityPath GraphNode MediaType Name Text TextLogLevel TransformFrameId Unit Url"),
        (pa.bool_(), "Bool ClearIsRecursive Flag Interactive IsKeyframe ShowLabels Visible"),
        (plane, "HalfSize3D Position3D Scale3D Translation3D Vector3D VoxelSize"),
        (_many(f32, 2), "HalfSize2D Position2D Resolution Texcoord2D Vector2D"),
        (u32, "AlbedoFactor Color SphericalHarmonicsDegree VideoCodec"),
        (_many(u8), "Blob ImageBuffer Thumbnail VideoSample"),
        (pa.uint16(), "ChannelId ClassId KeypointId SchemaId"),
        (_many(f64, 2), "LatLon Range1D ValueRange"),
        (f64, "LinearSpeed Scalar Variance"),
        (_many(f32, 9), "PinholeProjection TransformMat3x3"),
        (_many(f32, 4), "Plane3D RotationQuat"),
        (_struct(dimension=u32, invert=pa.bool_()), "TensorHeightDimension TensorWidthDimension"),
        (_struct(dimension=u32, index=pa.uint64()), "TensorDimensionIndexSelection"),
        (pa.int64(), "Timestamp VideoTimestamp"),
        (pa.uint64(), "Count"),
        (_many(_many(f64, 2)), "GeoLineString"),
        (_many(_many(f32, 2)), "LineStrip2D"),
        (_many(plane), "LineStrip3D"),
        (pair, "GraphEdge"),
        (_many(pair), "KeyValuePairs"),
        (_many(_struct(channel_id=pa.uint16(), message_count=pa.uint64())), "ChannelMessageCounts"),
        (_struct(axis=plane, angle=f32), "RotationAxisAngle"),
        (_many(u32, 3), "TriangleIndices"),
        (_many(u8, 3), "ViewCoordinates"),
        (_many(pa.int32(), 3), "VoxelIndex"),
    ):
        for name in names.split():
            yield name, kind


def _many(kind: pa.DataType, size: int = -1) -> pa.DataType:
    return pa.list_(pa.field("item", kind, nullable=False), size)


def _struct(**kinds: pa.DataType) -> pa.DataType:
    return pa.struct([pa.field(name, kind, nullable=False) for name, kind in kinds.items()])
