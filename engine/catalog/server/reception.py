"""Reception of calls, the same for every transport: rights, memory, metrics, and how a call ends.

One memory budget is for the bytes of all requests, including their expanded content. Bytes are claimed before memory is
allocated, and a claim on bytes that Arrow reads ends when Arrow releases them.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.message import DecodeError
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from ...limits import MIB
from .call_log import CallLogs
from .protocol import (
    Call,
    CallRecord,
    Claim,
    Kind,
    Method,
    Need,
    ProtocolError,
    Status,
    cause_of,
    invalid,
    protocol_error,
)
from .tokens import NOBODY, Access, Caller

LOG: Final = logging.getLogger(__name__)

# --- memory

MEMORY_BUDGET: Final = 1280 * MIB
"""The default in bytes: enough for a part of 512 MiB in a request of 256 MiB, and an eighth for small requests."""
_SMALL: Final = 16 * MIB
"""The most bytes of a claim that may use the whole budget, and does not wait for larger claims."""
_TINY: Final = MIB // 16
"""The most bytes of a request that is always accepted: a few MiB for all handlers together."""
_MOST_WAITING: Final = 16
"""The most calls that wait for memory, each in a handler. More are refused, so that some handlers stay free."""
_PATIENCE: Final = 60.0
_LOOK: Final = 0.05
_WORTH_A_TRIM: Final = 16 * MIB
_OPTION: Final = "--request-memory"


class MemoryBudget:
    """A budget of bytes for all calls together. Any thread may use it."""

    def __init__(self, most: int = MEMORY_BUDGET) -> None:
        self.most = most
        self._used = 0
        self._ended: deque[int] = deque()
        self._waiting: deque[object] = deque()
        self._freed = 0
        self._lock = threading.Lock()

    @property
    def most_at_once(self) -> int:
        """The largest possible claim: an eighth of the budget is reserved for small claims."""
        return max(self.most - self.most // 8, min(_SMALL, self.most))

    @property
    def used(self) -> int:
        """The number of claimed bytes."""
        with self._lock:
            self._settle()
            return self._used

    def claim(self, size: int, check: Callable[[], None]) -> Claim:
        """Claim bytes, and wait until they are free. ``check`` raises if the client no longer waits.

        Raises
        ------
        ProtocolError
            The budget is too small, too many calls already wait, or waiting took too long.
        """
        if size > self.most_at_once:
            raise _refused(
                f"the call needs {size:,} bytes of memory; one call may use {self.most_at_once:,} of the server's "
                f"budget of {self.most:,} ({_OPTION})"
            )
        if self._taken(size, None):
            return Claim(size, self.end)
        ticket = object()
        with self._lock:
            if len(self._waiting) >= _MOST_WAITING:
                raise _in_use(self.most)
            self._waiting.append(ticket)
        try:
            until = time.monotonic() + _PATIENCE
            while not self._taken(size, ticket):
                check()
                if time.monotonic() > until:
                    raise _in_use(self.most)
                time.sleep(_LOOK)
        finally:
            with self._lock:
                self._waiting.remove(ticket)
        return Claim(size, self.end)

    @contextmanager
    def taking(self) -> Iterator[Callable[[int], None]]:
        """A block that receives the bytes of a request. Each byte counts from its arrival to the end of the block.

        The block raises :class:`ProtocolError` if they do not fit.
        """
        total = 0

        def taken(size: int) -> None:
            nonlocal total
            with self._lock:
                self._settle()
                if total + size > _TINY and self._used + size > self.most:
                    raise _in_use(self.most)
                self._used += size
            total += size

        try:
            yield taken
        finally:
            self.end(total)

    def end(self, size: int) -> None:
        """Release bytes. It takes no lock, as it may run in any thread that destroys objects."""
        self._ended.append(size)

    def freed(self) -> int:
        """Bytes given back since the last call; 0 if they are few, or many others are in use.

        Returning memory to the system delays calls that allocate memory.
        """
        with self._lock:
            self._settle()
            if self._freed < _WORTH_A_TRIM or self._used > _SMALL:
                return 0
            freed, self._freed = self._freed, 0
            return freed

    def _taken(self, size: int, ticket: object | None) -> bool:
        """Claim bytes if they are free, and return whether they were. Large claims succeed in the order of arrival."""
        is_small = size <= _SMALL
        with self._lock:
            self._settle()
            first = self._waiting[0] if self._waiting else None
            if first is not ticket and not is_small:
                return False
            if self._used + size > (self.most if is_small else self.most_at_once):
                return False
            self._used += size
            return True

    def _settle(self) -> None:
        while self._ended:
            size = self._ended.popleft()
            self._used -= size
            self._freed += size


def _in_use(most: int) -> ProtocolError:
    return _refused(f"the memory for requests, {most:,} bytes ({_OPTION}), is in use; try again later")


def _refused(text: str) -> ProtocolError:
    return ProtocolError(Status.RESOURCE_EXHAUSTED, text)


# --- metrics

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX: Final = "chunkmill_serve"
_SECONDS: Final = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 300)


class ServeMetrics:
    """Counts of calls since the start of the server, in a separate registry. Any thread may use them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._calls = Counter(
            f"{_PREFIX}_calls",
            "Calls that ended, by status and class of caller.",
            ["method", "status", "caller"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            f"{_PREFIX}_call_seconds", "How long calls took.", ["method"], buckets=_SECONDS, registry=self.registry
        )
        self._running = Gauge(f"{_PREFIX}_running_calls", "Calls that run.", registry=self.registry)
        self._bytes = Counter(f"{_PREFIX}_sent_bytes", "Bytes of messages that were sent.", registry=self.registry)
        self._stalled = Counter(
            f"{_PREFIX}_stalled",
            "Calls and connections that were ended because their client stalled.",
            registry=self.registry,
        )

    def began(self) -> None:
        """Count a running call."""
        self._running.inc()

    def sent(self, size: int) -> None:
        """Count the bytes of a message."""
        self._bytes.inc(size)

    def ended(self, method: str, status: Status, caller: str, seconds: float) -> None:
        """Count the end of a call, by the class of its caller."""
        self._running.dec()
        self._calls.labels(method, status.name, caller).inc()
        self._seconds.labels(method).observe(seconds)

    def stalled(self) -> None:
        """Count a client that received and sent nothing for too long."""
        self._stalled.inc()

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self.registry)


