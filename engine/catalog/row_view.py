"""Views of rows by an index, with methods that add filters: of a recording, and of datasets as in 0.27."""

from __future__ import annotations

import copy
import inspect
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict, TypeVar, Unpack

import numpy as np
import pyarrow as pa

from ..chunk import ComponentColumnDescriptor, ComponentColumnSelector
from ..errors import UsageError, check_argument
from ..query import (
    AnswerColumns,
    ComponentFilter,
    IndexValues,
    QueriedSegment,
    Query,
    QuerySemantics,
    queried_recordings,
)
from ..stream import ContentFilter

if TYPE_CHECKING:
    import datafusion

    from ..query import HeldRecording
    from .search import AnyComponentColumn

IndexValuesLike = Any
"""Index values: an Arrow or numpy array, or a sequence, of integers or times. A mapping has the values of each
segment."""
F = TypeVar("F", bound=Callable[..., Any])
ViewContentsLike = str | Mapping[str, str | Sequence[str]]
"""Entities: one expression, or several separated by spaces; or a mapping of expressions to components."""

_EVERYTHING: Final = ("/**", "/__properties/**")
_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 63) - 1


class RowOptions(TypedDict, total=False):
    """The options of a query besides its index; see :meth:`DatasetView.reader`."""

    include_semantically_empty_columns: bool
    include_tombstone_columns: bool
    fill_latest_at: bool
    using_index_values: IndexValuesLike | Mapping[str, IndexValuesLike] | datafusion.DataFrame | None


def taking(method: Callable[..., Any], *, but: str) -> Callable[[F], F]:
    """Give a function the signature of a method, without the parameter ``but``, in place of ``**options``."""

    def shown(function: F) -> F:
        parameters = [parameter for parameter in inspect.signature(method).parameters.values() if parameter.name != but]
        vars(function)["__signature__"] = inspect.signature(function).replace(parameters=parameters)
        return function

    return shown


