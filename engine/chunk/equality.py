"""Values of Arrow beside each other: in which rows two columns differ, and whether their types say the same."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def differing(a: pa.Array, b: pa.Array, tolerance: float = 0.0) -> npt.NDArray[np.bool_]:
    """Tell of each row of two columns of one length, and of types that are alike, whether they differ; NaN equals NaN.

    >>> differing(pa.array([[1.0], [2.0], None]), pa.array([[1.0], [2.1], []])).tolist()
    [False, True, True]
    """
    if isinstance(a.type, pa.BaseExtensionType):
        a, b = a.storage, getattr(b, "storage", b)
    if a.equals(b):
        return np.zeros(len(a), dtype=bool)
    here, there = (side.is_valid().to_numpy(zero_copy_only=False) for side in (a, b))
    found: npt.NDArray[np.bool_] = here != there
    datatype = a.type
    if pa.types.is_list(datatype) or pa.types.is_large_list(datatype) or pa.types.is_fixed_size_list(datatype):
        lengths, others = (side.value_lengths().fill_null(0).to_numpy(zero_copy_only=False) for side in (a, b))
        found |= here & there & (lengths != others)
        same = here & there & ~found
        rows = np.repeat(np.flatnonzero(same), lengths[same])
        found[rows[differing(a.filter(pa.array(same)).flatten(), b.filter(pa.array(same)).flatten(), tolerance)]] = True
    elif pa.types.is_struct(datatype):
        for one, other in zip(a.flatten(), b.flatten(), strict=True):
            found |= here & there & differing(one, other, tolerance)
    elif pa.types.is_floating(datatype):
        x, y = (side.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64) for side in (a, b))
        with np.errstate(invalid="ignore"):
            found |= ~((x == y) | (np.isnan(x) & np.isnan(y)) | (np.abs(x - y) <= tolerance))
    else:
        found |= np.array([x != y for x, y in zip(a.to_pylist(), b.to_pylist(), strict=True)], dtype=bool)
    return found


def plain_type(datatype: pa.DataType) -> str:
    """The name of a type without names of list items, and without what may be null.

    >>> plain_type(pa.list_(pa.field("element", pa.float64(), nullable=False))) == plain_type(pa.list_(pa.float64()))
    True
    """
    if isinstance(datatype, pa.BaseExtensionType):
        return plain_type(datatype.storage_type)
    inner = [datatype.field(i) for i in range(datatype.num_fields)]
    if pa.types.is_struct(datatype):
        return f"struct<{', '.join(f'{f.name}: {plain_type(f.type)}' for f in inner)}>"
    if pa.types.is_fixed_size_list(datatype):
        return f"list<{plain_type(inner[0].type)}>[{datatype.list_size}]"
    if pa.types.is_list(datatype) or pa.types.is_large_list(datatype):
        return f"list<{plain_type(inner[0].type)}>"
    return str(datatype)
