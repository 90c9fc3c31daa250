"""Search in components: the calls that a dataset has for it, which nothing answers yet."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from ..chunk import ComponentColumnDescriptor, ComponentColumnSelector, IndexColumnSelector
from ..errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    import datafusion

AnyComponentColumn = str | ComponentColumnSelector | ComponentColumnDescriptor
"""A component of an entity: ``<entity path>:<component>``, a selector, or a column of a schema."""


class VectorDistanceMetric(Enum):
    """A measure of the distance of two vectors.

    >>> VectorDistanceMetric.of("cosine")
    <VectorDistanceMetric.COSINE: 'Cosine'>
    """

    L2 = "L2"
    COSINE = "Cosine"
    DOT = "Dot"
    HAMMING = "Hamming"

    @classmethod
    def of(cls, metric: VectorDistanceMetricLike) -> VectorDistanceMetric:
        """The metric of a name, in whatever case. Raises ``ValueError`` for another one."""
        for known in cls:
            if known is metric or (isinstance(metric, str) and known.value.lower() == metric.lower()):
                return known
        raise UsageError(f"Unknown vector distance metric: {metric}")


VectorDistanceMetricLike = VectorDistanceMetric | Literal["L2", "Cosine", "Dot", "Hamming"]
"""A metric, or its name."""


class DatasetSearch:
    """The calls of a dataset for search. Each raises ``UnsupportedError``: there are no search indexes."""

    def create_fts_search_index(
        self,
        *,
        column: AnyComponentColumn,  # noqa: ARG002
        time_index: str | IndexColumnSelector,  # noqa: ARG002
        store_position: bool = False,  # noqa: ARG002
        base_tokenizer: str = "simple",  # noqa: ARG002
    ) -> None:
        """Index the words of a component. Raises ``UnsupportedError``."""
        _no_search()

    def create_vector_search_index(
        self,
        *,
        column: AnyComponentColumn,  # noqa: ARG002
        time_index: str | IndexColumnSelector,  # noqa: ARG002
        target_partition_num_rows: int | None = None,  # noqa: ARG002
        num_sub_vectors: int = 16,  # noqa: ARG002
        distance_metric: VectorDistanceMetricLike = "Cosine",
    ) -> Any:
        """Index the vectors of a component. Raises ``UnsupportedError``."""
        VectorDistanceMetric.of(distance_metric)
        _no_search()

    def list_search_indexes(self) -> list[Any]:
        """The indexes of the dataset: there are none."""
        return []

    def delete_search_indexes(self, column: AnyComponentColumn) -> list[Any]:  # noqa: ARG002
        """Delete the indexes of a component: there are none."""
        return []

    def search_fts(self, query: str, column: AnyComponentColumn) -> datafusion.DataFrame:  # noqa: ARG002
        """Search an indexed component for words. Raises ``UnsupportedError``."""
        _no_search()

    def search_vector(
        self,
        query: Any,  # noqa: ARG002
        column: AnyComponentColumn,  # noqa: ARG002
        top_k: int,  # noqa: ARG002
    ) -> datafusion.DataFrame:
        """Search an indexed component for the vectors nearest to one. Raises ``UnsupportedError``."""
        _no_search()


def _no_search() -> NoReturn:
    raise UnsupportedError(
        "datasets have no search indexes",
        hint="Write the rows of a reader() into a table of Lance, which can index and search them.",
    )
