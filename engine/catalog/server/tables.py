"""Calls about tables: made, registered, read, written, and shown with blueprints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from ..client import CatalogClient
from ..system_table import EntriesTable
from ..table_entry import TableEntry
from .entry_methods import details_of, entry_id_from, hidden_in
from .envelopes import part_of, rows_in, schema_in, schema_message
from .messages import cloud, entry_id_message
from .methods import Call, Kind, Method, ProtocolError, Status
from .places import AllowedPlaces, naming_places

_PREFIX: Final = "/rerun.cloud.v1alpha1."
_LANCE: Final = f"{_PREFIX}LanceTable"
_SYSTEM: Final = f"{_PREFIX}SystemTable"
_ENTRIES: Final = 2
_APPEND, _OVERWRITE, _REPLACE, _UPDATE = 1, 2, 3, 4
_WITH_WIDE_KINDS: Final = tuple(f"rerun-py/0.{minor}." for minor in (33, 34, 35, 36))
"""Clients that know kinds of entries as 32-bit integers."""
_KIND_TYPE: Final = {"rerun:component_type": "rerun.components.EntryKind"}


class TableCalls:
    """The handlers, over one catalog; tables in ``places`` may be made and registered."""

    def __init__(self, catalog: CatalogClient, places: AllowedPlaces) -> None:
        self._catalog = catalog
        self._places = places

    def methods(self) -> tuple[Method, ...]:
        """The methods of this group."""
        return (
            Method.named("CreateTableEntry", Kind.UNARY, naming_places(self._create), writes=True),
            Method.named("RegisterTable", Kind.UNARY, naming_places(self._register), writes=True),
            Method.named("ReadTableEntry", Kind.UNARY, self._read),
            Method.named("UpdateTableEntry", Kind.UNARY, self._update, writes=True),
            Method.named("GetTableSchema", Kind.UNARY, self._schema),
            Method.named("ScanTable", Kind.STREAM, self._scan),
            Method.named("WriteTable", Kind.UPLOAD, self._write, writes=True),
        )

    def _create(self, request: Any, call: Call) -> Any:
        del call
        schema = schema_in(request.schema)
        if not request.HasField("provider_details"):
            table = self._catalog.create_table(request.name, schema)
        else:
            table = self._catalog.create_table_at(request.name, schema, self._url_in(request.provider_details))
        return cloud("CreateTableEntryResponse")(table=table_message(table))

    def _register(self, request: Any, call: Call) -> Any:
        del call
        if not request.HasField("provider_details"):
            raise _bad("Missing provider details")
        table = self._catalog.register_table(request.name, self._url_in(request.provider_details))
        return cloud("RegisterTableResponse")(table_entry=table_message(table))

    def _url_in(self, details: Any) -> str:
        """The place of the table that provider details name, which is one that may be used."""
        if details.type_url.rpartition("/")[2] == _SYSTEM[1:]:
            raise _bad("System tables cannot be registered")
        if details.type_url.rpartition("/")[2] != _LANCE[1:]:
            raise _bad(f"tables of the kind {details.type_url[:200]!r} are not known; LanceTable is the one there is")
        from google.protobuf.message import DecodeError

        try:
            url: str = cloud("LanceTable").FromString(details.value).table_url
        except DecodeError:
            raise _bad("the provider details are no LanceTable") from None
        self._places.check_tables([url])
        return url

    def _read(self, request: Any, call: Call) -> Any:
        id_ = entry_id_from(request.id if request.HasField("id") else None, call)
        return cloud("ReadTableEntryResponse")(table=table_message(self._catalog.get_table(id=id_)))

    def _update(self, request: Any, call: Call) -> Any:
        table = self._catalog.get_table(id=entry_id_from(request.id if request.HasField("id") else None, call))
        if isinstance(table, EntriesTable):
            raise _bad(f"'{table.name}' is the catalog's own table, which cannot be changed")
        details = request.table_details
        blueprints = hidden_in(self._catalog, details, "blueprint_dataset", "table blueprint dataset")
        table.set_blueprints(blueprints, details.default_blueprint_segment.id or None)
        return cloud("UpdateTableEntryResponse")(table=table_message(table))

    def _schema(self, request: Any, call: Call) -> Any:
        table = self._table(request, call)
        schema = _as_known_to(call, table, table.arrow_schema().empty_table()).schema
        return cloud("GetTableSchemaResponse")(schema=schema_message(schema))

    def _scan(self, request: Any, call: Call) -> Iterator[Any]:
        table = self._table(request, call)
        for batch in table.to_arrow_reader():
            call.check()
            rows = _as_known_to(call, table, pa.Table.from_batches([batch]))
            yield cloud("ScanTableResponse")(dataframe_part=part_of(rows))

    def _table(self, request: Any, call: Call) -> TableEntry:
        id_ = entry_id_from(request.table_id if request.HasField("table_id") else None, call)
        return self._catalog.get_table(id=id_)

    def _write(self, requests: Iterator[Any], call: Call) -> Any:
        table = self._catalog.get_table(id=entry_id_from(None, call))
        first = next(iter(requests), None)
        if first is None:
            return cloud("WriteTableResponse")()
        mode, head = first.insert_mode or _APPEND, rows_in(first.dataframe_part, call)

        def batches() -> Iterator[pa.RecordBatch]:
            yield from head.to_batches()
            for request in requests:
                call.check()
                if (request.insert_mode or _APPEND) != mode:
                    raise _bad("the messages of one write have different insert modes")
                rows = rows_in(request.dataframe_part, call)
                if rows.schema != head.schema:
                    raise _bad(f"the messages of one write have different columns: {_difference(head, rows)}")
                yield from rows.to_batches()

        modes = {_APPEND: table.append, _OVERWRITE: table.overwrite, _REPLACE: table.upsert, _UPDATE: table.update_rows}
        written = modes.get(mode)
        if written is None:
            raise _bad(f"insert mode {mode} is none of those that there are")
        written(pa.RecordBatchReader.from_batches(head.schema, batches()))
        return cloud("WriteTableResponse")()


def table_message(table: TableEntry) -> Any:
    """A table as a message."""
    if isinstance(table, EntriesTable):
        kind, value = _SYSTEM, cloud("SystemTable")(kind=_ENTRIES)
    else:
        kind, value = _LANCE, cloud("LanceTable")(table_url=table.storage_url)
    details = {"type_url": kind, "value": value.SerializeToString()}
    found = cloud("TableEntry")(details=details_of(table), provider_details=details)
    if table.has_blueprint_dataset():
        found.table_details.blueprint_dataset.CopyFrom(entry_id_message(table.blueprint_dataset().id))
        default = table.default_blueprint()
        if default is not None:
            found.table_details.default_blueprint_segment.id = default
    return found


def _difference(first: pa.Table, other: pa.Table) -> str:
    """Return the difference between the columns of two messages, as text."""
    own, others = ({field.name: field for field in table.schema} for table in (first, other))
    found = [f"{name!r} is missing" for name in own.keys() - others.keys()]
    found += [f"{name!r} is new" for name in others.keys() - own.keys()]
    found += [
        f"{name!r} is {others[name].type}, and was {own[name].type}"
        for name in own.keys() & others.keys()
        if own[name].type != others[name].type
    ]
    return ", ".join(sorted(found)) or "their order, or what is said of them beside their types"


def _as_known_to(call: Call, table: TableEntry, rows: pa.Table) -> pa.Table:
    """Rows as a client has them: newer ones know kinds in the table of entries as bytes."""
    if not isinstance(table, EntriesTable) or call.client_version.startswith(_WITH_WIDE_KINDS):
        return rows
    at = rows.schema.get_field_index("entry_kind")
    return rows.set_column(at, pa.field("entry_kind", pa.uint8(), False, _KIND_TYPE), rows[at].cast(pa.uint8()))


def _bad(text: str) -> ProtocolError:
    return ProtocolError(Status.INVALID_ARGUMENT, text)
