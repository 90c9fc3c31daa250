"""Sinks for chunk rows: ``df.write`` and ``df.writeStream`` into ``"chunkmill.rrd"`` and ``"chunkmill.store"``.

A task writes the chunks of its rows into parts of a staging folder, one for each recording, and reports them to the
driver as rows of the chunk table; the driver commits them like a pipeline's sink or an ingestion. Guarantee: output
appears whole or not at all, and a batch of a stream exists once, however often it is run: the query's id and the
batch's number identify it.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ..errors import ReadError, SameRecordingError, UsageError, WriteError, writing
from ..execution import (
    SCHEMA,
    Body,
    CarriedChunks,
    Folder,
    PartChunk,
    RrdCommit,
    Staging,
    TaskRun,
    TaskRunner,
    extents_in_order,
    noting_task,
    order_key,
    parse_rows,
    raise_failure,
)
from ..inputs import APPLICATION_ID
from ..locations import Location, exists, located
from ..recordings import (
    Arrived,
    Commit,
    LiveEntries,
    Origin,
    RecordingEntry,
    RecordingsFolder,
    RecordingsVersion,
    StoreWriter,
    key_of,
)
from ..rrd import MessageWriter, StoreEntry
from .options import flag

_PART: Final = ".part"


@dataclass(frozen=True, slots=True)
class Target:
    """The options of a sink, checked: the destination, and the recording of rows without one.

    ``query`` is the id of the query of a stream.
    """

    destination: Location
    application_id: str | None
    recording_id: str | None
    replaces: bool
    query: str | None

    @classmethod
    def of(cls, name: str, options: Mapping[str, str], *, streams: bool) -> Target:
        """Check the options of a sink. Raises ``UsageError``."""
        names = ("path", "application_id", "recording_id", "replaceSameId", "query", "checkpointLocation")
        unknown = sorted(set(options) - {option.lower() for option in names})
        if unknown:
            raise UsageError(
                f"{name} has no option {', '.join(map(repr, unknown))} for writing",
                hint=f"Options: {', '.join(names)}.",
            )
        if not options.get("path"):
            raise UsageError(f"{name} needs a path", hint='df.write.format("…").mode("append").save("…")')
        return cls(
            located(options["path"]),
            options.get("application_id"),
            options.get("recording_id"),
            flag("replaceSameId", options),
            _query(options) if streams else None,
        )

    def store_of(self, application_id: str | None, recording_id: str | None) -> StoreEntry:
        """The recording of a row. Raises ``UsageError`` if neither the row nor an option names one."""
        recording = self.recording_id or recording_id
        if recording is None:
            raise UsageError(
                "a row of the DataFrame has no recording id",
                path=str(self.destination),
                hint="Set the option 'recording_id', or keep the data source's column of that name.",
            )
        return StoreEntry("recording", self.application_id or application_id or APPLICATION_ID, recording)


def _query(options: Mapping[str, str]) -> str:
    """Return the id of a stream's query, as given or from its checkpoint."""
    if "query" in options:
        return options["query"]
    if "checkpointlocation" not in options:
        raise UsageError(
            "the query's id, which identifies the batches of a stream, is not known",
            hint="Give the query a checkpoint: .option('checkpointLocation', …), or an id: .option('query', …).",
        )
    checkpoint = Folder.at(options["checkpointlocation"])
    try:
        return str(json.loads(checkpoint.get("metadata"))["id"])
    except (OSError, ReadError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"the query's id cannot be read from its checkpoint: {error}",
            path=checkpoint.place("metadata"),
            hint="Give the query an id: .option('query', …), the same after every restart.",
        ) from error


@dataclass
class ChunksMessage(WriterCommitMessage):
    """The message of a task to the driver: the token of its staging folder, and rows as an Arrow IPC stream."""

    token: str
    rows: bytes


class _OpenPart(NamedTuple):
    name: str
    file: Any
    writer: MessageWriter


