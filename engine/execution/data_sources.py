"""Spark data sources over recordings: ``spark.read.format("chunkmill.mcap")`` and its kin give chunk frames.

Options, all strings:

- ``path``: a file, a folder, or a pattern; ``load`` takes a list of them too.
- ``content``: entity path expression of the chunks that are wanted (``/camera/** - /camera/raw``).
- ``topics`` (MCAP): comma-separated names of the topics that are read.
- ``index_columns`` (Parquet): comma-separated ``name:type`` or ``name:type:unit``; ``static_columns``: comma-separated
  names; ``column_grouping``, ``entity_path_prefix``, ``use_structs`` (``true``, ``false``): as for ``ParquetReader``.
- ``payload``: ``true`` adds the column ``payload``, the chunk as an Arrow IPC stream.
- ``columns``: comma-separated names of the columns that are wanted; the others are not made.

The columns are those of :data:`.frame_rows.COLUMNS`; ``path`` is the recording. Chunks of an RRD are pointed at where
they lie, those of other formats have no such place and need ``payload`` to be taken back by ``from_spark``.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualNullSafe, EqualTo, Filter, In, InputPartition

from ..chunk import Chunk
from ..chunk.tuid import minting
from ..errors import UsageError
from ..rrd import EncodedPayload, FramedPayload, VerifiedPayload
from ..spark import session_for_user
from .frame_batches import batches_of, told_of
from .frame_rows import COLUMNS, WITHOUT_PAYLOAD, Place, ddl_of, frame_row, payload_rows
from .input_files import input_files
from .work import Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


class Format(NamedTuple):
    """A kind of recording: which function opens one (module and name), its suffixes, its options beside the usual."""

    module: str
    function: str
    suffixes: tuple[str, ...]
    options: tuple[str, ...] = ()


FORMATS: Mapping[str, Format] = {
    "chunkmill.mcap": Format("...readers.data_sources", "open_mcap", (".mcap",), ("topics",)),
    "chunkmill.parquet": Format(
        "...readers.data_sources",
        "open_parquet",
        (".parquet", ".parq", ".pq"),
        ("index_columns", "static_columns", "column_grouping", "entity_path_prefix", "use_structs"),
    ),
    "chunkmill.rrd": Format("...readers.data_sources", "open_rrd", (".rrd", ".rbl")),
}
"""Every data source. The readers lie above this package, so they are named and imported where they are used."""


class Wanted(NamedTuple):
    """A filter that Spark pushed down: chunks of these entities, or static (or temporal) ones; None: all."""

    entity_paths: tuple[str, ...] | None = None
    is_static: bool | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """What a data source was asked for, checked. ``columns`` are in the order of the schema.

    ``own`` holds the options of the format itself.
    """

    paths: tuple[str, ...]
    content: str | None
    topics: tuple[str, ...] | None
    columns: tuple[str, ...]
    pushed: tuple[Wanted, ...] = field(default=())
    own: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, name: str, options: Mapping[str, str]) -> Request:
        """Check the options given to the data source ``name``. Raises ``UsageError``."""
        known = ("path", "paths", "content", "payload", "columns", *FORMATS[name].options)
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise UsageError(
                f"{name} has no option {', '.join(map(repr, unknown))}", hint=f"Options: {', '.join(known)}."
            )
        paths = (*json.loads(options.get("paths", "[]")), *filter(None, [options.get("path")]))
        if not paths:
            raise UsageError(f"{name} needs a path", hint='spark.read.format("…").load("drive.mcap")')
        topics = options.get("topics")
        return cls(
            tuple(paths),
            options.get("content"),
            _listed(topics) if topics is not None else None,
            _columns(options),
            own=tuple((key, options[key]) for key in FORMATS[name].options if key in options),
        )

    def with_columns(self, names: Sequence[str]) -> Request:
        """The same with the columns of a schema that the user gave."""
        return replace(self, columns=_known(names))

    def pushing(self, wanted: Wanted) -> Request:
        """The same with one more filter."""
        return replace(self, pushed=(*self.pushed, wanted))


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    payload = options.get("payload", "false").strip().lower()
    if payload not in ("true", "false"):
        raise UsageError(f"option 'payload': 'true' or 'false' was expected, got {payload!r}")
    chosen = _known(_listed(options["columns"])) if "columns" in options else WITHOUT_PAYLOAD
    return tuple(c for c in COLUMNS if c in chosen or (c == "payload" and payload == "true"))


def _known(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in COLUMNS:
            raise UsageError(f"there is no column {name!r}", hint=f"Columns: {', '.join(COLUMNS)}.")
    return tuple(names)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


@dataclass(frozen=True)
class _TaskPartition(InputPartition):
    """One Spark task: the file, and the work that is done there."""

    value: int
    path: str
    work: Work


class ChunkFrameReader(DataSourceReader):
    """Plans the tasks over the files, and makes rows of their chunks.

    Order: ``task`` counts splits through all files. A task that is run again gives the same chunks, under the same ids.
    """

    def __init__(self, name: str, request: Request) -> None:
        self._name = name
        self._request = request

    def partitions(self) -> list[InputPartition]:
        """A partition for each split of each file."""
        kind = FORMATS[self._name]
        module = importlib.import_module(kind.module, __package__)
        open_file: Callable[[str, Request], Sequence[Work]] = getattr(module, kind.function)
        found: list[InputPartition] = []
        for path in input_files(self._request.paths, kind.suffixes):
            with told_of(path):
                found += [_TaskPartition(len(found) + i, path, w) for i, w in enumerate(open_file(path, self._request))]
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one split."""
        if isinstance(partition, _TaskPartition):  # where there is none, Spark makes one up
            with told_of(partition.work.tasks[0].label):
                rows = (row for chunk in partition.work.run(0) for row in self._rows(chunk, partition.path))
                batches = batches_of(rows, partition.value, self._request.columns)
                yield from minting(partition.work.minter(0), batches)

    def _rows(self, chunk: Chunk, path: str) -> Iterator[dict[str, Any]]:
        place = _place(chunk, path)
        if "payload" in self._request.columns:
            return payload_rows(chunk, place)
        size = _stream_size(chunk) if "uncompressed_size" in self._request.columns else None
        return iter([frame_row(chunk.header, place, size)])


