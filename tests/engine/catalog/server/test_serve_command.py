"""``chunkmill serve``: tokens on every call, the port, signals, TLS, and bytes that are no calls."""

from __future__ import annotations

import io
import logging
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.catalog.server import Access, CatalogService, Kind, secret_of, start, token
from chunkmill.engine.catalog.server.protocol import SERVICE, ProtocolError
from chunkmill.engine.catalog.server.reception import Reception
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.cli.serving import JoinedLines
from chunkmill.engine.errors import UsageError
from chunkmill.engine.ingest import logging_to
from click.testing import CliRunner
from served import small_lake

grpc = pytest.importorskip("grpc")
jwt = pytest.importorskip("jwt")

SECRET = b"0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> CatalogService:
    return CatalogService(small_lake(tmp_path_factory.mktemp("served")))


@pytest.fixture(scope="module")
def address(service: CatalogService) -> Iterator[str]:
    with start(service, access=Access(SECRET)) as server:
        yield f"127.0.0.1:{server.port}"


def written(can_write: bool = False, seconds: float = 60) -> str:
    return token(SECRET, can_write=can_write, seconds=seconds, hosts=["127.0.0.1"], subject="tests")


def status(address: str, method: Any, bearer: str | None, data: bytes = b"") -> tuple[str, str]:
    """The code and text of a call with these bytes."""
    metadata = [] if bearer is None else [("authorization", f"Bearer {bearer}")]
    with grpc.insecure_channel(address) as channel:
        try:
            if method.kind is Kind.STREAM:
                list(channel.unary_stream(method.path)(data, metadata=metadata, timeout=5))  # one has no end
            elif method.kind is Kind.UPLOAD:
                channel.stream_unary(method.path)(iter([data]), metadata=metadata, timeout=20)
            else:
                channel.unary_unary(method.path)(data, metadata=metadata, timeout=20)
        except grpc.RpcError as error:
            return error.code().name, error.details()
    return "OK", ""


def test_every_call_wants_a_token(service: CatalogService, address: str) -> None:
    assert len(service.methods) > 20
    for method in service.methods.values():
        assert status(address, method, None)[0] == "UNAUTHENTICATED", method.name


def test_every_call_that_writes_wants_the_permission(service: CatalogService, address: str) -> None:
    names = {method.name for method in service.methods.values() if method.writes}
    assert {"CreateDatasetEntry", "DeleteEntry", "RegisterWithDataset", "UnregisterFromDataset", "WriteTable"} <= names
    for method in service.methods.values():
        code, _ = status(address, method, written())
        assert (code == "PERMISSION_DENIED") == method.writes, (method.name, code)


@pytest.mark.parametrize(
    ("bearer", "text"),
    [
        (written(seconds=-60), "token has expired"),
        (token(b"x" * 32, can_write=True, seconds=60, hosts=[], subject="x"), "invalid token signature"),
        (jwt.encode({"aud": "redap"}, "x" * 64, algorithm="HS512"), "unsupported signature algorithm"),
        (jwt.encode({"aud": "redap"}, None, algorithm="none"), "unsupported signature algorithm"),
        (jwt.encode({"aud": "redap"}, SECRET, algorithm="HS256"), "invalid token"),
        ("nonsense", "malformed token"),
        ("x" * 9000, "malformed token"),
        (".".join(["e30"] * 3), "unsupported signature algorithm"),
    ],
)
def test_a_token_that_is_none_of_ours_is_refused(service: CatalogService, address: str, bearer: str, text: str) -> None:
    method = service.methods[f"/{SERVICE}/WhoAmI"]
    assert status(address, method, bearer) == ("UNAUTHENTICATED", text)


def test_a_caller_is_told_what_it_may_do(service: CatalogService, address: str) -> None:
    method = service.methods[f"/{SERVICE}/WhoAmI"]
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary(method.path, response_deserializer=method.response.FromString)
        reader = call(b"", metadata=[("authorization", f"Bearer {written()}")])
        writer = call(b"", metadata=[("authorization", f"Bearer {written(can_write=True)}")])
        with pytest.raises(grpc.RpcError):
            call(b"")
    assert (reader.can_read, reader.can_write, writer.can_write) == (True, False, True)
    writes = {"catalog:write:register:file", "catalog:write:staging"}
    assert set(reader.capabilities.capabilities) == {"dataset:find_chunks"}
    assert set(writer.capabilities.capabilities) == {"dataset:find_chunks", *writes}


