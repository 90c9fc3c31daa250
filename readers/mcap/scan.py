"""Blocks of records, walked from record to record.

A block is a run of whole records in a larger buffer (the arena): the records of one MCAP chunk, or a stretch of
records outside of chunks.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...engine.bounded import check_limit
from ...engine.errors import ReadError
from ...engine.limits import MAX_OTHER_RECORDS
from .records import (
    CHANNEL,
    CHUNK,
    DAMAGED_HINT,
    DATA_END,
    HEAD,
    MESSAGE,
    SCHEMA,
    malformed,
    record_name,
)
from .registry import Registry

MESSAGE_HEAD: Final = np.dtype(
    [
        ("opcode", "u1"),
        ("length", "<u8"),
        ("channel", "<u2"),
        ("sequence", "<u4"),
        ("log_time", "<u8"),
        ("publish_time", "<u8"),
    ]
)
"""What a Message record begins with; packed, 31 bytes, the data behind it."""

_WIDTH: Final = MESSAGE_HEAD.itemsize

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


class Block(NamedTuple):
    """Records from byte ``begin`` to ``end`` of the arena.

    ``offset`` is where the chunk (``in_chunk``) or the first record stands in the file. ``indexed`` holds the message
    index: for each channel its id, and for each of its messages log time and offset in the chunk, as u64 in little
    endian; None when there is none to be believed.
    ``checked``: a CRC says that the records are what was written.
    """

    begin: int
    end: int
    offset: int
    in_chunk: bool
    checked: bool
    indexed: list[tuple[int, bytes]] | None


class Found(NamedTuple):
    """The messages of a block in file order: arena offset of each record, and its head (``MESSAGE_HEAD``)."""

    offsets: Ints
    heads: np.ndarray

    def at(self, which: npt.NDArray[np.bool_]) -> Found:
        """Those of the messages for which ``which`` is true."""
        return self if which.all() else Found(self.offsets[which], self.heads[which])


def walk(arena: Bytes, block: Block, registry: Registry, *, path: str, window: bool = False) -> tuple[list[int], int]:
    """Go from record to record: the offsets of the messages, and where the walk ended.

    It ends where the block does. In a ``window`` of records outside of chunks it ends before the first record that is
    not whole, or that is neither message, channel, schema nor unknown.
    """
    view, unpack, size = arena.data, HEAD.unpack_from, HEAD.size
    at, end = block.begin, block.end
    offsets: list[int] = []
    others = 0
    while at < end:
        body = at + size
        opcode, length = unpack(view, at) if body <= end else (0, 0)
        after = body + length
        if after > end:
            if window:
                break
            raise _overrun(block, at, opcode, length, path)
        if opcode == MESSAGE:
            offsets.append(at)
        elif window and opcode <= DATA_END and opcode not in (SCHEMA, CHANNEL):
            break
        else:
            others += 1
            check_limit(others, MAX_OTHER_RECORDS, path=path, offset=block.offset, what="the number of other records")
            _take_other(opcode, view[body:after], block, registry, path)
        at = after
    return offsets, at


def _take_other(opcode: int, body: memoryview, block: Block, registry: Registry, path: str) -> None:
    if opcode in (SCHEMA, CHANNEL):
        registry.add(opcode, bytes(body), offset=block.offset)
    elif opcode == CHUNK:
        raise malformed(CHUNK, "there is another chunk inside of it", path=path, offset=block.offset)
    elif opcode == 0:
        raise ReadError("a record has no opcode", path=path, offset=block.offset, hint=DAMAGED_HINT)


def heads_of(arena: Bytes, offsets: Ints) -> Found:
    """The messages that begin at ``offsets`` in the arena, each record whole."""
    if not len(offsets):
        return Found(offsets, np.empty(0, MESSAGE_HEAD))
    padded = arena
    if int(offsets[-1]) > len(arena) - _WIDTH:  # a record too short to be a message, at the very end
        padded = np.concatenate((arena, np.zeros(_WIDTH, np.uint8)))
    view = np.ndarray((len(padded) - _WIDTH + 1,), f"V{_WIDTH}", buffer=padded.data, strides=(1,))
    return Found(offsets, view[offsets].view(MESSAGE_HEAD))


def _overrun(block: Block, at: int, opcode: int, length: int, path: str) -> ReadError:
    where = "inside a chunk " if block.in_chunk else ""
    what = f"a record {record_name(opcode)} of {length:,} bytes" if length else "a record"
    return ReadError(
        f"{what} {where}runs past its end ({block.end - at:,} bytes left)",
        path=path,
        offset=block.offset,
        hint=DAMAGED_HINT,
    )
