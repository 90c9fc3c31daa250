"""``write_parquet``: recordings as Parquet files, in a folder for each entity, from which they can be read again.

The layout::

    drive/_chunkmill.json                                the manifest
    drive/camera.front/recording=run-7/part-00000.parquet

All files of an entity have the same columns: ``recording_id``, ``row_id``, then the timelines, then the components by
name. A timeline of times since 1970 has two columns: ``log_time`` in microseconds, rounded down, and
``log_time_nanoseconds``, which has all digits. Rows of static data have no time. Components are lists, as in a chunk,
in types that every reader of Parquet knows (``engine/chunk/portable.py``). A file's metadata has a list of its chunks
(``chunkmill:chunks``) and of their columns (``chunkmill:kinds``), from which ``ParquetReader`` makes the same chunks.
"""

from __future__ import annotations

import base64
import json
import os
import time
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from ..chunk import ChunkData, ComponentDescriptor, TimelineKind, portable_type, split_parts, to_portable
from ..errors import ReadError, ReadWarning, UnsupportedError, UsageError, WriteError, writing
from ..execution import (
    Body,
    JoinedWork,
    Progress,
    Ran,
    RunOptions,
    Stage,
    Staging,
    Task,
    TaskRun,
    executor_name,
    progress_shown,
    raise_failure,
    sync_folder,
    warn_of,
)
from ..faults import reach
from ..limits import MIB
from ..locations import located
from ..optimisation import ChunkReferences, chunks_by_task
from ..reports import RunReport
from ..rrd import StoreEntry, digest_of, types_to_bytes
from ..storage import ObjectUrl
from ..stream import LazyChunkStream, plan_recording
from ..task_context import ENCODE, READ, phase
from ..units import counted
from .lerobot_sources import Recordings, recordings_of

MANIFEST: Final = "_chunkmill.json"
VERSION: Final = 1
GROUP_BYTES: Final = 128 * MIB
"""The bytes of a row group before encoding. A task holds one row group, and its encoded form."""

_FILE_BYTES: Final = 512 * MIB
_TASK_BYTES: Final = 64 * MIB
_TASK_FILES: Final = 64
_LONGEST_NAME: Final = 160
_OWN_COLUMNS: Final = ("recording", "recording_id", "row_id")
"""Names that timelines and components cannot have in a file; folders of recordings use ``recording``."""

_CODECS: Final = ("zstd", "snappy", "lz4", "gzip", "brotli", "none")

ColumnKey = tuple[str, TimelineKind] | tuple[ComponentDescriptor, pa.DataType]


