"""Message decoders: many messages of one channel become one Arrow array, column by column."""

from __future__ import annotations

from .decoded import Decoded, MessageDecoder, SchemaError
from .ros2 import Ros2Decoder

__all__ = ["Decoded", "MessageDecoder", "SchemaError", "ros2_decoder"]


def ros2_decoder(schema_name: str, schema_data: bytes) -> MessageDecoder:
    """A decoder for CDR messages of a ``ros2msg`` schema; raises :class:`SchemaError`."""
    return Ros2Decoder(schema_name, schema_data)
