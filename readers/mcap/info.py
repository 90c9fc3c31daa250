"""Information on an MCAP file from its summary, and on the times of each channel's messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...engine.errors import ReadError
from ...engine.limits import MAX_INDEXED_TIMES
from ...engine.markup import Cell, panel, table, track
from ...engine.units import counted, duration, size, utc_time
from .decoders import McapOptions
from .file import McapFile, McapLayout, Summary, read_layout
from .file_level import MessageSurvey
from .message_indexes import indexed_times
from .plan import whole
from .records import Channel, ChunkIndexEntry, McapSchema, MessageHeads, Registry
from .section import McapSplit, SectionReader

_SHORTEST_GAP: Final = 50
"""A largest gap is only drawn if it is at least the file's duration divided by this."""

_Times = npt.NDArray[np.uint64]
Ticks = npt.NDArray[np.int64]


class ChannelTiming(NamedTuple):
    """Log times in ns: the first, the last, and the largest gap between consecutive messages, with its start.

    Gap and start are None for a single message.
    """

    first: int
    last: int
    largest_gap: int | None
    gap_start: int | None


class TimeCollector:
    """Collects the times of messages by channel, up to ``MAX_INDEXED_TIMES``; if there are more, it drops all."""

    def __init__(self) -> None:
        self._times: dict[int, list[_Times]] = {}
        self._count = 0

    @property
    def is_full(self) -> bool:
        """Return whether there were too many times."""
        return self._count > MAX_INDEXED_TIMES

    def add(self, channel_id: int, times: _Times) -> None:
        """Add the times of some messages of a channel, in any order."""
        self._count += len(times)
        if self.is_full:
            self._times.clear()
        else:
            self._times.setdefault(channel_id, []).append(times)

    def add_found(self, messages: MessageHeads) -> None:
        """Add messages that were read."""
        channels, times = messages.heads["channel"], messages.heads["log_time"]
        for id_ in np.unique(channels).tolist():
            self.add(id_, times[channels == id_])

    def timings(self, counts: Mapping[int, int] | None) -> dict[int, ChannelTiming]:
        """The timing of each channel whose number of times agrees with ``counts``."""
        timings = {}
        for id_, parts in self._times.items():
            times = np.sort(np.concatenate(parts))
            if len(times) and (counts is None or counts.get(id_) == len(times)):
                timings[id_] = _timing(times)
        return timings


def _indexed_times(file: McapFile, entries: Sequence[ChunkIndexEntry]) -> TimeCollector:
    """Return the times in the MessageIndex records after these chunks. Reads nothing else of the file."""
    collector = TimeCollector()
    if sum(entry.index_length for entry in entries) // 16 > MAX_INDEXED_TIMES:
        return collector
    file.peek((entry.end, entry.index_length) for entry in entries)
    for entry in entries:
        try:
            for id_, times in indexed_times(file.read_at(entry.end, entry.index_length, what="a message index")):
                collector.add(id_, times)
        except ReadError as error:
            if error.transient:
                raise
    return collector


def _timing(times: _Times) -> ChannelTiming:
    first, last = int(times[0]), int(times[-1])
    if len(times) == 1:
        return ChannelTiming(first, last, None, None)
    gaps = np.diff(times)
    at = int(np.argmax(gaps))
    return ChannelTiming(first, last, int(gaps[at]), int(times[at]))


@dataclass(frozen=True, slots=True)
class McapSchemaInfo:
    """A schema without its text; ``data_size_bytes`` is the size of the text."""

    id: int
    name: str
    encoding: str
    data_size_bytes: int


@dataclass(frozen=True, slots=True)
class McapChannelInfo:
    """A channel, described as in Rerun.

    ``frequency_hz`` has two rates, in messages per second over the duration of the file: one without the first
    message, then one with it. It is None for a single message, or if the duration is 0 or unknown.
    """

    id: int
    topic: str
    message_encoding: str
    metadata: Mapping[str, str]
    schema: McapSchemaInfo | None
    message_count: int | None
    frequency_hz: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class McapChunkInfo:
    """A file's chunks, described as in Rerun. Sizes are None without chunks or chunk indexes."""

    count: int
    max_uncompressed_size_bytes: int | None
    max_compressed_size_bytes: int | None
    has_overlapping_time_ranges: bool


@dataclass(frozen=True, slots=True)
class McapCompressionInfo:
    """The chunks with one compression; ``""`` means none."""

    codec: str
    chunk_count: int
    compressed_size_bytes: int
    uncompressed_size_bytes: int

    @property
    def savings_ratio(self) -> float | None:
        """The fraction of the uncompressed bytes that compression saves, or None if there are no bytes."""
        whole = self.uncompressed_size_bytes
        return 1 - self.compressed_size_bytes / whole if whole else None


