"""``DataframeQueryView``: rows of a dataset by an index, with filters that are added one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import NotFoundError, check_argument
from ...query import AnswerColumns, QueriedSegment, Query
from ..dataset import DatasetView
from ..row_view import RowView, ViewContentsLike, view_query
from .providers import with_partition_ids

if TYPE_CHECKING:
    import datafusion

    from ..dataset import DatasetEntry


class DataframeQueryView(RowView):
    """Rows of a dataset by an index. It is immutable: each method below gives a new view.

    Filters choose rows of values that were logged, and :meth:`fill_latest_at` fills what they left, with values from
    outside of them, too. Of two filters of a kind the later counts; the three of ranges are one kind. Where
    :meth:`using_index_values` is given, no other filter of rows counts.
    """

    def __init__(self, dataset: DatasetEntry, query: Query) -> None:
        super().__init__(query)
        self._dataset = dataset
        self._partitions: tuple[str, ...] = ()

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
        query = view_query(
            index,
            contents,
            dataset.catalog.semantics,
            include_semantically_empty_columns=include_semantically_empty_columns,
            include_tombstone_columns=include_tombstone_columns,
        )
        return cls(dataset, query)

    def filter_partition_id(self, partition_id: str, *args: str) -> DataframeQueryView:
        """The rows of these partitions alone. One that is not there is an error when the rows are asked for."""
        for id_ in (partition_id, *args):
            check_argument("partition_id", id_, str)
        return self._changed(_partitions=(partition_id, *args))

    def df(self) -> datafusion.DataFrame:
        """The rows as a DataFrame of DataFusion, which reads when they are wanted; see :meth:`DatasetEntry.reader`.

        An index that no partition has gives no rows.

        Raises
        ------
        NotFoundError
            There is no partition of an id.
        """
        return with_partition_ids(super().df())

    def _asked(self, query: Query) -> tuple[AnswerColumns, list[QueriedSegment]]:
        if self._partitions:
            missing = set(self._partitions) - set(self._dataset.segment_ids())
            if missing:
                raise NotFoundError(f"Partition '{min(missing)}' not found in dataset '{self._dataset.id}'")
        return DatasetView(self._dataset, frozenset(self._partitions) or None).queried(query)

    def __repr__(self) -> str:
        return f"DataframeQueryView({self._dataset!r}, index={self._query.index!r})"
