"""Answers to agents: plots, and rows as JSON with a limit of rows and bytes, and a note where they were cut."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...lenses import Selector
from ..chunk import json_of
from ..errors import MissingExtraError, UsageError, extra_command

_MOST_ITEMS: Final = 64
"""The most values of a list in an answer."""
_MOST_TEXT: Final = 2_000
"""The most characters of a text in an answer."""

_MOST_POINTS: Final = 4_000
"""The most points of a plot: more are not visible on its thousand pixels."""
_HELD: Final = 1_000_000
"""The most points in memory before they are thinned."""
_LONGEST: Final = 120
"""The most characters of a title."""

Row = dict[str, Any]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class AnswerPage:
    """The page of one answer: up to ``limit`` rows, from number ``offset``, within the limits of rows and bytes."""

    limit: int
    offset: int
    most_rows: int
    most_bytes: int

    def __post_init__(self) -> None:
        if self.limit < 1 or self.offset < 0:
            raise UsageError("limit must be at least 1, and offset at least 0")

    def of_batches(self, batches: Iterable[pa.RecordBatch]) -> Row:
        """The rows of record batches."""
        return self.of_rows(_rows_of(batches, self.offset), self.offset)

    def of_rows(self, rows: Iterable[Row], skipped: int = 0) -> Row:
        """The rows of the page. ``skipped`` is the number of first rows that ``rows`` lacks."""
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
                        f"row {at:,} alone has more than {self.most_bytes:,} bytes", hint="Select fewer columns."
                    )
                return self._cut(shown, f"more rows would exceed {self.most_bytes:,} bytes")
            shown.append(row)
        return {"rows": shown}

    def _cut(self, shown: list[Row], why: str) -> Row:
        rest = f"call again with offset {self.offset + len(shown)}"
        return {"rows": shown, "cut": f"{why}: {rest}, or select fewer rows or columns, or an aggregate"}


def _rows_of(batches: Iterable[pa.RecordBatch], skipped: int) -> Iterator[Row]:
    """The rows of batches, without the first ``skipped`` rows."""
    for batch in batches:
        first = min(skipped, len(batch))
        skipped -= first
        names = _told_apart(batch.schema.names)
        for at in range(first, len(batch)):
            yield {name: shown_value(batch.column(i)[at]) for i, name in enumerate(names)}


def _told_apart(names: Sequence[str]) -> list[str]:
    """The names of columns, with a number after names that a join repeats.

    >>> _told_apart(["id", "x", "id"])
    ['id', 'x', 'id (2)']
    """
    return [name if (n := names[: at + 1].count(name)) == 1 else f"{name} ({n})" for at, name in enumerate(names)]


def shown_value(value: pa.Scalar) -> Any:
    """A value as JSON data: for bytes, their number; long lists and texts are cut, and end with a note.

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
    """The value; for a long text, its beginning and a note.

    >>> shown_text("a" * 2_005)[-20:]
    'a… 5 more characters'
    """
    if isinstance(value, str) and len(value) > _MOST_TEXT:
        return f"{value[:_MOST_TEXT]}… {len(value) - _MOST_TEXT:,} more characters"
    return value


# --- plots


def plotted(batches: Iterable[pa.RecordBatch], *, title: str, select: str) -> bytes:
    """A PNG of the numbers in the third column over the second column, an index.

    Raises ``UsageError`` if there are no numbers, ``SelectorError``, and ``MissingExtraError`` without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError(f"{error.name} is not installed", hint=extra_command("mcp")) from error
    selector = Selector(select)
    x, y = np.empty(0, np.int64), np.empty(0)
    kind = label = None
    for batch in batches:
        label, kind = batch.schema.names[1], batch.schema.types[1]
        some_x, some_y = _points(batch, selector, title, select)
        x, y = np.concatenate([x, some_x]), np.concatenate([y, some_y])
        if len(y) > _HELD:
            x, y = thinned(x, y, _MOST_POINTS)
    if not len(y):
        raise UsageError(
            f"{title} has no values", hint="The tool 'rates' lists which columns of a segment have values."
        )
    x, y = thinned(x, y, _MOST_POINTS)
    axis = f"{label}, steps"
    places: npt.NDArray[Any] = x
    if not pa.types.is_integer(kind):
        places = (x - x[0]) / 1e9
        axis = f"{label}, s from {json_of(pa.scalar(int(x[0]), kind))}"
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(places, y, linewidth=0.8, marker="." if len(y) < 100 else None)
    heading = title if select == "." else f"{title} {select}"
    axes.set_title(heading[:_LONGEST], parse_math=False)
    axes.set_xlabel(axis[:_LONGEST], parse_math=False)
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # characters that the font lacks
        figure.savefig(out, format="png")
    return out.getvalue()


def _points(batch: pa.RecordBatch, selector: Selector, title: str, select: str) -> tuple[npt.NDArray[np.int64], Floats]:
    """The index value and the number of each value that is not null."""
    lists = batch.column(2)
    values: Any = selector.execute(lists.flatten())
    if values is None:
        raise UsageError(f"{select!r} of {title} has no result", hint="The tool 'describe' shows the type of a column.")
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(batch)), counts)
    if pa.types.is_list(values.type) or pa.types.is_large_list(values.type) or len(values) != len(rows):
        raise UsageError(
            f"{select!r} of {title} gives {values.type}", hint="Select one number, such as .[0] of a list."
        )
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_null(values.type)):
        raise UsageError(
            f"{select!r} of {title} has the type {values.type}, not numbers", hint="Select one of its fields."
        )
    index = batch.column(1)
    ticks = index.cast(pa.int64()).to_numpy(zero_copy_only=False) if len(index) else np.empty(0, np.int64)
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    is_number = values.is_valid().to_numpy(zero_copy_only=False)
    return ticks[rows[is_number]], numbers[is_number]


def thinned(x: npt.NDArray[np.int64], y: Floats, most: int) -> tuple[npt.NDArray[np.int64], Floats]:
    """The visible points: if there are many, the minimum and the maximum of each run of points.

    >>> thinned(np.arange(8), np.array([0.0, 5, 1, 2, 3, -4, 2, 0]), 4)
    (array([0, 1, 4, 5]), array([ 0.,  5.,  3., -4.]))
    """
    run = -(-len(y) // (most // 2))
    if len(y) <= most or run < 2:
        return x, y
    whole = len(y) // run * run
    rows = y[:whole].reshape(-1, run)
    first = np.arange(0, whole, run)
    least = first + np.where(np.isnan(rows), np.inf, rows).argmin(1)
    greatest = first + np.where(np.isnan(rows), -np.inf, rows).argmax(1)
    at = np.unique(np.concatenate([least, greatest, np.arange(whole, len(y))]))
    return x[at], y[at]
