"""Time columns: what counts as a time, and the same times as Rerun makes of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.chunk import TimeColumn
from chunkmill.engine.chunk.columns import duration_ticks

NAIVE = datetime(2020, 1, 1)  # noqa: DTZ001 - taken as UTC, as Rerun does

TIMES: list[dict[str, Any]] = [
    {"sequence": [1, 2]},
    {"sequence": np.array([1, 2], np.uint8)},
    {"sequence": []},
    {"sequence": range(3)},
    {"duration": [1.5, 1 / 3, -1.5e-9, 9e9]},
    {"duration": [1, timedelta(seconds=1.5), np.timedelta64(5, "ms")]},
    {"duration": np.array([1, 2], "timedelta64[s]")},
    {"duration": np.array([1.5, 2.5])},
    {"timestamp": [1700000000, 1.7e9 + 0.123456789, 0.1]},
    {"timestamp": [NAIVE, NAIVE.replace(tzinfo=UTC), np.datetime64("2020-01-01")]},
    {"timestamp": np.array(["2020-01-01T00:00:00.5"], "datetime64[ms]")},
    {"timestamp": np.array([1, 1700000001])},
    {"timestamp": np.array([1.5, 1.7e9 + 0.1])},
    {"timestamp": []},
]


@pytest.mark.parametrize("given", TIMES, ids=str)
def test_times_are_those_of_rerun(given: dict[str, Any]) -> None:
    rr = pytest.importorskip("rerun")
    assert TimeColumn("t", **given).as_arrow_array().equals(rr.TimeColumn("t", **given).as_arrow_array())


def test_arrow_scalars() -> None:
    stamp = TimeColumn("t", timestamp=[pa.scalar(5, pa.timestamp("s", "UTC"))])
    span = TimeColumn("t", duration=[pa.scalar(5, pa.duration("ms"))])
    assert (stamp.times.tolist(), span.times.tolist()) == ([5_000_000_000], [5_000_000])


@pytest.mark.parametrize("given", [{}, {"sequence": [1], "duration": [1]}], ids=str)
def test_exactly_one_kind(given: dict[str, Any]) -> None:
    text = r"^TimeColumn: Exactly one of `sequence`, `duration`, and `timestamp` must be set \(timeline='x'\)$"
    with pytest.raises(ValueError, match=text):
        TimeColumn("x", **given)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"timestamp": [1e18]}, ValueError, "seconds"),
        ({"timestamp": np.array([1, 1_700_000_000_000])}, ValueError, "looks like milliseconds"),
        ({"timestamp": np.array([np.iinfo(np.int64).min])}, ValueError, "seconds"),
        ({"duration": [float("nan")]}, ValueError, "seconds"),
        ({"duration": np.array([np.nan])}, ValueError, "seconds"),
        ({"timestamp": [np.datetime64("NaT", "ns")]}, ValueError, "NaT"),
        ({"timestamp": np.array(["NaT"], "M8[ns]")}, ValueError, "NaT"),
        ({"timestamp": ["2020"]}, TypeError, "timestamp must be"),
        ({"duration": [None]}, TypeError, "duration must be"),
        ({"sequence": [None]}, TypeError, "NoneType"),
        ({"sequence": 1}, TypeError, "not iterable"),
    ],
    ids=str,
)
def test_what_is_no_time(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TimeColumn("x", **given)


@pytest.mark.parametrize(
    "given",
    [
        {"timestamp": np.array(["2000-01-01", "3000-01-01"], "M8[s]")},
        {"timestamp": [np.datetime64("1500-01-01")]},
        {"duration": np.array([1, 2**40], "m8[s]")},
        {"duration": [np.timedelta64(300 * 366, "D")]},
    ],
)
def test_times_that_nanoseconds_do_not_hold_are_refused(given: dict[str, Any]) -> None:
    """numpy before 2.5 wraps them around: the year 3000 was 1830."""
    with pytest.raises(ValueError, match="it does not fit into 64 bits of nanoseconds"):
        TimeColumn("time", **given)


def test_parts_of_nanoseconds_are_left_out() -> None:
    assert duration_ticks(np.array([1_999, 2**62], "m8[ps]")).tolist() == [1, 2**62 // 1000]
