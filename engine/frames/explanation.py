"""Explanations of executions: the segments and chunks that they would read, from manifests only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from datafusion import DataFrame, SessionContext

from ..query import AnswerColumns, QueriedSegment
from .answer import possible_segments
from .plan import RowRequest

_TABLE = "segments"


class SegmentReads(NamedTuple):
    """The chunks of a segment to read, and all its chunks: their numbers and stored bytes."""

    segment_id: str
    chunks: int
    of_chunks: int
    num_bytes: int
    of_bytes: int


class Explanation(NamedTuple):
    """The columns to read, the pushed-down filter, and the remaining segments."""

    names: tuple[str, ...]
    filter: str | None
    segments: list[SegmentReads]


def explain_frame(
    columns: AnswerColumns, segments: Sequence[QueriedSegment], asked: Callable[[DataFrame], DataFrame]
) -> Explanation:
    """Return the segments and chunks that the frame returned by ``asked`` would read.

    Raises ``ReadError`` if a manifest cannot be read, and DataFusion's error if planning fails.
    """
    recorded = _Recorded(columns)
    context = SessionContext()
    context.register_dataset(_TABLE, recorded)
    asked(context.table(_TABLE)).execute_stream_partitioned()
    names = tuple(recorded.names)
    request = RowRequest(names, recorded.predicate)
    possible = possible_segments(columns, segments, recorded.predicate)
    text = None if recorded.predicate is None else str(recorded.predicate)
    return Explanation(names, text, [_reads(segment, request) for segment in possible])


def _reads(segment: QueriedSegment, request: RowRequest) -> SegmentReads:
    columns = segment.columns.narrowed(request.names, request.predicate)
    _, needed = segment.needed(columns, request.predicate)
    layers = segment.source.references()
    return SegmentReads(
        segment.segment_id,
        sum(len(rows) for _, rows in needed),
        sum(len(layer.table) for layer in layers),
        sum(int(layer.table.sizes[rows].sum()) for layer, rows in needed),
        sum(int(layer.table.sizes.sum()) for layer in layers),
    )


class _Recorded(ds.Dataset):  # type: ignore[misc]
    """A dataset without rows that records DataFusion's requests."""

    def __init__(self, columns: AnswerColumns) -> None:
        self._columns = columns
        self.names: Sequence[str] = columns.arrow.names
        self.predicate: pc.Expression | None = None

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return self._columns.arrow

    def scanner(self, schema: pa.Schema | None = None, columns: Sequence[str] | None = None, **_: Any) -> ds.Scanner:
        """The columns of a scan, or of its only fragment."""
        del schema
        if columns is not None:
            self.names = columns
        empty = ds.dataset(self._columns.arrow.empty_table())
        return empty.scanner(columns=None if columns is None else list(columns))

    def get_fragments(self, filter: pc.Expression | None = None) -> list[_Recorded]:  # noqa: A002 (pyarrow's name)
        """This dataset, in place of segments."""
        self.predicate = filter
        return [self]
