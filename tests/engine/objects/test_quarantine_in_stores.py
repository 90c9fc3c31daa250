"""The quarantine of an ingestion whose home is in a bucket."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from chunkmill.engine.errors import ReadError, WriteError
from chunkmill.engine.ingest import FileResult, LandedFile, Outcome
from chunkmill.engine.ingest.quarantine import FileQuarantine
from chunkmill.engine.locations import located
from s3_server import S3Server


def failed(path: str) -> FileResult:
    error = ReadError("the magic is missing", path=path, offset=0)
    return FileResult(LandedFile(path, 10, 5), Outcome.QUARANTINED, error=error.to_dict())


@pytest.fixture
def quarantine(bucket: str) -> FileQuarantine:
    return FileQuarantine(located(f"{bucket}/lake/drives 100%"))


def denied(start_response: Any, _answer: Any) -> list[bytes]:
    start_response("403 Forbidden", [("Content-Type", "application/xml")])
    return [b"<Error><Code>AccessDenied</Code><Message>for AKIALOOPBACK</Message></Error>"]


def unwell(start_response: Any, _answer: Any) -> list[bytes]:
    start_response("503 Slow Down", [("Content-Type", "application/xml")])
    return [b"<Error><Code>SlowDown</Code></Error>"]


def tries(quarantine: FileQuarantine) -> dict[str, int]:
    return {file.path: file.tries for file in quarantine.rows()}


def test_rows_come_count_and_go(quarantine: FileQuarantine) -> None:
    assert quarantine.count() == 0
    quarantine.note("q", 1, [failed("s3://landing/a"), failed("s3://landing/b")])
    quarantine.note("q", 1, [failed("s3://landing/a"), failed("s3://landing/b")])
    quarantine.note("q", 2, [failed("s3://landing/a")])
    assert tries(quarantine) == {"s3://landing/a": 2, "s3://landing/b": 1}
    assert quarantine.resolve(["s3://landing/b", "s3://landing/c"]) == ["s3://landing/b"]
    assert quarantine.count() == 1


def test_requests_are_objects(quarantine: FileQuarantine) -> None:
    quarantine.note("q", 1, [failed("s3://landing/a"), failed("s3://landing/b")])
    quarantine.request_retry()
    assert quarantine.drop(["s3://landing/a"]) == ["s3://landing/a"]
    assert list(quarantine.pending_retries().values()) == [["s3://landing/b"]]
    quarantine.offered_again(["s3://landing/b"])
    assert quarantine.pending_retries() == {}


def test_a_batch_without_failures_costs_one_request(quarantine: FileQuarantine, s3: S3Server) -> None:
    quarantine.note("q", 1, [failed("s3://landing/a")])
    quarantine.resolve(["s3://landing/b"])
    s3.log.clear()
    assert quarantine.resolve(["s3://landing/b"]) == []
    assert len(s3.log) == 1, s3.log


def test_writers_at_once_lose_and_double_nothing(bucket: str) -> None:
    home = located(f"{bucket}/lake")

    def write(me: str) -> None:
        quarantine = FileQuarantine(home)
        for batch in range(5):
            quarantine.note(me, batch, [failed(f"s3://landing/{me}-{batch}"), failed("s3://landing/both")])

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(write, "ab")) == [None, None]
    own = {f"s3://landing/{me}-{batch}": 1 for me in "ab" for batch in range(5)}
    rows = FileQuarantine(home).rows()
    assert len(rows) == len(own) + 1
    assert {row.path: row.tries for row in rows} == {**own, "s3://landing/both": 10}


def test_a_passing_disturbance_is_sat_out(quarantine: FileQuarantine, s3: S3Server) -> None:
    s3.disturb("PUT", unwell, times=2)
    quarantine.note("q", 1, [failed("s3://landing/a")])
    s3.disturb("PUT", unwell, times=1, path="_versions", after=True)
    quarantine.note("q", 2, [failed("s3://landing/a")])
    assert s3.disturbances == []
    assert tries(quarantine) == {"s3://landing/a": 2}


def test_denied_access_is_said_without_secrets(quarantine: FileQuarantine, s3: S3Server) -> None:
    s3.disturb("PUT", denied, times=100)
    with pytest.raises(WriteError, match="access denied") as writing:
        quarantine.note("q", 1, [failed("s3://landing/a")])
    s3.disturbances.clear()
    quarantine.note("q", 1, [failed("s3://landing/a")])
    s3.disturb("GET", denied, times=100, path="table.lance/data")
    with pytest.raises(ReadError, match="access denied") as reading:
        quarantine.rows()
    for error in (writing.value, reading.value):
        assert error.path == str(quarantine.place)
        assert "AKIA" not in str(error)


def test_a_damaged_table_is_explained(quarantine: FileQuarantine, s3: S3Server, bucket: str) -> None:
    quarantine.note("q", 1, [failed("s3://landing/a")])
    name = bucket.removeprefix("s3://")
    for found in s3.client.list_objects_v2(Bucket=name)["Contents"]:
        if found["Key"].endswith(".manifest"):
            s3.client.put_object(Bucket=name, Key=found["Key"], Body=b"cut")
    with pytest.raises(ReadError, match="the quarantine table cannot be read") as caught:
        quarantine.rows()
    assert caught.value.hint is not None and "move that folder away" in caught.value.hint
