"""The catalog protocol: its methods, calls, messages and errors, and the Arrow tables in messages.

A transport looks up the method of a path in :attr:`CatalogService.methods`, parses the request with its class, runs the
handler in a thread with a :class:`Call`, and sends the responses. :func:`protocol_error` turns errors of handlers into
a status.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import lz4.block
import pyarrow as pa

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
    WriteError,
)
from ...limits import MIB
from ...rrd import (
    ARROW_ERRORS,
    Compression,
    check_columns,
    decode_batch,
    encode_batch,
    expanded_size,
    message_classes,
    stream_of,
)
from ..entries import EntryId

SERVICE: Final = "rerun.cloud.v1alpha1.RerunCloudService"
"""The name of the service. The path of each method begins with it."""

_class_of: Final = message_classes(Path(__file__).with_name("messages.binpb").read_bytes())
_LONGEST_TEXT: Final = 6000
_NANOSECONDS: Final = 1_000_000_000

MOST_UNCOMPRESSED: Final = 512 * MIB
"""The most bytes to which a part of a request may expand."""
_MOST_RATIO: Final = 255
_BY_ARROW: Final = MIB
_LARGE: Final = 16 * MIB
_LOOK: Final = 0.05
"""The seconds between two checks whether the client of a waiting call has gone."""
_one_large: Final = threading.Lock()
_V0: Final = 1
_SMALL: Final = 4096
"""The most bytes of a part that is not compressed."""

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
    """The end of a call with a status other than ``OK``, and a text for the client, cut if long.

    The text is sent in a header. gRPC clients accept at most 8 KiB, percent-encoded, and report a longer header instead
    of the error.
    """

    def __init__(self, code: Status, text: str) -> None:
        while len(quote(text, errors="replace")) > _LONGEST_TEXT:
            text = f"{text[: len(text) * 3 // 4]}…"
        super().__init__(text)
        self.code = code
        self.text = text

    def __reduce__(self) -> tuple[Any, ...]:
        return ProtocolError, (self.code, self.text)


def invalid(text: str) -> ProtocolError:
    """Return the error of an invalid request."""
    return ProtocolError(Status.INVALID_ARGUMENT, text)


class Kind(Enum):
    """The number of requests and of responses."""

    UNARY = "unary"
    """One request, one response."""
    STREAM = "stream"
    """One request, an iterator of responses."""
    UPLOAD = "upload"
    """An iterator of requests, one response."""


class Need(Enum):
    """The right that a call needs, from the caller's :class:`Rights`."""

    NOTHING = "nothing"
    """The call is about the server; any caller with some right may call it."""
    LIST = "list"
    """The call lists entries; a caller sees those that it may read."""
    READ = "read"
    """To read the entry that the call names."""
    WRITE = "write"
    """To write the entry that the call names."""
    CREATE = "create"
    """To write the entry that the call creates, by its name."""
    WRITE_SOME = "write some"
    """To write at least one entry. The call itself changes none."""
    WRITE_ALL = "write all"
    """To write every entry."""

    @property
    def writes(self) -> bool:
        """Whether this right permits writing."""
        return self not in (Need.NOTHING, Need.LIST, Need.READ)


@dataclass(frozen=True, slots=True)
class Rights:
    """The names of the entries that a caller may read, and write; None: every entry."""

    readable: frozenset[str] | None = None
    writable: frozenset[str] | None = None

    @classmethod
    def of(cls, permissions: Iterable[Any], *, read_only: bool = False) -> Rights:
        """The rights of permissions: ``read`` and ``write`` of everything, ``read:NAME`` and ``write:NAME``.

        Permission to write includes reading. Other texts permit nothing.

        >>> Rights.of(["read:drives", "write:labels"]).reads("labels")
        True
        """
        given = [text for text in permissions if isinstance(text, str)]
        writable = None if "write" in given else _names(given, "write:")
        readable = None if writable is None or "read" in given else _names(given, "read:") | writable
        return cls(readable, frozenset() if read_only else writable)

    def reads(self, name: str) -> bool:
        """Return whether the caller may read the entry with this name."""
        return self.readable is None or name in self.readable

    def writes(self, name: str) -> bool:
        """Return whether the caller may write the entry with this name."""
        return self.writable is None or name in self.writable

    @property
    def can_read(self) -> bool:
        """Whether the caller may read some entry."""
        return self.readable is None or bool(self.readable)

    @property
    def can_write(self) -> bool:
        """Whether the caller may write some entry."""
        return self.writable is None or bool(self.writable)


