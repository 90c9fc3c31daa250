"""Random statements over datasets and tables have the rows that DuckDB has for them, over the same as Parquet."""

from __future__ import annotations

from typing import Any

import pytest
from chunkmill import CatalogClient
from sql_statements import Statements, duck_of, in_any_order, lake_at, ours, theirs

QUICK, ALL = 12, 200


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tuple[CatalogClient, Any]:
    folder = tmp_path_factory.mktemp("beside")
    client = lake_at(folder)
    return client, duck_of(client, folder)


def wrong(lake: tuple[CatalogClient, Any], seeds: range) -> list[str]:
    """The statements whose rows differ."""
    client, duck = lake
    found, rows = [], 0
    for seed in seeds:
        statement = Statements(seed).one()
        mine, peer = ours(client, statement), theirs(duck, statement)
        rows += len(peer)
        if "ORDER BY" not in statement.rpartition(")")[2]:
            mine, peer = in_any_order(mine), in_any_order(peer)
        if mine != peer:
            found.append(f"seed {seed}: {statement}\n  {mine[:3]}\n  {peer[:3]}")
    assert rows > 2 * len(seeds), "statements have rows"
    return found


def test_some_statements(lake: tuple[CatalogClient, Any]) -> None:
    assert wrong(lake, range(QUICK)) == []


@pytest.mark.slow
def test_all_statements(lake: tuple[CatalogClient, Any]) -> None:
    assert wrong(lake, range(ALL)) == []
