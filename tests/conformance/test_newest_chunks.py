"""Chunks, readers and video by the names of Rerun's newest release: the same calls here and there, on the same data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine import AUTO_INDEX, Chunk, ComponentColumn, ComponentDescriptor, LazyChunkStream, TimeColumn, video
from chunkmill.readers import IndexColumn, McapReader, ParquetReader
from comparison import described_columns as columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

theirs = pytest.importorskip("rerun.chunk")
rr = pytest.importorskip("rerun")


def three_rows() -> Chunk:
    return Chunk.from_columns("/pose", [TimeColumn("frame", sequence=range(3))], [ComponentColumn("A:m", [1, 2, 3])])


# --- chunks of tables


def tables() -> dict[str, tuple[pa.RecordBatch, dict[str, Any]]]:
    times = pa.array([2, 1], pa.int64())
    values = pa.array([[1.0], [2.0]], pa.list_(pa.float32()))
    said = pa.schema(
        [
            pa.field("frame", pa.int64(), metadata={b"rerun:kind": b"index"}),
            pa.field("/b:c", values.type, metadata={b"rerun:entity_path": b"/b", b"rerun:component": b"n"}),
            pa.field("/a:Arch:c", values.type),
            pa.field("bare", pa.float64()),
        ]
    )
    plain = pa.array([1.0, None])
    raw = pa.record_batch({"t": times.cast(pa.timestamp("ns")), "n": times, "x": plain})
    chunk = three_rows().to_record_batch()
    return {
        "metadata": (pa.RecordBatch.from_arrays([times, values, values, plain], schema=said), {}),
        "an entity": (pa.RecordBatch.from_arrays([times, values, values, plain], schema=said), {"entity_path": "/w"}),
        "one index": (raw, {"index": "t"}),
        "two": (raw, {"index": ["n", "t"], "entity_path": "w/x"}),
        "static": (raw.slice(0, 1), {"index": None}),
        "a chunk again": (chunk, {"index": "frame"}),
    }


@pytest.mark.parametrize("name", list(tables()))
@pytest.mark.parametrize("call", ["from_record_batch", "from_dataframe"])
def test_tables_become_the_same_chunks(name: str, call: str) -> None:
    batch, arguments = tables()[name]
    found = list(getattr(Chunk, call)(batch, **arguments))
    wanted = list(getattr(theirs.Chunk, call)(batch, **arguments))
    assert [(c.entity_path, sorted(c.timeline_names)) for c in found] == [
        (c.entity_path, sorted(c.timeline_names)) for c in wanted
    ]
    for ours, other in zip(found, wanted, strict=True):
        mine, peers = ours.to_record_batch(), other.to_record_batch()
        assert sorted(columns(mine), key=str) == sorted(columns(peers), key=str)
        for line in ours.timeline_names:
            assert mine.column(line).to_pylist() == peers.column(line).to_pylist()


@pytest.mark.parametrize(
    ("batch", "arguments"),
    [
        (pa.record_batch({"x": [1]}), {}),
        (pa.record_batch({"x": [1]}), {"index": "y"}),
        (pa.record_batch({"x": [1]}), {"index": "x"}),
        (pa.record_batch({"x": [1], "t": pa.array([1], pa.timestamp("us"))}), {"index": "t"}),
        (pa.record_batch({"x": [1], "t": pa.array([None], pa.int64())}), {"index": ["t"]}),
        (tables()["metadata"][0], {"index": None}),
    ],
)
def test_tables_that_both_refuse(batch: pa.RecordBatch, arguments: dict[str, Any]) -> None:
    for kind in (Chunk, theirs.Chunk):
        with pytest.raises(ValueError):  # noqa: PT011 (their words are their own)
            kind.from_record_batch(batch, **arguments)


def test_a_chunk_comes_back_as_one_and_as_a_list_of_one() -> None:
    chunk = three_rows()
    found = Chunk.from_record_batch(chunk.to_record_batch())
    (only,) = found
    assert only is found is found[0] and (only.id, only.num_rows, len(only)) == (chunk.id, 3, 3)
    again = Chunk.from_record_batch(chunk.to_record_batch(), index=AUTO_INDEX, entity_path="/other")
    assert [c.entity_path for c in again] == ["/pose"]
    assert again[0].id != chunk.id


def test_dataframes_of_pandas_and_polars() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"t": pandas.to_datetime(["2020-01-02", "2020-01-01"]), "x": [1, 2], "s": ["a", None]})
    frames = [frame, frame.set_index("t"), frame.astype({"t": "datetime64[us]"})]
    try:
        import polars
    except ImportError:
        pass
    else:
        frames += [polars.from_pandas(frame), polars.from_pandas(frame).cast({"t": polars.Datetime("us")})]
    for given in frames:
        (chunk,) = Chunk.from_dataframe(given, index="t", entity_path="/w")
        assert chunk.entity_path == "/w" and chunk.num_rows == 2
        found = {c.descriptor.component: c.values.to_pylist() for c in chunk.data.components}
        assert found == {"x": [[1], [2]], "s": [["a"], None]}
        assert chunk.data.timelines[0].times.cast(pa.int64()).to_pylist() == [1577923200 * 10**9, 1577836800 * 10**9]


def test_dataframes_and_rows_of_spark(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(2, 0.5, "b"), (1, 1.5, "a")], "frame int, `/arm:volume` double, name string")
    for given in (frame, frame.collect()):
        chunks = list(Chunk.from_dataframe(given, index="frame"))
        rows = sorted((c.entity_path, t) for c in chunks for t in c.data.timelines[0].times.to_pylist())
        assert rows == [("/", 1), ("/", 2), ("/arm", 1), ("/arm", 2)]
    written = LazyChunkStream.from_iter(Chunk.from_dataframe(frame, index="frame"))
    assert written.filter(content="/arm").to_chunks(executor="spark")


@pytest.mark.parametrize("bad", [5, b"x", object(), "x", [], [5]])
def test_what_is_no_dataframe_is_refused_at_once(bad: object) -> None:
    with pytest.raises(TypeError, match="Expected a pyarrow Table"):
        Chunk.from_dataframe(bad)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("camera", lambda: rr.Points3D(positions=[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])),
        ("points", lambda: rr.Points3D(positions=[[1.0, 2.0, 3.0]]).as_component_batches()),
        ("a/b c", lambda: rr.AnyValues(name="kitchen", success=True, tries=3)),
    ],
)
def test_properties(name: str, make: Callable[[], Any]) -> None:
    found, wanted = Chunk.from_property(name, make()), theirs.Chunk.from_property(name, make())
    assert (found.entity_path, found.is_static, found.num_rows) == (wanted.entity_path, True, 1)
    assert sorted(columns(found.to_record_batch()), key=str) == sorted(columns(wanted.to_record_batch()), key=str)


def test_properties_without_the_sdk() -> None:
    chunk = Chunk.from_property("episode", [ComponentColumn(ComponentDescriptor("n"), [1, 2])])
    assert columns(chunk.to_record_batch())[0][4] == [[1, 2]]
    for bad in (5, [5]):
        with pytest.raises(TypeError, match="component columns"):
            Chunk.from_property("episode", bad)


# --- readers


def test_options_of_parquet_are_those_of_a_stream(tmp_path: Path) -> None:
    from rerun.experimental import ParquetReader as Theirs

    path = tmp_path / "x.parquet"
    pq.write_table(
        pa.table({"ts": [3, 1, 2], "arm_a": [1.0, 2.0, 3.0], "arm_b": [4.0, 5.0, 6.0], "k": [7, 7, 7]}), path
    )
    for options in (
        {"index_columns": ["timestamp", "ms"], "use_structs": False},
        {"index_columns": ["duration", "us"], "static_columns": ["k"], "entity_path_prefix": "/w"},
        {"index_columns": ["sequence"], "column_grouping": "individual"},
        {"column_grouping": "explicit_prefixes", "prefixes": ["arm_"]},
    ):
        given = []
        for column in (IndexColumn, theirs.IndexColumn):
            kind, *unit = options.get("index_columns", [None])
            index = None if kind is None else [getattr(column, kind)("ts", **({"input_unit": unit[0]} if unit else {}))]
            given.append({**options, "index_columns": index})
        ours = ParquetReader(path, index_columns=[("k", "sequence")]).stream(**given[0]).to_chunks()
        peers = Theirs(path).stream(**given[1]).to_chunks()
        assert shapes(ours) == shapes(peers)
        assert shapes(ParquetReader(path, **given[0]).stream().to_chunks()) == shapes(peers)


def shapes(chunks: list[Any]) -> list[tuple[Any, ...]]:
    """Entity, times and values of each chunk, the file's own properties aside."""
    out = []
    for chunk in chunks:
        batch = chunk.to_record_batch()
        times = [(n, batch.column(n).type, batch.column(n).cast(pa.int64()).to_pylist()) for n in chunk.timeline_names]
        if not chunk.entity_path.startswith("/__properties"):
            out.append((chunk.entity_path, sorted(times, key=str), sorted(columns(batch), key=str)))
    return sorted(out, key=str)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: IndexColumn("t", "when"), "Unknown index type: 'when'"),
        (lambda: IndexColumn.timestamp("t", input_unit="min"), "Unknown time unit: 'min'"),  # type: ignore[arg-type]
    ],
)
def test_index_columns_are_checked(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
    assert IndexColumn.of(("t", "timestamp", "ms")) == IndexColumn.timestamp("t", input_unit="ms")


def test_a_part_of_an_mcap(data: Path) -> None:
    path = data / "mcap" / "rosbag2__cdr_test_0.mcap"
    reader = McapReader(path)
    first, last = reader.time_bounds()
    assert (first, last) == theirs.McapReader(path).time_bounds()
    middle = (first + last) // 2

    def rows(r: McapReader, **part: int) -> int:
        return sum(c.num_rows for c in r.stream(**part).to_chunks() if c.timeline_names)

    assert rows(reader, end_time_ns=middle) == rows(McapReader(path, end_time_ns=middle)) < rows(reader)
    late = McapReader(path, start_time_ns=middle)
    assert rows(late, end_time_ns=middle) == rows(reader, end_time_ns=middle)
    assert rows(late) + rows(reader, end_time_ns=middle) == rows(reader)
    with pytest.raises(ValueError, match="is later than"):
        reader.stream(start_time_ns=last, end_time_ns=first)


@pytest.mark.parametrize("kind", ["timestamp", "duration"])
def test_both_words_for_a_timeline(data: Path, kind: Any) -> None:
    path = data / "mcap" / "rosbag2__cdr_test_0.mcap"
    found = [McapReader(path, timeline_type=k).stream().to_chunks() for k in (kind, f"{kind}_ns")]  # type: ignore[arg-type]
    assert shapes(found[0]) == shapes(found[1])


# --- video


@pytest.mark.parametrize(
    ("sample", "arguments"),
    [
        (b"\0\0\0\2ab\0\0\0\1c", {}),
        (b"\0\2ab\0\1c", {"length_prefix_size": 2}),
        (b"\2ab", {"length_prefix_size": 1}),
        (b"", {}),
        (b"\0\0\0\0", {}),
        (b"\0\0", {}),
        (b"\0\0\0\5ab", {}),
        (b"\0\0\2ab", {"length_prefix_size": 3}),
    ],
)
def test_samples_of_mp4(sample: bytes, arguments: dict[str, int]) -> None:
    from rerun.experimental.video import length_prefixed_to_annex_b

    try:
        wanted = length_prefixed_to_annex_b(sample, **arguments)
    except ValueError as error:
        with pytest.raises(ValueError, match=str(error)):
            video.length_prefixed_to_annex_b(sample, **arguments)
    else:
        assert video.length_prefixed_to_annex_b(sample, **arguments) == wanted


def test_starts_of_groups() -> None:
    from rerun.components import VideoCodec

    sps = bytes.fromhex("6764000aacb20a0fda02210000030001000003003c8f122990")
    key = b"\0\0\0\1" + sps + b"\0\0\0\1\x65\x88\x84\x21"
    assert video.is_annex_b(key) and not video.is_annex_b(key[3:])
    assert video.detect_gop_start(key, VideoCodec.H264) and video.detect_gop_start(key, 0x61766331)
    assert not video.detect_gop_start(b"\0\0\0\1" + sps, VideoCodec.H264)
    for codec in VideoCodec:
        assert not video.detect_gop_start(b"", codec)
    with pytest.raises(ValueError, match="Failed reading SPS"):
        video.detect_gop_start(b"\0\0\0\1\x67\0\0\0\1\x65\x88", VideoCodec.H264)
    with pytest.raises(ValueError, match="unknown video codec 'h264'"):
        video.detect_gop_start(key, "h264")
