"""Refreshes of a view after one row in a hundred changed, beside a full one, and beside DuckDB that makes it anew.

    python benchmarks/bench_views.py                       # 1 M rows
    python benchmarks/bench_views.py --rows 200000 --rounds 3 --changed 0.01

The view asks for rows, for SQL over their columns, and for a function of Python of some microseconds; DuckDB calls the
same function, over the same Lance table, and writes what comes of it as a Lance table. In each round all sides are
measured in turns, on a fresh copy; ratios are those of the medians, of the wall clock and of the time of the processor.
``--executor spark`` has the tasks run by a session, which is started before.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import lance
import numpy as np
import pyarrow as pa
from chunkmill.engine.tables import NativeTable, connect, udf

SEED = 19
WHERE = "v > -3.0"
number = [0]
"""The calls of this process."""


def reading(v: float) -> float:
    """A function of a row that takes some five microseconds."""
    number[0] += 1
    x = v
    for _ in range(100):
        x = math.sin(x) + math.log1p(abs(x))
    return x


@udf(data_type=pa.float64(), version="1")
def score(v: float) -> float:
    return reading(v)


def made(folder: Path, rows: int) -> NativeTable:
    """A lake with the table, and the view, which is refreshed."""
    rng = np.random.default_rng(SEED)
    tables = connect(str(folder), executor=os.environ.get("CHUNKMILL_EXECUTOR"))
    data = pa.table({"id": np.arange(rows), "v": rng.normal(size=rows), "t": rng.integers(0, 9, rows).astype(str)})
    lance.write_dataset(data, folder / "readings.lance", enable_stable_row_ids=True, max_rows_per_file=rows // 8)
    query = tables.open_table("readings").search(None).where(WHERE)
    columns: dict[str, Any] = {"id": "id", "label": "concat(t, '!')", "twice": "2 * v", "score": score}
    return tables.create_materialized_view("scores", query.select(columns))


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the wall clock, and of the processor."""
    began, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - used


def duck(source: Path, target: Path) -> None:
    """Let DuckDB make the view."""
    shutil.rmtree(target, ignore_errors=True)
    with duckdb.connect() as db:
        db.create_function("score", reading, ["DOUBLE"], "DOUBLE")
        readings = lance.dataset(source)  # noqa: F841 (DuckDB finds it by its name)
        found = db.sql(
            f"SELECT id, concat(t, '!') AS label, 2 * v AS twice, score(v) AS score FROM readings WHERE {WHERE}"
        )
        lance.write_dataset(found.to_arrow_reader(100_000), target)


def measure(root: Path, rows: int, changed: float, round_: int) -> dict[str, tuple[float, float]]:
    """The times of a round. Raises where the view is not what DuckDB makes of the table."""
    folder = root / f"round-{round_}"
    view = made(folder, rows)
    source = folder / "readings.lance"
    number[0] = 0
    times = {"full": timed(view.refresh)}
    in_process = number[0] > 0
    rng = np.random.default_rng(round_)
    some = rng.choice(rows, int(rows * changed), replace=False)
    ids = ", ".join(map(str, some.tolist()))
    lance.dataset(source).update({"v": "v + 0.5"}, where=f"id IN ({ids})")
    wanted = lance.dataset(source).count_rows(f"({WHERE}) AND id IN ({ids})")
    plans: list[Any] = []
    times["plan"] = timed(lambda: plans.append(view.plan_refresh()))
    number[0] = 0
    results: list[Any] = []
    times["refresh"] = timed(lambda: results.append(view.refresh()))
    assert results[0].rows_refreshed == plans[0].total_rows_pending == wanted
    assert not in_process or number[0] == wanted, f"{number[0]} calls for {wanted} rows"
    times["duckdb"] = timed(lambda: duck(source, folder / "duck.lance"))
    columns = ["id", "label", "twice", "score"]
    mine = lance.dataset(view.uri).to_table(columns=columns).sort_by("id")
    assert mine.equals(lance.dataset(folder / "duck.lance").to_table(columns=columns).sort_by("id"))
    shutil.rmtree(folder)
    return times


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--changed", type=float, default=0.01)
    parser.add_argument("--executor", default="inline")
    options = parser.parse_args()
    os.environ["CHUNKMILL_EXECUTOR"] = options.executor
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        measure(root, min(options.rows, 10_000), options.changed, 0)  # lets both sides import, and starts the session
        rounds = [measure(root, options.rows, options.changed, at + 1) for at in range(options.rounds)]
    medians = {
        name: [statistics.median(times) for times in zip(*(one[name] for one in rounds), strict=True)]
        for name in rounds[0]
    }
    for name, (wall, cpu) in medians.items():
        print(f"{name:8} {wall:7.3f} s   processor {cpu:7.3f} s")
    for other in ("full", "duckdb"):
        wall, cpu = (mine / theirs for mine, theirs in zip(medians["refresh"], medians[other], strict=True))
        print(f"refresh / {other:7} {wall:6.3f}   processor {cpu:6.3f}")


if __name__ == "__main__":
    main()
