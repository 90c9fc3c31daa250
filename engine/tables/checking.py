"""Checks of a function against the table whose columns it is to be called with."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from ..errors import UsageError
from .functions import UDF
from .signatures import FunctionKind, Parameter

types = pa.types

_EXPECTED: Final[Mapping[str, tuple[Callable[[pa.DataType], bool], ...]]] = {
    "int": (types.is_integer,),
    "float": (types.is_floating, types.is_integer, types.is_decimal),
    "str": (types.is_string, types.is_large_string, types.is_string_view),
    "bool": (types.is_boolean,),
    "bytes": (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view),
    "list": (types.is_list, types.is_large_list, types.is_fixed_size_list),
    "dict": (types.is_struct, types.is_map),
    "datetime": (types.is_timestamp,),
    "date": (types.is_date,),
    "time": (types.is_time,),
    "timedelta": (types.is_duration,),
    "Decimal": (types.is_decimal,),
}
"""For an annotation the types whose values are such."""


def check_against(schema: pa.Schema, udf: UDF) -> None:
    """Check that a table with ``schema`` has the columns that ``udf`` is called with, of types that go with it.

    Raises ``UsageError`` for columns that are not there, or whose values are not what the parameter's annotation says,
    and for a function of a batch of all columns that names some. Warns, with a ``UserWarning``, where nothing is
    annotated.
    """
    if udf.kind is FunctionKind.RECORD_BATCH:
        if udf.inputs is not None:
            raise UsageError(f"UDF {udf.name!r} takes a pyarrow.RecordBatch of all columns, and has input_columns")
        return
    inputs = udf.inputs or ()
    missing = [name for name in inputs if name not in schema.names]
    if missing:
        raise UsageError(
            f"UDF {udf.name!r} expects input columns {missing} which are not found in table schema. "
            f"Available columns: {schema.names}"
        )
    if udf.kind is FunctionKind.ARRAY:
        return
    unknown = []
    parameters = (*udf.signature.parameters, *[_MORE] * len(inputs))
    for parameter, name in zip(parameters, inputs, strict=False):
        if not _is_checked(udf, parameter, schema.field(name)):
            unknown.append(parameter.name)
    if unknown:
        warnings.warn(
            f"UDF {udf.name!r}: the types of the columns {list(inputs)} are not checked, as {', '.join(unknown)} "
            f"{'has' if len(unknown) == 1 else 'have'} no type annotation that says which they are",
            UserWarning,
            stacklevel=3,
        )


_MORE: Final = Parameter("*", None, required=False)


def _is_checked(udf: UDF, parameter: Parameter, column: pa.Field) -> bool:
    """Whether the type of a column could be held against what its parameter says."""
    expected: Any = _EXPECTED.get(parameter.annotation or "")
    if parameter.annotation in ("Any", "object"):
        return True
    if expected is None:
        return False
    plain = column.type.value_type if types.is_dictionary(column.type) else column.type
    plain = plain.storage_type if isinstance(plain, pa.BaseExtensionType) else plain
    if types.is_null(plain) or any(family(plain) for family in expected):
        return True
    raise UsageError(
        f"UDF {udf.name!r}: its parameter {parameter.name!r} is annotated as {parameter.annotation}, and the column "
        f"{column.name!r} is of type {column.type}",
        hint="Change the annotation, or name another column in input_columns.",
    )
