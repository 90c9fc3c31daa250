"""Message decoders: many messages of one channel become one Arrow array, column by column.

Each decoder is loaded when a channel needs it: most files have messages of one encoding.
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
