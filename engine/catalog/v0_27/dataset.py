"""``DatasetEntry`` as 0.27 has it: segments are partitions, and calls give what they gave."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from ...chunk import IndexColumnSelector, Schema
from ...errors import UsageError, check_argument
from ...recordings import BASE_LAYER
from ...units import Moment
from .. import dataset
from ..entries import EntryId
from ..recording import Recording
from ..registration_handle import RegistrationHandle
from ..requests import OnDuplicateSegmentLayer
from ..row_view import ViewContentsLike
from ..search import AnyComponentColumn, IndexConfig, IndexingResult, VectorDistanceMetricLike
from ..segment_url import partition_url
from .entries import Entry
from .providers import DataFusionTable, with_partition_ids
from .query_view import DataframeQueryView
from .tasks import Tasks


class DatasetEntry(Entry):
    """A dataset of a catalog: partitions, each a recording of one or more layers."""

    _entry: dataset.DatasetEntry

    @property
    def manifest_url(self) -> str:
        """The URL of the dataset's store."""
        return self._entry.manifest_url

    def __fspath__(self) -> str:
        return os.fspath(self._entry)

    def schema(self) -> Schema:
        """The columns of all partitions."""
        return self._entry.schema()

    def arrow_schema(self) -> pa.Schema:
        """The columns of all partitions as Arrow fields with Rerun's metadata."""
        return self._entry.arrow_schema()

    # --- partitions

    def partition_ids(self) -> list[str]:
        """The ids of all partitions, in the order of their registration."""
        return self._entry.segment_ids()

    def partition_table(self) -> DataFusionTable:
        """One row for each partition, with the columns of ``segment_table``."""
        return DataFusionTable("partition_table", with_partition_ids(self._entry.segment_table()))

    def manifest(self) -> DataFusionTable:
        """One row for each layer of each partition."""
        return DataFusionTable("manifest", with_partition_ids(self._entry.manifest()))

    def partition_url(
        self,
        partition_id: str,
        timeline: str | None = None,
        start: datetime | timedelta | int | None = None,
        end: datetime | timedelta | int | None = None,
    ) -> str:
        """The URL of a partition, and with a ``timeline`` of a span in it: of ticks, nanoseconds, times or durations.

        Raises
        ------
        ValueError
            ``start`` or ``end`` is given without ``timeline``.
        """
        place = f"{self._catalog.url.rstrip('/')}/dataset/{self.id}"
        return partition_url(place, partition_id, timeline, start, end)

    def download_partition(self, partition_id: str) -> Recording:
        """The chunks of a partition, of all its layers; none is read before it is touched.

        Raises
        ------
        NotFoundError
            There is no such partition.
        """
        return self._entry.download_segment(partition_id)

    # --- rows

    def dataframe_query_view(
        self,
        *,
        index: str | None,
        contents: ViewContentsLike,
        include_semantically_empty_columns: bool = False,
        include_tombstone_columns: bool = False,
    ) -> DataframeQueryView:
        """The rows of all partitions by an index; :meth:`chunkmill.engine.catalog.DatasetEntry.reader` has the rules.

        Parameters
        ----------
        index
            The index (timeline) whose values make rows. None: one row of static values for each partition.
        contents
            The entities: an expression such as ``/world/** -/world/debug/**``; or a mapping from expressions to the
            components that are wanted of their entities. Of several that match an entity the last counts.
        include_semantically_empty_columns
            Show also components that are null or ``[]`` in every row of the dataset.
        include_tombstone_columns
            Show also what clears components, ``Clear:is_recursive``.
        """
        return DataframeQueryView.of(
            self._entry,
            index,
            contents,
            include_semantically_empty_columns=include_semantically_empty_columns,
            include_tombstone_columns=include_tombstone_columns,
        )

    # --- registration

    def register(self, recording_uri: str, *, recording_layer: str = BASE_LAYER, timeout_secs: float = 60) -> str:
        """Register a recording, wait until it is, and return the id of its partition.

        Raises
        ------
        AlreadyExistsError
            The partition has such a layer.
        TimeoutError
            It takes longer. It goes on.
        ValueError
            It cannot be registered; the message says why.
        """
        return self._registered([recording_uri], [recording_layer]).wait(timeout_secs).segment_ids[0]

    def register_batch(
        self,
        recording_uris: Sequence[str],
        *,
        recording_layers: Sequence[str] = [],
    ) -> Tasks:
        """Register recordings, each with its layer, or with the last one that is given, or else with ``base``.

        Raises
        ------
        AlreadyExistsError
            A partition has such a layer.
        NotFoundError
            There is no such file.
        """
        for name, value in (("recording_uris", recording_uris), ("recording_layers", recording_layers)):
            check_argument(name, value, list, tuple)
        count = len(recording_uris)
        layers = [*recording_layers] or [BASE_LAYER]
        return Tasks(self._registered(recording_uris, [*layers, *[layers[-1]] * count][:count]))

    def register_prefix(self, recordings_prefix: str, layer_name: str | None = None) -> Tasks:
        """Register all recordings below a folder or prefix; see :meth:`register_batch`."""
        error = OnDuplicateSegmentLayer.ERROR
        return Tasks(self._entry.register_prefix(recordings_prefix, layer_name, on_duplicate=error))

    def _registered(self, uris: Sequence[str], layers: Sequence[str]) -> RegistrationHandle:
        return self._entry.register(uris, layer_name=layers, on_duplicate=OnDuplicateSegmentLayer.ERROR)

    # --- blueprints

    def blueprint_dataset(self) -> DatasetEntry | None:
        """The hidden dataset whose partitions are this one's blueprints; None for such a one itself."""
        found = self._entry.blueprint_dataset()
        return None if found is None else DatasetEntry(self._catalog, found)

    def blueprint_dataset_id(self) -> EntryId | None:
        """The id of :meth:`blueprint_dataset`."""
        found = self._entry.blueprint_dataset()
        return None if found is None else found.id

    def default_blueprint_partition_id(self) -> str | None:
        """The blueprint that partitions are shown with, if one is set."""
        return self._entry.default_blueprint()

    def set_default_blueprint_partition_id(self, partition_id: str | None) -> None:
        """Let partitions be shown with the blueprint of this id; None sets none.

        Raises
        ------
        NotFoundError
            There is no such blueprint.
        """
        self._entry.set_default_blueprint(partition_id)

    # --- search

    def create_fts_index(
        self,
        *,
        column: AnyComponentColumn,
        time_index: str | IndexColumnSelector,
        store_position: bool = False,
        base_tokenizer: str = "simple",
    ) -> None:
        """Index the words of a component; see :meth:`chunkmill.engine.catalog.DatasetEntry.create_fts_search_index`."""
        self._entry.create_fts_search_index(
            column=column, time_index=time_index, store_position=store_position, base_tokenizer=base_tokenizer
        )

    def create_vector_index(
        self,
        *,
        column: AnyComponentColumn,
        time_index: str | IndexColumnSelector,
        num_partitions: int | None = None,
        target_partition_num_rows: int | None = None,
        num_sub_vectors: int = 16,
        distance_metric: VectorDistanceMetricLike = "Cosine",
    ) -> IndexingResult:
        """Index the vectors of a component, as
        :meth:`chunkmill.engine.catalog.DatasetEntry.create_vector_search_index` does.

        ``num_partitions`` changes nothing: ``target_partition_num_rows`` says how large partitions are.

        Raises
        ------
        ValueError
            Both are given.
        """
        if num_partitions is not None and target_partition_num_rows is not None:
            raise UsageError("only one of num_partitions and target_partition_num_rows can be given")
        return self._entry.create_vector_search_index(
            column=column,
            time_index=time_index,
            target_partition_num_rows=target_partition_num_rows,
            num_sub_vectors=num_sub_vectors,
            distance_metric=distance_metric,
        )

    def list_indexes(self) -> list[IndexingResult]:
        """The search indexes of the dataset."""
        return self._entry.list_search_indexes()

    def delete_indexes(self, column: AnyComponentColumn) -> list[IndexConfig]:
        """Delete the search indexes of a component."""
        return self._entry.delete_search_indexes(column)

    def search_fts(self, query: str, column: AnyComponentColumn) -> DataFusionTable:
        """Search an indexed component for words."""
        return DataFusionTable("search_fts", self._entry.search_fts(query, column))

    def search_vector(self, query: Any, column: AnyComponentColumn, top_k: int) -> DataFusionTable:
        """Search an indexed component for the vectors nearest to one."""
        return DataFusionTable("search_vector", self._entry.search_vector(query, column, top_k))

    # --- upkeep

    def do_maintenance(
        self,
        optimize_indexes: bool = False,
        retrain_indexes: bool = False,
        compact_fragments: bool = False,
        cleanup_before: Moment | None = None,
        unsafe_allow_recent_cleanup: bool = False,
    ) -> None:
        """Compact the dataset, and remove what only old versions of it need; see
        :meth:`chunkmill.engine.catalog.DatasetEntry.do_maintenance`.
        """
        self._entry.do_maintenance(
            optimize_indexes, retrain_indexes, compact_fragments, cleanup_before, unsafe_allow_recent_cleanup
        )
