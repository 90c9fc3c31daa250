"""The number of columns of a terminal that a text takes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

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
