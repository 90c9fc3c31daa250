"""Structs taken apart: one component for each field."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ..engine.chunk import Component
from ..engine.errors import SelectorError
from .lens_outputs import SpreadOutput
from .scatter import is_one_each
from .selector import lists
from .selector.type_names import type_name


def spread_components(spread: SpreadOutput, column: pa.ListArray) -> list[Component]:
    """The fields of the structs in ``column`` (one a row) as components, those that hold anything.

    Raises :class:`~chunkmill.engine.errors.SelectorError` where a row is not exactly one struct.
    """
    if not pa.types.is_struct(column.type.value_type) or not is_one_each(column):
        raise SelectorError(f"components '{spread.prefix}*' need one struct a row, got {type_name(column.type)}")
    structs = column.flatten()
    fields = zip(structs.type, structs.flatten(), strict=True)
    return [Component(spread.descriptor(f.name), _rows(v)) for f, v in fields if v.null_count < len(v)]


def _rows(values: pa.Array) -> pa.ListArray:
    """A row's instances: the elements of a list, or the one value that is none."""
    if pa.types.is_list(values.type):
        elements, offsets = lists.grouped(values, hidden=False)
        return lists.list_array(elements, offsets, lists.validity_of(values))
    return lists.list_array(values, np.arange(len(values) + 1, dtype=np.int32), lists.validity_of(values))
