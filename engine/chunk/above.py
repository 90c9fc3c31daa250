"""The way up: what chunks offer and a part above them, which they must not import, implements."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def lens_function(name: str) -> Callable[..., Any]:
    """A function of the lenses package, by its name.

    Lenses are made of chunks, and chunks have ``apply_lenses``: so the package is looked up by its name, when the
    method is first called, and never imported from here.
    """
    package = __name__.rpartition(".engine.")[0]
    function: Callable[..., Any] = getattr(import_module(f"{package}.lenses"), name)
    return function
