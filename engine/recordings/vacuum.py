"""New files of a commit and their announcement, and the removal of files that no kept version needs."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from ..errors import ReadError, SourceMissingError, UsageError, WriteError, writing
from ..execution import (
    Folder,
    Holder,
    Lease,
    LocalFolder,
    PartChunk,
    Shard,
    Staging,
    abandoned_runs,
    neighbours,
    sync_folder,
)
from ..faults import reach
from ..rrd import MESSAGE_HEADER_SIZE, StoreEntry
from ..storage import author, publish
from .folder import RecordingsFolder
from .versions import RecordingsVersion, TableRef

MOST_CHUNKS: Final = 100_000
"""The most chunks of one shard, whose footer is made in memory."""


class NewShards:
    """Copies chunks out of parts into shards of about ``shard_bytes`` each.

    :meth:`finish` makes shards appear in ``folder``, durably, under new names from ``name``, which nothing refers to
    yet.
    """

    def __init__(
        self, staging: Staging, folder: Folder, destination: str, shard_bytes: int, name: Callable[[str], str]
    ) -> None:
        self._staging = staging
        self._folder = folder
        self._name = name
        self._destination = destination
        self._most = shard_bytes
        self._shards: list[Shard] = []
        self._open: Shard | None = None

    def add(self, store: StoreEntry, chunks: Sequence[PartChunk]) -> list[PartChunk]:
        """Copy a recording's chunks, in their order in the parts; return their new places."""
        moved: list[PartChunk] = []
        with writing(self._destination):
            for run in neighbours(chunks, self._most):
                moved += self._with_room(run).append(store, run)
        return moved

    def _with_room(self, run: Sequence[PartChunk]) -> Shard:
        shard = self._open
        if shard is not None and shard.chunks:
            size = sum(chunk.entry.size + MESSAGE_HEADER_SIZE for chunk in run)
            if shard.size + size > self._most or shard.chunks + len(run) > MOST_CHUNKS:
                self._seal()
        if self._open is None:
            folder = self._staging.folder if isinstance(self._folder, LocalFolder) else self._folder
            self._open = Shard(folder, self._name(".rrd"), self._staging, self._destination)
            self._shards.append(self._open)
        return self._open

    def _seal(self) -> None:
        shard, self._open = self._open, None
        if shard is not None:
            shard.seal()

    def finish(self) -> None:
        """Make all shards appear in their folder."""
        with writing(self._destination):
            self._seal()
            for shard in self._shards:
                shard.file.finish()
                if isinstance(self._folder, LocalFolder):
                    (self._staging.local / shard.name).rename(self._folder.place(shard.name))
                reach("shard.rename", self._folder.place(shard.name))
            if isinstance(self._folder, LocalFolder):
                sync_folder(self._folder.location)

    @property
    def size(self) -> int:
        """The bytes of all finished shards."""
        return sum(shard.size for shard in self._shards)

    def discard(self) -> None:
        """Remove all files of this writer, finished shards included, since nothing names them."""
        for shard in self._shards:
            shard.file.discard()
        self._folder.delete(shard.name for shard in self._shards)


_MANIFEST_BYTES: Final = 32 << 20
"""Manifests of about this size are held in memory until they are written as one file."""


class SweptError(WriteError):
    """A vacuum may have removed files of a run: it did not see the run, or took its writer for dead."""


_SILENT: Final = 24 * 3600.0
"""Seconds without a sign of life after which a writer on another host counts as dead."""
_SIGNS: Final = _SILENT / 24
_SUFFIX: Final = ".json"
_TORN: Final = 0.1
"""Seconds within which an announcement is completely written."""


