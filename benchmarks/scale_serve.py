"""A served lake of many segments, and one of which very many bytes are fetched: seconds and memory of the server.

    python benchmarks/scale_serve.py FOLDER [--segments 10000] [--gigabytes 20]

As many RRDs of 38 kB, and one of 200 MB, are made in FOLDER unless they are there, and registered in place with a
served lake by Rerun's SDK. The server is started anew, and a client asks: for a connection and the ids of the segments;
for the segment table; and for the rows of a range of time that ten segments have, each five times: the first and the
least of the others are told. Then the large recording is fetched again and again; the server's resident memory is told.

Guards: it starts in 1 s; 0.3 s to connect and list, 1 s for the table, 0.3 s for the range; 400 MB, and no more of it
for ten times as many bytes. Ends with 1 where one is missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from datafusion import col, lit
from made_recordings import write_camera, write_drive
from rerun.catalog import CatalogClient
from served_lake import SCRIPTS, Served, served

ROUNDS, TOUCHED, LARGE_MB = 5, 10, 200
FIRST = 1_700_000_000_000_000_000
"""The time at which the first drive begins; each begins a nanosecond after the one before."""
START, LIST, TABLE, RANGE, MEMORY, GROWTH = 1.0, 0.3, 1.0, 0.3, 400.0, 16.0


class Guards:
    """Lines of figures, and whether one missed its bar."""

    missed = False

    def tell(self, name: str, figure: float, bar: float | None, unit: str) -> None:
        """Print a figure beside its bar, if it has one."""
        state = ""
        if bar is not None:
            self.missed |= figure > bar
            state = f"   to reach <= {bar:g} {unit}  {'reached' if figure <= bar else 'missed'}"
        print(f"{name:44s} {figure:8.3f} {unit}{state}", flush=True)


def resident(process: int) -> float:
    """MB that a process has in memory."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024 / 1e6


@contextmanager
def sampled(process: int) -> Iterator[list[float]]:
    """The memory of a process, ten times a second while the block runs."""
    found, ended = [resident(process)], threading.Event()

    def run() -> None:
        while not ended.wait(0.1):
            found.append(resident(process))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def timed(call: Callable[[], Any]) -> list[float]:
    """Seconds of some rounds of a call."""
    seconds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return seconds


def range_rows(dataset: Any) -> int:
    """Rows of the nanoseconds in which ten segments have one each."""
    last = lit(np.datetime64(FIRST + TOUCHED - 1, "ns"))
    return int(dataset.reader(index="log_time").filter(col("log_time") <= last).to_arrow_table().num_rows)


def many_segments(server: Served, count: int, guards: Guards) -> None:
    """What a client waits for, of a dataset of many segments."""
    drives = CatalogClient(server.url).get_dataset("drives")

    def connect() -> None:
        assert len(CatalogClient(server.url).get_dataset("drives").segment_ids()) == count

    def table() -> None:
        assert len(drives.segment_table().to_arrow_table()) == count

    def ranged() -> None:
        assert range_rows(drives) == min(TOUCHED, count)

    for name, call, bar in (
        ("connect and list", connect, LIST),
        ("segment table", table, TABLE),
        ("range", ranged, RANGE),
    ):
        first, *others = timed(call)
        guards.tell(f"{name}, first", first, bar, "s")
        guards.tell(name, min(others), bar, "s")
    guards.tell("memory, many segments", resident(server.process), MEMORY, "MB")


def many_bytes(server: Served, gigabytes: float, guards: Guards) -> None:
    """What the server has in memory while bytes are fetched, and whether it grows with them."""
    large = CatalogClient(server.url).get_dataset("large")
    rounds = max(round(gigabytes * 1000 / LARGE_MB), 10)
    began = time.perf_counter()
    with sampled(server.process) as memory:
        for _ in range(rounds):
            assert large.segment_store("camera-000000").stream().to_chunks()
    seconds = time.perf_counter() - began
    tenth = len(memory) // 10
    first, last = statistics.median(memory[tenth : 2 * tenth]), statistics.median(memory[-tenth:])
    guards.tell("fetched", rounds * LARGE_MB / 1000, None, "GB")
    guards.tell("fetched in a second", rounds * LARGE_MB / seconds, None, "MB")
    guards.tell("memory at most", max(memory), MEMORY, "MB")
    guards.tell("memory, last tenth less the second", last - first, GROWTH, "MB")


def main() -> int:
    """Print a line for each figure; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--segments", type=int, default=10_000)
    parser.add_argument("--gigabytes", type=float, default=20.0)
    options = parser.parse_args()
    folder, guards = options.folder.resolve(), Guards()
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{number:06d}.rrd" for number in range(options.segments)]
    for number, path in enumerate(files):
        if not path.exists():
            write_drive(path, number)
    large = folder / "large.rrd"
    if not large.exists():
        write_camera(large, 0, LARGE_MB)
    with tempfile.TemporaryDirectory() as home:
        log, lake = Path(home, "log"), Path(home, "lake")
        command = (SCRIPTS / "chunkmill", "serve", "start", lake, "--create", "--allow", folder)
        with served(log, *command) as server:
            client = CatalogClient(server.url)
            began = time.perf_counter()
            client.create_dataset("drives").register([path.as_uri() for path in files]).wait()
            guards.tell(f"registration of {len(files):,}", time.perf_counter() - began, None, "s")
            client.create_dataset("large").register([large.as_uri()]).wait()
        with served(log, *command) as server:
            guards.tell("start", server.seconds, START, "s")
            many_segments(server, len(files), guards)
            many_bytes(server, options.gigabytes, guards)
    return int(guards.missed)


if __name__ == "__main__":
    sys.exit(main())
