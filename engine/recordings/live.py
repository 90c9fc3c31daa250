"""The recordings that are to be seen, of all that were ever added to a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .entry import Key, RecordingEntry


class LiveEntries:
    """Recordings in the order of their arrival; a later one takes the place of what it replaces."""

    def __init__(self, entries: Iterable[RecordingEntry] = ()) -> None:
        self._by_key: dict[Key, RecordingEntry] = {}
        self._of_source: dict[str, dict[Key, RecordingEntry]] = {}
        self._of_digest: dict[str, dict[Key, RecordingEntry]] = {}
        self._of_rrd: dict[str, RecordingEntry] = {}
        self.recordings = self.chunks = self.rows = self.bytes = 0
        for entry in entries:
            self.add(entry)

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[RecordingEntry]:
        return iter(self._by_key.values())

    def get(self, key: Key) -> RecordingEntry | None:
        """The recording of a key."""
        return self._by_key.get(key)

    def of_source(self, source: str) -> list[RecordingEntry]:
        """What came from the file that is at this path, if it stays there."""
        return list(self._of_source.get(source, {}).values())

    def of_digest(self, digest: str) -> list[RecordingEntry]:
        """What came from a file of this content."""
        return list(self._of_digest.get(digest, {}).values())

    def of_rrd(self, rrd: str) -> RecordingEntry | None:
        """What was written to an RRD of this name."""
        return self._of_rrd.get(rrd)

    def add(self, entry: RecordingEntry) -> None:
        """Add a recording; what it takes the place of goes. One that is there already keeps its place."""
        there = {**self._of_source.get(entry.source, {})}
        if entry.key in self._by_key:
            there[entry.key] = self._by_key[entry.key]
        for key, other in there.items():
            if entry.takes_place_of(other):
                self._remove(other)
                if key != entry.key or other.added != entry.added:
                    del self._by_key[key]
        self._by_key[entry.key] = entry
        if entry.source_kept:
            self._of_source.setdefault(entry.source, {})[entry.key] = entry
        self._of_digest.setdefault(entry.source_digest, {})[entry.key] = entry
        if entry.rrd is not None:
            self._of_rrd[entry.rrd] = entry
        self._count(entry, 1)

    def _remove(self, entry: RecordingEntry) -> None:
        for index, name in ((self._of_source, entry.source), (self._of_digest, entry.source_digest)):
            found = index.get(name, {})
            found.pop(entry.key, None)
            if not found:
                index.pop(name, None)
        if entry.rrd is not None and self._of_rrd.get(entry.rrd) == entry:
            self._of_rrd.pop(entry.rrd)
        self._count(entry, -1)

    def _count(self, entry: RecordingEntry, by: int) -> None:
        self.recordings += by * (entry.kind == "recording")
        self.chunks += by * entry.chunks
        self.rows += by * entry.rows
        self.bytes += by * entry.bytes
