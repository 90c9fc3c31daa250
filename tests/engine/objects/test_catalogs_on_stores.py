"""A catalog below a prefix of an object store: the same entries, the same race, and places that cannot be read."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from chunk_making import made
from chunkmill.engine import Ingest, LazyChunkStream
from chunkmill.engine.catalog import AlreadyExistsError, CatalogClient
from chunkmill.engine.catalog.entry_log import KEPT_VERSIONS
from s3_server import S3Server


def test_entries_and_segments_lie_in_the_bucket(bucket: str, tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    LazyChunkStream.from_iter([made(range(3))]).write_rrd(
        tmp_path / "landing" / "a.rrd", application_id="tests", recording_id="a"
    )
    client = CatalogClient(f"{bucket}/lake")
    assert client.entries() == []
    dataset = client.create_dataset("drives")
    query = Ingest(tmp_path / "landing", into=dataset, settle=0, executor="inline", checkpoint=tmp_path / "at")
    query.start(once=True).await_termination(60)
    again = CatalogClient(f"{bucket}/lake").get_dataset("drives")
    assert again == dataset and again.segment_ids() == ["a"]
    assert again.manifest_url == f"{bucket}/lake/datasets/{dataset.id}"
    for number in range(KEPT_VERSIONS):
        again.set_name(f"drives {number}")
    assert CatalogClient(f"{bucket}/lake").dataset_names() == [again.name]
    again.delete()
    assert CatalogClient(f"{bucket}/lake").entries() == []


def test_of_many_who_take_one_name_one_gets_it(bucket: str) -> None:
    won = []

    def take() -> None:
        client = CatalogClient(f"{bucket}/lake")
        for name in ("a", "b"):
            try:
                won.append(client.create_dataset(name))
            except AlreadyExistsError:
                continue

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(entry.name for entry in won) == ["a", "b"] == CatalogClient(f"{bucket}/lake").dataset_names()


def test_a_bucket_that_is_not_there_cannot_be_reached(s3: S3Server) -> None:
    with pytest.raises(ConnectionError, match="cannot be reached"):
        CatalogClient("s3://nobody-has-this/lake")
