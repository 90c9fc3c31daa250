"""A landing folder that is a prefix of an object store."""

from __future__ import annotations

import re

import pytest
from chunkmill.engine.errors import ReadWarning, SourceMissingError
from chunkmill.engine.ingest.landing import EMPTY_SETTLES, Landing, Lister
from chunkmill.engine.ingest.landing_log import LandingLog
from chunkmill.engine.locations import located
from s3_server import S3Server


class WaitingClock:
    """A clock that tests let go on."""

    seconds = 0.0

    def wall_ns(self) -> int:
        return 0

    def steady(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> WaitingClock:
    return WaitingClock()


@pytest.fixture
def lister(bucket: str, clock: WaitingClock) -> Lister:
    return Lister(f"{bucket}/drives/in", settle_seconds=2, suffixes=(".mcap",), clock=clock)


def put(s3: S3Server, bucket: str, key: str, body: bytes = b"content") -> None:
    s3.client.put_object(Bucket=bucket[5:], Key=key, Body=body)


def keys(files, bucket: str) -> list[str]:
    return sorted(file.path.removeprefix(f"{bucket}/drives/in/") for file in files)


def test_recordings_below_the_prefix_are_ready_once_settled(s3, bucket, lister, clock) -> None:
    taken = ["a.mcap", "sub/deep/B.MCAP"]
    for key in (*taken, "_x/a.mcap", ".a.mcap", "a.mcap.tmp", "a.txt", "old~/a.mcap"):
        put(s3, bucket, f"drives/in/{key}")
    put(s3, bucket, "drives/inside.mcap")
    looked = lister.look()
    assert (looked.ready, keys(looked.waiting, bucket)) == ([], taken)
    clock.seconds += 2
    looked = lister.look()
    assert keys(looked.ready, bucket) == taken
    assert set(looked.present) == {f"{bucket}/drives/in/{key}" for key in taken}
    told = s3.client.head_object(Bucket=bucket[5:], Key="drives/in/a.mcap")
    assert [f.modified_ns for f in looked.ready if "a.mcap" in f.path] == [
        int(told["LastModified"].timestamp()) * 10**9
    ]


def test_an_empty_object_waits_for_its_content(s3, bucket, lister, clock) -> None:
    put(s3, bucket, "drives/in/a.mcap", b"")
    lister.look()
    clock.seconds += 2 * EMPTY_SETTLES - 1
    assert lister.look().ready == []
    put(s3, bucket, "drives/in/a.mcap", b"content")
    lister.look()
    clock.seconds += 2
    assert [file.size for file in lister.look().ready] == [7]


def test_a_prefix_without_objects_is_an_empty_folder_and_a_bucket_has_to_be_there(lister, bucket) -> None:
    looked = lister.look()
    assert (looked.ready, looked.waiting, looked.present, looked.problem) == ([], [], None, None)
    with pytest.raises(SourceMissingError):
        Lister(f"{bucket}-not/drives", settle_seconds=2, suffixes=(".mcap",))


def test_a_store_that_fails_for_a_while_is_looked_at_again(s3, bucket, lister, clock) -> None:
    put(s3, bucket, "drives/in/a.mcap")
    lister.look()
    clock.seconds += 2

    def denied(start_response, _) -> list[bytes]:
        start_response("403 Forbidden", [("Content-Length", "0")])
        return [b""]

    s3.disturb("GET", denied, times=1)
    with pytest.warns(ReadWarning, match="denied"):
        looked = lister.look()
    assert looked.ready == [] and looked.problem is not None
    assert keys(lister.look().ready, bucket) == ["a.mcap"]


def test_the_log_may_lie_in_a_store(s3, bucket, lister, clock) -> None:
    def landing() -> Landing:
        return Landing(lister, LandingLog(located(f"{bucket}/log")), max_files=1)

    for number in range(3):
        put(s3, bucket, f"drives/in/{number}.mcap")
    lister.look()
    clock.seconds += 2
    assert [landing().offer() for _ in range(4)] == [1, 2, 3, None]
    log = LandingLog(located(f"{bucket}/log"))
    log.forget(3, [f"{bucket}/drives/in/2.mcap"])
    assert log.compact(3, None) == 2
    assert (landing().offer(), landing().offer()) == (4, None)
    found = s3.client.list_objects_v2(Bucket=bucket[5:], Prefix="log/")["Contents"]
    assert [re.sub(".*/", "", one["Key"]) for one in found] == [
        *("00000002.merged", "00000003.gone", "00000003.json", "00000004.json")
    ]
