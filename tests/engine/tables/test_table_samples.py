"""Samples of rows: so many of each value, by the seed alone."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.catalog import CatalogClient, TableEntry
from chunkmill.engine.errors import ReadWarning, UsageError
from chunkmill.engine.tables import Table, connect

ROWS = [
    {
        "name": f"s{n}",
        "weather": ["sun", "rain", None][n % 3 if n < 90 else 0],
        "at": datetime(2026, 1, 1 + n % 9, tzinfo=UTC),
    }
    for n in range(120)
]
SCHEMA = pa.schema([("name", pa.string()), ("weather", pa.string()), ("at", pa.timestamp("ns", "UTC"))])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return connect(tmp_path, executor="inline").create_table("a", pa.Table.from_pylist(ROWS, SCHEMA))


def names(rows: pa.Table) -> list[str]:
    chosen: list[str] = rows["name"].to_pylist()
    return chosen


def test_each_value_has_so_many_rows_a_null_among_them(table: Table) -> None:
    rows = table.sample(7, by="weather", seed=1)
    assert Counter(rows["weather"].to_pylist()) == {"sun": 7, "rain": 7, None: 7} and len(set(names(rows))) == 21
    assert rows.schema == SCHEMA and all(row in ROWS for row in rows.to_pylist())


def test_the_seed_alone_counts_not_the_order_of_rows_nor_files(table: Table, tmp_path: Path) -> None:
    shuffled = [ROWS[n] for n in np.random.default_rng(0).permutation(len(ROWS))]
    other = connect(tmp_path).create_table("b", pa.Table.from_pylist(shuffled[:50], SCHEMA))
    for start in range(50, 120, 7):
        other.add(pa.Table.from_pylist(shuffled[start : start + 7], SCHEMA))
    for options in ({"n": 5, "by": "weather"}, {"n": 30}, {"fraction": 0.25, "by": ["weather", "at"]}):
        assert table.sample(seed=3, **options) == other.sample(seed=3, **options), options
    chosen = {frozenset(names(table.sample(30, seed=seed))) for seed in range(5)}
    assert len(chosen) == 5
    assert names(table.sample(10)) == names(table.sample(30))[:10]


def test_a_share_is_of_each_value(table: Table) -> None:
    rows = table.sample(fraction=0.25, by="weather")
    assert Counter(rows["weather"].to_pylist()) == {"sun": 15, "rain": 8, None: 8}
    assert len(table.sample(fraction=1)) == 120 and len(table.sample(fraction=0.001)) == 0


def test_values_with_fewer_rows_give_all_and_are_named(table: Table) -> None:
    with pytest.warns(ReadWarning, match=r"smaller than n=40: .* only 30 of 'rain', 30 of None in weather") as said:
        rows = table.sample(40, by="weather")
    assert said[0].filename == __file__
    assert Counter(rows["weather"].to_pylist()) == {"sun": 40, "rain": 30, None: 30}
    with pytest.warns(ReadWarning, match=r"and 117 values more in name"):
        table.sample(2, by="name")
    with pytest.warns(ReadWarning, match=r"smaller than n=500: there are 120 rows"):
        assert len(table.sample(500)) == 120


def test_equal_rows_are_each_chosen_once(tmp_path: Path) -> None:
    table = connect(tmp_path).create_table("a", pa.table({"x": [1, 1, 1, 2]}))
    assert sorted(table.sample(4)["x"].to_pylist()) == [1, 1, 1, 2]
    assert len(table.sample(3)) == 3


def test_vectors_name_rows_as_their_numbers_do(tmp_path: Path) -> None:
    vectors = [None, [None, 1.0, 2.0], [0.0, 1.0, 2.0], *np.random.default_rng(0).normal(size=(40, 3)).tolist()]
    tables = connect(tmp_path)
    whole = tables.create_table("a", pa.table({"v": pa.array(vectors, pa.list_(pa.float64(), 3))}))
    parts = tables.create_table("b", pa.table({"v": pa.array(vectors[2:], pa.list_(pa.float64(), 3))}))
    parts.add(pa.table({"v": pa.array(vectors[:2], pa.list_(pa.float64(), 3))}))
    for n in (5, 20, 43):
        assert whole.sample(n, seed=2) == parts.sample(n, seed=2)


def test_a_table_with_a_key_is_sampled_by_it_whatever_other_columns_become(tmp_path: Path) -> None:
    client = CatalogClient(tmp_path / "lake")
    schema = pa.schema([pa.field("id", pa.int64(), False, {"rerun:is_table_index": "true"}), ("x", pa.float64())])
    table = client.create_table("a", schema)
    table.append(id=list(range(50)), x=[0.5] * 50)
    before = table.sample(10, seed=4)["id"]
    table.upsert(id=list(range(50)), x=[float("nan")] * 50)
    assert table.sample(10, seed=4)["id"] == before and table.at(2).sample(10, seed=4)["x"].to_pylist() == [0.5] * 10


def test_an_empty_table_gives_nothing_and_says_so(tmp_path: Path) -> None:
    table: TableEntry = CatalogClient(tmp_path / "lake").create_table("a", SCHEMA)
    with pytest.warns(ReadWarning, match="there are 0 rows"):
        assert table.sample(3, by="weather").num_rows == 0
    assert table.sample(fraction=0.5).num_rows == 0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, UsageError, "needs exactly one of n and fraction"),
        ({"n": 3, "fraction": 0.5}, UsageError, "needs exactly one of n and fraction"),
        ({"n": 0}, UsageError, "n: expected 1 or more rows"),
        ({"n": True}, UsageError, "n: expected 1 or more rows"),
        ({"n": 2.5}, TypeError, "argument 'n'"),
        ({"fraction": 0}, UsageError, "not a fraction above 0 and up to 1"),
        ({"fraction": float("nan")}, UsageError, "not a fraction above 0 and up to 1"),
        ({"n": 3, "seed": "x"}, TypeError, "argument 'seed'"),
        ({"n": 3, "by": "wheather"}, UsageError, "there is no column 'wheather'"),
    ],
)
def test_what_is_no_sample_is_refused(table: Table, options: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        table.sample(**options)
