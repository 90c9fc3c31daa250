"""Maintenance of datasets and tables: creation of tables, compaction, removal of unused files, and checks."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePath
from typing import Any, Final

import pyarrow as pa

from ..errors import AlreadyExistsError, NotFoundError, ReadError, UsageError, WriteError
from ..execution import RunOptions
from ..faults import reach
from ..lance import LanceTable
from ..locations import Location, is_below, located, true_place
from ..recordings import RecordingsFolder, StoreReader, StoreWriter, check_store, make_times
from ..storage import is_url
from ..storage.folder import Folder
from ..store import RecordingStore
from ..tables import JobTable, cleaned, joined
from ..units import Moment, age_of_moment
from .entries import EntryId, EntryKind, EntryRow
from .entry_log import OWN_FOLDERS, EntryLog
from .forget import unfinished
from .search import SearchIndexes

TABLES: Final = "tables"
"""The folder in a catalog for tables without a URL."""
_OF_TABLES: Final = (TABLES, "uploads")
_LONGEST_CREATION: Final = timedelta(days=1)
"""The time in which a new table must get its entry: much shorter than the age at which leftovers are removed."""


def created_table(log: EntryLog, name: str, schema: pa.Schema, url: str | os.PathLike[str] | None) -> EntryRow:
    """Create a table, and then its entry. If the name is taken, remove the table again."""
    _check_free(log, name)
    id_ = EntryId.new()
    place = log.root / TABLES / str(id_) if url is None else absolute_place(url) / str(id_)
    _check_place(log, place)
    with _new_table(place, name, schema):
        reach("lance.create")
        if age_of_table(id_) > _LONGEST_CREATION:
            raise WriteError(
                f"the creation of table {name!r} took too long", path=str(place), hint="Try again.", transient=True
            )
        return _entry(log, id_, name, place)


def created_table_at(log: EntryLog, name: str, schema: pa.Schema, url: str | os.PathLike[str]) -> EntryRow:
    """Create a table exactly at a place, and then its entry."""
    place = absolute_place(url)
    _check_place(log, place)
    _check_free(log, name)
    with _new_table(place, name, schema):
        return _entry(log, EntryId.new(), name, place)


@contextmanager
def _new_table(place: Location, name: str, schema: pa.Schema) -> Iterator[None]:
    """A block that creates the entry of a new table. If the block fails, the table is removed again.

    Raises ``AlreadyExistsError`` if there is a table already.
    """
    folder = Folder.at(place)
    was_there = folder.exists()
    if not LanceTable(place, name).create(schema):
        raise AlreadyExistsError(f"Table storage already exists at location: {place}")
    try:
        yield
    except (AlreadyExistsError, UsageError):
        for made in (folder.sub("_versions"), folder.sub("_transactions")) if was_there else (folder,):
            made.remove()
        raise


def registered_table(log: EntryLog, name: str, url: str | os.PathLike[str]) -> EntryRow:
    """Register an existing table, and return its entry."""
    place = absolute_place(url)
    _check_place(log, place)
    LanceTable(place, name, log.gate).snapshot().check_blobs()
    return _entry(log, EntryId.new(), name, place)


def _check_place(log: EntryLog, place: Location) -> None:
    """Raise ``UsageError`` for the catalog's folder, its parents, and the folders of the catalog's own data."""
    real, root = true_place(place), true_place(log.root)
    own = (
        *(true_place(log.root / name) for name in OWN_FOLDERS),
        *(true_place(log.root / name) for name in _OF_TABLES),
    )
    if is_below(root, real) or any(is_below(real, folder) for folder in own[: len(OWN_FOLDERS)]) or real in own:
        raise UsageError(
            "a table cannot be in a folder of the catalog itself",
            path=str(place),
            hint="Choose another folder, or omit the URL.",
        )


def _entry(log: EntryLog, id_: EntryId, name: str, place: Location) -> EntryRow:
    now = time.time_ns()
    row = EntryRow(id_, name, EntryKind.TABLE, log.place_in(place), now, now)
    log.add(row)
    return row


def _check_free(log: EntryLog, name: str) -> None:
    if log.read().named(name) is not None:
        raise AlreadyExistsError(f"Entry name '{name}' already exists")


def absolute_place(url: str | os.PathLike[str]) -> Location:
    """The place of an absolute path or a URL. Raises ``UsageError`` for a relative path."""
    text = os.fspath(url)
    if not is_url(text) and not PurePath(text).is_absolute():
        raise UsageError("Invalid URL: relative URL without a base", hint="Give an absolute path, or a URL.")
    return located(text)


def age_of_table(id_: EntryId) -> timedelta:
    """The time since an id was made. The id begins with its time in nanoseconds."""
    return timedelta(microseconds=(time.time_ns() - int.from_bytes(id_.as_bytes()[:8], "big")) / 1000)


WEEK: Final = timedelta(days=7)
"""The age up to which data may be in use, by a long query or a suspended writer."""


def a_week_ago() -> datetime:
    """The time a week ago; older data is not in use."""
    return datetime.now(UTC) - WEEK


def age_of(cleanup_before: Moment, *, allow_recent: bool) -> timedelta:
    """Return a time as an age.

    Raises ``UsageError`` for an invalid time, and for less than a week, unless that is allowed.
    """
    age = age_of_moment("cleanup_before", cleanup_before)
    if age < WEEK - timedelta(minutes=1) and not allow_recent:
        raise UsageError(
            f"versions younger than {WEEK.days} days may be in use, and are not removed",
            hint="Give an earlier cleanup_before, or set unsafe_allow_recent_cleanup=True.",
        )
    return max(age, timedelta())


def table_of(log: EntryLog, row: EntryRow, version: int | None = None) -> LanceTable:
    """The table of an entry, or a version of it."""
    return LanceTable(located(log.place(row)), row.name, log.gate, version)


def maintain_table(table: LanceTable, *, compact: bool, cleanup_before: Moment | None, allow_recent: bool) -> None:
    """Compact a table if ``compact``, and remove old versions and leftovers of jobs on its columns."""
    age = None if cleanup_before is None else age_of(cleanup_before, allow_recent=allow_recent)
    if compact:
        joined(table)
    if age is not None:
        cleaned(table, JobTable(table.place, table.place), age)


def maintain_tables(log: EntryLog) -> list[Exception]:
    """Maintain all tables that the catalog created, but not registered ones; return the errors."""
    failed: list[Exception] = []
    for row in log.read().entries.values():
        if row.kind is not EntryKind.TABLE or row.place.rpartition("/")[2] != str(row.id):
            continue
        try:
            maintain_table(table_of(log, row), compact=True, cleanup_before=a_week_ago(), allow_recent=False)
        except NotFoundError:
            continue  # moved away; a check reports it
        except Exception as error:  # noqa: BLE001 (others are maintained)
            failed.append(error)
    return failed


def remove_abandoned(log: EntryLog) -> None:
    """Remove the leftovers of table creations that were interrupted at least a week ago."""
    for folder in abandoned_tables(log, datetime.now(UTC) - a_week_ago()):
        reach("lance.remove")
        folder.remove()


def abandoned_tables(log: EntryLog, older_than: timedelta) -> list[Folder]:
    """The folders of the catalog's own tables that are older, and have no entry and no data file.

    They are leftovers of interrupted creations. A deleted table that ever had a row has data files.
    """
    tables = log.folder.sub(TABLES)
    old_names = [
        name for name in tables.folders() if (id_ := _id_of(name)) is not None and age_of_table(id_) > older_than
    ]
    named = {row.place for row in log.read().entries.values()}
    folders = [tables.sub(name) for name in old_names if f"{TABLES}/{name}" not in named]
    return [folder for folder in folders if not _has_rows(folder)]


def _has_rows(folder: Folder) -> bool:
    try:
        return any(True for _ in folder.sub("data").names())
    except FileNotFoundError:
        return False


def _id_of(name: str) -> EntryId | None:
    try:
        return EntryId(name)
    except TypeError:
        return None


_NO_LONGER_MADE: Final = timedelta(hours=1)
_DRAFT: Final = re.compile(
    r"\.[0-9a-f][0-9a-f-]*\.draft"  # drafts of folders and uploads
    r"|.+\.[0-9a-f]{32}\.open|\d{8,}\.json\.open"  # drafts of replaced files and of leases
    r"|\.tmp[0-9A-Za-z]{6}|.+\.[a-z]+#\d+"  # of Lance
)
"""Names of files that are being written, or that a killed process was writing."""


@dataclass(frozen=True, slots=True)
class CatalogFault:
    """A damaged file of a catalog: a file of ``dataset`` or ``table``, or of the catalog itself if both are None.

    ``segment_id`` and ``layer`` identify the layer that needs the file, if any. ``error`` names the file and the fault.
    """

    error: ReadError
    dataset: str | None = None
    segment_id: str | None = None
    layer: str | None = None
    table: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON data: the error with its code, message, path and hint, and its dataset, table or segment."""
        return {
            "dataset": self.dataset,
            "segment_id": self.segment_id,
            "layer": self.layer,
            "table": self.table,
            **self.error.to_dict(),
        }


