"""From a file's schema and the reader's options to the chunks that each batch of rows becomes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from ...engine.chunk import ComponentDescriptor, parse_entity_path
from ...engine.chunk.entity_path import split_parts
from ...engine.chunk.sorbet import rust_type_name
from ...engine.errors import ReadError, ReadWarning
from .expressions import Expression, Names, Raw, Struct, Vector, becomes_numbers
from .grouping import Group, group_columns
from .options import IndexColumn, ParquetOptions
from .rules import Entry, Named
from .timelines import is_index_type

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
    for group in group_columns(columns, options):
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


def _outputs(group: Group, schema: pa.Schema, prefix: str) -> Iterator[tuple[Output, list[SeriesNames]]]:
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
