"""Pruning: the segments and ranges of an index in which a filter can hold.

A filter is an expression of Arrow, and what rules it out is Arrow's own reasoning: a range of rows is a fragment that
guarantees something, such as the bounds of its index, and a filter that cannot hold under that leaves no fragment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UnsupportedError
from .query import SEGMENT_ID, AnswerColumns, Integers, Key
from .segment_chunks import Windows

if TYPE_CHECKING:
    import pyarrow.dataset as ds

_MOST_WINDOWS: Final = 64
"""Ranges of a segment's index that are looked at by themselves."""


def satisfiable(predicate: pc.Expression, guarantees: Iterable[pc.Expression], schema: pa.Schema) -> list[int]:
    """The places of the guarantees under which a predicate over columns of ``schema`` may hold for some row.

    Raises ``UnsupportedError`` for a predicate that Arrow cannot evaluate.
    """
    import pyarrow.dataset as ds
    from pyarrow.fs import LocalFileSystem

    kind, place = ds.IpcFileFormat(), LocalFileSystem()
    fragments: list[ds.FileFragment] = [
        kind.make_fragment(str(number), place, partition_expression=guarantee)
        for number, guarantee in enumerate(guarantees)
    ]
    dataset = ds.FileSystemDataset(fragments, schema, kind)
    try:
        return [int(fragment.path) for fragment in dataset.get_fragments(predicate)]
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedError(
            f"the filter {predicate} cannot be evaluated: {error}",
            hint="Collect the rows with to_arrow_table() first, and filter them then.",
        ) from error


def segment_guarantee(
    columns: AnswerColumns, segment_id: str, span: tuple[int, int] | None, lacking: pc.Expression | None
) -> pc.Expression:
    """The facts of every row of a segment, whose index values are within ``span`` (inclusive)."""
    found = pc.field(SEGMENT_ID) == segment_id if columns.query.names_segments else pc.scalar(True)
    if lacking is not None:
        found = found & lacking
    return found if span is None else found & index_guarantee(columns, span)


def lacking_guarantee(columns: AnswerColumns, there: Collection[Key]) -> pc.Expression | None:
    """The fact that the components that a segment lacks are null in it; None where it lacks none."""
    found = None
    for column in columns.components:
        if (column.entity_path, column.component) not in there:
            is_null = pc.field(column.name).is_null()
            found = is_null if found is None else found & is_null
    return found


def index_guarantee(columns: AnswerColumns, span: tuple[int, int]) -> pc.Expression:
    """The fact that the index is within ``span`` (inclusive)."""
    assert columns.query.index is not None
    field = pc.field(columns.query.index)
    first, last = pa.array(span, pa.int64()).view(columns.arrow.field(columns.query.index).type)
    return (field >= first) & (field <= last)


def windows_of(
    columns: AnswerColumns, predicate: pc.Expression, segment_id: str, span: tuple[int, int], starts: Integers
) -> Windows:
    """The ranges of a segment's index in which a predicate may hold. ``starts`` are where ranges may begin."""
    inside = np.unique(starts[(starts > span[0]) & (starts <= span[1])])
    if len(inside) >= _MOST_WINDOWS:
        inside = inside[np.linspace(0, len(inside) - 1, _MOST_WINDOWS).astype(np.int64)]
    begins = [span[0], *np.unique(inside).tolist()]
    ends = [begin - 1 for begin in begins[1:]] + [span[1]]
    bounds = list(zip(begins, ends, strict=True))
    guarantees = [segment_guarantee(columns, segment_id, window, None) for window in bounds]
    found: list[tuple[int, int]] = []
    for number in satisfiable(predicate, guarantees, columns.arrow):
        begin, end = bounds[number]
        if found and found[-1][1] + 1 == begin:
            begin = found.pop()[0]
        found.append((begin, end))
    return found


class Asked:
    """A predicate over columns, as something that can be kept: predicates have no hash."""

    def __init__(self, columns: AnswerColumns, predicate: pc.Expression) -> None:
        self.columns = columns
        self.predicate = predicate
        self._key = (str(predicate), columns.query.index, tuple(columns.arrow.names))

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Asked) and self._key == other._key


@lru_cache(maxsize=256)
def is_implied(asked: Asked, first: int, last: int) -> bool:
    """Whether a predicate is true in all rows between two index values."""
    guarantee = index_guarantee(asked.columns, (first, last))
    return not satisfiable(~asked.predicate, [guarantee], asked.columns.arrow)


@lru_cache(maxsize=256)
def hull_of(asked: Asked, first: int, last: int) -> tuple[int, int] | None:
    """The first and the last index value between two at which a predicate can hold; None where it cannot."""

    def can_hold(begin: int, end: int) -> bool:
        guarantee = index_guarantee(asked.columns, (begin, end))
        return bool(satisfiable(asked.predicate, [guarantee], asked.columns.arrow))

    if not can_hold(first, last):
        return None
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if can_hold(first, middle) else (middle + 1, high)
    begin, high = low, last
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if can_hold(middle, last) else (low, middle - 1)
    return begin, low
