"""The streaming data source ``chunkmill.landing``: the entries of a landing log, as rows of small columns.

Options: ``path``, the folder of the log; ``start``, the entry after which a query without a checkpoint begins.
Offsets are ``{"entry": N}``, whatever the number of files. Where Spark tells the source what it has (from 4.2 on), a
batch is one entry; otherwise all that are new, each row with its entry's number. Guarantee: a batch that is run again
gives the same rows, as entries never change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from ..errors import ReadError, UsageError
from ..execution.folders import Folder
from ..execution.frame_batches import told_of
from .landing_files import newest_entry, read_entry

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before 4.2, where Spark itself makes one batch of what there is

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """What later versions ask for."""


if TYPE_CHECKING:
    from pyspark.sql import SparkSession
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
    """Reads the log in a folder. Keeps nothing but the last entry of a query that takes what there is."""

    def __init__(self, path: str, start: int = 0) -> None:
        self._path = path
        self._start = start
        self._last: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 (Spark's name)
        """Where a query begins that has no checkpoint: before the first entry, or after ``start``."""
        return _offset(self._start)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, int]:  # noqa: ARG002, N802
        """The next entry after ``start`` if there is one; without a start, the newest.

        Raises ``ReadError`` where the log ends before ``start``: entries would get lost.
        """
        with told_of(self._path):
            newest = newest_entry(Folder.at(self._path))
            end = newest if self._last is None else min(newest, self._last)
            if start is None:
                return _offset(end)
            begun = int(start["entry"])
            if newest < begun:
                raise ReadError(
                    f"the checkpoint is torn: Spark was given entry {begun} of a landing log that ends at {newest}",
                    path=self._path,
                    hint="Restore both from one copy; or remove the whole checkpoint, so that every file is offered "
                    "anew, and start again: those whose content is in the store are recognised.",
                )
            return _offset(max(begun, min(begun + 1, end)))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """The newest entry of this moment is the last that is given."""
        self._last = newest_entry(Folder.at(self._path))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One for each entry."""
        return [_Entry(number) for number in range(int(start["entry"]) + 1, int(end["entry"]) + 1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of an entry, in its order. Raises ``ReadError`` where it is torn or missing."""
        if not isinstance(partition, _Entry):
            return  # Spark makes one up where there are none
        number = partition.value
        with told_of(self._path):
            files = read_entry(Folder.at(self._path), number)
        for first in range(0, len(files), _ROWS):
            rows = files[first : first + _ROWS]
            columns = [[number] * len(rows), *([getattr(f, name) for f in rows] for name in _SCHEMA.names[1:])]
            yield pa.record_batch([pa.array(c, t) for c, t in zip(columns, _SCHEMA.types, strict=True)], schema=_SCHEMA)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the ingestion itself knows when entries may be merged."""


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
            raise UsageError(f"{NAME} takes the folder of a landing log as its path, and `start`, not {unknown}")
        return LandingReader(self.options["path"], int(self.options.get("start", "0")))


def register_landing(spark: SparkSession) -> None:
    """Make ``spark.readStream.format("chunkmill.landing")`` known to a session."""
    spark.dataSource.register(LandingSource)


def _offset(entry: int) -> dict[str, int]:
    return {"entry": entry}
