"""``RecordingStore``: the recordings of a folder under one catalog of versions, and how notebooks show them."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from ..chunk import Chunk, TimelineHeader, TimelineKind
from ..errors import SourceMissingError
from ..execution import Lease, Progress, RunOptions, executor_for, progress_shown
from ..lazy_names import terminal
from ..locations import Location
from ..markup import Cell, bar, panel, table, track
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
from ..units import counted, duration, size, utc_time

if TYPE_CHECKING:
    import datafusion

    from ..writers import ExportReport, ExportSpec


class RecordingStore:
    """The recordings of a store at one version: by default the newest when the store was opened.

    Later commits of a writer are not visible: ``open`` it again. :class:`~chunkmill.engine.ingest.Ingest` and
    ``chunkmill ingest`` make stores; :meth:`LazyChunkStream.collect` makes one with a single recording.

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

        Raises ``SourceMissingError`` if there is no store, and ``ReadError`` if it is damaged.
        """
        folder = RecordingsFolder(path)
        return cls(folder, folder.version(version))

    @property
    def path(self) -> Location:
        """The folder, or the prefix of an object store."""
        return self._folder.path

    @property
    def version(self) -> RecordingsVersion:
        """The open version."""
        return self._version

    def versions(self) -> list[RecordingsVersion]:
        """All existing versions, oldest first."""
        return self._folder.versions()

    def recordings(self) -> list[RecordingEntry]:
        """The entries of all recordings without blueprints, one per layer, in the order of arrival."""
        return [entry for entry in self._entries() if entry.kind != "blueprint"]

    def blueprints(self) -> list[RecordingEntry]:
        """The entries of all blueprints from ingested RRDs."""
        return [entry for entry in self._entries() if entry.kind == "blueprint"]

    def entry(self, recording_id: str) -> RecordingEntry:
        """Return the entry of a recording. If it has several layers, this is the entry of ``base``, or else the first.

        Raises ``SourceMissingError`` for an unknown id.
        """
        layers = self.layers(recording_id)
        if not layers:
            raise self._missing(recording_id)
        return next((entry for entry in layers if entry.layer == BASE_LAYER), layers[0])

    def _missing(self, recording: str | RecordingEntry, hint: str | None = None) -> SourceMissingError:
        name = recording if isinstance(recording, str) else recording.recording_id
        return SourceMissingError(
            f"there is no recording {name!r}" + (" with such a layer" if hint else ""),
            path=str(self._folder.path),
            hint=hint or f"The store has {self._version.recordings} recordings; `recordings()` lists them.",
        )

    def layers(self, recording_id: str) -> list[RecordingEntry]:
        """Return the entries of all layers of a recording, in the order of arrival; an empty list if it is missing."""
        return self._entries().of_recording(recording_id)

    def recording(self, recording: str | RecordingEntry, *, layers: Collection[str] | None = None) -> LazyStore:
        """The chunks of a recording: those of all its layers, or of one entry. Each chunk is read on use.

        ``layers`` selects layers by name. Layers are in the order of arrival. Raises ``SourceMissingError`` if there is
        no such recording, and ``ReadError`` if its manifest is damaged. If a file that was registered in place has been
        replaced, using its chunks raises ``ReadError``.
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
        """The rows of all recordings by an index; each recording is a segment. See :meth:`DatasetEntry.reader`.

        ``contents`` are the entities, by default all except properties. ``ctx`` is the DataFusion context that
        evaluates the query, by default a new one. ``executor`` selects where chunks are read. Manifests are read only
        when rows are requested.

        Raises
        ------
        TypeError
            ``contents`` or ``using_index_values`` has another type.
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
        """Return the columns of a query's result, and the recordings it reads: all, or those with the given ids.

        Raises ``ValueError`` like :meth:`reader`, and ``ReadError`` if a schema is damaged.
        """
        schemas = SchemaFiles(self._folder)
        everything = SegmentLayers.of(summarised(self._folder, self._entries(), schemas).table, "recording")
        layers = everything if recording_ids is None else everything.of_segments(recording_ids)
        columns = query.columns(schemas.union(everything.digests), schemas.union(layers.digests))
        return columns, layers.queried(self._folder, schemas, columns)

    def write_lerobot(
        self,
        path: str | os.PathLike[str],
        spec: ExportSpec | Mapping[str, Any] | str | os.PathLike[str],
        *,
        append: bool = False,
        executor: str | None = None,
        master: str | None = None,
        progress: Progress = None,
    ) -> ExportReport:
        """Write the recordings as a LeRobot dataset, or with ``append`` update an existing one.

        An update exports recordings that are new or were replaced, and removes those that were deleted from the store.
        If there is nothing to do, nothing is written. Guarantees and errors are those of :func:`write_lerobot`.
        """
        given = {"append": append, "executor": executor, "master": master, "progress": progress}
        return cast("ExportReport", terminal("write_lerobot")(self, path, spec, **given))

    def vacuum(self, *, keep: int = 1, older_than_seconds: float = 0.0) -> int:
        """Remove old versions, and files left by crashed runs; return the bytes freed.

        The newest ``keep`` versions are kept, and those younger than ``older_than_seconds``. If there is something to
        remove, a new version with the same recordings is published first, in addition to ``keep``. This object stays at
        its version, and reads those of its files that still exist.

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
        """Join small files and drop replaced data, in a new version with the same recordings.

        Shards smaller than ``min_shard`` bytes are joined, and shards that hold mostly replaced data are rewritten.
        Chunks are copied unchanged. With ``optimize``, recordings whose chunks are smaller than in this profile get a
        new layout. ``executor``, ``master`` and ``conf`` select where this runs. ``progress`` is as for
        :meth:`LazyChunkStream.write_rrd`; it restarts for the recordings of each commit. This object stays at its
        version. Old versions are kept until :meth:`vacuum`. If there is nothing to do, no version is made.

        Raises
        ------
        WriteError
            Another process writes to the store, or it cannot be written. The store is then unchanged. After a
            ``CommitUnknownError`` it is unknown whether the new version exists.
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

        return recordings_panel(str(self._folder.path), self._version, self.recordings(), len(self.blueprints()))

    def __repr__(self) -> str:
        version = self._version
        return f"RecordingStore({str(self._folder.path)!r}, version={version.number}, recordings={version.recordings})"


_NEVER: Final = "no rows"


@dataclass(slots=True)
class _Entity:
    """Sums over one entity's chunks, and the range of each chunk on every timeline."""

    rows: int = 0
    chunks: int = 0
    size: int = 0
    ranges: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))


