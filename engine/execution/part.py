"""One task, from its split to a part file and the rows that describe it. The same function under every executor."""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ..failing import writing
from ..phases import ENCODE, WRITE, Clock, measuring, phase
from ..reports import SizeHistogram
from ..rrd import ChunkEntry, MessageWriter, StoreEntry, digests_of
from .chunk_rows import RowWriter
from .failures import failure_to_dict, is_transient
from .folders import Folder, NewFile
from .quarantine import quarantining, rows_as_bytes
from .staging import Staging
from .work import Work

PART_SUFFIX = ".part"
DONE_SUFFIX = ".done"
QUARANTINE_SUFFIX = ".quarantine"


@dataclass(frozen=True, slots=True)
class PartJob:
    """What a task needs beside its number: the work, the store its chunks belong to, and where parts go.

    ``stores`` has one entry for each task of the work. With ``digests`` every chunk row carries that of its bytes.
    ``groups``, one for each task, says which tasks need each other: when one fails, the others of its group need not
    begin. Without, all do.
    """

    work: Work
    stores: tuple[StoreEntry, ...]
    folder: str
    destination: str
    digests: bool = False
    groups: tuple[int, ...] = ()

    def run(self, index: int) -> Iterator[pa.RecordBatch]:
        """Run task ``index``: write its part, give its chunk rows, close with a row of kind ``task``.

        A failure that would come again gives a row of kind ``failure``; one that may pass is raised, so that the
        executor tries the task once more. An unfinished part is removed either way.
        """
        staging = Staging(Folder.at(self.folder))
        group = self.groups[index] if self.groups else 0
        if staging.has_failed(group):
            return
        name = f"{index:06d}-{secrets.token_hex(4)}"
        rows = RowWriter(index)
        with writing(self.destination):
            part = staging.folder.new(name + PART_SUFFIX)
        try:
            yield from self._write(index, staging.folder, name, part, rows)
            yield rows.batch()
        except GeneratorExit:
            raise
        except BaseException as error:
            part.discard()
            if is_transient(error) or not isinstance(error, Exception):
                raise
            staging.mark_failed(group)
            failure = RowWriter(index)
            failure.note("failure", failure_to_dict(error, self.work.tasks[index].label))
            yield failure.batch()

    def _write(self, index: int, folder: Folder, name: str, new: NewFile, rows: RowWriter) -> Iterator[pa.RecordBatch]:
        began, started = time.time(), time.perf_counter()
        part = name + PART_SUFFIX
        counts = {"chunks": 0, "rows": 0, "bytes": 0}
        with (
            quarantining() as quarantined,
            warnings.catch_warnings(record=True) as caught,
            measuring() as clock,
        ):
            warnings.simplefilter("always")
            writer = MessageWriter(new.file, self.stores[index], path=self.destination)
            entries: list[ChunkEntry] = []
            for chunk in self.work.run(index):
                with phase(ENCODE):
                    entry = writer.append(chunk)
                counts["chunks"] += 1
                counts["rows"] += entry.header.num_rows
                if self.digests:
                    entries.append(entry)
                else:
                    yield from rows.add(entry, part)
            with phase(WRITE):
                writer.flush()
                with writing(self.destination):
                    new.finish()
            counts["bytes"] = writer.position
        for entry, digest in zip(entries, digests_of(folder.place(part), entries), strict=True):
            yield from rows.add(entry, part, digest)
        if quarantined:
            with writing(self.destination):
                folder.put(name + QUARANTINE_SUFFIX, rows_as_bytes(quarantined))
            rows.note("quarantine", {"file": name + QUARANTINE_SUFFIX})
        for warning in caught:
            rows.note("warning", {"category": warning.category.__name__, "text": str(warning.message)})
        with writing(self.destination):
            folder.put(name + DONE_SUFFIX, json.dumps({"task": index, **counts}).encode(), durable=False)
        seconds = time.perf_counter() - started
        rows.note("task", {**counts, "seconds": seconds, "began": began, **_measured(clock)})


def _measured(clock: Clock) -> dict[str, Any]:
    """What a task tells of itself for the report of the run."""
    return {
        "phases": clock.seconds,
        "passed": clock.passed_bytes,
        "sizes_in": SizeHistogram.of(clock.sizes_in).counts,
        "worker": f"{socket.gethostname()}:{os.getpid()}",
    }
