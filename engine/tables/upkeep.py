"""Upkeep of a table with computed columns: join fragments, and remove unneeded versions and files.

The record of a running job names the first version that it needs; file names have the digits of their job. A record
counts while its process lives; on another host, while the record has recent heartbeats.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from ..errors import UnsupportedCallError, WriteError
from ..execution import Staging
from ..faults import reach
from ..lance import JoinedFragments, LanceTable
from ..locations import located
from ..storage.folder import Folder
from .checkpoints import COMPUTED, CheckpointStore
from .digests import job_digits, job_of
from .jobs import JobTable
from .planning import state_of_files
from .targets import Definition, groups_of, note_fresh, stale_rows

STAGED: Final = ("run", "source")
"""The places of staging files of runs and loads, in the folder of computed columns."""
_MOST_APART: Final = 64
"""The most fragments with stale values that are kept apart. Only neighbours are joined, so they may stay small."""
WEEK: Final = timedelta(days=7)
"""The default age of versions to remove."""


@dataclass(frozen=True)
class CleanupStats:
    """The numbers of bytes and versions that a cleanup removed."""

    bytes_removed: int
    old_versions: int


def joined(table: LanceTable, *, deletions: bool = False) -> None:
    """Join small fragments, and add all rows to the indexes. With ``deletions``, also remove deleted rows from files.

    Up to 64 fragments with stale values are joined only with each other, so that stale values remain identifiable. More
    are joined with all others; then all values in them that were ever updated or filled count as stale.
    """
    table.extend_indexes()  # Lance joins no fragments if an index covers only some of them
    reader = table.at()
    fresh = {
        columns: {
            fragment.id
            for fragment, stale in zip(reader.fragments, stale_rows(reader, columns, reader.fragments), strict=True)
            if not stale
        }
        for columns in groups_of(reader.schema)
    }

    def keep_fresh(made: Sequence[JoinedFragments]) -> None:
        files = {
            columns: [file for group in made if group.before <= ids for file in group.files]
            for columns, ids in fresh.items()
        }
        note_fresh(table, only=(), made=files)

    if not fresh:
        table.compact(deletions=deletions)
    else:
        all_fresh = set.intersection(*fresh.values())
        table.compact(all_fresh, keep_fresh, deletions=deletions)
        stale = reader.by_id.keys() - all_fresh
        table.compact(stale if len(stale) <= _MOST_APART else None, keep_fresh, deletions=deletions)
    table.extend_indexes(retrain=deletions)


def purged(table: LanceTable, jobs: JobTable) -> CleanupStats:
    """Remove all data of deleted rows and earlier versions, so that only the visible rows remain.

    Checkpoints and the records of failed rows are removed, too. Other writers must not write to the table meanwhile.

    Raises a transient ``WriteError`` while a job runs on the table's columns.
    """
    if running := jobs.running():
        raise WriteError(
            f"job {running[0].job_id} is computing columns of {table.title}",
            path=table.place,
            hint="Wait until it is done, or stop it, and run this again.",
            transient=True,
        )
    joined(table, deletions=True)
    for name in ("checkpoints", "errors", *STAGED):
        Folder.at(located(table.place) / COMPUTED / name).remove()
    return cleaned(table, jobs, timedelta(0), delete_unverified=True)


def cleaned(
    table: LanceTable, jobs: JobTable, older_than: timedelta = WEEK, *, delete_unverified: bool = False
) -> CleanupStats:
    """Remove old versions, and unused checkpoints and files of columns.

    A running job keeps its version and later ones, its checkpoints and its files. ``delete_unverified`` also removes
    files of other writers that no version names, unless a job runs.
    """
    running = jobs.running()
    if running and delete_unverified:
        warnings.warn(
            f"unverified files of {table.place} are kept, because job {running[0].job_id} is running",
            UserWarning,
            stacklevel=3,
        )
    size, versions = table.cleanup(
        older_than,
        min((job.version for job in running), default=None),
        delete_unverified=delete_unverified and not running,
    )
    cleaned_checkpoints(table, jobs)
    return CleanupStats(size + remove_orphans(table, jobs), versions)


def remove_orphans(table: LanceTable, jobs: JobTable) -> int:
    """Remove column files that no version, checkpoint or running job names, and return their bytes.

    A table with branches keeps all files.
    """
    data = Folder.at(located(table.place) / "data")
    try:
        sizes = {file.name: file.size for file in data.entries() if job_of(file.name) is not None}
    except FileNotFoundError:
        return 0
    orphans = sizes.keys() - {file for fragment in table.at().fragments for file in fragment.files.values()}
    if not orphans:
        return 0
    # In this order: a job that has ended by now has committed; a running job is named by its files.
    running = {job_digits(job.job_id) for job in jobs.running()}
    store = CheckpointStore(table.place)
    keys = store.keys()
    orphans -= {name for name in orphans if job_of(name) in running}
    orphans -= {file.name for key in keys for file in store.of(key).files()}
    try:
        for named in table.files_of_versions():
            orphans -= named
            if not orphans:
                return 0
    except UnsupportedCallError:
        return 0
    reach("column.remove")
    data.delete(sorted(orphans))
    return sum(sizes[name] for name in orphans)


def cleaned_checkpoints(table: LanceTable, jobs: JobTable) -> dict[str, int]:
    """Remove checkpoints that no run would use; return how many were of rows, and how many of whole fragments.

    Staging folders of dead runs are removed, too.

    While a job runs, no checkpoints are removed, as it may read an older version. A cleanup of versions removes the
    column files that nothing names.
    """
    counts = {"batch_deleted": 0, "orphan_frag_deleted": 0, "udtf_batch_deleted": 0}
    store = CheckpointStore(table.place)
    for name in STAGED:
        Staging.sweep(located(table.place) / COMPUTED / name)
    if jobs.running():
        return counts
    jobs.sweep()
    keys = store.keys()
    if not keys:
        return counts
    reader = table.at()
    groups = {
        (definition.columns_in(reader.schema), definition.inputs_of(reader.schema))
        for field in reader.schema
        if (definition := Definition.of(field)) is not None
    }
    useful = {state_of_files(*group, fragment) for group in groups for fragment in reader.fragments}
    for key in keys:
        if key.rpartition("-")[0] in useful:
            continue
        checkpoints = store.of(key)
        counts["batch_deleted"] += len(checkpoints.spans())
        counts["orphan_frag_deleted"] += any(True for _ in checkpoints.files())
        checkpoints.remove()
    return counts
