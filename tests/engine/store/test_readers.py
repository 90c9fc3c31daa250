"""Rows by an index of what has no catalog: chunks in memory, an RRD, a kept store, a store of recordings."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import datafusion
import pyarrow as pa
import pytest
from chunkmill import CatalogClient, Chunk, ChunkStore, LazyChunkStream, RecordingStore
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.errors import SchemaConflictError
from chunkmill.engine.query import HeldRecording, Query, queried_recordings
from chunkmill.readers import RrdReader
from datafusion import col

Rows = list[dict[str, Any]]


def chunk(entity: str, frames: list[int], values: list[Any]) -> Chunk:
    index = {"frame": pa.array(frames, pa.int64())} if frames else {}
    return Chunk.build(entity, index, [(ComponentDescriptor("value"), pa.array(values))])


def chunks() -> list[Chunk]:
    return [
        chunk("/speed", [1, 2, 4], [[10], [20], [40]]),
        chunk("/gear", [2, 3], [[1], []]),
        chunk("/speed", [6, 5], [[60], [50]]),
        chunk("/driver", [], [["Ada"]]),
    ]


def stores(folder: Path) -> dict[str, Any]:
    """The same chunks in every store of one recording."""
    stream = LazyChunkStream.from_iter(chunks())
    stream.write_rrd(folder / "one.rrd", application_id="tests", recording_id="one", executor="inline")
    kept = stream.collect(into=folder / "kept", recording_id="one", executor="inline")
    return {
        "memory": ChunkStore.from_chunks(chunks()),
        "rrd": RrdReader(folder / "one.rrd").store(),
        "scratch": RrdReader(folder / "one.rrd").stream().collect(executor="inline"),
        "kept": kept,
        "opened": ChunkStore.open(folder / "kept"),
        "recording": RecordingStore.open(folder / "kept").recording("one"),
    }


def rows(frame: datafusion.DataFrame) -> Rows:
    return sorted(frame.to_pylist(), key=str)


CALLS: list[tuple[str | None, dict[str, Any]]] = [
    ("frame", {}),
    ("frame", {"fill_latest_at": True}),
    ("frame", {"contents": "/speed", "using_index_values": [2, 9], "fill_latest_at": True}),
    ("frame", {"contents": ["/** -/speed"]}),
    ("frame", {"contents": []}),
    (None, {}),
]


@pytest.mark.parametrize(("index", "given"), CALLS)
@pytest.mark.heavy
def test_every_store_answers_as_a_dataset_does(index: str | None, given: dict[str, Any], tmp_path: Path) -> None:
    there = stores(tmp_path)
    dataset = CatalogClient(tmp_path / "lake").create_dataset("drives")
    dataset.register([str(tmp_path / "one.rrd")]).wait()
    asked = {name: value for name, value in given.items() if name != "contents"}
    view = dataset.filter_contents(given["contents"]) if "contents" in given else dataset.filter_segments("one")
    expected = view.reader(index, **asked)
    whole = RecordingStore.open(tmp_path / "kept").reader(index, **given)
    assert (whole.schema(), rows(whole)) == (expected.schema(), rows(expected))
    alone = expected.drop("rerun_segment_id")
    for name, store in there.items():
        frame = store.reader(index, **given)
        assert (frame.schema(), rows(frame)) == (alone.schema(), rows(alone)), name


def test_filters_hold_where_nothing_names_the_segment(tmp_path: Path) -> None:
    for name, store in stores(tmp_path).items():
        frame = store.reader("frame", fill_latest_at=True).filter(col("frame") >= 4).select("frame", "/speed:value")
        assert rows(frame) == [{"frame": n, "/speed:value": [10 * n]} for n in (4, 5, 6)], name
        assert store.reader("frame").filter(col('"/gear:value"').is_not_null()).count() == 2, name


def test_the_context_of_a_user_evaluates_and_is_left_as_it_was() -> None:
    context = datafusion.SessionContext()
    store = ChunkStore.from_chunks(chunks())
    assert store.reader("frame", ctx=context).count() == 6
    assert not context.catalog().schema().names()


def test_bad_calls(tmp_path: Path) -> None:
    for store in (ChunkStore.from_chunks(chunks()), stores(tmp_path)["rrd"], RecordingStore.open(tmp_path / "kept")):
        with pytest.raises(ValueError, match="Index 'frames' does not exist in the dataset") as caught:
            store.reader("frames")
        assert "Did you mean 'frame'?" in str(caught.value)
        with pytest.raises(TypeError, match="not iterable"):
            store.reader("frame", contents=3)
        with pytest.raises(ValueError, match="must be unique"):
            store.reader("frame", using_index_values=[1, 1])
    with pytest.raises(ValueError, match="does not exist"):
        ChunkStore.from_chunks([]).reader("frame")
    assert ChunkStore.from_chunks([]).reader(None).count() == 0


def test_types_of_chunks_are_joined_or_refused() -> None:
    store = ChunkStore.from_chunks([chunk("/a", [1], [[{"x": 1}]]), chunk("/a", [2], [[{"y": 2}]])])
    joined = [{"frame": n, "/a:value": [{"x": x, "y": y}]} for n, x, y in ((1, 1, None), (2, None, 2))]
    assert rows(store.reader("frame")) == joined
    store = ChunkStore.from_chunks([chunk("/a", [1], [[1]]), chunk("/a", [2], [[1.5]])])
    with pytest.raises(SchemaConflictError, match="/a:value"):
        store.reader("frame")


def test_a_store_shows_the_version_that_is_open(tmp_path: Path) -> None:
    LazyChunkStream.from_iter(chunks()[:1]).collect(into=tmp_path / "kept", recording_id="one", executor="inline")
    before = RecordingStore.open(tmp_path / "kept")
    LazyChunkStream.from_iter(chunks()).collect(into=tmp_path / "kept", recording_id="one", executor="inline")
    assert before.reader("frame").count() == 3
    assert RecordingStore.open(tmp_path / "kept").reader("frame").count() == 6


def test_chunks_that_are_held_pickle_and_are_read_anew(tmp_path: Path) -> None:
    lazy = tuple(stores(tmp_path)["rrd"])
    columns, (segment,) = queried_recordings(Query.of("frame"), [HeldRecording("one", lazy)])
    assert columns.arrow.names[0] == "rerun_segment_id"
    (batch,) = pickle.loads(pickle.dumps(segment)).batches()
    assert batch["frame"].to_pylist() == [1, 2, 3, 4, 5, 6]
    (again,) = segment.batches()
    assert again.equals(batch)
    assert all(one._data is None for one in lazy)


@pytest.mark.parametrize(("index", "given"), CALLS[:4])
def test_rows_are_those_of_rerun(index: str | None, given: dict[str, Any], tmp_path: Path) -> None:
    chunk_module = pytest.importorskip("rerun.chunk")
    store = stores(tmp_path)["rrd"]
    theirs = chunk_module.RrdReader(str(tmp_path / "one.rrd")).stream().collect().reader(index, **given)
    assert rows(store.reader(index, **given)) == rows(theirs)
