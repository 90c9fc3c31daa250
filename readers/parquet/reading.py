"""Columns of row groups, checked before they are read, in batches that fit into memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import pyarrow as pa

from ...engine.limits import MIB
from .damage import check_cells, check_row_groups, placed
from .file import ParquetFile

BATCH_BYTES: Final = 32 * MIB
"""Values that are read together."""

BATCH_ROWS: Final = 65_536
"""Most rows that are read together, and most rows of a chunk."""

_MOST_EXPANDED: Final = 4096 * MIB
"""Most rows of a batch times the bytes of an unusual dictionary, which might be one text that every row has."""


def read_columns(
    file: ParquetFile, row_groups: Sequence[int], columns: Collection[int], *, rows: int | None = None
) -> Iterator[tuple[int, dict[int, pa.Array]]]:
    """Batches of the columns at these positions: their numbers of rows, never 0, and the columns by position.

    ``rows`` at most; by default as many as make about ``BATCH_BYTES``. Without columns only the numbers come. Raises
    ``ReadError`` with the byte of the damage.
    """
    leaves = file.leaves(columns)
    total = sum(file.footer.row_groups[i].rows for i in row_groups)
    if not columns:
        yield from ((min(BATCH_ROWS, total - at), {}) for at in range(0, total, BATCH_ROWS))
        return
    check_cells(file, total, leaves, 1)
    size, dictionary = check_row_groups(file, row_groups, leaves)
    most = rows or max(1, min(BATCH_ROWS, total * BATCH_BYTES // max(size, 1), _MOST_EXPANDED // max(dictionary, 1)))
    batches = file.batches(row_groups, columns, most)
    while True:
        with placed(file, row_groups, leaves):
            batch = next(batches, None)
        if batch is None:
            return
        length = len(next(iter(batch.values())))
        if length:
            yield length, batch
