"""A server that runs: whether it is alive and ready, how it stops, who calls, and tokens that are revoked meanwhile."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.catalog.server import (
    Access,
    CallLogs,
    CatalogService,
    LogOptions,
    ServiceOptions,
    TokenFolder,
    start,
    token,
)
from chunkmill.engine.catalog.server.protocol import SERVICE, entry_id_of
from chunkmill.engine.cli.commands import commands
from click.testing import CliRunner
from served import small_lake

grpc = pytest.importorskip("grpc")
pytest.importorskip("uvicorn")

SECRET = b"0123456789abcdef0123456789abcdef"


def asked(port: int, kind: str, path: str, data: bytes | None = None, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(kind, path, data, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace").strip()
    finally:
        connection.close()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# --- alive and ready


def test_it_is_ready_while_its_catalog_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody needs a token to ask; a reason names no place of the server."""
    monkeypatch.setattr("chunkmill.engine.catalog.server.web._READY_SECONDS", 0.0)
    service = CatalogService(small_lake(tmp_path))
    with start(service, access=Access(SECRET)) as server:
        assert asked(server.port, "GET", "/healthz") == (200, "alive")
        assert asked(server.port, "GET", "/readyz") == (200, "ready")
        assert asked(server.port, "HEAD", "/readyz")[0] == 200
        newest = max((tmp_path / "lake" / "catalog" / "versions").iterdir())
        whole = newest.read_bytes()
        newest.write_bytes(whole[:-9])
        status, reason = asked(server.port, "GET", "/readyz")
        assert (status, reason[:28]) == (503, "the catalog cannot be read: "), reason
        assert str(tmp_path) not in reason
        assert asked(server.port, "GET", "/healthz") == (200, "alive")
        newest.write_bytes(whole)
        assert asked(server.port, "GET", "/readyz") == (200, "ready")
        (tmp_path / "lake").rename(tmp_path / "away")
        assert asked(server.port, "GET", "/readyz") == (503, "the folder of the catalog is gone")
        (tmp_path / "away").rename(tmp_path / "lake")
        assert asked(server.port, "GET", "/readyz") == (200, "ready")


def test_a_catalog_that_does_not_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chunkmill.engine.catalog.server.web._READY_PATIENCE", 0.2)
    service = CatalogService(small_lake(tmp_path))
    held = threading.Event()
    monkeypatch.setattr(service.lake.catalog, "dataset_names", lambda: held.wait(10) and [])
    with start(service) as server:
        began = time.monotonic()
        assert asked(server.port, "GET", "/readyz") == (503, "the catalog has not answered for 0 s")
        assert time.monotonic() - began < 5
        held.set()


def slow(service: CatalogService, name: str, seconds: float) -> None:
    """Make a method take its time."""
    path = f"/{SERVICE}/{name}"
    method = service.methods[path]

    def handler(request: Any, call: Any) -> Any:
        time.sleep(seconds)
        return method.handler(request, call)

    service.methods = {**service.methods, path: replace(method, handler=handler)}


def test_running_calls_end_before_it_stops(tmp_path: Path) -> None:
    """Meanwhile it says that it is not ready, and takes no new calls; who waits for events is let go at once."""
    service = CatalogService(small_lake(tmp_path))
    slow(service, "FindEntries", 2)
    server = start(service)
    ended: dict[str, Any] = {}
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        running = channel.unary_unary(f"/{SERVICE}/FindEntries").future(b"", timeout=20)
        watching = channel.unary_stream(f"/{SERVICE}/WatchEvents")(b"", timeout=20)
        time.sleep(0.5)
        began = time.monotonic()
        stopping = threading.Thread(target=server.stop, args=(20,))
        stopping.start()
        time.sleep(0.2)
        assert asked(server.port, "GET", "/readyz") == (503, "the server is stopping")
        assert asked(server.port, "GET", "/healthz") == (200, "alive")
        web = {"content_type": "application/grpc-web"}
        assert "grpc-status:14" in asked(server.port, "POST", f"/{SERVICE}/Version", bytes(5), **web)[1]
        with pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary(f"/{SERVICE}/Version")(b"", timeout=20)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert running.result()
        with pytest.raises(grpc.RpcError) as ended["watch"]:
            list(watching)
        assert ended["watch"].value.code() is grpc.StatusCode.UNAVAILABLE
        stopping.join()
    assert 1 < time.monotonic() - began < 10
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))


