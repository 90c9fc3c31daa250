"""A chunk as a table that people read, Rerun's ``Chunk.format``, drawn with box characters.

One line of widths, cells of lines, wrapped where a column is too narrow.
"""

from __future__ import annotations

import json
import operator
from collections import deque
from collections.abc import Iterator, Sequence

import pyarrow as pa

from . import sorbet, tuid
from .arrow_type_text import type_text
from .arrow_value_text import cell_writer
from .data import ChunkData
from .migrations import text_metadata
from .text_width import clusters, width_of

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


Cell = Sequence[str]
"""The lines of a cell."""


def draw(rows: Sequence[Sequence[Cell]], *, most: int | None = None, header: bool = False) -> list[str]:
    """The lines of a table.

    ``most`` is the largest width of a column with its two blanks; longer lines are wrapped. With ``header`` a double
    line stands under the first row, even when it is the only one.

    >>> print("\\n".join(draw([[["a"], ["b"]], [["1"], ["2"]]], header=True)))
    ┌───┬───┐
    │ a ┆ b │
    ╞═══╪═══╡
    │ 1 ┆ 2 │
    └───┴───┘
    """
    widths = [max(width_of(line) for row in rows for line in row[i]) for i in range(len(rows[0]))]
    if most is not None:
        widths = [max(1, min(width, most - 2)) for width in widths]
    return list(_lines(rows, widths, header))


def _lines(rows: Sequence[Sequence[Cell]], widths: list[int], header: bool) -> Iterator[str]:
    yield _rule("┌─┬┐", widths)
    between, under = _rule("├╌┼┤", widths), _rule("╞═╪╡", widths)
    for i, row in enumerate(rows):
        if i:
            yield under if header and i == 1 else between
        cells = [_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
        for k in range(max(map(len, cells))):
            texts = (_padded(c[k] if k < len(c) else "", w) for c, w in zip(cells, widths, strict=True))
            yield f"│ {' ┆ '.join(texts)} │"
    if header and len(rows) == 1:
        yield under
    yield _rule("└─┴┘", widths)


def _rule(characters: str, widths: list[int]) -> str:
    left, line, cross, right = tuple(characters)
    return left + cross.join(line * (width + 2) for width in widths) + right


def _padded(text: str, width: int) -> str:
    return text + " " * (width - width_of(text))


def _wrapped(cell: Cell, width: int) -> list[str]:
    return [part for line in cell for part in ([line] if width_of(line) <= width else wrap(line, width))]


def wrap(line: str, width: int) -> list[str]:
    """The pieces of a line, broken at blanks; a word longer than ``width`` is cut.

    A word that leaves at most two columns ends its line, and no word is begun in the last two.

    >>> wrap("type: non-null FixedSizeBinary(16)", 30)
    ['type: non-null', 'FixedSizeBinary(16)']
    >>> wrap("ab cdefghijk", 8)
    ['ab cdefg', 'hijk']
    """
    words = deque(line.split(" "))
    out: list[str] = []
    current = ""
    while words:
        word = words.popleft()
        joined = f"{current} {word}" if current else word
        room = width - width_of(current) - (1 if current else 0)
        if width_of(joined) <= width:
            current = _unless_full(joined, width, out)
        elif current and room <= 2:
            out.append(current)
            current = ""
            words.appendleft(word)
        elif width_of(word) > width:
            head = _head(word, room, bool(current))
            out.append(f"{current} {head}" if current else head)
            current = ""
            words.appendleft(word[len(head) :])
        else:
            out.append(current)
            current = _unless_full(word, width, out)
    if current:
        out.append(current)
    return out


def _unless_full(line: str, width: int, out: list[str]) -> str:
    """``line``, to go on with, or nothing when it is as good as full and went to ``out``."""
    if width_of(line) > max(width - 2, 0):
        out.append(line)
        return ""
    return line


def _head(word: str, room: int, may_be_empty: bool) -> str:
    """As much of ``word`` as fits into ``room`` columns; at least one character unless it may be empty."""
    taken = 0
    for cluster in clusters(word):
        if width_of(word[: taken + len(cluster)]) > room:
            break
        taken += len(cluster)
    return word[: taken if taken or may_be_empty else 1]
