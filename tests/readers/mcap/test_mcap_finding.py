"""Looking at the indexes of many blocks at once finds what looking at one after the other does."""

from __future__ import annotations

import random
import struct
import warnings
from itertools import product

import numpy as np
import pytest
from chunkmill.engine.errors import ReadError
from chunkmill.readers.mcap.records import Block, MessageHeads, Registry, find_in_all, find_messages, joined
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.readers.mcap.mcap_bytes import channel, message, record, schema

Pairs = dict[int, list[int]]


def block_of(parts: list[bytes], begin: int, pairs: Pairs | None = None, *, checked: bool = True) -> Block:
    """Records as they stand in an arena from ``begin``, with the index that is right unless ``pairs`` says other."""
    if pairs is None:
        pairs, at = {}, 0
        for part in parts:
            if part[0] == 5:
                pairs.setdefault(int.from_bytes(part[9:11], "little"), []).append(at)
            at += len(part)
    indexed = [(id_, b"".join(struct.pack("<QQ", 0, place) for place in places)) for id_, places in pairs.items()]
    return Block(begin, begin + sum(map(len, parts)), 1000 + begin, True, checked, indexed)


def outcome(find: object, arena: np.ndarray, blocks: list[Block]) -> tuple[object, ...]:
    """What is found, raised, warned of and registered."""
    registry = Registry("x", [], [])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found: MessageHeads = find(arena, blocks, registry, path="x")  # type: ignore[operator]
            result: tuple[object, ...] = (found.offsets.tolist(), found.heads.tolist())
        except ReadError as error:
            result = (str(error), error.offset)
    return (*result, [str(w.message) for w in caught], dict(registry.channels), dict(registry.schemas))


def one_by_one(arena: np.ndarray, blocks: list[Block], registry: Registry, *, path: str) -> MessageHeads:
    return joined([find_messages(arena, block, registry, path=path) for block in blocks])


def arena_of(runs: list[list[bytes]]) -> np.ndarray:
    return np.frombuffer(b"".join(b"".join(run) for run in runs), np.uint8)


RUNS = [
    [message(1, 1), message(2, 2, b""), message(1, 3)],
    [schema(1), channel(1), message(1, 4), channel(2, "/u"), message(2, 5), record(0x90, b"mine")],
    [message(2, 6, bytes(300))],
    [record(0x90, b""), message(1, 7), message(1, 7), message(2, 7)],
]
BEGINS = np.cumsum([0] + [sum(map(len, run)) for run in RUNS]).tolist()


def blocks_of(**how: bool) -> list[Block]:
    return [block_of(run, begin, **how) for run, begin in zip(RUNS, BEGINS[:-1], strict=True)]


def test_right_indexes_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = outcome(one_by_one, arena_of(RUNS), blocks_of())
    monkeypatch.setattr("chunkmill.readers.mcap.records.find_messages", None)
    assert outcome(find_in_all, arena_of(RUNS), blocks_of()) == expected
    offsets, heads, warned, channels, schemas = expected
    assert len(offsets) == len(heads) == 9  # type: ignore[arg-type]
    assert (warned, list(channels), list(schemas)) == ([], [1, 2], [1])  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "pairs",
    [
        {},
        {1: []},
        {1: [0]},
        {1: [0, 0]},
        {2: [0]},
        {1: [1]},
        {1: [2**63]},
        {1: [2**64 - 1]},
        {1: [BEGINS[-1]]},
        {1: [BEGINS[1]], 2: [BEGINS[2]]},
        {1: [0, 70], 2: [35]},
    ],
    ids=str,
)
def test_wrong_indexes(pairs: Pairs) -> None:
    arena = arena_of(RUNS)
    for which, checked in product(range(4), (True, False)):
        blocks = blocks_of(checked=checked)
        blocks[which] = block_of(RUNS[which], BEGINS[which], pairs, checked=checked)
        expected = outcome(one_by_one, arena, blocks)
        assert len(expected[0]) == 9, (which, checked)  # type: ignore[arg-type]
        assert outcome(find_in_all, arena, blocks) == expected, (which, checked)
        blocks[which] = blocks[which]._replace(indexed=None)
        assert outcome(find_in_all, arena, blocks)[:2] == expected[:2], (which, checked)


@settings(max_examples=200)
@given(seed=st.integers(0, 2**32 - 1))
def test_damaged_records(seed: int) -> None:
    chance = random.Random(seed)
    blocks = blocks_of(checked=chance.random() < 0.5)
    arena = arena_of(RUNS).copy()
    for _ in range(chance.randrange(1, 4)):
        run = chance.randrange(4)
        starts = np.cumsum([0, *map(len, RUNS[run])]).tolist()
        at = BEGINS[run] + chance.choice(starts[:-1]) + chance.randrange(20)
        arena[at] = chance.choice([0, 1, 3, 4, 5, 6, 9, 22, 35, 255])
    assert outcome(find_in_all, arena, blocks) == outcome(one_by_one, arena, blocks)


def test_a_record_that_reaches_into_the_next_block() -> None:
    runs = [[message(1, 1, b"")], [message(1, 2), message(1, 3)]]
    arena = arena_of(runs).copy()
    arena[1] += len(runs[1][0])  # the first record now ends where the second block's second begins
    second = block_of([runs[1][1]], len(runs[0][0]) + len(runs[1][0]))
    blocks = [block_of(runs[0], 0), second]
    assert outcome(find_in_all, arena, blocks) == outcome(one_by_one, arena, blocks)
    assert "runs past its end" in str(outcome(find_in_all, arena, blocks)[0])


def test_an_index_that_points_into_a_message() -> None:
    runs = [[message(1, 1)], [message(1, 2, message(1, 3))], [message(1, 4)]]
    blocks = [block_of(runs[0], 0), block_of(runs[1], 35, {1: [0, 31]}), block_of(runs[2], 35 + 31 + 35)]
    arena = arena_of(runs)
    assert outcome(find_in_all, arena, blocks) == outcome(one_by_one, arena, blocks)
    assert outcome(find_in_all, arena, blocks)[0] == [0, 35, 101]


def test_nothing_at_all() -> None:
    assert outcome(find_in_all, np.empty(0, np.uint8), [])[:2] == ([], [])
