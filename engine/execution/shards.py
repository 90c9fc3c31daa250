"""Shards: RRDs of bounded size whose chunks are copied out of parts, and the sink that makes a folder of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..errors import UsageError, WriteError, writing
from ..faults import reach
from ..folders import Folder, sync_folder
from ..locations import Location
from ..objects import ObjectUrl
from ..reports import RunReport
from ..rrd import MESSAGE_HEADER_SIZE, RrdWriter, StoreEntry
from .chunk_rows import PartChunk
from .commit import Extent
from .reporting import Ran
from .rrd_sink import RrdParts
from .sink import Sink, write_to
from .stage import RunOptions
from .staging import Staging
from .work import Work

SHARD_BYTES = 512 * 1024 * 1024
"""How large a shard may become, unless the caller says so."""

_HEAD_BYTES = 4096
_FOOTER_BYTES_A_CHUNK = 256


class Shard:
    """A shard that is written in ``folder``; the kernel copies chunks, nothing is decoded.

    To finish or discard its ``file``, or to discard it after a failure, is the caller's.
    """

    def __init__(self, folder: Folder, name: str, staging: Staging, destination: str) -> None:
        self.name = name
        self.chunks = 0
        self.file = folder.new(name)
        self._parts = staging.folder
        self._writer = RrdWriter(self.file.file, path=destination)

    @property
    def size(self) -> int:
        """Bytes so far; of a sealed one, all."""
        return self._writer.position

    def append(self, store: StoreEntry, chunks: Sequence[PartChunk]) -> list[PartChunk]:
        """Copy chunks of a store, in the order in which they lie in their parts; gives their new places."""
        self._writer.begin_store(store)
        self.chunks += len(chunks)
        moved: list[PartChunk] = []
        for run in neighbours(chunks):
            place, entries = self._parts.place(run[0].part), [c.entry for c in run]
            entries = self._writer.append_part(store, place, entries, *_extent(run))
            moved += [replace(c, part=self.name, entry=entry) for c, entry in zip(run, entries, strict=True)]
        return moved

    def seal(self) -> None:
        """Write the footer, and let everything arrive, without letting the file appear."""
        self._writer.finish()
        name = getattr(self.file.file, "name", None)
        reach("shard.write", name if isinstance(name, str) else None)
        self.file.seal()


def neighbours(chunks: Sequence[PartChunk], most: float = math.inf) -> Iterator[list[PartChunk]]:
    """Chunks that lie one behind the other in a part, of up to ``most`` bytes; larger ones by themselves."""
    run: list[PartChunk] = []
    for chunk in chunks:
        if run:
            start, size = _extent(run)
            is_next = chunk.part == run[0].part and chunk.entry.offset - MESSAGE_HEADER_SIZE == start + size
            if not is_next or size + chunk.entry.size > most:
                yield run
                run = []
        run.append(chunk)
    if run:
        yield run


def extents_in_order(chunks: Sequence[PartChunk]) -> list[Extent]:
    """The extents of chunks of which neighbours need not lie one behind the other in a part."""
    return [Extent(r[0].task, r[0].part, *_extent(r), [c.entry for c in r]) for r in neighbours(chunks)]


def _extent(run: Sequence[PartChunk]) -> tuple[int, int]:
    """The place of neighbours in their part, and their bytes."""
    start = run[0].entry.offset - MESSAGE_HEADER_SIZE
    return start, run[-1].entry.offset + run[-1].entry.size - start


class ShardSink(Sink):
    """A folder of RRDs of one store, each of at most ``shard_bytes``; a larger chunk gets one of its own.

    Guarantee: nothing is there before all shards are written and have arrived. On a file system they appear in one
    step; in an object store one after the other, and are taken back when that fails.
    """

    def __init__(self, destination: Location, store: StoreEntry, shard_bytes: int) -> None:
        if shard_bytes <= 0:
            raise UsageError(f"shard_bytes must be positive, not {shard_bytes}")
        self.destination = destination
        self._store = store
        self._shard_bytes = shard_bytes

    def begin(self, work: Work, staging: Staging) -> RrdParts:  # noqa: ARG002
        """Nothing needs to be prepared."""
        return RrdParts((self._store,) * len(work.tasks), str(self.destination))

    def commit(self, ran: Ran, staging: Staging) -> int:
        """Divide the chunks among shards."""
        destination = self.destination
        folder = Folder.at(destination) if isinstance(destination, ObjectUrl) else staging.folder.sub("shards")
        shards: list[Shard] = []
        finished: list[str] = []
        with writing(str(destination)):
            folder.make()
            try:
                for chunks in _divided(ran.chunks, self._shard_bytes):
                    self._write(chunks, folder, staging, shards)
                for shard in shards:
                    shard.file.finish()
                    finished.append(shard.name)
            except BaseException:
                for shard in shards:
                    shard.file.discard()
                folder.delete(finished)
                raise
            if not isinstance(destination, ObjectUrl):
                sync_folder(staging.local / "shards")
                (staging.local / "shards").replace(destination)
                sync_folder(destination.parent)
        return sum(shard.size for shard in shards)

    def _write(self, chunks: Sequence[PartChunk], folder: Folder, staging: Staging, shards: list[Shard]) -> None:
        """Write chunks into the next shard, or into several where the footer is larger than was thought."""
        shard = Shard(folder, f"shard-{len(shards):05d}.rrd", staging, str(self.destination))
        shards.append(shard)
        shard.append(self._store, chunks)
        shard.seal()
        if shard.size > self._shard_bytes and len(chunks) > 1:
            shards.pop().file.discard()
            half = len(chunks) // 2
            self._write(chunks[:half], folder, staging, shards)
            self._write(chunks[half:], folder, staging, shards)


def _divided(chunks: Sequence[PartChunk], shard_bytes: int) -> Iterator[list[PartChunk]]:
    """The chunks of each shard, by what their footer is going to take, about."""
    some: list[PartChunk] = []
    size = _HEAD_BYTES
    for chunk in chunks:
        more = chunk.entry.size + _FOOTER_BYTES_A_CHUNK
        if some and size + more > shard_bytes:
            yield some
            some, size = [], _HEAD_BYTES
        some.append(chunk)
        size += more
    if some:
        yield some


def write_rrd_shards(
    destination: Location, store: StoreEntry, shard_bytes: int, work: Work, options: RunOptions
) -> RunReport:
    """Run work and commit its chunks as a folder of RRDs; see :class:`ShardSink`."""
    if isinstance(destination, ObjectUrl):
        is_taken = Folder.at(destination).exists()
    else:
        is_taken = destination.exists() and (not destination.is_dir() or any(destination.iterdir()))
    if is_taken:
        raise WriteError(
            "is there already", path=str(destination), hint="Shards go into a folder that is new or empty."
        )
    return write_to(ShardSink(destination, store, shard_bytes), work, options)
