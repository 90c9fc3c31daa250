"""Columns that hold one value throughout."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...engine.errors import ReadError, ReadWarning

BATCH_ROWS = 1024
"""A change at a multiple of this row is told as one between batches, as Rerun does, which reads that many at once."""


def is_comparable(datatype: pa.DataType) -> bool:
    """Whether values of this type can be told apart."""
    if pa.types.is_dictionary(datatype):
        return is_comparable(datatype.value_type)
    return bool(datatype.num_fields == 0)


class StaticColumns:
    """Compares the rows of static columns with the first row of all; ``first`` holds that by name, one value each."""

    def __init__(self, first: Mapping[str, pa.Array], *, path: str) -> None:
        self._first = first
        self._path = path

    def check(self, name: str, values: pa.Array, first_row: int) -> None:
        """Raise ``ReadError`` where a value differs from the first; a null does, even from a null.

        ``first_row`` is the number of the first of ``values``.
        """
        same: npt.NDArray[np.bool_]
        if pa.types.is_null(values.type):
            same = np.zeros(len(values), bool)
        elif is_comparable(values.type):
            same = _same(_plain(values), _plain(self._first[name])[0])
        else:
            return
        if first_row == 0 and len(same):
            same[0] = True
        different = np.flatnonzero(~same)
        if not len(different):
            return
        row = first_row + int(different[0])
        hint = f"Leave {name!r} out of static_columns: row {row:,} differs from the first."
        if row % BATCH_ROWS or values[int(different[0])].as_py() is None:
            raise ReadError(
                f"Parquet error: Static column '{name}' contains non-uniform values", path=self._path, hint=hint
            )
        old, new = _text(self._first[name][0]), _text(values[int(different[0])])
        raise ReadError(
            f"Parquet error: Static column '{name}' changed between batches: '{old}' → '{new}'",
            path=self._path,
            hint=hint,
        )


def warn_of_incomparable(name: str, datatype: pa.DataType) -> None:
    """Say that of this column only the first row is looked at."""
    if not is_comparable(datatype):
        warnings.warn(
            f"Cannot verify uniformity for column type {datatype}, assuming uniform (column {name!r})",
            ReadWarning,
            stacklevel=2,
        )


def _same(values: pa.Array, first: pa.Scalar) -> npt.NDArray[np.bool_]:
    if not first.is_valid:
        return np.zeros(len(values), bool)
    same = pc.fill_null(pc.equal(values, first), False)
    if pa.types.is_floating(values.type) and first.as_py() != first.as_py():
        same = pc.fill_null(pc.is_nan(values), False)
    return np.array(same.to_numpy(zero_copy_only=False))


def _plain(values: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(pa.float32()) if pa.types.is_float16(values.type) else values


def _text(value: pa.Scalar) -> str:
    if pa.types.is_boolean(value.type):
        return str(value.as_py()).lower()
    try:
        return str(value.as_py())
    except (ValueError, OverflowError):
        return str(value)
