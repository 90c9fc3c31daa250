"""``RecordingStore``: a kept store of many recordings, as of one version."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SourceMissingError
from ..execution import Lease, Progress, RunOptions, executor_for, progress_shown
from ..locations import Location
from ..optimisation import OptimizationProfile
from ..query import AnswerColumns, QueriedSegment, Query, SegmentLayers
from ..recordings import (
    BASE_LAYER,
    MIN_SHARD,
    CompactionReport,
    LiveEntries,
    RecordingEntry,
    RecordingsFolder,
    RecordingsVersion,
    SchemaFiles,
    StoreWriter,
    compact_store,
    summarised,
    vacuum_store,
)
from ..stream import Content, LazyStore

if TYPE_CHECKING:
    import datafusion


class RecordingStore:
    """The recordings of a store, as of the version that was the newest when it was opened, or of another.

    Later commits of a writer are not visible: ``open`` it again. Made by :class:`~chunkmill.engine.ingest.Ingest`
    and ``chunkmill ingest``, and with one recording by :meth:`LazyChunkStream.collect`.

    ::

        store = RecordingStore.open("lake/drives")
        for entry in store:
            print(entry.recording_id, entry.source, entry.rows)
        store.recording(entry.recording_id).stream().write_rrd(…)
    """

    def __init__(self, folder: RecordingsFolder, version: RecordingsVersion) -> None:
        self._folder = folder
        self._version = version
        self._live: LiveEntries | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, version: int | None = None) -> RecordingStore:
        """Open the store at a path or URL, at its newest version or another.

        Raises ``SourceMissingError`` where there is none, ``ReadError`` where it is damaged.
        """
        folder = RecordingsFolder(path)
        return cls(folder, folder.version(version))

    @property
    def path(self) -> Location:
        """The folder, or the prefix of an object store."""
        return self._folder.path

    @property
    def version(self) -> RecordingsVersion:
        """The version that is open."""
        return self._version

    def versions(self) -> list[RecordingsVersion]:
        """All versions that are there, oldest first."""
        return self._folder.versions()

    def recordings(self) -> list[RecordingEntry]:
        """The entries of all recordings, one for each layer, in the order of their arrival. Blueprints are left out."""
        return [entry for entry in self._entries() if entry.kind != "blueprint"]

    def blueprints(self) -> list[RecordingEntry]:
        """The entries of all blueprints that came with RRDs."""
        return [entry for entry in self._entries() if entry.kind == "blueprint"]

    def entry(self, recording_id: str) -> RecordingEntry:
        """The entry of a recording; of one of several layers that of ``base``, or the one that came first.

        Raises ``SourceMissingError`` where there is none of this id.
        """
        found = self.layers(recording_id)
        if not found:
            raise self._missing(recording_id)
        return next((entry for entry in found if entry.layer == BASE_LAYER), found[0])

    def _missing(self, recording: str | RecordingEntry, hint: str | None = None) -> SourceMissingError:
        name = recording if isinstance(recording, str) else recording.recording_id
        return SourceMissingError(
            f"there is no recording {name!r}" + (" with such a layer" if hint else ""),
            path=str(self._folder.path),
            hint=hint or f"The store has {self._version.recordings} recordings; `recordings()` lists them.",
        )

    def layers(self, recording_id: str) -> list[RecordingEntry]:
        """The entries of all layers of a recording, in the order of their arrival; none where it is not there."""
        return self._entries().of_recording(recording_id)

    def recording(self, recording: str | RecordingEntry, *, layers: Collection[str] | None = None) -> LazyStore:
        """The chunks of a recording, of all its layers, or of one entry's; each is read when it is used.

        ``layers`` are the names of those that are wanted. Layers come one after the other, in the order of their
        arrival. Raises ``SourceMissingError`` where there is no such recording, ``ReadError`` where its manifest is
        damaged; and when they are used, for chunks of a file in place that was replaced since it was registered.
        """
        entries = [recording] if isinstance(recording, RecordingEntry) else self.layers(recording)
        wanted = [entry for entry in entries if layers is None or entry.layer in layers]
        if not wanted:
            names = ", ".join(entry.layer for entry in entries)
            raise self._missing(recording, f"It has the layers {names}." if entries else None)
        chunks = [chunk for entry in wanted for chunk in self._folder.chunks(entry)]
        return LazyStore(chunks, name=f"{self._folder.path}#{wanted[0].recording_id}")

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
        """The rows of all recordings by an index, each a segment; see :meth:`DatasetEntry.reader`.

        ``contents`` are the entities, by default all but properties; ``ctx`` is the context of DataFusion that
        evaluates it, by default one of its own; ``executor`` says who reads. No manifest is read before rows are
        wanted.

        Raises
        ------
        TypeError
            ``contents`` or ``using_index_values`` are something else.
        ValueError
            There is no such index; or index values are given twice, or without an index.
        """
        from ..frames import QueryFrame

        query = Query.of(
            index,
            contents,
            include_semantically_empty_columns=include_semantically_empty_columns,
            include_tombstone_columns=include_tombstone_columns,
            fill_latest_at=fill_latest_at,
            using_index_values=using_index_values,
        )
        return QueryFrame.of(*self.queried(query), RunOptions(executor), context=ctx)

    def queried(
        self, query: Query, recording_ids: Collection[str] | None = None
    ) -> tuple[AnswerColumns, list[QueriedSegment]]:
        """The columns of the answer to a query, and the recordings as it sees them: all, or those of some ids.

        Raises ``ValueError`` as :meth:`reader` does, ``ReadError`` where a schema is damaged.
        """
        schemas = SchemaFiles(self._folder)
        everything = SegmentLayers.of(summarised(self._folder, self._entries(), schemas).table, "recording")
        layers = everything if recording_ids is None else everything.of_segments(recording_ids)
        columns = query.columns(schemas.union(everything.digests), schemas.union(layers.digests))
        return columns, layers.queried(self._folder, schemas, columns)

    def vacuum(self, *, keep: int = 1, older_than_seconds: float = 0.0) -> int:
        """Remove old versions, and files left by crashed runs; return the bytes freed.

        The newest ``keep`` versions stay, and those younger than ``older_than_seconds``. Where there is something to
        remove, a version is published first that has the same recordings; it is not counted. This object keeps
        showing the version that it opened, as far as its files are there.

        Raises
        ------
        WriteError
            Another process writes to the store, or it cannot be written.
        """
        return vacuum_store(self._folder, keep=keep, older_than_seconds=older_than_seconds)

    def compact(
        self,
        *,
        optimize: OptimizationProfile | None = None,
        min_shard: int = MIN_SHARD,
        executor: str | None = None,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        progress: Progress = None,
    ) -> CompactionReport:
        """Join small files and drop replaced data: a new version with the same recordings.

        Shards below ``min_shard`` bytes are joined, and those that are mostly dead are left behind; chunks are copied
        as they are. With ``optimize`` recordings whose chunks are smaller than it wants are laid out anew, where
        ``executor``, ``master`` and ``conf`` say; ``progress`` as for :meth:`LazyChunkStream.write_rrd`, of the
        recordings of one commit after the other. This object goes on showing the version that it opened; old versions
        stay until :meth:`vacuum`. A store that needs nothing of it gets no version.

        Raises
        ------
        WriteError
            Another process writes to the store, or it cannot be written. Nothing has changed then; after a
            ``CommitUnknownError`` it is not known whether the new version is there.
        """
        with Lease.take(self._folder.path, "compact") as lease:
            writer = StoreWriter(self._folder, lease)
            chosen = executor_for(executor, lambda: self._version.bytes if isinstance(self.path, Path) else None)
            with progress_shown(progress, f"compact {self._folder.path}") as listener:
                run = RunOptions(chosen, master, conf, listener)
                return compact_store(writer, profile=optimize, run=run, min_shard=min_shard)

    def _entries(self) -> LiveEntries:
        if self._live is None:
            self._live = self._folder.live(self._version)
        return self._live

    def __len__(self) -> int:
        return len(self.recordings())

    def __iter__(self) -> Iterator[RecordingEntry]:
        return iter(self.recordings())

    def _repr_html_(self) -> str:
        from .panels import recordings_panel

        return recordings_panel(str(self._folder.path), self._version, self.recordings(), len(self.blueprints()))

    def __repr__(self) -> str:
        version = self._version
        return f"RecordingStore({str(self._folder.path)!r}, version={version.number}, recordings={version.recordings})"
