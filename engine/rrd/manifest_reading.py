"""The manifest of a store: read, checked, and turned into a chunk table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk import (
    ChunkHeader,
    ComponentDescriptor,
    ComponentHeader,
    TimelineKind,
    columns_of_arrow,
    descriptor_in,
    parse_entity_path,
    text_metadata,
)
from ..errors import ReadError, UnsupportedError
from . import messages
from .arrow_ipc import decode_alike, decode_batch, decode_schema, head_of
from .chunk_table import (
    CHUNK_TABLE,
    COMPONENT_TYPE,
    RANGE_TYPE,
    TIMELINE_TYPE,
    ChunkTable,
    Integers,
    Mask,
    Numbers,
    distinct,
    integers,
    lists_of,
    sequence_codes,
    type_column,
    valid,
)
from .compression import check_compression, decompress
from .messages import MESSAGE_HEADER_SIZE, STREAM_HEADER_SIZE
from .payloads import DIGEST_SIZE

_MANGLED: Final = str.maketrans(dict.fromkeys(", -.\\", "_"))

START: Final = "start"
END: Final = "end"
NUM_ROWS: Final = "num_rows"
HAS_STATIC_DATA: Final = "has_static_data"
STATIC_INDEX: Final = "rerun:static"

FIXED: Final = (
    "chunk_entity_path",
    "chunk_id",
    "chunk_is_static",
    "chunk_num_rows",
    "chunk_byte_offset",
    "chunk_byte_size",
    "chunk_byte_size_uncompressed",
)
"""The columns of every manifest."""

_ALLOWED: Final = frozenset(
    {
        "chunk_key",
        "chunk_partition_id",
        "chunk_partition_layer",
        "rerun_partition_id",
        "rerun_partition_layer",
        "chunk_segment_id",
        "chunk_segment_layer",
        "rerun_segment_id",
        "rerun_segment_layer",
    }
)
"""Columns that a manifest may have, and that are ignored."""


@lru_cache(maxsize=65_536)
def column_name(timeline: str | None, descriptor: ComponentDescriptor | None, suffix: str) -> str:
    """The manifest column of ``suffix`` for a timeline, a component, or both.

    Not injective: ``a-b`` and ``a_b`` give the same name.

    >>> positions = ComponentDescriptor("Points3D:positions", archetype="rerun.archetypes.Points3D")
    >>> column_name("my-rel time", positions, "start")
    'my_rel_time:Points3D:positions:start'
    """
    parts = [timeline, *_component_parts(descriptor), suffix]
    return ":".join(p for p in parts if p).translate(_MANGLED).lstrip("_")


def _component_parts(descriptor: ComponentDescriptor | None) -> tuple[str, ...]:
    if descriptor is None:
        return ()
    short = descriptor.archetype_short_name
    if short is None:
        return (descriptor.component,)
    return short, descriptor.component.removeprefix(f"{short}:")


# --- their meaning


class KnownComponent(NamedTuple):
    """The union schema's facts about one component of one entity."""

    descriptor: ComponentDescriptor
    datatype: pa.DataType
    is_empty: bool | None


class UnionSchema(NamedTuple):
    """A recording's union schema, taken apart; made by :func:`read_union_schema`."""

    timelines: dict[str, TimelineKind]
    descriptors: list[ComponentDescriptor]
    components: dict[tuple[str, str], KnownComponent | None]
    """By entity path and component; None if the schema repeats the component."""


def read_union_schema(schema: pa.Schema) -> UnionSchema:
    """Parse a ``sorbet_schema``. Raises ``ValueError`` for another schema."""
    indexes, columns = columns_of_arrow(schema)
    components: dict[tuple[str, str], KnownComponent | None] = {}
    for column in columns:
        component = KnownComponent(column.descriptor, column.datatype, column.is_semantically_empty or None)
        key = (column.entity_path, column.component)
        components[key] = None if key in components else component
    descriptors = sorted({column.descriptor for column in columns}, key=lambda d: d.sort_key)
    return UnionSchema({index.name: index.kind for index in indexes}, descriptors, components)


