"""Layers in files that are to be registered: found where they lie, by tasks, or brought in through their readers."""

from __future__ import annotations

import base64
import os
import stat
import time
import warnings
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ...readers import STORE, detect_format
from ..chunk import ChunkHeader, Schema
from ..errors import ReadError, ReadWarning, SourceMissingError, WriteError
from ..execution import Body, Group, Note, Outputs, RunOptions, Staging, TaskRun, is_of_all
from ..inputs import SourceOptions, Stores, stores_of
from ..objects import ObjectUrl, bucket_of, is_url
from ..optimisation import ChunkReferences, run_laid_out
from ..recordings import Arrived, IndexRange, InPlace, LayerSummary, Origin, summaries_of, summary_of
from ..rrd import (
    ChunkTable,
    Each,
    PositionalFile,
    RrdFile,
    StoreEntry,
    VerifiedPayload,
    open_positional,
    read_footers,
)
from ..stream import plan_outputs
from .requests import FileRequest


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """The marks that tell a file from another under its name later: size, modification time, and an object's ETag."""

    size: int
    modified_ns: int
    etag: str | None = None

    @classmethod
    def at(cls, request: FileRequest) -> FileIdentity:
        """The identity of what is there now; of a folder its format says it. Raises ``SourceMissingError``."""
        if is_url(request.place):
            location = request.location
            if isinstance(location, ObjectUrl):
                found = bucket_of(location).find(location.key)
                if found is None:  # a folder, or there is nothing
                    return cls(*detect_format(location).open(location).stamp())
                return cls(found.size, found.modified_ns, found.version)
        status = os.stat(request.place)  # noqa: PTH116 (a path for each takes 30 us)
        if stat.S_ISDIR(status.st_mode):
            location = request.location
            return cls(*detect_format(location).open(location).stamp())
        return cls(status.st_size, status.st_mtime_ns)

    def check(self, request: FileRequest) -> None:
        """Raise a transient ``ReadError`` where another is there now."""
        if FileIdentity.at(request) != self:
            raise ReadError(
                "was changed while it was registered",
                path=request.place,
                hint="Register it again when it is written.",
                transient=True,
            )

    def origin(self, request: FileRequest) -> Origin:
        """The file as the source of recordings."""
        return Origin(request.place, self.size, self.modified_ns, "", kept=False, etag=self.etag)


@dataclass(frozen=True, slots=True)
class FoundLayer:
    """One recording of a file: its store, its chunks by their places in the file, and a summary of them."""

    store: StoreEntry
    table: ChunkTable
    identity: FileIdentity
    summary: LayerSummary

    def arrived(self, request: FileRequest) -> Arrived:
        """It as it is to be committed."""
        source, in_place = self.identity.origin(request), InPlace(self.table, self.summary)
        return Arrived(self.store, source, layer=request.layer, in_place=in_place)

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
class LookBody(Body):
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
    for store in _of_kind(file.stores(), kind, request):
        table = file.listing(store)
        if table is None:
            table = _scanned(file, store)
        if verify:
            table = _verified(file, table)
        columns = Schema.from_headers(chain(table.headers(), file.silent_columns(store)))
        yield FoundLayer(store, table, identity, summary_of(ChunkReferences(table), columns))
    identity.check(request)


def _of_kind(stores: Sequence[StoreEntry], kind: str, request: FileRequest) -> list[StoreEntry]:
    """The stores that count. Raises ``ReadError`` where there is none."""
    found = [store for store in stores if (store.kind == "blueprint") == (kind == "blueprint")]
    if not found:
        raise ReadError(f"the file holds no {kind}", path=request.place)
    return found


def look_together(requests: Sequence[FileRequest], kind: str, each: Each = map) -> dict[int, list[FoundLayer]]:
    """The layers in RRDs that footers list whole, by the numbers of their requests, as :func:`look_at` gives them.

    What is left out is to be looked at by itself, and may be damaged, or not there.
    """
    opened = [found for found in each(_opened, enumerate(requests)) if found is not None]
    found: dict[int, list[FoundLayer]] = {}
    left_out = set[int]()
    try:
        for group in read_footers([file for _, _, file in opened], each):
            group = group.of_stores(lambda store: (store.kind == "blueprint") == (kind == "blueprint"))
            for one, summary in zip(group.stores, summaries_of(group, each), strict=True):
                number, identity, _ = opened[one.file]
                if summary is None:
                    left_out.add(number)
                    continue
                layer = FoundLayer(one.store, group.table.slice(one.start, one.stop), identity, summary)
                found.setdefault(number, []).append(layer)
    finally:
        for _, _, file in opened:
            file.close()
    unchanged = each(lambda item: _identity_or_none(requests[item[0]]) == item[1][0].identity, found.items())
    left_out.update(number for number, same in zip(found, unchanged, strict=True) if not same)
    return {
        number: sorted(layers, key=lambda layer: layer.store.sort_key)
        for number, layers in found.items()
        if number not in left_out
    }


