"""Arrow types whole: as they are pickled, and as they are compared.

pyarrow leaves something out of two types when it pickles them, and so out of all arrays and chunks of them: of a
fixed-size list the name, the "not null" and the metadata of its items, of a map that its keys are sorted. And types are
equal to it (``==``, ``hash``) that differ in the metadata of the fields in them.
"""

from __future__ import annotations

import copyreg
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types as kinds

_PLAIN = (
    kinds.is_null,
    kinds.is_primitive,
    kinds.is_decimal,
    kinds.is_string,
    kinds.is_large_string,
    kinds.is_binary,
    kinds.is_large_binary,
    kinds.is_fixed_size_binary,
)
_NESTED = (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list, kinds.is_struct, kinds.is_map)


def pickle_whole() -> None:
    """Tell every pickler of this process how to pickle those types; unpickling them needs nothing."""
    copyreg.pickle(pa.FixedSizeListType, _fixed_size_list)
    copyreg.pickle(pa.MapType, _map)


def alike(types: Sequence[pa.DataType], others: Sequence[pa.DataType]) -> bool:
    """Whether as many types that ``==`` takes for the same are so in the metadata of the fields in them, too."""
    return all(one.equals(other, check_metadata=True) for one, other in zip(types, others, strict=True))


def _fixed_size_list(datatype: pa.FixedSizeListType) -> tuple[Any, ...]:
    return pa.list_, (datatype.value_field, datatype.list_size)


def _map(datatype: pa.MapType) -> tuple[Any, ...]:
    return pa.map_, (datatype.key_field, datatype.item_field, datatype.keys_sorted)


def is_plain(datatype: pa.DataType) -> bool:
    """Whether slices of joined arrays of the type are as the arrays were, and take as much: not so dictionaries, views,
    unions, runs and extensions.
    """
    if any(is_kind(datatype) for is_kind in _PLAIN):
        return True
    return any(is_kind(datatype) for is_kind in _NESTED) and all(
        is_plain(datatype.field(i).type) for i in range(datatype.num_fields)
    )
