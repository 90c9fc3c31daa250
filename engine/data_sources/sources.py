"""The data sources by their names: what Spark makes of ``spark.read.format("chunkmill.mcap")`` and its kin.

There is ``chunkmill`` for every format, and ``chunkmill.NAME`` for each of the registry. Spark finds them by itself
where the package is installed: it imports the modules whose names begin with ``pyspark_``, and takes the
``DefaultSource`` of each. :func:`register` tells a session of them where it does not look there, and of formats that a
program has added.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from ...readers import FORMATS, Format
from ..errors import UsageError
from ..execution import check_columns, ddl_of, register_by_value
from ..spark import session_for_user
from .landings import OPTIONS, LandingStreamReader, Watch
from .options import DATASET_NAME, Request, source_name
from .reading import ChunkFrameReader
from .sinks import ChunkWriter, RrdWriterOfRows, StoreWriterOfRows, Target
from .values import ValueReader, value_row_schema, value_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class ChunkDataSource(DataSource):
    """A data source; Spark makes one for each ``load``."""

    row: ClassVar[Format | None]

    @classmethod
    def name(cls) -> str:
        """``chunkmill``, or ``chunkmill.`` and the name of the format."""
        return source_name(cls.row)

    def schema(self) -> str | StructType:
        """The columns that are wanted: of chunk rows, or of values."""
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
        """The writer of a ``save``. Raises ``UsageError`` for options and columns that are not fit for it."""
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
    """``chunkmill.rrd``, of which there is a sink, too."""

    row = FORMATS["rrd"]
    writer_type = RrdWriterOfRows


class StoreDataSource(_Sink, ChunkDataSource):
    """``chunkmill.store``: the recordings of a store, and a sink that brings more into it."""

    row = FORMATS["store"]
    writer_type = StoreWriterOfRows


class DatasetDataSource(DataSource):
    """``chunkmill.dataset``: rows by an index, of a dataset of a catalog or of a store of recordings."""

    @classmethod
    def name(cls) -> str:
        """The name."""
        return DATASET_NAME

    def schema(self) -> StructType:
        """The columns, as of the newest version. Raises ``UsageError`` for options that are wrong."""
        from .datasets import DatasetRequest

        return DatasetRequest.of(dict(self.options)).schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a ``load``. Raises ``UsageError`` for options and columns that are not there."""
        from .datasets import DatasetReader, DatasetRequest

        return DatasetReader(DatasetRequest.of(dict(self.options)), schema)


def data_source_of(name: str | None = None) -> type[DataSource]:
    """The data source of a format, or that of datasets, by its name; without one, that of every format.

    Raises ``KeyError`` where there is no such format.
    """
    known: dict[str | None, type[DataSource]] = {
        "dataset": DatasetDataSource,
        "rrd": RrdDataSource,
        "store": StoreDataSource,
    }
    return known.get(name) or type(
        "DefaultSource", (ChunkDataSource,), {"row": name and FORMATS[name], "__module__": __name__}
    )


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("chunkmill")``, ``"chunkmill.mcap"`` and its kin known to a session.

    Needed where Spark does not find them by itself: for formats that a program has added, on a Spark Connect server
    without the package, in a checkout that is installed for editing. A session of :func:`get_session` knows them.
    """
    register_by_value()
    for name in (None, "dataset", *FORMATS):
        spark.dataSource.register(data_source_of(name))


def get_session(master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return the session to run on; one of ours knows the data sources ``chunkmill.*``.

    A session that the user has made is returned as it is, whatever its master, a Spark Connect one too. Otherwise
    the one made here before is returned, and when there is none, one is made. When ``master`` or ``conf`` ask for
    something else than what runs, ours is stopped and made again; the user's is kept, with a warning.

    Parameters
    ----------
    master
        A Spark master URL, ``sc://`` for Spark Connect; by default ``CHUNKMILL_MASTER``, else ``local[*]``.
    conf
        Spark settings; they win over ``spark-defaults.conf`` and over chunkmill's own.

    Raises
    ------
    SessionStartError
        No usable Java, or Spark did not start.
    """
    session, is_new = session_for_user(master, conf)
    if is_new:
        register(session)
    return session
