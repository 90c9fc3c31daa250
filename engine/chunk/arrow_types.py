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
