"""A story in which every call that writes to a served lake is made, and what is there after each step of it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from catalog_writers import write_file
from chunkmill.engine.catalog.server.protocol import cloud, entry_id_of, part_of, rows_in, schema_message
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.rrd import Compression, encode_batch
from served_calls import Calls, RefusedError

APPEND, OVERWRITE, REPLACE, UPDATE = 1, 2, 3, 4
RENEW, SKIP = 1, 2
LONG: Final = 9 << 20
"""Bytes of an upload that comes in several pieces."""
ALREADY_EXISTS: Final = 6
NOTES: Final = pa.schema([pa.field("key", pa.int64(), False, {"rerun:is_table_index": "true"}), ("v", pa.string())])
TICK: Final = {"timeline": {"name": "tick"}}
TEXT: Final = {"entity_path": {"path": "/at"}, "component": {"component": "landed"}}
WORDS: Final[dict[str, Any]] = {"inverted": {"base_tokenizer": "simple"}}

State = dict[str, Any]


class Story:
    """The steps, by their names, each a call that writes."""

    def __init__(self, world: Path, calls: Any) -> None:
        self._world = world
        self._calls = calls
        self.steps: dict[str, Callable[[], object]] = {
            "create": lambda: calls("CreateDatasetEntry", name="drives"),
            "upload": lambda: self._upload("project/short.rrd", (self._files / "s5-0.rrd").read_bytes()),
            "register": lambda: self._register("drives", RENEW, "s0-0.rrd", "s1-0.rrd", "s2-0.rrd", "landed-1.rrd"),
            "properties": lambda: self._set_property("drives", "s0"),
            "none": lambda: calls(
                "DeleteSegmentProperties", self._id("drives"), segments=[{"segment_id": {"id": "s0"}}]
            ),
            "again": lambda: self._set_property("drives", "s0"),
            "and one": lambda: self._set_property("drives", "s1"),
            "none of two": lambda: calls(
                "DeleteSegmentProperties",
                self._id("drives"),
                segments=[{"segment_id": {"id": s}} for s in ("s0", "s1")],
            ),
            "cancel": lambda: calls("CancelTasks", ids=[{"id": "task_0000000000000000"}]),
            "index": lambda: calls(
                "CreateIndex", self._id("drives"), config={"properties": WORDS, "column": TEXT, "time_index": TICK}
            ),
            "index again": lambda: calls("DoMaintenance", self._id("drives"), optimize_indexes=True),
            "no index": lambda: calls("DeleteIndexes", self._id("drives"), column=TEXT),
            "write": lambda: calls.sent("WriteChunks", map(self._chunk, ("w1", "w2")), self._id("drives")),
            "prefix": lambda: self._register("drives", SKIP, "more", layer="labels"),
            "replace": lambda: self._register("drives", RENEW, "s0-1.rrd", "s2-1.rrd"),
            "unregister": lambda: calls(
                "UnregisterFromDataset", self._id("drives"), segments_to_drop=[{"id": "s1"}], layers_to_drop=["base"]
            ),
            "blueprint": lambda: self._register("drives", RENEW, "look-0.rbl", to_hidden=True),
            "default": lambda: self._default("UpdateDatasetEntry", "drives", "look-0"),
            "rename": lambda: calls("UpdateEntry", id=self._message("drives"), entry_details_update={"name": "runs"}),
            "maintain": lambda: calls(
                "DoMaintenance",
                self._id("runs"),
                compact_fragments=True,
                cleanup_before={"seconds": int(time.time())},
                unsafe_allow_recent_cleanup=True,
            ),
            "table": lambda: calls("CreateTableEntry", name="notes", schema=schema_message(NOTES)),
            "append": lambda: self._write(APPEND, [1, 2], [3]),
            "upsert": lambda: self._write(REPLACE, [2, 4], [5]),
            "update": lambda: self._write(UPDATE, [1], [4]),
            "overwrite": lambda: self._write(OVERWRITE, [6], [7]),
            "outside": self._make_outside,
            "adopt": lambda: calls("RegisterTable", name="adopted", provider_details=self._outside("adopted")),
            "look": lambda: self._default("UpdateTableEntry", "notes", ""),
            "long": lambda: self._upload("project/long.rrd", b"RRF2" + bytes(LONG)),
            "parts": lambda: self._upload_parts("project/parts.rrd", b"RRF2" + bytes(LONG), b"end"),
            "abort": lambda: self._upload_parts("project/none.rrd", b"begun"),
            "uploaded": lambda: self._register("runs", RENEW, "../lake/uploads/project/short.rrd"),
            "drop": lambda: calls("DeleteEntry", id=self._message("notes")),
            "delete": lambda: calls("DeleteEntry", id=self._message("runs")),
            "maintain all": lambda: calls("DoGlobalMaintenance"),
        }

    @property
    def _files(self) -> Path:
        return self._world / "files"

    def _message(self, name: str) -> Any:
        found = self._calls("FindEntries", filter={"name": name}).entries
        if not found:
            raise LookupError(f"there is no entry {name}")
        return found[0].id

    def _id(self, name: str) -> str:
        return str(entry_id_of(self._message(name)))

    def _hidden(self, name: str) -> Any:
        read = self._calls("ReadDatasetEntry", self._id(name)).dataset
        return read.dataset_details.blueprint_dataset

    def _register(
        self, dataset: str, on_duplicate: int, *names: str, layer: str = "base", to_hidden: bool = False
    ) -> None:
        id_ = str(entry_id_of(self._hidden(dataset))) if to_hidden else self._id(dataset)
        places = [(self._files / name).resolve() for name in names]
        sources = [
            {"storage_url": place.as_uri(), "typ": 1, "layer": layer, "prefix": place.is_dir()} for place in places
        ]
        told = self._calls("RegisterWithDataset", id_, data_sources=sources, on_duplicate=on_duplicate)
        tasks = [{"id": task} for task in rows_in(told.data)["rerun_task_id"].to_pylist()]
        states = rows_in(self._calls("QueryTasks", ids=tasks).data)
        if set(states["exec_status"].to_pylist()) != {"success"}:
            raise RefusedError(-2, str(states["msgs"].to_pylist()))

    def _set_property(self, dataset: str, segment: str) -> None:
        properties = part_of(pa.table({"weather": [["rain"]]}))
        self._calls("SetSegmentProperties", self._id(dataset), segment_id={"id": segment}, properties=properties)

    def _chunk(self, segment: str) -> dict[str, Any]:
        payload = (self._files / f"{segment}.chunk").read_bytes()
        return {"chunk": {"encoder_version": 1, "payload": payload}}

    def _default(self, method: str, name: str, segment: str) -> None:
        details: dict[str, Any] = {"default_blueprint_segment": {"id": segment}}
        if method == "UpdateDatasetEntry":
            details["blueprint_dataset"] = self._hidden(name)
            self._calls(method, id=self._message(name), dataset_details=details)
        else:
            self._calls(method, id=self._message(name), table_details=details)

    def _write(self, mode: int, *keys: list[int]) -> None:
        batches = [pa.table({"key": some, "v": [f"{mode}"] * len(some)}, NOTES) for some in keys]
        requests = [{"dataframe_part": part_of(batch), "insert_mode": mode} for batch in batches]
        self._calls.sent("WriteTable", requests, self._id("notes"))

    def _outside(self, name: str) -> dict[str, Any]:
        table = cloud("LanceTable")(table_url=(self._world / "tables" / name).as_uri())
        return {"type_url": "/rerun.cloud.v1alpha1.LanceTable", "value": table.SerializeToString()}

    def _make_outside(self) -> None:
        """Make a table at a place of the client's; where it is there already, as of a call that was cut, take it in."""
        place = self._outside("outside")
        try:
            self._calls("CreateTableEntry", name="outside", schema=schema_message(NOTES), provider_details=place)
        except RefusedError as error:
            if error.status != ALREADY_EXISTS:
                raise
            self._calls("RegisterTable", name="outside", provider_details=place)

    def _upload(self, key: str, data: bytes) -> None:
        grant = self._calls("GetWriteAccessGrant", key=key, size_bytes=len(data)).grant
        self._calls.put(grant.http_request.url, data)

    def _upload_parts(self, key: str, *parts: bytes) -> None:
        """Upload a file in parts; one of one part is given up."""
        token = self._calls("GetWriteAccessGrant", key=key, supported_upload_methods=[2]).grant.multipart_request
        numbers = range(1, len(parts) + 1)
        asked = {"upload_token": token.upload_token, "part_numbers": numbers}
        grants = self._calls("GetMultipartUploadPartGrants", **asked).requests
        etags = [self._calls.put(grant.url, data) for grant, data in zip(grants, parts, strict=True)]
        if len(parts) == 1:
            self._calls("AbortMultipartUpload", upload_token=token.upload_token)
            return
        named = [{"part_number": number, "etag": etag} for number, etag in zip(numbers, etags, strict=True)]
        self._calls("CompleteMultipartUpload", upload_token=token.upload_token, parts=named)


