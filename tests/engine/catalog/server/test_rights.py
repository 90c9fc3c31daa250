"""Rights by entry: every method against every kind of token, what lists show, and ways around them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from calls_of_tokens import Answer, Reached
from chunkmill.engine.catalog import CatalogClient, EntryId
from chunkmill.engine.catalog.server import Need, Rights, Status
from chunkmill.engine.catalog.server.protocol import entry_id_message, part_of, rows_in, schema_message
from served import recording

SCHEMA = pa.schema([pa.field("key", pa.int64())])
COLUMN = {"entity_path": {"path": "/words"}, "component": {"component": "TextLog:text"}}
PART = part_of(pa.table({"key": [1]}, SCHEMA))

NEEDS = {
    "FindEntries": "list",
    "WatchEvents": "list",
    "WhoAmI": "nothing",
    "Version": "nothing",
    "DoBandwidthTest": "nothing",
    "QueryTasks": "nothing",
    "QueryTasksOnCompletion": "nothing",
    "CancelTasks": "write some",
    "GetWriteAccessGrant": "write some",
    "GetMultipartUploadPartGrants": "write some",
    "CompleteMultipartUpload": "write some",
    "AbortMultipartUpload": "write some",
    "DoGlobalMaintenance": "write all",
    "CreateDatasetEntry": "create",
    "CreateTableEntry": "create",
    "RegisterTable": "create",
    "QueryDataset": "read",
    "FindChunks": "read",
    "FetchChunks": "read",
    "GetRrdManifest": "read",
    "GetDatasetSchema": "read",
    "GetSegmentTableSchema": "read",
    "ScanSegmentTable": "read",
    "GetDatasetManifestSchema": "read",
    "ScanDatasetManifest": "read",
    "GetSchemas": "read",
    "GetAssetsForSegment": "read",
    "ReadDatasetEntry": "read",
    "ReadTableEntry": "read",
    "GetTableSchema": "read",
    "ScanTable": "read",
    "ListIndexes": "read",
    "SearchDataset": "read",
    "GetSegmentProperties": "read",
    "DoMaintenance": "write",
    "RegisterWithDataset": "write",
    "UnregisterFromDataset": "write",
    "WriteChunks": "write",
    "UpdateDatasetEntry": "write",
    "UpdateEntry": "write",
    "DeleteEntry": "write",
    "UpdateTableEntry": "write",
    "WriteTable": "write",
    "CreateIndex": "write",
    "DeleteIndexes": "write",
    "SetSegmentProperties": "write",
    "DeleteSegmentProperties": "write",
}
OF_TABLES = {"ReadTableEntry", "GetTableSchema", "ScanTable", "UpdateTableEntry", "WriteTable"}
TOKENS = {
    "everything": ("read", "write"),
    "all reads": ("read",),
    "writes it": ("write:drives", "write:words"),
    "reads it": ("read:drives", "read:words"),
    "reads all, writes it": ("read", "write:drives", "write:words"),
    "reads all, writes others": ("read", "write:others"),
    "others": ("read:others", "write:others"),
    "nothing": ("sing",),
}


class World:
    """A lake of a dataset and a table, and of others; a request for each method."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.catalog = CatalogClient(folder / "lake")
        self.reached = Reached(folder / "lake")
        self.tokens = {name: self.reached.token(*given) for name, given in TOKENS.items()}
        for name in ("drives", "others"):
            dataset = self.catalog.create_dataset(name, with_assets=True)
            dataset.register(self.uploaded(name), executor="inline").wait()
            dataset.blueprint_dataset()
        for name in ("words", "other_words"):
            self.catalog.create_table(name, SCHEMA).append(pa.table({"key": [1]}, SCHEMA))
        self.drives, self.others = (self.catalog.get_dataset(name) for name in ("drives", "others"))
        self.words = self.catalog.get_table("words")

    def uploaded(self, name: str) -> str:
        place = self.folder / "lake" / "uploads" / name / f"of_{name}.rrd"
        place.parent.mkdir(parents=True, exist_ok=True)
        recording(self.folder, f"of_{name}").rename(place)
        return place.as_uri()

    def keys(self, dataset: Any) -> Any:
        """The chunks of a dataset, as its reader is told of them."""
        answer = self.reached.call(self.tokens["everything"], "QueryDataset", dataset.id, select_all_entity_paths=True)
        return pa.concat_tables([rows_in(message.data) for message in answer.messages]).select(["chunk_key"])

    def request(self, method: str) -> dict[str, Any]:
        drives, segment = entry_id_message(self.drives.id), {"id": "of_drives"}
        grant = {"key": "drives/new.rrd", "size_bytes": 10, "supported_upload_methods": [2]}
        requests: dict[str, Callable[[], dict[str, Any]]] = {
            "CreateDatasetEntry": lambda: {"name": "drives"},
            "CreateTableEntry": lambda: {"name": "words", "schema": schema_message(SCHEMA)},
            "RegisterTable": lambda: {"name": "words", "provider_details": {"type_url": "x"}},
            "FetchChunks": lambda: {"chunk_infos": [part_of(self.keys(self.drives))]},
            "GetRrdManifest": lambda: {"segment_id": segment},
            "ReadTableEntry": lambda: {"id": entry_id_message(self.words.id)},
            "GetTableSchema": lambda: {"table_id": entry_id_message(self.words.id)},
            "ScanTable": lambda: {"table_id": entry_id_message(self.words.id)},
            "UpdateTableEntry": lambda: {"id": entry_id_message(self.words.id)},
            "SearchDataset": lambda: {"column": COLUMN, "query": PART},
            "GetSegmentProperties": lambda: {"segment_ids": [segment]},
            "DeleteEntry": lambda: {"id": drives},
            "UpdateEntry": lambda: {"id": drives},
            "UpdateDatasetEntry": lambda: {"id": drives},
            "RegisterWithDataset": lambda: {"data_sources": [{"storage_url": self.uploaded("drives"), "typ": 1}]},
            "UnregisterFromDataset": lambda: {"layers_to_drop": ["none"]},
            "WriteTable": lambda: {"dataframe_part": PART},
            "CreateIndex": lambda: {"config": {"column": COLUMN}},
            "DeleteIndexes": lambda: {"column": COLUMN},
            "SetSegmentProperties": lambda: {"segment_id": segment, "properties": part_of(pa.record_batch({"a": [1]}))},
            "DeleteSegmentProperties": lambda: {"segments": [{"segment_id": segment}]},
            "GetWriteAccessGrant": lambda: grant,
            "GetMultipartUploadPartGrants": lambda: {"upload_token": self.upload_token(grant)},
            "CompleteMultipartUpload": lambda: {"upload_token": self.upload_token(grant)},
            "AbortMultipartUpload": lambda: {"upload_token": self.upload_token(grant)},
        }
        return requests.get(method, dict)()

    def upload_token(self, grant: dict[str, Any]) -> bytes:
        answer = self.reached.call(self.tokens["everything"], "GetWriteAccessGrant", **grant)
        token: bytes = answer.messages[0].grant.multipart_request.upload_token
        return token

    def called(self, token: str, method: str) -> Answer:
        fields = self.request(method)
        entry = {True: self.words.id, False: self.drives.id}[method in OF_TABLES]
        headed = None if method in ("RegisterTable", "FetchChunks") else entry
        looks = iter([True, True])  # a call that waits ends at the third
        return self.reached.call(
            self.tokens[token], method, headed, is_active=lambda: next(looks, method != "WatchEvents"), **fields
        )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_every_method_says_what_it_needs(world: World) -> None:
    """A method that is new has to be in the table above, and is called by the test below."""
    assert {method.name: method.need.value for method in world.reached.service.methods.values()} == NEEDS


