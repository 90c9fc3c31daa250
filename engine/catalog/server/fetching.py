"""Chunks on their way out: their messages as they lie, with the name of their store put before them, and verified."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import numpy as np

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


def encoded_chunks(layer: StoredLayer, rows: Integers, call: Call) -> Iterator[EncodedMessage]:
    """The ``FetchChunksResponse`` messages of some chunks of a layer, in the order of their files.

    Each is compared with its digest, where it has one, and with the chunk id that the manifest tells. Raises
    ``ReadError``, and :class:`ProtocolError` for a row that is not there.
    """
    entry = layer.entry
    references = layer.folder.references(entry)
    if len(rows) and int(rows.max()) >= len(references.table):
        raise ProtocolError(Status.NOT_FOUND, "there is no such chunk")
    segment = StoreEntry(entry.store.kind, entry.application_id, entry.recording_id)
    named = store_field(segment.to_message())
    pieces: list[bytes | memoryview] = []
    size = 0
    for chunk in _messages(references, rows, named):
        call.check()
        length = sum(map(len, chunk))
        pieces += (_CHUNKS_FIELD, _varint(length), *chunk)
        size += length
        if size >= ANSWER_BYTES:
            yield EncodedMessage(b"".join(pieces))
            pieces, size = [], 0
    if pieces:
        yield EncodedMessage(b"".join(pieces))


def _messages(references: ChunkReferences, rows: Integers, named: bytes) -> Iterator[tuple[bytes | memoryview, ...]]:
    """The pieces of the message of each chunk."""
    table = references.table.take(rows)
    parts, paths = table.part_codes
    order = np.lexsort((table.offsets, parts)).tolist()
    ids, digests = table.batch.column("chunk_id").to_pylist(), table.digests.to_pylist()
    offsets, sizes, expanded = table.offsets.tolist(), table.sizes.tolist(), table.uncompressed_sizes.tolist()
    static, store = table.is_static.tolist(), references.store
    opened: tuple[int, PositionalFile] | None = None
    with ExitStack() as stack:
        for row in order:
            part = int(parts[row])
            if opened is None or opened[0] != part:
                stack.close()
                opened = part, stack.enter_context(open_positional(paths[part], references.version))
            file = opened[1]
            payload = VerifiedPayload(
                paths[part],
                offsets[row],
                sizes[row],
                ids[row],
                version=references.version,
                digest=digests[row] or b"",
                uncompressed_size=None if store is None else expanded[row],
                store=store,
            )
            encoded = payload.located(file)
            data = encoded.data
            if data is None:
                data = file.read(encoded.offset, encoded.size, what="a chunk")
            head = message_head(named, int(encoded.compression), encoded.uncompressed_size, encoded.size)
            yield head, data, message_tail(ids[row], static[row])


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
