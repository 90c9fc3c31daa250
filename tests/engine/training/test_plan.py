"""The order of an epoch is a function of its plan alone, and whoever reads it takes all of it, each sample once."""

from __future__ import annotations

import random
import time
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from chunkmill.engine.errors import UsageError
from chunkmill.engine.training.plan import (
    Blocks,
    BlockShuffle,
    NoShuffle,
    SamplePlan,
    SampleShuffle,
    ShuffleStrategy,
    Steps,
    blocks_of,
    random_keys,
)
from hypothesis import given, settings
from hypothesis import strategies as st

STRATEGIES = [NoShuffle(), SampleShuffle(), BlockShuffle(64, 4), BlockShuffle(8, 1), BlockShuffle(1000, 16)]


KEYS = [1321962074176129191, 15925659190040627001, 6588988029983277238]
ORDER = [0, 9, 3, 4, 2, 1, 6, 7, 10, 11, 5, 8]


def blocks(count: int, size: int, first: int = 0) -> Blocks:
    return blocks_of([np.arange(0, count, size)], [count], first)


def taken(
    plan: SamplePlan, epoch: int, start: int, world: int, batch: int, steps: int | None, *, drop_last: bool = False
) -> list[int]:
    """What all ranks take in so many steps from a place on, step by step and rank by rank, without repeats."""
    order = plan.epoch(epoch)
    ranks = [Steps(len(order), start, batch, rank, world, drop_last=drop_last) for rank in range(world)]
    assert len({len(rank) for rank in ranks}) == 1
    count = len(ranks[0]) if steps is None else min(steps, len(ranks[0]))
    return [
        int(sample)
        for number in range(count)
        for rank in ranks
        for sample in order.samples[rank[number].places[: rank[number].distinct]]
    ]


def test_random_keys_are_the_same_for_ever() -> None:
    """A state that was kept must mean the same order in every release."""
    assert random_keys(3, 1, 2, 3).tolist() == KEYS
    order = BlockShuffle(8, 2).order(blocks(12, 3), 2, 5, 0, 0)
    assert order.tolist() == ORDER


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(count=st.integers(1, 400), size=st.integers(1, 60), run=st.integers(1, 40), seed=st.integers(0, 3))
@settings(max_examples=25, deadline=None)
def test_an_epoch_has_each_sample_once(strategy: ShuffleStrategy, count: int, size: int, run: int, seed: int) -> None:
    plan = SamplePlan((blocks(count, size),), strategy, seed, run)
    first, second = plan.epoch(0), plan.epoch(1)
    assert sorted(first.samples.tolist()) == list(range(count))
    assert not first.is_repeat.any()
    assert plan.epoch(0).samples.tolist() == first.samples.tolist()
    if count > 50 and not isinstance(strategy, NoShuffle) and size < 10:
        assert second.samples.tolist() != first.samples.tolist()


def test_other_seeds_and_sources_give_other_orders() -> None:
    orders = [SamplePlan((blocks(100, 5),), SampleShuffle(), seed).epoch(0).samples.tolist() for seed in range(3)]
    assert len({tuple(order) for order in orders}) == 3
    two = SamplePlan((blocks(100, 5), blocks(100, 5, 100)), SampleShuffle()).epoch(0).samples
    assert [n - 100 for n in two.tolist() if n >= 100] != [n for n in two.tolist() if n < 100]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("mixed", [False, True])
def test_a_job_goes_on_exactly_with_any_number_of_ranks(strategy: ShuffleStrategy, mixed: bool) -> None:
    """Twenty chains of random stops for each: what was taken before and after is the epoch, in its order."""
    draw = random.Random(7)
    for _ in range(20):
        sizes = draw.randint(1, 300), draw.randint(1, 300)
        parts = blocks(sizes[0], draw.randint(1, 40)), blocks(sizes[1], draw.randint(1, 40), sizes[0])
        weights = (0.7, 0.3) if mixed else None
        plan = SamplePlan(
            parts, strategy, draw.randint(0, 9), draw.randint(1, 16), weights, draw.randint(1, 500) if mixed else None
        )
        order = plan.epoch(2).samples.tolist()
        place, seen = 0, []
        while place < len(order):
            world, batch, steps = draw.randint(1, 8), draw.randint(1, 32), draw.randint(1, 6)
            seen += taken(plan, 2, place, world, batch, steps)
            place = Steps(len(order), place, batch, 0, world, drop_last=False).consumed(steps)
            assert seen == order[: len(seen)]
        assert seen == order


