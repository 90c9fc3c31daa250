"""Figures of the rows of segments: the chunks that they need, what was read, and when rows were there."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..rrd import ChunkTable
from ..task_context import Fetches
from .query import Integers


@dataclass
class SegmentFigures:
    """The figures of a segment, of a share of one, or of some that are read together, counted while rows are made.

    Who wants them has one in the context of the task. ``chunks`` has the bytes of the message of each chunk that is
    needed, by segment, layer and number. ``planned`` is when the chunks were known, and ``first`` when the first rows
    were there, in seconds since the epoch.
    """

    chunks: dict[str, dict[str, dict[int, int]]] = field(default_factory=dict)
    pieces: int = 0
    requests: int = 0
    bytes: int = 0
    planned: float | None = None
    first: float | None = None

    def need(self, segment_id: str, layers: Iterable[tuple[str, ChunkTable, Integers]]) -> None:
        """Count chunks that a segment needs: rows of the tables of layers."""
        self.planned = self.planned or time.time()
        mine = self.chunks.setdefault(segment_id, {})
        for name, table, rows in layers:
            sizes = np.asarray(table.sizes[rows])
            mine.setdefault(name, {}).update(zip(rows.tolist(), sizes.tolist(), strict=True))

    def read(self, fetches: Fetches) -> None:
        """Count what was read."""
        self.pieces, self.requests, self.bytes = fetches.pieces, fetches.requests, fetches.bytes

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON has them."""
        chunks = [
            [segment_id, layer, list(some), list(some.values())]
            for segment_id, layers in self.chunks.items()
            for layer, some in layers.items()
        ]
        return {**vars(self), "chunks": chunks}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SegmentFigures:
        """The figures that :meth:`to_dict` gave."""
        found = cls(**{**data, "chunks": {}})
        for segment_id, layer, rows, sizes in data["chunks"]:
            found.chunks.setdefault(segment_id, {})[layer] = dict(zip(rows, sizes, strict=True))
        return found
