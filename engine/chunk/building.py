"""Chunks from the columns, tables and dataframes that a user gives: checked, wrapped into lists, sorted by time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import check_argument
from .columns import ComponentColumnLike, TimeColumnLike, descriptor_of
from .data import ChunkData, Component, Timeline, migrate_to_list, wrap_each
from .header import ComponentDescriptor, TimelineKind, join_parts, parse_entity_path
from .sorbet import rust_type_name, text_metadata


def from_columns(
    entity_path: str, indexes: Iterable[TimeColumnLike], columns: Iterable[ComponentColumnLike]
) -> ChunkData:
    """See :meth:`Chunk.from_columns`."""
    times = [(t.timeline_name(), _arrow(t.as_arrow_array())) for t in indexes]
    values = [(descriptor_of(c.component_descriptor()), _arrow(c.as_arrow_array())) for c in columns]
    length = _check_lengths(times, values)
    timelines = _timelines(dict(times))
    components = {d: Component(d, wrap_each(v)) for d, v in values}
    if timelines and not components and length:
        raise RuntimeError(
            "Detected malformed Chunk: All timelines in a chunk must have the same number of timestamps, matching "
            f"the number of row IDs. Found 0 row IDs but {length} timestamps for timeline '{timelines[0].name}'"
        )
    ordered = tuple(sorted(components.values(), key=lambda c: c.descriptor.sort_key))
    return sorted_by_time(parse_entity_path(entity_path), length, timelines, ordered)


def from_property(name: str, values: Any) -> ChunkData:
    """See :meth:`Chunk.from_property`."""
    check_argument("name", name, str)
    batches = values.as_component_batches() if hasattr(values, "as_component_batches") else values
    if not isinstance(batches, Iterable):
        raise TypeError(f"Expected an archetype or component columns, got '{type(values).__name__}' object")
    components = {}
    for batch in batches:
        if not isinstance(batch, ComponentColumnLike):
            raise TypeError(f"Expected component columns, got '{type(batch).__name__}' object")
        instances = _arrow(batch.as_arrow_array())
        descriptor = descriptor_of(batch.component_descriptor())
        row = pa.ListArray.from_arrays(pa.array([0, len(instances)], pa.int32()), instances)
        components[descriptor] = Component(descriptor, row)
    ordered = tuple(sorted(components.values(), key=lambda c: c.descriptor.sort_key))
    return ChunkData.fresh(join_parts(["__properties", name]), 1, (), ordered)


def sorted_by_time(
    entity_path: str, length: int, timelines: tuple[Timeline, ...], components: tuple[Component, ...]
) -> ChunkData:
    """Rows in stable lexicographic order of the timelines (by name), with ids derived from a fresh chunk id."""
    data = ChunkData.fresh(entity_path, length, timelines, components)
    order = time_order(timelines)
    if order is not None:
        moved = data.take(order)
        return replace(data, timelines=moved.timelines, components=moved.components)
    return data


def time_order(timelines: tuple[Timeline, ...]) -> np.ndarray[tuple[int], np.dtype[np.int64]] | None:
    """The permutation that sorts rows stably by all timelines in name order; None when they are in order."""
    if not timelines or len(timelines[0].times) < 2 or timelines[0].is_strict:
        return None
    if timelines[0].is_sorted and all(t.is_sorted for t in timelines):
        return None
    order = np.lexsort([t.ticks for t in reversed(timelines)]).astype(np.int64)
    return None if bool(np.all(order[:-1] < order[1:])) else order


def _arrow(values: object) -> pa.Array:
    if not isinstance(values, pa.Array):
        kind = type(values)
        raise TypeError(f"Expected instance of pyarrow.lib.Array, got {kind.__module__}.{kind.__name__}")
    return values


def _check_lengths(times: list[tuple[str, pa.Array]], values: list[tuple[ComponentDescriptor, pa.Array]]) -> int:
    named = [(f"timeline '{n}'", a) for n, a in times] + [(f"component '{d}'", a) for d, a in values]
    expected = len(named[0][1]) if named else 0
    for what, array in named:
        if len(array) != expected:
            raise ValueError(f"All columns must have the same length. Expected {expected} but {what} has {len(array)}.")
    return expected


def _timelines(times: dict[str, pa.Array]) -> tuple[Timeline, ...]:
    out = []
    for name, array in sorted(times.items(), key=lambda item: item[0].encode()):
        kind = TimelineKind.of(array.type)
        if kind is None:
            raise RuntimeError(
                f"Error converting temporal data: Detected malformed Chunk: Invalid data_type for timeline: {name}"
            )
        if array.null_count:
            raise RuntimeError(
                f"Error converting temporal data: Detected malformed Chunk: Invalid timeline {name}: "
                "Time columns had nulls, but should be dense"
            )
        out.append(Timeline(name, kind, array if array.type == kind.arrow_type else array.cast(kind.arrow_type)))
    return tuple(out)


class AutoIndex:
    """The type of :data:`AUTO_INDEX`."""

    def __repr__(self) -> str:
        return "AUTO_INDEX"


AUTO_INDEX: Final = AutoIndex()
"""``index=``: the columns that the schema's metadata says are timelines."""

_ROW_KINDS = ("control", "row_id")
_INDEX_KINDS = ("index", "time")


