"""Tasks that pass messages on undecoded: each copies its run of a file, by the footer's word, without a chunk object.

Where all tasks of a run do so, their sizes are known beforehand, and each writes right into its region of the one file
that will be committed. Where a file turns out not to be laid out as its footer has it, its task goes on as any other.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ..chunk import Chunk
from ..failing import writing
from ..phases import passed_through
from ..rrd import FilePassage, Listed, Passage, PassedRun, StoreEntry
from .chunk_rows import Note
from .folders import Folder, LocalFolder
from .work import Work


@runtime_checkable
class PassingWork(Protocol):
    """Work of which some tasks only pass messages on."""

    def passage(self, index: int) -> Passage | None:
        """What a task passes on, where that is all that it does."""
        ...

    def pieces(self, index: int) -> Iterator[Chunk | PassedRun]:
        """What comes of a task, in order: chunks, and between them runs of messages that it only passes on."""
        ...


def pieces_of(work: Work, index: int) -> Iterator[Chunk | PassedRun]:
    """What comes of task ``index`` of any work, with what is only passed on in runs."""
    return work.pieces(index) if isinstance(work, PassingWork) else work.run(index)


def passage_of(work: Work, index: int) -> Passage | None:
    """What task ``index`` of any work passes on, where that is all that it does."""
    return work.passage(index) if isinstance(work, PassingWork) else None


@dataclass(frozen=True, slots=True)
class Regions:
    """A file in the staging folder on ``host``, and where in it each task begins to write.

    Only tasks on that host use it: file systems differ in what they make of a file that two machines write.
    """

    file: str
    starts: tuple[int, ...]
    host: str

    @classmethod
    def of(cls, file: str, start: int, sizes: Sequence[int]) -> Regions:
        """One behind the other, from ``start`` on."""
        return cls(file, tuple(accumulate(sizes, initial=start))[:-1], socket.gethostname())


@dataclass(frozen=True, slots=True)
class PassedPart:
    """What a task wrote or passed on: to ``size`` bytes of a file in the staging folder, from ``start``."""

    task: int
    file: str
    start: int
    size: int
    passage: Listed
    at_source: bool = False
    """The messages are still where they were read."""


@dataclass(frozen=True, slots=True)
class Passing:
    """How the tasks of a run pass messages on; ``regions`` where all of them do.

    With ``later``, who commits copies the messages of the others from where they lie: once instead of twice.
    """

    regions: Regions | None = None
    later: bool = False

    @property
    def is_done_by_driver(self) -> bool:
        """Whether the driver can do it as well as a worker on its machine: there is no part to write."""
        return self.later or self.regions is not None

    def run(
        self, index: int, passage: Passage, store: StoreEntry, folder: Folder, part: str, destination: str
    ) -> dict[str, Any] | None:
        """Copy what task ``index`` passes on; tells where it lies now. None where it can't be copied like that.

        A region is written as often as its task is tried, always with the same bytes.
        """
        size = passage.size_in(store)
        if self.regions is not None and self.regions.host == socket.gethostname():
            start = self.regions.starts[index]
            with writing(destination):
                file = Path(folder.place(self.regions.file)).open("r+b", buffering=0)  # noqa: SIM115 - closed below
            with file:
                file.seek(start)
                if not passage.copy(file.fileno(), start, store, destination=destination):
                    return None
            return {"file": self.regions.file, "start": start, "size": size}
        if self.later and isinstance(passage, FilePassage):
            if not passage.lies_as_listed():
                return None
            passed_through(passage.source_size)
            return {"file": part, "start": 0, "size": size, "at_source": True}
        if not isinstance(folder, LocalFolder):
            return None
        with writing(destination):
            new = folder.new(part)
        try:
            if not passage.copy(new.file.fileno(), 0, store, destination=destination):
                return None
            with writing(destination):
                new.finish()
        finally:
            new.discard()
        return {"file": part, "start": 0, "size": size}


def passed_parts(work: Work, notes: Sequence[Note]) -> list[PassedPart]:
    """What tasks wrote and did not give a row for each chunk of, by their notes."""
    return list(_passed_parts(work, notes))


def _passed_parts(work: Work, notes: Sequence[Note]) -> Iterator[PassedPart]:
    for note in notes:
        if note.kind == "listing":
            listed = Listed(note.data["table"])
            yield PassedPart(note.task, note.data["part"], 0, listed.framed_size, listed)
        place = note.data.get("passed_to") if note.kind == "task" else None
        if place is not None:
            passage = passage_of(work, note.task)
            assert passage is not None
            at_source = place.get("at_source", False)
            yield PassedPart(note.task, place["file"], place["start"], place["size"], passage, at_source)


def task_counts(passage: Passage, store: StoreEntry) -> dict[str, int]:
    """What is counted of a task that passes messages on."""
    return {"chunks": passage.chunks, "rows": passage.rows, "bytes": passage.size_in(store)}
