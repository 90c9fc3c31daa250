"""The recordings that both servers are to read: RRDs as they lie, and those that chunkmill makes of other formats.

Recordings of the same columns are read alike, so of each kind a few are taken; how many are not, is told.
"""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

try:
    from rerun.chunk import RrdReader
except ImportError:
    from rerun.experimental import RrdReader

TOO_LARGE = {
    "lerobot__data.rrd": "the SDK takes more than 20 GB to join its rows, from either server",
}
"""Recordings that are not read, by their names, and why."""

RRDS = (".rrd", ".rbl")


class Inputs(NamedTuple):
    """The recordings of a run, the smallest first, and what became of the others."""

    recordings: dict[str, Path]
    """Each by a name that is the same in every run."""
    refused: list[str]
    """What the program says of files that it does not convert."""
    like_others: int
    """Recordings whose columns are those of recordings that are read."""
    too_large: list[str]


def inputs_in(paths: list[Path], program: str, folder: Path, most_alike: int) -> Inputs:
    """The recordings that paths mean; what is no RRD is converted below ``folder`` by a command of ``program``."""
    found: dict[str, Path] = {}
    refused = []
    for number, path in enumerate(paths):
        target = folder / str(number)
        if path.is_dir():
            found |= {_name(path, file): file for file in path.rglob("*") if file.suffix in RRDS}
            refused += converted(program, path, target)
            found = {_name(path, path / file.relative_to(target)): file for file in target.rglob("*.rrd")} | found
        elif path.suffix in RRDS:
            found[path.name] = path
        else:
            made = target / f"{path.stem}.rrd"
            refused += converted(program, path, made)
            found |= {path.name: made} if made.exists() else {}
    too_large = sorted(name for name in found if Path(name).name in TOO_LARGE)
    taken = sample({name: file for name, file in found.items() if name not in too_large}, most_alike)
    return Inputs(taken, refused, len(found) - len(too_large) - len(taken), too_large)


def _name(base: Path, file: Path) -> str:
    return f"{base.name}/{file.relative_to(base)}"


def converted(program: str, path: Path, target: Path) -> list[str]:
    """Convert a file, or all of a folder, and tell what the program says of those that it refuses, RRDs apart."""
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [program, "convert", str(path), "-o", str(target), "--executor", "inline", "-q"]
    run = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    told = [
        re.sub(r"^CM\d+: ", "", line.partition("error: ")[2]) for line in run.stderr.splitlines() if "error: " in line
    ]
    if run.returncode and not told:
        raise RuntimeError(run.stderr)
    return [line for line in told if "inputs failed" not in line and Path(line.partition(": ")[0]).suffix not in RRDS]


def sample(paths: dict[str, Path], most_alike: int) -> dict[str, Path]:
    """Of recordings with the same columns the largest, the smallest, the next ones; all ordered by size."""
    ordered = sorted(paths, key=lambda name: (paths[name].stat().st_size, name))
    kinds = defaultdict(list)
    for name in ordered:
        kinds[columns_of(paths[name])].append(name)
    taken = {name for names in kinds.values() for name in _from_both_ends(names, most_alike)}
    return {name: paths[name] for name in ordered if name in taken}


def _from_both_ends(names: list[str], number: int) -> list[str]:
    return [names[at // 2] if at % 2 else names[-1 - at // 2] for at in range(min(number, len(names)))]


def columns_of(path: Path) -> object:
    """The columns of each entity of a recording; the path itself, where the SDK does not read it."""
    try:
        batches = [chunk.to_record_batch() for chunk in RrdReader(path).stream().to_chunks()]
    except Exception:  # noqa: BLE001 (such a file is a kind of its own)
        return path
    return frozenset(
        (batch.schema.metadata[b"rerun:entity_path"], tuple((field.name, str(field.type)) for field in batch.schema))
        for batch in batches
    )
