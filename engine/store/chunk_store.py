"""``ChunkStore``: all chunks of a recording, materialised on disk, laid out for reading."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..chunk import Chunk
from ..chunk.schema import Schema
from ..chunk.summary import summarise_chunks
from ..execution.progress import RunResult
from ..execution.runner import RunOptions, scratch_folder
from ..execution.scratch import ScratchFolder
from ..execution.shards import SHARD_BYTES, write_shards
from ..execution.staging import Staging
from ..execution.work import Work
from ..rrd import StoreEntry
from ..rrd.digest import VerifiedPayload
from ..stream import LazyChunkStream
from ..stream.operators import as_chunk
from .collecting import collect_parts
from .kept import KeptFolder, StoreVersion
from .lazy_store import LazyStore
from .passes import optimised
from .profile import OptimizationProfile
from .reference import ChunkListSource, by_chunk_id

_AS_THEY_ARE = OptimizationProfile(max_bytes=0, max_rows=0, max_rows_if_unsorted=0, extra_passes=0, gop_batching=False)


class ChunkStore:
    """The chunks of a recording, by ascending chunk id. It does not change.

    Made by :meth:`from_chunks`, :meth:`LazyChunkStream.collect` or :meth:`open`. Chunks that were collected lie on disk
    and are read when they are touched, so a store may be larger than memory; each is verified by its digest then.

    Order: ascending chunk id, for iteration, ``stream`` and ``write_rrd``.
    """

    def __init__(self, chunks: Iterable[Chunk], *, folder: KeptFolder | None = None) -> None:
        self._chunks = by_chunk_id(list(chunks))
        self._folder = folder

    @staticmethod
    def from_chunks(chunks: Iterable[Chunk]) -> ChunkStore:
        """A store of the given chunks, in memory. Nothing is merged or split.

        Chunks without rows or components, and chunks given twice, are left out; static chunks that newer ones
        overwrite whole are dropped. Raises ``ReadError`` when a chunk's row ids do not ascend, ``AttributeError`` for
        what is no chunk.
        """
        return ChunkStore(optimised(map(as_chunk, chunks), _AS_THEY_ARE))

    @staticmethod
    def open(path: str | os.PathLike[str], *, version: int | None = None) -> LazyStore:
        """A kept store, as it was at ``version`` (by default the newest). Reads the manifest only."""
        folder = KeptFolder(path)
        found = folder.version(version)
        return LazyStore(folder.chunks(found), name=f"{folder.path} version {found.number}", kept=(folder, found))

    def versions(self) -> list[StoreVersion]:
        """The versions of the folder in which this store is kept; none for one in scratch or in memory."""
        return [] if self._folder is None else self._folder.versions()

    def vacuum(self, keep: int = 1) -> int:
        """Remove what only versions older than the newest ``keep`` need; gives the bytes freed. For a kept store."""
        return 0 if self._folder is None else self._folder.vacuum(keep)

    def schema(self) -> Schema:
        """All timelines and components of the store."""
        return Schema.from_headers(c.header for c in self._chunks)

    def summary(self) -> str:
        """One line a chunk, sorted by entity: ``{entity} rows=… static=… timelines=[…] cols=[…]``."""
        return summarise_chunks(c.header for c in self._chunks)

    def stream(self) -> LazyChunkStream:
        """A stream over all chunks."""
        return LazyChunkStream.from_source(ChunkListSource("ChunkStore", self._chunks))

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
        return f"ChunkStore({len(self)} chunks)"


def collect(
    work: Work,
    options: RunOptions,
    optimize: OptimizationProfile | None,
    into: str | os.PathLike[str] | None,
    application_id: str,
    recording_id: str | None,
    shard_bytes: int,
) -> ChunkStore:
    """What :meth:`LazyChunkStream.collect` does."""
    if into is None:
        return _collect_to_scratch(work, options, optimize)
    store = StoreEntry("recording", application_id, recording_id or str(uuid.uuid4()))
    folder = KeptFolder(into)
    folder.prepare()
    versions = folder.versions()
    with Staging.beside(folder.path / "store") as staging:
        chunks = collect_parts(work, optimize, store, staging, options)
        in_parts = sorted(chunks, key=lambda c: (c.task, c.position))
        shards = list(write_shards(staging, store, in_parts, shard_bytes, str(folder.path)))
        kept = sorted((c for _, found in shards for c in found), key=lambda c: c.entry.header.chunk_id)
        version = folder.commit(store, [p for p, _ in shards], kept, versions[-1].number if versions else 0)
    return ChunkStore(folder.chunks(version), folder=folder)


def _collect_to_scratch(work: Work, options: RunOptions, optimize: OptimizationProfile | None) -> ChunkStore:
    staging = Staging.within(scratch_folder())
    try:
        chunks = collect_parts(work, optimize, StoreEntry("recording", "chunkmill", "scratch"), staging, options)
    except BaseException:
        staging.remove()
        raise
    folder = ScratchFolder(staging.folder)
    return ChunkStore(
        Chunk.lazy(
            c.entry.header,
            folder.keeping(
                VerifiedPayload(
                    str(Path(staging.folder) / c.part),
                    c.entry.offset,
                    c.entry.size,
                    c.entry.header.chunk_id,
                    c.digest or b"",
                )
            ),
        )
        for c in chunks
    )
