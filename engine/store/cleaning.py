"""Removing what a store no longer needs."""

from __future__ import annotations

from collections.abc import Callable

from ..execution.folders import Folder


def delete_files(folder: Folder, is_doomed: Callable[[str], bool]) -> int:
    """Remove some files of a folder, if it is there; gives their size in bytes."""
    if not folder.exists():
        return 0
    doomed = [entry for entry in folder.entries() if is_doomed(entry.name)]
    folder.delete(entry.name for entry in doomed)
    return sum(entry.size for entry in doomed)
