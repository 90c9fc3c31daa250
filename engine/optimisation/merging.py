"""Several chunks as one: rows concatenated, columns that only some have filled with nulls."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ..chunk import Chunk, ChunkData, Component, ComponentDescriptor, Timeline, tuid
from ..errors import ReadWarning


def merge_chunks(chunks: Sequence[Chunk], chunk_id: bytes | None = None) -> list[Chunk]:
    """One chunk with the rows of all, in the order of their row ids, under another chunk id; row ids are kept.

    All are of one entity, with the same timelines, and with the same datatype for each component they share. Where
    Arrow can't hold them in one array (more than 2 GiB of values), they come back as they were.
    """
    if len(chunks) == 1:
        return list(chunks)
    try:
        return [Chunk.from_data(concatenate([c.data for c in chunks], chunk_id or tuid.mint()))]
    except (pa.ArrowException, OverflowError):
        return list(chunks)


def concatenate(parts: Sequence[ChunkData], chunk_id: bytes) -> ChunkData:
    """The rows of ``parts``, stably sorted by row id. Where descriptors of one component differ, the first counts."""
    first = parts[0]
    lines = [{t.name: t for t in part.timelines} for part in parts]
    data = ChunkData(
        chunk_id,
        first.entity_path,
        pa.concat_arrays([p.row_ids for p in parts]),
        tuple(
            Timeline(t.name, t.kind, pa.concat_arrays([line[t.name].times for line in lines])) for t in first.timelines
        ),
        tuple(sorted(_columns(parts), key=lambda c: c.descriptor.sort_key)),
    )
    return data if data.ids_ascend else data.take(row_order(data.row_ids))


def row_order(row_ids: pa.FixedSizeBinaryArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The stable permutation that sorts row ids."""
    pairs = np.frombuffer(row_ids.buffers()[1], dtype=">u8")[2 * row_ids.offset : 2 * (row_ids.offset + len(row_ids))]
    native = pairs.astype(np.uint64).reshape(-1, 2)
    return np.lexsort((native[:, 1], native[:, 0])).astype(np.int64)


def _columns(parts: Sequence[ChunkData]) -> list[Component]:
    descriptors: dict[str, ComponentDescriptor] = {}
    datatypes: dict[str, pa.DataType] = {}
    by_part = []
    for part in parts:
        by_part.append({c.descriptor.component: c.values for c in part.components})
        for c in part.components:
            known = descriptors.setdefault(c.descriptor.component, c.descriptor)
            datatypes.setdefault(c.descriptor.component, c.values.type)
            if known != c.descriptor:
                _warn_of_descriptors(part.entity_path, known, c.descriptor)
    nulls: dict[tuple[str, int], pa.Array] = {}
    out = []
    for name, descriptor in descriptors.items():
        arrays = []
        for part, columns in zip(parts, by_part, strict=True):
            values = columns.get(name)
            if values is None:
                key = (name, part.num_rows)
                values = nulls.get(key)
                if values is None:
                    values = nulls[key] = pa.nulls(part.num_rows, datatypes[name])
            arrays.append(values)
        out.append(Component(descriptor, pa.concat_arrays(arrays)))
    return out


def _warn_of_descriptors(entity_path: str, kept: ComponentDescriptor, other: ComponentDescriptor) -> None:
    warnings.warn(
        f"{entity_path}: chunks describe the component {kept.component!r} in two ways; merged chunks keep "
        f"{_told(kept)} and not {_told(other)}",
        ReadWarning,
        stacklevel=3,
    )


def _told(descriptor: ComponentDescriptor) -> str:
    return f"(archetype {descriptor.archetype}, type {descriptor.component_type})"
