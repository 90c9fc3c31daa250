"""Information on an MCAP file, as far as its summary tells, and on when the messages of each channel came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from .section import SectionReader

_SHORTEST_GAP: Final = 50
"""Of the length of a file: a longest gap that is shorter is not drawn."""

_Times = npt.NDArray[np.uint64]


class ChannelTiming(NamedTuple):
    """Log times in ns: of the first and the last message, and the longest time between two consecutive messages with
    its start (both None for a single message).
    """

    first: int
    last: int
    largest_gap: int | None
    gap_start: int | None


class TimeCollector:
    """Collects the times of messages by channel, up to ``MAX_INDEXED_TIMES``; beyond that nothing is known."""

    def __init__(self) -> None:
        self._times: dict[int, list[_Times]] = {}
        self._count = 0

    @property
    def is_full(self) -> bool:
        """Return whether there were too many times."""
        return self._count > MAX_INDEXED_TIMES

    def add(self, channel_id: int, times: _Times) -> None:
        """Take in the times of some messages of a channel, in any order."""
        self._count += len(times)
        if self.is_full:
            self._times.clear()
        else:
            self._times.setdefault(channel_id, []).append(times)

    def add_found(self, messages: MessageHeads) -> None:
        """Take in messages that were read."""
        channels, times = messages.heads["channel"], messages.heads["log_time"]
        for id_ in np.unique(channels).tolist():
            self.add(id_, times[channels == id_])

    def timings(self, counts: Mapping[int, int] | None) -> dict[int, ChannelTiming]:
        """The timing of each channel; not of one of which there are not as many messages as ``counts`` says."""
        timings = {}
        for id_, parts in self._times.items():
            times = np.sort(np.concatenate(parts))
            if len(times) and (counts is None or counts.get(id_) == len(times)):
                timings[id_] = _timing(times)
        return timings


def _indexed_times(file: McapFile, entries: Sequence[ChunkIndexEntry]) -> TimeCollector:
    """Return the times in the MessageIndex records behind these chunks. Reads nothing else of the file."""
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
class ChannelInfo:
    """One channel. ``count`` is its number of messages, None if the summary does not have it.

    ``timing`` are their times; None if not requested, or unknown.
    """

    id: int
    topic: str
    message_encoding: str
    schema: str | None
    schema_encoding: str | None
    count: int | None
    timing: ChannelTiming | None = None

    @property
    def rate(self) -> float | None:
        """Messages a second, from the first message to the last."""
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
    """The content of an MCAP, described by :meth:`McapReader.info`.

    Times are ns as the writer wrote them, None without messages or if the summary lacks them. ``bytes`` is the size of
    the file, ``uncompressed_bytes`` that of the records in its chunks, ``compressed_bytes`` their size as stored;
    ``compression`` counts chunks by compression (``""`` is none). ``scanned``: there was no summary, so the whole
    file was read for this.
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

    kind: ClassVar[str] = "MCAP"

    @property
    def compression_ratio(self) -> float | None:
        """Uncompressed over compressed bytes of the chunks."""
        return self.uncompressed_bytes / self.compressed_bytes if self.compressed_bytes else None

    def __repr__(self) -> str:
        messages = "" if self.messages is None else f", {counted(self.messages, 'message')}"
        channels = counted(len(self.channels), "channel")
        return f"{type(self).__name__}({self.path}: {size(self.bytes)}, {channels}{messages})"

    def _repr_html_(self) -> str:
        return self.panel(f"{self.kind} {self.path}")

    def panel(self, title: str) -> str:
        """The panel that a notebook shows, under this title."""
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
        """A bar where a channel has messages in the file's time: but for the longest gap."""
        if timing is None or self.start_time is None or self.end_time is None:
            return None
        first, length = self.start_time, max(self.end_time - self.start_time, 1)
        gap = timing.largest_gap or 0
        quiet = timing.gap_start if timing.gap_start is not None and gap * _SHORTEST_GAP > length else timing.last
        spans = ((timing.first, quiet), (min(quiet + gap, timing.last), timing.last))
        return track((((a - first) / length, (b - first) / length) for a, b in spans))


def describe_file(file: McapFile, *, timing: bool = False) -> McapInfo:
    """Describe an open file, with ``timing`` that of its channels too. Raises ``ReadError`` when it is damaged."""
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
    )


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
    """Read the file from front to end, decode nothing."""
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
    )


def described_channels(
    channels: Mapping[int, Channel],
    schemas: Mapping[int, McapSchema],
    counts: Mapping[int, int] | None,
    timings: Mapping[int, ChannelTiming],
) -> tuple[ChannelInfo, ...]:
    """The channels with their schemas, and their counts and timings where these are known."""

    def described(channel: Channel) -> ChannelInfo:
        schema = schemas.get(channel.schema_id)
        name, encoding = (None, None) if schema is None else (schema.name, schema.encoding)
        count = None if counts is None else counts.get(channel.id, 0)
        return ChannelInfo(
            channel.id, channel.topic, channel.message_encoding, name, encoding, count, timings.get(channel.id)
        )

    return tuple(map(described, sorted(channels.values())))