def _names(permissions: Iterable[str], prefix: str) -> frozenset[str]:
    return frozenset(text.removeprefix(prefix) for text in permissions if text.startswith(prefix)) - {""}


@dataclass(slots=True)
class CallRecord:
    """The notes of a handler on a call, for the logs: the call's entry, and its changes.

    ``is_refused``: the caller lacks a right, even if it gets another status.
    """

    entry_id: str = ""
    entry_name: str = ""
    changed: dict[str, Any] = field(default_factory=dict)
    is_refused: bool = False
    is_checked: bool = False


class Claim:
    """Bytes of a budget, in use until they are released or the claim is garbage-collected.

    ``end`` gives bytes back. It may be called in any thread that destroys objects.
    """

    def __init__(self, size: int, end: Callable[[int], None] = lambda _: None) -> None:
        self._size = size
        self._end = end

    def reduce(self, size: int) -> None:
        """Shrink the claim to ``size`` bytes."""
        if size < self._size:
            self._end(self._size - size)
            self._size = size

    def release(self) -> None:
        """Release all bytes of the claim."""
        self.reduce(0)

    def over(self, data: bytes | pa.Buffer) -> pa.Buffer:
        """The same bytes as a buffer that keeps the claim; the claim ends with it."""
        whole = pa.py_buffer(data)
        self.reduce(whole.size)
        return pa.foreign_buffer(whole.address, whole.size, base=_Holder(whole, self))

    def __del__(self) -> None:
        self.release()


class _Holder:
    """Memory, and its claim, which a buffer keeps alive."""

    def __init__(self, data: Any, claim: Claim) -> None:
        self.data = data
        self.claim = claim

    def __del__(self) -> None:
        self.data = None  # first the memory, then the claim on it
        self.claim.release()


