"""Compaction of chunks as they pass through a task, in bounded memory."""

from __future__ import annotations

from typing import Final

from ..chunk import Chunk
from .insertion import ChunkInserter, check_row_ids
from .passes import columns_apart, converge
from .pending import Pending
from .profile import OptimizationProfile, Settings

BUDGET: Final = 64 * 1024 * 1024
"""Bytes of open chunks that a :class:`Compactor` holds, unless told otherwise."""


class Compactor:
    """Merges and splits the chunks that pass, and gives back those that are finished.

    As long as all open chunks fit into ``budget`` bytes nothing is finished early, and :meth:`finish` gives exactly
    the chunks of ``collect(optimize=profile)``. Beyond it, chunks that are at least half as large as the profile
    allows are finished first, then those that have not grown for the longest time. No row is lost and none twice;
    which chunks come is the same in every run.

    Static chunks pass at once: whether a newer one overwrites them only the whole store can say
    (:class:`StaticRegister`). Video streams are compacted like everything; laying them out by groups of pictures is
    for :func:`rebatch_video`, which needs the whole stream.
    """

    def __init__(self, profile: OptimizationProfile | None = None, *, budget: int = BUDGET) -> None:
        self._settings = Settings.of(profile)
        self._budget = budget
        self._store = ChunkInserter(self._settings)
        self._seen: set[bytes] = set()

    def add(self, chunk: Chunk) -> list[Chunk]:
        """Take in a chunk; gives the chunks that are finished.

        Chunks without rows or components, and those that were added before, are passed over. Raises
        :class:`ReadError` when row ids do not ascend.
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
        """The chunks that were still open, by ascending chunk id; the compactor is empty then."""
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
    """A chunk that was not changed without the columns that were loaded to look at it."""
    return chunk if chunk.payload is None else Chunk.lazy(chunk.header, chunk.payload)
