"""Sources of pipelines, which divide themselves into splits; also sources over this process's chunks or a DataFrame."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar

from ..chunk import Chunk, ChunkKind, Fate, Origin, Schema, given
from ..errors import ReadWarning, UsageError
from ..execution import ScratchPart, check_frame, chunks_of_frame, spool, spool_pieces
from ..limits import MIB, SPLIT_BYTES
from ..rrd import Run, RunRows, VerifiedRun
from ..task_context import held
from .operators import as_chunk

if TYPE_CHECKING:
    from ..execution import DataFrame
    from .frames import FrameRequest
    from .records import RecordSource


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a source that one task reads. Readers add fields in a subclass. Can be pickled.

    ``label`` is its name in messages (``drive.mcap [2/7]``), ``size`` its number of source bytes.
    """

    label: str
    size: int


S = TypeVar("S", bound=Split)


class SourceLike(Protocol, Generic[S]):
    """The methods of :class:`Source` that a stream needs. An object of any class may have them."""

    def describe(self) -> str:
        """One line for the plan."""
        ...

    def splits(self) -> Sequence[S]:
        """Divide the source."""
        ...

    def read(self, split: S) -> Iterator[Chunk]:
        """Yield the chunks of one split, in order."""
        ...


class Source(ABC, Generic[S]):
    """A source of chunks. It is pickled for the tasks that read its splits.

    Guarantee: the chunks of the source are those of its splits, in the order of :meth:`splits` and :meth:`read`. They
    are the same in every run over the same bytes.

    Only ``describe``, ``splits`` and ``read`` are required. Other methods add optional abilities.
    """

    __slots__ = ()

    has_runs: ClassVar[bool] = False
    """Whether :meth:`run_splits`, :meth:`whole_run` and :meth:`pieces` may pass on unread messages."""

    nothing: ReadWarning | None = None
    """The reason why the options of the source select nothing, if known after :meth:`splits`."""

    @abstractmethod
    def describe(self) -> str:
        """One line for the plan, for example ``McapReader(drive.mcap)``."""

    @abstractmethod
    def splits(self) -> Sequence[S]:
        """Divide the source. Runs on the driver, and reads only heads and indexes. Raises ``ReadError``."""

    @abstractmethod
    def read(self, split: S) -> Iterator[Chunk]:
        """Yield the chunks of one split, in order; runs in a task. Raises ``ReadError``."""

    def undivided(self) -> Sequence[S] | None:
        """Return splits made without requests to an object store, if tasks can plan the rest, or else None."""
        return None

    def paths(self) -> Sequence[str]:
        """Return the known source files; by default none."""
        return ()

    def narrowed(self, wanted: Callable[[str], bool]) -> Source[Any]:  # noqa: ARG002
        """Return the source without the entities (canonical paths) for which ``wanted`` is false, if possible."""
        return self

    def projected(self, request: FrameRequest) -> Source[Any]:  # noqa: ARG002
        """Return a source with all rows of a frame, and at least the data for the frame's columns."""
        return self

    def entities(self) -> Collection[str] | None:
        """Return all entities, used or not, or None if this requires reading chunks."""
        return None

    def columns(self) -> tuple[Schema, frozenset[Origin] | None] | None:
        """Return the columns of the chunks that have times, and the components with at most one value in every row.

        Return None if this requires reading chunks.
        """
        return None

    def run_splits(self, fate: Callable[[ChunkKind], Fate]) -> Sequence[Split] | None:  # noqa: ARG002
        """Return splits with only the chunks that pass unchanged, in order, or None if these are not known."""
        return None

    def whole_run(self, split: Any, fate: Callable[[ChunkKind], Fate]) -> Run | None:  # noqa: ARG002
        """Return the messages of a split if none of them has to be read, or else None."""
        return None

    def pieces(self, split: Any, fate: Callable[[ChunkKind], Fate]) -> Iterator[RunRows | Iterator[Chunk]]:  # noqa: ARG002
        """Yield a split in order: runs of unread messages, and between them the chunks to read.

        By default, yield all chunks, used or not.
        """
        yield self.read(split)

    def records(self) -> Sequence[RecordSource] | None:
        """Return the files whose messages can be copied unchanged, in order, or None (the default)."""
        return None

    @property
    def is_held(self) -> bool:
        """Whether the chunks are in a list or tuple, so that keeping them needs no more memory."""
        return False

    def spooled(self, *, whole: bool = True) -> Source[Any]:  # noqa: ARG002
        """Return a source of the same chunks for tasks.

        Chunks that only this process has are written to the scratch folder. Unless ``whole``, chunks for
        :meth:`spooled_pieces` are not written.
        """
        return self

    def spooled_pieces(self) -> tuple[Source[Any], Iterator[Split]] | None:
        """Return a source for tasks, and its splits, which are written on demand.

        The splits may be endless. Return None if the source has no chunks that only this process has.
        """
        return None


