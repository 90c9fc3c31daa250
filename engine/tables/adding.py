"""Columns added to a table, changed and dropped: changes of field metadata, never of values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from ..errors import UsageError, check_argument
from ..lance import UNNAMEABLE, LanceTable, is_blob
from .digests import COMPUTED_BY, token_of
from .function import UDF, UnpackedUDF, check_against
from .targets import Definition, FunctionColumns, group_metadata, metadata_of, note_fresh, remember

_ROW: Final = "_rowid"
_FUNCTION_KEYS: Final = ("udf", "virtual_column")
_ALTERED: Final = ("path", "rename", "nullable", "data_type", "udf", "input_columns", "virtual_column")


def added(table: LanceTable, transforms: Any) -> list[tuple[str, UDF]]:
    """Add the columns of ``Table.add_columns``, and return one computed column for each function."""
    reader = table.at()
    schema = reader.schema
    columns: list[tuple[str, UDF]] = []
    if isinstance(transforms, (UDF, UnpackedUDF)):
        udf, prefix = (transforms.udf, transforms.prefix) if isinstance(transforms, UnpackedUDF) else (transforms, "")
        fields = _siblings(schema, udf, prefix)
        table.add_null_columns(fields)
        remember(udf)
        return [(fields[0].name, udf)]
    if not isinstance(transforms, Mapping):
        raise TypeError(f"add_columns() takes a mapping, a UDF or an UnpackedUDF, not {type(transforms).__name__}")
    if not transforms:
        raise UsageError("add_columns() got no columns")
    steps: list[tuple[str, str | pa.Field]] = []
    names = list(schema.names)
    for name, given in transforms.items():
        if not isinstance(name, str):
            raise TypeError(f"the name of a column must be text, not {name!r}")
        if name in names:
            raise UsageError(f"Invalid input, Column {name} already exists in the dataset")
        names.append(name)
        if isinstance(given, str):
            _check_name(name)
            # It may be SQL over a column that another step of these adds.
            with suppress(UsageError) if any(other in given for other, _ in steps) else nullcontext():
                schema = schema.append(reader.expressed_schema({name: given, _ROW: _ROW}).field(name))
            steps.append((name, given))
            continue
        udf = single_function(name, given)
        _check_inputs(schema, udf, (name,))
        steps.append((name, _field(name, udf.data_type, udf, metadata_of(udf))))
        columns.append((name, udf))
    for kind, items in _runs(steps):
        if kind is str:
            note_fresh(table)
            table.add_sql_columns({name: str(item) for name, item in items})
        else:
            table.add_null_columns([item for _, item in items if isinstance(item, pa.Field)])
    for _, udf in columns:
        remember(udf)
    return columns


def altered(
    table: LanceTable, alterations: Sequence[Mapping[str, Any]], sources: Mapping[str, pa.Schema] | None = None
) -> None:
    """Change columns for ``Table.alter_columns``.

    ``sources`` are the schemas of other tables, for columns that are computed from them.
    """
    schema = table.at().schema
    of_lance: list[Mapping[str, Any]] = []
    for alteration in alterations:
        check_argument("alteration", alteration, Mapping)
        path = alteration.get("path")
        if unknown := alteration.keys() - _ALTERED:
            raise UsageError(f"a column has no {min(unknown)!r} to change", hint=f"Give {', '.join(_ALTERED)}.")
        if not isinstance(path, str):
            raise UsageError("alter_columns() needs the path of each column", hint='{"path": "a", "udf": function}')
        if path not in schema.names and "." not in path:
            raise UsageError(f"there is no column {path!r}", hint=f"There are: {', '.join(schema.names)}.")
        given = [alteration[key] for key in _FUNCTION_KEYS if alteration.get(key) is not None]
        if len(given) > 1:
            raise UsageError("`virtual_column` is an older name of `udf`: give one of them")
        if not given:
            if "input_columns" in alteration:
                raise UsageError("input_columns needs udf=, which is missing")
            if alteration.keys() == {"path"}:
                raise UsageError(f"no change of {path!r} is given", hint=f"Give {', '.join(_ALTERED[1:])}.")
            _check_alone(schema, path)
            if "rename" in alteration and (takers := _takers(schema, [path])):
                raise UsageError(f"{takers} are computed from {path!r}", hint="Change their inputs first.")
            of_lance.append({"name" if key == "rename" else key: value for key, value in alteration.items()})
            continue
        if unknown := alteration.keys() - {"path", "input_columns", *_FUNCTION_KEYS}:
            raise UsageError(f"udf= cannot be combined with {', '.join(sorted(unknown))}")
        _alter_function(
            table, schema.field(path), given[0], alteration.get("input_columns"), schema, (sources or {}).get(path)
        )
    if of_lance:
        note_fresh(table)
        table.alter(of_lance)


def dropped(table: LanceTable, columns: Sequence[str]) -> None:
    """Drop columns."""
    if isinstance(columns, str):
        raise TypeError("drop_columns() takes a list of names")
    schema = table.at().schema
    for name in columns:
        if name not in schema.names:
            raise UsageError(f"there is no column {name!r}", hint=f"There are: {', '.join(schema.names)}.")
        definition = Definition.of(schema.field(name))
        together = () if definition is None else definition.columns_in(schema)
        if missing := [other for other in together if other not in columns]:
            raise UsageError(
                f"{name!r} is computed together with {', '.join(map(repr, missing))}, and can only be dropped with "
                "them",
                hint=f"Drop {list(together)}.",
            )
    takers = _takers(schema, columns)
    if takers:
        raise UsageError(
            f"{takers} are computed from {list(columns)}", hint=f"Drop {takers} first, or change their inputs."
        )
    table.drop(columns)


def _takers(schema: pa.Schema, columns: Sequence[str]) -> list[str]:
    """Return the other columns that functions compute from ``columns``."""
    return [
        field.name
        for field in schema
        if field.name not in columns
        and (definition := Definition.of(field)) is not None
        and set(definition.inputs or ()) & set(columns)
    ]


def _alter_function(
    table: LanceTable,
    field: pa.Field,
    udf: Any,
    inputs: Sequence[str] | None,
    schema: pa.Schema,
    source: pa.Schema | None,
) -> None:
    definition = Definition.of(field)
    if definition is None:
        raise UsageError(f"{field.name!r} is not a computed column", hint="Create such a column by add_columns().")
    _check_alone(schema, field.name)
    udf = single_function(field.name, udf if inputs is None else (udf, inputs))
    _check_inputs(schema if source is None else source, udf, (field.name,) if source is None else ())
    if udf.data_type != field.type:
        raise UsageError(
            f"the column {field.name!r} has the type {field.type}, but {udf.name!r} returns {udf.data_type}"
        )
    changed: dict[str, str | None] = dict(metadata_of(udf))
    before = (field.metadata or {}).get(COMPUTED_BY.encode())
    if before is None:
        changed[COMPUTED_BY] = token_of(definition.udf_name, definition.version, definition.inputs)
    table.describe({field.name: changed})
    remember(udf)


def _check_alone(schema: pa.Schema, name: str) -> None:
    definition = Definition.of(schema.field(name)) if name in schema.names else None
    if definition is not None and len(definition.columns_in(schema)) > 1:
        raise UsageError(
            f"{name!r} is one of {list(definition.columns_in(schema))}, which a single function computes, and cannot "
            "be changed alone",
            hint="Drop these columns together, and add them again.",
        )


def single_function(name: str, given: Any) -> UDF:
    """Return the function given for one column, alone or in a tuple with its inputs. Raises for anything else."""
    if isinstance(given, tuple):
        if len(given) != 2 or not isinstance(given[0], UDF):
            raise TypeError(f"column {name!r}: a tuple must be a UDF and the names of its inputs, not {given!r}")
        given = given[0].with_inputs(given[1])
    if isinstance(given, UnpackedUDF):
        raise UsageError(f"column {name!r}: an UnpackedUDF returns several columns: pass it directly, not in a mapping")
    if not isinstance(given, UDF):
        raise TypeError(f"column {name!r}: expected SQL, a UDF, or a tuple of a UDF and its inputs, not {given!r}")
    if given.outputs is not None:
        raise UsageError(
            f"column {name!r}: UDF {given.name!r} returns several columns (Columns[T]): pass it directly, not in a "
            "mapping"
        )
    return given


def _siblings(schema: pa.Schema, udf: UDF, prefix: str) -> list[pa.Field]:
    if udf.outputs is None:
        raise UsageError(f"UDF {udf.name!r} returns one column: pass it with a name, as in {{'name': {udf.name}}}")
    names = [prefix + field.name for field in udf.outputs]
    if existing := [name for name in names if name in schema.names]:
        raise UsageError(f"Columns[T] UDF output columns already exist in table schema: {existing}")
    _check_inputs(schema, udf, names)
    metadata = group_metadata(udf, prefix)
    return [_field(prefix + field.name, field.type, udf, metadata[field.name]) for field in udf.outputs]


def _check_inputs(schema: pa.Schema, udf: UDF, outputs: Sequence[str]) -> None:
    if udf.inputs is not None and (own := [name for name in udf.inputs if name in outputs]):
        raise UsageError(f"UDF {udf.name!r}: {own} would be both an input and an output")
    check_against(schema, udf)


def _check_name(name: str) -> None:
    if not name or set(name) & {".", *UNNAMEABLE} or name in _OF_LANCE:
        raise UsageError(
            f"a column cannot have the name {name!r}",
            hint="Choose a name that Lance does not use, without '.' and '`'.",
        )


_OF_LANCE: Final = ("_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version")
"""The columns that Lance adds to every table."""


def _field(name: str, data_type: pa.DataType, udf: UDF, metadata: Mapping[str, str]) -> pa.Field:
    _check_name(name)
    field = pa.field(name, data_type, nullable=True, metadata={**udf.field_metadata, **metadata})
    if is_blob(field):
        raise UsageError(
            f"column {name!r} would be a blob column, which functions cannot fill",
            hint="Remove lance-encoding:blob from its field_metadata: a large_binary column stores bytes of any "
            "length.",
        )
    return field


def _runs(
    steps: Sequence[tuple[str, str | pa.Field]],
) -> Iterator[tuple[type, list[tuple[str, str | pa.Field]]]]:
    """Yield the columns in order, grouped into runs that are added in the same way."""
    held: list[tuple[str, str | pa.Field]] = []
    for step in steps:
        if held and isinstance(held[0][1], str) != isinstance(step[1], str):
            yield (str if isinstance(held[0][1], str) else pa.Field), held
            held = []
        held.append(step)
    if held:
        yield (str if isinstance(held[0][1], str) else pa.Field), held


def target_of(schema: pa.Schema, column: str, definition: Definition, udf: UDF) -> FunctionColumns:
    """Return ``column`` and the others that the function fills. Raises ``UsageError`` if the function does not fit.

    A function without inputs of its own gets the column's inputs if it is the column's function, or if the table lacks
    a column named like one of its parameters.
    """
    check_argument("udf", udf, UDF)
    if (
        definition.inputs is not None
        and udf.has_own_names
        and (udf.digest == definition.digest or not set(udf.inputs or ()) <= set(schema.names))
    ):
        with suppress(UsageError):  # it takes another number of columns
            udf = udf.with_inputs(definition.inputs)
    columns = definition.columns_in(schema)
    fields = tuple(schema.field(name) for name in columns)
    types = [udf.data_type] if udf.outputs is None else [field.type for field in udf.outputs]
    if [field.type for field in fields] != types:
        raise UsageError(
            f"UDF {udf.name!r} returns {udf.data_type}, but {list(columns)} have the types {[f.type for f in fields]}"
        )
    inputs = replace(definition, inputs=udf.inputs).inputs_of(schema)
    if missing := [name for name in inputs if name not in schema.names]:
        raise UsageError(
            f"UDF {udf.name!r} expects input columns {missing} which are not found in table schema. "
            f"Available columns: {schema.names}",
            hint=f"Pass {udf.name}.with_inputs([…]) with the names of columns.",
        )
    return FunctionColumns(column, fields, tuple(dict.fromkeys(inputs)), udf)
