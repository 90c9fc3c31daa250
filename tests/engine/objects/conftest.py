"""A real S3 server on loopback, with a bucket of its own for each test."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from s3_server import CREDENTIALS, S3Server, Watched


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """moto's server on a free port of 127.0.0.1, in a thread of this process."""
    pytest.importorskip("obstore")
    boto3 = pytest.importorskip("boto3")
    server = pytest.importorskip("moto.server")
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    import threading

    application = Watched(server.DomainDispatcherApplication(server.create_backend_app))
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
    s3_server.checks_copies = True
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
    from chunkmill.engine.rrd import writer
    from chunkmill.engine.storage import remote_file, uploads

    monkeypatch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 50 * 1024)
    for module in (uploads, writer):
        monkeypatch.setattr(module, "SMALLEST_PART", 50 * 1024)
    monkeypatch.setattr(uploads, "PART", 80 * 1024)
    monkeypatch.setattr(uploads, "COPIED_PART", 512 * 1024)
    for module in (remote_file, writer):
        monkeypatch.setattr(module, "LARGEST_WINDOW", 80 * 1024)
    monkeypatch.setattr(remote_file, "SMALLEST_WINDOW", 4 * 1024)
    monkeypatch.setattr(remote_file, "_LARGEST_GAP", 10 * 1024)
