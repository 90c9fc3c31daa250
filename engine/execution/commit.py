"""The one commit: parts stitched into one RRD, which then takes the destination's name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from ..failing import writing
from ..rrd import RrdWriter, StoreEntry
from .chunk_rows import PartChunk
from .staging import Staging

_COMMIT_NAME = "commit.rrd"


def commit_rrd(
    staging: Staging,
    destination: Path,
    stores: Sequence[StoreEntry],
    store_of_task: Sequence[StoreEntry],
    chunks: Sequence[PartChunk],
) -> int:
    """Stitch the parts, in order, into one RRD and rename it to ``destination``. Gives its size in bytes.

    Guarantee: until the rename the destination is untouched; after it the file is whole and on disk. The bytes are
    copied by the kernel; the footer is made from the chunk rows.
    """
    whole = staging.folder / _COMMIT_NAME
    with writing(str(destination)), whole.open("wb", buffering=0) as file:
        writer = RrdWriter(file, path=str(destination))
        for store in stores:
            writer.begin_store(store)
        for (task, part), found in groupby(chunks, key=lambda c: (c.task, c.part)):
            writer.append_part(store_of_task[task], staging.folder / part, [c.entry for c in found])
        writer.finish()
    size = whole.stat().st_size
    with writing(str(destination)):
        whole.replace(destination)
        sync_folder(destination.parent)
    return size


def sync_folder(folder: Path) -> None:
    """Make a rename within ``folder`` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
