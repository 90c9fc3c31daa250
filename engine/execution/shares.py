"""How the tasks of a work are dealt out to Spark: several neighbours to one Spark task, where there are many.

Between two tasks a worker waits 10 to 20 ms for the JVM, more than a small split takes. What a split is does not
depend on it, nor does the output: only how often Spark is asked for the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..limits import MIB

_MOST_BYTES: Final = 128 * MIB
_MOST: Final = 16
"""What one Spark task may hold: all of it is done again when its worker dies."""

_RUNS: Final = 2
"""Each slot gets so many shares of what is left, or more: they get smaller towards the end, which all reach at once."""

_TASK: Final = MIB
"""A task costs as much as so many bytes, however small its split."""


def shares(sizes: Sequence[int], slots: int) -> list[int]:
    """Where the shares of neighbouring tasks begin, and where the last ends, for ``slots`` that run at once.

    ``sizes`` are those of the tasks, in source bytes.

    >>> shares([20 << 20] * 14, 2)
    [0, 3, 5, 7, 8, 9, 10, 11, 12, 13, 14]
    >>> shares([20 << 20] * 14, 16) == list(range(15))
    True
    """
    left = sum(sizes) + _TASK * len(sizes)
    starts = [0]
    fill = 0
    room = _room(left, slots)
    for index, size in enumerate(sizes):
        weight = size + _TASK
        if index > starts[-1] and (fill + weight > room or index - starts[-1] == _MOST):
            starts.append(index)
            left -= fill
            fill, room = 0, _room(left, slots)
        fill += weight
    return [*starts, len(sizes)] if sizes else starts


def _room(left: int, slots: int) -> int:
    return min(left // (_RUNS * slots), _MOST_BYTES)
