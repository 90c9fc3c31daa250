"""The file that a task writes: messages that a commit brings together with others, or a whole RRD."""

from __future__ import annotations

from collections.abc import Sequence

from ..rrd import ChunkEntry, MessageWriter, RrdWriter, StoreEntry, WrittenListing
from .folders import NewFile


class PartFile:
    """A part, written by ``writer``. One that is ``whole`` has a header and a footer: to commit it is to name it.

    The footer tells of the chunks that :meth:`describe` was given; in a part that is not whole there is none.
    ``digests`` is as in :class:`MessageWriter`.
    """

    def __init__(
        self, new: NewFile, store: StoreEntry, destination: str, *, whole: bool, digests: bool = False
    ) -> None:
        self._store = store
        self._rrd: RrdWriter | None = None
        if whole:
            self._rrd = RrdWriter(new.file, path=destination)
            self._rrd.begin_store(store)
            self.writer = self._rrd.messages(store)
        else:
            self.writer = MessageWriter(new.file, store, path=destination, digests=digests)

    def describe(self, chunks: WrittenListing | Sequence[ChunkEntry]) -> None:
        """Note the chunks that were written since this was called last."""
        if self._rrd is not None:
            self._rrd.adopt(self._store, chunks.columns if isinstance(chunks, WrittenListing) else chunks, 0)

    def finish(self) -> int | None:
        """Write what is left, and the footer if there is one; gives the size of a whole file, in bytes."""
        if self._rrd is None:
            self.writer.flush()
            return None
        self._rrd.finish()
        return self._rrd.position
