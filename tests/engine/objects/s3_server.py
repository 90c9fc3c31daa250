"""A real S3 server on loopback that counts what it is asked, and can be disturbed."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIALOOPBACK",
    "AWS_SECRET_ACCESS_KEY": "loopback-secret",
    "AWS_REGION": "us-east-1",
}


class Disturbance(NamedTuple):
    """An answer to a request that is not the server's. ``path`` and ``query`` must be in those of the request."""

    method: str
    answer: Any
    path: str
    query: str
    after: bool

    def fits(self, environ: dict[str, Any]) -> bool:
        """Whether a request is of the kind that is disturbed."""
        return (
            environ["REQUEST_METHOD"].startswith(self.method)
            and self.path in environ["PATH_INFO"]
            and self.query in environ["QUERY_STRING"]
        )


@dataclass
class S3Server:
    """The server: its address, a client of its own for the test, and the requests it was sent."""

    endpoint: str
    client: Any
    requests: Counter[str] = field(default_factory=Counter)
    """Counts by method."""
    log: list[str] = field(default_factory=list)
    """Method, path and range of each."""
    disturbances: list[Disturbance] = field(default_factory=list)
    """What the next requests that they fit are answered instead."""
    checks_copies: bool = True
    """Whether copies are made on the conditions they name, as by Amazon's; moto ignores these, as some servers do."""

    def disturb(
        self, method: str, answer: Any, *, times: int, path: str = "", query: str = "", after: bool = False
    ) -> None:
        """Answer the next requests of a method (any, if empty) so; ``after`` the server has done what they ask."""
        self.disturbances += [Disturbance(method, answer, path, query, after)] * times


class Reply(NamedTuple):
    """An answer of the server."""

    status: str
    headers: list[tuple[str, str]]
    body: bytes


class Watched:
    """WSGI middleware that counts requests, and disturbs some."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self.server: S3Server | None = None

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        assert self.server is not None
        self.server.requests[environ["REQUEST_METHOD"]] += 1
        parts = ("REQUEST_METHOD", "PATH_INFO", "QUERY_STRING", "HTTP_RANGE", "HTTP_X_AMZ_COPY_SOURCE_RANGE")
        self.server.log.append(" ".join(environ.get(part, "") for part in parts).strip())
        if not self.server.disturbances or not self.server.disturbances[0].fits(environ):
            if self.server.checks_copies and not self._is_as_named(environ):
                start_response("412 Precondition Failed", [("Content-Type", "application/xml")])
                return [b"<Error><Code>PreconditionFailed</Code></Error>"]
            return self._application(environ, start_response)
        disturbance = self.server.disturbances.pop(0)
        if disturbance.after:
            self._reply(environ)
        return disturbance.answer(start_response, lambda: self._reply(environ))

    def _is_as_named(self, environ: dict[str, Any]) -> bool:
        """Whether the conditions of a copy are met."""
        source = environ.get("HTTP_X_AMZ_COPY_SOURCE")
        if source is None:
            return True
        wanted = environ.get("HTTP_X_AMZ_COPY_SOURCE_IF_MATCH")
        if wanted is not None and self._tag(environ, "/" + unquote(source).lstrip("/")) != wanted:
            return False
        return environ.get("HTTP_IF_NONE_MATCH") != "*" or self._tag(environ, environ["PATH_INFO"]) is None

    def _tag(self, environ: dict[str, Any], path: str) -> str | None:
        head = {k: v for k, v in environ.items() if not k.startswith(("HTTP_X_AMZ_COPY", "HTTP_IF_"))}
        head |= {
            "REQUEST_METHOD": "HEAD",
            "PATH_INFO": path,
            "RAW_URI": quote(path),
            "QUERY_STRING": "",
            "CONTENT_LENGTH": "0",
        }
        reply = self._reply({**head, "wsgi.input": io.BytesIO()})
        return {k.lower(): v for k, v in reply.headers}.get("etag") if reply.status[:3] == "200" else None

    def _reply(self, environ: dict[str, Any]) -> Reply:
        """What the server would have answered."""
        heads: list[tuple[str, list[tuple[str, str]]]] = []
        body = b"".join(self._application(environ, lambda status, headers, *_: heads.append((status, headers))))
        return Reply(*heads[0], body)
