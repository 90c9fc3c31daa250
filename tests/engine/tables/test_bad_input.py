"""Calls that cannot be followed: a clear error or the right values, and nothing half-written."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.errors import (
    ChunkmillError,
    FunctionResultError,
    JobFailedError,
    NotFoundError,
    UsageError,
)
from chunkmill.engine.tables import UDF, Table, udf

ROWS = 12


@udf(version="1")
def double(a: int) -> int:
    return a * 2


def made(place: Path, *, first: int = 0, rows: int = ROWS) -> Table:
    data = pa.table({"a": pa.array(range(first, first + rows))})
    lance.write_dataset(data, place, max_rows_per_file=4, enable_stable_row_ids=True)
    return Table(str(place), executor="inline")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return made(tmp_path / "t.lance")


def values(table: Table, column: str = "c") -> list[Any]:
    found: list[Any] = table.to_arrow()[column].to_pylist()
    return found


def files(table: Table) -> list[str]:
    return sorted(one.name for one in (Path(table.uri) / "data").iterdir())


# --- arguments


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"where": ""}, UsageError, "is an invalid condition on this table"),
        ({"where": "a"}, UsageError, "is an invalid condition on this table"),
        ({"where": "a > 'x'"}, UsageError, "is an invalid condition on this table"),
        ({"where": "sum(a) > 1"}, UsageError, "is an invalid condition on this table"),
        ({"where": "nosuch(a) = 1"}, UsageError, "is an invalid condition on this table"),
        ({"where": "a = 1; DROP TABLE t"}, UsageError, "is an invalid condition on this table"),
        ({"where": "_rowaddr IN ()"}, UsageError, "is an invalid condition on this table"),
        ({"read_version": 999}, NotFoundError, "the table has no version 999"),
        ({"read_version": -1}, UsageError, "numbered from 1"),
        ({"read_version": "x"}, TypeError, "'version': 'str'"),
        ({"num_frags": "x"}, TypeError, "'num_frags': 'str'"),
        ({"skip_frags": "x"}, TypeError, "'skip_frags': 'str'"),
        ({"task_size": 1.5}, TypeError, "'task_size': 'float'"),
        ({"udf": 5}, TypeError, "'udf': 'int'"),
        ({"udf": len}, TypeError, "'udf': 'builtin_function_or_method'"),
    ],
)
def test_plans_and_backfills_refuse_alike(
    table: Table, options: dict[str, Any], kind: type[Exception], text: str
) -> None:
    table.add_columns({"c": double})
    version = table.version
    for call in (table.plan_backfill, table.backfill):
        with pytest.raises(kind, match=text):
            call("c", **options)
    assert not table.jobs() and table.version == version


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"job_id": "../../evil"}, UsageError),
        ({"job_id": 5}, TypeError),
        ({"concurrency": "x"}, TypeError),
        ({"checkpoint_size": "x"}, TypeError),
        ({"checkpoint_size": -5}, UsageError),
        ({"commit_granularity": "x"}, TypeError),
        ({"max_checkpoint_size": 1.5}, TypeError),
        ({"batch_checkpoint_flush_interval_seconds": "x"}, TypeError),
        ({"blob_read_buffer_size": -1}, UsageError),
        ({"timeout": 5}, TypeError),
        ({"executor": "ray"}, UsageError),
    ],
)
def test_backfills_refuse_at_once(table: Table, options: dict[str, Any], kind: type[Exception]) -> None:
    table.add_columns({"c": double})
    with pytest.raises(kind):
        table.backfill("c", **options)
    assert not table.jobs() and values(table) == [None] * ROWS


@pytest.mark.parametrize("columns", [5, None, {"c": 1}])
def test_columns_are_names(table: Table, columns: Any) -> None:
    with pytest.raises(TypeError, match="argument 'columns'"):
        table.backfill(columns)


@pytest.mark.parametrize("name", ["", "x.y", "x`y", "x\0y", "_rowid", "_rowaddr", "_row_created_at_version"])
def test_names_that_lance_could_not_read_are_refused(table: Table, name: str) -> None:
    for transform in (double, "a + 1"):
        with pytest.raises(UsageError, match="a column cannot have the name"):
            table.add_columns({name: transform})
    assert table.schema.names == ["a"]


def test_names_that_differ_in_case_are_two(table: Table) -> None:
    table.add_columns({"C": double, "c": double})
    table.backfill("C")
    assert (values(table, "C"), values(table, "c")) == ([2 * a for a in range(ROWS)], [None] * ROWS)


def test_a_column_may_be_an_input_twice_and_have_any_name(table: Table) -> None:
    @udf
    def plus(a: int, b: int) -> int:
        return a + b

    @udf(data_type=pa.int64())
    def arrays(a: pa.Array, b: pa.Array) -> Any:
        return np.asarray(a) + np.asarray(b)

    table.add_columns({"_offset": (plus, ["a", "a"])})
    table.backfill("_offset", checkpoint_size=2, batch_checkpoint_flush_interval_seconds=0, task_size=2)
    table.add_columns({"c": (arrays, ["_offset", "_offset"])})
    table.backfill("c", checkpoint_size=2, batch_checkpoint_flush_interval_seconds=0, task_size=2)
    assert values(table, "_offset") == [2 * a for a in range(ROWS)]
    assert values(table) == [4 * a for a in range(ROWS)]


# --- results


def results() -> dict[str, tuple[pa.DataType, Callable[[pa.Array], Any]]]:
    return {
        "one fewer": (pa.int64(), lambda a: a[1:]),
        "one more": (pa.int64(), lambda a: pa.array([*a.to_pylist(), 0])),
        "none": (pa.int64(), lambda _: None),
        "a number": (pa.int64(), lambda _: 5),
        "texts": (pa.int64(), lambda a: pa.array(["x"] * len(a))),
        "fractions": (pa.int64(), lambda a: np.asarray(a) + 0.5),
        "too large": (pa.int8(), lambda a: pa.array([1000] * len(a))),
        "too short": (pa.list_(pa.float32(), 3), lambda a: pa.array([[1.0]] * len(a))),
        "another struct": (pa.struct({"x": pa.int64()}), lambda a: pa.array([{"y": 1}] * len(a))),
    }


@pytest.mark.parametrize("kind", list(results()))
def test_a_result_that_is_no_column_leaves_the_table_as_it_was(table: Table, kind: str) -> None:
    data_type, result = results()[kind]

    @udf(data_type=data_type, version="1")
    def wrong(a: pa.Array) -> Any:
        return result(a)

    table.add_columns({"c": wrong})
    version, before = table.version, files(table)
    with pytest.raises(JobFailedError, match="UDF 'wrong' returned") as caught:
        table.backfill("c")
    assert isinstance(caught.value.__cause__, FunctionResultError)
    assert files(table) == before and table.version <= version + 1  # what is known of the column may be said
    assert values(table) == [None] * ROWS
    assert [(job.status, len(table.get_errors(job.job_id))) for job in table.jobs()] == [("FAILED", 1)]


# --- functions


@pytest.mark.usefixtures("spark")
def test_a_function_that_cannot_travel_is_told_before_anything_is_written(table: Table) -> None:
    lock = threading.Lock()

    @udf(version="1")
    def locked(a: int) -> int:
        with lock:
            return a

    table.add_columns({"c": locked})
    before = files(table)
    with pytest.raises(ChunkmillError, match="lock") as caught:
        table.backfill("c", executor="spark")
    assert "locked" in str(caught.value)
    assert files(table) == before and values(table) == [None] * ROWS


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], UDF]:
    """Make a module with a function, as another process would import it."""
    monkeypatch.syspath_prepend(tmp_path / "modules")
    (tmp_path / "modules").mkdir()

    def write(body: str) -> UDF:
        text = f"from chunkmill import udf\n\n@udf\ndef of_a_module(a: int) -> int:\n    return {body}\n"
        (tmp_path / "modules" / "own_functions.py").write_text(text)
        shutil.rmtree(tmp_path / "modules" / "__pycache__", ignore_errors=True)
        sys.modules.pop("own_functions", None)
        import own_functions  # type: ignore[import-not-found]

        function: UDF = own_functions.of_a_module
        return function

    return write


def test_a_function_that_is_gone_or_another_is_told(
    table: Table, module: Callable[[str], UDF], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from chunkmill.engine.tables import targets

    table.add_columns({"c": module("a * 3")})
    monkeypatch.setattr(targets, "_known", {})  # as another process has it
    allowed = Table(table.uri, udf_modules=["own_functions"])
    with pytest.raises(UsageError, match="is not in the list of modules that may be imported"):
        table.backfill("c")
    allowed.backfill("c", where="a < 6")
    module("a * 4")
    for call in (allowed.plan_backfill, allowed.backfill):
        with pytest.raises(UsageError, match="has another digest"):
            call("c")
    (tmp_path / "modules" / "own_functions.py").unlink()
    shutil.rmtree(tmp_path / "modules" / "__pycache__", ignore_errors=True)
    sys.modules.pop("own_functions")
    with pytest.raises(UsageError, match="cannot be imported: ModuleNotFoundError"):
        allowed.backfill("c")
    assert values(table) == [3 * a if a < 6 else None for a in range(ROWS)]
    assert len(table.jobs()) == 1


# --- tables that are replaced


def test_a_table_that_is_made_anew_between_plan_and_backfill_is_another(tmp_path: Path) -> None:
    place = tmp_path / "t.lance"
    for first in (0, 100, 200):  # with the same numbers of versions and fragments
        table = made(place, first=first)
        table.add_columns({"c": double})
        assert table.plan_backfill("c").total_rows_pending == ROWS
        table.backfill("c", where=f"a != {first}")
        assert values(table) == [None, *(2 * a for a in range(first + 1, first + ROWS))]
        shutil.rmtree(place)


@pytest.mark.parametrize("after", ["with the column", "without the column", "with another", "smaller", "gone"])
@pytest.mark.parametrize("at", [0, 5, ROWS - 1])
def test_a_table_that_is_replaced_during_a_backfill_is_not_half_written(tmp_path: Path, after: str, at: int) -> None:
    place = tmp_path / "t.lance"
    replaced: list[bool] = []
    ended: list[str] = []

    @udf(version="1")
    def replacing(a: int) -> int:
        if a == at and not replaced:
            replaced.append(True)
            shutil.rmtree(place)
            if after != "gone":
                other = made(place, first=100, rows=3 if after == "smaller" else ROWS)
                if after != "without the column":
                    other.add_columns({"c": double if after == "with another" else replacing})
        return a * 2

    table = made(place)
    table.add_columns({"c": replacing})
    try:
        table.backfill("c", checkpoint_size=2, commit_granularity=1, batch_checkpoint_flush_interval_seconds=0)
    except ChunkmillError:
        ended.append(after)
    if after == "gone":
        assert ended
        with pytest.raises(NotFoundError):
            _ = table.version
        return
    rows = table.to_arrow()
    assert rows["a"].to_pylist() == list(range(100, 103 if after == "smaller" else 100 + ROWS))
    if "c" in rows.column_names:
        assert all(c in (None, 2 * a) for a, c in zip(rows["a"].to_pylist(), values(table), strict=True))
    else:
        table.add_columns({"c": replacing})
    table.backfill("c", udf=replacing)
    assert values(table) == [2 * a for a in rows["a"].to_pylist()]
