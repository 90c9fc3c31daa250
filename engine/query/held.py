"""Chunks that somebody holds, in memory or by reference, as segments that queries are asked of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import pyarrow as pa

from ..chunk import Chunk, ChunkData, ChunkHeader, Schema
from ..recordings import join_schemas
from ..rrd import ChunkEntry, ChunkTable, Times
from .query import AnswerColumns, Integers, Query
from .segments import QueriedSegment
from .sources import StoreSource


@dataclass(frozen=True)
class HeldChunks:
    """Some chunks as a layer of a segment."""

    held: tuple[Chunk, ...]

    @cached_property
    def table(self) -> ChunkTable:
        """A row for each chunk."""
        return ChunkTable.of(ChunkEntry(c.header, 0, c.byte_size, c.byte_size) for c in self.held)

    def read(self, rows: Integers) -> Iterator[ChunkData]:
        """The chunks of some rows. What is loaded of those by reference is not kept."""
        for row in rows.tolist():
            chunk = self.held[row]
            yield chunk.data if chunk.payload is None else Chunk.lazy(chunk.header, chunk.payload).data


@dataclass(frozen=True)
class HeldSource:
    """A segment of one layer, whose chunks are these. It pickles; chunks by reference travel without payloads."""

    chunks: tuple[Chunk, ...]

    @property
    def has_times(self) -> bool:
        """There are none: chunks are read for them."""
        return False

    @property
    def stored_bytes(self) -> int:
        """The bytes of the chunks by reference; nothing is read for the others."""
        return sum(chunk.byte_size for chunk in self.chunks if chunk.payload is not None)

    @property
    def layer_names(self) -> list[str]:
        """The name that a layer has where none is given."""
        return ["base"]

    def references(self) -> list[HeldChunks]:
        """The layer."""
        return [self._layer]

    def times(self) -> list[Times | None]:
        """There are none: chunks are read for them."""
        return [None]

    @cached_property
    def _layer(self) -> HeldChunks:
        return HeldChunks(self.chunks)

    def __reduce__(self) -> tuple[Any, ...]:
        return HeldSource, (self.chunks,)


@dataclass(frozen=True)
class HeldRecording:
    """A recording whose chunks somebody holds.

    ``silent_columns`` are headers of columns that no chunk's header names; ``source`` is where the chunks come from, if
    that is a store.
    """

    segment_id: str
    chunks: tuple[Chunk, ...]
    silent_columns: tuple[ChunkHeader, ...] = ()
    source: StoreSource | None = None

    @classmethod
    def of(cls, parts: Sequence[HeldRecording]) -> HeldRecording:
        """The recording that several of one id make together, one behind the other."""
        if len(parts) == 1:
            return parts[0]
        chunks = chain.from_iterable(part.chunks for part in parts)
        silent = chain.from_iterable(part.silent_columns for part in parts)
        return cls(parts[0].segment_id, tuple(chunks), tuple(silent))

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns as :meth:`Schema.to_arrow` gives them, their types joined over all chunks.

        Raises ``SchemaConflictError`` where they do not go together.
        """
        kinds: dict[object, list[ChunkHeader]] = {}
        for header in (*(chunk.header for chunk in self.chunks), *self.silent_columns):
            types = tuple((part.descriptor, part.datatype) for part in header.components)
            lines = tuple((line.name, line.kind) for line in header.timelines)
            kinds.setdefault((header.entity_path, types, lines), []).append(header)
        return join_schemas(Schema.from_headers(headers).to_arrow() for headers in kinds.values())

    def queried(self, columns: AnswerColumns) -> QueriedSegment:
        """The recording as a query with these columns sees it."""
        there = frozenset((c.entity_path, c.component) for c in Schema.from_arrow(self.schema).component_columns())
        lines = [line for c in self.chunks for line in c.header.timelines if line.name == columns.query.index]
        starts = [line.start for line in lines if line.start is not None]
        ends = [line.end for line in lines if line.end is not None]
        span = (min(starts), max(ends)) if starts and ends else None
        return QueriedSegment(self.source or HeldSource(self.chunks), self.segment_id, columns, there, span)


def queried_recordings(query: Query, recordings: Sequence[HeldRecording]) -> tuple[AnswerColumns, list[QueriedSegment]]:
    """The columns of the answer, and the recordings as the query sees them, by their ids.

    Raises ``ValueError`` as :meth:`Query.columns` does, and ``SchemaConflictError`` where types do not go together.
    """
    columns = query.columns(join_schemas(recording.schema for recording in recordings))
    ordered = sorted(recordings, key=lambda recording: recording.segment_id)
    return columns, [recording.queried(columns) for recording in ordered]
