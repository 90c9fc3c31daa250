"""``ChunkStore`` and ``LazyStore``: the chunks of a recording, collected on disk or read when needed."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..chunk import Chunk
from ..errors import UsageError
from ..execution import RunOptions, ScratchFolder, Staging, Work, lazy_chunk
from ..optimisation import OptimizationProfile, collect_parts
from ..query import HeldRecording, Query, StoreSource, queried_recordings
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
from ..stream import ChunkStore, Content, Kept, LazyStore, StoredChunks, StoreVersion, by_chunk_id

if TYPE_CHECKING:
    import datafusion


class KeptRecording(Kept):
    """The only recording of a store, at one of the store's versions."""

    def __init__(self, folder: RecordingsFolder, version: RecordingsVersion) -> None:
        self.folder = folder
        self.layers = _only_recording(folder, version)
        self.version = _store_version(self.layers, version)

    def chunks(self) -> list[Chunk]:
        """Return the chunks of its layers, undecoded."""
        return [chunk for entry in self.layers for chunk in self.folder.chunks(entry)]

    def versions(self) -> list[StoreVersion]:
        """Return all versions, oldest first."""
        return [KeptRecording(self.folder, version).version for version in self.folder.versions()]

    def vacuum(self, keep: int) -> int:
        """Remove files that only versions older than the newest ``keep`` need; return the bytes freed."""
        from ..recordings import vacuum_store

        return vacuum_store(self.folder, keep=keep)


def segment_of(store: StoredChunks, segment_id: str) -> HeldRecording:
    """Return the chunks of a store as a segment for queries."""
    recording = store._kept  # noqa: SLF001 (a store is made here)
    source = (
        StoreSource(str(recording.folder.path), tuple(recording.layers))
        if isinstance(recording, KeptRecording)
        else None
    )
    return HeldRecording(segment_id, tuple(store), store._silent, source)  # noqa: SLF001


def read_rows(
    store: StoredChunks,
    segment_id: str,
    index: str | None,
    contents: Content | None,
    executor: str | None,
    ctx: datafusion.SessionContext | None,
    **choices: Any,
) -> datafusion.DataFrame:
    """Return the rows of a store; see :meth:`StoredChunks.reader`."""
    from ..frames import QueryFrame

    query = Query.of(index, contents, names_segments=False, **choices)
    recordings = queried_recordings(query, [segment_of(store, segment_id)])
    return QueryFrame.of(*recordings, RunOptions(executor), context=ctx)


def _only_recording(folder: RecordingsFolder, version: RecordingsVersion) -> list[RecordingEntry]:
    """The layers of a store's only recording. Raises ``UsageError`` for a store with more or none."""
    layers = [entry for entry in folder.live(version) if entry.kind != "blueprint"]
    recordings = {entry.recording_id for entry in layers}
    if len(recordings) == 1:
        return layers
    raise UsageError(
        f"version {version.number} of this store has {len(recordings)} recordings, not one",
        path=str(folder.path),
        hint="Open it with RecordingStore.open(…), and get one with recording(id).",
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


_COLLECTED = Origin("", 0, 0, "", kept=False)
"""The origin of a collected recording: no file."""


def open_recording(path: str | os.PathLike[str], version: int | None) -> LazyStore:
    """Open a kept store; see :meth:`ChunkStore.open`."""
    folder = RecordingsFolder(path)
    recording = KeptRecording(folder, folder.version(version))
    return LazyStore(
        by_chunk_id(recording.chunks()), name=f"{folder.path} version {recording.version.number}", kept=recording
    )


def collect_plan(
    work: Work,
    options: RunOptions,
    optimize: OptimizationProfile | None,
    into: str | os.PathLike[str] | None,
    application_id: str,
    recording_id: str | None,
    shard_bytes: int,
) -> ChunkStore:
    """Run a pipeline; see :meth:`LazyChunkStream.collect`."""
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
    """Publish a version with only this recording in the store in ``folder``."""
    writer = StoreWriter(folder, shard_bytes=shard_bytes)

    def rule(
        live: LiveEntries, _: RecordingsVersion | None, entries: Sequence[RecordingEntry]
    ) -> Sequence[RecordingEntry]:
        if any(entry.source for entry in live):
            raise UsageError(
                f"this store has {len(live)} ingested recordings, which a collected one would replace",
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
    recording = KeptRecording(folder, version)
    return ChunkStore(recording.chunks(), kept=recording)


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
