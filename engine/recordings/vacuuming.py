"""Removing what no kept version of a store of recordings needs."""

from __future__ import annotations

import time

from ..execution.staging import remove_runs
from ..failing import writing
from ..faults import reach
from ..store.cleaning import delete_files
from .folder import RecordingsFolder
from .version import TableRef


def vacuum_folder(folder: RecordingsFolder, *, keep: int, older_than_seconds: float, staging: bool = True) -> int:
    """See :meth:`RecordingStore.vacuum`; ``staging``: whether the folders of runs go too.

    A version file goes first, so that no reader can open it any more; then what only it needed. A run that is cut in
    between leaves what the next one removes.
    """
    numbers = folder.files.numbers()
    newest, limit = set(numbers[-keep:]), time.time() - older_than_seconds
    kept: set[int] = set()
    tables: set[TableRef] = set()
    for number in numbers:  # one at a time: of an hour there may be thousands
        version = folder.read_version(number)
        if number in newest or version.created > limit:
            kept.add(number)
            tables.update(version.tables)
    names = {table.name for table in tables}
    manifests, shards = folder.named(sorted(tables))
    with writing(str(folder.path)):
        folder.files.delete([number for number in numbers if number not in kept])
        reach("vacuum.versions")
        freed = delete_files(folder.versions_folder, lambda name: name.startswith("."))
        freed += delete_files(folder.tables, lambda name: name not in names)
        reach("vacuum.files")
        freed += delete_files(folder.manifests, lambda name: name not in manifests)
        freed += delete_files(folder.shards, lambda name: name not in shards)
        if staging:
            freed += remove_runs(folder.path)
    return freed
