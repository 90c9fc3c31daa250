"""The Structured Streaming query that hands the entries of a landing log to a function, batch by batch."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import SessionError, UsageError
from ..execution.stage import RunOptions
from ..spark import cancel_jobs_while, raise_in_thread
from .checkpoint import Checkpoint
from .files import LandedFile
from .landing_source import NAME, register_landing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLLING: Final = "100 milliseconds"
"""How often Spark looks for a new entry; a look costs a few milliseconds."""

_NOTING: Final = 2.0
"""Seconds that Spark gets to note a batch as done. Interrupted in that, it leaves drafts, and the batch comes again."""

_CLEARING: Final = 1.0
_STOPPING: Final = 0.3
"""Seconds that an interrupted batch gets to clear up, and then Spark to stop the query."""

_TORN: Final = "next on empty iterator"

Handle = Callable[[int, Sequence[LandedFile]], None]
"""What is done with an entry: its number and its files."""


class SparkQuery:
    """One running query over a landing log. ``start``: the entry after which a query without a checkpoint begins."""

    def __init__(self, checkpoint: Checkpoint, handle: Handle, run: RunOptions, *, once: bool, start: int) -> None:
        self._checkpoint = checkpoint
        self._handle = handle
        self.error: BaseException | None = None
        self._turn = threading.Lock()
        self._thread: int | None = None
        self._is_interrupted = False
        checkpoint.check_spark()
        spark = _session(run)
        register_landing(spark)
        reader = spark.readStream.format(NAME).option("start", str(start))
        frame = reader.load(str(checkpoint.landing))
        writer = frame.writeStream.foreachBatch(self._batch).option("checkpointLocation", _uri(checkpoint.spark))
        trigger = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=POLLING)
        self._query: StreamingQuery = trigger.start()

    def _batch(self, frame: DataFrame, _number: int) -> None:
        """Handle the entries of a micro-batch; ``_number`` is Spark's, which may skip and repeat."""
        with self._turn:
            if self._is_interrupted:
                raise RuntimeError("interrupted")
            self._thread = threading.get_ident()
        try:
            rows = sorted(frame.collect(), key=lambda row: row["entry"])
            for entry, found in groupby(rows, key=lambda row: row["entry"]):
                self._handle(int(entry), [LandedFile(r["path"], r["size"], r["modified_ns"]) for r in found])
        except Exception as error:
            self.error = error
            raise
        except BaseException as error:
            self.error = error
            raise RuntimeError("interrupted") from error  # else the JVM would wait for an answer for ever
        finally:
            with self._turn:
                self._thread = None

    @property
    def is_active(self) -> bool:
        """Whether it runs."""
        return bool(self._query.isActive)

    def wait(self, seconds: float) -> bool:
        """Wait for its end; whether it has come. Raises what a batch raised, or what is wrong with the query."""
        try:
            ended = bool(self._query.awaitTermination(seconds))  # type: ignore[arg-type] # fractions work
        except Exception as failure:
            raise self._told(failure) from failure
        if ended and self.error is not None:
            raise self.error
        return ended

    def check(self) -> None:
        """Raise what ended it, if it has failed."""
        if not self.is_active:
            failure = self._query.exception()
            if failure is not None:
                raise self._told(failure) from failure

    def stop(self) -> None:
        """End it, once Spark has noted that the last batch is done. A batch that runs longer is interrupted."""
        if self._is_interrupted:
            return
        until = time.monotonic() + _NOTING
        with contextlib.suppress(Exception):
            while self.is_active and not self._checkpoint.has_noted_all() and time.monotonic() < until:
                time.sleep(0.02)
        self._stop()

    def _stop(self) -> None:
        with contextlib.suppress(Exception):
            self._query.stop()

    def interrupt(self) -> None:
        """End it now, the batch that runs included; returns when that has cleared up, which is given a second."""
        with self._turn:
            self._is_interrupted = True
            if self._thread is not None:
                raise_in_thread(self._thread)
        cancel_jobs_while(lambda: self._thread is not None, _CLEARING)
        # From another thread, as it may take its time.
        stopping = threading.Thread(target=self._stop, daemon=True)
        stopping.start()
        stopping.join(_STOPPING)

    def _told(self, failure: Exception) -> BaseException:
        if self.error is not None:
            return self.error
        text = str(failure)
        if _TORN in text:
            logs = sorted(Path(str(self._checkpoint.spark)).glob("offsets/[0-9]*"), key=lambda p: int(p.name))
            if logs:
                return self._checkpoint.torn(logs[-1])
        own = next((line for line in text.splitlines() if "chunkmill." in line), None)
        first = own or next((line for line in text.splitlines() if line.strip()), "no reason given")
        return SessionError(
            f"the streaming query ended: {first.strip()[:500]}",
            hint="Nothing is lost: start it again. Run with --debug for Spark's own report.",
        )


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect."""
    return ".connect." in type(spark).__module__


def _session(run: RunOptions) -> SparkSession:
    from ..spark import running_session

    spark = running_session(run.master, run.conf)
    if is_connect(spark):
        raise UsageError(
            "an ingestion cannot run in a Spark Connect session: its batches are committed where it is started",
            hint="Start it where Spark's driver runs, or with executor='inline'.",
        )
    return spark


def _uri(location: Any) -> str:
    return location.as_uri() if isinstance(location, Path) else str(location)
