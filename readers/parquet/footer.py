"""The footer of a Parquet file: row groups, stored columns, key/value pairs; and Thrift, in which it is written.

Format: https://github.com/apache/parquet-format, ``FileMetaData``. It is read here too, beside the Parquet library, so
that what it claims can be checked before the library believes it. Of Thrift's compact protocol there is as much as it
takes to skip what nobody wants.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ...engine.errors import ReadError, UnsupportedError
from ...engine.limits import MAX_NESTING

TRUE: Final = 1
BYTE: Final = 3
BINARY: Final = 8
LIST: Final = 9
SET: Final = 10
MAP: Final = 11
STRUCT: Final = 12
INTEGERS: Final = (4, 5, 6)

_FALSE, _DOUBLE, _UUID = 2, 7, 13


class ThriftError(ValueError):
    """Bytes that are no Thrift of the compact protocol; ``at`` is where."""

    def __init__(self, why: str, at: int) -> None:
        super().__init__(why)
        self.at = at


class CutThriftError(ThriftError):
    """The bytes end too early."""


class _Field(NamedTuple):
    """A field of a struct that the cursor stands before: its number and the type of its value."""

    id: int
    type: int


class ThriftCursor:
    """Reads values from ``data``, from ``at`` on. Raises ``ThriftError``; never looks beyond the end."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def fields(self) -> Iterator[_Field]:
        """The fields of a struct; whoever iterates has to read or skip the value of each."""
        last = 0
        while True:
            head = self.byte()
            if head == 0:
                return
            delta, kind = head >> 4, head & 15
            last = last + delta if delta else self.integer()
            yield _Field(last, kind)

    def byte(self) -> int:
        """One byte."""
        if self.at >= len(self.data):
            raise CutThriftError("the data ends inside a value", self.at)
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        """An unsigned number of up to 64 bits."""
        at = self.at
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
            raise CutThriftError(f"a list of {size:,} elements cannot fit", self.at)
        return size, head & 15

    def skip(self, kind: int, depth: int = 0) -> None:
        """Pass over a value of a type."""
        if depth > MAX_NESTING:
            raise ThriftError("structures are nested too deep", self.at)
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
            for field in self.fields():
                self.skip(field.type, depth + 1)
        elif kind == _UUID:
            self._advance(16)
        else:
            raise ThriftError(f"there is no type {kind}", self.at)

    def _skip_map(self, depth: int) -> None:
        size = self.varint()
        if size > len(self.data) - self.at:
            raise CutThriftError(f"a map of {size:,} entries cannot fit", self.at)
        if size:
            kinds = self.byte()
            self._skip_elements(size, (kinds >> 4, kinds & 15), depth)

    def _skip_elements(self, size: int, kinds: tuple[int, ...], depth: int) -> None:
        for _ in range(size):
            for kind in kinds:
                if kind in (TRUE, _FALSE):
                    self._advance(1)  # in a list a boolean takes a byte
                else:
                    self.skip(kind, depth + 1)

    def _advance(self, size: int) -> None:
        if size > len(self.data) - self.at:
            raise CutThriftError("the data ends inside a value", self.at)
        self.at += size


MAX_DEPTH: Final = 4 * MAX_NESTING
"""Deepest schema; a list takes up to three levels of it, a map too."""

_TYPE, _NAME, _CHILDREN, _CONVERTED, _SCALE, _PRECISION, _LOGICAL = 1, 4, 5, 6, 7, 8, 10

_DECIMAL, _TIME, _TIMESTAMP, _INTEGER = 5, 7, 8, 10
_UNKNOWN: Final = 11
_CODES: Final = {1: 0, 2: 1, 3: 3, 4: 4, _DECIMAL: 5, 6: 6, 12: 19, 13: 20}
"""The older code that means the same, by the number of a logical type."""
_UNITS: Final = {_TIME: {1: 7, 2: 8}, _TIMESTAMP: {1: 9, 2: 10}}
"""That of times, by the number of their unit."""
_INTEGERS: Final = {(8 << i, signed): 11 + i + 4 * signed for i in range(4) for signed in (False, True)}
"""That of integers, by their width in bits and whether they have a sign."""


