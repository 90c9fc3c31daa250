"""What of a Parquet footer the Parquet library does not give: its key/value pairs in their order."""

from __future__ import annotations

from typing import Final

from ...engine.errors import ReadError
from ...engine.limits import MAX_NESTING
from .thrift import BINARY, INTEGERS, LIST, Cursor, ThriftError

DAMAGED_HINT: Final = "The file is damaged; copy it again."

_SCHEMA = 2
_NUM_CHILDREN = 5
_KEY_VALUES = 5


def key_value_pairs(footer: bytes, *, path: str, offset: int) -> list[tuple[str, str]]:
    """The pairs of a footer that begins at ``offset``; a value that is not there is ``""``.

    Raises ``ReadError`` where the footer is no Thrift.
    """
    cursor = Cursor(footer)
    try:
        for field in cursor.fields():
            if field.id == _KEY_VALUES and field.type == LIST:
                size, _ = cursor.list_head()
                return [_pair(cursor) for _ in range(size)]
            cursor.skip(field.type)
    except ThriftError as error:
        raise ReadError(
            f"Parquet error: the footer cannot be read: {error}",
            path=path,
            offset=offset + error.at,
            hint=DAMAGED_HINT,
        ) from None
    return []


def _pair(cursor: Cursor) -> tuple[str, str]:
    texts = {1: "", 2: ""}
    for field in cursor.fields():
        if field.id in texts and field.type == BINARY:
            texts[field.id] = cursor.binary().decode("utf-8", "replace")
        else:
            cursor.skip(field.type)
    return texts[1], texts[2]


def check_schema(footer: bytes, *, path: str, offset: int) -> None:
    """Refuse a schema that is nested beyond reason, before anybody follows it.

    Raises ``ReadError`` where it is, or where the footer is no Thrift.
    """
    cursor = Cursor(footer)
    try:
        for field in cursor.fields():
            if field.id == _SCHEMA and field.type == LIST:
                size, _ = cursor.list_head()
                _check_depth(cursor, size)
                return
            cursor.skip(field.type)
    except ThriftError as error:
        raise ReadError(
            f"Parquet error: Parquet error: Invalid Parquet file. Corrupt footer: {error}",
            path=path,
            offset=offset + error.at,
            hint=DAMAGED_HINT,
        ) from None


def _check_depth(cursor: Cursor, elements: int) -> None:
    """Walk the tree of the schema, which is stored parents first."""
    left: list[int] = []
    for _ in range(elements):
        children = 0
        for field in cursor.fields():
            if field.id == _NUM_CHILDREN and field.type in INTEGERS:
                children = cursor.integer()
            else:
                cursor.skip(field.type)
        while left and left[-1] == 0:
            left.pop()
        if left:
            left[-1] -= 1
        if children > 0:
            left.append(children)
        if len(left) > 4 * MAX_NESTING:
            raise ThriftError("the schema is nested too deep", cursor.at)
