"""No space, no writing, no handles for a catalog: a clear error, nothing half there, and it goes on afterwards.

    python tests/faults/dataset_full.py [--cases 50] [--seed 1] [--only KIND:NUMBER]

The story of ``dataset_points.py`` runs some changes; then the file system of the catalog and of the adopted store is
filled to a seeded level, or is made read-only (both need the right to mount); or the driver may write no file beyond a
size, or open no more than so many. Then the error has to be one of the project's own and name the place; what is there
is, still without room, as after a change; and with room the story goes on to its end, and leaves nothing over. Prints
``N passed, M failed``, and a command for each failure.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dataset_points import (
    State,
    Story,
    at_the_end,
    differing,
    drive,
    first_state,
    is_clear,
    make_root,
    make_template,
    state_of,
    told_so_far,
)
from disk_full import KINDS, MOUNTED, can_mount, fill
from fault_runs import forked, waited, warm_up

DISK: Final = 4 << 20
LARGEST: Final = 60_000
"""Bytes: no file of the story is larger by much."""


def without_room(root: Path, kind: str, draw: random.Random) -> int:
    """Go on with the story where there is no room; 0 at its end, 1 after a clear error, 3 after another."""
    warnings.simplefilter("ignore")
    number = done = told_so_far(root)
    if kind == "file-size":
        most = draw.choice([draw.randint(0, 1_000), draw.randint(500, 8_000), draw.randint(0, LARGEST)])
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    elif kind == "handles":
        opened = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 (no handle may be open meanwhile)
        resource.setrlimit(resource.RLIMIT_NOFILE, (opened + draw.randint(-2, 2), 1024))
    try:
        for number, change in enumerate(Story(root).changes[done:], done + 1):
            change()
            (root / "told").write_bytes(b"." * number)
    except Exception as error:  # noqa: BLE001 (whatever it is, is judged)
        for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
            resource.setrlimit(limit, (resource.getrlimit(limit)[1],) * 2)
        print(f"change {number}: {type(error).__name__}: {error}")
        return 1 if is_clear(error) else 3
    return 0


def readable(root: Path, states: Sequence[State]) -> int:
    """Whether what is there is as after the last change that was told of, or the one after it."""
    done = told_so_far(root)
    both = [first_state(states), *states][done : done + 2]
    wrong = differing(state_of(root), *both)
    print(f"after {done} changes: {wrong}")
    return 1 if wrong else 0


def run(root: Path, template: Path, kind: str, draw: random.Random) -> tuple[list[str], str]:
    """One case, in a folder with a ``disk``; what is wrong, and how the driver ended."""
    states: list[State] = json.loads((template / "states.json").read_text())
    make_root(root, template)
    done, said = draw.randrange(len(states)), root / "said"
    if waited(forked(lambda: drive(root, states, done), said)):
        return [f"with room it failed: {said.read_text()[-2000:]}"], "failed"
    disk = root / "disk"
    if kind == "full":
        fill(disk, draw.choice([0, draw.randint(0, 8_000), draw.randint(0, 60_000), draw.randint(0, 400_000)]))
    elif kind == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    code = waited(forked(lambda: without_room(root, kind, draw), said))
    wrong = [] if code in (0, 1) else [f"the driver ended with {code}: {said.read_text()[-2000:]}"]
    if waited(forked(lambda: readable(root, states), root / "seen")):
        wrong.append(f"without room {(root / 'seen').read_text()[-2000:]}")
    if kind == "read-only":
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    (disk / "ballast").unlink(missing_ok=True)
    if waited(forked(lambda: drive(root, states), said)):
        wrong.append(f"with room again it failed: {said.read_text()[-2000:]}")
    return wrong + at_the_end(root, states[-1]), "refused" if code else "done"


def one(scratch: Path, kind: str, number: int, seed: int) -> tuple[list[str], str]:
    """One case, in a folder of its own with a disk of its own."""
    root = scratch / f"{kind}-{number}"
    disk = root / "disk"
    disk.mkdir(parents=True)
    if kind in MOUNTED:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(disk)], check=True)
    try:
        (disk / "lake").mkdir()
        shutil.copytree(scratch / "template" / "old", disk / "old")
        for name in ("lake", "old"):
            (root / name).symlink_to(disk / name)
        return run(root, scratch / "template", kind, random.Random(f"{seed}:{kind}:{number}"))
    finally:
        if kind in MOUNTED:
            subprocess.run(["umount", "-l", str(disk)], check=True)
        shutil.rmtree(root, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=50, help="of each kind")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="KIND:NUMBER")
    options = parser.parse_args(arguments)
    os.environ["CHUNKMILL_EXECUTOR"] = "inline"
    kinds = [kind for kind in options.kinds.split(",") if kind not in MOUNTED or can_mount()]
    cases = [(kind, number) for number in range(options.cases) for kind in kinds]
    if options.only:
        kind, _, digits = options.only.partition(":")
        cases = [(kind, int(digits))]
    scratch = Path(tempfile.mkdtemp(prefix="chunkmill-full-"))
    began, failed, ends = time.monotonic(), 0, Counter[str]()
    warm_up()
    try:
        if code := waited(forked(lambda: make_template(scratch / "template"), scratch / "log")):
            print(f"the story fails by itself, with {code}: {(scratch / 'log').read_text()[-3000:]}")
            return 1
        for kind, number in cases:
            wrong, ended = one(scratch, kind, number, options.seed)
            ends[f"{kind} {ended}"] += 1
            failed += bool(wrong)
            if wrong:
                print(f"FAILED {kind}:{number}\n  " + "\n  ".join(wrong))
                again = f"python tests/faults/dataset_full.py --seed {options.seed} --only {kind}:{number}"
                print(f"  again: {again}", flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(
        f"{len(cases) - failed} passed, {failed} failed; {dict(sorted(ends.items()))}; {time.monotonic() - began:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