def _opened(numbered: tuple[int, FileRequest]) -> tuple[int, FileIdentity, PositionalFile] | None:
    number, request = numbered
    identity = _identity_or_none(request)
    try:
        return None if identity is None else (number, identity, open_positional(request.place))
    except ReadError:
        return None


def _identity_or_none(request: FileRequest) -> FileIdentity | None:
    try:
        return FileIdentity.at(request)
    except (ReadError, OSError):
        return None


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
    """The same chunks, each read, decoded and compared with what the footer says of it, with their digests.

    Raises ``ReadError``.
    """
    known: dict[str, Any] = {"version": file.content_version, "held": file.held}
    with open_positional(file.path, file.content_version, file.held) as opened:
        digests = [VerifiedPayload.of(file.path, entry, **known).digest_in(opened) for entry in table.entries()]
        for _ in ChunkReferences.of(file.path, file.content_version, table).read(np.arange(len(table))):
            pass
    column = pa.array(digests, pa.binary(16))
    return ChunkTable(table.batch.set_column(table.batch.schema.get_field_index("digest"), "digest", column))


# --- copies


class _Planned(NamedTuple):
    request: FileRequest
    identity: FileIdentity
    outputs: Outputs


def copy_in(
    requests: Sequence[FileRequest], kind: str, staging: Staging, destination: str, run: RunOptions
) -> list[list[Arrived] | Exception]:
    """The recordings of files of any format, read through their readers into parts of the staging folder.

    Each file has its recordings, or the error for which it has none. Chunks stay as the reader gives them. Raises
    what stops all of them, as a full disk does.
    """
    planned = [_planned(request, kind, run) for request in requests]
    fine = [one.outputs for one in planned if isinstance(one, _Planned)]
    groups = iter(run_laid_out(fine, None, staging, destination, run))
    found = [_copied(one, next(groups)) if isinstance(one, _Planned) else one for one in planned]
    if any(isinstance(one, Exception) for one in found):
        staging.check()
    return found


def _planned(request: FileRequest, kind: str, run: RunOptions) -> _Planned | Exception:
    """A file that is opened, and its recordings, ready to be run."""
    try:
        identity = FileIdentity.at(request)
        stores = _streams(request, SourceOptions(executor=run.executor))
        wanted = set(_of_kind([store for store, _ in stores], kind, request))
        return _Planned(
            request, identity, plan_outputs([one for one in stores if one[0] in wanted], executor=run.executor)
        )
    except WriteError:
        raise
    except Exception as error:  # noqa: BLE001 (the file's own)
        return error


def _streams(request: FileRequest, options: SourceOptions) -> Stores:
    """The recordings of a file; of a folder of episodes each is one, whose id is the folder's name and its own."""
    location = request.location
    row = detect_format(location)
    episodes = () if row is STORE else row.open(location).episodes()
    if not episodes:
        return stores_of(location, request.name, options)
    return [
        one
        for episode in episodes
        for one in stores_of(location, f"{request.name}-{episode.name}", options, episode.number)
    ]


def _copied(planned: _Planned, group: Group | Exception) -> list[Arrived] | Exception:
    if isinstance(group, Exception):
        if is_of_all(group):
            raise group
        return group
    request, identity, _ = planned
    try:
        identity.check(request)
    except (SourceMissingError, ReadError, OSError) as error:
        return error
    for text in group.warnings:
        warnings.warn(text, ReadWarning, stacklevel=2)
    source = identity.origin(request)
    try:
        file = RrdFile(request.place) if request.is_rrd else None
        return [
            Arrived(store, source, chunks, layer=request.layer, silent_columns=_silent_columns(file, store))
            for store, chunks in group.chunks
        ]
    except (ReadError, OSError) as error:
        return error


def _silent_columns(file: RrdFile | None, store: StoreEntry) -> Sequence[ChunkHeader]:
    return () if file is None or store not in file.stores() else file.silent_columns(store)
