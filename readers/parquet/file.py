"""One open Parquet file: its footer and pages are checked before Arrow decodes them.

Also its schema, with the types of the columns that are read.
"""

from __future__ import annotations

import base64
import binascii
import inspect
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from zlib_ng.zlib_ng import crc32

from ...engine.errors import ReadError, ReadWarning, SourceMissingError, UnsupportedError
from ...engine.limits import (
    FREE_CELLS,
    FREE_EXPANSION,
    FREE_PAGE,
    MAX_CHUNK_UNCOMPRESSED,
    MAX_COMPRESSION_RATIO,
    MAX_PARQUET_FOOTER,
    MAX_VALUES_PER_BYTE,
    MIB,
    check_limit,
)
from ...engine.storage import RemoteFile, is_url
from .footer import (
    DAMAGED_HINT,
    INTEGER,
    MAX_DEPTH,
    STRUCT,
    CutThriftError,
    ParquetFooter,
    StoredColumn,
    ThriftCursor,
    ThriftError,
    Wanted,
    parse_footer,
)


def _open_input(path: str, version: str | None = None) -> tuple[pa.NativeFile, str | None]:
    """Open ``path`` as a seekable file of known size. Also return the version of an object in a store, else None.

    Raises ``ReadError``, also if an object does not have the given version.
    """
    if is_url(path):
        remote = RemoteFile(path, version)
        return pa.PythonFile(remote, mode="r"), remote.version
    try:
        return pa.OSFile(path, "rb"), None
    except FileNotFoundError as error:
        raise SourceMissingError(
            f"Parquet file not found: {path}", path=path, hint="Check the spelling of the path."
        ) from error
    except OSError as error:
        reason = "Is a directory (os error 21)" if Path(path).is_dir() else error.strerror or str(error)
        raise ReadError(
            f"Parquet error: External: {reason}", path=path, hint="Check that it is a readable file."
        ) from error


_TAIL: Final = 8
_FEW_ROWS: Final = 1024
_ERRORS: Final = (pa.ArrowException, OSError, MemoryError, OverflowError, UnicodeDecodeError, RuntimeError)
"""Errors of the Parquet library; ``RuntimeError`` is for extension types with pickled code (pyarrow below 21)."""
_KNOWN: Final = inspect.signature(pq.ParquetFile.__init__).parameters

_NESTING: Final = ("Map keys must", "MAP-annotated groups", "Key-value map node", "LIST-annotated groups")
"""The first words of the Parquet library's errors for schemas without an Arrow type."""

_CUT_HINT: Final = "The file is truncated or damaged; copy it again."


