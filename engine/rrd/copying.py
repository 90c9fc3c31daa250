"""Copies of ranges of files, and of whole messages with another store in each head, by the kernel where it can."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import xxhash

from ..errors import ReadError
from .framing import MESSAGE_HEADER_SIZE, MessageKind, message_header
from .payloads import damaged_chunk, digest_of
from .positional import PositionalFile
from .table_columns import Numbers

_MOST_AT_ONCE: Final = 1 << 30
_PIECE: Final = 1 << 20
_NOT_HERE: Final = frozenset(
    {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM, errno.ETXTBSY}
)

_Copy = Callable[[int, int, int, int], int]
"""``(source, target, offset, size)`` copies some bytes to where ``target`` stands and gives their number."""


def _by_range(source: int, target: int, offset: int, size: int) -> int:
    return os.copy_file_range(source, target, size, offset_src=offset)


def _by_sendfile(source: int, target: int, offset: int, size: int) -> int:
    return os.sendfile(target, source, offset, size)


def _by_hand(source: int, target: int, offset: int, size: int) -> int:
    data = memoryview(os.pread(source, min(size, _PIECE), offset))
    done = 0
    while done < len(data):
        done += os.write(target, data[done:])
    return done


def copy_range(source: PositionalFile, offset: int, size: int, target: int) -> None:
    """Append ``size`` bytes at ``offset`` of ``source`` to where the descriptor ``target`` stands.

    Uses the best way that the two file systems have. Raises :class:`ReadError` when the source ends early, and
    ``OSError`` as the target does.
    """
    ways: list[_Copy] = [_by_hand, _by_sendfile, _by_range]
    while size > 0:
        try:
            done = ways[-1](source.fileno(), target, offset, min(size, _MOST_AT_ONCE))
        except OSError as error:
            if error.errno not in _NOT_HERE or len(ways) == 1:
                raise
            done = 0
        if done == 0:
            if len(ways) == 1:
                raise ReadError(
                    "the file shrank while it was copied",
                    path=source.path,
                    offset=offset,
                    hint="Another program is writing to it; run again when it has finished.",
                )
            ways.pop()
        offset += done
        size -= done


def start_writing_back(handle: int, offset: int, size: int) -> None:
    """Let the operating system begin to write what lies in its cache of a file, without waiting for it."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(handle, offset, size, os.POSIX_FADV_DONTNEED)


_WINDOW: Final = 1 << 19
_KERNEL_SIZE: Final = 1 << 20
_MOST_PIECES: Final = 1000
_FLUSH_BYTES: Final = 8 << 20


