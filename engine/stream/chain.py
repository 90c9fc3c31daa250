"""The operators behind one source, fused into one function of a chunk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..chunk import Chunk, Fate, Outline
from ..execution.failures import add_note
from .operators import FatefulOperator, Operator, Selection


@dataclass(frozen=True, slots=True)
class Step:
    """A node of a fused chain: what it does to a chunk and the positions of the steps it feeds."""

    operator: Operator | None
    selection: Selection | None
    feeds: tuple[int, ...]
    feeds_rest: tuple[int, ...]
    is_sink: bool

    def fate(self, outline: Outline) -> tuple[Fate, tuple[int, ...]]:
        """The step of a chain: what becomes of a chunk in it, and which steps it then goes to."""
        if self.selection is not None:
            selected, rest = self.selection.fates(outline)
            if Fate.LOOKED_INTO in (selected, rest):
                return Fate.LOOKED_INTO, ()
            return Fate.PASSED_ON, self.feeds if selected is Fate.PASSED_ON else self.feeds_rest
        if self.operator is None:
            return Fate.PASSED_ON, self.feeds
        if isinstance(self.operator, FatefulOperator):
            return self.operator.fate(outline), self.feeds
        return Fate.LOOKED_INTO, ()


@dataclass(frozen=True, slots=True)
class Chain:
    """The fused operators behind one source."""

    steps: tuple[Step, ...]

    def __call__(self, chunk: Chunk) -> Iterator[Chunk]:
        """The chunks that come of ``chunk``."""
        return self._flow(0, chunk)

    @property
    def is_empty(self) -> bool:
        """Whether chunks go straight from the source to the sink."""
        return len(self.steps) == 1

    @property
    def may_pass_on(self) -> bool:
        """Whether there are chunks of which :meth:`fate` can say something."""
        first = [self.steps[i] for i in (*self.steps[0].feeds, *self.steps[0].feeds_rest)]
        return all(step.operator is None or isinstance(step.operator, FatefulOperator) for step in first)

    def fate(self, outline: Outline) -> Fate:
        """The fate of a chunk. One that comes out more than once counts as looked into."""
        times = self._times(0, outline)
        return Fate.LOOKED_INTO if times is None or times > 1 else Fate(times)

    def _times(self, at: int, outline: Outline) -> int | None:
        """Count how often a chunk comes out as it came in; None where something looks into it."""
        step = self.steps[at]
        fate, fed = step.fate(outline)
        if fate is Fate.LOOKED_INTO:
            return None
        if fate is Fate.LEFT_OUT:
            return 0
        total = int(step.is_sink)
        for i in fed:
            times = self._times(i, outline)
            if times is None:
                return None
            total += times
        return total

    def _flow(self, at: int, chunk: Chunk) -> Iterator[Chunk]:
        step = self.steps[at]
        if step.selection is not None:
            selected, rest = step.selection.part(chunk)
            yield from self._feed(step.feeds, selected)
            yield from self._feed(step.feeds_rest, rest)
            return
        for out in (chunk,) if step.operator is None else applied(step.operator, chunk):
            if step.is_sink:
                yield out
            yield from self._feed(step.feeds, out)

    def _feed(self, steps: tuple[int, ...], chunk: Chunk | None) -> Iterator[Chunk]:
        if chunk is not None:
            for at in steps:
                yield from self._flow(at, chunk)


def applied(operator: Operator, chunk: Chunk) -> Iterator[Chunk]:
    """The chunks that ``operator`` makes of a chunk; what it raises says which chunk that was, in a note."""
    try:
        yield from operator(chunk)
    except (Exception, SystemExit) as error:
        add_note(error, f"In {operator.describe()} for {chunk.id} of {chunk.entity_path}.")
        raise
