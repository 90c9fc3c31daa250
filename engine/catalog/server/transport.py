"""A catalog service on a port, by gRPC over HTTP/2, with tokens and TLS where they are asked for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from ...errors import MissingExtraError, UsageError
from ...limits import MIB
from .methods import Call, Kind, Method, ProtocolError, Status, protocol_error
from .port_holder import port_holder
from .service import CatalogService
from .tokens import Access

LOG: Final = logging.getLogger(__name__)

GRPC_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 256 * MIB),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),  # or a second server shares the port, and nobody is told
    # clients ping when they are idle, and while they receive: that is no abuse
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5000),
    ("grpc.keepalive_permit_without_calls", 1),
    # a client that has vanished is noticed within 40 s, and its calls end
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.max_concurrent_streams", 256),  # of one connection
    ("grpc.max_metadata_size", 32 * 1024),
)
THREADS: Final = 64
"""Handlers that run at once; one that waits for events has a thread of its own all the time."""
_CALLS: Final = 8 * THREADS
"""Calls that run or wait for a thread; those beyond are refused at once."""


def start(
    service: CatalogService,
    port: int = 0,
    host: str = "127.0.0.1",
    *,
    threads: int = THREADS,
    access: Access | None = None,
    tls: tuple[bytes, bytes] | None = None,
) -> RunningServer:
    """Serve on a port, by default on one that is free, until the server is stopped.

    ``access`` says who may call, by default everybody. ``tls`` are a certificate with its chain and a private key, in
    PEM; without them the line is plain.

    Raises
    ------
    MissingExtraError
        The package ``grpcio`` is not installed.
    UsageError
        The port is taken, or the certificate and the key are no pair.
    """
    allowed = access or Access()
    try:
        import grpc
    except ImportError as error:
        raise MissingExtraError(
            "serving a catalog needs the package grpcio, which is not installed", hint="pip install 'chunkmill[serve]'"
        ) from error

    class Handlers:
        def service(self, details: Any) -> Any:
            method = service.methods.get(details.method)
            return None if method is None else _Handler(grpc, method, allowed).of_grpc()

    server = grpc.server(
        ThreadPoolExecutor(threads, "chunkmill-serve"),
        (Handlers(),),
        options=GRPC_OPTIONS,
        maximum_concurrent_rpcs=_CALLS,
    )
    try:
        if tls is None:
            bound = server.add_insecure_port(f"{host}:{port}")
        else:
            bound = server.add_secure_port(f"{host}:{port}", grpc.ssl_server_credentials([(tls[1], tls[0])]))
    except RuntimeError as error:
        raise _port_taken(host, port, port_holder(port)) from error
    server.start()
    return RunningServer(server, host, bound, is_secure=tls is not None)


def _port_taken(host: str, port: int, holder: str) -> UsageError:
    if holder:
        return UsageError(f"port {port} of {host} is taken by {holder}", hint="End it, or choose another port.")
    return UsageError(
        f"port {port} of {host} cannot be opened", hint="Another program has it, or the host is none of this machine."
    )


class RunningServer:
    """A server that runs until it is stopped; ``port`` is the one that it listens on."""

    def __init__(self, server: Any, host: str, port: int, *, is_secure: bool) -> None:
        self._server = server
        self._scheme = "rerun+https" if is_secure else "rerun+http"
        self.host = host
        self.port = port

    @property
    def url(self) -> str:
        """The address for clients of Rerun."""
        return f"{self._scheme}://{self.host}:{self.port}"

    def stop(self, grace_seconds: float | None = None) -> None:
        """Take no calls any more, let those that run go on for so long, and end them then."""
        self._server.stop(grace_seconds).wait()

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _parser(method: Method) -> Callable[[bytes], Any]:
    from google.protobuf.message import DecodeError

    def parse(data: bytes) -> Any:
        try:
            return method.request.FromString(data)
        except DecodeError:
            raise ProtocolError(
                Status.INVALID_ARGUMENT, f"the request is no {method.request.DESCRIPTOR.name}"
            ) from None

    return parse


class _Handler:
    """A method as grpcio wants it. Who calls is looked at first; messages are made here, so that bad ones are told."""

    def __init__(self, grpc: Any, method: Method, access: Access) -> None:
        self._grpc = grpc
        self._method = method
        self._access = access
        self._parse = _parser(method)

    def of_grpc(self) -> Any:
        """The handler of grpcio that takes and gives bytes."""
        if self._method.kind is Kind.STREAM:
            return self._grpc.unary_stream_rpc_method_handler(self._stream)
        if self._method.kind is Kind.UPLOAD:
            return self._grpc.stream_unary_rpc_method_handler(self._upload)
        return self._grpc.unary_unary_rpc_method_handler(self._answer)

    def _answer(self, given: bytes, context: Any) -> bytes:
        try:
            call = self._call(context)
            found: bytes = self._method.handler(self._parse(given), call).SerializeToString()
        except Exception as error:
            self._abort(context, error)
            raise
        return found

    def _upload(self, given: Iterator[bytes], context: Any) -> bytes:
        try:
            call = self._call(context)
            found: bytes = self._method.handler(map(self._parse, given), call).SerializeToString()
        except Exception as error:
            self._abort(context, error)
            raise
        return found

    def _stream(self, given: bytes, context: Any) -> Iterator[bytes]:
        try:
            call = self._call(context)
            for message in self._method.handler(self._parse(given), call):
                yield message.SerializeToString()
        except Exception as error:  # noqa: BLE001 (the client is told)
            self._abort(context, error)

    def _call(self, context: Any) -> Call:
        """The call. Raises :class:`ProtocolError` where the caller may not make it."""
        headers = dict(context.invocation_metadata())
        granted = self._access.permissions(headers)
        if not granted.can_read:
            raise ProtocolError(Status.PERMISSION_DENIED, "the token does not permit to read")
        if self._method.writes and not granted.can_write:
            raise self._access.refusal()
        remaining = context.time_remaining()
        return Call(
            headers=headers,
            peer=context.peer(),
            deadline=None if remaining is None else time.monotonic() + remaining,
            can_read=granted.can_read,
            can_write=granted.can_write,
            is_active=context.is_active,
        )

    def _abort(self, context: Any, error: Exception) -> None:
        told = protocol_error(error)
        if told.code is Status.INTERNAL:
            LOG.error("%s failed", self._method.name, exc_info=error)
        code = next(code for code in self._grpc.StatusCode if code.value[0] == told.code)
        context.abort(code, told.text)
