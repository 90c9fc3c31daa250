"""The body of an upload on its way into a file, a few MiB of it in memory at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from typing import Any, Final

from ...limits import MIB
from ..upload_parts import NewPart
from ..uploads import NewUpload
from . import relay
from .methods import ProtocolError, Status, cause_of, protocol_error
from .reception import Reception
from .upload_grants import Grant, UploadGrants

LOG: Final = logging.getLogger(__name__)

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

Receive = Callable[[], Awaitable[Any]]

_LEAST_PACE: Final = 1024.0
"""Bytes of a body that have to come in a second, after the time in which a client stalls."""


class Pace:
    """Gives the events of a request as they come; a body that comes byte by byte is cut like one that stalls."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._until = time.monotonic() + relay.STALL_SECONDS

    async def __call__(self) -> Any:
        """Return the next event. Raises :class:`ProtocolError` where it is too late."""
        try:
            event = await asyncio.wait_for(self._receive(), max(self._until - time.monotonic(), 0))
        except TimeoutError:
            raise ProtocolError(Status.DEADLINE_EXCEEDED, "the request came too slowly") from None
        self._until += len(event.get("body", b"")) / _LEAST_PACE
        return event


async def received(
    granted: str,
    headers: Mapping[str, str],
    receive: Receive,
    grants: UploadGrants,
    reception: Reception,
    executor: Executor,
    *,
    is_stopping: Callable[[], bool],
) -> tuple[int, str, str]:
    """Take in an upload for which there is a grant: the status of HTTP, the text of the answer, and a part's ETag.

    What is cut, by the client, an error or the server's end, leaves no file.
    """
    began = time.monotonic()
    reception.metrics.began()
    status, text, etag = Status.CANCELLED, "the upload was cut", ""
    try:
        if reception.access.read_only:
            raise reception.access.refusal()
        etag = await _take(grants, grants.granted(granted), _size(headers), receive, executor, is_stopping)
        status, text = Status.OK, "the file is there"
    except Exception as error:
        told = protocol_error(error)
        status, text = told.code, told.text
        text = reception.shown(text)
        if status is Status.RESOURCE_EXHAUSTED:
            LOG.warning("an upload was refused: %s", cause_of(error))
        elif status not in _OF_HTTP:
            LOG.error("an upload failed: %s", cause_of(error), exc_info=error)
    finally:
        reception.metrics.ended(_NAME, status, time.monotonic() - began)
    return _OF_HTTP.get(status, 500), text, etag


async def _take(
    grants: UploadGrants,
    grant: Grant,
    size: int | None,
    receive: Receive,
    executor: Executor,
    is_stopping: Callable[[], bool],
) -> str:
    loop = asyncio.get_running_loop()
    upload: NewUpload = await loop.run_in_executor(executor, grants.begin, grant, size)
    waiting, count, more, paced = bytearray(), 0, True, Pace(receive)
    try:
        while more:
            event = await paced()
            if event["type"] == "http.disconnect":
                raise ProtocolError(Status.CANCELLED, "the client has gone")
            if is_stopping():
                raise ProtocolError(Status.UNAVAILABLE, "the server is stopping")
            waiting += event.get("body", b"")
            count += len(event.get("body", b""))
            more = event.get("more_body", False)
            grants.check_received(grant, count)
            if len(waiting) >= _PIECE or not more:
                await loop.run_in_executor(executor, upload.write, bytes(waiting))
                waiting.clear()
        expected = grant.size if size is None else size
        if expected is not None and count != expected:
            raise ProtocolError(Status.INVALID_ARGUMENT, f"the upload has {count} bytes, and not {expected}")
        await loop.run_in_executor(executor, upload.publish)
        return upload.etag if isinstance(upload, NewPart) else ""
    finally:
        upload.discard()


def _size(headers: Mapping[str, str]) -> int | None:
    given = headers.get("content-length")
    return int(given) if given is not None and given.isascii() and given.isdigit() else None
