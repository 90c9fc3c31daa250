"""The way of a call through its method, the same for all that carries calls: who may call, and how it ends."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.message import DecodeError

from .budget import MemoryBudget
from .methods import Call, Kind, Method, ProtocolError, Status, cause_of, protocol_error
from .metrics import ServeMetrics
from .tokens import Access, Permissions

LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reception:
    """Runs calls for callers that ``access`` lets in, within a budget of memory, and counts them.

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
    ) -> Iterator[bytes]:
        """The encoded responses to encoded requests; who calls is looked at before a request is.

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
            told = protocol_error(error)
            status = told.code
            if status is Status.INTERNAL:
                LOG.error("%s failed: %s", method.name, cause_of(error), exc_info=error)
            raise ProtocolError(told.code, self.shown(told.text)) from error
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
                    raise ProtocolError(Status.INVALID_ARGUMENT, f"the request is no {name}") from None
                del data  # the message has a copy of it
                yield message
                del message

    def permitted(self, method: Method, headers: Mapping[str, str | bytes]) -> Permissions:
        """The rights of a caller. Raises :class:`ProtocolError` where it may not call the method."""
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
        raise ProtocolError(Status.INVALID_ARGUMENT, "the call ended without a request")
    answer = method.handler(given, call)
    if method.kind is Kind.UNARY:
        yield answer.SerializeToString()
        return
    for message in answer:
        yield message.SerializeToString()


def forget(error: BaseException) -> None:
    """Let go of what the frames of an error hold, in circles as a rule.

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