def faults_of(log: EntryLog, names: Sequence[str] | None) -> list[CatalogFault]:
    """The faults of all datasets and tables and of the catalog's own files, or of the named entries."""
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
    catalog_faults = [CatalogFault(error) for error in [*log.faults(), *_abandoned(log)]] if names is None else []
    for row in sorted(rows, key=lambda row: row.name):
        if row.kind is EntryKind.TABLE:
            catalog_faults += [CatalogFault(error, table=row.name) for error in table_of(log, row).verify().faults]
            continue
        folder = RecordingsFolder(log.place(row))
        try:
            faults = check_store(folder) if folder.files.all_numbers() else []
        except ReadError as error:
            faults = [(None, error)]
        for entry, fault in faults:
            layer = (None, None) if entry is None else (entry.recording_id, entry.layer)
            catalog_faults.append(CatalogFault(fault, row.name, *layer))
        catalog_faults += [CatalogFault(fault, row.name) for fault in unfinished(folder)]
    return catalog_faults


def _abandoned(log: EntryLog) -> list[ReadError]:
    """The errors for tables without an entry whose creation has ended."""
    return [
        ReadError(
            "no entry has this table, and the table has no data",
            path=str(folder.location),
            hint="client.do_global_maintenance() removes it after a week.",
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
    """Add missing times to a dataset's store, compact it, update its search indexes, and vacuum it, as the arguments
    say. Do nothing if there is no store.
    """
    age = None if cleanup_before is None else age_of(cleanup_before, allow_recent=allow_recent).total_seconds()
    if folder.newest() is None:
        return
    if optimize:
        make_times(StoreWriter(folder), RunOptions(None if os.environ.get("CHUNKMILL_EXECUTOR") else "auto"))
    if compact:
        RecordingStore.open(folder.path).compact()
    indexes = SearchIndexes(folder)
    if optimize or retrain:
        indexes.maintain(StoreReader(folder).live(), RunOptions(None), retrain=retrain)
    if age is not None:
        indexes.clean(age)
        RecordingStore.open(folder.path).vacuum(older_than_seconds=age)


def remove_drafts(log: EntryLog) -> None:
    """Remove drafts of this project and of Lance that killed processes have left.

    Drafts are removed from the catalog's own folders, its datasets and the tables that it created, if they were not
    changed for a week and no process of this host has them open. Object stores have no drafts.
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
    """Remove a draft that was not written since ``limit``, unless a process has it open."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mtime < limit and not _is_open_elsewhere(file.fileno()):
                path.unlink()
    except FileNotFoundError:
        return  # it was renamed, or another process removed it
    except OSError as error:
        warnings.warn(f"{path} was left by a killed process, and cannot be removed: {error}", UserWarning, stacklevel=4)


def _is_open_elsewhere(handle: int) -> bool:
    """Return whether a process of this host has the file open, as far as its file system shows."""
    set_lease = getattr(fcntl, "F_SETLEASE", None)
    if set_lease is None:
        return False
    try:
        fcntl.fcntl(handle, set_lease, fcntl.F_WRLCK)  # granted only if no other has it open; ends with the handle
    except OSError as error:
        return error.errno == errno.EAGAIN
    return False


def remove_deleted(log: EntryLog) -> None:
    """Remove the data of datasets deleted at least a week ago, and log this before and after.

    Datasets that were adopted meanwhile stay. After an interruption, the next call completes the removal.
    """
    limit = a_week_ago().timestamp() * 1e9
    old = frozenset(gone.id for gone in log.read().removed if gone.removed_ns < limit)
    if not old:
        return
    going = [gone for gone in log.transact(dict, going=old).removed if gone.is_going]
    for gone in going:
        log.folder.sub(gone.place).remove()
    log.transact(dict, clear=frozenset(gone.id for gone in going))