def test_calls_that_take_too_long_are_cut(tmp_path: Path) -> None:
    service = CatalogService(small_lake(tmp_path))
    server = start(service)
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        method = service.methods[f"/{SERVICE}/DoBandwidthTest"]
        request = method.request(num_bytes=2**25).SerializeToString()
        stalled = channel.unary_stream(method.path)(request)  # nobody takes its answers
        time.sleep(0.5)
        began = time.monotonic()
        server.stop(0.5)
        assert time.monotonic() - began < 10
        with pytest.raises(grpc.RpcError):
            list(stalled)


# --- as a process


@contextmanager
def serving(lake: Path, log: Path, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A server as a process, and its port, once it is ready."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
    command = [sys.executable, "-c", "from chunkmill.engine.cli import main; main()", "serve", str(lake)]
    with (
        log.open("w") as sink,
        subprocess.Popen([*command, "--port", str(port), *words], stdout=sink, stderr=sink) as process,
    ):
        try:
            deadline = time.monotonic() + 60
            while True:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                try:
                    if asked(port, "GET", "/readyz")[0] == 200:
                        break
                except OSError:
                    time.sleep(0.1)
            yield process, port
        finally:
            if process.poll() is None:
                process.kill()


def made_token(lake: Path, *words: str) -> str:
    made = CliRunner().invoke(commands, ["serve", "token", str(lake), *words])
    assert made.exit_code == 0, made.output
    return made.output.strip()


def test_a_process_drains_on_SIGTERM(tmp_path: Path) -> None:  # noqa: N802
    """An upload that runs is taken whole, with a line in the audit log, and the process ends with 0 then."""
    small_lake(tmp_path)
    lake, log = tmp_path / "lake", tmp_path / "log"
    service = CatalogService(lake)
    data = (tmp_path / "files" / "one.rrd").read_bytes()
    with serving(lake, log, "--drain-seconds", "30") as (process, port):
        method = service.methods[f"/{SERVICE}/GetWriteAccessGrant"]
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            request = method.request(key="new.rrd", size_bytes=len(data)).SerializeToString()
            answer = method.response.FromString(channel.unary_unary(method.path)(request, timeout=20))
        with socket.create_connection(("127.0.0.1", port)) as line:
            head = f"PUT {answer.grant.http_request.url} HTTP/1.1\r\nhost: 127.0.0.1\r\n"
            line.sendall(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data[:100])
            time.sleep(0.5)
            process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + 20
            while asked(port, "GET", "/readyz") != (503, "the server is stopping"):
                assert time.monotonic() < deadline
            assert process.poll() is None
            line.sendall(data[100:])
            assert line.recv(100).startswith(b"HTTP/1.1 201")
        assert process.wait(20) == 0, log.read_text()
    assert (lake / "uploads" / "new.rrd").read_bytes() == data
    audit = lines(lake / ".serve" / "audit.jsonl")
    assert [(line["method"], line["status"], line["client"]) for line in audit] == [
        ("GetWriteAccessGrant", "OK", "127.0.0.1"),
        ("PUT /upload", "OK", "127.0.0.1"),
    ]
    assert audit[1]["changed"] == {"uploaded": "new.rrd"}


def test_a_token_that_is_revoked_is_refused_within_a_second(tmp_path: Path) -> None:
    """By a server that runs, for new calls, streams that run, and uploads that were granted."""
    small_lake(tmp_path)
    lake, log = tmp_path / "lake", tmp_path / "log"
    service = CatalogService(lake)
    bearer, other = made_token(lake, "--can", "write", "--subject", "gone"), made_token(lake)
    listed = CliRunner().invoke(commands, ["serve", "token", str(lake), "--list"]).output.splitlines()
    (id_,) = (line.partition(" ")[0] for line in listed if " gone " in line)
    with serving(lake, log, "--tokens", "--access-log", str(tmp_path / "access")) as (process, port):
        metadata = [("authorization", f"Bearer {bearer}")]
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary(f"/{SERVICE}/FindEntries")
            call(b"", metadata=metadata, timeout=20)
            watching = channel.unary_stream(f"/{SERVICE}/WatchEvents")(b"", metadata=metadata, timeout=20)
            method = service.methods[f"/{SERVICE}/GetWriteAccessGrant"]
            request = method.request(key="new.rrd").SerializeToString()
            raw = channel.unary_unary(method.path)(request, metadata=metadata, timeout=20)
            url = method.response.FromString(raw).grant.http_request.url
            time.sleep(0.3)
            revoked = CliRunner().invoke(commands, ["serve", "token", str(lake), "--revoke", id_])
            assert (revoked.exit_code, revoked.output) == (0, f"{id_} is revoked\n")
            began = time.monotonic()
            with pytest.raises(grpc.RpcError) as refused:
                call(b"", metadata=metadata, timeout=20)
            assert (refused.value.code(), refused.value.details()) == (
                grpc.StatusCode.UNAUTHENTICATED,
                "token was revoked",
            )
            assert asked(port, "PUT", url, b"x")[0] == 401
            assert asked(port, "GET", "/metrics", authorization=f"Bearer {bearer}")[0] == 401
            assert time.monotonic() - began < 1
            with pytest.raises(grpc.RpcError) as ended:
                list(watching)
            assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert time.monotonic() - began < 3
            call(b"", metadata=[("authorization", f"Bearer {other}")], timeout=20)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()
    again = CliRunner().invoke(commands, ["serve", "token", str(lake), "--list"]).output
    assert f"{id_}  revoked" in again
    text = (tmp_path / "access").read_text()
    assert bearer not in text and url.rpartition("/")[2] not in text
    calls = {(line["subject"], line["method"], line["status"]) for line in lines(tmp_path / "access")}
    assert {("gone", "FindEntries", "OK"), ("gone", "FindEntries", "UNAUTHENTICATED")} <= calls
    assert ("gone", "PUT /upload", "UNAUTHENTICATED") in calls and (None, "GET /readyz", "OK") in calls


# --- who calls


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_logs_have_the_addresses_of_clients(tmp_path: Path, host: str) -> None:
    """They call through a relay, by both protocols."""
    service = CatalogService(small_lake(tmp_path))
    logs = CallLogs.of(str(tmp_path / "lake"), LogOptions(access=str(tmp_path / "access")))
    try:
        server = start(service, host=host, logs=logs)
    except ValueError:
        pytest.skip(f"{host} is not an address of this machine")
    address = server.url.removeprefix("rerun+http://")
    with server, grpc.insecure_channel(address) as channel:
        channel.unary_unary(f"/{SERVICE}/Version")(b"", timeout=20)
        connection = http.client.HTTPConnection(host, server.port, timeout=20)
        for kind, path in (("GET", "/version"), ("GET", "/PLANTED?PLANTED"), ("BREW", "/x")):
            connection.request(kind, path)
            connection.getresponse().read()
        head = {"content-type": "application/grpc-web"}
        connection.request("POST", f"/{SERVICE}/WhoAmI", bytes(5), head)
        connection.getresponse().read()
        connection.close()
    found = [(line["method"], line["client"], line["status"]) for line in lines(tmp_path / "access")]
    assert found == [
        ("Version", host, "OK"),
        ("GET /version", host, "OK"),
        ("GET (other)", host, "NOT_FOUND"),
        ("(other) (other)", host, "UNIMPLEMENTED"),
        ("WhoAmI", host, "OK"),
    ]


def test_the_line_of_a_call_is_there_before_its_answer(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    service = CatalogService(CatalogClient(lake))
    method = service.methods[f"/{SERVICE}/CreateDatasetEntry"]
    access = Access(SECRET, tokens=TokenFolder.of(str(lake), None))
    with (
        start(service, access=access, logs=CallLogs.of(str(lake))) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        for number in range(20):
            subject = f"user-{number}"
            bearer = token(SECRET, permissions=["write"], seconds=60, hosts=[], subject=subject)
            metadata = [("authorization", f"Bearer {bearer}")]
            request = method.request(name=f"of-{number}").SerializeToString()
            raw = channel.unary_unary(method.path)(request, metadata=metadata, timeout=20)
            made = entry_id_of(method.response.FromString(raw).dataset.details.id)
            last = lines(lake / ".serve" / "audit.jsonl")[-1]
            assert (last["entry"], last["subject"]) == (str(made), subject)


def test_a_log_that_cannot_be_written_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    words = ["serve", str(tmp_path / "lake"), "--create", "--audit-log", str(tmp_path / "file" / "x")]
    found = CliRunner().invoke(commands, words)
    assert found.exit_code == 2
    assert "the log of calls cannot be written" in found.output and "by --audit-log" in found.output


def test_a_lake_that_is_only_read_is_audited_on_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: Any) -> int:
        raise PermissionError(30, "Read-only file system")

    lake = str(small_lake(tmp_path).url)
    monkeypatch.setattr("chunkmill.engine.catalog.server.call_log.LogFile._opened", refused)
    logs = CallLogs.of(lake)
    assert logs.audit.place == "stderr"
    assert any("the audit log goes to stderr" in text for text in caplog.messages)


# --- limits


def test_limits_are_options_whose_defaults_are_shown() -> None:
    text = " ".join(CliRunner().invoke(commands, ["serve", "start", "--help"]).output.split())
    for name, default in (
        ("handlers", "64"),
        ("calls", "512"),
        ("watchers", "256"),
        ("request-size", "256 MiB"),
        ("request-memory", "1280 MiB"),
        ("upload-size", "16 GiB"),
        ("stall-seconds", "45"),
        ("client-connections", "256"),
        ("drain-seconds", "25"),
        ("log-size", "64 MiB"),
        ("log-files", "10"),
    ):
        own = text.partition(f"--{name} ")[2].partition(" --")[0]
        assert f"default: {default}" in own.lower().replace("mib", "MiB").replace("gib", "GiB"), (name, own)


def test_limits_are_those_of_the_options(tmp_path: Path) -> None:
    options = ServiceOptions(most_request_bytes=1000, most_upload_bytes=10, most_calls=3, most_watchers=1)
    service = CatalogService(small_lake(tmp_path), options)
    with (
        start(service, threads=2, stall_seconds=1) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):

        def code(method_name: str, /, **fields: Any) -> str:
            method = service.methods[f"/{SERVICE}/{method_name}"]
            try:
                channel.unary_unary(method.path)(method.request(**fields).SerializeToString(), timeout=20)
            except grpc.RpcError as error:
                return str(error.code().name)
            return "OK"

        assert code("CreateDatasetEntry", name="x" * 2000) == "RESOURCE_EXHAUSTED"
        assert code("GetWriteAccessGrant", key="new.rrd", size_bytes=11) == "OUT_OF_RANGE"
        assert code("GetWriteAccessGrant", key="new.rrd", size_bytes=10) == "OK"
        with socket.create_connection(("127.0.0.1", server.port), timeout=15) as line:
            began = time.monotonic()
            head = f"POST /{SERVICE}/WhoAmI HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/grpc-web\r\n"
            line.sendall(f"{head}content-length: 10\r\n\r\n".encode())
            answer = b""
            while b"too slowly" not in answer:
                some = line.recv(4096)
                assert some
                answer += some
            assert 0.5 < time.monotonic() - began < 10
