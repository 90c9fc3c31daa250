"""A running ingestion: the loop that looks for files, the runner of their batches, the upkeep of the store."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..errors import ReadError, ReadWarning, SessionError, SourceMissingError, UsageError, WriteError
from ..execution import Lease, RunOptions
from ..locations import Location
from ..recordings import RecordingsFolder, StoreWriter, compact_store
from ..spark import Terminated, give_up_start, interruptible, raise_in_thread
from ..units import counted, size
from ..writers import ExportSpec, exported_entries, write_lerobot
from .batch import BatchRunner
from .checkpoint import Checkpoint
from .files import BatchResult, LandedFile
from .landing import Landing
from .metrics import IngestListener
from .quarantine import FileQuarantine

if TYPE_CHECKING:
    from .spark_query import SparkQuery

logger = logging.getLogger("chunkmill.ingest")

_KEPT: Final = 10
"""The newest versions, which stay however old they are."""

_RECENT: Final = 100
_WAIT: Final = 0.05
_CLEARING: Final = 1.0
_PATIENCE: Final = 3
"""The number of times that a single run waits for files that are still being written."""


class Upkeep:
    """Compacts the store after every ``compact_every`` batches, and vacuums it after the first and at intervals.

    ``keep_seconds`` is how long old versions stay for their readers.
    """

    def __init__(self, writer: StoreWriter, keep_seconds: float, compact_every: int | None = None) -> None:
        self._writer = writer
        self._keep = keep_seconds
        self._compact_every = compact_every
        self._batches = 0
        self._next = time.monotonic()  # a process that is killed, or run by cron, ends before the next time

    @property
    def _pause(self) -> float:
        return min(max(self._keep / 4, 60.0), 3600.0)

    def after_batch(self) -> None:
        """Do the upkeep that is due after a commit. Raises ``WriteError``."""
        self._batches += 1
        compacts = self._compact_every is not None and self._batches >= self._compact_every
        vacuums = time.monotonic() >= self._next
        if not compacts and not vacuums:
            return
        try:
            lease = Lease.take(self._writer.folder.path, "upkeep", wait=False)
        except WriteError as error:
            if not error.transient:
                raise
            logger.info("another process maintains the store: %s", error)
            return
        with lease:
            if compacts:
                self._batches = 0
                self._compact()
            if vacuums:
                self._next = time.monotonic() + self._pause
                self._writer.vacuum(keep=_KEPT, older_than_seconds=self._keep)

    def _compact(self) -> None:
        """Join small files if that pays. Damage to old recordings does not stop new ones."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ReadWarning)
            try:
                report = compact_store(self._writer, thorough=False)
            except ReadError as error:
                logger.warning("the store was not compacted: %s", error)
                return
        for text in dict.fromkeys(str(warning.message) for warning in caught):
            logger.warning("%s", text)
        if report.versions:
            logger.info(
                "compacted: %d shards -> %d, %s written in %.1f s",
                report.shards_before,
                report.shards_after,
                size(report.written),
                report.seconds,
            )


@dataclass(frozen=True, slots=True)
class LeRobotSink:
    """The LeRobot dataset ``destination``, which follows the recordings of a store.

    A recording that does not fit the specification is left out with a logged warning, and stops nothing.
    """

    destination: Path
    spec: ExportSpec
    run: RunOptions

    def follow(self, folder: RecordingsFolder) -> None:
        """Bring the dataset up to date; without changes, nothing is written. Raises ``WriteError``."""
        version, live = folder.newest_live()
        if version is None or not len(live):
            return
        given = exported_entries(folder, live)
        try:
            report = write_lerobot(
                given,
                self.destination,
                self.spec,
                executor=self.run.executor,
                master=self.run.master,
                append=True,
                on_error="skip",
                progress=False,
            )
        except UsageError as error:
            logger.warning("%s is unchanged: %s", self.destination, error)
            return
        for account in report.accounts:
            if account.reason is not None:
                logger.warning("%s: %s has no episode: %s", self.destination, account.recording, account.reason)
        if report.accounts or report.removed:
            done = (counted(report.episodes, "episode"), counted(report.frames, "frame"))
            logger.info("%s: %s, %s", self.destination, *done)


@dataclass(frozen=True, kw_only=True, slots=True)
class IngestParts:
    """The parts that an ingestion is made of."""

    query_id: str
    source: str
    home: Location
    checkpoint: Checkpoint
    landing: Landing
    runner: BatchRunner
    writer: StoreWriter
    quarantine: FileQuarantine
    leases: tuple[Lease, ...]
    run: RunOptions
    settle: float
    listeners: tuple[IngestListener, ...]
    upkeep: Upkeep
    lerobot: LeRobotSink | None = None


