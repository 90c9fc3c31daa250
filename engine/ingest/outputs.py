"""Outputs of a batch: its recordings in parts, laid out by a profile, and the names of the RRDs that they become.

Small recordings are laid out in one stage, large ones in two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import PurePath, PurePosixPath

from ...readers import stem_of
from ..execution import Group, Outputs, PartChunk, RunOptions, Staging, run_groups
from ..locations import Location, exists
from ..optimisation import ChunkReferences, EntityWork, OptimizationProfile, WholeWork, is_small
from ..recordings import LiveEntries, RecordingEntry
from ..rrd import NEVER_CHANGES, ChunkTable, RrdFile, StoreEntry
from .files import LandedFile


def run_batch(
    recordings: Sequence[Outputs],
    profile: OptimizationProfile | None,
    staging: Staging,
    destination: str,
    options: RunOptions,
) -> list[Group | Exception]:
    """Run recordings into parts with digests; gives for each what it became, or the error for which it became nothing.

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


def _in_files(chunks: Sequence[PartChunk], staging: Staging) -> Iterator[ChunkReferences]:
    for part, found in groupby(chunks, key=lambda chunk: chunk.part):
        yield ChunkReferences.of(staging.folder.place(part), NEVER_CHANGES, ChunkTable.of([c.entry for c in found]))


class RrdNames:
    """Gives each file of a batch an RRD in ``folder``: its own name below the landing folder, with another suffix.

    No two recordings get one name, and what is in the folder and is none of ours is not written over. A batch that
    is replayed gives the same names: what a crashed run left under a name is known by its recordings' ids.
    """

    def __init__(self, source: Location, folder: Location, live: LiveEntries) -> None:
        self._source = source
        self._folder = folder
        self._live = live
        self._taken: set[str] = set()

    def name_for(self, file: LandedFile, digest: str, stores: list[StoreEntry], replaces: list[RecordingEntry]) -> str:
        """The name, relative to the folder. ``replaces``: what the file's earlier content became."""
        ours = {e.rrd for e in replaces}
        for name in self._candidates(file, digest):
            if name in self._taken:
                continue
            known = self._live.of_rrd(name)
            free = name in ours if known is not None else self._is_free(name, stores)
            if free:
                self._taken.add(name)
                return name
        raise AssertionError("the last candidate is free")  # pragma: no cover

    def _candidates(self, file: LandedFile, digest: str) -> Iterator[str]:
        below = _below(self._source, file.path)
        suffix = ".rbl" if below.suffix.lower() == ".rbl" else ".rrd"
        yield str(below.with_name(f"{stem_of(below.name)}{suffix}"))
        yield f"{below}{suffix}"
        yield str(below.with_name(f"{stem_of(below.name)}-{digest[:8]}{suffix}"))
        yield str(below.with_name(f"{stem_of(below.name)}-{digest}{suffix}"))

    def _is_free(self, name: str, stores: list[StoreEntry]) -> bool:
        """Whether there is no such file, or one that a run which was cut wrote for the same recordings."""
        place = self._folder / name
        if not exists(place):
            return True
        try:
            found = RrdFile(place).stores()
        except Exception:  # noqa: BLE001 (whatever it is, it is not ours)
            return False
        return {s.recording_id for s in stores} == {s.recording_id for s in found}


def _below(source: Location, path: str) -> PurePath:
    root = str(source).rstrip("/")
    below = PurePosixPath(path[len(root) + 1 :]) if path.startswith(root + "/") else PurePosixPath(path).name
    parts = [part for part in PurePosixPath(below).parts if part not in ("/", "..")]  # keys of objects may hold them
    return PurePosixPath(*parts) if parts else PurePosixPath("recording")