class PlainSource(Source[Any]):
    """A source made from an object that has these methods, but is not a :class:`Source`."""

    __slots__ = ("_own",)

    def __init__(self, own: SourceLike[Any]) -> None:
        self._own = own

    def describe(self) -> str:
        """One line for the plan."""
        return self._own.describe()

    def splits(self) -> Sequence[Split]:
        """Divide the source."""
        return self._own.splits()

    def read(self, split: Any) -> Iterator[Chunk]:
        """Yield the chunks of one split."""
        return self._own.read(split)

    def paths(self) -> Sequence[str]:
        """Return the source files, if the object knows them."""
        paths: Sequence[str] = getattr(self._own, "paths", tuple)()
        return paths


def travelling(source: Source[Any]) -> Source[Any]:
    """Return a source that can be pickled for tasks: chunks in memory are written to scratch parts first."""
    return source.spooled()


def travelling_in_pieces(source: Source[Any]) -> Source[Any]:
    """Return a source that can be pickled, or one whose chunks are written piece by piece."""
    return source.spooled(whole=False)


class PlaceholderSource(Source[Split]):
    """An empty source, to examine a pipeline without an input."""

    def describe(self) -> str:
        """One line for the plan."""
        return "INPUT"

    def splits(self) -> Sequence[Split]:
        """Return no splits."""
        return ()

    def read(self, split: Split) -> Iterator[Chunk]:  # noqa: ARG002 (there is none)
        """Yield nothing."""
        return iter(())


class IteratedSource(Source[Split]):
    """Chunks of an iterable; see :meth:`LazyChunkStream.from_iter`.

    Order: the iterable's. Restart: the iterable is iterated again; a generator then raises ``UsageError``.
    """

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        if not hasattr(chunks, "__iter__"):
            iter(chunks)  # raises TypeError, unless it has ``__iter__`` or ``__getitem__``
        self._chunks = chunks
        self._taken: Iterator[Chunk] | None = None

    def describe(self) -> str:
        """One line for the plan."""
        return "from_iter"

    def splits(self) -> Sequence[Split]:
        """Return one split, which is read in this process."""
        return [Split("from_iter", 0)]

    def read(self, split: Split) -> Iterator[Chunk]:  # noqa: ARG002 (there is only one)
        """Yield all chunks."""
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
        """Whether the chunks are in a list or tuple, so that keeping them needs no more memory."""
        return isinstance(self._chunks, (list, tuple))

    def spooled(self, *, whole: bool = True) -> Source[Any]:
        """Return the chunks in the scratch folder, as a source that tasks can read."""
        if not whole:
            return self
        return SpooledSource(spool(self.read(Split("from_iter", 0))))

    def spooled_pieces(self) -> tuple[SpooledSource, Iterator[Split]]:
        """Return the chunks, written to the scratch folder on demand."""
        parts = spool_pieces(self.read(Split("from_iter", 0)))
        return SpooledSource([]), (_SpooledSplit(f"from_iter [{n}]", p.size, p) for n, p in enumerate(parts, 1))


@dataclass(frozen=True, slots=True)
class _SpooledSplit(Split):
    part: ScratchPart

    @property
    def came_slowly(self) -> bool:
        """Whether the part ended early, as chunks came slowly."""
        return self.part.came_slowly


class SpooledSource(Source[_SpooledSplit]):
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


_PASSED_BYTES: Final = 256 * MIB
"""The bytes that one task passes on."""


@dataclass(frozen=True, slots=True)
class ChunkSplit(Split):
    """A run of a store's chunks; if they are passed on unread, it only has ``run``."""

    chunks: tuple[Chunk, ...]
    run: VerifiedRun | None = None


