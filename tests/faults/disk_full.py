"""No space, no writing, no handles: ingestion fails with a clear error, harms nothing, and goes on afterwards.

    python tests/faults/disk_full.py [--cases 50] [--seed 1] [--only KIND:NUMBER]

The store and the RRDs are on a file system of 16 MiB (mounting needs the right to; without it those kinds are left
out). It is filled to a seeded level before a batch, or made read-only; or the driver may write no file beyond a size,
or open no more than so many. Then the error has to be one of the project's own, with a path and a hint; the last
version has to be readable, and nothing partial under a final name; and when there is room again, the same call has to
bring everything in, once, with no good file in quarantine. Prints ``N passed, M failed``, and a command for each
failure.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.append(str(Path(__file__).parents[1]))
from chunkmill.engine.ingest.quarantine import FileQuarantine
from chunkmill.engine.store import RecordingStore
from fault_content import Known, converted, digest_of_path, kept_content, rrd_contents
from fault_driver import Drive, drive_on
from fault_ledger import left_over
from fault_reader import rrds_below
from fault_runs import forked, last_error, waited, warm_up
from fault_world import LONG_AGO, recording
from file_limits import SmallDisk, can_mount, small_disk

KINDS: Final = ("full", "read-only", "file-size", "handles")
MOUNTED: Final = ("full", "read-only")
DISK: Final = 16 << 20
ROWS: Final = (50, 3_000, 20_000, 60_000)
"""Rows of the recordings: of the one that comes first, and of those that come when there is no room."""


@dataclass(frozen=True)
class Place:
    """The folder of a case, and what its files hold."""

    root: Path
    template: Path
    known: Known
    kind: str
    number: int
    seed: int

    @property
    def drive(self) -> Drive:
        """What the driver does."""
        return Drive(str(self.root), merge_log=False)

    @property
    def disk(self) -> SmallDisk:
        """The file system of the store and the RRDs, where it has one of its own."""
        return SmallDisk(self.root / "disk")

    @property
    def draw(self) -> random.Random:
        """Chance, the same each time."""
        return random.Random(f"{self.seed}:{self.kind}:{self.number}")


def make_template(folder: Path) -> None:
    """The recordings, and what each holds."""
    folder.mkdir()
    known = {}
    for number, rows in enumerate(ROWS):
        path = folder / f"{number}.rrd"
        recording(path, number, rows)
        os.utime(path, (LONG_AGO + number,) * 2)
        known[digest_of_path(path)] = sorted(converted(path))
    (folder / "poison.rrd").write_bytes(b"no recording")
    os.utime(folder / "poison.rrd", (LONG_AGO,) * 2)
    (folder / "known.json").write_text(json.dumps(known))


def land(place: Place, names: Sequence[str]) -> None:
    """Let files land."""
    (place.root / "landing").mkdir(exist_ok=True)
    for name in names:
        shutil.copy2(place.template / name, place.root / "landing" / name)


def run(place: Place) -> tuple[list[str], str]:
    """One case, in a folder that is there; what is wrong, and how the driver ended."""
    land(place, ["0.rrd"])
    if waited(forked(lambda: drive_on(place.drive), place.root / "driver.log")) != 0:
        return [f"the first batch failed: {last_error(place.drive)['text']}"], "failed"
    land(place, ["1.rrd", "2.rrd", "3.rrd", "poison.rrd"])
    code = _without_room(place)
    wrong: list[str] = []
    if code == 1:
        said = last_error(place.drive)
        if not (said["own"] and said["path"] and said["hint"]):
            wrong.append(f"it is told as {said['kind']}, path {said['path']}, hint {said['hint']}:\n{said['text']}")
    elif code:
        wrong.append(f"the driver ended with {code}: {(place.root / 'driver.log').read_text()[-3000:]}")
    wrong += _in_fork(place, whole=False)
    if place.kind in MOUNTED:
        place.disk.make_space()
    again = waited(forked(lambda: drive_on(place.drive), place.root / "driver.log"))
    if again:
        wrong.append(f"with room it ended with {again}: {last_error(place.drive)['text']}")
    return wrong + _in_fork(place, whole=True), "refused" if code else "done"


def _without_room(place: Place) -> int:
    draw = place.draw
    if place.kind == "full":
        left = draw.choice([0, draw.randint(0, 50_000), draw.randint(0, 1_000_000), draw.randint(0, 14_000_000)])
        place.disk.fill(left)
    elif place.kind == "read-only":
        place.disk.make_read_only()
    return waited(forked(lambda: _limited(place, draw), place.root / "driver.log"))


def _limited(place: Place, draw: random.Random) -> int:
    if place.kind == "file-size":
        size = draw.choice([draw.randint(100, 5_000), draw.randint(5_000, 200_000), draw.randint(200_000, 2_000_000)])
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    elif place.kind == "handles":
        opened = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 (no handle may be open meanwhile)
        resource.setrlimit(resource.RLIMIT_NOFILE, (opened + draw.randint(0, 12), 1024))
    return drive_on(place.drive)


def _in_fork(place: Place, *, whole: bool) -> list[str]:
    said = place.root / "said.json"

    def look() -> int:
        said.write_text(json.dumps(_account(place, whole=whole)))
        return 0

    if waited(forked(look, place.root / "account.log")) != 0:
        return [f"the store cannot be read: {(place.root / 'account.log').read_text()[-2000:]}"]
    found: list[str] = json.loads(said.read_text())
    return found


def _account(place: Place, *, whole: bool) -> list[str]:
    store = RecordingStore.open(place.drive.home)
    found = {entry.source_digest: [kept_content(store, entry)] for entry in store}
    wrong = [f"{digest} is not as it was" for digest in found if found[digest] != place.known.get(digest)]
    if len(store) != len(found):
        wrong.append(f"there are {len(store)} recordings of {len(found)} files")
    contents = {content for known in place.known.values() for content in known}
    rrds = rrds_below(place.root / "disk" / "rrds")
    wrong += [f"{path.name} is partial" for path in rrds if not set(rrd_contents(path)) <= contents]
    held = [Path(row.path).name for row in FileQuarantine(place.drive.home).rows()]
    if set(held) - {"poison.rrd"}:
        wrong.append(f"in quarantine are {held}")
    if whole:
        if found.keys() != place.known.keys() or held != ["poison.rrd"]:
            wrong.append(f"{len(found)} of {len(place.known)} files are there, in quarantine {held}")
        store.vacuum()
        wrong += left_over(place.drive)
    return wrong


def one(scratch: Path, known: Known, kind: str, number: int, seed: int) -> tuple[list[str], str]:
    """One case, in a folder of its own with a disk of its own."""
    root = scratch / f"{kind}-{number}"
    disk = root / "disk"
    disk.mkdir(parents=True)
    with small_disk(disk, DISK) if kind in MOUNTED else nullcontext():
        for name in ("lake", "rrds"):
            (disk / name).mkdir()
            (root / name).symlink_to(disk / name)
        return run(Place(root, scratch / "template", known, kind, number, seed))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=50, help="of each kind")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="KIND:NUMBER")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    kinds = [k for k in options.kinds.split(",") if k not in MOUNTED or can_mount()]
    cases = [(kind, number) for number in range(options.cases) for kind in kinds]
    if options.only:
        kind, _, digits = options.only.partition(":")
        cases = [(kind, int(digits))]
    scratch = Path(tempfile.mkdtemp(prefix="chunkmill-disk-"))
    warm_up()
    if waited(forked(lambda: make_template(scratch / "template") or 0)) != 0:
        raise RuntimeError("the recordings could not be made")
    known: Known = json.loads((scratch / "template" / "known.json").read_text())
    passed = failed = 0
    ends: Counter[str] = Counter()
    for kind, number in cases:
        wrong, ended = one(scratch, known, kind, number, options.seed)
        ends[f"{kind} {ended}"] += 1
        if wrong:
            failed += 1
            print(f"FAILED {kind}:{number}\n  " + "\n  ".join(wrong))
            print(f"  again: python tests/faults/disk_full.py --seed {options.seed} --only {kind}:{number}")
        else:
            passed += 1
        shutil.rmtree(scratch / f"{kind}-{number}", ignore_errors=True)
    said = ", ".join(f"{end} {count}" for end, count in sorted(ends.items()))
    print(f"{passed} passed, {failed} failed; seed {options.seed}, {said}; {time.monotonic() - began:.0f} s")
    shutil.rmtree(scratch, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
