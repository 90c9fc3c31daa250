"""SQL that is given for tables: what is none is told, and nothing is taken for something else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.errors import UsageError
from chunkmill.engine.tables import Table, connect, udf

ROWS = [{"id": n, "my col": "ab"[n % 2], "x": float(n), "note": f"it's; -- {n}"} for n in range(6)]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    @udf
    def half(x: float) -> float:
        return x / 2

    table = connect(str(tmp_path), executor="inline").create_table("t", ROWS)
    table.add_columns({"half": half})
    return table


CALLS: list[Callable[[Table, str], Any]] = [
    lambda table, where: table.search(None).where(where).to_arrow(),
    lambda table, where: table.count_rows(where),
    lambda table, where: table.delete(where),
    lambda table, where: table.update(where, {"x": 1.0}),
    lambda table, where: table.backfill("half", where=where),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("where", "said"),
    [
        (
            "speed > 3",
            r"^CM501: 'speed > 3' is an invalid condition on this table: there is no column 'speed'\. There are: id,",
        ),
        (
            "\"my col\" = 'a'",
            r"\"my col\" would be text, not the column\. Write `my col` for the column, and 'my col'",
        ),
        ("x > 3; x < 5", r"it contains ';'"),
        ("x > 3) OR (1=1) -- ", r"it contains '--'"),
        ("x > 3 /* all */", r"it contains '/\*'"),
    ],
)
def test_what_is_no_condition_is_told_and_changes_nothing(
    table: Table, call: Callable[[Table, str], Any], where: str, said: str
) -> None:
    before = table.to_arrow()
    with pytest.raises(UsageError, match=said):
        call(table, where)
    assert table.to_arrow().equals(before)


def test_texts_may_hold_what_expressions_may_not(table: Table) -> None:
    assert table.count_rows("note = 'it''s; -- 3'") == 1
    assert table.count_rows('`my col` = "a"') == 3
    table.update("id = 1", {"note": 'a "my col"; /* or -- */ '})
    assert table.search(None).where("id = 1").to_arrow()["note"].to_pylist() == ['a "my col"; /* or -- */ ']


def test_columns_of_a_query_that_are_not_there_are_told(table: Table) -> None:
    with pytest.raises(
        UsageError, match=r"^CM501: there is no column 'speed'\. There are: id, my col, x, note, half\.$"
    ):
        table.search(None).select(["id", "speed"]).to_arrow()
    with pytest.raises(
        UsageError, match=r"^CM501: 'speed \* 2' is an invalid expression on this table: there is no column 'speed'"
    ):
        table.search(None).select({"id": "id", "double": "speed * 2"}).to_arrow()
    with pytest.raises(UsageError, match=r"'it > 2' is an invalid condition"):
        table.search("wet", fts_columns="note").where("it > 2").to_arrow()


def test_a_search_for_words_without_an_index_says_how_one_is_made(table: Table) -> None:
    with pytest.raises(UsageError, match=r"no column has an index of words\. Create one by create_fts_index\(column\)"):
        table.search("wet road").to_arrow()


def test_constants_alone_are_no_query_and_may_be_columns(table: Table) -> None:
    with pytest.raises(UsageError, match=r"names no column of the table\. Select a column"):
        table.search(None).select({"one": "1"}).to_arrow()
    table.add_columns({"one": "1"})
    assert set(table.to_arrow()["one"].to_pylist()) == {1}


def test_what_is_of_several_rows_is_told_without_the_insides_of_a_plan(table: Table) -> None:
    with pytest.raises(
        UsageError,
        match=r"^CM501: 'max\(x\)' is an invalid expression on this table: AggregateFunction does not work on single "
        r"rows\.",
    ):
        table.search(None).select({"id": "id", "most": "max(x)"}).to_arrow()
