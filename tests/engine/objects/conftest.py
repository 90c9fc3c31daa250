"""A real S3 server on loopback, with a bucket of its own for each test."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

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


class _Watched:
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
            return self._application(environ, start_response)
        disturbance = self.server.disturbances.pop(0)
        if disturbance.after:
            self._reply(environ)
        return disturbance.answer(start_response, lambda: self._reply(environ))

    def _reply(self, environ: dict[str, Any]) -> Reply:
        """What the server would have answered."""
        heads: list[tuple[str, list[tuple[str, str]]]] = []
        body = b"".join(self._application(environ, lambda status, headers, *_: heads.append((status, headers))))
        return Reply(*heads[0], body)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """moto's server on a free port of 127.0.0.1, in a thread of this process."""
    pytest.importorskip("obstore")
    boto3 = pytest.importorskip("boto3")
    server = pytest.importorskip("moto.server")
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    import threading

    application = _Watched(server.DomainDispatcherApplication(server.create_backend_app))
    http = make_server("127.0.0.1", 0, application, threaded=True)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    endpoint = f"http://127.0.0.1:{http.server_port}"
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        region_name=CREDENTIALS["AWS_REGION"],
    )
    application.server = S3Server(endpoint, client)
    yield application.server
    http.shutdown()
    thread.join()


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server as the environment names it."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": s3_server.endpoint}.items():
        monkeypatch.setenv(name, value)
    s3_server.requests.clear()
    s3_server.log.clear()
    s3_server.disturbances.clear()
    return s3_server


_buckets = iter(range(1_000_000))


@pytest.fixture
def bucket(s3: S3Server) -> str:
    """A new bucket, as a URL."""
    name = f"robots-{next(_buckets)}"
    s3.client.create_bucket(Bucket=name)
    return f"s3://{name}"


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts and windows of a few kilobytes where a store has megabytes, so that a test need not have them."""
    from chunkmill.engine.objects import remote_file, s3_upload, stream_upload
    from chunkmill.engine.rrd import output

    monkeypatch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 50 * 1024)
    for module in (s3_upload, output):
        monkeypatch.setattr(module, "SMALLEST_PART", 50 * 1024)
    monkeypatch.setattr(s3_upload, "PART", 80 * 1024)
    monkeypatch.setattr(s3_upload, "COPIED_PART", 512 * 1024)
    monkeypatch.setattr(stream_upload, "_PART", 80 * 1024)
    for module in (remote_file, output):
        monkeypatch.setattr(module, "LARGEST_WINDOW", 80 * 1024)
    monkeypatch.setattr(remote_file, "SMALLEST_WINDOW", 4 * 1024)
    monkeypatch.setattr(remote_file, "_LARGEST_GAP", 10 * 1024)
