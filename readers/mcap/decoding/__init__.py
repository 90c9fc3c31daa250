"""Message decoders: many messages of one channel become one Arrow array, column by column."""

from __future__ import annotations

from .columns import BLOB, Decoded, MessageDecoder, RawDecoder, SchemaError, blobs
from .flatbuffer import FlatBufferDecoder
from .json_messages import CborDecoder, JsonDecoder
from .protobuf import ProtobufDecoder
from .ros import IdlDecoder, Ros1Decoder, Ros2Decoder

__all__ = [
    "BLOB",
    "CborDecoder",
    "Decoded",
    "FlatBufferDecoder",
    "IdlDecoder",
    "JsonDecoder",
    "MessageDecoder",
    "ProtobufDecoder",
    "RawDecoder",
    "Ros1Decoder",
    "Ros2Decoder",
    "SchemaError",
    "blobs",
]
