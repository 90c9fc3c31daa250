"""Upkeep of datasets and tables: compaction, removal of what nothing has needed for long enough, a look for faults."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from ..errors import NotFoundError, ReadError
from ..execution import RunOptions
from ..locations import located
from ..recordings import RecordingsFolder, StoreReader, StoreWriter, check_store, make_times
from ..store import RecordingStore
from ..units import Moment
from .entries import EntryKind
from .entry_log import EntryLog
from .retention import a_week_ago, age_of
from .search import SearchIndexes
from .table_upkeep import abandoned_tables, table_of

_NO_LONGER_MADE: Final = timedelta(hours=1)
_DRAFT: Final = re.compile(
    r"\.[0-9a-f][0-9a-f-]*\.draft"  # of folders and of uploads
    r"|.+\.[0-9a-f]{32}\.open|\d{8,}\.json\.open"  # of files that are replaced, and of leases
    r"|\.tmp[0-9A-Za-z]{6}|.+\.[a-z]+#\d+"  # of Lance
)
"""Names of files that are being written, or were when a process was killed."""


@dataclass(frozen=True, slots=True)
class CatalogFault:
    """A file of a catalog that is not as it was: of ``dataset`` or ``table``, or the catalog's own if neither is told.

    ``segment_id`` and ``layer`` name the layer that needs it, if that is one. ``error`` says which file, and what is
    wrong with it.
    """

    error: ReadError
    dataset: str | None = None
    segment_id: str | None = None
    layer: str | None = None
    table: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON data: the error with its code, message, path and hint, and what it is about."""
        return {
            "dataset": self.dataset,
            "segment_id": self.segment_id,
            "layer": self.layer,
            "table": self.table,
            **self.error.to_dict(),
        }


def faults_of(log: EntryLog, names: Sequence[str] | None) -> list[CatalogFault]:
    """The faults of all datasets and tables and of the catalog's own files, or of the entries of some names."""
    version = log.read()
    rows = list(version.entries.values())
    if names is not None:
        missing = next((name for name in names if version.named(name) not in rows), None)
        if missing is not None:
            raise NotFoundError(
                f"No entry found with name '{missing}'",
                hint=version.like(missing, (EntryKind.DATASET, EntryKind.TABLE)),
            )
        rows = [row for row in rows if row.name in names]
    found = [CatalogFault(error) for error in [*log.faults(), *_abandoned(log)]] if names is None else []
    for row in sorted(rows, key=lambda row: row.name):
        if row.kind is EntryKind.TABLE:
            found += [CatalogFault(error, table=row.name) for error in table_of(log, row).verify().faults]
            continue
        folder = RecordingsFolder(log.place(row))
        try:
            faults = check_store(folder) if folder.files.all_numbers() else []
        except ReadError as error:
            faults = [(None, error)]
        for entry, fault in faults:
            layer = (None, None) if entry is None else (entry.recording_id, entry.layer)
            found.append(CatalogFault(fault, row.name, *layer))
    return found


def _abandoned(log: EntryLog) -> list[ReadError]:
    """Tell of tables that have no entry, once nobody is making them any more."""
    return [
        ReadError(
            "no entry has this table, and nothing was ever written to it",
            path=str(folder.location),
            hint="client.do_global_maintenance() removes it when it is a week old.",
        )
        for folder in abandoned_tables(log, _NO_LONGER_MADE)
    ]


def maintain(
    folder: RecordingsFolder,
    *,
    optimize: bool,
    retrain: bool,
    compact: bool,
    cleanup_before: Moment | None,
    allow_recent: bool,
) -> None:
    """Make missing times in a dataset's store, compact it, bring its search indexes up to date, and vacuum it, as asked
    for; nothing where there is none.
    """
    age = None if cleanup_before is None else age_of(cleanup_before, allow_recent=allow_recent).total_seconds()
    if folder.newest() is None:
        return
    if optimize:
        make_times(StoreWriter(folder), RunOptions("auto"))
    if compact:
        RecordingStore.open(folder.path).compact()
    indexes = SearchIndexes(folder)
    if optimize or retrain:
        indexes.maintain(StoreReader(folder).live(), RunOptions(None), retrain=retrain)
    if age is not None:
        indexes.clean(age)
        RecordingStore.open(folder.path).vacuum(older_than_seconds=age)


def remove_drafts(log: EntryLog) -> None:
    """Remove files that nobody goes on writing: drafts of this project and of Lance, which kills have left.

    They lie in the catalog's own folders, in its datasets and in the tables that it has made, were not touched for a
    week, and no process of this host has them open. Object stores have no drafts.
    """
    if not isinstance(log.root, Path):
        return
    limit = a_week_ago().timestamp()
    own = [log.root / name for name in ("catalog", "datasets", "tables", "uploads")]
    adopted = [log.place(row) for row in log.read().entries.values() if row.kind is not EntryKind.TABLE]
    for home in {*own, *(place for place in map(located, adopted) if isinstance(place, Path))}:
        for folder, _, names in os.walk(home):
            for name in filter(_DRAFT.fullmatch, names):
                _remove_draft(Path(folder, name), limit)


def _remove_draft(path: Path, limit: float) -> None:
    """Remove a draft that was not written since a time, unless somebody has it open."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mtime < limit and not _is_open_elsewhere(file.fileno()):
                path.unlink()
    except FileNotFoundError:
        return  # it has got its name, or another process removes drafts, too
    except OSError as error:
        warnings.warn(f"{path} is left of a process that was killed, and stays: {error}", UserWarning, stacklevel=4)


def _is_open_elsewhere(handle: int) -> bool:
    """Whether a process of this host has the file open, as far as its file system tells."""
    set_lease = getattr(fcntl, "F_SETLEASE", None)
    if set_lease is None:
        return False
    try:
        fcntl.fcntl(handle, set_lease, fcntl.F_WRLCK)  # granted to the only one who has it open; ends with the handle
    except OSError as error:
        return error.errno == errno.EAGAIN
    return False


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
