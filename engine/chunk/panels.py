"""Chunks, schemas and rows of frames as a notebook shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from ..markup import Cell, Html, panel, panel_or_error, shown, table
from ..units import counted, size
from .columns import ComponentColumnDescriptor, IndexColumnDescriptor
from .data import ChunkData
from .text import cell_writer, type_text

_MOST_CHUNK_ROWS: Final = 10
_MOST_COLUMNS: Final = 16
_MOST_TYPE: Final = 40
_MOST_CELL: Final = 48
_MOST_SCHEMA_ROWS: Final = 60


def chunk_panel(entity_path: str, chunk_id: str, load: Callable[[], ChunkData]) -> str:
    """Show a chunk's header and its first rows, or the fault of an unreadable payload."""
    title = f"Chunk {entity_path}"
    return panel_or_error(title, lambda: _chunk_panel(title, chunk_id, load()))


def _chunk_panel(title: str, chunk_id: str, data: ChunkData) -> str:
    columns: list[tuple[str, pa.Array]] = [(line.name, line.times) for line in data.timelines]
    columns += [(str(part.descriptor), part.values) for part in data.components]
    count, num_bytes = len(data.row_ids), sum(values.nbytes for _, values in columns)
    facts = [counted(count, "row"), "" if data.timelines else "static", size(num_bytes), chunk_id]
    left = len(columns) - _MOST_COLUMNS
    if left > 0:
        facts.append(f"{counted(left, 'column')} not shown")
    first = columns[:_MOST_COLUMNS]
    head = [_head(name, values.type) for name, values in first]
    return panel(title, facts, table(head, _rows(first), count, kind="grid", most=_MOST_CHUNK_ROWS))


def rows_panel(title: str, rows: pa.RecordBatch, *, is_all: bool) -> str:
    """A panel of the first rows of a frame; ``is_all`` says that there are no more."""
    columns = list(zip(rows.schema.names, rows.columns, strict=True))[:_MOST_COLUMNS]
    left = rows.num_columns - len(columns)
    facts = [
        counted(rows.num_columns, "column"),
        counted(len(rows), "row") if is_all else f"the first {counted(len(rows), 'row')}",
        f"{counted(left, 'column')} not shown" if left else "",
    ]
    head = [_head(name, values.type) for name, values in columns]
    return panel(title, facts, table(head, _rows(columns, len(rows)), len(rows), kind="grid"))


def _head(name: str, datatype: pa.DataType) -> Html:
    return Html(f"{shown(name)}<i>{shown(type_text(datatype), _MOST_TYPE)}</i>")


def _rows(columns: Sequence[tuple[str, pa.Array]], most: int = _MOST_CHUNK_ROWS) -> Iterator[Sequence[Cell]]:
    texts = [(cell_writer(values.type), values[:most]) for _, values in columns]
    return zip(*([shown(text_of(v), _MOST_CELL) for v in values] for text_of, values in texts), strict=True)


def schema_panel(indexes: Sequence[IndexColumnDescriptor], components: Sequence[ComponentColumnDescriptor]) -> str:
    """The timelines and the components of a schema, as two tables."""
    lines = ((index.name, index.kind.value) for index in indexes)
    named = {c.entity_path: i for i, c in reversed(list(enumerate(components)))}
    rows = (
        (
            c.entity_path if named[c.entity_path] == i else "",
            c.component,
            shown(type_text(c.datatype), _MOST_TYPE),
            c.descriptor.archetype_short_name or "",
            "static" if c.is_static else "",
        )
        for i, c in enumerate(components)
    )
    return panel(
        "Schema",
        [counted(len(indexes), "timeline"), counted(len(components), "component")],
        table(["timeline", "kind"], lines, len(indexes)),
        table(
            ["entity", "component", "type", "archetype", ""],
            rows,
            len(components),
            kind="grid",
            most=_MOST_SCHEMA_ROWS,
        ),
    )
