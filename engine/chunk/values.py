"""Value rows: the values of chunks as rows of plain columns with readable names, one row per message.

Three steps, for everything that makes frames (``to_arrow``, ``to_pandas``, ``frame``, Spark's value rows):

1. A :class:`Schema` lists the columns: the schema of a source that knows it, or of chunks at hand (:func:`columns_of`).
2. :meth:`ValueSchema.of` gives each of them a name and a type; :attr:`ValueSchema.arrow` is the schema of the rows,
   :meth:`ValueSchema.select` selects columns. It can be pickled and sent to tasks.
3. :meth:`ValueSchema.batches` turns an iterator of chunks into record batches of exactly that schema, within
   :class:`TimeBounds`. Columns that are not selected are not read.

For a stream, these are three calls of ``engine/stream``, for a reader's ``reader.values()`` or any other stream::

    request = FrameRequest.of("/imu", columns=["linear_acceleration"], index="log_time", start=…, end=…)
    schema = value_schema(stream, request)              # on the driver; schema.arrow
    tasks = single_tasks(framed(stream, request))       # a picklable work for each split
    schema.batches(chunk.data for chunk in tasks[0].run(0))   # in a task: the rows, as record batches

Names: a column has the first of these names that is unambiguous among all columns:

- a field of a message (a component ``…:message``): ``orientation``, ``sensor_msgs.msg.Imu:orientation``,
  ``/imu:orientation``; any other component: ``scalars``, ``Scalars:scalars``, ``/arm:Scalars:scalars``; if a name still
  has several types, its type follows it.
- A timeline has its own name; ``log_time`` and ``publish_time`` also mean ``message_log_time`` and
  ``message_publish_time`` of an MCAP, unless there is a timeline of that name. No other column has the name of a time
  or ``entity_path``.
- Columns of several entities with the same name and type are one column. Fields of a message take precedence.
- A field of a struct is called by its path, ``linear_acceleration.x``, if it is selected or all structs are flattened.
"""

from __future__ import annotations

import difflib
import math
from base64 import b64encode
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import MissingExtraError, UsageError, extra_command
from .columns import ComponentColumnDescriptor, IndexColumnDescriptor
from .data import ChunkData, ComponentDescriptor
from .schema import Schema

if TYPE_CHECKING:
    import pandas
    import polars

ENTITY_PATH: Final = "entity_path"
"""The column that names the entity of each row, if rows are of several entities."""

_MESSAGE: Final = ":message"
_MCAP_TIMES: Final = ("message_log_time", "message_publish_time")

Path = tuple[str, ...]
Origin = tuple[str, str]
"""A component on an entity."""


class TimeBounds(NamedTuple):
    """A range of rows on ``timeline``: from ``start`` up to, not including, ``end``; None means no bound."""

    timeline: str
    start: int | None = None
    end: int | None = None

    @property
    def is_open(self) -> bool:
        """Return True if the range has no bounds."""
        return self.start is None and self.end is None

    def rows(self, data: ChunkData) -> np.ndarray | None:
        """Return a mask of rows in the range, or None for all. Chunks without the timeline have no row in it."""
        line = timeline_called(self.timeline, [t.name for t in data.timelines])
        if line is None:
            return np.zeros(data.num_rows, np.bool_)
        values = next(t.ticks for t in data.timelines if t.name == line)
        inside = np.ones(len(values), np.bool_)
        if self.start is not None:
            inside &= values >= self.start
        if self.end is not None:
            inside &= values < self.end
        return None if bool(inside.all()) else inside


