"""The place of a Lance table: its versions, its creation in one step, and Lance's errors as our own.

The module also has the simplest table: one with fixed columns.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa

from ..errors import ChunkmillError, ReadError, UsageError, WriteError, write_error
from ..locations import Location
from ..storage import ObjectUrl, reading_object, storage_options, writing_object
from ..storage.folder import Folder
from .faults import RESTORE, check_deletion_file, shortened
from .gate import Gate

_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)")
_SOURCE_LINE: Final = re.compile(r", \S+\.rs:\d+:\d+")
_S3A: Final = re.compile(r"^s3a://")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_PANIC: Final = "PanicException"
"""The error (not an ``Exception``) that Lance raises if damaged bytes break an assumption of its code."""
_ROWS_OF_A_FRAGMENT: Final = 16_384

Failure = Callable[[BaseException], ChunkmillError]
_CLOSED: Final = Gate()


class LancePlace:
    """A folder, or an object store prefix, that may have a Lance table. Creating the object opens nothing.

    Parameters
    ----------
    place
        The place of the table.
    name
        The name of the table in errors, such as ``the quarantine table``.
    unread, unwritten
        The hints of errors for a damaged table, and for a table that cannot be written.
    gate
        The allowed places of files outside the table's folder; by default there are none.

    Raises
    ------
    UsageError
        The place has a control character, which Lance does not support.
    """

    def __init__(self, place: Location, *, name: str, unread: str, unwritten: str, gate: Gate | None = None) -> None:
        self.place = str(place)
        if _CONTROL.search(self.place):
            text = f"{name} cannot be at {self.place!r}: Lance does not support control characters in a path"
            raise UsageError(text, hint="Choose another folder.")
        self.title = name
        self._unread = unread
        self._no_write = unwritten
        self.location = place
        self.gate = gate or _CLOSED
        self._url = place if isinstance(place, ObjectUrl) else None
        self._versions = Folder.at(place / "_versions")

    def versions(self) -> frozenset[str]:
        """Return the names of the versions by one listing, without Lance; empty if there is no table."""
        try:
            return self._listed()
        except OSError as error:
            raise self._damaged(error) from error

    def _listed(self) -> frozenset[str]:
        try:
            return frozenset(name for name in self._versions.names() if name.endswith(".manifest"))
        except FileNotFoundError:
            return frozenset()

    def make(self, schema: pa.Schema, written: Sequence[Any] = (), **options: Any) -> bool:
        """Create the table from fragments written here, unless it exists; return whether it was created.

        If two processes let Lance create a table, the second overwrites the first one's table and rows. So the version
        is created in another place, and its manifest is then added by a write that fails if the file exists.
        """
        import lance

        made = False
        with self.writing(), TemporaryDirectory() as aside:
            if written:
                operation = lance.LanceOperation.Overwrite(schema, written)
                lance.LanceDataset.commit(aside, operation, enable_v2_manifest_paths=True, **options)
            else:
                lance.write_dataset(schema.empty_table(), aside, mode="create", **options)
            # The manifest is last, because it names the other files.
            for folder, files in (("_transactions", "*.txn"), ("_versions", "*.manifest")):
                into = Folder.at(self.location / folder)
                into.make()
                for file in Path(aside, folder).glob(files):
                    made = into.create(file.name, file.read_bytes())
        return made

    def reading(self) -> AbstractContextManager[None]:
        """In the block, Lance's errors become ``ReadError``."""
        return self._translated(reading_object, self._damaged)

    def writing(self) -> AbstractContextManager[None]:
        """In the block, Lance's errors become ``WriteError``."""
        return self._translated(writing_object, self._unwritten)

    def dataset(self, version: int | None = None) -> Any:
        """Return a version, by default the newest, as a Lance dataset that passed the gate."""
        import lance

        return self.admitted(lance.dataset(self.address, version=version, storage_options=self.storage_options))

    def admitted(self, dataset: Any) -> Any:
        """Return an opened version. Raises ``ForeignFileError`` if the gate refuses it."""
        self.gate.admit(self.location, self.title, dataset)
        return dataset

    def check_blobs(self, dataset: Any, columns: Sequence[str], fragments: Sequence[int] | None = None) -> None:
        """Raise ``ForeignFileError`` if rows of blob columns name files that the gate refuses."""
        self.gate.check_blobs(self.location, self.title, dataset, columns, fragments)

    def check_deletions(self, dataset: Any) -> None:
        """Raise ``ReadError`` for a damaged list of deleted rows, because one flipped bit makes Lance abort.

        The gate also checks the names of the files.
        """
        fragments = [fragment.metadata for fragment in dataset.get_fragments()]
        self.gate.check_names(self.location, self.title, fragments)
        for fragment in fragments:
            file = fragment.deletion_file
            if file is not None and file.file_type == "array" and file.base_id is None:
                check_deletion_file(self.location / file.path(fragment.id), file.num_deleted_rows)

    @property
    def address(self) -> str:
        """The path or URL by which Lance opens the table."""
        return _S3A.sub("s3://", self.place)

    @property
    def storage_options(self) -> dict[str, str] | None:
        """The options with which Lance opens the object store."""
        return None if self._url is None else storage_options(self._url)

    def file_address(self, name: str) -> str:
        """The address of a data file."""
        return f"{self.address}/data/{name}"

    @contextmanager
    def _translated(self, of_store: Callable[[str], AbstractContextManager[None]], failure: Failure) -> Iterator[None]:
        """Translate Lance's errors to our own, and a store's errors by ``of_store``."""
        try:
            yield
        except ChunkmillError as error:
            is_inside = isinstance(error, (ReadError, WriteError)) and str(error.path).startswith(self.place)
            if is_inside and not (error.hint or "").startswith(RESTORE):
                error.path = self.place  # users know only files that they must restore
            raise
        except BaseException as error:
            is_panic = type(error).__name__ == _PANIC  # such as for too few file handles
            if not is_panic and not isinstance(error, (OSError, RuntimeError, ValueError, pa.ArrowException)):
                raise
            if self._url is not None and ("Error performing" in str(error) or "Generic " in str(error)):
                with of_store(self.place):
                    raise OSError(_SOURCE_LINE.sub("", str(error))) from None
            raise failure(error) from (None if is_panic else error)

    def _unwritten(self, error: BaseException) -> WriteError:
        number = _OS_ERROR.search(str(error))
        if number is not None:
            return write_error(OSError(int(number[1]), os.strerror(int(number[1]))), self.place)
        return WriteError(f"{self.title} cannot be written: {shortened(error)}", path=self.place, hint=self._no_write)

    def _damaged(self, error: BaseException) -> ReadError:
        return ReadError(f"{self.title} cannot be read: {shortened(error)}", path=self.place, hint=self._unread)


