"""Removing what no kept version of a store of recordings needs."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from ..errors import UsageError, writing
from ..execution import Folder, Lease, abandoned_runs
from ..faults import reach
from ..storage import publish
from .folder import RecordingsFolder
from .new_files import announced_runs, withdraw_all
from .versions import RecordingsVersion, TableRef

OPERATION: Final = "vacuum"


def vacuum_store(folder: RecordingsFolder, *, keep: int = 1, older_than_seconds: float = 0.0) -> int:
    """Take the lease on a store, and vacuum it; see :meth:`RecordingStore.vacuum`. Gives the bytes freed."""
    if keep < 1:
        raise UsageError(f"keep must be at least 1, not {keep}")
    with Lease.take(folder.path, OPERATION):
        return vacuum_folder(folder, folder.version(), keep=keep, older_than_seconds=older_than_seconds)[1]


def vacuum_folder(
    folder: RecordingsFolder, newest: RecordingsVersion, *, keep: int, older_than_seconds: float
) -> tuple[RecordingsVersion, int]:
    """See :meth:`RecordingStore.vacuum`; return the version that is the newest then, and the bytes freed.

    ``newest`` is the newest version, read before; where there is something to remove, one after it is published that
    has the same recordings, and says whom it spared: the files of runs that writers who live have announced. Raises as
    ``StoreWriter.commit`` does.
    """
    began = time.perf_counter()
    there = [(kind, kind.entries()) for kind in (folder.tables, folder.manifests, folder.shards)]
    there.append((folder.versions_folder, [e for e in folder.versions_folder.entries() if e.name.startswith(".")]))
    runs = abandoned_runs(folder.path)
    base: RecordingsVersion | None = newest

    def attempt() -> tuple[RecordingsVersion, int] | None:
        nonlocal base
        newest, base = base or folder.version(), None
        first, tables = _kept(folder, newest, keep, time.time() - older_than_seconds)
        manifests, shards = folder.named(sorted(tables))
        needed = {table.name for table in tables} | manifests | shards
        living, dead = announced_runs(folder)
        doomed = [(kind, [e for e in files if is_doomed(e.name, needed, living)]) for kind, files in there]
        stale = [number for number in folder.files.all_numbers() if number < first]
        if not stale and not runs and not dead and not any(files for _, files in doomed):
            return newest, 0
        version = following(newest, living, max(first, newest.first), time.perf_counter() - began)
        if not folder.publish(version):
            reach("version.rebase")
            return None
        reach("vacuum.publish")
        withdraw_all(folder, dead)
        return version, _remove(folder, stale, doomed)

    with writing(str(folder.path)):
        return publish(attempt, "this store", path=str(folder.path))


def is_doomed(name: str, needed: Collection[str], living: Collection[str]) -> bool:
    """Whether a file that was there before the newest version was read is to go."""
    return name not in needed and name.partition("-")[0] not in living


def following(newest: RecordingsVersion, living: Iterable[str], first: int, seconds: float) -> RecordingsVersion:
    """The version of a vacuum on top of ``newest``: the same recordings, what it begins with, and whom it spares."""
    return replace(
        newest,
        number=newest.number + 1,
        created=time.time(),
        operation=OPERATION,
        files={},
        bytes_in=0,
        seconds=seconds,
        first=first,
        vacuumed=newest.number + 1,
        spared={run: newest.spared.get(run, newest.vacuumed) for run in sorted(living)},
    )


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


def _remove(
    home: RecordingsFolder, stale: Sequence[int], doomed: Iterable[tuple[Folder, Sequence[tuple[str, int]]]]
) -> int:
    """Remove old versions first, so that no reader can open them any more; then what only they needed.

    What is left where this is cut, the next one removes. Gives the bytes freed.
    """
    home.files.delete(stale)
    reach("vacuum.versions")
    freed = 0
    for folder, entries in doomed:
        folder.delete(name for name, _ in entries)
        freed += sum(size for _, size in entries)
        if entries:
            reach("vacuum.files")
    for run in abandoned_runs(home.path):
        freed += run.total()
        run.remove()
    return freed
