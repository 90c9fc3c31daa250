"""Faults of a Lance table: Lance's errors, missing files, files of another size, and damaged lists of deleted rows."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from ..errors import ReadError, SourceMissingError
from ..locations import Location
from ..rrd import check_file
from ..storage.folder import Folder

RESTORE: Final = "Restore the file, or the table from a copy."
"""The hint for a missing or damaged file."""
DELETIONS: Final = "_deletions"
"""The folder of the lists of deleted rows."""
_BUILT_AT: Final = re.compile(r", \S+\.rs:\d+:\d+.*", re.DOTALL)


def shortened(error: BaseException) -> str:
    """Return the first line of a Lance error, without the position in Lance's source."""
    return _BUILT_AT.sub("", next(iter(str(error).splitlines()), "") or type(error).__name__)[:500]


def is_conflict(error: BaseException | None) -> bool:
    """Return whether a Lance error says that a change conflicts with a commit of others."""
    return isinstance(error, OSError) and any(
        word in str(error).lower() for word in ("conflict", "preempted", "concurrent transaction", "concurrent writers")
    )


def missing_files(place: Location, name: str, dataset: Any, beside: Collection[str] = ()) -> list[ReadError]:
    """Return an error for each missing or changed file that a version of a table needs, by listing its folders.

    ``beside`` are files of the version's indexes and large blobs, which must also exist.
    """
    fragments = [fragment.metadata for fragment in dataset.get_fragments()]
    sizes = {f"data/{name}": size for name, size in _sizes_of(place / "data").items()}
    if any(fragment.deletion_file for fragment in fragments):
        sizes |= {f"{DELETIONS}/{name}": size for name, size in _sizes_of(place / DELETIONS).items()}
    wanted: dict[str, int | None] = {
        f"data/{file.path}": file.file_size_bytes
        for fragment in fragments
        for file in fragment.files
        if file.base_id is None
    }
    for fragment in fragments:
        if fragment.deletion_file is not None and fragment.deletion_file.base_id is None:
            wanted[fragment.deletion_file.path(fragment.id)] = None
    wanted |= dict.fromkeys(beside)
    for folder in {path.rpartition("/")[0] for path in beside}:
        sizes |= {f"{folder}/{name}": size for name, size in _sizes_of(place / folder).items()}
    faults: list[ReadError] = []
    for path, size in wanted.items():
        file = str(place / path)
        if path not in sizes:
            faults.append(SourceMissingError(f"{name} needs this file, which is missing", path=file, hint=RESTORE))
        elif size and size != sizes[path]:
            reason = f"a file of {name} has {sizes[path]:,} bytes, not {size:,}"
            faults.append(ReadError(reason, path=file, hint=RESTORE))
    return faults


def _sizes_of(folder: Location) -> dict[str, int]:
    try:
        return {file.name: file.size for file in Folder.at(folder).entries()}
    except FileNotFoundError:
        return {}


def check_deletion_file(place: Location, rows: int) -> None:
    """Raise ``ReadError`` unless a list of deleted rows has this number of rows. A good file is read only once."""
    _check_deletion_file(place, rows, _state_of(place))


def _state_of(place: Location) -> tuple[int, int] | None:
    """Return the size and the modification time of a local file; None for an object or a missing file."""
    try:
        status = place.stat() if isinstance(place, Path) else None
    except OSError:
        return None
    return None if status is None else (status.st_size, status.st_mtime_ns)


@lru_cache(4096)
def _check_deletion_file(place: Location, rows: int, _state: tuple[int, int] | None) -> None:
    """Raise ``ReadError`` unless a file has this number of rows. A good file is read only once."""
    try:
        data = Folder.at(place.parent).get(place.name)
        check_file(data)
        with pa.ipc.open_file(data) as reader:
            table = reader.read_all()
        table.validate(full=True)
        if table.schema.types != [pa.uint32()] or table.num_rows != rows:
            raise ValueError(f"it has {table.num_rows:,} rows of {table.schema.types}, not {rows:,} of uint32")
    except FileNotFoundError:
        return  # Lance reports it
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = f"a list of deleted rows is damaged: {error}"
        raise ReadError(reason, path=str(place), hint=RESTORE) from error
