"""The footer of a Parquet file: row groups, stored columns, key/value pairs; and its encoding, Thrift.

Format: https://github.com/apache/parquet-format, ``FileMetaData``. The Parquet library also reads the footer; this
module checks the footer's claims before the library trusts them. It reads Thrift's compact protocol as far as necessary
to skip unused fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

from ...engine.errors import ReadError, UnsupportedError
from ...engine.limits import MAX_NESTING, MIB

TRUE: Final = 1
BYTE: Final = 3
BINARY: Final = 8
LIST: Final = 9
SET: Final = 10
MAP: Final = 11
STRUCT: Final = 12
INTEGERS: Final = (4, 5, 6)

_REMEMBERED_BYTES: Final = 4 * MIB

_FALSE, _DOUBLE, _UUID = 2, 7, 13


class ThriftError(ValueError):
    """Bytes that are not Thrift of the compact protocol; ``at`` is their place."""

    def __init__(self, why: str, at: int) -> None:
        super().__init__(why)
        self.at = at


class CutThriftError(ThriftError):
    """The bytes end too early."""


T = TypeVar("T")
Wanted = Mapping[int, tuple[tuple[int, ...], "Callable[[ThriftCursor], Any]"]]
"""Fields of a struct by number: their allowed types, and the function that reads them."""

_UNWANTED: Final[tuple[tuple[int, ...], Callable[..., Any]]] = ((), len)


class ThriftCursor:
    """Reads values from ``data``, from ``at`` on. Raises ``ThriftError``; never reads beyond the end."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and type of each field of a struct. The caller must read or skip each value."""
        last = 0
        while True:
            head = self.byte()
            if head == 0:
                return
            delta, kind = head >> 4, head & 15
            last = last + delta if delta else self.integer()
            yield last, kind

    def struct(self, wanted: Wanted) -> dict[int, Any]:
        """Return the values of a struct's wanted fields by number. Other fields, and other types, are skipped."""
        values: dict[int, Any] = {}
        for number, kind in self.fields():
            kinds, read = wanted.get(number, _UNWANTED)
            if kind in kinds:
                values[number] = read(self)
            else:
                self.skip(kind)
        return values

    def elements(self, read: Callable[[ThriftCursor], T]) -> list[T]:
        """Return the elements of a list, each read by ``read``."""
        return [read(self) for _ in range(self.list_head()[0])]

    def byte(self) -> int:
        """One byte."""
        if self.at >= len(self.data):
            raise CutThriftError("the data ends inside a value", self.at)
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        """An unsigned number of up to 64 bits."""
        at = self.at
        # Most numbers have one byte. This saves a quarter of the time for a file with row groups of 200 rows, and none
        # in benchmarks/bench_parquet.py.
        if at < len(self.data) and self.data[at] < 0x80:
            self.at = at + 1
            return self.data[at]
        value = shift = 0
        while shift < 70:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ThriftError("a number has more than 64 bits", self.at)

    def integer(self) -> int:
        """A signed number."""
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def binary(self) -> bytes:
        """A string of bytes."""
        size = self.varint()
        begin = self.at
        self._advance(size)
        return self.data[begin : self.at]

    def list_head(self) -> tuple[int, int]:
        """Number and type of the elements of a list or set."""
        head = self.byte()
        size = head >> 4
        if size == 15:
            size = self.varint()
        if size > len(self.data) - self.at:
            raise CutThriftError(f"a list of {size:,} elements does not fit into the data", self.at)
        return size, head & 15

    def skip(self, kind: int, depth: int = 0) -> None:
        """Skip a value of a type."""
        if depth > MAX_NESTING:
            raise ThriftError("structures are nested too deeply", self.at)
        if kind in (TRUE, _FALSE):
            return
        if kind == BYTE:
            self._advance(1)
        elif kind in INTEGERS:
            self.varint()
        elif kind == _DOUBLE:
            self._advance(8)
        elif kind == BINARY:
            self._advance(self.varint())
        elif kind in (LIST, SET):
            size, element = self.list_head()
            self._skip_elements(size, (element,), depth)
        elif kind == MAP:
            self._skip_map(depth)
        elif kind == STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth + 1)
        elif kind == _UUID:
            self._advance(16)
        else:
            raise ThriftError(f"there is no type {kind}", self.at)

    def _skip_map(self, depth: int) -> None:
        size = self.varint()
        if size > len(self.data) - self.at:
            raise CutThriftError(f"a map of {size:,} entries does not fit into the data", self.at)
        if size:
            kinds = self.byte()
            self._skip_elements(size, (kinds >> 4, kinds & 15), depth)

    def _skip_elements(self, size: int, kinds: tuple[int, ...], depth: int) -> None:
        for _ in range(size):
            for kind in kinds:
                if kind in (TRUE, _FALSE):
                    self._advance(1)  # in a list, a boolean takes a byte
                else:
                    self.skip(kind, depth + 1)

    def _advance(self, size: int) -> None:
        if size > len(self.data) - self.at:
            raise CutThriftError("the data ends inside a value", self.at)
        self.at += size


