"""A slice of ``failing_functions.py``, and rows that take too long: by themselves, and on Spark."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import failing_functions
import lance
import pyarrow as pa
import pytest
from chunkmill.engine.errors import JobFailedError
from chunkmill.engine.tables import Policy, Retry, Skip, Table, udf


@pytest.mark.parametrize("seed", range(12))
def test_tables_tell_of_the_rows_for_which_functions_fail(seed: int) -> None:
    assert not failing_functions.compared(seed)


@pytest.mark.parametrize("seed", [14, 58])
def test_rows_that_were_too_many_to_skip_are_told_of(seed: int) -> None:
    assert not failing_functions.compared(seed)


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("seed", [3, 5, 8, 14])
def test_tables_tell_of_the_rows_for_which_functions_fail_on_spark(seed: int) -> None:
    assert not failing_functions.compared(seed, "spark")


def _slow(tmp_path: Path, policies: list[Policy], **options: Any) -> Table:
    @udf(version="1", timeout=0.5, on_error=policies)
    def slow(a: int) -> int:
        time.sleep(900 if a in (3, 8) else 0)
        return a

    lance.write_dataset(pa.table({"a": range(10)}), tmp_path / "t.lance", max_rows_per_file=5)
    table = Table(str(tmp_path / "t.lance"), **options)
    table.add_columns({"c": slow})
    return table


def test_rows_that_take_too_long_are_skipped_or_fail_the_job(tmp_path: Path) -> None:
    table = _slow(tmp_path, [Skip(TimeoutError)])
    result = table.backfill("c", checkpoint_size=1)
    assert table.to_arrow()["c"].to_pylist() == [None if a in (3, 8) else a for a in range(10)]
    assert table.get_failed_row_addresses(result.job_id, "c") == [3, (1 << 32) + 3]
    assert {one.error_type for one in table.get_errors()} == {"TimeoutError"}


def test_a_row_that_takes_too_long_fails_the_job_by_default(tmp_path: Path) -> None:
    table = _slow(tmp_path, [Retry(ValueError)])
    with pytest.raises(JobFailedError, match=r"took more than 0\.5 s for a row") as caught:
        table.backfill("c", checkpoint_size=1)
    assert isinstance(caught.value.__cause__, TimeoutError)
    assert [one.error_type for one in table.get_errors()] == ["TimeoutError"]


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_rows_that_take_too_long_are_interrupted_in_workers(tmp_path: Path) -> None:
    table = _slow(tmp_path, [Skip(TimeoutError)], executor="spark")
    result = table.backfill("c", checkpoint_size=1)
    assert result.columns["c"].rows_skipped == 2
    assert table.get_failed_row_addresses(result.job_id, "c") == [3, (1 << 32) + 3]