@dataclass(frozen=True, slots=True)
class Call:
    """A method call: the arguments of a handler besides the request.

    ``headers`` are by lower-case names; names that end with ``-bin`` have bytes. ``deadline`` is a time of
    ``time.monotonic()``. ``is_active`` returns whether the client still waits. ``peer`` is the client's address,
    ``subject`` its name in the token, ``token_id`` the id of the token. ``rights`` are the rights of the caller,
    ``need`` is the right that the method needs. ``claim`` claims memory like ``MemoryBudget.claim``; None: without a
    budget.
    """

    headers: Mapping[str, str | bytes] = field(default_factory=dict)
    peer: str = ""
    deadline: float | None = None
    rights: Rights = Rights()
    need: Need = Need.READ
    subject: str = ""
    token_id: str = ""
    is_active: Callable[[], bool] = lambda: True
    claim: Callable[[int, Callable[[], None]], Claim] | None = None
    record: CallRecord = field(default_factory=CallRecord)

    @property
    def entry_id(self) -> EntryId | None:
        """The id of the entry in the headers, or None. Raises :class:`ProtocolError` for an invalid id."""
        text = self._text(ENTRY_ID_HEADER)
        if not text:
            return None
        try:
            return EntryId(text)
        except (TypeError, ValueError):
            raise invalid(f"the '{ENTRY_ID_HEADER}' header is not an entry id: {text[:64]!r}") from None

    @property
    def entry_name(self) -> str | None:
        """The name of the entry in the headers, or None."""
        return self._text(ENTRY_NAME_HEADER) or None

    @property
    def client_version(self) -> str:
        """The name and version of the client, such as ``rerun-py/0.41.0``; empty if it sends none."""
        return self._text(CLIENT_VERSION_HEADER)

    def cancelled(self) -> bool:
        """Whether the client has stopped waiting for an answer."""
        return (self.deadline is not None and time.monotonic() > self.deadline) or not self.is_active()

    def check(self) -> None:
        """Raise :class:`ProtocolError` if the client has stopped waiting. Long handlers call this from time to time."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise ProtocolError(Status.DEADLINE_EXCEEDED, "the deadline of the call has passed")
        if not self.is_active():
            raise ProtocolError(Status.CANCELLED, "the client has gone")

    def _text(self, name: str) -> str:
        value = self.headers.get(name, "")
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


@dataclass(frozen=True, slots=True)
class Method:
    """A method of the protocol: its messages, and the function that answers it.

    ``request`` and ``response`` are classes with ``FromString`` and ``SerializeToString``. ``handler`` takes a request
    and the call, and returns a response; an upload takes an iterator of requests, a stream returns an iterator of
    responses. It runs in any thread. ``need`` is the right that a caller needs. ``waits``: the handler sleeps until an
    event.
    """

    name: str
    request: Any
    response: Any
    kind: Kind
    handler: Callable[..., Any]
    need: Need
    waits: bool = False

    @property
    def writes(self) -> bool:
        """Whether the method needs a right to write."""
        return self.need.writes

    @property
    def path(self) -> str:
        """The path of the method on the wire."""
        return f"/{SERVICE}/{self.name}"


def answers(
    name: str, kind: Kind = Kind.UNARY, *, need: Need, waits: bool = False
) -> Callable[[Callable[..., Any]], Method]:
    """Register the decorated function as a method; its arguments are the lake, the request and the call.

    The messages are named after the method.
    """

    def method(handler: Callable[..., Any]) -> Method:
        return Method(name, cloud(f"{name}Request"), cloud(f"{name}Response"), kind, handler, need, waits)

    return method


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
    """The status for an error of a handler. For unexpected errors, no details are sent.

    >>> from chunkmill import NotFoundError
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
    """The line of a log for an error; for an unexpected error, with the place where it was raised.

    >>> from chunkmill import WriteError
    >>> cause_of(WriteError("cannot be written", path="/lake/x"))
    'CM201: /lake/x: cannot be written.'
    """
    if isinstance(error, ChunkmillError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


# --- messages


def cloud(name: str) -> Any:
    """The class of a message of the service, such as ``WhoAmIRequest``."""
    return _class_of(f"rerun.cloud.v1alpha1.{name}")


def shared(name: str) -> Any:
    """The class of a shared message, such as ``EntryId`` or ``DataframePart``."""
    return _class_of(f"rerun.common.v1alpha1.{name}")


RrdManifest: Final = _class_of("rerun.log_msg.v1alpha1.RrdManifest")


def entry_id_message(id: EntryId) -> Any:  # noqa: A002 (it is one)
    """An entry's id as a message."""
    half = int.from_bytes
    return shared("EntryId")(id={"time_ns": half(id.as_bytes()[:8], "big"), "inc": half(id.as_bytes()[8:], "big")})


def entry_id_of(message: Any) -> EntryId:
    """The inverse of :func:`entry_id_message`."""
    return EntryId(f"{message.id.time_ns:016x}{message.id.inc:016x}")


def time_message(nanoseconds: int) -> dict[str, int]:
    """A time since the epoch as the fields of a ``Timestamp``."""
    seconds, rest = divmod(nanoseconds, _NANOSECONDS)
    return {"seconds": seconds, "nanos": rest}


# --- Arrow tables in messages


def schema_message(schema: pa.Schema) -> Any:
    """A schema as a message."""
    return shared("Schema")(arrow_schema=schema.serialize().to_pybytes())


def schema_in(message: Any) -> pa.Schema:
    """The inverse of :func:`schema_message`. Raises :class:`ProtocolError`."""
    try:
        head = pa.ipc.read_message(pa.py_buffer(message.arrow_schema))
        check_columns(head)
        return pa.ipc.read_schema(head)
    except ARROW_ERRORS as error:
        raise invalid(f"the schema is not an Arrow schema: {error}") from error


def part_of(rows: pa.Table | pa.RecordBatch) -> Any:
    """Rows as a part with one batch."""
    batch = rows if isinstance(rows, pa.RecordBatch) else _one_batch(rows)
    compression = Compression.LZ4 if batch.nbytes > _SMALL else Compression.NONE
    try:
        data, size = encode_batch(batch, compression)
    except WriteError as error:
        raise ProtocolError(Status.RESOURCE_EXHAUSTED, f"the answer is too large: {error.message}") from error
    return shared("DataframePart")(
        encoder_version=_V0,
        payload=data if isinstance(data, bytes) else data.to_pybytes(),
        compression=int(compression),
        uncompressed_size=size,
    )


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) == 1:
        batch: pa.RecordBatch = batches[0]
        return batch
    columns = [pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type) for column in table]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def rows_in(part: Any, call: Call | None = None) -> pa.Table:
    """The rows of a client's part, with every buffer checked. Raises :class:`ProtocolError`.

    Their memory is claimed from the budget of all calls until the rows are destroyed. Parts of the server itself need
    no ``call``.
    """
    call = call or Call()
    if part.encoder_version != _V0:
        raise invalid(f"the part has encoder version {part.encoder_version}; only 1 is known")
    data = _expanded(part, call)
    try:
        inner = expanded_size(data)
    except ARROW_ERRORS as error:
        reason = "it holds no record batch" if isinstance(error, StopIteration) else error
        raise invalid(f"the part is not a whole Arrow stream: {reason}") from error
    try:
        if inner > _SMALL:
            data = _expanded_within(data, inner, call)
        batch = _decoded(data)
    except ReadError as error:
        raise invalid(str(error)) from error
    twice = next((name for name, count in Counter(batch.schema.names).items() if count > 1), None)
    if twice is not None:
        raise invalid(f"the part has two columns with the name {twice!r}")
    return pa.Table.from_batches([batch])