@dataclass(frozen=True, slots=True)
class _WriteRows(Body):
    """The body of a task: the chunks of its rows into parts, a part for each recording."""

    batches: Iterable[pa.RecordBatch]
    target: Target
    times: bool

    def label(self, index: int) -> str:
        return f"partition {index} of the DataFrame"

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        rows = CarriedChunks(self.label(task.index))
        parts: dict[StoreEntry, _OpenPart] = {}
        with ExitStack() as opened:
            for batch in self.batches:
                carried = list(rows.read(batch))
                task.rows.note("order", {"rows": [row.order for row in carried]})
                for row in carried:
                    store = self.target.store_of(row.application_id, row.recording_id)
                    if store not in parts:
                        parts[store] = self._opened(task, len(parts), store, opened)
                        ids = [store.application_id, store.recording_id]
                        task.rows.note("part", {"part": parts[store].name, "store": ids, "path": row.path})
                    yield from task.rows.add(parts[store].writer.append(row.chunk), parts[store].name)
            with writing(str(self.target.destination)):
                for part in parts.values():
                    part.writer.flush()
                    part.file.finish()
        return {"chunks": rows.count}

    def _opened(self, task: TaskRun, number: int, store: StoreEntry, opened: ExitStack) -> _OpenPart:
        name, destination = f"{task.name}-{number}{_PART}", str(self.target.destination)
        with writing(destination):
            file = task.folder.new(name)
        opened.callback(file.discard)  # which does nothing once it is finished
        return _OpenPart(name, file, MessageWriter(file.file, store, path=destination, digests=True, times=self.times))


class Written(NamedTuple):
    """A recording that tasks wrote: its chunks in their order, and the file that they came from."""

    store: StoreEntry
    source: str
    chunks: list[PartChunk]


def recordings_in(messages: Sequence[ChunksMessage]) -> list[Written]:
    """The recordings that tasks wrote, in the order of their first chunks, each with its chunks in order."""
    batches = [batch for message in messages for batch in pa.ipc.open_stream(message.rows)]
    chunks, notes = parse_rows(batches)
    orders: dict[int, list[tuple[int | None, int | None]]] = defaultdict(list)
    recordings: dict[str, tuple[StoreEntry, str]] = {}
    for note in notes:
        if note.kind == "order":
            orders[note.task] += note.data["rows"]
        elif note.kind == "part":
            store = StoreEntry("recording", *note.data["store"])
            recordings[note.data["part"]] = store, note.data["path"] or ""
    chunks.sort(key=lambda chunk: order_key(*orders[chunk.task][chunk.position]))
    written: dict[StoreEntry, Written] = {}
    for chunk in chunks:
        store, path = recordings[chunk.part]
        written.setdefault(store, Written(store, path, [])).chunks.append(chunk)
    return list(written.values())


