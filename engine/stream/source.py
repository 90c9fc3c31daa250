"""Sources of pipelines, which divide themselves into splits; and those over what is in this process or a DataFrame."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, runtime_checkable

from ..chunk import Chunk, ChunkKind, Fate, given
from ..errors import ReadWarning, UsageError
from ..execution import ScratchPart, check_frame, chunks_of_frame, spool, spool_pieces
from ..rrd import Run, RunRows
from ..task_context import held
from .operators import as_chunk

if TYPE_CHECKING:
    from ..execution import DataFrame


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
class NarrowingSource(Protocol):
    """A source that can leave out entities nobody will look at."""

    def narrowed(self, wanted: Callable[[str], bool]) -> Source[Any]:
        """The same source without the entities (canonical paths) for which ``wanted`` is false."""
        ...


@runtime_checkable
class SourceWithEntities(Protocol):
    """A source that can tell the entities of its chunks without reading them."""

    def entities(self) -> Collection[str] | None:
        """The entities, those included that nobody will look at; None where only reading tells."""
        ...


@runtime_checkable
class ChoosingSource(Protocol):
    """A source whose own options choose what is read."""

    @property
    def nothing(self) -> ReadWarning | None:
        """The reason that the options choose nothing, once the source has divided itself; None unless that is known."""
        ...


@runtime_checkable
class SourceWithRuns(Protocol):
    """A source whose chunks, where nothing looks into them, can go on as the messages that they are."""

    def run_splits(self, fate: Callable[[ChunkKind], Fate]) -> Sequence[Split] | None:
        """Splits of only those chunks that are passed on, in order; None where it can't be told of all."""
        ...

    def whole_run(self, split: Any, fate: Callable[[ChunkKind], Fate]) -> Run | None:
        """The messages of any split, of which nothing is looked into; None where something is, or can't be told."""
        ...

    def pieces(self, split: Any, fate: Callable[[ChunkKind], Fate]) -> Iterator[RunRows | Iterator[Chunk]]:
        """A split, in order: runs of messages that are passed on, and between them the chunks that are looked into.

        Where runs can't be told, all chunks, whatever becomes of them.
        """
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


class PlaceholderSource:
    """No chunks at all, for looking at a pipeline without an input."""

    def describe(self) -> str:
        """One line for the plan."""
        return "INPUT"

    def splits(self) -> Sequence[Split]:
        """None."""
        return ()

    def read(self, split: Split) -> Iterator[Chunk]:  # noqa: ARG002 (there is none)
        """Nothing."""
        return iter(())


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
                f"the {type(chunks).__name__} given to from_iter was already consumed by an earlier run",
                hint="Give from_iter a list, or another iterable that can be iterated again.",
            )
        self._taken = chunks
        for chunk in given(held(chunks)):
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


# Imports point down: what lies above the stream, and methods of it are made of, is found by name.
_HOMES: Final = {
    "chunk_list": ("..store.stored", "ChunkListSource"),
    "collect": ("..store.chunk_store", "collect"),
    "get_session": ("..data_sources", "get_session"),
    "lenses": ("...lenses", "LensSet"),
    "value_frame": ("..data_sources", "value_frame"),
}


def extension(name: str) -> Callable[..., Any]:
    """The function or class behind the method ``name``."""
    module, attribute = _HOMES[name]
    found: Callable[..., Any] = getattr(importlib.import_module(module, __package__), attribute)
    return found


class FrameSource:
    """The chunks of a DataFrame of chunk rows; see :meth:`LazyChunkStream.from_spark`.

    Order: (task, position) where the DataFrame has these columns. Every run of a pipeline runs the DataFrame anew.
    """

    def __init__(self, frame: DataFrame) -> None:
        check_frame(frame)
        self._frame = frame

    def describe(self) -> str:
        """One line for the plan."""
        return "from_spark"

    def splits(self) -> Sequence[Split]:
        """Runs of the DataFrame's chunks, by reference."""
        return self.spooled().splits()

    def read(self, split: Any) -> Iterator[Chunk]:
        """The chunks of one run."""
        return iter(split.chunks)

    def spooled(self) -> Source[Any]:
        """The chunks as a source that tasks can read: where they lie, or in scratch parts."""
        made: Source[Any] = extension("chunk_list")("from_spark", tuple(chunks_of_frame(self._frame)))
        return made


class RowsSource:
    """The chunks of rows that come as a stage runs; see :meth:`LazyChunkStream.from_stream`."""

    def __init__(self, frame: DataFrame | None) -> None:
        self.frame = frame

    def describe(self) -> str:
        """One line for the plan."""
        return "from_stream"

    def splits(self) -> Sequence[Split]:
        """None, where it travels; otherwise raises ``UsageError``: they are not known before they come."""
        if self.frame is None:
            return ()
        raise UsageError(
            "the chunks of from_stream exist only while Spark runs its query, and are not available here",
            hint="End the pipeline with to_spark(payload=True), and write that: writeStream.format('chunkmill.store').",
        )

    def read(self, split: Split) -> Iterator[Chunk]:  # noqa: ARG002 (there is none)
        """Nothing."""
        return iter(())

    @staticmethod
    def travelling(source: Source[Any]) -> Source[Any]:
        """The source that goes to the tasks in place of it. Raises ``UsageError`` for a source of another kind."""
        if isinstance(source, RowsSource):
            return RowsSource(None)
        raise UsageError(
            f"from_stream cannot be merged with {source.describe()}",
            hint="A streaming DataFrame is transformed partition by partition, and other sources have no partitions.",
        )
