"""Loads of columns whose files are together, or not, and of those that a function fills together."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine.errors import UsageError
from chunkmill.engine.tables import Columns, Table, udf


class Size(NamedTuple):
    height: int
    width: int


@udf(version="1")
def size(a: int) -> Columns[Size]:
    return Size(a + 10, a + 20)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    lance.write_dataset(pa.table({"a": range(6)}), tmp_path / "t.lance", max_rows_per_file=3)
    return Table(str(tmp_path / "t.lance"), executor="inline")


def source(table: Table, **columns: Any) -> str:
    place = Path(table.uri).with_name(f"{'-'.join(columns)}.parquet")
    pq.write_table(pa.table(columns), place)
    return str(place)


def test_columns_that_were_loaded_apart_are_loaded_together(table: Table) -> None:
    table.load_columns(source(table, a=[1, 4], x=[1, 4]), "a", ["x"])
    job = table.load_columns(source(table, a=[0, 1, 5], x=[10, 11, 15], y=["0", "1", "5"]), "a", ["x", "y"])
    rows = table.to_arrow()
    assert rows["x"].to_pylist() == [10, 11, None, None, 4, 15]
    assert rows["y"].to_pylist() == ["0", "1", None, None, None, "5"]
    (record,) = (one for one in table.jobs() if one.job_id == job)
    assert {metric.name: metric.n for metric in record.metrics}["rows_processed"] == 3
    table.load_columns(source(table, a=[2], y=["2"]), "a", ["y"])
    table.load_columns(source(table, a=[3], y=["3"], x=[3]), "a", ["y", "x"])
    rows = table.to_arrow()
    assert rows["x"].to_pylist() == [10, 11, None, 3, 4, 15]
    assert rows["y"].to_pylist() == ["0", "1", "2", "3", None, "5"]


def test_a_load_that_lacks_rows_leaves_no_columns_behind(table: Table) -> None:
    place = source(table, a=[1], x=[1])
    with pytest.raises(UsageError, match="5 destination rows have no match"):
        table.load_columns(place, "a", ["x"], on_missing="error")
    assert table.schema.names == ["a"]
    table.load_columns(place, "a", ["x"])
    with pytest.raises(UsageError, match="5 destination rows have no match"):
        table.load_columns(place, "a", ["x"], on_missing="error")
    assert table.to_arrow()["x"].to_pylist() == [None, 1, None, None, None, None]


def test_columns_of_one_function_are_loaded_together_or_not(table: Table) -> None:
    table.add_columns(size)
    table.backfill("height")
    place = source(table, a=[1], height=[0], width=[0])
    with pytest.raises(UsageError, match="'height' is one of several columns of a single function"):
        table.load_columns(place, "a", ["height"])
    table.load_columns(place, "a", ["width", "height"])
    assert table.to_arrow()["height"].to_pylist() == [10, 0, 12, 13, 14, 15]
    assert table.plan_backfill("width").udf_mismatch
    table.backfill("width")
    assert table.to_arrow()["height"].to_pylist() == [a + 10 for a in range(6)]
