"""Cut an ingestion at every durable step, in every way, and look whether anything is lost, doubled or half there.

    python tests/faults/crash_points.py [--executor inline|spark] [--points P,…] [--kinds K,…] [--seed N] [--rounds N]
    python tests/faults/crash_points.py --case POINT:KIND:NTH:CONFIG[:SINK] [--keep FOLDER]

A driver ingests a landing folder of three batches and is cut at one point by SIGKILL, an exception, a full disk or a
torn write; it is started again until it is done. Meanwhile a reader opens the store again and again. At the end a
ledger is compared with what the same files become when each is converted by itself. Prints ``N passed, M failed`` and
a command for each failure; a point that is never reached is a failure too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from chunkmill.engine.faults import LOG, PLAN, POINTS
from fault_driver import Drive
from fault_runs import Watching, checked, driven, forked, last_error, reached, waited, warm_up
from fault_world import STORY, Template, land, make_template
from unsafe_sinks import SINKS

KINDS: Final = ("kill", "exception", "enospc", "torn")
ATTEMPTS: Final = 4

CONFIGS: Final = {
    "both": Drive("", optimize=True),
    "archive": Drive("", rrds=False, source_done="archive"),
    "rrds": Drive("", into=False, source_done="delete"),
    "rival": Drive("", rrds=False, rival=True),
}
"""Destinations, and what becomes of the sources."""

SPARK_POINTS: Final = (
    "landing.append",
    "batch.begin",
    "part.write",
    "part.rename",
    "batch.run",
    "shard.write",
    "shard.rename",
    "batch.quarantine",
    "version.draft",
    "version.publish",
    "version.done",
    "batch.commit",
    "staging.remove",
)

OF_INGESTIONS: Final = tuple(
    point
    for point in POINTS
    if not point.startswith(("entry.", "search.", "lance.", "upload.", "export.", "mcap.", "parquet."))
)
"""Those of a catalog's entries are cut by ``catalog_points.py``, those of its tables by ``table_points.py``,
those of exports by ``export_points.py``, and those of MCAPs by ``mcap_points.py``."""

NOT_WRITING: Final = (
    "batch.",
    "staging.",
    "lease.",
    "source.",
    "version.done",
    "version.rebase",
    "announce.clear",
    "compact.",
    "landing.compact",
)
"""Points between steps, at which a full disk is nothing but an exception."""


@dataclass(frozen=True)
class Case:
    """One fault: where, how, at which time, and in which configuration; ``sink`` is a planted unsafe one."""

    point: str
    kind: str
    nth: int
    config: str
    sink: str = ""

    def __str__(self) -> str:
        return f"{self.point}:{self.kind}:{self.nth}:{self.config}{':' if self.sink else ''}{self.sink}"

    @classmethod
    def parse(cls, text: str) -> Case:
        """The inverse of ``str``."""
        point, kind, nth, config, *sink = text.split(":")
        return cls(point, kind, int(nth), config, *sink)


@dataclass(frozen=True)
class Setting:
    """What all cases of a run share."""

    template: Template
    scratch: Path
    executor: str = "inline"


def run(case: Case | None, config: str, setting: Setting) -> tuple[list[str], dict[str, int]]:
    """Run one case, or none, which is a run without a fault; what went wrong, and how often points were reached."""
    root = setting.scratch / (str(case).replace(":", "-") if case else f"clean-{config}")
    (root / "landing").mkdir(parents=True)
    (root / "log").mkdir()
    environment = {LOG: str(root / "log"), PLAN: f"{case.point}:{case.kind}:{case.nth}" if case else ""}
    spark = setting.executor == "spark"
    drive = replace(
        CONFIGS[config],
        folder=str(root),
        executor=setting.executor,
        master="local[2]" if spark else None,
        merge_log=not spark,
        sink=case.sink if case else "",
    )
    wrong: list[str] = []
    spoilt = False
    watching = Watching(drive, setting.template)
    for act in range(len(STORY)):
        land(setting.template, root / "landing", act)
        wrong += _until_done(drive, environment, case)
        if case is not None and case.kind == "exception" and case.point.startswith("part."):
            # An exception in a task is taken for the file's own: the file is in quarantine, and may be tried again.
            spoilt = True
            wrong += _until_done(replace(drive, retry=True), environment, case)
    wrong += _until_done(replace(drive, upkeep=True, executor="inline"), environment, case)
    looks, seen = watching.end()
    wrong += seen
    if not looks and not seen:
        wrong.append("the reader never looked")
    if not wrong:
        wrong += checked(drive, setting.template, spoilt=spoilt)
    counts = reached(root / "log")
    if case is not None and counts.get(case.point, 0) < case.nth:
        wrong.append(f"{case.point} was reached {counts.get(case.point, 0)} times, not {case.nth}")
    return wrong, counts


def _until_done(drive: Drive, environment: dict[str, str], case: Case | None) -> list[str]:
    """Start the driver again until it is done; what is wrong with how it failed."""
    wrong: list[str] = []
    for attempt in range(ATTEMPTS):
        code = driven(drive, environment)
        if code == 0:
            return wrong
        if case is None or attempt > (1 if drive.executor == "spark" else 0):
            log = (drive.root / "driver.log").read_text(errors="replace")[-3000:]
            said = last_error(drive)["text"] if code == 1 else log
            return [*wrong, f"the driver ended with {code}, without another fault:\n{said}"]
        if code == 1:
            wrong += _judged(last_error(drive), case)
        elif code != -9:
            wrong.append(f"the driver ended with {code}: {(drive.root / 'driver.log').read_text()[-2000:]}")
    return [*wrong, f"it was not done after {ATTEMPTS} attempts"]


def _judged(said: dict[str, object], case: Case) -> list[str]:
    if case.kind == "enospc" and not case.point.startswith(NOT_WRITING) and not (said["own"] and said["path"]):
        return [f"a full disk is told as {said['kind']}, path {said['path']}: {said['text']}"]
    return []


def chosen(
    counts: dict[str, dict[str, int]], points: Sequence[str], kinds: Sequence[str], seed: int, rounds: int
) -> Iterator[Case]:
    """The cases: each point and kind, in the first round at its first time, then at any."""
    for number in range(rounds):
        for point in points:
            configs = [config for config, found in counts.items() if found.get(point)]
            for kind in kinds:
                draw = random.Random(f"{seed}:{number}:{point}:{kind}")
                if configs:
                    config = configs[0] if number == 0 else draw.choice(configs)
                    yield Case(point, kind, draw.randint(1, counts[config][point]) if number else 1, config)


@dataclass
class Tally:
    """What came of all cases."""

    passed: int = 0
    failures: list[tuple[str, list[str]]] | None = None

    def fail(self, what: str, wrong: list[str]) -> None:
        """Note a failure."""
        self.failures = [*(self.failures or []), (what, wrong)]


def run_all(cases: Sequence[Case], setting: Setting, tally: Tally, jobs: int) -> None:
    """Run cases in forks, some at once."""
    waiting, running = list(reversed(cases)), {}
    while waiting or running:
        while waiting and len(running) < jobs:
            case = waiting.pop()
            said = setting.scratch / f"{str(case).replace(':', '-')}.json"
            running[forked(lambda c=case, s=said: _told(c, setting, s))] = case, said  # type: ignore[misc]
        pid, _ = os.waitpid(-1, 0)
        if pid not in running:
            continue
        case, said = running.pop(pid)
        wrong = json.loads(said.read_text()) if said.exists() else ["the case itself failed"]
        if wrong:
            tally.fail(str(case), wrong)
        else:
            tally.passed += 1
            shutil.rmtree(setting.scratch / str(case).replace(":", "-"), ignore_errors=True)


def _told(case: Case, setting: Setting, said: Path) -> int:
    wrong, _ = run(case, case.config, setting)
    said.write_text(json.dumps(wrong))
    return 0


def baseline(setting: Setting, configs: Sequence[str], tally: Tally) -> dict[str, dict[str, int]]:
    """How often each point is reached where nothing fails, by configuration; each is a case of its own."""
    found = {}
    for config in configs:
        wrong, found[config] = run(None, config, setting)
        if wrong:
            tally.fail(f"clean:{config}", wrong)
        else:
            tally.passed += 1
    return found


def prepared(scratch: Path) -> Template:
    """The files of the story, made in a fork."""

    def make() -> int:
        make_template(scratch / "template")
        return 0

    if waited(forked(make)) != 0:
        raise RuntimeError("the files of the story could not be made")
    return Template.load(scratch / "template")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    options = _options(arguments)
    scratch = Path(options.keep or tempfile.mkdtemp(prefix="chunkmill-faults-")).resolve()
    began = time.monotonic()
    warm_up()
    setting = Setting(prepared(scratch), scratch, options.executor)
    tally = Tally()
    spark = options.executor == "spark"
    points = options.points.split(",") if options.points else list(SPARK_POINTS if spark else OF_INGESTIONS)
    kinds = options.kinds.split(",") if options.kinds else ["kill"] if spark else list(KINDS)
    if options.case:
        cases = [Case.parse(text) for text in options.case.split(",")]
    elif spark:
        cases = [Case(point, kind, 1, "both") for point in points for kind in kinds]
    else:
        counts = baseline(setting, list(CONFIGS), tally)
        reachable = Counter[str]()
        for found in counts.values():
            reachable.update(found)
        for point in points:
            if not reachable[point]:
                tally.fail(point, ["this point is never reached"])
        cases = list(dict.fromkeys(chosen(counts, points, kinds, options.seed, options.rounds)))
    run_all(cases, setting, tally, 1 if spark else options.jobs)
    for what, wrong in tally.failures or []:
        print(f"FAILED {what}\n  " + "\n  ".join(wrong))
        print(f"  again: python tests/faults/crash_points.py --executor {options.executor} --case {what}")
    failed = len(tally.failures or [])
    print(f"{tally.passed} passed, {failed} failed; seed {options.seed}, {time.monotonic() - began:.0f} s")
    if not options.keep:
        shutil.rmtree(scratch, ignore_errors=True)
    return 1 if failed else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--executor", choices=["inline", "spark"], default="inline")
    parser.add_argument("--points", help="with commas; all by default")
    parser.add_argument("--kinds", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2, help="how often each point and kind is tried")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--case", help=f"with commas; a planted unsafe sink is one of {', '.join(SINKS)}")
    parser.add_argument("--keep", help="a folder for what the cases leave")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
