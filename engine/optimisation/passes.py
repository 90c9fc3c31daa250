"""The passes of a profile after the first: separate columns by size, insert again, lay out video by groups of pictures.

They run over a whole recording at once, or in :class:`Compactor` on chunks that pass a task, in bounded memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ..chunk import Chunk
from .insertion import ChunkInserter, check_row_ids
from .merging import Pending, rows_that_fit, split_columns
from .profile import OptimizationProfile, RowSizes, Settings, extent_of
from .video import rebatch_videos

BUDGET: Final = 64 * 1024 * 1024
"""The default limit of a :class:`Compactor`'s open chunks, in bytes."""

_LEAST_ROOM = 64
"""Chunks with less than 1/64 of their bytes free count as full: filling one splits a chunk and copies its rows."""


def optimised(chunks: Iterable[Chunk], profile: OptimizationProfile | None = None) -> list[Chunk]:
    """Return the chunks of a whole recording after ``collect(optimize=profile)``, by ascending chunk id.

    Every row keeps its id, times and values. Only static chunks that newer ones overwrite completely are dropped. With
    ``split_size_ratio``, a row may be in several chunks, each with other components.

    Raises :class:`ReadError` if the row ids of a chunk do not ascend, and the errors of :func:`rebatch_videos`.
    """
    settings = Settings.of(profile)
    store = ChunkInserter(settings)
    store.insert_all(chunks)
    left = converge(store).chunks()
    return rebatch_videos(left, settings) if settings.gop_batching else left


def converge(store: ChunkInserter) -> ChunkInserter:
    """A store with the same rows: columns separated by size, then chunks inserted again while their number shrinks.

    Finally, chunks that splits left small take up rows of the next ones, if that leaves fewer chunks.
    """
    if store.settings.split_size_ratio is not None:
        store = _with_columns_apart(store, store.settings.split_size_ratio)
    for _ in range(store.settings.extra_passes):
        again = ChunkInserter(store.settings)
        for pending in store.in_order():
            again.adopt(pending.copy())
        if len(again) >= len(store):
            break
        store = again
    if store.settings.extra_passes:
        _fill_up(store)
    return store


def columns_apart(chunk: Chunk, ratio: float) -> list[Chunk]:
    """Return a chunk as :func:`split_columns` splits it, or the chunk itself."""
    pieces = split_columns(chunk.data, ratio)
    return [chunk] if len(pieces) == 1 else [Chunk.from_data(piece) for piece in pieces]


def _with_columns_apart(store: ChunkInserter, ratio: float) -> ChunkInserter:
    apart = ChunkInserter(store.settings)
    for pending in store.in_order():
        whole = pending.chunks()
        for chunk in whole:
            pieces = columns_apart(chunk, ratio)
            if len(pieces) == len(whole) == 1:
                apart.adopt(pending.copy())
            else:
                for piece in pieces:
                    apart.adopt(Pending(piece))
    return apart


def _fill_up(store: ChunkInserter) -> None:
    """Lay out neighbours again, each full except the last, if that leaves fewer chunks.

    A split at a threshold leaves a small rest, which does not fit into its neighbours, as those are full.
    """
    entities: dict[str, list[Pending]] = defaultdict(list)
    for pending in store.pending.values():
        if not pending.is_static and not pending.is_ambiguous and pending.extent.ascending:
            entities[pending.extent.entity_path].append(pending)
    for chunks in entities.values():
        if _fewest(chunks, store.settings) < len(chunks):
            for run in _runs(chunks):
                if _fewest(run, store.settings) < len(run):
                    filled = _filled([p.copy() for p in run], store.settings)
                    if len(filled) < len(run):
                        store.replace(run, filled)


