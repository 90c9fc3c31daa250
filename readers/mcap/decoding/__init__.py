"""Message decoders: many messages of one channel become one Arrow array, column by column.

Each decoder is loaded when a channel needs it: most files have messages of one encoding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....engine.lazy_names import lazy_names

if TYPE_CHECKING:
    from .columns import BLOB, Decoded, MessageDecoder, RawDecoder, SchemaError, blobs
    from .flatbuffer import FlatBufferDecoder
    from .json import CborDecoder, JsonDecoder
    from .protobuf import ProtobufDecoder
    from .ros import IdlDecoder, Ros1Decoder, Ros2Decoder

_HOMES = {
    ".columns": "BLOB Decoded MessageDecoder RawDecoder SchemaError blobs",
    ".flatbuffer": "FlatBufferDecoder",
    ".json": "CborDecoder JsonDecoder",
    ".protobuf": "ProtobufDecoder",
    ".ros": "IdlDecoder Ros1Decoder Ros2Decoder",
}

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

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
