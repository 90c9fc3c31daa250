"""What a store knows of each of its recordings."""

from __future__ import annotations

from dataclasses import dataclass

from ..rrd import StoreEntry

Key = tuple[str, str, str]
"""What a recording is known by."""


def key_of(store: StoreEntry | RecordingEntry) -> Key:
    """What a recording is known by in a store: its id; a blueprint, by that of its application too."""
    return store.kind, store.application_id if store.kind == "blueprint" else "", store.recording_id


@dataclass(frozen=True, slots=True)
class RecordingEntry:
    """A recording of a store.

    ``segment_version`` counts the contents that its source has had, from 1. ``source_kept``: the source file stays
    where it was, so another content under its name takes this recording's place. ``rrd`` is the RRD that was written
    for it, relative to their folder. ``manifest…`` is where the rows of its chunks lie, empty where only an RRD is
    kept. ``bytes`` are those of its chunks as stored; ``added`` is in seconds since the epoch.
    """

    recording_id: str
    application_id: str
    kind: str
    segment_version: int
    source: str
    source_size: int
    source_modified_ns: int
    source_digest: str
    source_kept: bool
    rrd: str | None
    manifest: str
    manifest_offset: int
    manifest_size: int
    manifest_digest: str
    shards: tuple[str, ...]
    chunks: int
    rows: int
    bytes: int
    query_id: str
    batch: int
    added: float

    @property
    def store(self) -> StoreEntry:
        """The store that its chunks' messages name."""
        return StoreEntry(
            "blueprint" if self.kind == "blueprint" else "recording", self.application_id, self.recording_id
        )

    @property
    def key(self) -> Key:
        """What it is known by."""
        return key_of(self)

    def takes_place_of(self, other: RecordingEntry) -> bool:
        """Whether ``other``, which came earlier, is no longer to be seen once this is there."""
        same_file = other.source_kept and other.source == self.source and other.source_digest != self.source_digest
        return same_file or other.key == self.key
