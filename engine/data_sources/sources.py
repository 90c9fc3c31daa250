"""The data sources of Spark by name: ``chunkmill``, ``chunkmill.mcap``, ``chunkmill.dataset``, ``chunkmill.table`` and
others.

There is ``chunkmill`` for every format, and ``chunkmill.NAME`` for each of the registry. Spark finds them by itself if
the package is installed: it imports the modules whose names begin with ``pyspark_``, and takes the ``DefaultSource`` of
each. :func:`register` registers them if a session does not find them, and also formats that a program has added.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    In,
    InputPartition,
    IsNotNull,
)
from pyspark.sql.types import StructType

from ...readers import FORMATS, Format
from ..catalog import CatalogClient, Queried, TableTasks, queried_at
from ..errors import UsageError
from ..execution import check_columns, ddl_of, register_by_value
from ..frames import RowRequest, SparkColumns, TaskShares, rows_for_spark, spark_tasks
from ..locations import located
from ..query import SEGMENT_ID, AnswerColumns, Query, QuerySemantics, no_column
from ..spark import arrow_of, make_active, session_for_user, spark_schema
from ..stream import tick_of
from .landings import OPTIONS, LandingStreamReader, Watch
from .options import DATASET_NAME, TABLE_NAME, Request, flag, is_whole, listed, source_name
from .reading import ChunkFrameReader, FilteredReader, ValueReader, value_row_schema, value_tasks, wanted_by
from .sinks import ChunkWriter, RrdWriterOfRows, StoreWriterOfRows, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ChunkDataSource(DataSource):
    """A data source; Spark makes one for each ``load``."""

    row: ClassVar[Format | None]

    @classmethod
    def name(cls) -> str:
        """``chunkmill``, or ``chunkmill.`` and the name of the format."""
        return source_name(cls.row)

    def schema(self) -> str | StructType:
        """The requested columns, of chunk rows or of value rows."""
        request = self._request(OPTIONS)
        return ddl_of(request.columns) if request.frame is None else value_row_schema(request)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a ``load``. Raises ``UsageError`` for options and columns that are not there."""
        request = self._request()
        if request.frame is not None:
            return ValueReader(request, schema)
        return ChunkFrameReader(request.with_columns(schema.fieldNames()))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """The reader of a landing folder. Raises as :meth:`reader` does."""
        request = self._request(OPTIONS)
        watch = Watch.of(request, dict(self.options))
        if request.frame is not None:
            return LandingStreamReader(request, watch, functools.partial(value_tasks, schema))
        return LandingStreamReader(request.with_columns(schema.fieldNames()), watch)

    def _request(self, more: Sequence[str] = ()) -> Request:
        return Request.of(self.row, dict(self.options), more)


class _Sink(DataSource):
    """A data source that takes chunk rows, too."""

    writer_type: ClassVar[type[ChunkWriter]]

    def writer(self, schema: StructType, overwrite: bool) -> ChunkWriter:
        """The writer of a ``save``. Raises ``UsageError`` for options and columns that do not suit it."""
        return self._writer(schema, overwrite, streams=False)

    def streamWriter(self, schema: StructType, overwrite: bool) -> ChunkWriter:  # noqa: N802 (Spark's name)
        """The writer of a batch of a stream. Raises as :meth:`writer` does."""
        if overwrite:
            raise UsageError(f"{self.name()} supports only the output mode 'append'")
        return self._writer(schema, overwrite, streams=True)

    def _writer(self, schema: StructType, overwrite: bool, *, streams: bool) -> ChunkWriter:
        check_columns(schema.fieldNames())
        target = Target.of(self.name(), dict(self.options), streams=streams)
        return self.writer_type(target, overwrite=overwrite)


class RrdDataSource(_Sink, ChunkDataSource):
    """``chunkmill.rrd``, with a sink."""

    row = FORMATS["rrd"]
    writer_type = RrdWriterOfRows


class StoreDataSource(_Sink, ChunkDataSource):
    """``chunkmill.store``: the recordings of a store, and a sink that adds recordings to it."""

    row = FORMATS["store"]
    writer_type = StoreWriterOfRows


