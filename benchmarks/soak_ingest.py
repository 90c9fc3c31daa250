"""A soak: one file a second lands for some time; memory, latency and the store's size, minute by minute.

    python benchmarks/soak_ingest.py --minutes 20

The ingestion is the command itself, in a process of its own. At the end every file must be in the store once.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
from chunkmill.engine import RecordingStore
from made_recordings import write_mixture
from process_tree import processes_below

_MAIN = "from chunkmill.engine.cli import main; main()"


def memory_of(root: int) -> dict[str, float]:
    """Resident MB of the processes below ``root``, by kind."""
    found: dict[str, float] = {}
    for process, kind in processes_below([root]):
        with suppress(psutil.NoSuchProcess):
            found[kind] = found.get(kind, 0.0) + process.memory_info().rss / 1e6
    return found


def main() -> int:
    """Run the soak; 0 where nothing was lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--megabytes", type=float, default=0.5)
    parser.add_argument("--executor", default="spark")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        landing, lake = Path(name, "landing"), Path(name, "lake")
        landing.mkdir()
        command = ["ingest", str(landing), "--into", str(lake), "--every", "1s", "--source-done", "delete", "-q"]
        process = subprocess.Popen([sys.executable, "-c", _MAIN, *command, "--executor", options.executor])
        print("minute  files  in store  jvm MB  driver MB  workers MB  store MB  files in store", flush=True)
        began, dropped, minute = time.monotonic(), 0, 0
        while time.monotonic() - began < options.minutes * 60 and process.poll() is None:
            draft = landing / ".draft"
            write_mixture(draft, options.megabytes, drive=dropped)
            draft.rename(landing / f"drive-{dropped:05d}.mcap")
            dropped += 1
            if time.monotonic() - began >= minute * 60:
                _tell(minute, dropped, lake, process.pid)
                minute += 1
            time.sleep(max(0.0, began + dropped - time.monotonic()))
        deadline = time.monotonic() + 60
        while process.poll() is None and _count(lake) < dropped and time.monotonic() < deadline:
            time.sleep(0.2)
        _tell(minute, dropped, lake, process.pid)
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
        sources = [entry.source for entry in RecordingStore.open(lake)]
        fine = code == 0 and len(sources) == len(set(sources)) == dropped and not list(landing.glob("*.mcap"))
        print(f"{dropped} files dropped, {len(sources)} recordings, exit code {code}: {'fine' if fine else 'WRONG'}")
        return 0 if fine else 1


def _count(lake: Path) -> int:
    return RecordingStore.open(lake).version.recordings if list(lake.glob("versions/0*.json")) else 0


def _sizes(folder: Path) -> Iterator[int]:
    """The sizes of all files below; what goes while it is looked at is left out."""
    for here, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                yield Path(here, name).stat().st_size


def _tell(minute: int, dropped: int, lake: Path, root: int) -> None:
    memory = memory_of(root)
    sizes = list(_sizes(lake))
    size = sum(sizes) / 1e6
    print(
        f"{minute:6d} {dropped:6d} {_count(lake):9d} {memory.get('jvm', 0):7.0f} {memory.get('driver', 0):10.0f} "
        f"{memory.get('worker', 0):11.0f} {size:9.1f} {len(sizes):9d}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
