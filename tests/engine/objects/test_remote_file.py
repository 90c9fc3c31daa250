"""Objects read like files: right bytes in few requests, and errors that say what is wrong."""

from __future__ import annotations

import random
import re

import pyarrow as pa
import pytest
from chunkmill.engine.errors import ReadError, SourceMissingError, error_from_dict
from chunkmill.engine.storage import ObjectUrl, RemoteFile, bucket_of
from s3_server import S3Server

MIB = 10 * 1024  # windows are as much smaller
LARGEST_WINDOW, SMALLEST_WINDOW = 8 * MIB, 4 * 1024
DATA = random.Random(7).randbytes(40 * MIB)

pytestmark = pytest.mark.usefixtures("small_parts")


@pytest.fixture
def large(s3: S3Server, bucket: str) -> str:
    url = f"{bucket}/large.bin"
    s3.client.put_object(Bucket=bucket[5:], Key="large.bin", Body=DATA)
    s3.requests.clear()
    s3.log.clear()
    return url


def test_reading_on_takes_few_large_requests(large: str, s3: S3Server) -> None:
    with RemoteFile(large) as file:
        for offset in range(0, len(DATA), 1000):
            assert file.pread(offset, 1000) == DATA[offset : offset + 1000]
    assert s3.requests["HEAD"] == 1
    assert s3.requests["GET"] <= 4 + len(DATA) // LARGEST_WINDOW + 1


def test_an_expected_range_is_fetched_in_large_requests_and_not_beyond(large: str, s3: S3Server) -> None:
    start, stop = 3 * MIB, 19 * MIB
    fetched = []
    with RemoteFile(large) as file:
        original = file._fetch
        file._fetch = lambda a, b: (fetched.append((a, b)), original(a, b))[1]
        file.expect((start, stop))
        data = b"".join(file.pread(offset, 512) for offset in range(start, stop, 512))
    assert data == DATA[start:stop]
    assert sorted(fetched) == [(start, start + 8 * MIB), (start + 8 * MIB, stop)]


def test_expected_ranges_are_fetched_alone_and_near_ones_together(large: str, s3: S3Server) -> None:
    ranges = [(at, at + MIB) for at in range(0, 20 * MIB, 5 * MIB)]
    near = (ranges[-1][1] + 100, ranges[-1][1] + 200)
    with RemoteFile(large) as file:
        file.expect(*ranges, near)
        for start, stop in [*ranges, near]:
            assert b"".join(file.pread(at, 512) for at in range(start, stop, 512))[: stop - start] == DATA[start:stop]
    assert s3.requests["GET"] == len(ranges)


def test_an_object_of_known_size_is_asked_for_nothing_before_it_is_read(large: str, s3: S3Server) -> None:
    with RemoteFile(large) as file:
        version = file.version
    with RemoteFile(large, version, len(DATA)) as file:
        assert file.pread(7, 5) == DATA[7:12]
        s3.client.put_object(Bucket=file.url.bucket, Key="large.bin", Body=DATA[::-1])
        with pytest.raises(ReadError, match="was changed"):
            file.pread(20 * MIB, 10)
    assert s3.requests["HEAD"] == 1


def test_a_look_ahead_costs_little_and_disturbs_nothing(large: str, s3: S3Server) -> None:
    with RemoteFile(large) as file:
        file.expect((0, len(DATA)))
        file.pread(0, 100)
        assert file.pread(30 * MIB, 10) == DATA[30 * MIB : 30 * MIB + 10]
        assert b"".join(file.pread(at, 500) for at in range(0, 20 * MIB, 500))[: 20 * MIB] == DATA[: 20 * MIB]
    sizes = [int(b) - int(a) + 1 for a, _, b in (line.rpartition("=")[2].partition("-") for line in s3.log[1:])]
    assert sum(sizes) <= len(DATA)


