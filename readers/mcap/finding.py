"""Where the messages are in blocks of records: from their message indexes when those are right, else by walking."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ...engine.errors import ReadError, ReadWarning
from .records import HEAD, MESSAGE, MESSAGE_FIXED, malformed
from .registry import Registry
from .scan import MESSAGE_HEAD, Block, Bytes, Found, heads_of, walk

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
        return Found(np.empty(0, np.int64), np.empty(0, MESSAGE_HEAD))
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
    rooms = ends - begins - MESSAGE_HEAD.itemsize
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
