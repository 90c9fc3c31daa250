"""Entries of tables: one that is made, and one of a table that is there."""

from __future__ import annotations

import os
import time
from pathlib import PurePath
from typing import Final

import pyarrow as pa

from ..errors import AlreadyExistsError, UsageError
from ..folders import Folder
from ..lance import UserTable
from ..locations import Location, located
from ..objects import is_url
from .entries import EntryId, EntryKind, EntryRow
from .entry_log import EntryLog

_TABLES: Final = "tables"


def created_table(log: EntryLog, name: str, schema: pa.Schema, url: str | os.PathLike[str] | None) -> EntryRow:
    """Make a table, and then its entry: what has a name is there. Where the name is taken, the table goes again."""
    _check_free(log, name)
    id_ = EntryId.new()
    place = log.root / _TABLES / str(id_) if url is None else _absolute(url) / str(id_)
    UserTable(place, name).create(schema)
    try:
        return _entry(log, id_, name, place)
    except AlreadyExistsError:
        Folder.at(place).remove()
        raise


def registered_table(log: EntryLog, name: str, url: str | os.PathLike[str]) -> EntryRow:
    """The entry of a table that is there."""
    place = _absolute(url)
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


def _absolute(url: str | os.PathLike[str]) -> Location:
    text = os.fspath(url)
    if not is_url(text) and not PurePath(text).is_absolute():
        raise UsageError("Invalid URL: relative URL without a base", hint="Give an absolute path, or a URL.")
    return located(text)
