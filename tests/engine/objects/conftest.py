"""A real S3 server on loopback, with a bucket of its own for each test."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIALOOPBACK",
    "AWS_SECRET_ACCESS_KEY": "loopback-secret",
    "AWS_REGION": "us-east-1",
}


@dataclass
class S3Server:
    """The server: its address, a client of its own for the test, and the requests it was sent."""

    endpoint: str
    client: Any
    requests: Counter[str] = field(default_factory=Counter)
    """Counts by method."""
    log: list[str] = field(default_factory=list)
    """Method, path and range of each."""


class _Counting:
    """WSGI middleware that counts requests."""

    def __init__(self, application: Any, requests: Counter[str], log: list[str]) -> None:
        self._application, self._requests, self._log = application, requests, log

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        self._requests[environ["REQUEST_METHOD"]] += 1
        parts = ("REQUEST_METHOD", "PATH_INFO", "QUERY_STRING", "HTTP_RANGE", "HTTP_X_AMZ_COPY_SOURCE_RANGE")
        self._log.append(" ".join(environ.get(part, "") for part in parts).strip())
        return self._application(environ, start_response)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """moto's server on a free port of 127.0.0.1, in a thread of this process."""
    pytest.importorskip("obstore")
    boto3 = pytest.importorskip("boto3")
    server = pytest.importorskip("moto.server")
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    import threading

    requests: Counter[str] = Counter()
    log: list[str] = []
    application = _Counting(server.DomainDispatcherApplication(server.create_backend_app), requests, log)
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
    yield S3Server(endpoint, client, requests, log)
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
    return s3_server


_buckets = iter(range(1_000_000))


@pytest.fixture
def bucket(s3: S3Server) -> str:
    """A new bucket, as a URL."""
    name = f"robots-{next(_buckets)}"
    s3.client.create_bucket(Bucket=name)
    return f"s3://{name}"
