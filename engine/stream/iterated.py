"""A source over an iterator of chunks in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..chunk import Chunk
from ..execution.scratch import ScratchPart, spool
from ..limits import SPLIT_BYTES
from .operators import as_chunk
from .source import Split


class IteratedSource:
    """Chunks of an iterator, which can be taken once; see :meth:`LazyChunkStream.from_iter`.

    Order: the iterator's. Restart: none, a second run finds the iterator at its end.
    """

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = chunks

    def describe(self) -> str:
        """One line for the plan."""
        return "from_iter"

    def splits(self) -> Sequence[Split]:
        """One split, read in this process."""
        return [Split("from_iter", 0)]

    def read(self, split: Split) -> Iterator[Chunk]:  # noqa: ARG002 (there is only one)
        """The chunks that are left."""
        for chunk in self._chunks:
            yield as_chunk(chunk)

    def spooled(self) -> SpooledSource:
        """The chunks written to the scratch folder, as a source that tasks can read."""
        return SpooledSource(spool(self.read(Split("from_iter", 0)), SPLIT_BYTES))


@dataclass(frozen=True, slots=True)
class _SpooledSplit(Split):
    part: ScratchPart


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
