"""One chunk as several: by rows, when it is too large, and by columns, when they differ much in size."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ..chunk import ChunkData, Component
from .profile import Settings
from .size import ColumnSize, RowSizes, column_size


def rows_per_piece(rows: int, size: int, ascending: bool, settings: Settings) -> int | None:
    """The number of rows that the pieces of a chunk should have; None where it need not be split."""
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
    """``data`` in runs of rows that keep the thresholds, in row order, under fresh ids; itself if it keeps them.

    A piece may still be larger than ``max_bytes`` where rows differ much in size.
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
    """The rows of each piece: cut again and again until nothing is above a threshold that a cut can help."""
    size = sizes.bytes(start, end) if settings.max_bytes else 0
    step = rows_per_piece(end - start, size, _ascends(data, start, end), settings)
    if step is None:
        yield start, end
        return
    for first in range(start, end, step):
        last = min(first + step, end)
        if last - first > 1 and 0 < settings.max_bytes < sizes.bytes(first, last):
            break  # rows differ in size: pieces of as many rows would leave crumbs
    else:
        for first in range(start, end, step):
            yield from _runs(data, sizes, first, min(first + step, end), settings)
        return
    while start < end:
        last = max(rows_that_fit(sizes, end, settings.max_bytes, start), start + 1)
        yield from _runs(data, sizes, start, last, settings)
        start = last


def rows_that_fit(sizes: RowSizes, end: int, most: int, start: int = 0) -> int:
    """The end of the longest run of rows from ``start`` on, at most to ``end``, that has at most ``most`` bytes."""
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
    """``data`` in chunks whose archetypes differ in size by less than ``ratio``; itself if they do already.

    Components of one archetype stay together, a component without one stands alone. Every piece has all the row ids
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