class Projection(NamedTuple):
    """The names of the columns to decode; None means all."""

    names: tuple[str, ...] | None = None

    def keeps(self, text: str) -> bool:
        """Return True if the field of a message (a path), or the component (a short name), may be needed.

        >>> wanted = Projection(("pose.x", "geometry_msgs.msg.Pose:header", "/arm:Scalars:scalars"))
        >>> [wanted.keeps(text) for text in ("pose", "pose.x", "pose.y", "header.stamp", "scalars")]
        [True, True, False, True, True]
        """
        if self.names is None:
            return True
        return any(_overlap(text, name.partition(" (")[0].rpartition(":")[2]) for name in self.names)

    def has(self, component: str, datatype: pa.DataType) -> bool:
        """Return True if a component, or a field of its messages, is one of the columns."""
        if not is_message(component, datatype):
            return self.keeps(_short(component))
        return any(self.keeps(field.name) for field in datatype.value_type)

    def of_component(self, component: str, values: pa.ListArray) -> pa.ListArray | None:
        """Return the values of a component with only the needed fields of messages, or None if none is needed."""
        if self.names is None:
            return values
        if not is_message(component, values.type):
            return values if self.keeps(_short(component)) else None
        structs = values.values
        indexes = [i for i, field in enumerate(structs.type) if self.keeps(field.name)]
        if len(indexes) == structs.type.num_fields:
            return values
        if not indexes:
            return None
        inner = pa.StructArray.from_arrays(
            [structs.field(i) for i in indexes],
            fields=[structs.type.field(i) for i in indexes],
            mask=structs.is_null() if structs.null_count else None,
        )
        item = values.type.value_field.with_type(inner.type)
        buffers = values.buffers()[:2]
        return pa.Array.from_buffers(pa.list_(item), len(values), buffers, values.null_count, values.offset, [inner])


def _overlap(text: str, name: str) -> bool:
    return text == name or text.startswith(f"{name}.") or name.startswith(f"{text}.")


def _short(component: str) -> str:
    return component.rpartition(":")[2]


