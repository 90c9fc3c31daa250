"""Time the work of a conversion job beside rerun-sdk: wall and processor time, on a disk and in memory.

    python -m tests.run benchmarks table [ROW…] [--executors spark inline] [--places disk memory] [--rounds 5]

Each side is a process that stays, so that sessions are warm; the two take turns. Wall is that of a call, CPU that of
the whole tree of processes during it, in seconds: medians, with the least and the largest wall of ours. Ratios are ours
over theirs. ``--saved`` keeps the figures; a row whose ratio got worse by 10 % since then is named, and the run ends
with 1. ``--mixture`` names an MCAP in place of the one that is made. ``taskset -c 0`` before it measures one core.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil

FOLDER = Path(__file__).resolve().parent
MEGABYTES = int(os.environ.get("CHUNKMILL_BENCH_MB", "300"))
WORSE = 1.1

Job = Callable[["Side", str, str], None]


@dataclass(frozen=True)
class Side:
    """One of the two libraries; ``options`` are what a terminal of ours takes besides."""

    readers: Any
    lenses: Any
    profiles: Any
    options: dict[str, Any]
    is_ours: bool

    def write(self, stream: Any, out: str) -> None:
        """Run a stream into an RRD."""
        stream.write_rrd(out, application_id="bench", recording_id="bench", **self.options)

    def collect(self, stream: Any, out: str) -> None:
        """Lay a stream out for object stores, and write it."""
        store = stream.collect(optimize=self.profiles.OBJECT_STORE, **self.options)
        self.write(store.stream(), out)


def double(values: Any) -> Any:
    """A function of the user's, on a whole column."""
    import pyarrow.compute as pc

    return pc.multiply(values, 2.0)


def with_lens(side: Side, source: str, out: str) -> None:
    """Change one component, and forward the rest."""
    lens = side.lenses.MutateLens("Scalars:scalars", side.lenses.Selector(".").pipe(double))
    side.write(recording(side, source).lenses([lens], output_mode="forward_unmatched"), out)


def mixture(side: Side, source: str) -> Any:
    """All of an MCAP."""
    return side.readers.McapReader(source).stream()


def recording(side: Side, source: str) -> Any:
    """All of an RRD."""
    return side.readers.RrdReader(source).stream()


ROWS: dict[str, tuple[str, Job]] = {
    "mixture": ("mcap", lambda s, i, o: s.write(mixture(s, i), o)),
    "drive": ("drive.mcap", lambda s, i, o: s.write(mixture(s, i), o)),
    "drive /imu/**": ("drive.mcap", lambda s, i, o: s.write(mixture(s, i).filter(content="/imu/**"), o)),
    "mixture /imu/**": ("mcap", lambda s, i, o: s.write(mixture(s, i).filter(content="/imu/**"), o)),
    "RRD keep a subtree": ("rrd", lambda s, i, o: s.write(recording(s, i).filter(content="/robot/**"), o)),
    "RRD drop a camera": ("rrd", lambda s, i, o: s.write(recording(s, i).drop(content="/camera_0/**"), o)),
    "RRD collect": ("rrd", lambda s, i, o: s.collect(recording(s, i), o)),
    "RRD lens": ("rrd", with_lens),
    "Parquet 1 M x 40": ("parquet", lambda s, i, o: s.write(s.readers.ParquetReader(i).stream(), o)),
    "mixture collect": ("mcap", lambda s, i, o: s.collect(mixture(s, i), o)),
}
"""The kind of input, and the work."""


def serve(name: str) -> None:
    """Be one side: a line names a row, its input and its output; the answer is the seconds that it took."""
    if name == "rerun":
        import rerun.chunk as peer
        from rerun.experimental import ParquetReader

        readers = SimpleNamespace(McapReader=peer.McapReader, RrdReader=peer.RrdReader, ParquetReader=ParquetReader)
        side = Side(readers, peer, peer.OptimizationProfile, {}, is_ours=False)
    else:
        import chunkmill
        from chunkmill.engine import OptimizationProfile

        side = Side(chunkmill, chunkmill, OptimizationProfile, {"executor": name}, is_ours=True)
    for line in sys.stdin:
        row, source, out = json.loads(line)
        os.sync()
        started = time.perf_counter()
        ROWS[row][1](side, source, out)
        print(time.perf_counter() - started, flush=True)


