"""Uploads through the server: granted, whole or not there at all, and registered like any other file."""

from __future__ import annotations

import collections
import http.client
import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.catalog.server import (
    Access,
    CatalogService,
    ProtocolError,
    ServiceOptions,
    Status,
    start,
    token,
)
from chunkmill.engine.catalog.server import uploads as upload_calls
from chunkmill.engine.errors import AlreadyExistsError, UsageError
from served import Caller, recording, small_lake

pytest.importorskip("grpc")
pytest.importorskip("uvicorn")

MOST = 8 * 2**20
SECRET = b"0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> CatalogClient:
    return small_lake(tmp_path_factory.mktemp("uploads"))


@pytest.fixture(scope="module")
def call(lake: CatalogClient) -> Caller:
    made = Caller(lake)
    made.service = CatalogService(lake, ServiceOptions(most_upload_bytes=MOST))
    return made


@pytest.fixture(scope="module")
def port(call: Caller) -> Iterator[int]:
    with start(call.service) as server:
        yield server.port


def uploads(lake: CatalogClient) -> Path:
    return Path(lake.url.removeprefix("rerun+").removeprefix("file://"), "uploads")


def left_in(lake: CatalogClient) -> list[str]:
    """The drafts that are there, once the server had a moment to remove those of the last request."""
    for _ in range(100):
        found = [path.name for path in uploads(lake).glob(".*")]
        if not found:
            break
        time.sleep(0.05)
    return found


def path_of(call: Caller, key: str, **fields: Any) -> str:
    path: str = call("GetWriteAccessGrant", key=key, **fields).grant.http_request.url
    return path


def put(port: int, path: str, data: Any, **headers: str) -> tuple[int, str]:
    status, text, _ = put_part(port, path, data, **headers)
    return status, text


