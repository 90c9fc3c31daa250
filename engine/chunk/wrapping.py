"""Component values as lists: one list a row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def wrap_each(values: pa.Array) -> pa.ListArray:
    """Each value in a list of its own; a null becomes the list ``[None]``. A list array stays as it is.

    >>> wrap_each(pa.array([1, None])).to_pylist()
    [[1], [None]]
    """
    if pa.types.is_list(values.type):
        return values
    return pa.ListArray.from_arrays(pa.array(np.arange(len(values) + 1, dtype=np.int32)), values)


def migrate_to_list(values: pa.Array) -> pa.ListArray:
    """Like :func:`wrap_each`, but a null becomes a null row.

    >>> migrate_to_list(pa.array([1, None])).to_pylist()
    [[1], None]
    """
    if pa.types.is_list(values.type):
        return values
    if not values.null_count:
        return wrap_each(values)
    offsets = np.arange(len(values) + 1, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=values.is_null())