@dataclass(frozen=True, slots=True)
class ChannelInfo:
    """One channel. ``count`` is its number of messages, None if the summary does not have it.

    ``timing`` has the messages' times, or is None if not requested or unknown. ``metadata`` is the writer's metadata of
    the channel, and ``schema_info`` describes the channel's schema.
    """

    id: int
    topic: str
    message_encoding: str
    schema: str | None
    schema_encoding: str | None
    count: int | None
    timing: ChannelTiming | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    schema_info: McapSchemaInfo | None = None

    @property
    def rate(self) -> float | None:
        """Messages per second, from the first message to the last."""
        if self.timing is None or self.count is None or self.timing.last == self.timing.first:
            return None
        return (self.count - 1) / ((self.timing.last - self.timing.first) / 1e9)


def _utc(nanoseconds: int) -> str:
    try:
        return utc_time(nanoseconds / 1e9)
    except (ValueError, OverflowError, OSError):
        return f"{nanoseconds:,} ns"


def _length(nanoseconds: int) -> str:
    return duration(max(nanoseconds, 0) / 1e9)


@dataclass(frozen=True, slots=True, repr=False)
class McapInfo:
    """The description of an MCAP's content, from :meth:`McapReader.info`.

    Times are in ns as the writer wrote them; they are None if there are no messages or the summary lacks them.
    ``bytes`` is the size of the file, ``uncompressed_bytes`` the size of the records in its chunks, and
    ``compressed_bytes`` their stored size. ``compression`` counts chunks by compression (``""`` is none). ``scanned``
    is true if the file has no summary, so all of it was read. ``statistics_present`` is true if the summary has
    statistics. Rerun 0.41's other attribute names exist as well. Where Rerun uses a name of chunkmill for another type,
    Rerun's value is in ``channel_info``, ``chunk_info`` or ``compression_info``.
    """

    path: str
    bytes: int
    profile: str
    library: str
    channels: tuple[ChannelInfo, ...]
    messages: int | None
    start_time: int | None
    end_time: int | None
    chunks: int
    uncompressed_bytes: int
    compressed_bytes: int
    compression: Mapping[str, int]
    attachments: int
    metadata: int
    scanned: bool
    schemas: tuple[McapSchemaInfo, ...] = ()
    chunk_info: McapChunkInfo = McapChunkInfo(0, None, None, False)
    compression_info: tuple[McapCompressionInfo, ...] = ()
    statistics_present: bool = False

    kind: ClassVar[str] = "MCAP"

    @property
    def message_count(self) -> int | None:
        """``messages``, by Rerun's name."""
        return self.messages

    @property
    def message_start_time_ns(self) -> int | None:
        """``start_time``, by Rerun's name."""
        return self.start_time

    @property
    def message_end_time_ns(self) -> int | None:
        """``end_time``, by Rerun's name."""
        return self.end_time

    @property
    def duration_ns(self) -> int | None:
        """The time from the first message to the last in ns, or None if unknown."""
        return None if self.start_time is None or self.end_time is None else max(self.end_time - self.start_time, 0)

    @property
    def schema_count(self) -> int:
        """The number of schemas."""
        return len(self.schemas)

    @property
    def channel_count(self) -> int:
        """The number of channels."""
        return len(self.channels)

    @property
    def attachment_count(self) -> int:
        """``attachments``, by Rerun's name."""
        return self.attachments

    @property
    def metadata_count(self) -> int:
        """``metadata``, by Rerun's name."""
        return self.metadata

    @property
    def summary_source(self) -> str:
        """``embedded`` if the summary is from the file, ``reconstructed`` if the whole file was read for it."""
        return "reconstructed" if self.scanned else "embedded"

    @property
    def channel_info(self) -> tuple[McapChannelInfo, ...]:
        """The channels, described as in Rerun; ``channels`` has chunkmill's own description."""
        seconds = (self.duration_ns or 0) / 1e9
        return tuple(
            McapChannelInfo(
                c.id,
                c.topic,
                c.message_encoding,
                c.metadata,
                c.schema_info,
                c.count,
                ((c.count - 1) / seconds, c.count / seconds) if c.count and c.count > 1 and seconds else None,
            )
            for c in self.channels
        )

    @property
    def compression_ratio(self) -> float | None:
        """The uncompressed size of the chunks divided by their compressed size."""
        return self.uncompressed_bytes / self.compressed_bytes if self.compressed_bytes else None

    def __repr__(self) -> str:
        messages = "" if self.messages is None else f", {counted(self.messages, 'message')}"
        channels = counted(len(self.channels), "channel")
        return f"{type(self).__name__}({self.path}: {size(self.bytes)}, {channels}{messages})"

    def _repr_html_(self) -> str:
        return self.panel(f"{self.kind} {self.path}")

    def panel(self, title: str) -> str:
        """The panel for notebooks, with this title."""
        ratio = self.compression_ratio
        facts = [
            size(self.bytes),
            "" if self.messages is None else counted(self.messages, "message"),
            "" if self.start_time is None else f"from {_utc(self.start_time)}",
            "" if self.start_time is None or self.end_time is None else _length(self.end_time - self.start_time),
            f"profile {self.profile}" if self.profile else "",
            self.library,
            counted(self.chunks, "chunk") + (f" compressed to {1 / ratio:.0%}" if ratio and ratio != 1 else ""),
        ]
        head = ["topic", "messages", "per second", "schema", "encoding", "on log time"]
        return panel(title, facts, table(head, self._rows(), len(self.channels), kind="wide"))

    def _rows(self) -> Iterator[Sequence[Cell]]:
        for channel in sorted(self.channels, key=lambda c: (c.topic, c.id)):
            rate = None if channel.rate is None else f"{channel.rate:.3g}"
            yield (
                channel.topic,
                channel.count,
                rate,
                channel.schema,
                channel.message_encoding,
                self._bar(channel.timing),
            )

    def _bar(self, timing: ChannelTiming | None) -> Cell:
        """A bar of the times in the file at which a channel has messages; its longest gap is left blank."""
        if timing is None or self.start_time is None or self.end_time is None:
            return None
        first, length = self.start_time, max(self.end_time - self.start_time, 1)
        gap = timing.largest_gap or 0
        quiet = timing.gap_start if timing.gap_start is not None and gap * _SHORTEST_GAP > length else timing.last
        spans = ((timing.first, quiet), (min(quiet + gap, timing.last), timing.last))
        return track((((a - first) / length, (b - first) / length) for a, b in spans))


