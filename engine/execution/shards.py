"""Parts stitched into shards: RRD files of one recording, each of a bounded size, that need no stitching themselves."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby
from typing import NamedTuple

from ..errors import UsageError
from ..failing import writing
from ..rrd import MESSAGE_HEADER_SIZE, ChunkEntry, RrdWriter, StoreEntry
from .chunk_rows import PartChunk
from .folders import Folder, NewFile
from .staging import Staging

SHARD_BYTES = 512 * 1024 * 1024
"""How large a shard may become, unless the caller says so."""

_HEAD_BYTES = 4096
_FOOTER_BYTES_A_CHUNK = 256


class Shard(NamedTuple):
    """A shard that is written and has not appeared yet: its name, size, file, and chunks with their places in it."""

    name: str
    size: int
    file: NewFile
    chunks: list[PartChunk]


def write_shards(
    staging: Staging,
    store: StoreEntry,
    chunks: Sequence[PartChunk],
    shard_bytes: int,
    destination: str,
    into: Folder,
    names: Iterator[str],
) -> Iterator[Shard]:
    """Stitch parts into shards of at most ``shard_bytes`` each, in the folder ``into``, under ``names``.

    ``part`` and offsets of a shard's chunks are those of the shard. ``chunks`` are in the order in which they lie in
    their parts. A chunk that is larger by itself gets a shard of its own. To finish or discard shards is the caller's.
    """
    if shard_bytes <= 0:
        raise UsageError(f"shard_bytes must be positive, not {shard_bytes}")
    writer = _ShardWriter(staging, store, shard_bytes, destination, into, names)
    for run in _runs(chunks, shard_bytes):
        yield from writer.write(run, next(names))


def unique_names() -> Iterator[str]:
    """Names that no other shard has, ever."""
    while True:
        yield f"{uuid.uuid4().hex}.rrd"


def numbered_names() -> Iterator[str]:
    """``shard-00000.rrd`` and on."""
    return (f"shard-{i:05d}.rrd" for i in count())


def _runs(chunks: Sequence[PartChunk], shard_bytes: int) -> Iterator[list[PartChunk]]:
    run: list[PartChunk] = []
    size = _HEAD_BYTES
    for chunk in chunks:
        more = chunk.entry.size + _FOOTER_BYTES_A_CHUNK
        if run and size + more > shard_bytes:
            yield run
            run, size = [], _HEAD_BYTES
        run.append(chunk)
        size += more
    if run:
        yield run


@dataclass(frozen=True, slots=True)
class _ShardWriter:
    staging: Staging
    store: StoreEntry
    shard_bytes: int
    destination: str
    into: Folder
    names: Iterator[str]

    def write(self, run: list[PartChunk], name: str) -> Iterator[Shard]:
        with writing(self.destination):
            file = self.into.new(name)
            try:
                size, written = self._stitch(run, file)
                fits = size <= self.shard_bytes or len(run) == 1
                if fits:
                    file.seal()
            except BaseException:
                file.discard()
                raise
        if fits:
            moved = [replace(c, part=name, entry=entry) for c, entry in zip(run, written, strict=True)]
            yield Shard(name, size, file, moved)
            return
        file.discard()
        yield from self.write(run[: len(run) // 2], name)
        yield from self.write(run[len(run) // 2 :], next(self.names))

    def _stitch(self, run: list[PartChunk], file: NewFile) -> tuple[int, list[ChunkEntry]]:
        written: list[ChunkEntry] = []
        writer = RrdWriter(file.file, path=self.destination)
        writer.begin_store(self.store)
        for part, found in groupby(run, key=lambda c: c.part):
            entries = [c.entry for c in found]
            start = entries[0].offset - MESSAGE_HEADER_SIZE
            stop = entries[-1].offset + entries[-1].size
            place = self.staging.folder.place(part)
            written += writer.append_part(self.store, place, entries, start, stop - start)
        writer.finish()
        return writer.position, written
