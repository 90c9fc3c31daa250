"""What a listener is told of backfills and refreshes: rows, over all stages of a run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.execution import ProgressState
from chunkmill.engine.reports import RunReport
from chunkmill.engine.tables import Table, TableConnection, connect, udf


@udf
def half(v: int) -> float:
    return v / 2


@udf
def double(v: int) -> int:
    return v * 2


class Told:
    """A listener that keeps the rows done and the rows in all that it was told."""

    def __init__(self) -> None:
        self.totals: list[int] = []
        self.rows: list[tuple[int, int]] = []
        self.tasks: list[tuple[int, int]] = []

    def started(self, total_splits: int, total_bytes: int) -> None:
        del total_splits
        self.totals.append(total_bytes)

    def advanced(self, done: ProgressState) -> None:
        self.rows.append((done.bytes_done, done.bytes_total))
        self.tasks.append((done.splits_done, done.splits_total))

    def finished(self, result: RunReport) -> None:
        raise AssertionError("a run of rows has no report")

    def check(self, rows: int) -> None:
        """All that was told is of one run of so many rows, which goes forward, to its end."""
        assert self.totals == [rows]
        assert {total for _, total in self.rows} == {rows}
        done = [one for one, _ in self.rows]
        assert done == sorted(done)
        assert done[-1] == rows
        assert self.tasks[-1][0] == self.tasks[-1][1]


@pytest.fixture
def tables(tmp_path: Path) -> TableConnection:
    return connect(str(tmp_path), executor="inline")


def source_of(tables: TableConnection, fragments: int = 3, rows: int = 100) -> Table:
    table = tables.create_table("src", [{"id": n, "v": n} for n in range(rows)])
    for number in range(1, fragments):
        table.add([{"id": n + rows * number, "v": n} for n in range(rows)])
    return table


def test_a_backfill_of_several_commits_is_told_of_as_one_run(tables: TableConnection) -> None:
    table, told = source_of(tables), Told()
    table.add_columns({"half": half})
    table.backfill("half", commit_granularity=1, task_size=30, progress=told)
    told.check(300)
    assert len(set(told.rows)) > 2


@pytest.mark.heavy
def test_a_task_tells_of_its_rows_before_it_is_done(tables: TableConnection) -> None:
    @udf
    def slow(v: int) -> int:
        time.sleep(0.02)
        return v

    table, told = source_of(tables, 1), Told()
    table.add_columns({"slow": slow})
    table.backfill("slow", max_checkpoint_size=10, progress=told)
    told.check(100)
    assert any(0 < rows < 100 for rows, _ in told.rows)


def test_a_backfill_with_a_condition_counts_the_rows_that_it_asks_for(tables: TableConnection) -> None:
    table, told = source_of(tables), Told()
    table.add_columns({"half": half})
    table.backfill("half", where="v % 10 = 0", progress=told)
    told.check(30)


@pytest.mark.parametrize("functions", [{}, {"half": half}, {"half": half, "double": double}])
def test_a_refresh_counts_rows(tables: TableConnection, functions: dict[str, Any]) -> None:
    source = source_of(tables)
    query = source.search(None).where("v % 2 = 0").select({"v": "v", **functions})
    view, told = tables.create_materialized_view("mv", query), Told()
    view.refresh(progress=told, task_size=40)
    told.check(150)
    source.update("id IN (10, 12, 211)", {"v": 500})
    again = Told()
    assert view.refresh(progress=again).rows_refreshed == 3
    again.check(3)
