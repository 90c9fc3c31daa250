"""Runs: ranges of messages that are copied from file to file without decoding.

Copying 20,000 chunks of eight rows by their footer takes 0.13 s; with an object for each, 1.6 s (2 cores;
``benchmarks/bench_rrd.py`` guards keep and drop). Copying verifies messages that have a digest.
"""

from __future__ import annotations

import contextlib
import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from ..chunk import Chunk
from ..errors import ReadError, SourceMissingError, writing
from ..limits import FREE_EXPANSION
from ..storage import is_url
from ..storage.positional import PositionalFile, open_positional
from ..task_context import READ, WRITE, passed_through, phase
from .chunk_table import ChunkEntry, ChunkTable, Numbers
from .compression import Compression
from .messages import MESSAGE_HEADER_SIZE, MessageKind, StoreEntry, message_header, store_field
from .payloads import VerifiedPayload, damaged_chunk, digest_of

_MOST_AT_ONCE: Final = 1 << 30
_PIECE: Final = 1 << 20
_NOT_HERE: Final = frozenset(
    {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM, errno.ETXTBSY}
)

_Copy = Callable[[int, int, int, int], int]
"""``(source, target, offset, size)`` copies some bytes to the position of ``target`` and returns their number."""


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
    """Append ``size`` bytes of ``source``, from ``offset``, at the position of the descriptor ``target``.

    Uses the fastest method that both file systems support. Raises :class:`ReadError` if the source ends early, and the
    target's ``OSError``.
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
    """Start writing a file's cached bytes to disk, without waiting."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(handle, offset, size, os.POSIX_FADV_DONTNEED)


_WINDOW: Final = 1 << 19
_KERNEL_SIZE: Final = 1 << 20
_MOST_PIECES: Final = 1000
_FLUSH_BYTES: Final = 8 << 20


class MessageCopier:
    """Appends messages at the position of the descriptor ``target``, ``start`` bytes into its file.

    Small ones go through a buffer in the processor's cache, which is faster than a kernel call for each; the kernel
    copies large ones. Unless ``write_back`` is False, bytes are sent to the disk early, so that little is left to sync
    at the end.
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
        """Copy messages (ascending, with frame headers); replace ``old_field`` at each beginning by ``new_field``.

        Raises :class:`ReadError` for a message with an unexpected digest, or if the source ends early, and the target's
        ``OSError``.
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
        """Copy neighbours that fit the buffer together. One by one, 20,000 of 1 kB took twice as long."""
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
        """Pass all bytes to the operating system."""
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
    """The byte ranges of consecutive messages, with their frame headers."""
    starts, stops = offsets - np.uint64(MESSAGE_HEADER_SIZE), offsets + sizes
    begins = np.ones(len(starts), dtype=bool)
    begins[1:] = starts[1:] != stops[:-1]
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(starts))[: len(first)] - 1
    yield from zip(starts[first].tolist(), stops[last].tolist(), strict=True)


def _windows(starts: list[int], stops: list[int]) -> Iterator[tuple[int, int]]:
    """Ranges of rows whose messages together fill a buffer; a larger message is a range by itself."""
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


@dataclass(frozen=True)
class Listed:
    """Messages, and their rows of a chunk table with their current places."""

    table: ChunkTable

    @property
    def chunks(self) -> int:
        """The number of messages."""
        return len(self.table)

    @property
    def rows(self) -> int:
        """The number of rows of their chunks."""
        return int(self.table.num_rows.sum())

    def placed(self, store: StoreEntry, start: int) -> ChunkTable:  # noqa: ARG002 (it is that of the part)
        """The same chunks in a file with consecutive messages from byte ``start`` on."""
        return self.table.placed(start)


