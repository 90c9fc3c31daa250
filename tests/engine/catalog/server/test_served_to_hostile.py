"""Requests that nobody in good faith makes: each is answered with a status, and the lake stays as it is."""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.catalog.server import Call, CatalogService, Kind, Method, ServiceOptions, Status, protocol_error
from chunkmill.engine.catalog.server.protocol import SERVICE, part_of
from google.protobuf.message import DecodeError
from served import Caller, small_lake

MUTANTS = 400
READING = ("QueryDataset", "FindChunks", "FetchChunks", "GetRrdManifest", "ScanSegmentTable", "ScanDatasetManifest")


def digest_of(folder: Path) -> str:
    """A digest of all files below a folder, by their names and contents."""
    found = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        found.update(os.fsencode(path) + path.read_bytes())
    return found.hexdigest()


def status_of(method: Method, data: bytes, call: Call) -> Status:
    """The status of a request of these bytes."""
    try:
        request = method.request.FromString(data)
        found = method.handler(iter([request]) if method.kind is Kind.UPLOAD else request, call)
        for message in found if method.kind is Kind.STREAM else [found]:
            message.SerializeToString()
    except DecodeError:
        return Status.INVALID_ARGUMENT
    except Exception as error:
        told = protocol_error(error)
        if told.code is Status.INTERNAL:
            raise
        return told.code
    return Status.OK


def valid_requests(call: Caller) -> dict[str, bytes]:
    everything: dict[str, Any] = {"all": {}}
    planned = call("QueryDataset", select_all_entity_paths=True)
    fields: dict[str, dict[str, Any]] = {
        "QueryDataset": {"select_all_entity_paths": True, "query": {"latest_at": {"at": 3}}},
        "FindChunks": {"contents": everything, "range": {"timeline": "tick", "fill_mode": 1, "segments": everything}},
        "FetchChunks": {"chunk_infos": [response.data for response in planned]},
        "GetRrdManifest": {"segment_id": {"id": "one"}},
        "ScanSegmentTable": {"columns": ["rerun_segment_id"]},
        "ScanDatasetManifest": {"columns": ["rerun_segment_id"]},
    }
    methods = call.service.methods
    return {n: methods[f"/{SERVICE}/{n}"].request(**given).SerializeToString() for n, given in fields.items()}


def mutated(data: bytes, chance: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(found) + 1)
        kind = chance.randrange(3)
        if kind == 0:
            found[at : at + chance.randint(0, 4)] = chance.randbytes(chance.randint(0, 4))
        elif kind == 1 and at < len(found):
            found[at] ^= 1 << chance.randrange(8)
        else:
            del found[at : at + chance.randint(1, 40)]
    return bytes(found)


@pytest.mark.parametrize("name", READING)
def test_mutated_requests_are_answered(tmp_path: Path, name: str) -> None:
    catalog = small_lake(tmp_path)
    call = Caller(catalog, catalog.get_dataset("drives"))
    data, method = valid_requests(call)[name], call.service.methods[f"/{SERVICE}/{name}"]
    before = digest_of(tmp_path)
    chance = random.Random(name)
    for _ in range(MUTANTS):
        status_of(method, mutated(data, chance), Call(call.headers))
    assert digest_of(tmp_path) == before
    assert status_of(method, data, Call(call.headers)) in (Status.OK, Status.INVALID_ARGUMENT)


def test_random_bytes_are_answered_by_every_call(tmp_path: Path) -> None:
    catalog = small_lake(tmp_path)
    service = CatalogService(catalog, ServiceOptions(readable=[str(tmp_path / "files")]))
    headers = {"x-rerun-entry-id": str(catalog.get_dataset("drives").id)}
    chance = random.Random(1)
    for method in service.methods.values():
        if method.name in ("DoGlobalMaintenance", "DoMaintenance", "DeleteEntry", "WatchEvents"):
            continue
        for size in (1, 7, 60, 400):
            status_of(method, chance.randbytes(size), Call(headers))
    assert sorted(catalog.get_dataset("drives").segment_ids()) == ["one", "three", "two"]


@pytest.mark.parametrize("id_", ["", "zz", "../..", "0" * 32, "f" * 33, "é" * 32])
def test_headers_that_name_no_entry_are_refused(tmp_path: Path, id_: str) -> None:
    service = CatalogService(small_lake(tmp_path))
    method = service.methods[f"/{SERVICE}/GetDatasetSchema"]
    told = status_of(method, b"", Call({"x-rerun-entry-id": id_}))
    assert told in (Status.INVALID_ARGUMENT, Status.NOT_FOUND)


def test_a_block_that_expands_without_end_is_refused(tmp_path: Path) -> None:
    catalog = CatalogClient(tmp_path / "lake")
    method = CatalogService(catalog).methods[f"/{SERVICE}/FetchChunks"]
    part = part_of(pa.table({"chunk_key": pa.array([b"x" * 36] * 1000, pa.binary())}))
    for size in (1 << 63, 1 << 31, 0):
        part.uncompressed_size = size
        assert status_of(method, method.request(chunk_infos=[part]).SerializeToString(), Call()) in (
            Status.INVALID_ARGUMENT,
            Status.NOT_FOUND,
        )
