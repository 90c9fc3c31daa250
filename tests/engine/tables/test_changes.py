"""Rows that are added, updated and deleted, and computed values that are stale then."""

from __future__ import annotations

import datetime
import decimal
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pandas as pd
import pyarrow as pa
import pytest
from chunkmill.engine.errors import UsageError, WriteError
from chunkmill.engine.tables import Table, udf

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int64": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "uint64": (pa.uint64(), [2**64 - 1]),
    "int8": (pa.int8(), [-128]),
    "float64": (pa.float64(), [0.1, 1e-300, math.inf, -math.inf, math.nan, 3.0]),
    "float32": (pa.float32(), [0.5, math.nan]),
    "bool": (pa.bool_(), [True, False]),
    "string": (pa.string(), ['it\'s \\ "x"\n--', "", "é", None]),
    "large_string": (pa.large_string(), ["x"]),
    "binary": (pa.binary(), [b"\x00'\xff", b""]),
    "fixed": (pa.binary(2), [b"\x00\xff"]),
    "date": (pa.date32(), [datetime.date(1969, 12, 31)]),
    "stamp": (pa.timestamp("us"), [datetime.datetime(2020, 2, 3, 1, 2, 3, 4)]),  # noqa: DTZ001 (a column without zone)
    "zoned": (pa.timestamp("ns", "UTC"), [pd.Timestamp("2020-02-03 01:02:03.000000004", tz="UTC")]),
    "duration": (pa.duration("ns"), [pd.Timedelta(5, "ns")]),
    "time": (pa.time64("us"), [datetime.time(1, 2, 3, 4)]),
    "decimal": (pa.decimal128(10, 2), [decimal.Decimal("-1.25")]),
    "list": (pa.list_(pa.int64()), [[1, None], [], None]),
    "lists": (pa.list_(pa.list_(pa.string())), [[["a'"], ["b", None]]]),
    "vector": (pa.list_(pa.float32(), 2), [[0.5, 1e-30]]),
    "struct": (pa.struct({"x": pa.int64(), "y": pa.string()}), [{"x": 1, "y": None}]),
}


@udf
def double(a: int) -> int:
    return a * 2


@udf
def negative(a: int) -> int:
    return -a


@udf
def third(a: int) -> int:
    return a // 3


@udf
def halved(double: int) -> int:
    return double // 2


@pytest.fixture
def table(tmp_path: Path) -> Table:
    rows = pa.table({"a": pa.array(range(40)), "s": ["x"] * 40})
    lance.write_dataset(rows, tmp_path / "t.lance", max_rows_per_file=10, enable_stable_row_ids=True)
    made = Table(str(tmp_path / "t.lance"), executor="inline")
    made.add_columns({"double": double, "negative": negative})
    made.backfill("double")
    made.backfill("negative")
    return made


def stale(table: Table) -> tuple[int, int]:
    return table.plan_backfill("double").stale_rows, table.plan_backfill("negative").stale_rows


def computed(table: Table, column: str, **options: Any) -> int:
    return table.backfill(column, **options).columns[column].rows_processed


def wrong(table: Table) -> list[int]:
    """The values of ``a`` whose double is not theirs."""
    rows = table.to_arrow().to_pylist()
    return sorted(row["a"] for row in rows if row["double"] != 2 * row["a"])


# --- values