class DatasetDataSource(DataSource):
    """``chunkmill.dataset``: rows by an index, from a catalog's dataset or from a store of recordings."""

    @classmethod
    def name(cls) -> str:
        """The name."""
        return DATASET_NAME

    def schema(self) -> StructType:
        """The columns, as of the newest version. Raises ``UsageError`` for wrong options."""

        return DatasetRequest.of(dict(self.options)).schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a ``load``. Raises ``UsageError`` for options and columns that are not there."""

        return DatasetReader(DatasetRequest.of(dict(self.options)), schema)


class TableDataSource(DataSource):
    """``chunkmill.table``: a table of a catalog, or the segments of a dataset."""

    @classmethod
    def name(cls) -> str:
        """The name."""
        return TABLE_NAME

    def schema(self) -> StructType:
        """The columns, as of the newest version. Raises ``UsageError`` and ``NotFoundError`` for wrong options."""
        return spark_schema(self._rows().columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a ``load``. Raises as :meth:`schema` does."""
        rows = self._rows()
        if spark_schema(rows.columns) != schema:
            raise UsageError(
                f"{TABLE_NAME}: '{self.options['table']}' has other columns than the schema",
                path=self.options["path"],
                hint="Read it without a schema, which gives all columns with their types.",
            )
        return TableReader(rows)

    def _rows(self) -> TableTasks:
        options = dict(self.options)
        unknown = sorted(set(options) - {"path", "table"})
        if unknown:
            raise UsageError(
                f"{TABLE_NAME} has no option {', '.join(map(repr, unknown))}", hint="Options: path, table."
            )
        for name, example in (("path", '.load("lake")'), ("table", '.option("table", "labels")')):
            if not options.get(name):
                hint = f'spark.read.format("{TABLE_NAME}"){example}'
                raise UsageError(f"{TABLE_NAME} needs the option {name!r}", hint=hint)
        return CatalogClient(options["path"]).spark_rows(options["table"])


