"""Message decoders: many messages of one channel become one Arrow array, column by column."""

from __future__ import annotations

from .cbor import CborDecoder
from .decoded import Decoded, MessageDecoder, SchemaError
from .flatbuffer import FlatBufferDecoder
from .idl_schema import parse_idl
from .json_messages import JsonDecoder
from .protobuf import ProtobufDecoder
from .ros import Ros1Decoder, Ros2Decoder

__all__ = [
    "Decoded",
    "MessageDecoder",
    "SchemaError",
    "cbor_decoder",
    "flatbuffer_decoder",
    "idl_decoder",
    "json_decoder",
    "protobuf_decoder",
    "ros1_decoder",
    "ros2_decoder",
]


def cbor_decoder(schema_name: str, schema_data: bytes) -> MessageDecoder:
    """A decoder for CBOR messages of a ``jsonschema`` schema, or of none; raises :class:`SchemaError`."""
    return CborDecoder(schema_name, schema_data)


def flatbuffer_decoder(schema_name: str, schema_data: bytes) -> MessageDecoder:
    """A decoder for messages of a binary ``flatbuffer`` schema; raises :class:`SchemaError`."""
    return FlatBufferDecoder(schema_name, schema_data)


def idl_decoder(schema_name: str, schema_data: bytes) -> MessageDecoder:
    """A decoder for CDR messages of a ``ros2idl`` or ``omgidl`` schema; raises :class:`SchemaError`."""
    return Ros2Decoder(schema_name, schema_data, parse_idl)


def json_decoder(schema_name: str, schema_data: bytes) -> MessageDecoder:
    """A decoder for JSON messages of a ``jsonschema`` schema, or of none; raises :class:`SchemaError`."""
    return JsonDecoder(schema_name, schema_data)


def ros1_decoder(schema_name: str, schema_data: bytes) -> MessageDecoder:
    """A decoder for ROS 1 messages of a ``ros1msg`` schema; raises :class:`SchemaError`."""
    return Ros1Decoder(schema_name, schema_data)


def ros2_decoder(schema_name: str, schema_data: bytes) -> MessageDecoder:
    """A decoder for CDR messages of a ``ros2msg`` schema; raises :class:`SchemaError`."""
    return Ros2Decoder(schema_name, schema_data)


def protobuf_decoder(schema_name: str, schema_data: bytes) -> MessageDecoder:
    """A decoder for messages of a ``protobuf`` schema, a ``FileDescriptorSet``; raises :class:`SchemaError`."""
    return ProtobufDecoder(schema_name, schema_data)
