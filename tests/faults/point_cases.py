"""What scripts that cut a story at fault points share: a case with its restarts, all cases, and the report."""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from catalog_points import Case
from chunkmill.engine import faults
from fault_runs import forked, reached, waited, warm_up

Attempt = tuple[str, str, Callable[[], list[str]]]
"""A case to be tried: its text, what it counts for, and the call that gives what went wrong."""

T = TypeVar("T")


def cut_story(case: Case | None, root: Path, driver: Callable[[], int], attempts: int) -> list[str]:
    """Run a driver with one fault, or none, again and again until it is done; what went wrong in that.

    It gives 0 when it is done, 1 after a failure that was planned. ``root`` gets its logs.
    """
    (root / "log").mkdir(parents=True)
    plan = f"{case.point}:{case.kind}:{case.nth}" if case else ""
    environment = {faults.LOG: str(root / "log"), faults.PLAN: plan}
    for _ in range(attempts):
        code = waited(forked(driver, root / "said", environment))
        if code == 0:
            break
        if code not in (1, -9) or case is None:
            return [f"the driver ended with {code}: {(root / 'said').read_text()[-3000:]}"]
    else:
        return [f"it was not done after {attempts} attempts: {(root / 'said').read_text()[-3000:]}"]
    if case is not None and reached(root / "log").get(case.point, 0) < case.nth:
        return [f"{case.point} was not reached so often"]
    return []


def point_cases(
    options: argparse.Namespace, counts: Mapping[str, int], points: Sequence[str], kinds: Sequence[str]
) -> Iterator[Case]:
    """Every time that a point is reached, in every way, or each ``every``-th of these."""
    if options.case:
        yield from map(Case.parse, options.case.split(","))
        return
    names = options.points.split(",") if options.points else points
    found = [Case(p, kind, nth) for p in names for kind in kinds for nth in range(1, max(1, counts.get(p, 0)) + 1)]
    random.Random(options.seed).shuffle(found)
    yield from found[:: options.every]


def told(script: str, what: str, seed: int, began: float, tried: Iterable[Attempt]) -> int:
    """Try cases; print what fails, with a command for it, and the sums of each point or step (``what``).

    Gives the exit code.
    """
    passed, failed, ran = 0, 0, Counter[str]()
    for text, name, attempt in tried:
        wrong = attempt()
        ran[name] += 1
        passed, failed = passed + (not wrong), failed + bool(wrong)
        if wrong:
            print(f"FAILED {text}\n  " + "\n  ".join(wrong))
            print(f"  again: python tests/faults/{script} --case {text}", flush=True)
    print(f"cases of each {what}: {dict(ran)}")
    print(f"{passed} passed, {failed} failed; seed {seed}, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


def try_points(
    script: Path,
    about: str | None,
    arguments: Sequence[str] | None,
    points: Sequence[str],
    kinds: Sequence[str],
    run: Callable[[Case | None, Path, T | None], list[str]],
    clean: Callable[[Path], T],
) -> int:
    """The command line of a script that cuts a story; gives its exit code.

    ``run`` plays the story in a folder, and is given what ``clean`` tells of one that nothing has cut.
    """
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--points", help="with commas")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", help="with commas")
    options = parser.parse_args(arguments)
    scratch, began = Path(tempfile.mkdtemp(prefix="chunkmill-points-")), time.monotonic()
    warm_up()
    try:
        if wrong := run(None, scratch / "clean", None):
            print("the story fails by itself: " + "\n".join(wrong))
            return 1
        expected = clean(scratch / "clean")
        counts = reached(scratch / "clean" / "log")

        def tried() -> Iterator[Attempt]:
            for at, case in enumerate(point_cases(options, counts, points, kinds)):
                yield str(case), case.point, partial(run, case, scratch / str(at), expected)
                shutil.rmtree(scratch / str(at))

        return told(script.name, "point", options.seed, began, tried())
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
