"""How tasks are dealt out: all of them, in order, several at once where there are many, one by one towards the end."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
from chunkmill.engine.execution import spark_stage as spark_module
from chunkmill.engine.execution.spark_stage import shares
from chunkmill.engine.execution.work import SPARK_SCHEMA, RowWriter, Task, parse_rows
from chunkmill.engine.limits import MIB
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZES = st.lists(st.integers(0, 300 * MIB), max_size=200)


@given(SIZES, st.integers(1, 64))
def test_every_task_has_its_share_and_none_is_too_large(sizes: list[int], slots: int) -> None:
    starts = shares(sizes, slots)
    assert starts[0] == 0 and starts[-1] == len(sizes)
    assert all(start < stop for start, stop in pairwise(starts))
    for start, stop in pairwise(starts):
        assert stop - start == 1 or (stop - start <= 4 and sum(sizes[start:stop]) <= 256 * MIB)


@given(SIZES, st.integers(1, 64))
def test_each_slot_may_get_eight_such_shares_of_what_is_left(sizes: list[int], slots: int) -> None:
    for start, stop in pairwise(shares(sizes, slots)):
        assert stop - start == 1 or (stop - start) * 8 * slots <= len(sizes) - start


def test_few_tasks_go_one_by_one() -> None:
    assert shares([1] * 31, 2) == list(range(32))
    assert shares([], 4) == [0]


def test_many_small_ones_go_together() -> None:
    assert len(shares([10_000] * 1000, 2)) < 300


class Noting:
    """Notes the number of each task; ``size`` is that of its split."""

    def run(self, index: int) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        rows = RowWriter(index)
        context = TaskContext.get()
        assert context is not None
        rows.note("task", {"partition": context.partitionId()})
        yield rows.batch()


def test_spark_runs_all_tasks_of_a_share_in_one_of_its_own(spark: SparkSession) -> None:
    tasks = [Task(i, f"split {i}", 100) for i in range(80)]
    _, notes = parse_rows(spark_module.run_spark(spark, Noting(), tasks))  # type: ignore[arg-type]
    assert [note.task for note in notes] == list(range(80))
    starts = shares([100] * 80, 2)
    assert [note.data["partition"] for note in notes] == [
        share for share, (start, stop) in enumerate(pairwise(starts)) for _ in range(start, stop)
    ]
    assert len(starts) - 1 < 60


def test_a_stage_that_somebody_looks_at_has_a_partition_for_each_task(spark: SparkSession) -> None:
    stage = spark_module.stage_of(spark, Noting(), range(6), SPARK_SCHEMA)
    assert stage.rdd.getNumPartitions() == 5
