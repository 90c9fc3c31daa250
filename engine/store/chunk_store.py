"""``ChunkStore``: all chunks of a recording, materialised on disk, laid out for reading."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Sequence

from ..chunk import Chunk
from ..errors import UsageError
from ..execution import RunOptions, ScratchFolder, Staging, Work, lazy_chunk
from ..optimisation import OptimizationProfile, collect_parts, optimised
from ..recordings import (
    Arrived,
    Commit,
    LiveEntries,
    Origin,
    RecordingEntry,
    RecordingsFolder,
    RecordingsVersion,
    StoreWriter,
)
from ..rrd import StoreEntry
from ..stream import as_chunk
from .stored import KeptRecording, LazyStore, StoredChunks, by_chunk_id

_AS_THEY_ARE = OptimizationProfile(max_bytes=0, max_rows=0, max_rows_if_unsorted=0, extra_passes=0, gop_batching=False)

_COLLECTED = Origin("", 0, 0, "", kept=False)
"""What a collected recording comes from: no file."""


class ChunkStore(StoredChunks):
    """The chunks of a recording, by ascending chunk id. Immutable.

    Made by :meth:`from_chunks`, :meth:`LazyChunkStream.collect` or :meth:`open`. Collected chunks are on disk
    and are read when they are used, so a store may be larger than memory; each is then verified by its digest.

    Order: ascending chunk id, for iteration, ``stream`` and ``write_rrd``.
    """

    def __init__(self, chunks: Iterable[Chunk], *, kept: KeptRecording | None = None) -> None:
        super().__init__(by_chunk_id(list(chunks)), name="ChunkStore", kept=kept)

    @staticmethod
    def from_chunks(chunks: Iterable[Chunk]) -> ChunkStore:
        """A store of the given chunks, in memory. Nothing is merged or split.

        Chunks without rows or components, and chunks given twice, are left out; static chunks that newer ones
        overwrite whole are dropped. Raises ``ReadError`` when a chunk's row ids do not ascend, ``AttributeError`` for
        anything but a chunk.
        """
        return ChunkStore(optimised(map(as_chunk, chunks), _AS_THEY_ARE))

    @staticmethod
    def open(path: str | os.PathLike[str], *, version: int | None = None) -> LazyStore:
        """Open a kept store of one recording, as it was at ``version`` (by default the newest).

        Reads the manifest only; the chunks come by ascending chunk id. Raises ``SourceMissingError`` where there is no
        store, ``ReadError`` where it is damaged, and ``UsageError`` for one of several recordings.
        """
        folder = RecordingsFolder(path)
        kept = KeptRecording(folder, folder.version(version))
        return LazyStore(by_chunk_id(kept.chunks()), name=f"{folder.path} version {kept.version.number}", kept=kept)


def collect(
    work: Work,
    options: RunOptions,
    optimize: OptimizationProfile | None,
    into: str | os.PathLike[str] | None,
    application_id: str,
    recording_id: str | None,
    shard_bytes: int,
) -> ChunkStore:
    """Run a pipeline as :meth:`LazyChunkStream.collect` does."""
    if into is None:
        return _collect_to_scratch(work, options, optimize)
    store = StoreEntry("recording", application_id, recording_id or str(uuid.uuid4()))
    return _collect_into(RecordingsFolder(into), store, work, options, optimize, shard_bytes)


def _collect_into(
    folder: RecordingsFolder,
    store: StoreEntry,
    work: Work,
    options: RunOptions,
    optimize: OptimizationProfile | None,
    shard_bytes: int,
) -> ChunkStore:
    """Publish a version of the store in ``folder`` that has this recording alone."""
    writer = StoreWriter(folder, shard_bytes=shard_bytes)

    def rule(
        live: LiveEntries, _: RecordingsVersion | None, entries: Sequence[RecordingEntry]
    ) -> Sequence[RecordingEntry]:
        if any(entry.source for entry in live):
            raise UsageError(
                f"this store has {len(live)} recordings that were ingested, and a collected one would replace them",
                path=str(folder.path),
                hint="Collect into another folder.",
            )
        return entries

    rule(writer.live, writer.version, ())
    with Staging.beside(folder.path / "store") as staging:
        chunks = collect_parts(work, optimize, store, staging, options, times=True)
        in_parts = sorted(chunks, key=lambda c: (c.task, c.position))
        commit = Commit("collect")
        version = writer.commit(staging, [Arrived(store, _COLLECTED, in_parts)], commit, alone=True, rule=rule)
    kept = KeptRecording(folder, version)
    return ChunkStore(kept.chunks(), kept=kept)


def _collect_to_scratch(work: Work, options: RunOptions, optimize: OptimizationProfile | None) -> ChunkStore:
    staging = Staging.in_scratch()
    store = StoreEntry("recording", "chunkmill", "scratch")
    try:
        chunks = collect_parts(work, optimize, store, staging, options)
    except BaseException:
        staging.remove()
        raise
    folder = ScratchFolder(staging.local)
    return ChunkStore(lazy_chunk(staging.folder.place(c.part), c.entry, folder, store) for c in chunks)
