"""The tasks of a backfill: how rows are dealt to them, and what becomes of rows that take long."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from chunkmill.engine.execution import RunOptions, Stage
from chunkmill.engine.lance import Fragment
from chunkmill.engine.tables import Table, fill, udf
from chunkmill.engine.tables.computed_columns import TableParts
from chunkmill.engine.tables.planning import Piece, tasks_of
from hypothesis import given, settings
from hypothesis import strategies as st

Spans = list[list[tuple[int, int, int, bool]]]


def dealt(fragments: list[int], task_rows: int) -> Spans:
    """Fragment, first row, end and whether it is all, of each piece of each task."""
    whole = [Fragment(id_, rows, 0, {}) for id_, rows in enumerate(fragments)]
    tasks = tasks_of([Piece(one, None, "", (0, one.rows), is_whole=True) for one in whole], task_rows)
    return [[(one.fragment.id, *one.span, one.is_whole) for one in task] for task in tasks]


@pytest.mark.parametrize(
    ("fragments", "task_rows", "expected"),
    [
        ([], 10, []),
        ([7], 10, [[(0, 0, 7, True)]]),
        # half of the rows for each of two
        ([1000, 200], 600, [[(0, 0, 600, False)], [(0, 600, 1000, False), (1, 0, 200, True)]]),
        # the bound is near the end of a fragment: none is cut
        ([1000, 900], 950, [[(0, 0, 1000, True)], [(1, 0, 900, True)]]),
        ([10, 10, 10, 10], 20, [[(0, 0, 10, True), (1, 0, 10, True)], [(2, 0, 10, True), (3, 0, 10, True)]]),
        ([3], 1, [[(0, 0, 1, False)], [(0, 1, 2, False)], [(0, 2, 3, False)]]),
        ([100], 40, [[(0, 0, 33, False)], [(0, 33, 66, False)], [(0, 66, 100, False)]]),
    ],
)
def test_rows_are_dealt_to_tasks(fragments: list[int], task_rows: int, expected: Spans) -> None:
    assert dealt(fragments, task_rows) == expected


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1))
def test_each_row_is_in_one_task(seed: int) -> None:
    dice = random.Random(seed)
    fragments = [dice.randint(1, 200) for _ in range(dice.randint(1, 12))]
    most = dice.randint(1, 300)
    tasks = dealt(fragments, most)
    spans = [span for task in tasks for span in task]
    assert [(id_, row) for id_, first, end, _ in spans for row in range(first, end)] == [
        (id_, row) for id_, rows in enumerate(fragments) for row in range(rows)
    ]
    assert all(is_whole == (first == 0 and end == fragments[id_]) for id_, first, end, is_whole in spans)
    assert max(sum(end - first for _, first, end, _ in task) for task in tasks) <= most * 1.2 + 1


def test_a_task_leaves_rows_that_take_long_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = tmp_path / "calls"
    stages: list[list[str]] = []
    run: Callable[..., object] = Stage.run

    def counted(stage: Stage, options: RunOptions) -> object:
        stages.append([task.label for task in stage.tasks])
        return run(stage, options)

    @udf(version="1", data_type=pa.int64())
    def slow(a: pa.Array) -> pa.Array:
        with noted.open("a") as file:
            file.writelines(f"{value}\n" for value in a.to_pylist())
        return pa.array([value * 2 for value in a.to_pylist()])

    monkeypatch.setattr(Stage, "run", counted)
    monkeypatch.setattr(fill, "_FIRST_SECONDS", 0.0)
    monkeypatch.setattr(TableParts, "workers", lambda *_: 2)
    data = pa.table({"a": range(6000)})
    lance.write_dataset(data, tmp_path / "t.lance", max_rows_per_file=5000, enable_stable_row_ids=True)
    table = Table(str(tmp_path / "t.lance"), executor="inline")
    table.add_columns({"c": slow})
    table.backfill("c", checkpoint_size=500)
    assert table.to_arrow()["c"].to_pylist() == [a * 2 for a in range(6000)]
    assert sorted(int(line) for line in noted.read_text().split()) == list(range(6000))
    # two tasks, which had their time after a batch each; the rest of their rows; and the fragment that was cut
    assert stages[0] == ["'c' of fragment 0, rows 0 to 3,000", "'c' of fragment 0, rows 3,000 to 5,000, and 1 more"]
    assert stages[1] == [
        "'c' of fragment 0, rows 500 to 1,500",
        "'c' of fragment 0, rows 1,500 to 2,500",
        "'c' of fragment 0, rows 2,500 to 3,000, and 1 more",
        "'c' of fragment 0, rows 4,000 to 5,000",
        "'c' of fragment 1",
    ]
    assert stages[2:] == [["'c' of fragment 0"]]
