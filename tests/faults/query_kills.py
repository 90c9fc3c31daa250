"""Queries by Spark's workers run again and again while driver, JVM and workers are killed at random moments.

    python tests/faults/query_kills.py [--kills 20] [--seed 1] [--span 2]

A driver asks a dataset, one query after the other, and writes down a digest of the rows of each. Who is killed comes in
turn, the moment is seeded. A worker that is killed is tried again by Spark, and the query goes on; where a driver is
killed, or its JVM, another is started. No query may give other rows than inline, and behind the last driver nothing may
lie in the scratch folder, whatever those before it left. Prints ``N queries, M wrong`` and the kills.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from chunkmill.engine import get_session
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.chunk import Chunk, ComponentDescriptor
from chunkmill.engine.frames import plan
from chunkmill.engine.rrd import RrdWriter, StoreEntry
from random_kills import tree

PATIENCE: Final = 120.0
"""Seconds that a driver may take to its first query, or to its end."""

TARGETS: Final = ("worker", "driver", "jvm")


def make_dataset(root: Path) -> None:
    """A dataset of six segments of a few megabytes each."""
    paths = []
    for number in range(6):
        paths.append(root / f"s{number}.rrd")
        store = StoreEntry("recording", "tests", f"s{number}")
        draw = np.random.default_rng(number)
        with RrdWriter(paths[-1]) as writer:
            writer.begin_store(store)
            for at in range(40):
                values = pa.FixedSizeListArray.from_arrays(draw.random(400 * 20), 20)
                column = [(ComponentDescriptor("x"), pa.ListArray.from_arrays(np.arange(401, dtype=np.int32), values))]
                times = {"tick": pa.array(np.arange(400) * 2 + at * 500)}
                writer.append(store, Chunk.build("/a" if at % 3 else "/b", times, column))
            writer.finish()
    dataset = CatalogClient(root / "lake").create_dataset("a")
    dataset.register([str(path) for path in paths], executor="inline").wait()


def digest_of(root: Path, executor: str) -> str:
    """The digest of the rows of a query."""
    dataset: Any = CatalogClient(root / "lake").get_dataset("a")
    table = dataset.reader("tick", fill_latest_at=True, executor=executor).to_arrow_table()
    table = table.sort_by([("rerun_segment_id", "ascending"), ("tick", "ascending")]).combine_chunks()
    sink = hashlib.sha256()
    for name in table.column_names:
        values: Any = table[name].combine_chunks()
        sink.update(np.asarray(values.is_valid()).tobytes())
        while pa.types.is_nested(values.type):
            values = values.flatten()
        kind = "S32" if name == "rerun_segment_id" else "f8"
        sink.update(values.to_numpy(zero_copy_only=False).astype(kind).tobytes())
    return sink.hexdigest()


def drive(root: Path, *, once: bool) -> None:
    """Ask again and again until somebody ends it, or once."""
    get_session("local[2,4]")
    plan.TASK_BYTES = 256 << 10  # type: ignore[misc]  # many tasks
    while True:
        print(digest_of(root, "spark"), flush=True)
        if once:
            return


class Driver:
    """A process that asks, and what it wrote down."""

    def __init__(self, root: Path, *, once: bool = False) -> None:
        self.log = root / f"driver-{time.monotonic_ns()}.log"
        environment = os.environ | {"CHUNKMILL_SCRATCH": str(root / "scratch")}
        command = [sys.executable, __file__, "--drive", str(root), *(["--once"] if once else [])]
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )

    @property
    def digests(self) -> list[str]:
        """The digests of all queries that ended."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if len(line) == 64 and " " not in line]

    def wait_for(self, count: int) -> bool:
        """Wait until so many queries have ended; False where the driver ended before, or it takes too long."""
        until = time.monotonic() + PATIENCE
        while len(self.digests) < count:
            if self.process.poll() is not None or time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True

    def kill(self, target: str, random_: random.Random) -> bool:
        """Kill the driver, its JVM or a worker; whether there was one."""
        below = tree(self.process.pid)
        jvms = [pid for pid, (_, line) in below.items() if "java" in line.partition(" ")[0]]
        workers = [pid for pid, (parent, _) in below.items() if parent not in (self.process.pid, *jvms)]
        found = {"driver": [self.process.pid], "jvm": jvms, "worker": workers}[target]
        if not found:
            return False
        os.kill(random_.choice(found), signal.SIGKILL)
        return True

    def end(self) -> None:
        """Kill all that is left of it."""
        for pid in (self.process.pid, *tree(self.process.pid)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


def run(root: Path, kills: int, span: float, seed: int) -> tuple[Counter[str], list[str]]:
    """Kill so often; how many queries ended and who was killed, and what is wrong."""
    make_dataset(root)
    expected, random_ = digest_of(root, "inline"), random.Random(seed)
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    driver = Driver(root)
    number = done = 0
    while number < kills:
        if not driver.wait_for(done + 1):
            if driver.process.poll() is None or not counts[TARGETS[(number - 1) % 3]]:
                wrong.append(f"no query ended after kill {number}: {driver.log.read_text()[-800:]}")
            wrong += _others(driver, expected, counts)
            driver.end()
            driver, done = Driver(root), 0
            if not driver.wait_for(1):
                wrong.append(f"a driver that was started anew ended: {driver.log.read_text()[-800:]}")
                break
        time.sleep(random_.random() * span)
        done = len(driver.digests)
        target = TARGETS[number % 3]
        if driver.kill(target, random_):
            counts[target] += 1
            number += 1
    wrong += _others(driver, expected, counts)
    driver.end()
    last = Driver(root, once=True)
    if last.process.wait(PATIENCE):
        wrong.append(f"the last driver failed: {last.log.read_text()[-800:]}")
    wrong += _others(last, expected, counts)
    wrong += [f"left in the scratch folder: {path}" for path in (root / "scratch").glob("run*")]
    return counts, wrong


def _others(driver: Driver, expected: str, counts: Counter[str]) -> list[str]:
    found = driver.digests
    counts["queries"] += len(found)
    return ["a query gave other rows" for digest in found if digest != expected]


def main() -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--span", type=float, default=2.0, help="seconds within which a kill comes")
    parser.add_argument("--drive", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive is not None:
        drive(options.drive, once=options.once)
        return 0
    with tempfile.TemporaryDirectory(prefix="chunkmill-kills-") as folder:
        counts, wrong = run(Path(folder), options.kills, options.span, options.seed)
    print("\n".join([*wrong, f"{counts['queries']} queries, {len(wrong)} wrong; kills: {dict(counts)}"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
