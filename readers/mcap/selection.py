"""Which decoder takes the messages of a channel."""

from __future__ import annotations

import warnings
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from ...engine.errors import ReadWarning
from ...lenses import DeriveLens
from ...lenses.foxglove import foxglove_lenses
from ...lenses.ros2 import needs_reflection, ros2_lenses
from .decoding.decoded import MessageDecoder, SchemaError
from .options import McapOptions
from .raw import RawDecoder
from .registry import Channel, Schema


class Kind(StrEnum):
    """The message decoders, in the order in which they claim a channel.

    ``ros2_reflection`` takes what ROS writes: CDR with ``ros2msg``, ``ros2idl`` or ``omgidl``, and ROS 1. ``protobuf``
    takes what describes itself: protobuf, FlatBuffers, and JSON and CBOR with a JSON Schema or none.
    """

    ROS2 = "ros2_reflection"
    PROTOBUF = "protobuf"
    RAW = "raw"


class _Format(NamedTuple):
    """How messages are decoded: under which identifier, and by which function of :mod:`.decoding`."""

    kind: Kind
    decoder: str


_FORMATS: Final = {
    ("ros2msg", "cdr"): _Format(Kind.ROS2, "ros2_decoder"),
    ("ros2idl", "cdr"): _Format(Kind.ROS2, "idl_decoder"),
    ("omgidl", "cdr"): _Format(Kind.ROS2, "idl_decoder"),
    ("ros1msg", "ros1"): _Format(Kind.ROS2, "ros1_decoder"),
    ("flatbuffer", "flatbuffer"): _Format(Kind.PROTOBUF, "flatbuffer_decoder"),
    ("jsonschema", "json"): _Format(Kind.PROTOBUF, "json_decoder"),
    ("", "json"): _Format(Kind.PROTOBUF, "json_decoder"),
    ("jsonschema", "cbor"): _Format(Kind.PROTOBUF, "cbor_decoder"),
    ("", "cbor"): _Format(Kind.PROTOBUF, "cbor_decoder"),
}
"""By the encodings of the schema and, in lower case, of the messages."""

_PROTOBUF: Final = _Format(Kind.PROTOBUF, "protobuf_decoder")
"""For every channel with a schema of protobuf: what its messages are said to be is not looked at."""


def kind_for(channel: Channel, schema: Schema | None, options: McapOptions) -> Kind | None:
    """The decoder that claims ``channel`` under ``options``; None when nothing is to come out of it."""
    if not options.selects(channel.topic):
        return None
    found = _format_of(channel, schema)
    if found is not None and (found.kind in options.decoders or lenses_for(channel, schema, found.kind, options)):
        return found.kind
    return Kind.RAW if Kind.RAW in options.decoders else None


def lenses_for(channel: Channel, schema: Schema | None, kind: Kind, options: McapOptions) -> tuple[DeriveLens, ...]:
    """What makes the decoded messages of a channel into what they mean; nothing where they stay structs.

    The mappings that Rerun's reader has as lenses need the reflection that they are lenses over.
    """
    if schema is None:
        return ()
    if kind is Kind.ROS2 and "ros2msg" in options.decoders:
        if needs_reflection(schema.name) and Kind.ROS2 not in options.decoders:
            return ()
        if lenses := ros2_lenses(schema.name, channel.topic):
            return lenses
    return foxglove_lenses(schema.name) if {kind, "foxglove"} <= options.decoders else ()


def decoder_for(
    channel: Channel, schema: Schema | None, kind: Kind, options: McapOptions, *, path: str
) -> MessageDecoder:
    """Compile the decoder of a channel. A definition that cannot be used gives raw bytes and one ``ReadWarning``."""
    found = _format_of(channel, schema)
    if kind is Kind.RAW or found is None:
        if options.decoders & {Kind.ROS2, Kind.PROTOBUF}:
            _warn_of_encoding(channel, schema, path)
        return RawDecoder()
    name, data = ("", b"") if schema is None else (schema.name, schema.data)
    try:
        return _compiled(found.decoder, name, data)
    except SchemaError as error:
        _warn(f"{path}: topic {channel.topic}: the schema {name} cannot be used: {error}")
        return RawDecoder()


def _format_of(channel: Channel, schema: Schema | None) -> _Format | None:
    encoding = "" if schema is None else schema.encoding
    return _PROTOBUF if encoding == "protobuf" else _FORMATS.get((encoding, channel.message_encoding.lower()))


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
def _compiled(decoder: str, name: str, data: bytes) -> MessageDecoder:
    from . import decoding

    compiled: MessageDecoder = getattr(decoding, decoder)(name, data)
    return compiled
