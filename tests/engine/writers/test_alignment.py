"""Alignment beside a slow oracle that looks at one frame after the other."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from chunkmill.engine.errors import UsageError
from chunkmill.engine.writers.alignment import (
    EXACT,
    HELD,
    INTERPOLATED,
    MISSING,
    Aligned,
    Alignment,
    Outside,
    Rule,
    align,
    frame_times,
    interpolated,
    slerped,
)
from hypothesis import given
from hypothesis import strategies as st

SECOND = 1_000_000_000
Frame = tuple[int, int, int, int]
"""The two samples, the staleness and the outcome of one frame."""


def oracle(times: list[int], frame: int, alignment: Alignment) -> Frame:
    """What one frame takes, found by going over all samples."""
    samples = {time + alignment.offset: index for index, time in enumerate(times)}  # the last one of a time counts
    before = max((time for time in samples if time <= frame), default=None)
    after = min((time for time in samples if time >= frame), default=None)
    sides = [before] if alignment.rule is Rule.LATEST else [before, after]
    near = min((time for time in sides if time is not None), key=lambda time: abs(time - frame), default=None)
    if near is None:
        return -1, -1, 0, MISSING
    staleness = abs(near - frame)
    if alignment.tolerance is not None and staleness > alignment.tolerance:
        if alignment.outside is Outside.HOLD:
            return samples[near], samples[near], staleness, HELD
        return -1, -1, staleness, MISSING
    is_line = alignment.rule in (Rule.LINEAR, Rule.SLERP)
    if is_line and before is not None and after is not None and before != after:
        return samples[before], samples[after], staleness, INTERPOLATED
    return samples[near], samples[near], staleness, EXACT


alignments = st.builds(
    Alignment,
    rule=st.sampled_from(Rule),
    tolerance=st.none() | st.integers(0, 40),
    outside=st.sampled_from(Outside),
    offset=st.integers(-20, 20),
)


@given(st.lists(st.integers(-100, 100), max_size=30), st.lists(st.integers(-150, 150), max_size=30), alignments)
def test_it_is_what_the_oracle_says(times: list[int], frames: list[int], alignment: Alignment) -> None:
    frames.sort()
    aligned = align(np.array(times, np.int64), np.array(frames, np.int64), alignment)
    rows = zip(aligned.first, aligned.second, aligned.staleness, aligned.outcome, strict=True)
    assert [tuple(map(int, row)) for row in rows] == [oracle(times, frame, alignment) for frame in frames]
    values = np.array([[time + alignment.offset] for time in times], float).reshape(-1, 1)
    made = interpolated(values, aligned)[:, 0]
    between = aligned.outcome == INTERPOLATED
    assert np.allclose(made[between], np.array(frames)[between])  # the line of the times is the frame's time
    assert np.isnan(made).tolist() == (aligned.outcome == MISSING).tolist()


@given(st.integers(-(10**18), 10**18), st.integers(0, 4 * 3600 * SECOND), st.fractions(Fraction(1, 10), 1000))
def test_frames_do_not_drift(start: int, length: int, fps: Fraction) -> None:
    length = min(length, int(5000 * SECOND / fps))
    times = frame_times(start, start + length, fps)
    for number in {0, len(times) // 2, len(times) - 1}:
        assert times[number] - start == math.floor(number * SECOND / fps + Fraction(1, 2))
    assert times[-1] <= start + length < start + math.floor(len(times) * SECOND / fps + Fraction(1, 2))


def turn(degrees: float) -> list[float]:
    half = math.radians(degrees) / 2
    return [0.0, 0.0, math.sin(half), math.cos(half)]


@pytest.mark.parametrize(("ends", "middle"), [((0, 90), 45), ((0, 1e-7), 5e-8), ((-170, 170), 180), ((10, 10), 10)])
def test_rotations_take_the_shorter_way(ends: tuple[float, float], middle: float) -> None:
    values = np.array([turn(degrees) for degrees in ends])
    aligned = align(np.array([0, 10]), np.array([0, 5]), Alignment(Rule.SLERP))
    first, second = slerped(values, aligned)
    assert np.array_equal(first, values[0])
    assert abs(second @ turn(middle)) == pytest.approx(1)


def test_what_is_no_rotation_is_an_error() -> None:
    aligned = align(np.array([0, 10]), np.array([5]), Alignment(Rule.SLERP))
    with pytest.raises(UsageError, match="four numbers"):
        slerped(np.zeros((2, 3)), aligned)
    with pytest.raises(UsageError, match="length of a quaternion is zero"):
        slerped(np.zeros((2, 4)), aligned)


def test_infinite_and_missing_values_are_not_computed_with() -> None:
    aligned = align(np.array([0, 10]), np.array([0, 10]), Alignment(Rule.LINEAR))
    assert interpolated(np.array([[np.inf], [1.0]]), aligned).tolist() == [[np.inf], [1.0]]
    assert isinstance(aligned, Aligned)
    assert aligned.count(EXACT) == 2
    assert aligned.count(EXACT, np.array([True, False])) == 1


def test_rules_that_cannot_be_are_errors() -> None:
    with pytest.raises(UsageError, match="negative"):
        Alignment(tolerance=-1)
    with pytest.raises(UsageError, match="above zero"):
        frame_times(0, 1, 0)