class DetailColumns(NamedTuple):
    """The positions of the three columns for one component on one timeline."""

    timeline: str
    descriptor: ComponentDescriptor
    start: int
    end: int
    num_rows: int


class Layout(NamedTuple):
    """Positions of a manifest's columns, by their meaning."""

    fixed: dict[str, int]
    statics: dict[ComponentDescriptor, int]
    timelines: dict[str, tuple[int, int]]
    details: list[DetailColumns] | None
    """None if the manifest lacks some of the columns for single components on single timelines."""


class LayoutError(ValueError):
    """The columns are not those of a manifest."""


def lay_out(schema: pa.Schema, union: UnionSchema) -> Layout:
    """Find every column of a manifest. Raises :class:`LayoutError`.

    Names are not unique: metadata distinguish the columns of one name. Without metadata, these columns belong, in
    order, to the union schema's components with that name.
    """
    columns = _Columns(schema)
    fixed = {name: columns.only(name) for name in FIXED}
    statics = columns.by_descriptor(None, HAS_STATIC_DATA, union.descriptors)
    timelines = {
        name: (columns.only(column_name(name, None, START)), columns.only(column_name(name, None, END)))
        for name in union.timelines
    }
    details = _details(columns, union)
    columns.check_rest()
    return Layout(fixed, statics, timelines, details)


def _details(columns: _Columns, union: UnionSchema) -> list[DetailColumns] | None:
    details: list[DetailColumns] = []
    is_whole = True
    for timeline in sorted(union.timelines, key=str.encode):
        start, end, num_rows = (
            columns.by_descriptor(timeline, suffix, union.descriptors) for suffix in (START, END, NUM_ROWS)
        )
        if start.keys() != end.keys():
            odd = next(iter(start.keys() ^ end.keys()))
            raise LayoutError(f"start and end of {odd.component!r} on {timeline!r} must be adjacent columns")
        is_whole &= start.keys() == num_rows.keys()
        details += [DetailColumns(timeline, d, start[d], end[d], num_rows[d]) for d in start if d in num_rows]
    return details if is_whole and details else None