def describe_file(file: McapFile, *, timing: bool = False) -> McapInfo:
    """Describe an open file; ``timing`` adds the times of channels. Raises ``ReadError`` if the file is damaged."""
    layout = read_layout(file)
    summary = layout.summary
    if summary is None or not _is_complete(summary):
        return _scan(file, layout, timing=timing)
    statistics = summary.statistics
    counts = statistics.channel_message_counts if statistics is not None else None
    if statistics is not None and not counts and statistics.message_count:
        counts = None  # the writer left the map empty
    timings = _indexed_times(file, summary.chunks).timings(counts) if timing else {}
    start_time, end_time = _times_of(summary)
    return McapInfo(
        path=file.path,
        bytes=file.stored_size,
        profile=layout.profile,
        library=layout.library,
        channels=described_channels(
            {c.id: c for c in summary.channels}, {s.id: s for s in summary.schemas}, counts, timings
        ),
        messages=statistics.message_count if statistics is not None else None,
        start_time=start_time,
        end_time=end_time,
        chunks=len(summary.chunks),
        uncompressed_bytes=sum(entry.uncompressed_size for entry in summary.chunks),
        compressed_bytes=sum(entry.compressed_size for entry in summary.chunks),
        compression=dict(Counter(entry.compression for entry in summary.chunks)),
        attachments=statistics.attachment_count if statistics is not None else len(summary.attachments),
        metadata=statistics.metadata_count if statistics is not None else len(summary.metadata),
        scanned=False,
        schemas=tuple(map(_schema_info, sorted(summary.schemas))),
        chunk_info=_chunk_info(summary.chunks),
        compression_info=_compression_info(summary.chunks),
        statistics_present=statistics is not None,
    )


def _schema_info(schema: McapSchema) -> McapSchemaInfo:
    return McapSchemaInfo(schema.id, schema.name, schema.encoding, len(schema.data))


def _chunk_info(chunks: Sequence[ChunkIndexEntry]) -> McapChunkInfo:
    spans = sorted((entry.start_time, entry.end_time) for entry in chunks if entry.channel_ids or entry.end_time)
    latest = list(accumulate((end for _, end in spans), max))
    overlaps = any(start < end for (start, _), end in zip(spans[1:], latest, strict=False))
    return McapChunkInfo(
        len(chunks),
        max((entry.uncompressed_size for entry in chunks), default=None),
        max((entry.compressed_size for entry in chunks), default=None),
        overlaps,
    )


def _compression_info(chunks: Sequence[ChunkIndexEntry]) -> tuple[McapCompressionInfo, ...]:
    totals: dict[str, list[int]] = {}
    for entry in chunks:
        total = totals.setdefault(entry.compression, [0, 0, 0])
        for i, more in enumerate((1, entry.compressed_size, entry.uncompressed_size)):
            total[i] += more
    return tuple(McapCompressionInfo(codec, *totals[codec]) for codec in sorted(totals))


