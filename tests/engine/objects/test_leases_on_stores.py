"""The lease on a store that is kept below a URL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from chunkmill.engine.errors import ChunkmillError, WriteError
from chunkmill.engine.execution.lease import Holder, Lease, lease_holder
from chunkmill.engine.locations import located
from chunkmill.engine.storage import ObjectUrl


@pytest.fixture
def home(bucket: str) -> ObjectUrl:
    found = located(f"{bucket}/lakes/drives")
    assert isinstance(found, ObjectUrl)
    return found


def test_a_lease_in_a_bucket_is_taken_held_and_released(home: ObjectUrl) -> None:
    assert lease_holder(home) is None
    with Lease.take(home, ttl_seconds=0.2) as lease:
        lease.check()
        assert lease_holder(home) == lease.holder
        with pytest.raises(WriteError, match="this process is already writing here: ingest"):
            Lease.take(home)
    assert lease_holder(home) is None
    with Lease.take(home) as again:
        assert again.number == 2


def test_of_many_at_once_one_gets_the_lease_of_a_silent_holder(home: ObjectUrl, s3) -> None:
    gone = replace(Holder.here("ingest", 0.3), host="robot7")
    s3.client.put_object(Bucket=home.bucket, Key=f"{home.key}/lease/00000001.json", Body=gone.to_bytes())

    def take(_: int) -> Lease | WriteError:
        try:
            return Lease.take(home)
        except WriteError as error:
            return error

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(take, range(8)))
    taken = [result for result in results if isinstance(result, Lease)]
    assert [lease.number for lease in taken] == [2]
    taken[0].release()


def test_a_missing_bucket_is_named(s3) -> None:
    with pytest.raises(ChunkmillError, match="there is no such bucket"):
        Lease.take(located("s3://not-there/drives"))
