"""A place at which a Lance table is, or may be: its versions, its making in one step, and Lance's errors as our own."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa

from ..errors import ChunkmillError, ReadError, UsageError, WriteError, write_error
from ..folders import Folder
from ..locations import Location
from ..objects import ObjectUrl, reading_object, storage_options, writing_object
from .gate import Gate

_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)")
_BUILT_AT: Final = re.compile(r", \S+\.rs:\d+:\d+.*", re.DOTALL)
_SOURCE_LINE: Final = re.compile(r", \S+\.rs:\d+:\d+")
_S3A: Final = re.compile(r"^s3a://")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
RESTORE: Final = "Restore the file, or the table from a copy."
"""What to do about a file that is gone or damaged."""
_PANIC: Final = "PanicException"
"""What Lance raises, as no ``Exception``, where bytes of a damaged table break an assumption of its."""

Failure = Callable[[BaseException], ChunkmillError]
_CLOSED: Final = Gate()


class LancePlace:
    """A folder, or a prefix of an object store, with a Lance table or none. Nothing is opened here.

    Parameters
    ----------
    place
        Where the table lies.
    name
        What errors call it, such as ``the quarantine table``.
    unread, unwritten
        What to do about a table that is damaged, and about one that cannot be written.
    gate
        Where its files may be beside its own folder; by default nowhere.

    Raises
    ------
    UsageError
        The place has a control character, which Lance takes nowhere.
    """

    def __init__(self, place: Location, *, name: str, unread: str, unwritten: str, gate: Gate | None = None) -> None:
        self.place = str(place)
        if _CONTROL.search(self.place):
            text = f"{name} cannot be at {self.place!r}: Lance takes no control characters in a path"
            raise UsageError(text, hint="Choose another folder.")
        self._name = name
        self._unread = unread
        self._no_write = unwritten
        self._location = place
        self.gate = gate or _CLOSED
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

    def _made(self, schema: pa.Schema, written: Sequence[Any] = (), **options: Any) -> bool:
        """Make a table of fragments that are written here, or none, unless there is one; give whether there was none.

        Of two processes that let Lance make one, the second writes over the first and over its rows. So the version
        is made aside, and its file brought in by a write that fails where there is one already.
        """
        import lance

        made = False
        with self.writing(), TemporaryDirectory() as aside:
            if written:
                operation = lance.LanceOperation.Overwrite(schema, written)
                lance.LanceDataset.commit(aside, operation, enable_v2_manifest_paths=True, **options)
            else:
                lance.write_dataset(schema.empty_table(), aside, mode="create", **options)
            # The version's file comes last: it names the others.
            for folder, files in (("_transactions", "*.txn"), ("_versions", "*.manifest")):
                into = Folder.at(self._location / folder)
                into.make()
                for file in Path(aside, folder).glob(files):
                    made = into.create(file.name, file.read_bytes())
        return made

    def reading(self) -> AbstractContextManager[None]:
        """In the block, Lance's errors are ``ReadError``."""
        return self._translated(reading_object, self._damaged)

    def writing(self) -> AbstractContextManager[None]:
        """In the block, Lance's errors are ``WriteError``."""
        return self._translated(writing_object, self._unwritten)

    def _admitted(self, dataset: Any) -> Any:
        """A version that was opened. Raises ``ForeignFileError`` where the gate does not let it pass."""
        self.gate.admit(self._location, self._name, dataset)
        return dataset

    def check_blobs(self, dataset: Any, columns: Sequence[str], fragments: Sequence[int] | None = None) -> None:
        """Raise ``ForeignFileError`` where rows of columns of blobs name files that the gate does not let pass."""
        self.gate.check_blobs(self._location, self._name, dataset, columns, fragments)

    @property
    def _address(self) -> str:
        return _S3A.sub("s3://", self.place)

    @property
    def storage_options(self) -> dict[str, str] | None:
        """The options with which Lance opens the object store."""
        return None if self._url is None else storage_options(self._url)

    def file_address(self, name: str) -> str:
        """The address of a file of rows."""
        return f"{self._address}/data/{name}"

    @contextmanager
    def _translated(self, of_store: Callable[[str], AbstractContextManager[None]], failure: Failure) -> Iterator[None]:
        """Raise what Lance raises from within as our own, where it is a store's error as ``of_store`` does."""
        try:
            yield
        except ChunkmillError as error:
            is_inside = isinstance(error, (ReadError, WriteError)) and str(error.path).startswith(self.place)
            if is_inside and not (error.hint or "").startswith(RESTORE):
                error.path = self.place  # its files are nothing that a user knows, but those to restore
            raise
        except BaseException as error:
            is_panic = type(error).__name__ == _PANIC  # as when there are no file handles to begin with
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
        return WriteError(f"{self._name} cannot be written: {shortened(error)}", path=self.place, hint=self._no_write)

    def _damaged(self, error: BaseException) -> ReadError:
        return ReadError(f"{self._name} cannot be read: {shortened(error)}", path=self.place, hint=self._unread)


def shortened(error: BaseException) -> str:
    """The first line of what Lance says, without where in its source."""
    return _BUILT_AT.sub("", next(iter(str(error).splitlines()), "") or type(error).__name__)[:500]
