"""TUIDs: 128-bit ids that sort by the time they were made.

16 bytes: nanoseconds since the epoch, then a counter, both big-endian, so that byte order is sort order.
As text: 16 upper-case hex digits of the time, 16 lower-case ones of the counter.
"""

from __future__ import annotations

import secrets
import struct
import threading
import time
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_PAIR = struct.Struct(">QQ")
_ID_TYPE = pa.binary(16)
_local = threading.local()


def mint() -> bytes:
    """A new TUID, larger than every one this thread minted before."""
    last: tuple[int, int] | None = getattr(_local, "last", None)
    now = time.time_ns()
    if last is None:
        counter = secrets.randbits(63)
    else:
        now, counter = max(now, last[0]), last[1] + 1
    _local.last = (now, counter)
    return _PAIR.pack(now, counter)


def forget() -> None:
    """Start a new counter; a forked process must, or it would mint its parent's ids again."""
    _local.__dict__.pop("last", None)


def following(tuid: bytes, count: int) -> pa.Array:
    """Row ids derived from a chunk id: its counter plus 1, 2, … ``count``, as ``fixed_size_binary(16)``.

    >>> [v.as_py().hex() for v in following(bytes(16), 2)]
    ['00000000000000000000000000000001', '00000000000000000000000000000002']
    """
    stamp, counter = _PAIR.unpack(tuid)
    pairs = np.empty((count, 2), dtype=">u8")
    pairs[:, 0] = stamp
    pairs[:, 1] = _numbers(count) + np.uint64(counter)
    return pa.FixedSizeBinaryArray.from_buffers(_ID_TYPE, count, [None, pa.py_buffer(pairs)], 0)


@lru_cache(maxsize=16)
def _numbers(count: int) -> npt.NDArray[np.uint64]:
    return np.arange(1, count + 1, dtype=np.uint64)


def to_text(tuid: bytes, prefix: str) -> str:
    """The id as Rerun prints it.

    >>> to_text(bytes.fromhex("18E9F1A70ECD262F28f31aa2decc8cf6"), "chunk_")
    'chunk_18E9F1A70ECD262F28f31aa2decc8cf6'
    """
    digits = tuid.hex()
    return f"{prefix}{digits[:16].upper()}{digits[16:]}"


def from_text(text: str, prefix: str) -> bytes:
    """Parse an id, with or without its prefix, in either case; fewer than 32 digits are padded on the left.

    Raises ``ValueError`` with the reason.
    """
    digits = text
    if text.startswith(prefix):
        digits = text[len(prefix) :]
    elif "_" in text:
        raise ValueError(f'Expected {prefix} prefix, got "{text}"')
    if not digits:
        raise ValueError("Invalid TUID: cannot parse integer from empty string")
    if not all(c in "0123456789abcdefABCDEF" for c in digits):
        raise ValueError("Invalid TUID: invalid digit found in string")
    if len(digits) > 32:
        raise ValueError("Invalid TUID: number too large to fit in target type")
    return bytes.fromhex(digits.rjust(32, "0"))


def is_sorted(ids: pa.Array) -> bool:
    """Whether a ``fixed_size_binary(16)`` array ascends (equal neighbours allowed)."""
    if len(ids) < 2:
        return True
    stored = np.frombuffer(ids.buffers()[1], ">u8", 2 * len(ids), 16 * ids.offset)
    pairs = stored.astype(np.uint64).reshape(-1, 2)
    high, low = pairs[:, 0], pairs[:, 1]
    ascends = low[:-1] <= low[1:]
    if bool((high == high[0]).all()):
        return bool(ascends.all())
    return bool(((high[:-1] < high[1:]) | ((high[:-1] == high[1:]) & ascends)).all())
