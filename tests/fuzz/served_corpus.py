"""Valid requests of every call of a served lake, and such as ask for what is outside of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import lz4.block
import pyarrow as pa
from chunkmill.engine.catalog.dataset import layers_of
from chunkmill.engine.catalog.server import Call, CatalogService
from chunkmill.engine.catalog.server.protocol import (
    SERVICE,
    cloud,
    entry_id_message,
    part_of,
    rows_in,
    schema_message,
    shared,
)
from chunkmill.engine.chunk import Chunk, ComponentColumn, ComponentColumnSelector, TimeColumn
from chunkmill.engine.rrd import Compression, encode_batch
from served_lake import Served, about

_EVERYTHING: Final[dict[str, Any]] = {"all": {}}
_TICK: Final[dict[str, Any]] = {"index": {"timeline": {"name": "tick"}}}
_ROWS: Final = pa.table(
    {"key": [1, 2], "v": ["a", "b"]},
    pa.schema([pa.field("key", pa.int64(), False, {"rerun:is_table_index": "true"}), ("v", pa.string())]),
)
_VALUE: Final[dict[str, Any]] = {"entity_path": {"path": "/at"}, "component": {"component": "value"}}
_WORDS: Final[dict[str, Any]] = {"inverted": {"base_tokenizer": "simple"}}
_LANCE: Final = "/rerun.cloud.v1alpha1.LanceTable"
_OF_UPLOADS: Final = ("AccessGrant", "PartGrants", "Upload")
_KEYS: Final = ("../x", "/etc/x", "a/../../x", "a//b", ".x", "a\0b", "..", "", "%2e%2e/x", "a\\..\\x", "x" * 600)


class Request(NamedTuple):
    """The messages of a call, the headers that say what it is about, and the statuses that it may end with."""

    name: str
    messages: tuple[bytes, ...]
    headers: dict[str, str]
    statuses: frozenset[int] = frozenset({0})


class Corpus:
    """Requests about a lake: those that read say the same each time, those that write have entries of their own."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._methods = served.service.methods
        self._made = 0
        served.drives.create_fts_search_index(
            column=ComponentColumnSelector("/at", "value"),
            time_index="tick",
            store_position=False,
            base_tokenizer="simple",
        )
        self.notes = served.catalog.create_table("notes", _ROWS.schema)
        self.notes.append(_ROWS)
        self.chunk_infos = planned(served.service, about(served.drives))
        self._foreign = planned(CatalogService(served.other), about(served.other.get_dataset("drives")))
        self.reading = list(self._reading())
        self.writing = [method.name for method in self._methods.values() if method.writes]
        known = {request.name for request in self.reading} | set(self.writing)
        if missing := sorted({method.name for method in self._methods.values()} - known):
            raise LookupError(f"there are no requests of {missing}")

    def _reading(self) -> Iterator[Request]:
        drives, notes = about(self._served.drives), entry_id_message(self.notes.id)
        one = {"id": "one"}
        latest = {"latest_at": {**_TICK, "at": 0}}
        window = {"range": {**_TICK, "index_range": {"start": 0, "end": 9}}}
        samples = {"timeline": "tick", "segments": [{"segment_id": one, "values": [0]}], "fill_mode": 2}
        paths = {"explicit": {"entities": [{"entity_path": {"path": "/at"}, **_EVERYTHING}]}}
        store = self._served.drives.store_reader()
        schemas = [{"sha256": bytes.fromhex(digest)} for digest in layers_of(self._served.drives, store).digests]
        words = part_of(pa.table({"words": ["one"]}))
        for name, fields in (
            ("Version", {}),
            ("WhoAmI", {}),
            ("DoBandwidthTest", {"num_bytes": 3 << 20}),
            ("WatchEvents", {"kinds": [{"entry": {}}]}),
            ("FindEntries", {}),
            ("FindEntries", {"filter": {"name": "drives", "entry_kinds": [1]}}),
            ("ReadDatasetEntry", {}),
            ("GetDatasetSchema", {}),
            ("GetSegmentTableSchema", {}),
            (
                "ScanSegmentTable",
                {"columns": ["rerun_segment_id"], "segment_id_filter": {"skip": {"segment_ids": ["one"]}}},
            ),
            ("GetDatasetManifestSchema", {}),
            ("ScanDatasetManifest", {"columns": ["rerun_segment_id", "rerun_layer_name"]}),
            ("GetSchemas", {"schema_ids": [*schemas, {"sha256": bytes(32)}]}),
            ("GetAssetsForSegment", {"segment_id": one}),
            ("GetSegmentProperties", {"segment_ids": [one]}),
            ("QueryDataset", {"select_all_entity_paths": True, "query": latest}),
            ("QueryDataset", {"entity_paths": [{"path": "/at"}], "segment_ids": [one], "query": window}),
            (
                "FindChunks",
                {"contents": _EVERYTHING, "range": {"timeline": "tick", "fill_mode": 1, "segments": _EVERYTHING}},
            ),
            ("FindChunks", {"contents": paths, "samples": samples}),
            ("FindChunks", {"contents": _EVERYTHING, "static": {"segments": {"explicit": {"ids": [one]}}}}),
            ("FetchChunks", {"chunk_infos": self.chunk_infos}),
            ("FetchChunks", {"chunk_infos": [compressed(part) for part in self.chunk_infos]}),
            ("GetRrdManifest", {"segment_id": one}),
            ("ListIndexes", {}),
            (
                "SearchDataset",
                {"column": _VALUE, "query": words, "properties": {"inverted": {}}},
            ),
            ("QueryTasks", {"ids": [{"id": "task_0000000000000000"}]}),
            ("QueryTasksOnCompletion", {"ids": [{"id": "task_0000000000000000"}], "timeout": {"seconds": 1}}),
        ):
            if f"/{SERVICE}/{name}" in self._methods:
                yield self.request(name, drives, fields)
        for name, field in (("ReadTableEntry", "id"), ("GetTableSchema", "table_id"), ("ScanTable", "table_id")):
            yield self.request(name, {}, {field: notes})

    def written(self, name: str) -> Request:
        """A request that writes, and can be sent once: entries and files are made for it."""
        self._made += 1
        new = f"new_{self._made}"
        served = self._served
        own: dict[str, str] = {}
        body: dict[str, Any] = {}
        place = ""
        if name in ("UpdateTableEntry", "WriteTable", "RegisterTable"):
            table = served.catalog.create_table(new, _ROWS.schema)
            table.append(_ROWS)
            own, body, place = about(table), {"id": entry_id_message(table.id)}, table.storage_url
        elif name not in ("CreateDatasetEntry", "CreateTableEntry", "CancelTasks") and not name.endswith(_OF_UPLOADS):
            dataset = served.new_dataset(new, "one", "two")
            own, body = about(dataset), {"id": entry_id_message(dataset.id)}
        upload, etag = self._upload_in_parts(f"project/{new}.parts") if "Multipart" in name else (b"", "")
        one = {"id": "one"}
        fields: dict[str, dict[str, Any]] = {
            "CreateDatasetEntry": {"name": new},
            "UpdateDatasetEntry": {**body, "dataset_details": {}},
            "UpdateEntry": {**body, "entry_details_update": {"name": f"{new}_renamed"}},
            "DeleteEntry": body,
            "CreateTableEntry": {"name": new, "schema": schema_message(_ROWS.schema)},
            "RegisterTable": {"name": f"{new}_again", "provider_details": at_place(place)},
            "UpdateTableEntry": {**body, "table_details": {}},
            "RegisterWithDataset": {
                "data_sources": [{"storage_url": (served.folder / "files" / "drives-two.rrd").as_uri(), "typ": 1}],
                "on_duplicate": 1,
            },
            "UnregisterFromDataset": {"segments_to_drop": [one], "layers_to_drop": ["base"]},
            "CreateIndex": {"config": {"properties": _WORDS, "column": _VALUE, "time_index": _TICK["index"]}},
            "DeleteIndexes": {"column": _VALUE},
            "CancelTasks": {"ids": [{"id": "task_0000000000000000"}]},
            "DoMaintenance": {"compact_fragments": True, "cleanup_before": {"seconds": 1}},
            "DoGlobalMaintenance": {},
            "SetSegmentProperties": {"segment_id": one, "properties": part_of(pa.table({"weather": [["rain"]]}))},
            "DeleteSegmentProperties": {"segments": [{"segment_id": one, "expected_revision": 0}]},
            "GetWriteAccessGrant": {"key": f"project/{new}.rrd", "size_bytes": 9, "supported_upload_methods": [1]},
            "GetMultipartUploadPartGrants": {"upload_token": upload, "part_numbers": [1, 2]},
            "CompleteMultipartUpload": {"upload_token": upload, "parts": [{"part_number": 1, "etag": etag}]},
            "AbortMultipartUpload": {"upload_token": upload},
        }
        if name == "WriteChunks":
            return self.request(name, own, *map(chunk_message, ("three", "four")))
        if name == "WriteTable":
            mode = 1 + self._made % 4
            halves = [{"dataframe_part": part_of(_ROWS[at : at + 1]), "insert_mode": mode} for at in (0, 1)]
            return self.request(name, own, *halves)
        return self.request(name, own, fields[name])

    def _upload_in_parts(self, key: str) -> tuple[bytes, str]:
        """The token of an upload in parts, and the etag of its first, which is there."""
        method = self._methods[f"/{SERVICE}/GetWriteAccessGrant"]
        request = method.request(key=key, supported_upload_methods=[2]).SerializeToString()
        reply = self._served.by_grpc(method, [request], self._served.bearing("write"))
        if reply.status:
            raise RuntimeError(f"an upload is answered with {reply.status}, {reply.text}")
        granted = method.response.FromString(reply.messages[0]).grant.multipart_request
        _, headers, _ = self._served.put(granted.part_requests[0].url, b"RRF2 a part", {})
        return granted.upload_token, headers["etag"]

    def hostile(self, mib: int) -> Iterator[Request]:
        """Requests that are well-formed, and refused; blocks expand to ``mib``, and to twice that."""
        yield from self._outside()
        yield from self._uploads()
        yield from self._not_there()
        drives = about(self._served.drives)
        for bomb in bombs(mib):
            yield self.request("FetchChunks", drives, {"chunk_infos": [bomb]}, statuses=frozenset({3, 8}))
        yield self.request("DoBandwidthTest", {}, {"num_bytes": 1 << 63}, statuses=frozenset({3}))

    def _outside(self) -> Iterator[Request]:
        """Files and tables that lie outside of the lake, by every way that leads there."""
        served, drives, refused = self._served, about(self._served.drives), frozenset({3, 7})
        rrd, root = "secret.rrd", served.folder
        places = (
            "file:///etc/passwd",
            "/etc/passwd",
            "file:///etc/../etc/passwd",
            "file://localhost/etc/passwd",
            (served.outside / rrd).as_uri(),
            f"{root}/../outside/{rrd}",
            f"file://{root}/%2e%2e/outside/{rrd}",
            f"{root}/link.rrd",
            f"{root}/links/{rrd}",
            f"{root}-other/{rrd}",
            "file:///proc/self/environ",
            "http://169.254.169.254/latest/meta-data",
            "s3://bucket/key.rrd",
            "\0",
            "",
        )
        for place in places:
            for prefix in (False, True):
                sources = [{"storage_url": place, "typ": 1, "prefix": prefix}]
                yield self.request("RegisterWithDataset", drives, {"data_sources": sources}, statuses=refused)
            details = at_place(place)
            yield self.request("RegisterTable", {}, {"name": "outside", "provider_details": details}, statuses=refused)
            made = {"name": "outside", "schema": schema_message(_ROWS.schema), "provider_details": details}
            yield self.request("CreateTableEntry", {}, made, statuses=refused)
        below = [{"storage_url": root.as_uri(), "typ": 1, "prefix": True}]  # in which are the links
        yield self.request("RegisterWithDataset", drives, {"data_sources": below}, statuses=refused)

    def _uploads(self) -> Iterator[Request]:
        """Uploads outside of their folder, of parts that are none, and by tokens that are none."""
        served = self._served
        for key in _KEYS:
            for ways in ([1], [2]):
                asked = {"key": key, "supported_upload_methods": ways}
                yield self.request("GetWriteAccessGrant", {}, asked, statuses=frozenset({3}))
        token, etag = self._upload_in_parts("project/hostile.parts")
        for parts in (
            [{"part_number": 1, "etag": "/../../../outside/secret.rrd"}],
            [{"part_number": 1, "etag": "0" * 64}],
            [{"part_number": 2, "etag": etag}],
            [{"part_number": 1, "etag": etag}] * 2,
            [],
        ):
            asked = {"upload_token": token, "parts": parts}
            yield self.request("CompleteMultipartUpload", {}, asked, statuses=frozenset({3}))
        for numbers in ([0], [257], [(1 << 32) - 1]):
            asked = {"upload_token": token, "part_numbers": numbers}
            yield self.request("GetMultipartUploadPartGrants", {}, asked, statuses=frozenset({3}))
        for name in ("GetMultipartUploadPartGrants", "CompleteMultipartUpload", "AbortMultipartUpload"):
            for wrong in (b"", token[:-1], token + b"x", served.tokens["write"].encode()[7:], b"\xff" * 99):
                yield self.request(name, {}, {"upload_token": wrong}, statuses=frozenset({16}))

    def _not_there(self) -> Iterator[Request]:
        """Chunks of others, and segments and entries that there are none of."""
        drives, not_there = about(self._served.drives), frozenset({3, 5})
        for infos in (self._foreign, *self._made_up()):
            yield self.request("FetchChunks", drives, {"chunk_infos": infos}, statuses=not_there)
        for segment in ("../../../outside/secret.rrd", "/etc/passwd", "three", "one\0", "x" * 100_000):
            named = {"segment_id": {"id": segment}}
            yield self.request("GetRrdManifest", drives, named, statuses=not_there)
        for id_ in ("0" * 32, "f" * 32, "zz", "../..", "x" * 9000):
            for name in ("GetDatasetSchema", "ScanSegmentTable", "GetRrdManifest", "QueryDataset"):
                yield self.request(name, {"x-rerun-entry-id": id_}, {}, statuses=not_there | {8})

    def _made_up(self) -> Iterator[list[Any]]:
        """Chunk keys that no server of this lake has made."""
        own = _keys(self.chunk_infos)[0]
        foreign = _keys(self._foreign)[0]
        for key in (
            own[:16] + foreign[16:],
            foreign[:16] + own[16:],
            own[:-4] + b"\xff" * 4,
            own[:-4] + b"\0\0\0\x09",
            own[:-1],
            own + b"\0",
            b"",
            b"../../../../../../../etc/passwd\0\0\0\0\0",
            f"{self._served.outside}/secret.rrd".encode(),
        ):
            yield [part_of(pa.table({"chunk_key": pa.array([key], pa.binary())}))]

    def request(
        self, name: str, headers: dict[str, str], *fields: Any, statuses: frozenset[int] = frozenset({0})
    ) -> Request:
        """A request with these fields."""
        kind = self._methods[f"/{SERVICE}/{name}"].request
        return Request(name, tuple(kind(**some).SerializeToString() for some in fields), headers, statuses)


