"""Blocks put together of compressed and raw stretches are LZ4 blocks of what went into them."""

from __future__ import annotations

import lz4.block
import numpy as np
import pytest
from chunkmill.engine.rrd import compression
from chunkmill.engine.rrd.compression import BlockBuilder, compress_stretch
from hypothesis import given, settings
from hypothesis import strategies as st

NOISE = np.random.default_rng(0).bytes(70_000)


def built(parts: list[tuple[bytes, bool]]) -> bytes:
    """A block of ``parts``, those compressed that are to be and can be."""
    block = BlockBuilder()
    for data, wanted in parts:
        stretch = compress_stretch(memoryview(data)) if wanted else None
        if stretch is None:
            block.add_raw(memoryview(data))
        else:
            block.add(stretch)
            block.add_raw(memoryview(data)[stretch.size :])
    return b"".join(block.finish())


def is_block_of(parts: list[tuple[bytes, bool]]) -> bool:
    whole = b"".join(data for data, _ in parts)
    try:
        return lz4.block.decompress(built(parts), uncompressed_size=len(whole)) == whole  # type: ignore[no-any-return]
    except lz4.block.LZ4BlockError:
        return False


repeated = st.builds(lambda part, times: part * times, st.binary(min_size=1, max_size=40), st.integers(1, 2000))
counted = st.builds(
    lambda start, count, width: np.arange(start, start + count, dtype=f"<i{width}").tobytes(),
    st.integers(0, 1000),
    st.integers(1, 3000),
    st.sampled_from([4, 8]),
)
noisy = st.builds(lambda start, size: NOISE[start : start + size], st.integers(0, 999), st.integers(0, 60_000))
stretches = st.lists(st.tuples(st.one_of(st.binary(max_size=40), repeated, counted, noisy), st.booleans()), max_size=6)


@given(parts=stretches)
@settings(deadline=None, max_examples=300)
def test_any_parts(parts: list[tuple[bytes, bool]]) -> None:
    assert is_block_of(parts)


@pytest.mark.parametrize("last", [0x50, 0xF0, 0x05, 0xFF, 0x00, 0xE1])
def test_ends_that_look_like_the_beginning_of_themselves(last: int) -> None:
    """What comes last is chosen so that counts of literals stand in it."""
    wrong = []
    for literals in (*range(40), 250, 253, 254, 255, 256, 267, 268, 269, 270, 271, 300, 600):
        tails = (
            bytes((0xF0,)) + bytes((last,)) * literals,
            bytes((last,)) * literals,
            bytes(range(256))[:literals] + bytes((last, 0xF0, literals % 256)),
        )
        for tail in tails:
            data = bytes(5000) + NOISE[:literals] + tail
            runs = ([(data, True), (NOISE[:1000], False)], [(data, True), (data, True), (tail, False), (data, True)])
            wrong += [(literals, tail) for parts in runs if not is_block_of(parts)]
    assert wrong == []


def test_most_of_what_shrinks_is_taken() -> None:
    random = np.random.default_rng(1)
    taken = 0
    for _ in range(200):
        data = np.round(random.normal(0, 10, 4000)).astype("<f8").tobytes()
        stretch = compress_stretch(memoryview(data))
        if stretch is not None:
            taken += 1
            assert stretch.compressed_size < len(data) / 2
            assert 0 <= len(data) - stretch.size < 32
    assert taken >= 190


def test_what_ends_in_noise_is_taken_too() -> None:
    for noise in 600, 5_000, 30_000:
        data = bytes(50_000) + NOISE[:noise]
        stretch = compress_stretch(memoryview(data))
        assert stretch is not None
        assert stretch.compressed_size < noise + 500
        assert is_block_of([(data, True), (data, True)])


def test_noise_is_not_taken_apart() -> None:
    assert compress_stretch(memoryview(bytes(5000) + NOISE[:60_000])) is None
    assert compress_stretch(memoryview(NOISE)) is None
    assert compress_stretch(memoryview(b"")) is None


def test_raw_parts_are_not_copied() -> None:
    raw = memoryview(NOISE)
    block = BlockBuilder()
    block.add_raw(raw)
    assert any(piece is raw for piece in block.finish())


@pytest.mark.parametrize("full", [0, 1, 3])
def test_a_count_whose_end_looks_like_the_beginning_of_another(monkeypatch: pytest.MonkeyPatch, full: int) -> None:
    """The last byte of the count of 255 literals is that with which the count of 254 begins, if they begin with 239."""
    literals = bytes((239,)) + NOISE[1 : 255 + 255 * full]
    block = bytes(20) + bytes((0xF0, *[255] * full, 240)) + literals
    monkeypatch.setattr(compression.lz4.block, "compress", lambda *_, **__: block)
    stretch = compress_stretch(memoryview(bytes(1000) + literals))
    assert stretch is None or bytes(stretch.last) == literals


def test_literals_that_look_like_their_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte less is compressed, and another: none of them tells where the literals begin."""
    tail = bytes((0xF0, 1)) + NOISE[:15] + bytes((0x50,)) + NOISE[:5]
    monkeypatch.setattr(compression, "_CUTS", 1)
    assert compress_stretch(memoryview(bytes(1000) + tail)) is None
    monkeypatch.undo()
    assert is_block_of([(bytes(1000) + tail, True), (NOISE[:99], False)])
