"""The layers of the segments of a store, as columns of their entries, and the segments that a query is asked of."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..chunk import Schema, TimelineKind
from ..recordings import RecordingsFolder, SchemaFiles
from .query import AnswerColumns, Integers
from .segments import QueriedSegment
from .sources import LazySource

_LEAST: Final = np.iinfo(np.int64).min
_MOST: Final = np.iinfo(np.int64).max


@dataclass(frozen=True)
class SegmentLayers:
    """The layers of a dataset: rows of entries, those of a segment one behind the other, in the order of registration.

    Segments come in the order in which the first of their layers was registered. ``starts`` are where each segment
    begins, ``owner`` is the number of each row's segment.
    """

    rows: pa.Table
    starts: Integers
    owner: Integers

    @classmethod
    def of(cls, entries: pa.Table, kind: str) -> Self:
        """The layers of all recordings, or of all blueprints."""
        is_blueprint = pc.equal(entries["kind"], "blueprint")
        rows = entries.filter(is_blueprint if kind == "blueprint" else pc.invert(is_blueprint))
        numbers = rows["recording_id"].combine_chunks().dictionary_encode()
        owner = np.asarray(numbers.indices if len(rows) else [], dtype=np.int64)
        names = np.asarray(pc.rank(rows["layer"], "ascending", tiebreaker="dense"), dtype=np.int64)
        order = np.lexsort((names, np.asarray(rows["added"]), owner))
        owner = owner[order]
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        return cls(rows.take(pa.array(order)), starts, owner)

    @property
    def segments(self) -> pa.Array:
        """The ids of the segments."""
        return self.rows["recording_id"].take(pa.array(self.starts)).combine_chunks()

    @property
    def digests(self) -> list[str]:
        """The digests of the schemas of layers, each once."""
        return [digest for digest in self.rows["schema"].unique().to_pylist() if digest]

    def of_segments(self, ids: Collection[str]) -> Self:
        """The layers of some segments."""
        wanted = pc.is_in(self.rows["recording_id"], pa.array(list(ids), pa.string()))
        rows = self.rows.filter(wanted)
        owner = self.owner[np.asarray(wanted, dtype=bool)]
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        return type(self)(rows, starts, np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(rows)))))

    def spans_of(self, index: str | None) -> list[tuple[int, int] | None]:
        """The first and the last value of an index in each segment, as integers; None where it has none."""
        found = {} if index is None else {field.name: column for field, column in self.ranges()}
        if f"{index}:start" not in found:
            return [None] * len(self.starts)
        first, last = (found[f"{index}:{marker}"].cast(pa.int64()).to_pylist() for marker in ("start", "end"))
        return [None if begin is None else (begin, end) for begin, end in zip(first, last, strict=True)]

    def ranges(self) -> list[tuple[pa.Field, pa.Array]]:
        """The end and the start of each index in each segment, by name."""
        lists = self.rows["ranges"].combine_chunks()
        cells = pc.list_flatten(lists)
        owner = self.owner[np.asarray(pc.list_parent_indices(lists), dtype=np.int64)]
        found = []
        numbers = cells.field("name").dictionary_encode()
        codes = np.asarray(numbers.indices, dtype=np.int64)
        for code, name in sorted(enumerate(numbers.dictionary.to_pylist()), key=lambda pair: pair[1].encode()):
            at = np.flatnonzero(codes == code)
            kind = TimelineKind(cells.field("kind")[int(at[0])].as_py())
            for marker, reduce, none in (("end", np.maximum, _LEAST), ("start", np.minimum, _MOST)):
                values = np.full(len(self.starts), none, dtype=np.int64)
                reduce.at(values, owner[at], np.asarray(cells.field(marker), dtype=np.int64)[at])
                missing = np.ones(len(values), dtype=bool)
                missing[owner[at]] = False
                metadata = {
                    "rerun:index": name,
                    "rerun:index_kind": str(kind.value),
                    "rerun:index_marker": marker,
                    "rerun:kind": "index",
                }
                column = pa.array(values, mask=missing).view(kind.arrow_type)
                found.append((pa.field(f"{name}:{marker}", column.type, True, metadata), column))
        return found

    def queried(self, folder: RecordingsFolder, schemas: SchemaFiles, columns: AnswerColumns) -> list[QueriedSegment]:
        """The segments as a query with these columns sees them, by their ids. Raises ``ReadError``."""
        spans = self.spans_of(columns.query.index)
        ids = self.segments.to_pylist()
        digests = self.rows["schema"].to_pylist()
        bounds = np.append(self.starts, len(self.rows))
        sizes = np.diff(np.append(0, np.cumsum(np.asarray(self.rows["bytes"], dtype=np.int64)))[bounds])
        there: dict[frozenset[str], frozenset[tuple[str, str]]] = {}
        rows, path = self.rows.combine_chunks(), str(folder.path)
        found = []
        of_segments = zip(ids, pairwise(bounds.tolist()), spans, sizes.tolist(), strict=True)
        for segment_id, (first, stop), span, size in of_segments:
            schema = frozenset(digest for digest in digests[first:stop] if digest)
            if schema not in there:
                whole = Schema.from_arrow(schemas.union(schema)).component_columns()
                there[schema] = frozenset((c.entity_path, c.component) for c in whole)
            source = LazySource(path, rows, first, stop, size)
            found.append(QueriedSegment(source, segment_id, columns, there[schema], span))
        return sorted(found, key=lambda segment: segment.segment_id)
