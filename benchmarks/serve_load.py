"""Many clients of a served lake at once, for minutes, beside registrations, ingestion and compaction.

    python benchmarks/serve_load.py                         # 64 clients for 5 minutes
    python benchmarks/serve_load.py --clients 16 --minutes 1

The clients are threads of the rerun-sdk in processes of eight, each of which waits half a second between two calls.
Beside them one process registers recordings with the server, one ingests files into the lake, and one compacts it,
again and again, by the command line; in the last two fifths of the time they rest, so that the lake no longer grows.
Prints the number of calls, of those that failed, of compactions refused as the ingestion had the store, the 50th and
the 99th of 100 of small calls in ms, and the memory of the server after a fifth of the time, at the end of the changes,
and at the end. Ends with 1 where a call failed.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from made_recordings import write_camera, write_drive
from scale_serve import resident
from served_lake import SCRIPTS, served

SEGMENTS, THREADS, PAUSE = 40, 8, 0.5
SMALL = ("entries", "segments", "schema", "ranges")


def main() -> int:
    """Run it, or one of its processes of clients."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--as-clients", nargs=3, metavar=("URL", "COUNT", "SECONDS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_clients:
        url, count, seconds = options.as_clients
        print(json.dumps(clients(url, int(count), float(seconds))))
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        return load(Path(scratch), options.clients, options.minutes * 60)


def load(folder: Path, count: int, seconds: float) -> int:
    """Serve a lake, and load it."""
    files, landing, lake = folder / "files", folder / "landing", folder / "lake"
    files.mkdir()
    landing.mkdir()
    for number in range(SEGMENTS):
        write_drive(files / f"{number}.rrd", number)
    write_camera(files / "camera.rrd", SEGMENTS, 20)
    command = [SCRIPTS / "chunkmill", "serve", lake, "--create", "--allow", folder, "-q"]
    with served(folder / "serve.log", *command) as server:
        from rerun.catalog import CatalogClient

        drives = CatalogClient(server.url).create_dataset("drives")
        drives.register([path.as_uri() for path in sorted(files.iterdir())]).wait()
        ended = threading.Event()
        beside = [
            threading.Thread(target=work, args=(ended, *arguments))
            for arguments in ((registered, server.url, folder), (ingested, landing, lake), (compacted, lake, landing))
        ]
        for thread in beside:
            thread.start()
        sizes = [min(THREADS, count - at) for at in range(0, count, THREADS)]
        processes = [
            subprocess.Popen(
                [sys.executable, __file__, "--as-clients", server.url, str(size), str(seconds)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for size in sizes
        ]
        time.sleep(seconds / 5)
        memory = [resident(server.process)]
        time.sleep(seconds * 2 / 5)
        ended.set()
        for thread in beside:
            thread.join()
        memory.append(resident(server.process))
        told = [json.loads(process.communicate()[0]) for process in processes]
        memory.append(resident(server.process))
    calls = Counter[str]()
    taken: list[float] = []
    failed: list[str] = [*FAILED]
    for one in told:
        calls.update(one["calls"])
        taken += one["small"]
        failed += one["failed"]
    p50, p99 = np.percentile(taken, [50, 99]) * 1000
    print(f"{count} clients, {seconds:g} s: {dict(calls)}, beside them {dict(DONE)}; {len(failed)} failed")
    print(f"small calls: {p50:.0f} ms, 99 of 100 within {p99:.0f} ms")
    print("memory: {:.0f} MB, after the changes {:.0f} MB, at the end {:.0f} MB".format(*memory))
    for text in failed[:10]:
        print(" ", text)
    return 1 if failed else 0


DONE: Counter[str] = Counter()
FAILED: list[str] = []


def work(ended: threading.Event, call: Any, *arguments: Any) -> None:
    """Do something again and again, and count it."""
    number = 0
    while not ended.wait(1):
        number += 1
        try:
            call(number, *arguments)
            DONE[call.__name__] += 1
        except Exception as error:  # noqa: BLE001 (it is told)
            if call is compacted and getattr(error, "transient", False):
                DONE["refused"] += 1
                continue
            FAILED.append(f"{call.__name__}: {error!r:.500}")


def registered(number: int, url: str, folder: Path) -> None:
    """Register a new recording with the server."""
    from rerun.catalog import CatalogClient

    path = write_drive(folder / f"more-{number}.rrd", 10_000 + number)
    CatalogClient(url).get_dataset("drives").register([path.as_uri()]).wait()


def ingested(number: int, landing: Path, lake: Path) -> None:
    """Ingest a file into a dataset of the lake."""
    write_drive(landing / f"{number}.rrd", 20_000 + number)
    run(
        "ingest",
        landing,
        "--into",
        lake,
        "--dataset",
        "landed",
        "--once",
        "--settle",
        "0s",
        "-q",
        "--executor",
        "inline",
    )


def compacted(_number: int, lake: Path, _landing: Path) -> None:
    """Compact the dataset that is ingested into."""
    from chunkmill import CatalogClient

    for dataset in CatalogClient(lake).datasets():
        if dataset.name == "landed":
            dataset.do_maintenance(compact_fragments=True)


def run(*arguments: object) -> None:
    """Call chunkmill. Raises ``RuntimeError`` where that fails."""
    done = subprocess.run([SCRIPTS / "chunkmill", *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)


def clients(url: str, count: int, seconds: float) -> dict[str, Any]:
    """The calls of some clients, each in a thread."""
    told: dict[str, Any] = {"calls": Counter(), "small": [], "failed": []}
    threads = [threading.Thread(target=client, args=(url, time.monotonic() + seconds, told)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told


def client(url: str, until: float, told: dict[str, Any]) -> None:
    """One client: it calls something, waits, and calls again."""
    from datafusion import col
    from rerun.catalog import CatalogClient

    choose = random.Random()
    dataset: Any = None
    while time.monotonic() < until:
        name = choose.choice([*SMALL * 2, "query", "fetch"])
        began = time.perf_counter()
        try:
            if dataset is None:
                name = "connect"
                dataset = CatalogClient(url).get_dataset("drives")
            elif name == "entries":
                CatalogClient(url).entries()
            elif name == "segments":
                dataset.segment_ids()
            elif name == "schema":
                dataset.schema()
            elif name == "ranges":
                dataset.get_index_ranges().to_arrow_table()
            else:
                segment = choose.choice(sorted(dataset.segment_ids())[:SEGMENTS])
                view = dataset.filter_segments([segment])
                if name == "query":
                    view.reader(index="log_time").filter(col("log_time").is_not_null()).limit(50).to_arrow_table()
                else:
                    view.filter_contents(["/**"]).reader(index="log_time").limit(5).to_arrow_table()
        except Exception as error:  # noqa: BLE001 (it is told)
            told["failed"].append(f"{name}: {error!r:.500}")
        told["calls"][name] += 1
        if name in SMALL:
            told["small"].append(time.perf_counter() - began)
        time.sleep(choose.uniform(0, 2 * PAUSE))


if __name__ == "__main__":
    sys.exit(main())
