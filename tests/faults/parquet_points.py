"""Cut an export to Parquet at every step, or leave it without space: the folder is complete, or is not there.

    python tests/faults/parquet_points.py [--every N] [--points P,…] [--seed N]
    python tests/faults/parquet_points.py --case POINT:KIND:NTH[:unsafe]
    python tests/faults/parquet_points.py full [--cases 6]

A driver writes two recordings, is cut at one point by SIGKILL, a torn write, an exception or a full disk, and is run
again until it is done. Each time the folder holds all chunks, or is not there; in the end nothing else lies beside it.
``unsafe`` plants a publication that copies file by file. With ``full`` no file may become larger than a seeded size, or
the folder is on a small disk, where one can be mounted.
"""

from __future__ import annotations

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
POINTS: Final = (*(point for point in faults.POINTS if point.startswith("parquet.")), "staging.remove")
ATTEMPTS: Final = 4
RECORDINGS: Final = ("a", "b")


def stream(name: str, rows: int = 2_000) -> Any:
    """The stream of a recording: numbers and static text."""
    import numpy as np
    import pyarrow as pa
    from chunkmill import Chunk, LazyChunkStream
    from chunkmill.engine.chunk import ComponentDescriptor

    random_numbers = np.random.default_rng(ord(name))
    chunks = [Chunk.build("/about", {}, [(ComponentDescriptor("text"), pa.array([[name]]))])]
    for part in range(3):
        ticks = pa.array(np.arange(rows) + part * rows).cast(pa.timestamp("ns"))
        values = pa.array(random_numbers.normal(size=(rows, 2)).tolist(), pa.list_(pa.float64()))
        chunks.append(Chunk.build("/arm", {"time": ticks}, [(ComponentDescriptor("Scalars:scalars"), values)]))
    return LazyChunkStream.from_iter(chunks)


def export(place: Path) -> None:
    """The command."""
    from chunkmill.engine.writers import write_parquet

    write_parquet({name: stream(name) for name in RECORDINGS}, place, executor="inline")


def state(place: Path) -> str:
    """``absent``, ``complete``, or what is wrong."""
    from chunkmill.readers import ParquetReader

    if not place.exists():
        return "absent"
    try:
        for name in RECORDINGS:
            chunks = ParquetReader(place).stream(recording_id=name).to_chunks(executor="inline")
            wanted = stream(name).to_chunks(executor="inline")
            given = [(c.entity_path, [v.values.to_pylist() for v in c.data.components]) for c in chunks]
            if given != [(c.entity_path, [v.values.to_pylist() for v in c.data.components]) for c in wanted]:
                return f"recording {name} has other chunks"
    except ChunkmillError as error:
        return f"damaged: {error}"
    return "complete"


def drive(root: Path) -> int:
    """Go on where it was cut; gives 0 at the end, 1 after a failure that was planned, 3 where something is wrong."""
    place = root / "out" / "drives"
    place.parent.mkdir(exist_ok=True)
    if (before := state(place)) not in ("absent", "complete"):
        print(f"the folder is neither complete nor as it was before: {before}")
        return 3
    if before == "absent":
        try:
            export(place)
        except (ChunkmillError, RuntimeError, OSError) as error:
            print(f"{type(error).__name__}: {error}")
            return 1 if "planned" in str(error) or "No space left" in str(error) else 3
    if (after := state(place)) != "complete":
        print(f"in the end the folder is {after}")
        return 3
    from chunkmill.engine.execution import Staging

    Staging.sweep(place)
    if left := [path.name for path in place.parent.iterdir() if path != place]:
        print(f"beside the folder are {left}")
        return 3
    (root / "states.json").write_text(json.dumps(after))
    return 0


def plant_copies() -> None:
    """Publish by copies, file by file."""
    replace = Path.replace

    def copied(self: Path, target: Path) -> Path:
        if self.name != "dataset":
            return replace(self, target)
        for file in sorted(path for path in self.rglob("*") if path.is_file()):
            (target / file.relative_to(self)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target / file.relative_to(self))
            faults.reach("parquet.publish")
        return target

    Path.replace = copied  # type: ignore[method-assign,assignment]


def run(case: Case | None, root: Path, _expected: Any) -> list[str]:
    """Run the story; what went wrong."""

    def driver() -> int:
        if case is not None and case.unsafe:
            plant_copies()
        return drive(root)

    return cut_story(case, root, driver, ATTEMPTS)


def clean(root: Path) -> str:
    """The state of a run that nothing has cut."""
    return (root / "states.json").read_text()


def limited(place: Path, size: int | None) -> int:
    """Export where no file may be larger than a size; gives 1 after an error that is clear, 3 after another one."""
    if size is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        export(place)
    except ChunkmillError as error:
        print(f"{type(error).__name__}: {error}")
        return 1 if error.path and error.hint and error.code == "chunkmill.nospace" else 3
    return 0


def full(cases: int, seed: int = 1) -> int:
    """Export without space, and again with space; prints what passed, and gives the exit code."""
    draw, scratch = random.Random(seed), Path(tempfile.mkdtemp(prefix="chunkmill-parquet-full-"))
    kinds = ("file-size", *(["full"] if can_mount() else []))
    warm_up()
    passed = failed = refused = 0
    for number in range(cases):
        for kind in kinds:
            root = scratch / f"{number}-{kind}"
            (root / "disk").mkdir(parents=True)
            with small_disk(root / "disk", 16 << 20) if kind == "full" else nullcontext() as disk:
                place, log, size = root / "disk" / "drives", root / "said", None
                if disk is not None:
                    disk.fill(draw.randint(0, 300_000))
                else:
                    size = draw.choice([draw.randint(100, 5_000), draw.randint(5_000, 300_000)])
                code = waited(forked(lambda place=place, size=size: limited(place, size), log))
                after = state(place)
                wrong = code not in (0, 1) or after != ("absent" if code else "complete")
                if code and disk is not None:
                    disk.make_space()
                if code and not wrong:
                    wrong = waited(forked(lambda place=place: limited(place, None), log)) or state(place) != "complete"
                if wrong:
                    print(f"FAILED {number} {kind}: {code}, {after}: {log.read_text()[-2000:]}")
            passed, failed, refused = passed + (not wrong), failed + bool(wrong), refused + bool(code)
    shutil.rmtree(scratch, ignore_errors=True)
    print(f"{passed} passed, {failed} failed; seed {seed}, refused {refused}")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["full"]:
        sys.exit(full(int(sys.argv[3]) if sys.argv[2:3] == ["--cases"] else 6))
    sys.exit(try_points(Path(__file__), __doc__, None, POINTS, KINDS, run, clean))
