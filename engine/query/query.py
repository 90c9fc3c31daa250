"""Queries: an index, columns and rules; the columns of the result, and statistics of its rows."""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk import (
    SORBET_VERSION,
    ComponentColumnDescriptor,
    IndexColumnDescriptor,
    Schema,
    TimelineKind,
    numpy_ticks,
    timeline_called,
    to_arrow_schema,
)
from ..errors import UsageError
from ..rrd import ChunkTable
from ..stream import Content, ContentFilter
from ..task_context import Fetches

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Key = tuple[str, str]
"""A component on an entity."""

SEGMENT_ID: Final = "rerun_segment_id"
"""The column with the segment id of each row."""

_METADATA: Final = {"sorbet:version": SORBET_VERSION}

SEMANTICS_VARIABLE: Final = "CHUNKMILL_CATALOG_SEMANTICS"
"""The environment variable with the default rules of queries."""


@dataclass(frozen=True, slots=True)
class QuerySemantics:
    """The rules in which query engines differ. There are two sets of rules: ``contract`` and ``rerun-0.33``.

    ``selection_narrows``: if ``select()`` selects component columns, only their entities give rows (except with
    filling). ``clips_values``: index values given for all segments apply only to segments whose range includes them.
    ``static_rows_need_values``: without an index, only segments with static values have a row (if false: all segments
    with any of the columns). ``cleared_values_return``: filling ignores clears.

    >>> QuerySemantics.of("contract").clips_values, QuerySemantics.of("rerun-0.33").clips_values
    (False, True)
    """

    name: str = "contract"
    selection_narrows: bool = False
    clips_values: bool = False
    static_rows_need_values: bool = False
    cleared_values_return: bool = False

    @classmethod
    def of(cls, name: str | QuerySemantics | None = None) -> QuerySemantics:
        """The rules of a name. None: the rules in ``CHUNKMILL_CATALOG_SEMANTICS``, or else ``contract``.

        Raises ``ValueError`` for another name.
        """
        if isinstance(name, QuerySemantics):
            return name
        chosen = name or os.environ.get(SEMANTICS_VARIABLE) or "contract"
        if chosen not in _PRESETS:
            where = "semantics" if name else SEMANTICS_VARIABLE
            raise UsageError(f"{where}: expected one of {', '.join(_PRESETS)}, got {chosen!r}")
        return _PRESETS[chosen]


_PRESETS: Final = {
    "contract": QuerySemantics(),
    "rerun-0.33": QuerySemantics("rerun-0.33", True, True, True, True),
}


# --- given index values


@dataclass(frozen=True, slots=True)
class IndexValues:
    """The index values of the rows to return: the same for all segments, or separate ones for the named segments only.

    They are nanoseconds or sequence numbers, distinct and ascending. ``kinds`` are the kinds of the given values;
    integers fit every index. ``missing`` describes the first ``None`` or ``NaT`` among them, with its position.
    """

    of_all: Integers | None = None
    by_segment: Mapping[str, Integers] = field(default_factory=dict)
    kinds: frozenset[TimelineKind] = frozenset()
    missing: str = ""

    @classmethod
    def of(cls, values: Any, index: str) -> IndexValues:
        """The index values in a user's argument.

        An array, a sequence or a range of integers, times or spans is for all segments. A mapping by segment id, or a
        data frame with the columns ``rerun_segment_id`` and ``index``, is for the segments in it. Arrow nulls are left
        out. :meth:`check` checks that the values fit the index.

        Raises ``TypeError`` for other types of values, ``ValueError`` for a repeated or too large value.
        """
        if isinstance(values, Mapping):
            return cls._joined({str(segment): _given(some) for segment, some in values.items()})
        table = _table_of(values)
        if table is None:
            given = _given(values)
            return cls(_distinct(given.integers), {}, given.kinds, given.missing)
        missing = [name for name in (SEGMENT_ID, index) if name not in table.column_names]
        if missing:
            raise UsageError(f"using_index_values: the data frame has no column '{missing[0]}'")
        table = table.select([SEGMENT_ID, index]).combine_chunks()
        codes = table[SEGMENT_ID].combine_chunks().dictionary_encode()
        which = np.asarray(codes.indices)
        return cls._joined(
            {
                segment: _given(table[index].take(pa.array(np.flatnonzero(which == number))))
                for number, segment in enumerate(codes.dictionary.to_pylist())
            }
        )

    @classmethod
    def _joined(cls, parts: Mapping[str, _Given]) -> IndexValues:
        return cls(
            None,
            {segment: _distinct(given.integers) for segment, given in parts.items()},
            frozenset(kind for given in parts.values() for kind in given.kinds),
            next((f"{given.missing} of segment {name!r}" for name, given in parts.items() if given.missing), ""),
        )

    def check(self, index: IndexColumnDescriptor) -> None:
        """Raise ``TypeError`` if the index has values of another kind, ``ValueError`` if one is missing."""
        kind = index.kind
        for other in sorted(self.kinds - {kind, TimelineKind.SEQUENCE}):
            likes = f" {_NOT_VALUES}" if other is TimelineKind.DURATION else ""
            text = f"Index {index.name!r} is of type {kind.arrow_type}, and takes {_TAKEN[kind]}, not {_NAMES[other]}."
            raise TypeError(text + likes)
        if self.missing:
            raise UsageError(
                f"a value for index {index.name!r} of type {kind.arrow_type} is {self.missing}",
                hint="Remove it from the values.",
            )

    def of_segment(self, segment_id: str, within: tuple[int, int] | None = None) -> Integers:
        """The values of a segment: its own, or the common values ``within`` two bounds (inclusive)."""
        if self.of_all is None:
            return self.by_segment.get(segment_id, _NONE)
        if within is None:
            return self.of_all
        first, last = np.searchsorted(self.of_all, [within[0], within[1] + 1])
        return self.of_all[first:last]


