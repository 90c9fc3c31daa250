"""Checks of row groups before they are read, and the place of damage where reading fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...engine.bounded import check_limit
from ...engine.errors import ReadError
from ...engine.limits import FREE_CELLS, FREE_EXPANSION, MAX_VALUES_PER_BYTE
from .file import ParquetFile
from .footer import DAMAGED_HINT
from .pages import Expanded, check_column, column_start, damaged_page

_WIDTH = 8


def check_row_groups(file: ParquetFile, row_groups: Sequence[int], leaves: Sequence[int]) -> Expanded:
    """Refuse row groups whose footer or page headers claim what cannot be; says what they may become.

    Raises ``ReadError``.
    """
    size = dictionary = 0
    for group in row_groups:
        rows, columns = file.footer.row_groups[group]
        for leaf in leaves:
            column = columns[leaf]
            what = f"the number of values of column {column.path!r} in row group {group}"
            if file.stored_schema.column(leaf).max_repetition_level:
                cap = max(FREE_EXPANSION // _WIDTH, column.compressed * MAX_VALUES_PER_BYTE)
                check_limit(column.values, cap, path=file.path, offset=file.footer_at, what=what)
            elif column.values != rows:
                raise ReadError(
                    f"Parquet error: {what} is {column.values:,}, and there are {rows:,} rows",
                    path=file.path,
                    offset=file.footer_at,
                    hint=DAMAGED_HINT,
                )
            expanded = check_column(file, group, leaf)
            size += expanded.size
            dictionary = max(dictionary, expanded.dictionary)
    return Expanded(size, dictionary)


def check_cells(file: ParquetFile, rows: int, leaves: Sequence[int], columns: int) -> None:
    """Refuse more rows than the bytes of a file can be believed to hold. Raises ``ReadError``."""
    cells = rows * max(len(leaves), columns, 1)
    cap = max(FREE_CELLS, file.size * MAX_VALUES_PER_BYTE)
    check_limit(cells, cap, path=file.path, offset=file.footer_at, what="the number of values (rows times columns)")


@contextmanager
def placed(file: ParquetFile, row_groups: Sequence[int], leaves: Sequence[int]) -> Iterator[None]:
    """Give a ``ReadError`` from within the byte where the damaged page, or else the column that fails, begins."""
    try:
        yield
    except ReadError as error:
        if error.offset is not None:
            raise
        raise _located(error, file, row_groups, leaves) from error


def _located(error: ReadError, file: ParquetFile, row_groups: Sequence[int], leaves: Sequence[int]) -> ReadError:
    for group in row_groups:
        for leaf in leaves:
            damage = damaged_page(file, group, leaf)
            if damage is not None:
                return damage
    for group in row_groups:
        for leaf in leaves:
            if not file.can_read(group, leaf):
                path = file.footer.row_groups[group].columns[leaf].path
                return type(error)(
                    f"{error.message} (column {path!r} of row group {group})",
                    path=error.path,
                    offset=column_start(file, group, leaf),
                    hint=error.hint,
                )
    return error
