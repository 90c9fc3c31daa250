"""The layers of the segments of a store, and chunks in memory as segments."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..chunk import Chunk, ChunkData, ChunkHeader, Schema, TimelineKind
from ..recordings import RecordingsFolder, SchemaFiles, join_schemas
from ..rrd import ChunkEntry, ChunkTable, Times
from .query import AnswerColumns, Integers, Query
from .segments import LazySource, QueriedSegment, StoreSource

_LEAST: Final = np.iinfo(np.int64).min
_MOST: Final = np.iinfo(np.int64).max


@dataclass(frozen=True)
class SegmentLayers:
    """The layers of a dataset: rows of entries, grouped by segment, in the order of registration.

    Segments are in the order in which their first layer was registered. ``starts`` has the first row of each segment,
    ``owner`` the segment number of each row.
    """

    rows: pa.Table
    starts: Integers
    owner: Integers

    @classmethod
    def of(cls, entries: pa.Table, kind: str) -> Self:
        """The layers of all recordings, or of all blueprints."""
        is_blueprint = pc.equal(entries["kind"], "blueprint")
        rows = entries.filter(is_blueprint if kind == "blueprint" else pc.invert(is_blueprint))
        numbers = rows["recording_id"].combine_chunks().dictionary_encode()
        owner = np.asarray(numbers.indices if len(rows) else [], dtype=np.int64)
        names = np.asarray(pc.rank(rows["layer"], "ascending", tiebreaker="dense"), dtype=np.int64)
        order = np.lexsort((names, np.asarray(rows["added"]), owner))
        owner = owner[order]
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        return cls(rows.take(pa.array(order)), starts, owner)

    @property
    def segments(self) -> pa.Array:
        """The ids of the segments."""
        return self.rows["recording_id"].take(pa.array(self.starts)).combine_chunks()

    @property
    def digests(self) -> list[str]:
        """The distinct digests of the layers' schemas."""
        return [digest for digest in self.rows["schema"].unique().to_pylist() if digest]

    def of_segments(self, ids: Collection[str]) -> Self:
        """The layers of some segments."""
        wanted = pc.is_in(self.rows["recording_id"], pa.array(list(ids), pa.string()))
        rows = self.rows.filter(wanted)
        owner = self.owner[np.asarray(wanted, dtype=bool)]
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        return type(self)(rows, starts, np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(rows)))))

    def spans_of(self, index: str | None) -> list[tuple[int, int] | None]:
        """Return the first and last value of an index in each segment, as integers; None for segments without it."""
        columns = {} if index is None else {field.name: column for field, column in self.ranges()}
        if f"{index}:start" not in columns:
            return [None] * len(self.starts)
        first, last = (columns[f"{index}:{marker}"].cast(pa.int64()).to_pylist() for marker in ("start", "end"))
        return [None if begin is None else (begin, end) for begin, end in zip(first, last, strict=True)]

    def ranges(self) -> list[tuple[pa.Field, pa.Array]]:
        """The end and the start of each index in each segment, sorted by the name of the index."""
        lists = self.rows["ranges"].combine_chunks()
        cells = pc.list_flatten(lists)
        owner = self.owner[np.asarray(pc.list_parent_indices(lists), dtype=np.int64)]
        columns = []
        numbers = cells.field("name").dictionary_encode()
        codes = np.asarray(numbers.indices, dtype=np.int64)
        for code, name in sorted(enumerate(numbers.dictionary.to_pylist()), key=lambda pair: pair[1].encode()):
            at = np.flatnonzero(codes == code)
            kind = TimelineKind(cells.field("kind")[int(at[0])].as_py())
            for marker, reduce, none in (("end", np.maximum, _LEAST), ("start", np.minimum, _MOST)):
                values = np.full(len(self.starts), none, dtype=np.int64)
                reduce.at(values, owner[at], np.asarray(cells.field(marker), dtype=np.int64)[at])
                missing = np.ones(len(values), dtype=bool)
                missing[owner[at]] = False
                metadata = {
                    "rerun:index": name,
                    "rerun:index_kind": str(kind.value),
                    "rerun:index_marker": marker,
                    "rerun:kind": "index",
                }
                column = pa.array(values, mask=missing).view(kind.arrow_type)
                columns.append((pa.field(f"{name}:{marker}", column.type, True, metadata), column))
        return columns

    def queried(self, folder: RecordingsFolder, schemas: SchemaFiles, columns: AnswerColumns) -> list[QueriedSegment]:
        """The segments for a query with these columns, sorted by their ids. Raises ``ReadError``."""
        spans = self.spans_of(columns.query.index)
        ids = self.segments.to_pylist()
        digests = self.rows["schema"].to_pylist()
        bounds = np.append(self.starts, len(self.rows))
        sizes = np.diff(np.append(0, np.cumsum(np.asarray(self.rows["bytes"], dtype=np.int64)))[bounds])
        keys_of: dict[frozenset[str], frozenset[tuple[str, str]]] = {}
        rows, path = self.rows.combine_chunks(), str(folder.path)
        segments = []
        of_segments = zip(ids, pairwise(bounds.tolist()), spans, sizes.tolist(), strict=True)
        for segment_id, (first, stop), span, size in of_segments:
            schema = frozenset(digest for digest in digests[first:stop] if digest)
            if schema not in keys_of:
                whole = Schema.from_arrow(schemas.union(schema)).component_columns()
                keys_of[schema] = frozenset((c.entity_path, c.component) for c in whole)
            source = LazySource(path, rows, first, stop, size)
            segments.append(QueriedSegment(source, segment_id, columns, keys_of[schema], span))
        return sorted(segments, key=lambda segment: segment.segment_id)


