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
from ..lance import LanceTable
from ..locations import Location, is_below, located, true_place
from ..objects import is_url
from .entries import EntryId, EntryKind, EntryRow
from .entry_log import OWN_FOLDERS, EntryLog

TABLES: Final = "tables"
"""The folder in a catalog's own in which are the tables that have no other place."""
_OF_TABLES: Final = (TABLES, "uploads")
_LONGEST_CREATION: Final = timedelta(days=1)
"""Within which a table that was made gets its entry, or never: much less than after which it would be removed."""


def created_table(log: EntryLog, name: str, schema: pa.Schema, url: str | os.PathLike[str] | None) -> EntryRow:
    """Make a table, and then its entry: what has a name is there. Where the name is taken, the table goes again."""
    _check_free(log, name)
    id_ = EntryId.new()
    place = log.root / TABLES / str(id_) if url is None else absolute_place(url) / str(id_)
    _check_place(log, place)
    with _new_table(place, name, schema):
        reach("lance.create")
        if age_of_table(id_) > _LONGEST_CREATION:
            raise WriteError(f"making table {name!r} took too long", path=str(place), hint="Try again.", transient=True)
        return _entry(log, id_, name, place)


def created_table_at(log: EntryLog, name: str, schema: pa.Schema, url: str | os.PathLike[str]) -> EntryRow:
    """Make a table right at a place, and then its entry."""
    place = absolute_place(url)
    _check_place(log, place)
    _check_free(log, name)
    with _new_table(place, name, schema):
        return _entry(log, EntryId.new(), name, place)


@contextmanager
def _new_table(place: Location, name: str, schema: pa.Schema) -> Iterator[None]:
    """A block in which a table that was just made gets its entry. Where that is refused, the table goes again.

    Raises ``AlreadyExistsError`` where there is a table already.
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
    """The entry of a table that is there."""
    place = absolute_place(url)
    _check_place(log, place)
    LanceTable(place, name, log.gate).snapshot().check_blobs()
    return _entry(log, EntryId.new(), name, place)


def _check_place(log: EntryLog, place: Location) -> None:
    """Raise ``UsageError`` for the catalog's folder, what it is in, and the folders that it has for itself."""
    real, root = true_place(place), true_place(log.root)
    own = (*(true_place(log.root / name) for name in OWN_FOLDERS), *(true_place(log.root / one) for one in _OF_TABLES))
    if is_below(root, real) or any(is_below(real, one) for one in own[: len(OWN_FOLDERS)]) or real in own:
        raise UsageError(
            "a table cannot be in a folder that the catalog has for itself",
            path=str(place),
            hint="Choose a folder of its own, beside the catalog's, or leave the place out.",
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
    """The place that an absolute path or a URL names. Raises ``UsageError`` for a relative one."""
    text = os.fspath(url)
    if not is_url(text) and not PurePath(text).is_absolute():
        raise UsageError("Invalid URL: relative URL without a base", hint="Give an absolute path, or a URL.")
    return located(text)


def age_of_table(id_: EntryId) -> timedelta:
    """The time since an id was made, which begins with that in nanoseconds."""
    return timedelta(microseconds=(time.time_ns() - int.from_bytes(id_.as_bytes()[:8], "big")) / 1000)
