"""The order in which entities are listed: as people count, ``/b2`` before ``/b10``."""

from __future__ import annotations

import re
from functools import lru_cache

from .entity_path import split_parts

_TOKENS = re.compile(r"[0-9]+|[^0-9]", re.DOTALL)

Key = tuple[tuple[bool, tuple[tuple[str, int, str], ...]], ...]


@lru_cache(maxsize=65_536)
def path_order(entity_path: str) -> Key:
    """A sort key for entity paths: part by part, a parent before its children.

    Runs of digits compare as numbers (those with leading zeros first, as text), letters of the English alphabet
    without their case (``A`` before ``a`` where nothing else differs), other characters by code point. Parts that
    start with two underscores come last among their siblings.

    >>> sorted(["/__properties", "/b10", "/b2", "/b", "/B", "/"], key=path_order)
    ['/', '/B', '/b', '/b2', '/b10', '/__properties']
    """
    return tuple(
        (part.startswith("__"), tuple(map(_token, _TOKENS.findall(part)))) for part in split_parts(entity_path)
    )


def _token(token: str) -> tuple[str, int, str]:
    if token[0] in "0123456789":
        return "0", 0 if token[0] == "0" else len(token), token
    return token.lower() if token.isascii() else token, 0, token
