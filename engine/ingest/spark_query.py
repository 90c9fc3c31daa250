"""The Structured Streaming query over a landing log, and the data source ``chunkmill.landing`` that it reads.

The source gives the entries of the log as rows of small columns. Options: ``path``, the folder of the log; ``start``,
the entry after which a query without a checkpoint begins. Offsets are ``{"entry": N}``, whatever the number of files.
If Spark passes its offset to the source (from 4.2 on), a batch is one entry; otherwise, it is all new entries, each row
with its entry's number. Guarantee: a repeated batch gives the same rows, as entries never change.

The query hands the entries to a function, batch by batch.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from ..errors import ReadError, SessionError, UsageError
from ..execution import Folder, RunOptions, noting_task
from ..spark import cancel_jobs_while, raise_in_thread
from .checkpoint import Checkpoint
from .files import LandedFile
from .landing_log import newest_entry, read_entry

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as SupportsTriggerAvailableNow
except ImportError:  # before 4.2, in which Spark itself makes one batch of all entries

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """An empty base class, as newer versions require it."""


if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

NAME: Final = "chunkmill.landing"
DDL: Final = "entry bigint, path string, size bigint, modified_ns bigint"
_SCHEMA: Final = pa.schema(
    [("entry", pa.int64()), ("path", pa.string()), ("size", pa.int64()), ("modified_ns", pa.int64())]
)
_ROWS: Final = 10_000


@dataclass(frozen=True)
class _Entry(InputPartition):
    """One task: the rows of an entry."""

    value: int


class LandingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the landing log in a folder. For a query over the present files, it keeps only the last entry."""

    def __init__(self, path: str, start: int = 0) -> None:
        self._path = path
        self._start = start
        self._last: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 (Spark's name)
        """The start of a query without a checkpoint: before the first entry, or after ``start``."""
        return _offset(self._start)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, int]:  # noqa: ARG002, N802
        """The next entry after ``start``, if any; without ``start``, the newest.

        Raises ``ReadError`` if the log ends before ``start``, as entries would be lost.
        """
        with noting_task(self._path):
            newest = newest_entry(Folder.at(self._path))
            end = newest if self._last is None else min(newest, self._last)
            if start is None:
                return _offset(end)
            begun = int(start["entry"])
            if newest < begun:
                raise ReadError(
                    f"the checkpoint is damaged: Spark was given entry {begun} of a landing log that ends at {newest}",
                    path=self._path,
                    hint="Restore checkpoint and log from one copy; or remove the whole checkpoint and start again: "
                    "files whose content is in the store are not ingested twice.",
                )
            return _offset(max(begun, min(begun + 1, end)))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """End the query after the entry that is the newest now."""
        self._last = newest_entry(Folder.at(self._path))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return one partition per entry."""
        return [_Entry(number) for number in range(int(start["entry"]) + 1, int(end["entry"]) + 1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an entry, in order. Raises ``ReadError`` if it is damaged or missing."""
        if not isinstance(partition, _Entry):
            return  # Spark invents a partition if there are none
        number = partition.value
        with noting_task(self._path):
            files = read_entry(Folder.at(self._path), number)
        for first in range(0, len(files), _ROWS):
            rows = files[first : first + _ROWS]
            columns = [[number] * len(rows), *([getattr(f, name) for f in rows] for name in _SCHEMA.names[1:])]
            yield pa.record_batch([pa.array(c, t) for c, t in zip(columns, _SCHEMA.types, strict=True)], schema=_SCHEMA)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the ingestion itself merges entries."""


class LandingSource(DataSource):
    """The data source; Spark makes one for each ``load``."""

    @classmethod
    def name(cls) -> str:
        """``chunkmill.landing``."""
        return NAME

    def schema(self) -> str:
        """A row for each file of an entry."""
        return DDL

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """The reader. Raises ``UsageError`` for other options than ``path`` and ``start``."""
        unknown = sorted(set(self.options) - {"path", "start"})
        if unknown or not self.options.get("path"):
            raise UsageError(
                f"{NAME} needs the folder of a landing log as path; its only option is `start`, not {unknown}"
            )
        return LandingReader(self.options["path"], int(self.options.get("start", "0")))


def register_landing(spark: SparkSession) -> None:
    """Make ``spark.readStream.format("chunkmill.landing")`` known to a session."""
    spark.dataSource.register(LandingSource)


def _offset(entry: int) -> dict[str, int]:
    return {"entry": entry}


POLLING: Final = "100 milliseconds"
"""How often Spark looks for a new entry; a look costs a few milliseconds."""

_NOTING: Final = 2.0
"""Seconds for Spark to note a batch as done. If interrupted, it leaves drafts, and the batch is repeated."""

_CLEARING: Final = 1.0
_STOPPING: Final = 0.3
"""Seconds for an interrupted batch to clean up, and then for Spark to stop the query."""

_TORN: Final = "next on empty iterator"

Handle = Callable[[int, Sequence[LandedFile]], None]
"""Handles an entry, given by its number and its files."""


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
            for entry, files in groupby(rows, key=lambda row: row["entry"]):
                self._handle(int(entry), [LandedFile(r["path"], r["size"], r["modified_ns"]) for r in files])
        except Exception as error:
            self.error = error
            raise
        except BaseException as error:
            self.error = error
            raise RuntimeError("interrupted") from error  # otherwise, the JVM would wait for an answer for ever
        finally:
            with self._turn:
                self._thread = None

    @property
    def is_active(self) -> bool:
        """Whether it runs."""
        return bool(self._query.isActive)

    def wait(self, seconds: float) -> bool:
        """Wait for its end; return whether it has come. Raises the error of a batch or of the query."""
        try:
            ended = bool(self._query.awaitTermination(seconds))  # type: ignore[arg-type] # fractions work
        except Exception as failure:
            raise self._explained(failure) from failure
        if ended and self.error is not None:
            raise self.error
        return ended

    def check(self) -> None:
        """Raise the error that ended it, if it has failed."""
        if not self.is_active:
            failure = self._query.exception()
            if failure is not None:
                raise self._explained(failure) from failure

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
        """End it now, including the running batch; returns after its cleanup, for which it has a second."""
        with self._turn:
            self._is_interrupted = True
            if self._thread is not None:
                raise_in_thread(self._thread)
        cancel_jobs_while(lambda: self._thread is not None, _CLEARING)
        # From another thread, as it may take its time.
        stopping = threading.Thread(target=self._stop, daemon=True)
        stopping.start()
        stopping.join(_STOPPING)

    def _explained(self, failure: Exception) -> BaseException:
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


def _is_connect(spark: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect."""
    return ".connect." in type(spark).__module__


def _session(run: RunOptions) -> SparkSession:
    from ..spark import running_session

    spark = running_session(run.master, run.conf)
    if _is_connect(spark):
        raise UsageError(
            "an ingestion cannot run in a Spark Connect session, as the driver commits its batches",
            hint="Start it where Spark's driver runs, or with executor='inline'.",
        )
    return spark


def _uri(location: Any) -> str:
    return location.as_uri() if isinstance(location, Path) else str(location)
