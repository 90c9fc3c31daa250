"""Files whose footers lie, and chunks whose rows are in an odd order, in datasets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.chunk import Chunk, ChunkData, ComponentDescriptor
from chunkmill.engine.errors import ChunkmillError, ReadError
from chunkmill.engine.rrd import RrdWriter
from hostile_footers import LIES, STORE, write_lying, wrong_answers


def test_a_lying_footer_is_an_error_or_the_rows_are_right(tmp_path: Path) -> None:
    assert wrong_answers(tmp_path, 3, ["in place", "verified"], ["all", "static"]) == []


def test_a_chunk_that_is_not_as_its_footer_says_is_named(tmp_path: Path) -> None:
    write_lying(tmp_path / "a.rrd", 3, LIES["ranges too late"])
    dataset = CatalogClient(tmp_path / "lake").create_dataset("a")
    with pytest.raises(
        ChunkmillError, match=r"the timelines of a chunk is tick from 1 to 16, .* of /b \(at byte 105\)"
    ):
        dataset.register(str(tmp_path / "a.rrd"), verify=True, executor="inline").wait()
    dataset.register(str(tmp_path / "a.rrd"), executor="inline").wait()
    with pytest.raises(ReadError, match="the footer has tick from 101 to 116") as caught:
        dataset.reader("tick").to_arrow_table()
    assert (caught.value.path, caught.value.offset) == (str(tmp_path / "a.rrd"), 105)
    assert "RrdReader(path, recover=True)" in str(caught.value)


@pytest.mark.parametrize("order", ["as they are", "backwards", "all equal"])
def test_row_ids_in_any_order_give_the_same_rows(tmp_path: Path, order: str) -> None:
    values = pa.array([[1], [2], [3], [4]], pa.list_(pa.int64()))
    chunk = Chunk.build("/a", {"t": pa.array([5, 1, 5, 1])}, [(ComponentDescriptor("x"), values)])
    data = chunk.data
    if order == "backwards":
        data = data.take(np.array([3, 2, 1, 0]))
    elif order == "all equal":
        ids = pa.array([data.row_ids[0].as_py()] * 4, pa.binary(16))
        data = ChunkData(data.chunk_id, data.entity_path, ids, data.timelines, data.components)
    with RrdWriter(tmp_path / "a.rrd") as writer:
        writer.begin_store(STORE)
        writer.append(STORE, Chunk.from_data(data))
        writer.finish()
    dataset = CatalogClient(tmp_path / "lake").create_dataset("a")
    dataset.register(str(tmp_path / "a.rrd"), executor="inline").wait()
    rows = dataset.reader("t").to_arrow_table().to_pylist()
    expected = {1: [2], 5: [1]} if order == "all equal" else {1: [4], 5: [3]}
    assert {row["t"]: row["/a:x"] for row in rows} == expected
