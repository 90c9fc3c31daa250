"""Small chunks that wait to be looked at together: those of one entity and shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from ..chunk import Chunk, ChunkData
from ..chunk.arrow_types import alike, is_plain
from .pending import Pending

FEWEST: Final = 8
"""Chunks of a run that are worth it."""

_SMALL: Final = 8192
_MOST: Final = 4096


class SmallRuns:
    """Chunks by entity, in order. They are taken out entity by entity, in the order of the last chunks of each."""

    def __init__(self) -> None:
        self._count = 0
        self._entities: dict[str, list[_Run]] = {}

    @property
    def is_full(self) -> bool:
        """Whether what waits should be taken out."""
        return self._count >= _MOST

    def takes(self, chunk: Chunk) -> bool:
        """Keep a chunk if it is small and temporal, and all that there is to say of it can be said of a run."""
        data = chunk.data
        if not data.timelines or chunk.byte_size > _SMALL:
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
        return True

    def taken(self) -> list[list[Chunk]]:
        """The runs: chunks of one entity and shape that follow each other there; none is left."""
        runs = [run.chunks for runs in self._entities.values() for run in runs]
        self._entities, self._count = {}, 0
        return runs


class _Run(NamedTuple):
    shape: tuple[object, ...]
    types: Sequence[pa.DataType]
    chunks: list[Chunk]


def joined_run(run: Sequence[Chunk]) -> Pending | None:
    """A run as one chunk, where rows are in order and no column has nulls, so that each begins where its rows do."""
    data = ChunkData.join([chunk.data for chunk in run], run[0].data.chunk_id)
    if any(c.values.null_count for c in data.components) or not data.ids_ascend:
        return None
    return Pending(Chunk.from_data(data))
