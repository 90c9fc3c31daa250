"""An object read like a file: by position, in few large requests."""

from __future__ import annotations

import io
import os
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from ..errors import ReadError, SourceMissingError
from ..limits import MIB
from ..task_context import TaskContext, asked_for, current, fetched
from .bucket import Bucket, ObjectInfo
from .objects import bucket_of
from .url import ObjectUrl

SMALLEST_WINDOW: Final = 64 * 1024
LARGEST_WINDOW: Final = 8 * MIB
_GROWTH: Final = 4
_LARGEST_GAP: Final = MIB
_JOINED_GAP: Final = 256 * 1024
_MOST_AHEAD: Final = 4
_PEEKS_AT_ONCE: Final = 16
_PEEKED_BYTES: Final = 16 * MIB


class _Window(NamedTuple):
    start: int
    data: memoryview

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class _Ahead(NamedTuple):
    start: int
    end: int
    data: Future[memoryview]


def _joined(ranges: Iterable[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """Join ascending ranges with small gaps between them, within ``size`` bytes."""
    out: list[tuple[int, int]] = []
    for start, stop in ranges:
        if out and start <= out[-1][1] + _JOINED_GAP:
            out[-1] = out[-1][0], max(out[-1][1], min(stop, size))
        elif start < min(stop, size):
            out.append((start, min(stop, size)))
    return out


class RemoteFile(io.RawIOBase):
    """An object of known size and version, open for reading. Seekable, so that libraries take it for a file.

    Reads of nearby places use windows, which grow from 64 KiB to 8 MiB during sequential reads. The next window, or the
    next four of expected ranges, is fetched meanwhile. Memory: at most eight windows in any case.

    Every read requires the version found on opening (or ``version``, if given): a replaced object raises ``ReadError``.
    Opening raises ``SourceMissingError`` for a missing object. If ``version`` and ``size`` are given, the first request
    is the first read.
    """

    def __init__(self, url: str | os.PathLike[str], version: str | None = None, size: int | None = None) -> None:
        self.url = ObjectUrl.of(os.fspath(url))
        self.name = str(self.url)
        self._bucket: Bucket = bucket_of(self.url)
        self.version = version
        self.size = size if version and size is not None else self._found_size(version)
        self._position = 0
        self._lock = threading.RLock()
        self._windows: list[_Window] = []
        self._aside: _Window | None = None
        self._ahead: deque[_Ahead] = deque()
        self._step = SMALLEST_WINDOW
        self._expected: list[tuple[int, int]] = []
        self._depth = 1
        self._fetched_to = 0
        self._peeked: list[_Window] = []

    def _found_size(self, version: str | None) -> int:
        """Request the object's size, and note its version."""
        info = self._object_info(version)
        if version and info.version != version:
            raise ReadError(
                f"the object was changed while it was read, or since its registration: its version is {info.version}, "
                "not "
                f"{version}",
                path=self.name,
                hint="Another program is writing to the object; try again, or register it again.",
            )
        self.version = info.version
        return info.size

    def _object_info(self, version: str | None) -> ObjectInfo:
        fetched(0)
        try:
            return self._bucket.head(self.url.key)
        except SourceMissingError as error:
            if not version:
                raise
            raise SourceMissingError(
                f"{error.message}; the expected version is {version}", path=error.path, hint=error.hint
            ) from error

    # --- by position

    def pread(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset``, fewer only at the object's end."""
        asked_for()
        with self._lock:
            return b"".join(self._pieces(offset, min(offset + size, self.size)))

    def pread_into(self, offset: int, out: memoryview) -> int:
        """Fill ``out`` with the bytes from ``offset``; return their number, which is less only at the end."""
        done = 0
        asked_for()
        with self._lock:
            for piece in self._pieces(offset, min(offset + len(out), self.size)):
                out[done : done + len(piece)] = piece
                done += len(piece)
        return done

    def expect(self, *ranges: tuple[int, int]) -> None:
        """Announce that ascending ``(start, stop)`` ranges will be read from start to end, and little else.

        Nearby ranges are fetched together. Announcing a part of an expected range changes nothing.
        """
        joined = _joined(ranges, self.size)
        with self._lock:
            if joined and not (len(joined) == 1 and self._is_within(*joined[0])):
                self._expected, self._depth = joined, _MOST_AHEAD
                self._fetched_to = joined[0][0]
                self._ahead.clear()

    def peek(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Fetch many small ``(offset, size)`` ranges at once, for later reads. Do nothing if their total is large."""
        wanted = [(offset, size) for offset, size in ranges if 0 <= offset < self.size]
        if sum(size for _, size in wanted) > _PEEKED_BYTES:
            return
        context = current()
        with self._lock, ThreadPoolExecutor(_PEEKS_AT_ONCE, "chunkmill-peek") as threads:
            pieces = threads.map(lambda r: self._fetch_in(context, r[0], min(r[0] + r[1], self.size)), wanted)
            windows = (_Window(offset, data) for (offset, _), data in zip(wanted, pieces, strict=True))
            self._peeked = sorted(windows, key=lambda w: w.start)

    def _pieces(self, offset: int, end: int) -> Iterator[memoryview]:
        at = bisect_right(self._peeked, offset, key=lambda w: w.start) - 1
        if at >= 0 and end <= self._peeked[at].end:
            yield self._peeked[at].data[offset - self._peeked[at].start : end - self._peeked[at].start]
            return
        while offset < end:
            window = self._window_at(offset, end)
            piece = window.data[offset - window.start : end - window.start]
            yield piece
            offset += len(piece)

    def _window_at(self, offset: int, end: int) -> _Window:
        """The window that holds ``offset``; the caller reads on to ``end``."""
        windows: list[_Window] = self._windows + ([self._aside] if self._aside else [])
        for window in windows:
            if window.start <= offset < window.end:
                return window
        if self._looks_ahead(offset, end):
            stop = self._bounded(offset, offset + SMALLEST_WINDOW)
            self._aside = _Window(offset, self._fetch(offset, stop))
            return self._aside
        if self._is_far_ahead(offset, end):
            ahead = next(a for a in self._ahead if offset < a.end)
            self._aside = _Window(ahead.start, ahead.data.result())
            return self._aside
        window = self._fetched_ahead(offset) or self._fetched_now(offset, end)
        self._windows = [window, *self._windows[:1]]
        self._read_ahead(window, end)
        return window

    def _fetched_ahead(self, offset: int) -> _Window | None:
        """Return the window with ``offset`` if it is being fetched. Drop those before it, and then fetch fewer ahead.

        A read outside the expected ranges drops none.
        """
        if self._ahead and self._expected_end(self._ahead[0].start) and not self._expected_end(offset):
            return None
        while self._ahead:
            ahead = self._ahead.popleft()
            if ahead.start <= offset < ahead.end:
                self._step = min(self._step * _GROWTH, LARGEST_WINDOW)
                return _Window(ahead.start, ahead.data.result())
            self._depth = 1
        return None

    def _fetched_now(self, offset: int, end: int) -> _Window:
        """Fetch the window for a read from ``offset`` to ``end``."""
        last = self._windows[0].end if self._windows else -_LARGEST_GAP
        goes_on = last <= offset <= last + min(self._step, _LARGEST_GAP)
        self._step = min(self._step * _GROWTH, LARGEST_WINDOW) if goes_on else SMALLEST_WINDOW
        if self._expected_end(offset):
            self._step = LARGEST_WINDOW
        stop = offset + max(self._step, min(end - offset, LARGEST_WINDOW))
        start = min(offset, max(0, self.size - SMALLEST_WINDOW)) if stop >= self.size else offset
        return _Window(start, self._fetch(start, self._note_fetched(offset, self._bounded(offset, stop))))

    def _looks_ahead(self, offset: int, end: int) -> bool:
        """Return True for a jump after which reading returns, as from the end of a message to its middle."""
        is_beyond = self._expected_end(offset) > 0 and offset > self._next_expected(self._fetched_to)
        return is_beyond and self._comes_back(offset, end)

    def _is_far_ahead(self, offset: int, end: int) -> bool:
        """Return True for such a jump to a window that is being fetched after the next one."""
        is_there = len(self._ahead) > 1 and self._ahead[0].end <= offset < self._ahead[-1].end
        return is_there and self._expected_end(offset) > 0 and self._comes_back(offset, end)

    def _comes_back(self, offset: int, end: int) -> bool:
        goes_on_there = self._aside is not None and self._aside.start <= offset <= self._aside.end
        return end - offset < SMALLEST_WINDOW and not goes_on_there

    def _read_ahead(self, window: _Window, end: int) -> None:
        """Fetch the bytes after ``window`` in the background, if they are likely to be read."""
        start = self._ahead[-1].end if self._ahead else window.end
        is_expected = self._expected_end(window.start) > 0
        if not (is_expected or end > start or self._step > SMALLEST_WINDOW):
            return
        while len(self._ahead) < (self._depth if is_expected else 1):
            if is_expected:
                start = self._next_expected(start)
                stop = self._bounded(start, start + LARGEST_WINDOW) if self._expected_end(start) else start
            else:
                stop = min(start + max(self._step, min(end - start, LARGEST_WINDOW)), self.size)
            if start >= stop:
                return
            self._note_fetched(start, stop)
            self._ahead.append(_Ahead(start, stop, _background().submit(self._fetch_in, current(), start, stop)))
            start = stop

    def _expected_end(self, offset: int) -> int:
        """The end of the expected range at an offset, or 0."""
        at = bisect_right(self._expected, (offset, self.size)) - 1
        return self._expected[at][1] if at >= 0 and offset < self._expected[at][1] else 0

    def _is_within(self, start: int, stop: int) -> bool:
        return stop <= self._expected_end(start)

    def _next_expected(self, offset: int) -> int:
        """The first expected offset from ``offset`` on, or ``offset`` itself if none is."""
        if self._expected_end(offset):
            return offset
        at = bisect_right(self._expected, (offset, self.size))
        return self._expected[at][0] if at < len(self._expected) else offset

    def _note_fetched(self, offset: int, stop: int) -> int:
        if self._expected_end(offset):
            self._fetched_to = max(self._fetched_to, stop)
        return stop

    def _bounded(self, offset: int, stop: int) -> int:
        return min(stop, self._expected_end(offset) or self.size)

    def _fetch_in(self, context: TaskContext, start: int, stop: int) -> memoryview:
        """Fetch in another thread, for the task of ``context``."""
        with context.entered():
            return self._fetch(start, stop)

    def _fetch(self, start: int, stop: int) -> memoryview:
        data = self._bucket.read(self.url.key, start, stop, self.version)
        fetched(len(data))
        if len(data) != stop - start:
            raise ReadError(
                f"the store gave {len(data):,} of {stop - start:,} bytes", path=self.name, offset=start, transient=True
            )
        return data

    # --- as a Python file

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The offset at which the next read begins."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to ``offset`` from the start, the current position or the end."""
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        if origin + offset < 0:
            raise ValueError(f"cannot seek to {origin + offset}")
        self._position = origin + offset
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        """Fill ``buffer`` from the current position; less only at the end."""
        with memoryview(buffer).cast("B") as out:
            done = self.pread_into(self._position, out)
        self._position += done
        return done

    def read(self, size: int | None = -1, /) -> bytes:
        """Return ``size`` bytes from the current position (all, if negative); fewer only at the end."""
        left = max(0, self.size - self._position)
        data = self.pread(self._position, left if size is None or size < 0 else min(size, left))
        self._position += len(data)
        return data

    def close(self) -> None:
        """Release all fetched bytes."""
        if not self.closed:
            self._windows, self._aside, self._peeked = [], None, []
            self._ahead.clear()
        super().close()


_threads: list[ThreadPoolExecutor] = []


def _background() -> ThreadPoolExecutor:
    if not _threads:
        _threads.append(ThreadPoolExecutor(4, "chunkmill-read-ahead"))
    return _threads[0]


# A forked process has none of its parent's threads.
os.register_at_fork(after_in_child=_threads.clear)
