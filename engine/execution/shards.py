"""Parts stitched into shards: RRD files of one recording, each of a bounded size, that need no stitching themselves."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from ..errors import UsageError
from ..rrd import ChunkEntry, RrdWriter, StoreEntry
from ..rrd.framing import MESSAGE_HEADER_SIZE
from .chunk_rows import PartChunk
from .staging import Staging

SHARD_BYTES = 512 * 1024 * 1024
"""How large a shard may become, unless the caller says so."""

_HEAD_BYTES = 4096
_FOOTER_BYTES_A_CHUNK = 256


def write_shards(
    staging: Staging, store: StoreEntry, chunks: Sequence[PartChunk], shard_bytes: int, destination: str
) -> Iterator[tuple[Path, list[PartChunk]]]:
    """Stitch parts into shards of at most ``shard_bytes`` each, in the staging folder, synced.

    Gives each shard with its chunks, whose ``part`` and offsets are now those of the shard. ``chunks`` are in the order
    in which they lie in their parts. A chunk that is larger by itself gets a shard of its own.
    """
    if shard_bytes <= 0:
        raise UsageError(f"shard_bytes must be positive, not {shard_bytes}")
    for run in _runs(chunks, shard_bytes):
        yield from _write(staging, store, run, shard_bytes, destination)


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


def _write(
    staging: Staging, store: StoreEntry, run: list[PartChunk], shard_bytes: int, destination: str
) -> Iterator[tuple[Path, list[PartChunk]]]:
    path = staging.folder / f"{uuid.uuid4().hex}.rrd"
    written: list[ChunkEntry] = []
    with RrdWriter(path, path=destination) as writer:
        writer.begin_store(store)
        for part, found in groupby(run, key=lambda c: c.part):
            entries = [c.entry for c in found]
            start = entries[0].offset - MESSAGE_HEADER_SIZE
            stop = entries[-1].offset + entries[-1].size
            written += writer.append_part(store, staging.folder / part, entries, start, stop - start)
        writer.finish()
    if path.stat().st_size > shard_bytes and len(run) > 1:
        path.unlink()
        for half in (run[: len(run) // 2], run[len(run) // 2 :]):
            yield from _write(staging, store, half, shard_bytes, destination)
        return
    yield path, [replace(c, part=path.name, entry=entry) for c, entry in zip(run, written, strict=True)]
