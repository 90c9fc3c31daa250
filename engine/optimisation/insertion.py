"""Insertion of chunks into a store: split, merged with their neighbours in time; static data separate.

Small facts, passed without their chunks, decide which chunk provides a static component and which are unneeded. So a
store over many parts decides like one in memory.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from ..chunk import Chunk, ChunkData, ComponentDescriptor, TimelineKind, alike, is_plain
from ..errors import ReadError
from ..limits import MIB
from .merging import Pending, rows_per_piece, split_rows_sized
from .profile import INERT, MergeCandidate, RowSizes, Settings, extent_of

Key = tuple[str, str, TimelineKind, str]
"""Entity path, timeline name and kind, component."""


class _Starts:
    """Chunks by the first time of a component on a timeline."""

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
        """Add ``chunk`` to the indexes of its components."""
        for key, (start, _) in _spans(chunk.extent):
            self._of(key).add(start, chunk)

    def remove(self, chunk: Pending) -> None:
        """Remove ``chunk`` from the indexes."""
        for key, (start, _) in _spans(chunk.extent):
            self._indexes[key].remove(start, chunk)

    def moved(self, chunk: Pending, before: MergeCandidate) -> None:
        """Update indexes in which ``chunk``, grown from the extent ``before``, has another start."""
        old_starts = {key: start for key, (start, _) in _spans(before)}
        for key, (start, _) in _spans(chunk.extent):
            old = old_starts.get(key)
            if old == start:
                continue
            index = self._of(key)
            if old is not None:
                index.remove(old, chunk)
            index.add(start, chunk)

    def of(self, extent: MergeCandidate) -> Iterator[tuple[Pending, int]]:
        """The nearest chunks on each timeline and component, each with a weight (2 for an equal start, else 1)."""
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
        """The chunk that begins last on all timelines and components, before ``extent``, or None if these differ."""
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


_KEPT = frozenset(("Transform3D", "Pinhole"))
"""Archetypes that several static chunks of one entity may hold side by side."""


class StaticFacts(NamedTuple):
    """A static chunk's components with a value, each with the largest row id of its rows with a value.

    ``replaceable`` is False for a chunk that is never dropped.
    """

    chunk_id: bytes
    entity_path: str
    provides: dict[str, bytes]
    replaceable: bool


class StaticRegister:
    """The static chunks of a store."""

    def __init__(self) -> None:
        self._providers: dict[tuple[str, str], tuple[bytes, bytes]] = {}
        self._needed: dict[bytes, int] = {}
        self._replaceable: dict[bytes, bool] = {}

    def add(self, facts: StaticFacts) -> list[bytes]:
        """Add a chunk; return the ids of the chunks that it overwrote completely, which the store drops.

        A chunk is overwritten if later chunks have larger row ids for all components that it provided.
        """
        self._replaceable[facts.chunk_id] = facts.replaceable
        overtaken = []
        for component, row_id in facts.provides.items():
            key = facts.entity_path, component
            provider = self._providers.get(key)
            if provider is not None:
                if row_id <= provider[1]:
                    continue
                self._needed[provider[0]] -= 1
                overtaken.append(provider[0])
            self._providers[key] = facts.chunk_id, row_id
            self._needed[facts.chunk_id] = self._needed.get(facts.chunk_id, 0) + 1
        gone = [c for c in dict.fromkeys(overtaken) if not self._needed[c] and self._replaceable[c]]
        for chunk_id in gone:
            del self._needed[chunk_id], self._replaceable[chunk_id]
        return gone


def static_facts(chunk: Chunk) -> StaticFacts:
    """The facts of a static chunk whose row ids ascend."""
    data = chunk.data
    provides: dict[str, bytes] = {}
    for c in data.components:
        row = _last_value(c.values)
        if row is not None:
            provides[c.descriptor.component] = data.row_ids[row].as_py()
    replaceable = not any(_is_kept(c.descriptor) for c in data.components)
    return StaticFacts(data.chunk_id, data.entity_path, provides, replaceable)


def _last_value(values: pa.ListArray) -> int | None:
    """The last non-null row, or None."""
    if not values.null_count:
        return len(values) - 1
    rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    return int(rows[-1]) if len(rows) else None


def _is_kept(descriptor: ComponentDescriptor) -> bool:
    return descriptor.archetype_short_name in _KEPT or descriptor.component.partition(":")[0] in _KEPT


ADDING: Final = "Failed to add chunk to store: "
"""The beginning of error messages in collecting a stream; stores made from existing chunks omit it."""

_FEWEST_JOINED: Final = 8
"""The smallest run of chunks worth merging at once."""

_SMALL_BYTES: Final = 64 * 1024
_MOST_WAITING: Final = (4096, 16 * MIB)
"""The limits for waiting chunks: their number and bytes."""


class ChunkInserter:
    """A container of chunks with Rerun's rules of insertion.

    Chunks without rows or components, and chunks inserted before, are skipped. Temporal chunks above the thresholds are
    split; others merge with the nearest compatible chunk in time (a tie goes to the smallest chunk id). A static chunk
    drops those that it overwrites completely. Rows of merged chunks are only copied in :meth:`chunks`.
    """

    def __init__(self, settings: Settings = INERT) -> None:
        self.settings = settings
        self.pending: dict[bytes, Pending] = {}
        self.size = 0
        """Bytes of all temporal chunks (0 in a store that does not merge)."""
        self._seen: set[bytes] = set()
        self._neighbours = Neighbours()
        self._static = StaticRegister()

    def __len__(self) -> int:
        return len(self.pending)

    def insert(self, chunk: Chunk) -> None:
        """Insert one chunk.

        Raises :class:`ReadError` when its row ids do not ascend.
        """
        if self._is_new(chunk):
            self.adopt(Pending(chunk))

    def insert_all(self, chunks: Iterable[Chunk]) -> None:
        """Insert chunks in order, each like :meth:`insert`; many small ones of one entity and shape at once.

        20,000 of one row take 0.3 s of processor time instead of 1.8 (``benchmarks/bench_small_chunks.py``).
        """
        small = _SmallRuns()
        for chunk in filter(self._is_new, chunks):
            if self.settings != INERT and small.takes(chunk):
                if small.is_full:
                    self._insert_runs(small)
            else:
                self._insert_runs(small)
                self.adopt(Pending(chunk))
        self._insert_runs(small)

    def adopt(self, incoming: Pending) -> None:
        """Insert a chunk of another store; its known sizes and ranges are not measured again."""
        if incoming.is_static:
            self._insert_static(incoming)
        elif self.settings == INERT:
            self._keep(incoming)
        elif incoming.frozen:
            self._add(incoming)
        else:
            for piece in self._split(incoming):
                self._insert_temporal(piece)

    def remove(self, chunk: Pending) -> None:
        """Remove a temporal chunk; its id stays known."""
        del self.pending[chunk.chunk_id]
        self.size -= chunk.extent.size
        if not chunk.frozen:
            self._neighbours.remove(chunk)

    def replace(self, old: Iterable[Pending], new: Iterable[Pending]) -> None:
        """Replace temporal chunks by others with the same rows, which are neither merged nor split."""
        for chunk in old:
            self.remove(chunk)
        for chunk in new:
            self._add(chunk)

    def in_order(self) -> list[Pending]:
        """The chunks in the store, by ascending id."""
        return [self.pending[chunk_id] for chunk_id in sorted(self.pending)]

    def chunks(self) -> list[Chunk]:
        """All chunks by ascending chunk id. Merged ones are joined now; unchanged ones are the inserted objects."""
        return [chunk for pending in self.in_order() for chunk in pending.chunks()]

    def _is_new(self, chunk: Chunk) -> bool:
        """Return True for a new chunk with rows and values. Raises :class:`ReadError` when row ids do not ascend."""
        data = chunk.data
        if not data.num_rows or not data.components or data.chunk_id in self._seen:
            return False
        check_row_ids(chunk, doing="" if self.settings == INERT else ADDING)
        self._seen.add(data.chunk_id)
        return True

    # --- temporal chunks

    def _insert_runs(self, small: _SmallRuns) -> None:
        for run in small.taken():
            self._insert_run(run)

    def _insert_run(self, run: Sequence[Chunk]) -> None:
        """Insert chunks of one entity and shape, many at once if their merges are the same as one by one.

        That is so if each merges with the open chunk before it, within the thresholds, and no other chunk is near.
        """
        at = 0
        while at < len(run):
            partner = self._insert_one(run[at])
            at += 1
            some = run[at : at + (0 if partner is None else self._most_joined(partner.extent, run, at))]
            while len(some) >= _FEWEST_JOINED:
                if self._merged_at_once(some):
                    at += len(some)
                    break
                some = some[: len(some) // 2]

    def _insert_one(self, chunk: Chunk) -> Pending | None:
        """Insert a chunk; return the open chunk that then has its rows, or None if it was split."""
        pending = Pending(chunk)
        if pending.frozen:
            self._add(pending)
            return None
        pieces = list(self._split(pending))
        into = [self._insert_temporal(piece) for piece in pieces]
        return into[0] if len(into) == 1 and not into[0].frozen else None

    def _most_joined(self, extent: MergeCandidate, run: Sequence[Chunk], at: int) -> int:
        """The number of a run's chunks from ``at`` on whose rows fit into an open chunk with ``extent``."""
        rows, size = self.settings.row_limit(extent.ascending) - extent.num_rows, self.settings.max_bytes - extent.size
        for number, chunk in enumerate(run[at:]):
            rows -= chunk.data.num_rows
            size -= chunk.byte_size
            if rows < 0 or size < 0:
                return number
        return len(run) - at

    def _merged_at_once(self, some: Sequence[Chunk]) -> bool:
        """Merge chunks with the open one before them, if inserting each would do so; return whether it did."""
        joined = _joined_run(some)
        partner = None if joined is None else self._neighbours.last_before(joined.extent)
        if joined is None or partner is None or not partner.extent.is_continued_by(joined.extent):
            return False
        if not self._has_room(partner.extent, joined.extent):
            return False
        self._merge(partner, joined)
        return True

    def _has_room(self, extent: MergeCandidate, run: MergeCandidate) -> bool:
        """Return True if a chunk stays below the thresholds when a run's chunks are merged into it one by one."""
        whole, settings = extent.joined(run), self.settings
        rows = min(settings.max_rows, settings.row_limit(extent.ascending))
        return whole.size + run.overhead <= settings.max_bytes and whole.num_rows <= rows

    def _split(self, incoming: Pending) -> Iterator[Pending]:
        sizes = incoming.measured()
        extent = incoming.extent
        if rows_per_piece(extent.num_rows, extent.size, extent.ascending, self.settings) is None:
            yield incoming
            return
        for chunk in incoming.chunks():
            pieces = split_rows_sized(chunk.data, self.settings, sizes or RowSizes(chunk.data))
            if len(pieces) == 1:
                yield Pending(chunk)
                continue
            for data, columns in pieces:
                yield Pending(Chunk.from_data(data), extent_of(data, columns), piece=True)

    def _insert_temporal(self, incoming: Pending) -> Pending:
        """Insert a temporal chunk; return the chunk that then has its rows."""
        partner = None if incoming.frozen else self._elect(incoming)
        if partner is None:
            self._add(incoming)
            return incoming
        self._merge(partner, incoming)
        return partner

    def _merge(self, partner: Pending, incoming: Pending) -> None:
        before = partner.extent
        del self.pending[partner.chunk_id]
        partner.absorb(incoming)
        self._keep(partner)
        self._neighbours.moved(partner, before)
        self.size += partner.extent.size - before.size

    def _elect(self, incoming: Pending) -> Pending | None:
        """The chunk to merge ``incoming`` with, or None."""
        extent, settings = incoming.extent, self.settings
        if extent.size > settings.max_bytes or extent.num_rows > settings.row_limit(extent.ascending):
            return None
        points: dict[int, int] = {}
        candidates: dict[int, Pending] = {}
        for candidate, weight in self._neighbours.of(extent):
            identity = id(candidate)
            if identity not in points:
                points[identity] = 0
                if self._is_eligible(incoming, candidate):
                    candidates[identity] = candidate
            points[identity] += weight * candidate.extent.num_rows
        best = min(candidates, key=lambda c: (-points[c], candidates[c].chunk_id), default=None)
        return None if best is None else candidates[best]

    def _is_eligible(self, incoming: Pending, candidate: Pending) -> bool:
        mine, theirs = incoming.extent, candidate.extent
        return (
            mine.size + theirs.size <= self.settings.max_bytes
            and mine.num_rows + theirs.num_rows <= self.settings.row_limit(theirs.ascending)
            and mine.concatenable(theirs)
        )

    # --- what is kept

    def _insert_static(self, incoming: Pending) -> None:
        self._keep(incoming)
        for chunk in incoming.parts:
            for overwritten in self._static.add(static_facts(chunk)):
                del self.pending[overwritten]
                self._seen.discard(overwritten)

    def _add(self, chunk: Pending) -> None:
        self._keep(chunk)
        self.size += chunk.extent.size
        if not chunk.frozen:
            self._neighbours.add(chunk)

    def _keep(self, chunk: Pending) -> None:
        self.pending[chunk.chunk_id] = chunk
        self._seen.add(chunk.chunk_id)


