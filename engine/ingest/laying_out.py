"""The recordings of a batch run into parts, laid out by a profile: small ones in one stage, large ones in two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from ..execution.chunk_rows import PartChunk
from ..execution.grouped import Group, Outputs, run_groups
from ..execution.stage import RunOptions
from ..execution.staging import Staging
from ..optimisation import EntityWork, FoundChunks, InFile, OptimizationProfile, WholeWork, is_small
from ..rrd.opening import NEVER_CHANGES


def run_batch(
    recordings: Sequence[Outputs],
    profile: OptimizationProfile | None,
    staging: Staging,
    destination: str,
    options: RunOptions,
) -> list[Group | Exception]:
    """What each recording became, in parts with digests; or the error for which it became nothing.

    Without a profile chunks stay as the pipeline gave them.
    """
    if profile is None:
        return run_groups(recordings, staging, destination, options, digests=True)
    small: list[int] = []
    large: list[int] = []
    for i, outputs in enumerate(recordings):
        (small if all(is_small(work) for _, work in outputs) else large).append(i)
    found: dict[int, Group | Exception] = {}
    whole = [[(store, WholeWork(work, profile)) for store, work in recordings[i]] for i in small]
    found.update(zip(small, run_groups(whole, staging, destination, options, digests=True), strict=True))
    first = run_groups([recordings[i] for i in large], staging, destination, options, digests=False)
    found.update(zip(large, first, strict=True))
    fine = {i: group for i, group in zip(large, first, strict=True) if isinstance(group, Group)}
    second = [_entities(group, profile, staging) for group in fine.values()]
    for i, laid_out in zip(fine, run_groups(second, staging, destination, options, digests=True), strict=True):
        warnings = fine[i].warnings
        found[i] = Group(laid_out.chunks, (*warnings, *laid_out.warnings)) if isinstance(laid_out, Group) else laid_out
    return [found[i] for i in range(len(recordings))]


def _entities(group: Group, profile: OptimizationProfile, staging: Staging) -> Outputs:
    """Work that lays out the recordings of a group, whose chunks lie in parts."""
    return [(store, EntityWork.over(list(_in_files(chunks, staging)), profile)) for store, chunks in group.chunks]


def _in_files(chunks: Sequence[PartChunk], staging: Staging) -> Iterator[FoundChunks]:
    for part, found in groupby(chunks, key=lambda chunk: chunk.part):
        yield InFile(staging.folder.place(part), NEVER_CHANGES, tuple(chunk.entry for chunk in found))