def write_parquet(
    recordings: Recordings | Iterable[tuple[StoreEntry, LazyChunkStream]],
    destination: str | os.PathLike[str],
    *,
    application_id: str = "chunkmill",
    compression: str = "zstd",
    executor: str | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    progress: Progress = None,
) -> RunReport:
    """Write recordings as a folder of Parquet files: one table per entity, with one file per recording.

    Guarantee: the folder appears completely, in one step, or not at all. Each chunk is written once, in the order of
    its recording. :class:`ParquetReader` reads the same chunks back, with their ids, entity by entity.

    Parameters
    ----------
    recordings
        A mapping from recording names to streams; a store of recordings, a dataset or a view; several of these; or
        pairs of a :class:`StoreEntry` and a stream.
    destination
        A local folder that is new or empty.
    application_id
        The application id of recordings given by name.
    compression
        ``zstd``, ``snappy``, ``lz4``, ``gzip``, ``brotli`` or ``none``.

    Raises
    ------
    UsageError
        Two recordings have the same id, or there are no recordings.
    ReadError
        A recording is damaged.
    UnsupportedError
        A component has a type that Parquet cannot hold, or the destination is in an object store.
    WriteError, NoSpaceError
        The destination cannot be written, or already exists.
    """
    if compression not in _CODECS:
        raise UsageError(f"compression must be one of {', '.join(_CODECS)}, not {compression!r}")
    place = located(destination)
    if isinstance(place, ObjectUrl):
        raise UnsupportedError("Parquet can only be written to local folders", path=str(place), hint="Copy it then.")
    if os.path.lexists(place) and not (place.is_dir() and not any(place.iterdir())):
        raise WriteError("is there already", path=str(place), hint="Choose a new or empty folder.")
    stores = _stores(recordings, application_id)
    with progress_shown(progress, str(destination)) as listener, Staging.beside(place) as staging:
        executor = executor_name(executor)
        planned = plan_recording(place, stores, executor=executor)
        options = RunOptions(executor, master, conf, listener, planned.start)
        tables, tasks = _planned(planned.outputs, staging, options)
        body = _FilesBody(tuple(tables), tuple(tasks), compression)
        numbered = [Task(i, body.label(i), sum(file.size for file in files)) for i, files in enumerate(tasks)]
        ran = Stage(body, numbered, staging, destination=str(place)).run(options)
        raise_failure(ran.notes)
        warn_of(ran.notes, set())
        committing = time.perf_counter()
        size = _publish(ran, body, [store for store, _ in planned.outputs], staging, place)
        report = ran.report(
            options.start,
            executor=executor,
            destination=str(place),
            bytes_out=size,
            commit_seconds=time.perf_counter() - committing,
        )
        reach("staging.remove")
    if listener is not None:
        listener.finished(report)
    return report


def write_parquet_recording(
    stream: LazyChunkStream, destination: str | os.PathLike[str], store: StoreEntry, **options: Any
) -> RunReport:
    """Write the recording of one stream, as :func:`write_parquet` does with the same options."""
    return write_parquet([(store, stream)], destination, **options)


def _stores(recordings: Any, application_id: str) -> list[tuple[StoreEntry, LazyChunkStream]]:
    """The recordings and their streams. Raises ``UsageError`` if there are none, or two have the same id."""
    given = recordings if isinstance(recordings, Mapping) or not isinstance(recordings, Iterable) else list(recordings)
    if isinstance(given, list) and given and all(isinstance(each, tuple) for each in given):
        pairs = given
        left = [store for store, _ in pairs if store.kind != "recording"]
        if left:
            what = counted(len(left), "blueprint")
            warnings.warn(f"left out {what} of the input: Parquet can only store recordings", ReadWarning, stacklevel=4)
        pairs = [(store, stream) for store, stream in pairs if store.kind == "recording"]
    else:
        exported, _ = recordings_of(given)
        pairs = [(StoreEntry("recording", application_id, each.name), each.opened()) for each in exported]
    if not pairs:
        raise UsageError("there is no recording to write")
    ids = [store.recording_id for store, _ in pairs]
    again = sorted({name for name in ids if ids.count(name) > 1}) if len(set(ids)) < len(ids) else []
    if again:
        raise UsageError(f"recordings have the same id: {', '.join(again[:5])}", hint="Give each recording its own id.")
    return pairs


# ------------------------------------------------------------------------------------------------------------- plan


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a table for a timeline or a component.

    ``rounded`` is the name of the column in microseconds, for a timeline of times since 1970.
    """

    name: str
    key: ColumnKey
    rounded: str | None = None


@dataclass(frozen=True)
class _Table:
    """An entity: its folder, and the columns of all its files."""

    entity_path: str
    folder: str
    columns: tuple[_Column, ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns of the files. Raises ``UnsupportedError`` for a component whose type Parquet cannot represent."""
        fields = [pa.field("recording_id", pa.string(), False), pa.field("row_id", pa.binary(16), False)]
        for column in self.columns:
            kind = column.key[1]
            if isinstance(kind, TimelineKind):
                if column.rounded is not None:
                    fields.append(pa.field(column.rounded, pa.timestamp("us")))
                    fields.append(pa.field(column.name, pa.int64()))
                else:
                    fields.append(pa.field(column.name, kind.arrow_type))
                continue
            try:
                fields.append(pa.field(column.name, portable_type(kind)))
            except ValueError as error:
                raise UnsupportedError(
                    f"component {column.key[0]} of {self.entity_path}: {error}",
                    hint="Remove it by filter(content=…) or drop(components=…).",
                ) from error
        return pa.schema(fields)