class ParquetFile:
    """An open Parquet file with its schema. Use it as a context manager.

    The footer begins at ``footer_at``; all other data must end before it. ``version`` is the version of an object in an
    object store. INT96 columns in ``coarse`` are in microseconds, those in ``wide`` in nanoseconds.

    Raises ``ReadError`` if the footer is damaged, ``UnsupportedError`` if the file is encrypted.
    """

    def __init__(self, path: str, version: str | None = None, coarse: Collection[str] = ()) -> None:
        self.path = path
        self._input, self.version = _open_input(path, version)
        try:
            with self.translated():
                self.size = int(self._input.size())
                self.footer_at, self._footer_size, self.footer = self._read_footer()
                self._file = pq.ParquetFile(self._input, **self._options())
                stored = dict(self.footer.key_values).get(_ARROW_SCHEMA)
                self.schema: pa.Schema = _plain_schema(self._file.schema_arrow, stored)
                self.stored_schema: pq.ParquetSchema = self._file.schema
                check_limit(self.footer.rows, 2**62, path=path, offset=self.footer_at, what="the number of rows")
                self._leaves = _leaf_ranges(self.schema, len(self.stored_schema))
                self._coarse: dict[int, pq.ParquetFile] = {}
                self.wide = self._read_int96(stored, coarse)
        except BaseException:
            self._input.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._input.close()

    def leaves(self, columns: Iterable[int]) -> list[int]:
        """Return the stored columns for the columns at these positions in the schema."""
        if self._leaves is None:
            return list(range(len(self.stored_schema)))
        return [leaf for column in sorted(columns) for leaf in self._leaves[column]]

    def read_at(self, offset: int, size: int) -> bytes:
        """Read at most ``size`` bytes at ``offset``."""
        with self.translated():
            data: bytes = self._input.read_at(max(0, min(size, self.size - offset)), offset)
            return data

    def batches(self, row_groups: Sequence[int], columns: Iterable[int], rows: int) -> Iterator[dict[int, pa.Array]]:
        """Yield the columns at these positions, in batches of at most ``rows`` rows. Page checksums are verified.

        Without columns, nothing is read. Raises ``ReadError``.
        """
        wanted = sorted(columns)
        with self.translated():
            stored = self._stored_batches(row_groups, [c for c in wanted if c not in self._coarse], rows)
            coarse = self._coarse_batches(row_groups, [c for c in wanted if c in self._coarse], rows)
            for batch in coarse if all(c in self._coarse for c in wanted) else _in_step(stored, coarse):
                if len(batch) != len(wanted) or len({len(array) for array in batch.values()}) > 1:
                    raise self.damaged(f"{len(wanted)} columns were requested, but {len(batch)} were read")
                for column, array in batch.items():
                    self._check_text(self.schema.field(column).name, array)
                yield {c: _in_type(batch[c], self.schema.field(c).type) for c in wanted}

    def _stored_batches(
        self, row_groups: Sequence[int], wanted: Sequence[int], rows: int
    ) -> Iterator[dict[int, pa.Array]]:
        if not wanted:
            return
        for batch in self._file.reader.iter_batches(rows, list(row_groups), self.leaves(wanted), True):
            arrays = batch.columns if self._leaves is not None else [batch.column(c) for c in wanted]
            yield dict(zip(wanted, arrays, strict=False))

    def _coarse_batches(
        self, row_groups: Sequence[int], wanted: Sequence[int], rows: int
    ) -> Iterator[dict[int, pa.Array]]:
        """Yield batches of columns in microseconds, with a second reader of the library."""
        if wanted:
            reader = self._coarse[wanted[0]].reader
            for batch in reader.iter_batches(rows, list(row_groups), self.leaves(wanted), True):
                yield dict(zip(wanted, batch.columns, strict=True))

    def _read_int96(self, stored: str | None, coarse: Collection[str]) -> frozenset[str]:
        """Choose the units of INT96 columns; return the names of the columns in nanoseconds."""
        columns = [c for c in range(len(self.schema)) if self._leaves is not None and self._has_int96(c)]
        if not columns:
            return frozenset()
        file = pq.ParquetFile(self._input, **{**self._options(), "coerce_int96_timestamp_unit": "us"})
        written = _written(stored) if stored is not None else None
        written = written if written is not None and len(written) == len(self.schema) else None
        wide = set()
        for column in columns:
            field, datatype = self.schema.field(column), _storage_type(file.schema_arrow.field(column).type)
            meant = None if written is None else _storage_type(written.field(column).type)
            if field.name in coarse or (meant is not None and _is_coarser(meant, datatype)):
                self._coarse[column] = file
                if field.name not in coarse and meant is not None and pa.types.is_timestamp(meant):
                    datatype = pa.timestamp(meant.unit, datatype.tz)
                field = field.with_type(datatype)
            else:
                wide.add(field.name)
            self.schema = self.schema.set(column, field.with_metadata(_INT96))
        return frozenset(wide)

    def _has_int96(self, column: int) -> bool:
        return any(self.stored_schema.column(leaf).physical_type == "INT96" for leaf in self.leaves([column]))

    def _check_text(self, name: str, array: pa.Array) -> None:
        """Refuse text that is not UTF-8: Parquet's library accepts it, and later uses of it fail."""
        if _has_text(array.type):
            try:
                array.validate(full=True)
            except pa.ArrowInvalid as error:
                message = f"Parquet error: a text of column '{name}' is damaged: {error}"
                raise ReadError(message, path=self.path, hint=DAMAGED_HINT) from error

    def damaged(self, what: str, offset: int | None = None) -> ReadError:
        """Return the error for a damaged file; ``offset`` is the place of the damage."""
        return ReadError(f"Parquet error: {what}", path=self.path, offset=offset, hint=DAMAGED_HINT)

    def can_read(self, row_group: int, leaf: int) -> bool:
        """Return True if a stored column can be read in one row group."""
        try:
            for _ in self._file.reader.iter_batches(_FEW_ROWS, [row_group], [leaf], False):
                pass
        except ReadError:
            raise
        except _ERRORS:
            return False
        return True

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Convert errors of the Parquet library to ``ReadError``."""
        try:
            yield
        except ReadError:  # it is also a RuntimeError
            raise
        except _ERRORS as error:
            raise _translated(error, self.path) from error

    def _read_footer(self) -> tuple[int, int, ParquetFooter]:
        """Read the footer: its place, its size, and its content."""
        if self.size < _TAIL:
            raise ReadError(
                f"Parquet error: EOF: Parquet file too small. Size is {self.size} but need {_TAIL}",
                path=self.path,
                offset=0,
                hint=_CUT_HINT,
            )
        tail = self._input.read_at(_TAIL, self.size - _TAIL)
        if tail[4:] == b"PARE":
            raise UnsupportedError("the file is encrypted", path=self.path, hint="Decrypt it before it is read.")
        if tail[4:] != b"PAR1":
            raise ReadError(
                "Parquet error: Parquet error: Invalid Parquet file. Corrupt footer",
                path=self.path,
                offset=self.size - 4,
                hint=_CUT_HINT,
            )
        length = int.from_bytes(tail[:4], "little")
        cap = min(MAX_PARQUET_FOOTER, self.size - _TAIL)
        check_limit(length, cap, path=self.path, offset=self.size - _TAIL, what="the length of the footer")
        begin = self.size - _TAIL - length
        return begin, length, parse_footer(self._input.read_at(length, begin), path=self.path, offset=begin)

    def _options(self) -> dict[str, Any]:
        """The library's options for this file that its version supports."""
        wanted = {
            "page_checksum_verification": True,
            "pre_buffer": False,
            "thrift_string_size_limit": max(self._footer_size, MIB),
            "thrift_container_size_limit": max(self._footer_size, 1024),
            "arrow_extensions_enabled": False,
            "schema_depth_limit": MAX_DEPTH,
        }
        return {name: value for name, value in wanted.items() if name in _KNOWN}


