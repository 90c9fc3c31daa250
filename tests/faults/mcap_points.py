"""Cut the writing of MCAPs at every step, and look whether the destination is complete or as it was.

    python tests/faults/mcap_points.py [--every N] [--points P,…] [--seed N]
    python tests/faults/mcap_points.py --case POINT:KIND:NTH[:unsafe]

A driver copies the messages of a file, then those of two files, then makes messages of chunks, each onto the same name.
It is cut at one point by SIGKILL, a torn write, an exception or a full disk, and goes on with the same command until it
is done. Each time the file is, byte for byte, as it was before the command or as it is after it. In the end nothing
else lies beside it. ``unsafe`` plants a commit that removes the old file first. Prints ``N passed, M failed``, and a
command for each failure.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any, Final

from catalog_points import Case
from chunkmill.engine import faults
from chunkmill.engine.errors import ChunkmillError
from point_cases import cut_story, try_points

KINDS: Final = ("kill", "torn", "exception", "enospc")
POINTS: Final = tuple(point for point in faults.POINTS if point.startswith("mcap."))
ATTEMPTS: Final = 4
STEPS: Final = 3


def source(path: Path, seed: int) -> None:
    """Write an MCAP of two topics without an index, so that runs are needed."""
    from mcap.writer import CompressionType, Writer

    with path.open("wb") as file:
        writer = Writer(file, compression=CompressionType.NONE, use_statistics=False, use_chunking=seed == 0)
        writer.start(library="test")
        channels = [writer.register_channel(f"/{name}", "json", 0) for name in "ab"]
        for i in range(50):
            writer.add_message(channels[i % 2], 1000 + i * 7 % 50, json.dumps({"n": i, "seed": seed}).encode(), i, i)
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


if __name__ == "__main__":
    sys.exit(try_points(Path(__file__), __doc__, None, POINTS, KINDS, run, clean))