MAX_DEPTH: Final = 4 * MAX_NESTING
"""The maximum depth of a schema, in which a list or a map takes up to three levels."""

_TYPE, _NAME, _CHILDREN, _CONVERTED, _SCALE, _PRECISION, _LOGICAL = 1, 4, 5, 6, 7, 8, 10

_DECIMAL, _TIME, _TIMESTAMP, _INTEGER = 5, 7, 8, 10
_UNKNOWN: Final = 11
_CODES: Final = {1: 0, 2: 1, 3: 3, 4: 4, _DECIMAL: 5, 6: 6, 12: 19, 13: 20}
"""The equivalent older code (ConvertedType), by the number of a logical type."""
_UNITS: Final = {_TIME: {1: 7, 2: 8}, _TIMESTAMP: {1: 9, 2: 10}}
"""The ConvertedType of times, by the number of their unit."""
_INTEGERS: Final = {(8 << i, signed): 11 + i + 4 * signed for i in range(4) for signed in (False, True)}
"""The ConvertedType of integers, by their width in bits and their sign."""


class _Leaf(NamedTuple):
    """A stored column in the schema; the type is a code of the format."""

    path: str
    physical_type: int


def _parse_leaves(cursor: ThriftCursor, elements: int) -> list[_Leaf]:
    """Return the leaves of a schema, which is stored as a tree, parents first.

    Raises ``ThriftError`` if it is nested too deeply, or describes a type in contradictory ways.
    """
    leaves: list[_Leaf] = []
    names: list[str] = []
    left: list[int] = []
    for i in range(elements):
        begin = cursor.at
        name, element = _element(cursor)
        _check_type(name, element, begin)
        while left and left[-1] == 0:
            left.pop()
            names.pop()
        if left:
            left[-1] -= 1
        children = _number(element, _CHILDREN) or 0
        if children > 0 or i == 0:
            left.append(children)
            names.append(name)
        else:
            kind = _number(element, _TYPE)
            leaves.append(_Leaf(".".join([*names[1:], name]), -1 if kind is None else kind))
        if len(left) > MAX_DEPTH:
            raise ThriftError("the schema is nested too deeply", cursor.at)
    return leaves


def _element(cursor: ThriftCursor) -> tuple[str, dict[int, Any]]:
    name = ""
    values: dict[int, Any] = {}
    for number, kind in cursor.fields():
        if number == _NAME and kind == BINARY:
            name = cursor.binary().decode("utf-8", "replace")
        else:
            _take(cursor, number, kind, values)
    return name, values


def _take(cursor: ThriftCursor, number: int, kind: int, values: dict[int, Any], depth: int = 0) -> None:
    """Read a number, a boolean, or a struct of these; skip everything else."""
    if kind in INTEGERS:
        values[number] = cursor.integer()
    elif kind == BYTE:
        values[number] = cursor.byte()
    elif kind == STRUCT and depth < 3:
        inner: dict[int, Any] = {}
        for place, of in cursor.fields():
            _take(cursor, place, of, inner, depth + 1)
        values[number] = inner
    else:
        values[number] = kind == TRUE
        cursor.skip(kind)


