"""Listings of the chunks that a task wrote, in the form in which a footer has them: columns, not objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..errors import WriteError
from ..limits import MIB
from .chunk_columns import ChunkColumns, columns_of_entries
from .chunk_table import ChunkEntry
from .framing import MESSAGE_HEADER_SIZE
from .manifest_build import ManifestColumns, schema_stream, union_fields
from .manifest_table import ManifestTable, Numbers
from .messages import StoreEntry
from .taken_columns import columns_of_table

_MAX_DETAIL: Final = 64 * MIB


@dataclass(frozen=True)
class Listed:
    """Messages, with rows of a manifest that describe them where they lie now."""

    table: ManifestTable

    @property
    def chunks(self) -> int:
        """Number of messages."""
        return len(self.table)

    @cached_property
    def rows(self) -> int:
        """Rows of their chunks."""
        return int(self.table.num_rows.sum())

    @cached_property
    def source_size(self) -> int:
        """Bytes of the messages where they lie."""
        return int(self.table.sizes.sum())

    @cached_property
    def framed_size(self) -> int:
        """Bytes of the messages where they lie, with their frame headers."""
        return self.source_size + MESSAGE_HEADER_SIZE * self.chunks

    def columns(self, store: StoreEntry, start: int) -> ChunkColumns | None:  # noqa: ARG002 (it is that of the part)
        """The columns of a footer on them, in a file where they lie one behind the other from byte ``start`` on."""
        return self._columns(start, self.table.sizes)

    def _columns(self, start: int, sizes: Numbers) -> ChunkColumns | None:
        columns = columns_of_table(self.table)
        if columns is None:
            return None
        offsets = np.uint64(start) + np.cumsum(sizes + np.uint64(MESSAGE_HEADER_SIZE), dtype=np.uint64) - sizes
        return replace(columns, offsets=offsets, sizes=sizes)

    def entities(self, size: int) -> list[tuple[str, int, int, int]]:
        """Of each entity: its path, chunks, rows, and bytes of messages where all, with frames, take ``size`` bytes."""
        codes, paths = self.table.entity_codes
        change = (size - self.framed_size) // self.chunks if self.chunks else 0
        counts = np.bincount(codes, minlength=len(paths))
        rows, sizes = (_sums(codes, values, len(paths)) for values in (self.table.num_rows, self.table.sizes))
        found = zip(paths, counts.tolist(), rows, sizes, strict=True)
        return [(path, count, n, total + count * change) for path, count, n, total in found]


def listing_of(entries: Sequence[ChunkEntry]) -> ManifestTable | None:
    """Rows of a manifest that say of ``entries`` all that a footer of theirs would.

    None where a manifest can't: for chunks without rows, components that hold nothing, and the like.
    """
    try:
        return listing_of_columns(columns_of_entries(entries, path=""))
    except WriteError:
        return None


def listing_of_columns(columns: ChunkColumns) -> ManifestTable | None:
    """The same of columns that a footer is made of."""
    union = union_fields(columns.union, columns.kinds)
    manifest = ManifestColumns(columns, union.descriptors)
    if manifest.detail_bytes > _MAX_DETAIL:
        return None
    table = ManifestTable(manifest.record_batch(detailed=True), schema_stream(union.schema))
    table = table.with_digests(columns.digests)
    try:
        told = columns_of_table(table)
    except ValueError:
        return None
    return table if told is not None and _alike(columns, told) else None


def _alike(first: ChunkColumns, second: ChunkColumns) -> bool:
    """Whether two describe the same chunks, as far as a manifest might lose it."""
    return (
        first.paths.equals(second.paths)
        and first.kinds == second.kinds
        and first.union == second.union
        and _same_arrays({k: (v,) for k, v in first.statics.items()}, {k: (v,) for k, v in second.statics.items()})
        and _same_arrays(first.timelines, second.timelines)
        and _same_arrays(first.components, second.components)
    )


def _same_arrays(first: Mapping[Any, tuple[Any, ...]], second: Mapping[Any, tuple[Any, ...]]) -> bool:
    return first.keys() == second.keys() and all(
        np.array_equal(a, b) for key in first for a, b in zip(first[key], second[key], strict=True)
    )


def _sums(codes: npt.NDArray[np.int64], values: Numbers, groups: int) -> list[int]:
    found = np.zeros(groups, dtype=np.int64)
    np.add.at(found, codes, values.astype(np.int64))
    return [int(n) for n in found]
