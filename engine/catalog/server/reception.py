"""Reception of calls, the same for every transport: rights, memory, metrics, and how a call ends.

One budget of memory is for the bytes of all requests, and what they expand to: bytes are claimed before memory is taken
for them, and a claim on bytes that Arrow reads ends when Arrow lets go of them.
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
"""Bytes up to which a claim may use all of a budget, and does not wait behind larger ones."""
_TINY: Final = MIB // 16
"""Bytes up to which a request is always taken: of all handlers together that is a few MiB."""
_MOST_WAITING: Final = 16
"""Calls that wait for memory at once, each in a handler; those beyond are refused, so that handlers are left."""
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
        """The largest possible claim: an eighth of the budget is reserved for small ones."""
        return max(self.most - self.most // 8, min(_SMALL, self.most))

    @property
    def used(self) -> int:
        """The number of claimed bytes."""
        with self._lock:
            self._settle()
            return self._used

    def claim(self, size: int, check: Callable[[], None]) -> Claim:
        """Claim bytes; wait until they are free. ``check`` raises if no client waits for the call.

        Raises
        ------
        ProtocolError
            The budget is smaller, too many calls wait already, or waiting took too long.
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
        """A block in which bytes of a request come, each counted as it does until the block ends.

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
        """Release bytes. It may run wherever objects are destroyed, so it takes no lock."""
        self._ended.append(size)

    def freed(self) -> int:
        """Bytes that were given back since this was asked last, or 0 if they are few, or others are in use.

        Giving memory back holds up whoever takes some.
        """
        with self._lock:
            self._settle()
            if self._freed < _WORTH_A_TRIM or self._used > _SMALL:
                return 0
            freed, self._freed = self._freed, 0
            return freed

    def _taken(self, size: int, ticket: object | None) -> bool:
        """Claim bytes if they are free, and return whether they were; large claims are met in order of arrival."""
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
    """Counts of calls since the server began, in a registry of their own. Any thread may use them."""

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
        """Count the end of a call by a class of callers."""
        self._running.dec()
        self._calls.labels(method, status.name, caller).inc()
        self._seconds.labels(method).observe(seconds)

    def stalled(self) -> None:
        """Count a client that took or sent nothing for too long."""
        self._stalled.inc()

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self.registry)


# --- calls


_REVOKED_SECONDS: Final = 0.25
"""How often it is looked whether the token of a call that runs is valid still."""
_OF_AN_ENTRY: Final = (Need.READ, Need.WRITE, Need.CREATE)


@dataclass(frozen=True, slots=True)
class Reception:
    """Runs the calls of callers that ``access`` lets in, within a budget of memory; counts and logs them.

    ``shown`` makes of a text about an error the one that a client gets. While the server is ``draining``, calls that
    wait for something to happen end.
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
        """The encoded responses to encoded requests; checks the caller before it reads a request.

        The line of a call that writes is in the audit log before its first response is given.

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
            ending.note(Status.CANCELLED)  # where the client goes before the end

    def begin(self, name: str, *, writes: bool, client: str) -> Ending:
        """The end of a call that begins now, to be noted."""
        self.metrics.began()
        return Ending(self, name, writes, client)

    def _is_active(self, method: Method, caller: Caller, is_active: Callable[[], bool]) -> Callable[[], bool]:
        """Whether a client still waits for a call, and may."""
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
        """The error of a call; that of its token if it was cut as this is not valid any more."""
        if isinstance(error, ProtocolError) and error.code is Status.CANCELLED:
            try:
                self.access.check_valid(caller)
            except ProtocolError as invalid_token:
                return invalid_token
        return error

    def _parsed(self, method: Method, requests: Iterator[bytes]) -> Iterator[Any]:
        """The messages of a call, each of which holds its bytes of the budget until the next one is wanted."""
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
        """Raise :class:`ProtocolError` if a caller may call a method for no entry at all."""
        self.access.check_valid(caller)
        self.access.check(method, caller)


class Ending:
    """The end of a call, which is counted and noted once, by what comes first; ``record`` is filled meanwhile."""

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
        """Count and note it, if it was not before."""
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
    """The error of a call to a server that stops."""
    return ProtocolError(Status.UNAVAILABLE, "the server is stopping")


def _check_was_asked(method: Method, caller: Caller, call: Call) -> None:
    """Raise if a handler forgot to ask whether its caller may use the entry: better no answer than one too many."""
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
    """Release what the frames of an error hold; as a rule that is in reference circles.

    Requests are in there, which may be large, and the call. Where it was refused before its requests were taken, its
    stream counts as open for as long as the call is known: 256 refused calls would be the last of their connection,
    until garbage is collected.
    """
    chain: BaseException | None = error
    while chain is not None:
        traceback.clear_frames(chain.__traceback__)
        following = chain.__cause__ or chain.__context__
        chain.__traceback__ = chain.__cause__ = chain.__context__ = None
        chain = following
