"""A source over chunks of this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..chunk import Chunk, given
from ..errors import UsageError
from ..execution.scratch import ScratchPart, spool, spool_pieces
from .operators import as_chunk
from .source import Split


class IteratedSource:
    """Chunks of an iterable; see :meth:`LazyChunkStream.from_iter`.

    Order: the iterable's. Restart: it is iterated again; what can be iterated once (a generator) raises
    ``UsageError`` then.
    """

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        if not hasattr(chunks, "__iter__"):
            iter(chunks)  # raises TypeError, unless it is a sequence of the old kind
        self._chunks = chunks
        self._taken: Iterator[Chunk] | None = None

    def describe(self) -> str:
        """One line for the plan."""
        return "from_iter"

    def splits(self) -> Sequence[Split]:
        """One split, read in this process."""
        return [Split("from_iter", 0)]

    def read(self, split: Split) -> Iterator[Chunk]:  # noqa: ARG002 (there is only one)
        """All chunks."""
        chunks = iter(self._chunks)
        if chunks is self._taken:
            raise UsageError(
                f"the {type(chunks).__name__} given to from_iter was iterated by an earlier run",
                hint="Give from_iter a list, or another iterable that starts anew each time.",
            )
        self._taken = chunks
        for chunk in given(chunks):
            yield as_chunk(chunk)

    @property
    def is_held(self) -> bool:
        """Whether the chunks are in a list or tuple, so that they take no more memory where they stay."""
        return isinstance(self._chunks, (list, tuple))

    def spooled(self) -> SpooledSource:
        """The chunks written to the scratch folder, as a source that tasks can read."""
        return SpooledSource(spool(self.read(Split("from_iter", 0))))

    def spooled_pieces(self) -> tuple[SpooledSource, Iterator[Split]]:
        """The chunks, written to the scratch folder as they are needed."""
        parts = spool_pieces(self.read(Split("from_iter", 0)))
        return SpooledSource([]), (_SpooledSplit(f"from_iter [{n}]", p.size, p) for n, p in enumerate(parts, 1))


@dataclass(frozen=True, slots=True)
class _SpooledSplit(Split):
    part: ScratchPart

    @property
    def came_slowly(self) -> bool:
        """Whether more chunks were not waited for."""
        return self.part.came_slowly


class SpooledSource:
    """Chunks in scratch parts, in the order they were written."""

    def __init__(self, parts: list[ScratchPart]) -> None:
        self._parts = parts

    def describe(self) -> str:
        """One line for the plan."""
        return "from_iter, spooled to scratch"

    def splits(self) -> Sequence[_SpooledSplit]:
        """One split a part."""
        total = len(self._parts)
        return [_SpooledSplit(f"from_iter [{i + 1}/{total}]", p.size, p) for i, p in enumerate(self._parts)]

    def read(self, split: _SpooledSplit) -> Iterator[Chunk]:
        """The chunks of one part, undecoded."""
        return split.part.chunks()
