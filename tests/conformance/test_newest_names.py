"""What Rerun's newest release calls its things: the same calls here and there, on the same data."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine import AUTO_INDEX, Chunk, ComponentColumn, ComponentDescriptor, LazyChunkStream, TimeColumn, video
from chunkmill.lenses import DeriveLens, Selector
from chunkmill.lenses.archetypes import arrow_types
from chunkmill.readers import IndexColumn, McapReader, ParquetReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

theirs = pytest.importorskip("rerun.chunk")
rr = pytest.importorskip("rerun")

FIELDS = [*((name, pa.float64()) for name in "xyzw"), ("i", pa.int32()), ("s", pa.string())]
POSES = pa.array(
    [
        {"x": 1.0, "y": 2.0, "z": 3.0, "w": 4.0, "i": 5, "s": "q"},
        {"x": None, "y": 2.0, "z": 3.0, "w": 4.0, "i": 5, "s": "q"},
        None,
    ],
    pa.struct(FIELDS),
)


def pose_chunk() -> Chunk:
    rows = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), POSES)
    return Chunk.from_columns("/pose", [TimeColumn("frame", sequence=range(3))], [ComponentColumn("A:m", rows)])


def columns(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """The component columns: what they are called, their types and values."""
    data = [(f, c) for f, c in zip(batch.schema, batch.columns, strict=True) if f.metadata[b"rerun:kind"] == b"data"]
    keys = (b"rerun:component", b"rerun:archetype", b"rerun:component_type")
    return [(*(f.metadata.get(k) for k in keys), f.type, c.to_pylist()) for f, c in data]


# --- lenses


@pytest.mark.parametrize(
    "build",
    [
        lambda lens, rr: lens.to_translation("x", "y", "z"),
        lambda lens, rr: lens.to_quaternion("x", "y", "z", "w"),
        lambda lens, rr: lens.to_scale("x", "y", "z"),
        lambda lens, rr: lens.to_packed_component(rr.Points2D.descriptor_positions(), "x", "y"),
        lambda lens, rr: lens.to_packed_component("C", "x", "y", cast_to=None),
        lambda lens, rr: lens.to_packed_component("C", "x", "y", cast_to=pa.list_(pa.float32(), 2)),
        lambda lens, rr: lens.to_packed_component("C", "s", cast_to=None),
        lambda lens, rr: lens.to_component(rr.Scalars.descriptor_scalars(), ".i", cast_to="auto"),
        lambda lens, rr: lens.to_component(rr.Points3D.descriptor_colors(), ".i", cast_to="auto"),
        lambda lens, rr: lens.to_component("C", ".x", cast_to=pa.float32()),
        lambda lens, rr: lens.to_component(rr.TextLog.descriptor_text(), '"hello"'),
        lambda lens, rr: lens.to_scalars("x"),
        lambda lens, rr: lens.to_translation("x", "y", "z").to_quaternion("x", "y", "z", "w").to_scalars("x"),
    ],
)
def test_lenses_give_what_the_peers_give(build: Callable[[Any, Any], Any]) -> None:
    chunk = pose_chunk()
    (wanted,) = theirs.Chunk.from_record_batch(chunk.to_record_batch())[0].apply_lenses(
        build(theirs.DeriveLens("A:m", output_entity="/out"), rr)
    )[1:] or pytest.fail("nothing came")
    lens = build(DeriveLens("A:m", output_entity="/out"), rr)
    (found,) = [c for c in chunk.apply_lenses(pickle.loads(pickle.dumps(lens))) if c.entity_path == "/out"]
    assert columns(found.to_record_batch()) == columns(wanted.to_record_batch())


def test_rotations_about_an_axis() -> None:
    lens = DeriveLens("A:m", output_entity="/out").to_rotation_axis_angle("x", "y", "z", "w")
    (found,) = [c for c in pose_chunk().apply_lenses(lens) if c.entity_path == "/out"]
    (column,) = columns(found.to_record_batch())
    assert column[:3] == (
        b"Transform3D:rotation_axis_angle",
        b"rerun.archetypes.Transform3D",
        b"rerun.components.RotationAxisAngle",
    )
    assert column[3].value_type == arrow_types()["RotationAxisAngle"]
    assert column[4] == [[{"axis": [1.0, 2.0, 3.0], "angle": 4.0}], [None], [None]]


def test_scalars_of_several_fields() -> None:
    for fields in (("x", "y"), (".x", "y"), (Selector(".x"), ".y")):
        lens = DeriveLens("A:m", output_entity="/out").to_scalars(*fields)
        (found,) = [c for c in pose_chunk().apply_lenses(lens) if c.entity_path == "/out"]
        assert columns(found.to_record_batch())[0][4][0] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda lens: lens.to_packed_component("C"), ValueError, "requires at least one field"),
        (lambda lens: lens.to_packed_component("C", "x"), ValueError, "Cannot auto-cast output component 'C'"),
        (lambda lens: lens.to_scalars(), ValueError, "requires at least one"),
        (lambda lens: lens.to_component("C", ".", cast_to="nope"), ValueError, "'nope' is no Arrow type"),
        (lambda lens: lens.to_component("C", ".", cast_to=5), TypeError, "argument 'cast_to'"),
        (lambda lens: lens.to_translation("x", "y", 5), TypeError, "argument 'field'"),
    ],
)
def test_what_lenses_refuse_at_once(build: Callable[[Any], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build(DeriveLens("A:m"))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda lens: lens.to_translation("x", "y", "nope"), "nope"),
        (lambda lens: lens.to_packed_component("C", "x", "nope", cast_to=None), "Available fields: .x, y, z, w, i, s"),
        (lambda lens: lens.to_packed_component("C", "x", "i", cast_to=None), "has type Int32, but expected Float64"),
        (lambda lens: lens.to_component("C", ".s", cast_to=pa.float32()), "q"),
        (
            lambda lens: lens.to_packed_component(rr.Transform3D.descriptor_translation(), "x", "y"),
            "lists of 2 are no lists of 3",
        ),
    ],
)
def test_what_lenses_refuse_of_the_data(build: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pose_chunk().apply_lenses(build(DeriveLens("A:m", output_entity="/out")))


@pytest.mark.usefixtures("spark")
def test_the_newest_lenses_travel() -> None:
    lens = (
        DeriveLens("A:m", output_entity="/out")
        .to_translation("x", "y", "z")
        .to_rotation_axis_angle("x", "y", "z", "w")
        .to_component("text", '"hello"')
        .to_packed_component("xy", "x", "y", cast_to=pa.list_(pa.float32(), 2))
        .to_timeline("later", "duration", Selector(".i").cast("int64"))
    )
    chunk = pose_chunk().apply_selector("A:m", Selector(".").pipe(lambda a: a.fill_null(POSES[0].as_py())))
    made = [LazyChunkStream.from_iter([chunk]).lenses(lens).to_chunks(executor=e) for e in ("inline", "spark")]
    inline, spark = ([columns(c.to_record_batch()) for c in chunks] for chunks in made)
    assert inline == spark and len(inline[0]) == 4
    assert made[0][0].timeline_names == ["frame", "later"]


def test_the_types_of_components_are_the_peers() -> None:
    from rerun import components

    known = {n.removesuffix("Batch"): getattr(components, n) for n in dir(components) if n.endswith("Batch")}
    kinds = {n: b._ARROW_DATATYPE for n, b in known.items()}
    left_out = {"AnnotationContext", "ImageFormat", "SphericalHarmonics3Rgb", "TensorData"}
    assert arrow_types() == {n: k for n, k in kinds.items() if n not in left_out}


# --- selectors


@pytest.mark.parametrize(
    "query",
    [
        '"text"',
        '. | "text"',
        '.x | "a\\n\\"b\\""',
        '"a" | "b"',
        '.l[] | "t"',
        '.l | map("t")',
        '.missing | "t"',
        "pack(.x!, .y!)",
        "pack(.x!)",
        "pack( .s!,.s! )",
        "pack(.l[0]!, .x!)",
        "pack(.x! | .!, .y!)",
        ". | pack(.x!, .y!)",
        "pack(.x!, .y!) | .[]",
    ],
)
@pytest.mark.parametrize("per_row", [False, True])
def test_constants_and_packs(query: str, per_row: bool) -> None:
    kind = pa.struct([("x", pa.float64()), ("y", pa.float64()), ("s", pa.string()), ("l", pa.list_(pa.float64()))])
    rows = [{"x": 1.0, "y": 2.0, "s": "a", "l": [1.0, 2.0]}, {"x": None, "y": 3.0, "s": "b", "l": []}, None]
    flat = pa.array(rows, kind)
    source = pa.array([rows[:2], None, [], rows[:1]], pa.list_(kind)) if per_row else flat
    name = "execute_per_row" if per_row else "execute"
    found, wanted = getattr(Selector(query), name)(source), getattr(theirs.Selector(query), name)(source)
    assert (found is None) == (wanted is None)
    if found is not None:
        assert (found.type, found.to_pylist()) == (wanted.type, wanted.to_pylist())
    assert str(Selector(query)) == str(theirs.Selector(query))
    assert str(pickle.loads(pickle.dumps(Selector(query)))) == str(Selector(query))


@pytest.mark.parametrize(
    "query",
    [
        '"',
        '.x "t"',
        '"t"?',
        '"t"!',
        "pack()",
        "pack",
        "pack(.x; .y)",
        "pack(.x,)",
        'pack("a")',
        "pack(.x[])",
        "pack(pack(.x))",
    ],
)
def test_queries_that_both_refuse(query: str) -> None:
    for selector in (Selector, theirs.Selector):
        with pytest.raises(ValueError, match="Failed to parse selector"):
            selector(query)


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
    chunk = pose_chunk().to_record_batch()
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
    chunk = pose_chunk()
    found = Chunk.from_record_batch(chunk.to_record_batch())
    (only,) = found
    assert only is found is found[0] and (only.id, only.num_rows, len(only)) == (chunk.id, 3, 3)
    again = Chunk.from_record_batch(chunk.to_record_batch(), index=AUTO_INDEX, entity_path="/other")
    assert [c.entity_path for c in again] == ["/pose"] or [c.entity_path for c in again] == ["/other"]
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
        assert found == {"x": [[2], [1]], "s": [[None], ["a"]]}
        assert chunk.data.timelines[0].times.cast(pa.int64()).to_pylist() == [1577836800 * 10**9, 1577923200 * 10**9]


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
