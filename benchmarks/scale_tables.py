"""Computed columns and views over a dataset of many segments, and what 1 % more of them cost; seconds.

    python benchmarks/scale_tables.py FOLDER [--segments 10000] [--executor spark|inline]

As many RRDs of 38 kB are made in FOLDER unless they are there, and registered in place in a new lake. The rows of one
of their entities, 200 of each segment, become a table that follows the dataset; a column of it is filled by a function
of whole columns, and a view of every tenth row by another. Then 1 % more segments are registered, and all of that is
brought up to them: rows, values and the view's rows are counted.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from chunkmill import CatalogClient, udf
from chunkmill.engine.tables import TableConnection, connect
from made_recordings import write_drive

ROWS, EVERY = 200, 10
POSE = "/base:Transform3D:translation"


@udf(data_type=pa.float32(), version="1")
def reach(translation: pa.Array) -> pa.Array:
    """How far the base is from where it began."""
    points = np.asarray(translation.flatten().flatten()).reshape(-1, 3)
    return pa.array(np.linalg.norm(points, axis=1).astype(np.float32))


@udf(version="1")
def is_far(reach: float) -> bool:
    """Whether that is more than two metres."""
    return reach > 2


class Scale:
    """The lake, its table and its view, and how long each step takes."""

    def __init__(self, home: Path, executor: str) -> None:
        self._dataset = CatalogClient(home / "lake").create_dataset("drives")
        self._tables: TableConnection = connect(str(home / "tables"), executor=executor)

    def register(self, files: list[Path]) -> None:
        """Register recordings in place."""
        self._dataset.register([path.as_uri() for path in files]).wait()

    def bring_up(self, total: int, more: int) -> None:
        """Bring the table, its column and the view up to the dataset: ``total`` segments, of which ``more`` are new."""
        base = self._dataset.filter_contents("/base")
        table = _timed(f"rows of {more:,} segments", lambda: base.rows_table(self._tables, "poses", "log_tick"))
        assert table.count_rows() == total * ROWS
        if "reach" not in table.schema.names:
            table.add_columns({"reach": (reach, [POSE])})
        plan = _timed("plan of the backfill", lambda: table.plan_backfill("reach"))
        assert plan.total_rows_pending == more * ROWS, plan
        done = _timed("backfill", lambda: table.backfill("reach"))
        assert done.columns["reach"].rows_processed == more * ROWS
        if "far" not in self._tables.table_names():
            query = (
                table.search(None)
                .where(f"log_tick % {EVERY} = 0")
                .select({"segment": "rerun_segment_id", "tick": "log_tick", "far": (is_far, ["reach"])})
            )
            _timed("the view is made", lambda: self._tables.create_materialized_view("far", query))
        view = self._tables.open_table("far")
        plan = _timed("plan of the refresh", view.plan_refresh)
        assert plan.total_rows_pending == more * ROWS // EVERY, plan
        result = _timed("refresh", view.refresh)
        assert result.rows_refreshed == more * ROWS // EVERY
        assert not view.plan_refresh().has_work


def _timed(name: str, call: Callable[[], Any]) -> Any:
    began = time.perf_counter()
    found = call()
    print(f"{name:28s} {time.perf_counter() - began:8.3f} s", flush=True)
    return found


def main() -> None:
    """Print a line for each step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--segments", type=int, default=10_000)
    parser.add_argument("--executor", default="spark", choices=("spark", "inline"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    folder, more = options.folder.resolve(), max(options.segments // 100, 1)
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{number:06d}.rrd" for number in range(options.segments + more)]
    for number, path in enumerate(files):
        if not path.exists():
            write_drive(path, number)
    with tempfile.TemporaryDirectory(dir=folder) as home:
        scale = Scale(Path(home), options.executor)
        for begin, end in ((0, options.segments), (options.segments, len(files))):
            _timed(f"registration of {end - begin:,}", lambda b=begin, e=end: scale.register(files[b:e]))  # type: ignore[misc]
            scale.bring_up(end, end - begin)


if __name__ == "__main__":
    main()