_NONE: Final = np.empty(0, np.int64)
_NOT_VALUES: Final = (
    "IndexValuesLike must be a pyarrow.Array, pyarrow.ChunkedArray, numpy.ndarray of int64, or numpy.ndarray of "
    "datetime64."
)
_NOT_IN_ARROW: Final = "pyarrow.Array for IndexValuesLike must be of type int64, timestamp, or duration."
_TAKEN: Final = {
    TimelineKind.SEQUENCE: "integers",
    TimelineKind.TIMESTAMP: "datetime or datetime64, or integers of nanoseconds",
    TimelineKind.DURATION: "timedelta or timedelta64, or integers of nanoseconds",
}
_NAMES: Final = {TimelineKind.TIMESTAMP: "datetime64", TimelineKind.DURATION: "timedelta64"}
_OF_NUMPY: Final = {"M": TimelineKind.TIMESTAMP, "m": TimelineKind.DURATION}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _table_of(values: Any) -> pa.Table | None:
    """The table of a data frame; None for other values."""
    if isinstance(values, pa.Table):
        return values
    if isinstance(values, (pa.Array, pa.ChunkedArray)) or getattr(values, "ndim", 2) == 1:
        return None
    return pa.table(values) if hasattr(values, "__arrow_c_stream__") else None


def _distinct(values: Integers) -> Integers:
    distinct = np.unique(values)
    if len(distinct) != len(values):
        raise UsageError("Index values must be unique.")
    return distinct


class _Given(NamedTuple):
    """Index values as integers; times and spans in nanoseconds. See :class:`IndexValues`."""

    integers: Integers
    kinds: frozenset[TimelineKind] = frozenset()
    missing: str = ""


