"""How often components were logged, by the manifests alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ..chunk import TimelineKind, json_of
from ..query import Query
from ..rrd import ChunkTable
from ..stream import ContentFilter

if TYPE_CHECKING:
    from ..catalog import DatasetView


def rates_of(view: DatasetView, index: str, contents: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    """For each segment and component along an index: the rows, the first and the last value of the index, the rate.

    Rows of two layers count both. Raises ``ReadError`` for a damaged manifest.
    """
    chosen = ContentFilter.everything() if contents is None else ContentFilter(tuple(contents))
    schema = view.dataset.arrow_schema()
    kind = schema.field(index).type
    names = set(schema.names)
    query = Query.of(index, chosen, semantics=view.dataset.catalog.semantics)
    for segment in view.queried(query)[1]:
        totals: dict[str, list[int]] = {}
        for layer in segment.source.references():
            for name, rows, start, end in _of_layer(layer.table, index, chosen):
                total = totals.setdefault(name, [0, start, end])
                total[:] = total[0] + rows, min(total[1], start), max(total[2], end)
        for name in sorted(totals.keys() & names):
            rows, start, end = totals[name]
            yield {
                "rerun_segment_id": segment.segment_id,
                "column": name,
                "rows": rows,
                "start": json_of(pa.scalar(start, kind)),
                "end": json_of(pa.scalar(end, kind)),
                "rate_hz": None if pa.types.is_integer(kind) else _rate(rows, end - start),
            }


def _rate(rows: int, nanoseconds: int) -> float | None:
    return float(f"{(rows - 1) * 1e9 / nanoseconds:.6g}") if rows > 1 and nanoseconds > 0 else None


def _of_layer(table: ChunkTable, index: str, chosen: ContentFilter) -> Iterator[tuple[str, int, int, int]]:
    """The name, rows, first and last index value of each component of each chunk.

    A component has a range for each timeline of its chunk, in their order.
    """
    lines, parts = table.timelines, table.components
    codes, paths = table.entity_codes
    matching = np.array([chosen.matches(path) for path in paths], np.bool_)
    is_index = np.array([name == index and isinstance(kind, TimelineKind) for name, kind in lines.keys], np.bool_)
    if not len(parts.num_rows) or not is_index.any():
        return
    cell = np.searchsorted(parts.range_ends, np.arange(len(parts.num_rows)), side="right") - 1
    chunk = np.searchsorted(parts.ends, cell, side="right") - 1
    line = lines.ends[chunk] + np.arange(len(cell)) - parts.range_ends[cell]
    wanted = is_index[lines.codes[line]] & parts.is_known & (parts.num_rows > 0) & matching[codes[chunk]]
    for at in np.flatnonzero(wanted).tolist():
        component = parts.descriptors[parts.codes[cell[at]]].component
        path = paths[codes[chunk[at]]]
        yield f"{path}:{component}", int(parts.num_rows[at]), int(parts.start[at]), int(parts.end[at])
