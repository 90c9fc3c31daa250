"""``collect``: a pipeline run into a store, compacted in two steps without a shuffle of payloads.

First the pipeline runs into parts; what it only passes on stays where it is. Then, entity by entity, chunks are read
by reference and laid out as the profile says; those that stay as they are keep their compressed bytes. A recording
that fits into one split takes both steps in one task.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

from ..chunk import Chunk, Minter, RunIds, minting
from ..execution import PartChunk, Ran, RrdParts, RunOptions, RunPlaces, Staging, Task, Work, run_work, whole_run_of
from ..limits import SPLIT_BYTES
from ..rrd import NEVER_CHANGES, FileRun, Run, StoreEntry, VerifiedRun
from .entities import EntityWork, FoundChunks, InFile, InStore
from .passes import optimised
from .profile import OptimizationProfile


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
        tasks = (minting(self.work.minter(t.index), self.work.run(t.index)) for t in self.work.tasks)
        return iter(optimised(chain.from_iterable(tasks), self.profile))

    def minter(self, index: int) -> Minter:
        """The source of ids for the chunks that are laid out anew; those of the tasks have their own."""
        return self.work.later.task(index)

    @property
    def later(self) -> RunIds:
        """The ids of what is made of the chunks."""
        return self.work.later.after(1)

    def source_paths(self) -> set[str]:
        """The files that are read."""
        return self.work.source_paths()


@dataclass(frozen=True)
class SomeWork:
    """Some tasks of a work, by their numbers there."""

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
        """The ids of what is made of the chunks."""
        return self.work.later

    def source_paths(self) -> set[str]:
        """The files that are read."""
        return self.work.source_paths()


def is_small(work: Work) -> bool:
    """Whether a work fits into one task."""
    tasks = work.tasks
    runs = [run for t in tasks if (run := whole_run_of(work, t.index)) is not None]
    if len(runs) == len(tasks):
        return sum(int(run.table.uncompressed_sizes.sum()) for run in runs) <= SPLIT_BYTES
    return len(tasks) <= 1 and sum(t.size for t in tasks) <= SPLIT_BYTES


def collect_parts(
    work: Work, profile: OptimizationProfile | None, store: StoreEntry, staging: Staging, options: RunOptions
) -> list[PartChunk]:
    """Run ``work`` into parts in ``staging``, laid out by ``profile``, with digests, by ascending chunk id."""

    def run(some: Work) -> list[PartChunk]:
        parts = RrdParts((store,) * len(some.tasks), staging.location, digests=True)
        return run_work(some, parts, staging, options).chunks

    if is_small(work):
        return run(WholeWork(work, profile))
    with staging.inner() as first:
        laid_out = run(EntityWork.over(found_chunks(work, store, first, options), profile, work.later))
    return sorted(laid_out, key=lambda c: c.entry.header.chunk_id)


def found_chunks(work: Work, store: StoreEntry, staging: Staging, options: RunOptions) -> list[FoundChunks]:
    """Find the chunks of ``work``, in its order: at their source if they only pass through, else in parts.

    The parts are made now, in ``staging``.
    """
    found: dict[int, list[FoundChunks]] = defaultdict(list)
    rest: list[int] = []
    for task in work.tasks:
        there = _at_source(whole_run_of(work, task.index))
        if there is None:
            rest.append(task.index)
        else:
            found[task.index].append(there)
    if rest:
        some = SomeWork(work, tuple(rest))
        parts = RrdParts((store,) * len(rest), staging.location, runs=RunPlaces())
        for index, part in _in_parts(run_work(some, parts, staging, options), staging):
            found[rest[index]].append(part)
    return [part for index in sorted(found) for part in found[index]]


def _at_source(run: Run | None) -> FoundChunks | None:
    """The run that a task gives untouched, where it lies."""
    if isinstance(run, VerifiedRun):
        return InStore(run)
    return InFile(run.path, run.version, run.table) if isinstance(run, FileRun) else None


def _in_parts(ran: Ran, staging: Staging) -> Iterator[tuple[int, InFile]]:
    """The chunks in the parts of each task."""
    for extent in ran.listed:
        yield extent.task, InFile(staging.folder.place(extent.file), NEVER_CHANGES, extent.listed.table)
    for (task, part), listed in groupby(ran.chunks, key=lambda c: (c.task, c.part)):
        yield task, InFile(staging.folder.place(part), NEVER_CHANGES, tuple(c.entry for c in listed))
