"""The chunks of a batch: column groups and rules from schema and options; values and timelines."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...engine.chunk import ComponentDescriptor, Timeline, TimelineKind, parse_entity_path, rust_type_name, split_parts
from ...engine.errors import ReadError, ReadWarning
from ...engine.units import counted
from .file import is_int96
from .options import ColumnRule, IndexColumn, ParquetOptions

_NUMBER = r"^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|inf|infinity|nan|NaN|Inf)$"


class Expression(Protocol):
    """Values from columns, one per row."""

    @property
    def columns(self) -> tuple[int, ...]:
        """The positions of the columns that it needs."""
        ...

    @property
    def nullable(self) -> bool:
        """Return whether a value may be null."""
        ...

    def evaluate(self, arrays: Mapping[int, pa.Array], length: int) -> pa.Array:
        """Return the ``length`` values; ``arrays`` are by column position."""
        ...


@dataclass(frozen=True)
class RawColumn:
    """One column as it is."""

    column: int
    nullable: bool

    @property
    def columns(self) -> tuple[int, ...]:
        """The column."""
        return (self.column,)

    def evaluate(self, arrays: Mapping[int, pa.Array], length: int) -> pa.Array:  # noqa: ARG002
        """The column itself, without a copy."""
        return arrays[self.column]


@dataclass(frozen=True)
class VectorColumn:
    """Several columns joined to a fixed-size list of floats; null becomes 0, with a ``ReadWarning``."""

    columns: tuple[int, ...]
    labels: tuple[str, ...]
    double: bool = False
    nullable: bool = True

    def evaluate(self, arrays: Mapping[int, pa.Array], length: int) -> pa.Array:
        """``fixed_size_list<float32 or float64, number of columns>``."""
        out = np.empty((length, len(self.columns)), np.float64 if self.double else np.float32)
        for i, (column, label) in enumerate(zip(self.columns, self.labels, strict=True)):
            out[:, i] = _numbers(arrays[column], label, out.dtype)
        values = pa.array(out.reshape(-1))
        kind = pa.list_(pa.field("item", values.type, nullable=False), len(self.columns))
        return pa.FixedSizeListArray.from_arrays(values, type=kind)


@dataclass(frozen=True)
class NamesColumn:
    """The same list of names in every row."""

    names: tuple[str, ...]
    columns: tuple[int, ...] = ()
    nullable: bool = True

    def evaluate(self, arrays: Mapping[int, pa.Array], length: int) -> pa.Array:  # noqa: ARG002
        """``fixed_size_list<string, number of names>``."""
        values = pa.array(self.names, pa.string()).take(pa.array(np.tile(np.arange(len(self.names)), length)))
        kind = pa.list_(pa.field("item", pa.string(), nullable=False), len(self.names))
        return pa.FixedSizeListArray.from_arrays(values, type=kind)


@dataclass(frozen=True)
class StructColumn:
    """Other expressions as the fields of a struct; names may repeat."""

    fields: tuple[tuple[str, Expression], ...]
    nullable: bool = True

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """The columns of all fields."""
        return tuple(c for _, part in self.fields for c in part.columns)

    def evaluate(self, arrays: Mapping[int, pa.Array], length: int) -> pa.Array:
        """A struct array over the fields' values, without a copy of them."""
        parts = [part.evaluate(arrays, length) for _, part in self.fields]
        fields = [
            pa.field(name, a.type, nullable=part.nullable) for (name, part), a in zip(self.fields, parts, strict=True)
        ]
        return pa.StructArray.from_arrays(parts, fields=fields)


def one_each(values: pa.Array, *, nullable: bool) -> pa.ListArray:
    """Return a list column with one instance per row, without copying values."""
    kind = pa.list_(pa.field("item", values.type, nullable=nullable))
    return pa.Array.from_buffers(kind, len(values), [None, _offsets(len(values))], children=[values])


@lru_cache(maxsize=8)  # all columns of a batch share them: saves 10 % (300,000 rows x 40); benchmarks/bench_parquet.py
def _offsets(length: int) -> pa.Buffer:
    return pa.py_buffer(np.arange(length + 1, dtype=np.int32))


def becomes_numbers(datatype: pa.DataType) -> bool:
    """Return whether a column of this type can be part of a vector."""
    if pa.types.is_dictionary(datatype):
        return becomes_numbers(datatype.value_type)
    return bool(
        pa.types.is_integer(datatype)
        or pa.types.is_floating(datatype)
        or pa.types.is_boolean(datatype)
        or pa.types.is_decimal(datatype)
        or pa.types.is_timestamp(datatype)
        or pa.types.is_duration(datatype)
        or pa.types.is_string(datatype)
        or pa.types.is_large_string(datatype)
    )


