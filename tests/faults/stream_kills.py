"""A query of ``readStream`` over a landing folder is killed at random moments, the JVM and its workers with it.

    python tests/faults/stream_kills.py [--sink store|memory|batches] [--files 40] [--kills 20] [--seed 1] [--span 4]

Files land while it runs, half by a rename, half slowly; one lands last of all. A query that was killed is started again
from its checkpoint. In the end every recording has to be there once:

- ``store``: in the store whole, as its first segment version.
- ``memory``: a table in memory dies with its process, and what outlives it is the state of a count. The last process
  has a batch to run, that of the last file, so that its table says what was counted over all lives: as many chunks of
  each recording as its file has.
- ``batches``: what every process was given, written down with the number of the batch. A batch that was run again has
  to be the same, by the ids of its chunks; the batches have no gap, and a recording is in one of them, whole.

Prints ``N passed, M failed``.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chunkmill.engine import RecordingStore, get_session, stop_session
from chunkmill.readers import RrdReader
from fault_world import recording
from random_kills import tree

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PATIENCE: Final = 120.0
"""Seconds that a query may take to begin."""

HESITATION: Final = 1.0
"""Seconds between what a process was given is written down and Spark notes it, in which many a kill comes."""


def drive(root: Path, sink: str, *, once: bool) -> None:
    """Run the query until it is killed; or over what is there, and say what the memory sink holds."""
    spark = get_session("local[2]")
    source = spark.readStream.format("chunkmill").option("settle", "200ms").option("every", "100ms")
    frame = source.option("maxFilesPerTrigger", "1").load(str(root / "landing"))
    if sink == "memory":
        counted = frame.groupBy("recording_id").count()
        writer = counted.writeStream.format("memory").queryName("counts").outputMode("complete")
        spark.conf.set("spark.sql.shuffle.partitions", "1")
    elif sink == "batches":
        writer = frame.writeStream.foreachBatch(lambda batch, number: note(root / "batches.jsonl", batch, number))
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


def note(ledger: Path, batch: DataFrame, number: int) -> None:
    """Write down what a process was given, before Spark notes that the batch is done."""
    ids: dict[str, list[str]] = {}
    for row in batch.select("recording_id", "chunk_id").collect():
        ids.setdefault(row.recording_id, []).append(row.chunk_id)
    given = {name: [len(of), hashlib.sha256("".join(sorted(of)).encode()).hexdigest()] for name, of in ids.items()}
    with ledger.open("a") as file:
        file.write(json.dumps({"batch": number, "given": given}) + "\n")
        file.flush()
        os.fsync(file.fileno())
    time.sleep(HESITATION)


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


def reached(root: Path, sink: str) -> int:
    """How far the query has come: its newest batch, or the bytes that are written down of all."""
    ledger = root / "batches.jsonl"
    if sink == "batches":
        return ledger.stat().st_size if ledger.exists() else 0
    return newest_commit(root)


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


def batches_in(ledger: Path) -> tuple[dict[str, Any], int]:
    """What the batches gave together, and how many of them were run again. Odd ones stand in place of a count."""
    batches: dict[int, dict[str, list[Any]]] = {}
    found: dict[str, Any] = {}
    again = 0
    for line in ledger.read_bytes().split(b"\n")[:-1]:  # a line that a kill cut short was not yet noted as done
        noted = json.loads(line)
        number, given = noted["batch"], noted["given"]
        if number in batches:
            again += 1
            if given != batches[number]:
                found[f"batch {number}"] = f"{given}, after {batches[number]}"
        batches[number] = given
    if sorted(batches) != list(range(len(batches))):
        found["batches"] = f"with a gap: {sorted(batches)}"
    for number, given in batches.items():
        for name, (count, _) in given.items():
            found[name] = count if name not in found else f"in batch {number} too"
    return found, again


def wrong_in(root: Path, sink: str, chunks: dict[str, int]) -> list[str]:
    """What is not there once, and whole."""
    found: dict[str, Any]
    if sink == "memory":
        found = json.loads((root / "counts.json").read_text())
    elif sink == "batches":
        found, again = batches_in(root / "batches.jsonl")
        print(f"{again} batches were run again")
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
    *waiting, last = sorted((root / "source").iterdir())
    for life in range(options.kills):
        share = -(-len(waiting) // (options.kills - life))
        process, done = begun(root, options.sink, once=False), reached(root, options.sink)
        for path in waiting[:share]:
            land(path, root / "landing" / path.name, slowly=draw.random() < 0.5)
        waiting = waiting[share:]
        until = time.monotonic() + PATIENCE
        while life % 2 and reached(root, options.sink) == done and time.monotonic() < until:
            time.sleep(0.02)  # every other time it is killed when it has done something
        time.sleep(draw.uniform(0.0, options.span))
        kill(process)
    for path in (*waiting, last):
        path.rename(root / "landing" / path.name)
    code = begun(root, options.sink, once=True).wait()
    wrong = [f"the last run ended with {code}"] if code else wrong_in(root, options.sink, chunks)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    if wrong:
        print((root / "driver.log").read_text(errors="replace")[-4000:])
    batches = newest_commit(root) + 1
    print(f"{len(chunks) - len(wrong)} passed, {len(wrong)} failed; {options.kills} kills, {batches} batches")
    return len(wrong)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sink", choices=("store", "memory", "batches"), default="store")
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
