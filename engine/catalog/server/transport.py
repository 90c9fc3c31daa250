"""A catalog service on a port, by gRPC over HTTP/2 alone, with neither tokens nor TLS."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from ...errors import MissingExtraError, UsageError
from .methods import Call, Kind, Method, ProtocolError, Status, protocol_error
from .service import CatalogService

LOG: Final = logging.getLogger(__name__)

GRPC_OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),  # or a second server shares the port, and nobody is told
    # clients ping when they are idle, and while they receive: that is no abuse
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5000),
    ("grpc.keepalive_permit_without_calls", 1),
)
THREADS: Final = 64
"""Handlers that run at once; one that waits for events has a thread of its own all the time."""


def start(service: CatalogService, port: int = 0, host: str = "127.0.0.1", *, threads: int = THREADS) -> RunningServer:
    """Serve on a port, by default on one that is free, until the server is stopped.

    Raises
    ------
    MissingExtraError
        The package ``grpcio`` is not installed.
    UsageError
        The port is taken.
    """
    try:
        import grpc
    except ImportError as error:
        raise MissingExtraError(
            "serving a catalog needs the package grpcio, which is not installed", hint="pip install 'chunkmill[serve]'"
        ) from error

    class Handlers:
        def service(self, details: Any) -> Any:
            method = service.methods.get(details.method)
            return None if method is None else _handler(grpc, method)

    server = grpc.server(ThreadPoolExecutor(threads, "chunkmill-serve"), (Handlers(),), options=GRPC_OPTIONS)
    try:
        bound = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError as error:
        raise UsageError(
            f"port {port} of {host} cannot be opened", hint="Another program has it; choose another."
        ) from error
    server.start()
    return RunningServer(server, host, bound)


class RunningServer:
    """A server that runs until it is stopped; ``port`` is the one that it listens on."""

    def __init__(self, server: Any, host: str, port: int) -> None:
        self._server = server
        self.host = host
        self.port = port

    @property
    def url(self) -> str:
        """The address for clients of Rerun."""
        return f"rerun+http://{self.host}:{self.port}"

    def stop(self, grace_seconds: float | None = None) -> None:
        """Take no calls any more, let those that run go on for so long, and end them then."""
        self._server.stop(grace_seconds).wait()

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _handler(grpc: Any, method: Method) -> Any:
    """The method as grpcio wants it; messages are made of bytes here, so that bad ones are told, too."""
    if method.kind is Kind.STREAM:
        return grpc.unary_stream_rpc_method_handler(_streaming(grpc, method))
    if method.kind is Kind.UPLOAD:
        return grpc.stream_unary_rpc_method_handler(_answering(grpc, method, lambda given: map(_parser(method), given)))
    return grpc.unary_unary_rpc_method_handler(_answering(grpc, method, _parser(method)))


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


def _answering(grpc: Any, method: Method, parse: Callable[[Any], Any]) -> Callable[[Any, Any], bytes]:
    def answer(given: Any, context: Any) -> bytes:
        try:
            found: bytes = method.handler(parse(given), _call(context)).SerializeToString()
        except Exception as error:
            _abort(grpc, method, context, error)
            raise
        return found

    return answer


def _streaming(grpc: Any, method: Method) -> Callable[[Any, Any], Iterator[bytes]]:
    def answer(given: bytes, context: Any) -> Iterator[bytes]:
        try:
            for message in method.handler(_parser(method)(given), _call(context)):
                yield message.SerializeToString()
        except Exception as error:  # noqa: BLE001 (the client is told)
            _abort(grpc, method, context, error)

    return answer


def _call(context: Any) -> Call:
    remaining = context.time_remaining()
    return Call(
        headers=dict(context.invocation_metadata()),
        peer=context.peer(),
        deadline=None if remaining is None else time.monotonic() + remaining,
        is_active=context.is_active,
    )


def _abort(grpc: Any, method: Method, context: Any, error: Exception) -> None:
    told = protocol_error(error)
    if told.code is Status.INTERNAL:
        LOG.error("%s failed", method.name, exc_info=error)
    code = next(code for code in grpc.StatusCode if code.value[0] == told.code)
    context.abort(code, told.text)
