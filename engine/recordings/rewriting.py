"""One commit of a compaction: some recordings' chunks and manifests copied together, or laid out anew.

Laid out anew are recordings whose chunks are smaller than a profile wants.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import groupby
from typing import Final

import numpy as np

from ..errors import ReadError, ReadWarning
from ..execution import STAGE_TASKS, Group, PartChunk, RunOptions, Staging, is_of_all, run_groups
from ..optimisation import EntityWork, OptimizationProfile, Settings
from ..rrd import (
    NEVER_CHANGES,
    ChunkTable,
    StoreEntry,
    damaged_chunk,
    digest_of,
    message_digest,
    open_positional,
    store_field,
)
from .entries import Key, RecordingEntry
from .folder import MANIFEST_ERRORS, RecordingsFolder, manifest_bytes, parse_chunks, parse_manifest, table_of_parts
from .new_files import NewFiles
from .times import TimesBytes, kept_times, times_of_parts


class Rewriting:
    """Writes recordings into new files, and gives their new entries.

    Chunks are verified, then copied by the kernel (in an object store by the store where parts are large enough):
    their digests stay the same. A recording that cannot be read is left as it is, with a warning; ``damaged`` names it.
    """

    def __init__(self, folder: RecordingsFolder, files: NewFiles) -> None:
        self._folder = folder
        self._files = files
        self.entries: dict[Key, RecordingEntry] = {}
        self.damaged: dict[Key, RecordingEntry] = {}

    def move(self, entry: RecordingEntry, shards: Set[str]) -> None:
        """Write a recording's manifest anew, and those of its chunks that lie in ``shards``."""
        try:
            data = self._folder.manifest(entry)
            chunks = parse_manifest(data, entry.manifest_digest) if not shards.isdisjoint(entry.shards) else []
            moving = [self._placed(c) for c in chunks if c.part in shards]
            self._verify(moving, entry.store)
        except (*MANIFEST_ERRORS, ReadError) as error:
            self.leave(entry, error)
            return
        times = kept_times(self._folder, entry)
        if not moving:
            self._add(entry, data, times)
            return
        moved = iter(self._files.shards.add(entry.store, moving))
        self.bring(entry, [next(moved) if c.part in shards else c for c in chunks], times)

    def lay_out(self, entry: RecordingEntry, parts: Sequence[PartChunk], staging: Staging) -> None:
        """Take chunks from parts of the staging folder in place of a recording's own."""
        times = times_of_parts(parts, staging)
        self.bring(entry, self._files.shards.add(entry.store, parts), times)

    def bring(self, entry: RecordingEntry, chunks: Sequence[PartChunk], times: TimesBytes) -> None:
        """Let a recording have these chunks, which are in place, and their times."""
        entry = replace(
            entry,
            shards=tuple(dict.fromkeys(c.part for c in chunks)),
            chunks=len(chunks),
            rows=sum(c.entry.header.num_rows for c in chunks),
            bytes=sum(c.entry.size for c in chunks),
        )
        self._add(entry, manifest_bytes(table_of_parts(chunks)), times)

    def leave(self, entry: RecordingEntry, error: Exception) -> None:
        """Leave a recording as it is, and say why."""
        self.damaged[entry.key] = entry
        warnings.warn(
            f"{self._folder.path}: recording {entry.recording_id} is left as it is: {error}", ReadWarning, stacklevel=2
        )

    def _add(self, entry: RecordingEntry, manifest: bytes, times: TimesBytes) -> None:
        name, offset = self._files.add_manifest(manifest, times.pieces)
        entry = times.noted(entry)
        self.entries[entry.key] = replace(
            entry,
            manifest=name,
            manifest_offset=offset,
            manifest_size=len(manifest),
            manifest_digest=digest_of(manifest).hex(),
        )

    def _placed(self, chunk: PartChunk) -> PartChunk:
        return replace(chunk, part=self._folder.shards.place(chunk.part))

    def _verify(self, chunks: Sequence[PartChunk], store: StoreEntry) -> None:
        """Read chunks, one at a time, and compare the store they name, and their digests."""
        begin = store_field(store.to_message())
        for place, found in groupby(chunks, key=lambda c: c.part):
            run = list(found)
            with open_positional(place, NEVER_CHANGES) as file:
                file.expect(run[0].entry.offset, run[-1].entry.offset + run[-1].entry.size)
                for chunk in run:
                    data = file.read(chunk.entry.offset, chunk.entry.size, what="a chunk")
                    if not data.startswith(begin) or chunk.entry.digest not in (None, message_digest(data)):
                        raise damaged_chunk(place, chunk.entry.offset)


