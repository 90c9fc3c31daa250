"""Upkeep of tables: compaction, removal of old versions and of what creations that were cut have left."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ..errors import NotFoundError
from ..faults import reach
from ..folders import Folder
from ..lance import LanceTable
from ..locations import located
from ..tables import JobTable, cleaned, joined
from ..units import Moment
from .entries import EntryId, EntryKind, EntryRow
from .entry_log import EntryLog
from .retention import a_week_ago, age_of
from .table_creation import TABLES, age_of_table


def table_of(log: EntryLog, row: EntryRow) -> LanceTable:
    """The table of an entry."""
    return LanceTable(located(log.place(row)), row.name, log.gate)


def maintain_table(table: LanceTable, *, compact: bool, cleanup_before: Moment | None, allow_recent: bool) -> None:
    """Compact a table, and remove old versions and what jobs on its columns have left, as asked for."""
    age = None if cleanup_before is None else age_of(cleanup_before, allow_recent=allow_recent)
    if compact:
        joined(table)
    if age is not None:
        cleaned(table, JobTable(table.place, table.place), age)


def maintain_tables(log: EntryLog) -> list[Exception]:
    """Maintain all tables that the catalog has made, and none that was registered; gives what went wrong."""
    failed: list[Exception] = []
    for row in log.read().entries.values():
        if row.kind is not EntryKind.TABLE or row.place.rpartition("/")[2] != str(row.id):
            continue
        try:
            maintain_table(table_of(log, row), compact=True, cleanup_before=a_week_ago(), allow_recent=False)
        except NotFoundError:
            continue  # somebody has moved it away, which a check tells
        except Exception as error:  # noqa: BLE001 (others are maintained)
            failed.append(error)
    return failed


def remove_abandoned(log: EntryLog) -> None:
    """Remove what creations of tables that were cut a week ago have left."""
    for folder in abandoned_tables(log, datetime.now(UTC) - a_week_ago()):
        reach("lance.remove")
        folder.remove()


def abandoned_tables(log: EntryLog, older_than: timedelta) -> list[Folder]:
    """The folders of tables of that age in the catalog's own, that have no entry, and to which nobody ever wrote.

    So they are what is left of creations that were cut. A table that was deleted is none of them if it ever had a row.
    """
    tables = log.folder.sub(TABLES)
    found = [name for name in tables.folders() if (id_ := _id_of(name)) is not None and age_of_table(id_) > older_than]
    named = {row.place for row in log.read().entries.values()}
    folders = [tables.sub(name) for name in found if f"{TABLES}/{name}" not in named]
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