@dataclass(frozen=True, slots=True)
class _FilePlan:
    """A file: its table, its recording, and its chunks, in order; ``size`` is the size of the chunks."""

    table: int
    recording: int
    recording_id: str
    chunks: tuple[ChunkReferences, ...]
    size: int


@dataclass(slots=True)
class _Entity:
    """The columns and files of an entity, as collected from all chunks."""

    keys: dict[ColumnKey, None] = field(default_factory=dict)
    files: list[tuple[int, list[tuple[ChunkReferences, int]], int]] = field(default_factory=list)
    """For each file: its recording; its chunks, as references and row numbers; and their bytes."""

    def add(self, recording: int, references: ChunkReferences, row: int, size: int) -> None:
        """Add a chunk to the last file, or to a new one."""
        if not self.files or self.files[-1][0] != recording or self.files[-1][2] + size > _FILE_BYTES:
            self.files.append((recording, [], 0))
        _, chunks, before = self.files[-1]
        chunks.append((references, row))
        self.files[-1] = recording, chunks, before + size


def _planned(
    outputs: Sequence[tuple[StoreEntry, Any]], staging: Staging, options: RunOptions
) -> tuple[list[_Table], list[tuple[_FilePlan, ...]]]:
    """The tables, and the files of each task. Runs the pipelines, except for chunks that only pass through."""
    work = JoinedWork([each for _, each in outputs])
    owners = [i for i, (_, each) in enumerate(outputs) for _ in each.tasks]
    of_tasks = chunks_by_task(work, [outputs[i][0] for i in owners], staging, options)
    entities: dict[str, _Entity] = {}
    for recording, parts in zip(owners, of_tasks, strict=True):
        for references in parts:
            for row, entry in enumerate(references.table.entries()):
                entity = entities.setdefault(entry.header.entity_path, _Entity())
                entity.keys.update(dict.fromkeys(_keys(references, row, entry)))
                entity.add(recording, references, row, entry.uncompressed_size)
    taken: set[str] = set()
    tables = [_table(path, sorted(entities[path].keys, key=_order), taken) for path in sorted(entities)]
    files = [
        _FilePlan(number, recording, outputs[recording][0].recording_id, _taken(chunks), size)
        for number, table in enumerate(tables)
        for recording, chunks, size in entities[table.entity_path].files
    ]
    return tables, _tasks(files)


def _keys(references: ChunkReferences, row: int, entry: Any) -> Iterator[ColumnKey]:
    """The columns of a chunk, by its header, or by its data if the header lacks them."""
    for timeline in entry.header.timelines:
        yield timeline.name, timeline.kind
    if entry.header.components:
        for component in entry.header.components:
            yield component.descriptor, component.datatype
    else:
        (chunk,) = references.take(pa.array([row]).to_numpy()).chunks()
        for own in chunk.data.components:
            yield own.descriptor, own.values.type


def _order(key: ColumnKey) -> tuple[Any, ...]:
    name, kind = key
    return (0, name, str(kind)) if isinstance(name, str) else (1, *name.sort_key, str(kind))


def _table(path: str, keys: Sequence[ColumnKey], taken: set[str]) -> _Table:
    """A table whose folder and columns have unique names, regardless of case."""
    names = set(_OWN_COLUMNS)

    def name_of(wanted: str) -> str:
        name, number = wanted or "unnamed", 2
        while name.casefold() in names:
            name, number = f"{wanted}~{number}", number + 1
        names.add(name.casefold())
        return name

    columns = []
    for key in keys:
        if key[1] is TimelineKind.TIMESTAMP:
            rounded = name_of(str(key[0]))
            columns.append(_Column(name_of(f"{rounded}_nanoseconds"), key, rounded))
        else:
            columns.append(_Column(name_of(str(key[0])), key))
    return _Table(path, folder_of_entity(path, taken), tuple(columns))


