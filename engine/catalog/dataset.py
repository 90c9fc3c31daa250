"""Datasets of a catalog: ``DatasetEntry``, whose segments are in a store of recordings, and views of some of them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from ..chunk import SORBET_VERSION, Schema, is_property, to_arrow_schema
from ..errors import NotFoundError, UnmatchedWarning, UnsupportedCallError, UsageError, WriteError, check_argument
from ..execution import Progress, RunOptions, executor_name
from ..query import AnswerColumns, QueriedSegment, Query
from ..recordings import BASE_LAYER, LiveEntries, RecordingEntry, RecordingsFolder, StoreReader, summarised
from ..storage import VersionPoint
from ..store import LazyStore
from ..stream import Content, ContentFilter
from ..units import Moment
from .blueprints import HiddenDatasets, Recording
from .dataset_versions import DatasetVersions
from .deprecated import older, warned, with_older_keywords
from .entries import EntryKind, time_of
from .entry_log import changing
from .forget import DatasetForget
from .layers import FileRequest, OnDuplicateSegmentLayer, check_new, requests_below, requests_of
from .maintenance import maintain
from .registration import (
    RegistrationHandle,
    RegistrationOptions,
    UnregistrationHandle,
    start_registration,
    unregister,
)
from .row_view import IndexValuesLike, RowOptions, taking
from .search import DatasetCuration, DatasetSearch, ValueSearch, segments_in
from .segment_rows import followed
from .segments import DatasetInfo, Layer, Segment, SegmentProperties, SegmentTables, frame_of, segment_url, url_of

if TYPE_CHECKING:
    import datafusion

    from ..execution import DataFrame as SparkFrame
    from ..frames import QueryFrame
    from ..tables import NativeTable, TableConnection
    from ..writers import ExportedStore, ExportReport, ExportSpec

_METADATA: Final = {"sorbet:version": SORBET_VERSION}
_TRIES: Final = 10


class SupportsReader(Protocol):
    """A table whose rows can be read, such as a :class:`TableEntry`."""

    def reader(self) -> datafusion.DataFrame:
        """The rows of the table."""
        ...


class DatasetView(ValueSearch, DatasetCuration):
    """Some segments and entities of a dataset. The filters apply when rows are read.

    :meth:`filter_segments` and :meth:`filter_contents` return smaller views. A dataset is the view of all of its
    segments and entities. Views are immutable::

        view = dataset.filter_segments(["drive_1", "drive_2"]).filter_contents("/imu/**")
        frame = view.reader("log_time", fill_latest_at=True)
    """

    _segments: frozenset[str] | None = None
    _contents: tuple[str, ...] | None = None

    def __init__(
        self, dataset: DatasetEntry, segments: frozenset[str] | None = None, contents: tuple[str, ...] | None = None
    ) -> None:
        self._dataset = dataset
        self._segments = segments
        self._contents = contents

    @property
    def dataset(self) -> DatasetEntry:
        """The dataset."""
        return self._dataset

    # --- filters

    def filter_segments(self, segment_ids: str | Sequence[str] | datafusion.DataFrame | SupportsReader) -> DatasetView:
        """The view of only these segments.

        ``segment_ids`` is one id, several ids, or a table or DataFrame with a column ``rerun_segment_id``, which is
        read at once. Unknown ids give a :class:`ReadWarning`.

        Raises
        ------
        TypeError
            ``segment_ids`` has another type.
        ValueError
            The table has no such column.
        """
        chosen = segments_in(self.dataset, segment_ids)
        segments = chosen if self._segments is None else chosen & self._segments
        return DatasetView(self.dataset, segments, self._contents)

    def filter_contents(self, exprs: Content) -> DatasetView:
        """The view of the entities that these and the earlier expressions select; see :class:`ContentFilter`.

        ``/points/**`` selects an entity and all below it, ``/points`` only the entity; ``-/text/**`` excludes. If
        several expressions match an entity, the most specific one decides.

        Raises
        ------
        TypeError
            An expression is neither a string nor a filter.
        """
        several: Any = exprs.to_exprs() if hasattr(exprs, "to_exprs") else exprs
        added = (exprs,) if isinstance(exprs, str) else tuple(several)
        for expr in added:
            check_argument("exprs", expr, str)
        return DatasetView(self.dataset, self._segments, (*(self._contents or ()), *added))

    def at(self, version: VersionPoint | None = None) -> DatasetView:
        """The same view at a version of the dataset; see :meth:`DatasetEntry.at`."""
        return DatasetView(self.dataset.at(version), self._segments, self._contents)

    # --- contents

    def segment_ids(self) -> list[str]:
        """The ids of the segments, in the order of their registration."""
        ids = self.dataset.segment_ids()
        return ids if self._segments is None else [id_ for id_ in ids if id_ in self._segments]

    def schema(self) -> Schema:
        """The columns of the segments and entities."""
        return Schema.from_arrow(self.arrow_schema())

    def arrow_schema(self) -> pa.Schema:
        """The columns of the segments and entities as Arrow fields with Rerun's metadata."""
        store = self.dataset.store_reader()
        layers = self._layers(store)
        schema = store.union(layers.digests) if len(layers.rows) else pa.schema([])
        if len(schema) and self._contents is not None:
            whole = Schema.from_arrow(schema)
            shown = [c for c in whole.component_columns() if self._filter().matches(c.entity_path)]
            schema = to_arrow_schema(whole.index_columns(), shown)
        return schema.with_metadata(_METADATA)

    def segment_table(
        self, join_meta: SupportsReader | datafusion.DataFrame | None = None, join_key: str = "rerun_segment_id"
    ) -> datafusion.DataFrame:
        """One row for each segment: its layers and their URLs, sizes, properties, and the range of each index.

        The columns are ``rerun_segment_id``, ``rerun_layer_names``, ``rerun_storage_urls``, ``rerun_last_updated_at``,
        ``rerun_num_chunks``, ``rerun_size_bytes`` (of stored chunks), one for each property (the layer registered last
        wins), and ``<index>:end`` and ``<index>:start`` of each index.

        Parameters
        ----------
        join_meta
            A table with more columns: each segment gets the values of the row with its key, or nulls.
        join_key
            The column of both tables by which they are joined.

        Raises
        ------
        ValueError
            A table lacks the column ``join_key``.
        """
        segments = frame_of(self.segment_rows())
        if join_meta is None:
            return segments
        import datafusion

        other = join_meta if isinstance(join_meta, datafusion.DataFrame) else join_meta.reader()
        if join_key not in segments.schema().names:
            raise UsageError(f"Dataset segment table must contain join_key column '{join_key}'.")
        if join_key not in other.schema().names:
            raise UsageError(f"join_meta must contain join_key column '{join_key}'.")
        key = f"{join_key}_of_meta"
        renamed = other.with_column_renamed(join_key, key)
        return segments.join(renamed, left_on=join_key, right_on=key, how="left").drop(key)

    def segment_rows(self) -> pa.Table:
        """The current rows of :meth:`segment_table`."""
        store = self.dataset.store_reader()
        return self._layers(store).segment_table(partial(url_of, store.folder))

    def get_index_ranges(self) -> datafusion.DataFrame:
        """One row for each segment:

        ``<index>:end`` and ``<index>:start`` of each index, null if the segment lacks the index.
        """
        return frame_of(self._layers(self.dataset.store_reader()).index_ranges())

    @warned("This method is deprecated and will be removed in a future release")
    def download_segment(self, segment_id: str) -> Recording:
        """The chunks of a segment, of all entities; see :meth:`DatasetEntry.segment_store`.

        Raises
        ------
        NotFoundError
            There is no such segment in the view.
        """
        if self._segments is not None and segment_id not in self._segments:
            raise NotFoundError(f"there is no segment {segment_id!r} in {self!r}", hint="segment_ids() lists them.")
        return self.dataset.download_segment(segment_id)

    # --- rows

    def reader(
        self,
        index: str | None,
        *,
        include_semantically_empty_columns: bool = False,
        include_tombstone_columns: bool = False,
        fill_latest_at: bool = False,
        using_index_values: IndexValuesLike | Mapping[str, IndexValuesLike] | datafusion.DataFrame | None = None,
        executor: str | None = None,
    ) -> QueryFrame:
        """The rows of the segments by an index, as a DataFusion DataFrame that reads them on use.

        A segment has one row for each index value at which some component has a value. The columns are
        ``rerun_segment_id``, all indexes, and a list of values for each component of an entity. If several values have
        the same index value, the one with the highest row id counts. Static values are in every row of their segment.
        Properties of recordings are included only if the view names them. The rows are those of the newest version at
        the time of the call. Each segment is one partition, in index order. Filters on the segment, on the index, and
        on non-null components reduce what is read.

        Parameters
        ----------
        index
            The index (timeline) whose values make rows. None: one row of static values for each segment.
        include_semantically_empty_columns
            Show also components that are null or ``[]`` in every row of the dataset.
        include_tombstone_columns
            Show also ``Clear:is_recursive``, which clears components.
        fill_latest_at
            Fill nulls with the latest earlier value of the segment. Empty lists and clears count as values, too.
        using_index_values
            The index values of the rows, instead of those of the data: integers or times, for all segments; or a
            mapping, or a DataFrame with ``rerun_segment_id`` and the index, for the segments in it.
        executor
            ``inline`` or ``spark``; by default ``CHUNKMILL_EXECUTOR``. If neither is set, this process reads small
            results, and Spark large ones.

        Raises
        ------
        TypeError
            ``using_index_values`` has values that are not index values.
        ValueError
            The index or the executor does not exist; or index values have duplicates, or are given without an index.
        """
        from ..frames import QueryFrame

        query = Query.of(
            index,
            self._filter(),
            include_semantically_empty_columns=include_semantically_empty_columns,
            include_tombstone_columns=include_tombstone_columns,
            fill_latest_at=fill_latest_at,
            using_index_values=using_index_values,
            semantics=self.dataset.catalog.semantics,
        )
        executor_name(executor)
        columns, segments = self.queried(query)
        if columns.unmatched:
            warnings.warn(columns.unmatched, UnmatchedWarning, stacklevel=2)
        return QueryFrame.of(columns, segments, RunOptions(executor), dataset_id=str(self.dataset.id))

    @taking(reader, but="executor")
    def to_spark(self, index: str | None, **options: Unpack[RowOptions]) -> SparkFrame:
        """The rows of :meth:`reader`, with the same arguments, as a lazy Spark DataFrame.

        Types that Spark lacks are widened. An index of times is a ``timestamp``, one of durations an ``interval day to
        second``, both rounded down to microseconds; ``<index>_nanoseconds``, a ``bigint``, is exact. The order of rows
        is undefined. Each action reads the rows again, always from the version at the time of this call.

        Raises
        ------
        TypeError, ValueError
            As :meth:`reader` does.
        """
        return self.reader(index, executor=None, **options).to_spark()

    def rows_table(
        self,
        tables: TableConnection,
        name: str,
        index: str | None,
        *,
        columns: Sequence[str] | None = None,
        fill_latest_at: bool = False,
    ) -> NativeTable:
        """Create or update a table with the rows of :meth:`reader`, as a source of views.

        An update reads only segments with added, removed or replaced layers, and replaces their rows in one commit. A
        view of the table then computes only these rows.

        Parameters
        ----------
        tables
            The connection of the table, from ``chunkmill.connect``.
        name
            The table's name there.
        index, fill_latest_at
            As in :meth:`reader`.
        columns
            The columns next to the segment's id and the index; by default all, including columns of later layers. Dots
            in names become ``_`` in the table.

        Raises
        ------
        ValueError
            A column does not exist, two columns would have the same name, or the table has other data.
        """
        return followed(self, tables, name, index, columns, contents=self._contents, fill_latest_at=fill_latest_at)

    def write_lerobot(
        self,
        path: str | os.PathLike[str],
        spec: ExportSpec | Mapping[str, Any] | str | os.PathLike[str],
        *,
        append: bool = False,
        executor: str | None = None,
        master: str | None = None,
        progress: Progress = None,
        episodes: Any = None,
    ) -> ExportReport:
        """Write the segments as a LeRobot dataset, or with ``append`` update one.

        An update exports new and replaced segments, and removes deleted ones; without changes it writes nothing.
        ``episodes`` is a table of episodes, such as the events of :meth:`find`.
        Guarantees and errors are those of :func:`write_lerobot`.
        """
        from ..writers import write_lerobot

        options: dict[str, Any] = {"executor": executor, "master": master, "progress": progress, "episodes": episodes}
        return write_lerobot(self, path, spec, append=append, **options)

    def exported(self) -> ExportedStore:
        """The segments as recordings to export. Each process opens the recordings that it reads."""
        from ..writers import exported_entries

        store = self.dataset.store_reader()
        return exported_entries(store.folder, store.live(), self.segment_ids(), self._contents)

    def layers(self) -> SegmentTables:
        """The layers of the view's segments."""
        return self._layers(self.dataset.store_reader())

    def queried(self, query: Query) -> tuple[AnswerColumns, list[QueriedSegment]]:
        """The columns of a query result, and the segments of the newest version.

        The contents are those of the query, not those of the view. Raises ``ValueError`` as :meth:`reader` does.
        """
        store = self.dataset.store_reader()
        everything = layers_of(self.dataset, store)
        layers = everything if self._segments is None else everything.of_segments(self._segments)
        columns = query.columns(store.union(everything.digests), store.union(layers.digests))
        return columns, layers.queried(store.folder, store.schemas, columns)

    # --- inside

    def _filter(self) -> ContentFilter:
        """The filter of the entities. A view without expressions has all entities except properties."""
        return ContentFilter.everything() if self._contents is None else ContentFilter(self._contents)

    def _layers(self, store: StoreReader) -> SegmentTables:
        layers = layers_of(self.dataset, store)
        return layers if self._segments is None else layers.of_segments(self._segments)

    def __repr__(self) -> str:
        segments = "all segments" if self._segments is None else f"{len(self._segments)} segments"
        contents = "no content filter" if self._contents is None else f"content_filters={list(self._contents)}"
        return f"DatasetView({self.dataset!r}, {segments}, {contents})"


DatasetSelection = DatasetView
"""The name of the class in Rerun 0.41 and newer."""


class DatasetEntry(HiddenDatasets, DatasetVersions, DatasetForget, DatasetView, DatasetSearch):
    """A dataset: a store of segments, each a recording of one or more layers.

    You can pass a dataset as a store: ``Ingest("landing/", into=dataset)``, ``RecordingStore.open(dataset)``. An empty
    dataset has no store yet. :meth:`at` returns an earlier version.
    """

    _reader: StoreReader | None = None

    @property
    def dataset(self) -> DatasetEntry:
        """The dataset itself, which is the view of all its segments and entities."""
        return self

    @property
    def manifest_url(self) -> str:
        """The URL of the dataset's store."""
        path = self._folder().path
        return path.as_uri() if isinstance(path, Path) else str(path)

    @property
    def updated_at(self) -> datetime:
        """The time of the last change of the name, the default blueprint, or the content, in UTC."""
        newest = self._folder().newest()
        stored = 0 if newest is None else int(newest.created * 1e9)
        return time_of(max(self._row().updated_ns, stored))

    def __fspath__(self) -> str:
        self.check_changeable()
        return self._log.place(self._row())

    # --- segments

    def segment_ids(self) -> list[str]:
        """The ids of all segments, in the order of their registration."""
        row = self._row()
        if row.kind is not EntryKind.BLUEPRINT_DATASET:
            return _ids(self.store_reader().live(), "recording")
        rows = self._log.read().all_rows()
        owners = (other for other in rows if other.blueprints == row.id and other.kind is EntryKind.DATASET)
        stores = [*map(self._log.store, owners), self.store_reader()]
        return list(dict.fromkeys(id_ for store in stores for id_ in _ids(store.live(), "blueprint")))

    def segment_url(
        self,
        segment_id: str,
        timeline: str | None = None,
        start: datetime | timedelta | int | None = None,
        end: datetime | timedelta | int | None = None,
    ) -> str:
        """The URL of a segment, or, with ``timeline``, of a time or a time range in the segment.

        ``start`` and ``end`` are ticks, nanoseconds, times or durations, depending on the timeline; a time without a
        zone is in UTC. Ids are percent-encoded.

        Raises
        ------
        ValueError
            ``start`` or ``end`` is given without ``timeline``.
        NotImplementedError
            This is a version of the dataset, and a URL cannot name versions.
        """
        if self._version is not None:
            text = f"a segment URL cannot name a version, and this is version {self._version} of '{self.name}'"
            raise UnsupportedCallError(text, hint="Call segment_url() of the dataset without at().")
        dataset = f"{self._catalog.url.rstrip('/')}/dataset/{self.id}"
        return segment_url(dataset, segment_id, timeline, start, end)

    def segment(self, segment_id: str) -> Segment:
        """A segment, by its id. Raises ``NotFoundError`` (a ``LookupError``) if it does not exist."""
        self.layer_names(segment_id)
        return Segment(self, segment_id)

    def layer(self, name: str) -> Layer:
        """A layer, by its name. Raises ``ValueError`` if no segment has it."""
        check_argument("name", name, str)
        if not self.segments_with(name):
            raise UsageError(f"dataset '{self.name}' has no layer {name!r}", hint="info().layers lists them.")
        return Layer(self, name)

    def info(self) -> DatasetInfo:
        """Counts of segments, bytes, layers, timelines, entities, columns and properties; reads only manifests and
        schemas."""
        table = self.layers().segment_table(partial(url_of, self._folder()))
        return DatasetInfo.of(self.name, table, self.schema())

    def layer_names(self, segment_id: str) -> set[str]:
        """The names of a segment's layers. Raises ``NotFoundError`` if there is no such segment."""
        return {layer.layer for layer in self._layers_of(segment_id, self.store_reader())}

    def segments_with(self, layer: str) -> list[str]:
        """The ids of the segments with a layer of this name, in the order of their registration."""
        columns = self.store_reader().live().columns("kind", "recording_id", "layer")
        meant = pc.and_(pc.equal(columns["kind"], self._kind()), pc.equal(columns["layer"], layer))
        ids: list[str] = columns["recording_id"].filter(meant).unique().to_pylist()
        return ids

    def segment_store(self, segment_id: str, *, include_assets: bool = True) -> LazyStore:
        """The chunks of all layers of a segment, each read on first use.

        ``include_assets`` adds the chunks of its assets, except their properties.

        Raises
        ------
        NotFoundError
            There is no such segment.
        """
        recording = self.download_segment(segment_id)
        hidden = self.asset_dataset() if include_assets else None
        if hidden is None:
            return recording
        stores = [hidden.download_segment(asset) for asset in self.assets_for_segment(segment_id)]
        shared = [chunk for store in stores for chunk in store if not is_property(chunk.entity_path)]
        ids = {"application_id": recording.application_id(), "recording_id": segment_id}
        return Recording((*recording, *shared), name=f"{self.name}#{segment_id}", **ids) if shared else recording

    def download_segment(self, segment_id: str) -> Recording:
        """The chunks of a segment without its assets, and the ids of the recording; see :meth:`segment_store`."""
        store = self.store_reader()
        layers = self._layers_of(segment_id, store)
        return Recording(
            (chunk for layer in layers for chunk in store.folder.chunks(layer)),
            name=f"{self.name}#{segment_id}",
            application_id=layers[0].application_id,
            recording_id=segment_id,
        )

    def _layers_of(self, segment_id: str, store: StoreReader) -> Sequence[RecordingEntry]:
        """The layers of a segment. Raises ``NotFoundError`` if the segment has no layers."""
        check_argument("segment_id", segment_id, str)
        layers = store.live().of_recording(segment_id, self._kind())
        if not layers:
            raise NotFoundError(
                f"Segment '{segment_id}' not found in dataset '{self.id}'", hint="segment_ids() lists them."
            )
        return layers

    def manifest(self, include_diagnostic_data: bool = False) -> datafusion.DataFrame:
        """One row for each layer of each segment.

        The columns are ``rerun_layer_name``, ``rerun_segment_id``, ``rerun_storage_url``, ``rerun_layer_type``,
        ``rerun_registration_time``, ``rerun_last_updated_at``, ``rerun_num_chunks``, ``rerun_size_bytes``,
        ``rerun_schema_sha256`` and the properties; ``include_diagnostic_data`` adds ``rerun_registration_status``.
        """
        store = self.store_reader()
        return frame_of(
            layers_of(self, store).manifest(partial(url_of, store.folder), diagnostic=include_diagnostic_data)
        )

    # --- registration

    @with_older_keywords
    @changing
    def register(
        self,
        recording_uri: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        layer_name: str | Sequence[str] = BASE_LAYER,
        on_duplicate: OnDuplicateSegmentLayer | str = OnDuplicateSegmentLayer.REPLACE,
        verify: bool = False,
        copy: bool = False,
        times: bool = False,
        executor: str | None = None,
    ) -> RegistrationHandle:
        """Register recordings. Each becomes a layer of the segment with the recording's id.

        An RRD stays in its place, and must not change; only its footer is read. An RRD without a footer is read whole,
        with a warning. Files of other formats (MCAP, Parquet, LeRobot datasets, whose episodes are segments) are copied
        through their readers. A file with several recordings becomes a layer of several segments. A recording without
        an id gets its file's name.

        The registration runs in a thread; ``wait()`` of the handle waits for its end. Guarantee: each file succeeds or
        fails as a whole, independently of the others; its result arrives once the file is visible. With the deprecated
        arguments ``recording_layer`` or ``timeout_secs`` of 0.27, the call waits, and returns the id of the segment.

        Parameters
        ----------
        recording_uri
            A URL (``file:///…``, ``s3://…``) or an absolute path, or several.
        layer_name
            The name of the layer, or one name for each URI.
        on_duplicate
            What happens to a layer that the segment already has: ``replace``, ``skip`` or ``error``.
        verify
            Read all chunks of RRDs that stay in place, and store their digests; every later read compares them. A file
            whose footer does not match its chunks is refused. Copies always have digests.
        copy
            Also copy RRDs, so that the dataset does not need the files.
        times
            Read all chunks of RRDs that stay in place, and store their times, so that queries without values (counts,
            an index, non-null filters) do not read chunks. Copies always have times. An incompletely readable file gets
            no times, with a ``ReadWarning``.
        executor
            ``spark`` or ``inline``. By default this process reads the footers if that takes less than 20 s (about
            20,000 files on a disk).

        Raises
        ------
        NotFoundError
            There is no such file.
        AlreadyExistsError
            A layer already exists, with ``on_duplicate="error"``.
        ValueError
            A path is relative; there are no URIs; the numbers of layers and URIs differ; or two files have the same
            layer of the same segment.
        """
        requests = requests_of(recording_uri, layer_name)
        choice = OnDuplicateSegmentLayer.of(on_duplicate)
        run = RunOptions(executor)
        return self._register(requests, RegistrationOptions(choice, self._kind(), verify, copy, times, run=run))

    @changing
    def register_prefix(
        self,
        recordings_prefix: str | os.PathLike[str],
        layer_name: str | None = None,
        *,
        on_duplicate: OnDuplicateSegmentLayer | str = OnDuplicateSegmentLayer.REPLACE,
        verify: bool = False,
        copy: bool = False,
        times: bool = False,
        executor: str | None = None,
    ) -> RegistrationHandle:
        """Register all recordings below a folder or prefix.

        The other parameters are those of :meth:`register`. A folder that is one input, such as a LeRobot dataset,
        counts as one file. Hidden files of formats other than RRD are skipped. A recording without an id gets one from
        the names of its folders and file: ``monday/drive.mcap`` becomes ``monday-drive``.

        Raises
        ------
        ValueError
            The folder does not exist, is a file, or has no recordings.
        """
        requests = requests_below(recordings_prefix, layer_name)
        choice = OnDuplicateSegmentLayer.of(on_duplicate)
        run = RunOptions(executor)
        return self._register(requests, RegistrationOptions(choice, self._kind(), verify, copy, times, run=run))

    def _register(self, requests: Sequence[FileRequest], options: RegistrationOptions) -> RegistrationHandle:
        folder = self._folder()
        if options.on_duplicate is OnDuplicateSegmentLayer.ERROR:
            check_new(requests, self.store_reader().live(), options.kind)
        options = replace(options, assets=self.kind is EntryKind.ASSET_DATASET)
        return start_registration(folder, requests, options, self._row)

    @changing
    def unregister(
        self,
        *,
        segments_to_drop: str | Sequence[str] = (),
        layers_to_drop: str | Sequence[str] = (),
        force: bool = False,  # noqa: ARG002 (nothing here is ever pending)
    ) -> UnregistrationHandle:
        """Remove layers by segment ids and layer names; an empty list matches all.

        A segment without layers is removed. Files registered in place stay. Unknown ids and names are ignored.
        ``force`` has no effect.

        Raises
        ------
        ValueError
            Both lists are empty.
        """
        segments = [segments_to_drop] if isinstance(segments_to_drop, str) else segments_to_drop
        layers = [layers_to_drop] if isinstance(layers_to_drop, str) else layers_to_drop
        if not segments and not layers:
            raise UsageError("must specify at least 1 segment ID or layer for removal")
        return UnregistrationHandle(unregister(self._folder(), self._kind(), segments, layers))

    @changing
    def delete_segment_properties(self, segment_ids: str | Sequence[str]) -> None:
        """Delete the properties that were set for segments, in one step.

        Properties in their recordings stay. Segments without set properties are ignored.

        Raises
        ------
        WriteError
            Other processes kept changing these properties.
        """
        names = [segment_ids] if isinstance(segment_ids, str) else list(segment_ids)
        for name in names:
            check_argument("segment_ids", name, str)
        properties = SegmentProperties(self)
        for _ in range(_TRIES):
            if properties.delete_all({name: properties.of(name) for name in names}):
                return
        raise WriteError("other processes keep changing these properties", hint="Try again.", transient=True)

    # --- upkeep

    @changing
    def do_maintenance(
        self,
        optimize_indexes: bool = False,
        retrain_indexes: bool = False,
        compact_fragments: bool = False,
        cleanup_before: Moment | None = None,
        unsafe_allow_recent_cleanup: bool = False,
    ) -> None:
        """Compact the dataset, and remove old versions and the data that only they need.

        Parameters
        ----------
        optimize_indexes
            Create the times and value statistics that recordings lack, such as those registered in place. This reads
            the chunks of these recordings once, on Spark if there are many bytes or the files are remote. Unreadable
            recordings stay unchanged, with a ``ReadWarning``. Also update search indexes.
        retrain_indexes
            Do the same, and train the search indexes again.
        compact_fragments
            Join small files, and drop replaced recordings; see :meth:`RecordingStore.compact`.
        cleanup_before
            Remove versions from before this time, and the data that only they need; see :meth:`RecordingStore.vacuum`.
            A datetime (by default in UTC), ISO text, a timedelta (how long ago), or nanoseconds since 1970.
        unsafe_allow_recent_cleanup
            Allow a time less than a week ago. Queries that began before that time may then fail.

        Raises
        ------
        ValueError
            ``cleanup_before`` is not a time, or is less than a week ago without ``unsafe_allow_recent_cleanup``.
        WriteError
            The dataset cannot be written, or another process compacts or vacuums it.
        """
        maintain(
            self._folder(),
            optimize=optimize_indexes,
            retrain=retrain_indexes,
            compact=compact_fragments,
            cleanup_before=cleanup_before,
            allow_recent=unsafe_allow_recent_cleanup,
        )

    # --- the store

    def _kind(self) -> str:
        """The kind of the recordings of its segments."""
        return "blueprint" if self.kind is EntryKind.BLUEPRINT_DATASET else "recording"

    def store_reader(self) -> StoreReader:
        """The store's reader, with its cache. Raises ``NotFoundError`` if the dataset was deleted."""
        row = self._row()
        if self._version is None:
            return self._log.store(row)
        if self._reader is None:
            self._reader = StoreReader(self._folder())
        return self._reader

    def _folder(self) -> RecordingsFolder:
        """The files of the dataset's store. Raises ``NotFoundError`` once it was deleted."""
        return RecordingsFolder(self._log.place(self._row()), self._version)

    # --- earlier names

    partition_ids = older(DatasetView.segment_ids, "Use segment_ids() instead")
    partition_url = older(segment_url, "Use segment_url() instead", partition_id="segment_id")
    download_partition = older(download_segment, "Use download_segment() instead", partition_id="segment_id")
    default_blueprint_partition_id = older(
        HiddenDatasets.default_blueprint, "Use default_blueprint_segment_id() instead"
    )
    default_blueprint_segment_id = older(HiddenDatasets.default_blueprint, "Use default_blueprint() instead")
    set_default_blueprint_partition_id = older(
        HiddenDatasets.set_default_blueprint,
        "Use set_default_blueprint_segment_id() instead",
        partition_id="blueprint_name",
    )
    set_default_blueprint_segment_id = older(
        HiddenDatasets.set_default_blueprint, "Use set_default_blueprint() instead", segment_id="blueprint_name"
    )
    create_fts_index = older(DatasetSearch.create_fts_search_index, "use create_fts_search_index")
    create_vector_index = older(DatasetSearch.create_vector_search_index, "use create_vector_search_index instead")
    list_indexes = older(DatasetSearch.list_search_indexes, "use list_search_indexes instead")
    delete_indexes = older(DatasetSearch.delete_search_indexes, "use delete_search_indexes instead")


def _ids(live: LiveEntries, kind: str) -> list[str]:
    columns = live.columns("kind", "recording_id")
    ids: list[str] = columns["recording_id"].filter(pc.equal(columns["kind"], kind)).unique().to_pylist()
    return ids


def layers_of(dataset: DatasetEntry, store: StoreReader) -> SegmentTables:
    """The current layers of all segments of a dataset, whose store is ``store``. Their schemas stay in its cache."""
    kind = "blueprint" if dataset.kind is EntryKind.BLUEPRINT_DATASET else "recording"
    return SegmentTables.of(summarised(store.folder, store.live(), store.schemas).table, kind)
