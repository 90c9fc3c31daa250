"""Layers in files: what a task finds out of one file that is to be registered where it lies."""

from __future__ import annotations

import base64
import time
import warnings
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from ..chunk import Schema
from ..errors import ReadError, ReadWarning
from ..execution import Note, TaskRun
from ..objects import ObjectUrl, bucket_of
from ..optimisation import ChunkReferences
from ..recordings import IndexRange, LayerSummary, summary_of
from ..rrd import ChunkTable, RrdFile, StoreEntry, VerifiedPayload, message_digest, open_positional
from .requests import FileRequest


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """The marks that tell a file from another under its name later: size, modification time, and an object's ETag."""

    size: int
    modified_ns: int
    etag: str | None = None

    @classmethod
    def at(cls, request: FileRequest) -> FileIdentity:
        """The identity of what is there now. Raises ``SourceMissingError``."""
        location = request.location
        if isinstance(location, ObjectUrl):
            found = bucket_of(location).head(location.key)
            return cls(found.size, found.modified_ns, found.version)
        status = location.stat()
        return cls(status.st_size, status.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class FoundLayer:
    """One recording of a file: its store, its chunks by their places in the file, and a summary of them."""

    store: StoreEntry
    table: ChunkTable
    identity: FileIdentity
    summary: LayerSummary

    def note(self) -> dict[str, Any]:
        """The facts that a task tells of it, beside the table, as JSON data."""
        return {
            "store": [self.store.kind, self.store.application_id, self.store.recording_id],
            "identity": [self.identity.size, self.identity.modified_ns, self.identity.etag],
            "schema": base64.b64encode(self.summary.schema.serialize()).decode(),
            "ranges": [list(one) for one in self.summary.ranges],
            "properties": base64.b64encode(self.summary.properties).decode(),
        }

    @classmethod
    def of(cls, note: Note) -> FoundLayer:
        """The inverse of :meth:`note`."""
        data = note.data
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(data["schema"])))
        ranges = tuple(IndexRange(*one) for one in data["ranges"])
        summary = LayerSummary(schema, ranges, base64.b64decode(data["properties"]))
        return cls(StoreEntry(*data["store"]), data["table"], FileIdentity(*data["identity"]), summary)


@dataclass(frozen=True, slots=True)
class LookBody:
    """The stage that looks at files; ``kind`` is that of the stores that count, the others are passed over."""

    requests: tuple[FileRequest, ...]
    kind: str
    verify: bool

    def label(self, index: int) -> str:
        """The place of a file."""
        return self.requests[index].place

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """Tell of each layer in a file, in the order of its stores."""
        for found in look_at(self.requests[task.index], self.kind, verify=self.verify):
            task.rows.note("layer", found.note(), found.table)
        yield from ()
        return {}


def look_at(request: FileRequest, kind: str, *, verify: bool = False) -> Iterator[FoundLayer]:
    """The layers in an RRD, from its footer; of one without a footer, from all its chunks.

    With ``verify`` all chunks are read, and their digests kept. Raises ``ReadError``.
    """
    identity = FileIdentity.at(request)
    file = RrdFile(request.place)
    stores = [store for store in file.stores() if (store.kind == "blueprint") == (kind == "blueprint")]
    if not stores:
        raise ReadError(f"the file holds no {kind}", path=request.place)
    for store in stores:
        table = file.listing(store)
        if table is None:
            table = _scanned(file, store)
        if verify:
            table = _verified(file, table)
        columns = Schema.from_headers(chain(table.headers(), file.silent_columns(store)))
        yield FoundLayer(store, table, identity, summary_of(ChunkReferences(table, None, store), columns))
    if FileIdentity.at(request) != identity:
        raise ReadError(
            "was changed while it was registered",
            path=request.place,
            hint="Register it again when it is written.",
            transient=True,
        )


def _scanned(file: RrdFile, store: StoreEntry) -> ChunkTable:
    """The chunks of a file without a footer."""
    began = time.perf_counter()
    table = file.scanned(store)
    warnings.warn(
        f"{file.path}: has no footer, so all of its {file.size:,} bytes were read to register it "
        f"({time.perf_counter() - began:.1f} s). `chunkmill convert` writes it anew with one.",
        ReadWarning,
        stacklevel=2,
    )
    return table


def _verified(file: RrdFile, table: ChunkTable) -> ChunkTable:
    """The same chunks, each read and decoded, with their digests. Raises ``ReadError``."""
    digests = []
    with open_positional(file.path, file.content_version, file.held) as opened:
        for entry in table.entries():
            data = opened.read(entry.offset, entry.size, what="a chunk")
            digests.append(message_digest(data))
            VerifiedPayload.of(file.path, entry, version=file.content_version, held=file.held).load()
    column = pa.array(digests, pa.binary(16))
    return ChunkTable(table.batch.set_column(table.batch.schema.get_field_index("digest"), "digest", column))
