"""The columns that functions are called with: of columns that are added together, and of functions that are passed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from chunkmill.engine.errors import UsageError
from chunkmill.engine.tables import Table, udf


@udf
def double(a: int) -> int:
    return a * 2


@udf
def tenfold(a: int) -> int:
    return a * 10


@pytest.fixture
def table(tmp_path: Path) -> Table:
    lance.write_dataset(pa.table({"a": range(20)}), tmp_path / "t.lance", enable_stable_row_ids=True)
    return Table(str(tmp_path / "t.lance"), executor="inline")


def values(table: Table, column: str) -> list[Any]:
    return table.to_arrow()[column].to_pylist()


def test_columns_that_cannot_all_be_added_are_not_added(table: Table) -> None:
    with pytest.raises(UsageError, match="'a \\+' is an invalid expression"):
        table.add_columns({"b": "a + 1", "first": double, "y": "a +"})
    with pytest.raises(UsageError, match="'zz \\+ 1' is an invalid expression"):
        table.add_columns({"b": "a + 1", "y": "zz + 1"})
    with pytest.raises(UsageError, match=r"expects input columns \['q'\]"):
        table.add_columns({"b": "a + 1", "y": (double, ["q"])})
    assert table.schema.names == ["a"]


def test_a_function_that_is_passed_is_called_with_the_inputs_of_the_column(table: Table) -> None:
    @udf
    def tenth(x: int) -> int:
        return x // 10

    table.add_columns({"x": "a + 1000", "c": (double, ["x"]), "d": (double, ["a"])})
    table.backfill("c", udf=double)  # the column's own, though the table has a column of its parameter's name
    assert values(table, "c") == [2 * a + 2000 for a in range(20)]
    assert table.plan_backfill("c").has_work is False
    table.backfill("c", udf=tenfold)  # another, whose parameter is a column
    assert values(table, "c") == [10 * a for a in range(20)]
    table.backfill("d", udf=tenth)
    assert values(table, "d") == [(a + 1000) // 10 for a in range(20)]


def test_a_function_whose_parameters_are_no_columns_takes_those_of_the_column(table: Table) -> None:
    @udf
    def less(first: int, second: int) -> int:
        return first - second

    @udf
    def negative(some: int) -> int:
        return -some

    table.add_columns({"b": "a * a", "c": (less, ["b", "a"])})
    assert table.plan_backfill("c", udf=less).total_rows_pending == 20
    table.backfill("c", udf=less)
    assert values(table, "c") == [a * a - a for a in range(20)]
    table.backfill("c", udf=less.with_inputs(["a", "b"]))
    assert values(table, "c") == [a - a * a for a in range(20)]
    with pytest.raises(UsageError, match=r"expects input columns \['some'\].*\.with_inputs"):
        table.backfill("c", udf=negative)
