"""Neighbours in time among open chunks: one sorted index for each entity, timeline and component."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from ..chunk import TimelineKind
from .extent import MergeCandidate
from .pending import Pending

Key = tuple[str, str, TimelineKind, str]
"""Entity path, timeline name and kind, component."""


class _Starts:
    """Chunks by the time at which one component begins on one timeline."""

    __slots__ = ("buckets", "times")

    def __init__(self) -> None:
        self.times: list[int] = []
        self.buckets: dict[int, list[Pending]] = {}

    def add(self, start: int, chunk: Pending) -> None:
        bucket = self.buckets.get(start)
        if bucket is None:
            insort(self.times, start)
            self.buckets[start] = [chunk]
        else:
            bucket.append(chunk)

    def remove(self, start: int, chunk: Pending) -> None:
        bucket = self.buckets[start]
        bucket.remove(chunk)
        if not bucket:
            del self.buckets[start]
            del self.times[bisect_left(self.times, start)]


class Neighbours:
    """The index of all open chunks of a store."""

    def __init__(self) -> None:
        self._indexes: dict[Key, _Starts] = {}

    def add(self, chunk: Pending) -> None:
        """Take ``chunk`` into the indexes of its components."""
        for key, (start, _) in _spans(chunk.extent):
            self._of(key).add(start, chunk)

    def remove(self, chunk: Pending) -> None:
        """Take ``chunk`` out of them."""
        for key, (start, _) in _spans(chunk.extent):
            self._indexes[key].remove(start, chunk)

    def moved(self, chunk: Pending, before: MergeCandidate) -> None:
        """``chunk``, which had the extent ``before``, has grown: indexes change where it begins elsewhere."""
        known = {key: start for key, (start, _) in _spans(before)}
        for key, (start, _) in _spans(chunk.extent):
            old = known.get(key)
            if old == start:
                continue
            index = self._of(key)
            if old is not None:
                index.remove(old, chunk)
            index.add(start, chunk)

    def of(self, extent: MergeCandidate) -> Iterator[tuple[Pending, int]]:
        """The nearest chunks on each timeline and component, each with how much it counts (2 for an equal start)."""
        for key, (start, end) in _spans(extent):
            index = self._indexes.get(key)
            if index is None:
                continue
            times, buckets = index.times, index.buckets
            below = bisect_left(times, start)
            above = bisect_right(times, end)
            if below:
                for chunk in buckets[times[below - 1]]:
                    yield chunk, 1
            if above < len(times):
                for chunk in buckets[times[above]]:
                    yield chunk, 1
            for chunk in buckets.get(start, ()):
                yield chunk, 2

    def last_before(self, extent: MergeCandidate) -> Pending | None:
        """The chunk that begins last of all on each timeline and component, before ``extent`` does, if it is one."""
        last: Pending | None = None
        for key, (start, _) in _spans(extent):
            index = self._indexes.get(key)
            if index is None or not index.times or index.times[-1] >= start:
                return None
            bucket = index.buckets[index.times[-1]]
            if len(bucket) > 1 or last not in (None, bucket[0]):
                return None
            last = bucket[0]
        return last

    def _of(self, key: Key) -> _Starts:
        index = self._indexes.get(key)
        if index is None:
            index = self._indexes[key] = _Starts()
        return index


def _spans(extent: MergeCandidate) -> Iterator[tuple[Key, tuple[int, int]]]:
    path = extent.entity_path
    for name, column in extent.columns.items():
        for timeline, span in zip(extent.timelines, column.spans, strict=True):
            if span is not None:
                yield (path, timeline.name, timeline.kind, name), span
