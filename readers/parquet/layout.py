"""From a file's schema and the reader's options to the chunks that each batch of rows becomes."""

from __future__ import annotations

import base64
import binascii
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from ...engine.chunk import ComponentDescriptor, parse_entity_path, rust_type_name, split_parts
from ...engine.errors import ReadError, ReadWarning
from .expressions import Expression, Names, Raw, Struct, Vector, becomes_numbers
from .options import IndexColumn, ParquetOptions
from .rules import Entry, Named, grouped_entries, individual_entries
from .timelines import is_index_type

ARROW_SCHEMA = "ARROW:schema"


def plain_schema(schema: pa.Schema, stored: str | None) -> pa.Schema:
    """The schema that columns come out in: no extension types, no metadata, and dates as they were written.

    ``stored`` is the file's value for ``ARROW:schema``: of its types the library restores all but ``date64``.
    """
    written = _written(stored) if stored is not None else None
    fields = []
    for i, field in enumerate(schema):
        datatype = _storage_type(field.type)
        if written is not None and len(written) == len(schema) and _is_milliseconds(datatype, written.field(i).type):
            datatype = pa.date64()
        fields.append(pa.field(field.name, datatype, field.nullable))
    return pa.schema(fields)


def _storage_type(datatype: pa.DataType) -> pa.DataType:
    """The type without extension types, at any depth."""
    if isinstance(datatype, pa.BaseExtensionType):
        return _storage_type(datatype.storage_type)
    if pa.types.is_struct(datatype):
        return pa.struct([_storage_field(f) for f in datatype])
    if pa.types.is_list(datatype):
        return pa.list_(_storage_field(datatype.value_field))
    if pa.types.is_large_list(datatype):
        return pa.large_list(_storage_field(datatype.value_field))
    if pa.types.is_fixed_size_list(datatype):
        return pa.list_(_storage_field(datatype.value_field), datatype.list_size)
    if pa.types.is_map(datatype):
        return pa.map_(_storage_field(datatype.key_field), _storage_field(datatype.item_field), datatype.keys_sorted)
    return datatype


def in_type(values: pa.Array, datatype: pa.DataType) -> pa.Array:
    """The values in the type of :func:`plain_schema`."""
    if values.type != datatype:
        return values.cast(datatype)
    # Maps whose entries are named differently are equal. In a file they may have the name of their column.
    return values if str(values.type) == str(datatype) else values.view(datatype)


def _storage_field(field: pa.Field) -> pa.Field:
    return field.with_type(_storage_type(field.type))


def _is_milliseconds(datatype: pa.DataType, written: pa.DataType) -> bool:
    return bool(pa.types.is_date32(datatype) and pa.types.is_date64(written))


def _written(stored: str) -> pa.Schema | None:
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored)))
    except (binascii.Error, ValueError, pa.ArrowException, OSError, RuntimeError):
        return None  # the library, which reads it too, has not refused it


class _Group(NamedTuple):
    """Columns that come out at one entity: ``path`` below the reader's prefix, as text.

    ``flat``: each entry is a component of its own, whatever ``use_structs`` says.
    """

    path: str
    entries: tuple[Entry, ...]
    flat: bool


def _group_columns(columns: Sequence[Named], options: ParquetOptions) -> list[_Group]:
    """All groups, in the order in which their chunks come."""
    if options.grouping == "individual":
        return _individual(columns, options)
    if options.grouping == "prefix":
        parted: dict[str, list[Named]] = defaultdict(list)
        for column in columns:
            prefix, name = _split_name(column.name, options.delimiter)
            parted[prefix].append(column._replace(name=name))
        return _sorted_groups(parted, options)
    return _explicit(columns, options)


def _split_name(name: str, delimiter: str) -> tuple[str, str]:
    """Prefix and rest of a column's name; where it has no such parts, the whole name is both.

    >>> [_split_name(n, "_") for n in ("camera_rgb", "camera", "trail_", "_lead", "a__b")]
    [('camera', 'rgb'), ('camera', 'camera'), ('trail_', 'trail_'), ('', 'lead'), ('a', '_b')]
    """
    prefix, _, rest = name.partition(delimiter)
    return (prefix, rest) if rest else (name, name)


def _explicit(columns: Sequence[Named], options: ParquetOptions) -> list[_Group]:
    longest_first = sorted(options.prefixes, key=len, reverse=True)
    parted: dict[str, list[Named]] = defaultdict(list)
    alone: list[_Group] = []
    for column in columns:
        prefix = next((p for p in longest_first if column.name.startswith(p) and column.name != p), None)
        if prefix is None:
            alone.append(_Group(column.name, (Entry(column.name, (column.position,)),), flat=True))
        else:
            parted[prefix].append(column._replace(name=column.name[len(prefix) :].removeprefix("_")))
    return _sorted_groups(parted, options) + alone


def _sorted_groups(parted: dict[str, list[Named]], options: ParquetOptions) -> list[_Group]:
    return [
        _Group(prefix, tuple(grouped_entries(parted[prefix], options.rules)), flat=not options.use_structs)
        for prefix in sorted(parted, key=lambda p: p.encode("utf-8", "surrogatepass"))
    ]


