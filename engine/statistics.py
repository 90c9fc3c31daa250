"""Statistics of values, as in LeRobot datasets: of each episode, and of all episodes.

Count, minimum, maximum, mean and standard deviation are exact, also of all episodes. Quantiles of an episode are exact
for the given values. Quantiles of all episodes are computed from at most ``POINTS`` points of each episode: the rank of
the quantile q is within q ± 2 / (POINTS - 1). LeRobot takes the mean of the episodes' quantiles instead, which is not a
quantile of the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .errors import UsageError

POINTS: Final = 1_001
QUANTILES: Final = (0.01, 0.10, 0.50, 0.90, 0.99)

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Statistics:
    """The statistics of one feature. Figures are ``[d]``; ``points``, sorted and of equal weight, are ``[k, d]``.

    ``samples`` is the count in the format's sense: of frames, even if each frame of an image has many values.
    ``values`` is the number of values behind the mean.
    """

    samples: int
    values: int
    minimum: Numbers
    maximum: Numbers
    mean: Numbers
    squares: Numbers
    """The sum of squared distances from the mean."""
    points: Numbers

    @classmethod
    def of(cls, rows: npt.NDArray[Any], samples: int | None = None) -> Statistics:
        """Return the statistics of rows ``[n, d]``, or of numbers ``[n]``.

        ``samples`` is the number of frames, by default ``n``.

        Raises
        ------
        UsageError
            There are no rows, or a value is NaN or infinite.
        """
        if not len(rows):
            raise UsageError("an episode without frames has no statistics")
        numbers = np.asarray(rows).reshape(len(rows), -1).astype(np.float64)
        if not np.isfinite(numbers).all():
            row = int(np.argmin(np.isfinite(numbers).all(axis=1)))
            raise UsageError(f"row {row} has a value that is not finite", hint="Remove these frames, or fill them.")
        mean = numbers.mean(axis=0)
        points = np.sort(numbers, axis=0)
        if len(points) > POINTS:
            points = np.quantile(points, np.linspace(0, 1, POINTS), axis=0)
        return cls(
            len(rows) if samples is None else samples,
            len(rows),
            numbers.min(axis=0),
            numbers.max(axis=0),
            mean,
            ((numbers - mean) ** 2).sum(axis=0),
            points,
        )

    @classmethod
    def joined(cls, parts: Sequence[Statistics]) -> Statistics:
        """Return the statistics of all values of several parts."""
        if len(parts) == 1:
            return parts[0]
        counts = np.array([part.values for part in parts], np.float64)[:, None]
        means = np.stack([part.mean for part in parts])
        mean = (means * counts).sum(axis=0) / counts.sum()
        squares = np.stack([part.squares for part in parts]) + counts * (means - mean) ** 2
        return cls(
            sum(part.samples for part in parts),
            sum(part.values for part in parts),
            np.stack([part.minimum for part in parts]).min(axis=0),
            np.stack([part.maximum for part in parts]).max(axis=0),
            mean,
            squares.sum(axis=0),
            _points_of_all(parts),
        )

    @property
    def deviation(self) -> Numbers:
        """The standard deviation of the values as a population."""
        return np.sqrt(self.squares / self.values)

    def quantile(self, q: float) -> Numbers:
        """Return the quantile ``q`` of each dimension."""
        return np.quantile(self.points, q, axis=0)

    def to_json(self, shape: tuple[int, ...], scale: float = 1.0) -> dict[str, Any]:
        """Return the figures as ``meta/stats.json`` has them, in a shape, divided by ``scale``."""
        figures = {"min": self.minimum, "max": self.maximum, "mean": self.mean, "std": self.deviation}
        figures |= {f"q{round(q * 100):02d}": self.quantile(q) for q in QUANTILES}
        shown = {name: (figure / scale).reshape(shape).tolist() for name, figure in figures.items()}
        return {**shown, "count": [self.samples]}


def _points_of_all(parts: Sequence[Statistics]) -> Numbers:
    """Return points of equal weight for all parts; the points of a part represent different numbers of values."""
    weights = np.concatenate([np.full(len(part.points), part.values / len(part.points)) for part in parts])
    points = np.concatenate([part.points for part in parts])
    total = weights.sum()
    wanted = np.linspace(0, 1, min(POINTS, len(points)))
    columns = []
    for column in points.T:
        order = np.argsort(column, kind="stable")
        ranks = (np.cumsum(weights[order]) - weights[order] / 2) / total
        ranks = (ranks - ranks[0]) / (ranks[-1] - ranks[0])  # the first point is the minimum, the last the maximum
        columns.append(np.interp(wanted, ranks, column[order]))
    return np.stack(columns, axis=1)


def sampled_frames(frames: int) -> list[int]:
    """Return the frames of an episode that LeRobot uses for the statistics of images.

    >>> len(sampled_frames(80)), len(sampled_frames(2000)), sampled_frames(3)
    (80, 299, [0, 1, 2])
    """
    wanted = max(min(100, frames), min(int(frames**0.75), 10_000))
    return [int(frame) for frame in np.round(np.linspace(0, frames - 1, wanted))]


def pixel_step(height: int, width: int) -> int:
    """Return n if LeRobot takes every n-th pixel of an image for its statistics: more than 1 for 300 pixels or more."""
    return 1 if max(height, width) < 300 else int((width if width > height else height) / 150)


class PixelCounts:
    """Counts of each 8-bit value in each channel of images, from which their statistics are computed."""

    def __init__(self, channels: int = 3) -> None:
        self._counts = np.zeros((channels, 256), np.int64)
        self._images = 0

    def add(self, image: npt.NDArray[np.uint8], times: int = 1) -> None:
        """Count the pixels ``[height, width, channels]`` of an image, ``times`` times."""
        for channel in range(len(self._counts)):
            self._counts[channel] += times * np.bincount(image[..., channel].ravel(), minlength=256)
        self._images += times

    def statistics(self) -> Statistics:
        """Return the statistics of all pixels, which are exact."""
        if not self._images:
            raise UsageError("an episode without frames has no statistics")
        shades, total = np.arange(256.0), int(self._counts[0].sum())
        means = self._counts @ shades / total
        squares = (self._counts * (shades - means[:, None]) ** 2).sum(axis=1)
        places = np.linspace(0, total - 1, min(POINTS, total))
        before = np.floor(places).astype(np.int64)
        columns = []
        for counts in self._counts:
            ends = np.cumsum(counts)
            low, high = (np.searchsorted(ends, ranks, side="right") for ranks in (before, np.ceil(places)))
            columns.append(low + (high - low) * (places - before))
        points = np.stack(columns, axis=1)
        return Statistics(self._images, total, points[0], points[-1], means, squares, points)
