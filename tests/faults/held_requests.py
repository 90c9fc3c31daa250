"""Steps of an operation that are held: operations on folders, or requests to a server of S3's protocol."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from unittest.mock import patch

from chunkmill.engine import faults
from chunkmill.engine.storage.folder import LocalFolder

PATIENCE: Final = 60.0
"""Seconds that anything is held, or waited for."""


_REACH: Final = faults.reach


@contextlib.contextmanager
def steps_through(
    reach: Callable[..., None], around: Callable[[str, Callable[..., Any]], Callable[..., Any]], names: Sequence[str]
) -> Iterator[None]:
    """Have ``reach`` called at every durable step of this process, and operations on folders go through ``around``."""
    users = [m for n, m in sys.modules.items() if n.startswith("chunkmill.") and getattr(m, "reach", None) is _REACH]
    with contextlib.ExitStack() as patches:
        for module in users:
            patches.enter_context(patch.object(module, "reach", reach))
        for name in names:
            patches.enter_context(patch.object(LocalFolder, name, around(name, getattr(LocalFolder, name))))
        yield


@dataclass
class Gate:
    """Counts the steps of an operation, and holds it at one of them."""

    at: int | None = None
    how: str = "stopped"
    steps: list[str] = field(default_factory=list)
    what: str = ""
    held: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def is_the_one(self, what: str) -> bool:
        """Count a step; whether it is to be held."""
        with self._turn:
            self.steps.append(what)
            if len(self.steps) != self.at or self.held.is_set():
                return False
            self.what = what
            return True

    def step(self, what: str) -> None:
        """A step of this process, before it is done."""
        if self.is_the_one(what):
            self.held.set()
            self.released.wait(PATIENCE)


class Server:
    """A server of S3's protocol in this process, some of whose requests are held."""

    def __init__(self) -> None:
        import boto3
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._application = DomainDispatcherApplication(create_backend_app)
        self._http = make_server("127.0.0.1", 0, self._answer, threaded=True)
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        self.endpoint = f"http://127.0.0.1:{self._http.server_port}"
        secret = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
        self.client = boto3.client("s3", endpoint_url=self.endpoint, **secret)
        self.environment = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }
        self.gate: Gate | None = None
        self._late: dict[str, Any] | None = None
        self._what = ""

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        gate, method = self.gate, environ["REQUEST_METHOD"]
        if gate is None or (gate.how in ("late", "lost") and method == "GET") or method == "HEAD":
            return self._application(environ, start_response)
        what = f"{method} {environ['PATH_INFO']}?{environ['QUERY_STRING']}"
        if gate.is_the_one(what):
            size = int(environ.get("CONTENT_LENGTH") or 0)
            body = environ["wsgi.input"].read(size) if size else b""
            environ["wsgi.input"] = io.BytesIO(body)
            if gate.how not in ("late", "lost"):
                gate.held.set()
                gate.released.wait(PATIENCE)
                return self._application(environ, start_response)
            self._late, self._what = {**environ, "wsgi.input": io.BytesIO(body)}, what
            gate.held.set()
            return _disturbed(start_response)
        if gate.how == "lost" and self._late is not None and what == self._what:
            return _disturbed(start_response)
        return self._application(environ, start_response)

    def deliver(self) -> None:
        """Let the request arrive that was held."""
        environ, self._late = self._late, None
        if environ is not None:
            with contextlib.suppress(Exception):  # moto does not know an upload that was given up meanwhile
                list(self._application(environ, lambda *_: lambda _: None))

    def stop(self) -> None:
        """End it."""
        self._http.shutdown()


def _disturbed(start_response: Any) -> list[bytes]:
    start_response("500 Internal Server Error", [("Content-Type", "application/xml")])
    return [b"<Error><Code>InternalError</Code></Error>"]
