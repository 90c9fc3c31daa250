"""The summary of a layer in its entry: its columns, the ranges of its timelines, and its properties.

It is made from the chunk table; only chunks under ``/__properties`` are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk import (
    Chunk,
    ComponentColumnDescriptor,
    ComponentDescriptor,
    Schema,
    TimelineHeader,
    TimelineKind,
    alike,
    is_property,
)
from ..errors import ReadError
from ..optimisation import ChunkReferences
from ..rrd import (
    END_OF_STREAM,
    ChunkTable,
    Each,
    FooterGroup,
    VerifiedPayload,
    has_dictionary,
    sequence_codes,
    stream_of,
)
from ..task_context import lasting
from .entries import IndexRange, LiveEntries, RecordingEntry
from .folder import RecordingsFolder
from .schemas import SchemaFiles

Rows = npt.NDArray[np.int64]

_LEAST: Final = np.iinfo(np.int64).min
_MOST: Final = np.iinfo(np.int64).max

NO_PROPERTIES: Final = b""
"""The properties of a layer without properties."""


class LayerSummary(NamedTuple):
    """The columns of a layer, as in :meth:`Schema.to_arrow`, and the ``ranges`` and ``properties`` of its entry."""

    schema: pa.Schema
    ranges: tuple[IndexRange, ...]
    properties: bytes


def summary_of(chunks: ChunkReferences, columns: Schema | None = None) -> LayerSummary:
    """Summarise a layer. Its columns are ``columns``, by default those of its chunks' headers.

    Raises ``ReadError`` if a chunk with properties cannot be read.
    """
    table = chunks.table
    columns = Schema.from_headers(table.headers()) if columns is None else columns
    properties = properties_of(chunks.take(_property_rows(table)).chunks())
    return LayerSummary(columns.to_arrow(), ranges_of(timelines_of(table)), properties)


def summaries_of(group: FooterGroup, each: Each = map) -> list[LayerSummary | None]:
    """Return the summary of each store of a group, like :func:`summary_of`, or None if that raises an error."""
    table, count = group.table, len(group.stores)
    owner = np.full(len(table), -1, dtype=np.int64)
    for number, (_, _, _, start, stop) in enumerate(group.stores):
        owner[start:stop] = number
    timelines = _timelines_by(table, owner, count)
    rows = _property_rows(table)
    rows = rows[owner[rows] >= 0]
    chunks: list[list[Chunk]] = [[] for _ in range(count)]
    for number, entry in zip(owner[rows].tolist(), table.take(rows).entries(), strict=True):
        _, path, store, *_ = group.stores[number]
        payload = VerifiedPayload.of(path, entry, store=store)
        chunks[number].append(Chunk.lazy(entry.header if entry.header.components else None, payload))
    properties = each(_properties_or_none, chunks)
    facts = zip(_schemas_of(group), timelines, properties, strict=True)
    return [None if has is None else LayerSummary(schema, ranges_of(lines), has) for schema, lines, has in facts]


def _properties_or_none(chunks: list[Chunk]) -> bytes | None:
    try:
        return properties_of(chunks)
    except ReadError:
        return None


def _schemas_of(group: FooterGroup) -> list[pa.Schema]:
    """The columns of each store, made once for stores with the same kinds of chunks in the same order."""
    table = group.table
    kinds, count = table.kinds[0], len(table.kinds[1])
    types, sets = table.type_sets
    cells = table.components
    emptiness = np.asarray(cells.emptiness.cast(pa.int8()).fill_null(2).to_numpy(zero_copy_only=False), dtype=np.int64)
    kinds, _ = sequence_codes(cells.ends, emptiness, 3, kinds * len(sets) + types, count * max(len(sets), 1))
    by_kinds: dict[bytes, pa.Schema] = {}
    schemas = []
    for _, _, _, start, stop in group.stores:
        first = np.sort(np.unique(kinds[start:stop], return_index=True)[1]) + start
        key = kinds[first].tobytes()
        if key not in by_kinds:
            some = table.take(first)
            columns = chain(some.headers(), group.silent_columns(some.entity_components))
            by_kinds[key] = Schema.from_headers(columns).to_arrow()
        schemas.append(by_kinds[key])
    return schemas


def with_summary(folder: RecordingsFolder, entry: RecordingEntry, keep: Callable[[pa.Schema], str]) -> RecordingEntry:
    """Return the entry with schema, ranges and properties, which are computed for entries of format 3.

    ``keep`` gets the schema and returns its digest. An entry without chunks in the store is unchanged. Raises
    ``ReadError``.
    """
    if entry.schema is not None or not entry.manifest:
        return entry
    schema, ranges, properties = summary_of(folder.references(entry))
    return replace(entry, schema=keep(schema), ranges=ranges, properties=properties)


def summarised(folder: RecordingsFolder, live: LiveEntries, schemas: SchemaFiles) -> LiveEntries:
    """Return the entries with summaries, adding those that an earlier release did not write.

    ``schemas`` caches the schemas; nothing is written.
    """
    if not live.columns("schema")["schema"].null_count:
        return live
    return LiveEntries(with_summary(folder, entry, schemas.remember) for entry in live)


def ranges_of(timelines: Iterable[TimelineHeader]) -> tuple[IndexRange, ...]:
    """The range of each timeline with times, by name; the first kind's range if a name has two kinds.

    >>> ranges_of([TimelineHeader("tick", TimelineKind.SEQUENCE, *ends) for ends in ((3, 9), (0, 4))])
    (IndexRange(name='tick', kind='sequence', start=0, end=9),)
    """
    ranges: dict[str, tuple[TimelineKind, int, int]] = {}
    for line in timelines:
        start, end = line.start, line.end
        if start is None or end is None:
            continue
        existing = ranges.setdefault(line.name, (line.kind, start, end))
        if existing[0] == line.kind and (start < existing[1] or end > existing[2]):
            ranges[line.name] = line.kind, min(start, existing[1]), max(end, existing[2])
    return tuple([IndexRange(name, str(kind), start, end) for name, (kind, start, end) in sorted(ranges.items())])


def timelines_of(table: ChunkTable) -> list[TimelineHeader]:
    """Each timeline of a chunk table, in order of first use, with its range over all chunks."""
    return _timelines_by(table, np.zeros(len(table), dtype=np.int64), 1)[0]


def _timelines_by(table: ChunkTable, owner: Rows, count: int) -> list[list[TimelineHeader]]:
    """The timelines of each of ``count`` owners of rows; rows with a negative owner are ignored."""
    cells = table.timelines
    owner = np.repeat(owner, np.diff(cells.ends))
    is_owned = owner >= 0
    cell = owner[is_owned] * len(cells.keys) + cells.codes[is_owned]
    unique_cells, first, place = np.unique(cell, return_index=True, return_inverse=True)
    has_range = cells.is_known[is_owned]
    starts, ends = np.full(len(unique_cells), _MOST), np.full(len(unique_cells), _LEAST)
    np.minimum.at(starts, place[has_range], cells.start[is_owned][has_range])
    np.maximum.at(ends, place[has_range], cells.end[is_owned][has_range])
    has_times = np.bincount(place[has_range], minlength=len(unique_cells)) > 0
    by_owner: list[list[TimelineHeader]] = [[] for _ in range(count)]
    order = np.argsort(first)[has_times[np.argsort(first)]]
    for key, start, end in zip(unique_cells[order].tolist(), starts[order].tolist(), ends[order].tolist(), strict=True):
        which, code = divmod(key, len(cells.keys))
        name, kind = cells.keys[code]
        by_owner[which].append(TimelineHeader(name, kind, start, end))
    return by_owner


def _property_rows(table: ChunkTable) -> Rows:
    codes, paths = table.entity_codes
    wanted = np.array([is_property(path) for path in paths], dtype=bool)
    return np.flatnonzero(wanted[codes] & table.is_static) if len(table) else np.empty(0, np.int64)


def properties_of(chunks: Iterable[Chunk]) -> bytes:
    """Return the static values under ``/__properties``, with the latest row ids, as an Arrow IPC stream of one row.

    The columns are sorted by name and have the fields of the schema. Empty if there are none.
    """
    values: dict[str, tuple[bytes, pa.Array, ComponentColumnDescriptor]] = {}
    for chunk in chunks:
        data = chunk.data
        for component in data.components:
            row = _latest(data.row_ids, component.values)
            if row is None:
                continue
            descriptor = component.descriptor
            column = ComponentColumnDescriptor(
                chunk.entity_path,
                descriptor.component,
                descriptor.archetype,
                descriptor.component_type,
                True,
                component.values.type,
            )
            row_id = data.row_ids[row].as_py()
            if column.name not in values or row_id >= values[column.name][0]:
                values[column.name] = row_id, component.values.slice(row, 1), column
    if not values:
        return NO_PROPERTIES
    chosen = [values[name] for name in sorted(values)]
    shape = _shape_of([column for _, _, column in chosen])
    row = pa.RecordBatch.from_arrays([value for _, value, _ in chosen], schema=shape.schema)
    if any(map(has_dictionary, shape.types)):  # dictionaries are separate messages
        return bytes(stream_of(row))
    return b"".join((shape.message, memoryview(row.serialize()), END_OF_STREAM))


class _Shape(NamedTuple):
    """The schema of properties, and the message at the start of its streams."""

    schema: pa.Schema
    message: bytes
    types: tuple[pa.DataType, ...]


class _Shapes(dict[tuple[tuple[str, ComponentDescriptor], ...], _Shape]):
    """A thread's known shapes: a robot's recordings share one, and a stream is written in a fifth of the time."""


_MOST_SHAPES: Final = 256


def _shape_of(columns: Sequence[ComponentColumnDescriptor]) -> _Shape:
    types = tuple([column.datatype for column in columns])
    key = tuple([(column.entity_path, column.descriptor) for column in columns])
    shapes = lasting(_Shapes)
    shape = shapes.get(key)
    if shape is None or not alike(shape.types, types):
        fields = {field.name: field for field in Schema((), columns).to_arrow()}
        schema = pa.schema([fields[column.name] for column in columns])
        if len(shapes) >= _MOST_SHAPES:
            shapes.clear()
        shape = shapes[key] = _Shape(schema, bytes(schema.serialize()), types)
    return shape


def properties_in(data: bytes) -> pa.Table:
    """Return the single row of :func:`properties_of`; it may have no columns. Raises Arrow's errors."""
    if not data:
        return pa.table({})
    table = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
    table.validate(full=True)
    return table


def _latest(row_ids: pa.Array, values: pa.Array) -> int | None:
    """The row with the latest id among rows with a value, or None."""
    if len(values) == 1:
        return None if values.null_count else 0
    rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False)).tolist()
    return max(rows, key=lambda row: (row_ids[row].as_py(), row), default=None)
