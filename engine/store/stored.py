"""All that every store can do, and ``LazyStore``: known by its manifest, with chunks that are read when touched."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from ..chunk import Chunk, ChunkHeader, Schema, summarise_chunks
from ..errors import UsageError
from ..execution import SHARD_BYTES, Progress, RunOptions
from ..limits import MIB, SPLIT_BYTES
from ..optimisation import stored_size
from ..query import HeldRecording, Query, StoreSource, queried_recordings
from ..reports import RunReport
from ..rrd import RunRows, StoreEntry, VerifiedRun
from ..stream import ChunkKind, Content, Fate, IteratedSource, LazyChunkStream, Source, Split

if TYPE_CHECKING:
    import datafusion

    from ..recordings import RecordingEntry, RecordingsFolder, RecordingsVersion


_PASSED_BYTES: Final = 256 * MIB
"""How much a task passes on."""


@dataclass(frozen=True, slots=True)
class ChunkSplit(Split):
    """A run of a store's chunks; one of those that are passed on does not hold them."""

    chunks: tuple[Chunk, ...]
    run: VerifiedRun | None = None


@dataclass(frozen=True, slots=True)
class ChunkListSource(Source[ChunkSplit]):
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

    def run_splits(self, fate: Callable[[ChunkKind], Fate]) -> Sequence[ChunkSplit] | None:
        """Splits of the chunks that are passed on; None where one is looked into, or lies elsewhere than in local files
        of the store's own.
        """
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
        """The messages of a split that :meth:`run_splits` gave; beside chunks that are looked into, there is none."""
        del fate
        return split.run

    def pieces(self, split: ChunkSplit, fate: Callable[[ChunkKind], Fate]) -> Iterator[RunRows | Iterator[Chunk]]:
        """A split chunk by chunk: beside chunks that are looked into, none is passed on unseen."""
        del fate
        yield self.read(split)

    def spooled(self, *, whole: bool = True) -> Source[Any]:
        """Return the same chunks in splits that carry no payload: those in memory are written to scratch first."""
        if not whole or all(c.payload is not None for c in self.chunks):
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


@dataclass(frozen=True, slots=True)
class StoreVersion:
    """One version of a kept store of one recording.

    ``created`` is in seconds since the epoch; ``bytes`` are those of its chunks as stored; ``first``: the number of
    the first version that counts, as earlier ones are removed.
    """

    number: int
    created: float
    chunks: int
    rows: int
    bytes: int
    application_id: str
    recording_id: str
    first: int = 0

    @property
    def store(self) -> StoreEntry:
        """The recording that the shards belong to."""
        return StoreEntry("recording", self.application_id, self.recording_id)


class KeptRecording:
    """The one recording of a store of recordings, as of one of its versions."""

    def __init__(self, folder: RecordingsFolder, version: RecordingsVersion) -> None:
        self.folder = folder
        self.layers = _only_recording(folder, version)
        self.version = _store_version(self.layers, version)

    def chunks(self) -> list[Chunk]:
        """The chunks of its layers, undecoded."""
        return [chunk for entry in self.layers for chunk in self.folder.chunks(entry)]


