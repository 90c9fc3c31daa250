"""The recordings of a batch run into parts, laid out by a profile: small ones in one stage, large ones in two."""

from __future__ import annotations

from collections.abc import Sequence

from ..chunk import Chunk
from ..execution.chunk_rows import PartChunk
from ..execution.grouped import Group, Outputs, run_groups
from ..execution.runner import RunOptions
from ..execution.staging import Staging
from ..rrd import FramedPayload
from ..rrd.opening import NEVER_CHANGES
from ..store import OptimizationProfile
from ..store.collecting import EntityWork, WholeWork, is_small


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
    small = [i for i, outputs in enumerate(recordings) if all(is_small(work) for _, work in outputs)]
    large = [i for i in range(len(recordings)) if i not in set(small)]
    found: dict[int, Group | Exception] = {}
    whole = [[(store, WholeWork(work, profile)) for store, work in recordings[i]] for i in small]
    found.update(zip(small, run_groups(whole, staging, destination, options, digests=True), strict=True))
    first = run_groups([recordings[i] for i in large], staging, destination, options, digests=False)
    found.update(zip(large, first, strict=True))
    fine = {i: group for i, group in found.items() if i in set(large) and isinstance(group, Group)}
    second = [_entities(group, profile, staging) for group in fine.values()]
    for i, laid_out in zip(fine, run_groups(second, staging, destination, options, digests=True), strict=True):
        warnings = fine[i].warnings
        found[i] = Group(laid_out.chunks, (*warnings, *laid_out.warnings)) if isinstance(laid_out, Group) else laid_out
    return [found[i] for i in range(len(recordings))]


def _entities(group: Group, profile: OptimizationProfile, staging: Staging) -> Outputs:
    return [
        (store, EntityWork.over([_reference(chunk, staging) for chunk in chunks], profile))
        for store, chunks in group.chunks
    ]


def _reference(chunk: PartChunk, staging: Staging) -> Chunk:
    entry = chunk.entry
    place = staging.folder.place(chunk.part)
    payload = FramedPayload(place, entry.offset, entry.size, entry.header.chunk_id, version=NEVER_CHANGES)
    return Chunk.lazy(entry.header, payload)
