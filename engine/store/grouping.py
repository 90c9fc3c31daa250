"""The second step of compaction: which small chunks belong together, decided from their headers alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..chunk import ChunkHeader
from .profile import OptimizationProfile, Settings
from .video.columns import SAMPLE


class SizedHeader(NamedTuple):
    """A chunk's header, its size in memory in bytes, and whether its timelines are known to ascend."""

    header: ChunkHeader
    size: int
    is_sorted: bool = True


def small_groups(entries: Sequence[SizedHeader], profile: OptimizationProfile | None) -> list[list[int]]:
    """Groups of two or more chunks that should each be merged into one (:func:`merge_chunks`), as indexes.

    The chunks of a group are of one entity, with the same timelines, components and datatypes, follow each other in
    time, and together keep the profile's thresholds; rows out of order, or chunks that overlap in time, count as
    unsorted. Static chunks are left out, and video samples too where the profile lays them out by groups of pictures.
    """
    settings = Settings.of(profile)
    alike: dict[tuple[object, ...], list[int]] = {}
    for index, entry in enumerate(entries):
        if _may_merge(entry, settings):
            alike.setdefault(_shape(entry.header), []).append(index)
    out = []
    for indexes in alike.values():
        indexes.sort(key=lambda i: (_start(entries[i]), entries[i].header.chunk_id))
        out += [group for group in _runs(entries, indexes, settings) if len(group) > 1]
    return sorted(out)


def _may_merge(entry: SizedHeader, settings: Settings) -> bool:
    header = entry.header
    if header.is_static or not header.num_rows or not header.components:
        return False
    names = [c.descriptor.component for c in header.components]
    if len(set(names)) < len(names) or (settings.gop_batching and SAMPLE in names):
        return False
    return entry.size < settings.max_bytes and header.num_rows < settings.row_limit(entry.is_sorted)


def _shape(header: ChunkHeader) -> tuple[object, ...]:
    """Equal for chunks whose rows can stand in one chunk without a null added."""
    timelines = tuple((t.name, t.kind) for t in header.timelines)
    return header.entity_path, timelines, tuple((c.descriptor, c.datatype) for c in header.components)


def _start(entry: SizedHeader) -> int:
    return entry.header.timelines[0].start or 0


def _runs(entries: Sequence[SizedHeader], indexes: Iterable[int], settings: Settings) -> Iterable[list[int]]:
    """Neighbours together, as many as the thresholds allow."""
    run = _Run()
    for index in indexes:
        if not run.takes(entries[index], settings):
            yield run.indexes
            run = _Run()
        run.add(index, entries[index])
    yield run.indexes


class _Run:
    def __init__(self) -> None:
        self.indexes: list[int] = []
        self._size = self._rows = 0
        self._sorted = True
        self._last: ChunkHeader | None = None

    def takes(self, entry: SizedHeader, settings: Settings) -> bool:
        """Whether the thresholds allow one more."""
        rows, ascending = self._rows + entry.header.num_rows, self._sorted_with(entry)
        return self._size + entry.size <= settings.max_bytes and rows <= settings.row_limit(ascending)

    def add(self, index: int, entry: SizedHeader) -> None:
        self._sorted = self._sorted_with(entry)
        self.indexes.append(index)
        self._size += entry.size
        self._rows += entry.header.num_rows
        self._last = entry.header

    def _sorted_with(self, entry: SizedHeader) -> bool:
        if not self._sorted or not entry.is_sorted:
            return False
        if self._last is None:
            return True
        pairs = zip(self._last.timelines, entry.header.timelines, strict=True)
        return all((a.end or 0) <= (b.start or 0) for a, b in pairs)