def _numbers(values: pa.Array, label: str, dtype: np.dtype[np.floating]) -> npt.NDArray[np.floating]:
    """Return a column as floats, without nulls."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int64())
    nulls = values.null_count
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values = pc.if_else(pc.match_substring_regex(values, _NUMBER), values, None)
    floats = pc.cast(values, pa.from_numpy_dtype(dtype), safe=False)
    if floats.null_count > nulls:
        _warn(f"column {label!r}: texts that are not numbers become 0 in the component of a column rule")
    if nulls:
        _warn(f"column {label!r}: nulls become 0 in the component of a column rule")
    if floats.null_count:
        floats = pc.fill_null(floats, 0)
    return np.asarray(floats.to_numpy(zero_copy_only=False))


def _warn(text: str) -> None:
    warnings.warn(text, ReadWarning, stacklevel=2)


ROW_INDEX: Final = "row_index"
"""The timeline of files without an index column: numbers of rows, from 0."""

_INTEGERS: Final = (pa.int64(), pa.int32(), pa.int16(), pa.uint32(), pa.uint64())
_LIMIT: Final = 2**63

Ints = npt.NDArray[np.int64]


def is_index_type(datatype: pa.DataType) -> bool:
    """Return whether a column of this type can be a timeline."""
    return (
        datatype in _INTEGERS
        or datatype in (pa.float64(), pa.float32())
        or pa.types.is_timestamp(datatype)
        or pa.types.is_duration(datatype)
    )


def row_numbers(first: int, length: int) -> Timeline:
    """Return the timeline of row numbers, from ``first``."""
    return _timeline(ROW_INDEX, TimelineKind.SEQUENCE, np.arange(first, first + length, dtype=np.int64))


def timeline(values: pa.Array, column: IndexColumn, *, path: str, first_row: int) -> Timeline:
    """Return an index column as a timeline with the same name.

    Integers, timestamps and durations keep their stored numbers, in the unit of the options. Floats are scaled to
    nanoseconds, then rounded; times beyond 64 bits become the earliest or latest possible. ``first_row`` is the row
    number of the first value. Warns (``ReadWarning``) about times that wrap around or are clamped. Raises ``ReadError``
    for null, NaN, and a sequence number that is not a 64-bit integer.
    """
    if values.null_count:
        raise _no_time(column, "null", values.is_null(), path, first_row)
    if pa.types.is_floating(values.type):
        return _timeline(column.path, column.line, _rounded(values, column, path, first_row))
    return _timeline(column.path, column.line, _scaled(_integers(values, column, path), column, path))


def _no_time(column: IndexColumn, what: str, rows: pa.Array, path: str, first_row: int) -> ReadError:
    row = first_row + int(np.flatnonzero(rows.to_numpy(zero_copy_only=False))[0])
    return ReadError(
        f"index column {column.path!r} is {what} in row {row:,}, but every row needs a time",
        path=path,
        hint=f"Leave {column.path!r} out of index_columns, or add the missing times.",
    )


def _rounded(values: pa.Array, column: IndexColumn, path: str, first_row: int) -> Ints:
    """Convert floats to ticks; half a nanosecond is rounded away from zero, as in Rerun 0.41."""
    if column.line is TimelineKind.SEQUENCE:
        return _whole_numbers(values, column, path, first_row)
    nan = pc.is_nan(values)
    if pc.any(nan).as_py():
        raise _no_time(column, "NaN", nan, path, first_row)
    scaled = values.to_numpy(zero_copy_only=False).astype(np.float64) * column.factor
    inside = (scaled >= -_LIMIT) & (scaled < _LIMIT)
    numbers = np.where(inside, scaled, 0)
    whole = np.trunc(numbers)
    out = (whole + np.where(np.abs(numbers - whole) >= 0.5, np.sign(numbers), 0)).astype(np.int64)
    if not inside.all():
        _warn(
            f"{path}: index column {column.path!r}: {counted(int((~inside).sum()), 'value')} beyond 64 bits of"
            " nanoseconds, clamped to the earliest or latest time; check its unit"
        )
        out[~inside] = np.where(scaled[~inside] > 0, _LIMIT - 1, -_LIMIT)
    return out


def _whole_numbers(values: pa.Array, column: IndexColumn, path: str, first_row: int) -> Ints:
    numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
    inside = (numbers >= -_LIMIT) & (numbers < _LIMIT)
    ticks = np.where(inside, numbers, 0).astype(np.int64)
    wrong = np.flatnonzero(~inside | (ticks != numbers))
    if len(wrong):
        raise ReadError(
            f"index column {column.path!r} is {numbers[wrong[0]]} in row {first_row + int(wrong[0]):,}, but sequence "
            "numbers are 64-bit integers",
            path=path,
            hint=f"If the column holds times, read it as '{column.path}:timestamp:s' or '{column.path}:duration:s'.",
        )
    return ticks


def _integers(values: pa.Array, column: IndexColumn, path: str) -> Ints:
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int64())
    ticks = np.asarray(values.to_numpy(zero_copy_only=False))
    if ticks.dtype == np.uint64 and (beyond := int((ticks >= np.uint64(_LIMIT)).sum())):
        _warn(f"{path}: index column {column.path!r}: {counted(beyond, 'number')} beyond 2^63, wrapped to negative")
    return ticks.astype(np.int64)


def _scaled(values: Ints, column: IndexColumn, path: str) -> Ints:
    if column.factor == 1 or not len(values):
        return values
    most = (_LIMIT - 1) // column.factor
    if int(values.max()) > most or int(values.min()) < -most:
        _warn(
            f"{path}: times of index column {column.path!r} do not fit into 64 bits of nanoseconds, and wrap around; "
            "check its unit"
        )
    with np.errstate(over="ignore"):
        return values * np.int64(column.factor)


def _timeline(name: str, kind: TimelineKind, values: Ints) -> Timeline:
    values = np.ascontiguousarray(values)
    times = pa.Array.from_buffers(kind.arrow_type, len(values), [None, pa.py_buffer(values)])
    return Timeline(name, kind, times)


class _Named(NamedTuple):
    """A column of a group: its position in the file, and its name within the group.

    ``refused``: the type of a column that cannot become numbers. No rule takes it.
    """

    position: int
    name: str
    refused: str | None = None


class _Entry(NamedTuple):
    """An entry of a group: a match of ``rule`` or, without ``rule``, a column as it is.

    ``columns`` are positions in the file, ``rotation`` those of a transform's quaternion; ``sub_prefix`` is the text
    before the suffixes of a match.
    """

    field_name: str
    columns: tuple[int, ...]
    rule: ColumnRule | None = None
    rotation: tuple[int, ...] = ()
    sub_prefix: str = ""


class _Match(NamedTuple):
    sub_prefix: str
    columns: tuple[int, ...]


def _entries(columns: Sequence[_Named], rules: Sequence[ColumnRule], *, bounded: bool) -> list[_Entry]:
    """Return the entries of a group: matches in the order of the rules, then the columns that no rule took.

    With ``bounded``, a suffix must match after ``_`` or the whole name, and its own leading ``_`` does not count.
    Without it, suffixes match any end of a name. Then the field name of a match is its sub-prefix; the field name of a
    transform is empty.
    """
    taken: set[int] = set()
    entries: list[_Entry] = []
    for rule in rules:
        if rule.target == "Transform":
            matches = _transforms(columns, rule, taken, bounded=bounded)
        else:
            matches = [
                _Entry(_field_name(rule, m.sub_prefix, bounded=bounded), m.columns, rule, (), m.sub_prefix)
                for m in _matches(columns, rule.target, rule.suffixes, taken, bounded=bounded)
            ]
        for entry in matches:
            taken.update(entry.columns, entry.rotation)
        entries += matches
    return entries + [_Entry(c.name, (c.position,)) for c in columns if c.position not in taken]


def _transforms(columns: Sequence[_Named], rule: ColumnRule, taken: set[int], *, bounded: bool) -> list[_Entry]:
    """Return translations and rotations with the same sub-prefix; one without the other is left to later rules."""
    moved = list(_matches(columns, rule.target, rule.suffixes, taken, bounded=bounded))
    used = taken.union(*(m.columns for m in moved))
    rotations = _matches(columns, rule.target, rule.rotation_suffixes or (), used, bounded=bounded)
    turned = {m.sub_prefix: m for m in rotations}
    return [
        _Entry(
            _field_name(rule, m.sub_prefix, bounded=bounded) if bounded else "",
            m.columns,
            rule,
            turned[m.sub_prefix].columns,
            m.sub_prefix,
        )
        for m in moved
        if m.sub_prefix in turned
    ]


def _matches(
    columns: Sequence[_Named], target: str, suffixes: Sequence[str], taken: set[int], *, bounded: bool
) -> Iterator[_Match]:
    ends = [s.removeprefix("_") for s in suffixes] if bounded else list(suffixes)
    if not ends:
        return
    free: dict[str, _Named] = {}
    for column in columns:
        if column.position not in taken:
            free.setdefault(column.name, column)
    for column in columns:
        if free.get(column.name) is not column or not column.name.endswith(ends[0]):
            continue
        before = column.name[: len(column.name) - len(ends[0])]
        if bounded and before and not before.endswith("_"):
            continue
        wanted = [free.get(before + end) for end in ends]
        present = [c for c in wanted if c is not None]
        if len(present) < len(wanted) or _refused(present, target):
            continue
        for c in present:
            free.pop(c.name, None)
        yield _Match(before.removesuffix("_") if bounded else before, tuple(c.position for c in present))


def _refused(columns: Sequence[_Named], target: str) -> bool:
    """Return whether a match is unusable; if so, warn."""
    for column in columns:
        if column.refused is not None:
            what = "scalar" if target == "Scalars" else "archetype"
            warnings.warn(
                f"Unsupported column type for {what} mapping: {column.refused}; the columns of the rule for {target} "
                f"are kept unchanged (column {column.name!r})",
                ReadWarning,
                stacklevel=2,
            )
            return True
    return False


def _field_name(rule: ColumnRule, sub_prefix: str, *, bounded: bool) -> str:
    if not bounded:
        return sub_prefix
    override = rule.field_name_override
    if override:
        return sub_prefix + override if sub_prefix else override.lstrip("_")
    if sub_prefix:
        return sub_prefix
    shared = _common_start([s.removeprefix("_") for s in rule.suffixes]).rstrip("_")
    return shared or ("scalars" if rule.target == "Scalars" else "")


def _common_start(texts: Sequence[str]) -> str:
    """The text that all texts begin with.

    >>> _common_start(["pos_x", "pos_y", "pos_z"])
    'pos_'
    """
    first, last = min(texts), max(texts)
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:same]


class _Group(NamedTuple):
    """The columns of one entity, whose path is ``path`` below the reader's prefix, as text.

    ``flat``: each entry is a separate component, whatever ``use_structs`` is.
    """

    path: str
    entries: tuple[_Entry, ...]
    flat: bool


def _group_columns(columns: Sequence[_Named], options: ParquetOptions) -> list[_Group]:
    """Return all groups, in the order of their chunks."""
    if options.column_grouping == "individual":
        return _individual(columns, options)
    if options.column_grouping == "prefix":
        parted: dict[str, list[_Named]] = defaultdict(list)
        for column in columns:
            prefix, name = _split_name(column.name, options.delimiter)
            parted[prefix].append(column._replace(name=name))
        return _sorted_groups(parted, options)
    return _explicit(columns, options)


def _split_name(name: str, delimiter: str) -> tuple[str, str]:
    """Return prefix and rest of a column's name; if it does not have both, the whole name is returned as both.

    >>> [_split_name(n, "_") for n in ("camera_rgb", "camera", "trail_", "_lead", "a__b")]
    [('camera', 'rgb'), ('camera', 'camera'), ('trail_', 'trail_'), ('', 'lead'), ('a', '_b')]
    """
    prefix, _, rest = name.partition(delimiter)
    return (prefix, rest) if rest else (name, name)


def _explicit(columns: Sequence[_Named], options: ParquetOptions) -> list[_Group]:
    longest_first = sorted(options.prefixes or (), key=len, reverse=True)
    parted: dict[str, list[_Named]] = defaultdict(list)
    alone: list[_Group] = []
    for column in columns:
        prefix = next((p for p in longest_first if column.name.startswith(p) and column.name != p), None)
        if prefix is None:
            alone.append(_Group(column.name, (_Entry(column.name, (column.position,)),), flat=True))
        else:
            parted[prefix].append(column._replace(name=column.name[len(prefix) :].removeprefix("_")))
    return _sorted_groups(parted, options) + alone


def _sorted_groups(parted: dict[str, list[_Named]], options: ParquetOptions) -> list[_Group]:
    return [
        _Group(
            prefix, tuple(_entries(parted[prefix], options.column_rules, bounded=True)), flat=not options.use_structs
        )
        for prefix in sorted(parted, key=lambda p: p.encode("utf-8", "surrogatepass"))
    ]


def _individual(columns: Sequence[_Named], options: ParquetOptions) -> list[_Group]:
    entries = _entries(columns, options.column_rules, bounded=False)
    matched: dict[str, list[_Entry]] = defaultdict(list)
    for entry in entries:
        if entry.rule is not None:
            matched[entry.sub_prefix].append(entry)
    groups = [_Group(prefix, tuple(matched[prefix]), flat=True) for prefix in sorted(matched)]
    return groups + [_Group(e.field_name, (e,), flat=True) for e in entries if e.rule is None]


_TRANSFORM: Final = "rerun.archetypes.Transform3D"
_DESCRIPTORS: Final = {
    "Translation3D": ComponentDescriptor("Transform3D:translation", _TRANSFORM, "rerun.components.Translation3D"),
    "RotationQuat": ComponentDescriptor("Transform3D:quaternion", _TRANSFORM, "rerun.components.RotationQuat"),
    "RotationAxisAngle": ComponentDescriptor(
        "Transform3D:rotation_axis_angle", _TRANSFORM, "rerun.components.RotationAxisAngle"
    ),
    "Scale3D": ComponentDescriptor("Transform3D:scale", _TRANSFORM, "rerun.components.Scale3D"),
    "Scalars": ComponentDescriptor("Scalars:scalars", "rerun.archetypes.Scalars", "rerun.components.Scalar"),
}


class ChunkOutput(NamedTuple):
    """A chunk that each batch gives: its canonical entity path and its components."""

    entity_path: str
    components: tuple[tuple[ComponentDescriptor, Expression], ...]

    @property
    def columns(self) -> frozenset[int]:
        """The positions of the columns that it needs."""
        return frozenset(c for _, part in self.components for c in part.columns)


class SeriesNames(NamedTuple):
    """The names of an entity's series, which come once, as static data."""

    entity_path: str
    names: tuple[str, ...]


