"""Runs: messages that go from their files into another as they are, but for the store they name.

Copied by their footer's word, 20,000 chunks of eight rows take 0.13 s; with an object for each 1.6 s (2 cores;
``benchmarks/bench_rrd.py`` guards keep and drop). Each with a digest is verified by it on the way.
"""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..chunk import Chunk
from ..errors import ReadError, SourceMissingError, writing
from ..limits import FREE_EXPANSION
from ..objects import is_url
from ..task_context import READ, WRITE, passed_through, phase
from .chunk_table import ChunkEntry, ChunkTable
from .compression import Compression
from .copying import MessageCopier
from .framing import MESSAGE_HEADER_SIZE, MessageKind
from .messages import StoreEntry, store_field
from .payloads import VerifiedPayload
from .positional import PositionalFile, open_positional
from .table_columns import Numbers


@dataclass(frozen=True)
class Listed:
    """Messages, with rows of a chunk table that describe them where they lie now."""

    table: ChunkTable

    @property
    def chunks(self) -> int:
        """Number of messages."""
        return len(self.table)

    @property
    def rows(self) -> int:
        """Rows of their chunks."""
        return int(self.table.num_rows.sum())

    def placed(self, store: StoreEntry, start: int) -> ChunkTable:  # noqa: ARG002 (it is that of the part)
        """The same chunks in a file where their messages lie one behind the other from byte ``start`` on."""
        return self.table.placed(start)


@dataclass(frozen=True)
class Run(Listed, ABC):
    """Some messages of local files, with what a footer says of them. They belong to ``store`` there; pickles small."""

    store: StoreEntry

    def size_in(self, store: StoreEntry) -> int:
        """Bytes that they take, with their frame headers, once they belong to ``store``."""
        return int(self.sizes_in(store).sum()) + MESSAGE_HEADER_SIZE * self.chunks

    def placed(self, store: StoreEntry, start: int) -> ChunkTable:
        """The same chunks in a file where they lie from byte ``start`` on, and belong to ``store``."""
        return self.table.placed(start, self.sizes_in(store))

    @abstractmethod
    def copy(self, target: int, start: int, store: StoreEntry, *, destination: str) -> bool:
        """Append the messages to where the descriptor ``target`` stands, ``start`` bytes into its file.

        False where they do not lie where they should, or can't be copied without being parsed; then nothing is
        written. Raises :class:`ReadError` where a source ends before, :class:`WriteError` for ``destination``.
        """

    def fields(self, store: StoreEntry) -> tuple[bytes, bytes]:
        """The first bytes of each message, where it lies and in ``store``."""
        return store_field(self.store.to_message()), store_field(store.to_message())

    def sizes_in(self, store: StoreEntry) -> Numbers:
        """The messages' lengths once they belong to ``store``."""
        before, after = self.fields(store)
        return (self.table.sizes.astype(np.int64) + len(after) - len(before)).astype(np.uint64)


@dataclass(frozen=True)
class FileRun(Run):
    """Some messages of the file ``path`` of that version, in its order, with what its footer says of them."""

    path: str
    version: str | None = None

    def copy(self, target: int, start: int, store: StoreEntry, *, destination: str) -> bool:
        """As :meth:`Run.copy`; False where messages do not lie in the file as its footer has them.

        Raises :class:`ReadError` too for a message that has another digest than it should.
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
        """Whether the messages lie in the file as its footer has them, and so can be copied without being parsed."""
        try:
            if source is None:
                with open_positional(self.path, self.version) as opened:
                    return self.lies_as_listed(opened)
            with phase(READ):
                return lie_as_listed(source, self.table, store_field(self.store.to_message()))
        except (OSError, ReadError, SourceMissingError):
            return False  # whoever reads it properly says what is wrong


@dataclass(frozen=True, slots=True)
class RunRows:
    """Neighbours in a run: the rows from ``start`` to before ``stop``."""

    run: FileRun
    start: int
    stop: int

    @property
    def sizes(self) -> Numbers:
        """Their lengths, where they lie."""
        return self.run.table.sizes[self.start : self.stop]


_MOST_FILES: Final = 64


@dataclass(frozen=True)
class VerifiedRun(Run):
    """Messages in any order, each in the file that its row names. All have digests."""

    @classmethod
    def of(cls, chunks: Sequence[Chunk]) -> VerifiedRun | None:
        """The messages of ``chunks``; None where they do not all lie in few files of one store, written here."""
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
        """The same messages in runs of about equal size, of no more than about ``most`` bytes each."""
        return [replace(self, table=table) for table in self.table.divided(most)]

    def chunks_there(self) -> Iterator[Chunk]:
        """The chunks, undecoded."""
        which, paths = self.table.part_codes
        for entry, at in zip(self.table.entries(), which.tolist(), strict=True):
            size, store = entry.uncompressed_size, self.store
            payload = VerifiedPayload.of(paths[at], entry, uncompressed_size=size, store=store)
            yield Chunk.lazy(entry.header, payload)

    def copy(self, target: int, start: int, store: StoreEntry, *, destination: str) -> bool:
        """As :meth:`Run.copy`; False where a file is missing.

        Raises :class:`ReadError` too for a message that has another digest than it should.
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
"""Bytes after the payload: the chunk id (fields of 20 bytes) and whether the chunk is static."""

_MOST_AFTER_STORE: Final = 26
_LZ4_MAX_RATIO: Final = 255

_Bytes = npt.NDArray[np.uint8]


class _Sizes(NamedTuple):
    """Of each message: the size of its payload, and of the number that says it."""

    payload: Numbers
    varint: npt.NDArray[np.int64]


def lie_as_listed(file: PositionalFile, table: ChunkTable, store_field: bytes) -> bool:
    """Whether every row's message is what a writer makes of store, sizes, id and static-ness of that row.

    That is: a frame header, ``store_field`` (field 1 of the ``ArrowMsg``), compression, uncompressed size, encoding,
    payload, chunk id, static or not; each once, in this order and in the shortest form. Reads only what stands around
    payloads. False for anything else, which may be right all the same, or damaged: a parser has to look.
    """
    sizes = _payload_sizes(table, len(store_field))
    if sizes is None:
        return False
    head_size = MESSAGE_HEADER_SIZE + len(store_field) + _MOST_AFTER_STORE
    found = _read(file, table.offsets - np.uint64(MESSAGE_HEADER_SIZE), table.offsets + table.sizes, head_size)
    if found is None:
        return False
    heads, tails = found
    return (
        _frames_fit(heads, table, store_field)
        and bool(np.array_equal(tails, _expected_tails(table)))
        and _fields_fit(heads[:, MESSAGE_HEADER_SIZE + len(store_field) :], table, sizes)
    )


def _read(file: PositionalFile, starts: Numbers, stops: Numbers, head_size: int) -> tuple[_Bytes, _Bytes] | None:
    """The bytes that messages begin and end with, a row each; None where the file ends before.

    What lies side by side is read by one call.
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
    """Compression, uncompressed size, encoding, and tag and size of the payload; and whether the sizes are possible."""
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
    """The bytes that are left for payloads; None where a message is too small for its other fields."""
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
    found = ((values[:, None] >> shifts) & np.uint64(0x7F)).astype(np.uint8)
    found[:, :-1] |= 0x80
    return found


def _same(count: int, *values: int) -> _Bytes:
    return np.broadcast_to(np.array(values, dtype=np.uint8), (count, len(values)))
