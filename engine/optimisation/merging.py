"""Merging and splitting of chunks: several are joined on output; one is split by rows or columns."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count, pairwise

import numpy as np
import pyarrow as pa

from ..chunk import Chunk, ChunkData, Component, ComponentDescriptor, Timeline, mint
from ..errors import ReadWarning
from .profile import ColumnSize, MergeCandidate, RowSizes, Settings, column_size, extent_of


def merge_chunks(chunks: Sequence[Chunk], chunk_id: bytes | None = None) -> list[Chunk]:
    """One chunk with all rows, in the order of their row ids, under another chunk id; row ids are kept.

    All are of one entity, with the same timelines, and with the same datatype for each shared component. If Arrow can't
    hold them in one array (more than 2 GiB of values), the given chunks are returned.
    """
    if len(chunks) == 1:
        return list(chunks)
    try:
        return [Chunk.from_data(concatenate([c.data for c in chunks], chunk_id or mint()))]
    except (pa.ArrowException, OverflowError):
        return list(chunks)


def concatenate(parts: Sequence[ChunkData], chunk_id: bytes) -> ChunkData:
    """The rows of ``parts``, stably sorted by row id. If descriptors of one component differ, the first is used."""
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
            existing = descriptors.setdefault(c.descriptor.component, c.descriptor)
            datatypes.setdefault(c.descriptor.component, c.values.type)
            if existing != c.descriptor:
                _warn_of_descriptors(part.entity_path, existing, c.descriptor)
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
        f"{_describe(kept)} and not {_describe(other)}",
        ReadWarning,
        stacklevel=3,
    )


def _describe(descriptor: ComponentDescriptor) -> str:
    return f"(archetype {descriptor.archetype}, type {descriptor.component_type})"


_clock = count()


class Pending:
    """A chunk of a store: an unchanged inserted one, or several merged ones.

    Merging joins extents and remembers the parts; the rows are copied only once for all parts. ``piece`` marks a piece
    of a split chunk, which never merges in its store; ``is_ambiguous`` marks a chunk with two columns of one component,
    as merging could lose one; ``touched`` grows with every change.
    """

    __slots__ = ("_extent", "chunk_id", "is_ambiguous", "parts", "piece", "touched")

    def __init__(self, chunk: Chunk, extent: MergeCandidate | None = None, *, piece: bool = False) -> None:
        names = [c.descriptor.component for c in chunk.data.components]
        self.chunk_id = chunk.data.chunk_id
        self.parts = deque((chunk,))
        self.piece = piece
        self.touched = next(_clock)
        self._extent = extent
        self.is_ambiguous = len(set(names)) < len(names)

    @property
    def extent(self) -> MergeCandidate:
        """Ranges and size, measured on first use."""
        if self._extent is None:
            self._extent = extent_of(self.parts[0].data)
        return self._extent

    def measured(self) -> RowSizes | None:
        """Return the sizes computed now, or None if they were known."""
        if self._extent is not None:
            return None
        data = self.parts[0].data
        sizes = RowSizes(data)
        self._extent = extent_of(data, sizes.columns(0, data.num_rows))
        return sizes

    @property
    def is_static(self) -> bool:
        """Return True if it has no timelines."""
        return self.parts[0].is_static

    @property
    def frozen(self) -> bool:
        """Return True if it must not merge: a piece, or ambiguous."""
        return self.piece or self.is_ambiguous

    def copy(self) -> Pending:
        """The same chunk for another store, in which a piece may merge like other chunks."""
        twin = object.__new__(Pending)
        twin.chunk_id, twin.parts, twin.piece = self.chunk_id, self.parts.copy(), False
        twin.touched, twin._extent, twin.is_ambiguous = self.touched, self._extent, self.is_ambiguous
        return twin

    def absorb(self, other: Pending) -> None:
        """Add the rows of ``other``, which must not be used afterwards, and take a fresh chunk id."""
        mine, theirs = self.extent, other.extent
        if theirs.first_row < mine.first_row:
            self._extent = theirs.joined(mine)
            self.parts = _joined(other.parts, self.parts)
        else:
            self._extent = mine.joined(theirs)
            self.parts = _joined(self.parts, other.parts)
        self.chunk_id = mint()
        self.touched = max(self.touched, other.touched)

    def chunks(self) -> list[Chunk]:
        """The joined chunk, or its parts if Arrow can't hold them in one array."""
        if len(self.parts) > 1:
            self.parts = deque(merge_chunks(list(self.parts), self.chunk_id))
        return list(self.parts)


