"""Policies of errors: which matches, what is called again, and which rows are left null."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine.errors import SkipThresholdExceededError, UsageError
from chunkmill.engine.tables import (
    Fail,
    Retry,
    RowFailure,
    Skip,
    check_skipped,
    fail_fast,
    guarded_compute,
    policy_for,
    retry_all,
    retry_transient,
    skip_on_error,
    udf,
)
from hypothesis import given, settings
from hypothesis import strategies as st


def rows(count: int) -> pa.RecordBatch:
    return pa.record_batch({"a": pa.array(range(count), pa.int64())})


def addresses(count: int) -> list[int]:
    return [(7 << 32) + row for row in range(count)]


class WorseError(ValueError):
    pass


# ---------------------------------------------------------------------------------------------------------- matching


def test_the_first_policy_that_matches_decides() -> None:
    policies = (Fail(WorseError), Retry(ConnectionError), Skip(ValueError, match="bad"), Skip(KeyError))
    assert policy_for(policies, WorseError("bad")) == (0, policies[0])
    assert policy_for(policies, ConnectionResetError()) == (1, policies[1])
    assert policy_for(policies, ValueError("a bad row")) == (2, policies[2])
    assert policy_for(policies, ValueError("another")) is None
    assert policy_for(policies, KeyError("k")) == (3, policies[3])
    assert policy_for(policies, TypeError()) is None


@pytest.mark.parametrize("kind", [Retry, Skip, Fail])
def test_a_policy_without_classes_is_for_all_errors_that_tell_of_a_row(kind: type) -> None:
    assert all(kind().matches(error) for error in (ValueError(), OSError(), RuntimeError()))
    assert not any(kind().matches(error) for error in (MemoryError(), KeyboardInterrupt(), SystemExit()))
    assert kind(MemoryError).matches(MemoryError())
    assert not kind(match="x").matches(ValueError("y"))


@pytest.mark.parametrize(
    ("make", "kind", "said"),
    [
        (lambda: Skip("ValueError"), TypeError, "Skip needs exception classes, not 'ValueError'"),
        (lambda: Retry(KeyboardInterrupt), TypeError, "Retry needs exception classes"),
        (lambda: Skip(match="("), UsageError, r"match='\(' is not a regular expression"),
        (lambda: Skip(match=5), TypeError, "a regular expression as text, not 5"),
        (lambda: Retry(backoff="slow"), UsageError, "backoff must be 'exponential', 'fixed' or 'linear', not 'slow'"),
        (lambda: Retry(max_attempts=0), UsageError, "max_attempts must be at least 1, not 0"),
        (lambda: Skip(max_skip_count=-1), UsageError, "max_skip_count must be a number of rows"),
        (lambda: Skip(max_skip_fraction=1.5), UsageError, "max_skip_fraction must be between 0 and 1, not 1.5"),
    ],
)
def test_policies_that_make_no_sense_are_refused(make: Any, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        make()


def test_the_four_lists() -> None:
    (transient,) = retry_transient(5, "linear")
    assert (transient.max_attempts, transient.backoff) == (5, "linear")
    assert [transient.matches(e) for e in (ConnectionError(), TimeoutError(), ValueError())] == [True, True, False]
    (always,) = retry_all()
    assert (always.max_attempts, always.matches(ValueError())) == (3, True)
    (skip,) = skip_on_error(max_skip_count=2, max_skip_fraction=0.5)
    assert (skip.max_skip_count, skip.max_skip_fraction, skip.matches(ValueError())) == (2, 0.5, True)
    (fail,) = fail_fast()
    assert isinstance(fail, Fail)
    assert repr(Retry(OSError, match="x")) == "Retry(OSError, match='x', max_attempts=3, backoff='exponential')"


def test_delays() -> None:
    assert [Retry(backoff="exponential").delay(n) for n in (1, 2, 3, 99)] == [0.1, 0.2, 0.4, 30.0]
    assert [Retry(backoff="fixed").delay(n) for n in (1, 2, 99)] == [0.1, 0.1, 0.1]
    assert [Retry(backoff="linear").delay(n) for n in (1, 2, 400)] == [0.1, 0.2, 30.0]


def test_limits_of_skipped_rows() -> None:
    assert not Skip().exceeded(10, 10)
    assert [Skip(max_skip_count=2).exceeded(n, 10) for n in (2, 3)] == [False, True]
    assert [Skip(max_skip_fraction=0.2).exceeded(n, 10) for n in (2, 3)] == [False, True]
    assert Skip(max_skip_count=0).exceeded(1, 10)
    assert not Skip(max_skip_fraction=0.1).exceeded(0, 0)
    policies = (Skip(WorseError, max_skip_count=1), Retry(OSError), Skip())
    check_skipped(policies, {0: 1, 2: 9}, 10)
    with pytest.raises(
        SkipThresholdExceededError, match=r"2 of 10 rows were skipped.*Skip\(WorseError, max_skip_count=1\)"
    ):
        check_skipped(policies, {0: 2}, 10)


# --------------------------------------------------------------------------------------------------------- computing


def test_without_a_policy_the_error_is_raised() -> None:
    calls = []

    @udf
    def bad(a: int) -> int:
        calls.append(a)
        raise WorseError(f"bad {a}")

    for made in (bad, udf(on_error=fail_fast())(bad.function), udf(on_error=[Skip(KeyError)])(bad.function)):
        with pytest.raises(WorseError, match="bad 0"):
            guarded_compute(made, rows(3), addresses(3))
    assert calls == [0, 0, 0]


def test_a_batch_is_tried_again_with_delays() -> None:
    delays: list[float] = []
    left = [2]

    @udf(on_error=[Retry(ConnectionError, max_attempts=3)])
    def shaky(a: int) -> int:
        if a == 1 and left[0]:
            left[0] -= 1
            raise ConnectionError("lost")
        return a

    values, failed = guarded_compute(shaky, rows(3), addresses(3), sleep=delays.append)
    assert (values.to_pylist(), failed, delays) == ([0, 1, 2], [], [0.1, 0.2])
    left[0] = 3
    with pytest.raises(ConnectionError, match="lost") as caught:
        guarded_compute(shaky, rows(3), addresses(3), sleep=delays.append)
    record = RowFailure.of(caught.value, batch_index=4)
    assert (record.attempt, record.max_attempts, record.row_address, record.batch_index) == (3, 3, None, 4)


def test_a_row_that_fails_is_null_and_told() -> None:
    @udf(on_error=[Retry(OSError), Skip(ValueError)])
    def bad(a: int) -> float:
        if a in (3, 17):
            raise ValueError(f"bad {a}")
        return a / 2

    values, failed = guarded_compute(bad, rows(20), addresses(20))
    assert values.to_pylist() == [None if a in (3, 17) else a / 2 for a in range(20)]
    assert values.type == pa.float32()
    assert [(f.error_type, f.error_message, f.row_address, f.policy) for f in failed] == [
        ("ValueError", "bad 3", (7 << 32) + 3, 1),
        ("ValueError", "bad 17", (7 << 32) + 17, 1),
    ]
    assert [(f.attempt, f.max_attempts) for f in failed] == [(1, 1), (1, 1)]
    assert all(4 <= f.bisect_depth <= 5 for f in failed)
    assert all("raise ValueError" in f.error_trace for f in failed)


def test_halves_are_matched_anew() -> None:
    @udf(on_error=[Retry(ConnectionError), Skip(ValueError)])
    def mixed(a: int) -> int:
        if a == 1:
            raise ValueError("skipped")
        if a == 6:
            raise ConnectionError("lost")
        return a

    delays: list[float] = []
    with pytest.raises(ConnectionError) as caught:
        guarded_compute(mixed, rows(8), addresses(8), sleep=delays.append)
    assert delays == [0.1, 0.2]
    record = RowFailure.of(caught.value)
    assert (record.attempt, record.max_attempts, record.bisect_depth) == (3, 3, 1)


def test_a_wrong_result_is_skipped_like_an_error() -> None:
    @udf(on_error=skip_on_error())
    def wrong(a: int) -> int:
        return a if a else "none"

    values, failed = guarded_compute(wrong, rows(3), addresses(3))
    assert values.to_pylist() == [None, 1, 2]
    assert failed[0].error_type == "FunctionResultError"


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt, SystemExit])
def test_what_ends_a_process_is_never_skipped(error: type[BaseException]) -> None:
    calls = []

    def f(a: int) -> int:
        calls.append(a)
        raise error

    for policies in (skip_on_error(), retry_all()):
        with pytest.raises(error):
            guarded_compute(udf(on_error=policies)(f), rows(2), addresses(2))
    assert len(calls) == 2


def test_rows_of_several_columns_are_null_as_a_whole() -> None:
    @udf(pa.struct([("x", pa.int8())]), on_error=skip_on_error())
    def struct(a: int):
        return {"x": 1 // a}

    values, _ = guarded_compute(struct, rows(2), addresses(2))
    assert values.to_pylist() == [None, {"x": 1}]
    assert values.flatten()[0].to_pylist() == [None, 1]


def called_with(failing: set[int], count: int, *, by_row: bool) -> tuple[pa.Array, list[RowFailure], list[list[int]]]:
    """The column of a function that fails for some rows, its failures, and the rows of each call."""
    calls: list[list[int]] = []

    def row(a: int) -> int:
        if a in failing:
            raise ValueError(a)
        return a * 10

    def whole(a: pa.Array) -> pa.Array:
        values = a.to_pylist()
        calls.append(values)
        return pa.array([row(value) for value in values], pa.int64())

    def one(a: int) -> int:
        calls.append([a])
        return row(a)

    made = udf(pa.int64(), on_error=skip_on_error())(one if by_row else whole)
    return *guarded_compute(made, rows(count), addresses(count)), calls


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 70).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))), st.booleans())
def test_exactly_the_rows_that_fail_are_skipped(case: tuple[int, set[int]], by_row: bool) -> None:
    count, failing = case
    values, failed, calls = called_with(failing, count, by_row=by_row)
    assert values.to_pylist() == [None if row in failing else row * 10 for row in range(count)]
    assert [failure.row_address for failure in failed] == [(7 << 32) + row for row in sorted(failing)]
    levels = 1 + math.ceil(math.log2(count))
    if by_row:
        assert all(calls.count([row]) <= levels for row in range(count))
    else:
        assert len(calls) <= min(1 + 2 * len(failing) * levels, 2 * count - 1)
        assert sum(map(len, calls)) <= count * levels


# ---------------------------------------------------------------------------------------------------------- failures


def test_a_failure_is_json_and_comes_back() -> None:
    try:
        raise WorseError("x" * 10_000)
    except WorseError as error:
        failure = RowFailure.of(error, 5, batch_index=2, policy=0)
    assert len(failure.error_message) == 4000
    assert len(failure.error_trace) <= 4000
    assert RowFailure.from_dict(json.loads(json.dumps(failure.to_dict()))) == failure
    assert failure.timestamp.tzinfo is not None


def test_an_error_without_a_text_is_told() -> None:
    class SilentError(Exception):
        __slots__ = ()

        def __str__(self) -> str:
            raise RuntimeError

    failure = RowFailure.of(SilentError())
    assert (failure.error_type.rpartition(".")[2], failure.error_message) == (
        "SilentError",
        "an error without a text",
    )


@pytest.mark.parametrize(
    "change",
    [
        {"error_type": 5},
        {"row_address": "5"},
        {"attempt": None},
        {"attempt": True},
        {"attempt": 1.5},
        {"timestamp": "yesterday"},
        {"more": 1},
        {"timestamp": None},
    ],
)
def test_anything_else_is_no_failure(change: dict) -> None:
    data = RowFailure.of(ValueError("x"), 1).to_dict()
    with pytest.raises(ValueError, match=r"row failure|failure of a row|isoformat"):
        RowFailure.from_dict({**data, **change})
    for other in (None, [], {}, {"error_type": "x"}):
        with pytest.raises(ValueError, match="not a failure of a row"):
            RowFailure.from_dict(other)  # type: ignore[arg-type]
