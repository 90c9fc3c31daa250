"""The decoders ``recording_info``, ``schema`` and ``stats``: what a summary counts, and the channels it defines."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from mcap.records import Statistics

from ....engine.chunk import Chunk, ChunkData, ComponentDescriptor, parse_entity_path
from ....engine.errors import ReadWarning
from ..file import McapFile
from ..layout import Summary
from ..registry import Channel, Schema
from .decoder import BLOB, PAIRS, FileDecoder, described, pairs, static_chunk
from .facts import FileFacts, counted_channels, counts_are_known

_ENTITY: Final = "/__mcap_properties"
_COUNTS: Final = (
    "message_count",
    "schema_count",
    "channel_count",
    "attachment_count",
    "metadata_count",
    "chunk_count",
)
_TIMES: Final = ("message_start_time", "message_end_time")
_LATEST: Final = 2**63 - 1
_CHANNEL_COUNT: Final = pa.struct(
    [pa.field("channel_id", pa.uint16(), nullable=False), pa.field("message_count", pa.uint64(), nullable=False)]
)
_CHANNEL_COUNTS: Final = pa.list_(pa.field("item", _CHANNEL_COUNT, nullable=False))


class RecordingInfo(FileDecoder):
    """The decoder ``recording_info``: when the recording began."""

    name = "recording_info"
    entity = _ENTITY

    def chunks(self, file: McapFile, facts: FileFacts) -> Iterator[Chunk]:  # noqa: ARG002
        """``RecordingInfo:start_time``, the first log time in ns; a row without columns when no statistics tell."""
        if facts.statistics is None:
            yield Chunk.from_data(ChunkData.fresh(_ENTITY, 1, (), ()))
            return
        start = pa.array([min(facts.statistics.message_start_time, _LATEST)], pa.int64())
        yield static_chunk(_ENTITY, [(described("RecordingInfo", "start_time", "Timestamp"), start)])


class Schemas(FileDecoder):
    """The decoder ``schema``: each channel, with its schema, at the entity of its topic."""

    name = "schema"

    @classmethod
    def is_told_by(cls, summary: Summary) -> bool:
        """Whether the summary repeats the channels, and says which have messages."""
        return counts_are_known(summary) and counted_channels(summary) <= {c.id for c in summary.channels}

    def chunks(self, file: McapFile, facts: FileFacts) -> Iterator[Chunk]:  # noqa: ARG002
        """One chunk for each channel that has messages and is selected, by ascending id."""
        for id_ in sorted(facts.filled & facts.channels.keys()):
            channel = facts.channels[id_]
            if self._selects(channel.topic):
                yield _channel_chunk(channel, facts.schemas.get(channel.schema_id))


class Counts(FileDecoder):
    """The decoder ``stats``: the counts of the summary."""

    name = "stats"
    entity = _ENTITY

    def chunks(self, file: McapFile, facts: FileFacts) -> Iterator[Chunk]:
        """``McapStatistics``; a ``ReadWarning`` where there are none."""
        if facts.statistics is not None:
            yield _statistics_chunk(facts.statistics)
            return
        warnings.warn(
            f"{file.path}: the summary has no Statistics record; the decoders stats and recording_info have nothing to"
            " tell",
            ReadWarning,
            stacklevel=2,
        )


def _statistics_chunk(statistics: Statistics) -> Chunk:
    """``McapStatistics``: the counts, the first and last log time (ns), and the messages of each channel by id."""
    per_channel = [
        {"channel_id": id_, "message_count": count} for id_, count in sorted(statistics.channel_message_counts.items())
    ]
    columns = [
        *((_described(name, "Count"), pa.array([getattr(statistics, name)], pa.uint64())) for name in _COUNTS),
        *(
            (_described(name, "Timestamp"), pa.array([min(getattr(statistics, name), _LATEST)], pa.int64()))
            for name in _TIMES
        ),
        (_described("channel_message_counts", "ChannelMessageCounts"), pa.array([per_channel], _CHANNEL_COUNTS)),
    ]
    return static_chunk(_ENTITY, columns)


def _described(field: str, component_type: str) -> ComponentDescriptor:
    return described("McapStatistics", field, component_type)


def _channel_chunk(channel: Channel, schema: Schema | None) -> Chunk:
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
