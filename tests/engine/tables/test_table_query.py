"""Rows of a table that are asked for: where, select, limit and offset."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from chunkmill.engine.errors import UsageError
from chunkmill.engine.tables import Table, udf
from lance import write_dataset


@udf
def square(v: int) -> int:
    return v * v


@pytest.fixture
def table(tmp_path: Path) -> Table:
    rows = pa.table({"id": [0, 1, 2, 3], "The v": [1, 2, 3, 4]})
    write_dataset(rows, tmp_path / "t.lance", enable_stable_row_ids=True, max_rows_per_file=2)
    return Table(str(tmp_path / "t.lance"))


def test_rows_are_found_and_columns_are_made_of_sql_and_functions(table: Table) -> None:
    found = table.search(None).where("id > 0").where("id < 3").select({"n": "id + 1", "s": (square, ["The v"])})
    assert found.to_arrow().to_pydict() == {"n": [2, 3], "s": [4, 9]}
    assert table.search().to_arrow().equals(table.to_arrow())


def test_a_query_is_cut_in_the_order_of_the_table_and_stays_as_it_is(table: Table) -> None:
    query = table.search().select(["The v"])
    assert query.offset(1).limit(2).to_arrow().to_pydict() == {"The v": [2, 3]}
    assert query.to_arrow().num_rows == 4


@pytest.mark.parametrize("columns", [["no"], {"a": "zz + 1"}, {"a": square}, []])
def test_columns_that_are_not_there_are_refused(table: Table, columns: object) -> None:
    with pytest.raises(UsageError):
        table.search().select(columns).to_arrow()


def test_conditions_and_counts_that_are_none_are_refused(table: Table) -> None:
    with pytest.raises(UsageError, match="invalid condition"):
        table.search().where("id >").to_arrow()
    with pytest.raises(UsageError, match="limit"):
        table.search().limit(-1)
