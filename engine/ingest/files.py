"""Landed files: their digests and outcomes, and their disposal after the commit.

It also finds the recordings that a batch displaces, because their names have other contents now, and applies the rules
of a dataset.
"""

from __future__ import annotations

import contextlib
import errno
import filecmp
import os
import shutil
import stat
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa
import xxhash

from ...readers import stem_of
from ..chunk import Schema
from ..doctor import Finding
from ..errors import (
    ChunkmillError,
    NotFoundError,
    ReadError,
    SchemaConflictError,
    SourceMissingError,
    UsageError,
    WriteError,
    writing,
)
from ..execution import Body, Group, RunOptions, Stage, Task, TaskRun, executor_name, sync_folder
from ..faults import reach
from ..limits import MIB
from ..locations import Location, located
from ..recordings import (
    BASE_LAYER,
    Arrived,
    Key,
    LiveEntries,
    NewLayer,
    RecordingEntry,
    RecordingsFolder,
    SchemaFiles,
    SchemaUnion,
    key_of,
)
from ..rrd import open_positional
from ..storage import ObjectInfo, ObjectUrl, await_copy, bucket_of, copy_object, have_same_content, remove_object


class LandedFile(NamedTuple):
    """A file of a landing folder: absolute path or URL, size in bytes, modification time in ns since the Unix epoch.

    For a folder that is one recording, the size is the total of its files, and the time is the latest of the folder and
    its files.
    """

    path: str
    size: int
    modified_ns: int


class Outcome(StrEnum):
    """The outcome of a file in a batch."""

    ADDED = "added"
    """The recordings of the file are in the store."""
    REPLACED = "replaced"
    """The recordings of the file are in the store, and replace those of an earlier content of the file."""
    DUPLICATE = "duplicate"
    """A file with the same content is already in the store."""
    QUARANTINED = "quarantined"
    """The file failed; its error is in the quarantine."""
    VANISHED = "vanished"
    """The file was removed before it was read."""
    CHANGED = "changed"
    """The file changed while it was read; a later batch ingests it."""


@dataclass(frozen=True, slots=True)
class FileResult:
    """The result of one file. ``digest`` is the digest of the content, ``error`` a ``ChunkmillError.to_dict()``."""

    file: LandedFile
    outcome: Outcome
    digest: str | None = None
    recordings: tuple[str, ...] = ()
    chunks: int = 0
    rows: int = 0
    bytes_out: int = 0
    error: dict[str, Any] | None = None
    findings: tuple[Finding, ...] = ()
    """The findings of the diagnosis, if there was one."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of a batch, file by file.

    ``version`` is the version of the store after the batch. ``replayed`` is true if the batch was committed before a
    restart.
    """

    query_id: str
    number: int
    version: int
    files: tuple[FileResult, ...] = field(default=())
    seconds: float = 0.0
    replayed: bool = False

    def count(self, *outcomes: Outcome) -> int:
        """The number of files with one of these outcomes."""
        return sum(result.outcome in outcomes for result in self.files)


_WINDOW: Final = 4 * MIB
_ON_DRIVER: Final = 256 * MIB
"""The most bytes that the ingestion's own process digests; more are shared among Spark's workers."""


def file_at(path: str | ObjectUrl) -> LandedFile | None:
    """Return the current file at a path or URL, or None. An object from a listing is returned as listed."""
    location, path = located(path), str(path)
    try:
        if isinstance(location, ObjectUrl):
            if location.listed is not None:
                return LandedFile(path, *location.listed)
            info = bucket_of(location).head(location.key)
            return LandedFile(path, info.size, info.modified_ns)
        status = location.stat()
        if not stat.S_ISDIR(status.st_mode):
            return LandedFile(path, status.st_size, status.st_mtime_ns)
        parts = [part.stat() for part in _parts(location)]  # including hidden files of a copy in progress
    except (FileNotFoundError, NotADirectoryError, SourceMissingError):
        return None
    return LandedFile(path, sum(p.st_size for p in parts), max(p.st_mtime_ns for p in (status, *parts)))


def _parts(folder: Path) -> list[Path]:
    """The files of a folder that is one input, by their names."""
    return sorted(path for path in folder.iterdir() if path.is_file())


