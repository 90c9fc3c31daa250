"""A catalog service on a port: gRPC over HTTP/2, and HTTP/1.1 for browsers, optionally with tokens and TLS."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from ...errors import MissingExtraError, UsageError, extra_command
from ...limits import give_back_freed_memory
from . import relay as relays
from .call_log import CallLogs
from .protocol import Kind, Method, ProtocolError
from .reception import MemoryBudget, Reception, clear_traceback
from .relay import HEADER_SECONDS, MOST_OF_CLIENT, Relay, address_in
from .service import CatalogService
from .tokens import Access
from .web import Web, WebApp, WebServer

GRPC_OPTIONS: Final = (
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),  # else a second server shares the port unnoticed
    # clients ping when they are idle, and while they receive; this is allowed
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5000),
    ("grpc.keepalive_permit_without_calls", 1),
    # a lost client is noticed within 40 s, and its calls end
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.max_concurrent_streams", 256),  # for one connection
    ("grpc.max_metadata_size", 32 * 1024),
    ("grpc.server_handshake_timeout_ms", int(HEADER_SECONDS * 1000)),  # for the settings of HTTP/2
)
THREADS: Final = 64
"""The most handlers that run at once, except those that wait for events."""
_MORE_WAITING: Final = 8
"""Extra threads for calls that wait for events, beyond the most watchers: their handler refuses them."""
_LISTENS: Final = "0A"


def start(
    service: CatalogService,
    port: int = 0,
    host: str = "127.0.0.1",
    *,
    threads: int = THREADS,
    access: Access | None = None,
    tls: tuple[bytes, bytes] | None = None,
    web: Web | None = None,
    most_of_client: int = MOST_OF_CLIENT,
    logs: CallLogs | None = None,
    stall_seconds: float | None = None,
) -> RunningServer:
    """Serve on a port (0: a free port), until the server is stopped.

    ``access`` decides who may call, by default everybody. ``tls`` is a certificate with its chain, and a private key,
    in PEM; without it connections are not encrypted. ``web`` has the rules for browsers; by default, only pages of this
    machine may call. One client address has at most ``most_of_client`` connections. ``logs`` are the logs of calls, by
    default none. If a client is silent within a request or an answer for ``stall_seconds`` (45), its call ends.

    Raises
    ------
    MissingExtraError
        The package ``grpcio`` or ``uvicorn`` is not installed.
    UsageError
        The port is taken, or the certificate and the key do not match.
    """
    try:
        import grpc
        import uvicorn  # noqa: F401 (looked for before anything is opened)
    except ImportError as error:
        raise MissingExtraError(
            "serving a catalog needs the packages grpcio and uvicorn; one is not installed",
            hint=extra_command("serve"),
        ) from error
    listener, budget = _listening(host, port), MemoryBudget(service.options.request_memory)
    reception = Reception(access or Access(), budget, service.shown, logs=logs)
    stall, calls = relays.STALL_SECONDS if stall_seconds is None else stall_seconds, service.options.most_calls
    watch = _Watch(reception.metrics.stalled, budget, stall)
    executor = ThreadPoolExecutor(threads, "chunkmill-serve")
    waiting = ThreadPoolExecutor(service.options.most_watchers + _MORE_WAITING, "chunkmill-serve-waiting")

    class Handlers:
        def service(self, details: Any) -> Any:
            method = service.methods.get(details.method)
            return None if method is None else _Handler(grpc, method, reception, watch).of_grpc(waiting)

    # abstract addresses leave no files, even if this process is killed
    name = f"chunkmill-serve-{secrets.token_hex(16)}"
    app = WebApp(
        service.methods,
        service.lake,
        reception,
        executor,
        waiting,
        web or Web(),
        only_local_names=is_loopback(host),
        most_calls=calls,
        stall_seconds=stall,
    )
    try:
        most = ("grpc.max_receive_message_length", min(service.options.most_request_bytes, budget.most_at_once))
        server = grpc.server(executor, (Handlers(),), options=(most, *GRPC_OPTIONS), maximum_concurrent_rpcs=calls)
        if tls is None:
            server.add_insecure_port(f"unix-abstract:{name}-grpc")
        else:
            server.add_secure_port(f"unix-abstract:{name}-grpc", grpc.ssl_server_credentials([(tls[1], tls[0])]))
        inner = socket.socket(socket.AF_UNIX)
        inner.bind(f"\0{name}-web")
        inner.listen(128)
        browsers = WebServer(app, inner, tls)
    except (RuntimeError, OSError) as error:
        listener.close()
        watch.end()
        raise UsageError(f"the server cannot start: {error}", hint="Check the certificate and its key.") from error
    server.start()
    relay = Relay(
        listener,
        f"{name}-grpc",
        f"{name}-web",
        is_tls=tls is not None,
        stalled=reception.metrics.stalled,
        most_of_client=most_of_client,
        stall_seconds=stall,
    )
    at = (host, listener.getsockname()[1])
    return RunningServer(server, browsers, relay, watch, reception.draining, at, is_secure=tls is not None)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, place = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        is_all = place[0] == "::" and socket.has_dualstack_ipv6()  # this includes IPv4 addresses
        return socket.create_server(place[:2], family=family, backlog=1024, dualstack_ipv6=is_all)
    except (OSError, UnicodeError) as error:
        raise _port_taken(host, port, _port_holder(port) if port else "") from error


def _port_holder(port: int) -> str:
    """The process that listens on a TCP port, such as ``process 12 (python server.py)``; empty if it is not visible.

    The source is Linux's ``/proc``: processes of other users, or on other systems, are not visible.
    """
    tables = (Path("/proc/net", name) for name in ("tcp", "tcp6"))
    sockets = {f"socket:[{inode}]" for table in tables for inode in _listening_sockets(table, port)}
    if not sockets:
        return ""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(handle.readlink()) in sockets for handle in (process / "fd").iterdir()):
                words = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                return f"process {process.name} ({' '.join(words).strip()[:120]})"
        except OSError:
            continue
    return ""


def _listening_sockets(table: Path, port: int) -> list[str]:
    try:
        rows = [line.split() for line in table.read_text().splitlines()[1:]]
    except OSError:
        return []
    return [row[9] for row in rows if row[3] == _LISTENS and int(row[1].rpartition(":")[2], 16) == port]


def _port_taken(host: str, port: int, holder: str) -> UsageError:
    if holder:
        return UsageError(f"port {port} of {host} is taken by {holder}", hint="End it, or give another --port.")
    return UsageError(
        f"port {port} of {host} cannot be opened",
        hint="Another program has the port, or the host is not an address of this machine.",
    )


class RunningServer:
    """A server that runs until it is stopped; ``port`` is its port."""

    def __init__(
        self,
        server: Any,
        browsers: WebServer,
        relay: Relay,
        watch: _Watch,
        draining: threading.Event,
        at: tuple[str, int],
        *,
        is_secure: bool,
    ) -> None:
        self._server = server
        self._browsers = browsers
        self._relay = relay
        self._watch = watch
        self._draining = draining
        self._scheme = "rerun+https" if is_secure else "rerun+http"
        self.host, self.port = at

    @property
    def url(self) -> str:
        """The address for clients of Rerun."""
        host = f"[{self.host}]" if ":" in self.host.strip("[]") and self.host[0] != "[" else self.host
        return f"{self._scheme}://{host}:{self.port}"

    def stop(self, grace_seconds: float | None = None) -> None:
        """Refuse new calls, wait ``grace_seconds`` for running calls, and then end them.

        Meanwhile, ``/readyz`` reports this. Calls that wait for events end at once.
        """
        self._draining.set()
        ended = self._server.stop(grace_seconds)
        self._browsers.drain(grace_seconds or 0)
        ended.wait()
        self._relay.refuse()
        self._browsers.stop()
        self._watch.end()
        self._relay.close()

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Watch:
    """Ends calls of stalled clients, which neither receive nor send messages; returns freed memory to the system."""

    def __init__(self, stalled: Callable[[], None], budget: MemoryBudget, stall_seconds: float) -> None:
        self._stalled = stalled
        self._stall_seconds = stall_seconds
        self._budget = budget
        self._waiting: dict[Any, float] = {}
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        threading.Thread(target=self._look, name="chunkmill-serve-watch", daemon=True).start()

    @contextmanager
    def waits(self, context: Any) -> Iterator[None]:
        """A block in which a call waits for its client."""
        with self._lock:
            self._waiting[context] = time.monotonic() + self._stall_seconds
        try:
            yield
        finally:
            with self._lock:
                self._waiting.pop(context, None)

    def end(self) -> None:
        """Stop the watch."""
        self._is_over.set()

    def _look(self) -> None:
        while not self._is_over.wait(1):
            now = time.monotonic()
            with self._lock:
                late = [context for context, ends in self._waiting.items() if now > ends]
                for context in late:
                    del self._waiting[context]
            for context in late:
                self._stalled()
                context.cancel()
            if self._budget.freed():
                give_back_freed_memory()


class _Handler:
    """A method for grpcio: with bytes, and any number of requests, so that waiting for a request is watched, too."""

    def __init__(self, grpc: Any, method: Method, reception: Reception, watch: _Watch) -> None:
        self._grpc = grpc
        self._method = method
        self._reception = reception
        self._watch = watch

    def of_grpc(self, waiting: ThreadPoolExecutor) -> Any:
        """The handler for grpcio, with bytes. Methods that wait for events use the ``waiting`` threads."""
        if self._method.kind is Kind.STREAM:
            stream = partial(self._stream)
            if self._method.waits:
                stream.experimental_thread_pool = waiting  # type: ignore[attr-defined]
            return self._grpc.stream_stream_rpc_method_handler(stream)
        return self._grpc.stream_unary_rpc_method_handler(self._answer)

    def _answer(self, given: Iterator[bytes], context: Any) -> bytes:
        try:
            (data,) = self._answers(given, context)
        except ProtocolError as error:
            self._abort(context, error)
            raise
        return data

    def _stream(self, given: Iterator[bytes], context: Any) -> Iterator[bytes]:
        answers = self._answers(given, context)
        try:
            for data in answers:
                with self._watch.waits(context):
                    yield data
        except ProtocolError as error:
            self._abort(context, error)

    def _answers(self, given: Iterator[bytes], context: Any) -> Iterator[bytes]:
        return self._reception.run(
            self._method,
            self._requests(given, context),
            dict(context.invocation_metadata()),
            peer=address_in(context.peer()),
            remaining=context.time_remaining(),
            is_active=context.is_active,
        )

    def _requests(self, given: Iterator[bytes], context: Any) -> Iterator[bytes]:
        while True:
            with self._watch.waits(context):
                data = next(given, None)
            if data is None:
                return
            yield data

    def _abort(self, context: Any, error: ProtocolError) -> None:
        code = next(code for code in self._grpc.StatusCode if code.value[0] == error.code)
        text = error.text
        clear_traceback(error)
        context.abort(code, text)
