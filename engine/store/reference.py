"""Chunks that a store holds by reference: a header here, the payload in a part or a shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..chunk import Chunk
from ..limits import MIB, SPLIT_BYTES
from ..optimisation import stored_size
from ..rrd import RunRows, VerifiedRun
from ..stream import Fate, IteratedSource, Outline, Source, Split

_PASSED_BYTES: Final = 256 * MIB
"""How much a task passes on."""


@dataclass(frozen=True, slots=True)
class ChunkSplit(Split):
    """A run of a store's chunks; one of those that are passed on does not hold them."""

    chunks: tuple[Chunk, ...]
    run: VerifiedRun | None = None


@dataclass(frozen=True, slots=True)
class ChunkListSource:
    """Chunks that are here already, most of them by reference; can be read any number of times.

    Order: as given. Chunks pickle with their references, so tasks read payloads from where they lie; a chunk that has
    only ever been in memory travels with its payload.
    """

    name: str
    chunks: tuple[Chunk, ...]

    def describe(self) -> str:
        """One line for the plan."""
        return self.name

    def splits(self) -> Sequence[ChunkSplit]:
        """Runs of chunks of about 64 MiB uncompressed."""
        runs = list(runs_of(self.chunks))
        total = len(runs)
        return [
            ChunkSplit(f"{self.name} [{i + 1}/{total}]", sum(map(stored_size, run)), run) for i, run in enumerate(runs)
        ]

    def read(self, split: ChunkSplit) -> Iterator[Chunk]:
        """The chunks of one run."""
        return iter(split.chunks) if split.run is None else split.run.chunks_there()

    def run_splits(self, fate: Callable[[Outline], Fate]) -> Sequence[ChunkSplit] | None:
        """Splits of the chunks that are passed on; None where one is looked into, or lies elsewhere than in local files
        of the store's own.
        """
        fates = [fate(Outline(c.entity_path, c.is_static, c.timeline_names)) for c in self.chunks]
        if Fate.LOOKED_INTO in fates:
            return None
        kept = [c for c, its in zip(self.chunks, fates, strict=True) if its is Fate.PASSED_ON]
        run = VerifiedRun.of(kept)
        if run is None:
            return None
        runs = run.divided(_PASSED_BYTES)
        labels = [f"{self.name} [{i + 1}/{len(runs)}]" for i in range(len(runs))]
        return [ChunkSplit(label, run.source_size, (), run) for label, run in zip(labels, runs, strict=True)]

    def whole_run(self, split: ChunkSplit, fate: Callable[[Outline], Fate]) -> VerifiedRun | None:
        """The messages of a split that :meth:`run_splits` gave; beside chunks that are looked into, there is none."""
        del fate
        return split.run

    def pieces(self, split: ChunkSplit, fate: Callable[[Outline], Fate]) -> Iterator[RunRows | Iterator[Chunk]]:
        """A split chunk by chunk: beside chunks that are looked into, none is passed on unseen."""
        del fate
        yield self.read(split)

    def spooled(self) -> Source[Any]:
        """The same chunks as a source whose splits carry no payload: those in memory are written to scratch first."""
        if all(c.payload is not None for c in self.chunks):
            return self
        return IteratedSource(self.chunks).spooled()

    def spooled_pieces(self) -> tuple[Source[Any], Iterator[Split]]:
        """The same chunks, those in memory written to scratch as they are needed."""
        if all(c.payload is not None for c in self.chunks):
            return self, iter(self.splits())
        return IteratedSource(self.chunks).spooled_pieces()

    def paths(self) -> Sequence[str]:
        """The files that payloads are read from."""
        return sorted({p for c in self.chunks if (p := getattr(c.payload, "path", None)) is not None})


def runs_of(chunks: Sequence[Chunk], run_bytes: int = SPLIT_BYTES) -> Iterator[tuple[Chunk, ...]]:
    """Consecutive chunks of about ``run_bytes`` each."""
    run: list[Chunk] = []
    size = 0
    for chunk in chunks:
        run.append(chunk)
        size += stored_size(chunk)
        if size >= run_bytes:
            yield tuple(run)
            run, size = [], 0
    if run:
        yield tuple(run)


def by_chunk_id(chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """The order of a store."""
    return tuple(sorted(chunks, key=lambda c: c.id.lower()))
