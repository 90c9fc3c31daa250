"""Compaction by entity: chunks by reference, wherever they lie, divided into tasks over whole entities."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from ..chunk import Chunk, Minter, RunIds
from ..execution import Task
from ..limits import MIB
from ..rrd import ChunkEntry, ManifestTable, VerifiedPayload, VerifiedRun
from .passes import Compactor, optimised
from .profile import OptimizationProfile, Settings
from .video import rebatch_video, video_groups

WHOLE_ENTITY: Final = 32 * MIB
"""Compressed bytes of an entity up to which it is laid out at once, in memory."""

_CHUNK_BYTES: Final = 128 * 1024
"""What a chunk costs beside its bytes: as much as this many of them."""

_TASK_BYTES: Final = (32 * MIB, 320 * MIB)
"""The least and about the most that a task costs: it takes some hundredths of a second before it begins."""

Integers = npt.NDArray[np.int64]


class FoundChunks(Protocol):
    """Chunks by reference, in order. They pickle, with little for each."""

    @property
    def entity_codes(self) -> tuple[Integers, list[str]]:
        """For each chunk a number, and for each number its entity path."""
        ...

    @property
    def sizes(self) -> Integers:
        """The messages' lengths in bytes."""
        ...

    @property
    def expanded(self) -> Integers:
        """The bytes that they expand to."""
        ...

    @property
    def paths(self) -> Sequence[str]:
        """The files that they lie in."""
        ...

    def take(self, rows: Integers) -> FoundChunks:
        """Some of the chunks, in that order."""
        ...

    def chunks(self) -> Iterator[Chunk]:
        """The chunks, undecoded."""
        ...


@dataclass(frozen=True)
class InStore:
    """Chunks of another store, with their digests."""

    run: VerifiedRun

    @property
    def entity_codes(self) -> tuple[Integers, list[str]]:
        """For each chunk a number, and for each number its entity path."""
        return self.run.table.entity_codes

    @property
    def sizes(self) -> Integers:
        """The messages' lengths in bytes."""
        return self.run.table.sizes.astype(np.int64)

    @property
    def expanded(self) -> Integers:
        """The bytes that they expand to."""
        return self.run.table.uncompressed_sizes.astype(np.int64)

    @property
    def paths(self) -> Sequence[str]:
        """The files that they lie in."""
        return self.run.paths

    def take(self, rows: Integers) -> InStore:
        """Some of the chunks, in that order."""
        return InStore(self.run.take(rows))

    def chunks(self) -> Iterator[Chunk]:
        """The chunks, undecoded."""
        return self.run.chunks_there()


@dataclass(frozen=True)
class InFile:
    """The chunks of a file (local, or an object of ``version``) that ``listed`` names."""

    path: str
    version: str | None
    listed: ManifestTable | tuple[ChunkEntry, ...]

    @cached_property
    def entity_codes(self) -> tuple[Integers, list[str]]:
        """For each chunk a number, and for each number its entity path."""
        if isinstance(self.listed, ManifestTable):
            return self.listed.entity_codes
        return _numbered(e.header.entity_path for e in self.listed)

    @cached_property
    def sizes(self) -> Integers:
        """The messages' lengths in bytes."""
        if isinstance(self.listed, ManifestTable):
            return self.listed.sizes.astype(np.int64)
        return np.array([e.size for e in self.listed], dtype=np.int64)

    @property
    def expanded(self) -> Integers:
        """The bytes that they expand to."""
        if isinstance(self.listed, ManifestTable):
            return self.listed.uncompressed_sizes.astype(np.int64)
        return np.array([e.uncompressed_size for e in self.listed], dtype=np.int64)

    @property
    def paths(self) -> Sequence[str]:
        """The file."""
        return (self.path,)

    def take(self, rows: Integers) -> InFile:
        """Some of the chunks, in that order."""
        if isinstance(self.listed, ManifestTable):
            return replace(self, listed=self.listed.take(rows))
        return replace(self, listed=tuple(self.listed[i] for i in rows.tolist()))

    def chunks(self) -> Iterator[Chunk]:
        """The chunks, undecoded."""
        entries = self.listed.entries() if isinstance(self.listed, ManifestTable) else self.listed
        for e in entries:
            payload = VerifiedPayload.of(self.path, e, version=self.version)
            yield Chunk.lazy(e.header if e.header.components else None, payload)


