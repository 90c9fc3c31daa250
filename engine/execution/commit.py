"""The one commit: parts stitched into one RRD, or several, which then take the destination's name."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ..failing import writing
from ..locations import Location
from ..objects import ObjectUrl
from ..rrd import RrdWriter, StoreEntry
from .chunk_rows import PartChunk
from .folders import Folder, NewFile, sync_folder
from .shards import Shard, numbered_names, write_shards
from .staging import Staging

_COMMIT_NAME = "commit.rrd"


def commit_rrd(
    staging: Staging,
    destination: Location,
    stores: Sequence[StoreEntry],
    store_of_task: Sequence[StoreEntry],
    chunks: Sequence[PartChunk],
) -> int:
    """Stitch the parts, in order, into one RRD, which then appears at ``destination``. Gives its size in bytes.

    Guarantee: until the last step (a rename; in an object store the end of the upload) the destination is untouched;
    after it the file is whole and on disk. The bytes are copied by the kernel, or inside the store; the footer is made
    from the chunk rows.
    """
    with writing(str(destination)):
        whole = _new(staging, destination)
        try:
            writer = RrdWriter(whole.file, path=str(destination))
            for store in stores:
                writer.begin_store(store)
            for (task, part), found in groupby(chunks, key=lambda c: (c.task, c.part)):
                writer.append_part(store_of_task[task], staging.folder.place(part), [c.entry for c in found])
            writer.finish()
            whole.finish()
        except BaseException:
            whole.discard()
            raise
        if not isinstance(destination, ObjectUrl):
            (staging.local / _COMMIT_NAME).replace(destination)
            sync_folder(destination.parent)
    return writer.position


def _new(staging: Staging, destination: Location) -> NewFile:
    if isinstance(destination, ObjectUrl):
        return Folder.at(destination.parent).new(destination.name)
    return staging.folder.new(_COMMIT_NAME)


def commit_shards(
    staging: Staging, destination: Location, store: StoreEntry, chunks: Sequence[PartChunk], shard_bytes: int
) -> int:
    """Stitch the parts into shards, which then appear in the folder ``destination``. Gives their size in bytes.

    Guarantee: nothing is there before all shards are written and have arrived. On a file system they appear in one
    step; in an object store one after the other, and are taken back when that fails.
    """
    folder = Folder.at(destination) if isinstance(destination, ObjectUrl) else staging.folder.sub("shards")
    finished: list[str] = []
    shards: list[Shard] = []
    with writing(str(destination)):
        folder.make()
        try:
            shards += write_shards(staging, store, chunks, shard_bytes, str(destination), folder, numbered_names())
            for shard in shards:
                shard.file.finish()
                finished.append(shard.name)
        except BaseException:
            for shard in shards:
                shard.file.discard()
            folder.delete(finished)
            raise
        if not isinstance(destination, ObjectUrl):
            sync_folder(staging.local / "shards")
            (staging.local / "shards").replace(destination)
            sync_folder(destination.parent)
    return sum(shard.size for shard in shards)
