"""Reception of calls, the same for every transport: rights, memory, metrics, and how a call ends.

A token is a JWT, signed by HS256 with a secret of the lake. One budget of memory is for the bytes of all requests, and
what they expand to: bytes are claimed before memory is taken for them, and a claim on bytes that Arrow reads ends when
Arrow lets go of them.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from ...errors import MissingExtraError, UsageError, extra_command
from ...limits import MIB
from ...locations import located
from ..entry_log import SECRETS
from .protocol import Call, Claim, Kind, Method, ProtocolError, Status, cause_of, invalid, protocol_error

LOG: Final = logging.getLogger(__name__)

# --- rights

_SECRET_NAME: Final = "secret"  # noqa: S105 (the name of a file)
"""The file in a folder of the lake that signs its tokens, readable by its owner alone; no client can name it."""
_EARLIER_NAME: Final = ".serve-secret"
_ALGORITHM: Final = "HS256"
_AUDIENCE: Final = "redap"
_SECRET_BYTES: Final = 32
_LONGEST_TOKEN: Final = 8192


class Permissions(NamedTuple):
    """The rights of a caller."""

    can_read: bool
    can_write: bool


def secret_place(lake: str) -> Path:
    """The file with the secret of a lake, in a folder out of its clients' reach.

    Where it was right in the lake's folder it is moved, and tokens stay valid. Raises ``UsageError`` for a lake in an
    object store.
    """
    place = located(lake)
    if not isinstance(place, Path):
        raise UsageError("a lake in an object store keeps no secret", path=lake, hint="Name a file by --secret-file.")
    earlier, now = place / _EARLIER_NAME, place / SECRETS / _SECRET_NAME
    if earlier.exists() and not now.exists():
        try:
            now.parent.mkdir(mode=0o700, exist_ok=True)
            earlier.rename(now)
        except FileNotFoundError:
            pass  # another process has moved it
        except OSError:
            return earlier  # which no client can name, either
    return now


def secret_of(path: Path, *, make: bool) -> bytes:
    """Read the secret; with ``make``, create it if missing. Concurrent callers get the same one.

    Raises
    ------
    UsageError
        There is none, it is too short, or others than its owner may read it.
    """
    if make and not path.exists():
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        mine = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        with open(os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:  # noqa: PTH123
            file.write(secrets.token_hex(_SECRET_BYTES))
        try:
            path.hardlink_to(mine)
        except FileExistsError:
            pass
        finally:
            mine.unlink()
    try:
        mode, secret = path.stat().st_mode, path.read_bytes().strip()
    except OSError as error:
        raise UsageError(
            f"the secret of tokens cannot be read: {error.strerror}",
            path=str(path),
            hint="`chunkmill serve token` makes it; --secret-file names another place.",
        ) from error
    if mode & 0o077:
        raise UsageError("others may read the secret of tokens", path=str(path), hint=f"Run `chmod 600 {path}`.")
    if len(secret) < _SECRET_BYTES:
        raise UsageError(f"the secret of tokens is shorter than {_SECRET_BYTES} bytes", path=str(path))
    return secret


def token(secret: bytes, *, can_write: bool, seconds: float, hosts: Sequence[str], subject: str) -> str:
    """A token for so many seconds from now. Rerun's clients send it to ``hosts`` only (names without ports)."""
    now = int(time.time())
    claims = {
        "iss": "chunkmill",
        "sub": subject,
        "aud": _AUDIENCE,
        "iat": now,
        "exp": now + int(seconds),
        "permissions": ["read", "write"] if can_write else ["read"],
        "allowed_hosts": list(hosts),
    }
    return signed(claims, secret)


def signed(claims: Mapping[str, Any], secret: bytes) -> str:
    """A token with these claims."""
    made: str = _jwt().encode(dict(claims), secret, algorithm=_ALGORITHM)
    return made


@dataclass(frozen=True, slots=True)
class Access:
    """The clients of a server: everybody, or with a ``secret`` holders of its tokens; ``read_only`` binds all."""

    secret: bytes | None = None
    read_only: bool = False

    def permissions(self, headers: Mapping[str, str | bytes]) -> Permissions:
        """The rights of a call with these headers. Raises :class:`ProtocolError` for a foreign token."""
        if self.secret is None:
            return Permissions(can_read=True, can_write=not self.read_only)
        granted = _granted(self.secret, str(headers.get("authorization", "")))
        return Permissions("read" in granted, "write" in granted and not self.read_only)

    def refusal(self) -> ProtocolError:
        """The error of a call that writes without the right to."""
        reason = "this server is read-only" if self.read_only else "the token does not permit to write"
        return ProtocolError(Status.PERMISSION_DENIED, reason)


def _granted(secret: bytes, header: str) -> Sequence[Any]:
    kind, _, given = header.partition(" ")
    if kind.lower() != "bearer" or not given:
        raise ProtocolError(
            Status.UNAUTHENTICATED,
            "this server wants a token, and the call has none; clients send one to the hosts alone that it names",
        )
    granted = verified(given, secret, _AUDIENCE).get("permissions", ())
    return granted if isinstance(granted, list) else ()