def files_of(entries: Mapping[Key, RecordingEntry]) -> set[str]:
    """The names of the shards and manifests that entries name."""
    named = {entry.manifest for entry in entries.values() if entry.manifest}
    return named.union(*(entry.shards for entry in entries.values()))


_FEWER: Final = 2
"""How many times fewer chunks a recording has to become, for it to be laid out anew."""


class Relayout:
    """Finds such recordings, and gives them their new chunks. Each recording is looked at once."""

    def __init__(self, folder: RecordingsFolder, profile: OptimizationProfile, run: RunOptions) -> None:
        self._folder = folder
        self._profile = profile
        self._settings = Settings.of(profile)
        self._run = run
        self._seen: set[Key] = set()

    def next(self, live: Iterable[RecordingEntry], budget: int) -> list[RecordingEntry]:
        """The next recordings to be laid out, of about ``budget`` bytes together; none when all were looked at."""
        found: list[RecordingEntry] = []
        size = 0
        for entry in live:
            if entry.key in self._seen:
                continue
            if found and (size + entry.bytes > budget or len(found) >= STAGE_TASKS):
                break
            self._seen.add(entry.key)
            if self._is_cut_small(entry):
                found.append(entry)
                size += entry.bytes
        return found

    def run(self, entries: Sequence[RecordingEntry], rewriting: Rewriting, staging: Staging) -> None:
        """Lay out recordings; one of which that makes no fewer chunks stays as it is, and so does one that fails."""
        outputs = [[(e.store, EntityWork.over([self._folder.references(e)], self._profile))] for e in entries]
        groups = run_groups(outputs, staging, str(self._folder.path), self._run, digests=True)
        for entry, group in zip(entries, groups, strict=True):
            if not isinstance(group, Group):
                if is_of_all(group):
                    raise group
                rewriting.leave(entry, group)
                continue
            chunks = group.chunks[0][1]
            if _FEWER * len(chunks) <= entry.chunks + 1:
                rewriting.lay_out(entry, chunks, staging)

    def _is_cut_small(self, entry: RecordingEntry) -> bool:
        settings = self._settings
        if entry.in_place or not entry.manifest or entry.chunks < _FEWER or not settings.max_rows_if_unsorted:
            return False
        if 2 * entry.bytes > settings.max_bytes * entry.chunks:
            return False
        try:
            data = self._folder.manifests.get_range(entry.manifest, entry.manifest_offset, entry.manifest_size)
            chunks = parse_chunks(data, entry.manifest_digest)
        except (*MANIFEST_ERRORS, ReadError):
            return False  # it is told of where it is to be moved
        return _FEWER * self._wanted(chunks) <= len(chunks)

    def _wanted(self, chunks: ChunkTable) -> int:
        """About how many chunks the profile makes of these: those of one kind can be merged."""
        kinds, _ = chunks.kinds
        rows, size = (np.bincount(kinds, values) for values in (chunks.num_rows, chunks.uncompressed_sizes))
        most_rows, most_bytes = self._settings.max_rows_if_unsorted, self._settings.max_bytes
        return int(np.maximum(np.maximum(-(-rows // most_rows), -(-size // most_bytes)), 1).sum())
