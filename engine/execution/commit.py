"""The one commit: parts stitched into one RRD, or several, which then take the destination's name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from ..failing import writing
from ..faults import reach
from ..locations import Location
from ..objects import ObjectUrl
from ..rrd import RrdWriter, StoreEntry
from .chunk_rows import PartChunk
from .folders import OPEN_SUFFIX, Folder, NewFile, replace_file, sync_folder
from .passing import PassedPart, Regions
from .shards import Shard, numbered_names, write_shards
from .staging import Staging

_COMMIT_NAME = "commit.rrd"
_STITCHED_NAME = "stitched.rrd"


class RrdCommit:
    """The commit of a run into one RRD: the file that will appear at ``destination``.

    Guarantee: until the last step (a rename; in an object store the end of the upload) the destination is untouched;
    after it the file is whole and on disk.
    """

    def __init__(self, staging: Staging, destination: Location, stores: Sequence[StoreEntry]) -> None:
        self._staging = staging
        self._destination = destination
        self._stores = stores
        self._reserved: tuple[NewFile, RrdWriter] | None = None

    def reserve(self, sizes: Sequence[int]) -> Regions | None:
        """Begin the file now, with a region for each task, of these sizes; None in an object store."""
        if isinstance(self._destination, ObjectUrl):
            return None
        with writing(str(self._destination)):
            whole = self._staging.folder.new(_COMMIT_NAME)
        writer = self._writer(whole)
        writer.flush()
        self._reserved = whole, writer
        return Regions.of(_COMMIT_NAME + OPEN_SUFFIX, writer.position, sizes)

    def finish(
        self, store_of_task: Sequence[StoreEntry], chunks: Sequence[PartChunk], passed: Sequence[PassedPart]
    ) -> int:
        """Bring everything together, in order; the file then appears. Gives its size in bytes.

        What tasks wrote into their regions stays where it is if all did. Else all is stitched into another file: the
        bytes are copied by the kernel, or inside the store. The footer is made from chunk rows, and from the footers
        of what was passed on.
        """
        in_place = self._reserved is not None and len(passed) == len(store_of_task)
        in_place &= all(part.file == _COMMIT_NAME + OPEN_SUFFIX for part in passed)
        with writing(str(self._destination)):
            if in_place and self._reserved is not None:
                whole, writer = self._reserved
            else:
                whole = self._new(_STITCHED_NAME)
                writer = self._writer(whole)
            try:
                for part in _in_order(chunks, passed):
                    self._add(writer, store_of_task, part, in_place=in_place)
                writer.finish()
                reach("rrd.write", getattr(whole.file, "name", None))
                whole.finish()
            except BaseException:
                whole.discard()
                raise
            if not isinstance(self._destination, ObjectUrl):
                name = _COMMIT_NAME if in_place else _STITCHED_NAME
                replace_file(self._staging.local / name, self._destination)
            reach("rrd.rename")
        return writer.position

    def close(self) -> None:
        """Throw away what was begun and not finished."""
        if self._reserved is not None:
            self._reserved[0].discard()

    def _new(self, name: str) -> NewFile:
        if isinstance(self._destination, ObjectUrl):
            return Folder.at(self._destination.parent).new(self._destination.name)
        return self._staging.folder.new(name)

    def _writer(self, whole: NewFile) -> RrdWriter:
        writer = RrdWriter(whole.file, path=str(self._destination))
        for store in self._stores:
            writer.begin_store(store)
        return writer

    def _add(
        self,
        writer: RrdWriter,
        store_of_task: Sequence[StoreEntry],
        part: PassedPart | list[PartChunk],
        *,
        in_place: bool,
    ) -> None:
        folder = self._staging.folder
        if isinstance(part, list):
            writer.append_part(store_of_task[part[0].task], folder.place(part[0].part), [c.entry for c in part])
            return
        store = store_of_task[part.task]
        columns = part.passage.columns(store, writer.position)
        assert columns is not None
        if in_place:
            writer.adopt(store, columns, part.size)
        else:
            writer.append_passed(store, folder.place(part.file), columns, part.start, part.size)


def _in_order(chunks: Sequence[PartChunk], passed: Sequence[PassedPart]) -> Iterator[PassedPart | list[PartChunk]]:
    """Parts in the order of their tasks."""
    parts: list[tuple[int, PassedPart | list[PartChunk]]] = [(part.task, part) for part in passed]
    parts += [(task, list(found)) for (task, _), found in groupby(chunks, key=lambda c: (c.task, c.part))]
    yield from (part for _, part in sorted(parts, key=lambda pair: pair[0]))


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
