"""Names of a package that are loaded when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str | Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's ``__getattr__`` and ``__dir__``, for the names that each of its submodules (``.home``) gives it.

    Names are separated by spaces, or in a sequence. Those of the home ``""`` are submodules themselves.
    """
    home_of = {
        name: home for home, names in homes.items() for name in (names.split() if isinstance(names, str) else names)
    }

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = home_of[name]
        return (
            getattr(importlib.import_module(home, package), name)
            if home
            else importlib.import_module(f".{name}", package)
        )

    def names() -> list[str]:
        return sorted({*vars(importlib.import_module(package)), *home_of})

    return load, names
