"""One port for two servers: the relay detects the protocol of each connection, and connects it to the right server.

Bytes are passed on unchanged, also encrypted ones. Clients of gRPC begin with the preface of HTTP/2, or offer only
``h2`` in TLS; browsers and all others get the HTTP/1.1 server.
"""

from __future__ import annotations

import ipaddress
import logging
import secrets
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote

LOG: Final = logging.getLogger(__name__)

STALL_SECONDS: Final = 45.0
"""If a client reads nothing of its waiting data for this time, its connection ends."""
HEADER_SECONDS: Final = 10.0
"""The time limit for a client's preface, and for each whole header, even if bytes keep arriving."""
MOST_OF_CLIENT: Final = 256
"""The most simultaneous connections of one client."""
_MOST_CONNECTIONS: Final = 4000
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HELLO: Final = 0x16
_ALPN: Final = 16
_MOST_LOOKED_AT: Final = 16 * 1024 + 5
_FRAME_HEAD: Final = 9
_HEADERS, _SETTINGS, _CONTINUATION, _DATA = 1, 4, 9, 0
_END_HEADERS: Final = 4
_LARGEST_SETTINGS: Final = 1024
_BUFFER: Final = 256 * 1024
_ROUNDS: Final = 8
_LOOK: Final = 1.0
_ANSWER_SECONDS: Final = 5.0
"""Extra time for the web server to report a stalled request before the relay ends its connection."""
_FROM: Final = "from-"
"""The prefix of the names of a relay's own sockets. The names end with the client's address, for the servers."""


def speaks_grpc(data: bytes, *, is_tls: bool) -> bool | None:
    """Return whether a connection with these first bytes is gRPC, or None if more bytes are needed."""
    if is_tls:
        return _offers_h2_alone(data)
    if data.startswith(_PREFACE[:3]):
        return True
    return None if _PREFACE.startswith(data) else False


def greets(data: bytes) -> bool:
    """Return whether unencrypted bytes are a complete HTTP/2 greeting (preface, settings), or cannot be one."""
    if not _PREFACE.startswith(data[: len(_PREFACE)]):
        return True
    head = data[len(_PREFACE) : len(_PREFACE) + _FRAME_HEAD]
    if len(head) < _FRAME_HEAD:
        return False
    size = int.from_bytes(head[:3], "big")
    return head[3] != _SETTINGS or size > _LARGEST_SETTINGS or len(data) >= len(_PREFACE) + _FRAME_HEAD + size


