"""What the port speaks beside gRPC: gRPC-web, the version, metrics, pages; and clients that stall."""

from __future__ import annotations

import base64
import contextlib
import gc
import http.client
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.catalog.server import Access, CatalogService, Web, relay, start, token
from chunkmill.engine.catalog.server.protocol import SERVICE
from chunkmill.engine.catalog.server.relay import speaks_grpc
from chunkmill.engine.catalog.server.web import Page
from served import small_lake

grpc = pytest.importorskip("grpc")
pytest.importorskip("uvicorn")

SECRET = b"0123456789abcdef0123456789abcdef"
WEB = {"content-type": "application/grpc-web+proto", "x-grpc-web": "1"}
PAGES = {"/": Page("text/html", b"<title>page</title>"), "/a.js": Page("text/javascript", b"1")}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> CatalogService:
    return CatalogService(small_lake(tmp_path_factory.mktemp("front")))


@pytest.fixture(scope="module")
def port(service: CatalogService) -> Iterator[int]:
    with start(service, web=Web(pages=PAGES)) as server:
        yield server.port


@pytest.fixture(scope="module")
def guarded(service: CatalogService) -> Iterator[int]:
    with start(service, access=Access(SECRET)) as server:
        yield server.port


def asked(port: int, kind: str, path: str, data: bytes = b"", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(kind, path, data, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def frames(data: bytes) -> list[tuple[int, bytes]]:
    found = []
    while data:
        length = int.from_bytes(data[1:5], "big")
        found.append((data[0], data[5 : 5 + length]))
        data = data[5 + length :]
    return found


def called(port: int, service: CatalogService, name: str, headers: dict[str, str] | None = None, **fields: Any) -> Any:
    """The messages and the trailers of a call by gRPC-web."""
    method = service.methods[f"/{SERVICE}/{name}"]
    request = method.request(**fields).SerializeToString()
    body = b"\0" + len(request).to_bytes(4, "big") + request
    status, _, answer = asked(port, "POST", method.path, body, **WEB, **(headers or {}))
    assert status == 200
    *messages, (flag, trailers) = frames(answer)
    assert flag == 0x80
    assert all(flag == 0 for flag, _ in messages)
    return [method.response.FromString(data) for _, data in messages], trailers.decode()


def test_gRPC_web_answers_as_gRPC_does(port: int, service: CatalogService) -> None:  # noqa: N802
    (found,), trailers = called(port, service, "FindEntries")
    method = service.methods[f"/{SERVICE}/FindEntries"]
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert found == method.response.FromString(channel.unary_unary(method.path)(b"", timeout=20))
    assert trailers == "grpc-status:0\r\n"
    noise, trailers = called(port, service, "DoBandwidthTest", num_bytes=3_000_000)
    assert [len(one.payload) for one in noise] == [2**20, 2**20, 3_000_000 - 2**21]
    assert trailers == "grpc-status:0\r\n"
    none, trailers = called(port, service, "DoBandwidthTest", num_bytes=2**40)
    assert not none
    assert trailers.startswith("grpc-status:3\r\ngrpc-message:num_bytes")


def test_base64_serves_where_bytes_cannot(port: int, service: CatalogService) -> None:
    method = service.methods[f"/{SERVICE}/WhoAmI"]
    body = base64.b64encode(bytes(5))
    status, headers, answer = asked(port, "POST", method.path, body, content_type="application/grpc-web-text")
    assert (status, headers["content-type"]) == (200, "application/grpc-web-text")
    # each frame is padded by itself
    found = b"".join(base64.b64decode(answer[at : at + 4]) for at in range(0, len(answer), 4))
    assert frames(found)[-1] == (0x80, b"grpc-status:0\r\n")


@pytest.mark.parametrize(("body", "code"), [(b"", 3), (b"\x00\xff\xff\xff\xff", 3), (b"\0\0\0\0\x02\xff\xff", 3)])
def test_bad_frames_are_told(port: int, body: bytes, code: int) -> None:
    status, _, answer = asked(port, "POST", f"/{SERVICE}/FindEntries", body, **WEB)
    assert status == 200
    assert frames(answer)[-1][1].startswith(f"grpc-status:{code}\r\n".encode())


def test_what_is_not_there(port: int) -> None:
    assert frames(asked(port, "POST", f"/{SERVICE}/Nothing", bytes(5), **WEB)[2])[0][1].startswith(b"grpc-status:12")
    assert asked(port, "POST", "/x", b"{}", content_type="application/json")[0] == 415
    assert asked(port, "GET", "/nothing")[0] == 404
    assert asked(port, "PUT", "/x")[0] == 405


def test_pages_of_other_origins_call_only_where_they_may(port: int) -> None:
    path = f"/{SERVICE}/WhoAmI"
    wanted = {"access_control_request_headers": "content-type,x-grpc-web", "access_control_request_method": "POST"}
    status, headers, _ = asked(port, "OPTIONS", path, origin="http://localhost:9090", **wanted)
    assert (status, headers["access-control-allow-origin"]) == (200, "http://localhost:9090")
    assert headers["access-control-allow-headers"] == "content-type,x-grpc-web"
    assert asked(port, "OPTIONS", path, origin="https://elsewhere.example", **wanted)[0] == 403
    assert asked(port, "POST", path, bytes(5), origin="http://localhost.example", **WEB)[0] == 403
    assert asked(port, "POST", path, bytes(5), origin=f"http://127.0.0.1:{port}", **WEB)[0] == 200
    assert asked(port, "GET", "/version", host=f"elsewhere.example:{port}")[0] == 403


def test_other_origins_are_named(service: CatalogService) -> None:
    with start(service, web=Web(origins=["https://*.example.org"])) as server:
        assert asked(server.port, "OPTIONS", "/", origin="https://view.example.org")[0] == 200
        assert asked(server.port, "OPTIONS", "/", origin="https://view.example.org.evil")[0] == 403


def test_the_version_and_the_page(port: int) -> None:
    status, _, text = asked(port, "GET", "/version")
    assert (status, text[:10]) == (200, b"chunkmill ")
    status, headers, _ = asked(port, "GET", "/")
    assert (status, headers["location"]) == (302, f"/?url=rerun%2Bhttp%3A%2F%2F127.0.0.1%3A{port}")
    assert asked(port, "GET", headers["location"])[2] == b"<title>page</title>"
    assert asked(port, "GET", "/a.js")[1]["content-type"] == "text/javascript"


def test_metrics_count_calls(port: int, service: CatalogService) -> None:
    called(port, service, "Version")
    status, headers, text = asked(port, "GET", "/metrics")
    assert (status, headers["content-type"][:10]) == (200, "text/plain")
    assert b'chunkmill_serve_calls_total{caller="anyone",method="Version",status="OK"} 1.0' in text
    assert b"chunkmill_serve_running_calls 0.0" in text


def test_tokens_are_wanted_here_too(guarded: int, service: CatalogService) -> None:
    for method in service.methods.values():
        answer = asked(guarded, "POST", method.path, bytes(5), **WEB)[2]
        code = 12 if method.kind.name == "UPLOAD" else 16
        assert frames(answer)[-1][1].startswith(f"grpc-status:{code}\r\n".encode()), method.name
    assert asked(guarded, "GET", "/metrics")[0] == 401
    bearer = token(SECRET, can_write=False, seconds=60, hosts=[], subject="tests")
    held = {"authorization": f"Bearer {bearer}"}
    assert asked(guarded, "GET", "/metrics", **held)[0] == 200
    assert called(guarded, service, "FindEntries", held)[1] == "grpc-status:0\r\n"
    assert called(guarded, service, "DeleteEntry", held)[1].startswith("grpc-status:7\r\n")


def test_TLS_serves_both(service: CatalogService, tmp_path: Path) -> None:  # noqa: N802
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, *names]
    try:
        subprocess.run(made, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl")
    context = ssl.create_default_context(cafile=str(cert))
    context.set_alpn_protocols(["h2", "http/1.1"])  # as browsers do
    with start(service, tls=(cert.read_bytes(), key.read_bytes())) as server:
        connection = http.client.HTTPSConnection("localhost", server.port, context=context, timeout=20)
        connection.request("GET", "/version")
        assert connection.getresponse().read().startswith(b"chunkmill ")
        connection.close()
        trusted = grpc.ssl_channel_credentials(cert.read_bytes())
        with grpc.secure_channel(f"localhost:{server.port}", trusted) as channel:
            assert channel.unary_unary(f"/{SERVICE}/FindEntries")(b"", timeout=20)


@pytest.mark.heavy
def test_a_client_that_reads_nothing_is_let_go(service: CatalogService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "STALL_SECONDS", 1.0)
    path = f"/{SERVICE}/DoBandwidthTest"
    request = service.methods[path].request(num_bytes=2**25).SerializeToString()
    with start(service, threads=1) as server, grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stalled = channel.unary_stream(path)(request)
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/grpc-web\r\n"
        body = b"\0" + len(request).to_bytes(4, "big") + request
        time.sleep(0.5)
        # the only thread is free again for a call that waits for it
        assert channel.unary_unary(f"/{SERVICE}/WhoAmI")(b"", timeout=20)
        with pytest.raises(grpc.RpcError):
            list(stalled)
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            with socket.create_connection(("127.0.0.1", server.port)) as half:
                half.settimeout(20)
                half.sendall(head.encode())
                assert half.recv(10) == b""
        text = asked(server.port, "GET", "/metrics")[2].decode()
    ended = next(line for line in text.splitlines() if line.startswith("chunkmill_serve_stalled_total"))
    assert float(ended.split()[1]) >= 2


def test_a_stream_to_a_browser_ends_in_order(service: CatalogService) -> None:
    path = f"/{SERVICE}/WatchEvents"
    server = start(service)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    asks = bytes([0x0A, 0x02, 0x0A, 0x00])  # of entries
    connection.request("POST", path, b"\0" + len(asks).to_bytes(4, "big") + asks, WEB)
    answer = connection.getresponse()
    began = time.monotonic()
    server.stop(0.2)
    assert time.monotonic() - began < 10
    assert frames(answer.read())[-1] == (0x80, b"grpc-status:14\r\ngrpc-message:the server is stopping\r\n")
    connection.close()


def test_a_connection_is_known_by_how_it_begins() -> None:
    assert speaks_grpc(b"PRI * HTTP", is_tls=False) is True
    assert speaks_grpc(b"P", is_tls=False) is None
    assert speaks_grpc(b"PUT /", is_tls=False) is False
    for offered, expected in ((["h2"], True), (["h2", "http/1.1"], False), ([], False)):
        context = ssl.create_default_context()
        if offered:
            context.set_alpn_protocols(offered)
        sent = ssl.MemoryBIO()
        with pytest.raises(ssl.SSLWantReadError):
            context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
        hello = sent.read()
        assert speaks_grpc(hello, is_tls=True) is expected
        assert {speaks_grpc(hello[:cut], is_tls=True) for cut in range(len(hello))} == {None}
    assert speaks_grpc(b"\x16\x03\x01\x00\x05hello", is_tls=True) is False


def test_calls_that_are_refused_leave_their_line_to_others(guarded: int, service: CatalogService) -> None:
    """More of them than a connection may have open at once."""
    method = service.methods[f"/{SERVICE}/WhoAmI"]
    headers = [("authorization", f"Bearer {token(SECRET, can_write=False, seconds=60, hosts=[], subject='tests')}")]
    gc.disable()  # which would let go of them now and then
    try:
        with grpc.insecure_channel(f"127.0.0.1:{guarded}") as channel:
            call = channel.unary_unary(method.path)
            codes = {call.with_call(b"", metadata=headers)[1].code()}
            for _ in range(300):
                with pytest.raises(grpc.RpcError) as told:
                    call(b"")
                codes.add(told.value.code())
            call(b"", metadata=headers)
    finally:
        gc.enable()
    assert codes == {grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED}


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
HEADERS = b"\0\x40\0\1\0\0\0\0\1"  # the head of a block of 16 KiB that goes on
HTTP = b"HTTP/1.1\r\nhost: 127.0.0.1\r\n"


@pytest.mark.parametrize(
    ("first", "drip"),
    [
        (PREFACE, b""),
        (b"PRI", b""),
        (b"", PREFACE),
        (PREFACE, SETTINGS[:3] + b"\4" + bytes(100)),
        (PREFACE + SETTINGS + HEADERS, bytes(1000)),
        (PREFACE + SETTINGS, b"\0\0\1\1\0\0\0\0\1\x82" + b"\0\0\0\x09\0\0\0\0\1" * 100),
        (b"GET /version " + HTTP + b"x: ", b"y" * 1000),
        (b"G", b""),
        (b"GET /version " + HTTP + b"\r\nGET /v", b"y" * 1000),
        (b"POST /nothing " + HTTP + b"content-length: 5000\r\n\r\n", b"y" * 1000),
        (
            f"POST /{SERVICE}/WhoAmI ".encode()
            + HTTP
            + b"content-type: application/grpc-web\r\ncontent-length: 5000\r\n\r\n",
            b"y" * 1000,
        ),
    ],
)
@pytest.mark.heavy
def test_a_head_that_never_ends_is_not_waited_for(
    service: CatalogService, monkeypatch: pytest.MonkeyPatch, first: bytes, drip: bytes
) -> None:
    monkeypatch.setattr(relay, "HEADER_SECONDS", 1.0)
    monkeypatch.setattr(relay, "STALL_SECONDS", 2.0)
    with start(service) as server, socket.create_connection(("127.0.0.1", server.port)) as line:
        line.sendall(first)
        line.settimeout(0.1)
        began, rest = time.monotonic(), iter(drip)
        while time.monotonic() - began < 100:
            try:
                if not line.recv(65536):
                    break
            except TimeoutError:
                if (byte := next(rest, None)) is not None:
                    line.sendall(bytes([byte]))
            except ConnectionError:
                break
        assert 0.5 < time.monotonic() - began < 90
        assert asked(server.port, "GET", "/version")[0] == 200


def test_heads_that_come_in_pieces_are_whole_in_the_end(service: CatalogService) -> None:
    """As they do on slow lines, each in its time."""

    def carry(source: socket.socket, target: socket.socket, size: int) -> None:
        with contextlib.suppress(OSError):
            while some := source.recv(65536):
                for at in range(0, len(some), size):
                    target.sendall(some[at : at + size])

    def take() -> None:
        client, _ = listener.accept()
        with client, socket.create_connection(("127.0.0.1", server.port)) as line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=carry, args=(line, client, 65536), daemon=True).start()
            carry(client, line, 1)

    with start(service) as server, socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=take, daemon=True).start()
        with grpc.insecure_channel(f"127.0.0.1:{listener.getsockname()[1]}") as channel:
            assert channel.unary_unary(f"/{SERVICE}/FindEntries")(b"", timeout=20)


def test_one_client_has_so_many_connections(service: CatalogService, caplog: pytest.LogCaptureFixture) -> None:
    with start(service, most_of_client=5) as server:
        lines = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(5)]
        assert asked_or_none(server.port) is None
        lines.pop().close()
        deadline = time.monotonic() + 10
        while asked_or_none(server.port) != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for line in lines:
            line.close()
    assert any(
        "a connection of 127.0.0.1 is refused: this client has 5 of 5 connections" in text for text in caplog.messages
    )


def asked_or_none(port: int) -> int | None:
    try:
        return asked(port, "GET", "/version")[0]
    except (OSError, http.client.HTTPException):
        return None


def test_addresses_of_one_client() -> None:
    assert relay.client_of("192.0.2.7") == relay.client_of("::ffff:192.0.2.7") == "192.0.2.7"
    assert relay.client_of("2001:db8::1") == relay.client_of("2001:db8::ffff:1") != relay.client_of("2001:db8:0:1::1")
    assert relay.client_of("fe80::1%eth0") == relay.client_of("fe80::2")
