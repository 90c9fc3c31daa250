"""Small chunks for tasks, many in one Arrow batch.

As messages, 20,000 chunks of one row take 63 µs each to write, 45 to report and copy, and 69 to decode: each has its
own Arrow stream and schema. In batches they take 9 to write and 20 to read (``benchmarks/ bench_small_chunks.py``; 2
cores).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ..chunk import Chunk, ChunkData, Component, ComponentDescriptor, Timeline, TimelineKind, alike, is_plain
from ..limits import MIB
from ..rrd import Compression, Output, PositionalFile, decode_batch, encode_batch

SMALL: Final = 8192
"""The largest small chunk for a task, in bytes."""

SMALL_RESULT: Final = 1024
"""The largest small chunk from a task, in bytes: it stays in memory, and takes no more than its header would."""

_MOST_BYTES: Final = 4 * MIB
_MOST_CHUNKS: Final = 4096
_WHAT: Final = "a batch of chunks"
_ABOUT: Final = b"chunkmill:columns"


@dataclass(frozen=True, slots=True)
class SmallChunks:
    """Places of Arrow streams in a part, with ``count`` of its chunks, the first at position ``first``.

    Chunks of other batches and messages may be in between: each chunk is stored with its position.
    """

    first: int
    count: int
    places: tuple[tuple[int, int], ...]
    """Offset and size of each stream, in bytes."""

    def read(self, file: PositionalFile) -> Iterator[tuple[int, Chunk]]:
        """The chunks with their positions, unordered. Raises ``ReadError`` if they cannot be read."""
        for offset, size in self.places:
            stream = file.read(offset, size, what=_WHAT)
            for at, data in _unpacked(decode_batch(stream, path=file.path, offset=offset, what=_WHAT)):
                yield at, Chunk.from_data(data)


@dataclass(slots=True)
class _Alike:
    """Chunks of one shape, with their positions."""

    types: Sequence[pa.DataType]
    positions: list[int] = field(default_factory=list)
    chunks: list[ChunkData] = field(default_factory=list)


class SmallChunkWriter:
    """Collects decoded chunks of up to ``most`` bytes until they are written."""

    def __init__(self, most: int = SMALL) -> None:
        self._most = most
        self._count = self._bytes = self._first = 0
        self._groups: dict[tuple[object, ...], _Alike] = {}

    @property
    def is_full(self) -> bool:
        """Whether the chunks should be written before more are added."""
        return self._count >= _MOST_CHUNKS or self._bytes >= _MOST_BYTES

    def takes(self, chunk: Chunk, position: int) -> int:
        """Add a chunk if it is small and in memory; return its size in bytes, or 0 for others."""
        if chunk.payload is not None:
            return 0
        size = chunk.byte_size
        if not 0 < size <= self._most:
            return 0
        data = chunk.data
        buffers = [[b is None for b in c.values.buffers()] for c in data.components]
        # slices of joined arrays have a null bitmap if any of the arrays has one
        key = (*data.shape, *[tuple(missing) for missing in buffers])
        types = data.types
        group = self._groups.get(key)
        if group is None:
            if not all(map(is_plain, types)):
                return 0
            group = self._groups[key] = _Alike(types)
        elif not alike(group.types, types):
            return 0
        if not self._count:
            self._first = position
        group.positions.append(position)
        group.chunks.append(data)
        self._count += 1
        self._bytes += size
        return size

    def write(self, out: Output) -> Iterator[SmallChunks]:
        """Write the collected chunks, if any."""
        if not self._count:
            return
        places = []
        for group in self._groups.values():
            stream, size = encode_batch(_packed(group), Compression.NONE)
            places.append((out.position, size))
            out.write(stream)
        yield SmallChunks(self._first, self._count, tuple(places))
        self._groups.clear()
        self._count = self._bytes = 0


def _packed(group: _Alike) -> pa.RecordBatch:
    """One row for each chunk, with its columns as lists."""
    joined = ChunkData.join(group.chunks, b"")
    ends = np.cumsum([0, *[c.num_rows for c in group.chunks]], dtype=np.int32)
    about = {
        "timelines": [(t.name, t.kind) for t in joined.timelines],
        "components": [(d.component, d.archetype, d.component_type) for d in (c.descriptor for c in joined.components)],
    }
    columns: list[pa.Array] = [
        pa.array(group.positions, pa.int64()),
        pa.array([c.chunk_id for c in group.chunks], pa.binary(16)),
        pa.array([c.entity_path for c in group.chunks], pa.string()),
    ]
    values = [joined.row_ids, *[t.times for t in joined.timelines], *[c.values for c in joined.components]]
    columns += [pa.ListArray.from_arrays(pa.array(ends), array) for array in values]
    metadata = {_ABOUT: json.dumps(about).encode()}
    schema = pa.schema([pa.field(str(i), column.type) for i, column in enumerate(columns)], metadata)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _unpacked(batch: pa.RecordBatch) -> Iterator[tuple[int, ChunkData]]:
    """The chunks in the rows of a batch, each with its position."""
    about: dict[str, Any] = json.loads(batch.schema.metadata[_ABOUT])
    timelines = [(name, TimelineKind(kind)) for name, kind in about["timelines"]]
    descriptors = [ComponentDescriptor(*names) for names in about["components"]]
    positions, ids, paths, *lists = batch.columns
    row_ids, *columns = [column.values for column in lists]
    times = [(name, kind, column) for (name, kind), column in zip(timelines, columns, strict=False)]
    values = list(zip(descriptors, columns[len(timelines) :], strict=True))
    ends = lists[0].offsets.to_pylist()
    heads = zip(positions.to_pylist(), ids.to_pylist(), paths.to_pylist(), ends, ends[1:], strict=False)
    for at, chunk_id, entity_path, start, end in heads:
        rows = end - start
        yield (
            at,
            ChunkData(
                chunk_id,
                entity_path,
                row_ids.slice(start, rows),
                tuple([Timeline(name, kind, column.slice(start, rows)) for name, kind, column in times]),
                tuple([Component(descriptor, column.slice(start, rows)) for descriptor, column in values]),
            ),
        )
