"""Video samples, alone or several in one buffer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ticks = npt.NDArray[np.int64]


class VideoSample(NamedTuple):
    """One encoded picture. Times are in ticks of the track's time base.

    ``pts`` is its display time, and ``dts`` is its decoding time. ``data`` is in Annex B form for H.264 and H.265.
    """

    pts: int
    dts: int
    is_keyframe: bool
    data: bytes


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Consecutive samples: sample ``i`` is ``data[offsets[i]:offsets[i + 1]]``.

    ``pts`` and ``dts`` (ticks) and ``is_keyframe`` (bools) have shape ``(n,)``, ``offsets`` has shape ``(n + 1,)``.
    """

    pts: Ticks
    dts: Ticks
    is_keyframe: npt.NDArray[np.bool_]
    offsets: Ticks
    data: memoryview

    @classmethod
    def of(cls, samples: Iterable[VideoSample]) -> SampleBatch:
        """Make a batch of samples."""
        given = list(samples)
        return cls(
            np.array([sample.pts for sample in given], np.int64),
            np.array([sample.dts for sample in given], np.int64),
            np.array([sample.is_keyframe for sample in given], np.bool_),
            offsets_of([len(sample.data) for sample in given]),
            memoryview(b"".join(sample.data for sample in given)),
        )

    def part(self, begin: int, end: int) -> SampleBatch:
        """Return the samples from ``begin`` up to, but not including, ``end``, without copying bytes."""
        low, high = int(self.offsets[begin]), int(self.offsets[end])
        rows, offsets = slice(begin, end), self.offsets[begin : end + 1] - low
        return SampleBatch(self.pts[rows], self.dts[rows], self.is_keyframe[rows], offsets, self.data[low:high])

    def __len__(self) -> int:
        return len(self.pts)

    def __iter__(self) -> Iterator[VideoSample]:
        """Yield each sample with a copy of its bytes."""
        ends = self.offsets.tolist()
        for row, facts in enumerate(zip(self.pts.tolist(), self.dts.tolist(), self.is_keyframe.tolist(), strict=True)):
            yield VideoSample(*facts, bytes(self.data[ends[row] : ends[row + 1]]))


def joined(batches: Sequence[SampleBatch]) -> SampleBatch:
    """Join batches."""
    return SampleBatch(
        np.concatenate([batch.pts for batch in batches]),
        np.concatenate([batch.dts for batch in batches]),
        np.concatenate([batch.is_keyframe for batch in batches]),
        offsets_of(np.concatenate([np.diff(batch.offsets) for batch in batches])),
        memoryview(b"".join([batch.data for batch in batches])),
    )


def offsets_of(sizes: Iterable[int] | Ticks) -> Ticks:
    """Return the offset of each of several consecutive items, and the end of the last one, from their sizes.

    >>> offsets_of([2, 3]).tolist()
    [0, 2, 5]
    """
    given = np.asarray(sizes if isinstance(sizes, np.ndarray) else list(sizes), np.int64)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(given)])
