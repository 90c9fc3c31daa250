"""The HTTP/1.1 server of the port: gRPC-web for browsers, health, metrics, and the viewer's page."""

from __future__ import annotations

import asyncio
import base64
import binascii
import importlib.metadata
import importlib.util
import ipaddress
import logging
import math
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from ...errors import ChunkmillError, MissingExtraError, UsageError, extra_command
from ...limits import MIB
from ..uploads import NewPart, NewUpload
from . import relay
from .lake import Lake
from .protocol import CallRecord, Kind, Method, ProtocolError, Status, cause_of, invalid, protocol_error
from .reception import CONTENT_TYPE, Ending, Reception, clear_traceback, stopping
from .tokens import NOBODY
from .uploads import UPLOAD_PATH, Grant, begin, check_received, granted

LOG: Final = logging.getLogger(__name__)

MOST_REQUEST_BYTES: Final = 64 * MIB
_LOCAL_ORIGINS: Final = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")
_TRAILERS: Final = b"\x80"
_CLOSING_SECONDS: Final = 1.0
_READY_SECONDS: Final = 1.0
_READY_PATIENCE: Final = 5.0
_PLACES: Final = ("/", "/version", "/healthz", "/readyz", "/metrics")
_OF_ANSWERS: Final = {
    401: Status.UNAUTHENTICATED,
    403: Status.PERMISSION_DENIED,
    404: Status.NOT_FOUND,
    405: Status.UNIMPLEMENTED,
    503: Status.UNAVAILABLE,
}

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Page:
    """A file of the viewer's page."""

    kind: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Web:
    """The rules for browsers: other origins whose pages may call, and the served ``pages``."""

    origins: Sequence[str] = ()
    pages: Mapping[str, Page] = field(default_factory=dict)


