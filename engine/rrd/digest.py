"""Digests of stored chunks: XXH3-128 over the bytes of a message, as they lie in the file."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import xxhash

from ..chunk.data import ChunkData
from ..errors import ReadError
from .encoded_payload import EncodedPayload, FramedPayload
from .opening import open_positional
from .positional import PositionalFile
from .store_entry import StoreEntry


def digest_of(data: bytes) -> bytes:
    """The 16 bytes of XXH3-128.

    >>> digest_of(b"").hex()
    '99aa06d3014798d86001c324468d497f'
    """
    return xxhash.xxh3_128_digest(data)


def check_digest(data: bytes, digest: str) -> None:
    """Raise ``ValueError`` where ``data`` has another digest than ``digest``, which is hexadecimal."""
    if digest_of(data).hex() != digest:
        raise ValueError("it is not what was written: its digest differs")


@dataclass(frozen=True, slots=True)
class VerifiedPayload(FramedPayload):
    """A payload whose message must have ``digest``, unless that is empty; else reading it raises ``ReadError``.

    Of a message that was written here it is known how many bytes it expands to, and which store it names.
    """

    digest: bytes = b""
    uncompressed_size: int | None = None
    store: StoreEntry | None = None

    def load(self) -> pa.RecordBatch:
        """Read, verify and decode the batch."""
        with open_positional(self.path, self.version, self.held) as file:
            return self.located(file).load()

    def load_data(self) -> ChunkData:
        """Read, verify and decode the chunk."""
        with open_positional(self.path, self.version, self.held) as file:
            return self.located(file).load_data()

    def located(self, file: PositionalFile) -> EncodedPayload:
        """The compressed bytes in memory, verified: what is written is what was checked."""
        if not self.digest:
            return FramedPayload.located(self, file)
        data = file.read(self.offset, self.size, what="a chunk")
        if digest_of(data) != self.digest:
            raise damaged(self.path, self.offset)
        encoded = FramedPayload.located(self, file)
        if encoded.data is not None:  # a small message was read whole
            return encoded
        start = encoded.offset - self.offset
        return replace(encoded, data=data[start : start + encoded.size])


def damaged(path: str, offset: int) -> ReadError:
    """The error for a message that has another digest than it should."""
    return ReadError(
        "a chunk is not what was written: its digest differs",
        path=path,
        offset=offset,
        hint="The store was damaged on disk or in transit; restore this shard from a copy.",
    )