class NewFiles:
    """Writes the files of a run: one commit, retried as needed. File names begin with ``run``.

    ``base`` is the number of the newest version before the first file is written. :meth:`finish` makes shards, and
    manifest files of about 32 MiB, durable.
    """

    def __init__(self, folder: RecordingsFolder, staging: Staging | None, shard_bytes: int, *, base: int) -> None:
        self.folder = folder
        self.run = uuid.uuid4().hex
        self.base = base
        self._staging = staging
        self._shard_bytes = shard_bytes
        self._shards: NewShards | None = None
        self.manifests: list[str] = []
        self._pieces: list[bytes] = []
        self._size = 0
        self._count = 0
        self._announced: float | None = None

    @property
    def shards(self) -> NewShards:
        """The shards. Their copies are in the staging folder until :meth:`finish`."""
        if self._shards is None:
            assert self._staging is not None, "shards need a staging folder"
            folder = self.folder
            self._shards = NewShards(self._staging, folder.shards, str(folder.path), self._shard_bytes, self.name)
        return self._shards

    def name(self, suffix: str) -> str:
        """Return a unique name for the next file; the first call announces the run."""
        now = time.monotonic()
        if self._announced is None or now - self._announced > _SIGNS:
            is_first, self._announced = self._announced is None, now
            place = f"{self.run}{_SUFFIX}"
            with writing(str(self.folder.path)):
                self.folder.writers.put(place, Holder.here("writer", _SILENT).to_bytes(), durable=False)
                if is_first:
                    reach("announce.write", self.folder.writers.place(place))
        self._count += 1
        return f"{self.run}-{self._count}{suffix}"

    def check(self, base: RecordingsVersion | None) -> None:
        """Raise a transient ``WriteError`` if this run must not publish on ``base``, as its files may be gone."""
        if not self._count:
            self.base = base.number if base else 0
        if base is None or base.spares(self.run, self.base):
            return
        raise SweptError(
            f"the vacuum of version {base.vacuumed} may have removed files of this run",
            path=str(self.folder.path),
            hint="Nothing of this run is visible; run it again.",
            transient=True,
        )

    def withdraw(self) -> None:
        """Remove the announcement: the run is over. If this fails, a vacuum notices the end by itself."""
        if self._announced is not None:
            reach("announce.clear")
            with contextlib.suppress(OSError, WriteError):
                self.folder.writers.delete([f"{self.run}{_SUFFIX}"])

    def add_manifest(self, data: bytes, times: Sequence[bytes] = ()) -> tuple[str, int]:
        """Add a recording's manifest and the times after it; return the name of its future file, and its offset."""
        if self._size >= _MANIFEST_BYTES:
            self._write_manifest()
        if not self._pieces:
            self.manifests.append(self.name(".arrows"))
        offset = self._size
        self._pieces += [data, *times]
        self._size += len(data) + sum(map(len, times))
        return self.manifests[-1], offset

    def finish(self) -> None:
        """Write all files."""
        if self._shards is not None:
            self._shards.finish()
        self._write_manifest()

    def discard(self) -> None:
        """Remove the files if possible; no version names them. A vacuum removes the rest."""
        with contextlib.suppress(OSError, WriteError):
            if self._shards is not None:
                self._shards.discard()
        with contextlib.suppress(OSError, WriteError):
            self.folder.manifests.delete(self.manifests)

    def _write_manifest(self) -> None:
        if self._pieces:
            name = self.manifests[-1]
            with writing(str(self.folder.path)):
                put_durably(self.folder.manifests, name, b"".join(self._pieces))
                reach("manifest.write", self.folder.manifests.place(name))
            self._pieces, self._size = [], 0


def put_durably(folder: Folder, name: str, data: bytes) -> None:
    """Write a file for a later version, and make its name durable before that version's."""
    folder.put(name, data)
    if isinstance(folder, LocalFolder):
        sync_folder(folder.location)


def announced_runs(folder: RecordingsFolder) -> tuple[set[str], set[str]]:
    """Return the announced runs of writers that seem alive, and of dead writers."""
    living, dead = set[str](), set[str]()
    try:
        names = list(folder.writers.names())
    except (FileNotFoundError, SourceMissingError):
        return living, dead
    for name in names:
        holder = _holder(folder.writers, name)
        silent = holder is None or (not holder.is_here and time.time() - holder.renewed > _SILENT)
        gone = silent or (holder is not None and holder.is_dead)
        (dead if gone else living).add(name.removesuffix(_SUFFIX))
    return living, dead


def withdraw_all(folder: RecordingsFolder, runs: Iterable[str]) -> None:
    """Remove announcements of runs that are over."""
    folder.writers.delete(f"{run}{_SUFFIX}" for run in runs)


def _holder(folder: Folder, name: str) -> Holder | None:
    """Return the announcer of a run, or None if it cannot be read or the run is over."""
    for pause in (0.0, _TORN):
        time.sleep(pause)
        try:
            return Holder.parse(folder.get(name))
        except (FileNotFoundError, SourceMissingError):
            return None
        except (ValueError, TypeError, RecursionError):
            continue  # it is incomplete: being written, or cut short
        except ReadError as error:
            raise WriteError(
                f"the announcement of a run cannot be read: {error}", path=folder.place(name), transient=True
            ) from error
    return None


OPERATION: Final = "vacuum"
SAME_RECORDINGS: Final = (OPERATION, "tag", "untag")
"""The operations that do not change the recordings."""


def vacuum_store(folder: RecordingsFolder, *, keep: int = 1, older_than_seconds: float = 0.0) -> int:
    """Take the lease on a store, and vacuum it; see :meth:`RecordingStore.vacuum`. Return the bytes freed."""
    if keep < 1:
        raise UsageError(f"keep must be at least 1, not {keep}")
    with Lease.take(folder.path, OPERATION):
        return vacuum_folder(folder, folder.version(), keep=keep, older_than_seconds=older_than_seconds)[1]


