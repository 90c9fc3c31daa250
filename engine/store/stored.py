"""What every store can do: it holds chunks in one order, says what they are, and gives them out again."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import chain

from ..chunk import Chunk, ChunkHeader
from ..chunk.header import summarise_chunks
from ..chunk.schema import Schema
from ..execution.shards import SHARD_BYTES
from ..reports import RunReport
from ..stream import LazyChunkStream
from .kept import KeptFolder, StoreVersion
from .reference import ChunkListSource


class StoredChunks:
    """The base of :class:`ChunkStore` and :class:`LazyStore`.

    ``silent`` are headers of columns that no chunk's header names, because they hold nothing but nulls; ``folder`` is
    where a kept store lies.
    """

    def __init__(
        self,
        chunks: Sequence[Chunk],
        *,
        name: str,
        folder: KeptFolder | None = None,
        silent: Sequence[ChunkHeader] = (),
    ) -> None:
        self._chunks = tuple(chunks)
        self._name = name
        self._folder = folder
        self._silent = silent

    def schema(self) -> Schema:
        """All timelines and components, from the headers alone."""
        return Schema.from_headers(chain((c.header for c in self._chunks), self._silent))

    def summary(self) -> str:
        """One line a chunk, sorted by entity: ``{entity} rows=… static=… timelines=[…] cols=[…]``.

        Where headers come from an RRD's footer, components of which it says nothing, because all their rows are null,
        are left out.
        """
        return summarise_chunks(c.header for c in self._chunks)

    def stream(self) -> LazyChunkStream:
        """A stream over all chunks, in the store's order."""
        return LazyChunkStream.from_source(ChunkListSource(self._name, self._chunks))

    def write_rrd(
        self,
        path: str | os.PathLike[str],
        *,
        application_id: str,
        recording_id: str,
        shards: bool = False,
        shard_bytes: int = SHARD_BYTES,
    ) -> RunReport:
        """Write all chunks to an RRD file, or a folder of them; see :meth:`LazyChunkStream.write_rrd`."""
        return self.stream().write_rrd(
            path, application_id=application_id, recording_id=recording_id, shards=shards, shard_bytes=shard_bytes
        )

    def versions(self) -> list[StoreVersion]:
        """All versions of a kept store, oldest first; none for one in scratch, in memory or in an RRD."""
        return [] if self._folder is None else self._folder.versions()

    def vacuum(self, keep: int = 1) -> int:
        """Remove what only versions older than the newest ``keep`` need; gives the bytes freed. For a kept store."""
        return 0 if self._folder is None else self._folder.vacuum(keep)

    def __len__(self) -> int:
        return len(self._chunks)

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self._chunks)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} chunks)"
