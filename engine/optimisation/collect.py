"""``collect``: run a pipeline into a store, compacted in two steps without a shuffle of payloads.

First the pipeline runs into parts: chunks that only pass through stay at their source, and each task lays out the
chunks it makes by the profile. Then the rest is read by reference and laid out, entity by entity. Of a task's own
chunks, these are only the last of each kind, which may have room for rows of the next task. Unchanged chunks keep their
compressed bytes. A recording that fits into one split takes both steps in one task.
"""

from __future__ import annotations

import os
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, groupby
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..chunk import Chunk, ChunkData, ChunkHeader, Minter, RunIds, minting, stamps_of
from ..errors import ReadError
from ..execution import (
    Group,
    Outputs,
    PartChunk,
    Ran,
    RrdParts,
    RunOptions,
    RunPlaces,
    Staging,
    Task,
    Work,
    run_groups,
    run_work,
)
from ..limits import MIB, SPLIT_BYTES
from ..rrd import (
    ANYWHERE,
    NEVER_CHANGES,
    ChunkTable,
    FileRun,
    OpenFiles,
    Recent,
    Run,
    StoreEntry,
    ToldChunks,
    VerifiedPayload,
    VerifiedRun,
    lying_footer,
    state_of,
)
from ..task_context import Fetches, find
from .passes import Compactor, optimised
from .profile import OptimizationProfile, Settings
from .video import is_of_video, rebatch_video, video_groups

WHOLE_ENTITY: Final = 32 * MIB
"""Entities of up to this many compressed bytes are laid out at once, in memory."""

_CHUNK_BYTES: Final = 128 * 1024
"""The cost of a chunk in addition to its bytes, in bytes."""

_TASK_BYTES: Final = (32 * MIB, 320 * MIB)
"""The least and about the greatest cost of a task: each takes some hundredths of a second to begin."""

