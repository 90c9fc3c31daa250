"""Search indexes of a dataset in an object store: made, kept up and searched there; and events found in one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunkmill import Chunk, LazyChunkStream
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.errors import ReadWarning
from chunkmill.engine.optimisation import ChunkReferences


def recording(path: Path, texts: list[str]) -> str:
    vectors = pa.array([[[float(i), 1.0]] for i in range(len(texts))], pa.list_(pa.list_(pa.float32(), 2)))
    columns = [
        (ComponentDescriptor("text"), pa.array([[text] for text in texts])),
        (ComponentDescriptor("vec"), vectors),
    ]
    chunk = Chunk.build("/a", {"t": pa.array(range(len(texts)))}, columns)
    LazyChunkStream.from_iter([chunk]).write_rrd(path, application_id="t", recording_id=path.stem, executor="inline")
    return str(path)


def test_an_index_lies_in_the_bucket(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", "inline")
    dataset = CatalogClient(f"{bucket}/lake").create_dataset("drives")
    dataset.register(recording(tmp_path / "one.rrd", ["rain", "fog"])).wait()
    dataset.create_fts_search_index(column="/a:text", time_index="t")
    dataset.create_vector_search_index(column="/a:vec", time_index="t", num_sub_vectors=1, distance_metric="L2")
    dataset.register(recording(tmp_path / "two.rrd", ["sun", "more rain", "fog"])).wait()
    for step in ("before", "after upkeep", "after cleaning"):
        if step == "after upkeep":
            dataset.unregister(segments_to_drop=["one"])
            dataset.do_maintenance(optimize_indexes=True)
        elif step == "after cleaning":
            dataset.do_maintenance(cleanup_before=datetime.now(UTC), unsafe_allow_recent_cleanup=True)
        again = CatalogClient(f"{bucket}/lake").get_dataset("drives")
        found = again.search_fts("rain", "/a:text").to_pydict()
        one = [("one", 0)] if step == "before" else []
        assert sorted(zip(found["rerun_segment_id"], found["t"], strict=True)) == [*one, ("two", 1)], step
        near = again.search_vector([2.0, 1.0], "/a:vec", 1).to_pydict()
        assert (near["rerun_segment_id"], near["t"], near["_distance"]) == (["two"], [2], [0.0])
    assert [str(index.column) for index in dataset.list_search_indexes()] == ["/a:text", "/a:vec"]


def test_events_in_a_bucket(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of copies and of files in place; only the segment with the event is read."""
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", "inline")
    dataset = CatalogClient(f"{bucket}/lake").create_dataset("drives")
    for name, values in (("one", [1.0, 2.0, 3.0]), ("two", [1.0, 9.0, 9.5])):
        chunk = Chunk.build(
            "/a", {"t": pa.array(range(3))}, [(ComponentDescriptor("v"), pa.array([[v] for v in values]))]
        )
        place = str(tmp_path / f"{name}.rrd") if name == "one" else f"{bucket}/{name}.rrd"
        LazyChunkStream.from_iter([chunk]).write_rrd(place, application_id="t", recording_id=name)
        dataset.register(place, copy=name == "one").wait()
    expected = [("two", 1, 2, 9.5, 2, 2)]

    def found() -> list[tuple[object, ...]]:
        again = CatalogClient(f"{bucket}/lake").get_dataset("drives")
        return [tuple(row.values()) for row in again.find("/a:v > 5").to_arrow_table().to_pylist()]

    with pytest.warns(ReadWarning, match="1 of 2 segments"):
        assert found() == expected
    dataset.do_maintenance(optimize_indexes=True)
    read: list[str] = []
    real = ChunkReferences.read

    def counted(self: ChunkReferences, rows: Any) -> Iterator[Any]:
        read.append(self.store.recording_id if self.store else "")
        return real(self, rows)

    monkeypatch.setattr(ChunkReferences, "read", counted)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ReadWarning)
        assert found() == expected
    assert len(read) == 1
