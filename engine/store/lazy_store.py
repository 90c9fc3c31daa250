"""``LazyStore``: a recording known by its manifest, whose chunks are read when they are touched."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from ..chunk import Chunk, ChunkHeader
from ..chunk.schema import Schema
from ..chunk.summary import summarise_chunks
from ..execution.progress import RunResult
from ..execution.shards import SHARD_BYTES
from ..stream import LazyChunkStream
from .kept import KeptFolder, StoreVersion
from .reference import ChunkListSource


class LazyStore:
    """The chunks of a recording in the order of its manifest. Length, schema and summary read no chunk.

    Made by :meth:`RrdReader.store` and :meth:`ChunkStore.open`.
    """

    def __init__(
        self,
        chunks: Iterable[Chunk],
        *,
        name: str,
        kept: tuple[KeptFolder, StoreVersion] | None = None,
        silent_columns: Sequence[ChunkHeader] = (),
    ) -> None:
        self._chunks = tuple(chunks)
        self._silent_columns = silent_columns
        self._name = name
        self._kept = kept

    @property
    def version(self) -> StoreVersion | None:
        """The version that is open, of a kept store."""
        return None if self._kept is None else self._kept[1]

    def versions(self) -> list[StoreVersion]:
        """All versions of a kept store, oldest first."""
        return [] if self._kept is None else self._kept[0].versions()

    def vacuum(self, keep: int = 1) -> int:
        """Remove what only versions older than the newest ``keep`` need; gives the bytes freed. For a kept store."""
        return 0 if self._kept is None else self._kept[0].vacuum(keep)

    def schema(self) -> Schema:
        """All timelines and components, from the manifest."""
        return Schema.from_headers(chain((c.header for c in self._chunks), self._silent_columns))

    def summary(self) -> str:
        """One line a chunk, from the manifest: see :meth:`ChunkStore.summary`.

        Components of which a footer says nothing, because all their rows are null, are left out.
        """
        return summarise_chunks(c.header for c in self._chunks)

    def stream(self) -> LazyChunkStream:
        """A stream over all chunks."""
        return LazyChunkStream.from_source(ChunkListSource(self._name, self._chunks))

    def write_rrd(
        self,
        path: str | os.PathLike[str],
        *,
        application_id: str,
        recording_id: str,
        shards: bool = False,
        shard_bytes: int = SHARD_BYTES,
    ) -> RunResult:
        """Write all chunks to an RRD file, or a folder of them; see :meth:`LazyChunkStream.write_rrd`."""
        return self.stream().write_rrd(
            path, application_id=application_id, recording_id=recording_id, shards=shards, shard_bytes=shard_bytes
        )

    def __len__(self) -> int:
        return len(self._chunks)

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self._chunks)

    def __repr__(self) -> str:
        return f"LazyStore({len(self)} chunks)"
