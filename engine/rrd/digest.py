"""Digests of what is written: XXH3-128, of a file of a store over all its bytes, of a chunk over those of its message.

Of a message that is what follows the store it names, so that a chunk which goes into another recording as it is takes
its digest along, and nothing need be read for it. They stand in chunk rows, and in the footers of RRD files in a field
that other readers skip.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import xxhash

from ..errors import ReadError
from .arrow_message import LocatedMessage, locate, message_head, message_tail, store_field
from .encoded_payload import EncodedPayload, FramedPayload
from .entry import ChunkEntry
from .positional import PositionalFile
from .store_entry import StoreEntry

DIGEST_SIZE: Final = 16
_STORE_TAG: Final = 0x0A
_NONE: Final = bytes(DIGEST_SIZE)


def digest_of(data: bytes | memoryview) -> bytes:
    """The 16 bytes of XXH3-128.

    >>> digest_of(b"").hex()
    '99aa06d3014798d86001c324468d497f'
    """
    return xxhash.xxh3_128_digest(data)


def check_digest(data: bytes, digest: str) -> None:
    """Raise ``ValueError`` where ``data`` has another digest than ``digest``, which is hexadecimal."""
    if digest_of(data).hex() != digest:
        raise ValueError("it is not what was written: its digest differs")


def message_digest(message: bytes | memoryview) -> bytes:
    r"""The digest of an ``ArrowMsg``: of what follows its first field, the store.

    >>> one, other = b"\n\x03one", b"\n\x05other"
    >>> message_digest(one + b"chunk") == message_digest(other + b"chunk") == digest_of(b"chunk")
    True
    """
    return digest_of(memoryview(message)[_store_size(message) :])


def _store_size(message: bytes | memoryview) -> int:
    """The size of the field that a message begins with, if that is a store; else 0."""
    size = shift = at = 0
    if not message or message[0] != _STORE_TAG:
        return 0
    for byte in message[1:6]:
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return 1 + at + size


@lru_cache(maxsize=64)
def _field_of(store: StoreEntry) -> bytes:
    return store_field(store.to_message())


def digests_to_bytes(digests: pa.Array) -> bytes:
    """Digests of chunks, null where there is none, as a footer has them: nothing where no chunk has one."""
    if digests.null_count == len(digests):
        return b""
    filled = digests.fill_null(_NONE)
    start = DIGEST_SIZE * filled.offset
    return bytes(memoryview(filled.buffers()[1])[start : start + DIGEST_SIZE * len(filled)])


def digests_from_bytes(data: bytes, count: int) -> pa.Array:
    """The inverse of :func:`digests_to_bytes`, of so many chunks. Raises ``ValueError``."""
    if not data:
        return pa.nulls(count, pa.binary(DIGEST_SIZE))
    if len(data) != DIGEST_SIZE * count:
        raise ValueError(f"its digests of {count} chunks have {len(data)} bytes instead of {DIGEST_SIZE * count}")
    there = np.frombuffer(data, np.uint64).reshape(-1, 2).any(axis=1)
    validity = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(DIGEST_SIZE), count, [validity, pa.py_buffer(data)])


@dataclass(frozen=True, slots=True)
class VerifiedPayload(FramedPayload):
    """A payload whose message must have ``digest``, unless that is empty; else reading it raises ``ReadError``.

    It must name ``store`` too, where that is known. Of a message that was written here it is known how many bytes it
    expands to.
    """

    digest: bytes = b""
    uncompressed_size: int | None = None
    store: StoreEntry | None = None

    @classmethod
    def of(cls, path: str, entry: ChunkEntry, **known: Any) -> Self:
        """Return the payload of a chunk that lies in the file ``path`` as ``entry`` says; fields ``known`` besides."""
        return cls(path, entry.offset, entry.size, entry.header.chunk_id, entry.digest or b"", **known)

    def located(self, file: PositionalFile) -> EncodedPayload:
        """The compressed bytes in memory, verified: what is written is what was checked."""
        found = self._locate(file)
        encoded = self._checked(found, file)
        return replace(encoded, digest=self.digest) if self.digest and _is_as_written(found, encoded) else encoded

    def _locate(self, file: PositionalFile, *, whole: bool = False) -> LocatedMessage:
        data = b""
        if self.digest:
            data = file.read(self.offset, self.size, what="a chunk")
            names_store = self.store is None or data.startswith(_field_of(self.store))
            if not names_store or message_digest(data) != self.digest:
                raise damaged(self.path, self.offset)
        return locate(file, self.offset, self.size, whole=whole, data=data)


def _is_as_written(found: LocatedMessage, encoded: EncodedPayload) -> bool:
    """Whether what lies around the payload of a message that was read whole is what a writer would put there."""
    whole = found.payload.obj if isinstance(found.payload, memoryview) else None
    if not isinstance(whole, bytes) or found.chunk_id is None:
        return False
    tail = message_tail(found.chunk_id, found.message.is_static)
    head = message_head(b"", encoded.compression, encoded.uncompressed_size, encoded.size)
    size = len(head) + encoded.size + len(tail)
    start = _store_size(whole)
    return len(whole) == start + size and whole.startswith(head, start) and whole.endswith(tail)


def damaged(path: str, offset: int) -> ReadError:
    """The error for a message that has another digest than it should."""
    return ReadError(
        "a chunk is not what was written: its digest differs",
        path=path,
        offset=offset,
        hint="The file was damaged on disk or in transit; restore it from a copy.",
    )
