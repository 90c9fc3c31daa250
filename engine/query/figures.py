"""Figures of the rows of a segment: the chunks that they need, what was read, and when rows were there."""

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
    """The figures of a segment, or of a share of one, counted while its rows are made.

    Who wants them has one in the context of the task. ``chunks`` has the bytes of the message of each chunk that is
    needed, by layer and number. ``planned`` is when the chunks were known, and ``first`` when the first rows were
    there, in seconds since the epoch.
    """

    chunks: dict[str, dict[int, int]] = field(default_factory=dict)
    pieces: int = 0
    requests: int = 0
    bytes: int = 0
    planned: float | None = None
    first: float | None = None

    def need(self, layers: Iterable[tuple[str, ChunkTable, Integers]]) -> None:
        """Count chunks that are needed: rows of the tables of layers."""
        self.planned = self.planned or time.time()
        for name, table, rows in layers:
            sizes = table.sizes[rows]
            self.chunks.setdefault(name, {}).update(zip(rows.tolist(), np.asarray(sizes).tolist(), strict=True))

    def read(self, fetches: Fetches) -> None:
        """Count what was read."""
        self.pieces, self.requests, self.bytes = fetches.pieces, fetches.requests, fetches.bytes

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON has them."""
        chunks = {name: [list(some), list(some.values())] for name, some in self.chunks.items()}
        return {**vars(self), "chunks": chunks}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SegmentFigures:
        """The figures that :meth:`to_dict` gave."""
        chunks = {name: dict(zip(*some, strict=True)) for name, some in data["chunks"].items()}
        return cls(**{**data, "chunks": chunks})