def _check_type(name: str, element: dict[int, Any], at: int) -> None:
    """Compare a logical type with the older code, scale and precision in the same element."""
    logical = element.get(_LOGICAL, {})
    if not isinstance(logical, dict):
        raise ThriftError(f"{name!r} has a logical type that is not a struct", at)
    for kind, given in logical.items():
        if not isinstance(given, dict):
            raise ThriftError(f"{name!r} has a logical type {kind} that is not a struct", at)
        code = _number(element, _CONVERTED)
        if code is not None and kind != _UNKNOWN and code != _code(kind, given):
            raise ThriftError(f"{name!r} has the logical type {kind} and the converted type {code}", at)
        for place, number in ((_SCALE, 1), (_PRECISION, 2)) if kind == _DECIMAL else ():
            if _number(element, place) not in (None, _number(given, number) or 0):
                word = "scale" if place == _SCALE else "precision"
                raise ThriftError(f"{name!r} is a decimal with two different {word}s", at)


def _code(kind: int, given: dict[int, Any]) -> int | None:
    """Return the ConvertedType of a LogicalType, or None if it has none."""
    if kind in _UNITS:
        unit = given.get(2)
        return next((_UNITS[kind].get(u) for u in unit), None) if isinstance(unit, dict) else None
    if kind == _INTEGER:
        return _INTEGERS.get((_number(given, 1) or 0, bool(given.get(2))))
    return _CODES.get(kind)


def _number(values: dict[int, Any], field: int) -> int | None:
    value = values.get(field)
    return value if isinstance(value, int) else None


DAMAGED_HINT: Final = "The file is damaged; copy it again."

_WIDTHS: Final = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
"""Bytes of a value by physical type: boolean, int32, int64, int96, float, double."""

_SCHEMA, _ROWS, _ROW_GROUPS, _KEY_VALUES, _CREATED_BY = 2, 3, 4, 5, 6
_ENCRYPTION = 8


class StoredColumn(NamedTuple):
    """One column of one row group. Sizes are in bytes, codes are those of the format; ``None``: not given."""

    physical_type: int
    encodings: tuple[int, ...]
    path: str
    codec: int
    values: int
    uncompressed: int
    compressed: int
    data_offset: int
    dictionary_offset: int | None
    lowest: bytes | None
    highest: bytes | None

    @property
    def value_bytes(self) -> int:
        """The approximate bytes of its values in memory, by the footer."""
        return max(self.uncompressed, _WIDTHS.get(self.physical_type, 0) * self.values, 1)

    @property
    def start(self) -> int:
        """The byte at which its first page begins."""
        dictionary = self.dictionary_offset
        return dictionary if dictionary is not None and 0 < dictionary < self.data_offset else self.data_offset


class _RowGroup(NamedTuple):
    """A run of rows, and its stored columns in the order of the schema's leaves."""

    rows: int
    columns: tuple[StoredColumn, ...]


@dataclass
class ParquetFooter:
    """The content of a footer."""

    leaves: list[_Leaf]
    row_groups: list[_RowGroup]
    key_values: list[tuple[str, str]]
    created_by: str

    @property
    def rows(self) -> int:
        """Rows of all row groups."""
        return sum(group.rows for group in self.row_groups)


def parse_footer(data: bytes, *, path: str, offset: int) -> ParquetFooter:
    """Parse a footer that begins at ``offset``.

    Raises ``ReadError`` if it is not Thrift, is nested too deeply, or lacks a required field.
    """
    try:
        return _parsed_again(data) if len(data) <= _REMEMBERED_BYTES else _parsed(data)
    except ThriftError as error:
        raise ReadError(
            f"Parquet error: Parquet error: Invalid Parquet file. Corrupt footer: {error}",
            path=path,
            offset=offset + error.at,
            hint=DAMAGED_HINT,
        ) from None
    except UnsupportedError as error:
        error.path = path
        raise


def _parsed(data: bytes) -> ParquetFooter:
    cursor = ThriftCursor(data)
    values = cursor.struct(_FOOTER)
    leaves, groups, pairs = (values.get(number, []) for number in (_SCHEMA, _ROW_GROUPS, _KEY_VALUES))
    footer = ParquetFooter(leaves, groups, pairs, values.get(_CREATED_BY, ""))
    _check(footer, values.get(_ROWS), cursor.at)
    return footer