def digest_of_file(file: LandedFile) -> str:
    """Return the hexadecimal XXH3-128 of a file's content, or of the names and contents of a folder's files.

    Raises ``ReadError``; a transient one if the file has changed.
    """
    digest = xxhash.xxh3_128()
    location = located(file.path)
    if isinstance(location, Path) and location.is_dir():
        for path in _parts(location):
            part = LandedFile(str(path), path.stat().st_size, 0)
            if not path.name.startswith("."):
                digest.update(f"{len(os.fsencode(path.name))} {part.size} ".encode() + os.fsencode(path.name))
                _add_content(digest, part)
    else:
        _add_content(digest, file)
    return digest.hexdigest()


def _add_content(digest: xxhash.xxh3_128, file: LandedFile) -> None:
    with open_positional(file.path) as source:
        if source.size != file.size:
            raise ReadError(
                f"the file has {source.size:,} bytes now, but had {file.size:,} when it was listed",
                path=file.path,
                transient=True,
            )
        for offset in range(0, file.size, _WINDOW):
            digest.update(source.read(offset, min(_WINDOW, file.size - offset), what="the file"))


def digest_files(files: Sequence[LandedFile], options: RunOptions) -> list[str | Exception]:
    """The digest of each file, or the error of reading it."""
    if executor_name(options.executor) == "inline" or sum(f.size for f in files) <= _ON_DRIVER:
        with ThreadPoolExecutor(max_workers=2, thread_name_prefix="chunkmill-digest") as pool:
            return list(pool.map(_tried, files))
    tasks = [Task(i, file.path, file.size) for i, file in enumerate(files)]
    ran = Stage(_DigestBody(tuple(files)), tasks).run(replace(options, progress=None))
    return [outcome if isinstance(outcome, Exception) else str(outcome["digest"]) for outcome in ran.outcomes()]


def _tried(file: LandedFile) -> str | Exception:
    try:
        return digest_of_file(file)
    except (ChunkmillError, OSError) as error:
        return error


@dataclass(frozen=True, slots=True)
class _DigestBody(Body):
    files: tuple[LandedFile, ...]

    def label(self, index: int) -> str:
        return self.files[index].path

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        yield from ()
        return {"digest": digest_of_file(self.files[task.index])}


class LandingFolder(Protocol):
    """A landing folder, as a batch sees it."""

    def files(self) -> list[LandedFile]:
        """The files in it now, settled or not."""

    def known(self, sizes: Collection[int]) -> list[str]:
        """Return all paths that were ever offered as files of one of these sizes."""

    def forget(self, number: int, paths: Collection[str], changed: Collection[LandedFile] = ()) -> None:
        """Let ``paths`` and ``changed`` files, which gave nothing, count as never offered after batch ``number``."""


@dataclass
class Displacement:
    """Recordings whose source names have other contents in a batch.

    ``moved``: those whose content is in another file of the folder, from now on their source. ``gone``: those whose
    content is in no file. ``doubtful``: paths under which the content of one may come back unchanged.
    """

    moved: dict[Key, RecordingEntry] = field(default_factory=dict)
    gone: dict[Key, RecordingEntry] = field(default_factory=dict)
    doubtful: list[str] = field(default_factory=list)

    def gone_with(self, results: Sequence[FileResult], through: Sequence[LandedFile]) -> list[RecordingEntry]:
        """Return the entries that leave the store with a batch. A file that failed displaces nothing."""
        failed = {result.file.path for result in results} - {file.path for file in through}
        return [entry for entry in self.gone.values() if entry.source not in failed]


def displacement_of(
    batch: Mapping[LandedFile, str], live: LiveEntries, folder: LandingFolder, *, kept: bool
) -> Displacement:
    """Find the new state of the recordings from these names; ``batch`` has the digests of the files' present contents.

    A rotation, a swap or a rename moves contents between names: a recording is removed only if no file in the folder
    has its content. ``kept``: files stay where they are, so a recording may be displaced from its name again.
    """
    displacement = Displacement()
    names = {file.path: digest for file, digest in batch.items()}
    todo = [e for path, digest in names.items() for e in live.of_source(path) if e.source_digest != digest]
    if not kept:  # the name of a removed file is free for others
        same = (e for path, digest in names.items() for e in live.of_source(path) if e.source_digest == digest)
        displacement.moved = {e.key: replace(e, source_kept=False) for e in same}
    carriers = _Carriers(batch, folder)
    while todo:
        entry = todo.pop()
        if entry.key in displacement.moved or entry.key in displacement.gone:
            continue
        file = carriers.of(entry)
        if file is None:
            displacement.gone[entry.key] = entry
            continue
        displacement.moved[entry.key] = replace(
            entry,
            source=file.path,
            source_size=file.size,
            source_modified_ns=file.modified_ns,
            source_kept=kept,
        )
        todo += [e for e in live.of_source(file.path) if e.source_digest != entry.source_digest]
    displacement.moved = _in_order(displacement.moved, live)
    displacement.doubtful = carriers.doubtful({entry.source_size for entry in displacement.gone.values()})
    return displacement