def folder_of_entity(path: str, taken: set[str]) -> str:
    """The name of an entity's folder, which no other entity has.

    ``=`` would make it a partition, ``/`` would nest folders, a first ``_`` or ``.`` would hide it.

    >>> [folder_of_entity(path, set()) for path in ("/camera/front", "/", "/__properties", "/a.b/c=d")]
    ['camera.front', '%2F', '%5F_properties', 'a%2Eb.c%3Dd']
    """
    name = ".".join(quote(part, safe="").replace(".", "%2E").replace("~", "%7E") for part in split_parts(path)) or "%2F"
    if name[0] == "_":
        name = f"%5F{name[1:]}"
    return _short(name, path, taken)


def _short(name: str, whole: str, taken: set[str]) -> str:
    if len(name) > _LONGEST_NAME or name.casefold() in taken:
        name = f"{name[:_LONGEST_NAME]}~{digest_of(whole.encode('utf-8', 'surrogatepass')).hex()[:16]}"
    taken.add(name.casefold())
    return name


def _taken(chunks: Sequence[tuple[ChunkReferences, int]]) -> tuple[ChunkReferences, ...]:
    """References to chunks, in order; those of consecutive chunks in one table are joined."""
    runs: list[tuple[ChunkReferences, list[int]]] = []
    for references, row in chunks:
        if not runs or runs[-1][0] is not references:
            runs.append((references, []))
        runs[-1][1].append(row)
    return tuple(references.take(pa.array(rows).to_numpy()) for references, rows in runs)


def _tasks(files: Iterable[_FilePlan]) -> list[tuple[_FilePlan, ...]]:
    """The files of each task: a large file by itself, small files together."""
    tasks: list[list[_FilePlan]] = []
    size = 0
    for file in files:
        if not tasks or size + file.size > _TASK_BYTES or len(tasks[-1]) >= _TASK_FILES:
            tasks.append([])
            size = 0
        tasks[-1].append(file)
        size += file.size
    return [tuple(task) for task in tasks]


# ------------------------------------------------------------------------------------------------------------ tasks


@dataclass(frozen=True, slots=True)
class _FilesBody(Body):
    """The files of each task."""

    tables: tuple[_Table, ...]
    tasks: tuple[tuple[_FilePlan, ...], ...]
    compression: str

    def label(self, index: int) -> str:
        return self.tables[self.tasks[index][0].table].entity_path

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        yield from ()
        outcomes: list[dict[str, Any]] = []
        for number, plan in enumerate(self.tasks[task.index]):
            name = f"{task.name}-{number:04d}.parquet"
            file = _File(Path(task.location) / name, self.tables[plan.table], plan.recording_id, self.compression)
            try:
                file.write(plan.chunks)
            except BaseException:
                file.path.unlink(missing_ok=True)
                raise
            outcomes.append({"part": name, "rows": file.rows, "chunks": len(file.listed), "bytes": file.size})
        totals: dict[str, Any] = {key: sum(each[key] for each in outcomes) for key in ("rows", "chunks", "bytes")}
        task.put(f"{task.name}.json", json.dumps(outcomes).encode())
        return {**totals, "name": task.name}


