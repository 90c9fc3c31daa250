"""``DataframeQueryView``: rows of a dataset by an index, with filters that are added one by one."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from ...chunk import ComponentColumnDescriptor, ComponentColumnSelector
from ...errors import NotFoundError, UsageError, check_argument
from ...query import AnswerColumns, ComponentFilter, IndexValues, QueriedSegment, Query
from ...stream import ContentFilter
from ..dataset_view import DatasetView, IndexValuesLike
from ..search import AnyComponentColumn
from .providers import reader_of, with_partition_ids

if TYPE_CHECKING:
    import datafusion

    from ..dataset import DatasetEntry

ViewContentsLike = str | Mapping[str, str | Sequence[str]]
"""Entities: an expression, or several by spaces; or expressions, each with the components of its entities."""

_EVERYTHING: Final = ("/**", "/__properties/**")
_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 63) - 1


class DataframeQueryView:
    """Rows of a dataset by an index. It is immutable: each method below gives a new view.

    Filters choose rows of values that were logged, and :meth:`fill_latest_at` fills what they left, with values from
    outside of them, too. Of two filters of a kind the later counts; the three of ranges are one kind. Where
    :meth:`using_index_values` is given, no other filter of rows counts.
    """

    def __init__(self, dataset: DatasetEntry, query: Query) -> None:
        self._dataset = dataset
        self._query = query
        self._partitions: tuple[str, ...] = ()
        self._range: tuple[int, int] | None = None

    @classmethod
    def of(
        cls,
        dataset: DatasetEntry,
        index: str | None,
        contents: ViewContentsLike,
        *,
        include_semantically_empty_columns: bool = False,
        include_tombstone_columns: bool = False,
    ) -> DataframeQueryView:
        """The view that the arguments of ``dataframe_query_view`` mean. Raises ``TypeError`` for other ones."""
        entities, components = _contents_of(contents)
        semantics = dataset.catalog.semantics
        query = Query.of(
            index,
            entities,
            include_semantically_empty_columns=include_semantically_empty_columns,
            include_tombstone_columns=include_tombstone_columns,
            # what differs by the rules of 0.33 was as in the contract, but for what clears hide
            semantics=replace(semantics, selection_narrows=False, clips_values=False, static_rows_need_values=False),
        )
        return cls(dataset, replace(query, components=components))

    # --- filters

    def filter_partition_id(self, partition_id: str, *args: str) -> DataframeQueryView:
        """The rows of these partitions alone. One that is not there is an error when the rows are asked for."""
        for id_ in (partition_id, *args):
            check_argument("partition_id", id_, str)
        return self._with(partitions=(partition_id, *args))

    def filter_range_sequence(self, start: int, end: int) -> DataframeQueryView:
        """The rows with ``start <= index <= end``; where ``start > end`` there are none.

        Raises
        ------
        ValueError
            The view has no index.
        """
        return self._within(operator.index(start), operator.index(end))

    def filter_range_nanos(self, start: int, end: int) -> DataframeQueryView:
        """The rows between two times in nanoseconds, as :meth:`filter_range_sequence`, which it is for times."""
        return self.filter_range_sequence(start, end)

    def filter_range_secs(self, start: float, end: float) -> DataframeQueryView:
        """The rows between two times in seconds, which may have fractions; see :meth:`filter_range_sequence`."""
        for name, value in (("start", start), ("end", end)):
            check_argument(name, value, int, float, np.number)
            if not math.isfinite(value):
                raise UsageError(f"{name}: {value} is no number of seconds")
        return self._within(round(float(start) * 1e9), round(float(end) * 1e9))

    def filter_index_values(self, values: IndexValuesLike) -> DataframeQueryView:
        """The rows at these values of the index, as far as there are any; see :meth:`using_index_values`."""
        return self._with(rows=replace(self._query.rows, values=self._values(values)))

    def filter_is_not_null(self, column: AnyComponentColumn) -> DataframeQueryView:
        """The rows at whose index value the component itself was logged, or cleared, whatever is filled.

        A column that the view does not have leaves no rows, and one that is static has no index value.

        Raises
        ------
        ValueError
            ``column`` is text that is no selector of a column.
        """
        check_argument("column", column, str, ComponentColumnSelector, ComponentColumnDescriptor)
        chosen = ComponentColumnSelector.parse(column) if isinstance(column, str) else column
        key = None if self._query.index is None else (chosen.entity_path, chosen.component)
        return self._with(rows=replace(self._query.rows, component=key))

    # --- values

    def using_index_values(self, values: IndexValuesLike) -> DataframeQueryView:
        """Rows at these values of the index in each partition, in place of those that are there.

        Raises
        ------
        TypeError
            They are neither integers nor times.
        ValueError
            One is given twice.
        """
        return self._with(values=self._values(values))

    def fill_latest_at(self) -> DataframeQueryView:
        """The rows with nulls filled by the latest value before, of the same partition."""
        return self._with(fill_latest_at=True)

    # --- rows

    def df(self) -> datafusion.DataFrame:
        """The rows as a DataFrame of DataFusion, which reads when they are wanted; see :meth:`DatasetEntry.reader`.

        An index that no partition has gives no rows.

        Raises
        ------
        NotFoundError
            There is no partition of an id.
        """
        from ...frames import QueryFrame

        return with_partition_ids(QueryFrame.of(*self._queried()))

    def to_arrow_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream of batches; raises as :meth:`df` does."""
        return reader_of(self.df())

    # --- inside

    def _queried(self) -> tuple[AnswerColumns, list[QueriedSegment]]:
        """The columns of the answer, and the segments that it is made of."""
        view = DatasetView(self._dataset, frozenset(self._partitions) or None)
        if self._partitions:
            missing = set(self._partitions) - set(self._dataset.segment_ids())
            if missing:
                raise NotFoundError(f"Partition '{min(missing)}' not found in dataset '{self._dataset.id}'")
        try:
            columns, segments = view.queried(self._query)
        except UsageError:  # there is no such index
            columns, _ = view.queried(replace(self._query, index=None))
            return replace(columns, components=columns.visible), []
        if self._range is None or self._query.values is not None:
            return columns, segments
        if self._range[0] > self._range[1]:
            return columns, []
        return columns, [replace(segment, window=self._range) for segment in segments]

    def _values(self, values: IndexValuesLike) -> IndexValues | None:
        """Index values; without an index they do not count."""
        found = IndexValues.of(values, self._query.index or "")
        return None if self._query.index is None else found

    def _within(self, start: int, end: int) -> DataframeQueryView:
        if self._query.index is None:
            raise UsageError("Specify an index to filter on first.")
        return self._with(within=(max(start, _LEAST), min(end, _MOST)))

    def _with(
        self,
        *,
        partitions: tuple[str, ...] | None = None,
        within: tuple[int, int] | None = None,
        **changes: Any,
    ) -> DataframeQueryView:
        made = DataframeQueryView(self._dataset, replace(self._query, **changes))
        made._partitions = self._partitions if partitions is None else partitions
        made._range = self._range if within is None else within
        return made

    def __repr__(self) -> str:
        return f"DataframeQueryView({self._dataset!r}, index={self._query.index!r})"


def _contents_of(contents: ViewContentsLike) -> tuple[ContentFilter, ComponentFilter | None]:
    """The entities that contents mean, and the components, where these are named."""
    check_argument("contents", contents, str, Mapping)
    if isinstance(contents, str):
        return ContentFilter([contents]), None
    rules = []
    for expression, components in contents.items():
        check_argument("contents", expression, str)
        names = [components] if isinstance(components, str) else components
        for name in names:
            check_argument(f"contents[{expression!r}]", name, str)
        rules.append((ContentFilter([expression]), frozenset(names)))
    return ContentFilter(_EVERYTHING), ComponentFilter(tuple(rules))
