"""Who reads a store and a folder of RRDs all the time while they are written, and believes nothing."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from chunkmill.engine.errors import ReadError, SourceMissingError, UsageError
from chunkmill.engine.store import RecordingStore
from fault_content import Known, kept_content, rrd_contents

PAUSE = 0.01


class Watcher:
    """Looks again and again; :attr:`wrong` is what should not have been seen."""

    def __init__(self, home: Path, rrds: Path | None, known: Known, *, keeps_chunks: bool) -> None:
        self._home = home
        self._rrds = rrds
        self._known = known
        self._keeps_chunks = keeps_chunks
        self._newest = 0
        self._all_contents = {content for contents in known.values() for content in contents}
        self.looks = 0
        self.wrong: list[str] = []

    def run(self, stop: Path) -> None:
        """Look until the file ``stop`` is there, and once more."""
        done = False
        while not done and not self.wrong:
            done = stop.exists()
            self.look()
            time.sleep(PAUSE)

    def look(self) -> None:
        """Look once at everything."""
        self.looks += 1
        self._look_at_store()
        if self._rrds is not None:
            for path in rrds_below(self._rrds):
                self._look_at_rrd(path)

    def _look_at_store(self) -> None:
        try:
            store = RecordingStore.open(self._home)
        except SourceMissingError:
            if self._newest:
                self.wrong.append(f"the store is gone; it had version {self._newest}")
            return
        except ReadError as error:
            self.wrong.append(f"the store cannot be opened: {error}")
            return
        number = store.version.number
        if number < self._newest:
            self.wrong.append(f"version {number} was the newest after version {self._newest}")
        self._newest = max(self._newest, number)
        try:
            self._check(store)
        except ReadError as error:
            if (self._home / "versions" / f"{number:08d}.json").exists():
                self.wrong.append(f"version {number} cannot be read: {error}")
            # Otherwise it was vacuumed meanwhile, as it was not the newest any more.

    def _check(self, store: RecordingStore) -> None:
        number = store.version.number
        contents: dict[str, list[str]] = {}
        for entry in store:
            found = contents.setdefault(entry.source_digest, [])
            if entry.source_digest not in self._known:
                self.wrong.append(f"version {number} has a recording of {entry.source}, which is no recording")
            elif self._keeps_chunks:
                found.append(kept_content(store, entry))
        if self._keeps_chunks:
            for digest, found in contents.items():
                if sorted(found) != self._known.get(digest):
                    self.wrong.append(f"version {number} has something else, or a part, of the file {digest}")
        if store.version.operation == "ingest":
            batches = Counter(digest_and_batch[1] for digest_and_batch in {(e.source_digest, e.batch) for e in store})
            newest = max(store.version.batches.values(), default=0)
            counted = sum(store.version.files.get(outcome, 0) for outcome in ("added", "replaced"))
            if batches[newest] != counted:
                self.wrong.append(f"version {number} has {batches[newest]} of the {counted} files of its batch")

    def _look_at_rrd(self, path: Path) -> None:
        for _ in range(20):
            before = _identity(path)
            try:
                found = rrd_contents(path)
            except (ReadError, UsageError) as error:
                if before == _identity(path) and before is not None:
                    self.wrong.append(f"an RRD cannot be read: {error}")
                    return
                continue  # it was replaced while it was read
            if not found or not set(found) <= self._all_contents:
                if before == _identity(path):
                    self.wrong.append(f"{path} holds what no file held")
                    return
                continue
            return


def rrds_below(folder: Path) -> Iterator[Path]:
    """All RRDs in a folder and below it, but for hidden folders; what vanishes meanwhile does not matter."""
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(place) / name for name in files if name.endswith(".rrd"))


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
