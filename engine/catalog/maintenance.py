"""Upkeep of datasets: compaction, and the removal of what nothing has needed for long enough."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from ..errors import UsageError
from ..recordings import RecordingsFolder
from ..store import RecordingStore
from .entry_log import EntryLog

WEEK: Final = timedelta(days=7)
"""What is younger may still be in use: by a long query, or a writer that sleeps."""


def a_week_ago() -> datetime:
    """The time before which things are old."""
    return datetime.now(UTC) - WEEK


def maintain(folder: RecordingsFolder, *, compact: bool, cleanup_before: datetime | None, allow_recent: bool) -> None:
    """Compact a dataset's store, and vacuum it, as asked for. Where there is no store, nothing is done."""
    age = None if cleanup_before is None else _age_of(cleanup_before, allow_recent)
    if folder.newest() is None:
        return
    if compact:
        RecordingStore.open(folder.path).compact()
    if age is not None:
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
    """Remove the data of datasets that were deleted a week ago, and say so in the log.

    Where this is cut, it is done again.
    """
    version = log.read()
    limit = a_week_ago().timestamp() * 1e9
    used = {row.place for row in version.entries.values()}
    old = [gone for gone in version.removed if gone.removed_ns < limit and gone.place not in used]
    for gone in old:
        log.folder.sub(gone.place).remove()
    if old:
        log.transact(dict, frozenset(gone.id for gone in old))