class ValueColumn(NamedTuple):
    """A column of value rows. ``timeline`` names the source of its times; None for a column of values."""

    name: str
    datatype: pa.DataType
    timeline: str | None = None


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A value with its own column: its component, the path of fields to the value, and its names, best first."""

    origin: Origin
    path: Path
    datatype: pa.DataType
    names: tuple[str, ...]
    is_message: bool


@dataclass(frozen=True)
class ValueSchema:
    """The columns of value rows, and their sources in chunks.

    ``sources`` maps each component of an entity to pairs of a field (an empty path means the whole component) and the
    number of its column. ``singles`` are the components with at most one value per row; their columns have values
    instead of lists.
    """

    columns: tuple[ValueColumn, ...]
    sources: Mapping[Origin, tuple[tuple[Path, int], ...]]
    singles: frozenset[Origin]

    @classmethod
    def of(
        cls, schema: Schema, singles: Collection[Origin] = (), *, entities: bool = False, flatten: bool = False
    ) -> ValueSchema:
        """The columns of value rows for a schema of components.

        ``singles`` are the components, other than messages, with at most one value per row. With ``entities``, a column
        has the entity of each row. With ``flatten``, each field of a struct is a column, instead of the struct.
        """
        times = [ValueColumn(i.name, i.kind.arrow_type, i.name) for i in schema.index_columns()]
        head = [*([ValueColumn(ENTITY_PATH, pa.string())] if entities else []), *times]
        alone = frozenset(singles)
        leaves = [leaf for c in schema.component_columns() for leaf in _leaves(c, alone, flatten)]
        names = _resolved(leaves, {column.name for column in head})
        columns, sources = {c.name: c for c in head}, defaultdict(list)
        at = {name: i for i, name in enumerate(columns)}
        for leaf, name in zip(leaves, names, strict=True):
            columns.setdefault(name, ValueColumn(name, leaf.datatype))
            sources[leaf.origin].append((leaf.path, at.setdefault(name, len(at))))
        messages = {leaf.origin for leaf in leaves if leaf.is_message}
        return cls(tuple(columns.values()), {k: tuple(v) for k, v in sources.items()}, alone | messages)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The schema of the rows; every column is nullable."""
        return pa.schema([(column.name, column.datatype) for column in self.columns])

    def timeline(self, name: str) -> ValueColumn:
        """The column of a timeline, by its full or short name. Raises ``UsageError`` if there is none."""
        times = {column.timeline: column for column in self.columns if column.timeline is not None}
        line = timeline_called(name, times)
        if line is None:
            raise UsageError(f"there is no timeline {name!r}", hint=alternatives(name, list(times)))
        return times[line]

    def select(self, names: Iterable[str]) -> ValueSchema:
        """Select columns, in this order; a name may be the path of a field in a struct, ``header.stamp.sec``.

        The name of a flattened struct selects all its fields. A timeline selected by its short name, ``log_time``,
        becomes a column of that name. Raises ``UsageError`` for unknown columns.
        """
        wanted: dict[str, tuple[int, Path]] = {}
        for name in names:
            wanted |= self._resolve_column(name)
        columns, numbers = [], defaultdict(list)
        for i, (name, (at, path)) in enumerate(wanted.items()):
            column = self.columns[at]
            columns.append(ValueColumn(name, _type_at(column.datatype, path), column.timeline))
            numbers[at].append((i, path))
        sources = {}
        for origin, fields in self.sources.items():
            places = [((*path, *more), i) for path, at in fields for i, more in numbers.get(at, ())]
            if places:
                sources[origin] = tuple(places)
        return replace(self, columns=tuple(columns), sources=sources)

    def _resolve_column(self, name: str) -> dict[str, tuple[int, Path]]:
        at = {column.name: i for i, column in enumerate(self.columns)}
        if name in at:
            return {name: (at[name], ())}
        below = [column for column in at if column.startswith(f"{name}.")]
        if below:
            return {column: (at[column], ()) for column in below}
        for column, i in at.items():
            if name.startswith(f"{column}."):
                path = tuple(name[len(column) + 1 :].split("."))
                if _has_path(self.columns[i].datatype, path):
                    return {name: (i, path)}
        line = timeline_called(name, [column.timeline for column in self.columns if column.timeline is not None])
        if line is not None:
            return {name: (next(i for i, column in enumerate(self.columns) if column.timeline == line), ())}
        raise UsageError(f"there is no column {name!r}", hint=alternatives(name, list(at)))

    def batches(self, chunks: Iterable[ChunkData], bounds: TimeBounds | None = None) -> Iterator[pa.RecordBatch]:
        """Yield one batch of rows, with the schema :attr:`arrow`, for each chunk (``Chunk.data``) that has rows.

        Components that are not in the schema are left out; components that a chunk lacks are null. Raises
        ``UsageError`` if a row has several values of a component of ``singles``.
        """
        for data in chunks:
            inside = None if bounds is None else bounds.rows(data)
            batch = self.batch(data if inside is None else data.take(np.flatnonzero(inside)))
            if batch.num_rows:
                yield batch

    def batch(self, data: ChunkData) -> pa.RecordBatch:
        """The rows of one chunk."""
        rows = data.num_rows
        made: list[pa.Array | None] = [None] * len(self.columns)
        for i, column in enumerate(self.columns):
            if column.timeline is not None:
                made[i] = next((t.times for t in data.timelines if t.name == column.timeline), None)
            elif column.name == ENTITY_PATH:
                made[i] = pa.repeat(data.entity_path, rows)
        for component in data.components:
            origin = data.entity_path, component.descriptor.component
            wanted = self.sources.get(origin, ())
            values = _single(component.values, origin) if wanted and origin in self.singles else component.values
            for path, i in wanted:
                array = _field(values, path)
                if _are_alike(array.type, self.columns[i].datatype):
                    made[i] = _retyped(array, self.columns[i].datatype)
                elif sum(path == other for other, _ in wanted) == 1:
                    raise UsageError(
                        f"{origin[1]} on {origin[0]} has two types: {array.type} and {self.columns[i].datatype}",
                        hint="Its definition changes within the input: read the parts separately.",
                    )
        arrays = [
            pa.nulls(rows, column.datatype) if array is None else array
            for array, column in zip(made, self.columns, strict=True)
        ]
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)


def columns_of(chunks: Iterable[ChunkData]) -> tuple[Schema, frozenset[Origin]]:
    """Return the columns of chunks, and the components with at most one value in each row."""
    indexes: dict[str, IndexColumnDescriptor] = {}
    components: dict[tuple[str, ComponentDescriptor, pa.DataType], ComponentColumnDescriptor] = {}
    several: set[Origin] = set()
    for data in chunks:
        for timeline in data.timelines:
            indexes.setdefault(timeline.name, IndexColumnDescriptor(timeline.name, timeline.kind))
        for part in data.components:
            d, kind = part.descriptor, part.values.type
            key = data.entity_path, d, kind
            if key not in components:
                components[key] = ComponentColumnDescriptor(
                    data.entity_path, d.component, d.archetype, d.component_type, not data.timelines, kind
                )
            if not _is_single(part.values):
                several.add((data.entity_path, d.component))
    schema = Schema(indexes.values(), components.values())
    return schema, frozenset({(c.entity_path, c.component) for c in components.values()} - several)


