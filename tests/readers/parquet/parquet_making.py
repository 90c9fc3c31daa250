"""What tests ask of chunks that came from a Parquet file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from chunkmill.engine.chunk import Chunk
from chunkmill.readers import ParquetReader


def chunks(path: Path, **options: Any) -> list[Chunk]:
    return ParquetReader(path, **options).stream().to_chunks(executor="inline")


def data(path: Path, **options: Any) -> dict[str, Chunk]:
    """The temporal chunks by entity, of a file that makes one of each."""
    return {c.entity_path: c for c in chunks(path, **options) if not c.is_static}


def column(chunk: Chunk, name: str) -> pa.ListArray:
    (found,) = (c.values for c in chunk.data.components if c.descriptor.component == name)
    return found
