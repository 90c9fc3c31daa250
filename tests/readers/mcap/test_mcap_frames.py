"""What zstd frames the data of a chunk may be made of, and that nothing is written behind the room for it."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
from chunkmill.engine.errors import ReadError
from chunkmill.readers.mcap.records import ChunkHead, decompress
from hypothesis import given, settings
from hypothesis import strategies as st
from zstandard import ZstdCompressor, ZstdDecompressor

MIXED = random.Random(5).randbytes(70_000) + b"the same again " * 9000 + bytes(300_000)
NOISE = random.Random(6).randbytes(5000)
REFUSED = r"does not decompress to|holds"
SKIPPED = struct.pack("<II", 0x184D2A53, 5) + b"12345"


def one(records: bytes) -> bytes:
    return ZstdCompressor().compress(records)


def checked(records: bytes) -> bytes:
    return ZstdCompressor(write_checksum=True).compress(records)


def undeclared(records: bytes) -> bytes:
    return ZstdCompressor(write_content_size=False).compress(records)


def flushed(records: bytes) -> bytes:
    """One frame that declares its size, in so many blocks as nobody makes of so little."""
    writer = ZstdCompressor().compressobj(size=len(records))
    parts = [writer.compress(records[i : i + 50]) + writer.flush(1) for i in range(0, len(records), 50)]
    return b"".join((*parts, writer.flush()))


def several(records: bytes) -> bytes:
    return one(records[:100]) + checked(records[100:])


def skipping(records: bytes) -> bytes:
    return SKIPPED + one(records) + SKIPPED


def emptied(records: bytes) -> bytes:
    return one(records) + one(b"")


def far_seeing(records: bytes) -> bytes:
    """A window larger than streams accept, as ``zstd --ultra --long=31`` declares."""
    frame = bytearray(undeclared(records))
    frame[5] = (31 - 10) << 3
    return bytes(frame)


PACKS = [one, checked, undeclared, flushed, several, skipping, emptied, far_seeing]
Pack = Callable[[bytes], bytes]


def decompressed(data: bytes, size: int) -> bytes:
    """The records in ``data``, after looking at what stands before and behind the room for them."""
    memory = np.full(size + 200, 7, np.uint8)
    head = ChunkHead(0, 0, size, 0, "zstd", len(data), 0)
    try:
        records = decompress(head, data, memory[100 : 100 + size], ZstdDecompressor(), path="x", offset=0)
    finally:
        assert set(memory[:100]) == set(memory[100 + size :]) == {7}
    return records.tobytes()


@pytest.mark.parametrize("pack", PACKS)
@pytest.mark.parametrize("records", [b"", b"1", NOISE, bytes(2**18), MIXED], ids=len)
def test_sound_ones(pack: Pack, records: bytes) -> None:
    assert decompressed(pack(records), len(records)) == records


@pytest.mark.parametrize("pack", PACKS)
@pytest.mark.parametrize("wrong", [-100, -1, 1, 100])
def test_a_size_that_lies(pack: Pack, wrong: int) -> None:
    with pytest.raises(ReadError, match="declares"):
        decompressed(pack(NOISE), len(NOISE) + wrong)


@pytest.mark.parametrize("pack", [one, checked, flushed])
def test_cut_anywhere(pack: Pack) -> None:
    records = NOISE[:60] + bytes(200) + b"the same again " * 20
    data = pack(records)
    for size in range(len(data)):
        with pytest.raises(ReadError, match=REFUSED):
            decompressed(data[:size], len(records))


@pytest.mark.parametrize("pack", PACKS)
@pytest.mark.parametrize("more", [b"\0", b"more", bytes(50), one(b"more"), SKIPPED[:-1]], ids=len)
def test_more_behind_them(pack: Pack, more: bytes) -> None:
    with pytest.raises(ReadError, match=REFUSED):
        decompressed(pack(NOISE) + more, len(NOISE))


def test_a_wrong_checksum() -> None:
    data = checked(MIXED)
    with pytest.raises(ReadError, match="does not decompress to"):
        decompressed(data[:-1] + bytes([data[-1] ^ 1]), len(MIXED))


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32 - 1))
def test_damaged_ones_never_write_beyond_their_room(seed: int) -> None:
    chance = random.Random(seed)
    records = NOISE[:200] + b"the same again " * 50
    data = bytearray(chance.choice(PACKS)(records))
    for _ in range(chance.randrange(1, 4)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    with suppress(ReadError):
        decompressed(bytes(data), len(records))


def test_one_that_declares_its_size_goes_right_into_its_room() -> None:
    for records in (NOISE, MIXED, bytes(2**20)):
        for pack in (one, checked):
            data, out = pack(records), np.empty(len(records), np.uint8)
            head = ChunkHead(0, 0, len(records), 0, "zstd", len(data), 0)
            assert decompress(head, data, out, ZstdDecompressor(), path="x", offset=0) is out
