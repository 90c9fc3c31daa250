"""Databases of rosbag2 that are damaged: small ones, values over several pages, inner pages, and compressed ones."""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

from fuzz_sources import Source
from mutation import LengthField
from zstandard import ZstdCompressor

sys.path.append(str(Path(__file__).parents[1]))

from rosbag2_making import KINDS, Message, some, text, write_database

_HEADER = (LengthField(16, 2), LengthField(20, 1), LengthField(28, 4), LengthField(32, 4), LengthField(52, 4))
_PAGE = 4096


def rosbag2_sources() -> list[Source]:
    """The whole of a file is without a checksum, but for what Zstandard says of a compressed one."""
    noise = random.Random(7)
    large = [
        Message(0, m.time, text(noise.randbytes(9_000).hex())) if i % 5 == 0 else m for i, m in enumerate(some(40))
    ]
    plain = {
        "small": _database(some(30)),
        "overflow": _database(large),
        "inner-pages": _database(some(1_500)),
    }
    sources = [Source(name, data, _lengths(data), ((0, len(data)),), suffix=".db3") for name, data in plain.items()]
    packed = ZstdCompressor(write_checksum=True).compress(plain["overflow"])
    return [*sources, Source("zstd", packed, (), ((0, len(packed)),), suffix=".db3.zstd")]


def _database(messages: list[Message]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return write_database(Path(folder, "x.db3"), messages, KINDS).read_bytes()


def _lengths(data: bytes) -> tuple[LengthField, ...]:
    """The numbers in the header of the file and of each page, and the places of the first cells."""
    pages = range(_PAGE, len(data), _PAGE)
    own = [
        LengthField(page + at, size)
        for page in pages
        for at, size in ((0, 1), (3, 2), (5, 2), (8, 2), (10, 2), (12, 2))
    ]
    return (*_HEADER, *own)
