"""Sizes of chunks, counted by powers of two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SizeHistogram:
    """How many chunks have how many bytes: ``counts[n]`` is the number of sizes from 2^(n-1) to 2^n - 1, 0 that of 0.

    >>> SizeHistogram.of([0, 1, 1000, 1023, 1024]).counts
    {0: 1, 1: 1, 10: 2, 11: 1}
    """

    counts: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, sizes: Iterable[int]) -> SizeHistogram:
        """Count sizes in bytes."""
        return cls(dict(sorted(Counter(size.bit_length() for size in sizes).items())))

    @classmethod
    def sum(cls, histograms: Iterable[SizeHistogram]) -> SizeHistogram:
        """All of them together."""
        total: Counter[int] = Counter()
        for histogram in histograms:
            total.update(histogram.counts)
        return cls(dict(sorted(total.items())))

    @property
    def chunks(self) -> int:
        """Number of sizes counted."""
        return sum(self.counts.values())
