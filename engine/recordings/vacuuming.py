"""Removing what no kept version of a store of recordings needs."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from ..execution.staging import runs_onto
from ..failing import writing
from .cleaning import remove_unneeded
from .folder import RecordingsFolder
from .version import RecordingsVersion, TableRef

OPERATION: Final = "vacuum"


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
        freed = remove_unneeded(folder.files, first, needed, publish, runs_onto(folder.path))
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