class TableReader(DataSourceReader):
    """Gives the rows of one version of a table. A repeated task gives the same rows."""

    def __init__(self, rows: TableTasks) -> None:
        self._rows = rows

    def partitions(self) -> Sequence[InputPartition]:
        """A partition for every few fragments."""
        return [InputPartition(number) for number in range(self._rows.num_tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if self._rows.num_tasks:  # if there is no task, Spark invents a partition
            yield from self._rows.job.run(partition.value)


def data_source_of(name: str | None = None) -> type[DataSource]:
    """The data source of a format, of datasets or of tables, by name; without a name, the one for every format.

    Raises ``KeyError`` for an unknown format.
    """
    sources: dict[str | None, type[DataSource]] = {
        "dataset": DatasetDataSource,
        "rrd": RrdDataSource,
        "store": StoreDataSource,
        "table": TableDataSource,
    }
    return sources.get(name) or type(
        "DefaultSource", (ChunkDataSource,), {"row": name and FORMATS[name], "__module__": __name__}
    )


def register(spark: SparkSession) -> None:
    """Register ``spark.read.format("chunkmill")``, ``"chunkmill.mcap"`` and the other data sources with a session.

    This is needed if Spark does not find them by itself: for formats that a program adds, on a Spark Connect server
    without the package, and for an editable installation. Sessions of :func:`get_session` already have them. The
    session becomes the active one of this thread.
    """
    register_by_value()
    for name in (None, "dataset", "table", *FORMATS):
        spark.dataSource.register(data_source_of(name))
    make_active(spark)


def get_session(master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return the Spark session to use. A session made by chunkmill has the data sources ``chunkmill.*``.

    A session made by the user, including one of Spark Connect, is returned unchanged, whatever its master. Otherwise
    the existing session of chunkmill is returned, or a new one. If ``master`` or ``conf`` differ from the running
    session, a session of chunkmill is restarted, and a session of the user is kept, with a warning. The session becomes
    the active one of this thread; in a thread without one, a streaming write does not find ``chunkmill.store``.

    Parameters
    ----------
    master
        A Spark master URL, or ``sc://`` for Spark Connect; by default ``CHUNKMILL_MASTER``, or else ``local[*]``.
    conf
        Spark settings; they override ``spark-defaults.conf`` and chunkmill's own settings.

    Raises
    ------
    SessionStartError
        There is no usable Java, or Spark did not start.
    """
    session, is_new = session_for_user(master, conf)
    if is_new:
        register(session)
    else:
        make_active(session)
    return session


_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 63) - 1
_OPTIONS: Final = ("path", "dataset", "index", "contents", "segments", "start", "end", "fill", "columns", "semantics")


@dataclass(frozen=True, slots=True)
class DatasetRequest:
    """The options of the data source, checked: ``start`` (inclusive) and ``end`` (exclusive) are ticks of the index."""

    path: str
    dataset: str | None
    query: Query
    segments: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> DatasetRequest:
        """Check the options given. Raises ``UsageError``."""
        unknown = sorted(set(options) - set(_OPTIONS))
        if unknown:
            raise UsageError(
                f"{DATASET_NAME} has no option {', '.join(map(repr, unknown))}", hint=f"Options: {', '.join(_OPTIONS)}."
            )
        for name, example in (("path", '.load("lake")'), ("index", '.option("index", "log_time")')):
            if not options.get(name):
                hint = f'spark.read.format("{DATASET_NAME}"){example}'
                raise UsageError(f"{DATASET_NAME} needs the option {name!r}", hint=hint)
        index = None if options["index"].lower() == "none" else options["index"]
        bounds = [_tick(name, options.get(name)) for name in ("start", "end")]
        if index is None and bounds != [None, None]:
            raise UsageError("options 'start' and 'end' need an index, but the index is 'none'")
        query = Query.of(
            index,
            options.get("contents"),
            fill_latest_at=flag("fill", options),
            semantics=QuerySemantics.of(options.get("semantics")),
        )
        segments, columns = (listed(options.get(name, "")) for name in ("segments", "columns"))
        return cls(options["path"], options.get("dataset"), query, segments, columns, *bounds)

    def queried(self) -> Queried:
        """The requested columns and segments, as of the newest version; raises as :func:`queried_at`."""
        columns, segments = queried_at(located(self.path), self.dataset, self.query, self.segments)
        if not self.columns:
            return columns, segments
        for name in self.columns:
            if name not in columns.arrow.names:
                raise no_column(name, columns.arrow.names, path=self.path)
        kept = tuple(c for c in columns.components if c.name in self.columns)
        indexes = tuple(c for c in columns.indexes if c.name in (columns.query.index, *self.columns))
        return replace(columns, components=kept, indexes=indexes), segments

    def schema(self) -> StructType:
        """The columns with Spark's types."""
        return SparkColumns(self.queried()[0]).schema

    def bounds(self, columns: AnswerColumns) -> Iterator[pc.Expression]:
        """The filters for ``start`` and ``end``."""
        yield from _between(columns, self.start, self.end)


def _tick(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    return int(text) if is_whole(text) else tick_of(name, text)


def _between(columns: AnswerColumns, start: int | None, end: int | None) -> Iterator[pc.Expression]:
    index = columns.query.index
    if index is None:
        return
    kind = columns.arrow.field(index).type
    if start is not None:  # a timestamp of Spark's may be of any year
        yield pc.field(index) >= pa.scalar(min(max(start, _LEAST), _MOST), pa.int64()).cast(kind)
    if end is not None and end <= _MOST:
        yield pc.field(index) < pa.scalar(max(end, _LEAST), pa.int64()).cast(kind)


@dataclass(frozen=True)
class DatasetTask(InputPartition):
    """One Spark task: its segments, and the wanted rows of them."""

    value: int
    shares: TaskShares
    request: RowRequest


class DatasetReader(FilteredReader):
    """Plans the tasks over the segments of one version, and gives their rows.

    Order: the rows of a segment by the index, in one partition unless it is large. A repeated task gives the same rows.
    """

    def __init__(self, request: DatasetRequest, schema: StructType) -> None:
        columns, self._segments = request.queried()
        self._columns = SparkColumns(columns)
        self._arrow = arrow_of(schema)
        self._filters = list(request.bounds(columns))
        types = {field.name: field.type for field in self._columns.arrow}
        for field in self._arrow:
            if types.get(field.name) != field.type:
                raise UsageError(
                    f"column {field.name!r} is {field.type} in the schema, "
                    f"but {types.get(field.name, 'missing')} in the dataset",
                    path=request.path,
                    hint="Read it without a schema, which gives all columns with their types.",
                )

    def partitions(self) -> list[InputPartition]:
        """A partition for every few small segments, or for a part of a large one."""
        predicate = functools.reduce(operator.and_, self._filters) if self._filters else None
        tasks = spark_tasks(self._columns.columns, self._segments, predicate)
        request = RowRequest(tuple(self._columns.columns.arrow.names), predicate)
        return [DatasetTask(number, shares, request) for number, shares in enumerate(tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if isinstance(partition, DatasetTask):  # if there is none, Spark invents a partition
            for batch in rows_for_spark(partition.shares, self._columns, partition.request):
                yield batch.select(self._arrow.names)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_segments": [], "_filters": []}  # tasks have their own

    def _take(self, filters: list[Filter]) -> list[Filter]:
        """Remember the usable filters. Spark applies all filters again, so results do not depend on this."""
        for item in filters:
            self._filters += self._expressions(item)
        return filters

    def _expressions(self, item: Filter) -> list[pc.Expression]:
        """Convert a filter on segments, on the index, or on whether a component is present."""
        columns, attribute = self._columns.columns, tuple[str, ...](getattr(item, "attribute", ()))
        name = attribute[0] if len(attribute) == 1 else ""
        if name == SEGMENT_ID and isinstance(item, In | EqualTo | EqualNullSafe):
            values = list(item.value) if isinstance(item, In) else [item.value]
            return [pc.field(SEGMENT_ID).isin(pa.array(values, pa.string()))]
        if isinstance(item, IsNotNull):
            return [] if columns.component(name) is None else [pc.field(name).is_valid()]
        wanted = wanted_by(item)
        if wanted is None or wanted.time is None or name not in self._columns.names_of_index:
            return []
        return list(_between(columns, wanted.start, wanted.end))