def _in_step(stored: Iterator[dict[int, pa.Array]], others: Iterator[dict[int, pa.Array]]) -> Iterator[dict[int, Any]]:
    """Yield the batches of ``stored`` joined with the same rows of ``others``, whose batches may be cut elsewhere."""
    ahead: dict[int, pa.Array] = {}
    for batch in stored:
        rows = len(next(iter(batch.values()), ()))
        while len(next(iter(ahead.values()), ())) < rows and (more := next(others, None)):
            ahead = {c: pa.concat_arrays([ahead[c], array]) if ahead else array for c, array in more.items()}
        yield {**batch, **{c: array[:rows] for c, array in ahead.items()}}
        ahead = {c: array[rows:] for c, array in ahead.items()}


def _translated(error: BaseException, path: str) -> ReadError:
    said = str(error).partition("\n")[0].rstrip(":") if isinstance(error, RuntimeError) else str(error)
    text = " ".join(said.split()) or type(error).__name__
    if isinstance(error, pa.ArrowInvalid) and text.startswith(_NESTING):
        return UnsupportedError(
            f"Parquet error: {text}",
            path=path,
            hint="The file is complete, but its schema violates the rules of nested types; write it with another tool.",
        )
    if isinstance(error, pa.ArrowNotImplementedError) or "encrypted" in text:
        return UnsupportedError(f"Parquet error: {text}", path=path, hint="Write the file with other settings.")
    return ReadError(f"Parquet error: {text}", path=path, hint=DAMAGED_HINT)


def _leaf_ranges(schema: pa.Schema, leaves: int) -> list[range] | None:
    """Return the stored columns of each column in the schema, or None if they do not add up."""
    ranges: list[range] = []
    at = 0
    for field in schema:
        count = _leaf_count(field.type)
        ranges.append(range(at, at + count))
        at += count
    return ranges if at == leaves else None


def _leaf_count(datatype: pa.DataType) -> int:
    if pa.types.is_dictionary(datatype):
        return _leaf_count(datatype.value_type)
    return sum(_leaf_count(datatype.field(i).type) for i in range(datatype.num_fields)) if datatype.num_fields else 1


def _has_text(datatype: pa.DataType) -> bool:
    if pa.types.is_dictionary(datatype):
        return _has_text(datatype.value_type)
    is_text = pa.types.is_string(datatype) or pa.types.is_large_string(datatype) or pa.types.is_string_view(datatype)
    return is_text or any(_has_text(datatype.field(i).type) for i in range(datatype.num_fields))


