"""Removing what no kept version of a store of recordings needs."""

from __future__ import annotations

import time

from ..execution.staging import remove_runs
from ..failing import writing
from ..faults import reach
from ..store.cleaning import delete_files
from .folder import RecordingsFolder


def vacuum_folder(folder: RecordingsFolder, *, keep: int, older_than_seconds: float, staging: bool = True) -> int:
    """See :meth:`RecordingStore.vacuum`; ``staging``: whether the folders of runs go too.

    A version file goes first, so that no reader can open it any more; then what only it needed. A run that is cut in
    between leaves what the next one removes.
    """
    versions = folder.versions()
    limit = time.time() - older_than_seconds
    kept = [v for i, v in enumerate(versions) if i >= len(versions) - keep or v.created > limit]
    numbers = {v.number for v in kept}
    tables = {table for v in kept for table in v.tables}
    entries = folder.entries(sorted(tables))
    names = {table.name for table in tables}
    manifests = {entry.manifest for entry in entries}
    shards = {shard for entry in entries for shard in entry.shards}
    with writing(str(folder.path)):
        folder.files.delete([v.number for v in versions if v.number not in numbers])
        reach("vacuum.versions")
        freed = delete_files(folder.versions_folder, lambda name: name.startswith("."))
        freed += delete_files(folder.tables, lambda name: name not in names)
        reach("vacuum.files")
        freed += delete_files(folder.manifests, lambda name: name not in manifests)
        freed += delete_files(folder.shards, lambda name: name not in shards)
        if staging:
            freed += remove_runs(folder.path)
    return freed