def _in_order(moved: Mapping[Key, RecordingEntry], live: LiveEntries) -> dict[Key, RecordingEntry]:
    """Order recordings so that each follows the one that leaves its new name: so they keep the order of arrival."""
    left, order = dict(moved), dict[Key, RecordingEntry]()
    while left:
        names = {entry.source: key for key in left if (entry := live.get(key)) is not None}
        free = [key for key, entry in left.items() if names.get(entry.source, key) == key] or [next(iter(left))]
        order.update((key, left.pop(key)) for key in free)
    return order


class _Carriers:
    """Files by content: those of the batch, and if needed those of the folder."""

    def __init__(self, batch: Mapping[LandedFile, str], folder: LandingFolder) -> None:
        self._folder = folder
        self._paths = {file.path for file in batch}
        self._found: dict[str, LandedFile] = {}
        for file, digest in batch.items():
            self._found.setdefault(digest, file)
        self._others: Sequence[LandedFile] | None = None
        self._read: dict[LandedFile, str | None] = {}

    def of(self, entry: RecordingEntry) -> LandedFile | None:
        """Return a file with the content of an entry. Files of the folder are compared by size first, then read."""
        if entry.source_digest not in self._found:
            for file in self._in_folder():
                if file.size == entry.source_size and self._digest(file) == entry.source_digest:
                    self._found[entry.source_digest] = file
                    break
        return self._found.get(entry.source_digest)

    def doubtful(self, sizes: Collection[int]) -> list[str]:
        """Known paths of files that had one of these sizes, and are missing now, or could not be read."""
        if not sizes:
            return []
        present = {file.path for file in self._in_folder() if self._read.get(file, "") is not None}
        return [path for path in self._folder.known(sizes) if path not in present and path not in self._paths]

    def _in_folder(self) -> Sequence[LandedFile]:
        if self._others is None:
            self._others = [file for file in self._folder.files() if file.path not in self._paths]
        return self._others

    def _digest(self, file: LandedFile) -> str | None:
        if file not in self._read:
            try:
                self._read[file] = digest_of_file(file)
            except (ChunkmillError, OSError):
                self._read[file] = None
        return self._read[file]


class Claims:
    """The questions of a batch to the store: sources, contents, ids, names of RRDs.

    ``files`` are the paths of its files with their digests.
    """

    def __init__(self, files: Mapping[str, str | None], arrived: Sequence[Arrived], displaced: Displacement) -> None:
        entries = [*displaced.moved.values(), *displaced.gone.values()]
        self._keys = sorted({key_of(recording.store) for recording in arrived} | {entry.key for entry in entries})
        self._sources = sorted({*files, *(entry.source for entry in entries)})
        self._digests = sorted({digest for digest in files.values() if digest})
        self._rrds = sorted({recording.rrd for recording in arrived if recording.rrd})

    def answers(self, live: LiveEntries) -> object:
        """The answers of a store, regardless of where chunks are stored."""
        answers = [
            *([entry] if (entry := live.get(key)) is not None else [] for key in self._keys),
            *(live.of_source(source) for source in self._sources),
            *(live.of_digest(digest) for digest in self._digests),
            *([entry] if (entry := live.of_rrd(rrd)) is not None else [] for rrd in self._rrds),
        ]
        return [sorted((e.key, e.source, e.source_digest, e.source_kept) for e in answer) for answer in answers]


