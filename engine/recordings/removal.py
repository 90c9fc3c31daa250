"""Removal of recordings from all files of a store: its versions, tables, manifests, shards and schemas."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ReadError, SourceMissingError, WriteError
from ..execution import Lease, Staging
from ..faults import reach
from ..rrd import RrdFile
from .compaction import Rewriting
from .entries import RecordingEntry, entries_in
from .folder import RecordingsFolder
from .schemas import SUFFIX
from .vacuum import NewFiles, announced_runs
from .versions import RecordingsVersion
from .writer import Commit, StoreWriter

OPERATION: Final = "forget"
GOING: Final = ".going"
"""The suffix of a schema's copy, which exists while it is unknown whether the schema is needed."""
_TRIES: Final = 5
_ALL: Final = 1 << 62
"""Keeps all versions, if none has the recordings: only files that no version names are removed."""
_ARROW: Final = b"ARROW1\0\0"
_ARROW_END: Final = b"ARROW1"


@dataclass(frozen=True, slots=True)
class RemovedFile:
    """A file that was removed from a store: its kind, its place and its bytes."""

    kind: str
    place: str
    bytes: int


@dataclass(frozen=True, slots=True)
class StoreRemoval:
    """The result of a removal: the version without the recordings, and the removed files.

    ``unreadable`` are unreadable recordings that share a file with removed ones: pairs of that file, which is kept, and
    the id. ``writers`` are concurrent runs of writers, whose files are kept.
    """

    version: int
    files: tuple[RemovedFile, ...]
    unreadable: tuple[tuple[str, str], ...] = ()
    writers: tuple[str, ...] = ()


def all_layers_of(folder: RecordingsFolder, ids: Collection[str]) -> list[RecordingEntry]:
    """Return the entries of recordings in all versions of a store, except removals; empty without a store."""
    if folder.newest() is None:
        return []
    entries: dict[str, RecordingEntry] = {}
    for table in sorted({table for version in folder.versions() for table in version.tables}):
        for entry in _entries_of(folder.rows(table), ids):
            if not entry.removed:
                entries[repr((entry.key, entry.added, entry.manifest, entry.manifest_offset))] = entry
    return list(entries.values())


def tags_with(folder: RecordingsFolder, ids: Collection[str]) -> list[str]:
    """Return the tags, sorted, of versions whose files have, or may have, data of the recordings.

    A file of manifests may have unused manifests. These count as data of the recordings if their shards contain the
    recordings, or are gone.
    """
    newest = folder.newest()
    if newest is None or not newest.tags:
        return []
    numbers = sorted({newest.number, *newest.tags.values()})
    entries = {number: list(folder.live(folder.read_version(number))) for number in numbers}
    everything = [entry for some in entries.values() for entry in some]
    shards = _shards_with(folder, everything, ids)
    manifests = _manifests_with_more(folder, everything, ids)
    return sorted(
        tag
        for tag, number in newest.tags.items()
        if _has_rows(folder, folder.read_version(number), ids)
        or any(e.manifest in manifests or not shards.isdisjoint(e.shards) for e in entries[number])
    )


def _is_more_in(
    folder: RecordingsFolder, manifest: str, needed: Collection[tuple[int, int]], ids: Collection[str]
) -> bool:
    """Return whether a file of manifests may have manifests of recordings, other than ``needed`` ones."""
    data = folder.manifests.get(manifest)
    end = 0
    for offset, size in [*sorted(needed), (len(data), 0)]:
        at = end - 1
        while (at := data.find(_ARROW, at + 1, offset)) >= 0:
            stop = data.find(_ARROW_END, at + len(_ARROW), offset)
            try:
                table = pa.ipc.open_file(pa.py_buffer(data[at : stop + len(_ARROW_END)])).read_all()
                parts = table["part"].unique().to_pylist()
            except (pa.ArrowException, KeyError):
                return True
            for part in parts:
                try:
                    stores = RrdFile(folder.shards.place(part)).stores()
                except (OSError, ReadError):
                    return True
                if any(store.recording_id in ids for store in stores):
                    return True
            at = stop
        end = offset + size
    return False


def remove_recordings(folder: RecordingsFolder, ids: Collection[str]) -> StoreRemoval:
    """Remove recordings with all layers, and all earlier versions without a tag, from the files of a store.

    Tagged versions are unchanged; :func:`tags_with` returns those with such recordings. Files with other recordings are
    rewritten. Guarantee: after a crash, the newest version has all of the recordings or none; the next removal
    completes the work. Raises the errors of ``StoreWriter.commit``.
    """
    with Lease.take(folder.path, OPERATION) as lease:
        before = dict(_files_of(folder))
        writer = StoreWriter(folder, lease)
        number = writer.number
        has_any = any(_has_rows(folder, version, ids) for version in folder.versions())
        for _ in range(_TRIES):
            damaged = _rewritten(writer, ids)
            if damaged is not None:
                break
        else:
            raise WriteError(
                "other processes keep changing these recordings",
                path=str(folder.path),
                hint="Try again.",
                transient=True,
            )
        reach("forget.commit")
        keep = 1 if has_any or writer.number != number else _ALL
        writer.vacuum(keep=keep, older_than_seconds=0)
        writers = _without_schemas(folder) | announced_runs(folder)[0]
        after = dict(_files_of(folder))
    gone = tuple(RemovedFile(kind, place, size) for (kind, place), size in before.items() if (kind, place) not in after)
    unreadable = tuple((folder.shards.place(shard), entry.recording_id) for entry in damaged for shard in entry.shards)
    return StoreRemoval(writer.number, gone, unreadable, tuple(sorted(writers)))


