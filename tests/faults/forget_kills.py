"""Forgetting a segment and copying a catalog, killed at random moments and run again, and whether all of it is right.

    python tests/faults/forget_kills.py [--kills 30] [--seed 1] [--keep FOLDER]

A lake has planted values of one segment in files of every kind. A process forgets it, or copies the lake, and is killed
by SIGKILL at a moment drawn of the time that it takes; it is started again, and killed again, up to three times, and
then runs to its end. No byte of the segment may be below the lake then, the other segments give the answers of before,
and a copy has the digests of one that nobody has killed. Prints ``N passed, M failed``.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from chunkmill import CatalogClient
from chunkmill.engine.storage import digest_at, files_at
from planted_values import GOING, STAYING, lake_of, traces, with_tables

DRIVER: Final = """
import sys
from chunkmill import CatalogClient
client = CatalogClient(sys.argv[1])
client.get_dataset("drives").segment_ids()
import lance
print("ready", flush=True)
if sys.argv[2] == "forget":
    client.get_dataset("drives").forget(sys.argv[3], force=True)
else:
    client.copy_to(sys.argv[3])
"""
MOST_KILLS: Final = 3


def start(lake: Path, what: str, argument: str) -> subprocess.Popen[str]:
    """Start a process, and return it when it is about to begin."""
    command = [sys.executable, "-W", "ignore", "-c", DRIVER, str(lake), what, argument]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n", process.communicate()[1]
    return process


def finished(process: subprocess.Popen[str]) -> str:
    """Wait for the end of a process; return what it says if it fails."""
    said = process.communicate(timeout=120)[1]
    return "" if process.returncode == 0 else said[-2000:] or f"it ended with {process.returncode}"


def digests(place: Path) -> dict[str, str]:
    """The digests of the files of a copy, but for its record and leases."""
    files = (f for f in files_at(place) if "lease/" not in f.path and f.path != "catalog/copy.json")
    return {file.path: digest_at(place, file) for file in files}


def rows_of(lake: Path) -> object:
    """The rows of the segments that stay."""
    staying = CatalogClient(lake).get_dataset("drives").filter_segments(list(STAYING))
    return staying.reader("frame").sort("rerun_segment_id", "frame").to_arrow_table()


def wrong_after_forgetting(lake: Path, rows: object) -> list[str]:
    """What is wrong with a lake that has forgotten."""
    wrong = [f"{path} has {marks}" for path, marks in traces(lake).items()]
    wrong += [str(fault.error) for fault in CatalogClient(lake).check()]
    if CatalogClient(lake).get_dataset("drives").segment_ids() != list(STAYING) or rows_of(lake) != rows:
        wrong.append("the other segments have other rows")
    return wrong


def main() -> int:
    """Play all kills, and give the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    draw, began = random.Random(options.seed), time.monotonic()
    scratch = options.keep or Path(tempfile.mkdtemp(prefix="chunkmill-forget-"))
    template = scratch / "template"
    dataset = lake_of(template / "lake", template / "scratch")
    dataset.tag("release")
    with_tables(dataset, template / "lake" / "views")
    rows = rows_of(template / "lake")
    shutil.copytree(template / "lake", scratch / "clean")
    durations = {}
    for what, argument in (("copy", str(scratch / "whole")), ("forget", GOING)):
        process, since = start(scratch / "clean", what, argument), time.monotonic()
        if said := finished(process):
            print(f"{what} fails by itself: {said}")
            return 1
        durations[what] = time.monotonic() - since
    expected = digests(scratch / "whole")
    passed = failed = kills = runs = 0
    while kills < options.kills:
        what = ("forget", "copy")[runs % 2]
        runs += 1
        home = scratch / str(runs)
        shutil.copytree(template / "lake", home / "lake")
        argument = GOING if what == "forget" else str(home / "copy")
        moments = []
        for _ in range(draw.randint(1, MOST_KILLS)):
            process = start(home / "lake", what, argument)
            moments.append(draw.uniform(0, durations[what]))
            time.sleep(moments[-1])
            kills += process.poll() is None
            process.send_signal(signal.SIGKILL)
            process.communicate()
        said = finished(start(home / "lake", what, argument))
        if what == "forget":
            wrong = [said] * bool(said) or wrong_after_forgetting(home / "lake", rows)
        else:
            wrong = [said] * bool(said) or [
                path for path, digest in expected.items() if digests(home / "copy").get(path) != digest
            ]
            wrong += [] if said else sorted(digests(home / "copy").keys() - expected.keys())
        passed, failed = passed + (not wrong), failed + bool(wrong)
        if wrong:
            print(f"FAILED run {runs}, {what} killed after {moments}: " + "\n  ".join(wrong[:5]), flush=True)
        else:
            print(f"run {runs}: {what} is right after {len(moments)} kills", flush=True)
            shutil.rmtree(home)
    print(f"{passed} passed, {failed} failed; {kills} kills, seed {options.seed}, {time.monotonic() - began:.0f} s")
    if options.keep is None:
        shutil.rmtree(scratch, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