def expected(token: str, need: Need) -> Status:
    """The status that a token without the right gets; ``OK`` for one that has it."""
    reads = token not in ("others", "nothing")
    writes = token in ("everything", "writes it", "reads all, writes it")
    if token == "nothing":
        return Status.PERMISSION_DENIED
    if need in (Need.NOTHING, Need.LIST):
        return Status.OK
    if need is Need.READ:
        return Status.OK if reads else Status.NOT_FOUND
    if need is Need.WRITE_ALL:
        return Status.OK if token == "everything" else Status.PERMISSION_DENIED
    if need is Need.WRITE and token == "others":
        return Status.NOT_FOUND
    return Status.OK if writes else Status.PERMISSION_DENIED


@pytest.mark.heavy
@pytest.mark.parametrize("token", TOKENS)
def test_every_method_asks_for_its_right(world: World, token: str) -> None:
    """That which deletes the entry comes last. A token with the right may get another error, of what a request says."""
    for method in sorted(NEEDS, key=lambda name: (name == "DeleteEntry", name)):
        need = Need(NEEDS[method])
        wanted = expected(token, need)
        if method == "CancelTasks" and token in ("others", "reads all, writes others"):
            wanted = Status.OK  # it writes something, and the call changes nothing
        answer = world.called(token, method)
        is_refused = answer.status is Status.PERMISSION_DENIED or (
            answer.status is Status.NOT_FOUND and answer.text.startswith("CM304: Entry id")
        )
        assert answer.status is not Status.INTERNAL, (method, answer.text)
        assert is_refused == (wanted is not Status.OK), (method, wanted, answer)
        if wanted is not Status.OK:
            assert answer.status is wanted and not answer.messages, (method, wanted, answer)


