"""The decoder ``urdf``: robot descriptions that were recorded as messages, as chunks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np

from ....engine.chunk import Chunk
from ....engine.errors import ReadWarning
from ....engine.limits import MAX_SCHEMA_BYTES
from ..file import McapFile
from ..file_level import FileDecoder, FileFacts, Schemas
from ..layout import Summary, read_layout
from ..records import HEAD, MESSAGE_FIXED
from ..registry import Channel, Registry, Schema
from ..scan import Bytes, Found
from ..section import SectionReader
from ..split import McapSplit
from .chunks import robot_chunks
from .model import UrdfError, parse_urdf

_TOPIC_PART: Final = "robot_description"
_STRING: Final = "std_msgs/msg/String"


class Robots(FileDecoder):
    """The decoder ``urdf``: of each channel of robot descriptions the last one that can be read, as a robot.

    The messages are those that it was given; where these were not all, they are found by the index of the file.
    """

    name = "urdf"
    looks_at_messages = True

    def __init__(self, registry: Registry, selects: Callable[[str], bool]) -> None:
        super().__init__(registry, selects)
        self._texts: dict[int, str] = {}

    @classmethod
    def is_told_by(cls, summary: Summary) -> bool:
        """Whether the summary tells that there is none, which it does where it has all channels."""
        return Schemas.is_told_by(summary)

    @classmethod
    def has_messages(cls, summary: Summary, selects: Callable[[str], bool]) -> bool:
        """Whether the summary has a channel of robot descriptions."""
        schemas = {schema.id: schema for schema in summary.schemas}
        return bool(_description_channels({channel.id: channel for channel in summary.channels}, schemas, selects))

    def add(self, arena: Bytes, found: Found) -> None:
        """Look through messages that come behind those looked at before."""
        self._look(arena, found, self._channels())

    def chunks(self, file: McapFile, facts: FileFacts) -> Iterator[Chunk]:  # noqa: ARG002
        """The robots, by channel id. One that cannot be read gives a ``ReadWarning``."""
        for id_, text in sorted(self._texts.items()):
            try:
                robot = parse_urdf(text)
            except UrdfError as error:
                topic = self._registry.channels[id_].topic
                warnings.warn(
                    f"{file.path}: topic {topic}: the robot description cannot be read: {error}",
                    ReadWarning,
                    stacklevel=2,
                )
                continue
            yield from robot_chunks(robot, path=file.path)

    def look_up(self, file: McapFile) -> None:
        """Find of each channel the last message that can be read, in the chunks that hold it, from the last one on."""
        if not self._missing():
            return
        summary = read_layout(file).summary
        for entry in reversed(summary.chunks if summary is not None else ()):
            missing = self._missing()
            if not missing:
                return
            held = set(np.frombuffer(entry.channel_ids, "<u2").tolist())
            if held and not held & missing:
                continue
            split = McapSplit("", entry.length, entry.offset, entry.end, chunks=1)
            groups = list(SectionReader(file, split, self._registry).groups())
            for group in reversed(groups):
                self._look(group.arena, group.found, self._missing())

    def _channels(self) -> frozenset[int]:
        """The ids of the channels with descriptions, as far as they are known by now."""
        return _description_channels(self._registry.channels, self._registry.schemas, self._selects)

    def _missing(self) -> frozenset[int]:
        """Those of which no description was found yet."""
        return self._channels() - self._texts.keys()

    def _look(self, arena: Bytes, found: Found, ids: frozenset[int]) -> None:
        channels = found.heads["channel"]
        for id_ in ids:
            for i in np.flatnonzero(channels == id_)[::-1].tolist():
                begin = int(found.offsets[i]) + HEAD.size + MESSAGE_FIXED
                end = int(found.offsets[i]) + HEAD.size + int(found.heads["length"][i])
                text = _string_of(arena[begin:end].tobytes()) if end - begin <= MAX_SCHEMA_BYTES else None
                if text is not None:
                    self._texts[id_] = text
                    break


def _description_channels(
    channels: Mapping[int, Channel], schemas: Mapping[int, Schema], selects: Callable[[str], bool]
) -> frozenset[int]:
    """The ids of the channels whose messages are robot descriptions: ROS 2 strings at a topic so named."""
    return frozenset(
        c.id
        for c in channels.values()
        if _TOPIC_PART in c.topic and _is_string(schemas.get(c.schema_id)) and selects(c.topic)
    )


def _is_string(schema: Schema | None) -> bool:
    return schema is not None and (schema.name, schema.encoding) == (_STRING, "ros2msg")


def _string_of(data: bytes) -> str | None:
    """The text of a ``std_msgs/msg/String`` in CDR; None when it is none."""
    if len(data) < 8 or data[0] != 0:
        return None
    size = int.from_bytes(data[4:8], "little" if data[1] & 1 else "big")
    if size > len(data) - 8:
        return None
    try:
        return data[8 : 8 + size].rstrip(b"\0").decode()
    except UnicodeDecodeError:
        return None
