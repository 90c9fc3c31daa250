"""Plans: the sample at each place of an epoch.

A plan is made from the samples of a source, a strategy, a seed and the number of the epoch. It does not depend on the
number of ranks and workers. They take places of one order, step by step, so the consumed samples are its beginning.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import ReadWarning, UsageError

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX: Final = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST: Final = np.uint64(31)


def _mixed(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    for shift, factor in _MIX:
        words = (words ^ (words >> shift)) * factor
    return words ^ (words >> _LAST)


def random_keys(count: int, *seeds: int) -> npt.NDArray[np.uint64]:
    """Return random integers that depend only on the seeds, not on the machine or NumPy's version.

    >>> random_keys(2, 7).tolist() == random_keys(5, 7)[:2].tolist()
    True
    """
    state = np.zeros(1, np.uint64)
    for seed in seeds:
        state = _mixed((state ^ np.uint64(seed % (1 << 64))) + _STEP)
    return _mixed(state + _STEP * np.arange(1, count + 1, dtype=np.uint64))


class Blocks(NamedTuple):
    """Samples that are read together: block ``i`` has the samples ``range(starts[i], starts[i + 1])``.

    ``groups`` has the group of each block, ascending: blocks of a group are parts of the same chunks. None: each block
    is a group.
    """

    starts: Integers
    groups: Integers | None = None

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def largest(self) -> int:
        """The number of samples of the largest block."""
        return int(np.diff(self.starts).max(initial=0))

    def of(self, samples: Integers) -> Integers:
        """Return the block of each sample."""
        numbers: Integers = np.searchsorted(self.starts, samples, side="right") - 1
        return numbers


class ShuffleStrategy(Protocol):
    """A strategy that orders the samples of an epoch."""

    def order(self, blocks: Blocks, run: int, *seeds: int) -> Integers:
        """Return all samples of the blocks, each once. Readers take ``run`` consecutive places at a time."""
        ...

    def horizon(self, blocks: Blocks, run: int) -> int:
        """Return the number of places over which a block's samples are spread, or the number of places read at once."""
        ...


RUN: Final = 32
"""The default number of consecutive places that a reader takes."""

FETCHED: Final = 128
"""The number of places whose data is read together when a sample is missing."""


@dataclass(frozen=True)
class NoShuffle:
    """The order of recording, segment by segment."""

    def order(self, blocks: Blocks, run: int, *seeds: int) -> Integers:  # noqa: ARG002
        """Return all samples in ascending order."""
        return np.arange(blocks.starts[0], blocks.starts[-1])

    def horizon(self, blocks: Blocks, run: int) -> int:
        """Return the number of samples of the largest block: its places are consecutive."""
        return max(blocks.largest, run)


@dataclass(frozen=True)
class SampleShuffle:
    """A random permutation of all samples.

    For video, use :class:`BlockShuffle`: here, each sample is decoded again from its key frame, unless samples of the
    same group of pictures happen to be near.
    """

    def order(self, blocks: Blocks, run: int, *seeds: int) -> Integers:  # noqa: ARG002
        """Return all samples in random order."""
        first, stop = int(blocks.starts[0]), int(blocks.starts[-1])
        return first + np.argsort(random_keys(stop - first, *seeds), kind="stable")

    def horizon(self, blocks: Blocks, run: int) -> int:  # noqa: ARG002
        """Return the number of places that are read at once."""
        return max(FETCHED, run)


_LEAST_GROUPS: Final = 4
"""The least groups per lane: with fewer, single blocks are shuffled, so that lanes end at about the same time."""


def _ranges(values: Integers, ends: Integers, chosen: Integers) -> Integers:
    """Return the values of the chosen ranges, concatenated. ``ends`` are the ends of consecutive ranges."""
    counts = np.diff(ends, prepend=0)[chosen]
    before = np.cumsum(counts) - counts
    places = np.arange(int(counts.sum())) + np.repeat(ends[chosen] - counts - before, counts)
    taken: Integers = values[places]
    return taken


