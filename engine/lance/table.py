"""A Lance table at a place: made in one step, read, and changed by commits, with Lance's errors as our own."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa

from ..errors import ChunkmillError, ReadError, WriteError, write_error
from ..folders import Folder
from ..locations import Location
from ..objects import ObjectUrl, reading_object, storage_options, writing_object

_ROWS_OF_A_FRAGMENT: Final = 16_384
_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)")
_BUILT_AT: Final = re.compile(r", \S+\.rs:\d+:\d+.*", re.DOTALL)
_S3A: Final = re.compile(r"^s3a://")
_PANIC: Final = "PanicException"
"""What Lance raises, as no ``Exception``, where bytes of a damaged table break an assumption of its."""

Failure = Callable[[BaseException], ChunkmillError]


class LanceTable:
    """The Lance table at a place, in a folder or an object store, whether it is there or not. Nothing is opened here.

    Every change is one commit. Raises ``WriteError`` where the table cannot be written, ``ReadError`` where it is
    damaged or has other columns than ``schema``.

    Parameters
    ----------
    place
        Where the table lies.
    schema
        Its columns.
    name
        What errors call it, such as ``the quarantine table``.
    unread, unwritten
        What to do about a table that is damaged, and about one that cannot be written.
    """

    def __init__(self, place: Location, schema: pa.Schema, *, name: str, unread: str, unwritten: str) -> None:
        self.place = str(place)
        self.schema = schema
        self._name = name
        self._unread = unread
        self._no_write = unwritten
        self._location = place
        self._url = place if isinstance(place, ObjectUrl) else None
        self._versions = Folder.at(place / "_versions")

    def versions(self) -> frozenset[str]:
        """The names of its versions, found by one listing, without Lance; none where there is no table."""
        try:
            return self._listed()
        except OSError as error:
            raise self._damaged(error) from error

    def _listed(self) -> frozenset[str]:
        try:
            return frozenset(name for name in self._versions.names() if name.endswith(".manifest"))
        except FileNotFoundError:
            return frozenset()

    def open(self) -> Any:
        """The newest version of the table, which is there, as Lance gives it."""
        import lance

        with self.reading():
            dataset = lance.dataset(self._address, storage_options=self._options)
        if not set(self.schema) <= set(dataset.schema):
            raise self._damaged(ValueError("it has other columns"))
        return dataset

    def rows(self, dataset: Any, columns: Collection[str] | None = None) -> pa.Table:
        """The rows of a version that was opened: the columns of ``schema``, or some of them."""
        with self.reading():
            return dataset.to_table(columns=list(columns or self.schema.names))

    def make(self) -> None:
        """Make the table, without rows, unless there is one.

        Of two processes that let Lance make one, the second writes over the first and over its rows. So an empty table
        is made aside, and the file of its version brought in by a write that fails where there is one already.
        """
        import lance

        with self.writing(), TemporaryDirectory() as aside:
            lance.write_dataset(self.schema.empty_table(), aside, mode="create")
            # The version's file comes last: it names the others.
            for folder, files in (("_transactions", "*.txn"), ("_versions", "*.manifest")):
                into = Folder.at(self._location / folder)
                into.make()
                for file in Path(aside, folder).glob(files):
                    into.create(file.name, file.read_bytes())

    def append(self, rows: pa.Table) -> None:
        """Add rows to the table, which is made where there is none."""
        import lance

        with self.writing():
            is_there = bool(self._listed())
        if not is_there:
            self.make()
        with self.writing():
            lance.write_dataset(rows, self._address, mode="append", storage_options=self._options)

    def merge(self, dataset: Any, key: str, rows: pa.Table) -> None:
        """Put rows in place of those of the same ``key``, and add the others: on top of this version or not at all."""
        with self.writing():
            merge = dataset.merge_insert(key).when_matched_update_all().when_not_matched_insert_all()
            merge.conflict_retries(0).execute(rows)

    def delete(self, dataset: Any, key: str, values: Collection[str]) -> None:
        """Remove the rows whose ``key`` is one of ``values``: on top of this version or not at all."""
        gone = pa.table({key: pa.array(sorted(values), pa.string())})
        with self.writing():
            dataset.merge_insert(key).when_matched_delete().conflict_retries(0).execute(gone)

    def tidy(self, older_than: timedelta) -> None:
        """Join small fragments, and remove versions of that age."""
        dataset = self.open()
        with self.writing():
            dataset.optimize.compact_files(target_rows_per_fragment=_ROWS_OF_A_FRAGMENT, num_threads=1)
            dataset.cleanup_old_versions(older_than=older_than)

    def reading(self) -> AbstractContextManager[None]:
        """In the block, Lance's errors are ``ReadError``."""
        return self._translated(reading_object, self._damaged)

    def writing(self) -> AbstractContextManager[None]:
        """In the block, Lance's errors are ``WriteError``."""
        return self._translated(writing_object, self._unwritten)

    @property
    def _address(self) -> str:
        return _S3A.sub("s3://", self.place)

    @property
    def _options(self) -> dict[str, str] | None:
        return None if self._url is None else storage_options(self._url)

    @contextmanager
    def _translated(self, of_store: Callable[[str], AbstractContextManager[None]], failure: Failure) -> Iterator[None]:
        """Raise what Lance raises from within as our own, where it is a store's error as ``of_store`` does."""
        try:
            yield
        except BaseException as error:
            is_panic = type(error).__name__ == _PANIC  # as when there are no file handles to begin with
            if not is_panic and not isinstance(error, (OSError, RuntimeError, ValueError)):
                raise
            if self._url is not None and ("Error performing" in str(error) or "Generic " in str(error)):
                with of_store(self.place):
                    raise OSError(str(error)) from None
            raise failure(error) from (None if is_panic else error)

    def _unwritten(self, error: BaseException) -> WriteError:
        number = _OS_ERROR.search(str(error))
        if number is not None:
            return write_error(OSError(int(number[1]), os.strerror(int(number[1]))), self.place)
        return WriteError(f"{self._name} cannot be written: {_shortened(error)}", path=self.place, hint=self._no_write)

    def _damaged(self, error: BaseException) -> ReadError:
        return ReadError(f"{self._name} cannot be read: {_shortened(error)}", path=self.place, hint=self._unread)


def _shortened(error: BaseException) -> str:
    """The first line of what Lance says, without where in its source."""
    return _BUILT_AT.sub("", next(iter(str(error).splitlines()), "") or type(error).__name__)[:500]