class _Leaf(NamedTuple):
    """A stored column as the schema has it; the type is a code of the format."""

    path: str
    physical_type: int


def _parse_leaves(cursor: ThriftCursor, elements: int) -> list[_Leaf]:
    """Return the leaves of a schema, which is stored as a tree, parents first.

    Raises ``ThriftError`` where it is nested too deep, or says two things about a type.
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
            raise ThriftError("the schema is nested too deep", cursor.at)
    return leaves


def _element(cursor: ThriftCursor) -> tuple[str, dict[int, Any]]:
    name = ""
    values: dict[int, Any] = {}
    for item in cursor.fields():
        if item.id == _NAME and item.type == BINARY:
            name = cursor.binary().decode("utf-8", "replace")
        else:
            _take(cursor, item.id, item.type, values)
    return name, values


def _take(cursor: ThriftCursor, number: int, kind: int, values: dict[int, Any], depth: int = 0) -> None:
    """Read a number, a truth, or a struct of them; skip everything else."""
    if kind in INTEGERS:
        values[number] = cursor.integer()
    elif kind == BYTE:
        values[number] = cursor.byte()
    elif kind == STRUCT and depth < 3:
        inner: dict[int, Any] = {}
        for item in cursor.fields():
            _take(cursor, item.id, item.type, inner, depth + 1)
        values[number] = inner
    else:
        values[number] = kind == TRUE
        cursor.skip(kind)


def _check_type(name: str, element: dict[int, Any], at: int) -> None:
    """Compare a logical type with the older code, scale and precision that are written beside it."""
    logical = element.get(_LOGICAL, {})
    if not isinstance(logical, dict):
        raise ThriftError(f"{name!r} has a logical type that is no struct", at)
    for kind, given in logical.items():
        if not isinstance(given, dict):
            raise ThriftError(f"{name!r} has a logical type {kind} that is no struct", at)
        code = _number(element, _CONVERTED)
        if code is not None and kind != _UNKNOWN and code != _code(kind, given):
            raise ThriftError(f"{name!r} has the logical type {kind} and the converted type {code}", at)
        for place, number in ((_SCALE, 1), (_PRECISION, 2)) if kind == _DECIMAL else ():
            if _number(element, place) not in (None, _number(given, number) or 0):
                word = "scale" if place == _SCALE else "precision"
                raise ThriftError(f"{name!r} is a decimal of two {word}s", at)


def _code(kind: int, given: dict[int, Any]) -> int | None:
    """The older code that means a logical type; None where it has none."""
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


class StoredColumn(NamedTuple):
    """One column of one row group. Sizes are in bytes, codes those of the format; ``None``: not said."""

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
        """About the bytes of its values, once they are read, as far as the footer tells."""
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

    leaves: list[_Leaf] = field(default_factory=list)
    row_groups: list[_RowGroup] = field(default_factory=list)
    key_values: list[tuple[str, str]] = field(default_factory=list)
    created_by: str = ""

    @property
    def rows(self) -> int:
        """Rows of all row groups."""
        return sum(group.rows for group in self.row_groups)


def parse_footer(data: bytes, *, path: str, offset: int) -> ParquetFooter:
    """Parse a footer that begins at ``offset``.

    Raises ``ReadError`` where it is no Thrift, is nested beyond reason, or lacks what it must have.
    """
    cursor = ThriftCursor(data)
    footer = ParquetFooter()
    rows: int | None = None
    try:
        for item in cursor.fields():
            if item.id == _SCHEMA and item.type == LIST:
                footer.leaves = _parse_leaves(cursor, cursor.list_head()[0])
            elif item.id == _ROWS and item.type in INTEGERS:
                rows = cursor.integer()
            elif item.id == _ROW_GROUPS and item.type == LIST:
                footer.row_groups = [_row_group(cursor) for _ in range(cursor.list_head()[0])]
            elif item.id == _KEY_VALUES and item.type == LIST:
                footer.key_values = [_pair(cursor) for _ in range(cursor.list_head()[0])]
            elif item.id == _CREATED_BY and item.type == BINARY:
                footer.created_by = _text(cursor)
            else:
                cursor.skip(item.type)
        _check(footer, rows, cursor.at)
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
    return footer


def _check(footer: ParquetFooter, rows: int | None, at: int) -> None:
    """Compare what a footer says of its rows and columns in two places."""
    if rows is not None and rows != footer.rows:
        raise ThriftError(f"it counts {rows:,} rows, and its row groups {footer.rows:,}", at)
    for i, group in enumerate(footer.row_groups):
        if len(group.columns) != len(footer.leaves):
            raise ThriftError(
                f"row group {i} has {len(group.columns)} columns, and the schema {len(footer.leaves)}", at
            )
        for column, leaf in zip(group.columns, footer.leaves, strict=True):
            if (column.path, column.physical_type) != leaf:
                raise ThriftError(
                    f"row group {i} has a column {column.path!r} of the physical type {column.physical_type} where the"
                    f" schema has {leaf.path!r} of {leaf.physical_type}",
                    at,
                )


def _row_group(cursor: ThriftCursor) -> _RowGroup:
    rows = -1
    columns: tuple[StoredColumn, ...] = ()
    for item in cursor.fields():
        if item.id == 1 and item.type == LIST:
            columns = tuple(_column(cursor) for _ in range(cursor.list_head()[0]))
        elif item.id == 3 and item.type in INTEGERS:
            rows = cursor.integer()
        else:
            cursor.skip(item.type)
    if rows < 0:
        raise ThriftError("a row group without a number of rows", cursor.at)
    return _RowGroup(rows, columns)


def _column(cursor: ThriftCursor) -> StoredColumn:
    found: StoredColumn | None = None
    encrypted = False
    for item in cursor.fields():
        if item.id == 3 and item.type == STRUCT:
            found = _column_metadata(cursor)
        else:
            encrypted = encrypted or item.id == 8
            cursor.skip(item.type)
    if encrypted:
        raise UnsupportedError("a column of the file is encrypted", hint="Decrypt it before it is read.")
    if found is None:
        raise ThriftError("a column without metadata", cursor.at)
    return found


def _column_metadata(cursor: ThriftCursor) -> StoredColumn:
    numbers = {1: -1, 4: -1, 5: -1, 6: -1, 7: -1, 9: -1}
    dictionary: int | None = None
    encodings: tuple[int, ...] = ()
    path = ""
    bounds: tuple[bytes | None, bytes | None] = (None, None)
    for item in cursor.fields():
        if item.type in INTEGERS and item.id in numbers:
            numbers[item.id] = cursor.integer()
        elif item.type in INTEGERS and item.id == 11:
            dictionary = cursor.integer()
        elif item.id == 2 and item.type == LIST:
            encodings = tuple(cursor.integer() for _ in range(cursor.list_head()[0]))
        elif item.id == 3 and item.type == LIST:
            path = ".".join(_text(cursor) for _ in range(cursor.list_head()[0]))
        elif item.id == 12 and item.type == STRUCT:
            bounds = _bounds(cursor)
        else:
            cursor.skip(item.type)
    kind, codec, values, uncompressed, compressed, data = numbers.values()
    if min(values, uncompressed, compressed, data) < 0:
        raise ThriftError("a column with a size that is negative or missing", cursor.at)
    return StoredColumn(kind, encodings, path, codec, values, uncompressed, compressed, data, dictionary, *bounds)


def _bounds(cursor: ThriftCursor) -> tuple[bytes | None, bytes | None]:
    """Lowest and highest value, as they are stored."""
    lowest = highest = None
    for item in cursor.fields():
        if item.id == 5 and item.type == BINARY:
            highest = cursor.binary()
        elif item.id == 6 and item.type == BINARY:
            lowest = cursor.binary()
        else:
            cursor.skip(item.type)
    return lowest, highest


def _pair(cursor: ThriftCursor) -> tuple[str, str]:
    texts = {1: "", 2: ""}
    for item in cursor.fields():
        if item.id in texts and item.type == BINARY:
            texts[item.id] = _text(cursor)
        else:
            cursor.skip(item.type)
    return texts[1], texts[2]


def _text(cursor: ThriftCursor) -> str:
    return cursor.binary().decode("utf-8", "replace")
