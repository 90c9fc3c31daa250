"""The files that a path means: one file, a folder with all recordings below it, or a pattern."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..errors import SourceMissingError, UsageError


def input_files(paths: Iterable[str], suffixes: tuple[str, ...]) -> list[str]:
    """All files that ``paths`` mean, absolute, each once, in the order of the paths and sorted within each.

    A folder is searched with its subfolders for files with one of ``suffixes``, hidden ones left out; a pattern may
    hold ``*``, ``?``, ``[]`` and ``**``. Raises ``SourceMissingError`` where a path gives nothing.
    """
    found = [str(file.absolute()) for path in paths for file in _files(_local(path), suffixes)]
    return list(dict.fromkeys(found))


def _local(path: str) -> str:
    url = urlsplit(path)
    if url.scheme == "file":
        return unquote(url.path)
    if "://" in path:
        raise UsageError("only files of this machine are read, or of file systems mounted here", path=path)
    return path


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
