"""The schema in the footer of a Parquet file, and what it says twice.

Format: https://github.com/apache/parquet-format, ``SchemaElement``; LogicalTypes.md for the older codes of types.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ...engine.limits import MAX_NESTING
from .thrift import BINARY, BYTE, INTEGERS, STRUCT, TRUE, Cursor, ThriftError

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


class Leaf(NamedTuple):
    """A stored column as the schema has it; the type is a code of the format."""

    path: str
    physical_type: int


def parse_leaves(cursor: Cursor, elements: int) -> list[Leaf]:
    """Return the leaves of a schema, which is stored as a tree, parents first.

    Raises ``ThriftError`` where it is nested too deep, or says two things about a type.
    """
    leaves: list[Leaf] = []
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
            leaves.append(Leaf(".".join([*names[1:], name]), -1 if kind is None else kind))
        if len(left) > MAX_DEPTH:
            raise ThriftError("the schema is nested too deep", cursor.at)
    return leaves


def _element(cursor: Cursor) -> tuple[str, dict[int, Any]]:
    name = ""
    values: dict[int, Any] = {}
    for item in cursor.fields():
        if item.id == _NAME and item.type == BINARY:
            name = cursor.binary().decode("utf-8", "replace")
        else:
            _take(cursor, item.id, item.type, values)
    return name, values


def _take(cursor: Cursor, number: int, kind: int, values: dict[int, Any], depth: int = 0) -> None:
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
        for field, number in ((_SCALE, 1), (_PRECISION, 2)) if kind == _DECIMAL else ():
            if _number(element, field) not in (None, _number(given, number) or 0):
                word = "scale" if field == _SCALE else "precision"
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