def _is_complete(summary: Summary) -> bool:
    """Return whether the summary repeats the channels of the file, and has the places of its chunks."""
    statistics = summary.statistics
    if statistics is None:
        return bool(summary.channels) and bool(summary.chunks)
    return len(summary.channels) >= statistics.channel_count and len(summary.chunks) >= statistics.chunk_count


def _times_of(summary: Summary) -> tuple[int | None, int | None]:
    statistics = summary.statistics
    if statistics is not None:
        if not statistics.message_count:
            return None, None
        return statistics.message_start_time, statistics.message_end_time
    filled = [entry for entry in summary.chunks if entry.channel_ids or entry.end_time]
    return (
        min((entry.start_time for entry in filled), default=None),
        max((entry.end_time for entry in filled), default=None),
    )


def _scan(file: McapFile, layout: McapLayout, *, timing: bool) -> McapInfo:
    """Describe a file by reading it from front to end, without decoding."""
    summary = layout.summary
    registry = Registry(file.path, *(summary[:2] if summary is not None else ()))
    survey, collector = MessageSurvey(), TimeCollector()
    reader = SectionReader(file, whole(file, layout, McapOptions()), registry)
    for group in reader.groups():
        survey.add(group.messages)
        if timing:
            collector.add_found(group.messages)
    tally = reader.tally
    return McapInfo(
        path=file.path,
        bytes=file.stored_size,
        profile=layout.profile,
        library=layout.library,
        channels=described_channels(
            registry.channels, registry.schemas, survey.counts, collector.timings(survey.counts)
        ),
        messages=tally.messages,
        start_time=survey.start_time,
        end_time=survey.end_time,
        chunks=tally.chunks.total(),
        uncompressed_bytes=tally.uncompressed,
        compressed_bytes=tally.compressed,
        compression=dict(tally.chunks),
        attachments=len(tally.attachments),
        metadata=len(tally.metadata),
        scanned=True,
        schemas=tuple(map(_schema_info, sorted(registry.schemas.values()))),
        chunk_info=McapChunkInfo(tally.chunks.total(), None, None, False),
        compression_info=_scanned_compression(tally.chunks, tally.compressed, tally.uncompressed),
    )


def _scanned_compression(chunks: Counter[str], compressed: int, uncompressed: int) -> tuple[McapCompressionInfo, ...]:
    """The compression of chunks without an index; sizes are only known for all chunks together."""
    if len(chunks) != 1:
        return ()
    ((codec, count),) = chunks.items()
    return (McapCompressionInfo(codec, count, compressed, uncompressed),)


def message_times(file: McapFile) -> Iterator[tuple[str, Mapping[str, Ticks]]]:
    """Yield topic, and log and publish times of messages, chunk by chunk in file order.

    Times are mapped from uint64 to int64 so that their order is kept. Raises ``ReadError``.
    """
    layout = read_layout(file)
    summary = layout.summary
    registry = Registry(file.path, *(summary[:2] if summary is not None else ()))
    splits = [
        McapSplit("", e.length, e.offset, e.end, chunks=1) for e in (summary.chunks if summary is not None else ())
    ]
    for split in splits or [whole(file, layout, McapOptions())]:
        for group in SectionReader(file, split, registry).groups():
            heads = group.messages.heads
            for id_ in np.unique(heads["channel"]).tolist():
                mine = heads[heads["channel"] == id_]
                yield (
                    registry.channels[id_].topic,
                    {f"message_{n}": _ordered(mine[n]) for n in ("log_time", "publish_time")},
                )


def _ordered(times: _Times) -> Ticks:
    return (np.ascontiguousarray(times).astype(np.uint64) ^ np.uint64(1 << 63)).view(np.int64)


def described_channels(
    channels: Mapping[int, Channel],
    schemas: Mapping[int, McapSchema],
    counts: Mapping[int, int] | None,
    timings: Mapping[int, ChannelTiming],
) -> tuple[ChannelInfo, ...]:
    """The channels with their schemas, and with counts and timings if known."""

    def described(channel: Channel) -> ChannelInfo:
        schema = schemas.get(channel.schema_id)
        name, encoding = (None, None) if schema is None else (schema.name, schema.encoding)
        count = None if counts is None else counts.get(channel.id, 0)
        return ChannelInfo(
            channel.id,
            channel.topic,
            channel.message_encoding,
            name,
            encoding,
            count,
            timings.get(channel.id),
            dict(channel.metadata),
            None if schema is None else _schema_info(schema),
        )

    return tuple(map(described, sorted(channels.values())))
