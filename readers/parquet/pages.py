"""The pages of a column, by their headers: what they claim is checked before anything is decompressed.

Format: https://github.com/apache/parquet-format, ``PageHeader``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from zlib_ng.zlib_ng import crc32

from ...engine.bounded import check_limit
from ...engine.errors import ReadError
from ...engine.limits import FREE_PAGE, MAX_CHUNK_UNCOMPRESSED, MAX_COMPRESSION_RATIO, MIB
from .file import ParquetFile
from .footer import DAMAGED_HINT, StoredColumn
from .thrift import INTEGERS, STRUCT, Cursor, CutThriftError, ThriftError

_WINDOW: Final = 256
_MAX_HEADER: Final = 16 * MIB
_WHOLE: Final = MIB // 4
_PADDING: Final = 100  # parquet-mr before 1.2.9 leaves the header of the dictionary page out of the column's size

_TYPE, _UNCOMPRESSED, _COMPRESSED, _CRC = 1, 2, 3, 4
_HEADERS: Final = (5, 7, 8)
_DICTIONARY_PAGE: Final = 2
_BYTE_ARRAY: Final = 6
_USUAL_DICTIONARY: Final = 2 * MIB  # writers end them at 1 MiB


class Page(NamedTuple):
    """One page: where its header and its data begin, its sizes, how many values it says to hold, and its CRC."""

    offset: int
    data: int
    compressed: int
    uncompressed: int
    values: int
    is_dictionary: bool
    crc: int | None


class _Bytes:
    """The bytes of a column: at hand where they are few, else read in windows."""

    def __init__(self, file: ParquetFile, begin: int, end: int) -> None:
        self._file = file
        self._begin = begin
        self._whole = file.read_at(begin, end - begin) if end - begin <= _WHOLE else None

    def at(self, offset: int, size: int) -> bytes:
        if self._whole is None:
            return self._file.read_at(offset, size)
        return self._whole[offset - self._begin : offset - self._begin + size]


class Expanded(NamedTuple):
    """What a column may become: about the bytes of its values, and those of a dictionary of texts that is unusual."""

    size: int
    dictionary: int


def check_column(file: ParquetFile, row_group: int, leaf: int) -> Expanded:
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
        raise ReadError(
            f"Parquet error: {_place(column, row_group)} has {found:,} values and the footer counts {column.values:,}",
            path=file.path,
            offset=begin,
            hint=DAMAGED_HINT,
        )
    return Expanded(size, dictionary)


def damaged_page(file: ParquetFile, row_group: int, leaf: int) -> ReadError | None:
    """What is wrong with the first page of a stored column whose header or checksum is; None where they are right."""
    begin, end, column = _extent(file, row_group, leaf)
    try:
        for page in _pages(file, begin, end, column):
            if page.crc is not None and crc32(file.read_at(page.data, page.compressed)) != page.crc & 0xFFFFFFFF:
                return ReadError(
                    f"Parquet error: the checksum of a page of {_place(column, row_group)} does not match",
                    path=file.path,
                    offset=page.offset,
                    hint=DAMAGED_HINT,
                )
    except ReadError as error:
        return error
    return None


def column_start(file: ParquetFile, row_group: int, leaf: int) -> int:
    """Where the pages of a stored column begin. Raises ``ReadError``."""
    return _extent(file, row_group, leaf)[0]


def _extent(file: ParquetFile, row_group: int, leaf: int) -> tuple[int, int, StoredColumn]:
    """Where a stored column begins and has to end."""
    column = file.footer.row_groups[row_group].columns[leaf]
    begin, size = column.start, column.compressed
    what = _place(column, row_group)
    check_limit(begin, file.footer_at, path=file.path, offset=file.footer_at, what=f"the place of {what}")
    check_limit(size, file.footer_at - begin, path=file.path, offset=file.footer_at, what=f"the size of {what}")
    return begin, begin + size, column


def _pages(file: ParquetFile, begin: int, end: int, column: StoredColumn) -> Iterator[Page]:
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


def _page(file: ParquetFile, stored: _Bytes, at: int, limit: int) -> Page:
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
    return ReadError(
        f"Parquet error: the header of a page cannot be read: {why}", path=file.path, offset=at, hint=DAMAGED_HINT
    )


def _parsed(data: bytes, at: int) -> Page:
    cursor = Cursor(data)
    numbers = {_TYPE: -1, _UNCOMPRESSED: -1, _COMPRESSED: -1}
    crc: int | None = None
    values = 0
    for field in cursor.fields():
        if field.type in INTEGERS and field.id in numbers:
            numbers[field.id] = cursor.integer()
        elif field.type in INTEGERS and field.id == _CRC:
            crc = cursor.integer()
        elif field.type == STRUCT and field.id in _HEADERS:
            values = _values(cursor)
        else:
            cursor.skip(field.type)
    is_dictionary = numbers[_TYPE] == _DICTIONARY_PAGE
    return Page(at, at + cursor.at, numbers[_COMPRESSED], numbers[_UNCOMPRESSED], values, is_dictionary, crc)


def _values(cursor: Cursor) -> int:
    values = 0
    for field in cursor.fields():
        if field.id == 1 and field.type in INTEGERS:
            values = cursor.integer()
        else:
            cursor.skip(field.type)
    return values


def _place(column: StoredColumn, row_group: int) -> str:
    return f"column {column.path!r} of row group {row_group}"