@dataclass(frozen=True, slots=True)
class Reading:
    """Options of reading: ``index`` are the names of timelines, none for static data, None for what metadata says."""

    index: tuple[str, ...] | None
    entity_path: str | None

    @classmethod
    def of(cls, index: object, entity_path: str | None) -> Reading:
        """From the arguments of :meth:`Chunk.from_record_batch`; Rerun's own sentinel means the same as ours."""
        if isinstance(index, AutoIndex) or type(index).__name__ == "_AutoIndex":
            return cls(None, entity_path)
        if index is None or isinstance(index, str):
            return cls((index,) if index else (), entity_path)
        if not isinstance(index, Iterable):
            raise TypeError(f"argument 'index': expected names of columns, got '{type(index).__name__}' object")
        return cls(tuple(index), entity_path)

    def chunks(self, batch: pa.RecordBatch) -> Iterator[ChunkData]:
        """One chunk for each entity, in the order of their first columns. Raises ``ValueError``."""
        fields = [(i, field, text_metadata(field.metadata)) for i, field in enumerate(batch.schema)]
        data = [entry for entry in fields if entry[2].get("rerun:kind") not in _ROW_KINDS]
        chosen = self._timelines(data)
        timelines = [_timeline(batch.column(i), m.get("rerun:index_name") or f.name) for i, f, m in data if i in chosen]
        by_entity: dict[str, list[Component]] = {}
        default = text_metadata(batch.schema.metadata).get("rerun:entity_path")
        for i, field, metadata in data:
            if i not in chosen:
                path, name = self._place(field.name, metadata, default)
                archetype, kind = metadata.get("rerun:archetype"), metadata.get("rerun:component_type")
                component = Component(ComponentDescriptor(name, archetype, kind), migrate_to_list(batch.column(i)))
                by_entity.setdefault(path, []).append(component)
        if not by_entity:
            raise ValueError("the batch has no component columns: there is nothing to log")
        lines = tuple(sorted(timelines, key=lambda t: t.name.encode()))
        for path, components in by_entity.items():
            ordered = tuple(sorted(components, key=lambda c: c.descriptor.sort_key))
            yield ChunkData.fresh(path, batch.num_rows, lines, ordered)

    def _timelines(self, data: Sequence[tuple[int, pa.Field, dict[str, str]]]) -> set[int]:
        """The positions of the columns that are timelines."""
        said = {i for i, _, m in data if m.get("rerun:kind") in _INDEX_KINDS or "rerun:index_name" in m}
        if self.index is None:
            if not said:
                raise ValueError(
                    "the batch has no index metadata: pass index=<column> for temporal data, index=None for static"
                )
            return said
        if not self.index and said:
            names = ", ".join(repr(f.name) for i, f, _ in data if i in said)
            raise ValueError(f"index=None asks for static data, but the metadata says that {names} is an index")
        positions = {f.name: i for i, f, _ in data}
        for name in self.index:
            if name not in positions:
                raise ValueError(f"there is no column {name!r} for an index; the columns are {list(positions)}")
        return {positions[name] for name in self.index}

    def _place(self, name: str, metadata: dict[str, str], default: str | None) -> tuple[str, str]:
        """The entity and component of a column: by its metadata, the batch's, its name, or the argument."""
        by_name, colon, rest = name.partition(":")
        named = bool(colon) and name.startswith("/")
        path = metadata.get("rerun:entity_path") or default or (by_name if named else self.entity_path)
        return parse_entity_path(path or "/"), metadata.get("rerun:component") or (rest if named else name)


def batches_of(dataframe: Any) -> Iterator[pa.RecordBatch]:
    """The record batches of a dataframe of any kind.

    Raises ``TypeError``, at once, for what is none.
    """
    if isinstance(dataframe, pa.RecordBatch):
        return iter((dataframe,))
    if isinstance(dataframe, pa.Table | pa.RecordBatchReader):
        return iter(dataframe.to_batches() if isinstance(dataframe, pa.Table) else dataframe)
    if type(dataframe).__module__.partition(".")[0] == "pandas":
        return iter(pa.Table.from_pandas(dataframe).to_batches())
    if hasattr(dataframe, "toArrow"):  # Spark's
        return iter(dataframe.toArrow().to_batches())
    if isinstance(dataframe, Sequence) and dataframe and all(hasattr(row, "asDict") for row in dataframe):
        return iter(pa.Table.from_pylist([row.asDict(recursive=True) for row in dataframe]).to_batches())
    if hasattr(dataframe, "__arrow_c_stream__"):
        return iter(pa.RecordBatchReader.from_stream(dataframe))
    raise TypeError(
        "Expected a pyarrow Table, RecordBatch or RecordBatchReader, a DataFrame of pandas, polars, Spark or "
        f"DataFusion, or rows of Spark, got '{type(dataframe).__name__}' object"
    )


def in_nanoseconds(batch: pa.RecordBatch, reading: Reading) -> pa.RecordBatch:
    """``batch`` with the integers and times of its timelines as Rerun has them, and text as plain strings.

    Dataframes count in what they like: Spark in microseconds, pandas in 32 bits. Raises ``ValueError`` where a time
    does not fit into 64 bits of nanoseconds.
    """
    fields, columns = [], []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        metadata = text_metadata(field.metadata)
        named = reading.index is not None and field.name in reading.index
        if named or metadata.get("rerun:kind") in _INDEX_KINDS or "rerun:index_name" in metadata:
            wanted = _index_type(column.type)
        else:
            wanted = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(column.type, column.type)
        columns.append(column if column.type == wanted else pc.cast(column, wanted))
        fields.append(field.with_type(wanted))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, batch.schema.metadata))


def _index_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ns")
    return pa.duration("ns") if pa.types.is_duration(kind) else kind


def _timeline(times: pa.Array, name: str) -> Timeline:
    kind = TimelineKind.of(times.type)
    if kind is None:
        raise ValueError(
            f"index column {name!r} has type {rust_type_name(times.type)}, and not int64, timestamp(ns) or duration(ns)"
        )
    if times.null_count:
        raise ValueError(f"index column {name!r} holds nulls, and a row without a time cannot be placed")
    return Timeline(name, kind, times if times.type == kind.arrow_type else times.cast(kind.arrow_type))
