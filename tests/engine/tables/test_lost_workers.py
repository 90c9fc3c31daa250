"""Functions that end the process of their worker, on Spark: the rows are found, and the policy decides."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.errors import JobFailedError, PipelineError, SessionError
from chunkmill.engine.tables import UDF, Skip, Table, udf

ROWS = 400


@pytest.fixture
def table(tmp_path: Path) -> Table:
    data = pa.table({"a": pa.array(range(ROWS))})
    lance.write_dataset(data, tmp_path / "t.lance", max_rows_per_file=200, enable_stable_row_ids=True)
    return Table(str(tmp_path / "t.lance"), executor="spark")


def killing(marks: Path, rows: set[int], policies: Any = None, *, once: bool = False) -> UDF:
    """A function that kills its worker for some rows, or for the first of them that it gets, and notes its batches."""

    @udf(data_type=pa.int64(), version="1", on_error=policies)
    def deadly(a: pa.Array) -> pa.Array:
        values = set(a.to_pylist())
        if values & rows and not (once and (marks / "killed").exists()):
            (marks / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        with (marks / "calls").open("a") as file:
            file.write("".join(f"{value}\n" for value in sorted(values)))
        return pa.array(np.asarray(a) * 2)

    return deadly


def check_calls(marks: Path) -> None:
    """Rows that have their value were given to the function and came back, most of them once."""
    calls = [int(line) for line in (marks / "calls").read_text().split()]
    assert len(set(calls)) <= len(calls) <= 2 * ROWS


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_rows_that_kill_workers_stay_null_or_fail_the_job(table: Table, tmp_path: Path) -> None:
    rows = {3, 333}
    table.add_columns({"c": killing(tmp_path, rows)})
    with pytest.raises(JobFailedError, match="row 3 of fragment 0") as caught:
        table.backfill("c", checkpoint_size=6)
    assert isinstance(caught.value.__cause__, PipelineError)
    assert table.to_arrow()["c"].null_count == ROWS
    assert 3 in {one.row_address for one in table.get_errors()} <= {3, (1 << 32) + 133}

    skipping = killing(tmp_path, rows, [Skip(SessionError, max_skip_count=2)])
    result = table.backfill("c", udf=skipping, checkpoint_size=6)
    assert table.to_arrow()["c"].to_pylist() == [None if a in rows else 2 * a for a in range(ROWS)]
    assert (result.columns["c"].rows_processed, result.columns["c"].rows_skipped) == (ROWS - 2, 2)
    assert table.get_failed_row_addresses(result.job_id, "c") == [3, (1 << 32) + 133]
    (kind,) = {one.error_type for one in table.get_errors(result.job_id)}
    assert kind == "SessionError"
    check_calls(tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_a_worker_that_is_lost_once_costs_nothing(table: Table, tmp_path: Path) -> None:
    table.add_columns({"c": killing(tmp_path, {150}, once=True)})
    assert table.backfill("c", checkpoint_size=50).columns["c"].rows_processed == ROWS
    assert table.to_arrow()["c"].to_pylist() == [2 * a for a in range(ROWS)]
    check_calls(tmp_path)