class DatasetRules:
    """The rules that a dataset of a catalog adds: it may have been deleted, and its columns have one type each.

    ``dataset`` is the store's dataset in its catalog; without one there are no rules.
    """

    def __init__(self, dataset: os.PathLike[str] | None, folder: RecordingsFolder) -> None:
        self._dataset = dataset
        self._folder = folder
        self._schemas = SchemaFiles(folder)

    def check(self) -> None:
        """Raise ``NotFoundError`` if the dataset was deleted."""
        if self._dataset is None:
            return
        try:
            os.fspath(self._dataset)
        except NotFoundError as error:
            raise NotFoundError(
                f"the dataset of this ingestion was deleted ({error.message})",
                path=str(self._folder.path),
                hint="Newer files stay in the landing folder. Ingest into another dataset.",
            ) from error

    def schemas(self, live: LiveEntries) -> frozenset[str | None]:
        """The schemas that recordings have to fit."""
        return frozenset(() if self._dataset is None else live.schemas())

    def union(self, live: LiveEntries) -> SchemaUnion | None:
        """The columns of the present recordings."""
        return None if self._dataset is None else SchemaUnion(self._schemas, live.schemas())

    def joined(
        self,
        union: SchemaUnion,
        file: LandedFile,
        group: Group,
        replaces: Sequence[RecordingEntry],
        live: LiveEntries,
    ) -> SchemaUnion:
        """The columns once the recordings of a file are added. Raises ``SchemaConflictError``."""
        chunks = {store: chunks_of_store for store, chunks_of_store in group.chunks if store.kind == "recording"}
        layers = [
            NewLayer(
                store.recording_id,
                BASE_LAYER,
                file.path,
                self._schemas.remember(Schema.from_headers(c.entry.header for c in chunks_of_store).to_arrow()),
            )
            for store, chunks_of_store in chunks.items()
        ]
        return union.with_layers(layers, self._of({entry.key for entry in replaces} | set(map(key_of, chunks)), live))

    def takes(self, entries: Sequence[RecordingEntry], displaced: Displacement, live: LiveEntries) -> bool:
        """Return whether entries fit the present recordings that stay."""
        new = [NewLayer(e.recording_id, e.layer, e.source, e.schema) for e in entries if e.schema and _counts(e)]
        try:
            SchemaUnion(self._schemas, live.schemas()).with_layers(
                new, self._of({entry.key for entry in entries} | displaced.gone.keys(), live)
            )
        except SchemaConflictError:
            return False
        return True

    @staticmethod
    def _of(keys: Iterable[Key], live: LiveEntries) -> list[str | None]:
        """The schemas of the present recordings with these keys."""
        return [old.schema for key in keys if (old := live.get(key)) is not None and _counts(old)]


def _counts(entry: RecordingEntry) -> bool:
    return entry.kind != "blueprint"


class SourceDone(StrEnum):
    """The action on a source file, once its recordings are committed."""

    KEEP = "keep"
    """It stays where it is."""
    ARCHIVE = "archive"
    """It is moved to the archive folder, below which it keeps its place."""
    DELETE = "delete"
    """It is removed."""


class Disposal:
    """Keeps, archives or deletes source files. A file that has changed since it was read is left alone."""

    def __init__(self, kind: SourceDone, source: Location, archive: Location | None = None) -> None:
        if kind is SourceDone.ARCHIVE:
            _check_archive(source, archive)
        self.kind = kind
        self._sources: LocalSources | ObjectSources
        if isinstance(source, ObjectUrl):
            self._sources = ObjectSources(source, archive if isinstance(archive, ObjectUrl) else None)
        else:
            self._sources = LocalSources(source, archive if isinstance(archive, Path) else None)

    @property
    def keeps(self) -> bool:
        """Whether files stay where they are."""
        return self.kind is SourceDone.KEEP

    def dispose(self, file: LandedFile) -> None:
        """Dispose of a file. A missing one is fine.

        Raises ``WriteError``, and ``ReadError`` if a store does not answer.
        """
        if self.keeps:
            return
        with writing(file.path):
            done = self._sources.delete(file) if self.kind is SourceDone.DELETE else self._sources.archive(file)
        if done:
            reach("source.dispose")


