"""The files that a path means: one file, a folder with all recordings below it, or a pattern."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..errors import SourceMissingError
from ..locations import reading_location
from ..objects import find_objects, is_one_object


def input_files(paths: Iterable[str], suffixes: tuple[str, ...]) -> list[str]:
    """All files and objects that ``paths`` mean, absolute, each once, in the order of the paths and sorted within each.

    A folder is searched with its subfolders for files with one of ``suffixes``, hidden ones left out; a pattern may
    hold ``*``, ``?``, ``[]`` and ``**``. Raises ``SourceMissingError`` where a path gives nothing.
    """
    return list(dict.fromkeys(file for path in paths for file in _named(path, suffixes)))


def _named(path: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    location = reading_location(path)
    if isinstance(location, Path):
        yield from (str(file.absolute()) for file in _files(str(location), suffixes))
    elif is_one_object(location):
        yield str(location)
    else:
        yield from (str(found.url) for found in find_objects(location, suffixes))


def _files(path: str, suffixes: tuple[str, ...]) -> Iterator[Path]:
    if Path(path).is_dir():
        files = list(_below(path, suffixes))
    elif glob.has_magic(path) and not os.path.lexists(path):
        matching = sorted(map(Path, glob.glob(path, recursive=True)))  # noqa: PTH207 (takes absolute patterns too)
        files = [p for p in matching if p.is_file() and p.suffix.lower() in suffixes]
    else:
        files = [Path(path)] if Path(path).exists() else []
    if not files:
        raise SourceMissingError(
            "there is no such file, or no recording in this folder or of this pattern",
            path=path,
            hint=f"Folders and patterns are searched for {', '.join(suffixes)} files.",
        )
    yield from files


def _below(folder: str, suffixes: tuple[str, ...]) -> Iterator[Path]:
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for name in sorted(files):
            if not name.startswith(".") and Path(name).suffix.lower() in suffixes:
                yield Path(here, name)
