"""Registration of objects: where they lie, known by their ETags, and by copy into a dataset below a prefix."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunk_making import content, made
from chunkmill.engine import LazyChunkStream
from chunkmill.engine.catalog import CatalogClient, DatasetEntry, NotFoundError
from chunkmill.engine.errors import ReadError
from chunkmill.engine.storage import positional
from s3_server import S3Server


@pytest.fixture
def dataset(bucket: str) -> DatasetEntry:
    return CatalogClient(f"{bucket}/lake").create_dataset("drives")


def put(s3: S3Server, url: str, data: bytes) -> str:
    """Put an object; gives its ETag."""
    name, _, key = url.removeprefix("s3://").partition("/")
    return str(s3.client.put_object(Bucket=name, Key=key, Body=data)["ETag"])


def keys(s3: S3Server, bucket: str) -> list[str]:
    found = s3.client.list_objects_v2(Bucket=bucket.removeprefix("s3://")).get("Contents", [])
    return [one["Key"] for one in found]


def rrd(folder: Path, recording_id: str, rows: int = 3) -> bytes:
    path = folder / f"{recording_id}.rrd"
    LazyChunkStream.from_iter([made(range(rows))]).write_rrd(
        path, application_id="tests", recording_id=recording_id, executor="inline"
    )
    return path.read_bytes()


def parquet(**columns: list[Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def anew() -> None:
    """Let go of objects that are open: what of them is in memory stays what was registered."""
    positional._open.clear()


def test_an_object_that_was_replaced_is_an_error_with_both_identities(
    bucket: str, s3: S3Server, dataset: DatasetEntry, tmp_path: Path
) -> None:
    url, data = f"{bucket}/drives/one.rrd", rrd(tmp_path, "one")
    registered = put(s3, url, data)
    assert dataset.register(url).wait(60).segment_ids == ["one"]
    assert sum(chunk.num_rows for chunk in dataset.segment_store("one")) == 3
    put(s3, url, data)  # the same content has the same ETag
    anew()
    assert content(dataset.segment_store("one"))
    replaced = put(s3, url, rrd(tmp_path, "one", rows=4))
    anew()
    with pytest.raises(ReadError, match=re.escape(url)) as raised:
        content(dataset.segment_store("one"))
    assert registered != replaced and registered in str(raised.value) and replaced in str(raised.value)
    s3.client.delete_object(Bucket=bucket.removeprefix("s3://"), Key="drives/one.rrd")
    anew()
    with pytest.raises(ReadError, match=re.escape(url)) as raised:
        content(dataset.segment_store("one"))
    assert registered in str(raised.value)
    with pytest.raises(NotFoundError, match="RRD file not found, could not load URI: s3://"):
        dataset.register(url)


def test_objects_of_all_formats_below_a_prefix(
    bucket: str, s3: S3Server, dataset: DatasetEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RRDs are not copied, others are; of a folder that is one input its files are not taken each by itself."""
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", "inline")
    put(s3, f"{bucket}/files/one.rrd", rrd(tmp_path, "one"))
    put(s3, f"{bucket}/files/monday/v.parquet", parquet(speed=[1.0, 2.0]))
    put(s3, f"{bucket}/files/bad.mcap", b"no recording")
    put(s3, f"{bucket}/files/arm/meta/info.json", b"{}")
    put(s3, f"{bucket}/files/arm/data/chunk-000/episode_000000.parquet", parquet(index=[0]))
    results = {r.uri: r for r in dataset.register_prefix(f"{bucket}/files").iter_results(60)}
    failed = {uri.removeprefix(f"{bucket}/files/"): r.error for uri, r in results.items() if r.is_error}
    assert failed.keys() == {"bad.mcap", "arm"} and "local folders" in (failed["arm"] or "")
    assert sorted(dataset.segment_ids()) == ["monday-v", "one"]
    for key in ("files/one.rrd", "files/monday/v.parquet"):
        s3.client.delete_object(Bucket=bucket.removeprefix("s3://"), Key=key)
    assert [chunk.num_rows for chunk in dataset.segment_store("monday-v") if not chunk.is_static] == [2]
    assert not [key for key in keys(s3, bucket) if "staging" in key or "/writers/" in key]


def test_a_copy_does_not_need_the_object(bucket: str, s3: S3Server, dataset: DatasetEntry, tmp_path: Path) -> None:
    url = f"{bucket}/one.rrd"
    put(s3, url, rrd(tmp_path, "one"))
    dataset.register(url, copy=True, executor="inline").wait(60)
    s3.client.delete_object(Bucket=bucket.removeprefix("s3://"), Key="one.rrd")
    assert sum(chunk.num_rows for chunk in dataset.segment_store("one")) == 3 and content(dataset.segment_store("one"))
