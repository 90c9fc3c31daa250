"""Query frames of DataFusion: who reads, which tasks, what errors say, and what is left of what is not read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.errors import ReadError, SessionError, UsageError
from chunkmill.engine.execution import query_executor, stage
from chunkmill.engine.frames import QueryFrame, plan
from chunkmill.engine.frames.answer import UserCall
from datafusion import col
from query_data import small_dataset


def test_what_methods_make_is_a_query_frame(tmp_path: Path) -> None:
    frame = small_dataset(tmp_path).reader("frame")
    made = [
        frame.select("frame"),
        frame.filter(col("frame") > 3),
        frame.sort("frame"),
        frame.limit(3),
        frame["frame"],
    ]
    assert all(isinstance(one, QueryFrame) for one in made)


NO_COLUMN: dict[str, tuple[Callable[[QueryFrame], Any], str]] = {
    "select": (lambda frame: frame.select("/a:valu"), "no column '/a:valu'. Did you mean '/a:value'?"),
    "expression": (lambda frame: frame.select(col('"/c:value"')), "no column '/c:value'. Did you mean '/b:value'?"),
    "filter": (lambda frame: frame.filter(col("frames") > 3), "no column 'frames'. Did you mean 'frame'?"),
    "text": (lambda frame: frame.filter("zzz > 3"), "There are: rerun_segment_id, frame, /a:value, /b:value."),
    "item": (lambda frame: frame["fram"], "no column 'fram'. Did you mean 'frame'?"),
    "sort": (lambda frame: frame.sort("fram"), "no column 'fram'. Did you mean 'frame'?"),
    "with_column": (lambda frame: frame.with_column("x", col("fram") + 1), "no column 'fram'"),
    "join": (lambda frame: frame.join(frame.select("frame"), on="fram"), "no column 'fram'"),
    "of what is left": (lambda frame: frame.select("frame").filter(col("nope") > 1), "'nope'. There are: frame."),
}


@pytest.mark.parametrize("call", NO_COLUMN)
def test_a_column_that_is_not_there_is_named_with_those_that_are(tmp_path: Path, call: str) -> None:
    ask, told = NO_COLUMN[call]
    with pytest.raises(UsageError) as raised:
        ask(small_dataset(tmp_path, 1).reader("frame"))
    assert told in str(raised.value)
    assert raised.value.__suppress_context__


def test_every_way_to_take_rows_gives_them(tmp_path: Path) -> None:
    frame = small_dataset(tmp_path).reader("frame")
    assert frame.count() == len(frame.to_pylist()) == len(pa.table(frame)) == 300
    assert sum(batch.to_pyarrow().num_rows for batch in frame) == 300
    assert sum(batch.to_pyarrow().num_rows for stream in frame.execute_stream_partitioned() for batch in stream) == 300
    assert sum(batch.num_rows for batch in frame.filter(col("frame") < 2).collect()) == 6


def test_an_error_is_ours_wherever_it_comes_from(tmp_path: Path) -> None:
    dataset = small_dataset(tmp_path, 2)
    frame = dataset.reader("frame")
    other = small_dataset(tmp_path / "other", 1).reader("frame").select("frame")
    (tmp_path / "other" / "s0.rrd").unlink()
    calls: list[Any] = [
        other.collect,
        lambda: list(other),
        lambda: next(other.execute_stream()),
        frame.join(other, on="frame").count,  # it comes of the other frame
    ]
    for call in calls:
        with pytest.raises(ReadError, match="segment s0"):
            call()
    assert frame.count() == 200


def test_rows_are_not_taken_after_the_end(tmp_path: Path) -> None:
    frame = small_dataset(tmp_path).reader("frame")
    assert frame._answer is not None
    call = UserCall()
    (fragment, *_) = frame._answer.get_fragments()
    call.add(fragment._execution)
    rows = fragment.scanner(frame.schema()).to_batches()
    call.close()
    with pytest.raises(SessionError, match="after its end"):
        next(rows)


def test_datafusion_is_loaded_with_the_first_frame() -> None:
    names = "engine.frames, chunkmill.engine.catalog, chunkmill.engine.store, chunkmill.engine.cli"
    code = f"import sys, chunkmill.{names}; assert 'datafusion' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- who reads


@pytest.mark.parametrize(
    ("given", "variable", "running", "size", "chosen"),
    [
        (None, None, False, 700, "inline"),
        (None, None, False, 800, "spark"),
        (None, None, True, 50, "inline"),
        (None, None, True, 70, "spark"),
        (None, "auto", True, 70, "spark"),
        (None, "spark", False, 0, "spark"),
        (None, "inline", True, 9000, "inline"),
        ("spark", "inline", False, 0, "spark"),
        ("inline", "spark", False, 9000, "inline"),
    ],
)
def test_who_reads(
    monkeypatch: pytest.MonkeyPatch, given: str | None, variable: str | None, running: bool, size: int, chosen: str
) -> None:
    monkeypatch.setattr(stage, "_has_session", lambda: running)
    monkeypatch.setitem(sys.modules, "pyspark", sys)
    monkeypatch.delenv("CHUNKMILL_EXECUTOR")
    if variable is not None:
        monkeypatch.setenv("CHUNKMILL_EXECUTOR", variable)
    assert query_executor(given, lambda: size * 1_000_000) == chosen


def test_an_executor_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown executor 'dask'"):
        small_dataset(tmp_path, 1).reader("frame", executor="dask")


# --- plans


@dataclass(frozen=True)
class Segment:
    """A segment of which only the size counts."""

    segment_id: str
    stored_bytes: int


def test_small_segments_share_a_task_and_a_long_one_has_several() -> None:
    sizes = [1 << 20] * 70 + [1 << 30] + [40 << 20, 40 << 20, 90 << 20]
    segments: Any = [Segment(f"s{i:02}", size) for i, size in enumerate(sizes)]
    tasks, places = plan.tasks_over(segments, plan.stored_bytes(segments))
    assert [len(task.shares) for task in tasks] == [60, 10] + [1] * 16 + [1, 1, 1]
    assert places[70] == range(2, 18)
    assert tasks[2].label == "segment s70 [1/16]"
    assert tasks[0].label == "segments s00 to s59"
    for segment, place in zip(segments, places, strict=True):
        assert all(any(share.segment is segment for share in tasks[number].shares) for number in place)


def test_of_many_segments_few_manifests_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def needed_of(segment: Any, request: plan.RowRequest) -> int:
        asked.append(segment.segment_id)
        return int(segment.stored_bytes) // 10

    monkeypatch.setattr(plan, "needed_of", needed_of)
    segments: Any = [Segment(f"s{i}", 1000 if i % 100 else 1_000_000) for i in range(1000)]
    stored = plan.stored_bytes(segments)
    needed = plan.needed_bytes(segments, plan.RowRequest(), stored)
    assert len(asked) <= 8
    assert needed.sum() == pytest.approx(stored.sum() / 10, rel=0.01)
    assert np.array_equal(plan.needed_bytes(segments[:3], plan.RowRequest(), stored[:3]), stored[:3] // 10)
