"""MCAP messages made of chunks: Foxglove's protobuf messages, messages of a kept schema, and JSON for the rest.

A row of a chunk becomes a message for each archetype in it; a frame or pose next to another archetype becomes part of
the message of that archetype. Source of the types: the Foxglove schemas,
https://docs.foxglove.dev/docs/sdk/schemas; of the values: Rerun's types reference.
"""

from __future__ import annotations

import json
import warnings
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from ...readers import struct_encoder
from ..chunk import Chunk, ChunkData, Component, TimelineKind, split_parts
from ..errors import ReadWarning
from ..stream import MESSAGE_HEAD, RecordChannel, RecordFacts, Records, RecordSchema
from .mcap_chunks import RecordStretch

_PREFIX: Final = "rerun.archetypes."
_LOG_TIMES: Final = ("message_log_time", "log_time")
_PUBLISH_TIME: Final = "message_publish_time"
_STAMPS: Final = ("timestamp", "ros2_timestamp")
"""The timelines of times that are part of Foxglove's and ROS messages."""
_RAW: Final = "McapMessage:data"
_OF_FILES: Final = ("McapChannel", "McapSchema", "McapStatistics")
"""Archetypes of an MCAP's facts about itself: the output has its own."""
ABOUT_FILE: Final = ("/__mcap_attachments", "/__mcap_metadata", "/__mcap_properties")
"""Entities of records that are not messages."""

KEPT: Final = (
    "McapChannel:topic",
    "McapChannel:message_encoding",
    "McapChannel:metadata",
    "McapSchema:name",
    "McapSchema:encoding",
    "McapSchema:data",
    "VideoStream:codec",
    "CoordinateFrame:frame",
)
"""The components from which :class:`EntityFacts` is made."""

Row = Mapping[str, Any]
Fields = dict[str, Any]


class EntityFacts(NamedTuple):
    """Facts about all messages at an entity: its channel in the source file, the codec of its video, and its frame, if
    that is static.
    """

    channels: dict[str, RecordChannel]
    codecs: dict[str, int]
    frames: dict[str, str]

    def add(self, chunk: Chunk) -> None:
        """Add the facts of a chunk with some of the components ``KEPT``."""
        row = {c.descriptor.component: first for c in chunk.data.components if (first := _first(c.values)) is not None}
        if "McapChannel:topic" in row:
            schema = None
            if row.get("McapSchema:name"):
                data = row.get("McapSchema:data") or b""
                data = bytes(data) if not isinstance(data, str) else data.encode()
                schema = RecordSchema(row["McapSchema:name"], row.get("McapSchema:encoding") or "", data)
            pairs = row.get("McapChannel:metadata") or []
            metadata = tuple((pair["first"], pair["second"]) for pair in pairs)
            encoding = row.get("McapChannel:message_encoding") or ""
            self.channels[chunk.entity_path] = RecordChannel(row["McapChannel:topic"], encoding, schema, metadata)
        if "VideoStream:codec" in row:
            self.codecs.setdefault(chunk.entity_path, int(row["VideoStream:codec"]))
        if "CoordinateFrame:frame" in row and chunk.is_static:
            self.frames[chunk.entity_path] = row["CoordinateFrame:frame"]


def _first(values: pa.ListArray) -> Any:
    for row in values:
        if row.is_valid and len(row):
            return row[0].as_py()
    return None