def _rewritten(writer: StoreWriter, ids: Collection[str]) -> list[RecordingEntry] | None:
    """Publish a version without some recordings, and without their data in its files, if there is any.

    Return the recordings that could not be read, or None if others changed these recordings meanwhile.
    """
    writer.catch_up()
    folder = writer.folder
    entries = list(writer.live)
    rest = [entry for entry in entries if entry.recording_id not in ids]
    shards = _shards_with(folder, rest, ids)
    manifests = _manifests_with_more(folder, rest, ids)
    if len(rest) == len(entries) and not shards and not manifests and not _has_rows(folder, writer.version, ids):
        return []
    touched = [e for e in rest if e.manifest in manifests or not shards.isdisjoint(e.shards)]
    with Staging.beside(folder.path / OPERATION) as staging:

        def write(files: NewFiles) -> list[RecordingEntry] | None:
            rewriting = Rewriting(folder, files)
            for entry in touched:
                rewriting.move(entry, shards)
            files.finish()
            reach("forget.run")
            version = writer.rewrite([rewriting.entries.get(e.key, e) for e in rest], Commit(OPERATION))
            if version is None:
                files.discard()
                return None
            return list(rewriting.damaged.values())

        return writer.with_files(write, staging)


def _shards_with(folder: RecordingsFolder, rest: list[RecordingEntry], ids: Collection[str]) -> set[str]:
    """The other recordings' shards with chunks of these, according to the shards' footers."""
    shards = set()
    for shard in {shard for entry in rest for shard in entry.shards}:
        try:
            stores = RrdFile(folder.shards.place(shard)).stores()
        except (OSError, ReadError):
            shards.add(shard)  # it may have them; moving verifies its contents
            continue
        if any(store.recording_id in ids for store in stores):
            shards.add(shard)
    return shards


def _manifests_with_more(folder: RecordingsFolder, rest: list[RecordingEntry], ids: Collection[str]) -> set[str]:
    """The files of the manifests of ``rest`` that may also have manifests of these recordings."""
    sizes = dict(folder.manifests.entries())
    return {
        name
        for name, pieces in _pieces_of(rest).items()
        if sizes.get(name) != sum(size for _, size in pieces) and _is_more_in(folder, name, pieces, ids)
    }


def _pieces_of(entries: Iterable[RecordingEntry]) -> dict[str, set[tuple[int, int]]]:
    """The offsets and sizes of the manifests of recordings, by their files."""
    pieces: dict[str, set[tuple[int, int]]] = {}
    for entry in entries:
        if entry.manifest:
            pieces.setdefault(entry.manifest, set()).add((entry.manifest_offset, entry.listing_size))
    return pieces


def _has_rows(folder: RecordingsFolder, version: RecordingsVersion | None, ids: Collection[str]) -> bool:
    """Return whether a version's tables have rows of some recordings; a row of a removal counts."""
    wanted = pa.array(sorted(ids), pa.string())
    tables = () if version is None else version.tables
    batches = (batch for table in tables for batch in folder.rows(table))
    return any(pc.any(pc.is_in(batch["recording_id"], wanted)).as_py() for batch in batches)


def _entries_of(batches: Iterator[pa.RecordBatch], ids: Collection[str]) -> Iterator[RecordingEntry]:
    wanted = pa.array(sorted(ids), pa.string())
    for batch in batches:
        is_of = pc.is_in(batch["recording_id"], wanted)
        if np.any(np.asarray(is_of)):
            yield from entries_in([batch.filter(is_of)])


def _files_of(folder: RecordingsFolder) -> Iterator[tuple[tuple[str, str], int]]:
    kinds = {
        "version": folder.versions_folder,
        "entry table": folder.tables,
        "manifest": folder.manifests,
        "shard": folder.shards,
        "schema": folder.schemas,
    }
    for kind, files in kinds.items():
        try:
            yield from [((kind, files.place(file.name)), file.size) for file in files.entries()]
        except (FileNotFoundError, SourceMissingError):
            continue


def _without_schemas(folder: RecordingsFolder) -> set[str]:
    """Remove unused schemas; return the runs of writers that prevent the removal.

    A writer that reuses an existing schema has announced itself before. So copies stay until no writer is announced and
    no new recording names them. The next removal completes an interrupted one.
    """
    schemas = folder.schemas
    copies = [name for name in schemas.names() if name.endswith(GOING)]
    unnamed = [name for name in schemas.names() if name.endswith(SUFFIX)]
    named = _named_schemas(folder)
    doomed = [name for name in unnamed if name not in named]
    spared = announced_runs(folder)[0] if doomed else set()
    if spared:
        doomed = []
    for name in doomed:
        schemas.put(name + GOING, schemas.get(name))
    reach("forget.schemas")
    schemas.delete(doomed)
    living = announced_runs(folder)[0]
    named = _named_schemas(folder)
    for copy in {*copies, *(name + GOING for name in doomed)}:
        name = copy.removesuffix(GOING)
        if (living or name in named) and not schemas.exists(name):
            schemas.create(name, schemas.get(copy))
        schemas.delete([copy])
    return spared | (living if doomed else set())


def _named_schemas(folder: RecordingsFolder) -> set[str]:
    newest, live = folder.newest_live()
    tagged = () if newest is None else [folder.read_version(number) for number in set(newest.tags.values())]
    columns = [some.columns("schema")["schema"] for some in (live, *map(folder.live, tagged))]
    return {f"{digest}{SUFFIX}" for column in columns for digest in column.to_pylist() if digest}
