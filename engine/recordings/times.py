"""The times of recordings of a store, right behind their manifests: found in parts, read, moved, made anew."""

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
    """The times of a recording as they go behind its manifest; nothing where they are not known."""

    pieces: Sequence[bytes] = ()
    digest: str = ""

    @classmethod
    def of(cls, pieces: Sequence[bytes], directory: TimesDirectory) -> TimesBytes:
        """Pieces one behind the other, and their directory."""
        end = directory.to_bytes()
        return cls([*pieces, end], digest_of(end).hex())

    @property
    def size(self) -> int:
        """All bytes."""
        return sum(map(len, self.pieces))

    def noted(self, entry: RecordingEntry) -> RecordingEntry:
        """The entry of a recording that has these times."""
        return replace(entry, times_size=self.size, times_digest=self.digest)


NO_TIMES: Final = TimesBytes()


def times_of_parts(chunks: Sequence[PartChunk], staging: Staging | None) -> TimesBytes:
    """The times of chunks, in their order, at the ends of the parts of the staging folder that they are all chunks of.

    Nothing where one of the parts has none, or without chunks in parts. Raises ``ReadError``.
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
    """The times of a recording, verified, to be written behind another manifest of the same chunks.

    What is damaged or was never made is made of the chunks; nothing, with a warning, where one of them cannot be read.
    Those of chunks in place that were never made stay so.
    """
    if entry.in_place and not entry.times_size:
        return NO_TIMES
    try:
        times = times_in(folder, entry)
        if times is not None:
            times.check()
            return TimesBytes.of([times.read_pieces()], times.directory)
    except ReadError as error:
        warnings.warn(f"{folder.path}: damaged times are made again: {error}", ReadWarning, stacklevel=2)
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
    """The times of chunks, each of which is read and decoded. Raises ``ReadError``."""
    writer = TimesWriter()
    with keeping_open():
        for size, data in zip(
            chunks.table.uncompressed_sizes.tolist(), chunks.read(np.arange(len(chunks.table))), strict=True
        ):
            writer.add(data, int(size))
    return writer
