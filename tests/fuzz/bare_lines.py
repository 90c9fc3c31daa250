"""Bytes for bare connections to a server of gRPC, gRPC-web and HTTP, and what may come back for them."""

from __future__ import annotations

import random
import socket
from typing import Final, NamedTuple

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_PATHS: Final = (
    "/../../etc/passwd",
    "/%2e%2e/%2e%2e/etc/passwd",
    "//etc/passwd",
    "/..\\..\\etc\\passwd",
    "/upload/../../etc/passwd",
    "/.serve-secret",
    "/.serve/secret",
    "/catalog/versions/00000001.json",
    "/?url=file:///etc/passwd",
)
_CALL: Final = "/rerun.cloud.v1alpha1.RerunCloudService/WhoAmI"


class Line(NamedTuple):
    """What is sent, whether the sender ends it then or waits for an answer, and what is spoken."""

    what: str
    data: bytes
    ends: bool = True
    speaks: str = "HTTP"


def lines_that_lie(draw: random.Random, token: str) -> Line:
    """Bytes that are no request, or one that lies about its length or place."""
    path, length = draw.choice(_PATHS), draw.choice((2**63, 10**30, -1, 17))
    host = b"host: localhost\r\n"
    many = b"".join(b"x-%d: %s\r\n" % (n, b"y" * 900) for n in range(draw.choice((90, 2000))))
    claimed = draw.choice((2**32 - 1, 2**31, 257 << 20))
    return draw.choice(
        (
            Line("noise", draw.choice(b"\0\x01\xff\x80").to_bytes(1, "big") + draw.randbytes(draw.randrange(300))),
            Line("a greeting of TLS", b"\x16\x03\x01" + draw.randbytes(draw.randrange(300))),
            Line("a path", f"GET {path} HTTP/1.1\r\n".encode() + host + b"connection: close\r\n\r\n"),
            Line(
                "an upload",
                f"PUT /upload{path} HTTP/1.1\r\ncontent-length: {length}\r\n".encode() + host + b"\r\n" + b"x" * 17,
            ),
            Line(
                "a call", f"POST {_CALL} HTTP/1.1\r\ncontent-length: {length}\r\n".encode() + host + b"\r\n\0\0\0\0\0"
            ),
            Line("pieces", b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n" + host + b"\r\nFFFFFFFFFFFFFFFFF\r\nx"),
            Line("many headers", b"GET / HTTP/1.1\r\n" + host + many + b"\r\n"),
            Line("no version", b"GET /\r\n\r\n"),
            Line("noise in HTTP/2", PREFACE + draw.randbytes(draw.randrange(300)), speaks="HTTP/2"),
            Line("a large frame", PREFACE + frame(_SETTINGS, 0, 0, b"") + b"\xff\xff\xff" + bytes(6), speaks="HTTP/2"),
            Line("a large message", called(token, claimed), ends=False, speaks="HTTP/2"),
            Line("many streams", PREFACE + frame(_SETTINGS, 0, 0, b"") + _streams(token, 600), speaks="HTTP/2"),
        )
    )


def frame(kind: int, flags: int, stream: int, data: bytes) -> bytes:
    """A frame of HTTP/2."""
    return len(data).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + data


def called(token: str, claimed: int) -> bytes:
    """A call by gRPC whose one message says that it has so many bytes, and has ten."""
    message = b"\0" + claimed.to_bytes(4, "big") + bytes(10)
    return PREFACE + frame(_SETTINGS, 0, 0, b"") + _head(token, 1, _END_HEADERS) + frame(_DATA, _END_STREAM, 1, message)


def _streams(token: str, number: int) -> bytes:
    """Streams that are opened and reset at once."""
    ids = range(1, 2 * number, 2)
    return b"".join(_head(token, id_, _END_HEADERS) + frame(_RESET, 0, id_, bytes(3) + b"\x08") for id_ in ids)


def _head(token: str, stream: int, flags: int) -> bytes:
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": _CALL,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
        "authorization": token,
    }
    block = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields.items())
    return frame(_HEADERS, flags, stream, block)


def _text(text: str) -> bytes:
    """A text of HPACK, as it is."""
    size, data = len(text), text.encode()
    if size < 127:
        return bytes([size]) + data
    found, rest = bytearray(b"\x7f"), size - 127
    while rest > 127:
        found.append(rest & 127 | 128)
        rest >>= 7
    return bytes(found) + bytes([rest]) + data


def frames_in(data: bytes) -> list[tuple[int, int, int]]:
    """The kinds, flags and streams of the whole frames in bytes."""
    found, at = [], 0
    while at + 9 <= len(data):
        size = int.from_bytes(data[at : at + 3], "big")
        found.append((data[at + 3], data[at + 4], int.from_bytes(data[at + 5 : at + 9], "big")))
        at += 9 + size
    return found


def replies_in(reply: bytes, line: Line) -> str:
    """What is wrong with a reply; empty where nothing is."""
    if line.speaks == "HTTP/2":
        kinds = frames_in(reply)
        if not kinds or kinds[0][0] != _SETTINGS:
            return "is not answered with settings"
        if line.what == "a large message":
            ended = any(
                kind == _RESET or (kind == _HEADERS and flags & _END_STREAM) for kind, flags, id_ in kinds if id_ == 1
            )
            return "" if ended else "has no status"
        return ""
    if line.what in ("noise", "a greeting of TLS", "many headers") and not reply:
        return ""  # ended at once: an answer would be lost with what was not read
    if not reply.startswith(b"HTTP/1."):
        return "is not answered"
    status = int(reply[9:12])
    if line.what == "a call" and status == 200:
        return "" if b"grpc-status:" in reply else "has no status"
    return "" if 400 <= status < 500 else f"is answered with {status}"


def pings(port: int, number: int) -> str:
    """Send pings on a connection that does nothing else; what is wrong."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as line:
        line.sendall(PREFACE + frame(_SETTINGS, 0, 0, b"") + frame(_SETTINGS, _ACK, 0, b""))
        found = b""
        for at in range(number):
            line.sendall(frame(_PING, 0, 0, at.to_bytes(8, "big")))
            while sum(kind == _PING and flags == _ACK for kind, flags, _ in frames_in(found)) <= at:
                some = line.recv(65536)
                found += some
                if not some or any(kind == _GOAWAY for kind, _, _ in frames_in(found)):
                    return f"after {at} pings an idle connection is ended"
    return ""
