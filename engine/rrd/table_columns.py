"""Arrow columns as numpy arrays and back: lists laid flat, strings and types as numbers; no cell is an object."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

_DENSE: Final = 1 << 22


def integers(column: pa.Array) -> Integers:
    """The 64-bit values of a column as they lie in memory: where it is null, any."""
    buffer, width = column.buffers()[1], column.type.bit_width // 8
    if buffer is None or not len(column):
        return np.zeros(len(column), dtype=np.int64)
    sign = "u" if width < 8 and pa.types.is_unsigned_integer(column.type) else "i"
    values = np.frombuffer(buffer, f"{sign}{width}", len(column), column.offset * width)
    return values.astype(np.int64, copy=False)


def valid(column: pa.Array) -> Mask:
    """The mask of the values of ``column`` that are not null."""
    if not column.null_count:
        return np.ones(len(column), dtype=bool)
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=bool)


def distinct(keys: Integers, bound: int) -> tuple[Integers, Integers]:
    """The numbers among ``keys`` (below ``bound``), ascending, and for each key its place among them."""
    if bound > _DENSE:
        found, place = np.unique(keys, return_inverse=True)
        return found, place.reshape(-1)
    is_there = np.zeros(bound, dtype=bool)
    is_there[keys] = True
    found = np.flatnonzero(is_there)
    places = np.empty(bound, dtype=np.int64)
    places[found] = np.arange(len(found))
    return found, places[keys]


def sequence_codes(
    ends: Integers, values: Integers, bound: int, codes: Integers | None = None, count: int = 1
) -> tuple[Integers, int]:
    """For each list a number, the same for lists of the same values (below ``bound``) and ``codes``; and how many."""
    sizes = np.diff(ends)
    found = np.zeros(len(sizes), dtype=np.int64) if codes is None else codes
    for position in range(int(sizes.max(initial=0))):
        goes_on = sizes > position
        value = np.zeros(len(sizes), dtype=np.int64)
        value[goes_on] = values[ends[:-1][goes_on] + position] + 1
        known, found = distinct(found * (bound + 1) + value, count * (bound + 1))
        count = len(known)
    return found, count


def encoded(column: pa.Array) -> tuple[Integers, list[str]]:
    """For each row a number, and for each number the text."""
    found = column.dictionary_encode()
    return integers(found.indices), found.dictionary.to_pylist()


def coded(*columns: pa.Array) -> tuple[Integers, list[tuple[Any, ...]]]:
    """For each row of several columns a number, and for each number the values; of rows with a null, too."""
    codes, bound = np.zeros(len(columns[0]), dtype=np.int64), 1
    tables = []
    for column in columns:
        found = column.dictionary_encode("encode")
        table = found.dictionary.to_pylist()
        codes = codes * len(table) + integers(found.indices)
        bound *= max(len(table), 1)
        tables.append(table)
    numbers, place = distinct(codes, bound)
    keys = []
    for key in numbers.tolist():
        values = []
        for table in reversed(tables):
            key, at = divmod(key, len(table))
            values.append(table[at])
        keys.append(tuple(reversed(values)))
    return place, keys


def flat(column: pa.ListArray) -> tuple[Integers, pa.Array]:
    """The bounds of each list among the values of all, and these values."""
    ends = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    first, last = (int(ends[0]), int(ends[-1])) if len(ends) else (0, 0)
    return (ends - first if len(ends) else np.zeros(1, np.int64)), column.values.slice(first, last - first)


def lists_of(sizes: Sequence[int] | Integers, datatype: pa.StructType, columns: Sequence[Any]) -> pa.ListArray:
    """Lists of so many structs each, of the values of ``columns`` one behind the other."""
    fields = list(datatype)
    arrays = [c if isinstance(c, pa.Array) else pa.array(c, f.type) for c, f in zip(columns, fields, strict=True)]
    ends = np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.StructArray.from_arrays(arrays, fields=fields))


def type_column(codes: npt.NDArray[Any], sets: Sequence[tuple[pa.DataType, ...]]) -> pa.DictionaryArray:
    """The column ``types``, of the numbers of type sets."""
    values = pa.array([types_to_bytes(types) for types in sets], pa.binary())
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), values)


def types_to_bytes(types: tuple[pa.DataType, ...], metadata: dict[bytes, bytes] | None = None) -> bytes:
    """Return Arrow types as an Arrow IPC schema."""
    serialised: bytes = pa.schema([pa.field(str(i), t) for i, t in enumerate(types)], metadata).serialize().to_pybytes()
    return serialised


@lru_cache(maxsize=1024)
def types_from_bytes(data: bytes) -> tuple[pa.DataType, ...]:
    """Return the types that :func:`types_to_bytes` wrote."""
    return tuple(f.type for f in pa.ipc.read_schema(pa.py_buffer(data)))
