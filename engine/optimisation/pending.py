"""A chunk that may still grow: what was merged into it, joined only when somebody takes it out."""

from __future__ import annotations

from collections import deque
from itertools import count

from ..chunk import Chunk, tuid
from .extent import MergeCandidate, extent_of
from .merging import merge_chunks
from .size import RowSizes

_clock = count()


class Pending:
    """A chunk of a store: one that was inserted as it was, or several that have been merged.

    Merging joins extents and remembers the parts; the rows are copied once, however many parts there are.
    ``piece`` marks what came of a split, which merges with nothing in its store; ``is_ambiguous`` one of which two
    columns claim one component, as merging could lose one; ``touched`` grows with every change.
    """

    __slots__ = ("_extent", "chunk_id", "is_ambiguous", "parts", "piece", "touched")

    def __init__(self, chunk: Chunk, extent: MergeCandidate | None = None, *, piece: bool = False) -> None:
        names = [c.descriptor.component for c in chunk.data.components]
        self.chunk_id = chunk.data.chunk_id
        self.parts = deque((chunk,))
        self.piece = piece
        self.touched = next(_clock)
        self._extent = extent
        self.is_ambiguous = len(set(names)) < len(names)

    @property
    def extent(self) -> MergeCandidate:
        """Ranges and size; measured when it is first asked for."""
        if self._extent is None:
            self._extent = extent_of(self.parts[0].data)
        return self._extent

    def measured(self) -> RowSizes | None:
        """The sizes that the extent was made of, where it is made now; None where it was known."""
        if self._extent is not None:
            return None
        data = self.parts[0].data
        sizes = RowSizes(data)
        self._extent = extent_of(data, sizes.columns(0, data.num_rows))
        return sizes

    @property
    def is_static(self) -> bool:
        """Whether it has no timelines."""
        return self.parts[0].is_static

    @property
    def frozen(self) -> bool:
        """Whether it must not merge: a piece, or ambiguous."""
        return self.piece or self.is_ambiguous

    def copy(self) -> Pending:
        """The same chunk for another store, where a piece is a chunk like others."""
        twin = object.__new__(Pending)
        twin.chunk_id, twin.parts, twin.piece = self.chunk_id, self.parts.copy(), False
        twin.touched, twin._extent, twin.is_ambiguous = self.touched, self._extent, self.is_ambiguous
        return twin

    def absorb(self, other: Pending) -> None:
        """Take in the rows of ``other``, which is of no use afterwards; the chunk id is a fresh one."""
        mine, theirs = self.extent, other.extent
        if theirs.first_row < mine.first_row:
            self._extent = theirs.joined(mine)
            self.parts = _joined(other.parts, self.parts)
        else:
            self._extent = mine.joined(theirs)
            self.parts = _joined(self.parts, other.parts)
        self.chunk_id = tuid.mint()
        self.touched = max(self.touched, other.touched)

    def chunks(self) -> list[Chunk]:
        """The chunk as one, or its parts where Arrow can't hold them in one array."""
        if len(self.parts) > 1:
            self.parts = deque(merge_chunks(list(self.parts), self.chunk_id))
        return list(self.parts)


def _joined(first: deque[Chunk], second: deque[Chunk]) -> deque[Chunk]:
    """Both in order, at the cost of the shorter one."""
    if len(first) >= len(second):
        first.extend(second)
        return first
    second.extendleft(reversed(first))
    return second
