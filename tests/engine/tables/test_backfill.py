"""Computed columns from end to end: added, planned, filled, resumed, changed, with the answers of a recorded run."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from chunkmill.engine.errors import JobFailedError, ReadError, UnsupportedCallError, UsageError
from chunkmill.engine.tables import UDF, Columns, Job, Skip, Table, UnpackedUDF, skip_on_error, udf

EVERY_BATCH = {"checkpoint_size": 2, "batch_checkpoint_flush_interval_seconds": 0}


@udf
def double(a: int) -> int:
    return a * 2


@udf(version="100")
def hundredfold(a: int) -> int:
    return a * 200


class Size(NamedTuple):
    height: int
    width: int


@udf
def size(a: int) -> Columns[Size]:
    return Size(a + 10, a + 20)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Table]:
    def made(rows: int = 20, per_file: int = 10, **columns: Any) -> Table:
        data = pa.table({"a": pa.array(range(rows)), **columns})
        lance.write_dataset(data, tmp_path / "t.lance", max_rows_per_file=per_file, enable_stable_row_ids=True)
        return Table(str(tmp_path / "t.lance"))

    return made


@pytest.fixture
def table(make: Callable[..., Table]) -> Table:
    return make()


def values(table: Table, column: str) -> list[Any]:
    return table.to_arrow()[column].to_pylist()


def files(table: Table) -> list[list[str]]:
    return [[file.path for file in one.data_files()] for one in lance.dataset(table.uri).get_fragments()]


def recording(path: Path, fails: int | None = None) -> UDF:
    """A function that notes each of its calls in a file."""

    @udf(version="1")
    def noted(a: int) -> int:
        with path.open("a") as file:
            file.write(f"{a}\n")
        if a == fails:
            raise ValueError(f"no {a}")
        return a * 2

    return noted


def calls(path: Path) -> list[int]:
    found = sorted(int(line) for line in path.read_text().split()) if path.exists() else []
    path.unlink(missing_ok=True)
    return found


# --- the recorded run


def test_a_column_is_planned_and_filled_as_recorded(table: Table) -> None:
    table.add_columns({"doubled": double})
    assert values(table, "doubled") == [None] * 20
    plan = table.plan_backfill("doubled")
    assert (plan.has_work, plan.total_tasks, plan.total_rows_pending) == (True, 2, 20)
    assert (plan.total_fragments, plan.total_rows, plan.where) == (2, 20, "doubled IS NULL")
    plan = table.plan_backfill("doubled", where="a>15")
    assert (plan.total_tasks, plan.total_rows_pending, plan.where) == (1, 10, "a>15")

    before = files(table)
    result = table.backfill("doubled", where="a>15")
    assert values(table, "doubled") == [None] * 16 + [32, 34, 36, 38]
    assert result.columns["doubled"].rows_processed == 4 and result.status == "DONE"
    assert result.launched_at is not None and result.completed_at is not None
    assert files(table)[0] == before[0]
    assert files(table)[1][:-1] == before[1] and len(files(table)[1]) == 2

    assert table.plan_backfill("doubled").total_rows_pending == 20
    assert table.backfill("doubled").columns["doubled"].rows_processed == 16
    assert values(table, "doubled") == [2 * a for a in range(20)]
    version = table.version
    assert not table.plan_backfill("doubled").has_work
    assert table.backfill("doubled").columns["doubled"].rows_processed == 0
    assert table.version == version
    plan = table.plan_backfill("doubled", where="1=1", num_frags=1)
    assert (plan.total_tasks, plan.total_rows_pending) == (1, 10)


def test_wrong_calls_are_told_as_recorded(table: Table) -> None:
    table.add_columns({"doubled": double})
    text = "Column zz is not defined this table.  Use add_columns to register it first"
    for call in (table.backfill, table.plan_backfill):
        with pytest.raises(ValueError, match=text):
            call("zz")
    with pytest.raises(NotImplementedError, match="Multi-column backfill is not yet supported"):
        table.backfill(["doubled", "a"])
    with pytest.raises(UnsupportedCallError):
        table.backfill_async(["doubled", "a"])
    with pytest.raises(ValueError, match="columns list cannot be empty; pass a column name string or a non-empty list"):
        table.backfill([])
    with pytest.raises(ValueError, match=r"Metadata is None, cannot find key virtual_column\.udf"):
        table.backfill("a")
    with pytest.raises(UsageError, match="'zz >' is an invalid condition"):
        table.backfill("doubled", where="zz >")
    with pytest.raises(UsageError, match="'zz > 1' is an invalid condition"):
        table.plan_backfill("doubled", where="zz > 1")
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        table.backfill("doubled", colour=1)
    assert values(table, "doubled") == [None] * 20
    assert not table.jobs()


def test_another_function_computes_all_rows_again(table: Table) -> None:
    table.add_columns({"c": double})
    table.backfill("c")
    table.alter_columns({"path": "c", "udf": hundredfold})
    plan = table.plan_backfill("c")
    assert (plan.where, plan.udf_mismatch, plan.total_tasks, plan.total_rows_pending) == (None, True, 2, 20)
    assert values(table, "c") == [2 * a for a in range(20)]
    table.backfill("c")
    assert values(table, "c") == [200 * a for a in range(20)]
    table.backfill("c", udf=double)
    assert values(table, "c") == [2 * a for a in range(20)]


def test_a_job_runs_in_the_background(table: Table) -> None:
    table.add_columns({"c": double})
    job = table.backfill_async("c")
    assert isinstance(job, Job)
    assert job.result(60).status == "DONE"
    assert (job.table_name, job.column_names, job.status, job.done()) == ("t", ["c"], "DONE", True)
    assert [(one.job_id, one.job_type, one.status) for one in table.jobs()] == [(job.job_id, "BACKFILL", "DONE")]


def test_rows_that_fail_are_skipped_and_told(table: Table) -> None:
    @udf(on_error=skip_on_error())
    def picky(a: int) -> int:
        if a in (3, 17):
            raise ValueError(f"bad {a}")
        return a

    table.add_columns({"c": picky})
    result = table.backfill("c")
    assert values(table, "c") == [None if a in (3, 17) else a for a in range(20)]
    assert (result.columns["c"].rows_processed, result.columns["c"].rows_skipped) == (18, 2)
    errors = table.get_errors(column_name="c")
    assert [(one.error_type, one.error_message, one.fragment_id) for one in errors] == [
        ("ValueError", "bad 3", 0),
        ("ValueError", "bad 17", 1),
    ]
    addresses = table.get_failed_row_addresses(result.job_id, "c")
    assert addresses == [3, 4294967303]

    with pytest.warns(UserWarning, match="by another function"):
        table.backfill("c", udf=double, where=f"_rowaddr IN ({','.join(map(str, addresses))})")
    assert [values(table, "c")[at] for at in (2, 3, 17)] == [2, 6, 34]


def test_a_failure_fails_the_job_and_is_told(table: Table) -> None:
    @udf
    def fails(a: int) -> int:
        if a == 5:
            raise ValueError("boom")
        return a

    table.add_columns({"c": fails})
    with pytest.raises(RuntimeError, match="ValueError: boom") as caught:
        table.backfill("c", checkpoint_size=2)
    assert isinstance(caught.value, JobFailedError)
    assert isinstance(caught.value.__cause__, ValueError)
    assert values(table, "c") == [None] * 20
    (job,) = table.jobs()
    assert (job.status, job.error) == ("FAILED", "ValueError: boom")
    (error,) = table.get_errors(job.job_id)
    assert (error.error_type, error.error_message, error.row_address, error.fragment_id) == (
        "ValueError",
        "boom",
        None,
        0,
    )


# --- resuming


def test_a_run_that_failed_goes_on_where_it_was(make: Callable[..., Table], tmp_path: Path) -> None:
    table, noted = make(14, 100), tmp_path / "calls"
    table.add_columns({"c": recording(noted, fails=9)})
    with pytest.raises(JobFailedError):
        table.backfill("c", **EVERY_BATCH)
    assert calls(noted) == list(range(10))
    table.backfill("c", udf=recording(noted), **EVERY_BATCH)
    assert calls(noted) == list(range(8, 14))
    assert values(table, "c") == [2 * a for a in range(14)]

    lance.write_dataset(pa.table({"a": [12, 13]}), table.uri, mode="append")
    table.backfill("c", udf=recording(noted), **EVERY_BATCH)
    assert calls(noted) == [12, 13]
    table.backfill("c", udf=recording(noted), where="1=1")
    assert len(calls(noted)) == 16
    table.backfill("c", udf=recording(noted), where="1=1")
    assert len(calls(noted)) == 16


def test_another_size_of_batches_uses_what_is_there(make: Callable[..., Table], tmp_path: Path) -> None:
    table, noted = make(40, 100), tmp_path / "calls"
    table.add_columns({"c": recording(noted, fails=29)})
    with pytest.raises(JobFailedError):
        table.backfill("c", checkpoint_size=3, batch_checkpoint_flush_interval_seconds=0)
    calls(noted)
    table.backfill("c", udf=recording(noted), checkpoint_size=7, task_size=9)
    assert calls(noted) == list(range(27, 40))
    assert values(table, "c") == [2 * a for a in range(40)]
    assert not list((Path(table.uri) / "_computed/checkpoints").iterdir())


def test_a_damaged_checkpoint_is_computed_again(make: Callable[..., Table], tmp_path: Path) -> None:
    table, noted = make(14, 100), tmp_path / "calls"
    table.add_columns({"c": recording(noted, fails=9)})
    with pytest.raises(JobFailedError):
        table.backfill("c", **EVERY_BATCH)
    calls(noted)
    first = min((Path(table.uri) / "_computed/checkpoints").glob("*/*.arrow"))
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    with pytest.warns(RuntimeWarning, match="is damaged, and its rows are computed again"):
        table.backfill("c", udf=recording(noted), **EVERY_BATCH)
    assert calls(noted) == [0, 1, *range(8, 14)]
    assert values(table, "c") == [2 * a for a in range(14)]


def test_what_was_changed_meanwhile_is_not_taken_from_checkpoints(make: Callable[..., Table], tmp_path: Path) -> None:
    table, noted = make(14, 100, b=pa.array(range(14))), tmp_path / "calls"
    table.add_columns({"c": recording(noted, fails=9)})
    with pytest.raises(JobFailedError):
        table.backfill("c", **EVERY_BATCH)
    calls(noted)
    lance.dataset(table.uri).update({"a": "a + 100"}, where="a < 4")  # those rows move
    table.backfill("c", udf=recording(noted), **EVERY_BATCH)
    assert calls(noted) == [*range(8, 14), 100, 101, 102, 103]
    assert sorted(values(table, "c")) == sorted([2 * a for a in range(4, 14)] + [2 * a for a in range(100, 104)])


def test_an_input_that_was_computed_anew_is_noticed(table: Table, tmp_path: Path) -> None:
    table.add_columns({"b": double})
    table.backfill("b")

    @udf(version="1", input_columns=["b"])
    def plus_one(b: int) -> int:
        return b + 1

    table.add_columns({"c": plus_one})
    table.backfill("c")
    assert not table.plan_backfill("c").has_work
    table.alter_columns({"path": "b", "udf": hundredfold})
    table.backfill("b", num_frags=1)
    plan = table.plan_backfill("c")
    assert (plan.srcfiles_mismatch, plan.udf_mismatch, plan.total_tasks) == (True, False, 1)
    table.backfill("c")
    assert values(table, "c") == [200 * a + 1 for a in range(10)] + [2 * a + 1 for a in range(10, 20)]


def test_a_compaction_keeps_what_is_known_of_values(table: Table) -> None:
    table.add_columns({"c": double})
    table.backfill("c")
    lance.dataset(table.uri).optimize.compact_files()
    assert not table.plan_backfill("c").has_work
    table.alter_columns({"path": "c", "udf": hundredfold})
    lance.dataset(table.uri).optimize.compact_files()
    plan = table.plan_backfill("c")
    assert (plan.udf_mismatch, plan.total_rows_pending) == (True, 20)
    table.backfill("c")
    assert values(table, "c") == [200 * a for a in range(20)]
    assert not table.plan_backfill("c").has_work


def test_deleted_rows_and_addresses_stay(table: Table) -> None:
    lance.dataset(table.uri).delete("a % 3 = 0")
    before = lance.dataset(table.uri).to_table(with_row_id=True, with_row_address=True)
    table.add_columns({"c": double})
    table.backfill("c", where="a % 2 = 0")
    table.backfill("c")
    after = lance.dataset(table.uri).to_table(with_row_id=True, with_row_address=True)
    assert after.drop_columns(["c"]) == before
    assert after["c"].to_pylist() == [2 * a for a in range(20) if a % 3]


# --- columns


def test_one_function_fills_several_columns(table: Table) -> None:
    table.add_columns(size)
    table.add_columns(UnpackedUDF(size, prefix="img_"))
    assert table.backfill("width").columns.keys() == {"height", "width"}
    assert table.to_arrow().select(["height", "width"]).to_pylist()[3] == {"height": 13, "width": 23}
    assert values(table, "img_width") == [None] * 20
    table.backfill("img_height")
    assert values(table, "img_width") == [a + 20 for a in range(20)]
    assert {len(one) for one in files(table)} == {3}
    with pytest.raises(UsageError, match="is computed together with"):
        table.drop_columns(["height"])
    with pytest.raises(UsageError, match="cannot be changed alone"):
        table.alter_columns({"path": "height", "udf": double})
    table.drop_columns(["height", "width"])
    assert table.schema.names == ["a", "img_height", "img_width"]


def test_sql_is_computed_at_once_and_in_order(table: Table) -> None:
    table.add_columns({"b": "a + 1", "c": (double, ["a"]), "d": "a * 10"})
    assert table.schema.names == ["a", "b", "c", "d"]
    assert values(table, "b") == [a + 1 for a in range(20)]
    assert values(table, "c") == [None] * 20


def test_columns_that_cannot_be_added(table: Table) -> None:
    table.add_columns({"c": double})
    with pytest.raises(ValueError, match="Invalid input, Column c already exists in the dataset"):
        table.add_columns({"c": double})
    with pytest.raises(ValueError, match="Invalid input, Column a already exists in the dataset"):
        table.add_columns({"a": "1"})
    with pytest.raises(ValueError, match=r"expects input columns \['zz'\] which are not found in table schema"):
        table.add_columns({"x": (double, ["zz"])})
    with pytest.raises(ValueError, match="pass it directly, not in a mapping"):
        table.add_columns({"x": size})
    with pytest.raises(ValueError, match="pass it directly, not in a mapping"):
        table.add_columns({"x": UnpackedUDF(size, prefix="x")})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="returns one column: pass it with a name"):
        table.add_columns(double)
    table.add_columns(size)
    with pytest.raises(ValueError, match=r"output columns already exist in table schema: \['height', 'width'\]"):
        table.add_columns(size)
    with pytest.raises(TypeError, match="expected SQL, a UDF"):
        table.add_columns({"x": 1})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="nope"):
        table.add_columns({"x": "nope + 1"})
    with pytest.raises(ValueError, match="would be both an input and an output"):
        table.add_columns({"x": (double, ["x"])})
    with pytest.raises(ValueError, match="the path of each column"):
        table.alter_columns({"udf": double})
    with pytest.raises(ValueError, match="older name of `udf`"):
        table.alter_columns({"path": "c", "udf": double, "virtual_column": double})
    assert table.schema.names == ["a", "c", "height", "width"]


def test_other_alterations_are_lances(table: Table) -> None:
    table.alter_columns({"path": "a", "rename": "b"})
    assert table.schema.names == ["b"]


# --- options


def test_options_are_checked_and_said_to_be_ignored(table: Table) -> None:
    table.add_columns({"c": double})
    with pytest.warns(UserWarning, match="intra_applier_concurrency is ignored"):
        table.backfill("c", intra_applier_concurrency=2)
    with pytest.warns(DeprecationWarning, match="batch_size is now called checkpoint_size"):
        table.backfill("c", batch_size=0, where="1=1")
    for wrong in (
        {"concurrency": 0},
        {"task_size": 0},
        {"num_frags": 0},
        {"skip_frags": -1},
        {"commit_granularity": 0},
        {"min_checkpoint_size": 5, "max_checkpoint_size": 2},
        {"batch_checkpoint_flush_interval_seconds": -1},
        {"blob_read_strategy": "other"},
    ):
        with pytest.raises(UsageError):
            table.backfill("c", where="1=1", **wrong)  # type: ignore[arg-type]


def test_fragments_are_committed_as_asked_for(make: Callable[..., Table]) -> None:
    table = make(30, 5)
    table.add_columns({"c": double})
    table.backfill("c", commit_granularity=2, skip_frags=1, num_frags=3)
    assert [value is None for value in values(table, "c")] == [True] * 5 + [False] * 15 + [True] * 10
    (job,) = table.jobs()
    assert {metric.name: metric.n for metric in job.metrics}["commits"] == 2
    version = table.version
    table.backfill("c", commit_granularity=None)
    assert table.version == version + 1


@pytest.mark.heavy
def test_a_backfill_that_takes_longer_goes_on(table: Table) -> None:
    @udf(data_type=pa.int64())
    def slow(a: pa.Array) -> pa.Array:
        time.sleep(0.4)
        return a

    table.add_columns({"c": slow})
    with pytest.raises(TimeoutError, match=r"backfill\(c\) did not complete within 0.1s"):
        table.backfill("c", timeout=timedelta(seconds=0.1))
    deadline = time.monotonic() + 60
    while table.jobs()[0].status == "RUNNING" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert values(table, "c") == list(range(20))


def test_too_many_skipped_rows_fail_the_job(table: Table) -> None:
    @udf(on_error=[Skip(ValueError, max_skip_count=3)])
    def picky(a: int) -> int:
        if a % 2:
            raise ValueError("odd")
        return a

    table.add_columns({"c": picky})
    with pytest.raises(JobFailedError, match="SkipThresholdExceededError"):
        table.backfill("c")
    assert values(table, "c") == [None] * 20


def test_kinds_of_functions_give_the_same(make: Callable[..., Table]) -> None:
    table = make(20, 7, b=pa.array([None if at % 5 == 0 else float(at) for at in range(20)]))

    @udf(data_type=pa.float64())
    def arrays(a: pa.Array, b: pa.Array) -> pa.Array:
        return pc.add(a, b)

    @udf(data_type=pa.float64())
    def batches(batch: pa.RecordBatch) -> pa.Array:
        return pc.add(batch["a"], batch["b"])

    @udf(data_type=pa.float64())
    def rows(a: int, b: float | None) -> float | None:
        return None if b is None else a + b

    class Adder:
        def __init__(self, more: float) -> None:
            self.more = more

        def __call__(self, a: int, b: float | None) -> float | None:
            return None if b is None else a + b + self.more

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table.add_columns({"x": arrays, "y": batches, "z": rows, "w": udf(data_type=pa.float64())(Adder)(0.0)})
    for name in "xyzw":
        table.backfill(name)
        assert values(table, name) == [None if at % 5 == 0 else at + float(at) for at in range(20)]


def test_a_record_of_a_job_that_is_damaged_is_told(table: Table) -> None:
    table.add_columns({"c": double})
    result = table.backfill("c")
    other = table.backfill("c", where="1=1")
    (Path(table.uri) / "_computed/jobs" / f"{result.job_id}.json").write_text("{")
    with pytest.warns(
        RuntimeWarning, match=f"a job is skipped: .*{result.job_id}.json: the record of a job is damaged"
    ):
        assert [job.job_id for job in table.jobs()] == [other.job_id]
    with pytest.raises(ReadError, match="the record of a job is damaged"):
        table.get_errors(result.job_id)


def test_checkpoints_of_no_use_are_removed(make: Callable[..., Table], tmp_path: Path) -> None:
    table, noted = make(14, 100), tmp_path / "calls"
    table.add_columns({"c": recording(noted, fails=9)})
    with pytest.raises(JobFailedError):
        table.backfill("c", **EVERY_BATCH)
    assert table.cleanup_checkpoints() == {"batch_deleted": 0, "orphan_frag_deleted": 0, "udtf_batch_deleted": 0}
    lance.dataset(table.uri).delete("a = 0")
    lance.dataset(table.uri).optimize.compact_files(materialize_deletions_threshold=0.0)
    assert table.cleanup_checkpoints()["batch_deleted"] == 4
    assert not list((Path(table.uri) / "_computed/checkpoints").iterdir())
