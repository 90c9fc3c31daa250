"""CDR messages that are compressed one by one."""

from __future__ import annotations

import struct
import time

import numpy as np
import pytest
import zstandard
from cdr_writer import join
from chunkmill.readers.mcap.decoding import Ros2Decoder, ros

TEXT = b"uint32 n\nstring s"


def raw(number: int, text: bytes = b"word") -> bytes:
    return b"\0\1\0\0" + struct.pack("<II", number, len(text) + 1) + text + b"\0"


def streamed(data: bytes) -> bytes:
    """A frame that does not say how much it holds."""
    return zstandard.ZstdCompressor(write_content_size=False).compress(data)


@pytest.mark.parametrize("pack", [zstandard.compress, streamed])
def test_compressed_and_other_messages_come_in_order(pack: object) -> None:
    messages = [raw(i) if i % 3 == 0 else pack(raw(i)) for i in range(40)]  # type: ignore[operator]
    decoder = Ros2Decoder("p/msg/T", TEXT)
    decoded = decoder.decode(*join(messages))
    assert decoded.values.to_pylist() == [{"n": i, "s": "word"} for i in range(40)]
    assert not len(decoded.bad)
    plain = decoder.decode_plain(*join(messages))  # type: ignore[attr-defined]
    assert plain.values.equals(decoded.values)


def test_damage_is_said_of_the_right_message() -> None:
    whole = zstandard.compress(raw(7))
    wrong = [whole[:-3], whole + b"x", whole[:4], zstandard.compress(b"\0\1\0\0"), zstandard.compress(whole), b"(\xb5"]
    messages = [raw(0), *wrong, whole]
    decoded = Ros2Decoder("p/msg/T", TEXT).decode(*join(messages))
    assert decoded.bad.tolist() == [1, 2, 3, 4, 5, 6]
    assert "cannot be decompressed" in decoded.reasons[0]
    assert "is not a supported encoding" in decoded.reasons[4]
    assert decoded.values.to_pylist() == [{"n": 0, "s": "word"}, {"n": 7, "s": "word"}]


@pytest.mark.heavy
def test_bombs_are_refused() -> None:
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(300 << 20))
    lying = bytearray(zstandard.compress(raw(1)))
    lying[4:6] = b"\xe0\xff"  # says that its size has eight bytes, and that is enormous
    began = time.process_time()
    decoded = Ros2Decoder("p/msg/T", TEXT).decode(*join([bomb, bytes(lying), zstandard.compress(raw(1))]))
    assert time.process_time() - began < 1
    assert decoded.bad.tolist() == [0, 1]
    assert "too many" in decoded.reasons[0]
    assert len(decoded.values) == 1


def test_several_share_what_they_may_become(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ros, "FREE_EXPANSION", 2500)
    monkeypatch.setattr(ros, "MAX_COMPRESSION_RATIO", 1)
    packs = (zstandard.compress, zstandard.compress, streamed, zstandard.compress)
    some = [pack(raw(1, b"x" * 1000)) for pack in packs]
    decoded = Ros2Decoder("p/msg/T", TEXT).decode(*join(some))
    assert decoded.bad.tolist() == [2, 3]
    assert np.array_equal([len(row["s"].as_py()) for row in decoded.values], [1000, 1000])
