"""Results and inputs that stay in the scratch folder as parts, and come back by reference."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..chunk import Chunk
from ..failing import writing
from ..rrd import ChunkEntry, MessageWriter, StoreEntry, VerifiedPayload
from .part import PART_SUFFIX, PartJob
from .runner import RunOptions, run_parts, scratch_folder
from .staging import Staging
from .work import Work

_STORE = StoreEntry("recording", "chunkmill", "scratch")


class ScratchFolder:
    """A scratch folder that is removed when nothing refers to it any more, at the latest when Python ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)

    def keeping(self, payload: VerifiedPayload) -> VerifiedPayload:
        """The same payload, as long as which the folder stays (in this process)."""
        return _ScratchPayload(*_facts(payload), folder=self)


@dataclass(frozen=True, slots=True)
class _ScratchPayload(VerifiedPayload):
    """A payload in a scratch part, which stays as long as its payloads do (in the process that made it)."""

    folder: ScratchFolder | None = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return VerifiedPayload, _facts(self)


def _facts(p: VerifiedPayload) -> tuple[str, int, int, bytes | None, bytes, int | None, StoreEntry | None]:
    return p.path, p.offset, p.size, p.chunk_id, p.digest, p.uncompressed_size, p.store


@dataclass(frozen=True, slots=True)
class ScratchPart:
    """A part in a scratch folder: chunks one after the other. Pickles; the folder belongs to who made it."""

    path: str
    size: int
    entries: tuple[ChunkEntry, ...]
    folder: ScratchFolder | None = field(default=None, repr=False, compare=False)

    def chunks(self) -> Iterator[Chunk]:
        """The chunks, undecoded."""
        for entry in self.entries:
            yield _lazy(self.path, entry, self.folder)

    def __reduce__(self) -> tuple[Any, ...]:
        return ScratchPart, (self.path, self.size, self.entries)


def _lazy(path: str, entry: ChunkEntry, folder: ScratchFolder | None) -> Chunk:
    payload = _ScratchPayload(path, entry.offset, entry.size, entry.header.chunk_id, folder=folder)
    return Chunk.lazy(entry.header, payload)


def collect_chunks(work: Work, options: RunOptions) -> list[Chunk]:
    """Run ``work`` into scratch parts and give its chunks, in order, undecoded."""
    staging = Staging.within(scratch_folder())
    try:
        stores = (_STORE,) * len(work.tasks)
        chunks, _ = run_parts(PartJob(work, stores, str(staging.local), str(staging.local)), staging, options)
    except BaseException:
        staging.remove()
        raise
    folder = ScratchFolder(staging.local)
    return [_lazy(str(staging.local / c.part), c.entry, folder) for c in chunks]


def spool(chunks: Iterable[Chunk], part_bytes: int) -> list[ScratchPart]:
    """Write chunks to scratch parts of about ``part_bytes`` each."""
    staging = Staging.within(scratch_folder())
    folder = ScratchFolder(staging.local)
    parts: list[ScratchPart] = []
    remaining = iter(chunks)
    while (part := _spool_one(remaining, folder, len(parts), part_bytes)) is not None:
        parts.append(part)
    return parts


def _spool_one(chunks: Iterator[Chunk], folder: ScratchFolder, index: int, part_bytes: int) -> ScratchPart | None:
    first = next(chunks, None)
    if first is None:
        return None
    path = folder.path / f"{index:06d}{PART_SUFFIX}"
    entries: list[ChunkEntry] = []
    with writing(str(folder.path)):
        file = path.open("wb", buffering=0)
    with file:
        writer = MessageWriter(file, _STORE, path=str(folder.path))
        entries.append(writer.append(first))
        uncompressed = entries[0].uncompressed_size
        while uncompressed < part_bytes and (chunk := next(chunks, None)) is not None:
            entries.append(writer.append(chunk))
            uncompressed += entries[-1].uncompressed_size
        writer.flush()
        size = file.tell()
    return ScratchPart(str(path), size, tuple(entries), folder)
