"""Copies of a catalog: consistent, resumable, verified by digests, and brought up to date by the same call.

::

    copy/catalog/copy.json     what was copied: the source, the version of each entry, and each file with its digest

A copy takes the newest version of the catalog, and pins each dataset and table at its newest version. It writes first
content, then versions of tables and stores, and then the catalog's version. Last, it removes files that only an earlier
copy needed. A file of a lake never changes under its name, so existing files are not copied again.
"""

from __future__ import annotations

import json
import re
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import AlreadyExistsError, ReadError, ReadWarning, SourceMissingError, UsageError, WriteError, writing
from ..execution import Lease
from ..faults import reach
from ..lance import LanceTable
from ..locations import Location, is_below, located, true_place
from ..recordings import RecordingsFolder, versions_of_catalog
from ..storage import PlacedFile, VersionFiles, copy_file, digest_at, files_at, folder_and_name, name_of
from ..storage.folder import Folder
from ..units import counted, duration, size
from .entries import EntryKind, EntryRow
from .forget import unfinished
from .search import SearchIndexes

if TYPE_CHECKING:
    from .entry_log import EntryLog

_RECORD: Final = "copy.json"
_AT_ONCE: Final = 8
_MANIFEST: Final = re.compile(r"_versions/(\d{20})\.manifest")
_NUMBERS: Final = 2**64 - 1
_PASSING: Final = re.compile(r"(.*/)?(lease/.*|\.[^/]*|[^/]*\.open|[^/]*#\d+)")
"""Files of writers that are active or were killed."""
_HINT: Final = "Copy to another place, or remove the files there first."


@dataclass(frozen=True, slots=True)
class CopyReport:
    """The report of a copy of a catalog.

    ``version`` is the catalog's. ``copied`` is the number of files (``bytes`` in total) that were written and verified,
    ``present`` of those that existed before, and ``removed`` of those of an earlier copy that were deleted.
    ``references`` are the places of data outside the catalog, to which the copy refers.
    """

    source: str
    destination: str
    version: int
    entries: int
    copied: int
    bytes: int
    present: int
    removed: int
    references: tuple[str, ...]
    seconds: float = field(default=0.0, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)

    def __str__(self) -> str:
        files = f"{counted(self.copied, 'file')} copied ({size(self.bytes)}), {self.present:,} existed before"
        lines = [
            f"{self.destination}: version {self.version} of {self.source}, {self.entries:,} datasets and tables",
            f"  {files}, {self.removed:,} removed, in {duration(self.seconds)}",
        ]
        return "\n".join([*lines, *(f"  not copied, but referred to: {place}" for place in self.references)])


@dataclass
class _Record:
    """The record of a copy: its source, its files, and the versions that entries have or are getting, by places."""

    made_ns: int
    version: int = 0
    is_whole: bool = False
    pinned: dict[str, list[int]] = field(default_factory=dict)
    files: dict[str, list[Any]] = field(default_factory=dict)


@dataclass
class _Entry:
    """An entry to copy: its row, its version, its files with content, and its files with versions."""

    row: EntryRow
    version: int
    files: list[PlacedFile]
    versions: list[PlacedFile]


def copy_catalog(log: EntryLog, destination: Location) -> CopyReport:
    """Copy a catalog; see :meth:`CatalogClient.copy_to`."""
    began = time.perf_counter()
    source, target = true_place(log.root), true_place(destination)
    if is_below(source, target) or is_below(target, source):
        raise UsageError(
            "a catalog cannot be copied into itself",
            path=str(destination),
            hint="Choose a place outside the catalog's folder.",
        )
    if not log.read().number:
        raise SourceMissingError("there is no catalog here", path=str(log.root), hint="Nothing was copied.")
    with Lease.take(destination / "catalog", "copy"):
        return _Copy(log, destination).run(began)


