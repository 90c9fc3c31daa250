"""The columns of row groups, read in batches; what their pages claim is checked before anything is decompressed.

Format: https://github.com/apache/parquet-format, ``PageHeader``.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from zlib_ng.zlib_ng import crc32

from ...engine.errors import ReadError, ReadWarning
from ...engine.limits import (
    FREE_CELLS,
    FREE_EXPANSION,
    FREE_PAGE,
    MAX_CHUNK_UNCOMPRESSED,
    MAX_COMPRESSION_RATIO,
    MAX_VALUES_PER_BYTE,
    MIB,
    check_limit,
)
from .file import ParquetFile
from .footer import INTEGER, STRUCT, CutThriftError, StoredColumn, ThriftCursor, ThriftError, Wanted

BATCH_BYTES: Final = 32 * MIB
"""Values that are read together."""

BATCH_ROWS: Final = 65_536
"""Most rows that are read together, and most rows of a chunk."""

_MOST_EXPANDED: Final = 4096 * MIB
"""Most rows of a batch times the bytes of an unusual dictionary, which might be one text that every row has."""

_WIDTH = 8


def check_row_groups(file: ParquetFile, row_groups: Sequence[int], leaves: Sequence[int]) -> _Expanded:
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
                raise file.damaged(f"{what} is {column.values:,}, and there are {rows:,} rows", file.footer_at)
            expanded = _check_column(file, group, leaf)
            size += expanded.size
            dictionary = max(dictionary, expanded.dictionary)
    return _Expanded(size, dictionary)


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
            damage = _damaged_page(file, group, leaf)
            if damage is not None:
                return damage
    for group in row_groups:
        for leaf in leaves:
            if not file.can_read(group, leaf):
                path = file.footer.row_groups[group].columns[leaf].path
                return type(error)(
                    f"{error.message} (column {path!r} of row group {group})",
                    path=error.path,
                    offset=_extent(file, group, leaf)[0],
                    hint=error.hint,
                )
    return error


_WINDOW: Final = 256
_MAX_HEADER: Final = 16 * MIB
_WHOLE: Final = MIB // 4
_PADDING: Final = 100  # parquet-mr before 1.2.9 leaves the header of the dictionary page out of the column's size

_TYPE, _UNCOMPRESSED, _COMPRESSED, _CRC = 1, 2, 3, 4
_HEADERS: Final = (5, 7, 8)
_DICTIONARY_PAGE: Final = 2
_BYTE_ARRAY: Final = 6
_USUAL_DICTIONARY: Final = 2 * MIB  # writers end them at 1 MiB


_PAGE: Final[Wanted] = {
    **dict.fromkeys((_TYPE, _UNCOMPRESSED, _COMPRESSED, _CRC), INTEGER),
    **dict.fromkeys(_HEADERS, ((STRUCT,), lambda cursor: cursor.struct({1: INTEGER}))),
}


class _Page(NamedTuple):
    """One page: where its header and its data begin, its sizes, how many values it says to hold, and its CRC."""

    offset: int
    data: int
    compressed: int
    uncompressed: int
    values: int
    is_dictionary: bool
    crc: int | None


class _Bytes:
    """The bytes of a column: at hand where they are few, else read in windows.

    One read of a small column instead of one a page is 5 % of a local file whose row groups have 200 rows; in a store
    each is a request.
    """

    def __init__(self, file: ParquetFile, begin: int, end: int) -> None:
        self._file = file
        self._begin = begin
        self._whole = file.read_at(begin, end - begin) if end - begin <= _WHOLE else None

    def at(self, offset: int, size: int) -> bytes:
        if self._whole is None:
            return self._file.read_at(offset, size)
        return self._whole[offset - self._begin : offset - self._begin + size]


class _Expanded(NamedTuple):
    """The size that columns may come to: about the bytes of their values, and of an unusual dictionary of texts."""

    size: int
    dictionary: int


def _check_column(file: ParquetFile, row_group: int, leaf: int) -> _Expanded:
    """Look at every page header of a stored column. Raises ``ReadError`` where they are not those of honest pages."""
    begin, end, column = _extent(file, row_group, leaf)
    found = dictionary = 0
    size = column.value_bytes
    for page in _pages(file, begin, end, column):
        if page.is_dictionary:
            if column.physical_type == _BYTE_ARRAY and page.uncompressed > _USUAL_DICTIONARY:
                dictionary = max(dictionary, page.uncompressed)
            size = max(size, column.values * page.uncompressed // max(page.values, 1))
        else:
            found += page.values
    if found < column.values:
        raise file.damaged(
            f"{_place(column, row_group)} has {found:,} values and the footer counts {column.values:,}", begin
        )
    return _Expanded(size, dictionary)


def _damaged_page(file: ParquetFile, row_group: int, leaf: int) -> ReadError | None:
    """The error of the first page of a stored column whose header or checksum is wrong; None where all are right."""
    begin, end, column = _extent(file, row_group, leaf)
    try:
        for page in _pages(file, begin, end, column):
            if page.crc is not None and crc32(file.read_at(page.data, page.compressed)) != page.crc & 0xFFFFFFFF:
                return file.damaged(
                    f"the checksum of a page of {_place(column, row_group)} does not match", page.offset
                )
    except ReadError as error:
        return error
    return None


def _extent(file: ParquetFile, row_group: int, leaf: int) -> tuple[int, int, StoredColumn]:
    """The byte at which a stored column begins, the one at which it has to end, and what the footer says of it."""
    column = file.footer.row_groups[row_group].columns[leaf]
    begin, size = column.start, column.compressed
    what = _place(column, row_group)
    check_limit(begin, file.footer_at, path=file.path, offset=file.footer_at, what=f"the place of {what}")
    check_limit(size, file.footer_at - begin, path=file.path, offset=file.footer_at, what=f"the size of {what}")
    return begin, begin + size, column


def _pages(file: ParquetFile, begin: int, end: int, column: StoredColumn) -> Iterator[_Page]:
    """The pages of a column, each checked; ends where the column does, or has all its values."""
    wanted, got = column.values, 0
    limit = min(end + _PADDING, file.footer_at)
    stored = _Bytes(file, begin, limit)
    at = begin
    while at < end and got < wanted:
        page = _page(file, stored, at, limit)
        yield page
        got += 0 if page.is_dictionary else page.values
        at = page.data + page.compressed


def _page(file: ParquetFile, stored: _Bytes, at: int, limit: int) -> _Page:
    size = _WINDOW
    while True:
        size = min(size, limit - at)
        try:
            page = _parsed(stored.at(at, size), at)
            break
        except CutThriftError as error:
            if size == limit - at or size >= _MAX_HEADER:
                raise _malformed(file, at, str(error)) from None
            size *= 16
        except ThriftError as error:
            raise _malformed(file, at, str(error)) from None
    if page.compressed < 0 or page.data + page.compressed > limit:
        raise _malformed(file, at, f"it claims {page.compressed:,} bytes where {limit - page.data:,} are left")
    cap = min(MAX_CHUNK_UNCOMPRESSED, max(FREE_PAGE, page.compressed * MAX_COMPRESSION_RATIO))
    check_limit(page.uncompressed, cap, path=file.path, offset=at, what="the uncompressed size of a page")
    check_limit(page.values, 2**31 - 1, path=file.path, offset=at, what="the number of values of a page")
    return page


def _malformed(file: ParquetFile, at: int, why: str) -> ReadError:
    return file.damaged(f"the header of a page cannot be read: {why}", at)


def _parsed(data: bytes, at: int) -> _Page:
    cursor = ThriftCursor(data)
    values = cursor.struct(_PAGE)
    counts = [header.get(1, 0) for number, header in values.items() if number in _HEADERS]
    is_dictionary = values.get(_TYPE) == _DICTIONARY_PAGE
    compressed, uncompressed = values.get(_COMPRESSED, -1), values.get(_UNCOMPRESSED, -1)
    return _Page(
        at, at + cursor.at, compressed, uncompressed, counts[-1] if counts else 0, is_dictionary, values.get(_CRC)
    )


def _place(column: StoredColumn, row_group: int) -> str:
    return f"column {column.path!r} of row group {row_group}"


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


def open_file(path: str) -> ParquetFile:
    """Open a file whose INT96 columns come in microseconds where nanoseconds cannot hold their times.

    Warns (``ReadWarning``) of such columns. Raises ``ReadError``.
    """
    file = ParquetFile(path)
    if not file.wide:
        return file
    with file:
        beyond = beyond_nanoseconds(file, file.wide)
    return ParquetFile(path, file.version, beyond)


def beyond_nanoseconds(file: ParquetFile, names: Collection[str]) -> frozenset[str]:
    """Find the INT96 columns among ``names`` with a time that 64 bits of nanoseconds cannot hold.

    INT96 has no unit of its own, so all values of these columns are read. Warns (``ReadWarning``) of those that were
    found, as they are to be read in microseconds. Raises ``ReadError``.
    """
    beyond = set()
    with ParquetFile(file.path, file.version, names) as coarse:
        columns = [i for i, name in enumerate(coarse.schema.names) if name in names]
        for _, batch in read_columns(coarse, range(len(coarse.footer.row_groups)), columns):
            beyond |= {coarse.schema.names[c] for c, values in batch.items() if any(map(_is_beyond, _times_in(values)))}
    if beyond:
        warnings.warn(
            f"{file.path}: times of column {' and '.join(map(repr, sorted(beyond)))} (INT96) do not fit into 64 bits of"
            " nanoseconds and are read in microseconds",
            ReadWarning,
            stacklevel=2,
        )
    return frozenset(beyond)


def _times_in(values: pa.Array) -> Iterator[pa.Array]:
    """The timestamps in a column, at whatever depth."""
    if pa.types.is_timestamp(values.type):
        yield values
    elif pa.types.is_struct(values.type):
        for child in values.flatten():
            yield from _times_in(child)
    elif pa.types.is_map(values.type):
        yield from _times_in(values.keys)
        yield from _times_in(values.items)
    elif pa.types.is_nested(values.type):
        yield from _times_in(values.flatten())


def _is_beyond(times: pa.Array) -> bool:
    """Whether a time (us) is one that 64 bits of nanoseconds cannot hold."""
    ends = pc.min_max(times.view(pa.int64()))
    lowest, highest = ends["min"].as_py(), ends["max"].as_py()
    return lowest is not None and (lowest < -_MOST_MICROSECONDS or highest > _MOST_MICROSECONDS)


_MOST_MICROSECONDS: Final = (2**63 - 1) // 1000
