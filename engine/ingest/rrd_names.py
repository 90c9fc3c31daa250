"""The names of the RRDs that recordings become."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath, PurePosixPath

from ...readers import stem_of
from ..locations import Location, exists
from ..recordings import RecordingEntry
from ..recordings.entries import LiveEntries
from ..rrd import RrdFile, StoreEntry
from .files import LandedFile


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