class WebApp:
    """An ASGI application that answers gRPC-web calls, in the threads of executors."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        lake: Lake,
        reception: Reception,
        executor: Executor,
        waiting: Executor,
        web: Web,
        *,
        only_local_names: bool,
        most_calls: int,
        stall_seconds: float,
    ) -> None:
        self._methods = methods
        self._lake = lake
        self._reception = reception
        self._executor = executor
        self._waiting = waiting
        self._web = web
        self._only_local_names = only_local_names
        self._most_calls = most_calls
        self._stall_seconds = stall_seconds
        self.running = 0
        """The number of running calls."""
        self.is_stopping = False
        self._health = Health(lake)

    @property
    def takes_calls(self) -> bool:
        """Whether new calls are accepted."""
        return not (self.is_stopping or self._reception.draining.is_set())

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        send = self._noting(scope, send)
        if self._only_local_names and not _is_local(headers.get("host", "")):
            # DNS rebinding: another host name that resolves to this machine
            await _plain(send, 403, "this server only accepts calls to localhost or an IP address")
            return
        cors = self._cors(scope, headers)
        if cors is None:
            await _plain(send, 403, "pages of this origin may not call")
        elif scope["method"] == "OPTIONS":
            await _respond(send, 200, [*cors, *_preflight(headers)], b"")
        elif scope["method"] == "POST":
            await self._post(scope, headers, cors, receive, send)
        elif scope["method"] in ("GET", "HEAD"):
            await self._get(scope, headers, send)
        elif scope["method"] == "PUT" and scope["path"].startswith(UPLOAD_PATH):
            await self._put(scope, headers, receive, send)
        else:
            await _plain(send, 405, "this method is not supported here")

    def _cors(self, scope: Any, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]] | None:
        """The headers that let a page of another origin read the answer, or None if it may not call."""
        origin = headers.get("origin")
        if origin is None or origin == f"{scope['scheme']}://{headers.get('host', '')}":
            return []
        named = any(_glob(pattern).fullmatch(origin) for pattern in self._web.origins)
        if not named and not _LOCAL_ORIGINS.fullmatch(origin):
            return None
        return [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-allow-credentials", b"true"),
            (b"access-control-expose-headers", b"grpc-status, grpc-message"),
            (b"vary", b"origin, access-control-request-method, access-control-request-headers"),
        ]

    async def _get(self, scope: Any, headers: Mapping[str, str], send: Send) -> None:
        path = scope["path"]
        if path == "/version":
            await _plain(send, 200, f"chunkmill {importlib.metadata.version('chunkmill')}")
        elif path == "/healthz":
            await _plain(send, 200, "alive")
        elif path == "/readyz":
            reason = "the server is stopping" if not self.takes_calls else await self._health.reason()
            await _plain(send, 503 if reason else 200, self._reception.shown(reason) if reason else "ready")
        elif path == "/metrics":
            await self._metrics(headers, send)
        elif path == "/" and self._web.pages and not scope["query_string"]:
            scheme = "rerun+https" if scope["scheme"] == "https" else "rerun+http"
            here = quote(f"{scheme}://{headers.get('host', '')}", safe="")
            await _respond(send, 302, [(b"location", f"/?url={here}".encode())], b"")
        elif page := self._web.pages.get(path):
            sized = [(b"content-type", page.kind.encode()), (b"rerun-final-length", str(len(page.data)).encode())]
            await _respond(send, 200, sized, page.data if scope["method"] == "GET" else b"")
        else:
            await _plain(send, 404, "there is nothing at this path")

    def _noting(self, scope: Any, send: Send) -> Send:
        """Wrap ``send`` to log the answer. Calls and uploads are logged separately."""
        if scope["method"] in ("POST", "PUT"):
            return send
        path = scope["path"] if scope["path"] in (*_PLACES, *self._web.pages) else "(other)"
        method = scope["method"] if scope["method"] in ("GET", "HEAD", "OPTIONS") else "(other)"
        began = time.monotonic()

        async def noting(event: Any) -> None:
            await send(event)
            if event["type"] == "http.response.start" and self._reception.logs is not None:
                self._reception.logs.note(
                    f"{method} {path}",
                    NOBODY,
                    _OF_ANSWERS.get(event["status"], Status.OK),
                    CallRecord(),
                    client=_client(scope),
                    seconds=time.monotonic() - began,
                    writes=False,
                )

        return noting

    async def _metrics(self, headers: Mapping[str, str], send: Send) -> None:
        try:
            caller = self._reception.access.caller(headers)
            self._reception.access.check_valid(caller)
            allowed = caller.rights.can_read
        except ProtocolError:
            allowed = False
        if not allowed:
            await _plain(send, 401, "metrics also need a token")
            return
        await _respond(send, 200, [(b"content-type", CONTENT_TYPE.encode())], self._reception.metrics.text())

    async def _put(self, scope: Any, headers: Mapping[str, str], receive: Receive, send: Send) -> None:
        if not self.takes_calls or self.running >= self._most_calls:
            await _plain(
                send, 503, "there are too many calls at once" if self.takes_calls else "the server is stopping"
            )
            return
        self.running += 1
        try:
            status, text, etag = await received(
                scope["path"].removeprefix(UPLOAD_PATH),
                headers,
                Pace(receive, self._stall_seconds),
                self._lake,
                self._reception,
                self._executor,
                client=_client(scope),
                is_stopping=lambda: self.is_stopping,
            )
            await _plain(send, status, text, [(b"etag", f'"{etag}"'.encode())] if etag else [])
        finally:
            self.running -= 1

    async def _post(
        self, scope: Any, headers: Mapping[str, str], cors: list[tuple[bytes, bytes]], receive: Receive, send: Send
    ) -> None:
        kind = headers.get("content-type", "").partition(";")[0].strip()
        if kind.partition("+")[0] not in ("application/grpc-web", "application/grpc-web-text"):
            await _plain(send, 415, "send calls as application/grpc-web, or as gRPC over HTTP/2")
            return
        as_text = kind.startswith("application/grpc-web-text")
        method = self._methods.get(scope["path"])
        ended = ProtocolError(Status.OK, "")
        requests: list[bytes] = []
        try:
            if method is None or method.kind is Kind.UPLOAD:
                raise ProtocolError(Status.UNIMPLEMENTED, "gRPC-web does not support this method")
            requests = [await self._request(method, headers, scope, receive, as_text=as_text)]
        except ProtocolError as error:
            ended = error
        await send({"type": "http.response.start", "status": 200, "headers": [*cors, (b"content-type", kind.encode())]})

        async def frame(flag: bytes, data: bytes, *, more: bool) -> None:
            framed = flag + len(data).to_bytes(4, "big") + data
            body = base64.b64encode(framed) if as_text else framed
            await send({"type": "http.response.body", "body": body, "more_body": more})

        if requests:
            assert method is not None
            ended = await self._run(method, requests, headers, scope, receive, frame)
        text = f"grpc-status:{int(ended.code)}\r\n"
        if ended.text:
            text += f"grpc-message:{quote(ended.text, safe=' !#$&()*+,-./:;<=>?@[]^_`{|}~')}\r\n"
        await frame(_TRAILERS, text.encode(), more=False)

    async def _request(
        self, method: Method, headers: Mapping[str, str], scope: Any, receive: Receive, *, as_text: bool
    ) -> bytes:
        """The request of a call. The caller is checked before the request is read. Logs a call that ends here."""
        ending = Ending(self._reception, method.name, method.writes, _client(scope))
        try:
            ending.caller = self._reception.access.caller(headers)
            self._reception.check(method, ending.caller)
            if not self.takes_calls:
                raise stopping()
            if self.running >= self._most_calls:
                raise ProtocolError(Status.RESOURCE_EXHAUSTED, "there are too many calls at once")
            with self._reception.budget.taking() as taken:
                return _message(await _body(Pace(receive, self._stall_seconds), taken), as_text=as_text)
        except ProtocolError as error:
            self._reception.metrics.began()
            ending.note(error.code)
            raise

    async def _run(
        self,
        method: Method,
        requests: list[bytes],
        headers: Mapping[str, str],
        scope: Any,
        receive: Receive,
        frame: Callable[..., Awaitable[None]],
    ) -> ProtocolError:
        """Send the responses of a call, and return its status."""
        gone = asyncio.ensure_future(_wait_until_gone(receive))
        loop = asyncio.get_running_loop()
        executor = self._waiting if method.waits else self._executor
        answers = self._reception.run(
            method,
            iter(requests),
            headers,
            peer=_client(scope),
            is_active=lambda: not (gone.done() or self.is_stopping),
        )
        self.running += 1
        try:
            while True:
                data = await loop.run_in_executor(executor, next, answers, None)
                if data is None:
                    if self.is_stopping:  # a stopped stream ends like a complete one
                        return stopping()
                    return ProtocolError(Status.OK, "")
                if gone.done():
                    return ProtocolError(Status.CANCELLED, "the client has gone")
                await frame(b"\0", data, more=True)
        except ProtocolError as error:
            clear_traceback(error)
            if self.is_stopping and error.code is Status.CANCELLED:
                return stopping()
            return error
        except RuntimeError as error:  # the executor was shut down
            return protocol_error(error)
        finally:
            self.running -= 1
            gone.cancel()
            await asyncio.to_thread(answers.close)


class Health:
    """Checks whether the catalog can be read, at most once a second for all callers."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._looked = -math.inf
        self._reason = ""
        self._was_there = False
        self._look_now = asyncio.Lock()

    async def reason(self) -> str:
        """The reason why it cannot be read; empty if it can."""
        async with self._look_now:
            if time.monotonic() - self._looked > _READY_SECONDS:
                try:
                    self._reason = await asyncio.wait_for(asyncio.to_thread(self._look), _READY_PATIENCE)
                except TimeoutError:
                    self._reason = f"the catalog has not answered for {_READY_PATIENCE:.0f} s"
                self._looked = time.monotonic()
            return self._reason

    def _look(self) -> str:
        if self._lake.folder is not None:
            is_there = self._lake.folder.is_dir()
            if self._was_there and not is_there:
                return "the folder of the catalog is gone"
            self._was_there |= is_there
        try:
            self._lake.catalog.dataset_names()
        except (ChunkmillError, OSError) as error:
            return f"the catalog cannot be read: {error}"
        return ""