class MessageCopier:
    """Appends messages to where the descriptor ``target`` stands, ``start`` bytes into its file.

    Small ones go through a buffer that stays in the processor's cache, as that is faster than one call of the kernel
    for each; large ones are copied by the kernel. What was written is sent on to the disk early, so that there is
    little to wait for at the end, unless ``write_back`` is False.
    """

    def __init__(self, target: int, start: int, *, write_back: bool = True) -> None:
        self._write_back = write_back
        self._target = target
        self._buffer = bytearray(_WINDOW)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._pieces: list[bytes | memoryview] = []
        self._position = self._flushed = start

    def copy(
        self,
        source: PositionalFile,
        offsets: Numbers,
        sizes: Numbers,
        old_field: bytes,
        new_field: bytes,
        digests: pa.Array,
    ) -> None:
        """Copy messages (ascending, with their frame headers), with ``new_field`` where each begins with ``old_field``.

        Those with a digest are verified by it. Raises :class:`ReadError` for a message that has another, and where the
        source ends before, and ``OSError`` as the target does.
        """
        if old_field == new_field and digests.null_count == len(digests):
            for start, stop in _runs(offsets, sizes):
                self._copy(source, start, stop)
        else:
            starts, stops = (offsets - np.uint64(MESSAGE_HEADER_SIZE)).tolist(), (offsets + sizes).tolist()
            expected = digests.to_pylist()
            for first, last in _windows(starts, stops):
                rows = slice(first, last)
                if stops[first] - starts[first] > _WINDOW:
                    offset = starts[first] + MESSAGE_HEADER_SIZE
                    self.copy_one(source, offset, stops[first] - offset, old_field, new_field, expected[first])
                else:
                    self._copy_window(source, starts[rows], stops[rows], old_field, new_field, expected[rows])
        self.flush()

    def copy_one(
        self,
        source: PositionalFile,
        offset: int,
        size: int,
        old_field: bytes,
        new_field: bytes,
        digest: bytes | None,
    ) -> None:
        """Copy one message like :meth:`copy`; call :meth:`flush` after the last."""
        start = offset + len(old_field)
        self._write(message_header(MessageKind.ARROW_MSG, size - len(old_field) + len(new_field)) + new_field)
        if digest is None:
            self._copy(source, start, offset + size)
            return
        made = xxhash.xxh3_128()
        self._copy(source, start, offset + size, made)
        if made.digest() != digest:
            raise damaged_chunk(source.path, offset)

    def _copy_window(
        self,
        source: PositionalFile,
        starts: list[int],
        stops: list[int],
        old_field: bytes,
        new_field: bytes,
        digests: list[bytes | None],
    ) -> None:
        """Copy neighbours that go into the buffer together: one by one, 20,000 of 1 kB took twice as long."""
        start, size = starts[0], stops[-1] - starts[0]
        if self._filled + size > _WINDOW:
            self.flush()
        filled = self._filled + size
        window = self._view[self._filled : filled]
        done = os.preadv(source.fileno(), [window], start)
        if done < size:
            raise _shrank(source.path, start + done)
        skipped = MESSAGE_HEADER_SIZE + len(old_field)
        for at, stop, digest in zip(starts, stops, digests, strict=True):
            rest = window[at - start + skipped : stop - start]
            if digest is not None and digest_of(rest) != digest:
                raise damaged_chunk(source.path, at + MESSAGE_HEADER_SIZE)
            if old_field != new_field:
                self._write(message_header(MessageKind.ARROW_MSG, len(rest) + len(new_field)) + new_field)
                self._write(rest)
        if old_field == new_field:
            self._write(window)
        self._filled = filled

    def _write(self, data: bytes | memoryview) -> None:
        if len(self._pieces) >= _MOST_PIECES:
            self.flush()
        self._pieces.append(data)

    def _copy(self, source: PositionalFile, start: int, stop: int, digest: xxhash.xxh3_128 | None = None) -> None:
        if stop - start >= _KERNEL_SIZE and digest is None:
            self.flush()
            for at in range(start, stop, _FLUSH_BYTES):
                size = min(_FLUSH_BYTES, stop - at)
                copy_range(source, at, size, self._target)
                self._wrote(size)
            return
        while start < stop:
            if self._filled == _WINDOW or len(self._pieces) >= _MOST_PIECES:
                self.flush()
            size = min(stop - start, _WINDOW - self._filled)
            piece = self._view[self._filled : self._filled + size]
            done = os.preadv(source.fileno(), [piece], start)
            if done == 0:
                raise _shrank(source.path, start)
            self._pieces.append(piece[:done])
            if digest is not None:
                digest.update(piece[:done])
            self._filled += done
            start += done

    def flush(self) -> None:
        """Hand everything to the operating system."""
        pieces, self._pieces = self._pieces, []
        total = sum(map(len, pieces))
        done = os.writev(self._target, pieces) if pieces else 0
        self._wrote(done)
        if done < total:
            rest = memoryview(b"".join(pieces))[done:]
            while rest:
                done = os.write(self._target, rest)
                self._wrote(done)
                rest = rest[done:]
        self._filled = 0

    def _wrote(self, size: int) -> None:
        self._position += size
        if self._write_back and self._position - self._flushed >= _FLUSH_BYTES:
            start_writing_back(self._target, self._flushed, self._position - self._flushed)
            self._flushed = self._position


def _runs(offsets: Numbers, sizes: Numbers) -> Iterator[tuple[int, int]]:
    """The byte ranges of messages that lie one behind the other, with their frame headers."""
    starts, stops = offsets - np.uint64(MESSAGE_HEADER_SIZE), offsets + sizes
    begins = np.ones(len(starts), dtype=bool)
    begins[1:] = starts[1:] != stops[:-1]
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(starts))[: len(first)] - 1
    yield from zip(starts[first].tolist(), stops[last].tolist(), strict=True)


def _windows(starts: list[int], stops: list[int]) -> Iterator[tuple[int, int]]:
    """Rows, from the first to before the last, of messages side by side that fill a buffer; a larger one by itself."""
    first = 0
    for row in range(1, len(starts)):
        if starts[row] != stops[row - 1] or stops[row] - starts[first] > _WINDOW:
            yield first, row
            first = row
    if starts:
        yield first, len(starts)


def _shrank(path: str, offset: int) -> ReadError:
    return ReadError(
        "the file shrank while it was copied",
        path=path,
        offset=offset,
        hint="Another program is writing to it; run again when it has finished.",
    )