# --- calls


_REVOKED_SECONDS: Final = 0.25
"""The seconds between two checks whether the token of a running call is still valid."""
_OF_AN_ENTRY: Final = (Need.READ, Need.WRITE, Need.CREATE)


@dataclass(frozen=True, slots=True)
class Reception:
    """Runs the calls of callers that ``access`` admits, within a memory budget; counts and logs them.

    ``shown`` turns the text of an error into the text for a client. While the server is ``draining``, calls that wait
    for events end.
    """

    access: Access
    budget: MemoryBudget = field(default_factory=MemoryBudget)
    shown: Callable[[str], str] = str
    metrics: ServeMetrics = field(default_factory=ServeMetrics)
    logs: CallLogs | None = None
    draining: threading.Event = field(default_factory=threading.Event)

    def run(
        self,
        method: Method,
        requests: Iterator[bytes],
        headers: Mapping[str, str | bytes],
        *,
        peer: str = "",
        remaining: float | None = None,
        is_active: Callable[[], bool] = lambda: True,
    ) -> Generator[bytes, None, None]:
        """Yield the encoded responses to encoded requests. The caller is checked before a request is read.

        For a call that writes, the line in the audit log comes before the first response.

        Raises
        ------
        ProtocolError
            The call ends with another status than ``OK``. Nothing else is raised.
        """
        ending = self.begin(method.name, writes=method.writes, client=peer)
        try:
            caller = ending.caller = self.access.caller(headers)
            self.check(method, caller)
            if method.writes and self.logs is not None:
                self.logs.check_writable()
            call = Call(
                headers=headers,
                peer=peer,
                deadline=None if remaining is None else ending.began + remaining,
                rights=caller.rights,
                need=method.need,
                subject=caller.subject,
                token_id=caller.token_id,
                is_active=self._is_active(method, caller, is_active),
                claim=self.budget.claim,
                record=ending.record,
            )
            answers: Iterator[bytes] = _answers(method, self._parsed(method, requests), call)
            if method.writes:
                answers = iter(list(answers))
                ending.note(Status.OK)
            for data in answers:
                _check_was_asked(method, caller, call)
                self.metrics.sent(len(data))
                yield data
            if method.waits and is_active():
                self.access.check_valid(caller)
                if self.draining.is_set():
                    raise stopping()
            ending.note(Status.OK)
        except Exception as error:
            ended = protocol_error(self._of_token(ending.caller, error))
            ending.note(ended.code)
            if ended.code is Status.INTERNAL:
                LOG.error("%s failed: %s", method.name, cause_of(error), exc_info=error)
            raise ProtocolError(ended.code, self.shown(ended.text)) from error
        finally:
            ending.note(Status.CANCELLED)  # if the client leaves before the end

    def begin(self, name: str, *, writes: bool, client: str) -> Ending:
        """Begin a call, and return the object that notes its end."""
        self.metrics.began()
        return Ending(self, name, writes, client)

    def _is_active(self, method: Method, caller: Caller, is_active: Callable[[], bool]) -> Callable[[], bool]:
        """Return a function that checks whether the client still waits for a call, and has a valid token."""
        looked = time.monotonic()
        is_valid = True

        def is_wanted() -> bool:
            nonlocal looked, is_valid
            now = time.monotonic()
            if now - looked > _REVOKED_SECONDS:
                looked = now
                try:
                    self.access.check_valid(caller)
                except ProtocolError:
                    is_valid = False
            return is_valid and is_active() and not (method.waits and self.draining.is_set())

        return is_wanted

    def _of_token(self, caller: Caller, error: Exception) -> Exception:
        """The error of a call, or the error of its token, if the call ended because the token is no longer valid."""
        if isinstance(error, ProtocolError) and error.code is Status.CANCELLED:
            try:
                self.access.check_valid(caller)
            except ProtocolError as invalid_token:
                return invalid_token
        return error

    def _parsed(self, method: Method, requests: Iterator[bytes]) -> Iterator[Any]:
        """The messages of a call. Each message uses the budget until the next one is requested."""
        while (data := next(requests, None)) is not None:
            with self.budget.taking() as taken:
                taken(len(data))
                try:
                    message = method.request.FromString(data)
                except DecodeError:
                    name = method.request.DESCRIPTOR.name
                    raise invalid(f"the request is not a {name}") from None
                del data  # the message has a copy of it
                yield message
                del message

    def check(self, method: Method, caller: Caller) -> None:
        """Raise :class:`ProtocolError` if a caller may not call a method for any entry."""
        self.access.check_valid(caller)
        self.access.check(method, caller)