def _fewest(chunks: Sequence[Pending], settings: Settings) -> int:
    """The smallest number of chunks that could hold all rows."""
    size, rows = (sum(p.extent.size for p in chunks), sum(p.extent.num_rows for p in chunks))
    if not settings.max_bytes or not settings.max_rows:
        return len(chunks)
    return max(-(-size // settings.max_bytes), -(-rows // settings.max_rows))


def _runs(chunks: Iterable[Pending]) -> Iterator[list[Pending]]:
    """Chunks with the same columns whose rows follow each other, in row ids and on all timelines."""
    alike: dict[tuple[object, ...], list[Pending]] = defaultdict(list)
    for pending in chunks:
        lines = tuple((t.name, t.kind) for t in pending.extent.timelines)
        columns = {(c.descriptor, c.values.type) for part in pending.parts for c in part.data.components}
        alike[lines, frozenset(columns)].append(pending)
    for same in alike.values():
        run: list[Pending] = []
        for pending in sorted(same, key=lambda p: p.extent.first_row):
            if run and not run[-1].extent.is_before(pending.extent):
                yield run
                run = []
            run.append(pending)
        yield run


def _filled(run: Iterable[Pending], settings: Settings) -> list[Pending]:
    """The rows of a run, in order; every chunk except the last is full."""
    out: list[Pending] = []
    for pending in run:
        rest: Pending | None = pending
        if out and settings.max_bytes - out[-1].extent.size >= settings.max_bytes // _LEAST_ROOM:
            rest = _topped_up(out[-1], pending, settings)
        if rest is not None:
            out.append(rest)
    return out


def _topped_up(chunk: Pending, following: Pending, settings: Settings) -> Pending | None:
    """Add as many rows of ``following`` to ``chunk`` as fit; return the rest, or None."""
    parts, total = following.chunks(), following.extent.num_rows
    if len(parts) > 1:
        return following
    data = parts[0].data
    sizes = RowSizes(data)
    most = min(settings.max_rows - chunk.extent.num_rows, total)
    rows = rows_that_fit(sizes, most, settings.max_bytes - chunk.extent.size) if most > 0 else 0
    if not rows:
        return following
    if rows == total:
        chunk.absorb(following)
        return None
    head, tail = data.slice(0, rows), data.slice(rows, total - rows)
    chunk.absorb(Pending(Chunk.from_data(head), extent_of(head, sizes.columns(0, rows))))
    return Pending(Chunk.from_data(tail), extent_of(tail, sizes.columns(rows, total)))


class Compactor:
    """Merges and splits a stream of chunks, and returns the finished ones.

    While all open chunks fit into ``budget`` bytes, none is finished early, and :meth:`finish` returns exactly the
    chunks of ``collect(optimize=profile)``. Beyond that, chunks that are at least half as large as the profile allows
    are finished first, then those that have not grown for the longest time. No row is lost or repeated, and every run
    gives the same chunks.

    Static chunks are returned at once: only the whole store can decide whether newer ones overwrite them
    (:class:`StaticRegister`). Video streams are compacted like other data; :func:`rebatch_video`, which needs the whole
    stream, lays them out by groups of pictures.
    """

    def __init__(self, profile: OptimizationProfile | None = None, *, budget: int = BUDGET) -> None:
        self._settings = Settings.of(profile)
        self._budget = budget
        self._store = ChunkInserter(self._settings)
        self._seen: set[bytes] = set()

    def add(self, chunk: Chunk) -> list[Chunk]:
        """Add a chunk; return finished chunks.

        Chunks without rows or components, and those added before, are skipped. Raises :class:`ReadError` if row ids do
        not ascend.
        """
        data = chunk.data
        if not data.num_rows or not data.components or data.chunk_id in self._seen:
            return []
        self._seen.add(data.chunk_id)
        if data.timelines:
            self._store.insert(chunk)
            return self._relieve() if self._store.size > self._budget else []
        check_row_ids(chunk)
        ratio = self._settings.split_size_ratio
        return [_released(c) for c in ([chunk] if ratio is None else columns_apart(chunk, ratio))]

    def finish(self) -> list[Chunk]:
        """Return the open chunks, by ascending chunk id, and empty the compactor."""
        store, self._store = converge(self._store), ChunkInserter(self._settings)
        return [_released(c) for c in store.chunks()]

    def _relieve(self) -> list[Chunk]:
        """Finish chunks until half the budget is free."""
        self._store = converge(self._store)
        by_age = sorted(self._store.pending.values(), key=lambda p: p.touched)
        out: list[Chunk] = []
        for pending in sorted(by_age, key=self._has_room):
            if self._store.size * 2 <= self._budget:
                break
            self._store.remove(pending)
            out += [_released(c) for c in pending.chunks()]
        return out

    def _has_room(self, pending: Pending) -> bool:
        extent, settings = pending.extent, self._settings
        return extent.size * 2 < settings.max_bytes and extent.num_rows * 2 < settings.row_limit(extent.ascending)


def _released(chunk: Chunk) -> Chunk:
    """Return a chunk; an unchanged one without the columns that were loaded to inspect it."""
    return chunk if chunk.payload is None else Chunk.lazy(chunk.header, chunk.payload)