def is_message(component: str, datatype: pa.DataType) -> bool:
    """Return True if a component (of this type as stored, ``list<T>``) holds whole messages with fields as columns."""
    kind = datatype.value_type
    return component.endswith(_MESSAGE) and pa.types.is_struct(kind) and kind.num_fields > 0


def timeline_called(name: str, timelines: Collection[str]) -> str | None:
    """Find a timeline by its name, or by the short name of an MCAP time. Return None if there is none.

    >>> timeline_called("log_time", ["message_log_time", "message_publish_time"])
    'message_log_time'
    """
    if name in timelines:
        return name
    long = f"message_{name}"
    return long if long in _MCAP_TIMES and long in timelines else None


def _leaves(column: ComponentColumnDescriptor, singles: Collection[Origin], flatten: bool) -> Iterator[_Leaf]:
    origin = column.entity_path, column.component
    if is_message(column.component, column.datatype):
        kind = column.datatype.value_type
        name = column.component.removesuffix(_MESSAGE)
        for path, datatype in _fields(kind, (), flatten):
            text = ".".join(path)
            longest = f"{column.entity_path}:{name}:{text}"
            names = text, f"{name}:{text}", f"{column.entity_path}:{text}", longest, f"{longest} ({datatype})"
            yield _Leaf(origin, path, datatype, names, True)
        return
    kind = column.datatype.value_type if origin in singles else column.datatype
    fields = _fields(kind, (), True) if flatten and pa.types.is_struct(kind) and kind.num_fields else [((), kind)]
    for path, datatype in fields:
        behind = "".join(f".{part}" for part in path)
        long = f"{column.component}{behind}"
        longest = f"{column.entity_path}:{long}"
        yield _Leaf(origin, path, datatype, (_short(long), long, longest, f"{longest} ({datatype})"), False)


def _fields(kind: pa.StructType, path: Path, flatten: bool) -> Iterator[tuple[Path, pa.DataType]]:
    for i in range(kind.num_fields):
        inner = kind.field(i)
        if flatten and pa.types.is_struct(inner.type) and inner.type.num_fields:
            yield from _fields(inner.type, (*path, inner.name), flatten)
        else:
            yield (*path, inner.name), inner.type


def _resolved(leaves: Sequence[_Leaf], taken: Collection[str]) -> list[str]:
    """Return a name for each leaf: its best one that no other column has and that is not in ``taken``."""
    levels = [0] * len(leaves)
    while True:
        groups: dict[str, list[int]] = defaultdict(list)
        for i, leaf in enumerate(leaves):
            groups[leaf.names[levels[i]]].append(i)
        worse = [i for name, group in groups.items() for i in _losing(leaves, group, name in taken)]
        movable = [i for i in worse if levels[i] + 1 < len(leaves[i].names)]
        if not movable:
            return [leaf.names[level] for leaf, level in zip(leaves, levels, strict=True)]
        for i in movable:
            levels[i] += 1


def _losing(leaves: Sequence[_Leaf], group: Sequence[int], is_taken: bool) -> Sequence[int]:
    """Return the leaves of a group with the same name that need another name."""
    if is_taken:
        return group
    if _are_one(leaves, group):
        return ()
    messages = [i for i in group if leaves[i].is_message]
    if messages and len(messages) < len(group) and _are_one(leaves, messages):
        return [i for i in group if not leaves[i].is_message]
    return group


def _are_one(leaves: Sequence[_Leaf], group: Sequence[int]) -> bool:
    """Return True if leaves can be one column: with the same type, and from different entities or the same value."""
    first = leaves[group[0]]
    seen: dict[str, tuple[Origin, Path]] = {}
    return all(
        _are_alike(leaves[i].datatype, first.datatype)
        and seen.setdefault(leaves[i].origin[0], (leaves[i].origin, leaves[i].path))
        == (leaves[i].origin, leaves[i].path)
        for i in group
    )


def _are_alike(kind: pa.DataType, other: pa.DataType) -> bool:
    """Return True if two types are equal but for nullability. A null type matches every type."""
    return kind.equals(other) or pa.types.is_null(kind) or _plain(kind) == _plain(other)


def _plain(kind: pa.DataType) -> str:
    return str(kind).replace(" not null", "")


def _type_at(kind: pa.DataType, path: Path) -> pa.DataType:
    for name in path:
        kind = kind.field(name).type
    return kind


def _has_path(kind: pa.DataType, path: Path) -> bool:
    for name in path:
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            return False
        kind = kind.field(name).type
    return True


