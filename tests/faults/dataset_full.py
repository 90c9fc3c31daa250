"""No space, no writing, no handles for a lake: a clear error, nothing half there, and it goes on afterwards.

    python tests/faults/dataset_full.py [--cases 50] [--kinds KIND,…] [--seed 1] [--only KIND:NUMBER]
    python tests/faults/dataset_full.py --operations NAME,…|all [--cases 6] [--seed 1] [--only NAME:NUMBER]

The story of ``dataset_points.py`` runs some changes; then the file system of the catalog and of the adopted store is
filled to a seeded level, or is made read-only (both need the right to mount); or the driver may write no file beyond a
size, or open no more than so many. Then the error has to be one of the project's own and name the place; what is there
is, still without room, as after a change; and with room the story goes on to its end, and leaves nothing over.

With ``--operations`` each operation of ``lake_operations.py`` runs by itself: on a disk that is full to a seeded level,
with or without its temporary files there, or with a limit on the size of files. It is done, or its error is one of the
project's own that says so and names a place, and the lake is as before. With space it is run again, in turns by the
same process, and by another while the first lives on; it has to come through within seconds.

Prints ``N passed, M failed``, and a command for each failure.
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
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

from chunkmill.engine.errors import ChunkmillError
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
from disk_full import KINDS, MOUNTED
from fault_runs import forked, waited, warm_up
from file_limits import SmallDisk, can_mount, largest_file, small_disk
from lake_operations import OPERATIONS, Lake, make_files, make_lake
from lake_operations import state_of as lake_state

DISK: Final = 4 << 20
SPACE: Final = 96 << 20
"""Bytes of the disk of an operation: an upload leaves 64 MiB free."""
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
    disk = SmallDisk(root / "disk")
    if kind == "full":
        disk.fill(draw.choice([0, draw.randint(0, 8_000), draw.randint(0, 60_000), draw.randint(0, 400_000)]))
    elif kind == "read-only":
        disk.make_read_only()
    code = waited(forked(lambda: without_room(root, kind, draw), said))
    wrong = [] if code in (0, 1) else [f"the driver ended with {code}: {said.read_text()[-2000:]}"]
    if waited(forked(lambda: readable(root, states), root / "seen")):
        wrong.append(f"without room {(root / 'seen').read_text()[-2000:]}")
    if kind in MOUNTED:
        disk.make_space()
    if waited(forked(lambda: drive(root, states), said)):
        wrong.append(f"with room again it failed: {said.read_text()[-2000:]}")
    return wrong + at_the_end(root, states[-1]), "refused" if code else "done"


def one(scratch: Path, kind: str, number: int, seed: int) -> tuple[list[str], str]:
    """One case, in a folder of its own with a disk of its own."""
    root = scratch / f"{kind}-{number}"
    disk = root / "disk"
    disk.mkdir(parents=True)
    try:
        with small_disk(disk, DISK) if kind in MOUNTED else nullcontext():
            (disk / "lake").mkdir()
            shutil.copytree(scratch / "template" / "old", disk / "old")
            for name in ("lake", "old"):
                (root / name).symlink_to(disk / name)
            return run(root, scratch / "template", kind, random.Random(f"{seed}:{kind}:{number}"))
    finally:
        shutil.rmtree(root, ignore_errors=True)


# --- each operation by itself

WAYS: Final = ("disk", "disk and temporary files", "file size")
_PATIENCE: Final = 20.0
_FULL: Final = ("No space left on device", "File too large", "do not fit", "Invalid range")
"""The last is what Lance says of an index file that it has cut short for want of space."""


def make_lake_template(root: Path) -> int:
    """Make the lake, and keep a copy; each operation runs once with space, and what there is afterwards is noted."""
    warnings.simplefilter("ignore")
    make_files(root)
    (root / "disk").mkdir()
    make_lake(Lake(root))
    shutil.move(root / "disk", root / "kept")
    wanted = {}
    for name, operation in OPERATIONS.items():
        with _copied(root):
            before = lake_state(Lake(root))
            operation(Lake(root))
            wanted[name] = [before, lake_state(Lake(root))]
    (root / "wanted.json").write_text(json.dumps(wanted))
    return 0


@contextmanager
def _copied(root: Path) -> Iterator[None]:
    """The lake as it was made, at its place."""
    shutil.copytree(root / "kept", root / "disk", dirs_exist_ok=True)
    yield
    shutil.rmtree(root / "disk")


@contextmanager
def _little_space(root: Path, way: str, draw: random.Random) -> Iterator[None]:
    """Too little space for most operations, in one of these ways."""
    if way == "file size":
        with largest_file(draw.choice([0, draw.randint(1, 2_000), draw.randint(1_000, 40_000)])):
            yield
        return
    if way != "disk":
        tempfile.tempdir = os.environ["TMPDIR"] = str(root / "disk" / "tmp")
    pages = draw.choice([0, draw.randint(1, 4), draw.randint(1, 12), draw.randint(4, 60)])
    SmallDisk(root / "disk").fill(pages * resource.getpagesize())
    try:
        yield
    finally:
        SmallDisk(root / "disk").make_space()


def _says_full(error: BaseException | None) -> bool:
    return error is not None and (any(text in str(error) for text in _FULL) or _says_full(error.__cause__))


def try_operation(root: Path, name: str, way: str, draw: random.Random) -> int:
    """Run an operation with too little space; gives 0 where it is done, 1 where it failed as it should, 3 otherwise."""
    warnings.simplefilter("ignore")
    before, after = json.loads((root / "wanted.json").read_text())[name]
    code, text = 0, ""
    with _little_space(root, way, draw):
        lake = Lake(root)
        try:
            OPERATIONS[name](lake)
        except Exception as error:  # noqa: BLE001 (whatever it is, is judged)
            text = f"{type(error).__name__}: {error}; path {getattr(error, 'path', None)}"
            names_place = is_clear(error) or (isinstance(error, ChunkmillError) and "/disk/" in str(error))
            code = 1 if names_place and _says_full(error) else 3
        found = lake_state(Lake(root)) if way != "file size" else None
    print(text)
    found = lake_state(Lake(root)) if found is None else found
    if found != (before if code else after):
        print(f"after it ended with {code}, the lake has {_other(found, before if code else after)}")
        return 3
    return code


def _other(found: dict[str, object], wanted: dict[str, object]) -> str:
    names = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
    return "; ".join(f"{name}: {found.get(name)}, not {wanted.get(name)}" for name in names)


def again(root: Path, name: str) -> int:
    """Run an operation that failed, with space; gives 0 where it comes through, and 3 otherwise."""
    warnings.simplefilter("ignore")
    began = time.monotonic()
    while True:
        try:
            OPERATIONS[name](Lake(root))
            break
        except ChunkmillError as error:
            if not error.transient or time.monotonic() - began > _PATIENCE / 2:
                raise
            print(f"{error}", flush=True)
            time.sleep(0.2)
    found, (_, after) = lake_state(Lake(root)), json.loads((root / "wanted.json").read_text())[name]
    if found != after:
        print(f"with space, the lake has {_other(found, after)}")
    return 3 if found != after else 0


def run_operation(root: Path, name: str, number: int, seed: int) -> tuple[list[str], str]:
    """One case: what is wrong, and how the operation ended at first."""
    draw = random.Random(f"{seed}:{name}:{number}")
    number += zlib.crc32(name.encode())  # so that the first cases of all have all ways
    way, is_same = (WAYS[number % len(WAYS)] if can_mount() else WAYS[-1]), number // len(WAYS) % 2 == 0
    shared = root / "shared"
    shutil.rmtree(shared, ignore_errors=True)
    shared.mkdir()

    def first() -> int:
        code = try_operation(root, name, way, draw)
        if code == 1 and is_same:
            code = again(root, name) or 1
        (shared / f"code-{code}").touch()
        while not (shared / "stop").exists():
            time.sleep(0.01)
        return code

    with small_disk(root / "disk", SPACE) if way != "file size" else nullcontext():
        shutil.copytree(root / "kept", root / "disk", dirs_exist_ok=True)
        (root / "disk" / "tmp").mkdir()
        process = forked(first, shared / "first")
        until, wrong = time.monotonic() + _PATIENCE, list[str]()
        while not any(shared.glob("code-*")) and time.monotonic() < until and not _ended(process):
            time.sleep(0.01)
        is_failed = (shared / "code-1").exists()
        if is_failed and not is_same and waited(forked(lambda: again(root, name), shared / "second"), _PATIENCE):
            wrong.append(f"in another process: {(shared / 'second').read_text()[-2000:]}")
        (shared / "stop").touch()
        code = waited(process, 2.0)
    if code not in (0, 1):
        wrong.append(f"{way}: {(shared / 'first').read_text()[-3000:] or f'it ended with {code}'}")
    if way == "file size":
        shutil.rmtree(root / "disk")
    return wrong, f"{way} {'refused' if is_failed else 'done'}"


def _ended(process: int) -> bool:
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=50, help="of each kind")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--operations", default="", help="all, or some with commas")
    parser.add_argument("--only", help="KIND:NUMBER, or NAME:NUMBER with --operations")
    options = parser.parse_args(arguments)
    os.environ["CHUNKMILL_EXECUTOR"] = "inline"
    if options.operations:
        names = list(OPERATIONS) if options.operations == "all" else options.operations.split(",")
        return report(options, names, make_lake_template, run_operation, "--operations all ")
    kinds = [kind for kind in options.kinds.split(",") if kind not in MOUNTED or can_mount()]
    return report(options, kinds, lambda root: make_template(root / "template"), one)


def report(
    options: argparse.Namespace,
    kinds: Sequence[str],
    make: Callable[[Path], int],
    run_one: Callable[[Path, str, int, int], tuple[list[str], str]],
    choice: str = "",
) -> int:
    """Run all cases of each kind, or the one that is chosen, and print what came of them; gives the exit code."""
    cases = [(kind, number) for number in range(options.cases) for kind in kinds]
    if options.only:
        kind, _, digits = options.only.partition(":")
        cases = [(kind, int(digits))]
    scratch = Path(tempfile.mkdtemp(prefix="chunkmill-full-"))
    began, failed, ends = time.monotonic(), 0, Counter[str]()
    warm_up()
    try:
        if code := waited(forked(lambda: make(scratch), scratch / "log")):
            print(f"it fails by itself, with {code}: {(scratch / 'log').read_text()[-3000:]}")
            return 1
        for kind, number in cases:
            wrong, ended = run_one(scratch, kind, number, options.seed)
            ends[ended if choice else f"{kind} {ended}"] += 1
            failed += bool(wrong)
            if wrong:
                print(f"FAILED {kind}:{number}\n  " + "\n  ".join(wrong))
                command = f"python tests/faults/dataset_full.py {choice}--seed {options.seed} --only {kind}:{number}"
                print(f"  again: {command}", flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    passed, seconds = len(cases) - failed, time.monotonic() - began
    print(f"{passed} passed, {failed} failed; {dict(sorted(ends.items()))}; {seconds:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
