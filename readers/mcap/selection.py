"""Which decoder takes the messages of a channel."""

from __future__ import annotations

import warnings
from enum import StrEnum
from functools import lru_cache

from ...engine.errors import ReadWarning
from ...lenses import DeriveLens
from ...lenses.foxglove import foxglove_lenses
from ...lenses.ros2 import REFLECTED, ros2_lenses
from .decoding.decoded import MessageDecoder, SchemaError
from .options import McapOptions
from .raw import RawDecoder
from .registry import Channel, Schema


class Kind(StrEnum):
    """The message decoders, in the order in which they claim a channel."""

    ROS2 = "ros2_reflection"
    PROTOBUF = "protobuf"
    RAW = "raw"


def kind_for(channel: Channel, schema: Schema | None, options: McapOptions) -> Kind | None:
    """The decoder that claims ``channel`` under ``options``; None when nothing is to come out of it."""
    if not options.selects(channel.topic):
        return None
    encoding = schema.encoding if schema is not None else ""
    if encoding == "ros2msg" and channel.message_encoding.lower() == "cdr":
        mapped = lenses_for(channel, schema, Kind.ROS2, options)
        if Kind.ROS2 in options.decoders or mapped:
            return Kind.ROS2
    if encoding == "protobuf" and Kind.PROTOBUF in options.decoders:
        return Kind.PROTOBUF
    return Kind.RAW if Kind.RAW in options.decoders else None


def lenses_for(channel: Channel, schema: Schema | None, kind: Kind, options: McapOptions) -> tuple[DeriveLens, ...]:
    """What makes the decoded messages of a channel into what they mean; nothing where they stay structs.

    The mappings that Rerun's reader has as lenses need the reflection that they are lenses over.
    """
    if schema is None:
        return ()
    if kind is Kind.ROS2 and "ros2msg" in options.decoders:
        if schema.name in REFLECTED and Kind.ROS2 not in options.decoders:
            return ()
        return ros2_lenses(schema.name, channel.topic)
    if kind is Kind.PROTOBUF and "foxglove" in options.decoders:
        return foxglove_lenses(schema.name)
    return ()


def decoder_for(
    channel: Channel, schema: Schema | None, kind: Kind, options: McapOptions, *, path: str
) -> MessageDecoder:
    """Compile the decoder of a channel. A definition that cannot be used gives raw bytes and one ``ReadWarning``."""
    if kind is Kind.RAW or schema is None:
        if options.decoders & {Kind.ROS2, Kind.PROTOBUF}:
            _warn_of_encoding(channel, schema, path)
        return RawDecoder()
    try:
        return _compiled(kind, schema.name, schema.data)
    except SchemaError as error:
        _warn(f"{path}: topic {channel.topic}: the schema {schema.name} cannot be used: {error}")
        return RawDecoder()


def _warn_of_encoding(channel: Channel, schema: Schema | None, path: str) -> None:
    if schema is None and channel.schema_id:
        _warn(f"{path}: topic {channel.topic}: its schema, number {channel.schema_id}, is not in the file")
    elif schema is not None and schema.encoding == "ros2msg" and channel.message_encoding.lower() != "cdr":
        _warn(
            f"{path}: topic {channel.topic}: its schema {schema.name} is of ROS 2, but its messages are encoded as"
            f" {channel.message_encoding!r}, not as CDR"
        )


def _warn(text: str) -> None:
    warnings.warn(f"{text}; its messages come out as raw bytes", ReadWarning, stacklevel=3)


@lru_cache(maxsize=256)
def _compiled(kind: Kind, name: str, data: bytes) -> MessageDecoder:
    if kind is Kind.ROS2:
        from .decoding import ros2_decoder

        return ros2_decoder(name, data)
    from .decoding import protobuf_decoder

    return protobuf_decoder(name, data)
