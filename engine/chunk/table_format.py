"""A chunk, or rows of a frame, as a table that people read, as Rerun prints them, drawn with box characters.

One line of widths, cells of lines, wrapped where a column is too narrow.
"""

from __future__ import annotations

import json
import operator
import re
import unicodedata
from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache

import pyarrow as pa

from . import tuid
from .arrow_text import cell_writer, type_text
from .data import ChunkData
from .sorbet import data_to_batch, text_metadata

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
    batch = data_to_batch(data)
    columns = batch.num_columns
    most = (width - (columns + 1)) * (100 // columns) // 100
    return format_batch(batch, most=most, redact=redact, trim_metadata_keys=trim_metadata_keys)


def format_batch(
    batch: pa.RecordBatch, *, most: int | None = None, redact: bool = False, trim_metadata_keys: bool = True
) -> str:
    """The columns and rows of a batch, which has some columns, with its metadata where it has some.

    ``most`` is the largest width of a column; the others as for :func:`format_chunk`.
    """
    header = [_header(field, redact, trim_metadata_keys) for field in batch.schema]
    texts = [_cells(f, c, redact) for f, c in zip(batch.schema, batch.columns, strict=True)]
    rows = [header, *(list(row) for row in zip(*texts, strict=True))]
    inner = draw(rows, most=most, header=True)
    if not batch.schema.metadata:
        return "\n".join(inner)
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
        return [[prefix + _REDACTED if redact else tuid.tuid_text(i, prefix)] for i in column.to_pylist()]
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


_JOINER, _EMOJI_STYLE = "\u200d", "\ufe0f"
_LAM, _ALEFS = "\u0644", frozenset("\u0622\u0623\u0625\u0627")
_SEQUENCE = re.compile("[\u200d\ufe0f\u0644\U0001f3fb-\U0001f3ff]")
_ZERO_RANGES = (
    (0x061C, 0x061C),
    (0x115F + 1, 0x11FF),  # Hangul vowels and finals, which join the syllable before them
    (0x3164, 0x3164),
    (0xD7B0, 0xD7FF),
    (0xFF9E, 0xFFA0),
    (0xE0000, 0xE0FFF),
)
_WIDE_RANGES = (
    (0x20000, 0x3FFFD),
    (0x2630, 0x2637),
    (0x268A, 0x268F),
    (0x4DC0, 0x4DFF),
    (0x1D300, 0x1D356),
    (0x1D360, 0x1D376),
)
_NARROW_FORMATS = frozenset(range(0x600, 0x605)) | {0x6DD} | {0xFFF9, 0xFFFA, 0xFFFB} | {0x110BD, 0x110CD}


def width_of(text: str) -> int:
    """Columns of ``text`` in a terminal; an emoji sequence counts as the one picture that it shows.

    >>> width_of("abc"), width_of("日本"), width_of("e\\u0301"), width_of("👩‍👩‍👧")
    (3, 4, 1, 2)
    """
    if text.isascii():
        return len(text)
    if not _SEQUENCE.search(text):
        return sum(map(character_width, text))
    total = last = 0
    previous = ""
    for c in text:
        width = character_width(c)
        if (
            (last == 2 and (previous == _JOINER or "\U0001f3fb" <= c <= "\U0001f3ff") and width == 2)
            or (previous == _JOINER and last == 2 and unicodedata.category(c) == "So")
            or (previous == _LAM and c in _ALEFS)
        ):
            width = 0
        elif c == _EMOJI_STYLE and last == 1 and _may_be_emoji(previous):
            width, last = 1, 2
        total += width
        last = width if width and c != _EMOJI_STYLE else last
        previous = c
    return total


def clusters(text: str) -> Iterator[str]:
    """The characters of ``text``, each with what joins it.

    >>> [len(c) for c in clusters("e\\u0301x❤️")]
    [2, 1, 2]
    """
    start = 0
    for i in range(1, len(text) + 1):
        if i == len(text) or not _joins(text[i - 1], text[i]):
            yield text[start:i]
            start = i


def _joins(previous: str, c: str) -> bool:
    return character_width(c) == 0 or previous == _JOINER or "\U0001f3fb" <= c <= "\U0001f3ff"


@lru_cache(maxsize=4096)
def character_width(c: str) -> int:
    """0 for what joins the character before it, 2 for East Asian wide ones and emoji, else 1."""
    code = ord(c)
    if code < 0x300:
        return 0 if code == 0xAD else 1
    if any(first <= code <= last for first, last in _ZERO_RANGES):
        return 0
    category = unicodedata.category(c)
    if category in ("Mn", "Me"):
        return 0
    if category == "Cf":
        return 1 if code in _NARROW_FORMATS else 0
    if any(first <= code <= last for first, last in _WIDE_RANGES):
        return 2
    return 2 if category != "Cn" and unicodedata.east_asian_width(c) in "WF" else 1


def _may_be_emoji(c: str) -> bool:
    return c in "0123456789#*©®‼⁉〰〽" or unicodedata.category(c) in ("So", "Sm")
