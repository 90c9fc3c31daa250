"""A segment as a query sees it: where its chunks are, its rows, and pieces of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ..limits import MIB
from ..rrd import OpenFiles
from ..task_context import TaskContext, find
from .events import Key
from .figures import SegmentFigures
from .pruning import SegmentChunks, windows_of
from .query import AnswerColumns, Integers
from .rows import SegmentRows, Windows, within
from .sources import LayerChunks, SegmentSource

_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 63) - 1

PIECE_BYTES: Final = 256 * MIB
"""Bytes of chunks, uncompressed, that a piece of a segment needs, or about so."""


@dataclass(frozen=True)
class QueriedSegment:
    """A segment, or a piece of one, and what is asked of it. It pickles.

    ``source`` has its chunks. ``there`` are the components that the segment has, and ``span`` is the first and the last
    value of the index in it, where it has some. A piece has the rows whose index values are in ``window``, both ends
    included.
    """

    source: SegmentSource
    segment_id: str
    columns: AnswerColumns
    there: Collection[Key]
    span: tuple[int, int] | None
    window: tuple[int, int] | None = None

    @property
    def stored_bytes(self) -> int:
        """The bytes of all chunks as stored, about; known without a look at any."""
        return self.source.stored_bytes

    @property
    def given(self) -> Integers | None:
        """The index values that rows are wanted for, where some are given."""
        values = self.columns.query.values
        if values is None:
            return None
        clips = self.columns.query.semantics.clips_values
        found = values.of_segment(self.segment_id, (self.span or (1, 0)) if clips else None)
        return found if self.window is None else within(found, self.window)

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The first and the last index value that a row can have; None where there is none, or no index."""
        given = self.given
        if given is not None:
            return (int(given[0]), int(given[-1])) if len(given) else None
        if self.span is None or self.window is None:
            return self.span
        first, last = max(self.span[0], self.window[0]), min(self.span[1], self.window[1])
        return (first, last) if first <= last else None

    @property
    def may_have_rows(self) -> bool:
        """Whether there can be any row, as far as that is known without a chunk."""
        shows = any((c.entity_path, c.component) in self.there for c in self.columns.visible)
        if self.columns.query.index is None:
            return shows
        return self.bounds is not None and (shows or self.given is not None)

    def cut(self, budget_bytes: int = PIECE_BYTES) -> list[QueriedSegment]:
        """Pieces that need about so many bytes of chunks each, uncompressed; their rows, one piece after the other, are
        those of the segment. Raises ``ReadError``.
        """
        if self.bounds is None:
            return [self]
        layers = self.source.references()
        begins = SegmentChunks(self.columns, [some.table for some in layers]).cuts(budget_bytes)
        first, last = self.window or (_LEAST, _MOST)
        begins = [first, *(begin for begin in begins if self.bounds[0] < begin <= self.bounds[1])]
        ends = [*(begin - 1 for begin in begins[1:]), last]
        pieces = [replace(self, window=window) for window in zip(begins, ends, strict=True)]
        return [piece for piece in pieces if piece.bounds is not None] if len(pieces) > 1 else [self]

    def batches(
        self, names: Sequence[str] | None = None, predicate: pc.Expression | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows in which ``predicate`` is true, with the columns ``names``; see :meth:`SegmentRows.batches`.

        Raises ``ReadError`` where a manifest or a chunk is damaged, or not there any more.
        """
        files = OpenFiles()
        try:
            yield from TaskContext(files).run(self._batches(names, predicate))
        finally:
            files.close()

    def _batches(self, names: Sequence[str] | None, predicate: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        if not self.may_have_rows:
            return
        columns = self.columns.narrowed(names, predicate)
        windows, needed = self.needed(columns, predicate)
        if windows is not None and not windows:
            return
        chunks = (data for layer, rows in needed for data in layer.read(rows))
        rows = SegmentRows(columns, self.segment_id, chunks, there=self.there, given=self.given, windows=windows)
        yield from rows.batches(names, predicate)

    def plan(self, figures: SegmentFigures, columns: AnswerColumns, predicate: pc.Expression | None) -> None:
        """Count the chunks that rows need, without reading them. Raises ``ReadError``."""
        if self.may_have_rows:
            with TaskContext(figures).entered():
                self.needed(columns, predicate)

    def needed(
        self, columns: AnswerColumns, predicate: pc.Expression | None
    ) -> tuple[Windows | None, list[tuple[LayerChunks, Integers]]]:
        """The ranges of the index that rows can be in (None: any), and the chunks that are needed for them: rows of
        layers.
        """
        layers = self.source.references()
        found = SegmentChunks(columns, [some.table for some in layers])
        bounds = self.bounds
        windows: Windows | None = None if bounds is None or (self.given is None and self.window is None) else [bounds]
        if predicate is not None and bounds is not None:
            windows = windows_of(columns, predicate, self.segment_id, bounds, found.starts)
        needed = found.needed(windows)
        figures = find(SegmentFigures)
        if figures is not None:
            figures.need(zip(self.source.layer_names, (some.table for some in layers), needed, strict=True))
        return windows, [(some, rows) for some, rows in zip(layers, needed, strict=True) if len(rows)]