def test_lists_show_what_a_token_may_see(world: World) -> None:
    system = world.catalog.get_table("__entries").id

    def seen(token: str) -> tuple[set[str], set[str]]:
        (found,) = world.reached.call(world.tokens[token], "FindEntries", filter={"entry_kinds": range(1, 7)}).messages
        scanned = world.reached.call(world.tokens[token], "ScanTable", table_id=entry_id_message(system)).messages
        rows = pa.concat_tables([rows_in(message.dataframe_part) for message in scanned])
        names = {entry.name for entry in found.entries}
        assert names == set(rows["name"].to_pylist())
        hidden = {name for name in names if name.startswith(("__bp_", "__as_"))}
        return names - hidden - {"__entries"}, {name.rpartition("_")[2] for name in hidden}

    both = {str(world.drives.id), str(world.others.id)}
    assert seen("everything") == seen("all reads") == ({"drives", "others", "words", "other_words"}, both)
    assert seen("reads it") == seen("writes it") == ({"drives", "words"}, {str(world.drives.id)})
    assert seen("others") == ({"others"}, {str(world.others.id)})


def test_an_entry_of_others_looks_like_none(world: World) -> None:
    """By id, by name, with hints of names like it, and by the keys of its chunks."""
    guest = world.tokens["others"]
    nothing = str(EntryId.new())

    def told(name: str, entry: object, **fields: Any) -> tuple[Status, str]:
        answer = world.reached.call(guest, name, entry, **fields)
        return answer.status, answer.text.replace(str(entry), "ID")

    assert told("ReadDatasetEntry", world.drives.id) == told("ReadDatasetEntry", nothing)
    assert told("ReadDatasetEntry", world.words.id) == told("ReadDatasetEntry", nothing)
    assert told("ScanTable", world.words.id) == told("ScanTable", nothing) == told("ScanTable", world.drives.id)
    for name in ("drives", "drive", "zebra"):
        answer = world.reached.call(guest, "ReadDatasetEntry", headers={"x-rerun-entry-name-bin": name})
        assert (answer.status, answer.text.rstrip(".")) == (
            Status.NOT_FOUND,
            f"CM304: No dataset found with name '{name}'",
        )
    chunks = part_of(world.keys(world.drives))
    assert world.reached.call(guest, "FetchChunks", chunk_infos=[chunks]).status is Status.NOT_FOUND
    own = part_of(world.keys(world.others))
    assert len(world.reached.call(guest, "FetchChunks", chunk_infos=[own]).messages) > 0
    mixed = world.reached.call(guest, "FetchChunks", world.others.id, chunk_infos=[own, chunks])
    assert (mixed.status, mixed.messages) == (Status.NOT_FOUND, [])


def test_files_of_others_are_not_registered(world: World) -> None:
    """Neither where they are uploaded, nor those of a dataset, by whatever path; nor tables."""
    guest, link = world.tokens["others"], world.folder / "lake" / "uploads" / "others" / "link.rrd"
    secret = world.uploaded("drives")
    link.symlink_to(secret.removeprefix("file://"))
    stored = world.folder / "lake" / "datasets" / str(world.drives.id)
    for url in (secret, link.as_uri(), f"{link.parent.as_uri()}/../drives/of_drives.rrd", stored.as_uri()):
        for prefix in (False, True):
            sources = [{"storage_url": url, "typ": 1, "prefix": prefix}]
            answer = world.reached.call(guest, "RegisterWithDataset", world.others.id, data_sources=sources)
            assert answer.status is Status.PERMISSION_DENIED, (url, answer)
    whole = [{"storage_url": link.parent.as_uri(), "typ": 1, "prefix": True}]
    assert world.reached.call(guest, "RegisterWithDataset", world.others.id, data_sources=whole).status is (
        Status.PERMISSION_DENIED
    )
    link.unlink()
    answer = world.reached.call(guest, "RegisterWithDataset", world.others.id, data_sources=whole)
    assert answer.status is Status.OK, answer
    details = {"type_url": "/rerun.cloud.v1alpha1.LanceTable"}
    from chunkmill.engine.catalog.server.protocol import cloud

    details["value"] = cloud("LanceTable")(table_url=world.words.storage_url).SerializeToString()
    for method in ("RegisterTable", "CreateTableEntry"):
        fields = {"name": "others", "provider_details": details}
        fields |= {"schema": schema_message(SCHEMA)} if method == "CreateTableEntry" else {}
        answer = world.reached.call(guest, method, **fields)
        assert (answer.status, "read everything" in answer.text) == (Status.PERMISSION_DENIED, True)