_D: Final = descriptor_pb2.FieldDescriptorProto
_KINDS: Final = {
    "double": _D.TYPE_DOUBLE,
    "string": _D.TYPE_STRING,
    "bytes": _D.TYPE_BYTES,
    "fixed32": _D.TYPE_FIXED32,
    "int32": _D.TYPE_INT32,
}
_STAMP: Final = "google.protobuf.Timestamp"
_XYZ: Final = "x:1:double y:2:double z:3:double"
_MESSAGES: Final = {
    "Vector3": _XYZ,
    "Quaternion": f"{_XYZ} w:4:double",
    "Pose": "position:1:foxglove.Vector3 orientation:2:foxglove.Quaternion",
    "Color": "r:1:double g:2:double b:3:double a:4:double",
    "PackedElementField": "name:1:string offset:2:fixed32 type:3:enum",
    "Log": f"timestamp:1:{_STAMP} level:2:enum message:3:string name:4:string file:5:string line:6:fixed32",
    "CompressedImage": f"timestamp:1:{_STAMP} data:2:bytes format:3:string frame_id:4:string",
    "CompressedVideo": f"timestamp:1:{_STAMP} frame_id:2:string data:3:bytes format:4:string",
    "RawImage": f"timestamp:1:{_STAMP} width:2:fixed32 height:3:fixed32 encoding:4:string step:5:fixed32 data:6:bytes"
    " frame_id:7:string",
    "PointCloud": f"timestamp:1:{_STAMP} frame_id:2:string pose:3:foxglove.Pose point_stride:4:fixed32"
    " fields:5:foxglove.PackedElementField* data:6:bytes",
    "FrameTransform": f"timestamp:1:{_STAMP} parent_frame_id:2:string child_frame_id:3:string"
    " translation:4:foxglove.Vector3 rotation:5:foxglove.Quaternion",
    "CameraCalibration": f"timestamp:1:{_STAMP} width:2:fixed32 height:3:fixed32 distortion_model:4:string D:5:double*"
    " K:6:double* R:7:double* P:8:double* frame_id:9:string",
    "LocationFix": "latitude:1:double longitude:2:double altitude:3:double position_covariance:4:double*"
    f" position_covariance_type:5:enum timestamp:6:{_STAMP} frame_id:7:string color:8:foxglove.Color",
    "PoseInFrame": f"timestamp:1:{_STAMP} frame_id:2:string pose:3:foxglove.Pose",
    "PosesInFrame": f"timestamp:1:{_STAMP} frame_id:2:string poses:3:foxglove.Pose*",
    "VoxelGrid": f"timestamp:1:{_STAMP} frame_id:2:string pose:3:foxglove.Pose row_count:4:fixed32"
    " column_count:5:fixed32 cell_size:6:foxglove.Vector3 slice_stride:7:fixed32 row_stride:8:fixed32"
    " cell_stride:9:fixed32 fields:10:foxglove.PackedElementField* data:11:bytes",
}
"""Foxglove's messages: name, number and type of each field; ``*``: repeated."""

_ENUMS: Final = {
    "Log": ("Level", "UNKNOWN DEBUG INFO WARNING ERROR FATAL"),
    "PackedElementField": ("NumericType", "UNKNOWN UINT8 INT8 UINT16 INT16 UINT32 INT32 FLOAT32 FLOAT64"),
    "LocationFix": ("PositionCovarianceType", "UNKNOWN APPROXIMATED DIAGONAL_KNOWN KNOWN"),
}
_UINT8, _FLOAT32 = 1, 7


