"""Answers to agents: rows as JSON, bounded in rows and bytes. They say where they were cut, and how to go on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ..chunk import json_of
from ..errors import UsageError

_MOST_ITEMS: Final = 64
"""Values of a list that are shown."""
_MOST_TEXT: Final = 2_000
"""Characters of a text that are shown."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Page:
    """The rows that one answer may have: at most ``limit`` from ``offset`` on, and so many rows and bytes in all."""

    limit: int
    offset: int
    most_rows: int
    most_bytes: int

    def __post_init__(self) -> None:
        if self.limit < 1 or self.offset < 0:
            raise UsageError("limit is at least 1, and offset at least 0")

    def of_batches(self, batches: Iterable[pa.RecordBatch]) -> Row:
        """The rows of record batches."""
        return self.of_rows(_rows_of(batches, self.offset), self.offset)

    def of_rows(self, rows: Iterable[Row], skipped: int = 0) -> Row:
        """The rows, of which so many were skipped already. They are taken one by one, and no more than needed."""
        shown: list[Row] = []
        size, most = 0, min(self.limit, self.most_rows)
        for at, row in enumerate(rows, skipped):
            if at < self.offset:
                continue
            if len(shown) == most:
                return self._cut(shown, f"there are more than {most:,} rows")
            size += len(json.dumps(row, ensure_ascii=False).encode()) + 1
            if size > self.most_bytes:
                if not shown:
                    raise UsageError(
                        f"row {at:,} alone has more than {self.most_bytes:,} bytes", hint="Ask for fewer columns."
                    )
                return self._cut(shown, f"more rows would have more than {self.most_bytes:,} bytes")
            shown.append(row)
        return {"rows": shown}

    def _cut(self, shown: list[Row], why: str) -> Row:
        rest = f"ask again with offset {self.offset + len(shown)}"
        return {"rows": shown, "cut": f"{why}: {rest}, or ask for fewer rows or columns, or for an aggregate"}


def _rows_of(batches: Iterable[pa.RecordBatch], skipped: int) -> Iterator[Row]:
    """The rows of batches, without the first ones."""
    for batch in batches:
        first = min(skipped, len(batch))
        skipped -= first
        names = _told_apart(batch.schema.names)
        for at in range(first, len(batch)):
            yield {name: shown_value(batch.column(i)[at]) for i, name in enumerate(names)}


def _told_apart(names: Sequence[str]) -> list[str]:
    """Names of columns, of which a join may have two that are the same.

    >>> _told_apart(["id", "x", "id"])
    ['id', 'x', 'id (2)']
    """
    return [name if (n := names[: at + 1].count(name)) == 1 else f"{name} ({n})" for at, name in enumerate(names)]


def shown_value(value: pa.Scalar) -> Any:
    """A value as JSON data: bytes are counted, and long lists and texts are cut and say so.

    >>> shown_value(pa.scalar(b"abc")), shown_value(pa.scalar([1, 2])), shown_value(pa.scalar(["x"] * 66))[63:]
    ('3 bytes', [1, 2], ['x', '… 2 more'])
    """
    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_dictionary(kind):
        return shown_value(value.value)
    if pa.types.is_map(kind):
        return shown_value(pa.scalar(value.as_py(), pa.list_(pa.struct(list(_fields_of_map(kind))))))
    if pa.types.is_struct(kind):
        return {name: shown_value(item) for name, item in value.items()}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        if pa.types.is_uint8(kind.value_type) and len(value.values) > _MOST_ITEMS:
            return f"{len(value.values):,} bytes"
        shown = [shown_value(item) for item in value.values[:_MOST_ITEMS]]
        more = len(value.values) - len(shown)
        return [*shown, f"… {more:,} more"] if more else shown
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return f"{len(value.as_py()):,} bytes"
    return shown_text(json_of(value))


def _fields_of_map(kind: pa.MapType) -> tuple[pa.Field, pa.Field]:
    return pa.field("key", kind.key_type), pa.field("value", kind.item_type)


def shown_text(value: Any) -> Any:
    """The value; of a long text its beginning.

    >>> shown_text("a" * 2_005)[-20:]
    'a… 5 more characters'
    """
    if isinstance(value, str) and len(value) > _MOST_TEXT:
        return f"{value[:_MOST_TEXT]}… {len(value) - _MOST_TEXT:,} more characters"
    return value
