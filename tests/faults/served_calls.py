"""A served lake in a fork, and calls of it by gRPC, each with its status."""

from __future__ import annotations

import http.client
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from chunkmill.engine.catalog import CatalogClient, EntryId
from chunkmill.engine.catalog.server import CatalogService, Kind, Method, ServiceOptions, start
from chunkmill.engine.catalog.server.protocol import ENTRY_ID_HEADER, SERVICE

PATIENCE: Final = 60.0
_OF_HTTP: Final = -1


class RefusedError(Exception):
    """A call ended with another status than OK."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"status {status}: {text}")
        self.status = status
        self.text = text


def serve(lake: Path, told: Path, readable: Iterable[Path]) -> int:
    """Serve a lake until this process is killed, and tell the port in a file."""
    service = CatalogService(CatalogClient(lake), ServiceOptions(readable=[os.fspath(path) for path in readable]))
    server = start(service)
    draft = told.with_suffix(".draft")
    draft.write_text(str(server.port))
    draft.rename(told)
    while True:
        time.sleep(60)


class Calls:
    """Calls of the server at a port of this machine; ``called`` are the names of those that were made."""

    def __init__(self, methods: Mapping[str, Method], port: int) -> None:
        import grpc

        self._grpc = grpc
        self._methods = methods
        self._port = port
        self.called: set[str] = set()
        self._channel = grpc.insecure_channel(
            f"127.0.0.1:{port}", [("grpc.enable_retries", 0), ("grpc.max_receive_message_length", -1)]
        )

    def __call__(self, name: str, /, entry: EntryId | str | None = None, **fields: Any) -> Any:
        """The response to a request with these fields about an entry; of a stream, a list. Raises ``RefusedError``."""
        return self.sent(name, [fields], entry)

    def sent(self, name: str, requests: Iterable[Mapping[str, Any]], entry: EntryId | str | None = None) -> Any:
        """The response to several requests, of which a call that is no upload takes one."""
        self.called.add(name)
        method = self._methods[f"/{SERVICE}/{name}"]
        encoded = [method.request(**fields).SerializeToString() for fields in requests]
        given: dict[str, Any] = {"timeout": PATIENCE}
        if entry is not None:
            given["metadata"] = [(ENTRY_ID_HEADER, str(entry))]
        try:
            if method.kind is Kind.STREAM:
                found = self._channel.unary_stream(method.path)(encoded[0], **given)
                return [method.response.FromString(data) for data in found]
            if method.kind is Kind.UPLOAD:
                return method.response.FromString(self._channel.stream_unary(method.path)(iter(encoded), **given))
            return method.response.FromString(self._channel.unary_unary(method.path)(encoded[0], **given))
        except self._grpc.RpcError as error:
            raise RefusedError(error.code().value[0], error.details() or "") from None

    def put(self, path: str, data: bytes) -> str:
        """Upload a file, or a part of one, whose etag is given. Raises ``RefusedError``, whose status is negative."""
        line = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        try:
            line.request("PUT", path, data)
            answer = line.getresponse()
            text = answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise RefusedError(_OF_HTTP, f"{type(error).__name__}: {error}") from None
        finally:
            line.close()
        if answer.status != 201:
            raise RefusedError(-answer.status, text)
        return answer.getheader("etag", "")

    def close(self) -> None:
        """Close the line."""
        self._channel.close()