_GAP: Final = 1024
"""Gaps of up to this many bytes between chunks are read, too: that is faster than a separate read."""

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ChunkReferences:
    """References to stored chunks, in order: rows of a chunk table, with their files as parts.

    ``version`` is the version of the file, if it may change. If ``store`` is given, messages must name it.
    ``are_laid_out`` marks chunks that :class:`FirstStep` laid out.
    """

    table: ChunkTable
    version: str | None = None
    store: StoreEntry | None = None
    are_laid_out: bool = False

    @classmethod
    def of(cls, path: str, version: str | None, table: ChunkTable) -> ChunkReferences:
        """References to chunks in the file ``path``."""
        return cls(table.within(lambda _: path), version)

    def take(self, rows: Integers) -> ChunkReferences:
        """Select chunks, in the given order."""
        return replace(self, table=self.table.take(rows))

    def chunks(self) -> Iterator[Chunk]:
        """The chunks, undecoded."""
        which, paths = self.table.part_codes
        for at, entry in zip(which.tolist(), self.table.entries(), strict=True):
            size = None if self.store is None else entry.uncompressed_size
            fields = {"version": self.version, "store": self.store, "uncompressed_size": size}
            yield Chunk.lazy(
                entry.header if entry.header.components else None, VerifiedPayload.of(paths[at], entry, **fields)
            )

    def read(self, rows: Integers) -> Iterator[ChunkData]:
        """Yield the chunks of some rows, in that order, each decoded on demand. Raises ``ReadError``.

        Small chunks that were read before are not read again, unless reads are counted.
        """
        (_, entities), (which, paths) = self.table.entity_codes, self.table.part_codes
        is_counted = find(Fetches) is not None
        states = {at: None if is_counted else state_of(paths[at]) for at in np.unique(which[rows]).tolist()}
        places, files = list(self._places(rows)), find(OpenFiles)
        ends = run_ends([place[1:4] for place in places])
        for row, (entity, at, offset, size, chunk_id, digest, expanded), end in zip(
            rows.tolist(), places, ends, strict=True
        ):
            if files is not None:
                files.run_end = end
            key = (states[at], self.version, self.store, offset, size, chunk_id, digest)
            data = None if states[at] is None else _RECENT.find(key)
            if data is None:
                payload = VerifiedPayload(
                    paths[at],
                    offset,
                    size,
                    chunk_id,
                    version=self.version,
                    digest=digest or b"",
                    uncompressed_size=None if self.store is None else expanded,
                    store=self.store,
                )
                try:
                    data = Chunk.lazy(None, payload).data
                    if self.store is None:  # other programs wrote the footer that allows skipping
                        self._check(row, data, paths[at], offset)
                except ReadError as error:
                    error.message += f", in chunk {chunk_id.hex()} of {entities[entity]}"
                    raise
                if states[at] is not None:
                    _RECENT.keep(key, data, expanded)
            yield data
        if files is not None:
            files.run_end = ANYWHERE

    def _check(self, row: int, data: ChunkData, path: str, offset: int) -> None:
        what = self._footer_check.difference(row, data)
        if what is not None:
            raise lying_footer(what, path, offset)

    @cached_property
    def _footer_check(self) -> ToldChunks:
        return ToldChunks(self.table)

    def _places(self, rows: Integers) -> Iterable[tuple[Any, ...]]:
        """The entity, part, offset, size, id, digest and uncompressed size of chunks."""
        if len(rows) <= _FEW:
            return map(self._place, rows.tolist())
        if len(self.table) <= _SMALL:  # taking rows of a table costs as much as reading ten chunks
            places = self._all_places
            return [places[row] for row in rows.tolist()]
        return self._places_in(self.table.take(rows))

    def _place(self, row: int) -> tuple[Any, ...]:
        table = self.table
        digest = table.digests[row].as_py()
        numbers = (int(column[row]) for column in (table.offsets, table.sizes))
        codes = (int(table.entity_codes[0][row]), int(table.part_codes[0][row]))
        return (*codes, *numbers, bytes(table.chunk_ids[row]), digest, int(table.uncompressed_sizes[row]))

    @cached_property
    def _all_places(self) -> list[tuple[Any, ...]]:
        return list(self._places_in(self.table))

    @staticmethod
    def _places_in(table: ChunkTable) -> Iterable[tuple[Any, ...]]:
        columns = (table.batch.column(name).to_pylist() for name in ("offset", "size", "chunk_id", "digest"))
        numbers = (table.entity_codes[0].tolist(), table.part_codes[0].tolist())
        return zip(*numbers, *columns, table.uncompressed_sizes.tolist(), strict=True)

    def __reduce__(self) -> tuple[Any, ...]:
        return ChunkReferences, (self.table, self.version, self.store, self.are_laid_out)


_SMALL: Final = 1024
"""For layers of up to this many chunks, the chunks' places are kept after first use."""
_FEW: Final = 2
"""Up to this many chunks are looked up one by one: a query of many segments mostly needs one of each."""

_RECENT: Final = Recent[ChunkData]()


def run_ends(places: Sequence[tuple[int, int, int]]) -> list[int]:
    """For each piece (part, offset, size), the end of its run of close pieces, which are read together.

    >>> run_ends([(0, 100, 50), (0, 166, 50), (0, 9000, 10), (1, 9010, 10)])
    [216, 216, 9010, 9020]
    """
    ends: list[int] = []
    after = (-1, 0)
    for part, offset, size in reversed(places):
        end = offset + size
        goes_on = after[0] == part and 0 <= after[1] - end <= _GAP
        ends.append(ends[-1] if goes_on else end)
        after = part, offset
    return ends[::-1]