@dataclass(frozen=True)
class Run(Listed, ABC):
    """Some messages of local files, with their rows from a footer.

    In the files they belong to ``store``. It pickles small.
    """

    store: StoreEntry

    def size_in(self, store: StoreEntry) -> int:
        """The bytes of the messages with frame headers, if they belong to ``store``."""
        return int(self.sizes_in(store).sum()) + MESSAGE_HEADER_SIZE * self.chunks

    def placed(self, store: StoreEntry, start: int) -> ChunkTable:
        """The same chunks in a file, from byte ``start`` on, if they belong to ``store``."""
        return self.table.placed(start, self.sizes_in(store))

    @abstractmethod
    def copy(self, target: int, start: int, store: StoreEntry, *, destination: str) -> bool:
        """Append the messages at the position of the descriptor ``target``, ``start`` bytes into its file.

        Return False, and write nothing, if messages are not at their places or must be parsed. Raises
        :class:`ReadError` if a source ends early, :class:`WriteError` for ``destination``.
        """

    def fields(self, store: StoreEntry) -> tuple[bytes, bytes]:
        """Return the first bytes of each message, in its source and in ``store``."""
        return store_field(self.store.to_message()), store_field(store.to_message())

    def sizes_in(self, store: StoreEntry) -> Numbers:
        """The lengths of the messages if they belong to ``store``."""
        before, after = self.fields(store)
        return (self.table.sizes.astype(np.int64) + len(after) - len(before)).astype(np.uint64)


@dataclass(frozen=True)
class FileRun(Run):
    """Some messages of a version of the file ``path``, in file order, with their rows from the footer."""

    path: str
    version: str | None = None

    def copy(self, target: int, start: int, store: StoreEntry, *, destination: str) -> bool:
        """Like :meth:`Run.copy`; False if the file's messages differ from its footer.

        Also raises :class:`ReadError` for a message with an unexpected digest.
        """
        before, after = self.fields(store)
        try:
            source = open_positional(self.path, self.version)
        except (ReadError, SourceMissingError):
            return False
        with source:
            if not self.lies_as_listed(source):
                return False
            with phase(WRITE), writing(destination):
                table = self.table
                MessageCopier(target, start).copy(source, table.offsets, table.sizes, before, after, table.digests)
        passed_through(self.table.message_bytes)
        return True

    def lies_as_listed(self, source: PositionalFile | None = None) -> bool:
        """Return True if the file's messages agree with its footer, so that they can be copied without parsing."""
        try:
            if source is None:
                with open_positional(self.path, self.version) as opened:
                    return self.lies_as_listed(opened)
            with phase(READ):
                return lie_as_listed(source, self.table, store_field(self.store.to_message()))
        except (OSError, ReadError, SourceMissingError):
            return False  # the full reader reports the fault


@dataclass(frozen=True, slots=True)
class RunRows:
    """Neighbouring rows of a run: from ``start`` (inclusive) to ``stop`` (exclusive)."""

    run: FileRun
    start: int
    stop: int

    @property
    def sizes(self) -> Numbers:
        """The lengths of the messages in their files."""
        return self.run.table.sizes[self.start : self.stop]


_MOST_FILES: Final = 64


@dataclass(frozen=True)
class VerifiedRun(Run):
    """Messages in any order, each in the file named in its row. All have digests."""

    @classmethod
    def of(cls, chunks: Sequence[Chunk]) -> VerifiedRun | None:
        """Return the messages of ``chunks``, or None unless chunkmill wrote all, into a few files of one store."""
        payloads: list[VerifiedPayload] = []
        entries: list[ChunkEntry] = []
        for chunk in chunks:
            p = chunk.payload
            if not isinstance(p, VerifiedPayload) or not p.digest or p.uncompressed_size is None or is_url(p.path):
                return None
            payloads.append(p)
            entries.append(ChunkEntry(chunk.header, p.offset, p.size, p.uncompressed_size, p.digest))
        stores, paths = {p.store for p in payloads}, [p.path for p in payloads]
        store = stores.pop() if len(stores) == 1 else None
        if store is None or len(set(paths)) > _MOST_FILES:
            return None
        return cls(ChunkTable.of(entries, paths), store)

    def divided(self, most: int) -> list[VerifiedRun]:
        """The same messages in runs of about equal size, each of about ``most`` bytes at most."""
        return [replace(self, table=table) for table in self.table.divided(most)]

    def chunks_there(self) -> Iterator[Chunk]:
        """The chunks, undecoded."""
        which, paths = self.table.part_codes
        for entry, at in zip(self.table.entries(), which.tolist(), strict=True):
            size, store = entry.uncompressed_size, self.store
            payload = VerifiedPayload.of(paths[at], entry, uncompressed_size=size, store=store)
            yield Chunk.lazy(entry.header, payload)

    def copy(self, target: int, start: int, store: StoreEntry, *, destination: str) -> bool:
        """Like :meth:`Run.copy`; False if a file is missing.

        Also raises :class:`ReadError` for a message with an unexpected digest.
        """
        before, after = self.fields(store)
        which, paths = self.table.part_codes
        with contextlib.ExitStack() as stack:
            try:
                files = [stack.enter_context(PositionalFile(path)) for path in paths]
            except (ReadError, SourceMissingError):
                return False
            with phase(WRITE), writing(destination):
                copier = MessageCopier(target, start)
                columns = self.table.offsets.tolist(), self.table.sizes.tolist(), self.table.digests.to_pylist()
                for at, offset, size, digest in zip(which.tolist(), *columns, strict=True):
                    copier.copy_one(files[at], offset, size, before, after, digest)
                copier.flush()
        passed_through(self.table.message_bytes)
        return True


