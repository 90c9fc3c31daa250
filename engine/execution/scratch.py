"""Results and inputs that stay in the scratch folder as parts, and are passed by reference."""

from __future__ import annotations

import itertools
import math
import shutil
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from ..chunk import Chunk
from ..errors import writing
from ..limits import SPLIT_BYTES
from ..rrd import (
    ChunkEntry,
    ChunkTable,
    MessageWriter,
    StoreEntry,
    VerifiedPayload,
    open_positional,
)
from .commit import PART_SUFFIX, Staging
from .sink import RrdParts, run_work
from .small_chunks import SmallChunks, SmallChunkWriter
from .stage import RunOptions
from .work import Work

STORE = StoreEntry("recording", "chunkmill", "scratch")
"""The recording of messages in scratch parts."""

_LONG: Final = 0.02
"""If an iterator takes longer for a chunk, in seconds, that chunk is passed on before the next is requested."""

_MOST_SPOOLED: Final = 4096


class ScratchFolder:
    """A scratch folder, removed when nothing refers to it, or when Python ends.

    The surrounding folder ``within`` is kept until then.
    """

    def __init__(self, path: Path, within: ScratchFolder | None = None) -> None:
        self.path = path
        self._within = within
        weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)


@contextmanager
def part_writer(path: Path, *, digests: bool = False) -> Iterator[MessageWriter]:
    """Write a part in a scratch folder; remove it after a failure."""
    folder = str(path.parent)
    with writing(folder):
        file = path.open("wb", buffering=0)
    try:
        with file:
            writer = MessageWriter(file, STORE, path=folder, digests=digests)
            yield writer
            writer.flush()
    except BaseException:
        path.unlink(missing_ok=True)
        raise


@dataclass(frozen=True, slots=True)
class _ScratchPayload(VerifiedPayload):
    """A payload in a scratch part. In the process that made it, it keeps the part from removal."""

    folder: ScratchFolder | None = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        where = self.path, self.offset, self.size, self.chunk_id
        return VerifiedPayload, (*where, self.digest, self.uncompressed_size, self.store)


@dataclass(frozen=True, slots=True)
class ScratchPart:
    """A part in a scratch folder: a sequence of chunks. Picklable; the folder's creator owns it.

    ``entries`` describe the messages, and pickle as a chunk table; ``small`` are batches of small chunks. If
    ``came_slowly``, the part ended early, as chunks came slowly.
    """

    path: str
    size: int
    entries: tuple[ChunkEntry, ...] | bytes
    small: tuple[SmallChunks, ...] = ()
    folder: ScratchFolder | None = field(default=None, repr=False, compare=False)
    came_slowly: bool = False

    def chunks(self) -> Iterator[Chunk]:
        """The chunks, in order, undecoded."""
        entries = _entries_of(self.entries) if isinstance(self.entries, bytes) else self.entries
        if not self.small:
            yield from (lazy_chunk(self.path, entry, self.folder) for entry in entries)
            return
        messages, batches = iter(entries), deque(self.small)
        waiting: dict[int, Chunk] = {}
        with open_positional(self.path) as file:
            for at in range(len(entries) + sum(batch.count for batch in self.small)):
                if batches and batches[0].first == at:
                    waiting.update(batches.popleft().read(file))
                chunk = waiting.pop(at, None)
                yield lazy_chunk(self.path, next(messages), self.folder) if chunk is None else chunk

    def __reduce__(self) -> tuple[Any, ...]:
        entries = self.entries if isinstance(self.entries, bytes) else _as_stream(self.entries)
        return ScratchPart, (self.path, self.size, entries, self.small)


def _as_stream(entries: Iterable[ChunkEntry]) -> bytes:
    return ChunkTable.of(entries).to_stream()


def _entries_of(stream: bytes) -> tuple[ChunkEntry, ...]:
    return tuple(ChunkTable.from_stream(stream).entries())


def lazy_chunk(path: str, entry: ChunkEntry, folder: ScratchFolder | None, store: StoreEntry | None = None) -> Chunk:
    """Return an undecoded chunk of a scratch part, which keeps its ``folder`` from removal.

    If its message must name ``store``, it is passed on as a chunk of that store.
    """
    size = None if store is None else entry.uncompressed_size
    return Chunk.lazy(entry.header, _ScratchPayload.of(path, entry, uncompressed_size=size, store=store, folder=folder))


