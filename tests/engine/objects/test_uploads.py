"""Uploads to S3: parts, ranges copied inside the store, and nothing visible before the end."""

from __future__ import annotations

import random

import pytest
from chunkmill.engine.errors import ReadError, WriteError
from chunkmill.engine.storage import ObjectUrl, Upload, bucket_of, upload_to
from chunkmill.engine.storage.uploads import StreamUpload
from s3_server import CREDENTIALS, S3Server

MIB = 10 * 1024  # parts are as much smaller
PART = 8 * MIB
DATA = random.Random(5).randbytes(18 * MIB)

pytestmark = pytest.mark.usefixtures("small_parts")


def whole(s3: S3Server, url: str) -> bytes:
    bucket, _, key = url[5:].partition("/")
    return s3.client.get_object(Bucket=bucket, Key=key)["Body"].read()


def unfinished(s3: S3Server, bucket: str) -> list[str]:
    return [u["Key"] for u in s3.client.list_multipart_uploads(Bucket=bucket[5:]).get("Uploads", [])]


@pytest.mark.parametrize("size", [0, PART - 1, PART, 2 * PART + 1])
def test_what_is_written_is_there(size: int, bucket: str, s3: S3Server) -> None:
    upload = upload_to(ObjectUrl.of(f"{bucket}/a b/ü%20.bin"))
    for begin in range(0, size, 3 * MIB):
        upload.write(DATA[begin : min(size, begin + 3 * MIB)])
    upload.finish()
    assert whole(s3, f"{bucket}/a b/ü%20.bin") == DATA[:size]
    assert unfinished(s3, bucket) == []


@pytest.mark.parametrize("abort", [True, False])
def test_nothing_is_visible_of_an_upload_that_was_not_finished(abort: bool, bucket: str, s3: S3Server) -> None:
    store = bucket_of(ObjectUrl.of(bucket))
    store.put("out.bin", b"before")
    upload = upload_to(ObjectUrl.of(f"{bucket}/out.bin"))
    upload.write(DATA)
    if abort:
        upload.abort()
        assert unfinished(s3, bucket) == []
    assert store.get("out.bin") == b"before"


@pytest.mark.parametrize(
    "pieces",
    [
        [(0, 6 * MIB), (6 * MIB, 11 * MIB)],
        [(0, 100), (100, 8 * MIB), (12 * MIB, 12 * MIB + 7)],
        [(5, MIB), (MIB, 2 * MIB), (2 * MIB, 9 * MIB)],
        [(0, 5 * MIB), (5 * MIB, 10 * MIB + 1), (3, 4)],
    ],
)
@pytest.mark.parametrize("head", [0, 300])
def test_ranges_of_other_objects_are_joined_inside_the_store(
    head: int, pieces: list[tuple[int, int]], bucket: str, s3: S3Server
) -> None:
    source = ObjectUrl.of(f"{bucket}/source.bin")
    s3.client.put_object(Bucket=source.bucket, Key=source.key, Body=DATA)
    upload = upload_to(ObjectUrl.of(f"{bucket}/joined.bin"))
    upload.write(DATA[:head])
    for start, stop in pieces:
        assert upload.copy(source, None, start, stop - start)
    upload.write(b"the end")
    upload.finish()
    assert whole(s3, f"{bucket}/joined.bin") == DATA[:head] + b"".join(DATA[a:b] for a, b in pieces) + b"the end"


def test_large_ranges_do_not_pass_through_this_process(bucket: str, s3: S3Server) -> None:
    source = ObjectUrl.of(f"{bucket}/source.bin")
    s3.client.put_object(Bucket=source.bucket, Key=source.key, Body=DATA)
    s3.requests.clear()
    upload = upload_to(ObjectUrl.of(f"{bucket}/joined.bin"))
    upload.copy(source, bucket_of(source).head("source.bin").version, 0, len(DATA))
    upload.finish()
    assert s3.requests["GET"] == 0
    assert whole(s3, f"{bucket}/joined.bin") == DATA


def test_a_source_that_was_replaced_is_not_joined(bucket: str, s3: S3Server) -> None:
    source = ObjectUrl.of(f"{bucket}/source.bin")
    s3.client.put_object(Bucket=source.bucket, Key=source.key, Body=DATA)
    upload = upload_to(ObjectUrl.of(f"{bucket}/joined.bin"))
    with pytest.raises(ReadError, match="changed while it was read"):
        upload.copy(source, '"00000000000000000000000000000000"', 0, MIB)
    upload.abort()
    assert not bucket_of(source).exists("joined.bin")
    assert unfinished(s3, bucket) == []


def test_stores_without_copies_get_the_bytes_from_here(bucket: str, s3: S3Server) -> None:
    url = ObjectUrl.of(f"{bucket}/streamed.bin")
    upload: Upload = StreamUpload(url, bucket_of(url))
    buffer = bytearray(DATA)
    upload.write(buffer)
    buffer.clear()
    assert not upload.copy(url, None, 0, 10)
    assert not bucket_of(url).exists("streamed.bin")
    upload.finish()
    assert whole(s3, f"{bucket}/streamed.bin") == DATA


@pytest.mark.parametrize("size", [10, 2 * PART])
def test_a_bucket_that_is_missing_is_named(size: int, s3: S3Server) -> None:
    upload = upload_to(ObjectUrl.of("s3://nowhere-at-all/out.bin"))

    def write() -> None:
        upload.write(DATA[:size])
        upload.finish()

    with pytest.raises(WriteError, match=r"s3://nowhere-at-all/out.bin: cannot be written: there is no such bucket"):
        write()


def test_real_parts_are_large_enough_for_s3(bucket: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": s3.endpoint}.items():
        monkeypatch.setenv(name, value)
    data = random.Random(6).randbytes(8 * 1024 * 1024)
    source = ObjectUrl.of(f"{bucket}/source.bin")
    bucket_of(source).put(source.key, data)
    upload = upload_to(ObjectUrl.of(f"{bucket}/joined.bin"))
    upload.write(b"head")
    for begin, end in [(0, 100), (100, len(data)), (0, len(data))]:
        upload.copy(source, None, begin, end - begin)
    upload.finish()
    assert whole(s3, f"{bucket}/joined.bin") == b"head" + data + data
