"""Values as Spark's columns: types that Spark lacks, and their substitutes.

==============================================  ==================================================================
Arrow                                           Spark
==============================================  ==================================================================
bool, integers with a sign, floats, text        the same
unsigned integers of 8, 16, 32 and 64 bits      smallint, int, bigint and decimal(20, 0)
floats of 16 bits                               float
lists of any kind, fixed sizes too              array
structs, maps                                   struct, map
binary of any kind                              binary
dictionaries, run-end encoded values            what they stand for
timestamps                                      timestamp: an instant, in microseconds (rounded down)
durations                                       interval day to second, in microseconds (rounded down)
times of day                                    bigint, in nanoseconds
dates                                           date
unions, structs without fields, wide decimals   string, as JSON
what is null throughout                         string, null
==============================================  ==================================================================

With ``nanoseconds``, timestamps (since 1970, UTC) and durations are bigint, with nothing lost.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_PLAIN: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}
_SAME: Final = (pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32())
_INSTANT: Final = pa.timestamp("us", tz="UTC")
_INTERVAL: Final = pa.duration("us")


def spark_form(kind: pa.DataType, *, nanoseconds: bool = False) -> pa.DataType:
    """The Arrow type for values of a type in Spark; everything is nullable.

    >>> str(spark_form(pa.struct([("id", pa.uint16()), ("pose", pa.list_(pa.float64(), 3))])))
    'struct<id: int32, pose: list<element: double>>'
    """
    if kind in _SAME:
        return kind
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kinds.is_timestamp(kind) or kinds.is_duration(kind):
        return pa.int64() if nanoseconds else _INSTANT if kinds.is_timestamp(kind) else _INTERVAL
    if kinds.is_time(kind):
        return pa.int64()
    if kinds.is_decimal(kind) and kind.precision <= 38 and kind.scale >= 0:
        return pa.decimal128(kind.precision, kind.scale)
    if kinds.is_map(kind):
        return pa.map_(*(spark_form(k, nanoseconds=nanoseconds) for k in (kind.key_type, kind.item_type)))
    if _is_list(kind) or kinds.is_dictionary(kind) or kinds.is_run_end_encoded(kind):
        inner = spark_form(kind.value_type, nanoseconds=nanoseconds)
        return pa.list_(pa.field("element", inner)) if _is_list(kind) else inner
    if kinds.is_struct(kind) and kind.num_fields:
        return pa.struct([(f.name, spark_form(f.type, nanoseconds=nanoseconds)) for f in kind])
    return pa.binary() if _is_binary(kind) else pa.string()


def spark_schema(schema: pa.Schema, *, nanoseconds: bool = False) -> StructType:
    """The Spark schema for columns of these types."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    forms = [(field.name, spark_form(field.type, nanoseconds=nanoseconds)) for field in schema]
    return StructType([StructField(name, from_arrow_type(form, False)) for name, form in forms])


def arrow_of(schema: StructType) -> pa.Schema:
    """The Arrow schema for rows of a Spark schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # before 4.2, which does so by default
        return to_arrow_schema(schema)


def spark_array(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert values to the type of :func:`spark_form`.

    >>> spark_array(pa.array([[1, 2], None], pa.list_(pa.uint8())), spark_form(pa.list_(pa.uint8()))).to_pylist()
    [[1, 2], None]
    """
    given = values.type
    if given.equals(kind):
        return values
    if kinds.is_null(given):
        return pa.nulls(len(values), kind)
    if kinds.is_dictionary(given):
        return spark_array(values.dictionary_decode(), kind)
    if kinds.is_struct(kind):
        children = [spark_array(values.field(i), kind.field(i).type) for i in range(kind.num_fields)]
        mask = values.is_null() if values.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if kinds.is_list(kind):
        return _list(values, kind)
    if kind == pa.int64() and kinds.is_temporal(given):
        return values.cast(_in_nanoseconds(given)).cast(kind)
    if kind == _INSTANT and given.tz is None:
        return _rounded(values.cast(pa.timestamp(given.unit, tz="UTC")), kind)
    if kind in (_INSTANT, _INTERVAL):
        return _rounded(values, kind)
    if kind == pa.string() and not (kinds.is_large_string(given) or kinds.is_string_view(given)):
        return pa.array([None if v is None else json.dumps(v, default=_text) for v in values.to_pylist()], kind)
    return values.cast(kind)


def _list(values: pa.Array, kind: pa.ListType) -> pa.Array:
    if not kinds.is_list(values.type):
        values = values.cast(pa.list_(values.type.value_type))
    child = spark_array(values.values, kind.value_type)
    buffers = values.buffers()[:2]
    return pa.Array.from_buffers(kind, len(values), buffers, values.null_count, values.offset, [child])


def _rounded(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Times in microseconds, rounded down."""
    if values.type.unit != "ns":
        return values.cast(kind, safe=False)
    ticks = values.cast(pa.int64())
    whole = np.floor_divide(ticks.fill_null(0).to_numpy(), 1000)
    mask = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    return pa.array(whole, pa.int64(), mask=mask).cast(kind)


def _in_nanoseconds(kind: pa.DataType) -> pa.DataType:
    if kinds.is_timestamp(kind):
        return pa.timestamp("ns", tz=kind.tz)
    return pa.duration("ns") if kinds.is_duration(kind) else pa.time64("ns")


def _is_list(kind: pa.DataType) -> bool:
    views = kinds.is_list_view(kind) or kinds.is_large_list_view(kind)
    return bool(views or kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


def _is_binary(kind: pa.DataType) -> bool:
    large = kinds.is_large_binary(kind) or kinds.is_binary_view(kind)
    return bool(large or kinds.is_binary(kind) or kinds.is_fixed_size_binary(kind))


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
