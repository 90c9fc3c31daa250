"""Protobuf's variable-width integers, many at once."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

_MOST: Final = 10
"""Bytes that a 64-bit number takes at most."""


class Varints(NamedTuple):
    """``values`` as uint64, the places ``after`` them, and where ``good`` fails there is none (cut short, too long)."""

    values: np.ndarray
    after: np.ndarray
    good: np.ndarray


def read_varints(data: np.ndarray, places: np.ndarray, ends: np.ndarray) -> Varints:
    """The number at each of ``places``, which may reach up to ``ends`` (all int64 of one length)."""
    good = places < ends
    first = data[places] if good.all() else data[np.where(good, places, 0)]
    values = (first & 0x7F).astype(np.uint64)
    after = places + 1
    rows = np.flatnonzero((first >= 0x80) & good)
    for index in range(1, _MOST):
        if not len(rows):
            return Varints(values, after, good)
        inside = after[rows] < ends[rows]
        good[rows[~inside]] = False
        rows = rows[inside]
        byte = data[after[rows]]
        values[rows] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * index)
        after[rows] += 1
        if index == _MOST - 1:
            good[rows[byte > 1]] = False
        rows = rows[byte >= 0x80]
    good[rows] = False
    return Varints(values, after, good)


def split_varints(payload: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All numbers of ``payload``, which is nothing but them: values (uint64), and where those end that are too long."""
    last = np.flatnonzero(payload < 0x80)
    if len(last) == len(payload):
        return payload.astype(np.uint64), last[:0]
    starts = np.empty(len(last), np.int64)
    starts[:1] = 0
    starts[1:] = last[:-1] + 1
    lengths = last - starts
    values = (payload[starts] & 0x7F).astype(np.uint64)
    rows = np.flatnonzero(lengths)
    for index in range(1, _MOST):
        if not len(rows):
            break
        values[rows] |= (payload[starts[rows] + index] & 0x7F).astype(np.uint64) << np.uint64(7 * index)
        rows = rows[lengths[rows] > index]
    wrong = (lengths >= _MOST) | ((lengths == _MOST - 1) & (payload[last] > 1))
    return values, last[wrong]


def zigzag(values: np.ndarray) -> np.ndarray:
    """Signed numbers (int64) from their zigzag form (uint64)."""
    return (values >> np.uint64(1)).view(np.int64) ^ -(values & np.uint64(1)).view(np.int64)