@dataclass(frozen=True, slots=True)
class ChunkListSource(Source[ChunkSplit]):
    """Existing chunks, most of them by reference; they can be read any number of times.

    Order: as given. Chunks pickle with their references, so tasks read payloads at their source; a chunk that is only
    in memory is pickled with its payload.
    """

    name: str
    chunks: tuple[Chunk, ...]

    has_runs = True

    def describe(self) -> str:
        """One line for the plan."""
        return self.name

    def splits(self) -> Sequence[ChunkSplit]:
        """Runs of chunks of about 64 MiB uncompressed."""
        from ..optimisation import stored_size

        runs = list(runs_of(self.chunks))
        total = len(runs)
        return [
            ChunkSplit(f"{self.name} [{i + 1}/{total}]", sum(map(stored_size, run)), run) for i, run in enumerate(runs)
        ]

    def read(self, split: ChunkSplit) -> Iterator[Chunk]:
        """The chunks of one run."""
        return iter(split.chunks) if split.run is None else split.run.chunks_there()

    def run_splits(self, fate: Callable[[ChunkKind], Fate]) -> Sequence[ChunkSplit] | None:
        """Return splits of unread chunks, or None if a chunk is looked into, or is not in a store's local file."""
        fates = [fate(ChunkKind(c.entity_path, c.is_static, c.timeline_names)) for c in self.chunks]
        if Fate.LOOKED_INTO in fates:
            return None
        kept = [c for c, its in zip(self.chunks, fates, strict=True) if its is Fate.PASSED_ON]
        run = VerifiedRun.of(kept)
        if run is None:
            return None
        runs = run.divided(_PASSED_BYTES)
        labels = [f"{self.name} [{i + 1}/{len(runs)}]" for i in range(len(runs))]
        return [ChunkSplit(label, run.table.message_bytes, (), run) for label, run in zip(labels, runs, strict=True)]

    def whole_run(self, split: ChunkSplit, fate: Callable[[ChunkKind], Fate]) -> VerifiedRun | None:
        """Return the messages of a split of :meth:`run_splits`, or None for other splits."""
        del fate
        return split.run

    def pieces(self, split: ChunkSplit, fate: Callable[[ChunkKind], Fate]) -> Iterator[RunRows | Iterator[Chunk]]:
        """Yield a split's chunks: if any chunk is looked into, none is passed on unread."""
        del fate
        yield self.read(split)

    def spooled(self, *, whole: bool = True) -> Source[Any]:
        """Return the same chunks in splits without payloads: chunks in memory are written to scratch first."""
        if not whole or all(c.payload is not None for c in self.chunks):
            return self
        return IteratedSource(self.chunks).spooled()

    def spooled_pieces(self) -> tuple[Source[Any], Iterator[Split]]:
        """Return the same chunks; those in memory are written to scratch on demand."""
        if all(c.payload is not None for c in self.chunks):
            return self, iter(self.splits())
        return IteratedSource(self.chunks).spooled_pieces()

    def paths(self) -> Sequence[str]:
        """The files that payloads are read from."""
        return sorted({p for c in self.chunks if (p := getattr(c.payload, "path", None)) is not None})


def runs_of(chunks: Sequence[Chunk], run_bytes: int = SPLIT_BYTES) -> Iterator[tuple[Chunk, ...]]:
    """Consecutive chunks of about ``run_bytes`` each."""
    from ..optimisation import stored_size

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


class FrameSource(Source[Any]):
    """The chunks of a DataFrame of chunk rows; see :meth:`LazyChunkStream.from_spark`.

    Order: (task, position) if the DataFrame has these columns. Every run of a pipeline runs the DataFrame again.
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

    def spooled(self, *, whole: bool = True) -> Source[Any]:  # noqa: ARG002 (all rows come at once)
        """Return the chunks as a source that tasks can read: where they are stored, or in scratch parts."""
        return ChunkListSource("from_spark", tuple(chunks_of_frame(self._frame)))


class RowsSource(Source[Split]):
    """Chunks from rows that arrive while a stage runs; see :meth:`LazyChunkStream.from_stream`."""

    def __init__(self, frame: DataFrame | None) -> None:
        self.frame = frame

    def describe(self) -> str:
        """One line for the plan."""
        return "from_stream"

    def splits(self) -> Sequence[Split]:
        """Return none in a task's source; otherwise raise ``UsageError``, as rows are unknown before they arrive."""
        if self.frame is None:
            return ()
        raise UsageError(
            "the chunks of from_stream exist only while Spark runs the query",
            hint="End the pipeline with to_spark(payload=True), and write the frame: "
            "writeStream.format('chunkmill.store').",
        )

    def read(self, split: Split) -> Iterator[Chunk]:  # noqa: ARG002 (there is none)
        """Yield nothing."""
        return iter(())

    @staticmethod
    def travelling(source: Source[Any]) -> Source[Any]:
        """Return the source that replaces it in tasks. Raises ``UsageError`` for a source of another kind."""
        if isinstance(source, RowsSource):
            return RowsSource(None)
        raise UsageError(
            f"from_stream cannot be merged with {source.describe()}",
            hint="A streaming DataFrame is transformed by partition, and other sources have no partitions.",
        )