class Child:
    """A process that is one side."""

    def __init__(self, name: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, row: str, source: Path, out: Path) -> tuple[float, float]:
        """Do the work of a row; return its wall and its processor time."""
        out.unlink(missing_ok=True)
        before = self._cpu()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([row, str(source), str(out)]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            sys.exit(f"{row}: the process ended with {self._process.wait()}")
        return float(answer), self._cpu() - before

    def _cpu(self) -> float:
        """Processor time of the process and of all below it, also of those that have ended."""
        top = psutil.Process(self._process.pid)
        times = [process.cpu_times() for process in [top, *top.children(recursive=True)]]
        return sum(t.user + t.system + t.children_user + t.children_system for t in times)

    def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def outputs(place: str) -> Iterator[Path]:
    """A folder on a disk or in memory."""
    folder = Path(tempfile.mkdtemp(prefix="chunkmill-table-", dir="/dev/shm" if place == "memory" else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def made_inputs(folder: Path, mixture: str | None, kinds: set[str]) -> dict[str, Path]:
    """The inputs of the rows."""
    from made_recordings import DRIVE, write_mixture, write_recording, write_table

    paths = {kind: folder / f"input.{kind}" for kind in kinds}
    if "mcap" in kinds and mixture is not None:
        paths["mcap"] = Path(mixture).resolve()
    elif "mcap" in kinds:
        write_mixture(paths["mcap"], MEGABYTES)
    if "drive.mcap" in kinds:
        write_mixture(paths["drive.mcap"], MEGABYTES, streams=DRIVE)
    if "rrd" in kinds:
        write_recording(paths["rrd"], MEGABYTES)
    if "parquet" in kinds:
        write_table(paths["parquet"])
    return paths


def measured(row: str, source: Path, ours: Child, theirs: Child, place: str, rounds: int) -> dict[str, float]:
    """The figures of one row, after a call that does not count."""
    taken: dict[str, list[tuple[float, float]]] = {"ours": [], "theirs": []}
    with outputs(place) as folder:
        for turn in range(rounds + 1):
            sides = [("ours", ours), ("theirs", theirs)]
            for name, child in sides if turn % 2 else reversed(sides):
                figures = child.run(row, source, folder / f"{name}.rrd")
                if turn:
                    taken[name].append(figures)
    middle = {
        f"{name} {what}": statistics.median(pair[at] for pair in pairs)
        for name, pairs in taken.items()
        for at, what in enumerate(("wall", "cpu"))
    }
    walls = [wall for wall, _ in taken["ours"]]
    return {
        **middle,
        "least": min(walls),
        "largest": max(walls),
        "wall ratio": middle["ours wall"] / middle["theirs wall"],
        "cpu ratio": middle["ours cpu"] / max(middle["theirs cpu"], 0.01),
    }


HEAD = f"{'row':36} {'wall':>6} {'least to largest':>16} {'rerun':>6} ratio {'cpu':>6} {'rerun':>6} ratio"


def line(row: str, how: str, now: dict[str, float]) -> str:
    """A row of the table."""
    spread = f"{now['least']:.2f} to {now['largest']:.2f}"
    wall, cpu = (f"{now['theirs ' + what]:6.2f} {now[what + ' ratio']:5.2f}" for what in ("wall", "cpu"))
    return f"{row:20} {how:15} {now['ours wall']:6.2f} {spread:>16} {wall} {now['ours cpu']:6.2f} {cpu}"


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; all by default")
    parser.add_argument("--executors", nargs="+", choices=["spark", "inline"], default=["spark", "inline"])
    parser.add_argument("--places", nargs="+", choices=["disk", "memory"], default=["disk", "memory"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mixture", metavar="MCAP")
    parser.add_argument("--saved", type=Path, default=FOLDER.parent / ".benchmarks" / "table.json")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return 0
    wrong = [row for row in options.rows if row not in ROWS]
    if wrong:
        parser.error(f"there is no row {wrong[0]!r}; there are {', '.join(ROWS)}")
    rows = options.rows or list(ROWS)
    saved = json.loads(options.saved.read_text()) if options.saved.exists() else {}
    worse = []
    cores = len(os.sched_getaffinity(0))
    memory = psutil.virtual_memory().total >> 30
    print(f"{cores} cores, {memory} GiB, medians of {options.rounds}; seconds, ratios to rerun\n{HEAD}")
    with outputs("disk") as folder:
        inputs = made_inputs(folder, options.mixture, {ROWS[row][0] for row in rows})
        for executor in options.executors:
            ours, theirs = Child(executor), Child("rerun")
            for row, place in product(rows, options.places):
                now = measured(row, inputs[ROWS[row][0]], ours, theirs, place, options.rounds)
                print(line(row, f"{executor}, {place}", now), flush=True)
                key = f"{row}, {executor}, {place}, {cores} cores"
                before, saved[key] = saved.get(key, now), now
                worse += [
                    f"{key}: {what} {before[what]:.2f} before, {now[what]:.2f} now"
                    for what in ("wall ratio", "cpu ratio")
                    if now[what] > WORSE * before[what]
                ]
            ours.stop()
            theirs.stop()
    options.saved.parent.mkdir(parents=True, exist_ok=True)
    options.saved.write_text(json.dumps(saved, indent=1, sort_keys=True))
    print(*worse, sep="\n", end="\n" if worse else "")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
