"""A segment of a store of recordings, as a query sees it: its layers as of one version, and its rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ..optimisation import ChunkReferences
from ..recordings import RecordingEntry, RecordingsFolder
from ..rrd import OpenFiles
from ..task_context import TaskContext
from .events import Key
from .pruning import SegmentChunks, windows_of
from .query import AnswerColumns, Integers
from .rows import SegmentRows, Windows


@dataclass(frozen=True)
class QueriedSegment:
    """A segment, and what is asked of it. It pickles.

    ``store`` is the place of the store, ``layers`` the entries of the version that is pinned, ``there`` the components
    that the segment has, and ``span`` the first and the last value of the index in it, where it has some.
    """

    store: str
    segment_id: str
    layers: tuple[RecordingEntry, ...]
    columns: AnswerColumns
    there: Collection[Key]
    span: tuple[int, int] | None

    @property
    def given(self) -> Integers | None:
        """The index values that rows are wanted for, where some are given."""
        values = self.columns.query.values
        if values is None:
            return None
        clips = self.columns.query.semantics.clips_values
        return values.of_segment(self.segment_id, (self.span or (1, 0)) if clips else None)

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The first and the last index value that a row can have; None where there is none, or no index."""
        given = self.given
        if given is None:
            return self.span
        return (int(given[0]), int(given[-1])) if len(given) else None

    @property
    def may_have_rows(self) -> bool:
        """Whether there can be any row, as far as that is known without a chunk."""
        shows = any((c.entity_path, c.component) in self.there for c in self.columns.visible)
        if self.columns.query.index is None:
            return shows
        return self.bounds is not None and (shows or self.given is not None)

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
        windows, references = self.needed(columns, predicate)
        if windows is not None and not windows:
            return
        chunks = (chunk.data for some in references for chunk in some.chunks())
        rows = SegmentRows(columns, self.segment_id, chunks, there=self.there, given=self.given, windows=windows)
        yield from rows.batches(names, predicate)

    def needed(
        self, columns: AnswerColumns, predicate: pc.Expression | None
    ) -> tuple[Windows | None, list[ChunkReferences]]:
        """The ranges of the index that rows can be in (None: any), and the chunks that are needed for them."""
        references = self.references()
        found = SegmentChunks(columns, [some.table for some in references])
        windows: Windows | None = None if self.bounds is None or self.given is None else [self.bounds]
        if predicate is not None and self.bounds is not None:
            windows = windows_of(columns, predicate, self.segment_id, self.bounds, found.starts)
        needed = found.needed(windows)
        return windows, [some.take(rows) for some, rows in zip(references, needed, strict=True) if len(rows)]

    def references(self) -> list[ChunkReferences]:
        """All chunks of the layers. Raises ``ReadError``."""
        folder = RecordingsFolder(self.store)
        return [folder.references(layer) for layer in self.layers if layer.chunks]
