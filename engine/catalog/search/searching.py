"""Search in a component of recordings, and the distance metrics and statistics of its indexes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from ...chunk import ComponentColumnDescriptor, ComponentColumnSelector, IndexColumnSelector, Schema
from ...errors import NotFoundError, UsageError, check_argument
from ...execution import RunOptions
from ...lance import ENTRY, TextIndex, VectorIndex, found_in
from ...recordings import RecordingsFolder, StoreReader
from ...tables import vector_of
from ..entry_log import changing
from ..segments import frame_of
from .elements import TIMEPOINT, Elements, first_length, is_number, layer_rows
from .indexes import SearchIndexes, StoredIndex

if TYPE_CHECKING:
    import datafusion

AnyComponentColumn = str | ComponentColumnSelector | ComponentColumnDescriptor
"""A component of an entity: ``<entity path>:<component>``, a selector, or a schema's column."""


class VectorDistanceMetric(Enum):
    """A measure of the distance of two vectors:

    ``L2`` (squared Euclidean distance), ``Cosine`` (1 - cosine of the angle), ``Dot`` (1 - dot product), or ``Hamming``
    (number of different bits, for ``uint8`` vectors).

    >>> VectorDistanceMetric.of("cosine")
    <VectorDistanceMetric.Cosine: 'Cosine'>
    """

    L2 = "L2"
    Cosine = "Cosine"
    Dot = "Dot"
    Hamming = "Hamming"

    @classmethod
    def of(cls, metric: VectorDistanceMetricLike) -> VectorDistanceMetric:
        """The metric with a name, in upper or lower case. Raises ``ValueError`` for an unknown name."""
        for member in cls:
            if member is metric or (isinstance(metric, str) and member.value.lower() == metric.lower()):
                return member
        raise UsageError(f"Unknown vector distance metric: {metric}")


VectorDistanceMetricLike = VectorDistanceMetric | Literal["L2", "Cosine", "Dot", "Hamming"]
"""A metric, or its name."""


@dataclass(frozen=True)
class IndexProperties:
    """The options of a word index (``Inverted``) or a vector index (``VectorIvfPq``, ``VectorIvfFlat``)."""

    kind: str
    choices: dict[str, Any]

    def __repr__(self) -> str:
        choices = ", ".join(f"{name}: {str(value).lower()}" for name, value in self.choices.items())
        return f"{self.kind} {{ {choices} }}"

    def __hash__(self) -> int:
        return hash((self.kind, json.dumps(self.choices)))


@dataclass(frozen=True)
class IndexConfig:
    """A search index: the component of its elements, the index of their times, and its options."""

    time_column: IndexColumnSelector
    component_column: ComponentColumnSelector
    properties: IndexProperties

    def __repr__(self) -> str:
        return f"IndexConfig({self.told})"

    @property
    def told(self) -> str:
        """The component, the index and the options, as text."""
        return f"'{self.component_column}' on '{self.time_column.name}': {self.properties}"


@dataclass(frozen=True)
class IndexingResult:
    """An existing search index, and its ``statistics`` as JSON: the numbers of rows, partitions and more."""

    properties: IndexConfig
    statistics: str

    @property
    def column(self) -> ComponentColumnSelector:
        """The component of its elements."""
        return self.properties.component_column

    def debug_info(self) -> dict[str, Any] | None:
        """The statistics, as a dictionary."""
        statistics: dict[str, Any] = json.loads(self.statistics)
        return statistics

    def __repr__(self) -> str:
        return f"IndexingResult(index={self.properties.told})"


_PARTITION_ROWS: Final = 8192
_SEARCHED_BYTES: Final = 256 << 20
"""The bytes of rows outside an index that are in memory at once."""
_LISTS: Final = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


