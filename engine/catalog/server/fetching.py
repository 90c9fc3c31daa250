"""Chunks on their way out: their messages as they lie, with the name of their store put before them, and verified."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np

from ...limits import MIB
from ...optimisation import ChunkReferences
from ...rrd import (
    PositionalFile,
    StoreEntry,
    VerifiedPayload,
    digest_rows,
    message_head,
    message_tail,
    open_positional,
    store_field,
    verified_after_store,
)
from .methods import Call, ProtocolError, Status
from .planning import Integers
from .served_layers import StoredLayer

ANSWER_BYTES: Final = MIB
"""Bytes of chunks that one message has, or one chunk more."""
_GAP: Final = 4096
"""Bytes between two chunks that are read with them, rather than the two apart."""
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
    digests, ids = digest_rows(table.digests)[rows].tobytes(), table.chunk_ids[rows].tobytes()
    columns = (parts, table.offsets, table.sizes, table.uncompressed_sizes, table.is_static)
    places = list(zip(*(column[rows].tolist() for column in columns), strict=True))
    opened: tuple[int, PositionalFile] | None = None
    read, first = memoryview(b""), 0
    with ExitStack() as stack:
        for number, (part, offset, size, expanded, is_static) in enumerate(places):
            if opened is None or opened[0] != part:
                stack.close()
                opened = part, stack.enter_context(open_positional(paths[part], references.version))
                read = memoryview(b"")
            file, its_own = opened[1], slice(16 * number, 16 * number + 16)
            chunk_id, digest = ids[its_own], digests[its_own].strip(b"\0") and digests[its_own]
            if not first <= offset <= first + len(read) - size:
                stop = _end_of_neighbours(places, number)
                read, first = memoryview(file.read(offset, stop - offset, what="chunks")), offset
            message = read[offset - first : offset - first + size]
            rest = verified_after_store(message, chunk_id, is_static=is_static, digest=digest, store=store)
            if rest is not None:
                yield named, rest
                continue
            payload = VerifiedPayload(
                paths[part],
                offset,
                size,
                chunk_id,
                version=references.version,
                digest=digest,
                uncompressed_size=None if store is None else expanded,
                store=store,
            )
            encoded = payload.located(file)
            data = encoded.data
            if data is None:
                data = file.read(encoded.offset, encoded.size, what="a chunk")
            head = message_head(named, int(encoded.compression), encoded.uncompressed_size, encoded.size)
            yield head, data, message_tail(chunk_id, is_static)


def _end_of_neighbours(places: Sequence[tuple[Any, ...]], number: int) -> int:
    """The end of those chunks that lie right behind one, and are read with it."""
    part, start, size = places[number][:3]
    stop = start + size
    for other, offset, length, *_ in islice(places, number + 1, None):
        if other != part or offset - stop > _GAP or offset + length - start > ANSWER_BYTES:
            break
        stop = max(stop, offset + length)
    return int(stop)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
