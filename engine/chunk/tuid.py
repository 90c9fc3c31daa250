"""TUIDs: 128-bit ids that sort by the time they were made.

16 bytes: nanoseconds since the epoch, then a counter, both big-endian, so that byte order is sort order.
As text: 16 upper-case hex digits of the time, 16 lower-case ones of the counter.
"""

from __future__ import annotations

import secrets
import struct
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..task_context import TaskContext, find, lasting

_PAIR = struct.Struct(">QQ")
_ID_TYPE = pa.binary(16)
_BIG_ENDIAN = np.dtype(">u8")

_RANDOM_BITS: Final = 62
"""Bits of the random first counter, which tells apart processes that begin in one nanosecond."""

_LEAP: Final = 1 << 24
"""Nanoseconds reserved for a run while the clock is behind, after it was set back."""

T = TypeVar("T")


class Minter(Protocol):
    """Makes ascending ids. Not thread-safe."""

    @property
    def stamp(self) -> int | None:
        """The time in all ids of this minter, or None if ids of other minters may have the same time."""
        ...

    def mint(self, rows: int = 0) -> bytes:
        """Make a TUID, and reserve the ``rows`` TUIDs after it (:func:`following`)."""
        ...

    def before(self) -> Minter:
        """Return a minter whose ids are all smaller than those of this one."""
        ...


def stamps_of(tuids: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """The times in an array of ids, one id per row."""
    return np.ascontiguousarray(tuids[:, :8]).view(_BIG_ENDIAN).reshape(-1).astype(np.uint64)


class _Counter:
    """Ids of one time, counted from ``first`` on."""

    __slots__ = ("_first", "_next", "stamp")

    def __init__(self, stamp: int, first: int) -> None:
        self.stamp = stamp
        self._first = self._next = first

    def mint(self, rows: int = 0) -> bytes:
        counter = self._next
        self._next = counter + rows + 1
        return _PAIR.pack(self.stamp, counter)

    def before(self) -> Minter:
        return _Counter(self.stamp - 1, self._first)


class _Shared:
    """The minter of a task, for the runs that begin in it."""

    __slots__ = ("mint", "stamp")

    def __init__(self, minter: Minter) -> None:
        self.mint = minter.mint
        self.stamp: int | None = None

    def before(self) -> Minter:
        return self


class _ByClock:
    """The ids of a thread outside of tasks."""

    def __init__(self) -> None:
        self._counter: _Counter | None = None

    def mint(self, rows: int) -> bytes:
        counter = self._counter
        if counter is None:
            counter = self._counter = _Counter(_clock.now(), secrets.randbits(_RANDOM_BITS))
        else:
            counter.stamp = _clock.now()
        return counter.mint(rows)


@dataclass(frozen=True, slots=True)
class Minting:
    """The source of ids in a task's context."""

    minter: Minter


class _Clock:
    """Nanoseconds since the epoch that never go back, though the clock may be set back."""

    def __init__(self) -> None:
        self._newest = 0
        self._lock = threading.Lock()

    def now(self) -> int:
        self._newest = now = max(time.time_ns(), self._newest)
        return now

    def next(self) -> int:
        """Return a time later than all earlier ones."""
        with self._lock:
            now = time.time_ns()
            if now > self._newest:
                self._newest = now
            else:
                now = self._newest + _LEAP
                self._newest = now + _LEAP
            return now


_clock = _Clock()


def mint(rows: int = 0) -> bytes:
    """Make a TUID. It is larger than all earlier ones of the task, or, outside of tasks, of the thread.

    The ``rows`` TUIDs after it (:func:`following`) are reserved.
    """
    here = find(Minting)
    return lasting(_ByClock).mint(rows) if here is None else here.minter.mint(rows)


@dataclass(frozen=True, slots=True)
class RunIds:
    """The ids of a run. Those of a task are larger than those of earlier tasks. Can be pickled.

    An id depends only on the start of the run, the number of the task, and the number of earlier ids in the task. So a
    retried task makes the same ids. Ids of a later run in this process are larger; ids of other processes differ.
    """

    stamp: int
    counter: int
    shared: Minter | None = None

    @classmethod
    def begin(cls) -> RunIds:
        """Return the ids of a run that begins now. Within a task of another run, continue the ids of that task."""
        here = find(Minting)
        return cls(_clock.next(), secrets.randbits(_RANDOM_BITS), None if here is None else _Shared(here.minter))

    def task(self, index: int) -> Minter:
        """Return a minter for the ids of task ``index``, from the first."""
        return self.shared or _Counter(self.stamp + 2 * index + 1, self.counter)

    def after(self, tasks: int) -> RunIds:
        """Return the ids for a stage after ``tasks`` tasks."""
        return RunIds(self.stamp + 2 * tasks, self.counter, self.shared)

    def __reduce__(self) -> tuple[type[RunIds], tuple[int, int]]:
        return RunIds, (self.stamp, self.counter)


@contextmanager
def minted_by(minter: Minter) -> Iterator[None]:
    """Make all ids of this thread with ``minter`` during the block."""
    context = TaskContext(Minting(minter))
    with context.ending(), context.entered():
        yield


def minting(minter: Minter, items: Iterable[T]) -> Generator[T, None, Any]:
    """Yield ``items``; ids made while an item is computed come from ``minter``.

    So several runs can be iterated in turns, each with its own ids.
    """
    return (yield from TaskContext(Minting(minter)).run(items))


def given(items: Iterable[T]) -> Iterator[T]:
    """Iterate over the inputs of a task. Ids made while an input is computed are smaller than the task's own."""
    here = find(Minting)
    return iter(items) if here is None else minting(here.minter.before(), items)


def following(tuid: bytes, count: int) -> pa.Array:
    """Derive row ids from a chunk id: its counter plus 1, 2, … ``count``, as ``fixed_size_binary(16)``.

    >>> [v.as_py().hex() for v in following(bytes(16), 2)]
    ['00000000000000000000000000000001', '00000000000000000000000000000002']
    """
    stamp, counter = _PAIR.unpack(tuid)
    pairs = np.empty((count, 2), _BIG_ENDIAN)
    pairs[:, 0] = stamp
    pairs[:, 1] = _numbers(count) + np.uint64(counter)
    return pa.FixedSizeBinaryArray.from_buffers(_ID_TYPE, count, [None, pa.py_buffer(pairs)], 0)


@lru_cache(maxsize=16)
def _numbers(count: int) -> npt.NDArray[np.uint64]:
    return np.arange(1, count + 1, dtype=np.uint64)


def tuid_text(tuid: bytes, prefix: str) -> str:
    """The id as Rerun prints it.

    >>> tuid_text(bytes.fromhex("18E9F1A70ECD262F28f31aa2decc8cf6"), "chunk_")
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
    """Return True if a ``fixed_size_binary(16)`` array ascends (equal neighbours allowed)."""
    if len(ids) < 2:
        return True
    pairs = np.frombuffer(ids.buffers()[1], _BIG_ENDIAN, 2 * len(ids), 16 * ids.offset).astype(np.uint64)
    high, low = pairs[::2], pairs[1::2]
    ascends = low[:-1] <= low[1:]
    if all_true(high == high[0]):
        return all_true(ascends)
    return all_true((high[:-1] < high[1:]) | ((high[:-1] == high[1:]) & ascends))


def all_true(flags: npt.NDArray[np.bool_]) -> bool:
    """A faster ``flags.all()``: 1.2 instead of 3.4 us for a thousand flags, several times per chunk."""
    return 0 not in flags.tobytes()
