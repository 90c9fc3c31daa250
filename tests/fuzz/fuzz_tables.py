"""Damage files of a catalog's tables and search indexes, and do all that one does with them.

    python tests/fuzz/fuzz_tables.py tables|search [--mutants 2000] [--seed 1] [--only N]

Files of Lance are damaged (versions, transactions, rows, deletions, indexes) and those that search has beside them, in
a catalog that is another copy each time, or two of Lance's are swapped. Another process opens, reads, filters, counts,
searches, checks, appends, upserts, compacts, trains anew. Each call gives an answer or an error of ours that names a
place or says what to do; never a crash, a foreign exception, more than 10 s of CPU time or 512 MiB. Lance has no
checksums: other rows are no failure, and their rate is printed. What search keeps beside Lance has: it may not lead to
other answers. Prints ``N passed, M failed``; for each failure the command that repeats it.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fuzz_recordings import MIB, SECONDS, Worker
from mutation import mutate

KINDS: Final = ("tables", "search")
SWAPPED: Final = 0.08
PROGRESS: Final = 50
CHECKED: Final = ("search/versions", "search/made")


def make_catalog(folder: Path) -> None:
    """A catalog with a table of two fragments and deleted rows, and a dataset with an index of vectors and of words."""
    import numpy as np
    import pyarrow as pa
    from chunkmill import Chunk, LazyChunkStream
    from chunkmill.engine.catalog import CatalogClient
    from chunkmill.engine.chunk import ComponentDescriptor
    from table_worker import DIMENSION, TEXT, VECTOR

    client = CatalogClient(folder / "lake")
    key = pa.field("key", pa.int64(), metadata={"rerun:is_table_index": "true"})
    table = client.create_table("t", pa.schema([key, ("v", pa.string()), ("l", pa.list_(pa.float32()))]))
    table.append(key=list(range(100)), v=[f"v{i}" for i in range(100)], l=[[1.0, float(i)] for i in range(100)])
    table.upsert(key=[5, 200], v=["a", None], l=[[1.0], [2.0]])
    count = 300
    some = np.random.default_rng(1).normal(size=(count, DIMENSION)).astype(np.float32)
    lists = pa.array([row.tolist() for row in some], pa.list_(pa.float32()))
    words = pa.array([[f"frame {i}"] for i in range(count)])
    frames = {"frame": pa.array(range(count))}
    chunks = [
        Chunk.build("/emb", frames, [(ComponentDescriptor("vec"), lists)]),
        Chunk.build("/txt", frames, [(ComponentDescriptor("TextDocument:text"), words)]),
    ]
    file = folder / "r.rrd"
    LazyChunkStream.from_iter(chunks).write_rrd(file, application_id="tests", recording_id="r")
    dataset = client.create_dataset("d")
    dataset.register(str(file)).wait()
    dataset.create_vector_search_index(column=VECTOR, time_index="frame", num_sub_vectors=2)
    dataset.create_fts_search_index(column=TEXT, time_index="frame")


def damaged_files(kind: str, lake: Path) -> list[Path]:
    """The files that are damaged, by their paths in the catalog; no leases, whose holder is waited for, as is right."""
    home = lake / "tables" if kind == "tables" else next((lake / "datasets").iterdir()) / "search"
    paths = (path.relative_to(lake) for path in home.rglob("*") if path.is_file() and "lease" not in path.parts)
    paths = (path for path in paths if (lake / path).stat().st_size)
    return sorted(paths, key=lambda path: (path.parent.parent.name, path.parent.name, path.name))


def damage(kind: str, lake: Path, original: Path, seed: int, number: int) -> tuple[Path, str]:
    """Damage a file of a copy; gives which, and what was done."""
    files = damaged_files(kind, original)
    chance = random.Random(f"{kind} {seed} {number}")
    sort = chance.choice(sorted({_sort(file) for file in files}))
    alike = [file for file in files if _sort(file) == sort]
    file = chance.choice(alike)
    if chance.random() < SWAPPED and len(alike) > 1 and not _is_checked(file):
        other = chance.choice([one for one in alike if one != file])
        (lake / file).write_bytes((original / other).read_bytes())
        (lake / other).write_bytes((original / file).read_bytes())
        return file, f"swapped with {other.name}"
    mutant = mutate(chance, (original / file).read_bytes(), ())
    (lake / file).write_bytes(mutant.data)
    return file, mutant.what


def _is_checked(file: Path) -> bool:
    return file.parent.as_posix().endswith(CHECKED)


def _sort(file: Path) -> str:
    """The kind of a file: of each, as many are damaged."""
    if "_indices" in file.parts:
        return f"_indices/{file.name}"
    return f"{file.parent.name}/{file.suffix}"


@dataclass
class Tally:
    """What came of all mutants."""

    seen: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    different: int = 0
    seconds: float = 0.0
    mib: float = 0.0


def judged(answer: dict[str, Any], right: dict[str, str], lake: Path, *, is_checked: bool) -> str | None:
    """What is wrong with what a process told, if anything is."""
    if answer["outcome"] in ("dead", "foreign"):
        return str(answer["text"])
    if answer["seconds"] > SECONDS or answer["mib"] > MIB:
        return f"took {answer['seconds']:.1f} s and {answer['mib']:.0f} MiB"
    name, wall = answer["slowest"]
    if wall > SECONDS:
        return f"{name} waited for {wall:.1f} s: {answer['refused'].get(name, {}).get('text')}"
    for name, error in answer["refused"].items():
        named = error["path"] and Path(error["path"]).is_relative_to(lake)
        if not named and "table 't'" not in error["text"] and "search" not in error["text"]:
            return f"{name}: the error names nothing: {error['text']}"
        if not named and not error["hint"]:
            return f"{name}: the error has no hint: {error['text']}"
    other = [name for name, digest in answer["said"].items() if right[name] != digest and name != "check"]
    return f"{other} gave something else, and nothing said so" if other and is_checked else None


def fuzz(kind: str, numbers: range, seed: int) -> Tally:
    """Try the mutants of the given numbers."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder, Worker("table_worker.py") as worker:
        home, lake = Path(folder), Path(folder, "copy")
        maker = [sys.executable, __file__, "--make", folder]
        subprocess.run(maker, check=True, env={**os.environ, "CHUNKMILL_EXECUTOR": "inline"})
        original = home / "lake"
        shutil.copytree(original, lake)
        first = worker.read(kind, lake)
        assert first["outcome"] == "read", first
        for number in numbers:
            shutil.rmtree(lake)
            shutil.copytree(original, lake)
            file, what = damage(kind, lake, original, seed, number)
            answer = worker.read(kind, lake)
            tally.seconds = max(tally.seconds, answer.get("seconds", 0.0))
            tally.mib = max(tally.mib, answer.get("mib", 0.0))
            tally.seen[answer["outcome"]] += 1
            tally.different += any(first["said"][name] != said for name, said in answer.get("said", {}).items())
            wrong = judged(answer, first["said"], lake, is_checked=_is_checked(file))
            if wrong is not None:
                again = f"python tests/fuzz/fuzz_tables.py {kind} --seed {seed} --only {number}"
                tally.failures.append(f"{_sort(file)}, {what}\n    {wrong}\n    {again}")
                print(f"FAILED {tally.failures[-1]}", flush=True)
            if tally.seen.total() % PROGRESS == 0:
                print(f"{tally.seen.total()} tried, {len(tally.failures)} failed", flush=True)
    return tally


def main() -> int:
    """The command line; 1 when a mutant failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kind", choices=KINDS, nargs="?", default="tables")
    parser.add_argument("--mutants", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="try this mutant alone")
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.make is not None:
        make_catalog(given.make)
        return 0
    numbers = range(given.mutants) if given.only is None else range(given.only, given.only + 1)
    tally = fuzz(given.kind, numbers, given.seed)
    total = tally.seen.total()
    print(f"{dict(tally.seen)}; in {tally.different} some call gave something else")
    print(f"at most {tally.seconds:.2f} s and {tally.mib:.0f} MiB for one mutant")
    print(f"{total - len(tally.failures)} passed, {len(tally.failures)} failed")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
