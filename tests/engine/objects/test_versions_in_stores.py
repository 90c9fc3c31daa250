"""Versions and tags of datasets and tables in an object store."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from chunk_making import made
from chunkmill.engine import LazyChunkStream
from chunkmill.engine.catalog import CatalogClient, NotFoundError
from chunkmill.engine.errors import SourceMissingError


def test_a_tag_keeps_a_version_of_a_dataset_in_a_store(bucket: str, tmp_path: Path) -> None:
    dataset = CatalogClient(f"{bucket}/lake").create_dataset("drives")
    for name in ("one", "two"):
        path = tmp_path / f"{name}.rrd"
        LazyChunkStream.from_iter([made(range(3))]).write_rrd(path, application_id="tests", recording_id=name)
        dataset.register(str(path), copy=True).wait()
    dataset.tag("kept", 1)
    kept, other = dataset.at("kept"), dataset.at(2)
    dataset.unregister(segments_to_drop="one")
    dataset.restore("kept")
    dataset.untag("kept")
    dataset.tag("kept", 1)
    dataset.unregister(segments_to_drop="one")
    dataset.do_maintenance(cleanup_before=timedelta(), unsafe_allow_recent_cleanup=True)
    assert [kept.segment_ids(), dataset.segment_ids()] == [["one"], []]
    assert kept.reader("t", executor="inline").to_arrow_table().num_rows == 3
    with pytest.raises(SourceMissingError, match="a vacuum has removed version 2"):
        other.segment_ids()
    operations = dataset.list_versions()["operation"].to_pylist()
    assert operations[0] == "register" and operations[-1] == "vacuum" and dataset.tags() == {"kept": 1}


def test_a_tag_keeps_a_version_of_a_table_in_a_store(bucket: str) -> None:
    table = CatalogClient(f"{bucket}/lake").create_table("t", pa.schema([("x", pa.int64())]))
    table.append(x=[1, 2])
    table.tag("kept")
    table.overwrite(x=[3])
    table.do_maintenance(cleanup_before=timedelta(), unsafe_allow_recent_cleanup=True)
    assert table.at("kept").to_arrow_reader().read_all()["x"].to_pylist() == [1, 2]
    assert table.restore("kept") == 4 and table.diff("kept").num_rows == 0
    assert [row["operation"] for row in table.list_versions().to_pylist()] == ["append", "overwrite", "restore"]
    assert None not in table.list_versions()["author"].to_pylist()
    with pytest.raises(NotFoundError, match="it was removed"):
        table.at(1)
