"""The plan of a compaction: what of a store is worth writing anew, as its file is small or mostly dead."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..errors import ReadError
from ..rrd import (
    MESSAGE_HEADER_SIZE,
    NEVER_CHANGES,
    STREAM_FOOTER_SIZE,
    STREAM_HEADER_SIZE,
    open_positional,
    parse_stream_footer,
)
from .chunk_manifest import MANIFEST_ERRORS, bytes_by_part
from .entries import LiveEntries, RecordingEntry
from .folder import RecordingsFolder
from .new_files import MOST_CHUNKS

SMALL_MANIFEST: Final = 4 << 20
"""Bytes; manifests below are joined."""


@dataclass
class Use:
    """The part of one file that recordings need: ``live`` of its ``size`` bytes, in ``chunks`` chunks."""

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
    """The files that the recordings of a store lie in, in the order of the recordings' arrival."""

    def __init__(self, folder: RecordingsFolder) -> None:
        self._folder = folder
        self._parts: dict[tuple[str, int], dict[str, tuple[int, int]]] = {}
        self.shards: dict[str, Use] = {}
        self.manifests: dict[str, Use] = {}

    def look(self, live: LiveEntries) -> None:
        """Look at the store as it is now. Of recordings in several shards the manifests are read, once."""
        shard_sizes = dict(self._folder.shards.entries())
        manifest_sizes = dict(self._folder.manifests.entries())
        self.shards, self.manifests = {}, {}
        for entry in live:
            if not entry.manifest:
                continue
            use = self.manifests.setdefault(entry.manifest, Use(manifest_sizes.get(entry.manifest, 0)))
            use.add(entry, entry.manifest_size, entry.chunks)
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
            except (*MANIFEST_ERRORS, ReadError):  # told when it is to be moved; alive it is in any case
                return dict.fromkeys(entry.shards, (entry.bytes, entry.chunks))
        return self._parts[key]

    @property
    def size(self) -> int:
        """The bytes of all shards and manifests."""
        return sum(use.size for use in (*self.shards.values(), *self.manifests.values()))

    # --- choosing

    def doomed_shards(self, min_shard: int, budget: int, skip: Collection[str], *, thorough: bool) -> list[str]:
        """Shards that are better written anew, of about ``budget`` bytes; none where little would be won."""
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
        """Manifests to be joined, and those that the rewriting of ``shards`` leaves little of."""
        leaving = {id(entry) for shard in shards for entry in self.shards[shard].entries}
        rest = {name: [e for e in use.entries if id(e) not in leaving] for name, use in self.manifests.items()}
        asked = {name: use for name, use in self.manifests.items() if use.size and rest[name] and name not in skip}
        dead = {name for name, use in asked.items() if 2 * sum(e.manifest_size for e in rest[name]) < use.size}
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
            return False  # it is damaged; what lies in it may be whole, and is left where it is
        return 2 * use.live < footer.start - MESSAGE_HEADER_SIZE - STREAM_HEADER_SIZE


def _worth_joining(names: Sequence[str], uses: dict[str, Use]) -> list[str]:
    """Of small files those that are at most as large as all smaller ones together.

    So whatever arrives, and however often it is looked at, a byte is written anew a logarithmic number of times.
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
