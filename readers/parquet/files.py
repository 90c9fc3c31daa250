"""The files of a dataset: one file, a folder of them, or a pattern."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from ...engine.errors import SourceMissingError
from ...engine.objects import ObjectUrl, bucket_of, find_objects, is_one_object, is_url

SUFFIXES: Final = (".parquet", ".parq", ".pq")
"""What a folder is searched for."""

_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"


class DataFile(NamedTuple):
    """One file of a dataset, and what the names of its folders (``key=value``) say of all its rows.

    ``version`` is that of an object in a store, once it was looked at.
    """

    path: str
    partitions: tuple[tuple[str, str | None], ...] = ()
    version: str | None = None

    @property
    def name(self) -> str:
        """Its name, for people."""
        return PurePath(self.path).name


def find_files(path: str) -> list[DataFile]:
    """The files that ``path`` means, sorted by their paths; names that begin with ``.`` or ``_`` are passed over.

    Raises ``SourceMissingError`` where there is none.
    """
    if is_url(path):
        return _find_objects(ObjectUrl.of(path))
    if os.path.isdir(path):  # noqa: PTH112 (as text, which a pattern is too)
        root = Path(path)
        found = list(_below(root))
    elif not os.path.lexists(path) and glob.has_magic(path):
        root = Path(*_until_magic(Path(path).parts))
        matching = sorted(map(Path, glob.glob(path, recursive=True)))  # noqa: PTH207 (takes absolute patterns too)
        found = list(dict.fromkeys(file for p in matching for file in (_below(p) if p.is_dir() else [p] * _is_data(p))))
    else:
        return [DataFile(path)]
    if not found:
        raise SourceMissingError(
            "there is no Parquet file here", path=path, hint=f"Folders are searched for {', '.join(SUFFIXES)} files."
        )
    return [DataFile(str(p), _partitions(p.relative_to(root).parts[:-1])) for p in found]


def exists(path: str) -> bool:
    """Whether ``path`` is a file or a folder, or a pattern that some file matches; in a store likewise."""
    if is_url(path):
        url = ObjectUrl.of(path)
        return is_one_object(url) or glob.has_magic(url.key) or any(True for _ in bucket_of(url).list(url.key))
    return os.path.exists(path) or (glob.has_magic(path) and bool(glob.glob(path, recursive=True)))  # noqa: PTH110, PTH207


def partition_schema(files: Sequence[DataFile]) -> pa.Schema:
    """The columns that the names of folders add: ``int64`` where every value is a number, else ``string``."""
    values: dict[str, list[str | None]] = {}
    for file in files:
        for key, value in file.partitions:
            values.setdefault(key, []).append(value)
    return pa.schema([(key, pa.int64() if _are_numbers(found) else pa.string()) for key, found in values.items()])


def partition_values(file: DataFile, field: pa.Field, length: int) -> pa.Array:
    """What a partition column holds in ``length`` rows of a file."""
    value = dict(file.partitions).get(field.name)
    if value is None:
        return pa.nulls(length, field.type)
    return pa.repeat(pa.scalar(int(value) if pa.types.is_integer(field.type) else value, field.type), length)


def _are_numbers(values: Sequence[str | None]) -> bool:
    texts = [v for v in values if v is not None]
    return bool(texts) and all(t.isascii() and t.removeprefix("-").isdigit() and len(t) < 19 for t in texts)


def _partitions(folders: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    """Keys and values of folder names.

    >>> _partitions(["site=north%20gate", "raw", "day=__HIVE_DEFAULT_PARTITION__"])
    (('site', 'north gate'), ('day', None))
    """
    pairs = (folder.partition("=") for folder in folders if "=" in folder)
    return tuple((unquote(key), None if value == _NO_VALUE else unquote(value)) for key, _, value in pairs if key)


def _find_objects(url: ObjectUrl) -> list[DataFile]:
    if is_one_object(url):
        return [DataFile(str(url))]
    found = find_objects(url, SUFFIXES, hidden=(".", "_"))
    return [DataFile(str(f.url), _partitions(f.below.parts[:-1])) for f in found]


def _below(folder: Path) -> Iterator[Path]:
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith((".", "_")))
        yield from (Path(here, name) for name in sorted(names) if _is_data(Path(here, name)))


def _is_data(path: Path) -> bool:
    return not path.name.startswith((".", "_")) and path.name.lower().endswith(SUFFIXES) and path.is_file()


def _until_magic(parts: Sequence[str]) -> Iterator[str]:
    for part in parts:
        if glob.has_magic(part):
            return
        yield part
