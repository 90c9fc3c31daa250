"""The chunk: a header, and a payload that is loaded on first use; built from columns, tables and dataframes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ReadError, check_argument
from ..lazy_names import terminal
from ..task_context import DECODE, phase
from . import text, tuid
from .columns import ComponentColumnLike, DescriptorLike, LensLike, SelectorLike, TimeColumnLike, descriptor_of
from .data import (
    ChunkData,
    ChunkHeader,
    Component,
    ComponentDescriptor,
    Payload,
    Timeline,
    TimelineKind,
    join_parts,
    migrate_to_list,
    parse_entity_path,
    summarise,
    wrap_each,
)
from .sorbet import data_from_batch, data_to_batch, rust_type_name, text_metadata
from .values import ValueSchema, columns_of, pandas_of, polars_of

if TYPE_CHECKING:
    import pandas
    import polars

T = TypeVar("T")


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
    """Return the permutation for a stable sort by all timelines in name order, or None if rows are in order."""
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
    """Options of reading. ``index``: the timelines' names; empty for static data, None to use the metadata."""

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

    Raises ``TypeError``, at once, for other objects.
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
    """Return ``batch`` with Rerun's types of integers and times in its timelines, and text as plain strings.

    Dataframes have other types: Spark's times are in microseconds, pandas may use 32 bits. Raises ``ValueError`` if a
    time does not fit into 64 bits of nanoseconds.
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


class StoredColumns(Protocol):
    """The stored columns of a chunk, none of them decoded."""

    @property
    def component_names(self) -> Sequence[str]:
        """The components, in the order of the chunk."""
        ...

    def column(self, component: str) -> pa.ListArray:
        """Return the values of a component."""
        ...

    def data(self) -> ChunkData:
        """Decode all columns."""
        ...

    def with_columns(self, values: Mapping[str, pa.ListArray], *, keep_row_ids: bool) -> Chunk | None:
        """Return the chunk with other ``values`` of some components, under a fresh id.

        Row ids are derived from the new id, unless ``keep_row_ids``. Return None if this requires decoding the columns.
        """
        ...


class Chunk:
    """Rows of one entity: ids, times on zero or more timelines, and values of one or more components.

    Chunks are immutable; methods that transform a chunk return a new one. A chunk without timelines is static. ``==``
    compares identity, and a chunk without rows is falsy.

    >>> from chunkmill import ComponentColumn
    >>> chunk = Chunk.from_columns("/arm", [], [ComponentColumn("volume", [1.0, 2.0])])
    >>> chunk.entity_path, chunk.num_rows, chunk.is_static
    ('/arm', 2, True)
    """

    __slots__ = ("_byte_size", "_data", "_header", "_made", "_payload", "_stored")

    def __init__(self, data: ChunkData | None, header: ChunkHeader | None, payload: Payload | None) -> None:
        self._data = data
        self._header = header
        self._payload = payload
        self._byte_size: int | None = None
        self._made: Payload | None = None
        self._stored: StoredColumns | None = None

    # --- making one

    @classmethod
    def from_columns(
        cls, entity_path: str, indexes: Iterable[TimeColumnLike], columns: Iterable[ComponentColumnLike]
    ) -> Chunk:
        """Make a chunk from time columns and component columns of equal length; without time columns it is static.

        If rows are not in time order, all rows are stably sorted by the timelines, in the order of the timelines'
        names. The chunk gets a fresh id; its row ids are derived from it.

        Raises
        ------
        ValueError
            Columns differ in length.
        RuntimeError
            An index is not ``int64``, ``timestamp[ns]`` or ``duration[ns]``, or holds nulls.
        """
        return cls(from_columns(entity_path, indexes, columns), None, None)

    @overload
    @classmethod
    def from_record_batch(cls, record_batch: pa.RecordBatch) -> OnlyChunk: ...

    @overload
    @classmethod
    def from_record_batch(
        cls,
        record_batch: pa.RecordBatch,
        *,
        index: str | Iterable[str] | AutoIndex | None = AUTO_INDEX,
        entity_path: str | None = None,
    ) -> list[Chunk]: ...

    @classmethod
    def from_record_batch(
        cls,
        record_batch: pa.RecordBatch,
        *,
        index: str | Iterable[str] | AutoIndex | None = AUTO_INDEX,
        entity_path: str | None = None,
    ) -> OnlyChunk | list[Chunk]:
        """Make the chunk of a record batch with Rerun's schema metadata; ids are kept.

        The result can also be unpacked like a list of one chunk. For any other batch, and with ``index`` or
        ``entity_path``, the result is a list: one chunk with fresh ids for each entity, in the order of the entities'
        first columns. Rows keep their order.

        ``index`` names the columns that are timelines (``int64``, ``timestamp[ns]``, ``duration[ns]``, without nulls).
        None means static data. By default the fields' metadata decides. Every other column is a component, one list or
        one value per row. Its entity is the first of these that is present: the entity in its field's metadata, the one
        in the batch's metadata, the part of the name before the first colon if the name begins with ``/``,
        ``entity_path``, the root.

        Raises ``ValueError`` if the metadata, the columns and the arguments do not define a chunk.
        """
        if not isinstance(record_batch, pa.RecordBatch):
            kind = type(record_batch)
            raise TypeError(
                "argument 'record_batch': Expected instance of pyarrow.lib.RecordBatch, "
                f"got {kind.__module__}.{kind.__name__}"
            )
        reading = Reading.of(index, entity_path)
        if reading.index is None and entity_path is None and not _is_interpreted(record_batch):
            return OnlyChunk(data_from_batch(record_batch), None, None)
        return [cls.from_data(data) for data in reading.chunks(record_batch)]

    @classmethod
    def from_dataframe(
        cls,
        dataframe: Any,
        *,
        index: str | Iterable[str] | AutoIndex | None = AUTO_INDEX,
        entity_path: str | None = None,
    ) -> Iterator[Chunk]:
        """The chunks of a dataframe, batch by batch, as :meth:`from_record_batch` makes them.

        A dataframe is a ``pyarrow`` table, batch or reader; a ``DataFrame`` of pandas, polars, Spark or DataFusion, or
        anything else with ``__arrow_c_stream__``; or a list of Spark's rows. Times of any unit become nanoseconds.

        Raises ``TypeError`` at once for anything else, and ``ValueError`` like :meth:`from_record_batch`.

        >>> table = pa.table({"frame": [0, 1], "/arm:volume": [0.5, 1.0]})
        >>> [chunk] = Chunk.from_dataframe(table, index="frame")
        >>> chunk.entity_path, chunk.timeline_names, chunk.num_rows
        ('/arm', ['frame'], 2)
        """
        reading, batches = Reading.of(index, entity_path), batches_of(dataframe)
        return (cls.from_data(d) for batch in batches for d in reading.chunks(in_nanoseconds(batch, reading)))

    @classmethod
    def from_property(cls, name: str, values: Any) -> Chunk:
        """A property of the recording, as static data of one row at ``/__properties/<name>``.

        ``values`` is one of Rerun's archetypes, or component columns. The row has all values of each column.

        Raises ``TypeError`` if ``values`` is neither.

        >>> from chunkmill import ComponentColumn
        >>> Chunk.from_property("episode", [ComponentColumn("success", [True])]).entity_path
        '/__properties/episode'
        """
        return cls(from_property(name, values), None, None)

    @classmethod
    def from_data(cls, data: ChunkData) -> Chunk:
        """Make a chunk from decoded columns."""
        return cls(data, None, None)

    @classmethod
    def build(
        cls,
        entity_path: str,
        timelines: Mapping[str, pa.Array],
        components: Sequence[tuple[ComponentDescriptor, pa.Array]],
    ) -> Chunk:
        """Make a chunk from columns without checking them, for readers.

        Columns have equal lengths, times are not null, and rows are in order.

        ``timelines`` maps names to ``int64``, ``timestamp[ns]`` or ``duration[ns]`` arrays.
        """
        lines = [Timeline(n, _kind(a), a) for n, a in sorted(timelines.items(), key=lambda item: item[0].encode())]
        parts = [Component(d, wrap_each(v)) for d, v in components]
        length = len(lines[0].times) if lines else len(parts[0].values) if parts else 0
        ordered = tuple(sorted(parts, key=lambda c: c.descriptor.sort_key))
        return cls(ChunkData.fresh(parse_entity_path(entity_path), length, tuple(lines), ordered), None, None)

    @classmethod
    def lazy(cls, header: ChunkHeader | None, payload: Payload) -> Chunk:
        """Make a chunk whose payload is loaded on first use. If ``header`` is None, any access loads the payload."""
        return cls(None, header, payload)

    @classmethod
    def put_together(cls, header: ChunkHeader, made: Payload) -> Chunk:
        """Make a chunk from columns in their stored form, in memory. They are decoded on first use."""
        chunk = cls(None, header, None)
        chunk._made = made
        return chunk

    # --- contents

    @property
    def header(self) -> ChunkHeader:
        """The header: ids, entity, timelines with ranges, and components.

        It is computed from the columns if it is not yet known.
        """
        if self._header is None:
            self._header = summarise(self.data)
        return self._header

    @property
    def data(self) -> ChunkData:
        """The decoded columns; loads the payload the first time."""
        if self._data is None:
            source = self._source
            assert source is not None
            with phase(DECODE):
                stored, self._stored = self._stored, None
                return self._keep(_decoded(source, _loader(source) if stored is None else stored.data))
        return self._data

    def stored(self) -> StoredColumns | None:
        """Return the columns in their stored form, or None if they are already decoded.

        None is also returned if the stored form of the chunk cannot be read column by column.
        """
        source = self._source
        load_stored = getattr(source, "load_stored", None)
        if self._data is not None or source is None or load_stored is None:
            return None
        if self._stored is None:
            with phase(DECODE):
                stored = _decoded(source, load_stored)
            if isinstance(stored, ChunkData):
                self._keep(stored)
                return None
            self._stored = stored
        return self._stored

    @property
    def _source(self) -> Payload | None:
        return self._made if self._payload is None else self._payload

    def _keep(self, data: ChunkData) -> ChunkData:
        self._data = data
        if self._header is not None and len(self._header.components) != len(data.components):
            self._header = None  # from a footer, which says nothing of components that are null throughout
        return data

    @property
    def payload(self) -> Payload | None:
        """The location of the unchanged payload, or None for a chunk made in this process."""
        return self._payload

    @property
    def made(self) -> Payload | None:
        """The columns in their stored form, in memory, if the chunk was made in this process."""
        return self._made

    @property
    def byte_size(self) -> int:
        """The size of the columns in memory, in bytes; if the payload is not loaded, its compressed size in storage."""
        if self._data is None:
            return int(getattr(self._source, "size", 0))
        if self._byte_size is None:
            fixed = len(self._data.row_ids) * (16 + 8 * len(self._data.timelines))
            self._byte_size = fixed + sum([c.values.nbytes for c in self._data.components])
        return self._byte_size

    def to_record_batch(self) -> pa.RecordBatch:
        """The chunk as a record batch with Rerun's schema metadata (sorbet 0.1.3)."""
        return data_to_batch(self.data)

    def to_arrow(self, *, flatten: bool = False) -> pa.Table:
        """The chunk's values as an Arrow table with the same rows: times, then components under readable names.

        A message becomes one column per field. A component with at most one value in each row becomes a column of
        these values, any other a column of lists. With ``flatten`` each field of a struct is a column. Names are
        those of :meth:`LazyChunkStream.to_arrow`; :meth:`to_record_batch` has the columns as Rerun names them.

        >>> from chunkmill import ComponentColumn
        >>> Chunk.from_columns("/arm", [], [ComponentColumn("Scalars:scalars", [1.0, 2.0])]).to_arrow().to_pylist()
        [{'scalars': 1.0}, {'scalars': 2.0}]
        """
        batch = ValueSchema.of(*columns_of([self.data]), flatten=flatten).batch(self.data)
        return pa.Table.from_batches([batch])

    def to_pandas(self, *, flatten: bool = False) -> pandas.DataFrame:
        """The chunk's values as a pandas DataFrame; see :meth:`to_arrow`."""
        return pandas_of(self.to_arrow(flatten=flatten), is_indexed=False)

    def to_polars(self, *, flatten: bool = False) -> polars.DataFrame:
        """The chunk's values as a polars DataFrame; see :meth:`to_arrow`. Raises ``MissingExtraError``."""
        return polars_of(self.to_arrow(flatten=flatten))

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """The values for anything that reads Arrow's C data interface, as one struct array; see :meth:`to_arrow`."""
        batch = self.to_arrow().combine_chunks().to_batches()
        whole = batch[0] if batch else pa.RecordBatch.from_pylist([], self.to_arrow().schema)
        capsules: tuple[object, object] = whole.__arrow_c_array__(requested_schema)
        return capsules

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The values for anything that reads Arrow's C stream interface (polars, DuckDB, …); see :meth:`to_arrow`."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    @property
    def id(self) -> str:
        """The unique id of this chunk, ``chunk_`` and 32 hex digits."""
        return tuid.tuid_text(self._known.chunk_id, "chunk_")

    @property
    def entity_path(self) -> str:
        """The entity this chunk belongs to."""
        return self._known.entity_path

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self._known.num_rows

    @property
    def num_columns(self) -> int:
        """Number of columns: row ids, timelines, components."""
        return 1 + len(self.data.timelines) + len(self.data.components)

    @property
    def is_empty(self) -> bool:
        """Return True if the chunk has no rows."""
        return self.num_rows == 0

    @property
    def is_static(self) -> bool:
        """Return True if the chunk has no timelines."""
        return not self._known.timelines

    @property
    def timeline_names(self) -> list[str]:
        """The names of all timelines, sorted."""
        return [t.name for t in self._known.timelines]

    @property
    def _known(self) -> ChunkHeader | ChunkData:
        """The header, or without one the data, which may have to be loaded."""
        return self._header if self._header is not None else self.data

    # --- making another of it

    def with_entity_path(self, entity_path: str) -> Chunk:
        """The same rows on another entity, under a fresh chunk id."""
        data = self.data
        path = parse_entity_path(entity_path)
        return Chunk(ChunkData(tuid.mint(), path, data.row_ids, data.timelines, data.components), None, None)

    def apply_lenses(self, lenses: Iterable[LensLike] | LensLike) -> list[Chunk]:
        """Apply lenses, and return their output chunks and a chunk of the columns that no lens consumed.

        Each lens sees the original columns. If no lens matches, the chunk itself is returned. Raises ``ValueError`` if
        a lens cannot be used, or fails on the data.
        """
        made: list[Chunk] = terminal("apply_lenses")(self, lenses)
        return made

    def apply_selector(self, source: DescriptorLike | str, selector: SelectorLike | str) -> Chunk:
        """Replace the component ``source`` (a name or descriptor) by the result of ``selector``, and keep the rest.

        Row ids are new; the order of rows is kept. Raises ``ValueError`` if the component is missing, or the selector
        fails or gives nothing.
        """
        made: Chunk = terminal("apply_selector")(self, source, selector)
        return made

    # --- showing it

    def format(self, *, width: int = 240, redact: bool = False, trim_metadata_keys: bool = True) -> str:
        """The chunk as a table, with its metadata and its columns' metadata above the rows.

        Loads the payload. Cells are cut after 100 characters.

        Parameters
        ----------
        width
            The largest width of the inner table, in characters.
        redact
            Replace ids and the format's version by ``[**REDACTED**]``, so that outputs can be compared.
        trim_metadata_keys
            Remove the prefixes ``rerun:`` and ``sorbet:`` from the metadata keys.
        """
        return text.format_chunk(self.data, width=width, redact=redact, trim_metadata_keys=trim_metadata_keys)

    def _repr_html_(self) -> str:
        from .panels import chunk_panel

        return chunk_panel(self.entity_path, self.id, lambda: self.data)

    def __str__(self) -> str:
        return self.format()

    def __len__(self) -> int:
        return self.num_rows

    def __repr__(self) -> str:
        return (
            f"Chunk(id={self.id}, entity_path={self.entity_path}, "
            f"num_rows={self.num_rows}, num_columns={self.num_columns})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        if self._payload is not None:
            return Chunk, (None, self._header, self._payload)
        return _restored, (self.to_record_batch(),)


class OnlyChunk(Chunk):
    """A chunk that unpacks like the one-element list that Rerun 0.34 and newer return for a batch."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Chunk]:
        return iter((self,))

    def __getitem__(self, position: int) -> Chunk:
        return (self,)[position]


def _restored(batch: pa.RecordBatch) -> Chunk:
    return Chunk.from_data(data_from_batch(batch))


def _is_interpreted(batch: pa.RecordBatch) -> bool:
    """Return True if a batch has neither a chunk id nor row ids, and marks its timelines."""
    fields = [field.metadata or {} for field in batch.schema]
    if b"rerun:id" in (batch.schema.metadata or {}) or any(m.get(b"rerun:kind") == b"control" for m in fields):
        return False
    return any(m.get(b"rerun:kind") == b"index" or b"rerun:index_name" in m for m in fields)


def _loader(payload: Payload) -> Callable[[], ChunkData]:
    load_data: Callable[[], ChunkData] | None = getattr(payload, "load_data", None)
    return (lambda: data_from_batch(payload.load())) if load_data is None else load_data


def _decoded(payload: Payload, load: Callable[[], T]) -> T:
    """Decode the columns of a payload. Raises :class:`ReadError`, as a batch that is no chunk is the file's fault."""
    try:
        return load()
    except ReadError:
        raise
    except ValueError as error:
        raise ReadError(
            f"a record batch is not a chunk: {error}",
            path=getattr(payload, "path", None),
            offset=getattr(payload, "offset", None),
            hint="The file is damaged, or the program that wrote it is faulty.",
        ) from error


def _kind(times: pa.Array) -> TimelineKind:
    kind = TimelineKind.of(times.type)
    if kind is None:
        raise ValueError(f"Unsupported time type: {rust_type_name(times.type)}")
    return kind


def differing(a: pa.Array, b: pa.Array, tolerance: float = 0.0) -> npt.NDArray[np.bool_]:
    """Return, for each row, whether two columns of the same length and type differ; NaN equals NaN.

    >>> differing(pa.array([[1.0], [2.0], None]), pa.array([[1.0], [2.1], []])).tolist()
    [False, True, True]
    """
    if isinstance(a.type, pa.BaseExtensionType):
        a, b = a.storage, getattr(b, "storage", b)
    if a.equals(b):
        return np.zeros(len(a), dtype=bool)
    a_valid, b_valid = (side.is_valid().to_numpy(zero_copy_only=False) for side in (a, b))
    mask: npt.NDArray[np.bool_] = a_valid != b_valid
    datatype = a.type
    if pa.types.is_list(datatype) or pa.types.is_large_list(datatype) or pa.types.is_fixed_size_list(datatype):
        lengths, others = (side.value_lengths().fill_null(0).to_numpy(zero_copy_only=False) for side in (a, b))
        mask |= a_valid & b_valid & (lengths != others)
        same = a_valid & b_valid & ~mask
        rows = np.repeat(np.flatnonzero(same), lengths[same])
        mask[rows[differing(a.filter(pa.array(same)).flatten(), b.filter(pa.array(same)).flatten(), tolerance)]] = True
    elif pa.types.is_struct(datatype):
        for a_field, b_field in zip(a.flatten(), b.flatten(), strict=True):
            mask |= a_valid & b_valid & differing(a_field, b_field, tolerance)
    elif pa.types.is_floating(datatype):
        x, y = (side.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64) for side in (a, b))
        with np.errstate(invalid="ignore"):
            mask |= ~((x == y) | (np.isnan(x) & np.isnan(y)) | (np.abs(x - y) <= tolerance))
    else:
        mask |= np.array([x != y for x, y in zip(a.to_pylist(), b.to_pylist(), strict=True)], dtype=bool)
    return mask


def plain_type(datatype: pa.DataType) -> str:
    """The name of a type, without names of list items and without nullability.

    >>> plain_type(pa.list_(pa.field("element", pa.float64(), nullable=False))) == plain_type(pa.list_(pa.float64()))
    True
    """
    if isinstance(datatype, pa.BaseExtensionType):
        return plain_type(datatype.storage_type)
    inner = [datatype.field(i) for i in range(datatype.num_fields)]
    if pa.types.is_struct(datatype):
        return f"struct<{', '.join(f'{f.name}: {plain_type(f.type)}' for f in inner)}>"
    if pa.types.is_fixed_size_list(datatype):
        return f"list<{plain_type(inner[0].type)}>[{datatype.list_size}]"
    if pa.types.is_list(datatype) or pa.types.is_large_list(datatype):
        return f"list<{plain_type(inner[0].type)}>"
    return str(datatype)