class ChunkWriter(DataSourceArrowWriter, DataSourceStreamArrowWriter, ABC):
    """Writes chunk rows, for ``df.write`` and ``df.writeStream`` alike; subclasses commit them to a destination."""

    keeps_times = False
    """Whether the destination stores the times of chunks apart from them."""

    def __init__(self, target: Target, *, overwrite: bool) -> None:
        self._target = target
        self._overwrite = overwrite
        self._token = secrets.token_hex(6)

    @property
    @abstractmethod
    def _beside(self) -> Location:
        """The destination next to which the staging folder is made; its parent folder exists."""

    @abstractmethod
    def _bring(self, recordings: Sequence[Written], staging: Staging, batch: int | None) -> None:
        """Make recordings visible, as batch ``batch`` of a stream; a present batch is left unchanged."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one partition; runs in a task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        body = _WriteRows(iterator, self._target, self.keeps_times)
        with noting_task(body.label(task)):
            folder = Staging.shared(self._beside, self._token).location
            rows = list(TaskRunner(body, folder, str(self._target.destination), watched=False).run(task))
            raise_failure(parse_rows(rows[-1:])[1])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA) as stream:
            for batch in rows:
                stream.write_batch(batch)
        return ChunksMessage(self._token, sink.getvalue().to_pybytes())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch: int | None = None) -> None:
        """Make the output of the tasks visible. Raises ``WriteError``, ``SameRecordingError``."""
        with noting_task(str(self._target.destination)):
            written = [message for message in messages if isinstance(message, ChunksMessage)]
            if len(written) < len(messages):
                raise WriteError("not all tasks reported what they wrote", path=str(self._target.destination))
            token = next((message.token for message in written), self._token)
            staging = Staging.shared(self._beside, token)
            try:
                self._bring(recordings_in(written), staging, batch)
            finally:
                staging.remove()
            Staging.sweep(self._beside)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch: int | None = None) -> None:  # noqa: ARG002
        """Remove what the tasks wrote."""
        for token in {message.token for message in messages if isinstance(message, ChunksMessage)} or {self._token}:
            Staging.shared(self._beside, token).remove()


class RrdWriterOfRows(ChunkWriter):
    """One RRD with the recordings of all rows; for a stream, a folder with an RRD for each batch.

    Guarantee: a file appears whole or not at all. A repeated batch finds its file, and leaves it unchanged.
    """

    def __init__(self, target: Target, *, overwrite: bool) -> None:
        super().__init__(target, overwrite=overwrite)
        if target.query is None and exists(target.destination) and not overwrite:
            raise WriteError("already exists", path=str(target.destination), hint="Write with .mode('overwrite').")

    @property
    def _beside(self) -> Location:
        destination = self._target.destination
        beside = destination if self._target.query is None else destination / "batch"
        with writing(str(destination)):
            Folder.at(beside.parent).make()
        return beside

    def _bring(self, recordings: Sequence[Written], staging: Staging, batch: int | None) -> None:
        destination = self._target.destination
        if batch is not None:
            destination = destination / f"{batch:08d}-{(self._target.query or '')[:8]}.rrd"
            if exists(destination) or not recordings:
                return
        stores = [recording.store for recording in recordings]
        chunks = [replace(chunk, task=i) for i, recording in enumerate(recordings) for chunk in recording.chunks]
        RrdCommit(staging, destination, stores).finish(stores, extents_in_order(chunks))


class _DoneError(Exception):
    """The batch is in the store already."""


class StoreWriterOfRows(ChunkWriter):
    """A store of recordings: a version for each write, or for each batch of a stream.

    Guarantee: readers see all of it or nothing. A repeated batch is found in the version, and changes nothing.
    """

    keeps_times = True

    @property
    def _beside(self) -> Location:
        destination = self._target.destination
        with writing(str(destination)):
            Folder.at(destination).make()
        return destination / "batch"

    def _bring(self, recordings: Sequence[Written], staging: Staging, batch: int | None) -> None:
        home, query = self._target.destination, self._target.query or ""
        writer = StoreWriter(RecordingsFolder(home))

        def rule(
            live: LiveEntries, version: RecordingsVersion | None, entries: Sequence[RecordingEntry]
        ) -> Sequence[RecordingEntry]:
            if batch is not None and version is not None and version.batches.get(query, 0) > batch:
                raise _DoneError
            self._check_ids(recordings, live)
            return entries

        arrived = [Arrived(r.store, Origin(r.source, 0, 0, "", kept=False), r.chunks) for r in recordings]
        commit = Commit("write", query, 0 if batch is None else batch + 1)
        with contextlib.suppress(_DoneError):
            rule(writer.live, writer.version, ())
            writer.commit(staging, arrived, commit, alone=self._overwrite, rule=rule)

    def _check_ids(self, recordings: Sequence[Written], live: LiveEntries) -> None:
        if self._overwrite or self._target.replaces:
            return
        for recording in recordings:
            existing = live.get(key_of(recording.store))
            if existing is not None:
                raise SameRecordingError(
                    f"recording {recording.store.recording_id!r} is already in the store, from "
                    f"{existing.source or 'another source'}",
                    path=str(self._target.destination),
                    hint="To replace it, set the option replaceSameId='true'.",
                )
