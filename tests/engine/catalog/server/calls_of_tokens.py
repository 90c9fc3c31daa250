"""Calls of a service by holders of tokens, without a connection, through what every transport uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.catalog.server import (
    Access,
    CallLogs,
    CatalogService,
    LogOptions,
    ProtocolError,
    ServiceOptions,
    Status,
    TokenFolder,
    token,
)
from chunkmill.engine.catalog.server.protocol import SERVICE
from chunkmill.engine.catalog.server.reception import Reception

SECRET = b"0123456789abcdef0123456789abcdef"


class Answer(NamedTuple):
    status: Status
    messages: list[Any]
    text: str = ""


class Reached:
    """A server of a lake but for its port, whose logs are in files."""

    def __init__(self, lake: Path, options: LogOptions | None = None, **access: Any) -> None:
        self.lake = lake
        self.tokens = TokenFolder.of(str(lake), None)
        self.service = CatalogService(CatalogClient(lake), ServiceOptions())
        self.logs = CallLogs.of(str(lake), options)
        access = {"secret": SECRET, "tokens": self.tokens, **access}
        self.reception = Reception(Access(**access), shown=self.service.shown, logs=self.logs)

    def token(self, *permissions: str, subject: str = "tests", seconds: float = 600) -> str:
        return token(
            SECRET, permissions=permissions, seconds=seconds, hosts=["127.0.0.1"], subject=subject, tokens=self.tokens
        )

    def call(
        self,
        bearer: str | None,
        name: str,
        entry: object = None,
        requests: Iterable[Mapping[str, Any]] | None = None,
        /,
        headers: Mapping[str, str] | None = None,
        is_active: Callable[[], bool] = lambda: True,
        **fields: Any,
    ) -> Answer:
        """The answer to a request with these fields, or to several."""
        method = self.service.methods[f"/{SERVICE}/{name}"]
        given: dict[str, str | bytes] = {} if bearer is None else {"authorization": f"Bearer {bearer}"}
        given |= {} if entry is None else {"x-rerun-entry-id": str(entry)}
        data = [method.request(**one).SerializeToString() for one in (requests or [fields])]
        messages: list[Any] = []
        given |= headers or {}
        answers = self.reception.run(method, iter(data), given, peer="192.0.2.7", is_active=is_active)
        try:
            messages.extend(method.response.FromString(answer) for answer in answers)
        except ProtocolError as error:
            return Answer(error.code, messages, error.text)
        return Answer(Status.OK, messages)
