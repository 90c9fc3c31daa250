"""Cut the writing of MCAPs at every step, or leave it without space: the destination is complete, or as it was.

    python tests/faults/mcap_points.py [--every N] [--points P,…] [--seed N]
    python tests/faults/mcap_points.py --case POINT:KIND:NTH[:unsafe]
    python tests/faults/mcap_points.py full [--cases 6]

A driver copies the messages of a file, then those of two files, then makes messages of chunks, each onto the same name.
It is cut at one point by SIGKILL, a torn write, an exception or a full disk, and goes on with the same command until it
is done. Each time the file is, byte for byte, as it was before the command or as it is after it. In the end nothing
else lies beside it. ``unsafe`` plants a commit that removes the old file first. Prints ``N passed, M failed``, and a
command for each failure. With ``full`` no file may become larger than a seeded size, or the file is on a small disk,
where one can be mounted.
"""

from __future__ import annotations

import hashlib
import json
import random
import resource
import shutil
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

sys.path.append(str(Path(__file__).parents[1]))
from catalog_points import Case
from chunkmill.engine import faults
from chunkmill.engine.errors import ChunkmillError
from fault_runs import forked, waited, warm_up
from file_limits import can_mount, small_disk
from point_cases import cut_story, try_points

KINDS: Final = ("kill", "torn", "exception", "enospc")
POINTS: Final = tuple(point for point in faults.POINTS if point.startswith("mcap."))
ATTEMPTS: Final = 4
STEPS: Final = 3


def source(path: Path, seed: int, size: int = 0) -> None:
    """Write an MCAP of two topics without an index, so that runs are needed, with ``size`` random bytes a message."""
    from mcap.writer import CompressionType, Writer

    with path.open("wb") as file:
        writer = Writer(file, compression=CompressionType.NONE, use_statistics=False, use_chunking=seed == 0)
        writer.start(library="test")
        noise = random.Random(seed)
        channels = [writer.register_channel(f"/{name}", "json", 0) for name in "ab"]
        for i in range(50):
            content = {"n": i, "seed": seed, "noise": noise.randbytes(size).hex()}
            writer.add_message(channels[i % 2], 1000 + i * 7 % 50, json.dumps(content).encode(), i, i)
        writer.finish()


def write(folder: Path, step: int) -> None:
    """The command of a step."""
    from chunkmill import LazyChunkStream
    from chunkmill.readers import McapReader

    paths = [folder / f"{seed}.mcap" for seed in range(2)]
    for seed, path in enumerate(paths):
        if not path.exists():
            source(path, seed)
    streams: list[Any] = [McapReader(path).stream() for path in paths[: 1 if step == 0 else 2]]
    stream = streams[0] if step == 0 else LazyChunkStream.merge(*streams)
    if step == 2:
        stream = stream.map(lambda chunk: chunk)
    stream.write_mcap(folder / "out" / "out.mcap", executor="inline")


def state(folder: Path) -> str:
    """The digest of the file; empty where it is not there."""
    path = folder / "out" / "out.mcap"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def drive(root: Path, states: list[str] | None) -> int:
    """Go on where it was cut; gives 0 at the end, 1 after a failure that was planned, 3 where something is wrong.

    Without ``states`` it notes them.
    """
    done = root / "done"
    (root / "out").mkdir(exist_ok=True)
    first = len(done.read_bytes()) if done.exists() else 0
    if states is not None and state(root) not in ["", *states][first : first + 2]:
        print(f"after {first} commands the file is neither as before nor as after the next")
        return 3
    noted = []
    for step in range(first, STEPS):
        try:
            write(root, step)
        except (ChunkmillError, RuntimeError, OSError) as error:
            print(f"command {step}: {type(error).__name__}: {error}")
            return 1 if "planned" in str(error) or "No space left" in str(error) else 3
        done.write_bytes(b"." * (step + 1))
        noted.append(state(root))
    if states is None:
        (root / "states.json").write_text(json.dumps(noted))
    elif state(root) != states[-1]:
        print("in the end the file is not complete")
        return 3
    if left := [path.name for path in (root / "out").iterdir() if path.name != "out.mcap"]:
        print(f"beside the file are {left}")
        return 3
    return 0


