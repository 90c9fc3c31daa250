"""The memory that requests may take: one budget for the bytes of all calls, and what they expand to.

Bytes are claimed before memory is taken for them. A claim on bytes that Arrow reads ends when Arrow lets go of them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from ...limits import MIB
from .methods import ProtocolError, Status

MEMORY_BUDGET: Final = 1280 * MIB
"""Bytes by default: a part may expand to 512 MiB, beside its request of 256, and an eighth is left to small ones."""
_SMALL: Final = 16 * MIB
"""Bytes up to which a claim may use all of a budget, and does not wait behind larger ones."""
_TINY: Final = MIB // 16
"""Bytes up to which a request is always taken: of all handlers together that is a few MiB."""
_MOST_WAITING: Final = 16
"""Calls that wait for memory at once, each in a handler; those beyond are refused, so that handlers are left."""
_PATIENCE: Final = 60.0
_LOOK: Final = 0.05
_WORTH_A_TRIM: Final = 16 * MIB
_OPTION: Final = "--request-memory"


class MemoryBudget:
    """So many bytes for all calls together. Call it from any thread."""

    def __init__(self, most: int = MEMORY_BUDGET) -> None:
        self.most = most
        self._used = 0
        self._ended: deque[int] = deque()
        self._waiting: deque[object] = deque()
        self._freed = 0
        self._lock = threading.Lock()

    @property
    def most_at_once(self) -> int:
        """The largest claim there may be: an eighth of the budget is left to small ones."""
        return max(self.most - self.most // 8, min(_SMALL, self.most))

    @property
    def used(self) -> int:
        """Bytes that are claimed now."""
        with self._lock:
            self._settle()
            return self._used

    def claim(self, size: int, check: Callable[[], None]) -> Claim:
        """Claim bytes; where they are not free, wait for them. ``check`` raises where nobody waits for the call.

        Raises
        ------
        ProtocolError
            The budget is smaller, too many calls wait already, or waiting took too long.
        """
        if size > self.most_at_once:
            raise _refused(
                f"{size:,} bytes of memory are needed, and {self.most_at_once:,} of the server's budget of "
                f"{self.most:,} may be used at once ({_OPTION})"
            )
        if self._taken(size, None):
            return Claim(self, size)
        ticket = object()
        with self._lock:
            if len(self._waiting) >= _MOST_WAITING:
                raise _in_use(self.most)
            self._waiting.append(ticket)
        try:
            until = time.monotonic() + _PATIENCE
            while not self._taken(size, ticket):
                check()
                if time.monotonic() > until:
                    raise _in_use(self.most)
                time.sleep(_LOOK)
        finally:
            with self._lock:
                self._waiting.remove(ticket)
        return Claim(self, size)

    @contextmanager
    def taking(self) -> Iterator[Callable[[int], None]]:
        """A block in which bytes of a request come, each counted as it does until the block ends.

        What it gives raises :class:`ProtocolError` where they do not fit.
        """
        total = 0

        def taken(size: int) -> None:
            nonlocal total
            with self._lock:
                self._settle()
                if total + size > _TINY and self._used + size > self.most:
                    raise _in_use(self.most)
                self._used += size
            total += size

        try:
            yield taken
        finally:
            self.end(total)

    def end(self, size: int) -> None:
        """Give bytes back. It may be called wherever objects are destroyed, so it takes no lock."""
        self._ended.append(size)

    def freed(self) -> int:
        """Bytes that were given back since this was asked last, or 0 if they are few, or others are in use.

        Giving memory back holds up whoever takes some.
        """
        with self._lock:
            self._settle()
            if self._freed < _WORTH_A_TRIM or self._used > _SMALL:
                return 0
            found, self._freed = self._freed, 0
            return found

    def _taken(self, size: int, ticket: object | None) -> bool:
        """Whether bytes were free, and are taken now; large claims are met in the order in which they came."""
        is_small = size <= _SMALL
        with self._lock:
            self._settle()
            first = self._waiting[0] if self._waiting else None
            if first is not ticket and not is_small:
                return False
            if self._used + size > (self.most if is_small else self.most_at_once):
                return False
            self._used += size
            return True

    def _settle(self) -> None:
        while self._ended:
            size = self._ended.popleft()
            self._used -= size
            self._freed += size


class Claim:
    """Bytes of a budget, in use until they are released, or nobody knows the claim any more."""

    def __init__(self, budget: MemoryBudget, size: int) -> None:
        self._budget = budget
        self._size = size

    def reduce(self, size: int) -> None:
        """Keep so many bytes of it alone."""
        if size < self._size:
            self._budget.end(self._size - size)
            self._size = size

    def release(self) -> None:
        """Give all of it back."""
        self.reduce(0)

    def over(self, data: bytes | pa.Buffer) -> pa.Buffer:
        """The same bytes as a buffer that keeps the claim; with it goes the claim."""
        whole = pa.py_buffer(data)
        self.reduce(whole.size)
        return pa.foreign_buffer(whole.address, whole.size, base=_Holder(whole, self))

    def __del__(self) -> None:
        self.release()


class _Holder:
    """Memory, and the claim on it, which a buffer keeps alive."""

    def __init__(self, data: Any, claim: Claim) -> None:
        self.data = data
        self.claim = claim

    def __del__(self) -> None:
        self.data = None  # first the memory, then the claim on it
        self.claim.release()


def _in_use(most: int) -> ProtocolError:
    return _refused(f"the memory for requests, {most:,} bytes ({_OPTION}), is in use; try again later")


def _refused(text: str) -> ProtocolError:
    return ProtocolError(Status.RESOURCE_EXHAUSTED, text)
