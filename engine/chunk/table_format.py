"""A chunk as a table that people read: Rerun's ``Chunk.format``."""

from __future__ import annotations

import json
import operator

import pyarrow as pa

from . import sorbet, tuid
from .arrow_type_text import type_text
from .arrow_value_text import cell_writer
from .data import ChunkData
from .migrations import text_metadata
from .table_layout import Cell, draw

_REDACTED = "[**REDACTED**]"
_FRESH_KEYS = frozenset({"rerun:id", "rerun:heap_size_bytes", "sorbet:version"})
_PREFIXES = (
    "rerun.archetypes.",
    "rerun.components.",
    "rerun.datatypes.",
    "rerun.controls.",
    "rerun.blueprint.archetypes.",
    "rerun.blueprint.components.",
    "rerun.blueprint.datatypes.",
    "rerun.field.",
    "rerun.chunk.",
    "rerun.",
)


def format_chunk(data: ChunkData, *, width: int = 240, redact: bool = False, trim_metadata_keys: bool = True) -> str:
    """See :meth:`Chunk.format`. Cells are cut at 100 characters, and no value is rendered further than that."""
    width = operator.index(width)
    if width < 0:
        raise OverflowError("can't convert negative int to unsigned")
    batch = sorbet.to_record_batch(data)
    columns = batch.num_columns
    header = [_header(field, redact, trim_metadata_keys) for field in batch.schema]
    texts = [_cells(f, c, redact) for f, c in zip(batch.schema, batch.columns, strict=True)]
    rows = [header, *(list(row) for row in zip(*texts, strict=True))]
    most = (width - (columns + 1)) * (100 // columns) // 100
    inner = draw(rows, most=most, header=True)
    metadata = ["METADATA:", *_entries(batch.schema.metadata, "* ", redact, trim_metadata_keys)]
    return "\n".join(draw([[_split(metadata)], [inner]]))


def _header(field: pa.Field, redact: bool, trim: bool) -> Cell:
    kind = f"type: {'' if field.nullable else 'non-null '}{type_text(field.type)}"
    return _split([_trim_value(field.name), "---", kind, *_entries(field.metadata, "", redact, trim)])


def _entries(metadata: dict[bytes, bytes] | None, lead: str, redact: bool, trim: bool) -> list[str]:
    lines = []
    for key, value in sorted(text_metadata(metadata).items()):
        shown = _REDACTED if redact and key in _FRESH_KEYS else _trim_value(value)
        lines.append(f"{lead}{_trim_key(key) if trim else key}: {shown}")
    return lines


def _cells(field: pa.Field, column: pa.Array, redact: bool) -> list[Cell]:
    metadata = text_metadata(field.metadata)
    if metadata.get("ARROW:extension:name") == "rerun.datatypes.TUID":
        prefix = json.loads(metadata["ARROW:extension:metadata"])["namespace"] + "_"
        return [[prefix + _REDACTED if redact else tuid.to_text(i, prefix)] for i in column.to_pylist()]
    text_of = cell_writer(column.type)
    return [text_of(value).split("\n") for value in column]


def _split(lines: list[str]) -> Cell:
    return "\n".join(lines).split("\n")


def _trim_key(key: str) -> str:
    return _without(_without(key.strip(), "rerun:"), "sorbet:")


def _trim_value(text: str) -> str:
    text = text.strip()
    for prefix in _PREFIXES:
        text = _without(text, prefix)
    return text


def _without(text: str, prefix: str) -> str:
    while text.startswith(prefix):
        text = text[len(prefix) :]
    return text