class _File:
    """One file that is written."""

    def __init__(self, path: Path, table: _Table, recording_id: str, compression: str) -> None:
        self.path = path
        self.rows = self.size = 0
        self.listed: list[tuple[int, bytes, int]] = []
        self._table, self._schema = table, table.schema
        self._column_of = {column.key: column for column in table.columns}
        self._recording_id, self._compression = recording_id, compression
        self._kinds: dict[tuple[Any, ...], int] = {}
        self._kind_facts: list[dict[str, Any]] = []
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0

    def write(self, references: Sequence[ChunkReferences]) -> None:
        """Write chunks, durably."""
        with writing(str(self.path)):
            writer = pq.ParquetWriter(
                str(self.path),
                self._schema,
                compression=self._compression,
                write_page_index=True,
                write_page_checksum=True,
            )
        try:
            for some in references:
                for chunk in some.chunks():
                    with phase(READ):
                        data = chunk.data
                    self._add(data, writer)
            self._flush(writer)
            writer.add_key_value_metadata(self._metadata())
        except BaseException:
            _abandon(writer)
            raise
        with writing(str(self.path)):
            writer.close()
            reach("parquet.part", self.path)
            _sync(self.path)
            self.size = self.path.stat().st_size

    def _add(self, data: ChunkData, writer: pq.ParquetWriter) -> None:
        """Add the rows of a chunk. Row groups begin and end with chunks, unless a chunk is larger than a group."""
        with phase(ENCODE):
            batch = self._batch(data)
            self.listed.append((self._kind(data), data.chunk_id, data.num_rows))
            self.rows += data.num_rows
            if self._pending and self._pending_bytes + batch.nbytes > GROUP_BYTES:
                self._flush(writer)
            rows = max(1, len(batch) * GROUP_BYTES // max(batch.nbytes, 1))
            for start in range(0, len(batch), rows):
                piece = batch.slice(start, rows)
                self._pending.append(piece)
                self._pending_bytes += piece.nbytes
                if self._pending_bytes >= GROUP_BYTES:
                    self._flush(writer)

    def _flush(self, writer: pq.ParquetWriter) -> None:
        if self._pending:
            table = pa.Table.from_batches(self._pending, self._schema)
            with writing(str(self.path)):
                writer.write_table(table, row_group_size=len(table))
        self._pending, self._pending_bytes = [], 0

    def _batch(self, data: ChunkData) -> pa.RecordBatch:
        """The rows of a chunk in the columns of the table."""
        length = data.num_rows
        arrays: dict[str, pa.Array] = {
            "recording_id": pa.repeat(pa.scalar(self._recording_id), length),
            "row_id": data.row_ids,
        }
        for timeline in data.timelines:
            column = self._column_of[timeline.name, timeline.kind]
            if column.rounded is None:
                arrays[column.name] = timeline.times
            else:
                arrays[column.name] = pa.array(timeline.ticks)
                arrays[column.rounded] = pa.array(timeline.ticks // 1000).view(pa.timestamp("us"))
        for component in data.components:
            own = self._column_of.get((component.descriptor, component.values.type))
            if own is not None:
                arrays[own.name] = to_portable(component.values)
            elif component.values.null_count < length:
                raise ReadError(
                    f"component {component.descriptor} of {data.entity_path} is not in the footer of its file",
                    hint="The file is damaged; copy it again.",
                )
        columns = [arrays.get(f.name) for f in self._schema]
        whole = [
            pa.nulls(length, f.type) if values is None else values.cast(f.type) if values.type != f.type else values
            for f, values in zip(self._schema, columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(whole, schema=self._schema)

    def _kind(self, data: ChunkData) -> int:
        """The number of a chunk's set of columns among the sets in the file."""
        types = tuple(component.values.type for component in data.components)
        key = (*data.shape, *types)
        if key not in self._kinds:
            self._kinds[key] = len(self._kinds)
            lines = [[t.name, str(t.kind), self._column_of[t.name, t.kind].name] for t in data.timelines]
            components = []
            for component in data.components:
                own = self._column_of.get((component.descriptor, component.values.type))
                names = component.descriptor
                components.append([names.component, names.archetype, names.component_type, own.name if own else None])
            types_text = base64.b64encode(types_to_bytes(types)).decode()
            self._kind_facts.append({"timelines": lines, "components": components, "types": types_text})
        return self._kinds[key]

    def _metadata(self) -> dict[str, str]:
        kinds, ids, rows = zip(*self.listed, strict=True) if self.listed else ((), (), ())
        batch = pa.RecordBatch.from_arrays(
            [pa.array(kinds, pa.int32()), pa.array(ids, pa.binary(16)), pa.array(rows, pa.int64())],
            ["kind", "chunk_id", "rows"],
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
            stream.write_batch(batch)
        return {
            "chunkmill:entity_path": self._table.entity_path,
            "chunkmill:kinds": json.dumps(self._kind_facts),
            "chunkmill:chunks": base64.b64encode(sink.getvalue()).decode(),
        }


def _abandon(writer: pq.ParquetWriter) -> None:
    """Close the file of a writer that failed; this writes the file's end, and fails again if the disk is full."""
    try:
        writer.close()
    except (OSError, pa.ArrowException):
        return


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ----------------------------------------------------------------------------------------------------------- commit


def _publish(ran: Ran, body: _FilesBody, stores: Sequence[StoreEntry], staging: Staging, place: Path) -> int:
    """Give the files of all tasks their names, and the folder its own; return the bytes of the files."""
    new = staging.local / "dataset"
    taken: set[str] = set()
    folders = [f"recording={_short(_partition(store.recording_id), store.recording_id, taken)}" for store in stores]
    listed: list[list[dict[str, Any]]] = [[] for _ in body.tables]
    numbers: dict[tuple[int, int], int] = {}
    with writing(str(place)):
        new.mkdir()
        for outcome, plans in zip(ran.outcomes(), body.tasks, strict=True):
            assert isinstance(outcome, dict)
            facts = json.loads(staging.folder.get(f"{outcome['name']}.json"))
            for file, plan in zip(facts, plans, strict=True):
                number = numbers[plan.table, plan.recording] = numbers.get((plan.table, plan.recording), -1) + 1
                below = f"{body.tables[plan.table].folder}/{folders[plan.recording]}/part-{number:05d}.parquet"
                (new / below).parent.mkdir(parents=True, exist_ok=True)
                (staging.local / file["part"]).rename(new / below)
                figures = {key: file[key] for key in ("rows", "chunks", "bytes")}
                listed[plan.table].append({"path": below, "recording": plan.recording, **figures})
        manifest = {
            "format": "chunkmill parquet",
            "version": VERSION,
            "recordings": [{"application_id": s.application_id, "recording_id": s.recording_id} for s in stores],
            "tables": [
                {
                    "entity_path": table.entity_path,
                    "folder": table.folder,
                    "columns": [_facts(column) for column in table.columns],
                    "files": files,
                }
                for table, files in zip(body.tables, listed, strict=True)
            ],
        }
        (new / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        reach("parquet.manifest", new / MANIFEST)
        _sync(new / MANIFEST)
        for folder in sorted({new, *(path.parent for path in new.rglob("*"))}):
            sync_folder(folder)
        size: int = sum(file["bytes"] for files in listed for file in files) + (new / MANIFEST).stat().st_size
        reach("parquet.draft")
        staging.check()
        new.replace(place)
        reach("parquet.publish")
        sync_folder(place.parent)
    return size


def _partition(recording_id: str) -> str:
    """A recording id as the value of a folder ``recording=…``."""
    return quote(recording_id, safe="").replace("~", "%7E")


def _facts(column: _Column) -> dict[str, Any]:
    name, kind = column.key
    if isinstance(name, str):
        rounded = {} if column.rounded is None else {"microseconds": column.rounded}
        return {"name": column.name, "timeline": name, "kind": str(kind), **rounded}
    names = {"component": name.component, "archetype": name.archetype, "component_type": name.component_type}
    return {"name": column.name, **names, "type": str(kind)}
