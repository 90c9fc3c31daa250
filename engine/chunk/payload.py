"""The payload of a chunk that has not been loaded yet."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from .data import ChunkData


class Payload(Protocol):
    """Where the record batch of a chunk comes from when somebody touches it. Payloads pickle."""

    def load(self) -> pa.RecordBatch:
        """Read, check and decode the record batch, with its Rerun schema metadata, as it was stored."""
        ...


class ColumnsPayload(Payload, Protocol):
    """A payload that knows a shorter way to the columns."""

    def load_data(self) -> ChunkData:
        """Read, check and decode the chunk. Raises ``ValueError`` for a batch that is none."""
        ...
