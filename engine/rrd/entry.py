"""The place of a chunk in a file."""

from __future__ import annotations

from dataclasses import dataclass

from ..chunk.header import ChunkHeader


@dataclass(frozen=True, slots=True)
class ChunkEntry:
    """One chunk of a file: its header and where its ``ArrowMsg`` lies.

    ``offset`` is that of the message itself, 16 bytes past its frame header, from the start of the stream (or of
    the part); ``size`` its length in bytes; ``uncompressed_size`` the length of the Arrow IPC stream inside. ``digest``
    is that of the message, see :func:`message_digest`, where it is known.
    """

    header: ChunkHeader
    offset: int
    size: int
    uncompressed_size: int
    digest: bytes | None = None
