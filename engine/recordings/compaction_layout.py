"""Recordings whose chunks are smaller than a profile wants, laid out anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from ..chunk import ChunkHeader
from ..errors import ReadError, SessionError, WriteError
from ..execution.chunk_rows import PartChunk
from ..execution.grouped import STAGE_TASKS, Group, run_groups
from ..execution.runner import RunOptions
from ..execution.staging import Staging
from ..optimisation import ByReference, EntityWork, OptimizationProfile, Settings
from .chunk_manifest import MANIFEST_ERRORS, parse_manifest
from .compaction_round import Rewriting
from .entry import Key, RecordingEntry
from .folder import RecordingsFolder

_FEWER: Final = 2
"""How many times fewer chunks a recording has to become, for it to be laid out anew."""


class Layout:
    """Finds such recordings, and gives them their new chunks. Each recording is looked at once."""

    def __init__(self, folder: RecordingsFolder, profile: OptimizationProfile, run: RunOptions) -> None:
        self._folder = folder
        self._profile = profile
        self._settings = Settings.of(profile)
        self._run = run
        self._seen: set[Key] = set()

    def next(self, live: Iterable[RecordingEntry], budget: int) -> list[RecordingEntry]:
        """The next recordings to be laid out, of about ``budget`` bytes together; none when all were looked at."""
        found: list[RecordingEntry] = []
        size = 0
        for entry in live:
            if entry.key in self._seen:
                continue
            if found and (size + entry.bytes > budget or len(found) >= STAGE_TASKS):
                break
            self._seen.add(entry.key)
            if self._is_cut_small(entry):
                found.append(entry)
                size += entry.bytes
        return found

    def run(self, entries: Sequence[RecordingEntry], rewriting: Rewriting, staging: Staging) -> None:
        """Lay out recordings; one of which that makes no fewer chunks stays as it is, and so does one that fails."""
        outputs = [
            [(e.store, EntityWork.over([ByReference(tuple(self._folder.chunks(e)))], self._profile))] for e in entries
        ]
        groups = run_groups(outputs, staging, str(self._folder.path), self._run, digests=True)
        for entry, group in zip(entries, groups, strict=True):
            if not isinstance(group, Group):
                if isinstance(group, WriteError) or (isinstance(group, SessionError) and not group.transient):
                    raise group
                rewriting.leave(entry, group)
                continue
            chunks = group.chunks[0][1]
            if _FEWER * len(chunks) <= entry.chunks + 1:
                rewriting.lay_out(entry, chunks)

    def _is_cut_small(self, entry: RecordingEntry) -> bool:
        settings = self._settings
        if not entry.manifest or entry.chunks < _FEWER or not settings.max_rows_if_unsorted:
            return False
        if 2 * entry.bytes > settings.max_bytes * entry.chunks:
            return False
        try:
            data = self._folder.manifests.get_range(entry.manifest, entry.manifest_offset, entry.manifest_size)
            chunks = parse_manifest(data, entry.manifest_digest)
        except (*MANIFEST_ERRORS, ReadError):
            return False  # it is told of where it is to be moved
        return _FEWER * self._wanted(chunks) <= len(chunks)

    def _wanted(self, chunks: Sequence[PartChunk]) -> int:
        """About how many chunks the profile makes of these."""
        rows: Counter[Any] = Counter()
        size: Counter[Any] = Counter()
        for chunk in chunks:
            kind = _kind(chunk.entry.header)
            rows[kind] += chunk.entry.header.num_rows
            size[kind] += chunk.entry.uncompressed_size
        most_rows, most_bytes = self._settings.max_rows_if_unsorted, self._settings.max_bytes
        return sum(max(-(-rows[k] // most_rows), -(-size[k] // most_bytes), 1) for k in rows)


def _kind(header: ChunkHeader) -> tuple[Any, ...]:
    """Chunks of one kind can be merged."""
    components = tuple(component.descriptor for component in header.components)
    return header.entity_path, header.is_static, tuple(t.name for t in header.timelines), components
