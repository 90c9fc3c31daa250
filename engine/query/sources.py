"""Sources of the chunks of a segment, as a query asks for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import pyarrow as pa

from ..chunk import ChunkData
from ..errors import ReadError
from ..optimisation import ChunkReferences
from ..recordings import RecordingEntry, RecordingsFolder, entries_in, times_in
from ..rrd import ChunkTable, Times
from .query import Integers


class LayerChunks(Protocol):
    """The chunks of a layer, by reference: :class:`ChunkReferences`, or chunks in memory."""

    @property
    def table(self) -> ChunkTable:
        """A row for each chunk."""
        ...

    def read(self, rows: Integers) -> Iterable[ChunkData]:
        """The chunks of some rows, in that order, each when it is asked for. Raises ``ReadError``."""
        ...


class SegmentSource(Protocol):
    """The chunks of a segment, in layers. It pickles."""

    @property
    def stored_bytes(self) -> int:
        """The bytes of all chunks as stored, about; known without a look at any."""
        ...

    @property
    def has_times(self) -> bool:
        """Whether there are times of all layers; known without a look at any."""
        ...

    @property
    def layer_names(self) -> Sequence[str]:
        """The name of each layer of :meth:`references`."""
        ...

    def references(self) -> Sequence[LayerChunks]:
        """All chunks of each layer. Raises ``ReadError``."""
        ...

    def times(self) -> Sequence[Times | None]:
        """The times of the chunks of each layer of :meth:`references`; None where they were not made. Raises
        ``ReadError``.
        """
        ...


@lru_cache(maxsize=16)
def _folder_of(store: str) -> RecordingsFolder:
    """The folder of a store: its paths are made once for all of its segments."""
    return RecordingsFolder(store)


@dataclass(frozen=True)
class StoreSource:
    """A segment of a store: ``store`` is the place of that, ``layers`` are entries of the version that is pinned."""

    store: str
    layers: tuple[RecordingEntry, ...]

    @property
    def stored_bytes(self) -> int:
        """The bytes of all chunks."""
        return sum(layer.bytes for layer in self.layers)

    @property
    def has_times(self) -> bool:
        """Whether there are times of all layers that have chunks."""
        return all(layer.times_size for layer in self.layers if layer.chunks)

    @property
    def layer_names(self) -> list[str]:
        """The names of the layers that have chunks."""
        return [layer.layer for layer in self.layers if layer.chunks]

    def references(self) -> list[ChunkReferences]:
        """All chunks of each layer that has some. Raises ``ReadError``."""
        return [self._folder.references(layer) for layer in self.layers if layer.chunks]

    def times(self) -> list[Times | None]:
        """The times of the same layers. Raises ``ReadError``."""
        return [times_in(self._folder, layer) for layer in self.layers if layer.chunks]

    @property
    def _folder(self) -> RecordingsFolder:
        return _folder_of(self.store)

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreSource, (self.store, self.layers)


class LazySource(StoreSource):
    """A segment of a store whose entries are rows until somebody asks for them: most segments have no part in a query.

    It pickles as a :class:`StoreSource`.
    """

    def __init__(self, store: str, rows: pa.Table, first: int, stop: int, stored_bytes: int) -> None:
        vars(self).update(store=store, _rows=rows, _range=(first, stop), _stored_bytes=stored_bytes)

    @property
    def stored_bytes(self) -> int:
        """The bytes of all chunks."""
        found: int = vars(self)["_stored_bytes"]
        return found

    def __getattr__(self, name: str) -> Any:
        if name != "layers":
            raise AttributeError(name)
        known = vars(self)
        first, stop = known["_range"]
        known["layers"] = tuple(entries_in(known["_rows"].slice(first, stop - first).to_batches()))
        return known["layers"]


@contextmanager
def segment_named(segment_id: str) -> Iterator[None]:
    """Say in errors of reading which segment it was."""
    try:
        yield
    except ReadError as error:
        error.message += f", in segment {segment_id}"
        raise


class NamedLayer:
    """A layer that knows its name and its segment, which its errors say."""

    def __init__(self, layer: LayerChunks, segment_id: str, name: str) -> None:
        self.table = layer.table
        self.name = name
        self.segment_id = segment_id
        self._layer = layer

    def read(self, rows: Integers) -> Iterator[ChunkData]:
        """The chunks of some rows. Raises ``ReadError`` with the name of the segment."""
        with segment_named(self.segment_id):
            yield from self._layer.read(rows)
