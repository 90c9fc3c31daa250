"""Methods of the catalog protocol, calls of them, and their errors: between handlers and what carries requests.

A transport looks up the method of a path in :attr:`CatalogService.methods`, parses the request with its class, runs the
handler in a thread with a :class:`Call`, and sends what comes back. Whatever a handler raises becomes a status through
:func:`protocol_error`.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from ...errors import (
    AlreadyExistsError,
    ChunkmillError,
    CommitUnknownError,
    ForeignFileError,
    MissingExtraError,
    NoSpaceError,
    NotFoundError,
    ReadError,
    RegistrationError,
    SameRecordingError,
    SchemaConflictError,
    SourceMissingError,
    UnfitRowsError,
    UnreachableError,
    UnsupportedError,
    UsageError,
)
from ..entries import EntryId
from .messages import cloud

SERVICE: Final = "rerun.cloud.v1alpha1.RerunCloudService"
"""The name of the service, which begins the path of each method."""

_LONGEST_TEXT: Final = 6000

ENTRY_ID_HEADER: Final = "x-rerun-entry-id"
ENTRY_NAME_HEADER: Final = "x-rerun-entry-name-bin"
CLIENT_VERSION_HEADER: Final = "x-rerun-client-version"


class Status(IntEnum):
    """The status codes of gRPC, by their numbers on the wire."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class ProtocolError(Exception):
    """A call ends with a status other than ``OK``, and a text for the client, a long one cut.

    The text goes out in a header. Clients of gRPC take none that are larger than 8 KiB, encoded by percents, and would
    tell of that in place of the error.
    """

    def __init__(self, code: Status, text: str) -> None:
        while len(quote(text, errors="replace")) > _LONGEST_TEXT:
            text = f"{text[: len(text) * 3 // 4]}…"
        super().__init__(text)
        self.code = code
        self.text = text

    def __reduce__(self) -> tuple[Any, ...]:
        return ProtocolError, (self.code, self.text)


