"""One run of an ingestion that is going to be cut: ``python fault_driver.py JSON`` or :func:`drive` in a fork."""

from __future__ import annotations

import json
import os
import resource
import sys
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chunkmill.engine.errors import ChunkmillError
from chunkmill.engine.ingest import landing
from chunkmill.engine.ingest.ingest import Ingest
from chunkmill.engine.ingest.quarantine import FileQuarantine
from chunkmill.engine.recordings import Commit, RecordingsFolder, RecordingsVersion, StoreWriter
from chunkmill.engine.store import OptimizationProfile, RecordingStore
from fault_world import BATCH
from unsafe_sinks import SINKS


@dataclass(frozen=True)
class Drive:
    """What one run does. ``into`` and ``rrds``: whether there is such a destination; ``sink``: a planted unsafe one;
    ``rival``: another writer is faster than each commit, once.

    With ``watch`` it goes on until the file ``stop`` is there, otherwise it takes what there is.
    """

    folder: str
    executor: str = "inline"
    master: str | None = None
    into: bool = True
    rrds: bool = True
    source_done: str = "keep"
    optimize: bool = False
    upkeep: bool = False
    retry: bool = False
    merge_log: bool = True
    watch: bool = False
    sink: str = ""
    rival: bool = False

    @property
    def root(self) -> Path:
        """The folder of the case."""
        return Path(self.folder)

    @property
    def home(self) -> Path:
        """Where the store is."""
        return self.root / "lake" if self.into else self.root / "rrds" / ".chunkmill"


def ingest(drive: Drive, **more: Any) -> None:
    """Run the ingestion to its end."""
    root = drive.root
    query = Ingest(
        root / "landing",
        into=root / "lake" if drive.into else None,
        rrds=root / "rrds" if drive.rrds else None,
        optimize=OptimizationProfile.OBJECT_STORE if drive.optimize else None,
        max_files_per_trigger=BATCH,
        source_done=drive.source_done,
        archive=root / "archive" if drive.source_done == "archive" else None,
        executor=drive.executor,
        master=drive.master,
        **more,
    ).start(once=not drive.watch, every=0.3)
    while not query.await_termination(0.1):
        if drive.watch and (root / "stop").exists():
            query.stop()


def let_a_rival_win() -> None:
    """Have each version's number taken by another writer the first time that it is tried."""
    publish = RecordingsFolder.publish
    beaten: set[str] = set()

    def late(folder: RecordingsFolder, version: RecordingsVersion) -> bool:
        run = version.tables[-1].name.partition("-")[0] if version.tables else ""
        if version.operation != "rival" and run not in beaten:
            beaten.add(run)
            StoreWriter(RecordingsFolder(folder.path)).publish([], Commit("rival"))
        return publish(folder, version)

    RecordingsFolder.publish = late  # type: ignore[method-assign]


def keep_up(drive: Drive) -> None:
    """Compact where that is there, and remove what nothing needs."""
    compact = getattr(RecordingStore, "compact", None)
    if compact is not None and drive.into:
        compact(RecordingStore.open(drive.home), executor="inline")
    RecordingStore.open(drive.home).vacuum()


def drive_on(drive: Drive) -> int:
    """Do it; the exit code. What was raised is written to ``error.json``."""
    try:
        if drive.sink:
            SINKS[drive.sink]()
        if drive.rival:
            let_a_rival_win()
        if drive.merge_log:
            landing.KEPT_ENTRIES = 1  # type: ignore[misc]
        if drive.retry:
            FileQuarantine(drive.home).request_retry([str(p) for p in _spoilt(drive)])
        if drive.upkeep:
            keep_up(drive)
        else:
            ingest(drive)
    except Exception as error:  # noqa: BLE001 (the parent judges it)
        for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):  # a planned one is not for what is written here
            resource.setrlimit(limit, (resource.getrlimit(limit)[1],) * 2)
        own = isinstance(error, ChunkmillError)
        said = {
            "own": own,
            "kind": type(error).__name__,
            "path": getattr(error, "path", None),
            "hint": getattr(error, "hint", None),
            "text": "".join(traceback.format_exception(error)),
        }
        (drive.root / "error.json").write_text(json.dumps(said))
        return 1
    return 0


def _spoilt(drive: Drive) -> list[str]:
    """Files that were put into quarantine by the planned failure itself."""
    return [row.path for row in FileQuarantine(drive.home).rows() if "planned failure" in row.message]


def command(drive: Drive) -> list[str]:
    """The command line that does it in a process of its own."""
    return [sys.executable, str(Path(__file__).resolve()), json.dumps(asdict(drive))]


if __name__ == "__main__":
    code = drive_on(Drive(**json.loads(sys.argv[1])))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
