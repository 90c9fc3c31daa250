"""The decoder ``schema``: each channel, with its schema, at the entity of its topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ....engine.chunk import Chunk, ComponentDescriptor, parse_entity_path
from ..options import McapOptions
from ..registry import Channel, Schema
from .facts import FileFacts
from .static import BLOB, PAIRS, described, pairs, static_chunk


def schema_chunks(facts: FileFacts, options: McapOptions) -> Iterator[Chunk]:
    """One chunk for each channel that has messages and is selected, by ascending id."""
    for id_ in sorted(facts.filled & facts.channels.keys()):
        channel = facts.channels[id_]
        if options.selects(channel.topic):
            yield _chunk(channel, facts.schemas.get(channel.schema_id))


def _chunk(channel: Channel, schema: Schema | None) -> Chunk:
    metadata = pairs(dict(sorted(channel.metadata)))
    columns = [
        _column("McapChannel", "id", "ChannelId", channel.id, pa.uint16()),
        _column("McapChannel", "topic", "Text", channel.topic, pa.string()),
        _column("McapChannel", "message_encoding", "Text", channel.message_encoding, pa.string()),
        _column("McapChannel", "metadata", "KeyValuePairs", metadata, PAIRS),
    ]
    if schema is not None:
        columns += [
            _column("McapSchema", "id", "SchemaId", schema.id, pa.uint16()),
            _column("McapSchema", "name", "Text", schema.name, pa.string()),
            _column("McapSchema", "encoding", "Text", schema.encoding, pa.string()),
            (described("McapSchema", "data", "Blob"), _blob(schema.data)),
        ]
    return static_chunk(parse_entity_path(channel.topic), columns)


def _column(
    archetype: str, field: str, component_type: str, value: object, datatype: pa.DataType
) -> tuple[ComponentDescriptor, pa.Array]:
    return described(archetype, field, component_type), pa.array([value], datatype)


def _blob(data: bytes) -> Any:
    values = pa.Array.from_buffers(pa.uint8(), len(data), [None, pa.py_buffer(data)])
    return pa.Array.from_buffers(BLOB, 1, [None, pa.array([0, len(data)], pa.int32()).buffers()[1]], children=[values])
