"""The recording that a kept store has, and the chunks of any store as a segment of queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..chunk import Chunk
from ..errors import UsageError
from ..execution import RunOptions
from ..query import HeldRecording, Query, StoreSource, queried_recordings
from ..stream import Content, Kept, StoredChunks, StoreVersion

if TYPE_CHECKING:
    import datafusion

    from ..recordings import RecordingEntry, RecordingsFolder, RecordingsVersion


class KeptRecording(Kept):
    """The one recording of a store of recordings, as of one of its versions."""

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
        """Remove what only versions older than the newest ``keep`` need, and return the bytes freed."""
        from ..recordings import vacuum_store

        return vacuum_store(self.folder, keep=keep)


def segment_of(store: StoredChunks, segment_id: str) -> HeldRecording:
    """Return the chunks of a store as a segment that queries are asked of."""
    kept = store._kept  # noqa: SLF001 (a store is made here)
    source = StoreSource(str(kept.folder.path), tuple(kept.layers)) if isinstance(kept, KeptRecording) else None
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
    """Return the rows of a store as :meth:`StoredChunks.reader` does."""
    from ..frames import QueryFrame

    query = Query.of(index, contents, names_segments=False, **choices)
    recordings = queried_recordings(query, [segment_of(store, segment_id)])
    return QueryFrame.of(*recordings, RunOptions(executor), context=ctx)


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