class ColumnLayout(NamedTuple):
    """The use of each column. ``timelines`` and ``static`` have positions in the schema.

    ``root`` is the entity of the static columns; without ``timelines``, rows are on ``row_index``.
    """

    schema: pa.Schema
    root: str
    timelines: tuple[tuple[int, IndexColumn], ...]
    static: tuple[int, ...]
    outputs: tuple[ChunkOutput, ...]
    series: tuple[SeriesNames, ...]


def compile_layout(schema: pa.Schema, options: ParquetOptions, *, path: str) -> ColumnLayout:
    """Compile the layout of ``schema``: the chunks that its columns become.

    Raises ``ReadError`` if an index column is missing. Warns (``ReadWarning``) of columns unfit for the options.
    """
    index, removed = _index_columns(schema, options, path)
    static = tuple(i for i, name in enumerate(schema.names) if name in options.static_columns)
    removed |= set(static)
    columns = [_named(i, field) for i, field in enumerate(schema) if i not in removed]
    prefix = options.entity_path_prefix or "/"
    outputs: list[ChunkOutput] = []
    series: list[SeriesNames] = []
    for group in _group_columns(columns, options):
        made = list(_outputs(group, schema, prefix))
        outputs += [output for output, _ in made]
        series += [names for _, several in made for names in several]
    root = parse_entity_path(prefix)
    return ColumnLayout(schema, root, index, static, tuple(outputs), tuple(series))


