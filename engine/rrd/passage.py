"""Messages that go from one file into another as they are, but for the store they name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from ..errors import ReadError, SourceMissingError
from ..failing import writing
from ..phases import READ, WRITE, passed_through, phase
from .arrow_message import store_field
from .chunk_columns import ChunkColumns
from .framing import MESSAGE_HEADER_SIZE
from .listing import Listed
from .manifest_table import ManifestTable, Numbers
from .message_copy import MessageCopier
from .message_layout import lie_as_listed
from .open_files import open_positional
from .positional import PositionalFile
from .store_entry import StoreEntry
from .taken_columns import columns_of_table


@dataclass(frozen=True)
class Passage(Listed, ABC):
    """Some messages of local files, with what a footer says of them. They belong to ``store`` there; pickles small."""

    store: StoreEntry

    def size_in(self, store: StoreEntry) -> int:
        """Bytes that they take, with their frame headers, once they belong to ``store``."""
        return int(self.sizes_in(store).sum()) + MESSAGE_HEADER_SIZE * self.chunks

    def columns(self, store: StoreEntry, start: int) -> ChunkColumns | None:
        """What a footer says of them in a file where they lie from byte ``start`` on and belong to ``store``.

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
        """What each message begins with, where it lies and in ``store``."""
        return store_field(self.store.to_message()), store_field(store.to_message())

    def sizes_in(self, store: StoreEntry) -> Numbers:
        """The messages' lengths once they belong to ``store``."""
        before, after = self.fields(store)
        return (self.table.sizes.astype(np.int64) + len(after) - len(before)).astype(np.uint64)


@dataclass(frozen=True)
class FilePassage(Passage):
    """Some messages of the file ``path`` of that version, in its order, with what its footer says of them."""

    path: str
    version: str | None = None

    def copy(self, target: int, start: int, store: StoreEntry, *, destination: str) -> bool:
        """As :meth:`Passage.copy`; False where messages do not lie in the file as its footer has them.

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
class PassedRun:
    """Some messages of a passage, one behind the other: the rows from ``start`` to before ``stop``."""

    passage: FilePassage
    start: int
    stop: int

    @property
    def sizes(self) -> Numbers:
        """Their lengths, where they lie."""
        return self.passage.table.sizes[self.start : self.stop]


def says_all(table: ManifestTable) -> bool:
    """Whether the rows say of their chunks all that another footer has to."""
    return columns_of_table(table) is not None


def divided(table: ManifestTable, most: int) -> list[ManifestTable]:
    """The rows in runs of about equal size, of no more than about ``most`` bytes of messages each."""
    ends = np.cumsum(table.sizes)
    total = int(ends[-1]) if len(ends) else 0
    return table.divided(ends, max(-(-total // most), 2 if total > most // 8 else 1))


__all__ = ["FilePassage", "Passage", "PassedRun", "divided", "says_all"]
