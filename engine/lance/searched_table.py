"""A Lance table that is searched: its newest version, kept open from one search to the next, and its indexes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..errors import ChunkmillError, UsageError
from ..locations import Location
from .computed_table import ComputedTable
from .file_digests import NUMBERS
from .fragments import FragmentReader
from .gate import Gate
from .place import shortened
from .user_table import is_conflict

_SETTLED_NS: Final = 1_000_000_000
"""A folder's time is coarse: after this long, a later change is sure to give it another one."""
_OF_INDEXES: Final = ("LanceError(Index)", "already exists", "cannot train")
FileState = tuple[int, int]
"""The inode and the time of a file or folder."""


class _Newest(NamedTuple):
    """A version that was the newest, and what its file was. While the folder of versions is this, it still is."""

    reader: FragmentReader
    dataset: Any
    file: FileState
    folder: FileState | None


class SearchedTable(ComputedTable):
    """The Lance table at a place, with what searches need. It pickles."""

    def __init__(self, place: Location, name: str, gate: Gate | None = None, version: int | None = None) -> None:
        super().__init__(place, name, gate, version)
        self._kept: _Newest | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": None}

    def newest(self) -> FragmentReader:
        """The newest version: of a local table one object until there is a newer one, with its indexes in memory.

        A table that was made anew in its place is another. Where its folder is as it was, no version is asked for
        (50 of a search's 1,300 µs, benchmarks/bench_table_search.py).
        """
        kept, folder = self._kept, self._state_of("")
        if kept is not None and folder is not None and folder == kept.folder:
            return kept.reader
        settled = folder if folder is not None and time.time_ns() - folder[1] > _SETTLED_NS else None
        if kept is not None and self.version is not None:
            return kept.reader
        with self.reading():
            if kept is not None and folder is not None:
                version = int(kept.dataset.latest_version)
                if version == kept.reader.version and self._state_of(_file_of(version)) == kept.file:
                    self._kept = kept._replace(folder=settled)
                    return kept.reader
            dataset = self._opened()
            self._check_deletions(dataset)
            reader = FragmentReader(self, dataset)
            file = self._state_of(_file_of(reader.version))
            self._kept = None if file is None else _Newest(reader, dataset, file, settled)
            return reader

    def _state_of(self, name: str) -> FileState | None:
        """The state of a file in the folder of versions, or of that; None where it cannot be told without Lance."""
        if not isinstance(self._location, Path):
            return None
        try:
            status = os.stat(f"{self.place}/_versions/{name}")  # noqa: PTH116 (10 µs less)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def make_vector_index(self, column: str, kind: str, options: dict[str, Any]) -> None:
        """Make an index of vectors. Raises ``UsageError`` for what Lance refuses."""
        self._make_index(lambda dataset: dataset.create_index(column, kind, **options))

    def make_scalar_index(self, column: str, kind: str, options: dict[str, Any]) -> None:
        """Make an index of the values, or the words, of a column. Raises ``UsageError`` for what Lance refuses."""
        self._make_index(lambda dataset: dataset.create_scalar_index(column, kind, **options))

    def indexed_by(self, kind: str) -> list[str]:
        """The columns that have an index of a kind."""
        with self.reading():
            found = self._opened().describe_indices()
        return [name for one in found if one.index_type.lower() == kind.lower() for name in one.field_names]

    def _make_index(self, make: Callable[[Any], object]) -> None:
        def made(dataset: Any) -> None:
            with _refusals():
                make(dataset)

        self._commit(made)


def _file_of(version: int) -> str:
    return f"{NUMBERS - version:020}.manifest"


@contextmanager
def _refusals() -> Iterator[None]:
    """In the block, what Lance says of the arguments of an index is a ``UsageError``."""
    try:
        yield
    except ChunkmillError:
        raise
    except ImportError as error:
        raise UsageError(
            f"the accelerator of an index needs a package: {error}", hint="Leave accelerator out."
        ) from None
    except (KeyError, OSError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        said = shortened(error)
        of_lance = isinstance(error, (OSError, RuntimeError))
        if is_conflict(error) or (of_lance and not any(word in said for word in _OF_INDEXES)):
            raise
        if isinstance(error, TypeError) and len(error.args) > 1:
            said = "".join(map(str, error.args))  # Lance gives its text in pieces
        said = said.removeprefix("Invalid user input: ").removeprefix("LanceError(Index): ")
        raise UsageError(f"there cannot be such an index: {said}") from None