def test_a_server_that_is_read_only_refuses_what_writes(service: CatalogService) -> None:
    with start(service, access=Access(read_only=True)) as server:
        found = status(f"127.0.0.1:{server.port}", service.methods[f"/{SERVICE}/CreateDatasetEntry"], None)
    assert found == ("PERMISSION_DENIED", "this server is read-only")


def test_a_log_in_text_has_the_cause_of_what_failed(service: CatalogService) -> None:
    def broken(request: Any, call: Any) -> Any:
        raise KeyError("lost")

    method = replace(service.methods[f"/{SERVICE}/Version"], handler=broken)
    log = io.StringIO()
    with logging_to(log), pytest.raises(ProtocolError, match="its log has the cause"):
        list(Reception(Access()).run(method, iter([b""]), {}))
    assert re.search(r"error: Version failed: KeyError: 'lost' at test_serve_command.py:\d+$", log.getvalue().strip())


def test_a_second_server_is_told_who_has_the_port(service: CatalogService, address: str) -> None:
    with pytest.raises(UsageError, match=rf"is taken by process {os.getpid()} \("):
        start(service, int(address.rpartition(":")[2]))


def test_bytes_that_are_no_calls_leave_the_server_alive(service: CatalogService, address: str) -> None:
    host, _, port = address.rpartition(":")
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    hostile = [
        b"",
        random.Random(1).randbytes(4096),
        b"GET / HTTP/1.1\r\n\r\n",
        preface,
        preface + b"\xff\xff\xff\x00" * 9,
    ]
    for data in hostile:
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(data)
    method = service.methods[f"/{SERVICE}/FindEntries"]
    codes = {
        status(address, method, written(), random.Random(length).randbytes(length))[0] for length in (1, 7, 100, 5000)
    }
    assert codes <= {"INVALID_ARGUMENT", "OK"}
    assert status(address, method, written())[0] == "OK"


def test_a_line_is_encrypted(service: CatalogService, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, *names]
    try:
        subprocess.run(made, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl")
    method = service.methods[f"/{SERVICE}/FindEntries"]
    with start(service, tls=(cert.read_bytes(), key.read_bytes())) as server:
        assert server.url == f"rerun+https://127.0.0.1:{server.port}"
        trusted = grpc.ssl_channel_credentials(cert.read_bytes())
        with grpc.secure_channel(f"localhost:{server.port}", trusted) as channel:
            call = channel.unary_unary(method.path, response_deserializer=method.response.FromString)
            assert {entry.name for entry in call(b"", timeout=20).entries} >= {"drives"}
        assert status(f"127.0.0.1:{server.port}", method, None)[0] == "UNAVAILABLE"


def test_a_secret_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    with pytest.raises(UsageError, match="cannot be read"):
        secret_of(path, make=False)
    assert secret_of(path, make=True) == secret_of(path, make=True)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [found.name for found in tmp_path.iterdir()] == ["secret"]
    path.chmod(0o644)
    with pytest.raises(UsageError, match="other users may read"):
        secret_of(path, make=True)
    path.chmod(0o600)
    path.write_text("short")
    with pytest.raises(UsageError, match="shorter than"):
        secret_of(path, make=True)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--insecure", "--tokens"], "exclude each other"),
        (["--tls-cert", __file__], "must be given together"),
    ],
)
def test_options_that_contradict_each_other(tmp_path: Path, words: list[str], text: str) -> None:
    found = CliRunner().invoke(commands, ["serve", str(tmp_path / "lake"), *words])
    assert found.exit_code == 2
    assert text in found.output