def check_row_ids(chunk: Chunk, doing: str = ADDING) -> None:
    """Raise :class:`ReadError` for a chunk whose row ids do not ascend; the message begins with ``doing``."""
    if not chunk.data.ids_ascend:
        raise ReadError(
            f"{doing}Chunks must be sorted before insertion in the chunk store",
            hint=f"The row ids of {chunk.id} of {chunk.entity_path} do not ascend.",
        )


class _SmallRuns:
    """Waiting chunks by entity, in order. Entities are taken out in the order of their last chunks."""

    def __init__(self) -> None:
        self._count = self._size = 0
        self._entities: dict[str, list[_Run]] = {}

    @property
    def is_full(self) -> bool:
        """Return True if the waiting runs should be taken out."""
        return self._count >= _MOST_WAITING[0] or self._size >= _MOST_WAITING[1]

    def takes(self, chunk: Chunk) -> bool:
        """Keep a chunk and return True if it is small and temporal, and a run can fully describe it."""
        data = chunk.data
        if not data.timelines or chunk.byte_size > _SMALL_BYTES:
            return False
        shape, types = data.shape, data.types
        runs = self._entities.pop(data.entity_path, [])
        self._entities[data.entity_path] = runs
        if not runs or runs[-1].shape != shape or not alike(runs[-1].types, types):
            names = {c.descriptor.component for c in data.components}
            if len(names) < len(data.components) or not all(map(is_plain, types)):
                return False
            runs.append(_Run(shape, types, []))
        runs[-1].chunks.append(chunk)
        self._count += 1
        self._size += chunk.byte_size
        return True

    def taken(self) -> list[list[Chunk]]:
        """Take out all runs: neighbouring chunks of one entity and shape."""
        runs = [run.chunks for runs in self._entities.values() for run in runs]
        self._entities, self._count, self._size = {}, 0, 0
        return runs


class _Run(NamedTuple):
    shape: tuple[object, ...]
    types: Sequence[pa.DataType]
    chunks: list[Chunk]


def _joined_run(run: Sequence[Chunk]) -> Pending | None:
    """Return a run as one chunk, or None if a column has nulls or rows are out of order."""
    data = ChunkData.join([chunk.data for chunk in run], run[0].data.chunk_id)
    if any(c.values.null_count for c in data.components) or not data.ids_ascend:
        return None
    return Pending(Chunk.from_data(data))
