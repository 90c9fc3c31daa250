"""Methods of the stream that are made of what lies above it: stores, lenses and formats.

Imports point down, so the stream does not import those packages; a method that needs one finds it by name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

_HOMES: Final = {
    "chunk_list": ("..store.reference", "ChunkListSource"),
    "collect": ("..store.chunk_store", "collect"),
    "get_session": ("..inputs", "get_session"),
    "lenses": ("...lenses", "LensSet"),
}


def extension(name: str) -> Callable[..., Any]:
    """The function or class behind the method ``name``."""
    module, attribute = _HOMES[name]
    found: Callable[..., Any] = getattr(importlib.import_module(module, __package__), attribute)
    return found