class FixedTable(LancePlace):
    """A Lance table with fixed columns, which need not exist. Creating the object opens nothing.

    The table has no stable row ids, and no digests of its files. Every change is one commit. Raises ``WriteError`` if
    the table cannot be written, and ``ReadError`` if it is damaged or its columns differ from ``schema``.

    Parameters
    ----------
    place, name, unread, unwritten
        As in :class:`LancePlace`.
    schema
        The columns of the table.
    """

    def __init__(self, place: Location, schema: pa.Schema, *, name: str, unread: str, unwritten: str) -> None:
        super().__init__(place, name=name, unread=unread, unwritten=unwritten)
        self.schema = schema

    def open(self) -> Any:
        """Return the newest version of the existing table as a Lance dataset."""
        with self.reading():
            dataset = self.dataset()
        if not set(self.schema) <= set(dataset.schema):
            raise self._damaged(ValueError("its columns or their types differ from the expected ones"))
        return dataset

    def rows(self, dataset: Any, columns: Collection[str] | None = None) -> pa.Table:
        """Return the rows of an opened version, with all columns of ``schema`` or some of them."""
        with self.reading():
            return dataset.to_table(columns=list(columns or self.schema.names))

    def append(self, rows: pa.Table) -> None:
        """Add rows to the table. Create it if missing."""
        import lance

        with self.writing():
            is_there = bool(self._listed())
        if not is_there:
            self.make(self.schema)
        with self.writing():
            lance.write_dataset(rows, self.address, mode="append", storage_options=self.storage_options)

    def merge(self, dataset: Any, key: str, rows: pa.Table) -> None:
        """Replace rows with the same ``key``, and add the others, if ``dataset`` is still the newest version."""
        with self.writing():
            merge = dataset.merge_insert(key).when_matched_update_all().when_not_matched_insert_all()
            merge.conflict_retries(0).execute(rows)

    def delete(self, dataset: Any, key: str, values: Collection[str]) -> None:
        """Remove the rows whose ``key`` is one of ``values``, if ``dataset`` is still the newest version."""
        gone = pa.table({key: pa.array(sorted(values), pa.string())})
        with self.writing():
            dataset.merge_insert(key).when_matched_delete().conflict_retries(0).execute(gone)

    def purge(self, key: str, values: Collection[str]) -> None:
        """Remove the rows whose ``key`` is one of ``values`` from all files of an existing table; remove old versions.

        No other process may write to it meanwhile.
        """
        with self.reading():
            dataset = self.dataset()
        self.delete(dataset, key, values)
        with self.reading():
            dataset = self.dataset()
        with self.writing():
            dataset.optimize.compact_files(materialize_deletions_threshold=0.0, num_threads=1)
            dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)

    def tidy(self, older_than: timedelta) -> None:
        """Join small fragments, and remove versions older than ``older_than``."""
        dataset = self.open()
        with self.writing():
            dataset.optimize.compact_files(target_rows_per_fragment=_ROWS_OF_A_FRAGMENT, num_threads=1)
            dataset.cleanup_old_versions(older_than=older_than)
