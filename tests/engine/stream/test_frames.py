"""Frames of streams: names, rows, times, projection, and the same on both executors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pytest
from chunkmill.engine import Chunk, ComponentColumn, LazyChunkStream, TimeColumn
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.errors import MissingExtraError, UsageError
from chunkmill.readers import McapReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IMU = "/nissan/gps/duro/imu"


def message(name: str) -> ComponentDescriptor:
    return ComponentDescriptor(f"{name}:message", archetype=name)


def chunk(path: str, times: list[int], **components: object) -> Chunk:
    columns = [ComponentColumn(name.replace("__", ":"), values) for name, values in components.items()]
    return Chunk.from_columns(path, [TimeColumn("frame", sequence=times)] if times else [], columns)


def messages(path: str, name: str, values: list[dict[str, object]]) -> Chunk:
    times = TimeColumn("frame", sequence=range(len(values)))
    return Chunk.from_columns(path, [times], [ComponentColumn(message(name), pa.array(values))])


def stream(*chunks: Chunk) -> LazyChunkStream:
    return LazyChunkStream.from_iter(list(chunks))


def test_fields_of_messages_are_columns(executor: str, data: Path) -> None:
    table = McapReader(data / "demo.mcap").values().to_arrow(IMU, index="log_time")
    assert table.column_names == [
        "message_log_time",
        "message_publish_time",
        "header",
        "orientation",
        "orientation_covariance",
        "angular_velocity",
        "angular_velocity_covariance",
        "linear_acceleration",
        "linear_acceleration_covariance",
    ]
    assert table.num_rows == 1556
    [reflected] = McapReader(data / "demo.mcap", decoders=["ros2_reflection"]).stream().filter(content=IMU).to_chunks()
    assert table.column("orientation").to_pylist() == [
        row[0]["orientation"] for row in reflected.data.components[0].values.to_pylist()
    ]


def test_a_frame_is_one_line(data: Path) -> None:
    frame = McapReader(data / "demo.mcap").frame(IMU)
    assert frame.index.name == "message_log_time"
    assert frame.index.is_monotonic_increasing
    assert frame["linear_acceleration.z"].mean() == pytest.approx(-9.8, abs=0.2)
    assert frame.shape == (1556, 17)


def test_selected_fields_come_in_their_order(executor: str, data: Path) -> None:
    reader = McapReader(data / "demo.mcap")
    table = reader.values().to_arrow(IMU, columns=["linear_acceleration.z", "header.frame_id", "message_publish_time"])
    assert table.column_names == ["linear_acceleration.z", "header.frame_id", "message_publish_time"]
    whole = reader.values().to_arrow(IMU, flatten=True)
    assert table.equals(whole.select(table.column_names))


def test_a_struct_that_is_flattened_can_be_selected_whole(data: Path) -> None:
    frame = McapReader(data / "demo.mcap").frame(IMU, columns=["linear_acceleration"])
    assert list(frame.columns) == [f"linear_acceleration.{axis}" for axis in "xyz"]


def test_several_entities_are_named(data: Path) -> None:
    table = McapReader(data / "demo.mcap").values().to_arrow("/nissan/vehicle_steering /nissan/vehicle_speed")
    assert table.column_names == ["entity_path", "message_log_time", "message_publish_time", "data"]
    counts = {row["values"]: row["counts"] for row in table.column("entity_path").value_counts().to_pylist()}
    assert counts == {"/nissan/vehicle_speed": 470, "/nissan/vehicle_steering": 470}


def test_names_are_as_short_as_they_can_be() -> None:
    one = chunk("/a", [1], Scalars__scalars=[[1.0, 2.0]], Points3D__colors=[[1]], Boxes__colors=[[2]], frame=[7])
    table = stream(one).to_arrow("/a")
    assert table.column_names == ["frame", "Boxes:colors", "Points3D:colors", "scalars", "/a:frame"] or set(
        table.column_names
    ) == {"frame", "Boxes:colors", "Points3D:colors", "scalars", "/a:frame"}
    assert table.column("/a:frame").to_pylist() == [7]
    assert table.column("scalars").to_pylist() == [[1.0, 2.0]]


def test_one_name_of_two_types_is_two_columns() -> None:
    chunks = messages("/a", "p.Text", [{"data": "x"}]), messages("/b", "p.Number", [{"data": 1.5}])
    table = stream(*chunks).to_arrow()
    assert table.to_pylist() == [
        {"entity_path": "/a", "frame": 0, "p.Text:data": "x", "p.Number:data": None},
        {"entity_path": "/b", "frame": 0, "p.Text:data": None, "p.Number:data": 1.5},
    ]


def test_definitions_that_differ_under_one_name_stay_apart() -> None:
    chunks = messages("/a", "p.T", [{"data": "x", "n": 1}]), messages("/a", "p.T", [{"data": 1.5, "n": 2}])
    table = stream(*chunks).to_arrow("/a")
    assert table.column("n").to_pylist() == [1, 2]
    assert set(table.column_names) == {"frame", "n", "/a:p.T:data (string)", "/a:p.T:data (double)"}
    assert table.column("/a:p.T:data (string)").to_pylist() == ["x", None]
    assert table.column("/a:p.T:data (double)").to_pylist() == [None, 1.5]


def test_lists_stay_where_some_row_has_several() -> None:
    one, several = chunk("/a", [1], v=[[1.0]]), chunk("/a", [2, 3], v=[[2.0, 3.0], []])
    assert stream(one).to_arrow("/a").column("v").to_pylist() == [1.0]
    assert stream(one).to_arrow("/a", lists=True).column("v").to_pylist() == [[1.0]]
    assert stream(one, several).to_arrow("/a").column("v").to_pylist() == [[1.0], [2.0, 3.0], []]
    with pytest.raises(UsageError, match="has 2 values"):
        stream(one, several).to_arrow("/a", lists=False)


def test_a_row_without_a_value_is_null() -> None:
    table = stream(chunk("/a", [1, 2], v=[[1.0], None]), chunk("/a", [3], w=["x"])).to_arrow("/a")
    assert table.to_pylist() == [
        {"frame": 1, "v": 1.0, "w": None},
        {"frame": 2, "v": None, "w": None},
        {"frame": 3, "v": None, "w": "x"},
    ]


def test_rows_are_ordered_by_the_index() -> None:
    chunks = chunk("/a", [5, 7], v=[1, 2]), chunk("/b", [4, 6, 7], v=[3, 4, 5])
    table = stream(*chunks).to_arrow(index="frame")
    assert table.column_names[0] == "frame"
    assert [row["frame"] for row in table.to_pylist()] == [4, 5, 6, 7, 7]
    assert table.column("v").to_pylist() == [3, 1, 4, 2, 5]
    assert stream(*chunks).to_arrow().column("v").to_pylist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("start", "end", "rows"), [(2, None, 2), (None, 2, 1), (2, 3, 1), (3, 2, 0), (9, None, 0)])
def test_times_bound_rows(start: int | None, end: int | None, rows: int) -> None:
    made = (
        stream(chunk("/a", [1, 2, 3], v=[1, 2, 3])).to_arrow("/a", index="frame", start=start, end=end) if rows else 0
    )
    assert rows == (made.num_rows if made else 0)


def test_times_may_be_dates(data: Path) -> None:
    values = McapReader(data / "demo.mcap").values()
    first, last = McapReader(data / "demo.mcap").time_bounds()
    whole = values.to_arrow(IMU, index="log_time").column("message_log_time").to_numpy()
    middle = (first + last) // 2
    moment = np.datetime64(middle, "ns")
    expected = int((whole >= moment).sum())
    assert 0 < expected < len(whole)
    texts = [str(moment), f"{moment}"[:26] + "+00:00"]
    for start in (middle, moment, datetime.fromtimestamp(middle // 1000 / 1e6, UTC), *texts[1:]):
        found = values.to_arrow(IMU, index="log_time", start=start).num_rows
        assert abs(found - expected) <= 1
    with pytest.raises(UsageError, match="start: Invalid isoformat"):
        values.to_arrow(IMU, index="log_time", start="yesterday")
    with pytest.raises(TypeError, match="start"):
        values.to_arrow(IMU, index="log_time", start=1.5)  # type: ignore[arg-type]


def test_spans_bound_durations() -> None:
    times = TimeColumn("t", duration=[0.5, 1.5])
    made = Chunk.from_columns("/a", [times], [ComponentColumn("v", [1, 2])])
    assert stream(made).to_arrow("/a", index="t", start=timedelta(seconds=1)).column("v").to_pylist() == [2]


def test_static_data_comes_where_it_is_asked_for() -> None:
    chunks = chunk("/a", [], name=["arm"]), chunk("/a", [1], v=[1])
    assert stream(*chunks).to_arrow("/a").column_names == ["frame", "v"]
    assert stream(*chunks).to_arrow("/a", static=True).to_pylist() == [
        {"frame": None, "name": "arm", "v": None},
        {"frame": 1, "name": None, "v": 1},
    ]


def test_what_is_not_there_is_named(data: Path) -> None:
    values = McapReader(data / "demo.mcap").values()
    with pytest.raises(UsageError, match=r"no timeline 'log_tim'. Did you mean message_log_time"):
        values.to_arrow(IMU, index="log_tim")
    with pytest.raises(UsageError, match=r"no column 'orientatoin'. Did you mean orientation"):
        values.to_arrow(IMU, columns=["orientatoin"])
    with pytest.raises(UsageError, match="no rows on /imu"):
        values.to_arrow("/imu")
    with pytest.raises(UsageError, match="need a timeline"):
        values.to_arrow(IMU, start=1)


def test_other_frames_have_the_same_values(data: Path) -> None:
    values = McapReader(data / "demo.mcap").values()
    table = values.to_arrow(IMU, index="log_time", flatten=True)
    assert values.to_polars(IMU, index="log_time", flatten=True).equals(polars.from_arrow(table))
    frame = values.to_pandas(IMU, index="log_time", flatten=True)
    assert frame.reset_index()["orientation.x"].equals(table.to_pandas()["orientation.x"])
    [(mean,)] = duckdb.sql('SELECT avg("linear_acceleration.z") FROM "table"').fetchall()
    assert mean == pytest.approx(frame["linear_acceleration.z"].mean())


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(MissingExtraError, match=r"polars is not installed.*pip install '\.\[polars\]'"):
        McapReader(data / "demo.mcap").values().to_polars(IMU)


def test_a_chunk_is_a_frame() -> None:
    made = chunk("/a", [1, 2], Scalars__scalars=[1.0, 2.0])
    assert made.to_arrow().to_pydict() == {"frame": [1, 2], "scalars": [1.0, 2.0]}
    assert made.to_pandas()["scalars"].tolist() == [1.0, 2.0]
    assert made.to_polars()["scalars"].to_list() == [1.0, 2.0]
    assert pa.record_batch(made).to_pydict() == made.to_arrow().to_pydict()
    assert polars.DataFrame(made).equals(made.to_polars())
    assert duckdb.sql("SELECT sum(scalars) FROM made").fetchall() == [(3.0,)]
    assert messages("/a", "p.T", [{"p": {"x": 1}}]).to_arrow(flatten=True).column_names == ["frame", "p.x"]


def test_streams_are_not_consumed() -> None:
    one = stream(chunk("/a", [1], v=[1]))
    assert one.to_arrow().equals(one.to_arrow())
    assert len(one.to_chunks()) == 1


def test_values_are_rows_of_spark(spark: SparkSession, data: Path) -> None:
    stream = McapReader(data / "demo.mcap").values()
    frame = stream.to_spark(contents=IMU, index="log_time", columns=["linear_acceleration", "header.stamp.nanosec"])
    assert frame.columns == ["message_log_time", "linear_acceleration", "header.stamp.nanosec"]
    rows = frame.selectExpr("linear_acceleration.x AS x", "`header.stamp.nanosec` AS n", "message_log_time").orderBy(
        "message_log_time"
    )
    here = stream.to_arrow(IMU, index="log_time", columns=["linear_acceleration.x", "header.stamp.nanosec"])
    assert [row.x for row in rows.collect()] == here.column("linear_acceleration.x").to_pylist()
    assert [row.n for row in rows.collect()] == here.column("header.stamp.nanosec").to_pylist()


def test_values_of_any_pipeline_are_rows_of_spark(spark: SparkSession) -> None:
    chunks = chunk("/a", [1, 2, 3], v=[1, 2, 3]), chunk("/b", [2], v=[5], w=["x"])
    doubled = stream(*chunks).map(lambda one: one)
    frame = doubled.to_spark(contents="/**", index="frame", start=2)
    rows = sorted((row.frame, row.entity_path, row.v, row.w) for row in frame.collect())
    assert rows == [(2, "/a", 2, None), (2, "/b", 5, "x"), (3, "/a", 3, None)]
    with pytest.raises(UsageError, match="a frame of values takes no `payload`"):
        doubled.to_spark(payload=True, contents="/a")


@pytest.mark.parametrize("name", ["log_time", "message_log_time"])
def test_the_log_time_has_one_name_and_a_short_one(data: Path, name: str) -> None:
    reader = McapReader(data / "demo.mcap")
    times = reader.values().to_arrow(IMU, executor="inline").column("message_log_time").cast("int64").to_pylist()
    table = reader.values().to_arrow(IMU, index=name, start=times[700], executor="inline")
    assert table.column_names[:2] == ["message_log_time", "message_publish_time"]
    assert table.column(0).cast("int64").to_pylist() == sorted(t for t in times if t >= times[700])
    chosen = reader.values().to_arrow(IMU, index=name, columns=[name, "header.frame_id"], executor="inline")
    assert chosen.column_names == [name, "header.frame_id"]
    assert reader.frame(IMU, index=name, columns=["header.frame_id"]).index.name == "message_log_time"
    kept = reader.stream().filter(content=IMU, has_timeline=name).to_chunks(executor="inline")
    assert sum(chunk.num_rows for chunk in kept) == len(times)


def test_a_timeline_that_is_called_so_comes_first() -> None:
    """The short name means the long one only where there is no timeline of that name."""
    times = {"log_time": pa.array([5, 6]), "message_log_time": pa.array([8, 7])}
    made = Chunk.build("/a", times, [(ComponentDescriptor("x"), pa.array([[1], [2]]))])
    values = LazyChunkStream.from_iter([made])
    assert values.to_arrow("/a", index="log_time", start=6).to_pylist() == [
        {"log_time": 6, "message_log_time": 7, "x": 2}
    ]
    assert values.to_arrow("/a", index="message_log_time", end=8).column("x").to_pylist() == [2]