class IngestQuery:
    """A running ingestion, made by :meth:`Ingest.start`. Thread-safe."""

    def __init__(self, parts: IngestParts, *, once: bool, every: float) -> None:
        self._parts = parts
        self._once = once
        self._every = every
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._done = parts.writer.version.batches.get(parts.query_id, 0) if parts.writer.version else 0
        self._running: int | None = None
        self._is_interrupted = False
        self._executing: _Executing | None = None
        self._recent: deque[BatchResult] = deque(maxlen=_RECENT)
        self._thread = threading.Thread(target=self._run, name="chunkmill-ingest", daemon=True)
        self._thread.start()

    @property
    def id(self) -> str:
        """The id of the ingestion, the same after every restart."""
        return self._parts.query_id

    @property
    def is_active(self) -> bool:
        """Whether the ingestion is running."""
        return not self._ended.is_set()

    @property
    def recent(self) -> list[BatchResult]:
        """Results of the last hundred batches of this run, oldest first."""
        return list(self._recent)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait at most ``timeout`` seconds for the end, and return whether the ingestion has ended.

        If the ingestion failed, raises its error.

        While this waits, SIGTERM ends the ingestion at once, unless the program has its own handler.
        """
        with interruptible():
            try:
                if not self._ended.wait(timeout):
                    return False
            except Terminated:
                self.interrupt()
                raise
        self._thread.join()
        if self._error is not None:
            raise self._error
        return True

    def stop(self) -> None:
        """Stop after the running batch, without waiting for it.

        :meth:`await_termination` waits for the end.
        """
        self._stopping.set()

    def interrupt(self) -> None:
        """Stop at once. The running batch is rolled back within a second or two."""
        if self._is_interrupted:
            return
        self._is_interrupted = True
        self._stopping.set()
        if self._executing is not None:
            self._executing.interrupt()
        self._ended.wait(_CLEARING)

    def _tell(self, event: Callable[[IngestListener], None]) -> None:
        for listener in self._parts.listeners:
            event(listener)

    # --- the loop

    def _run(self) -> None:
        parts = self._parts
        reason = "done"
        try:
            self._tell(lambda to: to.started(parts.query_id, parts.source, str(parts.home)))
            self._finish_last()
            executing = self._executing = _Inline(self) if parts.run.executor == "inline" else _Spark(self)
            try:
                if self._once:
                    self._take_what_is_there(executing)
                else:
                    self._watch(executing)
            finally:
                executing.end()
            if self._stopping.is_set():
                reason = "stopped"
        except BaseException as error:  # noqa: BLE001 (raised by who waits)
            reason = f"failed: {error}"
            self._error = error
            if isinstance(error, Exception) and self._running is not None:
                number, failure = self._running, error
                self._tell(lambda to: to.batch_failed(number, failure))
        finally:
            for lease in parts.leases:
                lease.release()
            self._tell(lambda to: to.stopped(reason))
            self._ended.set()

    def _finish_last(self) -> None:
        """Complete a run that was interrupted right after a commit."""
        self._parts.landing.log.check(self._done)
        if self._done:
            with contextlib.suppress(SourceMissingError):  # the entry may be gone with an earlier checkpoint
                self._parts.runner.finish(self._parts.landing.log.files(self._done))
        self._follow()

    def _follow(self) -> None:
        """Bring the LeRobot dataset up to date, if there is one and no batch waits."""
        if self._parts.lerobot is not None and self._is_idle():
            self._parts.lerobot.follow(self._parts.writer.folder)

    def _watch(self, executing: _Executing) -> None:
        """Look at intervals, and offer new files once the previous entry is done."""
        executing.begin(once=False)
        while not self._stopping.is_set():
            began = time.monotonic()
            if self._is_idle():
                self._offer()
            while not self._is_idle() and not self._stopping.is_set():
                executing.step()
            if self._stopping.wait(max(0.0, self._every - (time.monotonic() - began))):
                break
        while executing.is_busy:
            executing.step()

    def _take_what_is_there(self, executing: _Executing) -> None:
        """Offer all files, entry by entry, and run the entries; young files get time to settle."""
        patience = _PATIENCE
        while not self._stopping.is_set():
            if self._offer(everything=True) or not self._is_idle():
                executing.begin(once=True)
                while not self._is_idle() and not self._stopping.is_set():
                    executing.step()
                while executing.is_busy:
                    executing.step()
                executing.end()
                continue
            if not self._parts.landing.glance.waiting or patience == 0:
                break
            patience -= 1
            self._stopping.wait(self._parts.settle)

    def _is_idle(self) -> bool:
        return self._parts.landing.log.newest() <= self._done

    def _offer(self, *, everything: bool = False) -> bool:
        """Append the next entry, or entries for all files; return whether there were any."""
        parts = self._parts
        retries = parts.quarantine.pending_retries()
        again = {path for paths in retries.values() for path in paths}
        if everything:
            numbers = parts.landing.offer_all(again)
        else:
            number = parts.landing.offer(again)
            numbers = [] if number is None else [number]
        glance = parts.landing.glance
        self._tell(lambda to: to.looked(glance.ready, glance.waiting, glance.oldest_seconds))
        if again and numbers:
            taken = {file.path for n in numbers for file in parts.landing.log.files(n)}
            parts.quarantine.offered_again(taken & again)
        return bool(numbers)

    def handle(self, number: int, files: Sequence[LandedFile]) -> None:
        """Run one batch. The executor calls this for each entry of the landing log, in order."""
        parts = self._parts
        if number <= self._done and parts.writer.is_done(parts.query_id, number):
            parts.runner.run(number, files)  # completes an interrupted run
            return
        self._tell(lambda to: to.batch_began(number, len(files), sum(file.size for file in files)))
        self._running = number
        result = parts.runner.run(number, files)
        self._running = None
        self._recent.append(result)
        self._done = number
        self._tell(lambda to: to.batch_done(result))
        parts.landing.compact(number)
        parts.upkeep.after_batch()
        self._follow()


class _Executing:
    """An executor of the query: it hands entries to :meth:`IngestQuery.handle`."""

    def __init__(self, query: IngestQuery) -> None:
        self.query = query
        self.parts = query._parts  # noqa: SLF001 (same module)

    is_busy = False
    """Whether a batch runs."""

    def begin(self, *, once: bool) -> None:
        """Start."""

    def step(self) -> None:
        """Run an entry, or wait a little for one that runs. Raises what a batch raised."""

    def end(self) -> None:
        """Stop."""

    def interrupt(self) -> None:
        """Have the running batch end at once."""


class _Inline(_Executing):
    """Runs batches on this thread."""

    def step(self) -> None:
        """Run the next entry."""
        done = self.query._done  # noqa: SLF001 (same module)
        if self.parts.landing.log.newest() > done:
            self.query.handle(done + 1, self.parts.landing.log.files(done + 1))

    def interrupt(self) -> None:
        """Have the running batch end at once."""
        thread = self.query._thread.ident  # noqa: SLF001 (same module)
        if thread is not None:
            raise_in_thread(thread)


class _Spark(_Executing):
    """Lets a Structured Streaming query run batches."""

    def __init__(self, query: IngestQuery) -> None:
        super().__init__(query)
        self._query: SparkQuery | None = None
        self._begun_at = 0
        self._busy = threading.Event()

    @property
    def is_busy(self) -> bool:  # type: ignore[override]
        """Whether a batch runs."""
        return self._busy.is_set()

    def begin(self, *, once: bool) -> None:
        """Start the query."""
        from .spark_query import SparkQuery

        done = self._begun_at = self.query._done  # noqa: SLF001 (same module)
        self._query = SparkQuery(self.parts.checkpoint, self._handle, self.parts.run, once=once, start=done)

    def _handle(self, number: int, files: Sequence[LandedFile]) -> None:
        if self.query._stopping.is_set():  # noqa: SLF001 (same module)
            raise _StoppedError
        self._busy.set()
        try:
            self.query.handle(number, files)
        finally:
            self._busy.clear()

    def step(self) -> None:
        """Wait a little."""
        try:
            if self._query is None or not self._query.wait(_WAIT) or self.query._stopping.is_set():  # noqa: SLF001
                return
        except _StoppedError:
            return  # the batch was about to begin
        self._query.check()
        done = self.query._done  # noqa: SLF001 (same module)
        if not self.query._is_idle():  # noqa: SLF001 (same module)
            if done > self._begun_at:
                self.begin(once=True)  # before Spark 4.2, a run after a crash only repeats the interrupted batch
                return
            raise SessionError(
                "the streaming query ended before all entries of the landing log were done",
                hint=f"Its checkpoint is ahead of the store: remove {self.parts.checkpoint.spark}, and start again. "
                "Nothing is lost or ingested twice.",
            )

    def end(self) -> None:
        """Stop the query."""
        if self._query is not None:
            self._query.stop()

    def interrupt(self) -> None:
        """Have the running batch end at once, or the start of the session."""
        if self._query is not None:
            self._query.interrupt()
        else:
            give_up_start()


class _StoppedError(Exception):
    """No batch may begin any more."""
