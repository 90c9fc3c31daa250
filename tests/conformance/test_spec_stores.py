"""The tables of stores in the format's specification: constructors, insertion, order, summary, schema."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, ComponentDescriptor, TimeColumn
from chunkmill.engine.errors import ReadError, SourceMissingError
from chunkmill.engine.store import ChunkStore, OptimizationProfile
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.readers import RrdReader

UNSORTED = "Chunks must be sorted before insertion in the chunk store"


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", "inline")


def chunk(path: str, frames: list[int] | None, **components: Any) -> Chunk:
    indexes = [] if frames is None else [TimeColumn("frame", sequence=frames)]
    return Chunk.from_columns(path, indexes, [ComponentColumn(n, v) for n, v in components.items()])


def saved(path: Path, *chunks: Chunk) -> Path:
    LazyChunkStream.from_iter(chunks).write_rrd(path, application_id="a", recording_id="r")
    return path


def backwards(flag: bytes | None) -> Chunk:
    """Three rows whose ids descend; ``flag`` is what the source batch says of that."""
    batch = chunk("/a", [1, 2, 3], x=[1.0, 2.0, 3.0]).to_record_batch()
    metadata = dict(batch.schema.field(0).metadata)
    metadata.pop(b"rerun:is_sorted", None)
    if flag is not None:
        metadata[b"rerun:is_sorted"] = flag
    fields = [batch.schema.field(0).with_metadata(metadata), *list(batch.schema)[1:]]
    turned = [c.take(pa.array([2, 1, 0])) for c in batch.columns]
    return Chunk.from_record_batch(
        pa.RecordBatch.from_arrays(turned, schema=pa.schema(fields, metadata=batch.schema.metadata))
    )


# --- constructors


def test_from_chunks_neither_merges_nor_splits() -> None:
    rows = [chunk("/a", [i], x=[1.0]) for i in range(3)]
    long = chunk("/a", list(range(9000)), y=[0.0] * 9000)
    assert {c.id for c in ChunkStore.from_chunks([*rows, long])} == {c.id for c in [*rows, long]}


def test_collect_splits_and_merges_and_the_result_is_inert() -> None:
    chunks = [chunk("/a", list(range(10_000)), x=[0.0] * 10_000)]
    chunks += [chunk("/a", [10_000 + i], x=[0.0]) for i in range(10)]
    live = LazyChunkStream.from_iter(chunks).collect()
    assert sorted(c.num_rows for c in live) == [10, 1808, 4096, 4096]
    profile = LazyChunkStream.from_iter(chunks).collect(optimize=OptimizationProfile.LIVE)
    assert sorted(c.num_rows for c in profile) == [1818, 4096, 4096]
    assert [c.id for c in profile.stream()] == [c.id for c in profile]


@pytest.mark.parametrize(
    ("profile", "error", "text"),
    [
        (OptimizationProfile(max_bytes=-1), OverflowError, "can't convert negative int to unsigned"),
        (
            OptimizationProfile(max_bytes="x"),  # type: ignore[arg-type]
            TypeError,
            "argument 'max_bytes': 'str' object cannot be interpreted as an integer",
        ),
        ("x", AttributeError, "'str' object has no attribute 'max_bytes'"),
    ],
)
def test_collect_refuses_profiles(profile: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        LazyChunkStream.from_iter([chunk("/a", [1], x=[1.0])]).collect(optimize=profile)


def test_a_profile_is_a_keyword() -> None:
    with pytest.raises(TypeError, match="positional"):
        LazyChunkStream.from_iter([]).collect(OptimizationProfile.LIVE)  # type: ignore[misc]


def test_from_chunks_takes_chunks() -> None:
    with pytest.raises(AttributeError, match=r"expected a Chunk, but .* a 'int' object"):
        ChunkStore.from_chunks([1])  # type: ignore[list-item]


# --- insertion


def test_what_insertion_passes_over() -> None:
    empty = chunk("/a", [], x=pa.array([], pa.float64()))
    bare = Chunk.from_data(chunk("/a", [1], x=[1.0]).data.with_components(()))
    one = chunk("/a", [1], x=[1.0])
    for store in (
        ChunkStore.from_chunks([empty, bare, one, one]),
        LazyChunkStream.from_iter([empty, bare, one, one]).collect(),
    ):
        assert [c.id for c in store] == [one.id]


@pytest.mark.parametrize("flag", [None, b"false", b"true"])
def test_row_ids_must_ascend_whatever_the_batch_says(flag: bytes | None) -> None:
    with pytest.raises(ReadError, match=f"^CM101: {UNSORTED}"):
        ChunkStore.from_chunks([backwards(flag)])
    for profile in (None, OptimizationProfile.OBJECT_STORE):
        with pytest.raises(RuntimeError, match=f"^CM101: Failed to add chunk to store: {UNSORTED}"):
            LazyChunkStream.from_iter([backwards(flag)]).collect(optimize=profile)


def test_equal_row_ids_are_in_order() -> None:
    data = chunk("/a", [1, 2], x=[1.0, 2.0]).data
    ids = data.row_ids.take(pa.array([0, 0]))
    twice = Chunk.from_data(type(data)(data.chunk_id, "/a", ids, data.timelines, data.components))
    assert len(ChunkStore.from_chunks([twice])) == 1


# --- access and order


def test_order_length_truth_and_repr(tmp_path: Path) -> None:
    chunks = [chunk("/b", [1], x=[1.0]), chunk("/a", [1], x=[1.0]), chunk("/c", None, x=[1.0])]
    store = ChunkStore.from_chunks(chunks[::-1])
    by_id = sorted(c.id for c in chunks)
    assert [c.id for c in store] == [c.id for c in store.stream()] == by_id
    store.write_rrd(tmp_path / "store.rrd", application_id="a", recording_id="r")
    assert [c.id for c in RrdReader(tmp_path / "store.rrd").stream()] == by_id
    assert (len(store), bool(store), repr(store)) == (3, True, "ChunkStore(3 chunks)")
    assert repr(ChunkStore.from_chunks(chunks[:1])) == "ChunkStore(1 chunks)"
    assert not ChunkStore.from_chunks([])
    lazy = RrdReader(saved(tmp_path / "stream.rrd", *chunks[::-1])).store()
    assert [c.id for c in lazy.stream()] == [c.id for c in chunks[::-1]]
    assert (len(lazy), bool(lazy), repr(lazy)) == (3, True, "LazyStore(3 chunks)")


# --- summary and schema

SUMMARY = r"""/__properties rows=1 static=True timelines=[] cols=['foo']
/__properties/sub rows=1 static=True timelines=[] cols=['foo']
/a/it\'s rows=1 static=False timelines=['ti'me'] cols=['k'k', 'ti'me']
/b/c rows=1 static=True timelines=[] cols=['TextDocument:text']
/b/c rows=2 static=False timelines=['frame', 'log_time'] cols=['frame', 'log_time', 'x', 'y']
/b/c rows=2 static=False timelines=['frame'] cols=['emp', 'frame', 'nul', 'x']"""

TEXT = ComponentDescriptor("TextDocument:text", "rerun.archetypes.TextDocument", "rerun.components.Text")

SCHEMA = (
    "Column name: property:foo\n\tEntity path: /__properties\n\tArchetype: None\n\tComponent type: \n"
    "\tComponent: foo\n\tStatic: true\nColumn name: property:sub:foo"
)


def example() -> list[Chunk]:
    two = [1.0, 2.0]
    times = [TimeColumn("log_time", sequence=[1, 2]), TimeColumn("frame", sequence=[1, 2])]
    return [
        Chunk.from_columns("/b/c", times, [ComponentColumn("x", two), ComponentColumn("y", two)]),
        chunk(
            "/b/c",
            [1, 2],
            x=two,
            nul=pa.array([None, None], pa.list_(pa.int8())),
            emp=pa.array([[], []], pa.list_(pa.int8())),
        ),
        Chunk.from_columns("/b/c", [], [ComponentColumn(TEXT, ["hi"])]),
        Chunk.from_columns("/a/it's", [TimeColumn("ti'me", sequence=[1])], [ComponentColumn("k'k", [1])]),
        chunk("/__properties/sub", None, foo=[1]),
        chunk("/__properties", None, foo=[1]),
    ]


def test_the_summary_is_that_of_the_specification_verbatim(tmp_path: Path) -> None:
    assert ChunkStore.from_chunks(example()).summary() == SUMMARY
    assert ChunkStore.from_chunks([]).summary() == ""
    lazy = RrdReader(saved(tmp_path / "x.rrd", *example())).store()
    assert lazy.summary() == SUMMARY.replace("'frame', 'nul', 'x'", "'frame', 'x'")


def test_once_loaded_nothing_is_missing_of_a_chunk(tmp_path: Path) -> None:
    reader = RrdReader(saved(tmp_path / "x.rrd", *example()))
    for stream in (reader.stream(), reader.store().stream()):
        assert stream.collect(optimize=OptimizationProfile(max_rows=0)).summary() == SUMMARY


def test_components_that_are_null_throughout_are_in_the_schema(tmp_path: Path) -> None:
    nothing = chunk("/n", [1, 2], nul=pa.array([None, None], pa.list_(pa.int8())))
    chunks = [*example(), nothing]
    path = saved(tmp_path / "x.rrd", *chunks)
    lazy, loaded = RrdReader(path).store(), ChunkStore.from_chunks(chunks)
    assert str(lazy.schema()) == str(loaded.schema())
    assert "Column name: /b/c:nul" in str(lazy.schema())
    assert lazy.schema() == loaded.schema()
    # Rerun's manifest hides the timelines of such a chunk, too; here it is looked at instead.
    assert "/n rows=2 static=False timelines=['frame'] cols=['frame', 'nul']" in lazy.summary()


def test_a_column_of_the_schema_verbatim() -> None:
    text = str(ChunkStore.from_chunks(example()).schema())
    assert text.startswith("Index(timeline:frame)\nIndex(timeline:log_time)\nIndex(timeline:ti'me)\nColumn name: ")
    assert SCHEMA in text
    assert (
        "Column name: /b/c:TextDocument:text\n\tEntity path: /b/c\n\tArchetype: rerun.archetypes.TextDocument\n"
        "\tComponent type: rerun.components.Text\n\tComponent: TextDocument:text\n\tStatic: true"
    ) in text


# --- files that go away


def test_a_deleted_file(tmp_path: Path) -> None:
    """A store stays open in this process; who opens the file by its path finds none."""
    reader = RrdReader(saved(tmp_path / "x.rrd", *example()))
    store, stream = reader.store(), reader.stream()
    (tmp_path / "x.rrd").unlink()
    assert (len(store), len(store.summary().splitlines())) == (6, 6)
    assert len(store.stream().collect(executor="inline")) == 6
    for use in (stream.collect, reader.stream, reader.store, reader.recordings):
        with pytest.raises(SourceMissingError, match="No such file") as caught:
            use()
        assert isinstance(caught.value, RuntimeError)
        assert str(tmp_path / "x.rrd") in str(caught.value)
