"""``DatasetView``: some segments and entities of a dataset, and the rows of queries over them."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ..chunk import SORBET_VERSION, Schema, to_arrow_schema
from ..errors import NotFoundError, ReadWarning, UsageError, check_argument
from ..execution import RunOptions, executor_name
from ..query import SEGMENT_ID, AnswerColumns, QueriedSegment, Query
from ..recordings import StoreReader, summarised
from ..stream import Content, ContentFilter
from .deprecated import warned
from .entries import EntryKind
from .segment_table import SegmentTables, url_of
from .table_entry import TableEntry, frame_of

if TYPE_CHECKING:
    import datafusion

    from ..execution import DataFrame as SparkFrame
    from ..frames import QueryFrame
    from ..tables import NativeTable, TableConnection
    from .dataset import DatasetEntry
    from .recording import Recording

IndexValuesLike = Any
"""Index values: an Arrow or numpy array, or a sequence, of integers or times; for all segments, or in a mapping for
each."""

_METADATA: Final = {"sorbet:version": SORBET_VERSION}


class DatasetView:
    """Some segments and entities of a dataset: filters that apply when something is asked.

    Made by :meth:`DatasetEntry.filter_segments` and :meth:`DatasetEntry.filter_contents`, and immutable::

        view = dataset.filter_segments(["drive_1", "drive_2"]).filter_contents("/imu/**")
        frame = view.reader("log_time", fill_latest_at=True)
    """

    def __init__(
        self,
        dataset: DatasetEntry,
        segments: frozenset[str] | None = None,
        contents: tuple[str, ...] | None = None,
    ) -> None:
        self._dataset = dataset
        self._segments = segments
        self._contents = contents

    @property
    def dataset(self) -> DatasetEntry:
        """The dataset."""
        return self._dataset

    # --- filters

    def filter_segments(self, segment_ids: str | Sequence[str] | datafusion.DataFrame) -> DatasetView:
        """The view of these segments alone, of those that it has.

        Ids that the dataset does not have are passed over, with a :class:`ReadWarning`.
        ``segment_ids`` are one id, several, or a DataFrame with a column ``rerun_segment_id``, which is read at once.

        Raises
        ------
        TypeError
            They are something else.
        ValueError
            The DataFrame has no such column.
        """
        chosen = segments_in(self._dataset, segment_ids)
        segments = chosen if self._segments is None else chosen & self._segments
        return DatasetView(self._dataset, segments, self._contents)

    def filter_contents(self, exprs: Content) -> DatasetView:
        """The view of the entities that expressions mean, which are added to those of before; see
        :class:`ContentFilter`.

        ``/points/**`` is an entity and all below it, ``/points`` the entity alone, ``-/text/**`` leaves out. Of several
        that match an entity the most specific decides.

        Raises
        ------
        TypeError
            They are neither strings nor a filter.
        """
        several: Any = exprs.to_exprs() if hasattr(exprs, "to_exprs") else exprs
        added = (exprs,) if isinstance(exprs, str) else tuple(several)
        for expr in added:
            check_argument("exprs", expr, str)
        return DatasetView(self._dataset, self._segments, (*(self._contents or ()), *added))

    # --- what is in it

    def segment_ids(self) -> list[str]:
        """The ids of the segments, in the order of their registration."""
        ids = self._dataset.segment_ids()
        return ids if self._segments is None else [id_ for id_ in ids if id_ in self._segments]

    def schema(self) -> Schema:
        """The columns of the segments and entities."""
        return Schema.from_arrow(self.arrow_schema())

    def arrow_schema(self) -> pa.Schema:
        """The columns of the segments and entities as Arrow fields with Rerun's metadata."""
        store = self._dataset.store_reader()
        layers = self._layers(store)
        schema = store.union(layers.digests) if len(layers.rows) else pa.schema([])
        if len(schema) and self._contents is not None:
            whole = Schema.from_arrow(schema)
            shown = [c for c in whole.component_columns() if self._filter().matches(c.entity_path)]
            schema = to_arrow_schema(whole.index_columns(), shown)
        return schema.with_metadata(_METADATA)

    def segment_table(
        self, join_meta: TableEntry | datafusion.DataFrame | None = None, join_key: str = "rerun_segment_id"
    ) -> datafusion.DataFrame:
        """The segments as :meth:`DatasetEntry.segment_table` tells of them."""
        store = self._dataset.store_reader()
        found = frame_of(self._layers(store).segment_table(partial(url_of, store.folder)))
        if join_meta is None:
            return found
        other = join_meta.reader() if isinstance(join_meta, TableEntry) else join_meta
        if join_key not in found.schema().names:
            raise UsageError(f"Dataset segment table must contain join_key column '{join_key}'.")
        if join_key not in other.schema().names:
            raise UsageError(f"join_meta must contain join_key column '{join_key}'.")
        key = f"{join_key}_of_meta"
        renamed = other.with_column_renamed(join_key, key)
        return found.join(renamed, left_on=join_key, right_on=key, how="left").drop(key)

    def get_index_ranges(self) -> datafusion.DataFrame:
        """One row for each segment: ``<index>:end`` and ``<index>:start`` of each index, null where it has none."""
        return frame_of(self._layers(self._dataset.store_reader()).index_ranges())

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
        return self._dataset.download_segment(segment_id)

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
        """The rows of the segments by an index, as a DataFrame of DataFusion; see :meth:`DatasetEntry.reader`.

        Raises
        ------
        TypeError
            ``using_index_values`` are no index values.
        ValueError
            There is no such index; or index values are given twice, or without an index; or no such executor.
        """
        query = Query.of(
            index,
            self._filter(),
            include_semantically_empty_columns=include_semantically_empty_columns,
            include_tombstone_columns=include_tombstone_columns,
            fill_latest_at=fill_latest_at,
            using_index_values=using_index_values,
            semantics=self._dataset.catalog.semantics,
        )
        from ..frames import QueryFrame

        executor_name(executor)
        return QueryFrame.of(*self.queried(query), RunOptions(executor), dataset_id=str(self._dataset.id))

    def to_spark(
        self,
        index: str | None,
        *,
        include_semantically_empty_columns: bool = False,
        include_tombstone_columns: bool = False,
        fill_latest_at: bool = False,
        using_index_values: IndexValuesLike | Mapping[str, IndexValuesLike] | datafusion.DataFrame | None = None,
    ) -> SparkFrame:
        """The rows of :meth:`reader` as a lazy DataFrame of Spark; see :meth:`DatasetEntry.to_spark`.

        Raises
        ------
        TypeError, ValueError
            As :meth:`reader` does.
        """
        frame = self.reader(
            index,
            include_semantically_empty_columns=include_semantically_empty_columns,
            include_tombstone_columns=include_tombstone_columns,
            fill_latest_at=fill_latest_at,
            using_index_values=using_index_values,
        )
        return frame.to_spark()

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

        Only segments are read of which a layer came, went or was replaced since; their rows take the place of those
        before, in one commit. So a view of the table computes what depends on these, and nothing else.

        Parameters
        ----------
        tables
            The connection in which the table is, as ``chunkmill.engine.tables.connect`` gives it.
        name
            The table's name there.
        index, fill_latest_at
            As :meth:`reader` takes them.
        columns
            The columns beside the segment's id and the index; by default all. Those that layers bring later are added.
            In the table a name has ``_`` for each dot, as Lance has no names with dots.

        Raises
        ------
        ValueError
            There are no such columns, two would have one name, or the table holds something else.
        """
        from .segment_rows import followed

        return followed(self, tables, name, index, columns, contents=self._contents, fill_latest_at=fill_latest_at)

    def layers(self) -> SegmentTables:
        """The layers of its segments."""
        return self._layers(self._dataset.store_reader())

    def queried(self, query: Query) -> tuple[AnswerColumns, list[QueriedSegment]]:
        """The columns of the answer to a query, and the segments as it sees them, as of the newest version.

        The contents of the query count, and not those of the view. Raises ``ValueError`` as :meth:`reader` does.
        """
        store = self._dataset.store_reader()
        everything = layers_of(self._dataset, store)
        layers = everything if self._segments is None else everything.of_segments(self._segments)
        columns = query.columns(store.union(everything.digests), store.union(layers.digests))
        return columns, layers.queried(store.folder, store.schemas, columns)

    # --- inside

    def _filter(self) -> ContentFilter:
        """The entities. A view that nobody gave expressions has all but properties."""
        return ContentFilter.everything() if self._contents is None else ContentFilter(self._contents)

    def _layers(self, store: StoreReader) -> SegmentTables:
        found = layers_of(self._dataset, store)
        return found if self._segments is None else found.of_segments(self._segments)

    def __repr__(self) -> str:
        segments = "all segments" if self._segments is None else f"{len(self._segments)} segments"
        contents = "no content filter" if self._contents is None else f"content_filters={list(self._contents)}"
        return f"DatasetView({self._dataset!r}, {segments}, {contents})"


def layers_of(dataset: DatasetEntry, store: StoreReader) -> SegmentTables:
    """The layers of all segments of a dataset, as of now; ``store`` is its own, and knows their schemas then."""
    kind = "blueprint" if dataset.kind is EntryKind.BLUEPRINT_DATASET else "recording"
    return SegmentTables.of(summarised(store.folder, store.live(), store.schemas).table, kind)


def segments_in(dataset: DatasetEntry, segment_ids: Any) -> frozenset[str]:
    """The ids that a method is given. Warns, where that method was called, of those that the dataset does not have."""
    chosen = _ids_of(segment_ids)
    there = dataset.segment_ids()
    absent = sorted(chosen.difference(there))
    if absent:
        listed = ", ".join(map(repr, absent[:3])) + (f" and {len(absent) - 3:,} more" if len(absent) > 3 else "")
        close = difflib.get_close_matches(absent[0], there[:_COMPARED], 1)
        text = f"dataset {dataset.name!r} has no segment {listed}, which is passed over."
        warnings.warn(f"{text} Did you mean {close[0]!r}?" if close else text, ReadWarning, stacklevel=3)
    return chosen


_COMPARED: Final = 1000
"""Ids among which one that may have been meant is looked for."""


def _ids_of(segment_ids: Any) -> frozenset[str]:
    if isinstance(segment_ids, str):
        return frozenset([segment_ids])
    if hasattr(segment_ids, "__arrow_c_stream__"):
        table = pa.table(segment_ids)
        if SEGMENT_ID not in table.column_names:
            raise UsageError(f"segment_ids: the DataFrame has no column '{SEGMENT_ID}'")
        return frozenset(table[SEGMENT_ID].drop_null().to_pylist())
    if not isinstance(segment_ids, (Sequence, set, frozenset)):
        check_argument("segment_ids", segment_ids, str, Sequence)
    for segment_id in segment_ids:
        check_argument("segment_ids", segment_id, str)
    return frozenset(segment_ids)