def _named(position: int, field: pa.Field) -> _Named:
    return _Named(position, field.name, None if becomes_numbers(field.type) else str(field.type))


def _index_columns(
    schema: pa.Schema, options: ParquetOptions, path: str
) -> tuple[tuple[tuple[int, IndexColumn], ...], set[int]]:
    """Return the columns that become timelines, and all columns that are therefore not data."""
    wanted = {column.path: column for column in options.index_columns}
    used: dict[str, tuple[int, IndexColumn]] = {}
    removed: set[int] = set()
    for column in wanted.values():
        positions = [i for i, name in enumerate(schema.names) if name == column.path]
        if not positions:
            raise ReadError(
                f"Parquet error: Index column '{column.path}' not found in parquet schema",
                path=path,
                hint=f"Its columns: {', '.join(schema.names[:20])}{', …' if len(schema) > 20 else ''}.",
            )
        removed.update(positions)
        datatype = schema.field(positions[-1]).type
        if is_index_type(datatype):
            used[column.path] = (positions[-1], _in_unit(column, schema.field(positions[-1]), path))
        else:
            warnings.warn(
                f"{path}: Cannot use column with type {rust_type_name(datatype)} as a timeline index"
                f" (column {column.path!r})",
                ReadWarning,
                stacklevel=2,
            )
    return tuple(used.values()), removed