TAIL_SIZE: Final = 22
"""The bytes after the payload: the chunk id (fields of 20 bytes) and the static flag."""

_MOST_AFTER_STORE: Final = 26
_LZ4_MAX_RATIO: Final = 255

_Bytes = npt.NDArray[np.uint8]


class _Sizes(NamedTuple):
    """For each message, the sizes of its payload and of the varint with that size."""

    payload: Numbers
    varint: npt.NDArray[np.int64]


def lie_as_listed(file: PositionalFile, table: ChunkTable, store_field: bytes) -> bool:
    """Return True if chunkmill would write every message so, for the store, sizes, id and static flag of its row.

    That is: a frame header, ``store_field`` (field 1 of the ``ArrowMsg``), compression, uncompressed size, encoding,
    payload, chunk id, static flag; each once, in this order and in the shortest form. Only the bytes around payloads
    are read. Other messages may be valid or damaged: parse them.
    """
    sizes = _payload_sizes(table, len(store_field))
    if sizes is None:
        return False
    head_size = MESSAGE_HEADER_SIZE + len(store_field) + _MOST_AFTER_STORE
    heads_and_tails = _read(
        file, table.offsets - np.uint64(MESSAGE_HEADER_SIZE), table.offsets + table.sizes, head_size
    )
    if heads_and_tails is None:
        return False
    heads, tails = heads_and_tails
    return (
        _frames_fit(heads, table, store_field)
        and bool(np.array_equal(tails, _expected_tails(table)))
        and _fields_fit(heads[:, MESSAGE_HEADER_SIZE + len(store_field) :], table, sizes)
    )


def _read(file: PositionalFile, starts: Numbers, stops: Numbers, head_size: int) -> tuple[_Bytes, _Bytes] | None:
    """Return the first and last bytes of messages, a row each, or None if the file ends early.

    Neighbours are read by one call.
    """
    heads = np.zeros((len(starts), head_size), dtype=np.uint8)
    tails = np.zeros((len(starts), TAIL_SIZE), dtype=np.uint8)
    if len(starts) and int(starts.max()) + head_size > file.size:
        return None
    begin, end, handle = heads.data.cast("B"), tails.data.cast("B"), file.fileno()
    before: memoryview | None = None
    position, at, tail_at = -1, 0, 0
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        head = begin[at : at + head_size]
        if before is None:
            if os.preadv(handle, [head], start) != head_size:
                return None
        elif start == position:
            if os.preadv(handle, [before, head], start - TAIL_SIZE) != TAIL_SIZE + head_size:
                return None
        elif (
            os.preadv(handle, [before], position - TAIL_SIZE) != TAIL_SIZE
            or os.preadv(handle, [head], start) != head_size
        ):
            return None
        before, position = end[tail_at : tail_at + TAIL_SIZE], stop
        at, tail_at = at + head_size, tail_at + TAIL_SIZE
    if before is not None and os.preadv(handle, [before], position - TAIL_SIZE) != TAIL_SIZE:
        return None
    return heads, tails