class WebServer:
    """An application on a socket, in a thread with its own event loop."""

    def __init__(self, app: WebApp, listener: socket.socket, tls: tuple[bytes, bytes] | None) -> None:
        import uvicorn

        self.app = app
        config = uvicorn.Config(
            app,
            http=_timed_protocol(),
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=1,
        )
        config.load()
        if tls is not None:
            config.ssl = _ssl_context(*tls)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([listener],), name="chunkmill-serve-web", daemon=True
        )
        self._thread.start()

    def drain(self, grace_seconds: float) -> None:
        """Wait up to ``grace_seconds`` for the end of running calls."""
        ends = time.monotonic() + grace_seconds
        while self.app.running and time.monotonic() < ends:
            time.sleep(0.02)

    def stop(self) -> None:
        """End all calls, and the server."""
        self.app.is_stopping = True
        ends = time.monotonic() + _CLOSING_SECONDS
        while self.app.running and time.monotonic() < ends:
            time.sleep(0.02)
        self._server.should_exit = True
        self._thread.join()


def _timed_protocol() -> Any:
    """The class of uvicorn's connections, with a time limit for headers."""
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class TimedProtocol(H11Protocol):
        """Checks after each piece of data whether a header is incomplete, or the rest of a body is not needed."""

        header_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            name = transport.get_extra_info("peername")
            self.client = (relay.address_in(name.decode() if isinstance(name, bytes) else str(name)), 0)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.look()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self.look(is_over=True)

        def look(self, *, is_over: bool = False) -> None:
            state = None if is_over else self.conn.their_state
            is_answered = self.cycle is not None and self.cycle.response_complete
            begun = bool(state is h11.IDLE and self.conn.trailing_data[0]) or (state is h11.SEND_BODY and is_answered)
            if begun and self.header_timer is None:
                self.header_timer = self.loop.call_later(relay.HEADER_SECONDS, self.transport.abort)
            elif not begun and self.header_timer is not None:
                self.header_timer.cancel()
                self.header_timer = None

    return TimedProtocol