@pytest.mark.parametrize("name", ["none", "empty", "files"])
def test_a_place_without_a_lake_is_refused_and_left_as_it_is(tmp_path: Path, name: str) -> None:
    small_lake(tmp_path)
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.rglob("*"))
    found = CliRunner().invoke(commands, ["serve", str(tmp_path / name), "--tokens", "--port", "0"])
    assert found.exit_code == 1 and "there is no catalog here" in found.output and "--create" in found.output
    assert sorted(tmp_path.rglob("*")) == before


def test_lines_that_repeat_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    log, logger, now = io.StringIO(), logging.getLogger("chunkmill.engine.catalog.server.relay"), 1000.0
    monkeypatch.setattr(time, "time", lambda: now)
    monkeypatch.setattr(time, "time_ns", lambda: int(now * 1e9))
    with logging_to(log) as lines:
        lines.addFilter(JoinedLines())
        for number in range(500):
            logger.warning("a connection of 192.0.2.%d is refused: it has %d", number % 250, number)
            logger.warning("another line")
        now += 11
        logger.warning("a connection of 192.0.2.1 is refused: it has 3")
    text = log.getvalue().splitlines()
    assert [line.partition("warning: ")[2] for line in text] == [
        "a connection of 192.0.2.0 is refused: it has 0",
        "another line",
        "a connection of 192.0.2.1 is refused: it has 3 (499 more like it since 1970-01-01T00:16:40.000Z)",
    ]


def test_a_budget_that_is_no_size_is_refused(tmp_path: Path) -> None:
    found = CliRunner().invoke(commands, ["serve", str(tmp_path), "--request-memory", "much"])
    assert found.exit_code == 2
    assert "'much' is not a size" in found.output


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.mark.quick
def test_the_command_serves_with_tokens_and_ends_on_a_signal(tmp_path: Path) -> None:
    small_lake(tmp_path)
    lake, port = tmp_path / "lake", free_port()
    serve = [sys.executable, "-c", "from chunkmill.engine.cli import main; main()", "serve", str(lake)]
    made = CliRunner().invoke(commands, ["serve", "token", str(lake), "--expires", "1h"])
    assert made.exit_code == 0, made.output
    claims = jwt.decode(made.output.strip(), options={"verify_signature": False})
    assert claims["allowed_hosts"] == ["127.0.0.1", "localhost"]
    log = tmp_path / "log"
    with log.open("w") as sink, subprocess.Popen([*serve, "--port", str(port), "--host", "0.0.0.0"], stderr=sink) as it:
        try:
            deadline = time.monotonic() + 60
            while f"is served at rerun+http://{socket.gethostname()}:{port}" not in log.read_text():
                assert it.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            method = CatalogService(lake).methods[f"/{SERVICE}/FindEntries"]
            assert status(f"127.0.0.1:{port}", method, None)[0] == "UNAUTHENTICATED"
            assert status(f"127.0.0.1:{port}", method, made.output.strip())[0] == "OK"
            it.send_signal(signal.SIGTERM)
            assert it.wait(150) == 0, log.read_text()
        finally:
            if it.poll() is None:
                it.kill()
    assert "sent unencrypted" in log.read_text()
    assert "; callers need a token\n" in log.read_text()


def test_a_lake_that_does_not_exist_is_served_with_a_flag(tmp_path: Path) -> None:
    lake, log, method = tmp_path / "lake", tmp_path / "log", "FindEntries"
    words = ["serve", str(lake), "--create", "--port", str(port := free_port())]
    serve = [sys.executable, "-c", "from chunkmill.engine.cli import main; main()", *words]
    with log.open("w") as sink, subprocess.Popen(serve, stderr=sink) as it:
        try:
            deadline = time.monotonic() + 60
            while "changes are logged in" not in log.read_text():
                assert it.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            found = status(f"127.0.0.1:{port}", CatalogService(lake).methods[f"/{SERVICE}/{method}"], None)
            assert found[0] == "OK"
            it.send_signal(signal.SIGTERM)
            assert it.wait(150) == 0, log.read_text()
        finally:
            if it.poll() is None:
                it.kill()
    assert "everyone on this machine can read and write (--tokens requires tokens)" in log.read_text()
    assert "has no datasets yet" in log.read_text()
