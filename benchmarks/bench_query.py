"""Queries beside ``rerun server``: the same recordings and questions, in one run; warm, and in a new process each.

``CHUNKMILL_BENCH_QUERY_ROWS=10000000``, ``CHUNKMILL_BENCH_QUERY_SEGMENTS=1000`` and
``CHUNKMILL_BENCH_QUERY_VALUES=10000`` are the sizes of the stated figures; by default they are a tenth or so.
``CHUNKMILL_BENCH_QUERY_FOLDER`` keeps the recordings from one run to the next.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Duel
from query_cases import CASES, Sums, client_of, options_of, registered, taken

pytest.importorskip("rerun.server")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the recordings are."""
    kept = os.environ.get("CHUNKMILL_BENCH_QUERY_FOLDER")
    found = Path(kept) if kept else tmp_path_factory.mktemp("queried")
    found.mkdir(parents=True, exist_ok=True)
    return found


@pytest.fixture(scope="module")
def clients() -> Iterator[tuple[Any, Any]]:
    """Our client, and Rerun's."""
    with client_of("ours") as ours, client_of("rerun") as theirs:
        yield ours, theirs


@pytest.mark.parametrize("name", CASES)
def test_query(benchmark: Any, duel: Duel, clients: tuple[Any, Any], folder: Path, name: str) -> None:
    """Guards: the rows of Rerun's server, in half of its time."""
    case = CASES[name]
    ours = registered(clients[0], name, case.recordings(folder), **options_of("ours", case))
    theirs = registered(clients[1], name, case.recordings(folder))
    assert Sums.of(case.ask(ours)).agrees(Sums.of(case.ask(theirs)))
    duel.run(benchmark, lambda: taken(case.ask(ours)), lambda: taken(case.ask(theirs)), bar=case.bar)


@pytest.mark.parametrize("name", CASES)
def test_cold(benchmark: Any, duel: Duel, folder: Path, name: str) -> None:
    """Guards: a new process that registers and asks takes half of the time of one with Rerun's server."""
    CASES[name].recordings(folder)

    def answer(who: str) -> str:
        script = Path(__file__).with_name("query_cases.py")
        return subprocess.run(
            [sys.executable, script, who, name, folder], check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    assert answer("ours") == answer("rerun")
    duel.run(benchmark, lambda: answer("ours"), lambda: answer("rerun"), bar=CASES[name].bar)
