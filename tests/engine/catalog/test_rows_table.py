"""Tables of the rows of segments, which follow a dataset, and views of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine import Chunk, LazyChunkStream
from chunkmill.engine.catalog import CatalogClient, DatasetEntry
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.errors import UsageError
from chunkmill.engine.tables import TableConnection, connect, udf

called: list[int] = []


@udf(version="1")
def first_plus_one(values: list) -> int:
    called.append(values[0])
    return values[0] + 1


def chunk(entity: str, times: list[int], values: list[int]) -> Chunk:
    column = pa.array([[value] for value in values], pa.list_(pa.int64()))
    return Chunk.build(entity, {"frame": pa.array(times)}, [(ComponentDescriptor("value"), column)])


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def written(segment: str, name: str, *chunks: Chunk) -> str:
        path = tmp_path / "files" / f"{name}.rrd"
        path.parent.mkdir(exist_ok=True)
        LazyChunkStream.from_iter(list(chunks)).write_rrd(path, application_id="tests", recording_id=segment)
        return str(path)

    return written


@pytest.fixture
def dataset(tmp_path: Path, write: Callable[..., str]) -> DatasetEntry:
    found = CatalogClient(tmp_path / "lake").create_dataset("drives")
    places = [write(f"s{n}", f"s{n}", chunk("/camera", [1, 2], [10 * n, 10 * n + 1])) for n in range(3)]
    found.register(places, executor="inline").wait()
    return found


@pytest.fixture
def tables(tmp_path: Path) -> TableConnection:
    called.clear()
    return connect(str(tmp_path / "tables"), executor="inline")


def rows(table: Any, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[column] for column in columns) for row in table.to_arrow().to_pylist())


def test_a_view_computes_the_segments_whose_layers_changed(
    dataset: DatasetEntry, tables: TableConnection, write: Callable[..., str]
) -> None:
    def followed() -> Any:
        return dataset.filter_contents("/camera/**").rows_table(tables, "frames", "frame", columns=["/camera:value"])

    source = followed()
    query = source.search(None).select(
        {"segment": "rerun_segment_id", "frame": "frame", "more": (first_plus_one, ["/camera:value"])}
    )
    view = tables.create_materialized_view("more", query)
    assert view.refresh().rows_refreshed == 6
    version = source.version
    assert followed().version == version
    called.clear()
    dataset.register(
        [write("s1", "more", chunk("/camera", [2, 3], [70, 80]))], layer_name="x", executor="inline"
    ).wait()
    assert followed().version == version + 1
    assert view.refresh().rows_refreshed == 3
    assert sorted(called) == [10, 70, 80]
    wanted = [("s0", 1, 1), ("s0", 2, 2), ("s1", 1, 11), ("s1", 2, 71), ("s1", 3, 81), ("s2", 1, 21), ("s2", 2, 22)]
    assert rows(view, "segment", "frame", "more") == wanted
    dataset.unregister(segments_to_drop=["s0"])
    assert len(rows(followed(), "frame")) == 5
    view.refresh()
    assert rows(view, "segment", "frame", "more") == wanted[2:]
    assert sorted(called) == [10, 70, 80]


def test_rows_that_others_took_from_the_table_or_gave_it_are_made_good(
    dataset: DatasetEntry, tables: TableConnection
) -> None:
    view = dataset.filter_contents("/**")
    table = view.rows_table(tables, "all", "frame")
    wanted = rows(table, "rerun_segment_id", "frame")
    for change in (
        lambda: table.delete("rerun_segment_id = 's1'"),
        lambda: table.add([{"rerun_segment_id": "s9", "frame": 7}]),
        lambda: table.delete("true"),
    ):
        change()
        assert rows(view.rows_table(tables, "all", "frame"), "rerun_segment_id", "frame") == wanted
    assert view.rows_table(tables, "all", "frame").version == table.version


def test_the_rows_of_a_whole_dataset_are_those_of_its_view(dataset: DatasetEntry, tables: TableConnection) -> None:
    table = dataset.rows_table(tables, "whole", "frame", columns=["/camera:value"])
    part = dataset.filter_segments("s1").rows_table(tables, "part", "frame", columns=["/camera:value"])
    wanted = dataset.reader("frame").to_arrow_table().select(["rerun_segment_id", "frame", "/camera:value"])
    assert table.to_arrow().to_pylist() == wanted.to_pylist()
    assert part.to_arrow().to_pylist() == [row for row in wanted.to_pylist() if row["rerun_segment_id"] == "s1"]
    assert dataset.rows_table(tables, "whole", "frame", columns=["/camera:value"]).version == table.version


def test_columns_that_layers_bring_later_are_added(
    dataset: DatasetEntry, tables: TableConnection, write: Callable[..., str]
) -> None:
    view = dataset.filter_contents("/**")
    table = view.rows_table(tables, "all", "frame")
    assert table.schema.names == ["rerun_segment_id", "frame", "/camera:value"]
    dataset.register([write("s1", "l", chunk("/lidar", [2], [5]))], layer_name="lidar", executor="inline").wait()
    table = view.rows_table(tables, "all", "frame")
    assert rows(table, "rerun_segment_id", "frame", "/lidar:value")[2:4] == [("s1", 1, None), ("s1", 2, [5])]
    with pytest.raises(UsageError, match="already holds other rows than these"):
        view.rows_table(tables, "all", "frame", fill_latest_at=True)
    with pytest.raises(UsageError, match="already holds other rows than these"):
        dataset.filter_contents("/lidar").rows_table(tables, "all", "frame")
    with pytest.raises(UsageError, match="no columns"):
        view.rows_table(tables, "other", "frame", columns=["/nothing"])


def named(entity: str, *components: str) -> Chunk:
    values = [(ComponentDescriptor(one), pa.array([[n]], pa.list_(pa.int64()))) for n, one in enumerate(components)]
    return Chunk.build(entity, {"frame": pa.array([1])}, values)


def test_columns_with_dots_get_names_that_tables_have(
    dataset: DatasetEntry, tables: TableConnection, write: Callable[..., str]
) -> None:
    dataset.register([write("s0", "gps", named("/gps", "geo.msg.Fix:message"))], layer_name="gps").wait()
    view = dataset.filter_contents("/gps")
    view.rows_table(tables, "gps", "frame")
    dataset.register([write("s1", "more", named("/gps", "geo.msg.Fix:message"))], layer_name="gps").wait()
    table = view.rows_table(tables, "gps", "frame", columns=None)
    assert rows(table, "rerun_segment_id", "/gps:geo_msg_Fix:message") == [("s0", [0]), ("s1", [0])]
    dataset.register([write("s2", "twice", named("/gps", "geo_msg.Fix:message"))], layer_name="gps").wait()
    with pytest.raises(
        UsageError, match=r"would have the same name '/gps:geo_msg_Fix:message' in the table\. Choose one"
    ):
        view.rows_table(tables, "gps", "frame")
    with pytest.raises(TypeError, match="argument 'tables': 'str' object is not an instance of 'TableConnection'"):
        view.rows_table("tables", "gps", "frame")  # type: ignore[arg-type]
