"""Cut exports to LeRobot at every step, and look whether the destination is complete or as it was.

    python tests/faults/export_points.py [--every N] [--points P,…] [--seed N]
    python tests/faults/export_points.py --case POINT:KIND:NTH[:unsafe]

A driver writes a dataset of one recording, then adds a second one and replaces the first. It is cut at one point by
SIGKILL, a torn write, an exception or a full disk, and the same command is run again until it is done. Each time the
dataset is, byte for byte, as it was before the command or as it is after it. In the end nothing else lies beside it.
``unsafe`` plants a publication that removes the old dataset first. Prints ``N passed, M failed``, and a command for
each failure.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any, Final

from catalog_points import Case
from chunkmill.engine import faults
from chunkmill.engine.errors import ChunkmillError
from point_cases import cut_story, try_points

KINDS: Final = ("kill", "torn", "exception", "enospc")
POINTS: Final = (*(point for point in faults.POINTS if point.startswith("export.")), "staging.remove")
ATTEMPTS: Final = 4

SPEC: Final = {
    "fps": 10,
    "features": {
        "observation.state": {"entity": "/arm", "rule": "linear"},
        "observation.images.top": {"entity": "/camera", "dtype": "image"},
        "observation.images.film": {"entity": "/camera", "dtype": "video"},
    },
}

STEPS: Final = ((("a", "1"),), (("a", "2"), ("b", "1")))
"""The recordings of each command: names and digests."""

Tree = dict[str, str]
"""Digests by path."""


def recordings(step: int, frames: int = 12) -> list[Any]:
    """The recordings of a command."""
    import numpy as np
    import pyarrow as pa
    from chunkmill import Chunk, LazyChunkStream
    from chunkmill.engine.chunk import ComponentDescriptor
    from chunkmill.engine.writers import ExportedRecording
    from PIL import Image

    given = []
    for name, digest in STEPS[step]:
        random = np.random.default_rng([ord(name), int(digest)])
        ticks = pa.array(np.arange(frames) * 100_000_000).cast(pa.timestamp("ns"))
        blobs = []
        for _ in range(frames):
            out = io.BytesIO()
            Image.fromarray(random.integers(0, 256, (48, 64, 3), np.uint8)).save(out, "PNG")
            blobs.append([list(out.getvalue())])
        states = pa.array(random.normal(size=(frames, 2)).tolist(), pa.list_(pa.float64()))
        images = pa.array(blobs, pa.list_(pa.list_(pa.uint8())))
        chunks = [
            Chunk.build("/arm", {"time": ticks}, [(ComponentDescriptor("Scalars:scalars"), states)]),
            Chunk.build("/camera", {"time": ticks}, [(ComponentDescriptor("EncodedImage:blob"), images)]),
        ]
        given.append(ExportedRecording(name, LazyChunkStream.from_iter(chunks), digest))
    return given


def tree(place: Path) -> Tree:
    """The files of a dataset; empty where it is not there."""
    files = (path for path in place.rglob("*") if path.is_file())
    return {str(path.relative_to(place)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def export(place: Path, step: int, frames: int = 12) -> None:
    """The command of a step."""
    from chunkmill.engine.writers import write_lerobot

    write_lerobot(recordings(step, frames), place, SPEC, executor="inline", append=True)


def drive(root: Path, states: list[Tree] | None) -> int:
    """Go on where it was cut; gives 0 at the end, 1 after a failure that was planned, 3 where something is wrong.

    Without ``states`` it notes them.
    """
    place, done = root / "out" / "set", root / "done"
    place.parent.mkdir(exist_ok=True)
    first = len(done.read_bytes()) if done.exists() else 0
    if states is not None and tree(place) not in (allowed := [{}, *states])[first : first + 2]:
        print(f"after {first} commands the dataset is neither as before nor as after the next: {len(allowed)} states")
        return 3
    noted = []
    for step in range(first, len(STEPS)):
        try:
            export(place, step)
        except (ChunkmillError, RuntimeError, OSError) as error:
            print(f"command {step}: {type(error).__name__}: {error}")
            is_planned = "planned" in str(error) or "No space left" in str(error)
            return 1 if is_planned else 3
        done.write_bytes(b"." * (step + 1))
        noted.append(tree(place))
    if states is None:
        (root / "states.json").write_text(json.dumps(noted))
    elif tree(place) != states[-1]:
        print("in the end the dataset is not complete")
        return 3
    if left := [path.name for path in place.parent.iterdir() if path != place]:
        print(f"beside the dataset are {left}")
        return 3
    return 0


def plant_removal() -> None:
    """Let the old dataset go before the new one has its name."""
    from chunkmill.engine.writers import lerobot

    def publish(new: Path, place: Path, _account: bytes | None) -> None:
        shutil.rmtree(place, ignore_errors=True)
        faults.reach("export.publish")
        new.replace(place)

    lerobot._publish = publish


def run(case: Case | None, root: Path, states: list[Tree] | None) -> list[str]:
    """Run the story; what went wrong."""

    def driver() -> int:
        if case is not None and case.unsafe:
            plant_removal()
        return drive(root, states)

    return cut_story(case, root, driver, ATTEMPTS)


def clean(root: Path) -> list[Tree]:
    """The states of a run that nothing has cut."""
    states: list[Tree] = json.loads((root / "states.json").read_text())
    return states


if __name__ == "__main__":
    sys.exit(try_points(Path(__file__), __doc__, None, POINTS, KINDS, run, clean))
