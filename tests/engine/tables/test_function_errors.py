"""Functions that fail, that give too much, or that take too long."""

from __future__ import annotations

import signal
import threading
import time

import pyarrow as pa
import pytest
from chunkmill.engine.errors import FunctionResultError
from chunkmill.engine.tables import udf


def batch(**columns: list) -> pa.RecordBatch:
    return pa.record_batch(columns)


def same(a: int) -> int:
    return a


def test_an_error_of_a_row_has_a_note_of_the_row() -> None:
    @udf
    def inverse(a: int) -> float:
        return 1 / a

    with pytest.raises(ZeroDivisionError) as caught:
        inverse.compute(batch(a=[2, 1, 0, 5]))
    assert caught.value.__notes__ == ["In row 2 of a batch of 4."]


@pytest.mark.parametrize("given", [[1], [1, 2, 3], []])
def test_a_result_of_another_length_is_refused(given: list) -> None:
    def wrong(a: pa.Array) -> pa.Array:
        return pa.array(given, pa.int64())

    with pytest.raises(FunctionResultError, match=rf"UDF 'wrong' returned {len(given)} values for a batch of 2 rows"):
        udf(pa.int64())(wrong).compute(batch(a=[1, 2]))


def test_a_row_that_takes_too_long_is_interrupted_in_the_main_thread() -> None:
    @udf(timeout=0.05)
    def slow(a: int) -> int:
        deadline = time.monotonic() + (5 if a == 2 else 0)
        while time.monotonic() < deadline:
            try:
                time.sleep(5 if a == 2 else 0)
            except TimeoutError:
                if deadline - time.monotonic() < 4.9:  # the first ring is swallowed, and rung again
                    raise
        return a

    start = time.monotonic()
    with pytest.raises(TimeoutError, match=r"the function took more than 0\.05 s for a row") as caught:
        slow.compute(batch(a=[1, 2, 3]))
    assert time.monotonic() - start < 2
    assert caught.value.__notes__ == ["In row 1 of a batch of 3."]
    assert slow.compute(batch(a=[1, 3])).to_pylist() == [1, 3]


def test_a_row_that_takes_too_long_is_judged_by_the_clock_in_other_threads() -> None:
    @udf(timeout=0.5)
    def slow(a: int) -> int:
        time.sleep(0.6 if a == 2 else 0)
        return a

    caught: list[Exception] = []

    def run() -> None:
        try:
            slow.compute(batch(a=[1, 2, 3]))
        except TimeoutError as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert caught[0].__notes__ == ["In row 1 of a batch of 3."]


def test_an_alarm_of_the_program_rings_after_a_timeout_of_rows() -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        udf(timeout=1)(same).compute(batch(a=[1, 2]))
        deadline = time.monotonic() + 5
        while not rung and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert rung == [signal.SIGALRM]