class PushingReader(ChunkFrameReader):
    """A reader that takes Spark's filters on ``entity_path`` and ``is_static``: what they exclude is not read."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 (Spark's name)
        """Remember what can be used. Spark applies all of them once more, so nothing depends on it."""
        for item in filters:
            wanted = _wanted(item)
            if wanted is not None:
                self._request = self._request.pushing(wanted)
        return filters


def _wanted(item: Filter) -> Wanted | None:
    attribute, value = getattr(item, "attribute", None), getattr(item, "value", None)
    if isinstance(item, EqualTo | EqualNullSafe):
        if attribute == ("entity_path",) and isinstance(value, str):
            return Wanted(entity_paths=(value,))
        if attribute == ("is_static",) and isinstance(value, bool):
            return Wanted(is_static=value)
    if isinstance(item, In) and attribute == ("entity_path",) and all(isinstance(v, str) for v in value or ()):
        return Wanted(entity_paths=tuple(value or ()))
    return None


def _place(chunk: Chunk, path: str) -> Place:
    payload = chunk.payload
    if isinstance(payload, FramedPayload):
        digest = payload.digest or None if isinstance(payload, VerifiedPayload) else None
        return Place(payload.path, payload.offset, payload.size, digest)
    return Place(path)


def _stream_size(chunk: Chunk) -> int | None:
    """Bytes of the chunk as an Arrow IPC stream; None for one that would have to be read for it."""
    if isinstance(chunk.payload, FramedPayload | EncodedPayload):
        return None
    batch = chunk.to_record_batch()
    end_of_stream = 8
    return int(batch.schema.serialize().size) + int(pa.ipc.get_record_batch_size(batch)) + end_of_stream


class _ChunkDataSource(DataSource):
    """A data source; Spark makes one for each ``load``."""

    registered_name: ClassVar[str]
    reader_type: ClassVar[type[ChunkFrameReader]]

    @classmethod
    def name(cls) -> str:
        return cls.registered_name

    def schema(self) -> str:
        return ddl_of(self._request().columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        request = self._request().with_columns(schema.fieldNames())
        return self.reader_type(self.registered_name, request)

    def _request(self) -> Request:
        return Request.of(self.registered_name, dict(self.options))


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("chunkmill.mcap")`` and the other :data:`FORMATS` known to a session.

    Filters on ``entity_path`` and ``is_static`` are pushed into the readers when the session's
    ``spark.sql.python.filterPushdown.enabled`` is on at this moment. Call it again after a change of that setting:
    Spark refuses a reader that can push filters where it is off.
    """
    pushes = str(spark.conf.get(PUSHDOWN, "false")).lower() == "true"
    reader_type = PushingReader if pushes else ChunkFrameReader
    for name in FORMATS:
        made = type("ChunkDataSource", (_ChunkDataSource,), {"registered_name": name, "reader_type": reader_type})
        spark.dataSource.register(made)


def get_session(master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return the session to run on; one of ours knows the data sources ``chunkmill.*`` (:data:`FORMATS`).

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
