"""Parts brought into the one file while other tasks still run, so that little is left to do when the last one ends."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

from ..errors import ReadError, WriteError
from ..rrd import FileRun, StoreEntry
from ..rrd.copying import copy_range, start_writing_back
from ..rrd.positional import PositionalFile
from .staging import DONE_SUFFIX, PART_SUFFIX

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