def _individual(columns: Sequence[Named], options: ParquetOptions) -> list[_Group]:
    entries = individual_entries(columns, options.rules)
    matched: dict[str, list[Entry]] = defaultdict(list)
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


class Output(NamedTuple):
    """One chunk of each batch: its entity (canonical) and its components."""

    entity_path: str
    components: tuple[tuple[ComponentDescriptor, Expression], ...]

    @property
    def columns(self) -> frozenset[int]:
        """Positions of the columns that are needed for it."""
        return frozenset(c for _, part in self.components for c in part.columns)


class SeriesNames(NamedTuple):
    """Names of the series of an entity, which come once, as static data."""

    entity_path: str
    names: tuple[str, ...]


class Layout(NamedTuple):
    """What becomes of each column. ``timelines`` and ``static`` hold positions in the schema.

    ``root`` is the entity of the static columns; without ``timelines`` rows are on ``row_index``.
    """

    schema: pa.Schema
    root: str
    timelines: tuple[tuple[int, IndexColumn], ...]
    static: tuple[int, ...]
    outputs: tuple[Output, ...]
    series: tuple[SeriesNames, ...]


def compile_layout(schema: pa.Schema, options: ParquetOptions, *, path: str) -> Layout:
    """What the columns of ``schema`` become.

    Raises ``ReadError`` where an index column is missing. Warns (``ReadWarning``) of columns that cannot be what the
    options want.
    """
    index, removed = _index_columns(schema, options, path)
    static = tuple(i for i, name in enumerate(schema.names) if name in options.static_columns)
    removed |= set(static)
    columns = [_named(i, field) for i, field in enumerate(schema) if i not in removed]
    outputs: list[Output] = []
    series: list[SeriesNames] = []
    for group in _group_columns(columns, options):
        made = list(_outputs(group, schema, options.entity_path_prefix))
        outputs += [output for output, _ in made]
        series += [names for _, several in made for names in several]
    root = parse_entity_path(options.entity_path_prefix)
    return Layout(schema, root, index, static, tuple(outputs), tuple(series))


def _named(position: int, field: pa.Field) -> Named:
    return Named(position, field.name, None if becomes_numbers(field.type) else str(field.type))


def _index_columns(
    schema: pa.Schema, options: ParquetOptions, path: str
) -> tuple[tuple[tuple[int, IndexColumn], ...], set[int]]:
    """The columns that become timelines, and all that are taken from the data for it."""
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
            used[column.path] = (positions[-1], column)
        else:
            warnings.warn(
                f"{path}: Cannot use column with type {rust_type_name(datatype)} as a timeline index"
                f" (column {column.path!r})",
                ReadWarning,
                stacklevel=2,
            )
    return tuple(used.values()), removed


def _outputs(group: _Group, schema: pa.Schema, prefix: str) -> Iterator[tuple[Output, list[SeriesNames]]]:
    """The chunks of one group."""
    base = f"{prefix}/{group.path}"
    entries = group.entries
    alone = len(entries) == 1 and (entries[0].rule is None or entries[0].rule.target not in ("Scalars", "Transform"))
    if group.flat:
        yield from _flat(entries, schema, base)
    elif alone:
        yield Output(parse_entity_path(base), tuple(_components(entries[0], schema))), []
    elif entries:
        fields = tuple(field for entry in entries for field in _fields(entry, schema))
        yield Output(parse_entity_path(base), ((ComponentDescriptor("data"), Struct(fields)),)), []


def _flat(entries: Sequence[Entry], schema: pa.Schema, base: str) -> Iterator[tuple[Output, list[SeriesNames]]]:
    """One chunk an entity; a component that an entity has already makes another chunk there."""
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
        yield Output(path, tuple(components.items())), series if i == 0 else []


def _components(entry: Entry, schema: pa.Schema) -> Iterator[tuple[ComponentDescriptor, Expression]]:
    """An entry as components of its own."""
    if entry.rule is None:
        yield ComponentDescriptor(entry.field_name), _raw(entry, schema)
    elif entry.rule.target == "Transform":
        yield _DESCRIPTORS["Translation3D"], _vector(entry.columns, schema)
        yield _DESCRIPTORS["RotationQuat"], _vector(entry.rotation, schema)
    else:
        yield _DESCRIPTORS[entry.rule.target], _vector(entry.columns, schema, double=entry.rule.target == "Scalars")


def _fields(entry: Entry, schema: pa.Schema) -> Iterator[tuple[str, Expression]]:
    """An entry as fields of a struct."""
    name = entry.field_name
    if entry.rule is None:
        yield name, _raw(entry, schema)
    elif entry.rule.target == "Transform":
        parts = (("translation", entry.columns), ("quaternion", entry.rotation))
        yield name, Struct(tuple((n, _vector(columns, schema)) for n, columns in parts))
    elif entry.rule.target == "Scalars":
        yield name, _vector(entry.columns, schema, double=True)
        yield f"{name}_names", Names(tuple(entry.rule.names or ()))
    else:
        yield name, _vector(entry.columns, schema)


def _raw(entry: Entry, schema: pa.Schema) -> Raw:
    (column,) = entry.columns
    return Raw(column, schema.field(column).nullable)


def _vector(columns: tuple[int, ...], schema: pa.Schema, *, double: bool = False) -> Vector:
    return Vector(columns, tuple(schema.field(c).name for c in columns), double)
