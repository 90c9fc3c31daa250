r"""Entity paths as text: parsed forgivingly, written canonically.

A path is a list of parts. In text, parts are led by ``/`` and characters that could be mistaken are escaped with a
backslash; characters that are neither ASCII nor alphanumeric become ``\u{XXXX}``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ..errors import check_argument

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


@lru_cache(maxsize=65_536)
def parse_entity_path(text: str) -> str:
    r"""The canonical form of an entity path.

    >>> parse_entity_path("world//car/")
    '/world/car'
    >>> print(parse_entity_path("/we ird/x!"))
    /we\ ird/x\!
    >>> parse_entity_path("")
    '/'
    """
    return join_parts(split_parts(text))


def split_parts(text: str) -> list[str]:
    """The unescaped parts of an entity path in any spelling; empty parts are dropped."""
    check_argument("entity_path", text, str)
    parts: list[str] = []
    part: list[str] = []
    i = 0
    while i < len(text):
        c = text[i]
        i += 1
        if c == "/":
            parts.append("".join(part))
            part = []
        elif c == "\\" and i < len(text):
            c, i = _unescape(text, i)
            part.append(c)
        else:
            part.append(c)
    parts.append("".join(part))
    return [p for p in parts if p]


def join_parts(parts: Sequence[str]) -> str:
    """The canonical text of unescaped parts."""
    return "/" + "/".join("".join(map(_escape, p)) for p in parts)


def _unescape(text: str, i: int) -> tuple[str, int]:
    """The character that the escape at ``text[i]`` (behind its backslash) stands for, and where to go on."""
    c = text[i]
    if c == "u" and text[i + 1 : i + 2] == "{":
        end = text.find("}", i + 2, i + 11)
        digits = text[i + 2 : end] if end > 0 else ""
        if digits and all(d in "0123456789abcdefABCDEF" for d in digits) and int(digits, 16) < 0x110000:
            return chr(int(digits, 16)), end + 1
    return _ESCAPES.get(c, c), i + 1


def _escape(c: str) -> str:
    if c in _PLAIN:
        return c
    if c in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[c]
    if c.isascii() and c.isprintable():
        return "\\" + c
    return c if c.isalnum() else f"\\u{{{ord(c):04X}}}"