def alternatives(name: str, choices: Sequence[str]) -> str:
    """Suggest the nearest existing names, or list them.

    >>> alternatives("/imuu", ["/imu", "/gps"]), alternatives("/lidar", ["/imu", "/gps"])
    ('Did you mean /imu?', 'There are: /imu, /gps.')
    """
    if not choices:
        return "There are none."
    near = difflib.get_close_matches(name, choices, 3)
    return f"Did you mean {', '.join(near)}?" if near else f"There are: {', '.join(choices[:40])}."


def _lengths(values: pa.ListArray) -> np.ndarray:
    """The number of values of each row, 0 for null."""
    offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset)
    lengths = np.diff(offsets)
    return np.where(values.is_valid().to_numpy(zero_copy_only=False), lengths, 0) if values.null_count else lengths


def _is_single(values: pa.ListArray) -> bool:
    return not len(values) or bool((_lengths(values) <= 1).all())


def _single(values: pa.ListArray, origin: Origin) -> pa.Array:
    """Return the single value of each row, or null. Copies only if some row is null."""
    if not len(values):
        return pa.array([], values.type.value_type)
    lengths = _lengths(values)
    if int(lengths.max()) > 1:
        raise UsageError(
            f"a row of {origin[1]} on {origin[0]} has {int(lengths.max())} values, but one per row was expected",
            hint="Use lists=True to get every component column as lists.",
        )
    if int(lengths.min()) == 1:
        return values.flatten()
    index = np.cumsum(lengths) - lengths
    return values.flatten().take(pa.array(index, mask=lengths == 0))


def _field(values: pa.Array, path: Path) -> pa.Array:
    """A field of structs; null where a struct is null."""
    for name in path:
        index = values.type.get_field_index(name)
        if index < 0:
            return pa.nulls(len(values))
        values = values.field(index) if not values.null_count else pc.struct_field(values, [index])
    return values


def _retyped(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the same values under a type of other nullability and item names."""
    if values.type.equals(kind):
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind)
    if pa.types.is_struct(kind):
        children = [_retyped(values.field(i), kind.field(i).type) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=values.is_null())
    return values.cast(kind)


def pandas_of(table: pa.Table, *, is_indexed: bool) -> pandas.DataFrame:
    """Convert a table to a pandas DataFrame; with ``is_indexed``, the first column becomes the index."""
    _check_installed("pandas")
    frame: pandas.DataFrame = table.to_pandas()
    return frame.set_index(table.column_names[0]) if is_indexed else frame


def polars_of(table: pa.Table) -> polars.DataFrame:
    """Convert a table to a polars DataFrame."""
    _check_installed("polars")
    import polars

    frame = polars.from_arrow(table)
    assert isinstance(frame, polars.DataFrame)
    return frame


def _check_installed(library: str) -> None:
    """Raise ``MissingExtraError`` if a library is missing."""
    try:
        import_module(library)
    except ImportError as error:
        raise MissingExtraError(f"{library} is not installed", hint=extra_command(library)) from error


def json_of(value: pa.Scalar) -> Any:
    """Convert a value to JSON data.

    Times become ISO 8601 text, durations nanoseconds, bytes base64, and other types text.

    >>> [json_of(value) for value in pa.array([1.5, None, float("nan")])]
    [1.5, None, 'NaN']
    >>> [json_of(pa.scalar(value, kind)) for value, kind in ((1_000_000_001, pa.timestamp("ns")), (b"ab", pa.binary()))]
    ['1970-01-01T00:00:01.000000001', 'YWI=']
    """
    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_dictionary(kind):
        return json_of(value.value)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [json_of(item) for item in value.values]
    if pa.types.is_struct(kind):
        return {name: json_of(item) for name, item in value.items()}
    if pa.types.is_timestamp(kind):
        return f"{value.cast(pa.string()).as_py()}".replace(" ", "T")
    if pa.types.is_duration(kind):
        return value.cast(pa.duration("ns")).value
    plain = value.as_py()
    if isinstance(plain, bytes):
        return b64encode(plain).decode()
    if isinstance(plain, float) and not math.isfinite(plain):
        return "NaN" if math.isnan(plain) else "Infinity" if plain > 0 else "-Infinity"
    return plain if isinstance(plain, str | int | float | bool) else str(plain)