def put_part(port: int, path: str, data: Any, **headers: str) -> tuple[int, str, str]:
    """The status, the text and the ETag of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("PUT", path, data, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers.get("etag", "")
    finally:
        connection.close()


def test_a_grant_says_where_and_how(call: Caller, lake: CatalogClient, port: int) -> None:
    given = call("GetWriteAccessGrant", key="project/a b.bin", size_bytes=MOST, supported_upload_methods=[1])
    request = given.grant.http_request
    assert given.storage_url == (uploads(lake) / "project" / "a b.bin").as_uri()
    assert (request.method, request.same_origin, request.url[:8]) == ("PUT", True, "/upload/")
    assert 0 < given.grant.expires_at.seconds - time.time() <= 900
    data = b"RRF2" + os.urandom(MOST - 4)
    assert put(port, request.url, data)[0] == 201
    assert (uploads(lake) / "project" / "a b.bin").read_bytes() == data
    # a grant serves once: what was uploaded may be registered by now
    assert put(port, request.url, bytes(MOST))[0] == 412
    assert (uploads(lake) / "project" / "a b.bin").read_bytes() == data
    for taken in ("project/a b.bin", "project", "project/a b.bin/more"):
        with pytest.raises(AlreadyExistsError, match="object already exists"):
            path_of(call, taken)
    assert left_in(lake) == []


def test_a_file_comes_in_parts(
    call: Caller, lake: CatalogClient, port: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(upload_calls, "_PART_BYTES", 1 << 10)
    data = recording(tmp_path, "parted").read_bytes()
    pieces = [data[i : i + 1024] for i in range(0, len(data), 1024)]
    given = call("GetWriteAccessGrant", key="parted.rrd", size_bytes=len(data), supported_upload_methods=[2])
    parts = given.grant.multipart_request
    assert (parts.part_size_bytes, len(parts.part_requests)) == (1024, min(16, len(pieces)))
    assert len(pieces) > 2
    token = {"upload_token": parts.upload_token}
    more = call("GetMultipartUploadPartGrants", **token, part_numbers=range(1, len(pieces) + 1)).requests
    etags = {}
    for number in reversed(range(len(pieces))):  # in any order, and again
        put_part(port, more[number].url, b"x" * 100)
        for _ in range(2):
            status, _, etags[number + 1] = put_part(port, more[number].url, pieces[number])
            assert status == 201
    told = [{"part_number": number, "etag": etags[number]} for number in sorted(etags)]
    for wrong, text in (
        (told[:-1], "bytes, not"),
        (told[1:], "numbered from 1"),
        ([*told, told[0]], "named twice"),
        ([{**told[0], "etag": "0" * 64}, *told[1:]], "part 1 was not uploaded"),
        ([{**told[0], "etag": "../x"}, *told[1:]], "not an etag"),
        ([], "numbered from 1"),
    ):
        with pytest.raises((ProtocolError, UsageError), match=text):
            call("CompleteMultipartUpload", **token, parts=wrong)
    assert not (uploads(lake) / "parted.rrd").exists()
    call("CompleteMultipartUpload", **token, parts=told)
    assert (uploads(lake) / "parted.rrd").read_bytes() == data
    assert left_in(lake) == []
    with pytest.raises(AlreadyExistsError):
        call("GetWriteAccessGrant", key="parted.rrd", supported_upload_methods=[2])
    dataset = lake.create_dataset("parted")
    assert dataset.register(given.storage_url).wait().segment_ids == ["parted"]


def test_an_upload_in_parts_is_bounded_and_leaves_nothing(
    call: Caller, lake: CatalogClient, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_calls, "_PART_BYTES", 5 << 20)
    parts = call("GetWriteAccessGrant", key="never", supported_upload_methods=[2]).grant.multipart_request
    (first,) = parts.part_requests
    token = {"upload_token": parts.upload_token}
    (second,) = call("GetMultipartUploadPartGrants", **token, part_numbers=[2]).requests
    assert put(port, first.url, bytes((5 << 20) + 1)) == (413, "a part has more than 5 MiB\n")
    assert put(port, first.url, iter([bytes(5 << 20), b"1"]))[0] == 413
    for numbers in ([0], [3]):  # two hold the 8 MiB that a file may have
        with pytest.raises(ProtocolError, match="from 1 to 2"):
            call("GetMultipartUploadPartGrants", **token, part_numbers=numbers)
    told = [
        {"part_number": number, "etag": put_part(port, request.url, bytes(5 << 20))[2]}
        for number, request in ((1, first), (2, second))
    ]
    with pytest.raises(UsageError, match="more than the limit of 8388608"):
        call("CompleteMultipartUpload", **token, parts=told)
    for wrong in (first.url.removeprefix("/upload/").encode(), b"", b"\xff"):
        for name in ("GetMultipartUploadPartGrants", "CompleteMultipartUpload", "AbortMultipartUpload"):
            with pytest.raises(ProtocolError) as caught:
                call(name, upload_token=wrong)
            assert caught.value.code is Status.UNAUTHENTICATED
    assert put(port, f"/upload/{parts.upload_token.decode()}", b"1")[0] == 401
    call("AbortMultipartUpload", **token)
    assert left_in(lake) == []
    assert not (uploads(lake) / "never").exists()


@pytest.mark.parametrize(
    "key",
    ["", ".", "..", "../x.rrd", "/etc/x", "a/../../x", "a//b", "a/.b", "a\0b", "é.rrd", "a/", "x" * 201, "a/" * 256],
)
def test_keys_stay_in_the_folder(call: Caller, key: str) -> None:
    with pytest.raises(UsageError, match="not a key of an upload"):
        path_of(call, key)


def test_uploads_are_bounded(call: Caller, lake: CatalogClient, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProtocolError, match="more than 8 MiB") as told:
        path_of(call, "large", size_bytes=MOST + 1)
    assert told.value.code is Status.OUT_OF_RANGE
    with pytest.raises(ProtocolError, match="by a single request, or in parts"):
        path_of(call, "large", supported_upload_methods=[3])
    path = path_of(call, "large")
    pieces = [bytes(2**20)] * 9  # without a length, in chunks
    assert put(port, path, iter(pieces)) == (413, "an upload has more than 8 MiB\n")
    assert put(port, path_of(call, "large", size_bytes=7), b"eight by")[0] == 400
    assert put(port, path_of(call, "large", size_bytes=7), iter([b"eight by"]))[0] == 400
    full = collections.namedtuple("full", "total used free")(1, 1, 2**20)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: full)
        status, text = put(port, path, b"abc")
        assert status == 507
        assert "do not fit" in text
    assert not (uploads(lake) / "large").exists()
    assert left_in(lake) == []


def test_a_lake_without_entries_takes_uploads(tmp_path: Path) -> None:
    lake = CatalogClient(tmp_path / "not" / "there")
    call = Caller(lake)
    with start(call.service) as server:
        assert put(server.port, path_of(call, "first.rrd"), b"RRF2abc")[0] == 201
    assert (uploads(lake) / "first.rrd").read_bytes() == b"RRF2abc"


def test_a_cut_upload_leaves_nothing(call: Caller, lake: CatalogClient, port: int) -> None:
    path = path_of(call, "cut.rrd")
    with socket.create_connection(("127.0.0.1", port)) as connection:
        head = f"PUT {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 6000000\r\n\r\n"
        connection.sendall(head.encode() + bytes(5_000_000))
        for _ in range(200):
            drafts = [file.stat().st_size for file in uploads(lake).glob(".*")]
            if any(drafts):
                break
            time.sleep(0.02)
        assert any(drafts)
        assert not (uploads(lake) / "cut.rrd").exists()
    assert left_in(lake) == []
    assert not (uploads(lake) / "cut.rrd").exists()


def test_grants_are_of_this_server_and_end(
    call: Caller, lake: CatalogClient, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = path_of(call, "granted")
    bearer = token(SECRET, can_write=True, seconds=60, hosts=[], subject="tests")
    other = path_of(Caller(lake), "granted")
    for wrong in ("/upload/", "/upload/x", f"/upload/{bearer}", other, path[:-3] + "abc", path + "/../x"):
        assert put(port, wrong, b"1")[0] == 401, wrong
    monkeypatch.setattr(upload_calls, "_VALID_SECONDS", -60)
    assert put(port, path_of(call, "granted"), b"1") == (401, "token has expired\n")
    assert not (uploads(lake) / "granted").exists()


def test_a_server_that_is_read_only_takes_nothing(call: Caller, lake: CatalogClient) -> None:
    with start(call.service, access=Access(read_only=True)) as server:
        assert put(server.port, path_of(call, "late"), b"1") == (403, "this server is read-only\n")
    assert not (uploads(lake) / "late").exists()


def test_the_sdk_uploads_and_registers(call: Caller, lake: CatalogClient, port: int, tmp_path: Path) -> None:
    rerun_catalog = pytest.importorskip("rerun.catalog")
    client = rerun_catalog.CatalogClient(f"rerun+http://127.0.0.1:{port}")
    if not hasattr(client, "stage"):
        pytest.skip("this release of the SDK does not upload")
    place = client.stage(recording(tmp_path, "sent"), key="project/sent.rrd")
    dataset = client.create_dataset("sent")
    assert dataset.register([place]).wait().segment_ids == ["sent"]
    assert rows_of(lake, "sent") == 3
    with pytest.raises(Exception, match="already exists"):
        client.stage(b"more", key="project/sent.rrd")


def rows_of(lake: CatalogClient, name: str) -> int:
    dataset = lake.get_dataset(name)
    index = next(iter(dataset.schema().index_columns())).name
    rows: int = dataset.reader(index).to_arrow_table().num_rows
    return rows


def test_upkeep_removes_old_drafts(lake: CatalogClient) -> None:
    uploads(lake).mkdir(exist_ok=True)
    old, new, kept = (uploads(lake) / name for name in (".a.draft", ".b.draft", "old.rrd"))
    for path, age in ((old, 8), (new, 6), (kept, 30)):
        path.write_bytes(b"x")
        os.utime(path, (time.time() - age * 86400,) * 2)
    lake.do_global_maintenance()
    assert [path.exists() for path in (old, new, kept)] == [False, True, True]
    new.unlink()
