"""Record batches of older "sorbet" versions, brought up to 0.1.3 before they are read as chunks.

The steps and what they rename follow the format's own history; a batch of this version or a newer one is returned
as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

Metadata = dict[str, str]
_Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    nullable: bool
    metadata: Metadata
    values: pa.Array


@dataclass(frozen=True, slots=True)
class _Batch:
    metadata: Metadata
    columns: tuple[_Column, ...]

    def map_metadata(self, change: Callable[[Metadata], Metadata]) -> _Batch:
        return replace(self, columns=tuple(replace(c, metadata=change(c.metadata)) for c in self.columns))


def migrate(batch: pa.RecordBatch) -> pa.RecordBatch:
    """``batch`` as version 0.1.3 would have written it; unparsable and newer versions are left alone."""
    metadata = text_metadata(batch.schema.metadata)
    version = _version_of(metadata)
    steps = [step for since, step in _STEPS if version is not None and version < since]
    if not steps:
        return batch
    table = _Batch(
        metadata,
        tuple(
            _Column(f.name, f.nullable, text_metadata(f.metadata), v)
            for f, v in zip(batch.schema, batch.columns, strict=True)
        ),
    )
    for step in steps:
        table = step(table)
    fields = [pa.field(c.name, c.values.type, c.nullable, c.metadata or None) for c in table.columns]
    return pa.RecordBatch.from_arrays(
        [c.values for c in table.columns], schema=pa.schema(fields, metadata=table.metadata)
    )


def text_metadata(metadata: dict[bytes, bytes] | None) -> Metadata:
    """Arrow metadata as text."""
    return {k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in (metadata or {}).items()}


def _version_of(metadata: Metadata) -> _Version | None:
    """The version a batch was written in; None where no step applies."""
    if "sorbet:version" in metadata:
        numbers = metadata["sorbet:version"].split(".")
        if len(numbers) != 3 or not all(n.isdecimal() for n in numbers):
            return None
        version = (int(numbers[0]), int(numbers[1]), int(numbers[2]))
        return version if version >= (0, 0, 1) else None
    if any(k.startswith("rerun.") for k in metadata):
        return 0, 0, 1
    return (0, 0, 2) if "rerun:version" in metadata else (0, 0, 1)


# --- 0.0.1 -> 0.0.2

_KIND_ORDER = {"control": 0, "row_id": 0, "index": 1, "time": 1}
_PLURAL_ARCHETYPES = {"Scalar": "Scalars", "SeriesLine": "SeriesLines", "SeriesPoint": "SeriesPoints"}
_PLURAL_FIELDS = {
    "Scalars": {"scalar": "scalars"},
    "SeriesLines": {"color": "colors", "width": "widths", "name": "names"},
    "SeriesPoints": {"color": "colors", "marker": "markers", "name": "names", "marker_size": "marker_sizes"},
}


def _to_0_0_2(batch: _Batch) -> _Batch:
    columns = sorted(batch.columns, key=lambda c: _KIND_ORDER.get(_kind(c.metadata), 2))
    columns = [
        replace(c, values=_tuid_bytes(c.values)) if _kind(c.metadata) in ("control", "row_id") else c for c in columns
    ]
    return replace(batch, columns=tuple(columns)).map_metadata(_pluralise)


def _kind(metadata: Metadata) -> str:
    return metadata.get("rerun.kind") or metadata.get("rerun:kind") or "data"


def _tuid_bytes(values: pa.Array) -> pa.Array:
    """Row ids given as struct{time_ns, inc} of unsigned integers, as 16 big-endian bytes."""
    if not pa.types.is_struct(values.type) or values.type.num_fields != 2:
        return values
    pairs = np.empty((len(values), 2), dtype=">u8")
    for i, name in enumerate(("time_ns", "inc")):
        if values.type.get_field_index(name) < 0:
            return values
        pairs[:, i] = values.field(name).cast(pa.uint64()).to_numpy(zero_copy_only=False)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(values), [None, pa.py_buffer(pairs)])


def _pluralise(metadata: Metadata) -> Metadata:
    out = dict(metadata)
    for separator in (".", ":"):
        key, field_key = f"rerun{separator}archetype", f"rerun{separator}archetype_field"
        prefix, _, short = out.get(key, "").rpartition(".")
        if short in _PLURAL_ARCHETYPES:
            short = _PLURAL_ARCHETYPES[short]
            out[key] = f"{prefix}.{short}" if prefix else short
        field = out.get(field_key)
        if field is not None:
            out[field_key] = _PLURAL_FIELDS.get(short, {}).get(field, field)
    return out


# --- 0.0.2 -> 0.1.0


def _to_0_1_0(batch: _Batch) -> _Batch:
    metadata = _colon_keys(batch.metadata)
    metadata.pop("rerun:version", None)
    path = metadata.get("rerun:entity_path")
    if path is not None and path.strip("/") == "__properties/recording":
        metadata["rerun:entity_path"] = "/__properties"
    columns = tuple(_name_component(replace(c, metadata=_colon_keys(c.metadata))) for c in batch.columns)
    return _Batch(metadata, columns)


def _colon_keys(metadata: Metadata) -> Metadata:
    return {("rerun:" + k[6:] if k.startswith("rerun.") else k): v for k, v in metadata.items()}


def _name_component(column: _Column) -> _Column:
    """Old columns name a component type, an archetype and a field of it; new ones a component of their own."""
    metadata = dict(column.metadata)
    if _kind(metadata) not in ("data", "component"):
        return column
    archetype, field = metadata.get("rerun:archetype"), metadata.pop("rerun:archetype_field", None)
    old = metadata.pop("rerun:component", None)
    if archetype is not None:
        archetype = archetype.replace("RecordingProperties", "RecordingInfo")
        metadata["rerun:archetype"] = archetype
    if archetype is not None and field is not None:
        metadata["rerun:component"] = f"{archetype.rpartition('.')[2]}:{field}"
    elif field is not None:
        metadata["rerun:component"] = field
    elif old is not None:
        metadata["rerun:component"] = old
        old = None
    if old is not None:
        metadata["rerun:component_type"] = old
    return replace(column, name=metadata.get("rerun:component", column.name), metadata=metadata)


# --- 0.1.0 -> 0.1.3


def _to_0_1_1(batch: _Batch) -> _Batch:
    return replace(batch, columns=tuple(c for c in batch.columns if not _is_indicator(c)))


def _is_indicator(column: _Column) -> bool:
    names = (column.metadata.get("rerun:component", column.name), column.metadata.get("rerun:component_type", ""))
    return any(n.endswith(("Indicator", ":indicator")) for n in names)


_POSES = {
    f"rerun.components.Pose{n}": f"rerun.components.{n}"
    for n in ("RotationAxisAngle", "RotationQuat", "Scale3D", "TransformMat3x3", "Translation3D")
}


def _to_0_1_2(batch: _Batch) -> _Batch:
    return _rename(batch.map_metadata(lambda m: _replace_value(m, "rerun:component_type", _POSES)))


_RENAMED = {
    "Transform3D:axis_length": ("TransformAxes3D:axis_length", "rerun.archetypes.TransformAxes3D"),
    "CoordinateFrame:frame_id": ("CoordinateFrame:frame", None),
}


def _rename(batch: _Batch) -> _Batch:
    columns = []
    for c in batch.columns:
        component, archetype = _RENAMED.get(c.metadata.get("rerun:component", ""), (None, None))
        if component is not None:
            metadata = {**c.metadata, "rerun:component": component}
            if archetype is not None and "rerun:archetype" in metadata:
                metadata["rerun:archetype"] = archetype
            c = replace(c, name=component, metadata=metadata)
        columns.append(c)
    return replace(batch, columns=tuple(columns))


_VISIBLE = {"rerun.components.SeriesVisible": "rerun.components.Visible"}


def _to_0_1_3(batch: _Batch) -> _Batch:
    return batch.map_metadata(lambda m: _replace_value(m, "rerun:component_type", _VISIBLE))


def _replace_value(metadata: Metadata, key: str, table: dict[str, str]) -> Metadata:
    value = metadata.get(key)
    return {**metadata, key: table[value]} if value in table else metadata


_STEPS: tuple[tuple[_Version, Callable[[_Batch], _Batch]], ...] = (
    ((0, 0, 2), _to_0_0_2),
    ((0, 1, 0), _to_0_1_0),
    ((0, 1, 1), _to_0_1_1),
    ((0, 1, 2), _to_0_1_2),
    ((0, 1, 3), _to_0_1_3),
)
