"""What every reader can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from ..engine.store import LazyStore
    from ..engine.stream import LazyChunkStream


@runtime_checkable
class StreamingReader(Protocol):
    """A reader that gives its chunks one after the other."""

    def stream(self) -> LazyChunkStream:
        """A lazy stream over all chunks of this source; nothing is read before it is pulled."""
        ...


@runtime_checkable
class IndexedReader(StreamingReader, Protocol):
    """A reader of a format with an index: besides streaming, it can open single chunks on demand."""

    def store(self) -> LazyStore:
        """A lazy store over this source: its index is read at once, chunks when they are touched."""
        ...