@cache
def _pool() -> tuple[descriptor_pool.DescriptorPool, bytes]:
    """Return Foxglove's messages, and their definitions with all imports."""
    file = descriptor_pb2.FileDescriptorProto(name="foxglove.proto", package="foxglove", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    for name, text in _MESSAGES.items():
        message = file.message_type.add(name=name)
        if name in _ENUMS:
            enum = message.enum_type.add(name=_ENUMS[name][0])
            for code, value in enumerate(_ENUMS[name][1].split()):
                enum.value.add(name=value, number=code)
        for word in text.split():
            field_name, number, kind = word.split(":")
            field = message.field.add(name=field_name, number=int(number), label=_D.LABEL_OPTIONAL)
            if kind.endswith("*"):
                field.label, kind = _D.LABEL_REPEATED, kind[:-1]
            if kind == "enum":
                field.type, field.type_name = _D.TYPE_ENUM, f".foxglove.{name}.{_ENUMS[name][0]}"
            elif kind in _KINDS:
                field.type = _KINDS[kind]
            else:
                field.type, field.type_name = _D.TYPE_MESSAGE, f".{kind}"
    pool = descriptor_pool.DescriptorPool()
    stamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(stamp)
    pool.Add(stamp)
    pool.Add(file)
    whole = descriptor_pb2.FileDescriptorSet(file=[stamp, file])
    return pool, whole.SerializeToString(deterministic=True)


@cache
def _class_of(name: str) -> Any:
    return message_factory.GetMessageClass(_pool()[0].FindMessageTypeByName(f"foxglove.{name}"))


@cache
def _foxglove_schema(name: str) -> RecordSchema:
    return RecordSchema(f"foxglove.{name}", "protobuf", _pool()[1])


class _Place(NamedTuple):
    """The entity of a message and facts about it: the codec, the frame and, for points, the pose of the row."""

    entity: str
    codec: int | None
    given: str | None
    pose: Fields | None = None

    @property
    def frame(self) -> str:
        """The frame of the entity; if none is given, Rerun's name of it."""
        return self.own if self.given is None else self.given

    @property
    def own(self) -> str:
        """Rerun's name of the entity's own frame."""
        return f"tf#{self.entity}"

    @property
    def camera(self) -> str:
        """The frame of the camera whose image plane is the frame of the entity."""
        return self.frame.removesuffix(_IMAGE_PLANE)

    @property
    def parent(self) -> str:
        """The frame of the entity above."""
        parts = self.entity.rsplit("/", 1)[0]
        return f"tf#{parts or '/'}"


def _log(row: Row, place: _Place) -> Fields | None:  # noqa: ARG001
    texts, levels = row["text"], row.get("level") or [None]
    level = _LEVELS.get(levels[0])
    return None if len(texts) != 1 or level is None else {"message": texts[0], "level": level}


_LEVELS: Final = {None: 0, "DEBUG": 1, "INFO": 2, "WARN": 3, "ERROR": 4, "CRITICAL": 5}
_IMAGE_PLANE: Final = "_image_plane"
"""A message names its camera's frame; it is read as being in that camera's image plane."""
_MAGIC: Final = {b"\xff\xd8\xff": "jpeg", b"\x89PNG": "png", b"RIFF": "webp"}


def _encoded_image(row: Row, place: _Place) -> Fields | None:
    if len(row["blob"]) != 1:
        return None
    data = bytes(row["blob"][0])
    given = (row.get("media_type") or [None])[0]
    if given is not None and not given.startswith("image/"):
        return None
    guessed = next((name for magic, name in _MAGIC.items() if data.startswith(magic)), None)
    name = guessed if given is None else given.removeprefix("image/")
    return None if name is None else {"data": data, "format": name, "frame_id": place.camera}


_CODECS: Final = {0x61766331: "h264", 0x68657631: "h265", 0x61763031: "av1", 0x76703038: "vp8", 0x76703039: "vp9"}


def _video(row: Row, place: _Place) -> Fields | None:
    codec = (row.get("codec") or [place.codec])[0]
    name = _CODECS.get(codec) if codec is not None else None
    if name is None or len(row["sample"]) != 1:
        return None
    return {"data": bytes(row["sample"][0]), "format": name, "frame_id": place.camera}


_U8, _I8, _U16, _I16, _I32, _F32, _F64 = 6, 7, 8, 9, 11, 34, 35
_L, _RGB, _RGBA, _BGR, _BGRA = 1, 2, 3, 4, 5
_ENCODINGS: Final = {
    (_L, _U8): ("mono8", 1),
    (_L, _U16): ("mono16", 2),
    (_RGB, _U8): ("rgb8", 3),
    (_RGBA, _U8): ("rgba8", 4),
    (_BGR, _U8): ("bgr8", 3),
    (_BGRA, _U8): ("bgra8", 4),
    (_RGB, _U16): ("rgb16", 6),
    (_RGBA, _U16): ("rgba16", 8),
    (_BGR, _U16): ("bgr16", 6),
    (_BGRA, _U16): ("bgra16", 8),
    (None, _U8): ("8UC1", 1),
    (None, _I8): ("8SC1", 1),
    (None, _U16): ("16UC1", 2),
    (None, _I16): ("16SC1", 2),
    (None, _I32): ("32SC1", 4),
    (None, _F32): ("32FC1", 4),
    (None, _F64): ("64FC1", 8),
}
"""Encoding, and bytes of a pixel, by Rerun's ``ColorModel`` and ``ChannelDatatype``."""


def _image(row: Row, place: _Place) -> Fields | None:
    if len(row["buffer"]) != 1 or len(row["format"]) != 1:
        return None
    form = row["format"][0]
    encoding = _ENCODINGS.get((form["color_model"], form["channel_datatype"]))
    if form["pixel_format"] is not None or encoding is None:
        return None
    step = form["width"] * encoding[1]
    data = bytes(row["buffer"][0])
    if len(data) != step * form["height"]:
        return None
    figures = {"width": form["width"], "height": form["height"], "encoding": encoding[0], "step": step}
    return {**figures, "data": data, "frame_id": place.camera}


_CHANNELS: Final = ("red", "green", "blue", "alpha")


def _color_fields(offset: int) -> list[Fields]:
    return [{"name": name, "offset": offset + i, "type": _UINT8} for i, name in enumerate(_CHANNELS)]


def _color_bytes(colors: Sequence[int]) -> np.ndarray:
    return np.array(colors, np.uint32).astype(">u4").view(np.uint8).reshape(-1, 4)


def _points(row: Row, place: _Place) -> Fields | None:
    positions = np.array(row["positions"], np.float32).reshape(-1, 3)
    colors = row.get("colors") or []
    fields: list[Fields] = [{"name": axis, "offset": 4 * i, "type": _FLOAT32} for i, axis in enumerate("xyz")]
    shared: Fields = {"frame_id": place.frame} if place.pose is None else {"frame_id": place.frame, "pose": place.pose}
    if not colors:
        return {**shared, "point_stride": 12, "fields": fields, "data": positions.tobytes()}
    if len(colors) != len(positions):
        return None
    packed = np.empty((len(positions), 16), np.uint8)
    packed[:, :12] = positions.view(np.uint8).reshape(-1, 12)
    packed[:, 12:] = _color_bytes(colors)
    return {**shared, "point_stride": 16, "fields": fields + _color_fields(12), "data": packed.tobytes()}


def _vector(numbers: Sequence[float], names: str = "xyz") -> Fields:
    return dict(zip(names, numbers, strict=True))


def _is_whole(vectors: Sequence[Sequence[float | None]]) -> bool:
    """Return whether no number is null, as a message would have 0 instead."""
    return all(None not in vector for vector in vectors)


def _transform(row: Row, place: _Place) -> Fields | None:
    translations, turns = row.get("translation") or [], row.get("quaternion") or []
    if len(translations) > 1 or len(turns) > 1 or not (translations or turns):
        return None
    if not _is_whole(translations) or not _is_whole(turns):
        return None
    moved = _vector(translations[0] if translations else (0, 0, 0))
    turned = _vector(turns[0] if turns else (0, 0, 0, 1), "xyzw")
    parent, child = (row.get("parent_frame") or [place.parent])[0], (row.get("child_frame") or [place.own])[0]
    return {"parent_frame_id": parent, "child_frame_id": child, "translation": moved, "rotation": turned}


def _pose_list(translations: Sequence[Any], turns: Sequence[Any]) -> list[Fields] | None:
    """Return poses, or None if one lacks a translation or a rotation."""
    if len(translations) != len(turns) or not _is_whole(translations) or not _is_whole(turns):
        return None
    pairs = zip(translations, turns, strict=True)
    return [{"position": _vector(moved), "orientation": _vector(turned, "xyzw")} for moved, turned in pairs]


def _poses(row: Row, place: _Place) -> Fields | None:
    poses = _pose_list(row["translations"], row["quaternions"])
    return None if not poses else {"frame_id": place.frame, "poses": poses}


def _pose(row: Row, place: _Place) -> Fields | None:
    poses = _pose_list(row["translations"], row["quaternions"])
    return None if poses is None or len(poses) != 1 else {"frame_id": place.frame, "pose": poses[0]}


def _voxels(row: Row, place: _Place) -> Fields | None:
    """Return a grid with all cells, in the order in which readers take them."""
    poses = _pose_list(row.get("translation") or [], row.get("quaternion") or [])
    cells = np.array(row["voxel_indices"], np.int64).reshape(-1, 3)
    colors = row.get("colors") or []
    if poses is None or len(poses) > 1 or len(row["voxel_size"]) != 1 or len(colors) not in (0, len(cells)):
        return None
    columns, rows, depth = (cells.max(axis=0) + 1).tolist()
    if columns * rows * depth != len(cells):
        return None
    z, y, x = np.indices((depth, rows, columns)).reshape(3, -1)
    if not (cells == np.stack([x, y, z], axis=1)).all():
        return None
    size = 4 if colors else 1
    return {
        "frame_id": place.frame,
        **({"pose": poses[0]} if poses else {}),
        "row_count": rows,
        "column_count": columns,
        "cell_size": _vector(row["voxel_size"][0]),
        "slice_stride": rows * columns * size,
        "row_stride": columns * size,
        "cell_stride": size,
        "fields": _color_fields(0) if colors else [],
        "data": _color_bytes(colors).tobytes() if colors else bytes(len(cells)),
    }


def _location(row: Row, place: _Place) -> Fields | None:
    colors = row.get("colors") or []
    if len(row["positions"]) != 1 or len(colors) > 1:
        return None
    latitude, longitude = row["positions"][0]
    fields = {"latitude": latitude, "longitude": longitude, "frame_id": place.frame}
    if colors:
        parts = int(colors[0]).to_bytes(4, "big")
        fields["color"] = {name: part / 255 for name, part in zip("rgba", parts, strict=True)}
    return fields


def _camera(row: Row, place: _Place) -> Fields | None:
    if len(row["image_from_camera"]) != 1 or len(row.get("resolution") or []) != 1:
        return None
    columns = np.array(row["image_from_camera"][0], np.float64).reshape(3, 3)
    width, height = row["resolution"][0]
    if width != int(width) or height != int(height) or min(width, height) < 0:
        return None
    k = columns.T
    p = np.hstack([k, np.zeros((3, 1))])
    frame = (row.get("parent_frame") or [place.own])[0]
    if row.get("child_frame") not in (None, [], [f"{frame}{_IMAGE_PLANE}"]):
        return None
    matrices = {"K": k.reshape(-1).tolist(), "P": p.reshape(-1).tolist(), "R": np.eye(3).reshape(-1).tolist()}
    return {"width": int(width), "height": int(height), "frame_id": frame, **matrices}


class _Form(NamedTuple):
    """The message for an archetype: its name, the fields that it needs, and those for which it has a place.

    A ``framed`` message names the frame of the entity.
    """

    name: str
    needs: frozenset[str]
    takes: frozenset[str]
    make: Callable[[Row, _Place], Fields | None]
    framed: bool


def _form(
    name: str, needs: str, takes: str, make: Callable[[Row, _Place], Fields | None], *, framed: bool = True
) -> _Form:
    return _Form(name, frozenset(needs.split()), frozenset((needs + " " + takes).split()), make, framed)


_FORMS: Final = {
    "TextLog": [_form("Log", "text", "level", _log, framed=False)],
    "EncodedImage": [_form("CompressedImage", "blob", "media_type", _encoded_image)],
    "VideoStream": [_form("CompressedVideo", "sample", "codec", _video)],
    "Image": [_form("RawImage", "buffer format", "", _image)],
    "Points3D": [_form("PointCloud", "positions", "colors", _points)],
    "Transform3D": [
        _form("FrameTransform", "", "translation quaternion parent_frame child_frame", _transform, framed=False)
    ],
    "InstancePoses3D": [
        _form("PoseInFrame", "translations quaternions", "", _pose),
        _form("PosesInFrame", "translations quaternions", "", _poses),
    ],
    "GeoPoints": [_form("LocationFix", "positions", "colors", _location)],
    "Pinhole": [
        _form("CameraCalibration", "image_from_camera", "resolution parent_frame child_frame", _camera, framed=False)
    ],
    "VoxelGridMap": [_form("VoxelGrid", "voxel_indices voxel_size", "colors translation quaternion", _voxels)],
}
"""Forms by archetype; a row takes the first form that can represent it."""


class _Group(NamedTuple):
    """The components of one archetype in a chunk, by the names of their fields."""

    archetype: str
    fields: dict[str, Component]


def _groups(components: Sequence[Component]) -> list[_Group]:
    groups: dict[str, _Group] = {}
    for component in components:
        d = component.descriptor
        name = d.archetype or ""
        own = f"{name.removeprefix(_PREFIX)}:"
        field = d.component.removeprefix(own) if name else d.component
        groups.setdefault(name, _Group(name, {})).fields[field] = component
    return list(groups.values())


class _Times(NamedTuple):
    """The log and publish times of rows and, with their timeline, the times to write into messages."""

    logged: np.ndarray
    published: np.ndarray
    stamps: tuple[str, np.ndarray] | None


class MessageMaker:
    """Makes messages of chunks; ``facts`` gets their channels. One for each task.

    Messages cannot represent all of every row: :meth:`warn` names the missing parts.
    """

    def __init__(self, facts: RecordFacts, entities: EntityFacts) -> None:
        self._facts = facts
        self._entities = entities
        self._ids: dict[RecordChannel, int] = {}
        self._encoders: dict[RecordSchema, Callable[[pa.StructArray], list[bytes | None]] | None] = {}
        self._lost: Counter[str] = Counter()

    def of(self, chunk: Chunk) -> Iterator[tuple[bool, RecordStretch]]:
        """Yield the messages of a chunk, and whether they are static."""
        data, entity = chunk.data, chunk.entity_path
        if entity in ABOUT_FILE:
            return
        times = self._times(data)
        if times is None:
            self._lost[f"rows at {entity} without a time"] += data.num_rows
            return
        made: list[tuple[int, int, bytes]] = []
        raw = next((c for c in data.components if c.descriptor.component == _RAW), None)
        channel = self._entities.channels.get(entity)
        if raw is not None and channel is not None:
            made += [(self._id(channel), row, cell) for row, cell in _blobs(raw.values)]
        groups = _groups([c for c in data.components if raw is None or channel is None or c is not raw])
        groups = [group for group in groups if group.archetype.removeprefix(_PREFIX) not in _OF_FILES]
        made += self._messages(groups, entity, channel, times)
        if made:
            made.sort(key=lambda each: each[1])
            yield chunk.is_static, _stretch(made, times.logged, times.published)

    def warn(self, path: str) -> None:
        """Warn (``ReadWarning``) of everything that has no place in the messages."""
        for what, count in self._lost.items():
            warnings.warn(f"{path}: {count:,} {what}", ReadWarning, stacklevel=2)

    def _id(self, channel: RecordChannel) -> int:
        if channel not in self._ids:
            self._ids[channel] = len(self._ids) + 1
            self._facts.channels[self._ids[channel]] = channel
        return self._ids[channel]

    def _times(self, data: ChunkData) -> _Times | None:
        """Return the times of rows: 0 for static rows."""
        if not data.timelines:
            return _Times(*(np.zeros(data.num_rows, np.uint64),) * 2, None)
        by_name = {timeline.name: timeline for timeline in data.timelines}
        kinds = (TimelineKind.TIMESTAMP, TimelineKind.DURATION, TimelineKind.SEQUENCE)
        chosen = next((by_name[name] for name in _LOG_TIMES if name in by_name), None)
        chosen = chosen or min(data.timelines, key=lambda timeline: kinds.index(timeline.kind))
        if chosen.kind is TimelineKind.SEQUENCE:
            self._lost[f"rows without times have numbers of {chosen.name!r} as nanoseconds"] += data.num_rows
        log = self._unsigned(chosen.ticks)
        publish = self._unsigned(by_name[_PUBLISH_TIME].ticks) if _PUBLISH_TIME in by_name else log
        own = [by_name[n] for n in _STAMPS if n in by_name and by_name[n].kind is TimelineKind.TIMESTAMP]
        stamps = (own[0].name, own[0].ticks) if own and own[0] is not chosen else None
        others = by_name.keys() - {chosen.name, _PUBLISH_TIME, *(stamps or ())[:1]}
        if others:
            self._lost[f"rows are written without their times on {', '.join(sorted(others))}"] += data.num_rows
        return _Times(log, publish, stamps)

    def _unsigned(self, ticks: np.ndarray) -> np.ndarray:
        early = ticks < 0
        if early.any():
            self._lost["rows with times before 0, which are written as 0"] += int(early.sum())
        return np.where(early, 0, ticks).astype(np.uint64)

    def _messages(
        self, groups: list[_Group], entity: str, channel: RecordChannel | None, times: _Times
    ) -> Iterator[tuple[int, int, bytes]]:
        """Yield the channel, the row and the data of each message."""
        columns = []
        for group in groups:
            structs = self._structs(group, channel)
            for row, data in structs.items():
                assert channel is not None
                yield self._id(channel), row, data
            self._note_stamps(times, len(structs))
            columns.append((group, {name: _rows(c.values, structs.keys()) for name, c in group.fields.items()}))
        codec, static_frame = self._entities.codecs.get(entity), self._entities.frames.get(entity)
        for row in range(len(times.logged)):
            cells_of: dict[str, Fields] = {}
            for group, fields in columns:
                cells = {name: column[row] for name, column in fields.items() if column[row] is not None}
                if any(cells.values()):
                    cells_of[group.archetype] = cells
                elif cells:
                    self._lost[f"rows at {entity} that clear {group.archetype or 'components'}"] += 1
            frame = _frame_of(cells_of.get(_FRAME))
            place = _Place(entity, codec, static_frame if frame is None else frame)
            yield from self._foxglove(cells_of, place, row, times)
            for group in groups:
                if left := cells_of.get(group.archetype):
                    is_struct = list(group.fields) == ["message"]
                    topic = channel.topic if channel is not None and is_struct else _topic(entity)
                    self._note_stamps(times, 1)
                    yield self._json(group, left, topic, entity, row)

    def _note_stamps(self, times: _Times, count: int) -> None:
        """Count messages without a place for the times of their rows."""
        if times.stamps is not None and count:
            self._lost[f"rows are written without their times on {times.stamps[0]}"] += count

    def _foxglove(
        self, cells_of: dict[str, Fields], place: _Place, row: int, times: _Times
    ) -> Iterator[tuple[int, int, bytes]]:
        """Yield Foxglove's messages for the archetypes of a row, and remove their fields from the row."""
        stamp = int(times.logged[row] if times.stamps is None else times.stamps[1][row])
        framed = False
        posed = _posed(cells_of)
        for archetype in sorted(cells_of.keys() & _FORMED.keys(), key=lambda name: (name != _POINTS, name)):
            cells = cells_of[archetype]
            own = place._replace(pose=posed) if archetype == _POINTS else place
            for form in _FORMED[archetype]:
                rest = cells.keys() - form.takes
                lacks = not form.needs <= cells.keys() or any(cells[name] for name in rest if name in _TRANSFORMS)
                fields = None if lacks else form.make(cells, own)
                if fields is None:
                    continue
                yield self._id(_foxglove_channel(_topic(place.entity), form.name)), row, _encoded(form, fields, stamp)
                cells_of[archetype] = {name: cells[name] for name in sorted(rest) if cells[name]}
                framed |= form.framed
                if archetype == _POINTS and posed is not None:
                    cells_of[_POSES] = {}
                self._note(form, place)
                break
        if framed and _frame_of(cells_of.get(_FRAME)) is not None:
            del cells_of[_FRAME]

    def _note(self, form: _Form, place: _Place) -> None:
        """Count a message that readers will assign to another frame."""
        is_image = form.name in ("CompressedImage", "CompressedVideo", "RawImage")
        if is_image and place.given and not place.given.endswith(_IMAGE_PLANE):
            self._lost[f"images at {place.entity} are assigned to the frame {place.given}{_IMAGE_PLANE}"] += 1

    def _json(self, group: _Group, cells: Fields, topic: str, entity: str, row: int) -> tuple[int, int, bytes]:
        names = tuple(sorted(cells))
        schema = _json_schema(group.archetype, tuple((n, _described(group.fields[n])) for n in names))
        types = {name: group.fields[name].values.type.value_type for name in names}
        plain = {name: [_plain(value, datatype) for value in cells[name]] for name, datatype in types.items()}
        try:
            text = json.dumps(plain, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
        except ValueError:
            self._lost[f"messages at {entity} have null for NaN and infinity, which JSON does not support"] += 1
            text = json.dumps(_finite(plain), allow_nan=False, separators=(",", ":"), ensure_ascii=False)
        return self._id(RecordChannel(topic, "json", schema)), row, text.encode()

    def _structs(self, group: _Group, channel: RecordChannel | None) -> dict[int, bytes]:
        """Return messages, by row, of the structs that fit the kept schema of their topic."""
        schema = None if channel is None else channel.schema
        if schema is None or channel is None or list(group.fields) != ["message"]:
            return {}
        if group.archetype != schema.name.replace("/", ".").replace("::", "."):
            return {}
        if schema not in self._encoders:
            self._encoders[schema] = struct_encoder(*schema, channel.message_encoding)
        encoder = self._encoders[schema]
        values = group.fields["message"].values
        rows = np.flatnonzero(pc.fill_null(pc.list_value_length(values), 0).to_numpy() == 1)
        if encoder is None:
            what = f"messages of {schema.name}, encoded as {channel.message_encoding or 'nothing known'}"
            self._lost[f"{what}, are written as JSON, because there is no writer for them"] += len(rows)
            return {}
        encoded = encoder((values if len(rows) == len(values) else values.take(pa.array(rows))).flatten())
        misfits = encoded.count(None)
        if misfits:
            self._lost[f"messages of {schema.name} do not fit their schema; they are written as JSON"] += misfits
        return {row: data for row, data in zip(rows.tolist(), encoded, strict=True) if data is not None}


_FORMED: Final = {_PREFIX + name: forms for name, forms in _FORMS.items()}
_FRAME: Final = f"{_PREFIX}CoordinateFrame"
_POINTS: Final = f"{_PREFIX}Points3D"
_POSES: Final = f"{_PREFIX}InstancePoses3D"
_TRANSFORMS: Final = ("mat3x3", "scale", "rotation_axis_angle", "relation")
"""Fields of ``Transform3D`` without which the others change their meaning."""


def _frame_of(cells: Row | None) -> str | None:
    """Return the only frame of a row, or None."""
    frames = [] if cells is None or cells.keys() != {"frame"} else cells["frame"]
    return frames[0] if len(frames) == 1 else None


def _posed(cells_of: Mapping[str, Row]) -> Fields | None:
    """Return the only pose of a row with points, if it is only a translation and a rotation."""
    cells = cells_of.get(_POSES)
    if cells is None or _POINTS not in cells_of or cells.keys() != {"translations", "quaternions"}:
        return None
    poses = _pose_list(cells["translations"], cells["quaternions"])
    return poses[0] if poses is not None and len(poses) == 1 else None


def _topic(entity: str) -> str:
    """Return the topic that readers map to the entity."""
    return "/" + "/".join(split_parts(entity))


@cache
def _foxglove_channel(topic: str, name: str) -> RecordChannel:
    return RecordChannel(topic, "protobuf", _foxglove_schema(name))


def _encoded(form: _Form, fields: Fields, time: int) -> bytes:
    seconds, nanos = divmod(time, 10**9)
    message = _class_of(form.name)(timestamp={"seconds": seconds, "nanos": nanos}, **fields)
    return bytes(message.SerializeToString())


def _blobs(values: pa.ListArray) -> Iterator[tuple[int, bytes]]:
    for row, cell in enumerate(values.to_pylist()):
        for blob in cell or ():
            yield row, bytes(blob or b"")


def _stretch(made: Sequence[tuple[int, int, bytes]], logged: np.ndarray, published: np.ndarray) -> RecordStretch:
    """Return messages as records: channel, row and data of each."""
    rows = np.array([row for _, row, _ in made], np.int64)
    lengths = np.array([len(data) for _, _, data in made], np.int64)
    heads = np.zeros(len(made), MESSAGE_HEAD)
    heads["channel"] = [channel for channel, _, _ in made]
    heads["log_time"], heads["publish_time"] = logged[rows], published[rows]
    arena = np.frombuffer(b"".join(data for _, _, data in made), np.uint8)
    starts = np.cumsum(lengths) - lengths
    return RecordStretch(Records(arena, starts, lengths, heads, framed=False), patched=False)


def _rows(values: pa.ListArray, written: Collection[int]) -> list[Any]:
    """Return the rows of a component, None for those already written; times are numbers in their unit."""
    if written:
        rows: list[Any] = [None] * len(values)
        left = [row for row in range(len(values)) if row not in written]
        for row, cell in zip(left, _rows(values.take(pa.array(left, pa.int64())), ()), strict=True):
            rows[row] = cell
        return rows
    kind = values.type.value_type
    if pa.types.is_temporal(kind):
        return list(values.cast(pa.list_(pa.int64())).to_pylist())
    return list(values.to_pylist())


def _is_blob(datatype: pa.DataType) -> bool:
    return bool(pa.types.is_list(datatype) and datatype.value_type == pa.uint8())


def _plain(value: Any, datatype: pa.DataType) -> Any:
    """Return a value for JSON: bytes as base64."""
    if value is None or pa.types.is_floating(datatype) or pa.types.is_integer(datatype) or pa.types.is_string(datatype):
        return value
    if _is_blob(datatype) or isinstance(value, bytes):
        return b64encode(bytes(value)).decode()
    if pa.types.is_struct(datatype):
        return {field.name: _plain(value[field.name], field.type) for field in datatype}
    if isinstance(value, list):
        return [_plain(inner, datatype.value_type) for inner in value]
    return value if isinstance(value, str | int | float | bool) else str(value)


def _json_type(datatype: pa.DataType) -> dict[str, Any]:
    """Return the JSON Schema of the values that :func:`_plain` makes."""
    types = pa.types
    if _is_blob(datatype) or types.is_binary(datatype) or types.is_large_binary(datatype):
        return {"type": "string", "contentEncoding": "base64"}
    if types.is_integer(datatype) or types.is_temporal(datatype):
        return {"type": "integer"}
    if types.is_floating(datatype):
        return {"type": "number"}
    if types.is_boolean(datatype):
        return {"type": "boolean"}
    if types.is_struct(datatype):
        return {"type": "object", "properties": {field.name: _json_type(field.type) for field in datatype}}
    if types.is_list(datatype) or types.is_fixed_size_list(datatype) or types.is_large_list(datatype):
        return {"type": "array", "items": _json_type(datatype.value_type)}
    return {"type": "string"}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _described(component: Component) -> tuple[str, str | None, pa.DataType]:
    """Return the name, the component type and the Arrow type of a component."""
    d = component.descriptor
    return d.component, d.component_type, component.values.type.value_type


@cache
def _json_schema(archetype: str, fields: tuple[tuple[str, tuple[str, str | None, pa.DataType]], ...]) -> RecordSchema:
    """Return the schema of JSON messages: a list for each field of an archetype.

    ``x-rerun`` describes the components of the fields, so that a reader can make them again.
    """
    properties: dict[str, Any] = {}
    for name, (component, component_type, datatype) in fields:
        arrow = b64encode(bytes(pa.schema([pa.field("item", datatype)]).serialize())).decode()
        kept = {"component": component, "component_type": component_type, "arrow": arrow}
        properties[name] = {"type": "array", "items": _json_type(datatype), "x-rerun": kept}
    title = archetype or "Components"
    schema = {"title": title, "type": "object", "x-rerun": {"archetype": archetype or None}, "properties": properties}
    return RecordSchema(title, "jsonschema", json.dumps(schema, separators=(",", ":")).encode())