def planned(service: CatalogService, headers: dict[str, str]) -> list[Any]:
    """The parts that name all chunks of a dataset."""
    method = service.methods[f"/{SERVICE}/QueryDataset"]
    request = method.request(select_all_entity_paths=True)
    found = [answer.SerializeToString() for answer in method.handler(request, Call(dict(headers)))]
    return [method.response.FromString(data).data for data in found]


def bombs(mib: int) -> Iterator[Any]:
    """Parts that are small, and expand to much, or say so: to more than may be, to as much, or to nothing of it."""
    zeros = lz4.block.compress(bytes(mib << 20), store_size=False)
    more = zeros + zeros
    for payload, size in (
        (zeros, mib << 20),
        (zeros, (mib + 9) << 20),
        (zeros, 100),
        (more, 2 * mib << 20),
        (more, mib << 20),
        (zeros[:1000], 1 << 17),
        (b"", 1 << 40),
        (zeros, (1 << 64) - 1),
        (zeros, 0),
    ):
        yield shared("DataframePart")(encoder_version=1, payload=payload, compression=2, uncompressed_size=size)
    yield part_of(pa.table({"chunk_key": _empty_keys(mib << 18)}))


def _empty_keys(number: int) -> pa.Array:
    offsets = pa.py_buffer(bytes(4 * (number + 1)))
    return pa.Array.from_buffers(pa.binary(), number, [None, offsets, pa.py_buffer(b"")])


def compressed(part: Any) -> Any:
    """The same part, as an LZ4 block."""
    data = lz4.block.compress(part.payload, store_size=False)
    return shared("DataframePart")(encoder_version=1, payload=data, compression=2, uncompressed_size=len(part.payload))


def chunk_message(segment: str) -> dict[str, Any]:
    """A chunk that is to become a segment."""
    chunk = Chunk.from_columns("/at", [TimeColumn("tick", sequence=[0])], [ComponentColumn("value", [segment])])
    batch = chunk.to_record_batch()
    named = {**(batch.schema.metadata or {}), b"rerun:segment_id": segment.encode()}
    payload, _ = encode_batch(batch.replace_schema_metadata(named), Compression.NONE)
    return {"chunk": {"encoder_version": 1, "payload": bytes(payload)}}


def at_place(place: str) -> dict[str, Any]:
    """The details of a table of Lance at a place."""
    return {"type_url": _LANCE, "value": cloud("LanceTable")(table_url=place).SerializeToString()}


def _keys(parts: list[Any]) -> list[bytes]:
    return [key for part in parts for key in rows_in(part)["chunk_key"].to_pylist()]