_ARROW_SCHEMA = "ARROW:schema"


def _plain_schema(schema: pa.Schema, stored: str | None) -> pa.Schema:
    """Return the schema for reading: no extension types, no metadata, and dates as written.

    ``stored`` is the file's value for ``ARROW:schema``. The library restores all its types except ``date64``.
    """
    written = _written(stored) if stored is not None else None
    fields = []
    for i, field in enumerate(schema):
        datatype = _storage_type(field.type)
        if written is not None and len(written) == len(schema) and _is_milliseconds(datatype, written.field(i).type):
            datatype = pa.date64()
        fields.append(pa.field(field.name, datatype, field.nullable))
    return pa.schema(fields)


def _storage_type(datatype: pa.DataType) -> pa.DataType:
    """Return the type without extension types, at any depth."""
    if isinstance(datatype, pa.BaseExtensionType):
        return _storage_type(datatype.storage_type)
    if pa.types.is_struct(datatype):
        return pa.struct([_storage_field(f) for f in datatype])
    if pa.types.is_list(datatype):
        return pa.list_(_storage_field(datatype.value_field))
    if pa.types.is_large_list(datatype):
        return pa.large_list(_storage_field(datatype.value_field))
    if pa.types.is_fixed_size_list(datatype):
        return pa.list_(_storage_field(datatype.value_field), datatype.list_size)
    if pa.types.is_map(datatype):
        return pa.map_(_storage_field(datatype.key_field), _storage_field(datatype.item_field), datatype.keys_sorted)
    return datatype


def _in_type(values: pa.Array, datatype: pa.DataType) -> pa.Array:
    """Return the values in their type in the :func:`_plain_schema`."""
    if values.type != datatype:
        return values.cast(datatype)
    # Map types with different entry names are equal. In a file, entries may be named after their column.
    return values if str(values.type) == str(datatype) else values.view(datatype)


_INT96: Final = {b"chunkmill:stored": b"INT96"}


def is_int96(field: pa.Field) -> bool:
    """Return whether a column of a file's schema is stored as INT96: times without a unit."""
    return bool(field.metadata == _INT96)


def _is_coarser(meant: pa.DataType, datatype: pa.DataType) -> bool:
    """Return whether a file's Arrow schema has microseconds or a coarser unit for a column read as ``datatype``."""
    if pa.types.is_timestamp(meant):
        return bool(pa.types.is_timestamp(datatype) and meant.unit != "ns")
    return bool(meant == datatype)


def _storage_field(field: pa.Field) -> pa.Field:
    return field.with_type(_storage_type(field.type))


def _is_milliseconds(datatype: pa.DataType, written: pa.DataType) -> bool:
    return bool(pa.types.is_date32(datatype) and pa.types.is_date64(written))


def _written(stored: str) -> pa.Schema | None:
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored)))
    except (binascii.Error, ValueError, pa.ArrowException, OSError, RuntimeError):
        return None  # the library also reads it, and did not refuse it


BATCH_BYTES: Final = 32 * MIB
"""The bytes of values that are read together."""

BATCH_ROWS: Final = 65_536
"""The maximum number of rows that are read together, and of rows of a chunk."""

_MOST_EXPANDED: Final = 4096 * MIB
"""The maximum of a batch's rows times the bytes of an unusual dictionary: all rows might have the same long text."""

_WIDTH = 8


def check_row_groups(file: ParquetFile, row_groups: Sequence[int], leaves: Sequence[int]) -> _Expanded:
    """Refuse row groups with impossible footers or page headers; return the sizes that they may expand to.

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
                raise file.damaged(f"{what} is {column.values:,}, but there are {rows:,} rows", file.footer_at)
            expanded = _check_column(file, group, leaf)
            size += expanded.size
            dictionary = max(dictionary, expanded.dictionary)
    return _Expanded(size, dictionary)


def check_cells(file: ParquetFile, rows: int, leaves: Sequence[int], columns: int) -> None:
    """Refuse more rows than a file of this size can credibly hold. Raises ``ReadError``."""
    cells = rows * max(len(leaves), columns, 1)
    cap = max(FREE_CELLS, file.size * MAX_VALUES_PER_BYTE)
    check_limit(cells, cap, path=file.path, offset=file.footer_at, what="the number of values (rows times columns)")


@contextmanager
def placed(file: ParquetFile, row_groups: Sequence[int], leaves: Sequence[int]) -> Iterator[None]:
    """Add the offset of the damaged page, or else of the damaged column, to a ``ReadError`` in the block."""
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
    """One page: the places of its header and data, its sizes, its declared number of values, and its CRC."""

    offset: int
    data: int
    compressed: int
    uncompressed: int
    values: int
    is_dictionary: bool
    crc: int | None


class _Bytes:
    """The bytes of a column: read at once if they are few, else in windows.

    One read for a small column, instead of one per page, saves 5 % of the time for a local file with row groups of 200
    rows. In a store, each read is a request.
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
    """The size that columns may expand to: about the bytes of their values, and of an unusual text dictionary."""

    size: int
    dictionary: int