@pytest.mark.parametrize("name", VALUES)
def test_an_update_gives_a_row_the_very_value(name: str, tmp_path: Path) -> None:
    type_, values = VALUES[name]
    lance.write_dataset(pa.table({"k": [1, 2], "v": pa.nulls(2, type_)}), tmp_path / "t", enable_stable_row_ids=True)
    table = Table(str(tmp_path / "t"))
    for value in values:
        table.update("k = 1", {"v": value})
        there = dict(zip(*table.to_arrow().to_pydict().values(), strict=True))
        wanted = pa.scalar(value, type_).as_py()
        assert there[1] == wanted or (there[1] != there[1] and wanted != wanted)
        assert there[2] is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "either values or values_sql"),
        ({"values": {"a": 1}, "values_sql": {"a": "1"}}, "either values or values_sql"),
        ({"values": {"zz": 1}}, "no column 'zz'"),
        ({"values_sql": {"zz": "1"}}, "no column 'zz'"),
        ({"values": {"a": "text"}}, "not a value of the column 'a'"),
        ({"values": {"a": 2**63}}, "not a value of the column 'a'"),
        ({"values": {"a": 1.5}}, "not a value of the column 'a'"),
        ({"values_sql": {"a": "nope(1)"}}, "nope"),
        ({"values_sql": {"a": "s"}}, "Cast"),
        ({"where": "zz = 1", "values": {"a": 1}}, "zz"),
        ({"where": "a ==", "values": {"a": 1}}, "a =="),
    ],
)
def test_what_no_update_can_be_is_refused(arguments: dict[str, Any], text: str, table: Table) -> None:
    version = table.version
    with pytest.raises(UsageError, match=text):
        table.update(**arguments)
    assert table.version == version


def test_an_update_takes_sql_and_all_rows(table: Table) -> None:
    table.update(values_sql={"a": "a + 1", "s": "upper(s)"})
    assert sorted(table.to_arrow()["a"].to_pylist()) == list(range(1, 41))
    assert set(table.to_arrow()["s"].to_pylist()) == {"X"}


def test_rows_are_added_in_every_form(table: Table) -> None:
    table.add([{"a": 100}, {"s": "only"}])
    table.add(pd.DataFrame({"a": [101]}))
    table.add(pa.table({"a": [102]}))
    table.add([])
    assert table.to_arrow().slice(40).select(["a", "s", "double"]).to_pydict() == {
        "a": [100, None, 101, 102],
        "s": [None, "only", None, None],
        "double": [None] * 4,
    }
    with pytest.raises(UsageError, match="no column 'zz'"):
        table.add([{"zz": 1}])
    for value in ("x", 1.5, 2**63):
        with pytest.raises(UsageError, match="do not fit the columns"):
            table.add([{"a": value}])
    with pytest.raises(WriteError, match="type"):
        table.add(pa.table({"a": ["x"]}))
    with pytest.raises(UsageError, match="mode"):
        table.add([{"a": 1}], mode="merge")  # type: ignore[arg-type]
    table.add([{"a": 7}], mode="overwrite")
    assert table.to_arrow().to_pydict() == {"a": [7]}


# --- stale values


def test_values_of_updated_rows_stay_until_they_are_asked_for(table: Table) -> None:
    assert stale(table) == (0, 0)
    table.update("a IN (3, 17, 25)", {"a": 100})
    assert stale(table) == (3, 3)
    assert not table.plan_backfill("double").has_work
    assert computed(table, "double") == 0
    assert wrong(table) == [100] * 3
    plan = table.plan_backfill("double", recompute_stale=True)
    assert (plan.has_work, plan.total_rows_pending) == (True, 3)
    assert computed(table, "double", recompute_stale=True) == 3
    assert wrong(table) == []
    assert stale(table) == (0, 3)
    version = table.version
    assert computed(table, "double", recompute_stale=True) == 0
    assert table.version == version


@pytest.mark.parametrize("where", ["a >= 0", "a < 20"])
@pytest.mark.heavy
def test_upkeep_and_new_columns_change_nothing_of_what_is_stale(where: str, table: Table) -> None:
    table.update("a IN (3, 17, 25)", {"a": 39})
    table.optimize()
    assert stale(table) == (3, 3)
    table.add_columns({"next": "a + 1"})
    table.alter_columns({"path": "s", "data_type": pa.large_string()})
    assert stale(table) == (3, 3)
    table.add_columns({"third": third})
    table.backfill("third", where=where)
    assert stale(table) == (3, 3)
    assert computed(table, "double", recompute_stale=True) == 3
    table.optimize()
    assert stale(table) == (0, 3)
    table.update("a = 1", {"s": "y"})
    table.delete("a = 2")
    table.optimize()
    assert stale(table) == (1, 4)
    assert len(table._lance.at().fragments) <= 3
    assert computed(table, "negative", recompute_stale=True) == 4
    table.optimize()
    assert stale(table) == (1, 0)
    assert wrong(table) == []


