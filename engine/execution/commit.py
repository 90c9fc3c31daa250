"""The one commit: extents brought together into one RRD, or several, which then take the destination's name."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from ..errors import ReadError, WriteError
from ..failing import writing
from ..faults import reach
from ..locations import Location
from ..objects import ObjectUrl
from ..rrd import FileRun, PositionalFile, RrdWriter, StoreEntry, copy_range, start_writing_back
from .chunk_rows import PartChunk
from .extents import Extent, Regions, lying_in_place
from .folders import OPEN_SUFFIX, Folder, NewFile, replace_file, sync_folder
from .shards import Shard, numbered_names, write_shards
from .staging import DONE_SUFFIX, PART_SUFFIX, Staging

_PERIOD: Final = 0.01
_PATIENCE: Final = 20
"""How many times as long as a look at the folder took the next one waits."""


class Stitcher:
    """Copies parts to the end of a file as their tasks are done, in the order of the tasks, in a thread of its own.

    Guarantee: :meth:`stop` gives the tasks from the first on whose parts were copied whole; those of others are
    untouched. Which part of a task counts is not decided here: one that was tried twice may have left two.

    Parameters
    ----------
    folder
        Where parts appear, and beside each a file that says that its task is done.
    file
        The file; what lies in it before ``start`` stays.
    tasks
        For each task, all that it gives, if that is left where it lies, and the store of its chunks.
    """

    def __init__(
        self, folder: Path, file: Path, start: int, tasks: Sequence[tuple[FileRun | None, StoreEntry]]
    ) -> None:
        self._folder = folder
        self._file = file
        self._end = start
        self._tasks = tasks
        self._stitched: list[tuple[str, int, int]] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chunkmill-stitching", daemon=True)
        self._thread.start()

    def stop(self) -> list[tuple[str, int, int]]:
        """Finish the part that is being copied and take no other.

        Gives the name of each that was, one for each task, with where it begins now, and its size.
        """
        self._stopped.set()
        self._thread.join()
        return self._stitched

    def _run(self) -> None:
        wait = _PERIOD
        # What fails here is tried again when all is there, and fails there with a name.
        with contextlib.suppress(OSError, ReadError, WriteError), self._file.open("r+b", buffering=0) as file:
            file.seek(self._end)
            while len(self._stitched) < len(self._tasks) and not self._stopped.wait(wait):
                began = time.perf_counter()
                done = self._done()
                wait = max(_PERIOD, _PATIENCE * (time.perf_counter() - began))
                while not self._stopped.is_set() and (name := done.get(len(self._stitched))) is not None:
                    run, store = self._tasks[len(self._stitched)]
                    if run is None or (self._folder / (name + PART_SUFFIX)).exists():
                        self._take(name + PART_SUFFIX, file)
                    elif not self._pass(name + PART_SUFFIX, run, store, file):
                        return

    def _done(self) -> dict[int, str]:
        """The names of what tasks left that are done, by their numbers."""
        names = (path.name.removesuffix(DONE_SUFFIX) for path in self._folder.glob(f"*{DONE_SUFFIX}"))
        return {int(name.partition("-")[0]): name for name in names}

    def _pass(self, name: str, run: FileRun, store: StoreEntry, file: BinaryIO) -> bool:
        """Copy what a task left where it lies. False where it lies there no more."""
        size = run.size_in(store)
        if not run.copy(file.fileno(), self._end, store, destination=str(self._file)):
            return False
        self._stitched.append((name, self._end, size))
        self._end += size
        return True

    def _take(self, name: str, file: BinaryIO) -> None:
        path = self._folder / name
        with PositionalFile(str(path)) as part:
            copy_range(part, 0, part.size, file.fileno())
            start_writing_back(file.fileno(), self._end, part.size)
            self._stitched.append((name, self._end, part.size))
            self._end += part.size
        path.unlink()


_COMMIT_NAME = "commit.rrd"
_BEGUN = _COMMIT_NAME + OPEN_SUFFIX
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
        self._begun: tuple[NewFile, RrdWriter] | None = None
        self._stitcher: Stitcher | None = None

    def reserve(self, sizes: Sequence[int]) -> Regions | None:
        """Begin the file now, with a region for each task, of these sizes; None in an object store."""
        writer = self._begin()
        return None if writer is None else Regions.of(_BEGUN, writer.position, sizes)

    def follow(self, runs: Sequence[tuple[FileRun | None, StoreEntry]]) -> bool:
        """Begin the file now, and bring parts into it while other tasks run. False in an object store: nothing is done.

        For each task, all that it gives, if nothing looks into it, and the store of its chunks.
        """
        writer = self._begin()
        if writer is None:
            return False
        folder = self._staging.local
        self._stitcher = Stitcher(folder, folder / _BEGUN, writer.position, runs)
        return True

    def finish(self, stores: Sequence[StoreEntry], extents: Sequence[Extent]) -> int:
        """Bring extents together, in their order; the file then appears. Gives its size in bytes.

        ``stores`` are those of the tasks.

        What lies in the file already stays there if it is in order: tasks wrote into their regions, or their parts were
        brought there meanwhile. Where it is not (a task was tried twice, and the part that counts is not the one that
        was taken), all is stitched into another file. Bytes are copied by the kernel, or inside the store. The footer
        is made from what is known of their chunks.
        """
        stitched = self._stitcher.stop() if self._stitcher is not None else []
        there = {part: (start, size) for part, start, size in stitched}
        parts = [part.at(_BEGUN, *there[part.file]) if part.file in there else part for part in extents]
        with writing(str(self._destination)):
            whole, writer, name, in_place = self._continued(parts) or self._anew()
            try:
                if not isinstance(self._destination, ObjectUrl):
                    parts, in_place = self._brought(stores, parts, in_place, name, writer.position), len(parts)
                for part in parts[:in_place]:
                    part.adopt(writer, stores[part.task])
                for part in parts[in_place:]:
                    part.append(writer, stores[part.task], self._staging.folder)
                writer.finish()
                reach("rrd.write", getattr(whole.file, "name", None))
                whole.finish()
            except BaseException:
                whole.discard()
                raise
            if not isinstance(self._destination, ObjectUrl):
                replace_file(self._staging.local / name, self._destination)
            reach("rrd.rename")
        return writer.position

    def take(self, part: str) -> None:
        """Let a part of a local staging folder that is a whole RRD, on disk, appear."""
        with writing(str(self._destination)):
            assert not isinstance(self._destination, ObjectUrl)
            replace_file(self._staging.local / part, self._destination)
            reach("rrd.rename")

    def _brought(
        self, stores: Sequence[StoreEntry], parts: Sequence[Extent], in_place: int, name: str, start: int
    ) -> list[Extent]:
        """The parts as they lie in the file ``name``: those not in place are copied there.

        One after the other: file systems let one write at a time into a file.
        """
        folder, file = self._staging.folder, self._staging.local / (name + OPEN_SUFFIX)
        there = list(parts[:in_place])
        end = start + sum(part.size or 0 for part in there)
        for part in parts[in_place:]:
            there.append(part.copied(stores[part.task], folder, file, end, str(self._destination)))
            end += there[-1].size or 0
        return there

    def close(self) -> None:
        """Throw away what was begun and not finished."""
        if self._stitcher is not None:
            self._stitcher.stop()
        if self._begun is not None:
            self._begun[0].discard()

    def _begin(self) -> RrdWriter | None:
        if isinstance(self._destination, ObjectUrl):
            return None
        with writing(str(self._destination)):
            whole = self._staging.folder.new(_COMMIT_NAME)
        writer = self._writer(whole)
        writer.flush()
        self._begun = whole, writer
        return writer

    def _continued(self, parts: Sequence[Extent]) -> _Target | None:
        """The file that was begun, if what lies in it may stay; nothing lies behind that then."""
        if self._begun is None:
            return None
        whole, writer = self._begun
        found = lying_in_place(parts, _BEGUN, writer.position)
        if found is None:
            return None
        in_place, end = found
        os.truncate(whole.file.fileno(), end)
        return _Target(whole, writer, _COMMIT_NAME, in_place)

    def _anew(self) -> _Target:
        if isinstance(self._destination, ObjectUrl):
            whole = Folder.at(self._destination.parent).new(self._destination.name)
        else:
            whole = self._staging.folder.new(_STITCHED_NAME)
        return _Target(whole, self._writer(whole), _STITCHED_NAME, 0)

    def _writer(self, whole: NewFile) -> RrdWriter:
        writer = RrdWriter(whole.file, path=str(self._destination))
        for store in self._stores:
            writer.begin_store(store)
        return writer


class _Target(NamedTuple):
    """The file that is finished, its name in the staging folder, and how many of the parts lie in it already."""

    file: NewFile
    writer: RrdWriter
    name: str
    in_place: int


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
