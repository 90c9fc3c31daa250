"""Manifests of kept chunks: their chunk table, whose files are shards, as an Arrow file."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ..chunk import Chunk
from ..execution.chunk_rows import PartChunk
from ..execution.folders import Folder
from ..rrd import (
    CHUNK_TABLE,
    NEVER_CHANGES,
    StoreEntry,
    VerifiedPayload,
    check_digest,
    entries_of_table,
    table_of_entries,
)

MANIFEST_ERRORS = (OSError, pa.ArrowException, ValueError, TypeError, KeyError)
"""What reading a damaged manifest may raise."""


def manifest_bytes(chunks: Sequence[PartChunk]) -> bytes:
    """A manifest."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, CHUNK_TABLE) as out:
        out.write_table(table_of_entries((chunk.part, chunk.entry) for chunk in chunks))
    return bytes(sink.getvalue().to_pybytes())


def parse_manifest(data: bytes, digest: str) -> list[PartChunk]:
    """The chunks of a manifest, verified before Arrow looks at a byte of it."""
    check_digest(data, digest)
    batches = pa.ipc.open_file(pa.py_buffer(data)).read_all().to_batches()
    for batch in batches:
        batch.validate(full=True)
    return [PartChunk(0, number, *place) for number, place in enumerate(entries_of_table(batches))]


def bytes_by_part(data: bytes, digest: str) -> dict[str, tuple[int, int]]:
    """Count the bytes and chunks that a manifest names in each part; verified as by :func:`parse_manifest`."""
    check_digest(data, digest)
    table = pa.ipc.open_file(pa.py_buffer(data)).read_all().select(["part", "size"])
    table.validate(full=True)
    found = table.group_by("part").aggregate([("size", "sum"), ("size", "count")]).to_pylist()
    return {row["part"]: (row["size_sum"], row["size_count"]) for row in found}


def kept_chunk(found: PartChunk, shards: Folder, store: StoreEntry) -> Chunk:
    """A chunk of a manifest, undecoded, whose message is one of ``store``; it is verified when it is read."""
    entry = found.entry
    payload = VerifiedPayload.of(
        shards.place(found.part),
        entry,
        uncompressed_size=entry.uncompressed_size,
        store=store,
        version=NEVER_CHANGES,
    )
    return Chunk.lazy(entry.header, payload)
