"""Labels of a drawing."""

from __future__ import annotations

from typing import Final

from ...chunk.text_width import clusters, width_of

_MOST_COLUMNS: Final = 40
_JOINER: Final = "\u200d"


def shortened(text: str, most: int = _MOST_COLUMNS) -> str:
    """``text`` on one line of at most ``most`` columns, its middle left out where it is longer.

    >>> shortened("content='/nissan/gps/**'"), shortened("a" * 9 + "b" * 9, 9)
    ("content='/nissan/gps/**'", 'aaaa…bbbb')
    """
    text = printable(" ".join(text.split()))
    if width_of(text) <= most:
        return text
    parts = list(clusters(text))
    half = (most - 1) // 2
    return f"{''.join(_fitting(parts, half))}…{''.join(reversed(_fitting(parts[::-1], half)))}"


def printable(text: str) -> str:
    """``text`` without what XML cannot hold or nobody can see."""
    return "".join(c if c.isprintable() or c == _JOINER else "\ufffd" for c in text)


def _fitting(parts: list[str], columns: int) -> list[str]:
    taken: list[str] = []
    for part in parts:
        columns -= width_of(part)
        if columns < 0:
            break
        taken.append(part)
    return taken
