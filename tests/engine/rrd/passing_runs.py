"""Runs the same pipeline twice: messages passed on as they lie, and every chunk read and written by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.errors import ReadError, WriteError
from chunkmill.engine.rrd import StoreEntry
from chunkmill.engine.stream import LazyChunkStream, write_stores
from chunkmill.readers import rrd
from rrd_bytes import frames, undigested

TARGET = StoreEntry("recording", "another application", "another recording")
Streams = Callable[[], list[tuple[StoreEntry, LazyChunkStream]]]


@contextmanager
def chunk_by_chunk() -> Iterator[None]:
    """No source passes messages on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rrd.RrdSource, "run_splits", lambda *_: None)
        patch.setattr(rrd.RrdSource, "whole_run", lambda *_: None)
        patch.setattr(rrd.RrdSource, "pieces", lambda self, split, _: iter([self.read(split)]))
        yield


def both_ways(folder: Path, streams: Streams) -> tuple[Any, Any]:
    """What comes of it in either way: the recording and the report, or the error."""
    return _outcome(folder / "passed.rrd", streams, nullcontext()), _outcome(
        folder / "by_chunk.rrd", streams, chunk_by_chunk()
    )


def _outcome(target: Path, streams: Streams, context: Any) -> Any:
    target.unlink(missing_ok=True)
    try:
        with context:
            report = write_stores(target, streams(), executor="inline")
    except (ReadError, WriteError) as error:
        assert not target.exists()
        return type(error), str(error).replace(str(target), "")
    entities = sorted((e.entity_path, e.chunks, e.rows, e.bytes) for e in report.entities)
    found = recorded(target)
    size = report.bytes_out - target.stat().st_size + sum(len(payload) for _, payload in found)
    return found, (report.chunks, report.rows, size, entities, report.sizes_out)


def recorded(path: Path) -> list[tuple[int, bytes]]:
    """All messages of a file, the ids of its announcements aside, which are new each time.

    Without digests: of messages that had none they are made where somebody reads them anyway.
    """
    data = undigested(path.read_bytes())
    return [(kind, payload[20:] if kind == 1 else payload) for kind, payload in frames(data)]
