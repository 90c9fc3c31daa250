"""One port for two servers: each connection is looked at, and then carried to the one that speaks its protocol.

Bytes are handed on as they come, encrypted ones too: clients of gRPC begin with the preface of HTTP/2, or offer ``h2``
alone when they begin TLS; browsers and all others get the server of HTTP/1.1.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Final

LOG: Final = logging.getLogger(__name__)

STALL_SECONDS: Final = 45.0
"""A client that takes nothing of what waits for it for so long has stalled, and its connection ends."""
_DECIDE_SECONDS: Final = 10.0
_MOST_CONNECTIONS: Final = 4000
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HELLO: Final = 0x16
_ALPN: Final = 16
_MOST_LOOKED_AT: Final = 16 * 1024 + 5
_BUFFER: Final = 256 * 1024
_ROUNDS: Final = 8
_LOOK: Final = 1.0


def speaks_grpc(data: bytes, *, is_tls: bool) -> bool | None:
    """Whether a connection that begins with these bytes is one of gRPC; None where more of them have to come."""
    if is_tls:
        return _offers_h2_alone(data)
    if data.startswith(_PREFACE[:3]):
        return True
    return None if _PREFACE.startswith(data) else False


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
    """The protocols that the first message of TLS offers; none where it is no such message."""
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
    found, at = [], 0
    while at < len(data):
        found.append(data[at + 1 : at + 1 + data[at]])
        at += 1 + data[at]
    return found


class _Line:
    """One direction of a connection: what was read and not written yet stays in ``waiting``."""

    def __init__(self, source: socket.socket, target: socket.socket | None) -> None:
        self.source = source
        self.target = target
        self.waiting: bytes | memoryview = b""
        self.at_end = False
        self.is_over = False
        self.moved = time.monotonic()

    def move(self, buffer: memoryview) -> None:
        """Move what can be moved now, until others have a turn. Raises ``OSError`` where an end is gone."""
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
            if rounds == _ROUNDS:
                break
            rounds += 1
            try:
                count = self.source.recv_into(buffer)
            except BlockingIOError:
                break
            self.moved = time.monotonic()
            self.at_end = count == 0
            self.waiting = buffer[:count]
            if not self._write():
                break
            if 0 < count < len(buffer) // 2:
                break  # most likely that was all, and it costs as much to look here as to wait for more
        if isinstance(self.waiting, memoryview):
            self.waiting = bytes(self.waiting)  # the buffer is for all connections

    def _write(self) -> bool:
        """Whether all that waited was written."""
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
    """A client and the server that it was given to."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.server: socket.socket | None = None
        self.inward = _Line(client, None)
        self.outward: _Line | None = None
        self.began = time.monotonic()
        self.is_grpc = False
        self.watched: dict[socket.socket, int] = {client: selectors.EVENT_READ}
        """The events that are waited for now, of each end."""

    @property
    def lines(self) -> tuple[_Line, ...]:
        return (self.inward,) if self.outward is None else (self.inward, self.outward)

    def join(self, server: socket.socket, *, is_grpc: bool) -> None:
        self.server = self.inward.target = server
        self.outward = _Line(server, self.client)
        self.is_grpc = is_grpc
        self.watched[server] = 0

    def wanted(self, end: socket.socket) -> int:
        """The events that are waited for at one end."""
        events = 0
        for line in self.lines:
            if line.source is end and not line.waiting and not line.at_end:
                events |= selectors.EVENT_READ
            if line.target is end and line.waiting:
                events |= selectors.EVENT_WRITE
        return events

    def is_stalled(self, now: float) -> bool:
        if self.outward is None:
            return now - self.began > _DECIDE_SECONDS
        waiting = [now - line.moved for line in self.lines if line.waiting]
        if waiting:
            return max(waiting) > STALL_SECONDS
        # a request of HTTP/1.1 that does not go on: its answer would have begun
        begun = self.inward.moved > self.outward.moved
        return begun and not self.is_grpc and now - self.inward.moved > STALL_SECONDS


class Relay:
    """Carries the connections of a listening socket to the servers at two addresses, in a thread of its own."""

    def __init__(
        self, listener: socket.socket, grpc: str, web: str, *, is_tls: bool, stalled: Callable[[], None]
    ) -> None:
        self._listener = listener
        self._addresses = {True: grpc, False: web}
        self._is_tls = is_tls
        self._stalled = stalled
        self._selector = selectors.DefaultSelector()
        self._connections: set[_Connection] = set()
        self._buffer = memoryview(bytearray(_BUFFER))
        self._wake, self._woken = socket.socketpair()
        self._is_listening = True
        self._is_closed = False
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="chunkmill-serve-relay", daemon=True)
        self._thread.start()

    def refuse(self) -> None:
        """Take no connections any more; those that are there go on."""
        self._is_listening = False
        self._wake.send(b"\0")

    def close(self) -> None:
        """End all connections, and wait until they have."""
        self._is_closed = True
        self._wake.send(b"\0")
        self._thread.join()
        self._wake.close()

    def _run(self) -> None:
        looked = time.monotonic()
        try:
            while not self._is_closed:
                for key, _ in self._selector.select(_LOOK):
                    self._serve(key)
                if not self._is_listening and self._listener.fileno() >= 0:
                    self._selector.unregister(self._listener)
                    self._listener.close()
                now = time.monotonic()
                if now - looked >= _LOOK:
                    looked = now
                    for connection in [one for one in self._connections if one.is_stalled(now)]:
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
            client, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            LOG.warning("a connection could not be taken: %s", error.strerror)
            time.sleep(0.05)  # without handles for it, it would come again at once
            return
        if len(self._connections) >= _MOST_CONNECTIONS:
            client.close()
            return
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(client)
        self._connections.add(connection)
        self._selector.register(client, selectors.EVENT_READ, connection)

    def _go_on(self, connection: _Connection, end: Any) -> None:
        """Move what can be moved since one end of a connection reads or writes again."""
        if connection.server is None:
            self._decide(connection)
            return
        for line in connection.lines:
            if line.target is end if line.waiting else line.source is end:
                line.move(self._buffer)
        if all(line.is_over for line in connection.lines):
            self._drop(connection)
        else:
            self._watch(connection)

    def _decide(self, connection: _Connection) -> None:
        """Read on until it is known which server a connection is for, and join the two."""
        line = connection.inward
        try:
            found = connection.client.recv(_MOST_LOOKED_AT)
        except BlockingIOError:
            return
        line.waiting = bytes(line.waiting) + found
        is_grpc = speaks_grpc(line.waiting, is_tls=self._is_tls)
        if not found:
            self._drop(connection)
        elif is_grpc is not None:
            server = socket.socket(socket.AF_UNIX)
            connection.join(server, is_grpc=is_grpc)
            server.connect("\0" + self._addresses[is_grpc])
            server.setblocking(False)
            self._go_on(connection, server)

    def _watch(self, connection: _Connection) -> None:
        """Wait for what each end can do next."""
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
        self._connections.discard(connection)
        for end, watched in connection.watched.items():
            if watched:
                self._selector.unregister(end)
            end.close()
