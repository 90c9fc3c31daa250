"""Stores of recordings, made without an ingestion: a few chunks a recording, straight through the writer."""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.execution.commit import Staging
from chunkmill.engine.execution.work import PartChunk
from chunkmill.engine.optimisation import ChunkReferences
from chunkmill.engine.recordings import (
    Arrived,
    Commit,
    Origin,
    RecordingEntry,
    SchemaFiles,
    StoreWriter,
    summary_of,
    times_in,
)
from chunkmill.engine.recordings.folder import RecordingsFolder, manifest_bytes
from chunkmill.engine.recordings.versions import RecordingsVersion
from chunkmill.engine.rrd import RrdFile, StoreEntry, Times, digest_of
from chunkmill.engine.rrd.writer import MessageWriter
from chunkmill.engine.store import RecordingStore
from chunkmill.engine.stream import LazyChunkStream

QUERY = "query"


def chunks_of(seed: int, chunks: int = 2, rows: int = 3, width: int = 1) -> list[Chunk]:
    """Chunks whose bytes differ from those of any other seed; ``width`` numbers in each row."""
    random = np.random.default_rng(seed)
    found = []
    for at in range(chunks):
        column = ComponentColumn("value", [list(random.random(width)) for _ in range(rows)])
        ticks = range(at * rows, (at + 1) * rows)
        found.append(Chunk.from_columns(f"/signal/{at % 2}", [TimeColumn("tick", sequence=ticks)], [column]))
    return found


class MadeRecordings:
    """A store, its writer, and what was committed."""

    def __init__(self, home: Path | str, **options: Any) -> None:
        self.home = home
        self.folder = RecordingsFolder(home)
        self.writer = StoreWriter(self.folder, **options)
        self._batch = self.writer.version.batches.get(QUERY, 0) if self.writer.version else 0

    def commit(self, *recordings: dict[str, Any]) -> RecordingsVersion:
        """One batch: each recording given by ``id``, and if wanted ``source``, ``seed``, ``kept`` and its chunks."""
        self._batch += 1
        with Staging.beside(self.folder.path / "batch") as staging:
            arrived = [self._arrived(staging, at, **recording) for at, recording in enumerate(recordings)]
            return self.writer.commit(staging, arrived, Commit("ingest", QUERY, self._batch, {"added": len(arrived)}))

    def _arrived(
        self,
        staging: Staging,
        at: int,
        *,
        id: str,  # noqa: A002 (reads well)
        source: str | None = None,
        seed: int = 0,
        kept: bool = True,
        kind: str = "recording",
        keep_chunks: bool = True,
        **shape: int,
    ) -> Arrived:
        store = StoreEntry(kind, "tests", id)
        name = f"part-{at}.rrd"
        parts = written(staging, name, store, chunks_of(seed or _seed(id), **shape))
        digest = hashlib.sha256(f"{seed} {id} {shape}".encode()).hexdigest()[:32]
        file = Origin(source or f"/landing/{id}.rrd", 100, 1, digest, kept)
        return Arrived(store, file, parts, None if keep_chunks else f"{id}.rrd", keep_chunks)

    def open(self, version: int | None = None) -> RecordingStore:
        """The store, opened anew."""
        return RecordingStore.open(self.home, version=version)

    def files(self) -> dict[str, set[str]]:
        """The names of its files, by folder."""
        folder = self.folder
        below = {"tables": folder.tables, "manifests": folder.manifests, "shards": folder.shards}
        return {"versions": set(folder.versions_folder.names()), **{k: set(v.names()) for k, v in below.items()}}


def written(staging: Staging, name: str, store: StoreEntry, chunks: Sequence[Chunk]) -> list[PartChunk]:
    """Chunks in a part, as a task leaves them."""
    file = io.BytesIO()
    writer = MessageWriter(file, store, path=name, digests=True, times=True)
    entries = [writer.append(chunk) for chunk in chunks]
    writer.flush()
    staging.folder.put(name, file.getvalue())
    return [PartChunk(0, at, name, entry) for at, entry in enumerate(entries)]


def times_of(made: MadeRecordings, recording_id: str) -> Times:
    """The times of a recording of the newest version."""
    found = times_in(made.folder, made.open().entry(recording_id))
    assert found is not None
    return found


def assert_times_of_chunks(made: MadeRecordings) -> None:
    """Each recording has times, and they are those of its chunks."""
    for entry in made.open():
        times, chunks = times_of(made, entry.recording_id), made.folder.chunks(entry)
        assert times.num_rows().tolist() == [chunk.num_rows for chunk in chunks]
        for number, chunk in enumerate(chunks):
            times.expect(number, chunk.data)


def in_place(folder: RecordingsFolder, path: Path, layer: str = "base") -> RecordingEntry:
    """The entry of the recording of an RRD whose chunks stay where they are; its manifest is written."""
    file = RrdFile(str(path))
    (store,) = file.stores()
    table = file.listing(store)
    assert table is not None
    table = table.within(lambda _: str(path))
    manifest = manifest_bytes(table)
    name = f"{digest_of(manifest).hex()}.arrows"
    folder.manifests.put(name, manifest)
    schema, ranges, properties = summary_of(ChunkReferences(table, file.content_version, store))
    status = path.stat()
    return RecordingEntry(
        recording_id=store.recording_id,
        application_id=store.application_id,
        kind=store.kind,
        segment_version=1,
        source=str(path),
        source_size=status.st_size,
        source_modified_ns=status.st_mtime_ns,
        source_digest="",
        source_kept=False,
        rrd=None,
        manifest=name,
        manifest_offset=0,
        manifest_size=len(manifest),
        manifest_digest=digest_of(manifest).hex(),
        shards=(),
        chunks=len(table),
        rows=int(table.num_rows.sum()),
        bytes=table.message_bytes,
        query_id="",
        batch=0,
        added=time.time(),
        layer=layer,
        in_place=True,
        schema=SchemaFiles(folder).put(schema),
        ranges=ranges,
        properties=properties,
    )


def _seed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def contents(store: RecordingStore) -> dict[str, list[tuple[str, bytes, list[Any]]]]:
    """What each recording holds: entity, digest of the message as it lies there, and values; every chunk is read."""
    return {entry.recording_id: list(_chunks(store, entry)) for entry in store}


def _chunks(store: RecordingStore, entry: RecordingEntry) -> Iterator[tuple[str, bytes, list[Any]]]:
    for chunk in store.recording(entry):
        payload: Any = chunk.payload
        yield chunk.entity_path, payload.digest, chunk.to_record_batch().to_pydict().get("value", [])


def values_of(store: RecordingStore, recording: str) -> dict[str, list[Any]]:
    """The values of each entity of a recording, in the order of time."""
    found: dict[str, list[Any]] = {}
    for chunk in LazyChunkStream.from_iter(store.recording(recording)):
        rows = chunk.to_record_batch().to_pydict()
        found.setdefault(chunk.entity_path, []).extend(zip(rows["tick"], rows["value"], strict=True))
    return {entity: [value for _, value in sorted(rows)] for entity, rows in found.items()}