def _in_unit(column: IndexColumn, field: pa.Field, path: str) -> IndexColumn:
    """Return the column with the unit of its numbers. Warns if the file names another unit."""
    is_time = pa.types.is_timestamp(field.type) or pa.types.is_duration(field.type)
    if not is_time or column.line is TimelineKind.SEQUENCE:
        return column
    if is_int96(field):
        return replace(column, input_unit=field.type.unit)
    unit = column.input_unit or "ns"
    if field.type.unit != unit:
        warnings.warn(
            f"{path}: index column {column.path!r} has type {field.type}, but its numbers are read in {unit}; to read "
            f"the times of the file, give the unit {field.type.unit!r}",
            ReadWarning,
            stacklevel=2,
        )
    return column


def _outputs(group: _Group, schema: pa.Schema, prefix: str) -> Iterator[tuple[ChunkOutput, list[SeriesNames]]]:
    """The chunks of one group."""
    base = f"{prefix}/{group.path}"
    entries = group.entries
    alone = len(entries) == 1 and (entries[0].rule is None or entries[0].rule.target not in ("Scalars", "Transform"))
    if group.flat:
        yield from _flat(entries, schema, base)
    elif alone:
        yield ChunkOutput(parse_entity_path(base), tuple(_components(entries[0], schema))), []
    elif entries:
        fields = tuple(field for entry in entries for field in _fields(entry, schema))
        yield ChunkOutput(parse_entity_path(base), ((ComponentDescriptor("data"), StructColumn(fields)),)), []


