"""How the tasks of a work are dealt out to Spark: several neighbours to one Spark task, where there are many.

Between two tasks a worker waits 10 to 20 ms for the JVM, more than a small split takes. What a split is does not
depend on it, nor does the output: only how often Spark is asked for the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from ..limits import MIB

_MOST: Final = 4
_MOST_BYTES: Final = 256 * MIB
"""What one Spark task may hold: all of it is done again when its worker dies."""

_LATER: Final = 8
"""Shares that each slot may still get after one: bytes do not tell how long a task takes, and a slot that has several
long ones must not be waited for."""


def shares(sizes: Sequence[int], slots: int) -> list[int]:
    """Where the shares of neighbouring tasks begin, and where the last ends, for ``slots`` that run at once.

    ``sizes`` are those of the tasks, in source bytes.

    >>> shares([20 << 20] * 40, 2)[:8]
    [0, 2, 4, 6, 8, 10, 11, 12]
    >>> shares([20 << 20] * 40, 16) == list(range(41))
    True
    """
    starts = [0]
    while (start := starts[-1]) < len(sizes):
        most = min((len(sizes) - start) // (_LATER * slots), _MOST)
        held = accumulate(sizes[start : start + most])
        starts.append(start + max(1, sum(size <= _MOST_BYTES for size in held)))
    return starts
