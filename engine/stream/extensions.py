"""Methods of the stream that are made of what lies above it: stores and lenses.

Imports point down, so the stream does not import those packages; they register what they give when they are imported,
and a method that needs it imports them by name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

_HOMES: Final = {"collect": "..store", "lenses": "...lenses"}
_registered: dict[str, Callable[..., Any]] = {}


def register(name: str, function: Callable[..., Any]) -> None:
    """Give the function behind the method ``name``."""
    _registered[name] = function


def extension(name: str) -> Callable[..., Any]:
    """The function behind the method ``name``."""
    if name not in _registered:
        importlib.import_module(_HOMES[name], __package__)
    return _registered[name]
