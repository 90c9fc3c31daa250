"""Rows of datasets as DataFrames: what is read, what is refused, what a view shows, and which version it is of."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from chunk_making import made
from chunkmill.engine import Chunk, LazyChunkStream
from chunkmill.engine.catalog import CatalogClient, ContentFilter, DatasetEntry, DatasetView, NotFoundError
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.errors import ReadError
from datafusion import DataFrame, col, lit
from datafusion import functions as f

INTEGERS = pa.list_(pa.int64())


def chunk(entity: str, times: list[int], values: list[Any], datatype: pa.DataType = INTEGERS) -> Chunk:
    """A chunk of the timeline ``frame``."""
    column = pa.array(values, datatype)
    return Chunk.build(entity, {"frame": pa.array(times)} if times else {}, [(ComponentDescriptor("value"), column)])


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def written(segment: str, *chunks: Chunk, name: str | None = None) -> Path:
        path = tmp_path / "files" / f"{name or segment}.rrd"
        path.parent.mkdir(exist_ok=True)
        LazyChunkStream.from_iter(list(chunks)).write_rrd(path, application_id="tests", recording_id=segment)
        return path

    return written


@pytest.fixture
def dataset(tmp_path: Path, write: Callable[..., Path]) -> DatasetEntry:
    """Two segments: ``one`` has a camera and a label, ``two`` a camera and a lidar."""
    found = CatalogClient(tmp_path / "lake").create_dataset("drives")
    label = chunk("/label", [], [["car"]], pa.list_(pa.string()))
    cameras = [chunk("/camera", [1, 2], [[10], [20]]), chunk("/camera", [4, 5], [[40], []])]
    one = write("one", *cameras, label)
    two = write("two", chunk("/camera", [2], [[2]]), chunk("/lidar", [3, 7], [[3], [7]]))
    found.register([str(one), str(two)], executor="inline").wait()
    return found


def rows(frame: Any) -> list[tuple[Any, ...]]:
    """The rows of a frame in order."""
    return sorted((tuple(row.values()) for row in frame.to_arrow_table().to_pylist()), key=lambda row: row[:2])


def test_frames_are_printed_as_rerun_prints_them(dataset: DatasetEntry, tmp_path: Path) -> None:
    frame = dataset.filter_segments("one").reader("frame").select("rerun_segment_id", "frame", "/camera:value")
    lines = str(frame.filter(col("frame") < 3)).splitlines()
    assert lines[:4][1].strip("│ ") == "METADATA:"
    assert [line.strip("│ ").split() for line in lines if "│ one" in line] == [
        ["one", "┆", "1", "┆", "[10]"],
        ["one", "┆", "2", "┆", "[20]"],
    ]
    assert repr(frame) == str(frame)
    assert str(frame.filter(col("frame") > 9)) == "No data to display"
    path = tmp_path / "many.rrd"
    LazyChunkStream.from_iter([made(range(30))]).write_rrd(path, application_id="tests", recording_id="many")
    many = CatalogClient(tmp_path / "lake").create_dataset("many")
    many.register(str(path), executor="inline").wait()
    text = str(many.reader("t").sort("t"))
    assert text.count("many") == 20 and text.endswith("┘\nData truncated due to size.")
    html = frame._repr_html_()
    assert "<table" in html and "/camera:value" in html and "<script" not in html
    assert "METADATA" in str(dataset.segment_table())


def test_a_row_for_each_index_value_of_each_segment(dataset: DatasetEntry) -> None:
    frame = dataset.reader("frame")
    assert isinstance(frame, DataFrame)
    assert frame.schema().names == ["rerun_segment_id", "frame", "/camera:value", "/label:value", "/lidar:value"]
    car = ["car"]
    assert rows(frame) == [
        ("one", 1, [10], car, None),
        ("one", 2, [20], car, None),
        ("one", 4, [40], car, None),
        ("one", 5, [], car, None),
        ("two", 2, [2], None, None),
        ("two", 3, None, None, [3]),
        ("two", 7, None, None, [7]),
    ]
    filled = dataset.reader("frame", fill_latest_at=True).filter(col("frame") >= 3)
    assert rows(filled.select("rerun_segment_id", "frame", col('"/camera:value"'))) == [
        ("one", 4, [40]),
        ("one", 5, []),
        ("two", 3, [2]),
        ("two", 7, [2]),
    ]
    assert rows(dataset.reader(None)) == [("one", None, car), ("two", None, None)]
    assert frame.count() == 7 and frame.select("frame").limit(2).to_arrow_table().num_rows == 2


def test_each_segment_is_one_partition_in_order(dataset: DatasetEntry) -> None:
    parts = dataset.reader("frame").collect_partitioned()
    columns = [[(b["rerun_segment_id"][0].as_py(), b["frame"].to_pylist()) for b in part] for part in parts]
    assert columns == [[("one", [1, 2, 4, 5])], [("two", [2, 3, 7])]]


def test_index_values_that_are_given(dataset: DatasetEntry) -> None:
    def frames(values: Any, **more: Any) -> list[tuple[Any, ...]]:
        frame = dataset.reader("frame", using_index_values=values, **more)
        return rows(frame.select("rerun_segment_id", "frame", col('"/camera:value"')))

    whole = [("one", 0, None), ("one", 3, [20]), ("two", 0, None), ("two", 3, [2])]
    for values in ([3, 0], range(0, 6, 3), np.array([0, 3]), pa.array([0, 3, None]), pd.Series([3, 0])):
        assert frames(values, fill_latest_at=True) == whole
    assert frames({"two": [2], "none": [1]}) == [("two", 2, [2])]
    assert frames(dataset.filter_segments("two").reader("frame")) == [
        ("two", 2, [2]),
        ("two", 3, None),
        ("two", 7, None),
    ]
    assert frames([]) == frames({}) == []


BAD_VALUES = "IndexValuesLike must be a pyarrow.Array, pyarrow.ChunkedArray, numpy.ndarray of int64"


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"index": "nope"}, ValueError, "Index 'nope' does not exist in the dataset."),
        ({"index": 3}, TypeError, "index"),
        ({"index": None, "using_index_values": [1]}, ValueError, "index must be provided when using_index_values"),
        ({"index": "frame", "using_index_values": [1, 1]}, ValueError, "Index values must be unique."),
        ({"index": "frame", "using_index_values": [1.5]}, TypeError, BAD_VALUES),
        ({"index": "frame", "using_index_values": [True]}, TypeError, BAD_VALUES),
        ({"index": "frame", "using_index_values": "12"}, TypeError, BAD_VALUES),
        ({"index": "frame", "using_index_values": 10}, TypeError, BAD_VALUES),
        ({"index": "frame", "using_index_values": np.zeros((2, 2), int)}, TypeError, BAD_VALUES),
        ({"index": "frame", "using_index_values": np.array([1], "m8[s]")}, TypeError, BAD_VALUES),
        ({"index": "frame", "using_index_values": pa.array([1], pa.int32())}, TypeError, "must be of type int64"),
        ({"index": "frame", "using_index_values": pa.array(["1"])}, TypeError, "must be of type int64"),
        (
            {"index": "frame", "using_index_values": pa.table({"frame": [1]})},
            ValueError,
            "no column 'rerun_segment_id'",
        ),
    ],
)
def test_what_is_refused(dataset: DatasetEntry, arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    index = arguments.pop("index")
    with pytest.raises(error) as raised:
        dataset.reader(index, **arguments)
    assert text in str(raised.value)


def test_an_empty_dataset(tmp_path: Path) -> None:
    empty = CatalogClient(tmp_path / "lake").create_dataset("empty")
    assert empty.reader(None).schema().names == ["rerun_segment_id"]
    assert empty.reader(None).count() == 0 and empty.filter_contents("/a").schema().column_names() == []
    with pytest.raises(ValueError, match=r"Index 'log_time' does not exist in the dataset\."):
        empty.reader("log_time")


def test_views_are_composed(dataset: DatasetEntry) -> None:
    view = dataset.filter_segments(["two", "one"]).filter_segments("two").filter_contents("/lidar")
    assert isinstance(view, DatasetView) and view.segment_ids() == ["two"]
    assert view.schema().column_names() == ["frame", "/lidar:value"] == view.arrow_schema().names[1:]
    assert rows(view.reader("frame")) == [("two", 3, [3]), ("two", 7, [7])]
    everything = ContentFilter.everything().exclude("/camera")
    assert dataset.filter_contents(everything).schema().column_names() == ["frame", "/label:value", "/lidar:value"]
    assert view.filter_contents(["/camera", "-/lidar"]).schema().column_names() == ["frame", "/camera:value"]
    assert [row["rerun_segment_id"] for row in view.segment_table().to_pylist()] == ["two"]
    assert view.get_index_ranges().to_pylist() == [{"rerun_segment_id": "two", "frame:end": 7, "frame:start": 2}]
    assert dataset.filter_segments(view.reader("frame")).segment_ids() == ["two"]
    assert dataset.filter_segments([]).segment_ids() == [] and dataset.filter_segments([]).reader("frame").count() == 0
    assert repr(view) == f"DatasetView({dataset!r}, 1 segments, content_filters=['/lidar'])"
    assert repr(DatasetView(dataset)) == f"DatasetView({dataset!r}, all segments, no content filter)"
    with pytest.warns(DeprecationWarning, match="deprecated"), pytest.raises(NotFoundError, match="'one'"):
        view.download_segment("one")
    for wrong in (3, [3]):
        with pytest.raises(TypeError):
            dataset.filter_segments(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no column 'rerun_segment_id'"):
        dataset.filter_segments(pa.table({"a": [1]}))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        dataset.filter_contents([3])  # type: ignore[list-item]


@pytest.mark.parametrize(
    "predicate",
    [
        col("frame") == 2,
        (col("frame") > 2) & (col("frame") <= 4),
        col("frame").between(lit(2), lit(3)),
        (col("frame") < 2) & (col("frame") > 3),
        (col("rerun_segment_id") == "two") | (col("frame") == 5),
        f.in_list(col("rerun_segment_id"), [lit("two"), lit("none")]),
        f.in_list(col("rerun_segment_id"), []),
        col('"/lidar:value"').is_not_null(),
        col('"/camera:value"').is_not_null() & col('"/lidar:value"').is_null(),
        ~(col("frame") >= 4),
        col("frame") > 3.5,
        col('"/camera:value"')[0] == 20,
    ],
    ids=str,
)
@pytest.mark.parametrize("fill", [False, True])
@pytest.mark.heavy
def test_a_filter_takes_the_rows_that_it_takes_of_all(dataset: DatasetEntry, predicate: Any, fill: bool) -> None:
    frame = dataset.reader("frame", fill_latest_at=fill)
    everything = frame.to_arrow_table()
    from datafusion import SessionContext

    expected = SessionContext().create_dataframe([everything.to_batches()]).filter(predicate)
    assert rows(frame.filter(predicate)) == rows(expected)
    assert frame.filter(predicate).count() == expected.count()


def test_a_reader_keeps_its_version(dataset: DatasetEntry, write: Callable[..., Path]) -> None:
    before = dataset.reader("frame")
    dataset.register(str(write("three", chunk("/camera", [9], [[9]]))), executor="inline").wait()
    dataset.unregister(segments_to_drop="one")
    assert {row[0] for row in rows(before)} == {"one", "two"}
    assert {row[0] for row in rows(dataset.reader("frame"))} == {"two", "three"}


def test_a_file_that_is_gone(dataset: DatasetEntry, tmp_path: Path) -> None:
    frame = dataset.reader("frame")
    shutil.rmtree(tmp_path / "files")
    with pytest.raises(ReadError, match=r"one\.rrd|two\.rrd"):
        frame.collect()
    assert frame.filter(col("rerun_segment_id") == "none").count() == 0


def test_layers_of_other_types_are_put_under_one(tmp_path: Path, write: Callable[..., Path]) -> None:
    found = CatalogClient(tmp_path / "lake").create_dataset("structs")
    kinds = [pa.struct([("x", pa.int64())]), pa.struct([("y", pa.string()), ("x", pa.int64())])]
    values: list[Any] = [[[{"x": 1}], [], None], [[{"y": "b", "x": 2}, None]]]
    for name, kind, some in zip("ab", kinds, values, strict=True):
        path = write("seg", chunk("/a", list(range(ord(name), ord(name) + len(some))), some, pa.list_(kind)), name=name)
        found.register(str(path), layer_name=name, executor="inline").wait()
    column = found.reader("frame").to_arrow_table()["/a:value"].to_pylist()
    both = [[{"x": 2, "y": "b"}, None]]
    assert column == [[{"x": 1, "y": None}], *both]


def test_rules_are_chosen_by_name(tmp_path: Path, dataset: DatasetEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    rerun = CatalogClient(tmp_path / "lake", semantics="rerun-0.33").get_dataset("drives")
    assert rerun.catalog.semantics.name == "rerun-0.33" and dataset.catalog.semantics.name == "contract"
    assert rows(rerun.reader(None)) == [("one", None, ["car"])]
    assert rerun.reader("frame", using_index_values=[2, 6]).count() == 3
    assert dataset.reader("frame", using_index_values=[2, 6]).count() == 4
    lidar = rerun.reader("frame").select(col('"/lidar:value"'))
    assert len(lidar.to_pylist()) == 2 and len(dataset.reader("frame").select(col('"/lidar:value"')).to_pylist()) == 7
    with_filter = rerun.reader("frame").filter(col('"/camera:value"').is_null()).select(col('"/lidar:value"'))
    assert with_filter.to_pylist() == [{"/lidar:value": [3]}, {"/lidar:value": [7]}]
    monkeypatch.setenv("CHUNKMILL_CATALOG_SEMANTICS", "rerun-0.33")
    assert CatalogClient(tmp_path / "lake").semantics.name == "rerun-0.33"
    with pytest.raises(ValueError, match=r"semantics: expected one of contract, rerun-0\.33, got 'other'"):
        CatalogClient(tmp_path / "lake", semantics="other")


def test_a_frame_stays_one_of_ours(dataset: DatasetEntry) -> None:
    frame = dataset.reader("frame")
    assert type(frame.select("frame").sort("frame").limit(1)) is type(frame)
    assert made(range(2)).num_rows == 2


@pytest.mark.parametrize("semantics", ["contract", "rerun-0.33"])
def test_the_log_time_of_an_mcap_may_be_named_short(
    tmp_path: Path, semantics: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHUNKMILL_CATALOG_SEMANTICS", semantics)
    times = {"message_log_time": pa.array([3, 1, 2], pa.timestamp("ns"))}
    made = Chunk.build("/a", times, [(ComponentDescriptor("x"), pa.array([[3], [1], [2]]))])
    path = tmp_path / "a.rrd"
    LazyChunkStream.from_iter([made]).write_rrd(path, application_id="t", recording_id="r", executor="inline")
    dataset = CatalogClient(tmp_path / "lake").create_dataset("drives")
    dataset.register([str(path)]).wait()
    long, short = dataset.reader("message_log_time"), dataset.reader("log_time")
    assert short.schema().names == long.schema().names and "message_log_time" in short.schema().names
    assert short.to_arrow_table().equals(long.to_arrow_table())
    filled = dataset.reader("log_time", using_index_values=[2], fill_latest_at=True).to_arrow_table()
    assert filled["message_log_time"].cast("int64").to_pylist() == [2]


def test_a_dataset_is_the_view_that_leaves_nothing_out(tmp_path: Path) -> None:
    dataset = CatalogClient(tmp_path).create_dataset("ds")
    assert isinstance(dataset, DatasetView) and dataset.dataset is dataset
    assert DatasetEntry.reader is DatasetView.reader and dataset.schema() == DatasetView(dataset).schema()
    assert repr(dataset) == "Entry(EntryKind.DATASET, 'ds')" and dataset == "ds"


def test_a_frame_of_spark_takes_what_the_reader_takes_but_who_reads(tmp_path: Path) -> None:
    dataset = CatalogClient(tmp_path).create_dataset("ds")
    taken = inspect.signature(DatasetEntry.reader).parameters
    assert list(inspect.signature(dataset.to_spark).parameters) == [n for n in taken if n not in ("self", "executor")]
    for wrong in ("executor", "fill"):
        with pytest.raises(TypeError, match=wrong):
            dataset.to_spark("frame", **{wrong: "inline"})
