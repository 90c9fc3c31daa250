"""Cut changes of a catalog at every durable step, and let processes race for names, and look whether the log holds.

    python tests/faults/catalog_points.py [--rounds N] [--seed N] [--racers N]
    python tests/faults/catalog_points.py --case POINT:KIND:NTH[:unsafe]

A driver goes through a story of creating, renaming and deleting datasets, and is cut at one point by SIGKILL, an
exception, a full disk or a torn write; it is started again until it is done. Each time it finds the catalog as it was
after the last change that it was told of, or after the one that was cut, and never in between. ``unsafe`` plants a
commit that writes a version under its own name. In the race, processes create, rename and delete the same entries at
once. Prints ``N passed, M failed``, and a command for each failure.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chunkmill.engine import faults
from chunkmill.engine.catalog import AlreadyExistsError, CatalogClient, NotFoundError
from chunkmill.engine.catalog.entry_log import KEPT_VERSIONS
from chunkmill.engine.errors import ChunkmillError
from chunkmill.engine.execution import LocalFolder
from fault_runs import forked, waited

KINDS: Final = ("kill", "exception", "enospc", "torn")
POINTS: Final = tuple(point for point in faults.POINTS if point.startswith("entry."))
CHANGES: Final = 20
ATTEMPTS: Final = 4

Change = tuple[str, str, str]
"""What is done, to which name, and the new name where there is one."""


@dataclass(frozen=True)
class Case:
    """One fault: where, how, at which time, and whether commits are those that are not safe."""

    point: str
    kind: str
    nth: int
    unsafe: bool = False

    def __str__(self) -> str:
        return f"{self.point}:{self.kind}:{self.nth}{':unsafe' if self.unsafe else ''}"

    @classmethod
    def parse(cls, text: str) -> Case:
        """The inverse of ``str``."""
        point, kind, nth, *unsafe = text.split(":")
        return cls(point, kind, int(nth), bool(unsafe))


def story(seed: int) -> list[Change]:
    """Changes that each make sense after those before it."""
    draw, names, found = random.Random(seed), list[str](), list[Change]()
    for number in range(CHANGES):
        what = draw.choice(("create", "create", "rename", "delete")) if names else "create"
        name = f"d{number}" if what == "create" else names.pop(draw.randrange(len(names)))
        new = f"r{number}" if what == "rename" else ""
        names += [name] if what == "create" else [new] if new else []
        found.append((what, name, new))
    return found


def names_after(changes: Sequence[Change]) -> list[str]:
    """The names of a catalog after these changes."""
    names = set[str]()
    for what, name, new in changes:
        names ^= {name} if what != "rename" else {name, new}
    return sorted(names)


def drive(root: Path, changes: Sequence[Change]) -> int:
    """Go on with the story where it was cut. Gives 0 at its end, 1 after a failure, 3 where the catalog is wrong."""
    client, ledger = CatalogClient(root / "lake"), root / "told"
    done = len(ledger.read_bytes()) if ledger.exists() else 0
    names = client.dataset_names()
    if names != names_after(changes[:done]):
        if names != names_after(changes[: done + 1]):
            print(f"after {done} changes there are {names}")
            return 3
        done += 1
        ledger.write_bytes(b"." * done)
    for number, (what, name, new) in enumerate(changes[done:], done + 1):
        try:
            if what == "create":
                client.create_dataset(name)
            elif what == "rename":
                client.get_dataset(name).set_name(new)
            else:
                client.get_dataset(name).delete()
        except Exception as error:  # noqa: BLE001 (whatever it is, is judged)
            print(f"{type(error).__name__}: {error}")
            is_told = (isinstance(error, ChunkmillError) and error.path) or "planned" in str(error)
            return 1 if is_told else 3
        ledger.write_bytes(b"." * number)
    return 0


def plant_unsafe_commit() -> None:
    """Let a version be written under its own name, where it can be seen while it is half there."""

    def create(folder: LocalFolder, name: str, data: bytes, points: tuple[str, str] | None = None) -> bool:
        if (folder.location / name).exists():
            return False
        folder.put(name, data)
        if points:
            faults.reach(points[0], folder.location / name)
            faults.reach(points[1])
        return True

    LocalFolder.create = create  # type: ignore[method-assign]


def run(case: Case | None, root: Path, seed: int) -> list[str]:
    """Run the story with one fault, or none; what went wrong."""
    (root / "log").mkdir(parents=True)
    changes = story(seed)
    plan = f"{case.point}:{case.kind}:{case.nth}" if case else ""
    environment = {faults.LOG: str(root / "log"), faults.PLAN: plan}

    def driver() -> int:
        if case is not None and case.unsafe:
            plant_unsafe_commit()
        return drive(root, changes)

    for _ in range(ATTEMPTS):
        code = waited(forked(driver, root / "said", environment))
        if code == 0:
            break
        if code not in (1, -9):
            return [f"the driver ended with {code}: {(root / 'said').read_text()[-2000:]}"]
    else:
        return [f"it was not done after {ATTEMPTS} attempts: {(root / 'said').read_text()[-2000:]}"]
    names = CatalogClient(root / "lake").dataset_names()
    wrong = [] if names == names_after(changes) else [f"in the end there are {names}"]
    point = root / "log" / (case.point if case else POINTS[0])
    if not point.exists() or point.stat().st_size < (case.nth if case else 1):
        wrong.append(f"{point.name} was not reached so often")
    return wrong


def race(root: Path, racers: int, names: int) -> list[str]:
    """Let processes create, rename and delete the same entries at once, in orders of their own; what went wrong.

    Every entry that somebody was told of is there at the end, unless somebody was told that it is deleted; and that
    is told once.
    """
    root.mkdir()
    start = time.monotonic() + 0.3

    def racer(number: int) -> int:
        draw = random.Random(number)
        order = [f"name {n}" for n in range(names)]
        draw.shuffle(order)
        time.sleep(max(0.0, start - time.monotonic()))
        client = CatalogClient(root / "lake")
        with (root / f"told-{number}").open("w") as told:
            for name in order:
                try:
                    made = client.create_dataset(name)
                except AlreadyExistsError:
                    continue
                print("made", made.id, file=told)
            for name in order[: names // 2]:
                try:
                    entry = client.get_dataset(name)
                    entry.set_name(f"{name} by {number}")
                    if draw.random() < 0.5:
                        entry.delete()
                        print("deleted", entry.id, file=told)
                except NotFoundError:
                    continue
        return 0

    pids = [forked(lambda n=n: racer(n), root / "said") for n in range(racers)]  # type: ignore[misc]
    codes = [waited(pid) for pid in pids]
    if any(codes):
        return [f"a racer failed: {(root / 'said').read_text()[-2000:]}"]
    told = [line.split() for path in root.glob("told-*") for line in path.read_text().splitlines()]
    made, deleted = (sorted(id_ for what, id_ in told if what == kind) for kind in ("made", "deleted"))
    there = sorted(str(entry.id) for entry in CatalogClient(root / "lake").datasets())
    is_once = len(set(made)) == len(made) >= names and len(set(deleted)) == len(deleted)
    fits = there == sorted(set(made) - set(deleted))
    return [] if is_once and fits else [f"made were {made}, deleted {deleted}, there are {there}"]


def chosen(options: argparse.Namespace) -> Iterator[Case]:
    """The cases: each point and kind, at its first time, and then at any."""
    if options.case:
        yield from map(Case.parse, options.case.split(","))
        return
    draw = random.Random(options.seed)
    for number in range(options.rounds):
        for point in POINTS:
            most = CHANGES // KEPT_VERSIONS if point == "entry.prune" else CHANGES
            for kind in KINDS:
                yield Case(point, kind, draw.randint(1, most) if number else 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--racers", type=int, default=8)
    parser.add_argument("--names", type=int, default=25)
    parser.add_argument("--case", help="with commas")
    options = parser.parse_args(arguments)
    scratch = Path(tempfile.mkdtemp(prefix="chunkmill-catalog-"))
    began = time.monotonic()
    passed, failed = 0, 0
    try:
        results = [(str(c), run(c, scratch / f"{at}", options.seed + at)) for at, c in enumerate(chosen(options))]
        results.append(("race", race(scratch / "race", options.racers, options.names)))
        for what, wrong in results:
            passed, failed = passed + (not wrong), failed + bool(wrong)
            if wrong:
                print(f"FAILED {what}\n  " + "\n  ".join(wrong))
                print(f"  again: python tests/faults/catalog_points.py --case {what}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"{passed} passed, {failed} failed; seed {options.seed}, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ["CHUNKMILL_EXECUTOR"] = "inline"
    sys.exit(main())
