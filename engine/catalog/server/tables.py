"""Calls that create, register, read and write tables, and calls about the search indexes of datasets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError

from ...chunk import ComponentColumnSelector
from ...errors import AlreadyExistsError, UsageError
from ..search import IndexConfig, VectorDistanceMetric
from ..table import EntriesTable, TableEntry
from .entries import details_of, entry_id_in, hidden_in, note_made
from .lake import Lake, naming_places
from .protocol import (
    Call,
    Kind,
    Need,
    ProtocolError,
    Status,
    answers,
    cloud,
    entry_id_message,
    invalid,
    part_of,
    projected,
    rows_in,
    schema_in,
    schema_message,
)

_PREFIX: Final = "/rerun.cloud.v1alpha1."
_LANCE: Final = f"{_PREFIX}LanceTable"
_SYSTEM: Final = f"{_PREFIX}SystemTable"
_ENTRIES: Final = 2
_APPEND, _OVERWRITE, _REPLACE, _UPDATE = 1, 2, 3, 4
_MODES: Final = {_APPEND: "append", _OVERWRITE: "overwrite", _REPLACE: "upsert", _UPDATE: "update"}
_WITH_WIDE_KINDS: Final = tuple(f"rerun-py/0.{minor}." for minor in (33, 34, 35, 36))
"""Clients that expect kinds of entries as 32-bit integers."""
_KIND_TYPE: Final = {"rerun:component_type": "rerun.components.EntryKind"}


@answers("CreateTableEntry", need=Need.CREATE)
@naming_places
def _create_table_entry(lake: Lake, request: Any, call: Call) -> Any:
    lake.check_name(request.name, call)
    schema = schema_in(request.schema)
    if not request.HasField("provider_details"):
        table = lake.catalog.create_table(request.name, schema)
    else:
        table = lake.catalog.create_table_at(request.name, schema, _url_in(lake, request.provider_details, call))
    _note_made(call, table)
    return cloud("CreateTableEntryResponse")(table=table_message(table))


@answers("RegisterTable", need=Need.CREATE)
@naming_places
def _register_table(lake: Lake, request: Any, call: Call) -> Any:
    if not request.HasField("provider_details"):
        raise invalid("Missing provider details")
    lake.check_name(request.name, call)
    table = lake.catalog.register_table(request.name, _url_in(lake, request.provider_details, call))
    _note_made(call, table)
    return cloud("RegisterTableResponse")(table_entry=table_message(table))


def _note_made(call: Call, table: TableEntry) -> None:
    note_made(call, table)
    call.record.changed.update(url=table.storage_url, rows=table.snapshot().count())


def _url_in(lake: Lake, details: Any, call: Call) -> str:
    """The place of the table in provider details. Raises :class:`ProtocolError` if it is not allowed."""
    if details.type_url.rpartition("/")[2] == _SYSTEM[1:]:
        raise invalid("System tables cannot be registered")
    if details.type_url.rpartition("/")[2] != _LANCE[1:]:
        raise invalid(f"tables of the kind {details.type_url[:200]!r} are not known; the only kind is LanceTable")
    try:
        url: str = cloud("LanceTable").FromString(details.value).table_url
    except DecodeError:
        raise invalid("the provider details are not a LanceTable") from None
    lake.check_tables([url], call)
    return url


@answers("ReadTableEntry", need=Need.READ)
def _read_table_entry(lake: Lake, request: Any, call: Call) -> Any:
    id_ = entry_id_in(request, call)
    return cloud("ReadTableEntryResponse")(table=table_message(lake.table_of(id_, call)))


@answers("UpdateTableEntry", need=Need.WRITE)
def _update_table_entry(lake: Lake, request: Any, call: Call) -> Any:
    table = lake.table_of(entry_id_in(request, call), call)
    if isinstance(table, EntriesTable):
        raise invalid(f"'{table.name}' is the catalog's own table, which cannot be changed")
    details = request.table_details
    blueprints = hidden_in(lake, details, "blueprint_dataset", "table blueprint dataset", call)
    table.set_blueprints(blueprints, details.default_blueprint_segment.id or None)
    call.record.changed.update(
        blueprints=str(blueprints) if blueprints else None,
        default_blueprint=details.default_blueprint_segment.id or None,
    )
    return cloud("UpdateTableEntryResponse")(table=table_message(table))


@answers("GetTableSchema", need=Need.READ)
def _get_table_schema(lake: Lake, request: Any, call: Call) -> Any:
    table = _table(lake, request, call)
    schema = _as_known_to(call, table, table.arrow_schema().empty_table()).schema
    return cloud("GetTableSchemaResponse")(schema=schema_message(schema))


@answers("ScanTable", Kind.STREAM, need=Need.READ)
def _scan_table(lake: Lake, request: Any, call: Call) -> Iterator[Any]:
    table = _table(lake, request, call)
    ids = None
    if isinstance(table, EntriesTable) and call.rights.readable is not None:
        ids = pa.array([entry.id.as_bytes() for entry in lake.entries(call)], pa.binary(16))
    for batch in table.to_arrow_reader():
        call.check()
        if ids is not None:
            batch = batch.filter(pc.is_in(batch["id"], ids))
        rows = _as_known_to(call, table, pa.Table.from_batches([batch]))
        yield cloud("ScanTableResponse")(dataframe_part=part_of(rows))


def _table(lake: Lake, request: Any, call: Call) -> TableEntry:
    id_ = entry_id_in(request, call, "table_id")
    return lake.table_of(id_, call)


@answers("WriteTable", Kind.UPLOAD, need=Need.WRITE)
def _write_table(lake: Lake, requests: Iterator[Any], call: Call) -> Any:
    table = lake.table_of(entry_id_in(None, call), call)
    first = next(iter(requests), None)
    if first is None:
        return cloud("WriteTableResponse")()
    mode, head = first.insert_mode or _APPEND, rows_in(first.dataframe_part, call)
    count = len(head)

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal count
        yield from head.to_batches()
        for request in requests:
            call.check()
            if (request.insert_mode or _APPEND) != mode:
                raise invalid("the messages of one write have different insert modes")
            rows = rows_in(request.dataframe_part, call)
            if rows.schema != head.schema:
                raise invalid(f"the messages of one write have different columns: {_difference(head, rows)}")
            count += len(rows)
            yield from rows.to_batches()

    modes = {_APPEND: table.append, _OVERWRITE: table.overwrite, _REPLACE: table.upsert, _UPDATE: table.update_rows}
    written = modes.get(mode)
    if written is None:
        raise invalid(f"insert mode {mode} is unknown")
    written(pa.RecordBatchReader.from_batches(head.schema, batches()))
    snapshot = table.snapshot()
    call.record.changed.update(mode=_MODES[mode], sent_rows=count, rows=snapshot.count(), version=snapshot.version)
    return cloud("WriteTableResponse")()


def table_message(table: TableEntry) -> Any:
    """A table as a message."""
    if isinstance(table, EntriesTable):
        kind, value = _SYSTEM, cloud("SystemTable")(kind=_ENTRIES)
    else:
        kind, value = _LANCE, cloud("LanceTable")(table_url=table.storage_url)
    details = {"type_url": kind, "value": value.SerializeToString()}
    message = cloud("TableEntry")(details=details_of(table), provider_details=details)
    if table.has_blueprint_dataset():
        message.table_details.blueprint_dataset.CopyFrom(entry_id_message(table.blueprint_dataset().id))
        default = table.default_blueprint()
        if default is not None:
            message.table_details.default_blueprint_segment.id = default
    return message


def _difference(first: pa.Table, other: pa.Table) -> str:
    """Return the difference between the columns of two messages, as text."""
    own, others = ({field.name: field for field in table.schema} for table in (first, other))
    differences = [f"{name!r} is missing" for name in own.keys() - others.keys()]
    differences += [f"{name!r} is new" for name in others.keys() - own.keys()]
    differences += [
        f"{name!r} is {others[name].type}, and was {own[name].type}"
        for name in own.keys() & others.keys()
        if own[name].type != others[name].type
    ]
    return ", ".join(sorted(differences)) or "the order or the metadata differs"


def _as_known_to(call: Call, table: TableEntry, rows: pa.Table) -> pa.Table:
    """The rows in the form of the client's version: newer clients expect 8-bit kinds in the table of entries."""
    if not isinstance(table, EntriesTable) or call.client_version.startswith(_WITH_WIDE_KINDS):
        return rows
    at = rows.schema.get_field_index("entry_kind")
    return rows.set_column(at, pa.field("entry_kind", pa.uint8(), False, _KIND_TYPE), rows[at].cast(pa.uint8()))


