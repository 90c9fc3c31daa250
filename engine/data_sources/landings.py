"""A landing folder as a streaming source: ``spark.readStream.format("chunkmill").load("landing/")``.

Its batches are entries of a landing log, like those of an ingestion: settled files are written to the log before Spark
learns of them. An offset is the number of an entry and the name of its log, so that a checkpoint identifies its log.
Guarantee: a repeated batch has the same files.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from ...readers import all_suffixes
from ..errors import ReadError, UsageError
from ..execution import noting_task
from ..ingest import (
    MAX_BYTES,
    MAX_FILES,
    LandedFile,
    Landing,
    LandingLog,
    LandingReader,
    Lister,
    SupportsTriggerAvailableNow,
    file_at,
)
from ..locations import located
from ..task_context import as_task
from ..units import bytes_of, seconds_of
from .options import Request, flag
from .reading import ChunkTask, chunk_tasks

OPTIONS: Final = ("log", "settle", "every", "maxFilesPerTrigger", "maxBytesPerTrigger", "ignoreCorruptFiles")
"""The options of a stream, besides those for reading its files."""

_LOGS: Final = ".chunkmill"
_PATIENCE: Final = 3
"""The number of times that an available-now query waits for files that are still being written."""

logger = logging.getLogger("chunkmill")


@dataclass(frozen=True, slots=True)
class Watch:
    """The options of a stream, checked: the landing folder, and when its files are taken.

    ``log`` is the place of the landing log; None: in the landing folder, under a name of its own for each query.
    """

    folder: str
    suffixes: tuple[str, ...]
    log: str | None
    settle: float
    every: float
    max_files: int
    max_bytes: int
    ignores_corrupt: bool

    @classmethod
    def of(cls, request: Request, options: Mapping[str, str]) -> Watch:
        """Check the options. Raises ``UsageError``."""
        suffixes = all_suffixes() if request.row is None else request.row.suffixes
        if len(request.paths) != 1 or not suffixes:
            raise UsageError(
                "a stream reads exactly one landing folder",
                hint='spark.readStream.format("chunkmill").load("landing/")',
            )
        max_files = options.get("maxfilespertrigger", str(MAX_FILES))
        if not max_files.isdecimal() or max_files == "0":
            raise UsageError(f"option 'maxFilesPerTrigger': {max_files!r} is not a number of files")
        max_bytes = options.get("maxbytespertrigger")
        return cls(
            str(located(request.paths[0])),
            suffixes,
            None if "log" not in options else str(located(options["log"])),
            seconds_of(options.get("settle", "1s")),
            seconds_of(options.get("every", "1s")),
            int(max_files),
            MAX_BYTES if max_bytes is None else bytes_of(max_bytes),
            flag("ignoreCorruptFiles", options),
        )

    def place_of(self, log: str) -> str:
        """The folder of a log, by its name in the offsets."""
        return self.log if self.log is not None else str(located(self.folder) / _LOGS / log)


class _Arrivals:
    """The landing folder of one query, and its log."""

    def __init__(self, watch: Watch, log: str) -> None:
        lister = Lister(watch.folder, settle_seconds=watch.settle, suffixes=watch.suffixes)
        self.log = LandingLog(located(log))
        self.landing = Landing(lister, self.log, max_files=watch.max_files, max_bytes=watch.max_bytes)
        self.entries = LandingReader(log)
        self._watch = watch
        self._next = time.monotonic()

    def look(self) -> None:
        """Offer new files, unless that happened a moment ago."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._watch.every
            self.landing.offer()

    def take_what_is_there(self) -> None:
        """Offer all files; young ones get time to settle."""
        for _ in range(_PATIENCE + 1):
            self.landing.offer_all()
            if not self.landing.glance.waiting:
                break
            time.sleep(self._watch.settle)
        self.entries.prepareForTriggerAvailableNow()


class _LandedTask(NamedTuple):
    """A task over a file, as it was when it was offered."""

    task: ChunkTask
    file: LandedFile


@dataclass(frozen=True)
class _LandedPartition(InputPartition):
    """One Spark task."""

    value: _LandedTask


Planner = Callable[[Sequence[str], Request], Sequence[ChunkTask]]
"""Makes the tasks over files."""


class LandingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the recordings of a landing folder as they arrive, one log entry per batch."""

    def __init__(self, request: Request, watch: Watch, plan: Planner = chunk_tasks) -> None:
        self._request = request
        self._watch = watch
        self._plan = plan
        self._name = "" if watch.log is not None else secrets.token_hex(8)
        self._takes_what_is_there = False
        self._arrivals: dict[str, _Arrivals] = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """The beginning of a query without a checkpoint: before the first entry of a log of its own.

        Raises ``UsageError`` if the named log belongs to another query, with merged entries.
        """
        if self._watch.log is not None and self._of(self._name).log.merged:
            raise UsageError(
                "the first entries of this landing log were removed: it belongs to a query with a checkpoint",
                path=self._watch.log,
                hint="Start with that checkpoint (checkpointLocation), or give another folder as the option 'log'.",
            )
        return {"log": self._name, "entry": 0}

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: ARG002, N802
        """Return the next entry after ``start``, if any; look for new files if there is none yet.

        Raises ``SourceMissingError`` if the landing folder is missing, ``ReadError`` if the log is torn.
        """
        with noting_task(self._watch.folder):
            if start is None and self._watch.log is None:
                raise UsageError("before Spark 4.2 a stream needs the option 'log': a folder for its landing log")
            log = self._name if start is None else str(start["log"])
            arrivals = self._of(log)
            begun = None if start is None else int(start["entry"])
            if self._takes_what_is_there:
                self._takes_what_is_there = False
                arrivals.take_what_is_there()
            elif begun is None or arrivals.log.newest() <= begun:
                arrivals.look()
            previous = None if begun is None else {"entry": begun}
            return {"log": log, **arrivals.entries.latestOffset(previous)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """Limit the stream to the files present at the next look."""
        self._takes_what_is_there = True

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks over the files of the entries.

        A file that vanished or changed since it was offered is skipped, and offered again in its present state. Raises
        ``ReadError`` if one is damaged, unless damaged files are ignored.
        """
        # A process that repeats a batch may have another name for the log.
        arrivals = self._of(str(end["log"]))
        landed: list[_LandedTask] = []
        for number in range(int(start["entry"]) + 1, int(end["entry"]) + 1):
            files = arrivals.log.files(number)
            now = {file: file_at(file.path) for file in files}
            odd = [file for file in files if now[file] != file]
            for file in odd:
                logger.warning("%s %s before it was read", file.path, "changed" if now[file] else "was removed")
            gone = [file.path for file in odd if now[file] is None]
            arrivals.landing.forget(number, gone, [file for file in odd if now[file] is not None])
            for file in files:
                if file not in odd:
                    landed += [_LandedTask(task, file) for task in self._tasks(file.path)]
        return [
            _LandedPartition(_LandedTask(replace(task, value=number), file))
            for number, (task, file) in enumerate(landed)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one split. Raises ``ReadError``, also if the file changed meanwhile."""
        if not isinstance(partition, _LandedPartition):
            return  # Spark invents a partition if there are none
        task, file = partition.value
        try:
            yield from as_task(task.batches(self._request))
        except ReadError as error:
            if not self._watch.ignores_corrupt or error.transient:
                raise
            logger.error("the rest of it is skipped, because of ignoreCorruptFiles: %s", error)
        with noting_task(file.path):
            if file_at(file.path) != file:
                raise ReadError(
                    "the file changed while it was read",
                    path=file.path,
                    hint="Start the query again: it reads the new content. Programs should write a recording under "
                    "another name (drive.mcap.tmp) and then rename it; or choose a longer 'settle'.",
                    transient=True,
                )

    def commit(self, end: dict[str, Any]) -> None:
        """Merge done entries of the log, if that pays."""
        self._of(str(end["log"])).landing.compact(int(end["entry"]))

    def _tasks(self, path: str) -> Sequence[ChunkTask]:
        try:
            return self._plan([path], self._request)
        except ReadError as error:
            if not self._watch.ignores_corrupt or error.transient:
                raise
            logger.error("it is skipped, because of ignoreCorruptFiles: %s", error)
            return []

    def _of(self, log: str) -> _Arrivals:
        if log not in self._arrivals:
            self._arrivals[log] = _Arrivals(self._watch, self._watch.place_of(log))
        return self._arrivals[log]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_arrivals": {}}  # a task needs no more than the options