def _joined(first: deque[Chunk], second: deque[Chunk]) -> deque[Chunk]:
    """Join both in order, by moving the items of the shorter one."""
    if len(first) >= len(second):
        first.extend(second)
        return first
    second.extendleft(reversed(first))
    return second


def rows_per_piece(rows: int, size: int, ascending: bool, settings: Settings) -> int | None:
    """Return the number of rows for the pieces of a chunk, or None if it need not be split."""
    if rows < 2:
        return None
    too_large = 0 < settings.max_bytes < size
    too_long = 0 < settings.max_rows < rows
    too_wild = not ascending and 0 < settings.max_rows_if_unsorted < rows
    if too_wild:
        return settings.max_rows_if_unsorted
    if too_long:
        return settings.max_rows
    if too_large:
        target = max(1, settings.max_bytes // max(1, size // rows))
        return target if target < rows else None
    return None


def split_rows(data: ChunkData, settings: Settings) -> list[ChunkData]:
    """``data`` split into runs of rows within the thresholds, under fresh ids; ``data`` itself if it is within them.

    A single row may still be larger than ``max_bytes``.
    """
    pieces = split_rows_sized(data, settings, RowSizes(data))
    return [piece for piece, _ in pieces]


def split_rows_sized(data: ChunkData, settings: Settings, sizes: RowSizes) -> list[tuple[ChunkData, list[ColumnSize]]]:
    """:func:`split_rows`, with the sizes of the columns of each piece; ``sizes`` are those of ``data``."""
    runs = list(_runs(data, sizes, 0, data.num_rows, settings))
    if len(runs) == 1:
        return [(data, sizes.columns(0, data.num_rows))]
    return [(data.slice(start, end - start), sizes.columns(start, end)) for start, end in runs]


def _runs(data: ChunkData, sizes: RowSizes, start: int, end: int, settings: Settings) -> Iterator[tuple[int, int]]:
    """The rows of each piece: split repeatedly until no piece exceeds a threshold that a split can help."""
    size = sizes.bytes(start, end) if settings.max_bytes else 0
    step = rows_per_piece(end - start, size, _ascends(data, start, end), settings)
    if step is None:
        yield start, end
        return
    for first in range(start, end, step):
        last = min(first + step, end)
        if last - first > 1 and 0 < settings.max_bytes < sizes.bytes(first, last):
            break  # rows differ in size: equal numbers of rows would give tiny pieces
    else:
        for first in range(start, end, step):
            yield from _runs(data, sizes, first, min(first + step, end), settings)
        return
    while start < end:
        last = max(rows_that_fit(sizes, end, settings.max_bytes, start), start + 1)
        yield from _runs(data, sizes, start, last, settings)
        start = last


def rows_that_fit(sizes: RowSizes, end: int, most: int, start: int = 0) -> int:
    """The end of the longest run of rows from ``start``, up to ``end``, with at most ``most`` bytes."""
    low, high = start, end
    while low < high:
        middle = (low + high + 1) // 2
        if sizes.bytes(start, middle) <= most:
            low = middle
        else:
            high = middle - 1
    return low


def _ascends(data: ChunkData, start: int, end: int) -> bool:
    for timeline in data.timelines:
        if not timeline.is_sorted:
            ticks = timeline.ticks[start:end]
            if not bool((ticks[:-1] <= ticks[1:]).all()):
                return False
    return True


def split_columns(data: ChunkData, ratio: float) -> list[ChunkData]:
    """``data`` split between archetypes, in order of size, that differ by ``ratio`` or more, or ``data`` itself.

    Components of one archetype stay together; a component without one counts as its own. Every piece has all row ids
    and times of ``data``, under a fresh chunk id.
    """
    if len(data.components) < 2:
        return [data]
    groups: dict[str, list[Component]] = {}
    for c in data.components:
        key = f"archetype {c.descriptor.archetype}" if c.descriptor.archetype else f"alone {c.descriptor.component}"
        groups.setdefault(key, []).append(c)
    sized = [(sum(column_size(c.values).total for c in group), group) for group in groups.values()]
    sized.sort(key=lambda pair: -pair[0])
    pieces = [list(sized[0][1])]
    for (heavier, _), (lighter, group) in pairwise(sized):
        if heavier / max(lighter, 1) >= ratio:
            pieces.append([])
        pieces[-1].extend(group)
    return [data] if len(pieces) == 1 else [data.with_components(tuple(piece)) for piece in pieces]
