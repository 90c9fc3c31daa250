"""Features of frames as components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...engine.chunk import ComponentDescriptor
from ..parquet.expressions import one_each
from .metadata import Feature

SCALARS: Final = ComponentDescriptor("Scalars:scalars", "rerun.archetypes.Scalars", "rerun.components.Scalar")
NAMES: Final = ComponentDescriptor("SeriesLines:names", "rerun.archetypes.SeriesLines", "rerun.components.Name")
TEXT: Final = ComponentDescriptor("TextDocument:text", "rerun.archetypes.TextDocument", "rerun.components.Text")
_IMAGE: Final = ComponentDescriptor("EncodedImage:blob", "rerun.archetypes.EncodedImage", "rerun.components.Blob")


class FeatureColumn(NamedTuple):
    """A feature as a component column of one list a row, and the names of its numbers, where they have some."""

    descriptor: ComponentDescriptor
    values: pa.ListArray
    names: tuple[str, ...] = ()


def entity_of(feature: str) -> str:
    """The entity of a feature: dots part its path.

    >>> entity_of("observation.images.top")
    'observation/images/top'
    """
    return feature.replace(".", "/")


def feature_column(feature: Feature | None, name: str, values: pa.Array) -> FeatureColumn:
    """What the column of a feature becomes: numbers ``Scalars``, images ``EncodedImage``, texts ``TextDocument``.

    Anything else comes as it is, as a component of the feature's last name.
    """
    datatype = values.type
    if pa.types.is_struct(datatype) and {"bytes", "path"} <= {field.name for field in datatype}:
        return FeatureColumn(_IMAGE, _blobs(pc.struct_field(values, "bytes")))
    if pa.types.is_string(datatype) or pa.types.is_large_string(datatype):
        return FeatureColumn(TEXT, one_each(values.cast(pa.string()), nullable=True))
    if _is_number(datatype):
        return FeatureColumn(SCALARS, one_each(values.cast(pa.float64()), nullable=True), _names(feature, 1))
    if _is_vector(datatype):
        lists = values.cast(pa.list_(pa.float64()))
        return FeatureColumn(SCALARS, lists, _names(feature, _shared_length(lists)))
    return FeatureColumn(ComponentDescriptor(name.rpartition(".")[2] or name), one_each(values, nullable=True))


def _is_number(datatype: pa.DataType) -> bool:
    return bool(pa.types.is_integer(datatype) or pa.types.is_floating(datatype) or pa.types.is_boolean(datatype))


def _is_vector(datatype: pa.DataType) -> bool:
    lists = pa.types.is_list(datatype) or pa.types.is_fixed_size_list(datatype) or pa.types.is_large_list(datatype)
    return bool(lists) and _is_number(datatype.value_type)


def _shared_length(lists: pa.ListArray) -> int:
    lengths = pc.unique(pc.drop_null(pc.list_value_length(lists))).to_pylist()
    return lengths[0] if len(lengths) == 1 else -1


def _names(feature: Feature | None, length: int) -> tuple[str, ...]:
    names: Sequence[str] = feature.names if feature is not None else ()
    return tuple(names) if len(names) == length else ()


def _blobs(values: pa.Array) -> pa.ListArray:
    """Each value as one instance of bytes; null where there is none."""
    valid = values.cast(pa.large_binary())
    offsets, data = valid.buffers()[1:]
    ends = np.frombuffer(offsets, np.int64)[valid.offset : valid.offset + len(valid) + 1]
    first = int(ends[0]) if len(valid) else 0
    last = int(ends[-1]) if len(valid) else 0
    size = last - first
    numbers = np.frombuffer(data, np.uint8, size, first) if data is not None and size else np.empty(0, np.uint8)
    blob = pa.list_(pa.field("item", pa.uint8(), nullable=False))
    inner_offsets = pa.py_buffer((ends - first).astype(np.int32) if len(valid) else np.zeros(1, np.int32))
    inner = pa.Array.from_buffers(blob, len(valid), [None, inner_offsets], children=[pa.array(numbers)])
    has = np.asarray(valid.is_valid().to_numpy(zero_copy_only=False))
    outer = np.concatenate([np.zeros(1, np.int64), np.cumsum(has)]).astype(np.int32)
    kept = inner.filter(pa.array(has)) if not has.all() else inner
    return pa.ListArray.from_arrays(pa.array(outer), kept, mask=pa.array(~has) if not has.all() else None)