def _given(values: Any) -> _Given:
    """Index values in a user's form."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return _of_arrow(values)
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise _not_values(values)
    array = np.asarray(values) if hasattr(values, "__array__") else None
    if array is None or (array.dtype.kind == "O" and array.ndim == 1):
        return _of_items(values)
    if not array.size and array.ndim == 1:
        return _Given(_NONE)
    if array.ndim != 1 or array.dtype.kind not in "iuMm":
        raise _not_values(values)
    if array.dtype.kind in "Mm":
        return _of_times(array)
    if array.dtype == np.uint64 and bool((array > np.iinfo(np.int64).max).any()):
        raise _too_large(int(array.max()))
    return _Given(array.astype(np.int64))


def _of_arrow(values: pa.Array) -> _Given:
    """Index values from Arrow. Durations count as nanoseconds for every index, as Rerun accepts them for timestamps."""
    datatype = values.type
    kinds: frozenset[TimelineKind] = frozenset()
    if pa.types.is_timestamp(datatype):
        wanted, kinds = pa.timestamp("ns", datatype.tz), frozenset([TimelineKind.TIMESTAMP])
    elif pa.types.is_duration(datatype):
        wanted = pa.duration("ns")
    elif datatype == pa.int64() or pa.types.is_null(datatype):
        wanted = pa.int64()
    else:
        raise TypeError(_NOT_IN_ARROW)
    try:
        values = values.cast(wanted)
    except pa.ArrowInvalid as error:
        raise _too_large(error) from error
    return _Given(np.asarray(values.drop_null().cast(pa.int64()), dtype=np.int64), kinds)


def _of_times(values: npt.NDArray[Any], given: object = None) -> _Given:
    """Index values from numpy times or spans; ``given`` is the user's original value, for messages."""
    missing = np.isnat(values)
    times = values[~missing]
    try:
        ticks = numpy_ticks(times)
    except ValueError as error:
        text = f"index value {error}: it is larger than an index allows"
        raise (UsageError(text) if given is None else _too_large(given)) from error
    inexact = ticks.view(f"{values.dtype.kind}8[ns]").astype(times.dtype) != times  # fractions of nanoseconds
    if bool(inexact.any()):
        raise _too_large(times[inexact][0] if given is None else given)
    where = f"NaT, at position {int(np.flatnonzero(missing)[0])}" if bool(missing.any()) else ""
    return _Given(ticks, frozenset([_OF_NUMPY[values.dtype.kind]]), where)


def _of_items(values: Iterable[Any]) -> _Given:
    """Index values from single values: integers, or times and spans of Python, numpy, pandas or Arrow."""
    integers: list[int] = []
    kinds: set[TimelineKind] = set()
    missing = ""
    for position, value in enumerate(values):
        if value is None:
            missing = missing or f"None, at position {position}"
            continue
        if isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64)):  # a np.integer
            integers.append(int(value))
            continue
        item = _of_item(value)
        if item is None:
            raise _not_values(values)
        integers += item.integers.tolist()
        kinds |= item.kinds
        missing = missing or (f"NaT, at position {position}" if item.missing else "")
    for value in integers:
        if not -(1 << 63) <= value < 1 << 63:
            raise _too_large(value)
    if len(kinds) > 1:
        raise TypeError(f"{_NOT_VALUES} Got both {' and '.join(_NAMES[kind] for kind in sorted(kinds))}.")
    return _Given(np.array(integers, np.int64), frozenset(kinds), missing)


def _of_item(value: Any) -> _Given | None:
    """The index value of a time or span; None for another value."""
    exact = getattr(value, "to_datetime64", None) or getattr(value, "to_timedelta64", None)  # pandas
    if exact is not None:
        value = exact()
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return _of_times(np.array([value]))
    if isinstance(value, datetime):
        since = (value if value.tzinfo is not None else value.replace(tzinfo=UTC)) - _EPOCH
        return _of_times(np.array([since], "m8[us]"), value)._replace(kinds=frozenset([TimelineKind.TIMESTAMP]))
    if isinstance(value, timedelta):
        return _of_times(np.array([value], "m8[us]"), value)
    if isinstance(value, (pa.TimestampScalar, pa.DurationScalar, pa.Int64Scalar)):
        return _of_arrow(pa.array([value], value.type))
    return None


def _too_large(value: object) -> UsageError:
    return UsageError(f"index value {value} is larger than an index allows")


def _not_values(values: Any) -> TypeError:
    return TypeError(f"{_NOT_VALUES} Got {type(values).__name__}.")


# --- the query


def no_column(name: str, columns: Sequence[str], *, where: str = "", path: str | None = None) -> UsageError:
    """Return the error for a missing column, with the most similar column; ``where`` is the place of its name."""
    plain = [column for column in columns if ":Mcap" not in column or "Mcap" in name]  # others are about channels
    parts = [column for column in plain if len(name) > 2 and name.casefold() in column.casefold()]
    close = difflib.get_close_matches(name, plain, 1) or parts
    more = len(columns) - len(plain[:8])
    listed = ", ".join(plain[:8]) + (f" and {more:,} more" if more else "")
    properties = ""
    if name.startswith("property:") and not any(column.startswith("property:") for column in columns):
        properties = " Properties need '/__properties/**' in the contents, besides '/**' or other entities."
    return UsageError(
        f"{where}there is no column {name!r}",
        path=path,
        hint=(f"Did you mean {close[0]!r}? " if close else "") + f"There are: {listed}.{properties}",
    )