@dataclass(frozen=True)
class BlockShuffle:
    """Blocks in random order, with samples mixed among nearby blocks.

    A block is some consecutive samples of a segment. With video, it has whole groups of pictures, so that each group is
    fetched and decoded once. If the data does not fit into the cache, the blocks of a chunk are consecutive, in random
    order, so that the chunk is fetched once. Each sample moves by less than ``buffer_size`` places from its block, so
    memory holds about ``buffer_size`` decoded samples and one block per lane. A larger ``buffer_size``, compared with a
    block, makes batches more random. The blocks are distributed over ``lanes``, which share the buffer; batches are
    taken from the lanes in turn. If the number of ranks times the number of workers divides ``lanes``, no block is read
    by two processes.

    Parameters
    ----------
    buffer_size
        The number of samples that are mixed, over all lanes. None: a block's samples stay consecutive in their lane.
    lanes
        The number of parts that are read in parallel: the number of workers of all ranks, or a multiple of it.
    min_fill
        Accepted for scripts written for Rerun, but without effect, with a warning.

    Raises
    ------
    ValueError
        An argument is less than 1, or ``min_fill`` is given without ``buffer_size``.
    """

    buffer_size: int | None = 1024
    lanes: int = 8
    min_fill: int | None = None

    def __post_init__(self) -> None:
        if any(number is not None and number < 1 for number in (self.buffer_size, self.lanes, self.min_fill)):
            raise UsageError(f"{self}: each number must be at least 1")
        if self.min_fill is not None:
            if self.buffer_size is None:
                raise UsageError(f"{self}: min_fill needs a buffer_size")
            text = "min_fill has no effect here: the first sample does not wait"
            warnings.warn(ReadWarning(text), stacklevel=3)

    def __repr__(self) -> str:
        return f"BlockShuffle(buffer_size={self.buffer_size}, lanes={self.lanes})"

    @property
    def _reach(self) -> int:
        """The most places in its lane by which a sample is moved."""
        return max((self.buffer_size or 0) // self.lanes, 1)

    def order(self, blocks: Blocks, run: int, *seeds: int) -> Integers:
        """Return all samples: blocks in random order, mixed within each lane. Lanes take turns with ``run`` samples."""
        groups = blocks.groups
        if groups is None or groups[-1] + 1 < _LEAST_GROUPS * self.lanes:
            groups = np.arange(len(blocks))
        chosen = np.argsort(random_keys(int(groups[-1]) + 1 if len(groups) else 0, *seeds, 1), kind="stable")
        within = np.argsort(random_keys(len(blocks), *seeds, 4), kind="stable")
        of_group = within[np.argsort(groups[within], kind="stable")]
        ends = np.cumsum(np.bincount(groups, minlength=len(chosen)))
        sizes = np.diff(blocks.starts)
        samples: list[Integers] = []
        runs: list[Integers] = []
        for lane in range(min(self.lanes, len(chosen))):
            mine = _ranges(of_group, ends, chosen[lane :: self.lanes])
            counts = sizes[mine]
            before = np.cumsum(counts) - counts
            places = np.arange(int(counts.sum()))
            of_lane = places + np.repeat(blocks.starts[mine] - before, counts)
            moved = places + random_keys(len(places), *seeds, 2, lane).astype(np.float64) * (self._reach / 2.0**64)
            samples.append(of_lane[np.argsort(moved, kind="stable")])
            runs.append(places // run)
        joined = np.concatenate([np.empty(0, np.int64), *samples])
        return joined[np.argsort(np.concatenate([np.empty(0, np.int64), *runs]), kind="stable")]

    def horizon(self, blocks: Blocks, run: int) -> int:
        """Return the number of places over which a block is spread, by mixing in its lane and by runs."""
        return self._reach * self.lanes + (blocks.largest + 2 * run) * self.lanes


STRATEGIES: Final = {cls.__name__: cls for cls in (NoShuffle, SampleShuffle, BlockShuffle)}


class Epoch(NamedTuple):
    """The samples of an epoch: the sample at each place, and whether it is a repeat of one at an earlier place."""

    samples: Integers
    is_repeat: Mask

    def __len__(self) -> int:
        return len(self.samples)


@dataclass(frozen=True)
class SamplePlan:
    """The samples of one source or several, and the rules that make epochs of them.

    ``blocks`` has the blocks of each source; samples are numbered across all sources. With ``weights``, an epoch has
    ``epoch_size`` samples, and each source has its share, exact to one sample. Samples that an epoch lacks come in the
    next one. A source that is too small for its share is repeated, with its samples marked as repeats.

    Readers take ``run`` consecutive places at a time.
    """

    blocks: tuple[Blocks, ...]
    strategy: ShuffleStrategy
    seed: int = 0
    run: int = RUN
    weights: tuple[float, ...] | None = None
    epoch_size: int | None = None

    def __post_init__(self) -> None:
        if self.run < 1:
            raise UsageError(f"run: expected 1 or more samples, got {self.run}")
        if not isinstance(self.seed, int | np.integer):
            raise UsageError(f"seed: expected a whole number, got {self.seed!r}")
        object.__setattr__(self, "seed", int(self.seed))
        if self.weights is None:
            return
        check_mixture(self.weights, self.epoch_size)
        if len(self.weights) != len(self.blocks):
            raise UsageError(f"weights: expected a number for each source, got {self.weights}")
        empty = [number for number, size in enumerate(self._sizes) if not size]
        if empty:
            raise UsageError(f"the source {empty[0]} of the mixture has no samples")

    @cached_property
    def _sizes(self) -> list[int]:
        return [int(blocks.starts[-1] - blocks.starts[0]) for blocks in self.blocks]

    def __len__(self) -> int:
        return sum(self._sizes) if self.weights is None else int(self.epoch_size or 0)

    @cached_property
    def shares(self) -> list[int]:
        """The number of an epoch's samples from each source.

        >>> blocks = [Blocks(np.array([0, 10])), Blocks(np.array([10, 30]))]
        >>> SamplePlan(tuple(blocks), NoShuffle(), weights=(0.7, 0.3), epoch_size=5).shares
        [4, 1]
        """
        if self.weights is None:
            return list(self._sizes)
        exact = np.array(self.weights) / sum(self.weights) * len(self)
        shares = np.floor(exact).astype(np.int64)
        most = np.argsort(shares - exact, kind="stable")[: len(self) - int(shares.sum())]
        shares[most] += 1
        return [int(share) for share in shares]

    @cached_property
    def horizons(self) -> list[int]:
        """For each source, the approximate number of places over which the samples of a block are spread."""
        return [
            self.strategy.horizon(blocks, self.run) * len(self) // max(share, 1)
            for blocks, share in zip(self.blocks, self.shares, strict=True)
        ]

    def epoch(self, number: int) -> Epoch:
        """Return the samples of an epoch in order. Epochs are numbered from 0."""
        if number < 0:
            raise UsageError(f"epoch: expected 0 or more, got {number}")
        if self.weights is None:
            orders = [self._order(source, number) for source in range(len(self.blocks))]
            samples = orders[0] if len(orders) == 1 else self._interleaved(orders, number)
            return Epoch(samples, np.zeros(len(samples), np.bool_))
        samples = self._interleaved([self._part(source, number) for source in range(len(self.blocks))], number)
        is_repeat = np.ones(len(samples), np.bool_)
        is_repeat[np.unique(samples, return_index=True)[1]] = False
        return Epoch(samples, is_repeat)

    def _order(self, source: int, epoch: int) -> Integers:
        return self.strategy.order(self.blocks[source], self.run, self.seed, source, epoch)

    def _part(self, source: int, epoch: int) -> Integers:
        """Return a source's samples in an epoch of a mixture: the source's orders, concatenated and cut into shares."""
        share, size = self.shares[source], self._sizes[source]
        begin, end = epoch * share, (epoch + 1) * share
        orders = [self._order(source, number) for number in range(begin // size, -(-end // size))]
        whole = np.concatenate([np.empty(0, np.int64), *orders])
        first = begin - begin // size * size
        return whole[first : first + share]

    def _interleaved(self, orders: Sequence[Integers], epoch: int) -> Integers:
        """Mix orders evenly; each keeps its own order. Without a shuffle or weights, concatenate them."""
        joined = np.concatenate(orders)
        if isinstance(self.strategy, NoShuffle) and self.weights is None:
            return joined
        owner = np.repeat(np.arange(len(orders)), [len(order) for order in orders])
        drawn = owner[np.argsort(random_keys(len(joined), self.seed, epoch, 3), kind="stable")]
        samples = np.empty_like(joined)
        samples[np.argsort(drawn, kind="stable")] = joined
        return samples


def check_mixture(weights: Collection[float], epoch_size: int | None) -> None:
    """Raise ``ValueError`` for invalid weights, and for an invalid size of an epoch."""
    for weight in weights:
        if not (isinstance(weight, int | float | np.number) and 0 < weight < math.inf):
            raise UsageError(f"weights: expected positive, finite numbers, got {weight!r}")
    if not isinstance(epoch_size, int | np.integer) or epoch_size < 1:
        raise UsageError(f"epoch_size: a mixture needs 1 or more samples per epoch, got {epoch_size!r}")


class RankStep(NamedTuple):
    """The places that a rank takes in one step. From ``distinct`` on, they are repeats that fill the last step."""

    places: Integers
    distinct: int


class Steps:
    """The steps of one rank from a place of an epoch on. All ranks have the same number of steps.

    In each step, rank ``r`` takes the ``r``-th ``batch_size`` of the next ``batch_size * world`` places. The last step
    divides the remaining places evenly; if they do not suffice, places from the beginning of the epoch are repeated.
    With ``drop_last``, the remaining places are left out, and ``dropped`` counts them.
    """

    def __init__(
        self, total: int, start: int, batch_size: int, rank: int = 0, world: int = 1, *, drop_last: bool
    ) -> None:
        if batch_size < 1 or not 0 <= rank < world:
            raise UsageError(f"expected batch_size >= 1 and 0 <= rank < world, got {batch_size}, {rank}, {world}")
        self._total, self._start, self._size, self._rank, self._world = total, start, batch_size, rank, world
        self._whole, left = divmod(max(total - start, 0), batch_size * world)
        self._share = 0 if drop_last else -(-left // world)
        self.dropped = left if drop_last else 0

    def __len__(self) -> int:
        return self._whole + bool(self._share)

    def __getitem__(self, number: int) -> RankStep:
        if not 0 <= number < len(self):
            raise IndexError(number)
        begin = self._start + number * self._size * self._world
        size = self._size if number < self._whole else self._share
        places = begin + self._rank * size + np.arange(size)
        distinct = int(np.count_nonzero(places < self._total))
        return RankStep(np.where(places < self._total, places, (places - self._total) % max(self._total, 1)), distinct)

    def of(self, numbers: range) -> tuple[Integers, Mask, list[int]]:
        """Return the places of some steps, concatenated; which of them are repeats; and the number of places per step.

        >>> places, repeats, sizes = Steps(10, 0, 4, 0, 1, drop_last=False).of(range(0, 3, 2))
        >>> places.tolist(), repeats.any(), sizes
        ([0, 1, 2, 3, 8, 9], np.False_, [4, 2])
        """
        whole = np.array([number for number in numbers if number < self._whole], np.int64)
        begins = self._start + (whole * self._world + self._rank) * self._size
        places = (begins[:, None] + np.arange(self._size)).ravel()
        last = [self[number] for number in numbers[len(whole) :]]
        repeats = [np.zeros(len(places), np.bool_), *(np.arange(len(s.places)) >= s.distinct for s in last)]
        sizes = [self._size] * len(whole) + [len(step.places) for step in last]
        return np.concatenate([places, *(step.places for step in last)]), np.concatenate(repeats), sizes

    @property
    def samples(self) -> int:
        """The number of samples in all steps of the rank, including repeats."""
        return self._whole * self._size + self._share

    def consumed(self, steps: int) -> int:
        """Return the place that all ranks together have reached after some steps."""
        if steps >= len(self):
            return self._total
        return self._start + steps * self._size * self._world


def blocks_of(
    bounds: Sequence[Integers], sizes: Sequence[int], first: int = 0, groups: Sequence[Integers] | None = None
) -> Blocks:
    """Return the blocks of segments. ``sizes`` has the samples of each, ``bounds`` the beginnings of its blocks.

    ``groups`` has the groups of each segment's blocks, numbered from 0.

    >>> blocks_of([np.array([0, 4]), np.array([0])], [6, 3]).starts.tolist()
    [0, 4, 6, 9]
    """
    ends = np.cumsum([first, *sizes])
    starts = [
        begin + np.unique(cuts[(cuts >= 0) & (cuts < end - begin)])
        for cuts, (begin, end) in zip(bounds, pairwise(ends.tolist()), strict=True)
        if end > begin
    ]
    whole = np.concatenate([*starts, ends[-1:]]).astype(np.int64)
    if groups is None:
        return Blocks(whole)
    changes = [np.diff(some, prepend=-1) for some, size in zip(groups, sizes, strict=True) if size]
    return Blocks(whole, np.cumsum(np.concatenate([np.empty(0, np.int64), *changes]) > 0) - 1)
