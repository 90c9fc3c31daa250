"""Compaction of a store: rewrite recordings into fewer files without deleted chunks."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

import numpy as np

from ..errors import ReadError, ReadWarning, UsageError
from ..execution import STAGE_TASKS, Group, PartChunk, RunOptions, Staging, Task, is_of_all, run_groups, told
from ..faults import reach
from ..optimisation import EntityWork, OptimizationProfile, Settings
from ..rrd import (
    MESSAGE_HEADER_SIZE,
    NEVER_CHANGES,
    STREAM_FOOTER_SIZE,
    STREAM_HEADER_SIZE,
    ChunkTable,
    StoreEntry,
    damaged_chunk,
    digest_of,
    message_digest,
    open_positional,
    parse_stream_footer,
    store_field,
)
from .entries import Key, LiveEntries, RecordingEntry
from .folder import (
    MANIFEST_ERRORS,
    RecordingsFolder,
    bytes_by_part,
    manifest_bytes,
    parse_chunks,
    parse_manifest,
    table_of_parts,
)
from .times import TimesBytes, kept_times, times_of_parts
from .vacuum import MOST_CHUNKS, NewFiles
from .writer import Commit, StoreWriter


class Rewriting:
    """Writes recordings into new files, and makes their new entries.

    Chunks are verified, then copied by the kernel, or by the object store if parts are large enough: their digests stay
    the same. An unreadable recording is unchanged, with a warning; ``damaged`` has it.
    """

    def __init__(self, folder: RecordingsFolder, files: NewFiles) -> None:
        self._folder = folder
        self._files = files
        self.entries: dict[Key, RecordingEntry] = {}
        self.damaged: dict[Key, RecordingEntry] = {}

    def move(self, entry: RecordingEntry, shards: Set[str]) -> None:
        """Rewrite a recording's manifest, and its chunks in ``shards``."""
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
        """Replace a recording's chunks by chunks in parts of the staging folder."""
        times = times_of_parts(parts, staging)
        self.bring(entry, self._files.shards.add(entry.store, parts), times)

    def bring(self, entry: RecordingEntry, chunks: Sequence[PartChunk], times: TimesBytes) -> None:
        """Give a recording these chunks, already stored, and their times."""
        entry = replace(
            entry,
            shards=tuple(dict.fromkeys(c.part for c in chunks)),
            chunks=len(chunks),
            rows=sum(c.entry.header.num_rows for c in chunks),
            bytes=sum(c.entry.size for c in chunks),
        )
        self._add(entry, manifest_bytes(table_of_parts(chunks)), times)

    def leave(self, entry: RecordingEntry, error: Exception) -> None:
        """Leave a recording unchanged, and warn with the reason."""
        self.damaged[entry.key] = entry
        warnings.warn(
            f"{self._folder.path}: recording {entry.recording_id} is unchanged: {error}", ReadWarning, stacklevel=2
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
        """Read chunks, one at a time, and check their store and digests."""
        begin = store_field(store.to_message())
        for place, group in groupby(chunks, key=lambda c: c.part):
            run = list(group)
            with open_positional(place, NEVER_CHANGES) as file:
                file.expect((run[0].entry.offset, run[-1].entry.offset + run[-1].entry.size))
                for chunk in run:
                    data = file.read(chunk.entry.offset, chunk.entry.size, what="a chunk")
                    if not data.startswith(begin) or chunk.entry.digest not in (None, message_digest(data)):
                        raise damaged_chunk(place, chunk.entry.offset)


def files_of(entries: Mapping[Key, RecordingEntry]) -> set[str]:
    """The names of the entries' shards and manifests."""
    named = {entry.manifest for entry in entries.values() if entry.manifest}
    return named.union(*(entry.shards for entry in entries.values()))


_FEWER: Final = 2
"""A recording gets a new layout only if that divides its number of chunks by at least this."""


class Relayout:
    """Finds recordings that need a new layout, and gives them new chunks. Each recording is checked once."""

    def __init__(self, folder: RecordingsFolder, profile: OptimizationProfile, run: RunOptions) -> None:
        self._folder = folder
        self._profile = profile
        self._settings = Settings.of(profile)
        self._run = run
        self._seen: set[Key] = set()

    def next(self, live: Iterable[RecordingEntry], budget: int) -> list[RecordingEntry]:
        """The next recordings for a new layout, about ``budget`` bytes in total; empty when all were checked."""
        entries: list[RecordingEntry] = []
        size = 0
        for entry in live:
            if entry.key in self._seen:
                continue
            if entries and (size + entry.bytes > budget or len(entries) >= STAGE_TASKS):
                break
            self._seen.add(entry.key)
            if self._is_cut_small(entry):
                entries.append(entry)
                size += entry.bytes
        return entries

    def run(self, entries: Sequence[RecordingEntry], rewriting: Rewriting, staging: Staging) -> None:
        """Lay out recordings. One that would get no fewer chunks, or fails, stays unchanged."""
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
            return False  # moving it reports the damage
        return _FEWER * self._wanted(chunks) <= len(chunks)

    def _wanted(self, chunks: ChunkTable) -> int:
        """The approximate number of chunks after the profile: chunks of one kind can be merged."""
        kinds, _ = chunks.kinds
        rows, size = (np.bincount(kinds, values) for values in (chunks.num_rows, chunks.uncompressed_sizes))
        most_rows, most_bytes = self._settings.max_rows_if_unsorted, self._settings.max_bytes
        return int(np.maximum(np.maximum(-(-rows // most_rows), -(-size // most_bytes)), 1).sum())


SMALL_MANIFEST: Final = 4 << 20
"""Smaller manifest files, in bytes, are joined."""


@dataclass
class Use:
    """The needed part of a file: ``live`` of its ``size`` bytes, in ``chunks`` chunks."""

    size: int
    live: int = 0
    chunks: int = 0
    entries: list[RecordingEntry] = field(default_factory=list)

    def add(self, entry: RecordingEntry, live: int, chunks: int) -> None:
        """Count what a recording needs."""
        self.live += live
        self.chunks += chunks
        self.entries.append(entry)


class Survey:
    """The files with a store's recordings, in the order of the recordings' arrival."""

    def __init__(self, folder: RecordingsFolder) -> None:
        self._folder = folder
        self._parts: dict[tuple[str, int], dict[str, tuple[int, int]]] = {}
        self.shards: dict[str, Use] = {}
        self.manifests: dict[str, Use] = {}

    def look(self, live: LiveEntries) -> None:
        """Survey the store as it is now. Manifests of recordings in several shards are read, once each."""
        shard_sizes = dict(self._folder.shards.entries())
        manifest_sizes = dict(self._folder.manifests.entries())
        self.shards, self.manifests = {}, {}
        for entry in live:
            if not entry.manifest:
                continue
            use = self.manifests.setdefault(entry.manifest, Use(manifest_sizes.get(entry.manifest, 0)))
            use.add(entry, entry.listing_size, entry.chunks)
            for shard, (size, chunks) in self._shares(entry).items():
                use = self.shards.setdefault(shard, Use(shard_sizes.get(shard, 0)))
                use.add(entry, size + MESSAGE_HEADER_SIZE * chunks, chunks)

    def _shares(self, entry: RecordingEntry) -> dict[str, tuple[int, int]]:
        if len(entry.shards) < 2:
            return dict.fromkeys(entry.shards, (entry.bytes, entry.chunks))
        key = entry.manifest, entry.manifest_offset
        if key not in self._parts:
            try:
                data = self._folder.manifests.get_range(entry.manifest, entry.manifest_offset, entry.manifest_size)
                self._parts[key] = bytes_by_part(data, entry.manifest_digest)
            except (*MANIFEST_ERRORS, ReadError):  # moving it reports the damage; it counts as live
                return dict.fromkeys(entry.shards, (entry.bytes, entry.chunks))
        return self._parts[key]

    @property
    def size(self) -> int:
        """The bytes of all shards and manifests."""
        return sum(use.size for use in (*self.shards.values(), *self.manifests.values()))

    # --- choosing

    def doomed_shards(self, min_shard: int, budget: int, skip: Collection[str], *, thorough: bool) -> list[str]:
        """Return shards to rewrite, of about ``budget`` bytes; empty if little would be gained."""
        asked = {name: use for name, use in self.shards.items() if name not in skip and use.size}
        dead = {name for name, use in asked.items() if self._is_mostly_dead(name, use)}
        small = [
            name
            for name, use in asked.items()
            if use.size < min_shard and use.chunks < MOST_CHUNKS // 2 and name not in dead
        ]
        if not thorough:
            small = _worth_joining(small, asked)
        if not dead and len(small) < 2:
            return []
        return _within(budget, [name for name in asked if name in dead or name in set(small)], asked)

    def doomed_manifests(
        self, shards: Iterable[str], budget: int, skip: Collection[str], *, thorough: bool
    ) -> list[str]:
        """Manifest files to join, and those mostly unused after ``shards`` are rewritten."""
        leaving = {id(entry) for shard in shards for entry in self.shards[shard].entries}
        rest = {name: [e for e in use.entries if id(e) not in leaving] for name, use in self.manifests.items()}
        asked = {name: use for name, use in self.manifests.items() if use.size and rest[name] and name not in skip}
        dead = {name for name, use in asked.items() if 2 * sum(e.listing_size for e in rest[name]) < use.size}
        small = [name for name, use in asked.items() if use.size < SMALL_MANIFEST and name not in dead]
        if not thorough:
            small = _worth_joining(small, asked)
        if len(small) + bool(leaving) < 2:
            small = []
        return _within(budget, [name for name in asked if name in dead or name in set(small)], asked)

    def _is_mostly_dead(self, name: str, use: Use) -> bool:
        if 2 * use.live >= use.size:
            return False
        with open_positional(self._folder.shards.place(name), NEVER_CHANGES) as file:
            at = max(file.size - STREAM_FOOTER_SIZE, 0)
            footer = parse_stream_footer(file.read(at, file.size - at, what="the stream footer"))
        if footer is None:
            return False  # it is damaged; its chunks may be undamaged, and stay in it
        return 2 * use.live < footer.start - MESSAGE_HEADER_SIZE - STREAM_HEADER_SIZE


def _worth_joining(names: Sequence[str], uses: dict[str, Use]) -> list[str]:
    """The small files up to the largest one that is not larger than all smaller ones together.

    So each byte is rewritten a logarithmic number of times, no matter how often a compaction runs.
    """
    ascending = sorted(names, key=lambda name: uses[name].size)
    total = best = 0
    for at, name in enumerate(ascending):
        if at and uses[name].size <= total:
            best = at + 1
        total += uses[name].size
    chosen = set(ascending[:best])
    return [name for name in names if name in chosen]


def _within(budget: int, names: Sequence[str], uses: dict[str, Use]) -> list[str]:
    """The first of ``names``, up to ``budget`` live bytes and a bounded number of chunks."""
    chosen: list[str] = []
    size = chunks = 0
    for name in names:
        size += uses[name].live
        chunks += uses[name].chunks
        if len(chosen) > 1 and (size > budget or chunks > MOST_CHUNKS):
            break
        chosen.append(name)
    return chosen


MIN_SHARD: Final = 64 << 20
"""Shards below this size, in bytes, are joined."""

BUDGET: Final = 4 << 30
"""The most bytes that one commit of a compaction writes."""


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """The report of a compaction.

    ``versions`` are the numbers of the published versions. Counts of files and their ``bytes`` include only files that
    the newest version needs. ``moved`` is the number of rewritten recordings, ``laid_out`` the number of those with new
    chunks. ``written`` is the size of new shards in bytes. ``damaged`` are the ids of unreadable recordings, which are
    unchanged.
    """

    versions: tuple[int, ...]
    shards_before: int
    shards_after: int
    manifests_before: int
    manifests_after: int
    tables_before: int
    tables_after: int
    bytes_before: int
    bytes_after: int
    written: int
    moved: int
    laid_out: int
    damaged: tuple[str, ...]
    seconds: float


def compact_store(
    writer: StoreWriter,
    *,
    profile: OptimizationProfile | None = None,
    run: RunOptions | None = None,
    min_shard: int = MIN_SHARD,
    budget: int = BUDGET,
    thorough: bool = True,
) -> CompactionReport:
    """Rewrite shards that are small or hold mostly replaced data, join manifests, and merge tables into one.

    Chunks are copied unchanged, with their digests; only recordings with smaller chunks than in ``profile`` get a new
    layout. Each commit writes about ``budget`` bytes at most, and publishes a version with the same recordings. Old
    versions keep their files until a vacuum, so their readers are not affected. If there is nothing to do, no version
    is made. ``thorough=False``, for frequent compactions, skips work that is not yet worthwhile.

    Guarantee: a crash loses nothing; a vacuum removes its files. Raises ``WriteError`` and ``CommitUnknownError`` like
    :meth:`StoreWriter.commit`, ``ReadError`` if tables of the store are damaged, and ``UsageError`` for sizes that are
    not positive.
    """
    if min_shard < 1 or budget < 1:
        raise UsageError(f"sizes must be positive, not {min_shard} and {budget}")
    return _Compaction(writer, profile, run or RunOptions(), min_shard, budget, thorough).run()


class _Compaction:
    def __init__(
        self,
        writer: StoreWriter,
        profile: OptimizationProfile | None,
        run: RunOptions,
        min_shard: int,
        budget: int,
        thorough: bool,
    ) -> None:
        self._writer = writer
        self._survey = Survey(writer.folder)
        self._layout = None if profile is None else Relayout(writer.folder, profile, run)
        self._min_shard = min(min_shard, max(writer.shard_bytes // 2, 1))  # so that joined shards are not small
        self._budget = max(budget, writer.shard_bytes)
        self._thorough = thorough
        self._progress = run.progress
        self._skip: set[str] = set()
        self._ours: set[str] = set()
        """Files from the beginning or written here: files that others add meanwhile are left to the next compaction."""
        self._versions: list[int] = []
        self._has_merged = False
        self._damaged: dict[Key, RecordingEntry] = {}
        self._moved: set[Key] = set()
        self._laid_out: set[Key] = set()
        self._written = 0

    def run(self) -> CompactionReport:
        """Repeat rounds until none is worthwhile."""
        began = time.perf_counter()
        self._writer.catch_up()
        before = self._counts()
        self._ours.update(self._survey.shards, self._survey.manifests)
        while self._writer.version is not None and (self._round(began) or self._merge_tables(began)):
            self._writer.catch_up()
            self._survey.look(self._writer.live)
        after = self._counts()
        return CompactionReport(
            versions=tuple(self._versions),
            shards_before=before[0],
            shards_after=after[0],
            manifests_before=before[1],
            manifests_after=after[1],
            tables_before=before[2],
            tables_after=after[2],
            bytes_before=before[3],
            bytes_after=after[3],
            written=self._written,
            moved=len(self._moved),
            laid_out=len(self._laid_out),
            damaged=tuple(sorted(entry.recording_id for entry in self._damaged.values())),
            seconds=time.perf_counter() - began,
        )

    def _counts(self) -> tuple[int, int, int, int]:
        survey, version = self._survey, self._writer.version
        survey.look(self._writer.live)
        return len(survey.shards), len(survey.manifests), len(version.tables) if version else 0, survey.size

    def _round(self, began: float) -> bool:
        """Do one commit; return False if there was nothing to do."""
        writer, survey = self._writer, self._survey
        anew = self._layout.next(writer.live, self._budget) if self._layout else []
        if anew:
            shards, manifests = set[str](), set[str]()
        else:
            skip = self._skip | ((survey.shards.keys() | survey.manifests.keys()) - self._ours)
            doomed = survey.doomed_shards(self._min_shard, self._budget, skip, thorough=self._thorough)
            shards = set(doomed)
            manifests = set(survey.doomed_manifests(doomed, self._budget, skip, thorough=self._thorough))
            if not shards and not manifests:
                return False
        with Staging.beside(writer.folder.path / "compact") as staging:
            with writer.files(staging) as files:
                rewriting = Rewriting(writer.folder, files)
                if self._layout and anew:
                    self._layout.run(anew, rewriting, staging)
                self._move(rewriting, shards, manifests)
                files.finish()
                reach("compact.run")
                self._note_damaged(rewriting)
                if not self._helps(rewriting, files, laid_out=bool(anew)):
                    self._skip |= shards | manifests
                    files.discard()
                    return bool(anew)
                entries = [rewriting.entries.get(entry.key, entry) for entry in writer.live]
                version = writer.rewrite(entries, Commit("compact", began=began))
                if version is None:  # others replaced all of them meanwhile
                    files.discard()
                    return True
            reach("compact.commit")
        self._versions.append(version.number)
        self._ours |= files_of(rewriting.entries)
        self._moved |= rewriting.entries.keys()
        if anew:
            self._laid_out |= rewriting.entries.keys()
        self._written += files.shards.size
        return True

    def _move(self, rewriting: Rewriting, shards: set[str], manifests: set[str]) -> None:
        """Move the contents of these files, recording by recording, and report progress."""
        entries = [e for e in _touched(self._writer.live, shards, manifests) if e.key not in self._damaged]

        def moved() -> Iterator[Iterator[int]]:
            for entry in entries:
                rewriting.move(entry, shards)
                yield iter(range(entry.chunks))

        tasks = [Task(i, entry.recording_id, entry.bytes) for i, entry in enumerate(entries)]
        for chunks in told(tasks, moved(), self._progress if entries else None):
            deque(chunks, maxlen=0)

    def _note_damaged(self, rewriting: Rewriting) -> None:
        """Skip files with a damaged recording from now on: they cannot be removed."""
        self._damaged.update(rewriting.damaged)
        self._skip |= files_of(rewriting.damaged)

    def _helps(self, rewriting: Rewriting, files: NewFiles, *, laid_out: bool) -> bool:
        """Return True if the new files leave the store with fewer files or noticeably fewer bytes."""
        if laid_out or not rewriting.entries:
            return bool(rewriting.entries)
        now = {entry.key: entry for entry in self._writer.live}
        old, new = files_of(now), files_of(now | rewriting.entries)
        gone = old - new
        uses = self._survey.shards | self._survey.manifests
        freed = sum(uses[name].size for name in gone)
        manifests = sum(entry.listing_size for entry in rewriting.entries.values())
        return len(new) < len(old) or 4 * freed > 5 * (files.shards.size + manifests)

    def _merge_tables(self, began: float) -> bool:
        """Merge tables into one, without replaced entries; return whether that was needed."""
        version, live = self._writer.version, self._writer.live
        if not self._thorough or version is None or self._has_merged:
            return False
        if len(version.tables) < 2 and sum(table.entries for table in version.tables) == len(live):
            return False
        merged = self._writer.rewrite(list(live), Commit("compact", began=began))
        reach("compact.commit")
        self._versions += [] if merged is None else [merged.number]
        self._has_merged = True
        return True


def _touched(live: Iterable[RecordingEntry], shards: set[str], manifests: set[str]) -> Sequence[RecordingEntry]:
    return [e for e in live if e.manifest in manifests or not shards.isdisjoint(e.shards)]
