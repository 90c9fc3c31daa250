"""The messages that hold robot descriptions, found while a file is read or by its index."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from ....engine.chunk import Chunk
from ....engine.errors import ReadWarning
from ....engine.limits import MAX_SCHEMA_BYTES
from ..options import McapOptions
from ..records import HEAD, MESSAGE_FIXED
from ..registry import Channel, Registry, Schema
from ..scan import Bytes, Found
from .chunks import robot_chunks
from .model import UrdfError, parse_urdf

TOPIC_PART: Final = "robot_description"
STRING: Final = "std_msgs/msg/String"


def is_description(channel: Channel, schema: Schema | None, options: McapOptions) -> bool:
    """Whether the messages of a channel are robot descriptions: ROS 2 strings at a topic so named."""
    return (
        TOPIC_PART in channel.topic
        and schema is not None
        and (schema.name, schema.encoding) == (STRING, "ros2msg")
        and options.selects(channel.topic)
    )


def description_channels(
    channels: Mapping[int, Channel], schemas: Mapping[int, Schema], options: McapOptions
) -> frozenset[int]:
    """The ids of the channels whose messages are robot descriptions."""
    return frozenset(c.id for c in channels.values() if is_description(c, schemas.get(c.schema_id), options))


class Descriptions:
    """Keeps of each channel the last robot description that can be read."""

    def __init__(self, registry: Registry, options: McapOptions) -> None:
        self._registry = registry
        self._options = options
        self._texts: dict[int, str] = {}

    def add(self, arena: Bytes, found: Found) -> None:
        """Look through messages that come behind those looked at before."""
        self._look(arena, found, self.channels())

    def add_earlier(self, arena: Bytes, found: Found) -> None:
        """Look through messages that come before those looked at before."""
        self._look(arena, found, self.missing())

    def channels(self) -> frozenset[int]:
        """The ids of the channels with descriptions, as far as they are known by now."""
        return description_channels(self._registry.channels, self._registry.schemas, self._options)

    def missing(self) -> frozenset[int]:
        """Those of which no description was found yet."""
        return self.channels() - self._texts.keys()

    def _look(self, arena: Bytes, found: Found, ids: frozenset[int]) -> None:
        channels = found.heads["channel"]
        for id_ in ids:
            for i in np.flatnonzero(channels == id_)[::-1].tolist():
                begin = int(found.offsets[i]) + HEAD.size + MESSAGE_FIXED
                end = int(found.offsets[i]) + HEAD.size + int(found.heads["length"][i])
                text = string_of(arena[begin:end].tobytes()) if end - begin <= MAX_SCHEMA_BYTES else None
                if text is not None:
                    self._texts[id_] = text
                    break

    def chunks(self, *, path: str) -> Iterator[Chunk]:
        """The robots, by channel id. One that cannot be read gives a ``ReadWarning``."""
        for id_, text in sorted(self._texts.items()):
            try:
                robot = parse_urdf(text)
            except UrdfError as error:
                topic = self._registry.channels[id_].topic
                warnings.warn(
                    f"{path}: topic {topic}: the robot description cannot be read: {error}", ReadWarning, stacklevel=2
                )
                continue
            yield from robot_chunks(robot, path=path)


def string_of(data: bytes) -> str | None:
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
