"""``collect``: a pipeline run into a store, compacted in two steps without a shuffle of payloads.

First the pipeline runs into parts. Then, entity by entity, chunks are read by reference from the parts and laid out
as the profile says; those that stay as they are keep their compressed bytes. A recording that fits into one split
takes both steps in one task.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ..chunk import Chunk
from ..execution.chunk_rows import PartChunk
from ..execution.part import PartJob
from ..execution.runner import RunOptions, run_parts
from ..execution.staging import Staging
from ..execution.work import Task, Work
from ..limits import MIB, SPLIT_BYTES
from ..rrd import FramedPayload, StoreEntry
from ..rrd.opening import NEVER_CHANGES
from .compactor import Compactor
from .passes import optimised
from .profile import OptimizationProfile, Settings
from .reference import stored_size
from .video import rebatch_video, video_groups

WHOLE_ENTITY: Final = 32 * MIB
"""Compressed bytes of an entity up to which it is laid out at once, in memory."""


@dataclass(frozen=True)
class WholeWork:
    """All tasks of a work in one, laid out by ``profile``: for what is small."""

    work: Work
    profile: OptimizationProfile | None

    @property
    def tasks(self) -> Sequence[Task]:
        """One task."""
        tasks = self.work.tasks
        return [Task(0, tasks[0].label if tasks else "nothing", sum(t.size for t in tasks))]

    def run(self, index: int) -> Iterator[Chunk]:  # noqa: ARG002 (there is only one)
        """All chunks, by ascending id."""
        chunks = (chunk for task in self.work.tasks for chunk in self.work.run(task.index))
        return iter(optimised(chunks, self.profile))

    def source_paths(self) -> set[str]:
        """The files that are read."""
        return self.work.source_paths()


@dataclass(frozen=True)
class EntityWork:
    """Tasks over whole entities of chunks that are there by reference, laid out by ``profile``.

    A group holds the chunks of one or more entities. Memory is bounded by :data:`WHOLE_ENTITY` for each task.
    """

    groups: tuple[tuple[tuple[Chunk, ...], ...], ...]
    profile: OptimizationProfile | None

    @classmethod
    def over(cls, chunks: Sequence[Chunk], profile: OptimizationProfile | None) -> EntityWork:
        """Entities in order of their first chunk, several small ones to a task."""
        entities: dict[str, list[Chunk]] = defaultdict(list)
        for chunk in chunks:
            entities[chunk.entity_path].append(chunk)
        groups: list[list[tuple[Chunk, ...]]] = []
        left = 0
        for found in entities.values():
            if left <= 0:
                groups.append([])
                left = SPLIT_BYTES
            groups[-1].append(tuple(found))
            left -= sum(map(stored_size, found))
        return cls(tuple(map(tuple, groups)), profile)

    @property
    def tasks(self) -> Sequence[Task]:
        """One task a group of entities."""
        total = len(self.groups)
        return [
            Task(i, f"compaction [{i + 1}/{total}]", sum(stored_size(c) for entity in group for c in entity))
            for i, group in enumerate(self.groups)
        ]

    def run(self, index: int) -> Iterator[Chunk]:
        """The chunks of a group, entity by entity."""
        for entity in self.groups[index]:
            yield from laid_out(entity, self.profile)

    def source_paths(self) -> set[str]:
        """The parts."""
        chunks = (c for group in self.groups for entity in group for c in entity)
        return {p for c in chunks if (p := getattr(c.payload, "path", None)) is not None}


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


def is_small(work: Work) -> bool:
    """Whether a work fits into one task."""
    return len(work.tasks) <= 1 and sum(t.size for t in work.tasks) <= SPLIT_BYTES


def collect_parts(
    work: Work, profile: OptimizationProfile | None, store: StoreEntry, staging: Staging, options: RunOptions
) -> list[PartChunk]:
    """Run ``work`` into parts in ``staging``, laid out by ``profile``, with digests, by ascending chunk id."""
    folder = staging.location

    def run(some: Work, into: Staging, *, digests: bool) -> list[PartChunk]:
        stores = (store,) * len(some.tasks)
        chunks, _ = run_parts(PartJob(some, stores, into.location, folder, digests), into, options)
        return chunks

    if is_small(work):
        return run(WholeWork(work, profile), staging, digests=True)
    with staging.inner() as first:
        found = run(work, first, digests=False)
        chunks = [
            Chunk.lazy(
                c.entry.header,
                FramedPayload(
                    first.folder.place(c.part),
                    c.entry.offset,
                    c.entry.size,
                    c.entry.header.chunk_id,
                    version=NEVER_CHANGES,
                ),
            )
            for c in found
        ]
        laid_out = run(EntityWork.over(chunks, profile), staging, digests=True)
    return sorted(laid_out, key=lambda c: c.entry.header.chunk_id)