def chunks_panel(title: str, chunks: Iterable[Chunk]) -> str:
    """A panel of the entities of a store, largest first, with chunks as bars on the most common timeline.

    Only headers are used.
    """
    entities: dict[str, _Entity] = defaultdict(_Entity)
    timelines: dict[str, TimelineHeader] = {}
    on: Counter[str] = Counter()
    for chunk in chunks:
        header = chunk.header
        entity = entities[header.entity_path]
        entity.rows += header.num_rows
        entity.chunks += 1
        entity.size += chunk.byte_size
        for line in header.timelines:
            on[line.name] += header.num_rows
            timelines[line.name] = _joined(timelines.get(line.name), line)
            if line.start is not None and line.end is not None:
                entity.ranges[line.name].append((line.start, line.end))
    ordered = sorted(entities.items(), key=lambda item: (-item[1].size, item[0]))
    drawn = max(timelines.values(), key=lambda line: (on[line.name], line.kind is TimelineKind.TIMESTAMP), default=None)
    facts = (
        counted(sum(e.chunks for e in entities.values()), "chunk"),
        counted(sum(e.rows for e in entities.values()), "row"),
        size(sum(e.size for e in entities.values())),
    )
    head = ["entity", "rows", "chunks", "size", "" if drawn is None else f"on {drawn.name}"]
    rows = ((path, e.rows, e.chunks, size(e.size), _bars(e, drawn)) for path, e in ordered)
    return panel(
        title,
        facts,
        table(["timeline", "from", "to", "length"], map(_line, timelines.values()), len(timelines)),
        table(head, rows, len(ordered), kind="wide"),
    )


def _joined(existing: TimelineHeader | None, line: TimelineHeader) -> TimelineHeader:
    if existing is None:
        return line
    starts = [s for s in (existing.start, line.start) if s is not None]
    ends = [e for e in (existing.end, line.end) if e is not None]
    return TimelineHeader(existing.name, existing.kind, min(starts, default=None), max(ends, default=None))


def _bars(entity: _Entity, line: TimelineHeader | None) -> Cell:
    if line is None or not entity.ranges:
        return "static"
    if line.start is None or line.end is None or line.name not in entity.ranges:
        return f"not on {line.name}"
    first, length = line.start, max(line.end - line.start, 1)
    return track(((a - first) / length, (b - first) / length) for a, b in entity.ranges[line.name])


def _line(line: TimelineHeader) -> Sequence[Cell]:
    if line.start is None or line.end is None:
        return line.name, _NEVER, "", ""
    ends = (_time(line.kind, line.start), _time(line.kind, line.end))
    return line.name, *ends, "" if line.kind is TimelineKind.SEQUENCE else _length(line.end - line.start)


def _time(kind: TimelineKind, ticks: int) -> str:
    """A place on a timeline as text for people.

    >>> _time(TimelineKind.SEQUENCE, 1200), _time(TimelineKind.DURATION, 1_500_000_000)
    ('1,200', '1.5 s')
    """
    if kind is TimelineKind.SEQUENCE:
        return f"{ticks:,}"
    if kind is TimelineKind.DURATION:
        return _length(ticks)
    try:
        return utc_time(ticks / 1e9)
    except (ValueError, OverflowError, OSError):
        return f"{ticks:,} ns"


def _length(nanoseconds: int) -> str:
    return duration(nanoseconds / 1e9) if nanoseconds >= 0 else f"-{duration(-nanoseconds / 1e9)}"


def recordings_panel(path: str, version: RecordingsVersion, entries: Sequence[RecordingEntry], blueprints: int) -> str:
    """A panel of a store's recordings, newest first, with sizes as bars."""
    facts = [
        f"version {version.number} of {utc_time(version.created, 'seconds')}",
        counted(version.recordings, "recording"),
        counted(blueprints, "blueprint") if blueprints else "",
        counted(sum(e.rows for e in entries), "row"),
        size(sum(e.bytes for e in entries)),
    ]
    head = ["recording", "application", "added", "rows", "chunks", "size", ""]
    return panel(f"RecordingStore {path}", facts, table(head, _recordings(entries), len(entries), kind="wide"))


def _recordings(entries: Sequence[RecordingEntry]) -> Iterator[Sequence[Cell]]:
    from ..recordings import BASE_LAYER

    largest = max((e.bytes for e in entries), default=0) or 1
    for e in reversed(entries):
        added = utc_time(e.added, "seconds")
        name = e.recording_id if e.layer == BASE_LAYER else f"{e.recording_id}, layer {e.layer}"
        yield name, e.application_id, added, e.rows, e.chunks, size(e.bytes), bar(e.bytes / largest, e.source)