def _ssl_context(certificate: bytes, key: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    with tempfile.TemporaryDirectory() as folder:  # only its owner can read it
        places = Path(folder, "certificate"), Path(folder, "key")
        places[0].write_bytes(certificate)
        places[1].write_bytes(key)
        context.load_cert_chain(*places)
    return context


def _client(scope: Any) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(paced: Pace, taken: Callable[[int], None]) -> bytes:
    """The body of a request; ``taken`` gets the bytes of each piece, and of the joined pieces."""
    pieces, size = [], 0
    while True:
        event = await paced()
        if event["type"] == "http.disconnect":
            raise ProtocolError(Status.CANCELLED, "the client has gone")
        pieces.append(event.get("body", b""))
        size += len(pieces[-1])
        taken(2 * len(pieces[-1]))
        if size > MOST_REQUEST_BYTES:
            raise ProtocolError(Status.RESOURCE_EXHAUSTED, f"a request has more than {MOST_REQUEST_BYTES} bytes")
        if not event.get("more_body"):
            return b"".join(pieces)


def _message(body: bytes, *, as_text: bool) -> bytes:
    """The single message in the frames of a request."""
    try:
        data = base64.b64decode(body, validate=True) if as_text else body
    except binascii.Error:
        raise invalid("the request is not base64") from None
    if len(data) < 5 or data[0] != 0 or len(data) < 5 + int.from_bytes(data[1:5], "big"):
        raise invalid("the request is not a frame of gRPC-web")
    return data[5 : 5 + int.from_bytes(data[1:5], "big")]


def _is_local(host: str) -> bool:
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
    if name == "localhost":
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _glob(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))


