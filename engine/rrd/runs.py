"""Runs: messages that go from their files into another as they are, but for the store they name.

Copied by their footer's word, 20,000 chunks of eight rows take 0.13 s; with an object for each 1.6 s (2 cores;
``benchmarks/bench_rrd.py`` guards keep and drop). Each with a digest is verified by it on the way.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..chunk.chunk import Chunk
from ..errors import ReadError, SourceMissingError
from ..failing import writing
from ..objects import is_url
from ..phases import READ, WRITE, passed_through, phase
from .arrow_message import store_field
from .chunk_columns import ChunkColumns
from .digest import VerifiedPayload
from .entry import ChunkEntry
from .framing import MESSAGE_HEADER_SIZE
from .listing import Listed, listing_of
from .manifest_table import ManifestTable, Numbers, Rows
from .message_copy import MessageCopier
from .message_layout import lie_as_listed
from .open_files import open_positional
from .positional import PositionalFile
from .store_entry import StoreEntry
from .taken_columns import columns_of_table


@dataclass(frozen=True)
class Run(Listed, ABC):
    """Some messages of local files, with what a footer says of them. They belong to ``store`` there; pickles small."""

    store: StoreEntry

    def size_in(self, store: StoreEntry) -> int:
        """Bytes that they take, with their frame headers, once they belong to ``store``."""
        return int(self.sizes_in(store).sum()) + MESSAGE_HEADER_SIZE * self.chunks

    def columns(self, store: StoreEntry, start: int) -> ChunkColumns | None:
        """The columns of a footer on them, in a file where they lie from byte ``start`` on and belong to ``store``.

        None where the source's footer does not say enough.
        """
        return self._columns(start, self.sizes_in(store))

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
        passed_through(self.source_size)
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


def says_all(table: ManifestTable) -> bool:
    """Whether the rows say of their chunks all that another footer has to."""
    return columns_of_table(table) is not None


def divided(table: ManifestTable, most: int) -> list[ManifestTable]:
    """The rows in runs of about equal size, of no more than about ``most`` bytes of messages each."""
    ends = np.cumsum(table.sizes)
    total = int(ends[-1]) if len(ends) else 0
    return table.divided(ends, max(-(-total // most), 2 if total > most // 8 else 1))


_MOST_FILES: Final = 64


@dataclass(frozen=True)
class VerifiedRun(Run):
    """Messages in any order, each in one of the files ``paths``: that of the number ``file_of``. All have digests."""

    paths: tuple[str, ...]
    file_of: tuple[int, ...]

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
        numbers: dict[str, int] = {}
        file_of = tuple([numbers.setdefault(p.path, len(numbers)) for p in payloads])
        stores = {p.store for p in payloads}
        store = stores.pop() if len(stores) == 1 else None
        if store is None or len(numbers) > _MOST_FILES:
            return None
        table = listing_of(entries)
        return None if table is None else cls(table, store, tuple(numbers), file_of)

    def divided(self, most: int) -> list[VerifiedRun]:
        """The same messages in runs of about equal size, of no more than about ``most`` bytes each."""
        found: list[VerifiedRun] = []
        start = 0
        for table in divided(self.table, most):
            some = slice(start, start + len(table))
            found.append(VerifiedRun(table, self.store, self.paths, self.file_of[some]))
            start += len(table)
        return found

    def take(self, rows: Rows) -> VerifiedRun:
        """Some of the messages, in that order."""
        file_of = tuple([self.file_of[i] for i in rows.tolist()])
        return VerifiedRun(self.table.take(rows), self.store, self.paths, file_of)

    def chunks_there(self) -> Iterator[Chunk]:
        """The chunks, undecoded."""
        for entry, at in zip(self.table.entries(), self.file_of, strict=True):
            size, store = entry.uncompressed_size, self.store
            payload = VerifiedPayload.of(self.paths[at], entry, uncompressed_size=size, store=store)
            yield Chunk.lazy(entry.header, payload)

    def copy(self, target: int, start: int, store: StoreEntry, *, destination: str) -> bool:
        """As :meth:`Run.copy`; False where a file is missing.

        Raises :class:`ReadError` too for a message that has another digest than it should.
        """
        before, after = self.fields(store)
        with contextlib.ExitStack() as stack:
            try:
                files = [stack.enter_context(PositionalFile(path)) for path in self.paths]
            except (ReadError, SourceMissingError):
                return False
            with phase(WRITE), writing(destination):
                copier = MessageCopier(target, start)
                columns = self.table.offsets.tolist(), self.table.sizes.tolist(), self.table.digests.to_pylist()
                for at, offset, size, digest in zip(self.file_of, *columns, strict=True):
                    copier.copy_one(files[at], offset, size, before, after, digest)
                copier.flush()
        passed_through(self.source_size)
        return True