def _flat(entries: Sequence[_Entry], schema: pa.Schema, base: str) -> Iterator[tuple[ChunkOutput, list[SeriesNames]]]:
    """Yield one chunk per entity; if an entity already has a component, it gets another chunk."""
    chunks: list[tuple[str, dict[ComponentDescriptor, Expression]]] = []
    series: list[SeriesNames] = []
    for entry in entries:
        below = entry.field_name if entry.rule is not None else ""
        path = parse_entity_path(f"{base}/{below}")
        made = dict(_components(entry, schema))
        place = next((c for p, c in chunks if p == path and not c.keys() & made.keys()), None)
        if place is None:
            chunks.append((path, made))
        else:
            place.update(made)
        if entry.rule is not None and entry.rule.names is not None and entry.rule.target == "Scalars":
            series.append(SeriesNames(path, tuple(entry.rule.names)))
    chunks.sort(key=lambda chunk: split_parts(chunk[0]))
    for i, (path, components) in enumerate(chunks):
        yield ChunkOutput(path, tuple(components.items())), series if i == 0 else []


def _components(entry: _Entry, schema: pa.Schema) -> Iterator[tuple[ComponentDescriptor, Expression]]:
    """Yield an entry as separate components."""
    if entry.rule is None:
        yield ComponentDescriptor(entry.field_name), _raw(entry, schema)
    elif entry.rule.target == "Transform":
        yield _DESCRIPTORS["Translation3D"], _vector(entry.columns, schema)
        yield _DESCRIPTORS["RotationQuat"], _vector(entry.rotation, schema)
    else:
        yield _DESCRIPTORS[entry.rule.target], _vector(entry.columns, schema, double=entry.rule.target == "Scalars")


def _fields(entry: _Entry, schema: pa.Schema) -> Iterator[tuple[str, Expression]]:
    """Yield an entry as fields of a struct."""
    name = entry.field_name
    if entry.rule is None:
        yield name, _raw(entry, schema)
    elif entry.rule.target == "Transform":
        parts = (("translation", entry.columns), ("quaternion", entry.rotation))
        yield name, StructColumn(tuple((n, _vector(columns, schema)) for n, columns in parts))
    elif entry.rule.target == "Scalars":
        yield name, _vector(entry.columns, schema, double=True)
        yield f"{name}_names", NamesColumn(tuple(entry.rule.names or ()))
    else:
        yield name, _vector(entry.columns, schema)


def _raw(entry: _Entry, schema: pa.Schema) -> RawColumn:
    (column,) = entry.columns
    return RawColumn(column, schema.field(column).nullable)


def _vector(columns: tuple[int, ...], schema: pa.Schema, *, double: bool = False) -> VectorColumn:
    return VectorColumn(columns, tuple(schema.field(c).name for c in columns), double)
