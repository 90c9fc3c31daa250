"""Collect a pipeline into a ``ChunkStore``, in scratch or in a kept store; open a kept store of one recording."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence

from ..errors import UsageError
from ..execution import RunOptions, ScratchFolder, Staging, Work, lazy_chunk
from ..optimisation import OptimizationProfile, collect_parts
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
from ..stream import ChunkStore, LazyStore, by_chunk_id
from .stored import KeptRecording

_COLLECTED = Origin("", 0, 0, "", kept=False)
"""What a collected recording comes from: no file."""


def open_recording(path: str | os.PathLike[str], version: int | None) -> LazyStore:
    """Open a kept store as :meth:`ChunkStore.open` does."""
    folder = RecordingsFolder(path)
    kept = KeptRecording(folder, folder.version(version))
    return LazyStore(by_chunk_id(kept.chunks()), name=f"{folder.path} version {kept.version.number}", kept=kept)


def collect_plan(
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