def test_nothing_is_taken_by_a_name_or_a_blueprint_of_others(world: World) -> None:
    guest = world.tokens["others"]
    rename = world.reached.call(guest, "UpdateEntry", world.others.id, entry_details_update={"name": "drives2"})
    assert rename.status is Status.PERMISSION_DENIED
    blueprint = world.drives.blueprint_dataset()
    assert blueprint is not None
    linked = world.reached.call(
        guest,
        "UpdateDatasetEntry",
        world.others.id,
        dataset_details={"blueprint_dataset": entry_id_message(blueprint.id)},
    )
    assert linked.status is Status.INVALID_ARGUMENT
    assert world.catalog.get_dataset("others").blueprint_dataset() != blueprint
    for key in ("drives/x.rrd", "x.rrd", "others", "others/../drives/x.rrd"):
        answer = world.reached.call(guest, "GetWriteAccessGrant", key=key)
        assert answer.status in (Status.PERMISSION_DENIED, Status.INVALID_ARGUMENT), key
    assert world.reached.call(guest, "GetWriteAccessGrant", key="others/x.rrd").status is Status.OK


def test_a_hidden_dataset_has_the_rights_of_its_owner(world: World) -> None:
    own, other = world.others.blueprint_dataset(), world.drives.blueprint_dataset()
    assert own is not None and other is not None
    guest = world.tokens["others"]
    assert world.reached.call(guest, "GetDatasetSchema", own.id).status is Status.OK
    assert world.reached.call(guest, "GetDatasetSchema", other.id).status is Status.NOT_FOUND
    reader = world.tokens["reads it"]
    dropped = world.reached.call(reader, "UnregisterFromDataset", other.id, layers_to_drop=["base"])
    assert dropped.status is Status.PERMISSION_DENIED


def test_events_are_of_what_a_token_may_see(world: World) -> None:
    method_looks = iter(range(10**6))
    made = []

    def is_active() -> bool:
        if next(method_looks) == 1:
            made.extend(world.catalog.create_dataset(name).id for name in ("secret", "seen"))
        return len(made) < 2 or next(method_looks) < 40

    bearer = world.reached.token("read:seen")
    answer = world.reached.call(bearer, "WatchEvents", is_active=is_active)
    ids = {
        str(EntryId(f"{m.entry_created.id.id.time_ns:016x}{m.entry_created.id.id.inc:016x}")) for m in answer.messages
    }
    assert ids == {str(made[1])}


def test_a_handler_that_forgets_to_ask_answers_nothing(world: World) -> None:
    from dataclasses import replace

    service = world.reached.service
    path = next(path for path, method in service.methods.items() if method.name == "ListIndexes")
    method = service.methods[path]
    forgetful = replace(method, handler=lambda request, call: method.response())
    service.methods = {**service.methods, path: forgetful}
    assert world.reached.call(world.tokens["others"], "ListIndexes", world.drives.id).status is Status.INTERNAL
    assert world.reached.call(world.tokens["everything"], "ListIndexes", world.drives.id).status is Status.OK


@pytest.mark.parametrize(
    ("given", "readable", "writable"),
    [
        (["read"], None, frozenset()),
        (["write"], None, None),
        (["read:a", "write:b"], frozenset("ab"), frozenset("b")),
        (["read", "write:b"], None, frozenset("b")),
        (["READ", "read:", 3, None, ["read"], "reads", ""], frozenset(), frozenset()),
    ],
)
def test_permissions_give_rights(given: list[Any], readable: object, writable: object) -> None:
    assert Rights.of(given) == Rights(readable, writable)
    assert Rights.of(given, read_only=True) == Rights(readable, frozenset())