def collect_chunks(work: Work, options: RunOptions) -> list[Chunk]:
    """Run ``work`` into scratch parts, and yield its chunks, in order, undecoded."""
    staging = Staging.in_scratch()
    try:
        stores = (STORE,) * len(work.tasks)
        ran = run_work(work, RrdParts(stores, str(staging.local), small=True), staging, options)
    except BaseException:
        staging.remove()
        raise
    folder = ScratchFolder(staging.local)
    keyed_chunks = [((c.task, c.position), lazy_chunk(str(folder.path / c.part), c.entry, folder)) for c in ran.chunks]
    batches = [note for note in ran.notes if note.kind == "small"]
    for note in batches:
        with open_positional(folder.path / note.data["part"]) as file:
            batch = SmallChunks(note.data["first"], note.data["count"], note.data["places"])
            keyed_chunks += [((note.task, position), chunk) for position, chunk in batch.read(file)]
    if batches:
        keyed_chunks.sort(key=itemgetter(0))
    return [chunk for _, chunk in keyed_chunks]


def spool(chunks: Iterable[Chunk]) -> list[ScratchPart]:
    """Write chunks to scratch parts of about 64 MiB each, uncompressed."""
    folder = ScratchFolder(Staging.in_scratch().local)
    remaining = _Awaited(iter(chunks))
    written = (_spool_one(remaining, folder, number) for number in itertools.count())
    parts = [part for part in itertools.takewhile(bool, written) if part is not None]
    remaining.check()
    return parts


def spool_pieces(chunks: Iterable[Chunk]) -> Iterator[ScratchPart]:
    """Write chunks to scratch parts on demand: one chunk, then eight, and so on.

    Slow chunks give smaller parts. A part is removed when nothing refers to it. An error of the iterator is raised
    after the chunks before it.
    """
    remaining = _Awaited(iter(chunks))
    most = 1
    while remaining.error is None:
        folder = ScratchFolder(Staging.in_scratch().local)
        part = _spool_one(remaining, folder, 0, most, waits=False)
        if part is None:
            break
        yield part
        most = min(8 * most, _MOST_SPOOLED)
    remaining.check()


class _Awaited(Iterator[Chunk]):
    """Chunks of an iterator that may end with ``error``; ``is_slow`` if the last one took long."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = chunks
        self.error: Exception | None = None
        self.is_slow = False

    def __next__(self) -> Chunk:
        asked = time.perf_counter()
        try:
            return next(self._chunks)
        except StopIteration:
            raise
        except Exception as error:  # noqa: BLE001 (raised later)
            self.error = error
            raise StopIteration from None
        finally:
            self.is_slow = time.perf_counter() - asked > _LONG

    def check(self) -> None:
        """Raise the iterator's error, if any."""
        if self.error is not None:
            raise self.error


def _spool_one(
    chunks: _Awaited, folder: ScratchFolder, index: int, most: float = math.inf, *, waits: bool = True
) -> ScratchPart | None:
    chunk = next(chunks, None)
    if chunk is None:
        return None
    path = folder.path / f"{index:06d}{PART_SUFFIX}"
    with part_writer(path) as writer:
        spooled = _Spooled(writer)
        while chunk is not None:
            spooled.add(chunk)
            if spooled.size >= SPLIT_BYTES or spooled.count >= most or (chunks.is_slow and not waits):
                break
            chunk = next(chunks, None)
        entries, small = spooled.finish()
        size = writer.position
    return ScratchPart(str(path), size, entries, small, folder, not waits and chunks.is_slow)


class _Spooled:
    """Writes chunks to a file: small ones from memory in batches, others as messages.

    ``size`` is the total size of the chunks in memory, in bytes.
    """

    def __init__(self, messages: MessageWriter) -> None:
        self.count = self.size = 0
        self._messages = messages
        self._waiting = SmallChunkWriter()
        self._entries: list[ChunkEntry] = []
        self._small: list[SmallChunks] = []

    def add(self, chunk: Chunk) -> None:
        size = self._waiting.takes(chunk, self.count)
        if not size:
            entry = self._messages.append(chunk)
            self._entries.append(entry)
            size = entry.uncompressed_size
        elif self._waiting.is_full:
            self._write_small()
        self.count += 1
        self.size += size

    def finish(self) -> tuple[tuple[ChunkEntry, ...], tuple[SmallChunks, ...]]:
        """Write the remaining chunks; return the locations of all."""
        self._write_small()
        return tuple(self._entries), tuple(self._small)

    def _write_small(self) -> None:
        self._small += self._waiting.write(self._messages.out)