@dataclass(frozen=True)
class EntityWork(Work):
    """A work whose tasks lay out whole entities by ``profile``.

    A task has all chunks of one or more entities. Its memory is limited by :data:`WHOLE_ENTITY`.

    Order: the most expensive entities first, independent of the number of tasks.
    """

    groups: tuple[tuple[ChunkReferences, ...], ...]
    profile: OptimizationProfile | None
    ids: RunIds = field(default_factory=RunIds.begin)

    @classmethod
    def over(
        cls, references: Sequence[ChunkReferences], profile: OptimizationProfile | None, ids: RunIds | None = None
    ) -> EntityWork:
        """Divide the chunks of ``references`` among tasks by entity; ``ids`` are the ids of a run in progress."""
        group_of = _grouped(_costs(references))
        groups: dict[int, list[ChunkReferences]] = {number: [] for number in sorted(set(group_of.values()))}
        for some in references:
            codes, paths = some.table.entity_codes
            numbers = np.array([group_of[path] for path in paths], dtype=np.int64)[codes]
            for number in np.unique(numbers).tolist():
                groups[number].append(some.take(np.flatnonzero(numbers == number)))
        return cls(tuple(map(tuple, groups.values())), profile, ids or RunIds.begin())

    @property
    def tasks(self) -> Sequence[Task]:
        """One task per group of entities."""
        total = len(self.groups)
        return [
            Task(i, f"compaction [{i + 1}/{total}]", sum(some.table.message_bytes for some in group))
            for i, group in enumerate(self.groups)
        ]

    def run(self, index: int) -> Iterator[Chunk]:
        """Yield the chunks of a group, entity by entity."""
        rank = {path: i for i, path in enumerate(_costs(self.groups[index]))}
        entities: dict[str, _Entity] = defaultdict(_Entity)
        for some in self.groups[index]:
            chunks: dict[str, list[tuple[Chunk, int]]] = defaultdict(list)
            for chunk, size in zip(some.chunks(), some.table.uncompressed_sizes.tolist(), strict=True):
                chunks[chunk.entity_path].append((chunk, size))
            for path, of_entity in chunks.items():
                entities[path].add(of_entity, self.profile, are_laid_out=some.are_laid_out)
        for path in sorted(entities, key=rank.__getitem__):
            yield from entities.pop(path).laid_out(self.profile)

    def minter(self, index: int) -> Minter:
        """Return the source of ids for the chunks of a group."""
        return self.ids.task(index)

    @property
    def later(self) -> RunIds:
        """The ids for later work on the chunks."""
        return self.ids.after(len(self.groups))

    def source_paths(self) -> set[str]:
        """Return the files with the chunks."""
        return {path for group in self.groups for some in group for path in some.table.part_codes[1]}


def _costs(references: Iterable[ChunkReferences]) -> dict[str, int]:
    """The costs of laying out each entity, in bytes, largest first."""
    costs: dict[str, int] = {}
    for some in references:
        codes, paths = some.table.entity_codes
        totals = np.bincount(codes, some.table.uncompressed_sizes + np.uint64(_CHUNK_BYTES), len(paths))
        for path, total in zip(paths, totals.tolist(), strict=True):
            costs[path] = costs.get(path, 0) + int(total)
    return dict(sorted(costs.items(), key=lambda item: (-item[1], item[0])))


