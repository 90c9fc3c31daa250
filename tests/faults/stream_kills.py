"""A query of ``readStream`` over a landing folder is killed at random moments, the JVM and its workers with it.

    python tests/faults/stream_kills.py [--sink store|memory] [--files 40] [--kills 20] [--seed 1] [--span 4]

Files land while it runs, half by a rename, half slowly. A query that was killed is started again from its checkpoint.
In the end every recording has to be there once: in the store whole, as its first segment version; by the
memory sink, which shows the state of a count, with as many chunks as the file has. Prints ``N passed, M failed``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from chunkmill.engine import RecordingStore, get_session, stop_session
from chunkmill.readers import RrdReader
from fault_world import recording
from random_kills import tree

PATIENCE: Final = 120.0
"""Seconds that a query may take to begin."""


def drive(root: Path, sink: str, *, once: bool) -> None:
    """Run the query until it is killed; or over what is there, and say what the memory sink holds."""
    spark = get_session("local[2]")
    source = spark.readStream.format("chunkmill").option("settle", "200ms").option("every", "100ms")
    frame = source.option("maxFilesPerTrigger", "1").load(str(root / "landing"))
    if sink == "memory":
        counted = frame.groupBy("recording_id").count()
        writer = counted.writeStream.format("memory").queryName("counts").outputMode("complete")
        spark.conf.set("spark.sql.shuffle.partitions", "1")
    else:
        writer = frame.writeStream.format("chunkmill.store").option("path", str(root / "lake"))
    writer = writer.option("checkpointLocation", str(root / "checkpoint"))
    query = (writer.trigger(availableNow=True) if once else writer).start()
    (root / "begun").touch()
    query.awaitTermination()
    if sink == "memory":
        rows = {row.recording_id: row["count"] for row in spark.table("counts").collect()}
        (root / "counts.json").write_text(json.dumps(rows))
    stop_session()


def begun(root: Path, sink: str, *, once: bool) -> subprocess.Popen[bytes]:
    """A process in which the query has begun."""
    (root / "begun").unlink(missing_ok=True)
    command = [sys.executable, __file__, "--drive", str(root), "--sink", sink, *(["--once"] if once else [])]
    with (root / "driver.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    until = time.monotonic() + PATIENCE
    while not (root / "begun").exists() and time.monotonic() < until and process.poll() is None:
        time.sleep(0.05)
    return process


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, and all below it."""
    for pid in [*tree(process.pid), process.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def newest_commit(root: Path) -> int:
    """The number of the newest batch that Spark has noted as done."""
    return max((int(path.name) for path in (root / "checkpoint" / "commits").glob("[0-9]*")), default=-1)


def land(path: Path, target: Path, *, slowly: bool) -> None:
    """Let a file land: by a rename, or in two halves."""
    data = path.read_bytes()
    if not slowly:
        path.rename(target)
        return
    with target.open("wb") as file:
        file.write(data[: len(data) // 2])
        file.flush()
        time.sleep(0.05)
        file.write(data[len(data) // 2 :])
    path.unlink()


def wrong_in(root: Path, sink: str, chunks: dict[str, int]) -> list[str]:
    """What is not there once, and whole."""
    if sink == "memory":
        found: dict[str, Any] = json.loads((root / "counts.json").read_text())
    else:
        store = RecordingStore.open(root / "lake")
        found = {e.recording_id: e.chunks if e.segment_version == 1 else f"version {e.segment_version}" for e in store}
    names = chunks.keys() | found.keys()
    return [f"{n}: {found.get(n)} instead of {chunks.get(n)}" for n in sorted(names) if found.get(n) != chunks.get(n)]


def run(root: Path, options: argparse.Namespace) -> int:
    """Kill and start again; the number of what is wrong."""
    draw = random.Random(options.seed)
    for name in ("source", "landing"):
        (root / name).mkdir()
    chunks: dict[str, int] = {}
    for number in range(options.files):
        path = root / "source" / f"{number:03d}.rrd"
        recording(path, number)
        (store,) = RrdReader(path).recordings()
        chunks[store.recording_id] = len(RrdReader(path).stream().to_chunks(executor="inline"))
    waiting = sorted((root / "source").iterdir())
    for life in range(options.kills):
        share = -(-len(waiting) // (options.kills - life))
        process, done = begun(root, options.sink, once=False), newest_commit(root)
        for path in waiting[:share]:
            land(path, root / "landing" / path.name, slowly=draw.random() < 0.5)
        waiting = waiting[share:]
        until = time.monotonic() + PATIENCE
        while life % 2 and newest_commit(root) == done and time.monotonic() < until:
            time.sleep(0.02)  # every other time it is killed when it has done something
        time.sleep(draw.uniform(0.0, options.span))
        kill(process)
    for path in waiting:
        path.rename(root / "landing" / path.name)
    begun(root, options.sink, once=True).wait()
    wrong = wrong_in(root, options.sink, chunks)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    if wrong:
        print((root / "driver.log").read_text(errors="replace")[-4000:])
    batches = newest_commit(root) + 1
    print(f"{len(chunks) - len(wrong)} passed, {len(wrong)} failed; {options.kills} kills, {batches} batches")
    return len(wrong)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sink", choices=("store", "memory"), default="store")
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--span", type=float, default=4.0)
    parser.add_argument("--drive", type=Path)
    parser.add_argument("--once", action="store_true")
    options = parser.parse_args()
    if options.drive is not None:
        drive(options.drive, options.sink, once=options.once)
        return 0
    with tempfile.TemporaryDirectory(prefix="chunkmill-kills-") as folder:
        return 1 if run(Path(folder), options) else 0


if __name__ == "__main__":
    sys.exit(main())