def vacuum_folder(
    folder: RecordingsFolder, newest: RecordingsVersion, *, keep: int, older_than_seconds: float
) -> tuple[RecordingsVersion, int]:
    """See :meth:`RecordingStore.vacuum`; return the newest version afterwards, and the bytes freed.

    ``newest`` is the newest version, read before. If there are files to remove, a next version is published with the
    same recordings and the runs it spared: those announced by live writers. Versions with a tag stay, whatever their
    age. Raises the errors of ``StoreWriter.commit``.
    """
    began = time.perf_counter()
    files_by_folder = [(kind, kind.entries()) for kind in (folder.tables, folder.manifests, folder.shards)]
    files_by_folder.append(
        (folder.versions_folder, [e for e in folder.versions_folder.entries() if e.name.startswith(".")])
    )
    runs = abandoned_runs(folder.path)
    base: RecordingsVersion | None = newest

    def attempt() -> tuple[RecordingsVersion, int] | None:
        nonlocal base
        newest, base = base or folder.version(), None
        first, tables = _first_and_tables(folder, newest, keep, time.time() - older_than_seconds)
        manifests, shards = folder.named(sorted(tables))
        needed = {table.name for table in tables} | manifests | shards
        living, dead = announced_runs(folder)
        doomed = [(kind, [e for e in files if is_doomed(e.name, needed, living)]) for kind, files in files_by_folder]
        tagged = set(newest.tags.values())
        stale = [number for number in folder.files.all_numbers() if number < first and number not in tagged]
        if not stale and not runs and not dead and not any(files for _, files in doomed):
            return newest, 0
        version = following(newest, living, max(first, newest.first), time.perf_counter() - began)
        if not folder.publish(version):
            reach("version.rebase")
            return None
        reach("vacuum.publish")
        withdraw_all(folder, dead)
        return version, _remove(folder, stale, doomed)

    with writing(str(folder.path)):
        return publish(attempt, "this store", path=str(folder.path))


def is_doomed(name: str, needed: Collection[str], living: Collection[str]) -> bool:
    """Return True if a file, listed before the newest version was read, is to be removed."""
    return name not in needed and name.partition("-")[0] not in living


def following(newest: RecordingsVersion, living: Iterable[str], first: int, seconds: float) -> RecordingsVersion:
    """Return a vacuum's version on top of ``newest``: the same recordings, its first version, and the spared runs."""
    return replace(
        following_version(newest, OPERATION, seconds),
        first=first,
        vacuumed=newest.number + 1,
        spared={run: newest.spared.get(run, newest.vacuumed) for run in sorted(living)},
    )


def following_version(newest: RecordingsVersion, operation: str, seconds: float) -> RecordingsVersion:
    """Return a version on top of another, with the same recordings, totals and tags."""
    return replace(
        newest,
        number=newest.number + 1,
        created=time.time(),
        operation=operation,
        files={},
        bytes_in=0,
        seconds=seconds,
        author=author(),
        restored=None,
    )


def _first_and_tables(
    folder: RecordingsFolder, newest: RecordingsVersion, keep: int, limit: float
) -> tuple[int, set[TableRef]]:
    """The number of the first version to keep, and the tables of all kept ones: from it on, and tagged.

    Versions of vacuums and tags, which have the recordings of the version before, do not count for ``keep``.
    """
    first, tables, tagged = newest.number, set[TableRef](), set(newest.tags.values())
    is_young = True
    for number in reversed(folder.files.numbers()):  # one at a time: an hour may have thousands
        if not ((is_young and number >= newest.first) or number in tagged):
            continue
        version = newest if number == newest.number else folder.read_version(number)
        is_young = is_young and number >= newest.first and (keep > 0 or version.created > limit)
        if is_young:
            keep -= version.operation not in SAME_RECORDINGS
            first = number
        if is_young or number in tagged:
            tables.update(version.tables)
    return first, tables


def _remove(
    home: RecordingsFolder, stale: Sequence[int], doomed: Iterable[tuple[Folder, Sequence[tuple[str, int]]]]
) -> int:
    """Remove old versions first, so that no reader can open them any more; then their other files. After a crash the
    next vacuum removes the rest. Return the bytes freed.
    """
    home.files.delete(stale)
    reach("vacuum.versions")
    freed = 0
    for folder, entries in doomed:
        folder.delete(name for name, _ in entries)
        freed += sum(size for _, size in entries)
        if entries:
            reach("vacuum.files")
    for run in abandoned_runs(home.path):
        freed += run.total()
        run.remove()
    return freed
