"""When the messages of each channel came, by the message indexes of a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...engine.errors import ReadError
from ...engine.limits import MAX_INDEXED_TIMES
from .file import McapFile
from .records import HEAD, MESSAGE_INDEX, ChunkEntry
from .scan import Found

Times = npt.NDArray[np.uint64]


class ChannelTiming(NamedTuple):
    """Log times in ns: of the first and the last message, and the longest time between two that follow each other,
    with where that begins (both None for a single message).
    """

    first: int
    last: int
    largest_gap: int | None
    gap_start: int | None


class TimeCollector:
    """Collects the times of messages by channel, up to ``MAX_INDEXED_TIMES``; beyond that nothing is known."""

    def __init__(self) -> None:
        self._times: dict[int, list[Times]] = {}
        self._count = 0

    @property
    def is_full(self) -> bool:
        """Whether there were too many."""
        return self._count > MAX_INDEXED_TIMES

    def add(self, channel_id: int, times: Times) -> None:
        """Take in the times of some messages of a channel, in any order."""
        self._count += len(times)
        if self.is_full:
            self._times.clear()
        else:
            self._times.setdefault(channel_id, []).append(times)

    def add_found(self, found: Found) -> None:
        """Take in messages that were read."""
        channels, times = found.heads["channel"], found.heads["log_time"]
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


def indexed_times(file: McapFile, entries: Sequence[ChunkEntry]) -> TimeCollector:
    """The times that the MessageIndex records behind these chunks tell. Of the file nothing else is read."""
    collector = TimeCollector()
    if sum(entry.index_length for entry in entries) // 16 > MAX_INDEXED_TIMES:
        return collector
    file.peek((entry.end, entry.index_length) for entry in entries)
    for entry in entries:
        try:
            for id_, times in _indexes(file.read_at(entry.end, entry.index_length, what="a message index")):
                collector.add(id_, times)
        except ReadError as error:
            if error.transient:
                raise
    return collector


def _indexes(data: bytes) -> Iterable[tuple[int, Times]]:
    at = 0
    while at + HEAD.size + 6 <= len(data):
        opcode, length = HEAD.unpack_from(data, at)
        body = data[at + HEAD.size : at + HEAD.size + length]
        size = int.from_bytes(body[2:6], "little")
        if opcode == MESSAGE_INDEX and size % 16 == 0 and size <= len(body) - 6:
            yield int.from_bytes(body[:2], "little"), np.frombuffer(body, "<u8", size // 8, 6)[::2]
        at += HEAD.size + length


def _timing(times: Times) -> ChannelTiming:
    first, last = int(times[0]), int(times[-1])
    if len(times) == 1:
        return ChannelTiming(first, last, None, None)
    gaps = np.diff(times)
    at = int(np.argmax(gaps))
    return ChannelTiming(first, last, int(gaps[at]), int(times[at]))