class RowView(ABC):
    """Rows by an index. It is immutable: each method returns a new view.

    Filters select rows of logged values. :meth:`fill_latest_at` fills the selected rows, also with values from other
    rows. A later filter replaces an earlier one of the same kind; the three range filters are one kind.
    :meth:`using_index_values` replaces all other filters.
    """

    def __init__(self, query: Query) -> None:
        self._query = query
        self._range: tuple[int, int] | None = None

    # --- filters

    def filter_range_sequence(self, start: int, end: int) -> Self:
        """The rows with ``start <= index <= end``; no rows if ``start > end``.

        Raises
        ------
        ValueError
            The view has no index.
        """
        return self._within(operator.index(start), operator.index(end))

    def filter_range_nanos(self, start: int, end: int) -> Self:
        """The rows between two times in nanoseconds: :meth:`filter_range_sequence` for times."""
        return self.filter_range_sequence(start, end)

    def filter_range_secs(self, start: float, end: float) -> Self:
        """The rows between two times in seconds, which may have fractions; see :meth:`filter_range_sequence`."""
        for name, value in (("start", start), ("end", end)):
            check_argument(name, value, int, float, np.number)
            if not math.isfinite(value):
                raise UsageError(f"{name}: {value} is not a number of seconds")
        return self._within(round(float(start) * 1e9), round(float(end) * 1e9))

    def filter_index_values(self, values: IndexValuesLike) -> Self:
        """The logged rows at these index values; see :meth:`using_index_values`."""
        return self._with(rows=replace(self._query.rows, values=self._values(values)))

    def filter_is_not_null(self, column: AnyComponentColumn) -> Self:
        """The rows at index values at which the component was logged or cleared, before filling.

        A column that is static or not in the view gives no rows.

        Raises
        ------
        ValueError
            ``column`` is text, but not a selector of a column.
        """
        check_argument("column", column, str, ComponentColumnSelector, ComponentColumnDescriptor)
        chosen = ComponentColumnSelector.parse(column) if isinstance(column, str) else column
        key = None if self._query.index is None else (chosen.entity_path, chosen.component)
        return self._with(rows=replace(self._query.rows, component=key))

    # --- values

    def using_index_values(self, values: IndexValuesLike) -> Self:
        """Rows at these index values in each partition, instead of the index values of the data.

        Raises
        ------
        TypeError
            The values are neither integers nor times.
        ValueError
            A value is given twice.
        """
        return self._with(values=self._values(values))

    def fill_latest_at(self) -> Self:
        """The rows with nulls filled by the latest earlier value of the partition."""
        return self._with(fill_latest_at=True)

    # --- rows

    def df(self) -> datafusion.DataFrame:
        """The rows as a DataFusion DataFrame, read on use; see :meth:`DatasetEntry.reader`.

        An unknown index gives no rows.
        """
        from ..frames import QueryFrame

        return QueryFrame.of(*self._queried())

    def to_arrow_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream of batches. Raises the errors of :meth:`df`."""
        return reader_of(self.df())

    # --- inside

    @abstractmethod
    def _asked(self, query: Query) -> tuple[AnswerColumns, list[QueriedSegment]]:
        """The columns of a query result, and the queried segments."""

    def _queried(self) -> tuple[AnswerColumns, list[QueriedSegment]]:
        try:
            columns, segments = self._asked(self._query)
        except UsageError:
            columns, _ = self._asked(replace(self._query, index=None))
            if any(index.name == self._query.index for index in columns.indexes):
                raise  # the error is not about an unknown index
            return replace(columns, components=columns.visible), []
        if self._range is None or self._query.values is not None:
            return columns, segments
        if self._range[0] > self._range[1]:
            return columns, []
        return columns, [replace(segment, window=self._range) for segment in segments]

    def _values(self, values: IndexValuesLike) -> IndexValues | None:
        """Return checked index values, or None without an index."""
        index_values = IndexValues.of(values, self._query.index or "")
        return None if self._query.index is None else index_values

    def _within(self, start: int, end: int) -> Self:
        if self._query.index is None:
            raise UsageError("Specify an index to filter on first.")
        return self._with(within=(max(start, _LEAST), min(end, _MOST)))

    def _with(self, *, within: tuple[int, int] | None = None, **changes: Any) -> Self:
        within = self._range if within is None else within
        return self._changed(_query=replace(self._query, **changes), _range=within)

    def _changed(self, **state: Any) -> Self:
        made = copy.copy(self)
        vars(made).update(state)
        return made


class RecordingView(RowView):
    """Rows of one recording by an index; made by :meth:`Recording.view`.

    ::

        view = dataset.download_segment("drive_1").view(index="log_time", contents="/imu/**")
        table = view.filter_range_secs(10, 20).fill_latest_at().select().read_all()
    """

    def __init__(self, recording: HeldRecording, query: Query) -> None:
        super().__init__(query)
        self._recording = recording

    def select(self, *columns: str) -> pa.RecordBatchReader:
        """The rows with some columns, or all, as a stream of batches.

        Raises
        ------
        ValueError
            There is no such column.
        """
        frame = self.df()
        missing = [name for name in columns if name not in frame.schema().names]
        if missing:
            raise UsageError(f"there is no column {missing[0]!r}", hint="df().schema() has all of them.")
        return reader_of(frame.select(*(f'"{name}"' for name in columns)) if columns else frame)

    def _asked(self, query: Query) -> tuple[AnswerColumns, list[QueriedSegment]]:
        return queried_recordings(query, [self._recording])

    def __repr__(self) -> str:
        return f"RecordingView({self._recording.segment_id!r}, index={self._query.index!r})"


def view_query(
    index: str | None,
    contents: ViewContentsLike,
    semantics: QuerySemantics,
    *,
    names_segments: bool = True,
    **options: Unpack[RowOptions],
) -> Query:
    """Return the query for the arguments of a view. Raises ``TypeError`` for arguments of other types."""
    entities, components = _contents_of(contents)
    # 0.27 follows the contract where 0.33 differs, except for values that clears hide
    semantics = replace(semantics, selection_narrows=False, clips_values=False, static_rows_need_values=False)
    query = Query.of(index, entities, semantics=semantics, names_segments=names_segments, **options)
    return replace(query, components=components)


def reader_of(frame: datafusion.DataFrame) -> pa.RecordBatchReader:
    """The rows of a frame, as a stream with the errors of the frame."""
    batches = (batch.to_pyarrow() for batch in frame.execute_stream())
    return pa.RecordBatchReader.from_batches(frame.schema(), batches)


def _contents_of(contents: ViewContentsLike) -> tuple[ContentFilter, ComponentFilter | None]:
    """The entities in contents, and the components, if contents name them."""
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
