"""Upkeep of datasets: compaction, the removal of what nothing has needed for long enough, and a look for faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ..errors import NotFoundError, ReadError, UsageError
from ..execution import RunOptions
from ..recordings import RecordingsFolder, StoreReader, StoreWriter, check_store, make_times
from ..store import RecordingStore
from .entries import DATASET_KINDS, EntryKind
from .entry_log import EntryLog
from .search import SearchIndexes

WEEK: Final = timedelta(days=7)
"""What is younger may still be in use: by a long query, or a writer that sleeps."""


@dataclass(frozen=True, slots=True)
class CatalogFault:
    """A file of a catalog that is not as it was: of ``dataset``, or the catalog's own, where that is None.

    ``segment_id`` and ``layer`` name the layer that needs it, if that is one. ``error`` says which file, and what is
    wrong with it.
    """

    error: ReadError
    dataset: str | None = None
    segment_id: str | None = None
    layer: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON data: the error with its code, message, path and hint, and what it is about."""
        return {
            "dataset": self.dataset,
            "segment_id": self.segment_id,
            "layer": self.layer,
            **self.error.to_dict(),
        }


def faults_of(log: EntryLog, names: Sequence[str] | None) -> list[CatalogFault]:
    """The faults of all datasets and of the catalog's own files, or of the datasets of some names."""
    version = log.read()
    rows = [row for row in version.entries.values() if row.kind in DATASET_KINDS]
    if names is not None:
        missing = next((name for name in names if version.named(name) not in rows), None)
        if missing is not None:
            raise NotFoundError(
                f"No dataset found with name '{missing}'", hint=version.like(missing, (EntryKind.DATASET,))
            )
        rows = [row for row in rows if row.name in names]
    found = [CatalogFault(error) for error in log.faults()] if names is None else []
    for row in sorted(rows, key=lambda row: row.name):
        folder = RecordingsFolder(log.place(row))
        try:
            faults = check_store(folder) if folder.files.all_numbers() else []
        except ReadError as error:
            faults = [(None, error)]
        for entry, fault in faults:
            layer = (None, None) if entry is None else (entry.recording_id, entry.layer)
            found.append(CatalogFault(fault, row.name, *layer))
    return found


def a_week_ago() -> datetime:
    """The time before which things are old."""
    return datetime.now(UTC) - WEEK


def maintain(
    folder: RecordingsFolder,
    *,
    optimize: bool,
    retrain: bool,
    compact: bool,
    cleanup_before: datetime | None,
    allow_recent: bool,
) -> None:
    """Make missing times in a dataset's store, compact it, bring its search indexes up to date, and vacuum it, as asked
    for; nothing where there is none.
    """
    age = None if cleanup_before is None else _age_of(cleanup_before, allow_recent)
    if folder.newest() is None:
        return
    if optimize:
        make_times(StoreWriter(folder), RunOptions("auto"))
    if compact:
        RecordingStore.open(folder.path).compact()
    indexes = SearchIndexes(folder)
    if optimize or retrain:
        indexes.maintain(StoreReader(folder).live(), RunOptions("auto"), retrain=retrain)
    if age is not None:
        indexes.clean(age)
        RecordingStore.open(folder.path).vacuum(older_than_seconds=age)


def _age_of(before: datetime, allow_recent: bool) -> float:
    """The age in seconds; a time without a zone is in UTC."""
    when = before if before.tzinfo is not None else before.replace(tzinfo=UTC)
    age = datetime.now(UTC) - when
    if age < WEEK - timedelta(minutes=1) and not allow_recent:
        raise UsageError(
            f"versions that are younger than {WEEK.days} days may still be in use, and are not removed",
            hint="Name an earlier cleanup_before, or say unsafe_allow_recent_cleanup=True.",
        )
    return max(age.total_seconds(), 0.0)


def remove_deleted(log: EntryLog) -> None:
    """Remove the data of datasets that were deleted a week ago, and say so in the log, before and after.

    What was adopted meanwhile stays. Where this is cut, it is done again.
    """
    limit = a_week_ago().timestamp() * 1e9
    old = frozenset(gone.id for gone in log.read().removed if gone.removed_ns < limit)
    if not old:
        return
    going = [gone for gone in log.transact(dict, going=old).removed if gone.is_going]
    for gone in going:
        log.folder.sub(gone.place).remove()
    log.transact(dict, clear=frozenset(gone.id for gone in going))
