"""Names of a package that are loaded when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final

_terminals: Final[dict[str, tuple[str, str]]] = {}
"""The package of each terminal, and the package to which its name is relative."""


def name_terminals(package: str, homes: Mapping[str, str]) -> None:
    """Name functions and classes for :func:`terminal`, by their package, which is relative to ``package``."""
    _terminals.update({name: (home, package) for home, names in homes.items() for name in names.split()})


def terminal(name: str) -> Callable[..., Any]:
    """Return the function behind a method that is implemented above its own package, such as
    ``LazyChunkStream.collect``.

    Imports point down, so higher packages name their functions, before anything below them can be imported.
    """
    home, package = _terminals[name]
    function: Callable[..., Any] = getattr(importlib.import_module(home, package), name)
    return function


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's ``__all__``, ``__getattr__`` and ``__dir__``.

    Parameters
    ----------
    package
        The package's ``__name__``.
    homes
        The names that each module gives the package, separated by spaces: ``{".chunk": "Chunk concat"}``, or ``"*"``
        for all its exports. The home ``""`` is for submodules. Names of other distributions are not exported.
    """
    home_of = {
        name: home
        for home, names in homes.items()
        for name in (importlib.import_module(home, package).__all__ if names == "*" else names.split())
    }

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = home_of[name]
        value = (
            getattr(importlib.import_module(home, package), name)
            if home
            else importlib.import_module(f".{name}", package)
        )
        setattr(importlib.import_module(package), name, value)  # so that __getattr__ is not called again
        return value

    def names() -> list[str]:
        return sorted({*vars(importlib.import_module(package)), *home_of})

    return sorted(name for name, home in home_of.items() if not home or home.startswith(".")), load, names