def _check_archive(source: Location, archive: Location | None) -> None:
    """Raise ``UsageError`` if files of ``source`` cannot be archived in ``archive``."""
    if archive is None:
        raise UsageError("no archive folder is given", hint="Give one (--archive, archive=…).")
    if _store_of(source) != _store_of(archive):
        raise UsageError(
            f"files of {source} can be archived only in the same bucket or file system",
            path=str(archive),
            hint="Give a prefix of the same bucket, or a local folder for local files; or keep the files, and move "
            "them with other tools.",
        )
    if _below(archive).startswith(_below(source)):
        raise UsageError(
            "the archive is in the landing folder, whose files are ingested",
            path=str(archive),
            hint="Choose a folder outside it.",
        )


def _store_of(place: Location) -> tuple[str, str] | None:
    """The store of a place; None for the file system."""
    return place.store if isinstance(place, ObjectUrl) else None


def _below(place: Location) -> str:
    """The prefix of the paths (in a bucket, of the keys) of files below a place."""
    path = place.key if isinstance(place, ObjectUrl) else str(place)
    return f"{path}/" if path else ""


class Occupancy(Enum):
    """The state of a name in the archive."""

    FREE = "free"
    """Nothing has the name."""
    OURS = "ours"
    """This file, or a copy of it, has the name: a run was interrupted between two steps of a move."""
    TAKEN = "taken"
    """Another file has the name."""


def numbered(name: str, number: int) -> str:
    """The name for a file if ``number - 1`` files of its name came before.

    >>> [numbered(name, number) for name, number in (("drive.mcap", 1), ("drive.mcap", 2), ("drive.v2.MCAP.zst", 3))]
    ['drive.mcap', 'drive-2.mcap', 'drive.v2-3.MCAP.zst']
    """
    if number == 1:
        return name
    stem = stem_of(name)
    return f"{stem}-{number}{name[len(stem) :]}"


def find_name(name: str, look: Callable[[str], Occupancy]) -> tuple[str, Occupancy]:
    """Find the name for a file in its archive folder, and its state by ``look``: free, or ours.

    As names are taken in order, few are looked at: at powers of two until one is not taken, then by bisection. Without
    other writers, the same names are looked at each time, so that an earlier file of ours is found.
    """
    taken, end = 0, 1
    while (place := look(numbered(name, end))) is Occupancy.TAKEN:
        taken, end = end, 2 * end
    while end - taken > 1:
        middle = (taken + end) // 2
        occupancy = look(numbered(name, middle))
        if occupancy is Occupancy.TAKEN:
            taken = middle
        else:
            end, place = middle, occupancy
    return numbered(name, end), place


class LocalSources:
    """The files of a landing folder, to be removed or moved to ``archive``.

    Files that changed since they were read are left alone; missing ones are no error.
    """

    def __init__(self, landing: Path, archive: Path | None) -> None:
        self._landing = landing
        self._archive = archive

    def delete(self, file: LandedFile) -> bool:
        """Remove a file; return whether it was removed. Raises ``OSError``."""
        if file_at(file.path) != file:
            return False
        _remove(Path(file.path))
        return True

    def archive(self, file: LandedFile) -> bool:
        """Move a file into the archive without overwriting; return whether it was moved. Raises ``OSError``."""
        assert self._archive is not None
        if file_at(file.path) != file:
            return False
        path = Path(file.path)
        folder = (self._archive / path.relative_to(self._landing)).parent
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            name, place = find_name(path.name, lambda name: _look_in_folder(path, folder / name))
            if place is Occupancy.OURS:
                _remove(path)
                return True
            with contextlib.suppress(FileExistsError):  # another process took the name just now
                _move_without_replacing(path, folder / name)
                return True


def _look_in_folder(path: Path, target: Path) -> Occupancy:
    if not os.path.lexists(target):
        return Occupancy.FREE
    return Occupancy.OURS if _is_the_same(path, target) else Occupancy.TAKEN


def _is_the_same(path: Path, target: Path) -> bool:
    """Return whether ``target`` is this file, or on another file system a copy of it."""
    try:
        source_stat, target_stat = path.stat(), target.stat()
    except FileNotFoundError:
        return False
    if source_stat.st_dev == target_stat.st_dev:
        return source_stat.st_ino == target_stat.st_ino
    if stat.S_ISDIR(source_stat.st_mode):
        whole = [file_at(str(folder)) for folder in (path, target) if folder.is_dir()]
        return len(whole) == 2 and len({digest_of_file(folder) for folder in whole if folder is not None}) == 1
    alike = (source_stat.st_size, source_stat.st_mtime_ns) == (target_stat.st_size, target_stat.st_mtime_ns)
    return alike and filecmp.cmp(path, target, shallow=False)