class Ending:
    """The end of a call, which the first :meth:`note` counts and logs; ``record`` is filled until then."""

    def __init__(self, reception: Reception, name: str, writes: bool, client: str) -> None:
        self.began = time.monotonic()
        self.caller = NOBODY
        self.record = CallRecord()
        self._reception = reception
        self._name = name
        self._writes = writes
        self._client = client
        self._is_noted = False

    def note(self, status: Status) -> None:
        """Count and log the end, unless this was already done."""
        if self._is_noted:
            return
        self._is_noted = True
        seconds = time.monotonic() - self.began
        self._reception.metrics.ended(self._name, status, self.caller.kind, seconds)
        if self._reception.logs is not None:
            self._reception.logs.note(
                self._name,
                self.caller,
                status,
                self.record,
                client=self._client,
                seconds=seconds,
                writes=self._writes,
            )


def stopping() -> ProtocolError:
    """The error of a call to a stopping server."""
    return ProtocolError(Status.UNAVAILABLE, "the server is stopping")


def _check_was_asked(method: Method, caller: Caller, call: Call) -> None:
    """Raise if a handler did not check whether its caller may use the entry, so that the answer is not sent."""
    names = caller.rights.writable if method.writes else caller.rights.readable
    if method.need in _OF_AN_ENTRY and names is not None and not call.record.is_checked:
        raise ProtocolError(Status.INTERNAL, f"{method.name} did not check rights to an entry")


def _answers(method: Method, requests: Iterator[Any], call: Call) -> Iterator[bytes]:
    if method.kind is Kind.UPLOAD:
        yield method.handler(requests, call).SerializeToString()
        return
    given = next(requests, None)
    if given is None:
        raise invalid("the call ended without a request")
    answer = method.handler(given, call)
    if method.kind is Kind.UNARY:
        yield answer.SerializeToString()
        return
    for message in answer:
        yield message.SerializeToString()


def clear_traceback(error: BaseException) -> None:
    """Release the objects in the frames of an error, which are usually in reference cycles.

    They include requests, which may be large, and the call. If a call was refused before its requests were read, its
    stream counts as open while the call object exists: 256 refused calls would block their connection until a garbage
    collection.
    """
    chain: BaseException | None = error
    while chain is not None:
        traceback.clear_frames(chain.__traceback__)
        following = chain.__cause__ or chain.__context__
        chain.__traceback__ = chain.__cause__ = chain.__context__ = None
        chain = following
