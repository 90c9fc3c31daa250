"""Modules that travel to workers with a function: those beside the user's script, which workers cannot import."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from ..execution import register_by_value, send_by_value


def send_modules_beside(function: Callable[..., Any]) -> None:
    """Have what lies beside the module of ``function`` travel by value, as far as it is loaded.

    It does not where a fresh process finds it by itself: what is installed, or lies on ``PYTHONPATH``.
    """
    top = function.__module__.partition(".")[0]
    home = _home_of(sys.modules.get(top), top)
    if home is None or home in _importable() or _is_installed(top):
        return
    for name, module in list(sys.modules.items()):
        if "." not in name and name not in ("__main__", "chunkmill") and _home_of(module, name) == home:
            send_by_value(module)
    register_by_value()


def _home_of(module: ModuleType | None, name: str) -> Path | None:
    """The folder in which a module at the top lies; of a session without a file, where it was started."""
    if module is None:
        return None
    places = [place for place in (*getattr(module, "__path__", ()), getattr(module, "__file__", None)) if place]
    if places and isinstance(places[0], str):
        return _folder_of(places[0])
    return Path(os.path.realpath(".")) if name == "__main__" else None


@cache
def _folder_of(place: str) -> Path:
    """The folder of a file. It is kept: to look for links in the places of 200 modules took 10 ms for each stage."""
    return Path(os.path.realpath(place)).parent


def _is_installed(name: str) -> bool:
    """Whether a package that is installed for editing has the module."""
    finders = [finder for finder in sys.meta_path if getattr(finder, "__module__", "").startswith("__editable__")]
    return any(finder.find_spec(name, None) is not None for finder in finders)


@cache
def _importable() -> frozenset[Path]:
    """The folders from which every process of this Python imports."""
    folders = {*sysconfig.get_paths().values(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    sites = {*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_paths()["purelib"]}
    for place in map(Path, sites):
        for listing in place.glob("*.pth"):
            lines = listing.read_text(encoding="utf-8", errors="replace").splitlines()
            folders |= {str(place / line) for line in lines if line and not line.startswith(("import", "#"))}
    dynload = {str(Path(folder) / "lib-dynload") for folder in folders if folder}
    return frozenset(Path(os.path.realpath(folder)) for folder in {*folders, *sites, *dynload} if folder)
