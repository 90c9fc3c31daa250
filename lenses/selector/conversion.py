"""Values turned into other values: elements, casts, factors, stamps, vectors. All on whole arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...engine.errors import SelectorError
from .. import arrays
from ..arrays import type_name
from .syntax import Pack, pipeline_text

_SECONDS = ("sec", "secs", "seconds")
_FRACTIONS = ("nanosec", "nanosecs", "nsec", "nsecs", "nanos", "nanoseconds")


@cache
def _billion() -> pa.Scalar:
    return pa.scalar(1_000_000_000, pa.int64())


def element(values: pa.Array, position: int) -> pa.Array:
    """Return the element of each list at ``position``, from the end if negative; null beyond the list."""
    kind = values.type
    if pa.types.is_fixed_size_list(kind):
        return _slot(values, position)
    if not pa.types.is_list(kind):
        raise unexpected(f"cannot access `[{position}]` on", kind)
    offsets = arrays.offsets_of(values)
    starts, ends = offsets[:-1], offsets[1:]
    if not -(2**31) <= position < 2**31:
        return pa.nulls(len(values), kind.value_type)
    small = abs(position) + int(offsets[-1]) < 2**31
    step = np.int32(position) if small else np.int64(position)
    places = (starts if position >= 0 else ends) + step
    inside = places < ends if position >= 0 else places >= starts
    return arrays.taken(values.values, places, arrays.both(inside, arrays.validity_of(values)))


def _slot(values: pa.FixedSizeListArray, position: int) -> pa.Array:
    size = values.type.list_size
    if not -size <= position < size:
        return pa.nulls(len(values), values.type.value_type)
    places = (np.arange(len(values), dtype=np.int64) + values.offset) * size + position % size
    return arrays.taken(values.values, places, arrays.validity_of(values))


def call(name: str, arguments: tuple[str, ...], values: pa.Array) -> pa.Array:
    """Return the outputs of a built-in function. There is a single one: ``string_prefix``."""
    if name != "string_prefix":
        raise SelectorError(f"Unknown function: `{name}`")
    if len(arguments) != 1:
        raise SelectorError(f"Wrong arguments for function: `{name}`")
    if not pa.types.is_string(values.type):
        raise SelectorError(f"Type mismatch in {name} input: expected StringArray, got {type_name(values.type)}")
    return pc.binary_join_element_wise(arguments[0], values, "")


def unexpected(what: str, kind: pa.DataType) -> SelectorError:
    """The error for values of a type that a stage does not take."""
    return SelectorError(f"Invalid argument error: {what} unexpected type {type_name(kind)}")


def cast(values: pa.Array, datatype: pa.DataType) -> pa.Array:
    """Return ``values`` as ``datatype``. It may also exclude nulls inside lists and structs.

    Raises ``pa.ArrowInvalid`` for values that do not fit.
    """
    kind = values.type
    if kind == datatype:
        return values
    if pa.types.is_fixed_size_list(kind) and pa.types.is_fixed_size_list(datatype):
        if kind.list_size != datatype.list_size:
            raise SelectorError(f"Cast error: lists of {kind.list_size} are no lists of {datatype.list_size}")
        flat = cast(
            values.values.slice(values.offset * kind.list_size, len(values) * kind.list_size), datatype.value_type
        )
        if not datatype.value_field.nullable and flat.null_count:
            flat = _present_where(values, flat, kind.list_size)
        return pa.Array.from_buffers(datatype, len(values), [arrays.bitmap_of(values)], children=[flat])
    return pc.cast(values, datatype)


def _present_where(values: pa.FixedSizeListArray, flat: pa.Array, size: int) -> pa.Array:
    """``flat`` without nulls: those below null lists never show, any other raises."""
    missing = ~flat.is_valid().to_numpy(zero_copy_only=False)
    shown = values.is_valid().to_numpy(zero_copy_only=False).repeat(size)
    if (missing & shown).any():
        raise SelectorError("Cast error: a null number inside a vector that must have them all")
    return flat.fill_null(pa.scalar(0).cast(flat.type))


def scaled(values: pa.Array, factor: float) -> pa.Array:
    """Numbers times ``factor``: floats keep their width, integers become float64; lists keep their shape."""
    kind = values.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        product = pc.multiply(pc.cast(values, pa.float64(), safe=False), pa.scalar(factor, pa.float64()))
        return pc.cast(product, kind, safe=False) if pa.types.is_floating(kind) else product
    if pa.types.is_fixed_size_list(kind):
        flat = arrays.flattened(values)
        bitmap, nullable = arrays.bitmap_of(values), kind.value_field.nullable
        return arrays.fixed_lists(scaled(flat, factor), kind.list_size, bitmap, nullable=nullable)
    if pa.types.is_list(kind):
        flat, offsets = arrays.grouped(values, hidden=True)
        return arrays.list_array(scaled(flat, factor), offsets, arrays.bitmap_of(values))
    raise SelectorError(f"Invalid argument error: cannot scale values of type {type_name(kind)}")


def nanoseconds(values: pa.Array) -> pa.Array:
    """Stamps as int64 nanoseconds.

    A stamp is an Arrow timestamp or duration, or a struct of seconds (``sec``, ``secs``, ``seconds``) and nanoseconds
    (``nanosec``, ``nsec``, ``nanos``, …) as ROS and protobuf write it. A null in it makes it null.
    """
    kind = values.type
    if pa.types.is_timestamp(kind):
        return pc.cast(pc.cast(values, pa.timestamp("ns", kind.tz)), pa.int64())
    if pa.types.is_duration(kind):
        return pc.cast(pc.cast(values, pa.duration("ns")), pa.int64())
    if pa.types.is_struct(kind):
        places = _stamp_places(kind)
        if places is not None:
            seconds, fraction = (_member(values, place) for place in places)
            # 60 % less time on stamps as ROS has them (a million: 1.5 ms, not 4.0), as none of them overflows; guarded
            # by benchmarks/bench_types.py.
            if _is_small(seconds) and _is_small(fraction):
                ticks = np.multiply(seconds.to_numpy(), 1_000_000_000, dtype=np.int64)
                return pa.array(np.add(ticks, fraction.to_numpy(), out=ticks))
            seconds, fraction = cast(seconds, pa.int64()), cast(fraction, pa.int64())
            return pc.add_checked(pc.multiply_checked(seconds, _billion()), fraction)
    raise SelectorError(f"Invalid argument error: no stamp of seconds and nanoseconds in type {type_name(kind)}")


@lru_cache(maxsize=64)
def _stamp_places(kind: pa.StructType) -> tuple[int, int] | None:
    """Find seconds and nanoseconds among the fields of a struct."""
    names = [f.name for f in kind]
    whole = next((n for n in _SECONDS if n in names), None)
    rest = next((n for n in _FRACTIONS if n in names), None)
    return None if whole is None or rest is None else (names.index(whole), names.index(rest))


def _member(values: pa.StructArray, place: int) -> pa.Array:
    return pc.struct_field(values, [place]) if values.null_count else values.field(place)


def _is_small(values: pa.Array) -> bool:
    """Return whether nothing is null, and a billion times each value is an int64."""
    return values.null_count == 0 and values.type in (pa.int32(), pa.uint32())


def pack(node: Pack, parts: list[pa.Array]) -> pa.FixedSizeListArray:
    """Vectors of the numbers in ``parts``, one of each."""
    size = len(parts)
    if node.datatype is None:
        return _packed_as_they_are(node, parts)
    numbers, missing = beside([_numbers(p) for p in parts], node.datatype.to_pandas_dtype(), node.factor)
    if missing is None:
        return arrays.fixed_lists(pa.array(numbers.reshape(-1)), size, nullable=not node.whole)
    if not node.whole:
        return arrays.fixed_lists(pa.array(numbers.reshape(-1), mask=missing.reshape(-1)), size, nullable=True)
    valid = np.packbits(~missing.any(axis=1), bitorder="little")
    return arrays.fixed_lists(pa.array(numbers.reshape(-1)), size, pa.py_buffer(valid))


def beside(
    columns: Sequence[pa.Array], kind: type[np.floating[Any]], factor: float = 1.0
) -> tuple[npt.NDArray[np.floating[Any]], npt.NDArray[np.bool_] | None]:
    """Return columns of numbers side by side, times ``factor``, a row each; and a mask of nulls, or None without."""
    numbers = np.empty((len(columns[0]), len(columns)), kind)
    missing = np.zeros(numbers.shape, bool)
    for i, column in enumerate(columns):
        if column.null_count:
            missing[:, i] = ~column.is_valid().to_numpy(zero_copy_only=False)
            column = pc.fill_null(column, 0)
        values = column.to_numpy(zero_copy_only=False)
        with np.errstate(over="ignore"):  # what float32 cannot hold is infinite
            numbers[:, i] = values if factor == 1.0 else values * factor
    return numbers, missing if missing.any() else None


def _packed_as_they_are(node: Pack, parts: list[pa.Array]) -> pa.FixedSizeListArray:
    """One value of each part, of whatever type; a null one makes the list null."""
    kind = parts[0].type
    for path, part in zip(node.parts, parts, strict=True):
        if part.type != kind:
            raise SelectorError(
                f"`pack` path `{pipeline_text(path)}` has type {type_name(part.type)}, but expected {type_name(kind)} "
                "(inferred from the first path); all paths must share the same datatype"
            )
    size, count = len(parts), len(parts[0])
    turns = np.arange(size * count).reshape(size, count).T.reshape(-1)
    flat = pa.concat_arrays(parts).take(pa.array(turns))
    valid = np.ones(count, bool)
    for part in parts:
        if part.null_count:
            valid &= part.is_valid().to_numpy(zero_copy_only=False)
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return arrays.fixed_lists(flat, size, bitmap, nullable=True)


def vectors(node: Pack, values: pa.Array) -> pa.FixedSizeListArray:
    """Vectors of lists that already hold the numbers in order. Raises where a list has another length."""
    size, kind = len(node.parts), values.type
    if pa.types.is_fixed_size_list(kind):
        fits = kind.list_size == size
    elif pa.types.is_list(kind):
        offsets = arrays.offsets_of(values)
        wrong = offsets[1:] - offsets[:-1] != size
        valid = arrays.validity_of(values)
        fits = not (wrong if valid is None else wrong & valid).any()
    else:
        raise SelectorError(f"Invalid argument error: no {size} numbers in type {type_name(kind)}")
    if not fits:
        raise SelectorError(f"Invalid argument error: expected {size} numbers in {type_name(kind)}")
    parts = [pc.list_element(_present(values, size), i) for i in range(size)]
    return pack(node, parts)


def _numbers(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        return pc.cast(values, pa.float64())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return values
    raise SelectorError(f"Invalid argument error: expected a number, got type {type_name(kind)}")


def _present(values: pa.Array, size: int) -> pa.Array:
    """The lists with ``size`` nulls in place of null lists, so that each has every element."""
    if pa.types.is_fixed_size_list(values.type) or values.null_count == 0:
        return values
    return pc.cast(values, pa.list_(values.type.value_type, size))
