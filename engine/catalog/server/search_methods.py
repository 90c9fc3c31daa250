"""Calls about search indexes: made, listed, deleted, and searched. Clients up to SDK 0.33 make them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from ...chunk import ComponentColumnSelector
from ...errors import AlreadyExistsError, UsageError
from ..client import CatalogClient
from ..search import IndexConfig, VectorDistanceMetric
from .entry_methods import dataset_of
from .envelopes import part_of, projected, rows_in
from .messages import cloud
from .methods import Call, Kind, Method, ProtocolError, Status

_METRICS: Final = {
    1: VectorDistanceMetric.L2,
    2: VectorDistanceMetric.Cosine,
    3: VectorDistanceMetric.Dot,
    4: VectorDistanceMetric.Hamming,
}
_TOP_K: Final = 10
"""Vectors that are found where a client does not say how many."""
_ROWS: Final = 65_536
"""Rows of a message."""
_WITHOUT_BTREES: Final = "indexes of words and of vectors are made here, and none of plain values"


class SearchCalls:
    """The handlers, over one catalog."""

    def __init__(self, catalog: CatalogClient) -> None:
        self._catalog = catalog

    def methods(self) -> tuple[Method, ...]:
        """The methods of this group."""
        return (
            Method.named("CreateIndex", Kind.UNARY, self._create, writes=True),
            Method.named("ListIndexes", Kind.UNARY, self._list),
            Method.named("DeleteIndexes", Kind.UNARY, self._delete, writes=True),
            Method.named("SearchDataset", Kind.STREAM, self._search),
        )

    def _create(self, request: Any, call: Call) -> Any:
        dataset = dataset_of(self._catalog, call)
        config = request.config
        column, time_index = _column_in(config), config.time_index.timeline.name
        if any(one.column == column for one in dataset.list_search_indexes()):
            raise AlreadyExistsError(
                f"Index '{column}' already exists", hint="Delete it first, or let maintenance bring it up to date."
            )
        kind = config.properties.WhichOneof("props")
        if kind == "inverted":
            chosen = config.properties.inverted
            dataset.create_fts_search_index(
                column=column,
                time_index=time_index,
                store_position=chosen.store_position,
                base_tokenizer=chosen.base_tokenizer or "simple",
            )
        elif kind == "vector":
            dataset.create_vector_search_index(column=column, time_index=time_index, **_choices_in(config))
        elif kind == "btree":
            raise ProtocolError(Status.UNIMPLEMENTED, _WITHOUT_BTREES)
        else:
            raise UsageError("the config of an index has no properties")
        (made,) = (one for one in dataset.list_search_indexes() if one.column == column)
        return cloud("CreateIndexResponse")(index=_told(made.properties), statistics_json=made.statistics.encode())

    def _list(self, request: Any, call: Call) -> Any:
        del request
        dataset = dataset_of(self._catalog, call)
        found = dataset.list_search_indexes()
        return cloud("ListIndexesResponse")(
            indexes=[_told(one.properties) for one in found],
            statistics_json=[one.statistics.encode() for one in found],
        )

    def _delete(self, request: Any, call: Call) -> Any:
        dataset = dataset_of(self._catalog, call)
        column = _column_in(request)
        known = any(one.column == column for one in dataset.list_search_indexes())
        gone = dataset.delete_search_indexes(column) if known else []
        return cloud("DeleteIndexesResponse")(indexes=[_told(config) for config in gone])

    def _search(self, request: Any, call: Call) -> Iterator[Any]:
        dataset = dataset_of(self._catalog, call)
        column, query = _column_in(request), rows_in(request.query, call)
        scan = request.scan_parameters
        if scan.filter or scan.order_by:
            text = "results of a search come in the order of their scores, and are filtered by who asks"
            raise ProtocolError(Status.UNIMPLEMENTED, text)
        if query.num_columns != 1 or not query.num_rows:
            raise UsageError("Query must have exactly one row and one column")
        kind = request.properties.WhichOneof("props")
        if kind == "inverted":
            words = query.column(0)[0].as_py()
            if not isinstance(words, str):
                raise UsageError(f"words are searched by a text, and the query has {query.column(0).type}")
            found = dataset.search_fts(words, column)
        elif kind == "vector":
            chosen = request.properties.vector
            most = chosen.top_k if chosen.HasField("top_k") else _TOP_K
            found = dataset.search_vector(_vector_in(query.column(0)), column, most)
        elif kind == "btree":
            raise ProtocolError(Status.UNIMPLEMENTED, _WITHOUT_BTREES)
        else:
            raise UsageError("the query says no kind of index")
        rows = projected(found.to_arrow_table(), scan.columns)
        rows = rows.slice(max(scan.limit_offset, 0))
        if scan.HasField("limit_len"):
            rows = rows.slice(0, max(scan.limit_len, 0))
        for start in range(0, max(len(rows), 1), _ROWS):  # a message without rows has their columns
            call.check()
            yield cloud("SearchDatasetResponse")(data=part_of(rows.slice(start, _ROWS)))


def _column_in(message: Any) -> ComponentColumnSelector:
    """The component that a request or a config names."""
    if not message.HasField("column") or not message.column.component.component:
        raise ProtocolError(Status.INVALID_ARGUMENT, "missing required field: 'column'")
    return ComponentColumnSelector(message.column.entity_path.path, message.column.component.component)


def _choices_in(config: Any) -> dict[str, Any]:
    """The choices of an index of vectors, as arguments."""
    vector = config.properties.vector
    metric = _METRICS.get(vector.distance_metrics)
    if metric is None:
        raise UsageError(f"distance metric {vector.distance_metrics} is none of those that there are")
    found: dict[str, Any] = {"distance_metric": metric}
    for name in ("num_sub_vectors", "target_partition_num_rows"):
        if vector.HasField(name):
            found[name] = getattr(vector, name)
    return found


def _vector_in(values: pa.ChunkedArray) -> pa.Array:
    """The numbers of a query: one a row, as Rerun's SDK sends them, or a list of them in one row."""
    array = values.combine_chunks()
    return array.flatten() if pa.types.is_nested(array.type) and hasattr(array, "flatten") else array


def _told(config: IndexConfig) -> Any:
    """The config of an index as a message."""
    column, choices = config.component_column, config.properties.choices
    properties: dict[str, Any]
    if config.properties.kind == "Inverted":
        properties = {"inverted": {name: choices[name] for name in ("store_position", "base_tokenizer")}}
    else:
        metric = next(number for number, known in _METRICS.items() if known.value == choices["metric"])
        vector = {"distance_metrics": metric}
        if "num_sub_vectors" in choices:
            vector["num_sub_vectors"] = choices["num_sub_vectors"]
        properties = {"vector": vector}
    return cloud("IndexConfig")(
        properties=properties,
        column={"entity_path": {"path": column.entity_path}, "component": {"component": column.component}},
        time_index={"timeline": {"name": config.time_column.name}},
    )