def _move_without_replacing(path: Path, target: Path) -> None:
    """Move a file; raises ``FileExistsError`` if the target exists. Across file systems, it is copied first."""
    if path.is_dir():
        _move_folder(path, target)
        return
    try:
        os.link(path, target)
    except OSError as error:
        if isinstance(error, FileExistsError):
            raise
        if os.path.lexists(target):
            raise FileExistsError(target) from None
        draft = target.with_name(f".{target.name}.draft")
        shutil.copy2(path, draft)
        with draft.open("rb") as copy:
            os.fsync(copy.fileno())
        draft.rename(target)
    sync_folder(target.parent)
    reach("source.archive")
    path.unlink()


def _move_folder(path: Path, target: Path) -> None:
    """Move a folder that is one input, like a file."""
    if os.path.lexists(target):
        raise FileExistsError(target)
    try:
        path.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise FileExistsError(target) from None
        if error.errno != errno.EXDEV:
            raise
    else:
        reach("source.archive")
        return
    draft = target.with_name(f".{target.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    for part in _parts(path):
        shutil.copy2(part, draft / part.name)
        with (draft / part.name).open("rb") as copy:
            os.fsync(copy.fileno())
    draft.rename(target)
    sync_folder(target.parent)
    reach("source.archive")
    _remove(path)


def _remove(path: Path) -> None:
    """Remove a file, or a folder that is one input with its files, but nothing else in it. A missing one is fine."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for part in _parts(path):
        part.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        path.rmdir()


class ObjectSources:
    """The objects below a prefix, to be removed or moved below the prefix ``archive`` of the same bucket.

    Objects that changed since they were read are left alone; missing ones are no error. A move is a copy inside the
    store and then a removal, on the condition that the source is unchanged since the copy. Stores other than S3, and
    some servers of its protocol, lack that condition; there, the source is checked right before.
    """

    def __init__(self, landing: ObjectUrl, archive: ObjectUrl | None) -> None:
        self._landing = landing
        self._archive = archive

    def delete(self, file: LandedFile) -> bool:
        """Remove an object and return whether it was removed. Raises ``WriteError``, and ``ReadError`` if the store
        does not answer.
        """
        source = _as_read(file)
        if source is None:
            return False
        remove_object(source)
        return True

    def archive(self, file: LandedFile) -> bool:
        """Move an object into the archive without overwriting; return whether it was moved. Raises as ``delete``."""
        source = _as_read(file)
        if source is None or not self._copy(file, source):
            return False
        reach("source.archive")
        if _as_read(file) != source:
            return False
        remove_object(source)
        return True

    def _copy(self, file: LandedFile, source: ObjectInfo) -> bool:
        """Make sure that a copy is in the archive; return False if the source changed meanwhile."""
        assert self._archive is not None
        below = source.url.key[len(self._landing.key) + 1 :] if self._landing.key else source.url.key
        folder = f"{self._archive.key}/{below}".lstrip("/").rpartition("/")[0]

        def at(name: str) -> ObjectUrl:
            return ObjectUrl(source.url.scheme, source.url.bucket, f"{folder}/{name}".lstrip("/"))

        while True:
            target = None
            try:
                name, place = find_name(source.url.name, lambda name: _look_in_bucket(source, at(name)))
                if place is Occupancy.OURS:
                    return True
                target = at(name)
                copy_object(source, target)
            except (ReadError, WriteError):
                if _as_read(file) != source:
                    return False
                if target is None or not bucket_of(target).exists(target.key):
                    raise
                continue  # another process took the name just now, or the copy exists and its answer was lost
            await_copy(source, target)
            return True


def _as_read(file: LandedFile) -> ObjectInfo | None:
    """The object that was read, if it still exists unchanged."""
    url = ObjectUrl.of(file.path)
    existing = bucket_of(url).find(url.key)
    return existing if existing and (existing.size, existing.modified_ns) == (file.size, file.modified_ns) else None


def _look_in_bucket(source: ObjectInfo, target: ObjectUrl) -> Occupancy:
    existing = bucket_of(target).find(target.key)
    if existing is None:
        return Occupancy.FREE
    return Occupancy.OURS if have_same_content(source, existing) else Occupancy.TAKEN