class DatasetSearch:
    """The search methods of a dataset."""

    schema: Callable[[], Schema]
    arrow_schema: Callable[[], pa.Schema]
    store_reader: Callable[[], StoreReader]
    _folder: Callable[[], RecordingsFolder]

    @changing
    def create_fts_search_index(
        self,
        *,
        column: AnyComponentColumn,
        time_index: str | IndexColumnSelector,
        store_position: bool = False,
        base_tokenizer: str = "simple",
    ) -> None:
        """Index the words of a component for :meth:`search_fts`. Replaces an earlier index.

        Case and accents are ignored. Words are neither stemmed nor left out as stop words. Elements without a time on
        ``time_index`` are not indexed. Searches also find recordings registered later; :meth:`do_maintenance` with
        ``optimize_indexes`` adds them to the index.

        Parameters
        ----------
        column
            The component. Its elements must be texts.
        time_index
            The index of the times of results.
        store_position
            Store the positions of words, which phrase search needs.
        base_tokenizer
            How texts are split into words: ``simple`` (at everything except letters and digits), ``whitespace``, or
            ``raw`` (not split).

        Raises
        ------
        NotFoundError
            There is no such component, or no such index. It is a ``LookupError``.
        ValueError
            The component holds no texts, or there is no such tokenizer.
        """
        index = TextIndex(store_position, base_tokenizer)
        index.check()
        descriptor, type_ = self._component(column)
        if not (pa.types.is_string(type_) or pa.types.is_large_string(type_)):
            raise UsageError(f"{descriptor.entity_path}:{descriptor.component} holds {type_}, not texts")
        choices = {"store_position": store_position, "base_tokenizer": base_tokenizer}
        self._create(StoredIndex(self._elements(descriptor, time_index, pa.string()), index, choices=choices))

    @changing
    def create_vector_search_index(
        self,
        *,
        column: AnyComponentColumn,
        time_index: str | IndexColumnSelector,
        target_partition_num_rows: int | None = None,
        num_sub_vectors: int = 16,
        distance_metric: VectorDistanceMetricLike = "Cosine",
    ) -> IndexingResult:
        """Index the vectors of a component for :meth:`search_vector`. Replaces an earlier index.

        Parameters
        ----------
        column
            The component. Each element is a vector, or each list of numbers is one. All vectors have the same length.
        time_index
            The index of the times of results. Vectors without a time on it are not indexed.
        target_partition_num_rows
            The approximate number of vectors in a partition; 8,192 by default.
        num_sub_vectors
            The number of parts into which vectors are divided for compression. It must divide their length.
        distance_metric
            The measure of distance.

        Raises
        ------
        NotFoundError
            There is no such component, or no such index. It is a ``LookupError``.
        ValueError
            The component has no vectors, or vectors of different lengths; or the metric is unknown or does not fit the
            vectors.
        """
        metric = VectorDistanceMetric.of(distance_metric)
        rows = _PARTITION_ROWS if target_partition_num_rows is None else target_partition_num_rows
        for option, number in (("target_partition_num_rows", rows), ("num_sub_vectors", num_sub_vectors)):
            check_argument(option, number, int)
            if number < 1:
                raise UsageError(f"{option} must be at least 1, not {number}")
        descriptor, type_ = self._component(column)
        elements = self._elements(descriptor, time_index, self._vectors(descriptor, time_index, type_))
        name, dimension = f"{descriptor.entity_path}:{descriptor.component}", elements.instance.list_size
        is_bytes = elements.instance.value_type == pa.uint8()
        if is_bytes != (metric is VectorDistanceMetric.Hamming):
            raise UsageError(
                f"{name} has vectors of {elements.instance.value_type}, which {metric.value} does not support",
                hint="Hamming needs uint8; the other metrics need floating-point numbers.",
            )
        if not is_bytes and dimension % num_sub_vectors:
            divisor = next(n for n in range(min(16, dimension), 0, -1) if dimension % n == 0)
            raise UsageError(
                f"num_sub_vectors={num_sub_vectors} does not divide the {dimension} numbers of a vector of {name}",
                hint=f"Give a divisor, such as {divisor}.",
            )
        choices: dict[str, Any] = {} if is_bytes else {"num_sub_vectors": num_sub_vectors}
        choices["metric"] = metric.value
        index = VectorIndex(metric.value.lower(), dimension, num_sub_vectors, rows)
        return self._indexing_result(self._create(StoredIndex(elements, index, choices=choices)))

    def list_search_indexes(self) -> list[IndexingResult]:
        """The search indexes of the dataset."""
        return [self._indexing_result(index) for index in self._indexes().all()]

    @changing
    def delete_search_indexes(self, column: AnyComponentColumn) -> list[IndexConfig]:
        """Delete the indexes of a component, and return them. Later maintenance removes their files.

        Raises ``NotFoundError`` if there is no such component.
        """
        key = _key_of(column)
        gone = self._indexes().delete(*key)
        if not gone:
            self._component(column)
        return [_config(index) for index in gone]

    def search_fts(self, query: str, column: AnyComponentColumn) -> datafusion.DataFrame:
        """The elements of a component with words of ``query``, best matches first.

        The columns are ``rerun_segment_id``, ``rerun_segment_layer``, ``chunk_id``, the time index, ``instance_id``
        (the position in the list), ``instance`` (the text) and ``_score``, a BM25 score. The search covers the whole
        current dataset. Scores of elements outside the index are computed among these elements only.

        Raises
        ------
        NotFoundError
            The component has no search index.
        ValueError
            The component has a vector index.
        """
        check_argument("query", query, str)
        index = self._index_of(column, TextIndex)
        return self._search(index, (query,), "_score", "descending", None)

    def search_vector(self, query: Any, column: AnyComponentColumn, top_k: int) -> datafusion.DataFrame:
        """The ``top_k`` vectors of a component nearest to ``query``, the nearest first.

        The columns are those of :meth:`search_fts`, with the vector as ``instance``, and ``_distance``, by the metric
        of the index. The search covers the whole current dataset. The result is exact for up to 20,000 vectors. For
        more, only the nearest partitions of the index are searched, and the best candidates are compared uncompressed.

        Parameters
        ----------
        query
            The vector: a list, or a numpy or Arrow array, with the length of the indexed vectors.

        Raises
        ------
        NotFoundError
            The component has no search index.
        ValueError
            ``query`` has another length, or ``top_k`` is less than 1.
        """
        check_argument("top_k", top_k, int)
        if top_k < 1:
            raise UsageError(f"top_k must be at least 1, not {top_k}")
        index = self._index_of(column, VectorIndex)
        vector = vector_of(query, index.name, index.elements.instance, shown=index.name)
        return self._search(index, (vector, top_k), "_distance", "ascending", top_k)

    # --- inside

    def _indexes(self) -> SearchIndexes:
        return SearchIndexes(self._folder())

    def _component(self, column: AnyComponentColumn) -> tuple[ComponentColumnDescriptor, pa.DataType]:
        """A column, and the type of the elements of its lists."""
        descriptor = self.schema().column_for_selector(column)
        schema = self.arrow_schema()
        if descriptor.name not in schema.names:
            raise NotFoundError(f"Could not find column for selector {descriptor.entity_path}:{descriptor.component}")
        return descriptor, schema.field(descriptor.name).type.value_type

    def _elements(
        self, descriptor: ComponentColumnDescriptor, time_index: str | IndexColumnSelector, instance: pa.DataType
    ) -> Elements:
        check_argument("time_index", time_index, str, IndexColumnSelector)
        name = time_index if isinstance(time_index, str) else time_index.name
        columns = [column.name for column in self.schema().index_columns()]
        if name not in columns:
            raise NotFoundError(f"there is no index '{name}'", hint=f"There are: {', '.join(columns) or 'none'}.")
        return Elements(
            descriptor.entity_path, descriptor.component, name, self.arrow_schema().field(name).type, instance
        )

    def _vectors(
        self, descriptor: ComponentColumnDescriptor, time_index: str | IndexColumnSelector, type_: pa.DataType
    ) -> pa.DataType:
        """The type of the vectors of a component."""
        number = type_.value_type if any(of(type_) for of in _LISTS) else type_
        if not is_number(number):
            raise UsageError(f"{descriptor.entity_path}:{descriptor.component} holds {type_}, not vectors")
        if pa.types.is_integer(number) and number != pa.uint8():
            number = pa.float32()
        if pa.types.is_fixed_size_list(type_):
            return pa.list_(number, type_.list_size)
        store = self.store_reader()
        layers = [entry for entry in store.live() if entry.kind != "blueprint"]
        probe = self._elements(descriptor, time_index, type_)
        length = first_length(probe, store.folder, layers)
        if length is None:
            raise UsageError(f"{descriptor.entity_path}:{descriptor.component} holds no vectors on '{probe.index}' yet")
        return pa.list_(number, length)

    def _create(self, index: StoredIndex) -> StoredIndex:
        return self._indexes().create(index, self.store_reader().live(), RunOptions(None))

    def _indexing_result(self, index: StoredIndex) -> IndexingResult:
        return IndexingResult(_config(index), self._indexes().table(index).statistics(index.version))

    def _index_of(self, column: AnyComponentColumn, kind: type) -> StoredIndex:
        entity, component = _key_of(column)
        index = self._indexes().named(entity, component)
        if index is None:
            raise NotFoundError(
                f"Component path '{entity}:{component}' not found among the search indexes",
                hint="Create one by create_vector_search_index() or create_fts_search_index().",
            )
        if not isinstance(index.index, kind):
            made = "words" if isinstance(index.index, TextIndex) else "vectors"
            raise UsageError(f"the search index of {index.name} is for {made}")
        return index

    def _search(
        self, index: StoredIndex, query: tuple[Any, ...], by: str, order: str, most: int | None
    ) -> datafusion.DataFrame:
        indexes, store = self._indexes(), self.store_reader()
        coverage = indexes.coverage(index, store.live())
        tables = [indexes.table(index).search(index.version, index.index, *query, dead=coverage.dead)]
        numbered = enumerate(coverage.missing, index.next_number)
        batches = (batch for layer in numbered for batch in layer_rows(index.elements, store.folder, layer))
        tables += (found_in(some, index.elements.schema, index.index, *query) for some in _bounded(batches))
        whole = pa.concat_tables(tables)
        places = pc.sort_indices(whole, [(by, order), (ENTRY, "ascending"), (TIMEPOINT, "ascending")])
        whole = whole.take(places[:most] if most is not None else places).drop_columns([ENTRY])
        names = [index.elements.index if name == TIMEPOINT else name for name in whole.column_names]
        return frame_of(whole.rename_columns(names))


def _key_of(column: AnyComponentColumn) -> tuple[str, str]:
    """The entity and the component of a column, which need not exist."""
    selector = ComponentColumnSelector.parse(column) if isinstance(column, str) else column
    check_argument("column", selector, ComponentColumnSelector, ComponentColumnDescriptor)
    return selector.entity_path, selector.component


def _bounded(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """The batches in order, in lists of about ``_SEARCHED_BYTES``."""
    some: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        some.append(batch)
        size += batch.nbytes
        if size >= _SEARCHED_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def _config(index: StoredIndex) -> IndexConfig:
    elements, of_text = index.elements, isinstance(index.index, TextIndex)
    kind = "Inverted" if of_text else "VectorIvfPq" if "num_sub_vectors" in index.choices else "VectorIvfFlat"
    return IndexConfig(
        IndexColumnSelector(elements.index),
        ComponentColumnSelector(elements.entity, elements.component),
        IndexProperties(kind, index.choices),
    )