class _Columns:
    """The columns of a manifest by name, each claimed once."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._unclaimed: defaultdict[str, list[int]] = defaultdict(list)
        for i, name in enumerate(schema.names):
            self._unclaimed[name].append(i)

    def only(self, name: str) -> int:
        """The one column of ``name``."""
        positions = self._unclaimed.pop(name, [])
        if len(positions) != 1:
            raise LayoutError(f"it has the column {name!r} {len(positions)} times instead of once")
        return positions[0]

    def by_descriptor(
        self, timeline: str | None, suffix: str, descriptors: list[ComponentDescriptor]
    ) -> dict[ComponentDescriptor, int]:
        """The columns of ``suffix`` on ``timeline``, by their component."""
        by_name: defaultdict[str, list[ComponentDescriptor]] = defaultdict(list)
        for descriptor in descriptors:
            by_name[column_name(timeline, descriptor, suffix)].append(descriptor)
        positions: dict[ComponentDescriptor, int] = {}
        for name, candidates in by_name.items():
            for i in self._unclaimed.pop(name, []):
                positions[self._claimant(i, name, timeline, suffix, [c for c in candidates if c not in positions])] = i
        return positions

    def _claimant(
        self, i: int, name: str, timeline: str | None, suffix: str, candidates: list[ComponentDescriptor]
    ) -> ComponentDescriptor:
        metadata = text_metadata(self._schema.field(i).metadata)
        if "rerun:component" in metadata:
            descriptor = descriptor_in(metadata, metadata["rerun:component"])
            if column_name(timeline, descriptor, suffix) == name:
                return descriptor
        if not candidates:
            raise LayoutError(f"it has the column {name!r} more often than its schema explains")
        return candidates[0]

    def check_rest(self) -> None:
        """Raise :class:`LayoutError` if an unknown column is left."""
        for name, unclaimed in self._unclaimed.items():
            if unclaimed and name not in _ALLOWED:
                raise LayoutError(f"it has a column {name!r} that its schema does not explain")


_WHAT: Final = "the manifest in the footer"
_HINT: Final = "The footer is damaged or was written incorrectly; read the file with recover=True to ignore it."
_PATH, _ID, _STATIC, _ROWS, _OFFSET, _SIZE, _UNCOMPRESSED = FIXED
_FIXED_TYPES: Final = (
    pa.string(), pa.binary(16), pa.bool_(), pa.uint64(), pa.uint64(), pa.uint64(), pa.uint64()
)  # fmt: skip


class OutdatedManifestError(Exception):
    """A manifest of the first drafts, without row counts: it is unusable, but not damaged."""


class SealedManifest(NamedTuple):
    """A manifest in the footer at ``offset`` of the file ``path``, whose messages end at ``messages_end``.

    ``schema`` is the recording's, ``stream`` has the rows; both are Arrow IPC. ``digests`` are the chunks' digests.
    """

    path: str
    offset: int
    messages_end: int
    schema: bytes
    stream: bytes | memoryview
    digests: bytes

    @property
    def shape(self) -> tuple[bytes, bytes]:
        """Both schemas: manifests with equal ones can be parsed together."""
        return self.schema, head_of(self.stream)


def seal(manifest: Any, *, path: str, offset: int, messages_end: int) -> SealedManifest:
    """Parse a protobuf ``RrdManifest``, and decompress its rows. Raises :class:`ReadError`."""
    _check_message(manifest, path, offset)
    part = manifest.data
    compression = check_compression(part.compression, path=path, offset=offset)
    stream = decompress(part.payload, compression, part.uncompressed_size, path=path, offset=offset, what=_WHAT)
    return SealedManifest(
        path, offset, messages_end, manifest.sorbet_schema.arrow_schema, stream, manifest.chunk_digests
    )


def parse_manifest(sealed: SealedManifest) -> Manifest:
    """The rows of a manifest, in its order.

    Raises :class:`ReadError`, or :class:`OutdatedManifestError` if the row counts are missing.
    """
    path, offset = sealed.path, sealed.offset
    schema = decode_schema(sealed.schema, path=path, offset=offset, what="the schema in the footer")
    batch = decode_batch(sealed.stream, path=path, offset=offset, what=_WHAT)
    try:
        return _checked([sealed], [batch], schema)
    except ValueError as error:
        _fail(str(error), path, offset, error)


def parse_alike(sealed: Sequence[SealedManifest]) -> tuple[Manifest, list[int]]:
    """The rows of several manifests of one shape, as one manifest, and the number of rows of each.

    Raises :class:`ReadError`, :class:`OutdatedManifestError` or one of ``ARROW_ERRORS`` if a manifest is damaged: then
    parse each by itself.
    """
    first = sealed[0]
    schema = decode_schema(first.schema, path=first.path, offset=first.offset, what="the schema in the footer")
    batches = decode_alike([manifest.stream for manifest in sealed])
    return _checked(sealed, batches, schema), [batch.num_rows for batch in batches]


def _checked(sealed: Sequence[SealedManifest], batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> Manifest:
    """Return the manifest of these batches. Raises ``ValueError`` if they are not a manifest."""
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    if "chunk_num_rows" not in batch.schema.names:
        raise OutdatedManifestError
    counts = [part.num_rows for part in batches]
    union = read_union_schema(schema)
    layout = lay_out(batch.schema, union)
    _check_columns(batch, layout, union)
    _check_numbers(
        batch, layout, np.repeat([max(manifest.messages_end, 0) for manifest in sealed], counts).astype(np.uint64)
    )
    _check_ranges(batch, layout)
    for entity_path in batch.column(layout.fixed[_PATH]).unique().to_pylist():
        parse_entity_path(entity_path)
    digests = [digests_from_bytes(manifest.digests, count) for manifest, count in zip(sealed, counts, strict=True)]
    parts = pa.array([manifest.path for manifest in sealed], pa.string())
    of = pa.array(np.repeat(np.arange(len(sealed)), counts))
    return Manifest(batch, layout, union, pa.concat_arrays(digests), parts.take(of))


def _check_message(manifest: Any, path: str, offset: int) -> None:
    messages.require(manifest, "store_id", "sorbet_schema", "sorbet_schema_sha256", "data", path=path, offset=offset)
    if len(manifest.sorbet_schema_sha256) != 32:
        _fail(f"its digest has {len(manifest.sorbet_schema_sha256)} bytes instead of 32", path, offset)
    if manifest.data.encoder_version != messages.ENCODER_VERSION_V0:
        raise UnsupportedError(
            f"{_WHAT} has the encoder version {manifest.data.encoder_version}; only 1 is known",
            path=path,
            offset=offset,
            hint=_HINT,
        )


def _fail(reason: str, path: str, offset: int, cause: Exception | None = None) -> NoReturn:
    raise ReadError(f"{_WHAT} is damaged: {reason}", path=path, offset=offset, hint=_HINT) from cause


def _check_columns(batch: pa.RecordBatch, layout: Layout, union: UnionSchema) -> None:
    for name, datatype in zip(FIXED, _FIXED_TYPES, strict=True):
        column = batch.column(layout.fixed[name])
        if column.type != datatype:
            raise LayoutError(f"the column {name!r} is {column.type}, not {datatype}")
        if column.null_count:
            raise LayoutError(f"the column {name!r} has {column.null_count} nulls")
    for name, positions in layout.timelines.items():
        _check_index(batch, positions, union.timelines[name], name)
    for detail in layout.details or ():
        _check_index(batch, (detail.start, detail.end), union.timelines[detail.timeline], detail.timeline)
        _check_type(batch, detail.num_rows, pa.uint64())
    for position in layout.statics.values():
        _check_type(batch, position, pa.bool_())
    if not layout.statics.keys() >= set(union.descriptors) and batch.column(layout.fixed["chunk_is_static"]).true_count:
        missing = next(d for d in union.descriptors if d not in layout.statics)
        raise LayoutError(f"the column of static chunks of {missing} is missing")


def _check_index(batch: pa.RecordBatch, positions: tuple[int, int], kind: TimelineKind, timeline: str) -> None:
    for position in positions:
        field = batch.schema.field(position)
        if TimelineKind.of(field.type) is not kind:
            raise LayoutError(
                f"the column {field.name!r} is {field.type}, but the timeline {timeline!r} is a {kind.value}"
            )


def _check_type(batch: pa.RecordBatch, position: int, datatype: pa.DataType) -> None:
    field = batch.schema.field(position)
    if field.type != datatype:
        raise LayoutError(f"the column {field.name!r} is {field.type}, not {datatype}")


def _check_numbers(batch: pa.RecordBatch, layout: Layout, ends: Numbers) -> None:
    """Raise :class:`LayoutError` for chunks outside the messages, and for counts beyond 63 bits."""
    offsets, sizes, *counts = (batch.column(layout.fixed[n]).to_numpy() for n in (_OFFSET, _SIZE, _ROWS, _UNCOMPRESSED))
    if any(bool(np.any(count >> np.uint64(63))) for count in counts):
        raise LayoutError("the number of rows or bytes of a chunk is impossibly large")
    bad = (offsets > ends) | (sizes > ends) | (offsets < STREAM_HEADER_SIZE + MESSAGE_HEADER_SIZE)
    bad |= ~bad & (offsets + sizes > ends)
    if bad.any():
        i = int(np.argmax(bad))
        raise LayoutError(
            f"chunk {i}, of {sizes[i]} bytes at byte {offsets[i]}, is outside the messages, which end at {ends[i]}"
        )


# --- rows of a chunk table


@dataclass(frozen=True)
class Manifest:
    """The checked chunks of footers; columns are decoded on use. ``parts`` are the chunks' files."""

    batch: pa.RecordBatch
    layout: Layout
    union: UnionSchema
    digests: pa.Array
    parts: pa.Array

    @cached_property
    def table(self) -> ChunkTable:
        """The chunks, in the order of the manifest."""
        return _Rows(self).table()

    @property
    def offsets(self) -> Integers:
        """The places of the messages, in bytes from the start of the stream."""
        return integers(self.fixed(_OFFSET))

    @property
    def sizes(self) -> Integers:
        """The messages' lengths in bytes."""
        return integers(self.fixed(_SIZE))

    def fixed(self, name: str) -> pa.Array:
        """One of the columns that every manifest has."""
        return self.batch.column(self.layout.fixed[name])