def plant_removal() -> None:
    """Let the old file go before the new one has its name."""
    from chunkmill.engine.writers import mcap

    def replace_file(new: Path, target: Path) -> None:
        target.unlink(missing_ok=True)
        faults.reach("mcap.rename")
        new.replace(target)

    mcap.replace_file = replace_file


def run(case: Case | None, root: Path, states: list[str] | None) -> list[str]:
    """Run the story; what went wrong."""

    def driver() -> int:
        if case is not None and case.unsafe:
            plant_removal()
        return drive(root, states)

    return cut_story(case, root, driver, ATTEMPTS)


def clean(root: Path) -> list[str]:
    """The states of a run that nothing has cut."""
    states: list[str] = json.loads((root / "states.json").read_text())
    return states


def limited(root: Path, step: int, size: int | None) -> int:
    """Run a command where no file may be larger than a size; gives 1 after an error that is clear, 3 after another."""
    if size is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        write(root, step)
    except ChunkmillError as error:
        print(f"{type(error).__name__}: {error}")
        return 1 if error.path and error.hint and error.code == "chunkmill.nospace" else 3
    return 0


def without_space(root: Path, disk: Any, draw: random.Random) -> tuple[list[str], bool]:
    """Run a command without space, and again with space: what is wrong, and whether it was refused."""
    step, log = draw.randrange(STEPS), root / "said"
    for seed in range(2):
        source(root / f"{seed}.mcap", seed, 10_000)
        shutil.copy(root / f"{seed}.mcap", root / "clean")
    if waited(forked(lambda: limited(root / "clean", step, None), log)):
        return [f"with space it failed: {log.read_text()}"], False
    if draw.random() < 0.7 and waited(forked(lambda: limited(root, (step + 1) % STEPS, None), log)):
        return [f"the first command failed: {log.read_text()}"], False
    before, complete, size = state(root), state(root / "clean"), None
    if disk is not None:
        disk.fill(draw.choice([0, draw.randint(0, 2_000_000)]))
    else:
        size = draw.choice([draw.randint(100, 5_000), draw.randint(5_000, 1_000_000)])
    code = waited(forked(lambda: limited(root, step, size), log))
    wrong = [f"it ended with {code}: {log.read_text()[-2000:]}"] if code not in (0, 1) else []
    if state(root) != (before if code else complete):
        wrong.append("the file is neither as before nor complete")
    if disk is not None:
        disk.make_space()
    if left := [path.name for path in (root / "out").iterdir() if path.name != "out.mcap"]:
        wrong.append(f"beside the file are {left}")
    if waited(forked(lambda: limited(root, step, None), log)) or state(root) != complete:
        wrong.append(f"with space again it is not complete: {log.read_text()[-2000:]}")
    return wrong, code == 1


def full(cases: int, seed: int = 1) -> int:
    """Write without space; prints what passed, and gives the exit code."""
    draw, scratch = random.Random(seed), Path(tempfile.mkdtemp(prefix="chunkmill-mcap-full-"))
    kinds = ("file-size", *(["full"] if can_mount() else []))
    warm_up()
    passed = failed = refused = 0
    for number in range(cases):
        for kind in kinds:
            root = scratch / f"{number}-{kind}"
            for folder in (root / "out", root / "clean" / "out"):
                folder.mkdir(parents=True)
            with small_disk(root / "out", 16 << 20) if kind == "full" else nullcontext() as disk:
                wrong, is_refused = without_space(root, disk, draw)
            if wrong:
                print(f"FAILED {number} {kind}\n  " + "\n  ".join(wrong))
            passed, failed, refused = passed + (not wrong), failed + bool(wrong), refused + is_refused
    shutil.rmtree(scratch, ignore_errors=True)
    print(f"{passed} passed, {failed} failed; seed {seed}, refused {refused}")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["full"]:
        sys.exit(full(int(sys.argv[3]) if sys.argv[2:3] == ["--cases"] else 6))
    sys.exit(try_points(Path(__file__), __doc__, None, POINTS, KINDS, run, clean))
