"""Samples of one feature, aligned to the frames of a fixed rate: the sample that each frame takes, and its staleness.

Alignment looks only at times, so that it serves numbers, images and videos alike: it gives indexes of samples, and the
weight between two of them if a rule interpolates.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import UsageError

Ticks: TypeAlias = npt.NDArray[np.int64]
"""Times in nanoseconds."""

EXACT: Final = 0
"""The value of a sample, within the tolerance of the frame."""
INTERPOLATED: Final = 1
"""A value between two samples; the nearer one is within the tolerance of the frame."""
HELD: Final = 2
"""The value of a sample, outside the tolerance of the frame."""
MISSING: Final = 3
"""There is no value."""

_MOST_OFF: Final = 0.01
"""The largest difference between the length of a pose's quaternion and 1."""


class Rule(StrEnum):
    """The rule by which a frame gets its value from samples."""

    LATEST = "latest"
    """The last sample at the frame's time or before it."""
    NEAREST = "nearest"
    """The nearest sample; if two are equally near, the earlier one."""
    LINEAR = "linear"
    """Linear interpolation between the samples on both sides; before the first and after the last sample, that sample's
    value."""
    SLERP = "slerp"
    """Spherical interpolation of unit quaternions (x, y, z, w), the shorter way; positions of poses linearly."""


class Outside(StrEnum):
    """The treatment of a frame without a sample within the tolerance."""

    HOLD = "hold"
    """Use the value anyway. A frame without any value is dropped."""
    DROP_FRAME = "drop_frame"
    DROP_EPISODE = "drop_episode"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Alignment:
    """The rule of one feature.

    ``tolerance`` and ``offset`` are in nanoseconds. The offset is added to the times of samples: for example
    -30,000,000 for a sensor with stamps 30 ms late. Without a tolerance, any distance is allowed.
    """

    rule: Rule = Rule.LATEST
    tolerance: int | None = None
    outside: Outside = Outside.HOLD
    offset: int = 0

    def __post_init__(self) -> None:
        if self.tolerance is not None and self.tolerance < 0:
            raise UsageError(f"a tolerance cannot be negative: {self.tolerance}")


@dataclass(frozen=True, slots=True)
class Aligned:
    """The samples that frames take: arrays with an item for each frame.

    ``first`` and ``second`` are indexes of samples, in the given order; -1 if there is none. ``weight`` is that of the
    second sample, 0 if the frame takes the value of one sample. ``staleness`` is the distance in nanoseconds to the
    nearer sample, 0 if there is none. ``outcome`` is one of ``EXACT``, ``INTERPOLATED``, ``HELD`` and ``MISSING``.
    """

    first: Ticks
    second: Ticks
    weight: npt.NDArray[np.float64]
    staleness: Ticks
    outcome: npt.NDArray[np.uint8]

    def count(self, outcome: int, among: npt.NDArray[np.bool_] | None = None) -> int:
        """Return the number of frames with an outcome, by default among all frames."""
        same = self.outcome == outcome
        return int(np.count_nonzero(same if among is None else same & among))