@dataclass(frozen=True)
class HeldChunks:
    """Chunks in memory as a layer of a segment."""

    held: tuple[Chunk, ...]

    @cached_property
    def table(self) -> ChunkTable:
        """A row for each chunk."""
        return ChunkTable.of(ChunkEntry(c.header, 0, c.byte_size, c.byte_size) for c in self.held)

    def read(self, rows: Integers) -> Iterator[ChunkData]:
        """The chunks of some rows. Loaded payloads of chunks by reference are not kept."""
        for row in rows.tolist():
            chunk = self.held[row]
            yield chunk.data if chunk.payload is None else Chunk.lazy(chunk.header, chunk.payload).data


@dataclass(frozen=True)
class HeldSource:
    """A segment with one layer of chunks in memory. Picklable; chunks by reference are pickled without payloads."""

    chunks: tuple[Chunk, ...]

    @property
    def has_times(self) -> bool:
        """False: times come from the chunks."""
        return False

    @property
    def stored_bytes(self) -> int:
        """The bytes of the chunks by reference; other chunks are already in memory."""
        return sum(chunk.byte_size for chunk in self.chunks if chunk.payload is not None)

    @property
    def layer_names(self) -> list[str]:
        """The default layer name."""
        return ["base"]

    def references(self) -> list[HeldChunks]:
        """The layer."""
        return [self._layer]

    def times(self) -> list[Times | None]:
        """None are held; chunks are read instead."""
        return [None]

    @cached_property
    def _layer(self) -> HeldChunks:
        return HeldChunks(self.chunks)

    def __reduce__(self) -> tuple[Any, ...]:
        return HeldSource, (self.chunks,)


@dataclass(frozen=True)
class HeldRecording:
    """A recording whose chunks are in memory or referenced.

    ``silent_columns`` are headers with columns that no chunk's header has; ``source`` has the chunks if they come from
    a store.
    """

    segment_id: str
    chunks: tuple[Chunk, ...]
    silent_columns: tuple[ChunkHeader, ...] = ()
    source: StoreSource | None = None

    @classmethod
    def of(cls, parts: Sequence[HeldRecording]) -> HeldRecording:
        """Join recordings with the same id into one, with the chunks of one part after another."""
        if len(parts) == 1:
            return parts[0]
        chunks = chain.from_iterable(part.chunks for part in parts)
        silent = chain.from_iterable(part.silent_columns for part in parts)
        return cls(parts[0].segment_id, tuple(chunks), tuple(silent))

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns in the form of :meth:`Schema.to_arrow`, with types that fit all chunks.

        Raises ``SchemaConflictError`` if types are incompatible.
        """
        kinds: dict[object, list[ChunkHeader]] = {}
        for header in (*(chunk.header for chunk in self.chunks), *self.silent_columns):
            types = tuple((part.descriptor, part.datatype) for part in header.components)
            lines = tuple((line.name, line.kind) for line in header.timelines)
            kinds.setdefault((header.entity_path, types, lines), []).append(header)
        return join_schemas(Schema.from_headers(headers).to_arrow() for headers in kinds.values())

    def queried(self, columns: AnswerColumns) -> QueriedSegment:
        """The recording for a query with these columns."""
        component_keys = frozenset(
            (c.entity_path, c.component) for c in Schema.from_arrow(self.schema).component_columns()
        )
        lines = [line for c in self.chunks for line in c.header.timelines if line.name == columns.query.index]
        starts = [line.start for line in lines if line.start is not None]
        ends = [line.end for line in lines if line.end is not None]
        span = (min(starts), max(ends)) if starts and ends else None
        return QueriedSegment(self.source or HeldSource(self.chunks), self.segment_id, columns, component_keys, span)


def queried_recordings(query: Query, recordings: Sequence[HeldRecording]) -> tuple[AnswerColumns, list[QueriedSegment]]:
    """The columns of the result, and the recordings for the query, sorted by their ids.

    Raises the errors of :meth:`Query.columns`, and ``SchemaConflictError`` if types are incompatible.
    """
    columns = query.columns(join_schemas(recording.schema for recording in recordings))
    ordered = sorted(recordings, key=lambda recording: recording.segment_id)
    return columns, [recording.queried(columns) for recording in ordered]
