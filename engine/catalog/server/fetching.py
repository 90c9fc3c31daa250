"""Chunks on their way out: their messages as they lie, with the name of their store put before them, and verified."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from ...limits import MIB
from ...optimisation import ChunkReferences
from ...rrd import PositionalFile, StoreEntry, VerifiedPayload, message_head, message_tail, open_positional, store_field
from .methods import Call, ProtocolError, Status
from .planning import Integers
from .served_layers import StoredLayer

ANSWER_BYTES: Final = MIB
"""Bytes of chunks that one message has, or one chunk more."""
_CHUNKS_FIELD: Final = b"\x0a"


@dataclass(frozen=True, slots=True)
class EncodedMessage:
    """A message that is bytes already: those of its payload are never parsed, nor copied once more."""

    data: bytes

    def SerializeToString(self) -> bytes:  # noqa: N802 (as messages of protobuf have it)
        """The bytes."""
        return self.data


def encoded_chunks(wanted: Iterable[tuple[StoredLayer, Integers]], call: Call) -> Iterator[EncodedMessage]:
    """The ``FetchChunksResponse`` messages of chunks, by the rows of the manifests of their layers.

    Those of a layer come in the order of its files. Each is compared with its digest, where it has one, and with the
    chunk id that the manifest tells. Raises ``ReadError``, and :class:`ProtocolError` for a row that is not there.
    """
    pieces: list[bytes | memoryview] = []
    size = 0
    for chunk in _all_messages(wanted):
        call.check()
        length = sum(map(len, chunk))
        pieces += (_CHUNKS_FIELD, _varint(length), *chunk)
        size += length
        if size >= ANSWER_BYTES:
            yield EncodedMessage(b"".join(pieces))
            pieces, size = [], 0
    if pieces:
        yield EncodedMessage(b"".join(pieces))


def _all_messages(wanted: Iterable[tuple[StoredLayer, Integers]]) -> Iterator[tuple[bytes | memoryview, ...]]:
    for layer, rows in wanted:
        entry = layer.entry
        references = layer.folder.references(entry)
        if len(rows) and int(rows.max()) >= len(references.table):
            raise ProtocolError(Status.NOT_FOUND, "there is no such chunk")
        segment = StoreEntry(entry.store.kind, entry.application_id, entry.recording_id)
        yield from _messages(references, rows, store_field(segment.to_message()))


def _messages(references: ChunkReferences, rows: Integers, named: bytes) -> Iterator[tuple[bytes | memoryview, ...]]:
    """The pieces of the message of each chunk. Columns are taken one by one: lists of ranges would cost most of it."""
    table, store = references.table, references.store
    parts, paths = table.part_codes
    rows = rows[np.lexsort((table.offsets[rows], parts[rows]))]
    digests = table.digests.take(pa.array(rows)).to_pylist()
    columns = (parts, table.offsets, table.sizes, table.uncompressed_sizes, table.is_static)
    places = zip(*(column[rows].tolist() for column in columns), digests, rows.tolist(), strict=True)
    opened: tuple[int, PositionalFile] | None = None
    with ExitStack() as stack:
        for part, offset, size, expanded, is_static, digest, row in places:
            if opened is None or opened[0] != part:
                stack.close()
                opened = part, stack.enter_context(open_positional(paths[part], references.version))
            file, chunk_id = opened[1], table.chunk_ids[row].tobytes()
            payload = VerifiedPayload(
                paths[part],
                offset,
                size,
                chunk_id,
                version=references.version,
                digest=digest or b"",
                uncompressed_size=None if store is None else expanded,
                store=store,
            )
            encoded = payload.located(file)
            data = encoded.data
            if data is None:
                data = file.read(encoded.offset, encoded.size, what="a chunk")
            head = message_head(named, int(encoded.compression), encoded.uncompressed_size, encoded.size)
            yield head, data, message_tail(chunk_id, is_static)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