def frame_times(start: int, end: int, fps: int | Fraction) -> Ticks:
    """Return the times of frames from ``start`` to ``end`` (inclusive), each rounded by itself, so without drift.

    >>> frame_times(0, 100_000_000, 30).tolist()
    [0, 33333333, 66666667, 100000000]
    """
    rate = Fraction(fps)
    if rate <= 0:
        raise UsageError(f"a rate must be above zero: {fps}")
    if end < start:
        return np.zeros(0, np.int64)
    step, whole = 1_000_000_000 * rate.denominator, rate.numerator
    last = (end - start) * whole // step + 1  # one more, as rounding may bring it into the range
    times = [start + (2 * number * step + whole) // (2 * whole) for number in range(last + 1)]  # exact integers
    return np.array(times[: -1 if times[-1] > end else None], np.int64)


def align(times: Ticks, frames: Ticks, alignment: Alignment) -> Aligned:
    """Align samples to frames.

    Parameters
    ----------
    times
        The times of the samples, in the order in which they were recorded. They need not be sorted; of samples with the
        same time, the last one counts.
    frames
        The times of the frames, sorted.
    alignment
        The rule.
    """
    order = np.argsort(times, kind="stable")
    stamps = times[order] + alignment.offset
    if len(stamps):
        is_last = np.append(stamps[1:] != stamps[:-1], True)
        order, stamps = order[is_last], stamps[is_last]
    before = np.searchsorted(stamps, frames, side="right") - 1
    after = np.minimum(before + 1, len(stamps) - 1)
    if not len(stamps):
        nothing = np.full(len(frames), -1, np.int64)
        zeros = np.zeros(len(frames), np.int64)
        outcome = np.full(len(frames), MISSING, np.uint8)
        return Aligned(nothing, nothing.copy(), np.zeros(len(frames)), zeros, outcome)
    never = np.iinfo(np.int64).max
    to_before = np.where(before >= 0, frames - stamps[np.maximum(before, 0)], never)
    to_after = np.where(stamps[after] >= frames, stamps[after] - frames, never)
    if alignment.rule is Rule.LATEST:
        own, staleness = np.maximum(before, 0), to_before
        has_value = before >= 0
    else:
        own, staleness = np.where(to_before <= to_after, before, after), np.minimum(to_before, to_after)
        has_value = np.ones(len(frames), bool)
    is_far = staleness > (never if alignment.tolerance is None else alignment.tolerance)
    between = np.zeros(len(frames), bool)
    if alignment.rule in (Rule.LINEAR, Rule.SLERP):  # do not invent a line across a gap
        between = (before >= 0) & (to_before > 0) & (to_after < never) & ~is_far
    weight = np.zeros(len(frames))
    weight[between] = to_before[between] / (to_before[between] + to_after[between])
    outcome = np.where(between, INTERPOLATED, EXACT).astype(np.uint8)
    outcome[is_far] = HELD if alignment.outside is Outside.HOLD else MISSING
    outcome[~has_value] = MISSING
    is_there = outcome != MISSING
    first, second = np.where(between, before, own), np.where(between, after, own)
    return Aligned(
        np.where(is_there, order[first], -1),
        np.where(is_there, order[second], -1),
        weight,
        np.where(has_value, staleness, 0),
        outcome,
    )


def interpolated(values: npt.NDArray[np.float64], aligned: Aligned) -> npt.NDArray[np.float64]:
    """Return the value of each frame, on the line between its two samples; NaN for a frame without samples.

    ``values`` has a row for each sample.
    """
    if not len(values):
        return np.full((len(aligned.first), *values.shape[1:]), np.nan)
    rows = values[aligned.first].astype(np.float64)
    between = aligned.weight > 0  # only these, as infinity times zero is NaN
    weight = aligned.weight[between].reshape(-1, *[1] * (values.ndim - 1))
    rows[between] = rows[between] * (1 - weight) + values[aligned.second[between]] * weight
    rows[aligned.outcome == MISSING] = np.nan
    return rows


def slerped(values: npt.NDArray[np.float64], aligned: Aligned) -> npt.NDArray[np.float64]:
    """Return the rotation of each frame, on the shorter way between its two samples; NaN for a frame without samples.

    ``values`` are quaternions (x, y, z, w), a row for each sample; two with a frame between them are normalised.
    Positions of poses (x, y, z, and a unit quaternion) are interpolated linearly.

    Raises
    ------
    UsageError
        Values have another shape, a frame is next to a quaternion of length zero, or the last four numbers of a pose
        are not a rotation.
    """
    if values.ndim != 2 or values.shape[1] not in (4, 7):
        raise UsageError(
            f"slerp needs quaternions (four numbers) or poses (seven), not values of shape {values.shape[1:]}"
        )
    rows = interpolated(values, aligned)
    if values.shape[1] == 7:
        off = np.abs(np.linalg.norm(values[:, 3:], axis=1) - 1)
        if (off > _MOST_OFF).any():
            raise UsageError(
                "the last four of seven numbers are not a unit quaternion", hint="A pose is x, y, z, and a quaternion."
            )
        rows[:, 3:] = slerped(values[:, 3:], aligned)
        return rows
    between = aligned.weight > 0
    if not between.any():
        return rows
    left, right = values[aligned.first[between]], values[aligned.second[between]]
    lengths = [np.linalg.norm(ends, axis=1, keepdims=True) for ends in (left, right)]
    if any((length == 0).any() for length in lengths):
        raise UsageError("the length of a quaternion is zero", hint="Remove these rows, or use the rule latest.")
    left, right = left / lengths[0], right / lengths[1]
    cosine = np.sum(left * right, axis=1, keepdims=True)
    right, cosine = np.where(cosine < 0, -right, right), np.abs(cosine)
    angle = np.arccos(np.minimum(cosine, 1.0))
    weight = aligned.weight[between][:, None]
    is_near = cosine > 1 - 1e-9  # if the sine is too small to divide by, a line is as good
    sine = np.where(is_near, 1.0, np.sin(angle))
    parts = [np.where(is_near, share, np.sin(share * angle) / sine) for share in (1 - weight, weight)]
    turned = parts[0] * left + parts[1] * right
    rows[between] = turned / np.linalg.norm(turned, axis=1, keepdims=True)
    return rows
