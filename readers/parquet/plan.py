"""How files are divided into splits, from their footers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ...engine.limits import SPLIT_BYTES
from ...engine.stream import Split
from .file import ParquetFile
from .layout import Output


@dataclass(frozen=True, slots=True)
class ParquetSplit(Split):
    """Row groups ``start`` to ``stop`` of a file, and of them the outputs ``outputs`` of its layout.

    ``file`` is the file's number, ``first_row`` the number of the first row among those of all files. ``begins``: the
    file's properties come first; ``ends``: the static chunks of all files come last.
    """

    file: int
    start: int
    stop: int
    first_row: int
    outputs: tuple[int, ...]
    begins: bool
    ends: bool = False


def value_bytes(file: ParquetFile, row_group: int, leaves: Iterable[int]) -> int:
    """About the bytes of the values of stored columns in one row group, once they are read."""
    columns = file.footer.row_groups[row_group].columns
    return sum(columns[leaf].value_bytes for leaf in leaves)


def plan_file(
    file: ParquetFile,
    number: int,
    name: str,
    first_row: int,
    outputs: Sequence[Output],
    wanted: Sequence[int],
    always: frozenset[int],
) -> list[ParquetSplit]:
    """Divide a file into runs of row groups of about ``SPLIT_BYTES``; a larger row group by the outputs too.

    ``wanted`` are the numbers of the outputs that are made, ``always`` the positions of the columns that are read
    whatever is made. The splits depend on the file and on what is wanted alone.
    """
    counts = [group.rows for group in file.footer.row_groups]
    firsts = list(accumulate(counts, initial=first_row))
    columns = frozenset(always).union(*(outputs[i].columns for i in wanted))
    pieces: list[tuple[int, int, tuple[int, ...], int]] = []
    if columns or wanted:
        stored = [c for c in columns if c < len(file.schema)]
        sizes = [value_bytes(file, i, file.leaves(stored)) for i in range(len(counts))]
        for start, stop in _runs(sizes):
            size = sum(sizes[start:stop])
            parts = _parts(file, start, outputs, wanted, size) if stop - start == 1 else [tuple(wanted)]
            pieces += [(start, stop, part, size // len(parts)) for part in parts]
    if not pieces:
        return [ParquetSplit(name, 0, number, 0, 0, first_row, (), begins=True)]
    many = len(pieces) > 1
    return [
        ParquetSplit(
            f"{name} [{i + 1}/{len(pieces)}]" if many else name, size, number, start, stop, firsts[start], part, i == 0
        )
        for i, (start, stop, part, size) in enumerate(pieces)
    ]


def _runs(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Runs of row groups of about ``SPLIT_BYTES``."""
    runs: list[tuple[int, int]] = []
    start = filled = 0
    for i, size in enumerate(sizes):
        if i > start and filled + size > SPLIT_BYTES:
            runs.append((start, i))
            start, filled = i, 0
        filled += size
    return [*runs, (start, len(sizes))] if len(sizes) > start else runs


def _parts(
    file: ParquetFile, row_group: int, outputs: Sequence[Output], wanted: Sequence[int], size: int
) -> list[tuple[int, ...]]:
    """The outputs of one row group in runs of about ``SPLIT_BYTES``."""
    if size <= SPLIT_BYTES or not wanted:
        return [tuple(wanted)]
    parts: list[tuple[int, ...]] = []
    part: list[int] = []
    filled = 0
    for i in wanted:
        stored = [c for c in outputs[i].columns if c < len(file.schema)]
        need = value_bytes(file, row_group, file.leaves(stored))
        if part and filled + need > SPLIT_BYTES:
            parts.append(tuple(part))
            part, filled = [], 0
        part.append(i)
        filled += need
    return [*parts, tuple(part)]
