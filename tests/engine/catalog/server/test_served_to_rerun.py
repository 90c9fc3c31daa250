"""The unmodified SDK of Rerun as the client of a lake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.catalog.server import CatalogService, ServiceOptions, start
from served import SEGMENTS, recording, small_lake

rerun_catalog = pytest.importorskip("rerun.catalog")


@pytest.fixture
def lake(tmp_path: Path) -> CatalogClient:
    return small_lake(tmp_path)


@pytest.fixture
def client(lake: CatalogClient, tmp_path: Path) -> Iterator[object]:
    with start(CatalogService(lake, ServiceOptions(readable=[str(tmp_path / "files")]))) as running:
        yield rerun_catalog.CatalogClient(running.url)


def test_the_sdk_lists_and_reads_a_dataset(lake: CatalogClient, client) -> None:
    own = lake.get_dataset("drives")
    dataset = client.get_dataset("drives")
    assert client.dataset_names() == ["drives"]
    assert sorted(dataset.segment_ids()) == sorted(SEGMENTS)
    assert pa.table(dataset.segment_table()).num_rows == len(SEGMENTS)
    for index in (column.name for column in own.schema().index_columns()):
        for fill in (False, True):
            told = pa.table(dataset.reader(index=index, fill_latest_at=fill))
            rows = own.reader(index, fill_latest_at=fill).to_arrow_table()
            keys = [("rerun_segment_id", "ascending"), (index, "ascending")]
            assert told.sort_by(keys).to_pylist() == rows.select(told.column_names).sort_by(keys).to_pylist()


def test_the_sdk_opens_a_segment(client) -> None:
    (chunk,) = client.get_dataset("drives").segment_store("two").stream().to_chunks()
    assert chunk.num_rows == 3


def test_a_missing_segment_is_told_as_such(client) -> None:
    with pytest.raises(rerun_catalog.NotFoundError, match="nobody"):
        client.get_dataset("drives").segment_store("nobody")


def test_the_sdk_registers_and_unregisters(lake: CatalogClient, client, tmp_path: Path) -> None:
    dataset = client.create_dataset("more")
    assert dataset.register([recording(tmp_path, "new").as_uri()]).wait().segment_ids == ["new"]
    with pytest.raises((ValueError, rerun_catalog.AlreadyExistsError), match="already exists"):
        dataset.register([recording(tmp_path, "new").as_uri()], on_duplicate="error").wait()
    assert lake.get_dataset("more").segment_ids() == ["new"]
    lake.get_dataset("more").unregister(segments_to_drop="new")
    assert dataset.segment_ids() == []


def test_the_sdk_writes_a_table(lake: CatalogClient, client) -> None:
    key = pa.field("id", pa.int64(), metadata={"rerun:is_table_index": "true"})
    table = client.create_table("tab", pa.schema([key, ("v", pa.string())]))
    table.append(id=[1, 2], v=["a", "b"])
    table.upsert(id=[2], v=["B"])
    rows = [{"id": 1, "v": "a"}, {"id": 2, "v": "B"}]
    assert pa.table(table.reader()).sort_by("id").to_pylist() == rows
    assert lake.get_table("tab").to_arrow_reader().read_all().sort_by("id").to_pylist() == rows
