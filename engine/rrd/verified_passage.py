"""Messages of a store's own files on their way into another file: each is verified by its digest as it is copied."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ..chunk.chunk import Chunk
from ..errors import ReadError, SourceMissingError
from ..failing import writing
from ..objects import is_url
from ..phases import WRITE, passed_through, phase
from .digest import VerifiedPayload
from .entry import ChunkEntry
from .listing import listing_of
from .manifest_table import Rows
from .message_copy import MessageCopier
from .passage import Passage, divided
from .positional import PositionalFile
from .store_entry import StoreEntry

_MOST_FILES: Final = 64


@dataclass(frozen=True)
class VerifiedPassage(Passage):
    """Messages in any order, each in one of the files ``paths``: that of the number ``file_of``. All have digests."""

    paths: tuple[str, ...]
    file_of: tuple[int, ...]

    @classmethod
    def of(cls, chunks: Sequence[Chunk]) -> VerifiedPassage | None:
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

    def divided(self, most: int) -> list[VerifiedPassage]:
        """The same messages in runs of about equal size, of no more than about ``most`` bytes each."""
        found: list[VerifiedPassage] = []
        start = 0
        for table in divided(self.table, most):
            some = slice(start, start + len(table))
            found.append(VerifiedPassage(table, self.store, self.paths, self.file_of[some]))
            start += len(table)
        return found

    def take(self, rows: Rows) -> VerifiedPassage:
        """Some of the messages, in that order."""
        file_of = tuple([self.file_of[i] for i in rows.tolist()])
        return VerifiedPassage(self.table.take(rows), self.store, self.paths, file_of)

    def chunks_there(self) -> Iterator[Chunk]:
        """The chunks, undecoded."""
        for entry, at in zip(self.table.entries(), self.file_of, strict=True):
            place = (self.paths[at], entry.offset, entry.size, entry.header.chunk_id, entry.digest or b"")
            yield Chunk.lazy(entry.header, VerifiedPayload(*place, entry.uncompressed_size, self.store))

    def copy(self, target: int, start: int, store: StoreEntry, *, destination: str) -> bool:
        """As :meth:`Passage.copy`; False where a file is missing.

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
