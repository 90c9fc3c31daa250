"""A Lance table with one row for each path, which several processes may change at once."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Collection, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ReadError, WriteError, write_error
from ..execution import Folder
from ..locations import Location
from ..objects import ObjectUrl, reading_object, storage_options, writing_object

KEY: Final = "path"

_PRIMARY_KEY: Final = {"lance-schema:unenforced-primary-key": "true"}
"""With it, of two merges that insert the same key at once one fails, and neither makes a second row of it."""

SCHEMA: Final = pa.schema(
    [
        pa.field(KEY, pa.string(), nullable=False, metadata=_PRIMARY_KEY),
        ("size", pa.int64()),
        ("modified", pa.timestamp("ns", tz="UTC")),
        ("digest", pa.string()),
        ("code", pa.string()),
        ("message", pa.string()),
        ("hint", pa.string()),
        ("offset", pa.int64()),
        ("batch", pa.int64()),
        ("query_id", pa.string()),
        ("first_seen", pa.timestamp("us", tz="UTC")),
        ("last_seen", pa.timestamp("us", tz="UTC")),
        ("tries", pa.int64()),
    ]
)
"""One row a file."""

# Python has no nanoseconds, and pyarrow's way to its time zones needs files that not every system has.
_AS_NUMBERS: Final = pa.schema([f.with_type(pa.int64()) if pa.types.is_timestamp(f.type) else f for f in SCHEMA])

ATTEMPTS: Final = 50
_PAUSE: Final = 0.01
_UPKEEP_EVERY: Final = 64
_KEEP: Final = timedelta(minutes=5)
_ROWS_OF_A_FRAGMENT: Final = 16_384
_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)")
_BUILT_AT: Final = re.compile(r", \S+\.rs:\d+:\d+.*", re.DOTALL)

_PANIC: Final = "PanicException"
"""What Lance raises, as no ``Exception``, where bytes of a damaged table break an assumption of its."""

_log = logging.getLogger(__name__)

Versions = frozenset[str]

_UNREAD: Final[Versions] = frozenset({""})


class FileQuarantineTable:
    """The table at a place. Lance is imported once there is one; to ask for its keys is one listing of its versions.

    Every change is one commit: whoever loses against another process looks at what that one did, and tries again.
    Every 64 commits small fragments are joined, and versions older than five minutes removed.
    """

    def __init__(self, place: Location) -> None:
        self._place = place
        self.place = str(place)
        self._url = place if isinstance(place, ObjectUrl) else None
        self._versions = Folder.at(place / "_versions")
        self._keys: set[str] = set()
        self._keys_of = _UNREAD
        self._swept = 0

    def keys(self) -> AbstractSet[str]:
        """The keys of all rows; not to be changed."""
        now = self._now()
        if now != self._keys_of:
            self._keys, self._keys_of = self._read_keys() if now else set(), now
        return self._keys

    def rows(self, keys: Collection[str] | None = None) -> list[dict[str, Any]]:
        """The rows, or those of ``keys``; times as whole numbers, in the unit of their column since 1970."""
        return self._rows(self._open(), keys) if self._now() else []

    def _rows(self, dataset: Any, keys: Collection[str] | None) -> list[dict[str, Any]]:
        with self._reading():
            table = dataset.to_table(columns=SCHEMA.names)
        if keys is not None:
            table = table.filter(pc.is_in(table.column(KEY), pa.array(list(keys), pa.string())))
        found: list[dict[str, Any]] = table.cast(_AS_NUMBERS).to_pylist()
        return found

    def put(self, keys: Collection[str], change: Callable[[dict[str, dict[str, Any]]], list[dict[str, Any]]]) -> bool:
        """Write the rows that ``change`` makes of the present rows of ``keys``. False: it made none.

        ``change`` is called again where another process was faster. Raises ``WriteError``, ``ReadError``.
        """
        if not self._now():
            if not change({}):
                return False
            self._make()

        def attempt(dataset: Any, known: set[str]) -> bool:
            rows = change({row[KEY]: row for row in self._rows(dataset, known)} if known else {})
            if rows:
                self._merge(dataset, pa.Table.from_pylist(rows, schema=SCHEMA))
                self._keys.update(row[KEY] for row in rows)
            return bool(rows)

        return self._changed(keys, attempt)

    def remove(self, keys: Collection[str]) -> list[str]:
        """Remove the rows of ``keys``; gives those that were there. Raises ``WriteError``, ``ReadError``."""
        removed: list[str] = []

        def attempt(dataset: Any, known: set[str]) -> bool:
            removed[:] = sorted(known)
            if known:
                gone = pa.table({KEY: pa.array(removed, pa.string())})
                with self._writing():
                    dataset.merge_insert(KEY).when_matched_delete().conflict_retries(0).execute(gone)
                self._keys -= known
            return bool(known)

        if not self.keys().isdisjoint(keys):
            self._changed(keys, attempt)
        return removed

    def _changed(self, keys: Collection[str], attempt: Callable[[Any, set[str]], bool]) -> bool:
        """Run ``attempt`` on the table and the ``keys`` that it has, again while others commit in between."""
        for number in range(ATTEMPTS):
            time.sleep(_PAUSE * number)
            known = self._keys.intersection(keys) if self.keys() else set()
            before = self._keys_of
            try:
                changed = attempt(self._opened_at(before), known)
            except WriteError:
                self._keys_of = _UNREAD
                if number == ATTEMPTS - 1 or not self._now() - before:
                    raise
                continue
            if changed:
                after = self._now()
                # More than one new version: another process has changed rows, too, and they are to be read again.
                self._keys_of = after if len(after - before) == 1 else _UNREAD
                self._sweep(len(after))
            return changed
        raise AssertionError("the last attempt returns or raises")

    def _opened_at(self, versions: Versions) -> Any:
        """The table as it was when it had these versions; None without any. Raises ``WriteError`` if it moved on."""
        dataset = self._open() if versions else None
        if versions != self._now():
            raise WriteError(
                "other processes change the quarantine table all the time", path=self.place, transient=True
            )
        return dataset

    def _make(self) -> None:
        """Make the table, without rows, unless there is one.

        Of two processes that let Lance make one, the second writes over the first and over its rows. So an empty table
        is made aside, and the file of its version brought in by a write that fails where there is one already.
        """
        import lance

        with self._writing(), TemporaryDirectory() as aside:
            lance.write_dataset(SCHEMA.empty_table(), aside, mode="create")
            # The version's file comes last: it names the others.
            for folder, files in (("_transactions", "*.txn"), ("_versions", "*.manifest")):
                into = Folder.at(self._place / folder)
                into.make()
                for file in Path(aside, folder).glob(files):
                    into.create(file.name, file.read_bytes())

    def _merge(self, dataset: Any, rows: pa.Table) -> None:
        with self._writing():
            merge = dataset.merge_insert(KEY).when_matched_update_all().when_not_matched_insert_all()
            merge.conflict_retries(0).execute(rows)

    def _read_keys(self) -> set[str]:
        dataset = self._open()
        with self._reading():
            return set(dataset.to_table(columns=[KEY]).column(KEY).to_pylist())

    def _open(self) -> Any:
        import lance

        with self._reading():
            dataset = lance.dataset(self._uri, storage_options=self._options())
        if not set(SCHEMA) <= set(dataset.schema):
            raise self._damaged("it has other columns than a quarantine of files")
        return dataset

    def _now(self) -> Versions:
        """The names of the table's versions."""
        try:
            return frozenset(name for name in self._versions.names() if name.endswith(".manifest"))
        except FileNotFoundError:
            return frozenset()
        except OSError as error:
            raise self._damaged(str(error)) from error

    def _sweep(self, versions: int) -> None:
        """Now and then, join small fragments and remove old versions. What fails here is tried again later."""
        if versions - self._swept < _UPKEEP_EVERY:
            return
        try:
            dataset = self._open()
            dataset.optimize.compact_files(target_rows_per_fragment=_ROWS_OF_A_FRAGMENT, num_threads=1)
            dataset.cleanup_old_versions(older_than=_KEEP)
            versions = len(self._now())
        except (OSError, RuntimeError, ValueError) as error:
            _log.warning("%s: old versions of the quarantine could not be removed: %s", self.place, _short(error))
        self._swept = versions
        self._keys_of = _UNREAD

    @property
    def _uri(self) -> str:
        return self.place.replace("s3a://", "s3://", 1) if self._url is not None else self.place

    def _options(self) -> dict[str, str] | None:
        return storage_options(self._url) if self._url is not None else None

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError, ValueError) as error:
            if self._url is not None and _is_of_store(error):
                with reading_object(self.place):
                    raise OSError(str(error)) from None
            raise self._damaged(_short(error)) from error
        except BaseException as error:
            if type(error).__name__ != _PANIC:
                raise
            raise self._damaged(_short(error)) from None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError, ValueError) as error:
            if self._url is not None and _is_of_store(error):
                with writing_object(self.place):
                    raise OSError(str(error)) from None
            number = _OS_ERROR.search(str(error))
            if number is not None:
                raise write_error(OSError(int(number[1]), os.strerror(int(number[1]))), self.place) from error
            raise self._unwritten(error) from error
        except BaseException as error:  # out of file handles, Lance cannot even begin
            if type(error).__name__ != _PANIC:
                raise
            raise self._unwritten(error) from None

    def _unwritten(self, error: BaseException) -> WriteError:
        return WriteError(
            f"the quarantine table cannot be written: {_short(error)}",
            path=self.place,
            hint="The batch was not committed; it is tried again by the next start.",
        )

    def _damaged(self, reason: str) -> ReadError:
        return ReadError(
            f"the quarantine table cannot be read: {reason}",
            path=self.place,
            hint="The recordings do not depend on it. If it is damaged, move that folder away: the next failure begins "
            "a new table, and the files that stood in the old one are tried again when their content changes.",
        )


def _is_of_store(error: BaseException) -> bool:
    return "Error performing" in str(error) or "Generic " in str(error)


def _short(error: BaseException) -> str:
    """The first line of what Lance says, without where in its source."""
    return _BUILT_AT.sub("", next(iter(str(error).splitlines()), "") or type(error).__name__)[:500]
