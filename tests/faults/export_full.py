"""Export to LeRobot without space: a clear error, the dataset as it was, and complete by the same call with space.

    python tests/faults/export_full.py [--cases 6] [--seed 1]

The dataset and the scratch folder are on a disk of 16 MiB that is filled to a seeded level (mounting needs the right
to; else that kind is left out), or no file may become larger than a seeded size.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Final

sys.path.append(str(Path(__file__).parents[1]))
from chunkmill.engine.errors import ChunkmillError
from export_points import export, tree
from fault_runs import forked, waited, warm_up
from file_limits import SmallDisk, can_mount, small_disk

KINDS: Final = ("full", "file-size")
FRAMES: Final = 40


def driver(root: Path, size: int | None = None) -> int:
    """Run the second command; gives 1 after an error that is clear, 3 after another one."""
    if size is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        export(root / "disk" / "set", 1, FRAMES)
    except ChunkmillError as error:
        print(f"{type(error).__name__}: {error}")
        return 1 if error.path and error.hint and error.code == "chunkmill.nospace" else 3
    return 0


def case(root: Path, kind: str, draw: random.Random) -> tuple[list[str], bool]:
    """What is wrong, and whether it was refused."""
    place, disk, log = root / "disk" / "set", SmallDisk(root / "disk"), root / "said"
    os.environ["CHUNKMILL_SCRATCH"] = str(root / "disk" / "scratch")
    if waited(forked(lambda: export(place, 0, FRAMES) or 0, log)):
        return [f"the first command failed: {log.read_text()}"], False
    before, size = tree(place), None
    if kind == "full":
        disk.fill(draw.choice([0, 4096, draw.randint(0, 100_000), draw.randint(0, 3_000_000)]))
    else:
        size = draw.choice([draw.randint(100, 5_000), draw.randint(5_000, 1_000_000)])
    code = waited(forked(lambda: driver(root, size), log))
    wrong = [f"it ended with {code}: {log.read_text()[-2000:]}"] if code not in (0, 1) else []
    if code and tree(place) != before:
        wrong.append("the dataset is not as it was")
    if kind == "full":
        disk.make_space()
    if waited(forked(lambda: driver(root), log)):
        wrong.append(f"with space it failed: {log.read_text()[-2000:]}")
    if {name.split("/")[0] for name in tree(place)} != {"data", "meta", "videos"} or tree(place) == before:
        wrong.append("the dataset is not complete")
    left = [path.name for path in place.parent.iterdir() if path.name not in ("set", "scratch")]
    return wrong + ([f"beside the dataset are {left}"] if left else []), code == 1


def main() -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=6, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    scratch, passed, failed, refused = Path(tempfile.mkdtemp(prefix="chunkmill-export-")), 0, 0, 0
    warm_up()
    for number in range(options.cases):
        for kind in KINDS if can_mount() else KINDS[1:]:
            root = scratch / f"{kind}-{number}"
            (root / "disk").mkdir(parents=True)
            with small_disk(root / "disk", 16 << 20) if kind == "full" else nullcontext():
                wrong, is_refused = case(root, kind, random.Random(f"{options.seed}:{kind}:{number}"))
            refused += is_refused
            passed, failed = passed + (not wrong), failed + bool(wrong)
            if wrong:
                print(f"FAILED {kind}:{number}\n  " + "\n  ".join(wrong))
    print(f"{passed} passed, {failed} failed; seed {options.seed}, refused {refused}")
    shutil.rmtree(scratch, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
