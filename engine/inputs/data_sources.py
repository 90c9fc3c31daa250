"""Spark data sources over recordings: ``spark.read.format("chunkmill.mcap")`` and its kin give chunk frames.

There is one for each format of the registry. Options, all strings:

- ``path``: a file, a folder, or a pattern; ``load`` takes a list of them too.
- ``content``: entity path expression of the chunks that are wanted (``/camera/** - /camera/raw``).
- ``payload``: ``true`` adds the column ``payload``, the chunk as an Arrow IPC stream.
- ``columns``: comma-separated names of the columns that are wanted; the others are not made.
- those of the format, by the names of its fields: several values are separated by commas, flags are ``true`` or
  ``false``.

The columns are those of :data:`COLUMNS` in ``engine/execution/frame_rows.py``; ``path`` is the recording. Chunks of an
RRD are pointed at where they lie, those of other formats have no such place and need ``payload`` to be taken back by
``from_spark``.
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualNullSafe, EqualTo, Filter, In, InputPartition

from ...readers import FORMATS, Format
from ..chunk import Chunk, minting
from ..errors import SourceMissingError, UsageError
from ..execution import (
    COLUMNS,
    WITHOUT_PAYLOAD,
    Place,
    Work,
    batches_of,
    ddl_of,
    frame_row,
    noting_task,
    payload_rows,
    register_by_value,
)
from ..locations import files_below, located, reading_location
from ..objects import find_objects, is_one_object
from ..rrd import EncodedPayload, FramedPayload, VerifiedPayload
from ..spark import session_for_user
from ..stream import ContentFilter, single_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

PREFIX: Final = "chunkmill."
PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


class Wanted(NamedTuple):
    """A filter that Spark pushed down: chunks of these entities, or static (or temporal) ones; None: all."""

    entity_paths: tuple[str, ...] | None = None
    is_static: bool | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """The options of a data source, checked. ``columns`` are in the order of the schema.

    ``given`` holds the options of the format itself, by their names.
    """

    paths: tuple[str, ...]
    content: str | None
    columns: tuple[str, ...]
    given: Mapping[str, Any]
    pushed: tuple[Wanted, ...] = field(default=())

    @classmethod
    def of(cls, row: Format, options: Mapping[str, str]) -> Request:
        """Check the options given to the data source of a format. Raises ``UsageError``."""
        own = {o.name: o for o in row.options if o.parse is not None}
        known = ("path", "paths", "content", "payload", "columns", *own)
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise UsageError(
                f"{PREFIX}{row.name} has no option {', '.join(map(repr, unknown))}",
                hint=f"Options: {', '.join(known)}.",
            )
        paths = (*json.loads(options.get("paths", "[]")), *filter(None, [options.get("path")]))
        if not paths:
            raise UsageError(f"{PREFIX}{row.name} needs a path", hint='spark.read.format("…").load("drive.mcap")')
        given = {name: o.from_text(options[name]) for name, o in own.items() if name in options}
        return cls(tuple(paths), options.get("content"), _columns(options), given)

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

    def __init__(self, row: Format, request: Request) -> None:
        self._row = row
        self._request = request

    def partitions(self) -> list[InputPartition]:
        """A partition for each split of each file."""
        found: list[InputPartition] = []
        for path in input_files(self._request.paths, self._row):
            with noting_task(path):
                tasks = tasks_of(self._row, path, self._request)
                found += [_TaskPartition(len(found) + i, path, task) for i, task in enumerate(tasks)]
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one split."""
        if isinstance(partition, _TaskPartition):  # where there is none, Spark makes one up
            with noting_task(partition.work.tasks[0].label):
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


def tasks_of(row: Format, path: str, request: Request) -> Sequence[Work]:
    """The splits of one file, of which only what is asked for is read."""
    stream = row.open(located(path), request.given).stream()
    if request.content is not None:
        stream = stream.filter(content=request.content)
    for wanted in request.pushed:
        content = None if wanted.entity_paths is None else _exactly(wanted.entity_paths)
        if content is not None or wanted.is_static is not None:
            stream = stream.filter(content=content, is_static=wanted.is_static)
    return single_tasks(stream)


def _exactly(entity_paths: Sequence[str]) -> ContentFilter | None:
    """A filter for these entities; None where one of them is no canonical path, so that Spark's own filter decides."""
    if any(re.search(r"(?<!\\)\s", path) for path in entity_paths):
        return None
    try:
        return ContentFilter(path if path.startswith("/") else "/" + path for path in entity_paths)
    except ValueError:
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

    row: ClassVar[Format]
    reader_type: ClassVar[type[ChunkFrameReader]]

    @classmethod
    def name(cls) -> str:
        return PREFIX + cls.row.name

    def schema(self) -> str:
        return ddl_of(self._request().columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        request = self._request().with_columns(schema.fieldNames())
        return self.reader_type(self.row, request)

    def _request(self) -> Request:
        return Request.of(self.row, dict(self.options))


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("chunkmill.mcap")`` and the other :data:`FORMATS` known to a session.

    Filters on ``entity_path`` and ``is_static`` are pushed into the readers when the session's
    ``spark.sql.python.filterPushdown.enabled`` is on at this moment. Call it again after a change of that setting, as
    Spark refuses a reader that can push filters where it is off, and when a format has been added.
    """
    pushes = str(spark.conf.get(PUSHDOWN, "false")).lower() == "true"
    reader_type = PushingReader if pushes else ChunkFrameReader
    register_by_value()
    for row in FORMATS.values():
        made = type("ChunkDataSource", (_ChunkDataSource,), {"row": row, "reader_type": reader_type})
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


def input_files(paths: Iterable[str], row: Format) -> list[str]:
    """All files and objects that ``paths`` mean, absolute, each once, in the order of the paths and sorted within each.

    A folder is searched with its subfolders for inputs of the format, hidden ones left out; a pattern may hold ``*``,
    ``?``, ``[]`` and ``**``. Raises ``SourceMissingError`` where a path gives nothing.
    """
    return list(dict.fromkeys(file for path in paths for file in _named(path, row)))


def _named(path: str, row: Format) -> Iterator[str]:
    location = reading_location(path)
    if isinstance(location, Path):
        yield from (str(file.absolute()) for file in _files(str(location), row))
    elif is_one_object(location):
        yield str(location)
    else:
        yield from (str(found.url) for found in find_objects(location, row.suffixes))


def _files(path: str, row: Format) -> Iterator[Path]:
    if Path(path).is_dir():
        files = list(files_below(Path(path), row.suffixes, is_input=row.is_dataset))
    elif glob.has_magic(path) and not os.path.lexists(path):
        matching = sorted(map(Path, glob.glob(path, recursive=True)))  # noqa: PTH207 (takes absolute patterns too)
        files = [p for p in matching if row.is_dataset(p) or (p.is_file() and p.name.lower().endswith(row.suffixes))]
    else:
        files = [Path(path)] if Path(path).exists() else []
    if not files:
        wanted = f"{', '.join(row.suffixes)} files" if row.suffixes else f"folders with {row.marker}"
        raise SourceMissingError(
            "there is no such file, or no recording in this folder or of this pattern",
            path=path,
            hint=f"Folders and patterns are searched for {wanted}.",
        )
    yield from files