def _decoded(data: pa.Buffer) -> pa.RecordBatch:
    return decode_batch(data, path="the request", offset=None, what="the part")


def _expanded(part: Any, call: Call) -> pa.Buffer:
    """The Arrow stream in a part."""
    if part.compression in (0, int(Compression.NONE)):
        payload: bytes = part.payload
        return _claimed(call, len(payload)).over(payload)
    if part.compression != int(Compression.LZ4):
        raise invalid(f"the part has compression {part.compression}; only 1 (none) and 2 (LZ4) are known")
    size, payload = part.uncompressed_size, part.payload
    if size > MOST_UNCOMPRESSED or size > len(payload) * _MOST_RATIO:
        raise invalid(f"the part of {len(payload):,} bytes declares an expanded size of {size:,}")
    claim = _claimed(call, size + len(payload))
    if size < _BY_ARROW:
        return claim.over(_expanded_block(payload, size))
    with _turn(size, call):
        return claim.over(_expanded_large(payload, size))


def _expanded_block(block: bytes, size: int) -> bytes:
    try:
        data: bytes = lz4.block.decompress(block, uncompressed_size=size)
    except (lz4.block.LZ4BlockError, ValueError) as error:
        raise invalid(f"the part is not an LZ4 block: {error}") from error
    if len(data) != size:
        raise invalid(f"the part expands to {len(data):,} bytes instead of {size:,}")
    return data


def _expanded_large(block: bytes, size: int) -> pa.Buffer:
    """The stream, expanded by Arrow. This needs memory once, and does not stop other threads (lz4: 0.4 s for 500 MiB).

    Arrow does not report a block that expands to fewer bytes, and leaves the other bytes unset. So a first expansion
    into a buffer with one byte less must fail. ``tests/fuzz/bombs_at_once.py`` guards both.
    """
    codec = pa.Codec("lz4_raw")
    try:
        codec.decompress(block, decompressed_size=size - 1)
    except OSError:
        pass
    else:
        raise invalid(f"the part expands to fewer bytes than {size:,}")
    try:
        return codec.decompress(block, decompressed_size=size)
    except OSError as error:
        raise invalid(f"the part is not an LZ4 block: {error}") from error


def _expanded_within(data: pa.Buffer, size: int, call: Call) -> pa.Buffer:
    """An Arrow stream with compressed buffers, expanded to at most ``size`` bytes."""
    if size > MOST_UNCOMPRESSED:
        raise invalid(f"the part of {data.size:,} bytes has buffers that expand to {size:,}")
    claim = _claimed(call, 2 * size)
    with _turn(size, call):
        return claim.over(stream_of(_decoded(data)))


@contextmanager
def _turn(size: int, call: Call) -> Iterator[None]:
    """A block that expands ``size`` bytes. Large expansions run one after another, and leave cores to other calls."""
    if size < _LARGE:
        yield
        return
    while not _one_large.acquire(timeout=_LOOK):
        call.check()
    try:
        yield
    finally:
        _one_large.release()


def _claimed(call: Call, size: int) -> Claim:
    call.check()
    return Claim(size) if call.claim is None else call.claim(size, call.check)


def projected(table: pa.Table, columns: Iterable[str]) -> pa.Table:
    """Only these columns, in this order, or all columns if none are named. Raises :class:`ProtocolError`."""
    names = list(columns)
    for at, name in enumerate(names):
        if name not in table.column_names:
            raise invalid(
                f"Unable to project columns: Invalid argument error: projected column '{name}' not found in schema"
            )
        if name in names[:at]:
            raise invalid(
                f"Unable to project columns: Invalid argument error: projected column '{name}' was requested twice"
            )
    return table.select(names) if names else table