def silent_columns(
    union: UnionSchema, entity_components: Container[tuple[str, ComponentDescriptor]]
) -> list[ChunkHeader]:
    """The components of a footer that are not in ``entity_components``, each in its own header.

    They have only nulls, and the footer does not name their chunks.
    """
    return [
        ChunkHeader(b"", entity, 0, False, (), (ComponentHeader(component.descriptor, component.datatype, (), True),))
        for (entity, _), component in union.components.items()
        if component is not None and (entity, component.descriptor) not in entity_components
    ]


class _Rows:
    """Makes a chunk table from a manifest, column by column: null cells cost nothing.

    Rows that are not clear get no components: these are known only from the chunk.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._batch = manifest.batch
        paths = manifest.fixed(_PATH).dictionary_encode()
        self._paths = [parse_entity_path(p) for p in paths.dictionary.to_pylist()]
        self._codes = integers(paths.indices)
        self._is_static = np.asarray(_nulls_as_zero(manifest.fixed(_STATIC)), dtype=bool)
        self._is_bare = integers(manifest.fixed(_ROWS)) == 0
        self._timelines = sorted(manifest.layout.timelines, key=str.encode)
        self._present = [valid(self._batch.column(manifest.layout.timelines[name][0])) for name in self._timelines]
        self._is_clear = (
            ~np.logical_or.reduce([p & self._is_static for p in self._present])
            if self._present
            else (np.ones(len(self._codes), dtype=bool))
        )

    def table(self) -> ChunkTable:
        fixed = self._manifest.fixed
        timelines = self._timeline_lists()
        components, types = self._component_lists()
        columns = [
            fixed(_ID),
            pa.array(self._paths, pa.string()).take(pa.array(self._codes)),
            fixed(_ROWS).view(pa.int64()),
            fixed(_STATIC),
            timelines,
            components,
            types,
            self._manifest.parts,
            *(fixed(name).view(pa.int64()) for name in (_OFFSET, _SIZE, _UNCOMPRESSED)),
            self._manifest.digests,
        ]
        return ChunkTable(pa.RecordBatch.from_arrays(columns, schema=CHUNK_TABLE))

    def _timeline_lists(self) -> pa.ListArray:
        kinds = self._manifest.union.timelines
        cells = []
        for code, (name, present) in enumerate(zip(self._timelines, self._present, strict=True)):
            start, end = (self._batch.column(p) for p in self._manifest.layout.timelines[name])
            self._is_clear &= ~present | valid(end)
            at = np.flatnonzero(present & ~self._is_static)
            cells.append((at, np.full(len(at), code), integers(start)[at], integers(end)[at]))
        rows, codes, starts, ends = _in_row_order(cells, 4)
        has_range = ~self._is_bare[rows]
        names = [
            pa.array(values, pa.string()).take(pa.array(codes))
            for values in (self._timelines, [kinds[name].value for name in self._timelines])
        ]
        columns = (*names, _nullable(starts, has_range), _nullable(ends, has_range))
        return lists_of(np.bincount(rows, minlength=len(self._codes)), TIMELINE_TYPE, columns)

    def _component_lists(self) -> tuple[pa.ListArray, pa.DictionaryArray]:
        layout = self._manifest.layout
        by_descriptor: defaultdict[ComponentDescriptor, list[DetailColumns]] = defaultdict(list)
        for detail in layout.details or ():
            by_descriptor[detail.descriptor].append(detail)
        descriptors = sorted({*layout.statics, *by_descriptor}, key=lambda d: d.sort_key)
        details = [self._hits(by_descriptor[d]) for d in descriptors]
        cells = []
        for code, descriptor in enumerate(descriptors):
            has = self._held(layout.statics.get(descriptor))
            for _, hits in details[code]:
                has = has | hits
            at = np.flatnonzero(has)
            cells.append((at, np.full(len(at), code)))
        rows, codes = _in_row_order(cells, 2)
        components, kinds = self._components_of(rows, codes, descriptors)
        self._is_clear[rows[kinds < 0]] = False
        clear = self._is_clear[rows]
        rows, codes, kinds = rows[clear], codes[clear], kinds[clear]
        names = [
            pa.array(values, pa.string()).take(pa.array(codes))
            for values in zip(*((d.component, d.archetype, d.component_type) for d in descriptors), strict=True)
        ] or [pa.nulls(0, pa.string())] * 3
        emptiness = pa.array([k.is_empty for k in components], pa.bool_()).take(pa.array(kinds))
        columns = (*names, emptiness, self._range_lists(rows, codes, details))
        sizes = np.bincount(rows, minlength=len(self._codes))
        return lists_of(sizes, COMPONENT_TYPE, columns), _types(sizes, kinds, [k.datatype for k in components])

    def _hits(self, details: list[DetailColumns]) -> list[tuple[DetailColumns, Mask]]:
        """A component's columns for each timeline, and the rows in which it has values there.

        For chunks without rows, a range counts as values, although it means nothing.
        """
        column_hits = []
        for detail in details:
            present = self._present[self._timelines.index(detail.timeline)]
            counted = _nulls_as_zero(self._batch.column(detail.num_rows)) > 0
            hits = valid(self._batch.column(detail.start)) & present & (counted | self._is_bare)
            self._is_clear &= ~hits | valid(self._batch.column(detail.end)) & ~self._is_static
            column_hits.append((detail, hits))
        return column_hits

    def _held(self, position: int | None) -> Mask:
        """The rows that hold a component statically."""
        if position is None:
            return np.zeros(len(self._codes), dtype=bool)
        held = np.asarray(_nulls_as_zero(self._batch.column(position)), dtype=bool)
        self._is_clear &= ~held | self._is_static
        return held

    def _components_of(
        self, rows: Integers, codes: Integers, descriptors: list[ComponentDescriptor]
    ) -> tuple[list[KnownComponent], Integers]:
        """Return components of the union schema, and each cell's number among them, or -1 for another component."""
        keys, which = distinct(self._codes[rows] * len(descriptors) + codes, len(self._paths) * len(descriptors))
        components: list[KnownComponent] = []
        numbers = np.full(len(keys), -1, dtype=np.int64)
        for i, key in enumerate(keys.tolist()):
            path, descriptor = self._paths[key // len(descriptors)], descriptors[key % len(descriptors)]
            component = self._manifest.union.components.get((path, descriptor.component))
            if component is not None and component.descriptor == descriptor:
                numbers[i] = len(components)
                components.append(component)
        return components, numbers[which]

    def _range_lists(
        self, rows: Integers, codes: Integers, details: list[list[tuple[DetailColumns, Mask]]]
    ) -> pa.ListArray:
        """A range for each component of a chunk on each of its timelines."""
        present = np.array(self._present, dtype=bool).reshape(len(self._present), len(self._codes))
        place_of = np.cumsum(present, axis=0) - 1
        counts = np.where(self._is_static[rows], 0, present.sum(axis=0)[rows])
        first = np.cumsum(counts) - counts
        size = int(counts.sum())
        start, end, num_rows = (np.zeros(size, dtype=np.int64) for _ in range(3))
        is_known = np.zeros(size, dtype=bool)
        cell_of = np.empty(len(self._codes), dtype=np.int64)
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(len(details) + 1))
        for code, columns in enumerate(details):
            cells = order[bounds[code] : bounds[code + 1]]
            cell_of.fill(-1)
            cell_of[rows[cells]] = cells
            for detail, hits in columns:
                at = np.flatnonzero(hits & (cell_of >= 0) & ~self._is_bare)
                place = first[cell_of[at]] + place_of[self._timelines.index(detail.timeline), at]
                start[place] = integers(self._batch.column(detail.start))[at]
                end[place] = integers(self._batch.column(detail.end))[at]
                num_rows[place] = _nulls_as_zero(self._batch.column(detail.num_rows))[at].astype(np.int64)
                is_known[place] = True
        return lists_of(counts, RANGE_TYPE, (_nullable(start, is_known), _nullable(end, is_known), num_rows))


