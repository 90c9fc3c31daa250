"""Batches of rows in, chunks out; static columns, compared and given once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...engine.chunk import Chunk, ChunkData, Component, ComponentDescriptor, Timeline, time_order
from ...engine.errors import ReadError, ReadWarning
from ...engine.limits import MIB
from .columns import one_each, row_numbers, timeline
from .file import ParquetFile
from .layout import ChunkOutput, ColumnLayout

_BATCH_ROWS = 1024
"""A change at a multiple of this row is told as one between batches, as Rerun does, which reads that many at once."""


def _is_comparable(datatype: pa.DataType) -> bool:
    """Whether values of this type can be told apart."""
    if pa.types.is_dictionary(datatype):
        return _is_comparable(datatype.value_type)
    return bool(datatype.num_fields == 0)


def check_static(name: str, values: pa.Array, first: pa.Array, *, first_row: int, path: str) -> None:
    """Compare rows of a static column with the first row of all, ``first``, which holds that one value.

    Raises ``ReadError`` where a value differs; a null does, even from a null. ``first_row`` is the number of the first
    of ``values``.
    """
    same: npt.NDArray[np.bool_]
    if pa.types.is_null(values.type):
        same = np.zeros(len(values), bool)
    elif _is_comparable(values.type):
        same = _same(_plain(values), _plain(first)[0])
    else:
        return
    if first_row == 0 and len(same):
        same[0] = True
    different = np.flatnonzero(~same)
    if not len(different):
        return
    row = first_row + int(different[0])
    hint = f"Leave {name!r} out of static_columns: row {row:,} differs from the first."
    if row % _BATCH_ROWS or values[int(different[0])].as_py() is None:
        raise ReadError(f"Parquet error: Static column '{name}' contains non-uniform values", path=path, hint=hint)
    old, new = _text(first[0]), _text(values[int(different[0])])
    raise ReadError(
        f"Parquet error: Static column '{name}' changed between batches: '{old}' → '{new}'",
        path=path,
        hint=hint,
    )


def warn_of_incomparable(name: str, datatype: pa.DataType) -> None:
    """Say that of this column only the first row is looked at."""
    if not _is_comparable(datatype):
        warnings.warn(
            f"Cannot verify uniformity for column type {datatype}, assuming uniform (column {name!r})",
            ReadWarning,
            stacklevel=2,
        )


def _same(values: pa.Array, first: pa.Scalar) -> npt.NDArray[np.bool_]:
    if not first.is_valid:
        return np.zeros(len(values), bool)
    same = pc.fill_null(pc.equal(values, first), False)
    if pa.types.is_floating(values.type) and first.as_py() != first.as_py():
        same = pc.fill_null(pc.is_nan(values), False)
    return np.array(same.to_numpy(zero_copy_only=False))


def _plain(values: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(pa.float32()) if pa.types.is_float16(values.type) else values


def _text(value: pa.Scalar) -> str:
    if pa.types.is_boolean(value.type):
        return str(value.as_py()).lower()
    try:
        return str(value.as_py())
    except (ValueError, OverflowError):
        return str(value)


CHUNK_BYTES: Final = 2 * MIB
"""Values that one chunk should hold; a single larger row makes a larger chunk."""

_PAIR: Final = pa.struct([pa.field("first", pa.string(), False), pa.field("second", pa.string(), False)])
_METADATA: Final = ComponentDescriptor("file_metadata", "ParquetMetadata", "rerun.components.KeyValuePairs")
_NAMES: Final = ComponentDescriptor("SeriesLines:names", "rerun.archetypes.SeriesLines", "rerun.components.Name")


def batch_chunks(
    layout: ColumnLayout,
    outputs: Sequence[ChunkOutput],
    arrays: Mapping[int, pa.Array],
    first_row: int,
    length: int,
    *,
    path: str,
) -> Iterator[Chunk]:
    """The chunks of a batch, whose columns are found by their positions in the schema.

    One for each output, more where that would be too large. Rows are sorted stably by all timelines, taken in the order
    of their names.
    """
    if not outputs:
        return
    timelines = _timelines(layout, arrays, first_row, length, path)
    order = time_order(timelines)
    if order is not None:
        rows = pa.array(order)
        arrays = {position: values.take(rows) for position, values in arrays.items()}
        timelines = tuple(Timeline(t.name, t.kind, t.times.take(rows)) for t in timelines)
    for output in outputs:
        yield from _pieces(_whole(output, timelines, arrays, length))


def empty_chunks(layout: ColumnLayout, outputs: Sequence[ChunkOutput], *, path: str) -> list[Chunk]:
    """The chunks of no rows: their columns are those of every batch."""
    positions = {i for i, _ in layout.timelines}.union(*(output.columns for output in outputs))
    arrays = {position: pa.array([], layout.schema.field(position).type) for position in positions}
    timelines = _timelines(layout, arrays, 0, 0, path)
    return [Chunk.from_data(_whole(output, timelines, arrays, 0)) for output in outputs]


def _whole(
    output: ChunkOutput, timelines: tuple[Timeline, ...], arrays: Mapping[int, pa.Array], length: int
) -> ChunkData:
    components = (
        Component(descriptor, one_each(part.evaluate(arrays, length), nullable=part.nullable))
        for descriptor, part in output.components
    )
    ordered = tuple(sorted(components, key=lambda c: c.descriptor.sort_key))
    return ChunkData.fresh(output.entity_path, length, timelines, ordered)


def _timelines(
    layout: ColumnLayout, arrays: Mapping[int, pa.Array], first_row: int, length: int, path: str
) -> tuple[Timeline, ...]:
    found = [timeline(arrays[i], column, path=path, first_row=first_row) for i, column in layout.timelines]
    return tuple(sorted(found, key=lambda t: t.name.encode())) or (row_numbers(first_row, length),)


def properties_chunk(file: ParquetFile) -> Iterator[Chunk]:
    """The file's key/value pairs as static data, if it has any."""
    pairs = file.footer.key_values
    if pairs:
        values = pa.array([[{"first": first, "second": second} for first, second in pairs]], _list_of(_PAIR))
        yield Chunk.build("/__properties", {}, [(_METADATA, one_each(values, nullable=True))])


def static_chunk(entity_path: str, first: Mapping[str, pa.Array], nullable: Mapping[str, bool]) -> Chunk:
    """One row of the static columns, as components of their names."""
    columns = [(ComponentDescriptor(name), one_each(values, nullable=nullable[name])) for name, values in first.items()]
    return Chunk.build(entity_path, {}, columns)


def series_chunk(entity_path: str, names: Sequence[str]) -> Chunk:
    """The names of the series of an entity, as static data."""
    return Chunk.build(entity_path, {}, [(_NAMES, pa.array([list(names)], _list_of(pa.string())))])


def _pieces(whole: ChunkData) -> Iterator[Chunk]:
    length = whole.num_rows
    size = sum(c.values.nbytes for c in whole.components)
    count = min(length, max(1, round(size / CHUNK_BYTES)))
    if count == 1:
        yield Chunk.from_data(whole)
        return
    for start, stop in pairwise(length * i // count for i in range(count + 1)):
        piece = whole.slice(start, stop - start)
        yield Chunk.from_data(ChunkData.fresh(whole.entity_path, stop - start, piece.timelines, piece.components))


def _list_of(datatype: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", datatype, nullable=False))
