"""Blocks of records: where the messages in them are, by their indexes when those are right, else by walking.

A block is a run of whole records in a larger buffer (the arena): the records of one MCAP chunk, or a stretch of
records outside of chunks.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...engine.errors import ReadError, ReadWarning
from ...engine.limits import MAX_OTHER_RECORDS, check_limit
from .records import (
    CHANNEL,
    CHUNK,
    DAMAGED_HINT,
    DATA_END,
    HEAD,
    MESSAGE,
    MESSAGE_FIXED,
    SCHEMA,
    malformed,
    record_name,
)
from .registry import Registry

_MESSAGE_HEAD: Final = np.dtype(
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

_WIDTH: Final = _MESSAGE_HEAD.itemsize

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
        return Found(offsets, np.empty(0, _MESSAGE_HEAD))
    padded = arena
    if int(offsets[-1]) > len(arena) - _WIDTH:  # a record too short to be a message, at the very end
        padded = np.concatenate((arena, np.zeros(_WIDTH, np.uint8)))
    view = np.ndarray((len(padded) - _WIDTH + 1,), f"V{_WIDTH}", buffer=padded.data, strides=(1,))
    return Found(offsets, view[offsets].view(_MESSAGE_HEAD))


def _overrun(block: Block, at: int, opcode: int, length: int, path: str) -> ReadError:
    where = "inside a chunk " if block.in_chunk else ""
    what = f"a record {record_name(opcode)} of {length:,} bytes" if length else "a record"
    return ReadError(
        f"{what} {where}runs past its end ({block.end - at:,} bytes left)",
        path=path,
        offset=block.offset,
        hint=DAMAGED_HINT,
    )


_PAIR: Final = 16


def find_in_all(arena: Bytes, blocks: Sequence[Block], registry: Registry, *, path: str) -> Found:
    """The messages of ``blocks``, which stand in the arena in this order, as :func:`find_messages` finds them in each.

    One look at all of them is enough where every index is right.
    """
    if blocks and all(block.indexed for block in blocks):
        found = _by_index(arena, blocks, registry, path)
        if found is not None:
            return found
    return joined([find_messages(arena, block, registry, path=path) for block in blocks])


def joined(parts: Iterable[Found]) -> Found:
    """The messages of all parts, in this order."""
    parts = [part for part in parts if len(part.offsets)]
    if not parts:
        return Found(np.empty(0, np.int64), np.empty(0, _MESSAGE_HEAD))
    return Found(np.concatenate([p.offsets for p in parts]), np.concatenate([p.heads for p in parts]))


def find_messages(arena: Bytes, block: Block, registry: Registry, *, path: str) -> Found:
    """All messages of ``block``; its channels and schemas go to ``registry``. Raises ``ReadError`` on damage."""
    if block.indexed:
        found = _by_index(arena, [block], registry, path)
        if found is not None:
            return found
    offsets, _ = walk(arena, block, registry, path=path)
    found = heads_of(arena, np.array(offsets, np.int64))
    _check_lengths(found, block, path)
    if block.indexed and not block.checked:
        _compare_with_index(found, block, path)
    return found


def _by_index(arena: Bytes, blocks: Sequence[Block], registry: Registry, path: str) -> Found | None:
    """The messages by the indexes of all blocks, or None unless these and the records agree exactly."""
    entries = [entry for block in blocks for entry in block.indexed or ()]
    sizes = [len(pairs) // _PAIR for _, pairs in entries]
    counts = np.array([sum(len(pairs) for _, pairs in block.indexed or ()) // _PAIR for block in blocks], np.int64)
    begins = np.array([block.begin for block in blocks], np.int64)
    ends = np.array([block.end for block in blocks], np.int64)
    rooms = ends - begins - _MESSAGE_HEAD.itemsize
    if not counts.all() or int(rooms.min()) < 0:
        return None
    raw = _offsets(pairs for _, pairs in entries)
    if (raw > np.repeat(rooms.astype(np.uint64), counts)).any():
        return None
    places = raw.astype(np.int64) + np.repeat(begins, counts)
    order = np.argsort(places, kind="stable")
    found = heads_of(arena, places[order])
    heads, lengths = found.heads, found.heads["length"]
    channels = np.repeat(np.array([channel for channel, _ in entries], np.uint16), sizes)[order]
    if not (heads["opcode"] == MESSAGE).all() or not (heads["channel"] == channels).all():
        return None
    if int(lengths.max()) > int((ends - begins).max()) or int(lengths.min()) < MESSAGE_FIXED:
        return None
    lasts = np.cumsum(counts) - 1
    stops = found.offsets + HEAD.size + lengths.astype(np.int64)
    nexts = np.append(found.offsets[1:], 0)
    nexts[lasts] = ends
    if (nexts < stops).any():
        return None
    firsts = found.offsets[lasts - counts + 1]
    gaps = [(int(begins[i]), int(firsts[i]), i) for i in np.flatnonzero(begins < firsts).tolist()]
    inner = np.flatnonzero(stops < nexts)
    gaps += zip(stops[inner].tolist(), nexts[inner].tolist(), np.searchsorted(lasts, inner).tolist(), strict=True)
    for begin, end, i in sorted(gaps):
        if _hides_messages(arena, blocks[i]._replace(begin=begin, end=end), registry, path):
            return None
    return found


def _offsets(pairs: Iterable[bytes]) -> npt.NDArray[np.uint64]:
    """The offsets among pairs of a log time and an offset."""
    return np.frombuffer(b"".join(pairs), "<u8")[1::2]


def _hides_messages(arena: Bytes, between: Block, registry: Registry, path: str) -> bool:
    try:
        offsets, _ = walk(arena, between, registry, path=path)
    except ReadError:
        return True
    return bool(offsets)


def _check_lengths(found: Found, block: Block, path: str) -> None:
    if (found.heads["length"] < MESSAGE_FIXED).any():
        raise malformed(MESSAGE, f"it has fewer than {MESSAGE_FIXED} bytes", path=path, offset=block.offset)


def _compare_with_index(found: Found, block: Block, path: str) -> None:
    assert block.indexed is not None
    there = (found.offsets - block.begin).astype(np.uint64)
    missing = sum(int((~np.isin(_offsets([pairs]), there)).sum()) for _, pairs in block.indexed)
    if missing:
        warnings.warn(
            f"{path}: the message index of the chunk at byte {block.offset:,} points at {missing} messages that are not"
            " there, and the chunk has no CRC; what it holds was read",
            ReadWarning,
            stacklevel=2,
        )
