"""A store that answers with errors, cuts connections, is slow, or refuses: tried again, or said clearly."""

from __future__ import annotations

import os
import random
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from chunkmill.engine.errors import ReadError, UsageError, WriteError
from chunkmill.engine.execution.spark_stage import failure_to_dict, is_transient
from chunkmill.engine.storage import ObjectUrl, RemoteFile, bucket, bucket_of, objects, upload_to
from chunkmill.engine.store import ChunkStore
from chunkmill.engine.stream import LazyChunkStream
from s3_server import CREDENTIALS, Reply, S3Server
from test_outputs_in_stores import blob, content, names, scalars, unfinished

MIB = 10 * 1024  # parts are as much smaller
DATA = random.Random(9).randbytes(3 * MIB)

pytestmark = pytest.mark.usefixtures("small_parts")

Answer = Callable[[Any, Callable[[], Reply]], list[bytes]]


def status(code: str, body: bytes = b"") -> Answer:
    """An answer of that status."""

    def answer(start_response: Any, _: Callable[[], Reply]) -> list[bytes]:
        start_response(code, [("Content-Length", str(len(body))), ("Content-Type", "application/xml")])
        return [body]

    return answer


def cut(start_response: Any, reply: Callable[[], Reply]) -> list[bytes]:
    """The right answer, but the connection is closed in its middle."""
    code, headers, body = reply()
    start_response(code, headers)
    return [body[: len(body) // 2]]


def slow(start_response: Any, reply: Callable[[], Reply]) -> list[bytes]:
    """The right answer, late."""
    time.sleep(0.3)
    code, headers, body = reply()
    start_response(code, headers)
    return [body]


SLOW_DOWN = status("503 Slow Down", b"<Error><Code>SlowDown</Code></Error>")
BROKEN = status("500 Internal Server Error", b"<Error><Code>InternalError</Code></Error>")
DENIED = status(
    "403 Forbidden",
    b"<Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>%s</AWSAccessKeyId><StringToSign>%s</StringToSign></Error>"
    % (CREDENTIALS["AWS_ACCESS_KEY_ID"].encode(), CREDENTIALS["AWS_SECRET_ACCESS_KEY"].encode()),
)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait little between attempts."""
    from datetime import timedelta

    short = {"init_backoff": timedelta(milliseconds=1), "max_backoff": timedelta(milliseconds=5), "base": 2}
    monkeypatch.setitem(bucket._RETRIES, "backoff", short)
    monkeypatch.setattr(objects, "_open", {})
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.001)


@pytest.fixture
def url(bucket: str, s3: S3Server) -> str:
    s3.client.put_object(Bucket=bucket[5:], Key="data.bin", Body=DATA)
    return f"{bucket}/data.bin"


@pytest.mark.parametrize("answer", [SLOW_DOWN, BROKEN, cut, slow], ids=["503", "500", "cut", "slow"])
def test_a_read_that_is_disturbed_is_tried_again(answer: Answer, url: str, s3: S3Server) -> None:
    with RemoteFile(url) as file:
        s3.disturb("GET", answer, times=1 if answer is slow else 2)
        assert file.pread(0, len(DATA)) == DATA
    assert s3.disturbances == []


@pytest.mark.parametrize("answer", [SLOW_DOWN, BROKEN], ids=["503", "500"])
def test_a_read_that_stays_disturbed_is_a_transient_error(answer: Answer, url: str, s3: S3Server) -> None:
    with RemoteFile(url) as file:
        s3.disturb("GET", answer, times=50)
        with pytest.raises(ReadError, match=r"data\.bin: the store answered 50") as caught:
            file.pread(0, 100)
    assert is_transient(caught.value)
    assert 2 <= 50 - len(s3.disturbances) <= 20


@pytest.mark.parametrize("answer", [SLOW_DOWN, BROKEN], ids=["503", "500"])
@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_an_upload_that_is_disturbed_is_tried_again(method: str, answer: Answer, bucket: str, s3: S3Server) -> None:
    upload = upload_to(ObjectUrl.of(f"{bucket}/out.bin"))
    s3.disturb(method, answer, times=2)
    for _ in range(4):
        upload.write(DATA)
    upload.finish()
    assert bucket_of(upload.url).get("out.bin") == 4 * DATA


def test_an_upload_that_cannot_be_finished_leaves_nothing(bucket: str, s3: S3Server) -> None:
    def fails(stream: LazyChunkStream) -> None:
        stream.write_rrd(f"{bucket}/out.rrd", application_id="a", recording_id="r", executor="inline")

    bucket_of(ObjectUrl.of(bucket)).put("out.rrd", b"before")
    s3.disturb("POST", status("507 Insufficient Storage"), times=50, path=f"/{bucket[5:]}/out.rrd", query="uploadId")
    with pytest.raises(WriteError, match=r"out\.rrd: cannot be written: the store answered 507"):
        fails(LazyChunkStream.from_iter(blob(i, 3 * MIB) for i in range(4)))
    s3.disturbances.clear()
    assert bucket_of(ObjectUrl.of(bucket)).get("out.rrd") == b"before"
    assert names(s3, bucket) == ["out.rrd"]
    assert unfinished(s3, bucket) == []


def test_the_end_of_an_upload_whose_answer_was_lost_counts(bucket: str, s3: S3Server) -> None:
    upload = upload_to(ObjectUrl.of(f"{bucket}/out.bin"))
    for _ in range(4):
        upload.write(DATA)
    s3.disturb("POST", BROKEN, times=6, path="/out.bin", query="uploadId", after=True)
    upload.finish()
    assert bucket_of(upload.url).get("out.bin") == 4 * DATA


def test_a_commit_whose_answer_was_lost_counts(bucket: str, s3: S3Server) -> None:
    s3.disturb("PUT", BROKEN, times=1, path="/versions/00000001.json", after=True)
    LazyChunkStream.from_iter([scalars(1)]).collect(into=f"{bucket}/store", recording_id="r")
    assert s3.disturbances == []
    assert content(iter(ChunkStore.open(f"{bucket}/store"))) == content(iter([scalars(1)]))


def test_denied_access_is_said_without_anything_secret(url: str, bucket: str, s3: S3Server) -> None:
    def told(call: Callable[[], object]) -> str:
        s3.disturb("", DENIED, times=1)
        with pytest.raises((ReadError, WriteError), match="access denied") as caught:
            call()
        assert not is_transient(caught.value)
        failure = failure_to_dict(caught.value, "a task")
        return "".join(traceback.format_exception(caught.value)) + str(failure)

    big = upload_to(ObjectUrl.of(f"{bucket}/big.bin"))
    with RemoteFile(url) as file:
        texts = [
            told(lambda: file.pread(0, 10)),
            told(lambda: RemoteFile(url)),
            told(lambda: bucket_of(ObjectUrl.of(url)).put("x", b"x")),
            told(lambda: list(bucket_of(ObjectUrl.of(url)).list(""))),
            told(lambda: big.write(4 * DATA)),
        ]
    for text in texts:
        assert CREDENTIALS["AWS_ACCESS_KEY_ID"] not in text
        assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in text


def test_a_store_that_cannot_be_reached_is_said(monkeypatch: pytest.MonkeyPatch, s3: S3Server) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(ReadError, match=r"s3://fleet/a\.mcap: the store cannot be used") as caught:
        RemoteFile("s3://fleet/a.mcap")
    assert is_transient(caught.value)


def test_missing_credentials_are_said(monkeypatch: pytest.MonkeyPatch, s3: S3Server, tmp_path: Any) -> None:
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(ReadError, match="no credentials were found"):
        RemoteFile("s3://fleet/a.mcap")


def test_a_forked_process_says_that_it_cannot(url: str) -> None:
    """It would hang: the library's threads are those of the parent."""
    with RemoteFile(url) as file:
        file.pread(0, 10)
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            refused = 0
            for call in (lambda: file.pread(len(DATA) // 2, 10), lambda: RemoteFile(url)):
                try:
                    call()
                except UsageError as error:
                    refused += "spawn" in str(error)
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2


def test_settings_that_are_wrong_are_said_without_quoting_them(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "fleet")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "not~a~key")
    with pytest.raises(ReadError, match=r"az://logs.*: the store cannot be used: the credentials or settings"):
        bucket_of(ObjectUrl.of("az://logs"))
