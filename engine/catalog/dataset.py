"""``DatasetEntry``: a dataset of a catalog, whose segments lie in a store of recordings."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ..chunk import Schema
from ..errors import NotFoundError, UsageError, check_argument
from ..execution import RunOptions
from ..recordings import BASE_LAYER, LiveEntries, RecordingsFolder, StoreReader
from ..store import LazyStore
from ..stream import Content
from ..units import Moment
from .dataset_view import DatasetView, IndexValuesLike, layers_of, segments_in
from .deprecated import DeprecatedDatasetNames, with_older_keywords
from .entries import EntryKind, time_of
from .hidden_datasets import HiddenDatasets
from .maintenance import maintain
from .recording import Recording
from .registration import RegistrationOptions, start_registration, unregister
from .registration_handle import RegistrationHandle
from .requests import FileRequest, OnDuplicateSegmentLayer, check_new, requests_below, requests_of
from .search import DatasetSearch
from .segment_table import url_of
from .segment_url import segment_url
from .table_entry import TableEntry, frame_of

if TYPE_CHECKING:
    import datafusion

    from ..execution import DataFrame as SparkFrame
    from ..frames import QueryFrame
    from ..tables import NativeTable, TableConnection


class DatasetEntry(DeprecatedDatasetNames, DatasetSearch, HiddenDatasets):
    """A dataset: segments, each a recording of one or more layers, in a store of recordings.

    It stands for the place of its store, so ``Ingest("landing/", into=dataset)`` and ``RecordingStore.open(dataset)``
    work. A dataset into which nothing has come yet has no store, and is empty.
    """

    @property
    def manifest_url(self) -> str:
        """The URL of the dataset's store."""
        path = self._folder().path
        return path.as_uri() if isinstance(path, Path) else str(path)

    @property
    def updated_at(self) -> datetime:
        """When the dataset changed last, in UTC: its name or default blueprint, or what is in it."""
        newest = self._folder().newest()
        stored = 0 if newest is None else int(newest.created * 1e9)
        return time_of(max(self._row().updated_ns, stored))

    def __fspath__(self) -> str:
        return self._log.place(self._row())

    # --- segments

    def segment_ids(self) -> list[str]:
        """The ids of all segments, in the order of their registration."""
        row = self._row()
        if row.kind is not EntryKind.BLUEPRINT_DATASET:
            return _ids(self.store_reader().live(), "recording")
        rows = self._log.read().all_rows()
        owners = (other for other in rows if other.blueprints == row.id and other.kind is EntryKind.DATASET)
        stores = map(self._log.store, (*owners, row))
        return list(dict.fromkeys(id_ for store in stores for id_ in _ids(store.live(), "blueprint")))

    def segment_url(
        self,
        segment_id: str,
        timeline: str | None = None,
        start: datetime | timedelta | int | None = None,
        end: datetime | timedelta | int | None = None,
    ) -> str:
        """The URL of a segment, and with a ``timeline`` of a time or a span in it.

        ``start`` and ``end`` are ticks, nanoseconds, times or durations, as the timeline has them; a time without a
        zone is one in UTC. Ids are percent-encoded.

        Raises
        ------
        ValueError
            ``start`` or ``end`` is given without ``timeline``.
        """
        dataset = f"{self._catalog.url.rstrip('/')}/dataset/{self.id}"
        return segment_url(dataset, segment_id, timeline, start, end)

    def segment_store(self, segment_id: str) -> LazyStore:
        """The chunks of a segment, of all its layers; none is read before it is touched.

        Raises
        ------
        NotFoundError
            There is no such segment.
        """
        return self.download_segment(segment_id)

    def download_segment(self, segment_id: str) -> Recording:
        """The same as :meth:`segment_store`, with the ids of the recording."""
        check_argument("segment_id", segment_id, str)
        store = self.store_reader()
        layers = store.live().of_recording(segment_id, self._kind())
        if not layers:
            raise NotFoundError(
                f"Segment '{segment_id}' not found in dataset '{self.id}'", hint="segment_ids() lists them."
            )
        return Recording(
            (chunk for layer in layers for chunk in store.folder.chunks(layer)),
            name=f"{self.name}#{segment_id}",
            application_id=layers[0].application_id,
            recording_id=segment_id,
        )

    # --- tables of segments

    def schema(self) -> Schema:
        """The columns of all segments, properties included: the union of those of their layers."""
        return Schema.from_arrow(self.arrow_schema())

    def arrow_schema(self) -> pa.Schema:
        """The columns of all segments as Arrow fields with Rerun's metadata."""
        return DatasetView(self).arrow_schema()

    def segment_table(
        self, join_meta: TableEntry | datafusion.DataFrame | None = None, join_key: str = "rerun_segment_id"
    ) -> datafusion.DataFrame:
        """One row for each segment: its layers and where they lie, sizes, properties, and the range of each index.

        The columns are ``rerun_segment_id``, ``rerun_layer_names``, ``rerun_storage_urls``, ``rerun_last_updated_at``,
        ``rerun_num_chunks``, ``rerun_size_bytes`` (of chunks, as stored), one for each property (of several layers the
        one that was registered last has its way), and ``<index>:end`` and ``<index>:start`` of each index.

        Parameters
        ----------
        join_meta
            A table with more columns, of which each segment gets those of the row with its key, or nulls.
        join_key
            The column that both have.

        Raises
        ------
        ValueError
            One of them has no such column.
        """
        return DatasetView(self).segment_table(join_meta, join_key)

    def manifest(self, include_diagnostic_data: bool = False) -> datafusion.DataFrame:
        """One row for each layer of each segment.

        The columns are ``rerun_layer_name``, ``rerun_segment_id``, ``rerun_storage_url``, ``rerun_layer_type``,
        ``rerun_registration_time``, ``rerun_last_updated_at``, ``rerun_num_chunks``, ``rerun_size_bytes``,
        ``rerun_schema_sha256``, with ``include_diagnostic_data`` ``rerun_registration_status``, and the properties.
        """
        store = self.store_reader()
        layers = layers_of(self, store)
        return frame_of(layers.manifest(partial(url_of, store.folder), diagnostic=include_diagnostic_data))

    def get_index_ranges(self) -> datafusion.DataFrame:
        """One row for each segment: ``<index>:end`` and ``<index>:start`` of each index, null where it has none."""
        return DatasetView(self).get_index_ranges()

    # --- rows

    def filter_segments(self, segment_ids: str | Sequence[str] | datafusion.DataFrame) -> DatasetView:
        """A view of some segments; see :meth:`DatasetView.filter_segments`."""
        return DatasetView(self, segments_in(self, segment_ids))

    def filter_contents(self, exprs: Content) -> DatasetView:
        """A view of some entities; see :meth:`DatasetView.filter_contents`."""
        return DatasetView(self).filter_contents(exprs)

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
        """The rows of all segments by an index, as a DataFrame of DataFusion, which reads when its rows are wanted.

        Each index value at which a segment has some value makes a row, with the columns ``rerun_segment_id``, all
        indexes, and a list of values for each component of an entity. Of several values at one index value that with
        the highest row id counts. Static values are in every row of their segment. Properties of recordings are left
        out, unless a view names them. The version of the dataset is the one that is the newest at the call; each
        segment is one partition, its rows in the order of the index. Filters on the segment, on the index, and for
        components that are not null decide what is read.

        Parameters
        ----------
        index
            The index (timeline) whose values make rows. None: one row of static values for each segment.
        include_semantically_empty_columns
            Show also components that are null or ``[]`` in every row of the dataset.
        include_tombstone_columns
            Show also what clears components, ``Clear:is_recursive``.
        fill_latest_at
            Fill nulls with the latest value before, of the same segment. An empty list and a clear are values, too.
        using_index_values
            The index values to make rows of, in place of those that are there: integers or times, for all segments; or
            a mapping, or a DataFrame with ``rerun_segment_id`` and the index, for those that it names.
        executor
            ``inline`` or ``spark``: who reads. By default ``CHUNKMILL_EXECUTOR``; where that is not set either, this
            process reads what it has read before Spark begins, and Spark's workers the rest.

        Raises
        ------
        TypeError
            ``using_index_values`` are no index values.
        ValueError
            There is no such index; or index values are given twice, or without an index; or no such executor.
        """
        return DatasetView(self).reader(
            index,
            include_semantically_empty_columns=include_semantically_empty_columns,
            include_tombstone_columns=include_tombstone_columns,
            fill_latest_at=fill_latest_at,
            using_index_values=using_index_values,
            executor=executor,
        )

    def rows_table(
        self,
        tables: TableConnection,
        name: str,
        index: str | None,
        *,
        columns: Sequence[str] | None = None,
        fill_latest_at: bool = False,
    ) -> NativeTable:
        """A table of the rows of :meth:`reader`, which is made, or brought up to date: a source of views.

        It is :meth:`DatasetView.rows_table` of all segments and entities, where the arguments are described.
        """
        view = DatasetView(self)
        return view.rows_table(tables, name, index, columns=columns, fill_latest_at=fill_latest_at)

    def to_spark(
        self,
        index: str | None,
        *,
        include_semantically_empty_columns: bool = False,
        include_tombstone_columns: bool = False,
        fill_latest_at: bool = False,
        using_index_values: IndexValuesLike | Mapping[str, IndexValuesLike] | datafusion.DataFrame | None = None,
    ) -> SparkFrame:
        """The rows of :meth:`reader`, with the same arguments, as a lazy DataFrame of Spark, which its tasks read.

        Types that Spark lacks are widened. An index of times is a ``timestamp``, one of durations an ``interval day to
        second``, both in microseconds, rounded down; beside it ``<index>_nanoseconds``, a ``bigint``, has all digits.
        Rows come in no order that Spark keeps to: sort them where it counts. Each action reads again, the version of
        the call.

        Raises
        ------
        TypeError, ValueError
            As :meth:`reader` does.
        """
        return DatasetView(self).to_spark(
            index,
            include_semantically_empty_columns=include_semantically_empty_columns,
            include_tombstone_columns=include_tombstone_columns,
            fill_latest_at=fill_latest_at,
            using_index_values=using_index_values,
        )

    # --- registration

    @with_older_keywords
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
        """Register recordings: each becomes a layer of the segment that has its recording id.

        An RRD stays where it lies, and must not change: its footer says where its chunks are. One without a footer is
        read whole, with a warning. Files of other formats (MCAP, Parquet, a LeRobot dataset, of which each episode is a
        segment) are copied: their chunks, as their readers give them, become those of the dataset's store. A file with
        several recordings becomes a layer of several segments. A recording without an id has its file's name.

        It goes on in a thread; wait for the handle to be sure. Guarantee: each file succeeds or fails by itself, as a
        whole, and a result is told when it is visible. With the deprecated ``recording_layer=`` or ``timeout_secs=`` of
        0.27 it waits, and gives the id of the segment.

        Parameters
        ----------
        recording_uri
            A URL (``file:///…``, ``s3://…``) or an absolute path, or several.
        layer_name
            The layer, or one for each URI.
        on_duplicate
            What happens to a layer that the segment has already: ``replace`` (its place is taken), ``skip`` or
            ``error``.
        verify
            Read all chunks of RRDs that stay where they lie, and keep a digest of each, with which they are compared
            whenever they are read. Those that are copied have one anyway. A file whose footer lies about a chunk is
            refused; without this only chunks that are read are compared with it.
        copy
            Copy RRDs, too: the dataset does not need the files any more then.
        times
            Read all chunks of RRDs that stay where they lie, and keep their times, so that queries that need no values
            (counts, an index, what is not null) need not read chunks. Those that are copied have them anyway. Of a file
            that cannot be read whole none are kept, with a ``ReadWarning``.
        executor
            Who looks at the files and copies them: Spark's workers (``spark``), or this process (``inline``). Footers
            are read in this process where nothing is said, and that takes it less than 20 s: of 20,000 files on a disk.

        Raises
        ------
        NotFoundError
            There is no such file.
        AlreadyExistsError
            With ``on_duplicate="error"``, one of the layers is there already.
        ValueError
            A path is relative, there are none, or as many layers as URIs are wanted; or two files of the request have
            one layer of one segment.
        """
        requests = requests_of(recording_uri, layer_name)
        choice = OnDuplicateSegmentLayer.of(on_duplicate)
        run = RunOptions(executor)
        return self._register(requests, RegistrationOptions(choice, self._kind(), verify, copy, times, run=run))

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
        """Register all recordings below a folder or prefix, as :meth:`register` does, whose other parameters it has.

        A folder that is one input, as a LeRobot dataset, counts as one. Hidden names of other formats are left out, and
        a recording without an id gets the names of the folders before its own: ``monday/drive.mcap`` is
        ``monday-drive``.

        Raises
        ------
        ValueError
            It is not there, it is a file, or there are none in it.
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

    def unregister(
        self,
        *,
        segments_to_drop: str | Sequence[str] = (),
        layers_to_drop: str | Sequence[str] = (),
        force: bool = False,  # noqa: ARG002 (nothing here is ever pending)
    ) -> None:
        """Drop layers of segments: those of these names, of these segments; where one is empty, of any.

        A segment without layers is gone. Files that were registered where they lie stay there. Ids and names that are
        not there are passed over. ``force`` is accepted, and changes nothing.

        Raises
        ------
        ValueError
            Both are empty.
        """
        segments = [segments_to_drop] if isinstance(segments_to_drop, str) else segments_to_drop
        layers = [layers_to_drop] if isinstance(layers_to_drop, str) else layers_to_drop
        if not segments and not layers:
            raise UsageError("must specify at least 1 segment ID or layer for removal")
        unregister(self._folder(), self._kind(), segments, layers)

    # --- upkeep

    def do_maintenance(
        self,
        optimize_indexes: bool = False,
        retrain_indexes: bool = False,
        compact_fragments: bool = False,
        cleanup_before: Moment | None = None,
        unsafe_allow_recent_cleanup: bool = False,
    ) -> None:
        """Compact the dataset, and remove what only old versions of it need.

        Parameters
        ----------
        optimize_indexes
            Make the times of recordings that have none, those registered in place above all: their chunks are read
            once. What cannot be read stays as it is, with a ``ReadWarning``. Bring search indexes up to date: what
            came since is taken in, what is gone is taken out.
        retrain_indexes
            Do that, and train search indexes anew.
        compact_fragments
            Join small files, and leave behind what is dead; see :meth:`RecordingStore.compact`.
        cleanup_before
            Remove versions from before this time, and what only they need; see :meth:`RecordingStore.vacuum`. A
            datetime (in UTC where it has no zone), ISO text, a timedelta (how long ago), or nanoseconds since 1970.
        unsafe_allow_recent_cleanup
            Allow a time that is less than a week ago. Queries that began before it may fail then.

        Raises
        ------
        ValueError
            ``cleanup_before`` is no time, or less than a week ago, and that is not allowed.
        WriteError
            Another process compacts or vacuums the dataset, or it cannot be written.
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
        """The kind of the recordings that are its segments."""
        return "blueprint" if self.kind is EntryKind.BLUEPRINT_DATASET else "recording"

    def store_reader(self) -> StoreReader:
        """The store, of which what was read stays. Raises ``NotFoundError`` once the dataset was deleted."""
        return self._log.store(self._row())

    def _folder(self) -> RecordingsFolder:
        """The files of the dataset's store. Raises ``NotFoundError`` once it was deleted."""
        return RecordingsFolder(self._log.place(self._row()))


def _ids(live: LiveEntries, kind: str) -> list[str]:
    found = live.columns("kind", "recording_id")
    ids: list[str] = found["recording_id"].filter(pc.equal(found["kind"], kind)).unique().to_pylist()
    return ids
