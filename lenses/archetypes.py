"""Rerun's components that messages are mapped to, by the names of Rerun's archetypes.

Source: the types reference of the Rerun documentation, and what ``rerun-sdk`` 0.33 writes.
"""

from __future__ import annotations

from typing import Final

from ..engine.chunk import ComponentDescriptor


def component(archetype: str, field: str, kind: str) -> ComponentDescriptor:
    """The descriptor of a field of one of Rerun's archetypes.

    >>> component("Image", "buffer", "ImageBuffer").component_type
    'rerun.components.ImageBuffer'
    """
    return ComponentDescriptor(f"{archetype}:{field}", f"rerun.archetypes.{archetype}", f"rerun.components.{kind}")


COORDINATE_FRAME: Final = component("CoordinateFrame", "frame", "TransformFrameId")

TRANSLATION: Final = component("Transform3D", "translation", "Translation3D")
QUATERNION: Final = component("Transform3D", "quaternion", "RotationQuat")
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

SCALARS: Final = component("Scalars", "scalars", "Scalar")
SERIES_NAMES: Final = component("SeriesLines", "names", "Name")
TEXT_DOCUMENT: Final = component("TextDocument", "text", "Text")
LOG_TEXT: Final = component("TextLog", "text", "Text")
LOG_LEVEL: Final = component("TextLog", "level", "TextLogLevel")
LOG_COLOR: Final = component("TextLog", "color", "Color")
