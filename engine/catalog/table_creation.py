"""Entries of tables: one that is made, and one of a table that is there."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import PurePath
from typing import Final

import pyarrow as pa

from ..errors import AlreadyExistsError, UsageError, WriteError
from ..faults import reach
from ..folders import Folder
from ..lance import UserTable
from ..locations import Location, located
from ..objects import is_url
from .entries import EntryId, EntryKind, EntryRow
from .entry_log import EntryLog

TABLES: Final = "tables"
"""The folder in a catalog's own in which are the tables that have no other place."""
_LONGEST_CREATION: Final = timedelta(days=1)
"""Within which a table that was made gets its entry, or never: much less than after which it would be removed."""


def created_table(log: EntryLog, name: str, schema: pa.Schema, url: str | os.PathLike[str] | None) -> EntryRow:
    """Make a table, and then its entry: what has a name is there. Where the name is taken, the table goes again."""
    _check_free(log, name)
    id_ = EntryId.new()
    place = log.root / TABLES / str(id_) if url is None else absolute_place(url) / str(id_)
    with new_table(place, name, schema):
        reach("lance.create")
        if age_of_table(id_) > _LONGEST_CREATION:
            raise WriteError(f"making table {name!r} took too long", path=str(place), hint="Try again.", transient=True)
        return _entry(log, id_, name, place)


@contextmanager
def new_table(place: Location, name: str, schema: pa.Schema) -> Iterator[None]:
    """A block in which a table that was just made gets its entry. Where that is refused, the table goes again.

    Raises ``AlreadyExistsError`` where there is a table already.
    """
    if not UserTable(place, name).create(schema):
        raise AlreadyExistsError(f"Table storage already exists at location: {place}")
    try:
        yield
    except (AlreadyExistsError, UsageError):
        Folder.at(place).remove()
        raise


def registered_table(log: EntryLog, name: str, url: str | os.PathLike[str]) -> EntryRow:
    """The entry of a table that is there."""
    place = absolute_place(url)
    UserTable(place, name).snapshot()
    return _entry(log, EntryId.new(), name, place)


def _entry(log: EntryLog, id_: EntryId, name: str, place: Location) -> EntryRow:
    now = time.time_ns()
    row = EntryRow(id_, name, EntryKind.TABLE, log.place_in(place), now, now)
    log.add(row)
    return row


def _check_free(log: EntryLog, name: str) -> None:
    if log.read().named(name) is not None:
        raise AlreadyExistsError(f"Entry name '{name}' already exists")


def absolute_place(url: str | os.PathLike[str]) -> Location:
    """The place that an absolute path or a URL names. Raises ``UsageError`` for a relative one."""
    text = os.fspath(url)
    if not is_url(text) and not PurePath(text).is_absolute():
        raise UsageError("Invalid URL: relative URL without a base", hint="Give an absolute path, or a URL.")
    return located(text)


def age_of_table(id_: EntryId) -> timedelta:
    """The time since an id was made, which begins with that in nanoseconds."""
    return timedelta(microseconds=(time.time_ns() - int.from_bytes(id_.as_bytes()[:8], "big")) / 1000)