@dataclass(frozen=True)
class ByReference:
    """Chunks that each know where they lie."""

    listed: tuple[Chunk, ...]

    @property
    def entity_codes(self) -> tuple[Integers, list[str]]:
        """For each chunk a number, and for each number its entity path."""
        return _numbered(chunk.entity_path for chunk in self.listed)

    @property
    def sizes(self) -> Integers:
        """The messages' lengths in bytes."""
        return np.array([stored_size(chunk) for chunk in self.listed], dtype=np.int64)

    @property
    def expanded(self) -> Integers:
        """As far as references say what they expand to, in bytes; else their lengths."""
        found = [getattr(chunk.payload, "uncompressed_size", None) or stored_size(chunk) for chunk in self.listed]
        return np.array(found, dtype=np.int64)

    @property
    def paths(self) -> Sequence[str]:
        """The files that they lie in."""
        return sorted({path for chunk in self.listed if (path := getattr(chunk.payload, "path", None)) is not None})

    def take(self, rows: Integers) -> ByReference:
        """Some of the chunks, in that order."""
        return ByReference(tuple(self.listed[i] for i in rows.tolist()))

    def chunks(self) -> Iterator[Chunk]:
        """The chunks, undecoded."""
        return iter(self.listed)


def _numbered(entity_paths: Iterable[str]) -> tuple[Integers, list[str]]:
    """A number for each path, the same for the same, and the paths in the order of their numbers."""
    numbers: dict[str, int] = {}
    codes = [numbers.setdefault(path, len(numbers)) for path in entity_paths]
    return np.array(codes, dtype=np.int64), list(numbers)


@dataclass(frozen=True)
class EntityWork:
    """Tasks over whole entities, laid out by ``profile``.

    A group holds all chunks of one or more entities. Memory is bounded by :data:`WHOLE_ENTITY` for each task.

    Order: the entities that cost most first, however many tasks they are divided into.
    """

    groups: tuple[tuple[FoundChunks, ...], ...]
    profile: OptimizationProfile | None
    ids: RunIds = field(default_factory=RunIds.begin)

    @classmethod
    def over(
        cls, found: Sequence[FoundChunks], profile: OptimizationProfile | None, ids: RunIds | None = None
    ) -> EntityWork:
        """All chunks of ``found``, several small entities to a task; ``ids`` are those of the run, if it began."""
        group_of = _grouped(_costs(found))
        groups: dict[int, list[FoundChunks]] = {number: [] for number in sorted(set(group_of.values()))}
        for some in found:
            codes, paths = some.entity_codes
            numbers = np.array([group_of[path] for path in paths], dtype=np.int64)[codes]
            for number in np.unique(numbers).tolist():
                groups[number].append(some.take(np.flatnonzero(numbers == number)))
        return cls(tuple(map(tuple, groups.values())), profile, ids or RunIds.begin())

    @property
    def tasks(self) -> Sequence[Task]:
        """One task a group of entities."""
        total = len(self.groups)
        return [
            Task(i, f"compaction [{i + 1}/{total}]", sum(int(some.sizes.sum()) for some in group))
            for i, group in enumerate(self.groups)
        ]

    def run(self, index: int) -> Iterator[Chunk]:
        """The chunks of a group, entity by entity."""
        rank = {path: i for i, path in enumerate(_costs(self.groups[index]))}
        entities: dict[str, list[Chunk]] = {}
        for some in self.groups[index]:
            for chunk in some.chunks():
                entities.setdefault(chunk.entity_path, []).append(chunk)
        for path in sorted(entities, key=rank.__getitem__):
            yield from laid_out(entities.pop(path), self.profile)

    def minter(self, index: int) -> Minter:
        """The source of ids for the chunks that a group makes."""
        return self.ids.task(index)

    @property
    def later(self) -> RunIds:
        """The ids of what is made of the chunks."""
        return self.ids.after(len(self.groups))

    def source_paths(self) -> set[str]:
        """The files that the chunks lie in."""
        return {path for group in self.groups for some in group for path in some.paths}


def _costs(found: Iterable[FoundChunks]) -> dict[str, int]:
    """The costs of laying out each entity, in bytes; those that cost most first."""
    costs: dict[str, int] = {}
    for some in found:
        codes, paths = some.entity_codes
        totals = np.bincount(codes, some.expanded + _CHUNK_BYTES, len(paths))
        for path, total in zip(paths, totals.tolist(), strict=True):
            costs[path] = costs.get(path, 0) + int(total)
    return dict(sorted(costs.items(), key=lambda item: (-item[1], item[0])))


def _grouped(costs: dict[str, int]) -> dict[str, int]:
    """The number of the task of each entity, in their order.

    Tasks cost about the same, and there are two for each core of a machine. Entities that cost about the same come
    together: memory that one has left then fits the next.
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
    """Bytes of a chunk where it is stored; of one in memory, its Arrow buffers."""
    size: int | None = getattr(chunk.payload, "size", None)
    if size is not None:
        return size
    in_memory: int = sum(c.values.nbytes for c in chunk.data.components)
    return in_memory + 16 * chunk.num_rows


def laid_out(entity: Sequence[Chunk], profile: OptimizationProfile | None) -> Iterator[Chunk]:
    """The chunks of one entity as ``profile`` wants them.

    An entity too large to be held at once is compacted as it passes, and a video stream in it laid out by its groups of
    pictures straight from where it lies.
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
    """The same chunk in an object of its own: what is loaded to lay it out goes with that."""
    return chunk if chunk.payload is None else Chunk.lazy(chunk.header, chunk.payload)
