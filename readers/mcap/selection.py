"""Which decoder takes the messages of a channel."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Final

from ...engine.errors import ReadWarning
from ...lenses import DeriveLens
from .decoders import MEANINGS, MESSAGE_DECODERS, PROTOBUF, RAW, ROS2, MessageRow
from .decoding import MessageDecoder, SchemaError
from .decoding.gather import RawDecoder
from .options import McapOptions
from .registry import Channel, Schema

_ROWS: Final = {(row.schema_encoding, row.message_encoding): row for row in MESSAGE_DECODERS}


def kind_for(channel: Channel, schema: Schema | None, options: McapOptions) -> str | None:
    """The decoder that claims ``channel`` under ``options``; None when nothing is to come out of it."""
    if not options.selects(channel.topic):
        return None
    row = _row_of(channel, schema)
    if row is not None and (row.decoder in options.decoders or lenses_for(channel, schema, row.decoder, options)):
        return row.decoder
    return RAW if RAW in options.decoders else None


def lenses_for(channel: Channel, schema: Schema | None, kind: str, options: McapOptions) -> tuple[DeriveLens, ...]:
    """What makes the decoded messages of a channel into what they mean; nothing where they stay structs."""
    if schema is None:
        return ()
    known = (meaning for name, meaning in MEANINGS.items() if name in options.decoders)
    return next(filter(None, (meaning(kind, schema.name, channel.topic, options.decoders) for meaning in known)), ())


def decoder_for(
    channel: Channel, schema: Schema | None, kind: str, options: McapOptions, *, path: str
) -> MessageDecoder:
    """Compile the decoder of a channel. A definition that cannot be used gives raw bytes and one ``ReadWarning``."""
    row = _row_of(channel, schema)
    if kind == RAW or row is None:
        if options.decoders & {ROS2, PROTOBUF}:
            _warn_of_encoding(channel, schema, path)
        return RawDecoder()
    name, data = ("", b"") if schema is None else (schema.name, schema.data)
    try:
        return _compiled(row, name, data)
    except SchemaError as error:
        _warn(f"{path}: topic {channel.topic}: the schema {name} cannot be used: {error}")
        return RawDecoder()


def _row_of(channel: Channel, schema: Schema | None) -> MessageRow | None:
    encoding = "" if schema is None else schema.encoding
    return _ROWS.get((encoding, channel.message_encoding.lower())) or _ROWS.get((encoding, None))


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
def _compiled(row: MessageRow, name: str, data: bytes) -> MessageDecoder:
    return row.compile(name, data)