def _grouped(costs: dict[str, int]) -> dict[str, int]:
    """The task number of each entity, in the order of ``costs``.

    Tasks have about the same cost, and there are up to two for each core. Entities of similar cost share a task: memory
    that one entity freed then fits the next.
    """
    least, most = _TASK_BYTES
    total = sum(costs.values())
    count = max(-(-total // most), min(2 * (os.cpu_count() or 1), total // least), 1)
    groups: dict[str, int] = {}
    before = 0
    for path, cost in costs.items():
        groups[path] = (2 * before + cost) * count // (2 * total)
        before += cost
    return groups


def stored_size(chunk: Chunk) -> int:
    """Return the stored size of a chunk in bytes, or the size of its Arrow buffers if it is in memory."""
    size: int | None = getattr(chunk.payload, "size", None)
    if size is not None:
        return size
    in_memory: int = sum(c.values.nbytes for c in chunk.data.components)
    return in_memory + 16 * chunk.num_rows


_FULL: Final = 7 / 8
"""Chunks above this share of a threshold are full: they do not take up rows of the next task."""


@dataclass
class _Entity:
    """The chunks of an entity: ``finished`` by the task that made them, ``open`` at a task's end, and ``rest``."""

    finished: list[Chunk] = field(default_factory=list)
    open: list[Chunk] = field(default_factory=list)
    rest: list[Chunk] = field(default_factory=list)

    def add(self, chunks: Sequence[tuple[Chunk, int]], profile: OptimizationProfile | None, are_laid_out: bool) -> None:
        """Add chunks of one part, each with its uncompressed size."""
        settings = Settings.of(profile)
        if not are_laid_out or (settings.gop_batching and any(is_of_video(c.header) for c, _ in chunks)):
            self.rest += [chunk for chunk, _ in chunks]
            return
        last: dict[tuple[object, ...], tuple[Chunk, int]] = {}
        for chunk, size in sorted(chunks, key=lambda item: _start(item[0])):
            header = chunk.header
            kind = (*[(t.name, t.kind) for t in header.timelines], *[c.descriptor for c in header.components])
            if kind in last:
                self.finished.append(last[kind][0])
            last[kind] = chunk, size
        for chunk, size in last.values():
            is_full = size >= _FULL * settings.max_bytes or chunk.num_rows >= _FULL * settings.max_rows
            (self.finished if is_full else self.open).append(chunk)

    def laid_out(self, profile: OptimizationProfile | None) -> Iterator[Chunk]:
        """All chunks; open ones are joined unless a finished chunk begins between them."""
        if self.rest:
            yield from laid_out([*self.finished, *self.open, *self.rest], profile)
            return
        yield from self.finished
        starts = sorted(map(_start, self.finished))
        for _, group in groupby(sorted(self.open, key=_start), lambda chunk: bisect(starts, _start(chunk))):
            chunks = list(group)
            yield from chunks if len(chunks) == 1 else laid_out(chunks, profile)


def _start(chunk: Chunk) -> tuple[str, int]:
    """The first timeline of a chunk, and its first time there."""
    line = chunk.header.timelines[0]
    assert line.start is not None
    return line.name, line.start


def laid_out(entity: Sequence[Chunk], profile: OptimizationProfile | None) -> Iterator[Chunk]:
    """The chunks of one entity, laid out by ``profile``.

    An entity too large for memory is compacted as a stream; its video stream is laid out by groups of pictures directly
    from its source.
    """
    if sum(map(stored_size, entity)) <= WHOLE_ENTITY:
        yield from optimised(map(_unloaded, entity), profile)
        return
    settings = Settings.of(profile)
    video = video_groups([c.header for c in entity]) if settings.gop_batching else []
    for group in video:
        yield from rebatch_video([_unloaded(entity[i]) for i in group], settings)
    in_video = {i for group in video for i in group}
    rest = [c for i, c in enumerate(entity) if i not in in_video]
    yield from optimised((_unloaded(c) for c in rest if c.is_static), profile)
    compactor = Compactor(profile)
    for chunk in rest:
        if not chunk.is_static:
            yield from compactor.add(_unloaded(chunk))
    yield from compactor.finish()


def _unloaded(chunk: Chunk) -> Chunk:
    """Return the same chunk in a new object: data loaded for the layout is freed with that object."""
    return chunk if chunk.payload is None else Chunk.lazy(chunk.header, chunk.payload)


@dataclass(frozen=True)
class WholeWork(Work):
    """All tasks of a small work as one task, laid out by ``profile``."""

    work: Work
    profile: OptimizationProfile | None

    @property
    def tasks(self) -> Sequence[Task]:
        """One task."""
        tasks = self.work.tasks
        return [Task(0, tasks[0].label if tasks else "nothing", sum(t.size for t in tasks))]

    def run(self, index: int) -> Iterator[Chunk]:  # noqa: ARG002 (there is only one)
        """All chunks, by ascending id."""
        tasks = (minting(self.work.minter(t.index), self.work.run(t.index)) for t in self.work.tasks)
        return iter(optimised(chain.from_iterable(tasks), self.profile))

    def minter(self, index: int) -> Minter:
        """The source of ids for newly laid out chunks; the tasks' own chunks use the tasks' ids."""
        return self.work.later.task(index)

    @property
    def later(self) -> RunIds:
        """The ids for later work on the chunks."""
        return self.work.later.after(1)

    def source_paths(self) -> set[str]:
        """The source files."""
        return self.work.source_paths()


@dataclass(frozen=True)
class SomeWork(Work):
    """Some tasks of a work, by their numbers in it."""

    work: Work
    chosen: tuple[int, ...]

    @property
    def tasks(self) -> Sequence[Task]:
        """The tasks, numbered anew."""
        tasks = self.work.tasks
        return [Task(i, tasks[n].label, tasks[n].size) for i, n in enumerate(self.chosen)]

    def run(self, index: int) -> Iterator[Chunk]:
        """The chunks of a task."""
        return self.work.run(self.chosen[index])

    def minter(self, index: int) -> Minter:
        """The source of ids for the chunks of a task."""
        return self.work.minter(self.chosen[index])

    @property
    def later(self) -> RunIds:
        """The ids for later work on the chunks."""
        return self.work.later

    def source_paths(self) -> set[str]:
        """The source files."""
        return self.work.source_paths()


@dataclass(frozen=True)
class FirstStep(SomeWork):
    """Some tasks of a work, each of which lays out the chunks it makes by ``profile``.

    Chunks from the source, static chunks and video pass unchanged: their layout needs the whole recording.
    """

    profile: OptimizationProfile | None

    @classmethod
    def over(cls, work: Work, profile: OptimizationProfile | None) -> FirstStep:
        """All tasks of a work."""
        return cls(work, tuple(range(len(work.tasks))), profile)

    def run(self, index: int) -> Iterator[Chunk]:
        """The chunks of a task."""
        minter, compactor = self.minter(index), Compactor(self.profile)
        for chunk in super().run(index):
            if chunk.payload is None and self.lays_out(chunk.header, minter):
                yield from compactor.add(chunk)
            else:
                yield chunk
        yield from compactor.finish()

    def lays_out(self, header: ChunkHeader, minter: Minter) -> bool:
        """Return True for a chunk that the task of ``minter`` made, and must lay out."""
        if header.is_static or int.from_bytes(header.chunk_id[:8], "big") != minter.stamp:
            return False
        return self.profile is None or not self.profile.gop_batching or not is_of_video(header)


def is_small(work: Work) -> bool:
    """Return True if a work fits into one task."""
    tasks = work.tasks
    runs = [run for t in tasks if (run := work.whole_run(t.index)) is not None]
    if len(runs) == len(tasks):
        return sum(int(run.table.uncompressed_sizes.sum()) for run in runs) <= SPLIT_BYTES
    return len(tasks) <= 1 and sum(t.size for t in tasks) <= SPLIT_BYTES


def collect_parts(
    work: Work,
    profile: OptimizationProfile | None,
    store: StoreEntry,
    staging: Staging,
    options: RunOptions,
    *,
    times: bool = False,
) -> list[PartChunk]:
    """Run ``work`` into parts in ``staging``, laid out by ``profile``, with digests, by ascending chunk id.

    With ``times``, parts also have the times of their chunks.
    """

    def run(some: Work) -> list[PartChunk]:
        parts = RrdParts((store,) * len(some.tasks), staging.location, digests=True, times=times)
        return run_work(some, parts, staging, options).chunks

    if is_small(work):
        return run(WholeWork(work, profile))
    with staging.inner() as first:
        laid_out = run(EntityWork.over(found_chunks(work, profile, store, first, options), profile, work.later))
    return sorted(laid_out, key=lambda c: c.entry.header.chunk_id)


def found_chunks(
    work: Work, profile: OptimizationProfile | None, store: StoreEntry, staging: Staging, options: RunOptions
) -> list[ChunkReferences]:
    """Return the chunks of ``work``, in order, as tasks laid them out by ``profile``; see :func:`chunks_by_task`."""
    first = partial(FirstStep, profile=profile)
    by_task = chunks_by_task(work, (store,) * len(work.tasks), staging, options, first)
    minters = map(work.minter, range(len(by_task)))
    return [some for parts, m in zip(by_task, minters, strict=True) for part in parts for some in _apart(part, [m])]


def chunks_by_task(
    work: Work,
    stores: Sequence[StoreEntry],
    staging: Staging,
    options: RunOptions,
    step: Callable[[Work, tuple[int, ...]], SomeWork] | None = None,
) -> list[list[ChunkReferences]]:
    """Return the chunks of each task of ``work``: in their source if they only pass through, else in parts.

    Parts are written to ``staging`` by a ``step`` over these tasks. ``stores`` are those of the tasks.
    """
    by_task: list[list[ChunkReferences]] = [[] for _ in work.tasks]
    rest: list[int] = []
    for task in work.tasks:
        references = _at_source(work.whole_run(task.index))
        if references is None:
            rest.append(task.index)
        else:
            by_task[task.index].append(references)
    if rest:
        some = (step or SomeWork)(work, tuple(rest))
        parts = RrdParts(tuple(stores[i] for i in rest), staging.location, runs=RunPlaces())
        for index, part in _in_parts(run_work(some, parts, staging, options), staging):
            by_task[rest[index]].append(part)
    return by_task


def _apart(part: ChunkReferences, minters: Iterable[Minter]) -> Iterator[ChunkReferences]:
    """Divide the chunks of a part into those that the tasks of ``minters`` laid out, and the others."""
    own = np.array([m.stamp for m in minters if m.stamp is not None], dtype=np.uint64)
    is_own = np.isin(stamps_of(part.table.chunk_ids), own) & ~part.table.is_static
    if not is_own.any():
        yield part
        return
    for are_laid_out, rows in ((True, np.flatnonzero(is_own)), (False, np.flatnonzero(~is_own))):
        if len(rows):
            yield replace(part.take(rows), are_laid_out=are_laid_out)


def _at_source(run: Run | None) -> ChunkReferences | None:
    """Return the chunks of a run at their source, or None if there is no source to refer to."""
    if isinstance(run, VerifiedRun):
        return ChunkReferences(run.table, store=run.store)
    return ChunkReferences.of(run.path, run.version, run.table) if isinstance(run, FileRun) else None


def _in_parts(ran: Ran, staging: Staging) -> Iterator[tuple[int, ChunkReferences]]:
    """The chunks in the parts of each task."""
    for extent in ran.listed:
        yield extent.task, ChunkReferences.of(staging.folder.place(extent.file), NEVER_CHANGES, extent.listed.table)
    for (task, part), listed in groupby(ran.chunks, key=lambda c: (c.task, c.part)):
        yield (
            task,
            ChunkReferences.of(staging.folder.place(part), NEVER_CHANGES, ChunkTable.of([c.entry for c in listed])),
        )


def run_laid_out(
    recordings: Sequence[Outputs],
    profile: OptimizationProfile | None,
    staging: Staging,
    destination: str,
    options: RunOptions,
) -> list[Group | Exception]:
    """Run recordings into parts with digests; return for each its group or its error.

    Small recordings are laid out in one stage, large ones in two. Without a profile, chunks are unchanged.
    """
    if profile is None:
        return run_groups(recordings, staging, destination, options, digests=True)
    small: list[int] = []
    large: list[int] = []
    for i, outputs in enumerate(recordings):
        (small if all(is_small(work) for _, work in outputs) else large).append(i)
    results: dict[int, Group | Exception] = {}
    whole = [[(store, WholeWork(work, profile)) for store, work in recordings[i]] for i in small]
    results.update(zip(small, run_groups(whole, staging, destination, options, digests=True), strict=True))
    steps = [[(store, FirstStep.over(work, profile)) for store, work in recordings[i]] for i in large]
    first = run_groups(steps, staging, destination, options, digests=False)
    results.update(zip(large, first, strict=True))
    fine = {i: group for i, group in zip(large, first, strict=True) if isinstance(group, Group)}
    second = [_entities(group, profile, staging, recordings[i]) for i, group in fine.items()]
    for i, laid_out in zip(fine, run_groups(second, staging, destination, options, digests=True), strict=True):
        warnings = fine[i].warnings
        results[i] = (
            Group(laid_out.chunks, (*warnings, *laid_out.warnings)) if isinstance(laid_out, Group) else laid_out
        )
    return [results[i] for i in range(len(recordings))]


def _entities(group: Group, profile: OptimizationProfile, staging: Staging, outputs: Outputs) -> Outputs:
    """Return work that lays out a group's recordings, which ``outputs`` made, from its parts."""
    second: list[tuple[StoreEntry, Work]] = []
    for (store, chunks), (_, work) in zip(group.chunks, outputs, strict=True):
        minters = [work.minter(task.index) for task in work.tasks]
        parts = chain.from_iterable(_apart(part, minters) for part in _in_files(chunks, staging))
        second.append((store, EntityWork.over(list(parts), profile)))
    return second


def _in_files(chunks: Sequence[PartChunk], staging: Staging) -> Iterator[ChunkReferences]:
    for part, group in groupby(chunks, key=lambda chunk: chunk.part):
        yield ChunkReferences.of(staging.folder.place(part), NEVER_CHANGES, ChunkTable.of([c.entry for c in group]))