def _preflight(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    asked = headers.get("access-control-request-headers", "")
    return [
        (b"access-control-allow-methods", b"POST, GET"),
        (b"access-control-allow-headers", asked.encode("latin-1")),
        (b"access-control-max-age", b"600"),
    ]


async def _plain(send: Send, status: int, text: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    kind = (b"content-type", b"text/plain; charset=utf-8")
    await _respond(send, status, [kind, *headers], f"{text}\n".encode())


async def _respond(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    sized = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": sized})
    await send({"type": "http.response.body", "body": body})


# --- uploads: from a request's body into a file, with a few MiB in memory

_NAME: Final = "PUT /upload"
_PIECE: Final = 4 * MIB
_OF_HTTP: Final = {
    Status.OK: 201,
    Status.INVALID_ARGUMENT: 400,
    Status.CANCELLED: 400,
    Status.DEADLINE_EXCEEDED: 408,
    Status.UNAUTHENTICATED: 401,
    Status.PERMISSION_DENIED: 403,
    Status.NOT_FOUND: 404,
    Status.FAILED_PRECONDITION: 409,
    Status.ALREADY_EXISTS: 412,
    Status.OUT_OF_RANGE: 413,
    Status.UNAVAILABLE: 503,
    Status.RESOURCE_EXHAUSTED: 507,
}

_LEAST_PACE: Final = 1024.0
"""The least bytes per second of a body, after the time limit for stalled clients."""


class Pace:
    """Yields the events of a request as they arrive. It ends a very slow body like a stalled one."""

    def __init__(self, receive: Receive, stall_seconds: float) -> None:
        self._receive = receive
        self._until = time.monotonic() + stall_seconds

    async def __call__(self) -> Any:
        """Return the next event. Raises :class:`ProtocolError` if it comes too late."""
        try:
            event = await asyncio.wait_for(self._receive(), max(self._until - time.monotonic(), 0))
        except TimeoutError:
            raise ProtocolError(Status.DEADLINE_EXCEEDED, "the request came too slowly") from None
        self._until += len(event.get("body", b"")) / _LEAST_PACE
        return event


async def received(
    grant: str,
    headers: Mapping[str, str],
    paced: Pace,
    lake: Lake,
    reception: Reception,
    executor: Executor,
    *,
    client: str,
    is_stopping: Callable[[], bool],
) -> tuple[int, str, str]:
    """Receive an upload with a grant; return the HTTP status, the text of the answer, and a part's ETag.

    An upload that the client, an error or the server's end interrupts leaves no file.
    """
    ending = reception.begin(_NAME, writes=True, client=client)
    status, text, etag = Status.CANCELLED, "the upload is incomplete", ""
    try:
        wanted, ending.caller = granted(lake, grant)
        reception.access.check_valid(ending.caller)
        if reception.access.read_only:
            raise reception.access.refusal()
        if reception.logs is not None:
            reception.logs.check_writable()
        etag = await _take(lake, wanted, _size(headers), paced, executor, is_stopping)
        ending.record.changed.update({"part": wanted.part} if wanted.part else {}, uploaded=wanted.key)
        status, text = Status.OK, "the file already exists"
    except Exception as error:
        ended = protocol_error(error)
        status, text = ended.code, ended.text
        text = reception.shown(text)
        if status is Status.RESOURCE_EXHAUSTED:
            LOG.warning("an upload was refused: %s", cause_of(error))
        elif status not in _OF_HTTP:
            LOG.error("an upload failed: %s", cause_of(error), exc_info=error)
    finally:
        ending.note(status)
    return _OF_HTTP.get(status, 500), text, etag


async def _take(
    lake: Lake,
    grant: Grant,
    size: int | None,
    paced: Pace,
    executor: Executor,
    is_stopping: Callable[[], bool],
) -> str:
    loop = asyncio.get_running_loop()
    upload: NewUpload = await loop.run_in_executor(executor, begin, lake, grant, size)
    waiting, count, more = bytearray(), 0, True
    try:
        while more:
            event = await paced()
            if event["type"] == "http.disconnect":
                raise ProtocolError(Status.CANCELLED, "the client has gone")
            if is_stopping():
                raise stopping()
            waiting += event.get("body", b"")
            count += len(event.get("body", b""))
            more = event.get("more_body", False)
            check_received(lake, grant, count)
            if len(waiting) >= _PIECE or not more:
                await loop.run_in_executor(executor, upload.write, bytes(waiting))
                waiting.clear()
        expected = grant.size if size is None else size
        if expected is not None and count != expected:
            raise invalid(f"the upload has {count} bytes, not {expected}")
        await loop.run_in_executor(executor, upload.publish)
        return upload.etag if isinstance(upload, NewPart) else ""
    finally:
        upload.discard()


def _size(headers: Mapping[str, str]) -> int | None:
    given = headers.get("content-length")
    return int(given) if given is not None and given.isascii() and given.isdigit() else None


# --- the page of Rerun's viewer, from the installed rerun-sdk

_PATHS: Final = ("index.html", "re_viewer.js", "re_viewer_bg.wasm", "favicon.ico", "apple-touch-icon.png", "sw.js")
_NEEDED: Final = _PATHS[:3]
_SECONDS: Final = 30.0
# in a separate process, which ends after sending its files, as the SDK serves them on a port that cannot be closed
_SCRIPT: Final = """
import socket, sys
import rerun
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
rerun.init("chunkmill")
rerun.serve_web_viewer(web_port=port, open_browser=False)
print(port, flush=True)
sys.stdin.read()
"""


def viewer_pages() -> dict[str, Page]:
    """The files of the viewer's page, by their paths. The path of the page itself is ``/``.

    Raises
    ------
    MissingExtraError
        The package rerun-sdk is not installed.
    UsageError
        The installed rerun-sdk has no viewer page.
    """
    if importlib.util.find_spec("rerun") is None:
        raise MissingExtraError("the viewer's page needs rerun-sdk", hint=extra_command("serve", "viewer"))
    with subprocess.Popen(  # noqa: S603 (this interpreter, and a script of ours)
        [sys.executable, "-c", _SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port = process.stdout.readline().strip().decode()
            pages = {} if not port else _fetched(f"http://127.0.0.1:{port}")
        finally:
            process.stdin.close()
            process.kill()
    if any(f"/{path}" not in pages for path in _NEEDED):
        raise UsageError("the installed rerun-sdk has no viewer page", hint="pip install -U rerun-sdk")
    return {"/": pages["/index.html"], **pages}


def _fetched(address: str) -> dict[str, Page]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    pages: dict[str, Page] = {}
    ends = time.monotonic() + _SECONDS
    for path in _PATHS:
        while True:
            try:
                with opener.open(f"{address}/{path}", timeout=_SECONDS) as response:
                    pages[f"/{path}"] = Page(response.headers["content-type"], response.read())
            except urllib.error.HTTPError:
                pass
            except urllib.error.URLError:
                if time.monotonic() < ends:
                    time.sleep(0.1)
                    continue
            break
    return pages