def test_the_last_step_is_even() -> None:
    ranks = [Steps(100, 0, 8, rank, 3, drop_last=False) for rank in range(3)]
    assert [len(rank) for rank in ranks] == [5, 5, 5]
    last = [rank[4] for rank in ranks]
    assert [len(step.places) for step in last] == [2, 2, 2]
    assert [step.distinct for step in last] == [2, 2, 0]
    assert last[2].places.tolist() == [0, 1], "repeats are of the epoch's beginning"
    assert sum(rank.samples for rank in ranks) == 102
    dropping = Steps(100, 0, 8, 0, 3, drop_last=True)
    assert (len(dropping), dropping.dropped, dropping.samples) == (4, 4, 32)
    assert len(Steps(0, 0, 8, drop_last=False)) == 0
    assert Steps(100, 96, 8, 0, 1, drop_last=False)[0].places.tolist() == [96, 97, 98, 99]


def test_lanes_keep_blocks_with_one_reader() -> None:
    """Where ranks times workers divide the lanes, no two readers have samples of one block."""
    plan = SamplePlan((blocks(4096, 16),), BlockShuffle(256, 8), run=32)
    order = plan.epoch(0).samples
    for world, workers in [(1, 1), (2, 2), (1, 4), (8, 1), (2, 4)]:
        reader_of: dict[int, set[tuple[int, int]]] = {}
        for rank in range(world):
            steps = Steps(len(order), 0, 32, rank, world, drop_last=False)
            for number in range(len(steps)):
                for sample in order[steps[number].places].tolist():
                    reader_of.setdefault(sample // 16, set()).add((rank, number % workers))
        shared = [block for block, readers in reader_of.items() if len(readers) > 1]
        assert len(shared) <= 16, "but for lanes that end before the others"


def test_samples_stay_near_their_block() -> None:
    strategy = BlockShuffle(128, 4)
    order = strategy.order(blocks(4000, 10), 16, 1, 2)
    places = np.empty(4000, np.int64)
    places[order] = np.arange(4000)
    spread = np.ptp(places.reshape(-1, 10), axis=1)
    assert spread.max() <= strategy.horizon(blocks(4000, 10), 16)
    assert np.median(spread) > 40, "and are mixed with others"
    neighbours = np.abs(np.diff(order)) == 1
    assert neighbours.mean() < 0.2


def test_a_mixture_has_exact_shares() -> None:
    plan = SamplePlan((blocks(50, 5), blocks(1000, 5, 50)), SampleShuffle(), weights=(0.3, 0.7), epoch_size=1001)
    epochs = [plan.epoch(number) for number in range(3)]
    for epoch in epochs:
        of_first = epoch.samples < 50
        assert (of_first.sum(), len(epoch)) == (300, 1001)
        assert epoch.is_repeat[of_first].sum() == 250, "300 samples of 50"
    assert not epochs[0].is_repeat[epochs[0].samples >= 50].any()
    large = np.concatenate([epoch.samples[epoch.samples >= 50] for epoch in epochs])
    assert np.unique(large[:1000]).size == 1000, "what an epoch did not show comes in the next one"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BlockShuffle(0), "buffer_size"),
        (lambda: SamplePlan((blocks(5, 1),), NoShuffle(), weights=(1.0,)), "epoch_size"),
        (lambda: SamplePlan((blocks(5, 1),), NoShuffle(), weights=(-1.0,), epoch_size=5), "positive"),
        (lambda: SamplePlan((blocks(0, 1),), NoShuffle(), weights=(1.0,), epoch_size=5), "no samples"),
        (lambda: SamplePlan((blocks(5, 1),), NoShuffle(), run=0), "run"),
        (lambda: SamplePlan((blocks(5, 1),), NoShuffle()).epoch(-1), "epoch"),
        (lambda: Steps(5, 0, 1, 2, 2, drop_last=False), "rank"),
    ],
)
def test_what_cannot_be_planned_is_an_error(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()


def test_blocks_of_a_chunk_follow_each_other() -> None:
    """Each sample comes once; the blocks of a group are in one lane, next to each other, in random order."""
    groups = np.arange(300) // 6
    grouped = Blocks(blocks(3000, 10).starts, groups)
    order = BlockShuffle(None, 4).order(grouped, 30, 1, 2)
    assert sorted(order.tolist()) == list(range(3000))
    lanes = [order.reshape(-1, 30)[lane : 48 * 2 : 4].ravel() for lane in range(4)]  # before lanes begin to end
    for lane in lanes:
        met = [number for number, _ in groupby((lane // 60).tolist())]
        assert len(met) == len(set(met)), "no group is left and taken up again"
    within = [number for number, _ in groupby((lanes[0] // 10).tolist())]
    assert within != sorted(within)
    places = np.argsort(np.argsort(random_keys(50, 1, 2, 1), kind="stable"))
    assert next(number for number, _ in groupby((lanes[0] // 60).tolist())) == int(np.flatnonzero(places == 0)[0])


def test_groups_of_one_block_and_few_groups_change_nothing() -> None:
    """So orders of data that a cache holds are what they were."""
    plain = blocks(3000, 10)
    for groups in (np.arange(300), np.arange(300) // 60):
        strategy = BlockShuffle(64, 4)
        assert strategy.order(Blocks(plain.starts, groups), 8, 3).tolist() == strategy.order(plain, 8, 3).tolist()


def test_places_of_steps_are_those_of_each() -> None:
    steps = Steps(103, 5, 8, 1, 3, drop_last=False)
    for numbers in (range(len(steps)), range(1, len(steps), 2), range(len(steps), len(steps))):
        places, repeats, sizes = steps.of(numbers)
        each = [steps[number] for number in numbers]
        assert sizes == [len(step.places) for step in each]
        assert places.tolist() == [place for step in each for place in step.places.tolist()]
        assert repeats.tolist() == [at >= step.distinct for step in each for at in range(len(step.places))]


@pytest.mark.parametrize("weight", [0, -1.0, float("nan"), float("inf"), "2"])
def test_weights_are_positive_numbers(weight: Any) -> None:
    two = (blocks(10, 2), blocks(10, 2, 10))
    with pytest.raises(UsageError, match="positive, finite numbers"):
        SamplePlan(two, NoShuffle(), weights=(1.0, weight), epoch_size=10)
    with pytest.raises(UsageError, match="1 or more samples per epoch"):
        SamplePlan(two, NoShuffle(), weights=(1.0, 1.0), epoch_size=2.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [1.5, "1", None])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with pytest.raises(UsageError, match="seed: expected a whole number"):
        SamplePlan((blocks(10, 2),), NoShuffle(), seed=seed)
    assert len(SamplePlan((blocks(10, 2),), SampleShuffle(), seed=np.int64(3)).epoch(0)) == 10


def test_the_horizon_of_a_source_is_its_own() -> None:
    """A rare source has its samples far from each other, and the others do not wait for it."""
    plan = SamplePlan(
        (blocks(10_000, 10), blocks(1000, 10, 10_000)), BlockShuffle(64, 4), 0, 8, (0.999, 0.001), 100_000
    )
    of_large, of_rare = plan.horizons
    assert of_large < 400 < 100_000 < of_rare


def test_a_tiny_source_with_a_large_share_is_quick() -> None:
    plan = SamplePlan((blocks(10, 5), blocks(1000, 10, 10)), BlockShuffle(64, 8), 0, 8, (0.9, 0.1), 50_000)
    began = time.perf_counter()
    order = plan.epoch(0)
    assert len(order) == 50_000 and (order.samples < 10).sum() == 45_000
    assert time.perf_counter() - began < 10
