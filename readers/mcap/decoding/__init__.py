"""Message decoders: many messages of one channel become one Arrow array, column by column.

Decoders are loaded when a channel needs them, as most files have messages of one encoding.
"""

from ....engine.lazy_names import lazy_names

_HOMES = {
    ".columns": "BLOB Decoded MessageDecoder RawDecoder SchemaError Surplus blobs",
    ".flatbuffer": "FlatBufferDecoder",
    ".json": "CborDecoder JsonDecoder",
    ".protobuf": "ProtobufDecoder",
    ".ros": "IdlDecoder Ros1Decoder Ros2Decoder",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