def _in_row_order(cells: Sequence[tuple[npt.NDArray[Any], ...]], columns: int) -> list[Integers]:
    """Concatenate the cells of several columns, ordered by row; the first array of each column has the rows."""
    if not cells:
        return [np.empty(0, dtype=np.int64) for _ in range(columns)]
    joined = [np.concatenate(column) for column in zip(*cells, strict=True)]
    order = np.argsort(joined[0], kind="stable")
    return [column[order] for column in joined]


def _nullable(values: Integers, is_known: Mask) -> pa.Array:
    return pa.array(values, mask=~is_known)


def _types(sizes: Integers, kinds: Integers, datatypes: list[pa.DataType]) -> pa.DictionaryArray:
    """The types of each row's components."""
    ends = np.concatenate([[0], np.cumsum(sizes)])
    codes, count = sequence_codes(ends, kinds, len(datatypes))
    first = np.zeros(count, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    sets = [tuple([datatypes[k] for k in kinds[ends[row] : ends[row + 1]].tolist()]) for row in first.tolist()]
    return type_column(codes.astype(np.int32), sets if len(codes) else [])


def _check_ranges(batch: pa.RecordBatch, layout: Layout) -> None:
    """Raise :class:`LayoutError` for a component with rows on a timeline but without a range on it."""
    for detail in layout.details or ():
        counted = _nulls_as_zero(batch.column(detail.num_rows)) > 0
        has_timeline = valid(batch.column(layout.timelines[detail.timeline][0]))
        if np.any(counted & ~(valid(batch.column(detail.start)) & has_timeline)):
            raise LayoutError(f"{detail.descriptor} has rows on {detail.timeline!r} but no range")


def _nulls_as_zero(column: pa.Array) -> npt.NDArray[Any]:
    """The values of a numeric or boolean column, zero where it is null."""
    return np.asarray((column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False))


def digests_from_bytes(data: bytes, count: int) -> pa.Array:
    """The inverse of :func:`~.manifest_writing.digests_to_bytes`, for ``count`` chunks. Raises ``ValueError``."""
    if not data:
        return pa.nulls(count, pa.binary(DIGEST_SIZE))
    if len(data) != DIGEST_SIZE * count:
        raise ValueError(f"its digests of {count} chunks have {len(data)} bytes instead of {DIGEST_SIZE * count}")
    is_present = np.frombuffer(data, np.uint64).reshape(-1, 2).any(axis=1)
    validity = None if is_present.all() else pa.py_buffer(np.packbits(is_present, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(DIGEST_SIZE), count, [validity, pa.py_buffer(data)])