def verified(given: str, secret: bytes, audience: str) -> Mapping[str, Any]:
    """The claims of a token for an audience. Raises :class:`ProtocolError` if it is foreign or too old."""
    jwt = _jwt()
    if len(given) > _LONGEST_TOKEN:
        raise ProtocolError(Status.UNAUTHENTICATED, "malformed token")
    try:
        # PyJWT compares signatures in constant time
        claims: Mapping[str, Any] = jwt.decode(
            given, secret, algorithms=[_ALGORITHM], audience=audience, options={"require": ["exp", "aud"]}
        )
    except jwt.ExpiredSignatureError:
        text = "token has expired"
    except jwt.InvalidSignatureError:
        text = "invalid token signature"
    except jwt.InvalidAlgorithmError:
        text = "unsupported signature algorithm"
    except (jwt.DecodeError, ValueError, RecursionError):
        text = "malformed token"
    except jwt.PyJWTError:
        text = "invalid token"
    else:
        return claims
    raise ProtocolError(Status.UNAUTHENTICATED, text)


def _jwt() -> Any:
    try:
        import jwt
    except ImportError as error:
        raise MissingExtraError(
            "tokens need the package PyJWT, which is not installed", hint=extra_command("serve")
        ) from error
    return jwt


# --- memory

MEMORY_BUDGET: Final = 1280 * MIB
"""Bytes by default: a part may expand to 512 MiB, beside its request of 256, and an eighth is left to small ones."""
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
                f"{size:,} bytes of memory are needed, and {self.most_at_once:,} of the server's budget of "
                f"{self.most:,} may be used at once ({_OPTION})"
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
            f"{_PREFIX}_calls", "Calls that ended, by status.", ["method", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            f"{_PREFIX}_call_seconds", "How long calls took.", ["method"], buckets=_SECONDS, registry=self.registry
        )
        self._running = Gauge(f"{_PREFIX}_running_calls", "Calls that run.", registry=self.registry)
        self._bytes = Counter(f"{_PREFIX}_sent_bytes", "Bytes of messages that were sent.", registry=self.registry)
        self._stalled = Counter(
            f"{_PREFIX}_stalled",
            "Calls and connections that were ended as their client stalled.",
            registry=self.registry,
        )

    def began(self) -> None:
        """Count a running call."""
        self._running.inc()

    def sent(self, size: int) -> None:
        """Count the bytes of a message."""
        self._bytes.inc(size)

    def ended(self, method: str, status: Status, seconds: float) -> None:
        """Count the end of a call."""
        self._running.dec()
        self._calls.labels(method, status.name).inc()
        self._seconds.labels(method).observe(seconds)

    def stalled(self) -> None:
        """Count a client that took or sent nothing for too long."""
        self._stalled.inc()

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self.registry)


# --- calls


@dataclass(frozen=True, slots=True)
class Reception:
    """Runs the calls of callers that ``access`` lets in, within a budget of memory, and counts them.

    ``shown`` makes of a text about an error the one that a client gets.
    """

    access: Access
    budget: MemoryBudget = field(default_factory=MemoryBudget)
    shown: Callable[[str], str] = str
    metrics: ServeMetrics = field(default_factory=ServeMetrics)

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

        Raises
        ------
        ProtocolError
            The call ends with another status than ``OK``. Nothing else is raised.
        """
        began = time.monotonic()
        self.metrics.began()
        status = Status.CANCELLED  # where the client goes before the end
        try:
            granted = self.permitted(method, headers)
            call = Call(
                headers=headers,
                peer=peer,
                deadline=None if remaining is None else began + remaining,
                can_read=granted.can_read,
                can_write=granted.can_write,
                is_active=is_active,
                claim=self.budget.claim,
            )
            for data in _answers(method, self._parsed(method, requests), call):
                self.metrics.sent(len(data))
                yield data
            status = Status.OK
        except Exception as error:
            ended = protocol_error(error)
            status = ended.code
            if status is Status.INTERNAL:
                LOG.error("%s failed: %s", method.name, cause_of(error), exc_info=error)
            raise ProtocolError(ended.code, self.shown(ended.text)) from error
        finally:
            self.metrics.ended(method.name, status, time.monotonic() - began)

    def _parsed(self, method: Method, requests: Iterator[bytes]) -> Iterator[Any]:
        """The messages of a call, each of which holds its bytes of the budget until the next one is wanted."""
        while (data := next(requests, None)) is not None:
            with self.budget.taking() as taken:
                taken(len(data))
                try:
                    message = method.request.FromString(data)
                except DecodeError:
                    name = method.request.DESCRIPTOR.name
                    raise invalid(f"the request is no {name}") from None
                del data  # the message has a copy of it
                yield message
                del message

    def permitted(self, method: Method, headers: Mapping[str, str | bytes]) -> Permissions:
        """The rights of a caller. Raises :class:`ProtocolError` if it may not call the method."""
        granted = self.access.permissions(headers)
        if not granted.can_read:
            raise ProtocolError(Status.PERMISSION_DENIED, "the token does not permit to read")
        if method.writes and not granted.can_write:
            raise self.access.refusal()
        return granted


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
