"""Plots for agents."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...lenses import Selector
from ..chunk import json_of
from ..errors import MissingExtraError, UsageError, extra_command

Floats = npt.NDArray[np.float64]

_MOST_POINTS: Final = 4_000
"""Points of a plot: more do not show on its thousand pixels."""
_HELD: Final = 1_000_000
"""Points that are held before they are thinned."""
_LONGEST: Final = 120
"""Characters of a title."""


def plotted(batches: Iterable[pa.RecordBatch], *, title: str, select: str) -> bytes:
    """A PNG of numbers in the third column against the second, which is an index.

    Raises ``UsageError`` where there are none, ``SelectorError``, and ``MissingExtraError`` without matplotlib.
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
        raise UsageError(f"{title} has no values", hint="The tool 'rates' shows what a segment has.")
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
        warnings.simplefilter("ignore")  # signs that the font lacks
        figure.savefig(out, format="png")
    return out.getvalue()


def _points(batch: pa.RecordBatch, selector: Selector, title: str, select: str) -> tuple[npt.NDArray[np.int64], Floats]:
    """The index and the number of each value; nulls are left out."""
    lists = batch.column(2)
    values: Any = selector.execute(lists.flatten())
    if values is None:
        raise UsageError(f"{select!r} of {title} gives nothing", hint="The tool 'describe' shows the type of a column.")
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(batch)), counts)
    if pa.types.is_list(values.type) or pa.types.is_large_list(values.type) or len(values) != len(rows):
        raise UsageError(
            f"{select!r} of {title} gives {values.type}", hint="Select one number, such as .[0] of a list."
        )
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_null(values.type)):
        raise UsageError(f"{select!r} of {title} gives {values.type}, not numbers", hint="Select one of its fields.")
    index = batch.column(1)
    ticks = index.cast(pa.int64()).to_numpy(zero_copy_only=False) if len(index) else np.empty(0, np.int64)
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    is_number = values.is_valid().to_numpy(zero_copy_only=False)
    return ticks[rows[is_number]], numbers[is_number]


def thinned(x: npt.NDArray[np.int64], y: Floats, most: int) -> tuple[npt.NDArray[np.int64], Floats]:
    """The points that show: of many, the least and the greatest of each run of points.

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