class _Copy:
    def __init__(self, log: EntryLog, destination: Location) -> None:
        self._log = log
        self._source = log.root
        self._target = destination
        self._home = Folder.at(destination).sub("catalog")
        self._files = VersionFiles(versions_of_catalog(Folder.at(destination)), str(destination), "", _POINTS)
        self._references: list[str] = []
        self._copied = self._bytes = 0
        self._turn = threading.Lock()

    def run(self, began: float) -> CopyReport:
        """Plan, copy, publish and tidy up, in this order."""
        version = self._log.read()
        record = self._read(version.made_ns)
        entries = [entry for row in version.entries.values() if (entry := self._pinned(row)) is not None]
        self._check(record, version.number, entries)
        earlier = set(record.pinned)
        for entry in entries:
            numbers = record.pinned.setdefault(entry.row.place, [])
            numbers += [entry.version] if entry.version not in numbers else []
        is_new = record.version != version.number or not record.is_whole
        recorded = record.files if record.is_whole else {}
        record.is_whole = False
        self._write(record, "copy.plan")
        present_sizes = {file.path: file.size for file in files_at(self._target)}
        wanted = [file for entry in entries for file in (*entry.files, *entry.versions)]
        present = sum(present_sizes.get(file.path) == file.size for file in wanted)
        digests = self._copy_all((file for entry in entries for file in entry.files), present_sizes, recorded)
        for entry in entries:
            if entry.row.kind is not EntryKind.TABLE and entry.version:
                RecordingsFolder(self._target / entry.row.place).prepare()
            reach("copy.version")
            digests |= self._copy_all(entry.versions, present_sizes, recorded, at_once=1)
        if is_new:
            self._publish(version.number)
        reach("copy.publish")
        removed = self._tidy(digests, present_sizes, earlier | {entry.row.place for entry in entries})
        record.version, record.is_whole, record.files = version.number, True, digests
        record.pinned = {entry.row.place: [entry.version] for entry in entries}
        self._write(record, "copy.record")
        return CopyReport(
            str(self._source),
            str(self._target),
            version.number,
            sum(row.kind in (EntryKind.DATASET, EntryKind.TABLE) for row in version.entries.values()),
            self._copied,
            self._bytes,
            present,
            removed,
            tuple(self._references),
            time.perf_counter() - began,
        )

    # --- the present state

    def _read(self, made_ns: int) -> _Record:
        try:
            record = _Record(**json.loads(self._home.get(_RECORD)))
        except (FileNotFoundError, SourceMissingError):
            if self._files.all_numbers() or any(not _is_passing(file.path) for file in files_at(self._target)):
                raise AlreadyExistsError("there are other files here", path=str(self._target), hint=_HINT) from None
            return _Record(made_ns)
        except (ValueError, TypeError) as error:
            place = self._home.place(_RECORD)
            raise ReadError(f"the copy's record cannot be read: {error}", path=place, hint=_HINT) from error
        if record.made_ns != made_ns:
            raise AlreadyExistsError("a copy of another catalog is here", path=str(self._target), hint=_HINT)
        return record

    def _write(self, record: _Record, point: str) -> None:
        with writing(self._home.place(_RECORD)):
            self._home.make()
            self._home.replace(_RECORD, json.dumps(asdict(record)).encode(), point)

    def _check(self, record: _Record, number: int, entries: Iterable[_Entry]) -> None:
        """Raise ``AlreadyExistsError`` if others have changed the copy."""
        changed = None
        if self._files.newest() not in (0, record.version, number):
            changed = "its entries"
        for entry in entries:
            place = self._target / entry.row.place
            newest = _newest(entry.row, place)
            if newest and newest not in (*record.pinned.get(entry.row.place, ()), entry.version):
                changed = repr(entry.row.name)
        if changed is not None:
            raise AlreadyExistsError(
                f"{changed} was changed here after it was copied", path=str(self._target), hint=_HINT
            )

    # --- entries

    def _pinned(self, row: EntryRow) -> _Entry | None:
        """The files of an entry in the catalog's folder, or None for an entry elsewhere, to which the copy refers."""
        place = located(self._log.place(row))
        if str(place) == row.place or not is_below(true_place(place), true_place(self._source)):
            self._refer(f"{row.name!r}, at {place}")
            return None
        if row.kind is EntryKind.TABLE:
            return self._table(row, place)
        folder = RecordingsFolder(place)
        for fault in unfinished(folder):
            text = f"{place}: {fault.message}: the copy may keep this data until the next copy"
            warnings.warn(text, ReadWarning, stacklevel=5)
        return self._dataset(row, folder)

    def _dataset(self, row: EntryRow, folder: RecordingsFolder) -> _Entry:
        files = [*self._below(row, "properties"), *self._search(row, folder)]
        search = [file for file in files if "/search/versions/" in file.path]
        newest = folder.newest()
        if newest is None:
            return _Entry(row, 0, [file for file in files if file not in search], search)
        numbers = sorted({newest.number, *newest.tags.values()})
        versions = [folder.read_version(number) for number in numbers]
        lives = [folder.live(version) for version in versions]
        in_place = sorted({e.source for live in lives for e in live if e.in_place})
        if in_place:
            more = f" and {len(in_place) - 1:,} more files" if len(in_place) > 1 else ""
            self._refer(f"recordings of {row.name!r} that were registered in place, at {in_place[0]}{more}")
        tables = {table for version in versions for table in version.tables}
        manifests, shards = folder.named(sorted(tables))
        schemas = {f"{digest}.arrow" for live in lives for digest in live.columns("schema")["schema"].to_pylist()}
        names = {
            "tables": {table.name for table in tables},
            "manifests": manifests,
            "shards": shards,
            "schemas": schemas,
            "versions": {name_of(number) for number in numbers},
        }
        placed = {
            kind: [file for file in self._below(row, kind) if file.path.rpartition("/")[2] in some]
            for kind, some in names.items()
        }
        for kind, some in names.items():
            missing = some - {"", "None.arrow"} - {file.path.rpartition("/")[2] for file in placed[kind]}
            if missing:
                raise ReadError(
                    f"version {newest.number} of {row.name!r} needs a file that is gone",
                    path=f"{folder.path}/{kind}/{min(missing)}",
                    hint="Copy again: a vacuum may have removed the file meanwhile.",
                    transient=True,
                )
        content = [file for kind in ("shards", "manifests", "schemas", "tables") for file in placed[kind]]
        data = [file for file in files if file not in search]
        return _Entry(row, newest.number, [*content, *data], [*search, *placed["versions"]])

    def _search(self, row: EntryRow, folder: RecordingsFolder) -> Iterator[PlacedFile]:
        """The files of the search indexes in use."""
        indexes = SearchIndexes(folder)
        stored = indexes.all()
        names = {f"{index.covers}.arrow" for index in stored} | {f"{index.table}.table" for index in stored}
        for index in stored:
            below = self._below(row, f"search/tables/{index.table}")
            yield from (file for file in below if _number_of(file.path) <= index.version)
        yield from (f for f in self._below(row, "search/made") if f.path.rpartition("/")[2] in names)
        versions = self._below(row, "search/versions")
        yield from versions[-1:]

    def _table(self, row: EntryRow, place: Location) -> _Entry:
        version, _ = LanceTable(place, row.name, self._log.gate).version_and_schema()
        files = [file for file in self._below(row, "") if _number_of(file.path) <= version]
        is_version = {file.path for file in files if _MANIFEST.search(file.path) or "/_refs/" in file.path}
        return _Entry(
            row, version, [f for f in files if f.path not in is_version], [f for f in files if f.path in is_version]
        )

    def _below(self, row: EntryRow, folder: str) -> list[PlacedFile]:
        """The files in a folder of an entry, by their paths in the catalog."""
        below = f"{row.place}/{folder}" if folder else row.place
        files = files_at(self._source / below)
        return [PlacedFile(f"{below}/{file.path}", file.size) for file in files if not _is_passing(file.path)]

    def _refer(self, what: str) -> None:
        self._references.append(what)
        warnings.warn(f"{self._target} refers to {what}, which is not copied", ReadWarning, stacklevel=6)

    # --- files

    def _copy_all(
        self,
        files: Iterable[PlacedFile],
        present_sizes: Mapping[str, int],
        recorded: Mapping[str, list[Any]],
        *,
        at_once: int = _AT_ONCE,
    ) -> dict[str, list[Any]]:
        """Copy the missing files; return all files with their sizes and digests."""

        def copied(file: PlacedFile) -> tuple[str, list[Any]]:
            return file.path, [file.size, self._copy(file, present_sizes, recorded)]

        with ThreadPoolExecutor(at_once, "chunkmill-copy") as threads:
            return dict(threads.map(copied, files))

    def _copy(self, file: PlacedFile, present_sizes: Mapping[str, int], recorded: Mapping[str, list[Any]]) -> str:
        is_there = present_sizes.get(file.path) == file.size
        if is_there and recorded.get(file.path, [None])[0] == file.size:
            return str(recorded[file.path][1])
        try:
            if is_there and (digest := digest_at(self._source, file)) == digest_at(self._target, file):
                return digest
            digest = copy_file(self._source, file, self._target)
        except (FileNotFoundError, SourceMissingError) as error:
            raise ReadError(
                "a file was removed before it was copied",
                path=str(self._source / file.path),
                hint="Copy again: the newest version does not need the file.",
                transient=True,
            ) from error
        reach("copy.file", self._target / file.path if isinstance(self._target, Path) else None)
        if digest_at(self._target, file) != digest:
            raise WriteError(
                "the copy is not equal to the file: its digest differs",
                path=str(self._target / file.path),
                hint="Check the disks, and copy again: this replaces the file.",
            )
        with self._turn:
            self._copied, self._bytes = self._copied + 1, self._bytes + file.size
        return digest

    def _publish(self, number: int) -> None:
        """Publish the catalog's version without its deleted datasets."""
        data = dict(self._log.version_data(number))
        data |= {"removed": [], "first": number}
        data.pop("number", None)
        with writing(str(self._target)):
            self._files.folder.make()
        if self._files.newest() != number:
            self._files.commit(number, data)
            self._files.delete(old for old in self._files.all_numbers() if old < number)
        elif dict(self._files.read(number)) != {**data, "number": number}:
            raise AlreadyExistsError(
                f"version {number} of the copy differs from version {number} of the catalog",
                path=str(self._target),
                hint=_HINT,
            )

    def _tidy(self, wanted: Mapping[str, Any], present_sizes: Mapping[str, int], places: Iterable[str]) -> int:
        """Remove files of earlier or interrupted copies that this copy does not need: versions first."""
        below = tuple([f"{place}/" for place in places])
        stale = [
            path for path in present_sizes if path not in wanted and path.startswith(below) and not _is_passing(path)
        ]
        stale.sort(key=lambda path: ("/versions/" not in path and "/_versions/" not in path, path))
        by_folder: dict[str, list[str]] = {}
        for path in stale:
            by_folder.setdefault(path.rpartition("/")[0], []).append(path)
        for paths in by_folder.values():
            reach("copy.tidy")
            folder, _ = folder_and_name(self._target, paths[0])
            with writing(str(folder.location)):
                folder.delete(path.rpartition("/")[2] for path in paths)
        return len(stale)


_POINTS: Final = ("copy.draft", "copy.entries")


def _is_passing(path: str) -> bool:
    return _PASSING.fullmatch(path) is not None


def _number_of(path: str) -> int:
    """Return the number of the table version in a file, or 0 for another file."""
    match = _MANIFEST.search(path)
    return _NUMBERS - int(match[1]) if match else 0


def _newest(row: EntryRow, place: Location) -> int:
    """Return the number of the newest version of a copied entry, or 0."""
    if row.kind is not EntryKind.TABLE:
        return RecordingsFolder(place).files.newest()
    numbers = [_number_of(f"_versions/{name}") for name in LanceTable(place, row.name).versions()]
    return max(numbers, default=0)