_parsed_again = lru_cache(maxsize=4)(_parsed)
"""A file of many recordings is opened once for each recording."""


def _check(footer: ParquetFooter, rows: int | None, at: int) -> None:
    """Compare the numbers of rows and columns that a footer gives in two places."""
    if rows is not None and rows != footer.rows:
        raise ThriftError(f"it counts {rows:,} rows, but its row groups have {footer.rows:,}", at)
    for i, group in enumerate(footer.row_groups):
        if len(group.columns) != len(footer.leaves):
            raise ThriftError(
                f"row group {i} has {len(group.columns)} columns, but the schema has {len(footer.leaves)}", at
            )
        for column, leaf in zip(group.columns, footer.leaves, strict=True):
            if (column.path, column.physical_type) != leaf:
                raise ThriftError(
                    f"row group {i} has a column {column.path!r} of the physical type {column.physical_type}, but the "
                    f"schema has {leaf.path!r} of {leaf.physical_type}",
                    at,
                )


def _row_group(cursor: ThriftCursor) -> _RowGroup:
    values = cursor.struct(_ROW_GROUP)
    if values.get(3, -1) < 0:
        raise ThriftError("a row group without a number of rows", cursor.at)
    return _RowGroup(values[3], tuple(values.get(1, ())))


def _column(cursor: ThriftCursor) -> StoredColumn:
    values = cursor.struct(_COLUMN)
    if _ENCRYPTION in values:
        raise UnsupportedError("a column of the file is encrypted", hint="Decrypt it before it is read.")
    column: StoredColumn | None = values.get(3)
    if column is None:
        raise ThriftError("a column without metadata", cursor.at)
    return column


def _column_metadata(cursor: ThriftCursor) -> StoredColumn:
    values = cursor.struct(_METADATA)
    kind, codec, count, uncompressed, compressed, data = (values.get(number, -1) for number in (1, 4, 5, 6, 7, 9))
    if min(count, uncompressed, compressed, data) < 0:
        raise ThriftError("a column without a size, or with a negative one", cursor.at)
    encodings, path, bounds = tuple(values.get(2, ())), ".".join(values.get(3, ())), values.get(12, {})
    sizes, places = (count, uncompressed, compressed), (data, values.get(11))
    return StoredColumn(kind, encodings, path, codec, *sizes, *places, bounds.get(6), bounds.get(5))


def _pair(cursor: ThriftCursor) -> tuple[str, str]:
    values = cursor.struct(_PAIR)
    return values.get(1, ""), values.get(2, "")


def _text(cursor: ThriftCursor) -> str:
    return cursor.binary().decode("utf-8", "replace")


def _list(read: Callable[[ThriftCursor], Any]) -> tuple[tuple[int, ...], Callable[[ThriftCursor], list[Any]]]:
    return (LIST,), lambda cursor: cursor.elements(read)


def _struct(wanted: Wanted) -> tuple[tuple[int, ...], Callable[[ThriftCursor], dict[int, Any]]]:
    return (STRUCT,), lambda cursor: cursor.struct(wanted)


INTEGER: Final = (INTEGERS, ThriftCursor.integer)
"""A field that is a signed number."""

_BYTES: Final = ((BINARY,), ThriftCursor.binary)
_TEXT: Final = ((BINARY,), _text)
_PAIR: Final[Wanted] = {1: _TEXT, 2: _TEXT}
_METADATA: Final[Wanted] = {
    **dict.fromkeys((1, 4, 5, 6, 7, 9, 11), INTEGER),
    2: _list(ThriftCursor.integer),
    3: _list(_text),
    12: _struct({5: _BYTES, 6: _BYTES}),
}
_COLUMN: Final[Wanted] = {3: ((STRUCT,), _column_metadata), _ENCRYPTION: _struct({})}
_ROW_GROUP: Final[Wanted] = {1: _list(_column), 3: INTEGER}
_FOOTER: Final[Wanted] = {
    _SCHEMA: ((LIST,), lambda cursor: _parse_leaves(cursor, cursor.list_head()[0])),
    _ROWS: INTEGER,
    _ROW_GROUPS: _list(_row_group),
    _KEY_VALUES: _list(_pair),
    _CREATED_BY: _TEXT,
}