# --- search indexes, which clients up to SDK 0.33 create

_METRICS: Final = {
    1: VectorDistanceMetric.L2,
    2: VectorDistanceMetric.Cosine,
    3: VectorDistanceMetric.Dot,
    4: VectorDistanceMetric.Hamming,
}
_TOP_K: Final = 10
"""The number of results of a vector query without a limit."""
_ROWS: Final = 65_536
"""The most rows of a message."""
_WITHOUT_BTREES: Final = "only indexes of words and of vectors are supported, not of plain values"


@answers("CreateIndex", need=Need.WRITE)
def _create_index(lake: Lake, request: Any, call: Call) -> Any:
    dataset = lake.dataset(call)
    config = request.config
    column, time_index = _column_in(config), config.time_index.timeline.name
    if any(index.column == column for index in dataset.list_search_indexes()):
        raise AlreadyExistsError(
            f"Index '{column}' already exists", hint="Delete the index first, or update it by maintenance."
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
    call.record.changed.update(made_index=str(column))
    (made,) = (index for index in dataset.list_search_indexes() if index.column == column)
    return cloud("CreateIndexResponse")(index=_index_message(made.properties), statistics_json=made.statistics.encode())


@answers("ListIndexes", need=Need.READ)
def _list_indexes(lake: Lake, _request: Any, call: Call) -> Any:
    dataset = lake.dataset(call)
    indexes = dataset.list_search_indexes()
    return cloud("ListIndexesResponse")(
        indexes=[_index_message(index.properties) for index in indexes],
        statistics_json=[index.statistics.encode() for index in indexes],
    )


@answers("DeleteIndexes", need=Need.WRITE)
def _delete_indexes(lake: Lake, request: Any, call: Call) -> Any:
    dataset = lake.dataset(call)
    column = _column_in(request)
    is_there = any(index.column == column for index in dataset.list_search_indexes())
    gone = dataset.delete_search_indexes(column) if is_there else []
    if gone:
        call.record.changed.update(deleted_index=str(column))
    return cloud("DeleteIndexesResponse")(indexes=[_index_message(config) for config in gone])


@answers("SearchDataset", Kind.STREAM, need=Need.READ)
def _search_dataset(lake: Lake, request: Any, call: Call) -> Iterator[Any]:
    dataset = lake.dataset(call)
    column, query = _column_in(request), rows_in(request.query, call)
    scan = request.scan_parameters
    if scan.filter or scan.order_by:
        text = "search results are ordered by their scores; filter them on the client"
        raise ProtocolError(Status.UNIMPLEMENTED, text)
    if query.num_columns != 1 or not query.num_rows:
        raise UsageError("Query must have exactly one row and one column")
    kind = request.properties.WhichOneof("props")
    if kind == "inverted":
        words = query.column(0)[0].as_py()
        if not isinstance(words, str):
            raise UsageError(f"a word search needs a text, but the query has {query.column(0).type}")
        results = dataset.search_fts(words, column)
    elif kind == "vector":
        chosen = request.properties.vector
        most = chosen.top_k if chosen.HasField("top_k") else _TOP_K
        results = dataset.search_vector(_vector_in(query.column(0)), column, most)
    elif kind == "btree":
        raise ProtocolError(Status.UNIMPLEMENTED, _WITHOUT_BTREES)
    else:
        raise UsageError("the query names no kind of index")
    rows = projected(results.to_arrow_table(), scan.columns)
    rows = rows.slice(max(scan.limit_offset, 0))
    if scan.HasField("limit_len"):
        rows = rows.slice(0, max(scan.limit_len, 0))
    for start in range(0, max(len(rows), 1), _ROWS):  # without rows, one message has the columns
        call.check()
        yield cloud("SearchDatasetResponse")(data=part_of(rows.slice(start, _ROWS)))


def _column_in(message: Any) -> ComponentColumnSelector:
    """The component of a request or a config."""
    if not message.HasField("column") or not message.column.component.component:
        raise invalid("missing required field: 'column'")
    return ComponentColumnSelector(message.column.entity_path.path, message.column.component.component)


def _choices_in(config: Any) -> dict[str, Any]:
    """The choices of a vector index, as arguments."""
    vector = config.properties.vector
    metric = _METRICS.get(vector.distance_metrics)
    if metric is None:
        raise UsageError(f"distance metric {vector.distance_metrics} is unknown")
    choices: dict[str, Any] = {"distance_metric": metric}
    for name in ("num_sub_vectors", "target_partition_num_rows"):
        if vector.HasField(name):
            choices[name] = getattr(vector, name)
    return choices


def _vector_in(values: pa.ChunkedArray) -> pa.Array:
    """The numbers of a query: one per row, as from Rerun's SDK, or a list of numbers in one row."""
    array = values.combine_chunks()
    return array.flatten() if pa.types.is_nested(array.type) and hasattr(array, "flatten") else array


def _index_message(config: IndexConfig) -> Any:
    """The config of an index as a message."""
    column, choices = config.component_column, config.properties.choices
    properties: dict[str, Any]
    if config.properties.kind == "Inverted":
        properties = {"inverted": {name: choices[name] for name in ("store_position", "base_tokenizer")}}
    else:
        metric = next(number for number, distance in _METRICS.items() if distance.value == choices["metric"])
        vector = {"distance_metrics": metric}
        if "num_sub_vectors" in choices:
            vector["num_sub_vectors"] = choices["num_sub_vectors"]
        properties = {"vector": vector}
    return cloud("IndexConfig")(
        properties=properties,
        column={"entity_path": {"path": column.entity_path}, "component": {"component": column.component}},
        time_index={"timeline": {"name": config.time_column.name}},
    )