class StoredChunks:
    """The base of :class:`ChunkStore` and :class:`LazyStore`.

    ``silent_columns`` are headers of columns that no chunk's header names, because they hold nothing but nulls;
    ``kept`` is what a kept store shows.
    """

    def __init__(
        self,
        chunks: Iterable[Chunk],
        *,
        name: str,
        kept: KeptRecording | None = None,
        silent_columns: Sequence[ChunkHeader] = (),
    ) -> None:
        self._chunks = tuple(chunks)
        self._name = name
        self._kept = kept
        self._silent = silent_columns

    def schema(self) -> Schema:
        """All timelines and components, from the headers alone."""
        return Schema.from_headers(chain((c.header for c in self._chunks), self._silent))

    def summary(self) -> str:
        """One line per chunk, sorted by entity: ``{entity} rows=… static=… timelines=[…] cols=[…]``.

        Where headers come from an RRD's footer, components of which it says nothing, because all their rows are null,
        are left out.
        """
        return summarise_chunks(c.header for c in self._chunks)

    def stream(self) -> LazyChunkStream:
        """A stream over all chunks, in the store's order."""
        return LazyChunkStream.from_source(ChunkListSource(self._name, self._chunks))

    def reader(
        self,
        index: str | None,
        *,
        contents: Content | None = None,
        include_semantically_empty_columns: bool = False,
        include_tombstone_columns: bool = False,
        fill_latest_at: bool = False,
        using_index_values: Any = None,
        executor: str | None = None,
        ctx: datafusion.SessionContext | None = None,
    ) -> datafusion.DataFrame:
        """The rows of the recording by an index, as a DataFrame of DataFusion; see :meth:`DatasetEntry.reader`.

        There is no column ``rerun_segment_id``. ``contents`` are the entities, by default all but properties; ``ctx``
        is the context that evaluates it, by default one of its own; ``executor`` says who reads. No chunk is read
        before rows are wanted.

        Raises
        ------
        TypeError
            ``contents`` or ``using_index_values`` are something else.
        ValueError
            There is no such index; index values are given twice, or without an index; or chunks have a component in
            types that do not go together.
        """
        from ..frames import QueryFrame

        query = Query.of(
            index,
            contents,
            include_semantically_empty_columns=include_semantically_empty_columns,
            include_tombstone_columns=include_tombstone_columns,
            fill_latest_at=fill_latest_at,
            using_index_values=using_index_values,
            names_segments=False,
        )
        return QueryFrame.of(*queried_recordings(query, [self.segment(self._name)]), RunOptions(executor), context=ctx)

    def segment(self, segment_id: str) -> HeldRecording:
        """The chunks as a segment that queries are asked of."""
        kept = self._kept
        source = None if kept is None else StoreSource(str(kept.folder.path), tuple(kept.layers))
        return HeldRecording(segment_id, self._chunks, tuple(self._silent), source)

    def write_rrd(
        self,
        path: str | os.PathLike[str],
        *,
        application_id: str,
        recording_id: str,
        shards: bool = False,
        shard_bytes: int = SHARD_BYTES,
        progress: Progress = None,
    ) -> RunReport:
        """Write all chunks to an RRD file, or a folder of them; see :meth:`LazyChunkStream.write_rrd`."""
        return self.stream().write_rrd(
            path,
            application_id=application_id,
            recording_id=recording_id,
            shards=shards,
            shard_bytes=shard_bytes,
            progress=progress,
        )

    def versions(self) -> list[StoreVersion]:
        """All versions of a kept store, oldest first; none for one in scratch, in memory or in an RRD."""
        if self._kept is None:
            return []
        folder = self._kept.folder
        return [KeptRecording(folder, version).version for version in folder.versions()]

    def vacuum(self, keep: int = 1) -> int:
        """Remove what only versions older than the newest ``keep`` need; gives the bytes freed. For a kept store.

        Where there is something to remove, a version is published first that has the same chunks; it is not counted.

        Raises
        ------
        WriteError
            Another process writes to the store, or it cannot be written. Nothing was removed then.
        """
        if self._kept is None:
            return 0
        from ..recordings import vacuum_store

        return vacuum_store(self._kept.folder, keep=keep)

    def __len__(self) -> int:
        return len(self._chunks)

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self._chunks)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} chunks)"

    def _repr_html_(self) -> str:
        from .panels import chunks_panel

        return chunks_panel(f"{type(self).__name__} {self._name}".replace("ChunkStore ChunkStore", "ChunkStore"), self)


class LazyStore(StoredChunks):
    """The chunks of a recording in the order of its manifest. Length, schema and summary read no chunk.

    Made by :meth:`RrdReader.store`, :meth:`ChunkStore.open` and :meth:`RecordingStore.recording`.
    """

    @property
    def version(self) -> StoreVersion | None:
        """The version that is open, of a kept store."""
        return None if self._kept is None else self._kept.version


def _only_recording(folder: RecordingsFolder, version: RecordingsVersion) -> list[RecordingEntry]:
    """The layers of the recording of a store that has one. Raises ``UsageError`` for another."""
    layers = [entry for entry in folder.live(version) if entry.kind != "blueprint"]
    recordings = {entry.recording_id for entry in layers}
    if len(recordings) == 1:
        return layers
    raise UsageError(
        f"version {version.number} of this store has {len(recordings)} recordings, not one",
        path=str(folder.path),
        hint="Open it with RecordingStore.open, whose recording(id) gives the chunks of one.",
    )


def _store_version(layers: Sequence[RecordingEntry], version: RecordingsVersion) -> StoreVersion:
    return StoreVersion(
        version.number,
        version.created,
        sum(entry.chunks for entry in layers),
        sum(entry.rows for entry in layers),
        sum(entry.bytes for entry in layers),
        layers[0].application_id,
        layers[0].recording_id,
        version.first,
    )