def client_of(address: str) -> str:
    """The client of an address: all addresses of an IPv6 /64 network count as one client."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv4Address):
        return address
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.ip_network((ip, 64), strict=False))


def address_in(peer: str) -> str:
    """The client's address in the name of a relay's socket; other names stay unchanged."""
    name = unquote(peer).removeprefix("unix-abstract:").lstrip("\0")
    return name.split("-", 3)[3] if name.startswith(_FROM) and name.count("-") >= 3 else name


def _offers_h2_alone(data: bytes) -> bool | None:
    if data[:1] != bytes([_HELLO]):
        return False if data else None
    if len(data) < 5:
        return None
    end = 5 + int.from_bytes(data[3:5], "big")
    if len(data) < end:
        return None if len(data) < _MOST_LOOKED_AT else False
    names = _names_of_protocols(data[5:end])
    return b"h2" in names and b"http/1.1" not in names


def _names_of_protocols(hello: bytes) -> list[bytes]:
    """The protocols that a first TLS message offers; empty for other messages."""
    try:
        at = 4 + 2 + 32
        at += 1 + hello[at]
        at += 2 + int.from_bytes(hello[at : at + 2], "big")
        at += 1 + hello[at]
        at += 2
        while at + 4 <= len(hello):
            kind, length = int.from_bytes(hello[at : at + 2], "big"), int.from_bytes(hello[at + 2 : at + 4], "big")
            if kind == _ALPN:
                return _listed(hello[at + 6 : at + 4 + length])
            at += 4 + length
    except IndexError:
        pass
    return []


def _listed(data: bytes) -> list[bytes]:
    names, at = [], 0
    while at < len(data):
        names.append(data[at + 1 : at + 1 + data[at]])
        at += 1 + data[at]
    return names


class _Frames:
    """Parses unencrypted HTTP/2 frames. An incomplete header or frame head began to arrive at ``since``."""

    def __init__(self) -> None:
        self.since: float | None = None
        self._left = len(_PREFACE)
        self._head = b""
        self._is_part = False

    def follow(self, data: bytes | memoryview) -> None:
        """Parse the next bytes."""
        at, size = 0, len(data)
        while at < size:
            if self._left:
                step = min(self._left, size - at)
                self._left -= step
            else:
                step = min(_FRAME_HEAD - len(self._head), size - at)
                self._head += bytes(data[at : at + step])
                self.since = self.since or time.monotonic()
                if len(self._head) == _FRAME_HEAD:
                    self._begin()
            at += step
            if not self._left and not self._head and not self._is_part:
                self.since = None

    def _begin(self) -> None:
        kind, flags = self._head[3], self._head[4]
        self._left, self._head = int.from_bytes(self._head[:3], "big"), b""
        self._is_part = kind in (_HEADERS, _CONTINUATION) and not flags & _END_HEADERS
        if kind == _DATA:  # the handler waits for the content, without a limit here
            self.since = None


class _Line:
    """One direction of a connection: ``waiting`` has the bytes that were read but not written yet."""

    def __init__(self, source: socket.socket, target: socket.socket | None) -> None:
        self.source = source
        self.target = target
        self.waiting: bytes | memoryview = b""
        self.at_end = False
        self.is_over = False
        self.moved = time.monotonic()
        self.frames: _Frames | None = None

    def move(self, buffer: memoryview, most: int) -> None:
        """Move the bytes that can be moved now, in at most ``most`` pieces, to give other connections a turn.

        Raises ``OSError`` if one side has closed.
        """
        rounds = 0
        while not self.is_over:
            if self.waiting:
                if self.target is None or not self._write():
                    break
                continue
            if self.at_end:
                if self.target is not None:
                    self.target.shutdown(socket.SHUT_WR)
                self.is_over = True
                break
            if rounds == most:
                break
            rounds += 1
            try:
                count = self.source.recv_into(buffer)
            except BlockingIOError:
                break
            self.moved = time.monotonic()
            self.at_end = count == 0
            self.waiting = buffer[:count]
            if self.frames is not None:
                self.frames.follow(self.waiting)
            if not self._write():
                break
            if 0 < count < len(buffer) // 2:
                break  # probably all; another read costs as much as a wait for more
        if isinstance(self.waiting, memoryview):
            self.waiting = bytes(self.waiting)  # all connections share the buffer

    def _write(self) -> bool:
        """Write the waiting bytes, and return whether all were written."""
        assert self.target is not None
        if not self.waiting:
            return True
        try:
            count = self.target.send(self.waiting)
        except BlockingIOError:
            return False
        self.moved = time.monotonic()
        self.waiting = self.waiting[count:]
        return not self.waiting


class _Connection:
    """A client and its server."""

    def __init__(self, client: socket.socket, name: str, address: str) -> None:
        self.client = client
        self.name = name
        self.address = address
        self.server: socket.socket | None = None
        self.inward = _Line(client, None)
        self.outward: _Line | None = None
        self.began = time.monotonic()
        self.is_grpc = False
        self.watched: dict[socket.socket, int] = {client: selectors.EVENT_READ}
        """The registered events of each socket."""

    @property
    def lines(self) -> tuple[_Line, ...]:
        return (self.inward,) if self.outward is None else (self.inward, self.outward)

    def join(self, server: socket.socket, *, is_grpc: bool, is_tls: bool) -> None:
        self.server = self.inward.target = server
        self.outward = _Line(server, self.client)
        self.is_grpc = is_grpc
        self.watched[server] = 0
        if is_grpc and not is_tls:
            self.inward.frames = _Frames()
            self.inward.frames.follow(self.inward.waiting)

    def wanted(self, end: socket.socket) -> int:
        """The events to wait for at one socket."""
        events = 0
        for line in self.lines:
            if line.source is end and not line.waiting and not line.at_end:
                events |= selectors.EVENT_READ
            if line.target is end and line.waiting:
                events |= selectors.EVENT_WRITE
        return events

    def is_stalled(self, now: float, seconds: float) -> bool:
        if self.outward is None:
            return now - self.began > HEADER_SECONDS
        frames = self.inward.frames
        if frames is not None and frames.since is not None and now - frames.since > HEADER_SECONDS:
            return True
        waiting = [now - line.moved for line in self.lines if line.waiting]
        if waiting:
            return max(waiting) > seconds
        # a stalled HTTP/1.1 request: even an error of the web server would have begun by now
        begun = self.inward.moved > self.outward.moved
        return begun and not self.is_grpc and now - self.inward.moved > seconds + _ANSWER_SECONDS


class Relay:
    """Connects clients of a listening socket to the servers at two addresses, in its own thread."""

    def __init__(
        self,
        listener: socket.socket,
        grpc: str,
        web: str,
        *,
        is_tls: bool,
        stalled: Callable[[], None],
        most_of_client: int = MOST_OF_CLIENT,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        self._listener = listener
        self._addresses = {True: grpc, False: web}
        self._is_tls = is_tls
        self._stalled = stalled
        self._stall_seconds = stall_seconds
        self._selector = selectors.DefaultSelector()
        self._connections: set[_Connection] = set()
        self._of_clients: Counter[str] = Counter()
        self._most_of_client = most_of_client
        self._rounds = _ROUNDS
        self._buffer = memoryview(bytearray(_BUFFER))
        self._wake, self._woken = socket.socketpair()
        self._mark = secrets.token_hex(8)
        self._count = 0
        self._is_listening = True
        self._is_closed = False
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="chunkmill-serve-relay", daemon=True)
        self._thread.start()

    def refuse(self) -> None:
        """Accept no more connections; open connections continue."""
        self._is_listening = False
        self._wake.send(b"\0")

    def close(self) -> None:
        """End all connections, and wait for their end."""
        self._is_closed = True
        self._wake.send(b"\0")
        self._thread.join()
        self._wake.close()

    def _run(self) -> None:
        looked = time.monotonic()
        try:
            while not self._is_closed:
                ready = self._selector.select(_LOOK)
                self._rounds = max(_ROUNDS // max(len(ready), 1), 1)  # else a small call waits for all large ones
                for key, _ in ready:
                    self._serve(key)
                if not self._is_listening and self._listener.fileno() >= 0:
                    self._selector.unregister(self._listener)
                    self._listener.close()
                now = time.monotonic()
                if now - looked >= _LOOK:
                    looked = now
                    for connection in [each for each in self._connections if each.is_stalled(now, self._stall_seconds)]:
                        self._stalled()
                        self._drop(connection)
        finally:
            for connection in list(self._connections):
                self._drop(connection)
            self._selector.close()
            self._listener.close()
            self._woken.close()

    def _serve(self, key: selectors.SelectorKey) -> None:
        if key.fileobj is self._listener:
            self._accept()
        elif key.fileobj is self._woken:
            self._woken.recv(64)
        elif key.data in self._connections:
            try:
                self._go_on(key.data, key.fileobj)
            except OSError:
                self._drop(key.data)

    def _accept(self) -> None:
        try:
            client, address = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            LOG.warning("a connection could not be accepted: %s", error.strerror)
            time.sleep(0.05)  # without free handles, it would be ready again at once
            return
        name = client_of(address[0])
        of_client = self._of_clients[name]
        if len(self._connections) >= _MOST_CONNECTIONS or of_client >= self._most_of_client:
            LOG.warning(
                "a connection of %s is refused: this client has %d of %d connections",
                name,
                of_client,
                len(self._connections),
            )
            client.close()
            return
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(client, name, address[0].partition("%")[0])
        self._connections.add(connection)
        self._of_clients[name] += 1
        self._selector.register(client, selectors.EVENT_READ, connection)

    def _go_on(self, connection: _Connection, end: Any) -> None:
        """Move bytes after one socket of a connection is ready."""
        if connection.server is None:
            self._decide(connection)
            return
        for line in connection.lines:
            if line.target is end if line.waiting else line.source is end:
                line.move(self._buffer, self._rounds)
        if all(line.is_over for line in connection.lines):
            self._drop(connection)
        else:
            self._watch(connection)

    def _decide(self, connection: _Connection) -> None:
        """Read until the server of a connection is known, and connect them."""
        line = connection.inward
        try:
            data = connection.client.recv(_MOST_LOOKED_AT)
        except BlockingIOError:
            return
        line.waiting = bytes(line.waiting) + data
        is_grpc = speaks_grpc(line.waiting, is_tls=self._is_tls)
        if not data and not is_grpc:
            self._drop(connection)
        elif is_grpc is not None and (not data or not is_grpc or self._is_tls or greets(line.waiting)):
            line.at_end = not data
            server = socket.socket(socket.AF_UNIX)
            connection.join(server, is_grpc=is_grpc, is_tls=self._is_tls)
            self._count += 1
            server.bind(f"\0{_FROM}{self._mark}-{self._count:x}-{connection.address}")
            server.connect("\0" + self._addresses[is_grpc])
            server.setblocking(False)
            self._go_on(connection, server)

    def _watch(self, connection: _Connection) -> None:
        """Register the next events of each socket."""
        for end, before in connection.watched.items():
            wanted = connection.wanted(end)
            if wanted == before:
                continue
            if not before:
                self._selector.register(end, wanted, connection)
            elif not wanted:
                self._selector.unregister(end)
            else:
                self._selector.modify(end, wanted, connection)
            connection.watched[end] = wanted

    def _drop(self, connection: _Connection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self._of_clients[connection.name] -= 1
            if not self._of_clients[connection.name]:
                del self._of_clients[connection.name]
        for end, watched in connection.watched.items():
            if watched:
                self._selector.unregister(end)
            end.close()
