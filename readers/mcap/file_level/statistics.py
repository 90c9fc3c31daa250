"""The decoders ``recording_info`` and ``stats``: when a recording began, and the counts of its summary."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from mcap.records import Statistics

from ....engine.chunk import Chunk, ChunkData, ComponentDescriptor
from .static import PROPERTIES, described, static_chunk

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


def recording_info_chunk(statistics: Statistics | None) -> Chunk:
    """``RecordingInfo:start_time``, the first log time in ns; a row without columns when no statistics tell."""
    if statistics is None:
        return Chunk.from_data(ChunkData.fresh(PROPERTIES, 1, (), ()))
    start = pa.array([min(statistics.message_start_time, _LATEST)], pa.int64())
    return static_chunk(PROPERTIES, [(described("RecordingInfo", "start_time", "Timestamp"), start)])


def statistics_chunk(statistics: Statistics) -> Chunk:
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
    return static_chunk(PROPERTIES, columns)


def _described(field: str, component_type: str) -> ComponentDescriptor:
    return described("McapStatistics", field, component_type)
