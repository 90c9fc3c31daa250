"""Removing what a store no longer needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from ..execution.folders import Folder
from ..faults import reach
from .version_files import VersionFiles

Needed = tuple[Folder, Collection[str]]
"""A folder, and the names of those of its files that are needed."""


def remove_unneeded(
    files: VersionFiles,
    first: int,
    needed: Iterable[Needed],
    publish: Callable[[], None],
    runs: Collection[Folder] = (),
) -> int:
    """Remove all versions before ``first``, files that no version from there on needs, and the folders of ``runs``.

    ``publish`` puts the version there that says so (:mod:`.version_files`); it has to be one after a version that was
    read before this is called. Without anything to remove it is not called. A version goes first, so that no reader
    can open it any more; then what only it needed. What is left where this is cut, the next one removes. Gives the
    bytes freed.
    """
    stale = [number for number in files.all_numbers() if number < first]
    doomed = [(folder, [e for e in folder.entries() if e.name not in names]) for folder, names in needed]
    doomed.append((files.folder, [e for e in files.folder.entries() if e.name.startswith(".")]))
    if not stale and not runs and not any(entries for _, entries in doomed):
        return 0
    publish()
    reach("vacuum.publish")
    files.delete(stale)
    reach("vacuum.versions")
    freed = 0
    for folder, entries in doomed:
        folder.delete(entry.name for entry in entries)
        freed += sum(entry.size for entry in entries)
        if entries:
            reach("vacuum.files")
    for run in runs:
        freed += run.total()
        run.remove()
    return freed