def _check_column(file: ParquetFile, row_group: int, leaf: int) -> _Expanded:
    """Check every page header of a stored column. Raises ``ReadError`` for incredible headers."""
    begin, end, column = _extent(file, row_group, leaf)
    num_values = dictionary = 0
    size = column.value_bytes
    for page in _pages(file, begin, end, column):
        if page.is_dictionary:
            if column.physical_type == _BYTE_ARRAY and page.uncompressed > _USUAL_DICTIONARY:
                dictionary = max(dictionary, page.uncompressed)
            size = max(size, column.values * page.uncompressed // max(page.values, 1))
        else:
            num_values += page.values
    if num_values < column.values:
        raise file.damaged(
            f"{_place(column, row_group)} has {num_values:,} values, but the footer counts {column.values:,}", begin
        )
    return _Expanded(size, dictionary)


def _damaged_page(file: ParquetFile, row_group: int, leaf: int) -> ReadError | None:
    """Return the error of a stored column's first page with a wrong header or checksum, or None if all are right."""
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
    """Return the start and required end of a stored column, and its description in the footer."""
    column = file.footer.row_groups[row_group].columns[leaf]
    begin, size = column.start, column.compressed
    what = _place(column, row_group)
    check_limit(begin, file.footer_at, path=file.path, offset=file.footer_at, what=f"the place of {what}")
    check_limit(size, file.footer_at - begin, path=file.path, offset=file.footer_at, what=f"the size of {what}")
    return begin, begin + size, column


def _pages(file: ParquetFile, begin: int, end: int, column: StoredColumn) -> Iterator[_Page]:
    """Yield the checked pages of a column, until the column ends or has all its values."""
    wanted, num_values = column.values, 0
    limit = min(end + _PADDING, file.footer_at)
    stored = _Bytes(file, begin, limit)
    at = begin
    while at < end and num_values < wanted:
        page = _page(file, stored, at, limit)
        yield page
        num_values += 0 if page.is_dictionary else page.values
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
        raise _malformed(file, at, f"it claims {page.compressed:,} bytes, but {limit - page.data:,} are left")
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
    """Yield batches of the columns at these positions: the number of rows, never 0, and the columns by position.

    A batch has at most ``rows`` rows, by default about ``BATCH_BYTES``. Without columns, only the numbers of rows are
    yielded. Raises ``ReadError`` with the offset of the damage.
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
    """Open a file. INT96 columns are read in microseconds if their times do not fit into nanoseconds.

    Warns (``ReadWarning``) about such columns. Raises ``ReadError``.
    """
    file = ParquetFile(path)
    if not file.wide:
        return file
    with file:
        beyond = beyond_nanoseconds(file, file.wide)
    return ParquetFile(path, file.version, beyond)


def beyond_nanoseconds(file: ParquetFile, names: Collection[str]) -> frozenset[str]:
    """Find the INT96 columns among ``names`` with a time that 64 bits of nanoseconds cannot hold.

    INT96 has no unit, so all values of these columns are read. Warns (``ReadWarning``) of the columns that it finds, as
    they are then read in microseconds. Raises ``ReadError``.
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
    """Yield the timestamps in a column, at any depth."""
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
    """Return whether any time (in us) does not fit into 64 bits of nanoseconds."""
    ends = pc.min_max(times.view(pa.int64()))
    lowest, highest = ends["min"].as_py(), ends["max"].as_py()
    return lowest is not None and (lowest < -_MOST_MICROSECONDS or highest > _MOST_MICROSECONDS)


_MOST_MICROSECONDS: Final = (2**63 - 1) // 1000
