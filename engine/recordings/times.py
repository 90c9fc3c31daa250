"""The times of a store's recordings, stored after their manifests: taken from parts, read, moved or made."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from ..errors import ReadError, ReadWarning
from ..execution import PartChunk, Staging
from ..optimisation import ChunkReferences
from ..rrd import NEVER_CHANGES, Times, TimesDirectory, TimesWriter, digest_of, keeping_open
from ..storage import RESTORE
from .entries import RecordingEntry
from .folder import RecordingsFolder


class TimesBytes(NamedTuple):
    """The bytes of a recording's times, stored after its manifest; empty if unknown."""

    pieces: Sequence[bytes] = ()
    digest: str = ""

    @classmethod
    def of(cls, pieces: Sequence[bytes], directory: TimesDirectory) -> TimesBytes:
        """Join pieces and their directory."""
        end = directory.to_bytes()
        return cls([*pieces, end], digest_of(end).hex())

    @property
    def size(self) -> int:
        """The total number of bytes."""
        return sum(map(len, self.pieces))

    def noted(self, entry: RecordingEntry) -> RecordingEntry:
        """Return the entry with these times."""
        return replace(entry, times_size=self.size, times_digest=self.digest)


NO_TIMES: Final = TimesBytes()


def times_of_parts(chunks: Sequence[PartChunk], staging: Staging | None) -> TimesBytes:
    """The times of chunks, in the chunks' order, from the ends of their parts in the staging folder.

    Empty if a part has no times or other chunks, or without chunks in parts. Raises ``ReadError``.
    """
    if not chunks or staging is None:
        return NO_TIMES
    numbers: dict[str, int] = {}
    which = np.array([numbers.setdefault(chunk.part, len(numbers)) for chunk in chunks], dtype=np.int64)
    parts = []
    for name in numbers:
        times = Times.in_part(staging.folder.place(name))
        if times is None:
            return NO_TIMES
        parts.append(times)
    counts = np.bincount(which, minlength=len(parts))
    if [len(times) for times in parts] != counts.tolist():
        return NO_TIMES
    offsets = np.array([chunk.entry.offset for chunk in chunks], dtype=np.int64)
    order = np.empty(len(chunks), dtype=np.int64)
    order[np.lexsort((offsets, which))] = np.arange(len(chunks))
    directory = TimesDirectory.joined([times.directory for times in parts], order)
    return TimesBytes.of([times.read_pieces() for times in parts], directory)


def times_in(folder: RecordingsFolder, entry: RecordingEntry) -> Times | None:
    """Return the times of a recording, undecoded, or None if they do not exist yet. Raises ``ReadError``."""
    if not entry.times_size:
        return None
    start = entry.manifest_offset + entry.manifest_size
    place = folder.manifests.place(entry.manifest)
    times = Times.open(place, NEVER_CHANGES, start, entry.times_size, entry.times_digest)
    if len(times) != entry.chunks:
        raise ReadError(
            f"recording {entry.recording_id} has times for {len(times)} chunks instead of {entry.chunks}",
            path=place,
            offset=start,
            hint=RESTORE,
        )
    return times


def kept_times(folder: RecordingsFolder, entry: RecordingEntry) -> TimesBytes:
    """The verified times of a recording, for another manifest of the same chunks.

    Damaged or missing times are made from the chunks; if a chunk cannot be read, they are empty, with a warning.
    Missing times of chunks in place stay missing.
    """
    if entry.in_place and not entry.times_size:
        return NO_TIMES
    try:
        times = times_in(folder, entry)
        if times is not None:
            times.check()
            return TimesBytes.of([times.read_pieces()], times.directory)
    except ReadError as error:
        warnings.warn(f"{folder.path}: its damaged times are computed again: {error}", ReadWarning, stacklevel=2)
    try:
        return TimesBytes.of(*made_times(folder.references(entry)).finish())
    except ReadError as error:
        warnings.warn(
            f"{folder.path}: the times of recording {entry.recording_id} cannot be read: {error}",
            ReadWarning,
            stacklevel=2,
        )
        return NO_TIMES


def made_times(chunks: ChunkReferences) -> TimesWriter:
    """Make the times of chunks, by decoding each. Raises ``ReadError``."""
    writer = TimesWriter()
    with keeping_open():
        for size, data in zip(
            chunks.table.uncompressed_sizes.tolist(), chunks.read(np.arange(len(chunks.table))), strict=True
        ):
            writer.add(data, int(size))
    return writer
