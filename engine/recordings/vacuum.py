"""Removing what no kept version of a store of recordings needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Final

from ..errors import UsageError, writing
from ..execution import Folder, runs_onto
from ..faults import reach
from .folder import RecordingsFolder
from .lease import Lease
from .versions import RecordingsVersion, TableRef, VersionFiles

OPERATION: Final = "vacuum"

Needed = tuple[Folder, Collection[str]]
"""A folder, and the names of those of its files that are needed."""


def vacuum_store(folder: RecordingsFolder, *, keep: int = 1, older_than_seconds: float = 0.0) -> int:
    """Take the lease on a store, and vacuum it; see :meth:`RecordingStore.vacuum`. Gives the bytes freed."""
    if keep < 1:
        raise UsageError(f"keep must be at least 1, not {keep}")
    with Lease.take(folder.path, OPERATION):
        return vacuum_folder(folder, folder.version(), keep=keep, older_than_seconds=older_than_seconds)[1]


def vacuum_folder(
    folder: RecordingsFolder, newest: RecordingsVersion, *, keep: int, older_than_seconds: float
) -> tuple[RecordingsVersion, int]:
    """See :meth:`RecordingStore.vacuum`; gives the version that is the newest then, and the bytes freed.

    ``newest`` is the newest version, read before; where there is something to remove, one after it is published that
    has the same recordings. Raises as ``StoreWriter.commit`` does; where that is because of another writer, nothing was
    removed.
    """
    began = time.perf_counter()
    first, tables = _kept(folder, newest, keep, time.time() - older_than_seconds)
    manifests, shards = folder.named(sorted(tables))
    needed = [
        (folder.tables, {table.name for table in tables}),
        (folder.manifests, manifests),
        (folder.shards, shards),
    ]

    def publish() -> None:
        nonlocal newest
        following = replace(
            newest,
            number=newest.number + 1,
            created=time.time(),
            operation=OPERATION,
            files={},
            bytes_in=0,
            seconds=time.perf_counter() - began,
            first=max(first, newest.first),
        )
        folder.publish(following)
        newest = following

    with writing(str(folder.path)):
        freed = _remove_unneeded(folder.files, first, needed, publish, runs_onto(folder.path))
    return newest, freed


def _kept(folder: RecordingsFolder, newest: RecordingsVersion, keep: int, limit: float) -> tuple[int, set[TableRef]]:
    """The number of the first version that stays, and the tables of all of them.

    A vacuum's own version, which has the recordings of the one before it, is not counted.
    """
    first, tables = newest.number, set[TableRef]()
    for number in reversed(folder.files.numbers()):  # one at a time: of an hour there may be thousands
        version = newest if number == newest.number else folder.read_version(number)
        if keep <= 0 and version.created <= limit:
            break
        keep -= version.operation != OPERATION
        first = number
        tables.update(version.tables)
    return first, tables


def _remove_unneeded(
    files: VersionFiles,
    first: int,
    needed: Iterable[Needed],
    publish: Callable[[], None],
    runs: Collection[Folder],
) -> int:
    """Remove all versions before ``first``, files that no version from there on needs, and the folders of ``runs``.

    ``publish`` puts the version there that says so (:mod:`.versions`); it has to be one after a version that was
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
