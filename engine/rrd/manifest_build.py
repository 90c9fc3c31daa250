"""Building the manifest of one store for the footer of a file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from ..errors import WriteError
from ..limits import MAX_CHUNK_UNCOMPRESSED, MAX_FOOTER, MIB
from .arrow_ipc import Compression
from .chunk_columns import ChunkColumns, columns_of_entries
from .digest import digests_to_bytes
from .entry import ChunkEntry
from .lz4_block import compress
from .manifest_columns import ManifestColumns
from .messages import ENCODER_VERSION_V0, RrdManifest
from .store_entry import StoreEntry
from .union_schema import union_fields

_END_OF_STREAM_SIZE: Final = 8
_MAX_DETAIL: Final = 512 * MIB


def build_manifest(store: StoreEntry, entries: Sequence[ChunkEntry], *, path: str = "the recording") -> bytes:
    """The serialised ``RrdManifest`` that lists ``entries``, in their order; see :func:`manifest_of`."""
    return manifest_of(store, columns_of_entries(entries, path=path), path=path)


def manifest_of(store: StoreEntry, chunks: ChunkColumns, *, path: str) -> bytes:
    """The serialised ``RrdManifest`` that lists ``chunks``.

    Where the ranges of every component on every timeline would take more than half a gibibyte they are left out;
    readers then look into the chunks. Raises :class:`WriteError` for timelines that one manifest can't tell apart.
    """
    union = union_fields(chunks.union, chunks.kinds)
    columns = ManifestColumns(chunks, union.descriptors)
    batch = columns.record_batch(detailed=columns.detail_bytes <= _MAX_DETAIL)
    _check_names(batch.schema, path)
    schema = schema_stream(union.schema)
    data = _batch_stream(batch, path)
    manifest = RrdManifest(store_id=store.to_message())
    manifest.sorbet_schema.arrow_schema = schema
    manifest.sorbet_schema_sha256 = hashlib.sha256(schema[:-_END_OF_STREAM_SIZE]).digest()
    manifest.data.encoder_version = ENCODER_VERSION_V0
    manifest.data.payload = compress(data)
    manifest.data.compression = Compression.LZ4
    manifest.data.uncompressed_size = data.size
    manifest.chunk_digests = digests_to_bytes(chunks.digests)
    if manifest.ByteSize() > MAX_FOOTER:
        raise _too_large(manifest.ByteSize(), path)
    return bytes(manifest.SerializeToString())


def _check_names(schema: pa.Schema, path: str) -> None:
    """Raise :class:`WriteError` where columns of different timelines have one name: a reader would mix them up."""
    timelines: dict[str, bytes | None] = {}
    for field in schema:
        timeline = (field.metadata or {}).get(b"rerun:index")
        other = timelines.setdefault(field.name, timeline)
        if other != timeline:
            names = sorted((t or b"").decode() for t in (other, timeline))
            raise WriteError(
                f"the timelines {names[0]!r} and {names[1]!r} share the column {field.name!r} in the file's footer",
                path=path,
                hint="Rename one of them.",
            )


def schema_stream(schema: pa.Schema) -> bytes:
    """A union schema as a footer holds it: an Arrow IPC stream of nothing else."""
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, schema).close()
    return bytes(sink.getvalue().to_pybytes())


def _batch_stream(batch: pa.RecordBatch, path: str) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue()
    if stream.size > MAX_CHUNK_UNCOMPRESSED:
        raise _too_large(stream.size, path)
    return stream


def _too_large(size: int, path: str) -> WriteError:
    return WriteError(
        f"the footer of this recording would take {size:,} bytes",
        path=path,
        hint="Write fewer, larger chunks: collect(optimize=...) first.",
    )
