"""``LazyStore``: a recording known by its manifest, whose chunks are read when they are touched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..chunk import Chunk, ChunkHeader
from .kept import KeptFolder, StoreVersion
from .stored import StoredChunks


class LazyStore(StoredChunks):
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
        super().__init__(tuple(chunks), name=name, folder=kept[0] if kept else None, silent=silent_columns)
        self._version = kept[1] if kept else None

    @property
    def version(self) -> StoreVersion | None:
        """The version that is open, of a kept store."""
        return self._version
