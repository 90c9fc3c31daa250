"""Sources of pipelines, which divide themselves into splits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from ..chunk import Chunk


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a source that one task reads by itself. Readers subclass it with what they need; it pickles.

    ``label`` names it to a person (``drive.mcap [2/7]``), ``size`` is the number of source bytes it covers.
    """

    label: str
    size: int


S = TypeVar("S", bound=Split)


class Source(Protocol, Generic[S]):
    """A place chunks come from. Sources pickle: they travel to the tasks that read their splits.

    Guarantee: the chunks of all splits, in the order of :meth:`splits` and within a split in the order of
    :meth:`read`, are the source's chunks in order; the same for every run over the same bytes.
    """

    def describe(self) -> str:
        """One line for the plan, for example ``McapReader(drive.mcap)``."""
        ...

    def splits(self) -> Sequence[S]:
        """Divide the source; runs on the driver, reads heads and indexes only. Raises ``ReadError``."""
        ...

    def read(self, split: S) -> Iterator[Chunk]:
        """Yield the chunks of one split, in order; runs in a task. Raises ``ReadError``."""
        ...


@runtime_checkable
class LocalSource(Protocol):
    """A source whose chunks are in this process, and have to be written somewhere before tasks can read them."""

    def spooled(self) -> Source[Any]:
        """The same chunks as a source that travels."""
        ...


@runtime_checkable
class PiecewiseSource(LocalSource, Protocol):
    """One whose chunks can be written as they are needed, so that there need be no end of them."""

    def spooled_pieces(self) -> tuple[Source[Any], Iterator[Split]]:
        """A source that travels, and its splits, which are written as they are taken."""
        ...


def travelling(source: Source[Any]) -> Source[Any]:
    """A source that can travel to tasks: chunks in this process's memory are written to scratch parts first."""
    return source.spooled() if isinstance(source, LocalSource) else source


def travelling_in_pieces(source: Source[Any]) -> Source[Any]:
    """A source that can travel to tasks, or whose chunks can be written piece by piece."""
    return source if isinstance(source, PiecewiseSource) else travelling(source)
