"""A Lance table whose columns are written one by one: read by fragments, and given new files for some columns.

A file of a column has the rows of one fragment, deleted ones among them, in their order. A version takes such files in
by Lance's data replacement: the other columns' files, the row ids and the addresses of rows stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import pyarrow as pa

from ..errors import NotFoundError, ReadError, UnsupportedCallError, UsageError, WriteError, check_argument
from ..faults import reach
from .expressions import asking
from .fragments import Fragment, FragmentReader
from .place import shortened
from .user_table import UserTable, is_conflict


class ComputedTable(UserTable):
    """The Lance table at a place, with what its computed columns need. It pickles."""

    def at(self, version: int | None = None) -> FragmentReader:
        """A version, by default the newest. Raises ``NotFoundError`` where there is none of that number."""
        return self._at(version)

    def checked(self, version: int | None = None) -> FragmentReader:
        """The same, to make other values of it.

        Raises ``ReadError`` where a file that the version needs is gone or has another size, and where the file of the
        version is not what was written; ``UsageError`` where one version is read.
        """
        with self.writing():
            pass
        return self._at(version, self.check_files)

    def _at(self, version: int | None, check: Callable[[Any], None] = lambda _: None) -> FragmentReader:
        check_argument("version", version, int, type(None))
        if version is not None and version < 1:
            raise UsageError(f"versions of a table are numbered from 1, and {version} is asked for")
        with self.reading():
            dataset = self._opened(version)
            check(dataset)
            self._check_deletions(dataset)
            return FragmentReader(self, dataset)

    def pinned(self, version: int, fragment: Fragment | None = None) -> FragmentReader:
        """A version, which a process that asks for it again and again opens once.

        Raises ``WriteError`` where the version has no such ``fragment``: the table was replaced as a whole.
        """
        reader = _pinned(self, version)
        if fragment is None or reader.has(fragment):
            return reader
        _pinned.cache_clear()  # another table was here before, with a version of that number
        if not _pinned(self, version).has(fragment):
            raise WriteError(
                "the table was replaced while its columns were computed", path=self.place, hint="Run it again."
            )
        return _pinned(self, version)

    def add_null_columns(self, fields: Sequence[pa.Field]) -> None:
        """Add columns, null in all rows, without writing any."""

        def added(dataset: Any) -> None:
            dataset.add_columns(pa.schema(fields))

        self._changing_columns(added, "Invalid input, ")

    def add_sql_columns(self, expressions: Mapping[str, str]) -> None:
        """Add columns with the values of SQL expressions of the others. Raises ``UsageError`` for a bad one."""

        def added(dataset: Any) -> None:
            with asking(dataset, *expressions.values()):
                dataset.add_columns(dict(expressions))

        self._changing_columns(added, "Invalid input, ")

    def alter(self, alterations: Sequence[Mapping[str, Any]]) -> None:
        """Rename columns, or change their types, as Lance does."""

        def altered(dataset: Any) -> None:
            dataset.alter_columns(*alterations)

        self._changing_columns(altered)

    def drop(self, columns: Sequence[str]) -> None:
        """Take columns away."""

        def dropped(dataset: Any) -> None:
            dataset.drop_columns(list(columns))

        self._changing_columns(dropped)

    def describe(self, changes: Mapping[str, Mapping[str, str | None]]) -> None:
        """Change what the metadata of fields say; None takes an entry away."""

        def described(dataset: Any) -> None:
            dataset.update_field_metadata({name: dict(entries) for name, entries in changes.items()})

        self._commit(described, reads=False)

    def delete(self, where: str) -> None:
        """Remove the rows in which ``where`` is true."""

        def deleted(dataset: Any) -> None:
            with asking(dataset, where=where):
                dataset.delete(where)

        self._commit(deleted)

    def set_values(self, expressions: Mapping[str, str], where: str | None) -> None:
        """Set columns to SQL expressions, in the rows in which ``where`` is true (None: all). Raises ``UsageError``."""

        def updated(dataset: Any) -> None:
            with asking(dataset, *expressions.values(), where=where):
                dataset.update(dict(expressions), where)

        self._commit(updated)

    def extend_indexes(self) -> None:
        """Take the rows that indexes do not cover yet into them."""

        def extended(dataset: Any) -> None:
            dataset.optimize.optimize_indices()

        self._commit(extended)

    def check_version(self, version: int) -> None:
        """Raise a transient ``ReadError`` where a version was removed."""
        try:
            with self.reading():
                self._opened(version)
        except (NotFoundError, ReadError):
            raise ReadError(
                f"version {version} of {self._name} was removed before it was said that somebody needs it",
                path=self.place,
                hint="Run it again.",
                transient=True,
            ) from None

    def files_of_versions(self) -> Iterator[set[str]]:
        """The files with rows that versions name, of one version after the other, the newest first.

        Those are left out that go meanwhile. Raises ``UnsupportedCallError`` where the table has branches, whose
        versions may name any of its files.
        """
        with self.reading():
            newest = self._opened()
            if newest.branches.list():
                raise UnsupportedCallError(f"{self._name} has branches, and nobody looks into these", path=self.place)
            numbers = [int(one["version"]) for one in newest.versions()]
        for number in reversed(numbers):
            with suppress(NotFoundError), self.reading():
                yield {file.path for one in self._opened(number).get_fragments() for file in one.metadata.files}

    def length_of(self, name: str) -> int:
        """The number of rows of a file, as its end says. Raises ``ReadError`` where it is damaged or gone."""
        from lance.file import LanceFileReader

        with self.reading():
            return int(
                LanceFileReader(self.file_address(name), storage_options=self.storage_options).metadata().num_rows
            )

    def replace(self, files: Mapping[int, str], version: int, told: str) -> int | None:
        """Let fragments of a version have these files for the columns in them, in one commit; gives its number.

        None where others changed one of the fragments, or the columns, meanwhile: nothing was done then. ``told`` is
        kept with the commit. Raises ``WriteError``, also where the table was replaced as a whole.
        """
        import lance
        from lance.fragment import DataFile

        try:
            with self.writing():
                dataset = self._opened(version)
                kinds = lance.LanceOperation
                groups = [
                    kinds.DataReplacementGroup(fragment, DataFile.create(dataset, name))
                    for fragment, name in files.items()
                ]
                made = lance.LanceDataset.commit(
                    self._address,
                    kinds.DataReplacement(groups),
                    read_version=version,
                    storage_options=self.storage_options,
                    commit_message=told,
                )
            self._keep_digests(made)
            reach("lance.commit")
        except WriteError as error:
            if not is_conflict(error.__cause__):
                raise
            return None
        return int(made.version)

    def _changing_columns(self, change: Callable[[Any], None], before: str = "") -> None:
        """Commit a change of columns. Raises ``UsageError`` for what Lance says of it, with these words ``before``."""
        try:
            self._commit(change)
        except WriteError as error:
            cause = error.__cause__
            said = "" if cause is None else shortened(cause)
            if is_conflict(cause) or not isinstance(cause, (ValueError, OSError)) or "Invalid user input" not in said:
                raise
            raise UsageError(before + said.removeprefix("Invalid user input: "), path=self.place) from None


@lru_cache(maxsize=4)
def _pinned(table: ComputedTable, version: int) -> FragmentReader:
    return table.at(version)