@dataclass(frozen=True, slots=True)
class ComponentFilter:
    """Components of entities. Of the rules that match an entity, the last one selects the components."""

    rules: tuple[tuple[ContentFilter, frozenset[str]], ...]

    def matches(self, entity_path: str, component: str) -> bool:
        """Return whether the component of the entity is included."""
        chosen: frozenset[str] = frozenset()
        for entities, components in self.rules:
            if entities.matches(entity_path):
                chosen = components
        return component in chosen


@dataclass(frozen=True, slots=True)
class RowFilter:
    """The events that make rows: only those at some index values, and only those of one component of an entity.

    Filled values make no rows. With given index values, all rows count.
    """

    values: IndexValues | None = None
    component: tuple[str, str] | None = None


@dataclass(frozen=True)
class Query:
    """A query of segments: rows by an index, or for None one row of static values for each segment.

    ``names_segments``: the result has a column with segment ids.
    """

    index: str | None
    contents: ContentFilter = field(default_factory=ContentFilter.everything)
    include_semantically_empty_columns: bool = False
    include_tombstone_columns: bool = False
    fill_latest_at: bool = False
    values: IndexValues | None = None
    semantics: QuerySemantics = field(default_factory=QuerySemantics)
    names_segments: bool = True
    components: ComponentFilter | None = None
    rows: RowFilter = field(default_factory=RowFilter)

    @classmethod
    def of(
        cls,
        index: str | None,
        contents: Content | None = None,
        *,
        include_semantically_empty_columns: bool = False,
        include_tombstone_columns: bool = False,
        fill_latest_at: bool = False,
        using_index_values: Any = None,
        semantics: QuerySemantics | None = None,
        names_segments: bool = True,
    ) -> Query:
        """The query for the arguments of ``reader``.

        Raises the errors of :meth:`IndexValues.of`, and ``TypeError`` for contents of another type.
        """
        if index is not None and not isinstance(index, str):
            raise TypeError(f"index must be a str or None, got {type(index).__name__}")
        if index is None and using_index_values is not None:
            raise UsageError("index must be provided when using_index_values is specified")
        return cls(
            index,
            ContentFilter.everything() if contents is None else ContentFilter.of(contents),
            include_semantically_empty_columns,
            include_tombstone_columns,
            fill_latest_at,
            None if using_index_values is None or index is None else IndexValues.of(using_index_values, index),
            QuerySemantics.of() if semantics is None else semantics,
            names_segments,
        )

    def columns(self, dataset: pa.Schema, shown: pa.Schema | None = None) -> AnswerColumns:
        """The columns of the result. Its query has the timeline's own name of the index, such as ``message_log_time``.

        ``dataset`` has the columns of all segments, and so decides which are empty; ``shown`` has those of the queried
        segments. Raises ``ValueError`` if no segment has the index, and the errors of :meth:`IndexValues.check`.
        """
        whole, some = Schema.from_arrow(dataset), Schema.from_arrow(dataset if shown is None else shown)
        all_indexes = {column.name: column for column in whole.index_columns()}
        line = None if self.index is None else timeline_called(self.index, all_indexes)
        if line is not None and line != self.index:
            return replace(self, index=line).columns(dataset, shown)
        if self.index is not None and line is None:
            near = difflib.get_close_matches(self.index, all_indexes, 1)
            hint = (
                f"Did you mean '{near[0]}'?"
                if near
                else f"There are: {', '.join(all_indexes)}."
                if all_indexes
                else None
            )
            raise UsageError(f"Index '{self.index}' does not exist in the dataset.", hint=hint)
        indexes = {column.name: column for column in some.index_columns()}
        if self.index is not None:
            indexes.setdefault(self.index, all_indexes[self.index])
            for values in filter(None, (self.values, self.rows.values)):
                values.check(all_indexes[self.index])
        descriptors = {column.name: column for column in whole.component_columns()}
        static = {column.name for column in some.component_columns() if column.is_static}
        components = [descriptors[column.name] for column in some.component_columns()]
        visible = tuple(column for column in components if self._shows(column))
        shown_columns = visible if self.index is not None else tuple(c for c in visible if c.name in static)
        unmatched = self._unmatched({column.entity_path for column in descriptors.values()})
        return AnswerColumns(self, tuple(indexes.values()), shown_columns, visible, unmatched)

    def _unmatched(self, entities: set[str]) -> str:
        """Return a message if the contents name only entities that the dataset lacks, else an empty text."""
        named = [text for text in self.contents.to_exprs() if text.strip() and not text.lstrip().startswith("-")]
        if not named or not entities or any(map(self.contents.matches, entities)):
            return ""
        return f"no entity matches {' '.join(named)}. {self.contents.nearest(entities)}"

    def _shows(self, column: ComponentColumnDescriptor) -> bool:
        return (
            self.contents.matches(column.entity_path)
            and (self.components is None or self.components.matches(column.entity_path, column.component))
            and (self.include_tombstone_columns or not column.is_tombstone)
            and (self.include_semantically_empty_columns or not column.is_semantically_empty)
        )