def test_a_look_beyond_what_is_fetched_costs_little(large: str, s3: S3Server) -> None:
    with RemoteFile(large) as file:
        file.expect((0, len(DATA)))
        file.pread(0, 100)
        file._ahead.clear()
        file._fetched_to = 8 * MIB
        assert file.pread(30 * MIB, 10) == DATA[30 * MIB : 30 * MIB + 10]
        assert file.pread(100, 10) == DATA[100:110]
    assert any(line.endswith(f"bytes={30 * MIB}-{30 * MIB + SMALLEST_WINDOW - 1}") for line in s3.log)


def test_reading_here_and_there_fetches_little(large: str, s3: S3Server) -> None:
    with RemoteFile(large) as file:
        for offset in random.Random(1).sample(range(len(DATA) - 100), 20):
            assert file.pread(offset, 100) == DATA[offset : offset + 100]
        assert file._step == SMALLEST_WINDOW
    assert s3.requests["GET"] <= 25


def test_many_small_places_are_fetched_at_once(large: str, s3: S3Server) -> None:
    places = [(i * 2 * MIB, 57) for i in range(12)]
    with RemoteFile(large) as file:
        file.peek(places)
        assert s3.requests["GET"] == 12
        assert all(file.pread(at + 9, 20) == DATA[at + 9 : at + 29] for at, _ in places)
    assert s3.requests["GET"] == 12


def test_it_is_a_file_to_python_and_to_arrow(large: str) -> None:
    with RemoteFile(large) as file:
        assert file.seek(-10, 2) == len(DATA) - 10
        assert (file.read(), file.read(5), file.tell()) == (DATA[-10:], b"", len(DATA))
        arrow = pa.PythonFile(file, mode="r")
        assert arrow.size() == len(DATA)
        assert arrow.read_at(1000, 5 * MIB) == DATA[5 * MIB : 5 * MIB + 1000]


def test_reads_of_any_place_and_size_give_the_right_bytes(large: str) -> None:
    rng = random.Random(3)
    with RemoteFile(large) as file:
        offset = 0
        for _ in range(25):
            offset = rng.choice([offset, rng.randrange(len(DATA))])
            size = rng.choice([1, 100, SMALLEST_WINDOW, MIB, 9 * MIB])
            assert file.pread(offset, size) == DATA[offset : offset + size]
            offset += size


def test_an_object_that_is_replaced_meanwhile_is_noticed(large: str, s3: S3Server, bucket: str) -> None:
    with RemoteFile(large) as file:
        file.pread(0, 10)
        s3.client.put_object(Bucket=bucket[5:], Key="large.bin", Body=DATA[::-1])
        with pytest.raises(ReadError, match=r"large\.bin: the object was changed while it was read"):
            file.pread(20 * MIB, 10)
        with pytest.raises(ReadError, match="was changed"):
            RemoteFile(large, file.version)


def test_what_is_missing_is_said(bucket: str) -> None:
    with pytest.raises(SourceMissingError, match=re.escape(f"{bucket}/none: there is no such object")):
        RemoteFile(f"{bucket}/none")
    with pytest.raises(SourceMissingError, match=r"s3://nowhere-at-all/none.*: there is no such bucket"):
        RemoteFile("s3://nowhere-at-all/none")


def test_errors_of_a_store_travel_between_processes(bucket: str) -> None:
    with pytest.raises(SourceMissingError) as caught:
        RemoteFile(f"{bucket}/none")
    assert str(error_from_dict(caught.value.to_dict())) == str(caught.value)


def test_only_one_of_two_creates_an_object(bucket: str) -> None:
    store = bucket_of(ObjectUrl.of(bucket))
    assert store.create("versions/1", b"first")
    assert not store.create("versions/1", b"second")
    assert store.get("versions/1") == b"first"
    assert [(str(o.url), o.size) for o in store.list("versions")] == [(f"{bucket}/versions/1", 5)]
    store.delete(["versions/1", "versions/1"])
    assert not store.exists("versions/1")
