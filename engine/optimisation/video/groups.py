"""Groups of pictures: runs of rows that begin with a key frame, and the chunks they are laid out in."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ...chunk import Chunk, ChunkData
from ..extent import MergeCandidate, extent_of
from ..merging import merge_chunks
from ..size import FIXED_BYTES
from .survey import IS_KEYFRAME, ChunkSurvey, untouched_data

_OPEN_CHUNKS = 4

Run = tuple[int, int, int]
"""Chunk, first row, row after the last."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of one stream in time order, each as runs of rows of its chunks.

    ``starts_late``: the first group begins with samples that no key frame comes before.
    """

    runs: list[list[Run]]
    starts_late: bool


def find_groups(surveys: Sequence[ChunkSurvey]) -> Groups:
    """Cut the rows of all chunks, in the order of their times, at the key frames.

    Rows without a sample go with the sample before them, or with the first group.
    """
    sizes = [len(s.times) for s in surveys]
    chunks = np.repeat(np.arange(len(surveys)), sizes)
    rows = np.concatenate([np.arange(n) for n in sizes])
    order = np.lexsort((rows, chunks, np.concatenate([s.times for s in surveys])))
    chunks, rows = chunks[order], rows[order]
    key = np.concatenate([s.is_keyframe for s in surveys])[order]
    starts = np.flatnonzero(key)
    head = int(starts[0]) if len(starts) else len(order)
    late = bool(np.concatenate([s.has_sample for s in surveys])[order][:head].any())
    cuts = [0, *starts.tolist(), len(order)] if late else [0, *starts.tolist()[1:], len(order)]
    runs = [_runs(chunks[a:b], rows[a:b]) for a, b in pairwise(cuts) if a < b]
    return Groups(runs, late)


def _runs(chunks: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> list[Run]:
    """The rows of each chunk, which follow each other since its times ascend."""
    found, first, count = np.unique(chunks, return_index=True, return_counts=True)
    begin = rows[first]
    return list(zip(found.tolist(), begin.tolist(), (begin + count).tolist(), strict=True))


class GroupBatcher:
    """Lays groups out in chunks: as many to a chunk as ``max_bytes`` allows, at least one, never a part of one.

    Loads chunks as the groups come by; holds one batch and a few chunks at a time.
    """

    def __init__(self, chunks: Sequence[Chunk], max_bytes: int) -> None:
        self._chunks = chunks
        self._max_bytes = max_bytes
        self._open: OrderedDict[int, ChunkData] = OrderedDict()
        self.largest = 0
        """Bytes of the largest group so far."""

    def batches(self, groups: Sequence[list[Run]]) -> Iterator[Chunk]:
        """The chunks of all groups, without the ``is_keyframe`` column."""
        batch: dict[int, tuple[ChunkData, int, int]] = {}
        held = 0
        for group in groups:
            size = self._bytes(group)
            self.largest = max(self.largest, size)
            if batch and held + size > self._max_bytes:
                yield from self._chunk_of(batch)
                batch, held = {}, 0
            held += size
            for index, first, end in group:
                data = self._data(index)
                known = batch.get(index)
                batch[index] = (data, first, end) if known is None else (data, known[1], end)
        if batch:
            yield from self._chunk_of(batch)

    def _chunk_of(self, batch: dict[int, tuple[ChunkData, int, int]]) -> list[Chunk]:
        if len(batch) == 1:
            index, (data, first, end) = next(iter(batch.items()))
            chunk = self._chunks[index]
            if end - first == data.num_rows and not _is_labelled(chunk):
                return [chunk]
        slices = [data.slice(first, end - first) for data, first, end in batch.values()]
        slices.sort(key=lambda s: bytes(s.row_ids[0].as_py()))
        return merge_chunks([Chunk.from_data(s) for s in slices])

    def _bytes(self, group: list[Run]) -> int:
        total: MergeCandidate | None = None
        for index, first, end in group:
            extent = extent_of(self._data(index).slice(first, end - first))
            if total is None:
                total = extent
            else:
                total = total.joined(extent) if total.first_row <= extent.first_row else extent.joined(total)
        assert total is not None
        return total.size - FIXED_BYTES

    def _data(self, index: int) -> ChunkData:
        """The columns of a chunk but ``is_keyframe``."""
        known = self._open.get(index)
        if known is None:
            data = untouched_data(self._chunks[index])
            kept = tuple(c for c in data.components if c.descriptor.component != IS_KEYFRAME)
            known = data if len(kept) == len(data.components) else data.with_components(kept)
            self._open[index] = known
            if len(self._open) > _OPEN_CHUNKS:
                self._open.popitem(last=False)
        else:
            self._open.move_to_end(index)
        return known


def _is_labelled(chunk: Chunk) -> bool:
    return any(c.descriptor.component == IS_KEYFRAME for c in chunk.header.components)