@dataclass(frozen=True)
class AnswerColumns:
    """The columns of a query result: the segment's id, indexes by their names, and components.

    ``visible`` are the components that make rows; without an index, ``components`` are only the static ones of these.
    ``unmatched`` is a warning if the contents name entities that the dataset lacks.
    """

    query: Query
    indexes: tuple[IndexColumnDescriptor, ...]
    components: tuple[ComponentColumnDescriptor, ...]
    visible: tuple[ComponentColumnDescriptor, ...]
    unmatched: str = field(default="", compare=False)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The columns as Arrow fields, with Rerun's metadata."""
        fields = list(to_arrow_schema(self.indexes, self.components))[1:]
        ids = [pa.field(SEGMENT_ID, pa.string(), nullable=False)] if self.query.names_segments else []
        return pa.schema([*ids, *fields], _METADATA)

    def component(self, name: str) -> ComponentColumnDescriptor | None:
        """The component of a column; None for columns of ids and indexes."""
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> dict[str, ComponentColumnDescriptor]:
        return {column.name: column for column in self.components}

    def keys(self, names: Sequence[str] | None) -> set[Key]:
        """The components of the columns with these names (None: all)."""
        return {(c.entity_path, c.component) for c in self.components if names is None or c.name in names}

    def narrowed(self, names: Sequence[str] | None, predicate: object | None = None) -> AnswerColumns:
        """If selecting columns narrows the rows, return the columns of entities with a component in ``names`` or in the
        text of a predicate; else all columns.
        """
        if names is None or not self.query.semantics.selection_narrows or self.query.fill_latest_at:
            return self
        text = "" if predicate is None else str(predicate)
        wanted = {*names, *(c.name for c in self.components if c.name in text)}
        entities = {c.entity_path for c in self.components if c.name in wanted}
        if not entities or len(entities) == len({c.entity_path for c in self.components}):
            return self
        kept = tuple(c for c in self.components if c.entity_path in entities)
        return replace(self, components=kept, visible=tuple(c for c in self.visible if c.entity_path in entities))


@dataclass
class SegmentFigures:
    """The figures of a segment, a share of one, or several that are read together, counted while rows are made.

    To collect figures, add this to the task's context. ``chunks`` has the message bytes of each needed chunk, by
    segment, layer and number. ``planned`` is the time when the chunks were known, and ``first`` the time of the first
    rows, in seconds since the epoch.
    """

    chunks: dict[str, dict[str, dict[int, int]]] = field(default_factory=dict)
    pieces: int = 0
    requests: int = 0
    bytes: int = 0
    planned: float | None = None
    first: float | None = None

    def need(self, segment_id: str, layers: Iterable[tuple[str, ChunkTable, Integers]]) -> None:
        """Count chunks that a segment needs: rows of its layers' tables."""
        self.planned = self.planned or time.time()
        mine = self.chunks.setdefault(segment_id, {})
        for name, table, rows in layers:
            sizes = np.asarray(table.sizes[rows])
            mine.setdefault(name, {}).update(zip(rows.tolist(), sizes.tolist(), strict=True))

    def read(self, fetches: Fetches) -> None:
        """Store the counts of reads."""
        self.pieces, self.requests, self.bytes = fetches.pieces, fetches.requests, fetches.bytes

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON data."""
        chunks = [
            [segment_id, layer, list(some), list(some.values())]
            for segment_id, layers in self.chunks.items()
            for layer, some in layers.items()
        ]
        return {**vars(self), "chunks": chunks}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SegmentFigures:
        """The inverse of :meth:`to_dict`."""
        figures = cls(**{**data, "chunks": {}})
        for segment_id, layer, rows, sizes in data["chunks"]:
            figures.chunks.setdefault(segment_id, {})[layer] = dict(zip(rows, sizes, strict=True))
        return figures
