"""Kill backfills again and again while another process writes to the table, and look at every version that came of it.

    python tests/faults/backfill_schedules.py [--points 20] [--seeds 1] [--seed 1] [--executor inline|spark]
                                              [--where FOLDER|s3] [--rows 240] [--cuts POINT:KIND,…]
                                              [--unsafe checkpoint|commit]

One process appends, updates, deletes, compacts and adds columns. Another fills two columns, of which one fails for some
rows, and fills them again with the next version of their function after every second kill, once it was done. It is
killed at moments and at durable steps that are drawn, its process group or, on Spark, one worker or the JVM; or it gets
an exception, a full disk or a torn file there; then another process goes on. In the end every version of the table is
gone through: a row has a value of the function for what it was, of a version there was by then, or null; its id and its
other columns are those of the writer's ledger; and when all is done it has the value, or is null with a record that
says why. Each kill costs a batch of each worker that is computed again, each compaction the rows that it moves. Then
one fragment is computed again, and what is computed of it, and nothing else. ``unsafe`` plants
checkpoints that nobody checks, or commits that are lost.
Prints ``N passed, M failed``, and a command for each failure.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from backfill_points import KINDS, POINTS, plant_unchecked_checkpoints
from backfill_writer import Ledger, ledger_of, make, opened, write
from chunkmill.engine import faults
from chunkmill.engine.errors import ChunkmillError
from chunkmill.engine.tables import Table, skip_on_error, udf
from fault_runs import forked, s3_bucket, waited, warm_up
from random_kills import tree

BATCH: Final = 4
PASSES: Final = {"inline": 3, "spark": 1}
MOMENTS: Final = 0.5
"""The part of the kills that come at any moment, not at a durable step."""
A_VERSION: Final = 2
"""Kills after which a process may come to its end, and the function has another version."""
PATIENCE: Final = 240.0
MOST_TRIES: Final = 5
"""Drivers that may come to their end for each that is killed."""
COLUMNS: Final = ("c", "e")
CUTS: Final = tuple(f"{point}:{kind}" for point in POINTS for kind in KINDS)


@dataclass(frozen=True)
class Schedule:
    """One run: its place, how it is computed, and what is planted."""

    root: Path
    uri: str
    seed: int
    executor: str
    unsafe: str | None = None

    def words(self, version: int, passes: int) -> list[str]:
        """The command line of its driver."""
        told = [str(self.root), self.uri, str(self.seed), self.executor, self.unsafe or ""]
        return [sys.executable, __file__, "--drive", *told, str(version), str(passes)]


def function(root: Path, version: int, column: str, pause: float) -> Any:
    """A function that multiplies by its version and notes its calls; that of ``e`` fails for some rows."""
    calls, is_failing = str(root / f"calls-{column}"), column == "e"

    @udf(name="times", version=str(version), input_columns=["k", "a"], on_error=skip_on_error())
    def times(k: int, a: int) -> int:
        handle = os.open(calls, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(handle, f"{version} {k} {a}\n".encode())
        os.close(handle)
        time.sleep(pause)
        if is_failing and k % 7 == 3:
            raise ValueError(f"no {k}")
        return a * version

    return times


def drive(schedule: Schedule, version: int, passes: int) -> int:
    """Fill the columns so many times. Gives 0 at the end, 1 after what was planned, 3 where something is wrong."""
    warnings.simplefilter("ignore")
    faulthandler.dump_traceback_later(PATIENCE - 20)  # where it hangs
    plant(schedule.unsafe)
    pause = 0.002 if schedule.executor == "inline" else 0.006
    table = Table(schedule.uri, executor=schedule.executor)
    try:
        if running := [job.job_id for job in table.jobs() if job.status == "RUNNING"]:
            print(f"of processes that are gone these jobs run: {running}")
            return 3
        with (schedule.root / "begun").open("a") as file:
            file.write(f"{table.version} {version}\n")
        for column in COLUMNS:
            wanted = function(schedule.root, version, column, pause)
            if column not in table.schema.names:
                table.add_columns({column: wanted})
            elif table.schema.field(column).metadata.get(b"virtual_column.udf_version") != str(version).encode():
                table.alter_columns({"path": column, "udf": wanted})
        for number in range(passes):
            for column in COLUMNS:
                table.backfill(
                    column,
                    udf=function(schedule.root, version, column, pause),
                    checkpoint_size=BATCH,
                    batch_checkpoint_flush_interval_seconds=0,
                    commit_granularity=2,
                    task_size=(None, 25, 7)[(schedule.seed + number) % 3],
                )
    except Exception as error:  # noqa: BLE001 (whatever it is, is judged)
        text = f"{error} {error.__cause__}"
        print(f"{type(error).__name__}: {text}")
        is_planned = "planned" in text or any(point in text for point in faults.POINTS) or "No space left" in text
        is_jvm = schedule.executor == "spark" and any(word in text for word in ("Py4J", "JVM", "Connection refused"))
        is_transient = isinstance(error, ChunkmillError) and (
            error.transient or getattr(error.__cause__, "transient", False)
        )
        return 1 if is_planned or is_jvm or is_transient else 3
    return 0


def plant(unsafe: str | None) -> None:
    """Plant a mistake."""
    from chunkmill.engine.lance import LanceTable

    if unsafe == "checkpoint":
        plant_unchecked_checkpoints(-1)
    elif unsafe == "commit":
        whole = LanceTable.replace

        count = iter(range(2**31))

        def lost(self: Any, files: dict[int, str], version: int, told: str) -> int | None:
            return whole(self, files, version, told) if next(count) % 2 else version

        LanceTable.replace = lost  # type: ignore[method-assign, assignment]


def kill(schedule: Schedule, pid: int, draw: random.Random) -> str:
    """Kill a driver, or one of its processes; gives what that was."""
    below = tree(pid) if schedule.executor == "spark" else {}
    jvms = [child for child, (_, line) in below.items() if "java" in line.partition(" ")[0] and "archive" not in line]
    workers = [child for jvm in jvms for child, (_, line) in tree(jvm).items() if "python" in line.partition(" ")[0]]
    what = draw.choice(["group", *(["jvm"] if jvms else []), *(["worker"] * 2 if workers else [])])
    with contextlib.suppress(ProcessLookupError):
        if what == "group":
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(draw.choice(jvms if what == "jvm" else workers), signal.SIGKILL)
    return what


class Driver:
    """A process that fills the columns: a fork, or, where Spark is, one of its own."""

    def __init__(self, schedule: Schedule, version: int, plan: str = "", passes: int = 0) -> None:
        passes = passes or PASSES[schedule.executor]
        environment = {faults.LOG: str(schedule.root / "log"), faults.PLAN: plan}
        shutil.rmtree(schedule.root / "log", ignore_errors=True)
        (schedule.root / "log").mkdir()
        said = schedule.root / "said"
        if schedule.executor == "inline":
            self.pid = forked(lambda: drive(schedule, version, passes), said, environment)
        else:
            with said.open("ab") as out:
                command, more = schedule.words(version, passes), {**os.environ, **environment}
                self.pid = subprocess.Popen(command, stdout=out, stderr=out, env=more, start_new_session=True).pid

    def ended(self) -> int:
        """Its exit code; what is left of its group goes with it."""
        code = waited(self.pid, PATIENCE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        return code


def cut_all(schedule: Schedule, points: int, of: Sequence[str]) -> tuple[Counter[str], int, list[str]]:
    """Let drivers run and cut each, so many times; gives what cut them, the last version, and what went wrong.

    ``of`` are the steps and faults that are drawn from.
    """
    draw = random.Random(f"{schedule.seed}:kills")
    cuts, wrong, version = Counter[str](), list[str](), 1
    for _ in range(MOST_TRIES * points):
        if sum(cuts.values()) >= points or wrong:
            break
        version = 1 + sum(cuts.values()) // A_VERSION
        plan = "" if of is CUTS and draw.random() < MOMENTS else f"{draw.choice(of)}:{draw.choice((1, 2, 3, 5, 8, 13))}"
        driver = Driver(schedule, version, plan)
        what = plan.rpartition(":")[0]
        if not plan:
            began = schedule.root / "log" / "job.write"
            while not began.exists() and _runs(driver.pid):
                time.sleep(0.01)
            time.sleep(draw.uniform(0, 0.8 if schedule.executor == "inline" else 3.0))
            what = kill(schedule, driver.pid, draw)
        code = driver.ended()
        is_cut = code in (1, -signal.SIGKILL) or (code == 0 and what == "worker")
        cuts[what] += is_cut
        if is_cut and sum(cuts.values()) % A_VERSION == 0:
            code = Driver(schedule, version, passes=1).ended()  # with what those before have left
        if code not in (0, 1, -signal.SIGKILL):
            wrong.append(f"a driver ended with {code}: {_tail(schedule.root / 'said')}")
    if sum(cuts.values()) < points and not wrong:
        wrong.append(f"only {sum(cuts.values())} drivers were cut")
    return cuts, version, wrong


def _runs(pid: int) -> bool:
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-3000:]


def versions_checked(schedule: Schedule, ledger: Ledger, newest: int) -> tuple[Counter[tuple[int, int]], list[str]]:
    """Go through the versions of the table; gives what is wrong in them.

    And how often each row was moved by a compaction while the function had each version.
    """
    moved, wrong = Counter[tuple[int, int]](), list[str]()
    begun = [tuple(map(int, line.split())) for line in (schedule.root / "begun").read_text().splitlines()]
    ids: dict[int, int] = {}
    before: dict[int, tuple[int, int]] = {}
    for number in range(1, opened(schedule.uri).version + 1):
        dataset = opened(schedule.uri, number)
        wanted = ["k", "a", "b", *(column for column in COLUMNS if column in dataset.schema.names)]
        now: dict[int, tuple[int, int]] = {}
        for row in dataset.to_table(columns=wanted, with_row_id=True, with_row_address=True).to_pylist():
            key, a = row["k"], row["a"]
            now[key] = (a, row["_rowaddr"] >> 32)
            known = ledger.values.get(key, set())
            if a not in known or row["b"] != key:
                wrong.append(f"version {number}: row {key} has {a} and {row['b']}, of which the ledger knows {known}")
            if ids.setdefault(key, row["_rowid"]) != row["_rowid"]:
                wrong.append(f"version {number}: row {key} had the id {ids[key]}, and has {row['_rowid']}")
            could = {value * version for value in known for version in range(1, newest + 1)} | {None}
            wrong += [
                f"version {number}: {column} of row {key} is {row[column]}"
                for column in wanted[3:]
                if row[column] not in could or (column == "e" and key % 7 == 3 and row[column] is not None)
            ]
        by = max((version for first, version in begun if first < number), default=1)
        moved.update(
            (by, key) for key, (a, at) in now.items() if key in before and before[key][0] == a and before[key][1] != at
        )
        before = now
    return moved, wrong


def calls_of(root: Path, column: str) -> Counter[tuple[int, int, int]]:
    """How often the function was called: for each version, key and value."""
    path = root / f"calls-{column}"
    lines = path.read_text().splitlines() if path.exists() else []
    return Counter(tuple(map(int, line.split())) for line in lines)  # type: ignore[misc]


def checked(schedule: Schedule, rows: int, version: int, kills: int) -> list[str]:
    """Look at everything, once nobody writes and all is computed; what is wrong."""
    table, ledger = Table(schedule.uri, executor="inline"), ledger_of(schedule.root, rows)
    moved, wrong = versions_checked(schedule, ledger, version)
    found = {row["k"]: row for row in opened(schedule.uri).to_table().to_pylist()}
    if found.keys() != ledger.rows.keys():
        wrong.append(f"these rows are lost or too many: {sorted(found.keys() ^ ledger.rows.keys())}")
    reasons = {int(record.error_message.split()[-1]) for record in table.get_errors(column_name="e")}
    for key, row in found.items():
        wanted = ledger.rows[key]
        more = {name: row.get(name) for name in ledger.columns}
        if row["a"] != wanted.a or more != {name: wanted.more.get(name) for name in ledger.columns}:
            wrong.append(f"row {key} is {row}, not {wanted}")
        if row["c"] != wanted.a * version:
            wrong.append(f"in the end c of row {key} is {row['c']}, not {wanted.a * version}")
        if row["e"] != (None if key % 7 == 3 else wanted.a * version) or (key % 7 == 3 and key not in reasons):
            wrong.append(
                f"in the end e of row {key} is {row['e']}, and {'a' if key in reasons else 'no'} record says why"
            )
    calls = calls_of(schedule.root, "c")
    again = sum(max(0, count - 1 - moved[by, key]) for (by, key, _), count in calls.items())
    workers = 1 if schedule.executor == "inline" else 2
    if again > kills * BATCH * workers:
        wrong.append(f"{again} calls were made again, for {kills} kills, of {sum(calls.values())}")
    wrong += exactly_what_changed(schedule, table, version)
    wrong += left_over(schedule, table)
    print(f"{opened(schedule.uri).version} versions; {len(found)} rows; {sum(calls.values())} calls, {again} again")
    print(f"the writer: {dict(sorted(ledger.done.items()))}")
    return wrong


def exactly_what_changed(schedule: Schedule, table: Table, version: int) -> list[str]:
    """Compute one fragment again, and a column of that column; what else is computed."""
    wrong = []

    @udf(name="tenfold", version="1", input_columns=["k", "c"])
    def tenfold(k: int, c: int) -> int:
        with (schedule.root / "calls-d").open("a") as file:
            file.write(f"1 {k} {c}\n")
        return c * 10

    before = calls_of(schedule.root, "c")
    c = function(schedule.root, version, "c", 0)
    table.backfill("c", udf=c)
    if calls_of(schedule.root, "c") != before:
        wrong.append("what was computed was computed again")
    table.add_columns({"d": tenfold})
    table.backfill("d", udf=tenfold)
    first = opened(schedule.uri).get_fragments()[0]
    keys = set(first.to_table(columns=["k"])["k"].to_pylist())
    table.backfill("c", udf=c, where="1=1", num_frags=1)
    made = {key for (_, key, _), count in (calls_of(schedule.root, "c") - before).items() if count}
    if made != keys:
        wrong.append(f"of one fragment {sorted(made ^ keys)} were computed or not")
    before = calls_of(schedule.root, "d")
    table.backfill("d", udf=tenfold)
    made = {key for (_, key, _) in calls_of(schedule.root, "d") - before}
    if made != keys:
        wrong.append(f"as the inputs of one fragment changed, {sorted(made ^ keys)} were computed or not")
    return wrong


def left_over(schedule: Schedule, table: Table) -> list[str]:
    """What runs have left behind that no upkeep takes away."""
    table.cleanup_checkpoints()
    jobs = [f"{job.job_id} is {job.status}" for job in table.jobs() if job.status == "RUNNING"]
    if "://" in schedule.uri:
        from chunkmill.engine.storage.folder import Folder

        return jobs + [
            f"checkpoints of {key} are left" for key in Folder.at(f"{schedule.uri}/_computed/checkpoints").folders()
        ]
    home = Path(schedule.uri) / "_computed"
    left = [path.name for path in home.iterdir() if path.name.startswith(".")]
    left += [path.name for path in (home / "checkpoints").glob("*")]
    left += [path.name for path in (home / "jobs").iterdir() if path.suffix != ".json"]
    return jobs + [f"{name} is left" for name in left]


def play(schedule: Schedule, options: argparse.Namespace) -> list[str]:
    """Run one schedule; what went wrong."""
    root = schedule.root
    root.mkdir()
    if waited(forked(lambda: make(schedule.uri, options.rows, 40) or 0, root / "made")):
        return [_tail(root / "made")]
    writer = forked(lambda: write(schedule.uri, root, schedule.seed, options.rows), root / "wrote")
    try:
        cuts, version, wrong = cut_all(schedule, options.points, options.cuts)
    finally:
        (root / "stop").touch()
        code = waited(writer, PATIENCE)
    if code:
        wrong.append(f"the writer ended with {code}: {_tail(root / 'wrote')}")
    print(f"cut by {dict(sorted(cuts.items()))}")
    if wrong:
        return wrong
    last = Driver(schedule, version + 1, passes=1).ended()
    if last:
        return [f"the last driver ended with {last}: {_tail(root / 'said')}"]

    def look() -> int:
        warnings.simplefilter("ignore")
        found = checked(schedule, options.rows, version + 1, sum(cuts.values()))
        (root / "wrong.json").write_text(json.dumps(found))
        return 0

    if waited(forked(look, root / "looked"), PATIENCE):
        return [f"it could not be looked at: {_tail(root / 'looked')}"]
    print((root / "looked").read_text(), end="")
    wrong = json.loads((root / "wrong.json").read_text())
    return list(wrong)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["--drive"]:
        root, uri, seed, executor, unsafe, version, passes = given[1:]
        return drive(Schedule(Path(root), uri, int(seed), executor, unsafe or None), int(version), int(passes))
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--points", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--executor", choices=["inline", "spark"], default="inline")
    parser.add_argument("--where", help="a folder, or s3; by default a temporary folder")
    parser.add_argument("--rows", type=int, default=240)
    parser.add_argument("--cuts", type=lambda text: text.split(","), default=CUTS, help="POINT:KIND, with commas")
    parser.add_argument("--unsafe", choices=["checkpoint", "commit"])
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args(given)
    scratch, began = Path(tempfile.mkdtemp(prefix="chunkmill-schedules-")), time.monotonic()
    passed, failed = 0, 0
    warm_up()
    try:
        with contextlib.ExitStack() as served:
            home = options.where or str(scratch)
            if home == "s3":
                home = served.enter_context(s3_bucket(scratch))
            for seed in range(options.seed, options.seed + options.seeds):
                schedule = Schedule(
                    scratch / f"{seed}", f"{home}/t{seed}.lance", seed, options.executor, options.unsafe
                )
                wrong = play(schedule, options)
                passed, failed = passed + (not wrong), failed + bool(wrong)
                if wrong:
                    print(f"FAILED seed {seed}\n  " + "\n  ".join(wrong[:10]))
                    again = " ".join(word for word in given if word != "--keep")
                    print(
                        f"  again: python tests/faults/backfill_schedules.py {again} --seeds 1 --seed {seed}",
                        flush=True,
                    )
    finally:
        if options.keep:
            print(scratch)
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    print(f"{passed} passed, {failed} failed; {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ["CHUNKMILL_EXECUTOR"] = "inline"
    sys.exit(main())
