"""Small RRDs, and datasets of them, for the tests of this folder."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from chunk_making import made
from chunkmill.engine import Ingest, LazyChunkStream


def rrd_at(path: Path, recording_id: str) -> Path:
    """An RRD with one recording of three rows, which landed a while ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    LazyChunkStream.from_iter([made(range(3))]).write_rrd(path, application_id="tests", recording_id=recording_id)
    os.utime(path, (time.time() - 60,) * 2)
    return path


def ingest(landing: Path, ids: Iterable[str], into: Any) -> None:
    """Let recordings land in a folder, and bring them into a dataset or store, by one batch."""
    for name in ids:
        rrd_at(landing / f"{name}.rrd", name)
    query = Ingest(landing, into=into, settle=0, executor="inline", optimize=None).start(once=True)
    assert query.await_termination(60)