class Kind(Enum):
    """The number of messages that go each way."""

    UNARY = "unary"
    """One request, one response."""
    STREAM = "stream"
    """One request, an iterator of responses."""
    UPLOAD = "upload"
    """An iterator of requests, one response."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a method, as far as its handler is told of it beside the request.

    ``headers`` are by lower-case names; those that end with ``-bin`` have bytes. ``deadline`` is a time of
    ``time.monotonic()``. ``is_active`` says whether the client still waits. ``peer`` is the client's address.
    ``claim`` claims memory as ``MemoryBudget.claim`` does, None: of a budget of its own.
    """

    headers: Mapping[str, str | bytes] = field(default_factory=dict)
    peer: str = ""
    deadline: float | None = None
    can_read: bool = True
    can_write: bool = True
    is_active: Callable[[], bool] = lambda: True
    claim: Callable[[int, Callable[[], None]], Any] | None = None

    @property
    def entry_id(self) -> EntryId | None:
        """The id of the entry that the headers name, or None. Raises :class:`ProtocolError` for one that is none."""
        found = self._text(ENTRY_ID_HEADER)
        if not found:
            return None
        try:
            return EntryId(found)
        except (TypeError, ValueError):
            raise ProtocolError(
                Status.INVALID_ARGUMENT, f"the '{ENTRY_ID_HEADER}' header is no entry id: {found[:64]!r}"
            ) from None

    @property
    def entry_name(self) -> str | None:
        """The name of the entry that the headers have in place of an id, or None."""
        return self._text(ENTRY_NAME_HEADER) or None

    @property
    def client_version(self) -> str:
        """The name and version of the client, such as ``rerun-py/0.41.0``; empty where it does not tell."""
        return self._text(CLIENT_VERSION_HEADER)

    def cancelled(self) -> bool:
        """Whether nobody waits for an answer any more."""
        return (self.deadline is not None and time.monotonic() > self.deadline) or not self.is_active()

    def check(self) -> None:
        """Raise :class:`ProtocolError` where nobody waits any more; long handlers call it now and then."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise ProtocolError(Status.DEADLINE_EXCEEDED, "the deadline of the call has passed")
        if not self.is_active():
            raise ProtocolError(Status.CANCELLED, "the client has gone")

    def _text(self, name: str) -> str:
        found = self.headers.get(name, "")
        return found.decode("utf-8", "replace") if isinstance(found, bytes) else found


@dataclass(frozen=True, slots=True)
class Method:
    """A call of the protocol: its messages, and the function that answers it.

    ``request`` and ``response`` are classes with ``FromString`` and ``SerializeToString``. ``handler`` takes a request
    (of an upload, an iterator of them) and the call, and gives a response (of a stream, an iterator of them). It runs
    in any thread. ``writes`` says that it needs the permission to write, ``waits`` that it sleeps until something
    happens.
    """

    name: str
    request: Any
    response: Any
    kind: Kind
    handler: Callable[[Any, Call], Any]
    writes: bool = False
    waits: bool = False

    @classmethod
    def named(
        cls, name: str, kind: Kind, handler: Callable[[Any, Call], Any], *, writes: bool = False, waits: bool = False
    ) -> Method:
        """The call of a name, whose messages are called after it."""
        return cls(name, cloud(f"{name}Request"), cloud(f"{name}Response"), kind, handler, writes, waits)

    @property
    def path(self) -> str:
        """The path of the method on the wire."""
        return f"/{SERVICE}/{self.name}"


_STATUSES: Final[tuple[tuple[type[BaseException], Status], ...]] = (
    (NotFoundError, Status.NOT_FOUND),
    (SourceMissingError, Status.NOT_FOUND),
    (AlreadyExistsError, Status.ALREADY_EXISTS),
    (SameRecordingError, Status.ALREADY_EXISTS),
    (UnreachableError, Status.UNAVAILABLE),
    (UnsupportedError, Status.UNIMPLEMENTED),
    (ForeignFileError, Status.PERMISSION_DENIED),
    (ReadError, Status.DATA_LOSS),
    (NoSpaceError, Status.RESOURCE_EXHAUSTED),
    (UnfitRowsError, Status.INVALID_ARGUMENT),
    (CommitUnknownError, Status.UNKNOWN),
    (MissingExtraError, Status.FAILED_PRECONDITION),
    (RegistrationError, Status.INVALID_ARGUMENT),
    (SchemaConflictError, Status.INVALID_ARGUMENT),
    (UsageError, Status.INVALID_ARGUMENT),
    (TypeError, Status.INVALID_ARGUMENT),
    (PermissionError, Status.PERMISSION_DENIED),
    (TimeoutError, Status.DEADLINE_EXCEEDED),
    (MemoryError, Status.RESOURCE_EXHAUSTED),
)


def protocol_error(error: BaseException) -> ProtocolError:
    """The status that an error of a handler becomes; of one that is none of ours, no detail goes out.

    >>> from chunkmill.engine.errors import NotFoundError
    >>> protocol_error(NotFoundError("No dataset found with name 'x'")).code
    <Status.NOT_FOUND: 5>
    """
    if isinstance(error, ProtocolError):
        return error
    if not isinstance(error, ChunkmillError):
        own = [status for kind, status in _STATUSES if isinstance(error, kind)]
        code = next((status for status in own if status is not Status.INVALID_ARGUMENT), Status.INTERNAL)
        return ProtocolError(code, f"the server failed ({type(error).__name__}); its log has the cause")
    code = next((status for kind, status in _STATUSES if isinstance(error, kind)), Status.INTERNAL)
    if error.transient and code in (Status.INTERNAL, Status.DATA_LOSS):
        code = Status.UNAVAILABLE
    return ProtocolError(code, str(error))


def cause_of(error: BaseException) -> str:
    """An error on one line of a log, and where it was raised if it is none that this project foresees.

    >>> from chunkmill.engine.errors import WriteError
    >>> cause_of(WriteError("cannot be written", path="/lake/x"))
    '/lake/x: cannot be written.'
    """
    if isinstance(error, ChunkmillError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {error}{place}"