def _frames_fit(heads: _Bytes, table: ChunkTable, store_field: bytes) -> bool:
    frames = np.ascontiguousarray(heads[:, :MESSAGE_HEADER_SIZE]).view("<u8")
    stores = heads[:, MESSAGE_HEADER_SIZE : MESSAGE_HEADER_SIZE + len(store_field)]
    return bool(
        np.all(frames[:, 0] == MessageKind.ARROW_MSG)
        and np.all(frames[:, 1] == table.sizes)
        and np.all(stores == np.frombuffer(store_field, np.uint8))
    )


def _fields_fit(heads: _Bytes, table: ChunkTable, sizes: _Sizes) -> bool:
    """Check compression, uncompressed size, encoding, the payload's tag and size, and that the sizes are possible."""
    compression = heads[:, 1]
    expanded = table.uncompressed_sizes
    is_plain = (compression == Compression.NONE) & (expanded == sizes.payload)
    is_lz4 = (compression == Compression.LZ4) & (expanded <= FREE_EXPANSION)
    if not bool(np.all(is_plain | (is_lz4 & (expanded <= sizes.payload * np.uint64(_LZ4_MAX_RATIO))))):
        return False
    lengths = np.stack([_varint_lengths(expanded), sizes.varint], axis=1)
    for first, second in np.unique(lengths, axis=0).tolist():
        rows = np.flatnonzero((lengths[:, 0] == first) & (lengths[:, 1] == second))
        expected = np.concatenate(
            [
                _same(len(rows), 0x10),
                compression[rows, None],
                _same(len(rows), 0x18),
                _varints(expanded[rows], first),
                _same(len(rows), 0x20, 0x01, 0x2A),
                _varints(sizes.payload[rows], second),
            ],
            axis=1,
        )
        if not np.array_equal(heads[rows, : expected.shape[1]], expected):
            return False
    return True


def _expected_tails(table: ChunkTable) -> _Bytes:
    count = len(table)
    ids = table.chunk_ids
    static = table.is_static.astype(np.uint8)[:, None]
    return np.concatenate(
        [
            _same(count, 0x32, 0x12, 0x09),
            ids[:, 7::-1],
            _same(count, 0x11),
            ids[:, :7:-1],
            _same(count, 0x38),
            static,
        ],
        axis=1,
    )


def _payload_sizes(table: ChunkTable, store_field_size: int) -> _Sizes | None:
    """Return the bytes left for payloads, or None if a message is too small for its other fields."""
    others = 2 + 1 + _varint_lengths(table.uncompressed_sizes) + 2 + 1 + TAIL_SIZE + store_field_size
    left = table.sizes.astype(np.int64) - others
    if not bool(np.all(left > MESSAGE_HEADER_SIZE)):
        return None
    sizes = np.zeros(len(table), dtype=np.uint64)
    varint = np.zeros(len(table), dtype=np.int64)
    for length in range(1, 10):
        fits = _varint_lengths(np.maximum(left - length, 0).astype(np.uint64)) == length
        sizes[fits], varint[fits] = (left - length)[fits], length
    return _Sizes(sizes, varint) if bool(np.all(varint)) else None


def _varint_lengths(values: Numbers) -> npt.NDArray[np.int64]:
    """Bytes that each number takes as a varint."""
    lengths = np.ones(len(values), dtype=np.int64)
    for bits in range(7, 64, 7):
        lengths += values >= np.uint64(1 << bits)
    return lengths


def _varints(values: Numbers, length: int) -> _Bytes:
    """Numbers as varints of ``length`` bytes, a row each."""
    shifts = np.arange(0, 7 * length, 7, dtype=np.uint64)
    varints = ((values[:, None] >> shifts) & np.uint64(0x7F)).astype(np.uint8)
    varints[:, :-1] |= 0x80
    return varints


def _same(count: int, *values: int) -> _Bytes:
    return np.broadcast_to(np.array(values, dtype=np.uint8), (count, len(values)))