def make_world(world: Path) -> int:
    """Write all that the story is about; gives 0."""
    from chunkmill.engine.lance import LanceTable

    (world / "files" / "more").mkdir(parents=True)
    (world / "lake").mkdir()
    for name in ("s0-0", "s0-1", "s1-0", "s2-0", "s2-1", "s5-0", "landed-1", "more/s3-0", "more/s0-0"):
        path = world / "files" / f"{name}.rrd"
        write_file(path, path.stem.partition("-")[0])
    for name in ("w1", "w2"):
        (world / "files" / f"{name}.chunk").write_bytes(_encoded_chunk(name))
    write_file(world / "files" / "look-0.rbl", "look-0", "blueprint")
    LanceTable(world / "tables" / "adopted", "adopted").create(NOTES)
    return 0


def state_of(world: Path, calls: Calls) -> State:
    """What the server tells of, every chunk and row read, and the files that were uploaded."""
    entries: list[Any] = []
    for entry in calls("FindEntries", filter={"entry_kinds": [1, 3, 5, 6]}).entries:
        id_ = str(entry_id_of(entry.id))
        if entry.entry_kind == 3:
            table = calls("ReadTableEntry", id=entry.id).table.table_details
            rows = [row for part in calls("ScanTable", table_id=entry.id) for row in _rows(part.dataframe_part)]
            own = [] if entry.name == "__entries" else sorted(map(list, rows))
            entries.append([entry.name, 3, table.HasField("blueprint_dataset"), own])
            continue
        details = calls("ReadDatasetEntry", id_).dataset.dataset_details
        default = details.default_blueprint_segment.id
        manifest = rows_in(calls("ScanDatasetManifest", id_)[0].data)
        layers = sorted(
            zip(*(manifest[f"rerun_{name}"].to_pylist() for name in ("segment_id", "layer_name")), strict=True)
        )
        name = entry.name if entry.entry_kind == 1 else "hidden"
        segments = [{"id": segment} for segment, _ in layers] or [{"id": "none"}]
        set_by_clients = [
            [one.segment_id.id, rows_in(one.properties).to_pylist()]
            for answer in calls("GetSegmentProperties", id_, segment_ids=segments)
            for one in answer.segments
        ]
        indexes = [index.column.component.component for index in calls("ListIndexes", id_).indexes]
        entries.append([name, entry.entry_kind, default, layers, set_by_clients, indexes, _content(calls, id_)])
    there = sorted(path for path in (world / "lake").glob("uploads/**/*") if path.is_file())
    named = [path for path in there if not path.name.startswith(".")]
    files = {str(path.relative_to(world)): hashlib.sha256(path.read_bytes()).hexdigest() for path in named}
    found: State = json.loads(json.dumps({"entries": sorted(entries, key=str), "uploads": files}))
    return found


def _encoded_chunk(segment: str) -> bytes:
    """A chunk that is sent to become a segment."""
    chunk = Chunk.from_columns("/at", [TimeColumn("tick", sequence=[0])], [ComponentColumn("value", [1.0])])
    batch = chunk.to_record_batch()
    named = {**(batch.schema.metadata or {}), b"rerun:segment_id": segment.encode()}
    return bytes(encode_batch(batch.replace_schema_metadata(named), Compression.NONE)[0])


def _rows(part: Any) -> Iterator[tuple[Any, ...]]:
    columns = rows_in(part).to_pydict()
    return zip(*columns.values(), strict=True)


def _content(calls: Calls, id_: str) -> str:
    """A digest of all chunks of a dataset."""
    infos = [answer.data for answer in calls("QueryDataset", id_, select_all_entity_paths=True)]
    chunks = [chunk.payload for answer in calls("FetchChunks", chunk_infos=infos) for chunk in answer.chunks]
    return hashlib.sha256(b"".join(sorted(hashlib.sha256(chunk).digest() for chunk in chunks))).hexdigest()