def test_rows_that_wait_are_not_stale(table: Table) -> None:
    table.add([{"a": 100}, {"a": 101}])
    table.update("a >= 39", {"s": "y"})
    assert stale(table) == (1, 1)
    assert computed(table, "double") == 2
    # Of a fragment in which stale values were kept, all count.
    assert stale(table) == (3, 1)
    assert computed(table, "double", recompute_stale=True) == 3
    assert stale(table) == (0, 1)
    assert computed(table, "negative", where="a >= 39") == 3
    assert stale(table) == (0, 0)


def test_what_is_computed_of_stale_values_follows(table: Table) -> None:
    table.add_columns({"halved": halved})
    table.backfill("halved")
    table.update("a = 7", {"a": 70})
    table.backfill("double", recompute_stale=True)
    table.backfill("halved")
    assert table.to_arrow()["halved"].to_pylist() == table.to_arrow()["a"].to_pylist()


def test_upserts_of_others_are_known(table: Table) -> None:
    rows = pa.table({"a": [1, 500], "s": ["y", "y"]})
    lance.dataset(table.uri).merge_insert("a").when_matched_update_all().when_not_matched_insert_all().execute(
        rows.append_column("double", pa.array([2, 1000])).append_column("negative", pa.array([-1, -500]))
    )
    assert stale(table) == (1, 1)


def test_what_others_join_may_count_as_stale_and_never_the_other_way(table: Table) -> None:
    table.update("a = 7", {"a": 70})
    lance.dataset(table.uri).optimize.compact_files()
    assert stale(table)[0] >= 1
    computed(table, "double", recompute_stale=True)
    assert wrong(table) == [] and stale(table)[0] == 0


def test_an_update_that_comes_between_is_not_taken_for_known(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    compact, done = table._lance.compact, []

    def compacted(*arguments: Any, **options: Any) -> None:
        if not done:
            done.append(True)
            table.update("a = 7", {"a": 70})
        compact(*arguments, **options)

    monkeypatch.setattr(table._lance, "compact", compacted)
    table.optimize()
    assert stale(table) == (1, 1)
    computed(table, "double", recompute_stale=True)
    assert wrong(table) == []


def test_all_may_be_stale_where_row_ids_are_not_stable(tmp_path: Path, table: Table) -> None:
    with pytest.raises(UsageError, match="give only one of them"):
        table.backfill("double", where="a = 1", recompute_stale=True)
    lance.write_dataset(pa.table({"a": [1, 2]}), tmp_path / "u.lance")
    other = Table(str(tmp_path / "u.lance"), executor="inline")
    other.add_columns({"double": double})
    other.backfill("double")
    other.update("a = 1", {"a": 5})
    assert other.plan_backfill("double").stale_rows == 1
    lance.dataset(other.uri).optimize.compact_files()
    assert other.plan_backfill("double").stale_rows == 2
    assert computed(other, "double", recompute_stale=True) == 2
    other.optimize()
    assert (other.plan_backfill("double").stale_rows, wrong(other)) == (0, [])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.heavy
def test_stale_rows_of_any_story_are_found(seed: int, table: Table) -> None:
    chance = random.Random(seed)
    steps: list[Callable[[], object]] = [
        lambda: table.update(f"a % {chance.randint(3, 9)} = 1", values_sql={"a": "a + 1000"}),
        lambda: table.add([{"a": chance.randint(0, 99)} for _ in range(3)]),
        lambda: table.delete(f"a % 17 = {chance.randint(0, 16)}"),
        table.optimize,
        lambda: table.backfill("double"),
        lambda: table.backfill("negative", recompute_stale=chance.random() < 0.5),
        lambda: table.backfill("double", where=f"a % 2 = {chance.randint(0, 1)}"),
        lambda: lance.dataset(table.uri).optimize.compact_files(),
    ]
    for _ in range(12):
        chance.choice(steps)()
        rows = table.to_arrow().to_pylist()
        old = [row for row in rows if row["double"] is not None and row["double"] != 2 * row["a"]]
        assert table.plan_backfill("double").stale_rows >= len(old)
    table.backfill("double", recompute_stale=True)
    assert wrong(table) == []
