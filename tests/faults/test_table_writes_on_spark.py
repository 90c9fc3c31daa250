"""Writes of tables by Spark's tasks, of which some are killed: rows are there once, or none of them is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from chunkmill.engine import faults
from chunkmill.engine.catalog import CatalogClient, TableEntry
from chunkmill.engine.errors import ChunkmillError

ROWS = 4_000


@pytest.fixture
def table(tmp_path: Path) -> TableEntry:
    made = CatalogClient(tmp_path / "lake").create_table("t", pa.schema([("id", pa.int64())]))
    made.append(id=[-1])
    return made


def cut(spark: Any, marks: Path, how: str, times: int) -> Any:
    """Rows whose third partition is cut in its middle, when some of its rows are written, so often."""

    def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for start in range(0, batch.num_rows, 100):
                part = batch.slice(start, 100)
                if 2_500 in part["id"].to_pylist():
                    count = len(list(marks.iterdir()))
                    if count < times:
                        (marks / str(count)).touch()
                        if how == "kill":
                            os.kill(os.getpid(), signal.SIGKILL)
                        raise RuntimeError("planned failure")
                yield part

    marks.mkdir()
    return spark.range(0, ROWS, 1, 4).mapInArrow(through, "id long")


def state(table: TableEntry) -> tuple[int, list[int]]:
    dataset = lance.dataset(table.storage_url)
    return dataset.version, sorted(dataset.to_table()["id"].to_pylist())


def files(table: TableEntry) -> set[str]:
    """The files of rows."""
    return {path.name for path in Path(table.storage_url.removeprefix("file://"), "data").iterdir()}


@pytest.mark.parametrize("write", ["append", "overwrite"])
@pytest.mark.parametrize("how", ["kill", "fail"])
def test_a_task_that_is_tried_again_leaves_its_rows_once(
    table: TableEntry, spark: Any, tmp_path: Path, how: str, write: str
) -> None:
    version, _ = state(table)
    getattr(table, write)(cut(spark, tmp_path / "marks", how, 1))
    assert len(list((tmp_path / "marks").iterdir())) == 1
    assert state(table) == (version + 1, [*([-1] if write == "append" else []), *range(ROWS)])


@pytest.mark.parametrize("write", ["append", "overwrite"])
def test_a_task_that_fails_each_time_leaves_the_version(
    table: TableEntry, spark: Any, tmp_path: Path, write: str
) -> None:
    before = state(table)
    with pytest.raises(ChunkmillError):
        getattr(table, write)(cut(spark, tmp_path / "marks", "fail", 100))
    assert len(list((tmp_path / "marks").iterdir())) == 4
    assert state(table) == before


@pytest.mark.slow
@pytest.mark.parametrize("write", ["append", "overwrite"])
@pytest.mark.parametrize("point", ["lance.fragments", "lance.commit"])
def test_a_driver_that_dies_about_its_commit_leaves_one_version_or_the_next(
    table: TableEntry, tmp_path: Path, point: str, write: str
) -> None:
    version, _ = state(table)
    root = tmp_path / "lake"
    code = f"""
from chunkmill.engine import get_session
from chunkmill.engine.catalog import CatalogClient
frame = get_session("local[2,4]").range(0, {ROWS}, 1, 4)
CatalogClient({str(root)!r}).get_table("t").{write}(frame)
"""
    environment = {**os.environ, faults.PLAN: f"{point}:kill"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]
    kept = [-1] if write == "append" else []
    expected = (version, [-1]) if point == "lance.fragments" else (version + 1, [*kept, *range(ROWS)])
    assert state(table) == expected
    assert len(files(table)) == 5
