"""Calls that find, read, create, rename and delete entries, and report their events."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any, Final

from ...errors import NotFoundError
from ..dataset import DatasetEntry
from ..entries import EntryId, EntryKind, owner_of
from ..table import TableEntry
from .lake import Lake
from .protocol import Call, Kind, Need, answers, cloud, entry_id_message, entry_id_of, invalid, shared, time_message

_RECORDING, _BLUEPRINT, _ASSET = 1, 2, 3
_KINDS: Final = {EntryKind.BLUEPRINT_DATASET: _BLUEPRINT, EntryKind.ASSET_DATASET: _ASSET}
_BY_DEFAULT: Final = frozenset({1, 3, 5})
"""The kinds of entries in a search without a kind."""
_OLDER: Final = tuple(f"rerun-py/0.{minor}." for minor in (33, 34, 35))
"""Clients that do not know assets and blueprints of segment tables, so that their requests do not clear these."""
_GONE_SECONDS: Final = 1.0
"""The longest time in seconds until a lost client is noticed."""


@answers("FindEntries", need=Need.LIST)
def _find_entries(lake: Lake, request: Any, call: Call) -> Any:
    given, wanted = request.filter, set(request.filter.entry_kinds)
    if 0 in wanted:
        raise invalid("find_entries: entry_kinds must not contain ENTRY_KIND_UNSPECIFIED")
    if not wanted and given.HasField("entry_kind"):
        if given.entry_kind == 0:
            raise invalid("find_entries: entry kind unspecified")
        wanted = {given.entry_kind}
    entries = [
        entry
        for entry in lake.entries(call)
        if int(entry.kind) in (wanted or _BY_DEFAULT)
        and (not given.HasField("name") or entry.name == given.name)
        and (not given.HasField("id") or entry.id == entry_id_of(given.id))
    ]
    return cloud("FindEntriesResponse")(entries=map(details_of, entries))


@answers("CreateDatasetEntry", need=Need.CREATE)
def _create_dataset_entry(lake: Lake, request: Any, call: Call) -> Any:
    if not request.HasField("name"):
        raise invalid("missing required field: 'rerun.cloud.v1alpha1.CreateDatasetEntryRequest.name'")
    id_ = entry_id_of(request.id) if request.HasField("id") else None
    lake.check_name(request.name, call)
    # newer clients read the dataset's assets at once
    made = lake.catalog.create_dataset(request.name, id=id_, with_assets=not call.client_version.startswith(_OLDER))
    note_made(call, made)
    return cloud("CreateDatasetEntryResponse")(dataset=dataset_message(made))


@answers("ReadDatasetEntry", need=Need.READ)
def _read_dataset_entry(lake: Lake, _request: Any, call: Call) -> Any:
    return cloud("ReadDatasetEntryResponse")(dataset=dataset_message(lake.dataset(call)))


@answers("UpdateDatasetEntry", need=Need.WRITE)
def _update_dataset_entry(lake: Lake, request: Any, call: Call) -> Any:
    """Change the given details. Hidden datasets that are not given stay, as old clients lack some."""
    dataset = lake.dataset_of(entry_id_in(request, call), call)
    details = request.dataset_details
    blueprints = hidden_in(lake, details, "blueprint_dataset", "dataset blueprint dataset", call)
    assets = hidden_in(lake, details, "asset_dataset", "asset dataset", call)
    default = details.default_blueprint_segment.id or None
    table_default = details.default_segment_table_blueprint_segment.id or None
    if (default or table_default) and blueprints is None:
        raise invalid("default dataset blueprint requires a blueprint dataset")
    if call.client_version.startswith(_OLDER):
        table_default = dataset.default_segment_table_blueprint()
    dataset.set_hidden(blueprints=blueprints, assets=assets, default_blueprint=default, table_blueprint=table_default)
    call.record.changed.update(
        blueprints=str(blueprints) if blueprints else None,
        assets=str(assets) if assets else None,
        default_blueprint=default,
        default_table_blueprint=table_default,
    )
    return cloud("UpdateDatasetEntryResponse")(dataset=dataset_message(dataset))


@answers("UpdateEntry", need=Need.WRITE)
def _update_entry(lake: Lake, request: Any, call: Call) -> Any:
    entry = _entry(lake, entry_id_in(request, call), call)
    update = request.entry_details_update
    if update.HasField("name") and update.name != entry.name:
        lake.check_name(update.name, call)
        before = entry.name
        entry.set_name(update.name)
        call.record.changed.update(renamed={"from": before, "to": update.name})
    return cloud("UpdateEntryResponse")(entry_details=details_of(entry))


@answers("DeleteEntry", need=Need.WRITE)
def _delete_entry(lake: Lake, request: Any, call: Call) -> Any:
    entry = _entry(lake, entry_id_in(request, call), call)
    hidden = [str(other.id) for other in lake.entries(call) if owner_of(other.kind, other.name) == str(entry.id)]
    entry.delete()
    call.record.changed.update(deleted=[str(entry.id), *hidden])
    return cloud("DeleteEntryResponse")()


@answers("WatchEvents", Kind.STREAM, need=Need.LIST, waits=True)
def _watch_events(lake: Lake, request: Any, call: Call) -> Iterator[Any]:
    """Report created and deleted entries until the client has gone.

    There is only one kind of events. A request without kinds means all.
    """
    if request.kinds and not any(kind.WhichOneof("kind") == "entry" for kind in request.kinds):
        raise invalid("watch_events: only events of entries are supported")
    with lake.events.watched() as events:
        while not call.cancelled():
            try:
                event, id_, name = events.get(timeout=_GONE_SECONDS)
            except queue.Empty:
                continue
            if not call.rights.reads(name):
                continue
            yield cloud("WatchEventsResponse")(**{event: {"id": entry_id_message(id_)}})


def _entry(lake: Lake, id: EntryId, call: Call) -> DatasetEntry | TableEntry:  # noqa: A002 (it is one)
    for entry in lake.catalog.entries(include_hidden=True):
        if entry.id == id:
            return lake.usable(entry, call)
    raise NotFoundError(f"Entry id '{id}' not found")


def note_made(call: Call, entry: DatasetEntry | TableEntry) -> None:
    """Note a new entry, and its hidden datasets, in the record of a call."""
    call.record.entry_id, call.record.entry_name = str(entry.id), entry.name
    hidden = [entry.blueprint_dataset(), entry.asset_dataset()] if isinstance(entry, DatasetEntry) else []
    made = [entry, *(other for other in hidden if other is not None)]
    call.record.changed.update(
        created=[{"id": str(each.id), "name": each.name, "kind": each.kind.name.lower()} for each in made]
    )


def hidden_in(lake: Lake, details: Any, field: str, what: str, call: Call) -> EntryId | None:
    """The hidden dataset in the details of an entry, or None. Raises :class:`ProtocolError` for another dataset."""
    if not details.HasField(field):
        return None
    id_ = entry_id_of(getattr(details, field))
    try:
        dataset = lake.catalog.get_dataset(id=id_)
        lake.check_readable(dataset, call)
    except NotFoundError as error:
        raise invalid(f"{what} does not exist: {error.message}") from None
    kind = EntryKind.ASSET_DATASET if field == "asset_dataset" else EntryKind.BLUEPRINT_DATASET
    if dataset.kind is not kind:
        raise invalid(f"{what} must be {'an asset' if kind is EntryKind.ASSET_DATASET else 'a blueprint'} dataset")
    return id_


def details_of(entry: DatasetEntry | TableEntry) -> Any:
    """The details of any entry, as a message."""
    return cloud("EntryDetails")(
        id=entry_id_message(entry.id),
        name=entry.name,
        entry_kind=int(entry.kind),
        created_at=time_message(int(entry.created_at.timestamp() * 1e6) * 1000),
        updated_at=time_message(int(entry.updated_at.timestamp() * 1e6) * 1000),
    )


def dataset_message(dataset: DatasetEntry) -> Any:
    """A dataset as a message."""
    details = cloud("DatasetDetails")()
    for field, hidden in (
        ("blueprint_dataset", dataset.blueprint_dataset()),
        ("asset_dataset", dataset.asset_dataset()),
    ):
        if hidden is not None:
            getattr(details, field).CopyFrom(entry_id_message(hidden.id))
    for field, default in (
        ("default_blueprint_segment", dataset.default_blueprint()),
        ("default_segment_table_blueprint_segment", dataset.default_segment_table_blueprint()),
    ):
        if default is not None:
            getattr(details, field).id = default
    kind = _KINDS.get(dataset.kind, _RECORDING)
    handle = shared("DatasetHandle")(
        entry_id=entry_id_message(dataset.id),
        dataset_url=dataset.manifest_url,
        store_kind=_BLUEPRINT if kind == _BLUEPRINT else _RECORDING,
        dataset_kind=kind,
    )
    return cloud("DatasetEntry")(details=details_of(dataset), dataset_details=details, dataset_handle=handle)


def entry_id_in(request: Any | None, call: Call, field: str = "id") -> EntryId:
    """The id in a request, or else in the headers. Raises :class:`ProtocolError` if both differ."""
    header = call.entry_id
    if request is None or not request.HasField(field):
        if header is None:
            raise invalid("missing entry id in request header and body")
        return header
    body = entry_id_of(getattr(request, field))
    if header is not None and header != body:
        raise invalid(
            f"mismatched entry ids: the 'x-rerun-entry-id' header says '{header}', but the request body says '{body}'"
        )
    return body
