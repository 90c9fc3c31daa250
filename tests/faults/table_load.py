"""Writers, readers, a backfill, a refresh and upkeep use one table at once, for minutes.

    python tests/faults/table_load.py [--minutes 10] [--age 10] [--seed 1] [--writers 4] [--readers 2]

Each is a process of its own. Writers add rows, update and delete those of their own, and count up one row that all
share; a backfill fills a computed column, now and then what is stale, too; a refresh keeps a view up; upkeep joins
fragments and removes versions of an age (``--age``, in seconds) and what jobs have left. Held against a model of each
writer:

- What a reader sees of a writer is what some number of its operations has made, at least as many as were acknowledged
  before and as were seen before, and at most as many as were begun: so the versions are a serial order of all of them.
- The shared row has, at the end, the number of all acknowledged counts: none was lost, none done twice.
- A reader that holds a version for less than the age reads it to its end, and what it reads is one version.
- A computed value is that of a value which the row had; at the end, with ``recompute_stale``, of the one that it has.
- At the end the view is the query's answer, and once the age has passed, one version is left, of which every file in
  the table's folder is, with neither checkpoints nor scratch. Files of Lance's own writes that others came before,
  which nobody can tell from those that are about to be committed, are removed then, too, as nobody writes any more.

Nobody may get an error but a transient one of ours, and no job may fail for something that was removed. Prints
``passed`` or what is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, Final

import lance
import pyarrow as pa
from chunkmill.engine.errors import ChunkmillError, JobFailedError
from chunkmill.engine.tables import Table, connect, udf

SHARED: Final = "shared"
BATCH: Final = 20
NAME, VIEW = "t", "v"

Rows = dict[str, int]
"""The value of each key."""


@udf(version="1")
def double(a: int) -> int:
    """Twice the value, slowly enough that others come between."""
    time.sleep(0.0005)
    return a * 2


@dataclass
class Writer:
    """What a writer does, by its number: the same for everybody who asks."""

    number: int
    seed: int
    rows: Rows = field(default_factory=dict)
    values: dict[str, set[int]] = field(default_factory=dict)
    """All values that each key has had."""

    def __post_init__(self) -> None:
        self._draw = random.Random(f"{self.seed}:{self.number}")
        self._at = 0

    def operations(self) -> Iterator[tuple[str, Callable[[Table], None]]]:
        """The name of each operation, and what it does; the rows of the model are those after it."""
        while True:
            yield self._next()
            self._at += 1

    def _next(self) -> tuple[str, Callable[[Table], None]]:
        what = self._draw.choices(["add", "update", "delete", "count"], [4, 4, 2, 2])[0]
        batches = sorted({key.rpartition("-")[0] for key in self.rows})
        if what == "count":
            return what, lambda table: table.update(f"key = '{SHARED}'", values_sql={"a": "a + 1"})
        if what == "add" or not batches:
            made = {f"{self.number}-{self._at}-{row}": self._draw.randrange(10**6) for row in range(BATCH)}
            self._set(made)
            return "add", lambda table: table.add([{"key": key, "a": a} for key, a in made.items()])
        chosen = self._draw.choice(batches)
        keys = [key for key in self.rows if key.rpartition("-")[0] == chosen]
        if what == "update":
            value = self._draw.randrange(10**6)
            self._set(dict.fromkeys(keys, value))
            return what, lambda table: table.update(f"key LIKE '{chosen}-%'", {"a": value})
        for key in keys:
            del self.rows[key]
        return what, lambda table: table.delete(f"key LIKE '{chosen}-%'")

    def _set(self, rows: Rows) -> None:
        self.rows |= rows
        for key, value in rows.items():
            self.values.setdefault(key, set()).add(value)


class History:
    """The rows of a writer after each of its operations, as far as somebody asked."""

    def __init__(self, number: int, seed: int) -> None:
        self._writer = Writer(number, seed)
        self._steps = self._writer.operations()
        self._after: list[frozenset[tuple[str, int]]] = [frozenset()]
        self.counts = [0]

    def numbers(self, rows: Rows, first: int, last: int) -> list[int]:
        """After how many operations, from one number to another, a writer's rows are these."""
        while len(self._after) <= last:
            name, _ = next(self._steps)
            self._after.append(frozenset(self._writer.rows.items()))
            self.counts.append(self.counts[-1] + (name == "count"))
        wanted = frozenset(rows.items())
        return [number for number in range(first, last + 1) if self._after[number] == wanted]

    def had(self, key: str) -> set[int]:
        """All values that a key has had, as far as operations were asked for."""
        return self._writer.values.get(key, set())


class Log:
    """What a process tells the others: a file that it replaces."""

    def __init__(self, root: Path, name: str) -> None:
        self._place = root / f"{name}.json"
        self.told: dict[str, Any] = {"begun": 0, "done": 0, "retried": 0, "wrong": [], "counts": {}}
        self._counts = Counter[str]()

    def write(self, **more: Any) -> None:
        """Tell."""
        self.told |= {**more, "counts": dict(self._counts)}
        draft = self._place.with_suffix(".draft")
        draft.write_text(json.dumps(self.told))
        draft.replace(self._place)

    def count(self, what: str, number: int = 1) -> None:
        """Count something."""
        self._counts[what] += number

    def wrong(self, text: str) -> None:
        """Tell what is wrong."""
        self.write(wrong=[*self.told["wrong"], text[:2000]])

    @staticmethod
    def of(root: Path, name: str) -> dict[str, Any]:
        """What a process has told."""
        try:
            return dict(json.loads((root / f"{name}.json").read_text()))
        except FileNotFoundError:
            return {"begun": 0, "done": 0, "wrong": [], "counts": {}}


@dataclass(frozen=True)
class Run:
    """A run: its folder, its seed, and how long it takes; ``until`` is when it ends, once all have begun."""

    root: Path
    seed: int
    writers: int
    age: float
    seconds: float
    until: float = 0.0

    def table(self, name: str = NAME) -> Table:
        """The table, opened by this process."""
        return connect(str(self.root / "db"), executor="inline").open_table(name)

    def log(self, name: str) -> Log:
        """The log of a process, which is there from now on."""
        log = Log(self.root, name)
        log.write()
        return log


def is_transient(error: BaseException) -> bool:
    """Whether an error of ours says that the same may succeed when it is tried again."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ChunkmillError) and seen.transient:
            return True
        seen = seen.__cause__ if isinstance(seen, JobFailedError) else None
    return False


def attempt(log: Log, what: str, work: Callable[[], Any]) -> Any:
    """Do something until it succeeds; transient errors are counted, and others are wrong."""
    while True:
        try:
            found = work()
        except Exception as error:  # noqa: BLE001 (it is told)
            if not is_transient(error):
                log.wrong(f"{what}: {type(error).__name__}: {error}; of {error.__cause__!r}")
                return None
            log.count(f"{what}, tried again")
        else:
            log.count(what)
            return found


def write(run: Run, number: int) -> None:
    """Be a writer."""
    log, table = run.log(f"writer{number}"), run.table()
    for at, (name, work) in enumerate(Writer(number, run.seed).operations(), 1):
        if time.time() > run.until or log.told["wrong"]:
            return
        log.write(begun=at)
        attempt(log, name, lambda work=work: work(table))  # type: ignore[misc]
        log.write(done=at)


def read(run: Run, number: int) -> None:
    """Be a reader."""
    log, table = run.log(f"reader{number}"), run.table()
    draw = random.Random(f"{run.seed}:reader{number}")
    histories = [History(one, run.seed) for one in range(run.writers)]
    seen = [0] * run.writers
    while time.time() < run.until and not log.told["wrong"]:
        done = [Log.of(run.root, f"writer{one}")["done"] for one in range(run.writers)]
        is_held = draw.random() < 0.3
        if is_held:
            snapshot = table._lance.snapshot()
            log.count("versions held")
            begun = [Log.of(run.root, f"writer{one}")["begun"] for one in range(run.writers)]
            time.sleep(draw.uniform(0, run.age * 0.4))
            rows = attempt(log, "read of an older version", lambda: pa.Table.from_batches(snapshot.batches()))  # noqa: B023
        else:
            ask = table.to_arrow if draw.random() < 0.5 else table.search().to_arrow
            rows = attempt(log, "read", ask)
            begun = [Log.of(run.root, f"writer{one}")["begun"] for one in range(run.writers)]
        if rows is None:
            return
        for one in range(run.writers):
            own = [row for row in rows.to_pylist() if row["key"].startswith(f"{one}-")]
            values = {row["key"]: row["a"] for row in own}
            if len(values) != len(own):
                log.wrong(f"a key of writer {one} is there twice")
                return
            numbers = histories[one].numbers(values, max(done[one], seen[one]), begun[one])
            if not numbers:
                log.wrong(
                    f"rows of writer {one} are of none of its states {done[one]} to {begun[one]}, seen {seen[one]}"
                )
                return
            seen[one] = numbers[0]
            for row in own:
                if row["double"] is not None and row["double"] // 2 not in histories[one].had(row["key"]):
                    log.wrong(f"{row} has a computed value that no value of it gives")
                    return
        log.write()


def fill(run: Run, _: int) -> None:
    """Be a backfill."""
    log, table = run.log("backfill"), run.table()
    draw = random.Random(f"{run.seed}:backfill")
    while time.time() < run.until and not log.told["wrong"]:
        again = draw.random() < 0.4
        options: dict[str, Any] = {"recompute_stale": True} if again else {}
        options |= {"batch_checkpoint_flush_interval_seconds": 0, "checkpoint_size": 200}
        done = attempt(log, "backfill", lambda: table.backfill("double", udf=double, **options))  # noqa: B023
        if done is not None:
            log.count("rows computed", done.columns["double"].rows_processed)
        log.write()


def refresh(run: Run, _: int) -> None:
    """Be a refresh."""
    log, view = run.log("refresh"), run.table(VIEW)
    while time.time() < run.until and not log.told["wrong"]:
        done = attempt(log, "refresh", view.refresh)
        if done is not None:
            log.count("rows refreshed", done.rows_refreshed)
        log.write()
        time.sleep(0.2)


def keep_up(run: Run, _: int) -> None:
    """Be upkeep."""
    log, tables = run.log("upkeep"), [run.table(), run.table(VIEW)]
    age = timedelta(seconds=run.age)
    while time.time() < run.until and not log.told["wrong"]:
        for table in tables:
            done = attempt(log, "optimize", lambda table=table: table.optimize(cleanup_older_than=age))  # type: ignore[misc]
            if done is not None:
                log.count("versions removed", done.old_versions)
        size = size_of(run.root / "db")
        log.write(most=max(size, log.told.get("most", 0)))
        time.sleep(run.age / 5)


def begin(role: Callable[[Run, int], None], run: Run, number: int, ready: Barrier) -> None:
    """Be what a process is to be, once all are there."""
    run.table()
    ready.wait(300)
    role(replace(run, until=time.time() + run.seconds), number)


def size_of(folder: Path) -> int:
    """The bytes of all files in a folder, but those that go meanwhile."""
    size = 0
    for at, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                size += Path(at, name).stat().st_size
    return size


def make(run: Run) -> None:
    """Make the table and its view."""
    connection = connect(str(run.root / "db"), executor="inline")
    schema = pa.schema([("key", pa.string()), ("a", pa.int64())])
    table = connection.create_table(NAME, pa.table({"key": [SHARED], "a": [0]}, schema))
    table.add_columns({"double": double})
    table.create_scalar_index("key")
    connection.create_materialized_view(VIEW, table.search().where("a % 2 = 0").select({"key": "key", "b": "a + 1"}))


MOST_DIGESTS = 2
"""The files of digests of a table with one version: those that a cleanup has joined, and those of the newest."""


def left_over(folder: Path) -> list[str]:
    """The files of a table that its newest version does not need."""
    dataset = lance.dataset(str(folder))
    fragments = [one.metadata for one in dataset.get_fragments()]
    named = {f"data/{file.path}" for one in fragments for file in one.files}
    named |= {one.deletion_file.path(one.id) for one in fragments if one.deletion_file is not None}
    there = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    kept = ("_versions/", "_transactions/", "_indices/", "_computed/jobs/", "_computed/errors/", "_computed/lease/")
    digests = [one for one in there if one.startswith("_digests/")]  # a cleanup joins them
    wrong = sorted(one for one in there - named if not one.startswith((*kept, "_digests/")))
    wrong += [f"{len(digests)} files of digests"] if len(digests) > MOST_DIGESTS else []
    wrong += [f"{len(versions)} versions" for versions in [dataset.versions()] if len(versions) != 1]
    indexes = {path.name for path in (folder / "_indices").glob("*")}
    used = {str(one["uuid"]) for one in dataset.list_indices()}
    return wrong + [f"_indices/{one}" for one in sorted(indexes - used)]


def at_the_end(run: Run) -> list[str]:
    """Let everything come to rest, and tell what is wrong then."""
    wrong = []
    table, view = run.table(), run.table(VIEW)
    counted = 0
    rows = {row["key"]: row["a"] for row in table.to_arrow().to_pylist()}
    for one in range(run.writers):
        done = Log.of(run.root, f"writer{one}")["done"]
        history = History(one, run.seed)
        own = {key: a for key, a in rows.items() if key.startswith(f"{one}-")}
        if not history.numbers(own, done, done):
            wrong.append(f"the rows of writer {one} are not those after its {done} operations")
        counted += history.counts[done]
    if rows[SHARED] != counted:
        wrong.append(f"{counted} counts were acknowledged, and {rows[SHARED]} are there")
    table.backfill("double", udf=double, recompute_stale=True)
    table.backfill("double", udf=double)
    view.refresh()
    found = table.to_arrow().to_pylist()
    wrong += [f"{row} has another value than its own" for row in found if row["double"] != 2 * row["a"]][:3]
    if stale := table.plan_backfill("double", udf=double).stale_rows:
        wrong.append(f"{stale} rows are said to be stale, and none is")
    asked = sorted((row["key"], row["a"] + 1) for row in found if row["a"] % 2 == 0)
    if sorted((row["key"], row["b"]) for row in view.to_arrow().to_pylist()) != asked:
        wrong.append("the view is not what its query gives")
    for one in (table, view):
        one.optimize(cleanup_older_than=timedelta(0))
    time.sleep(run.age)
    for one in (table, view):
        one.cleanup_old_versions(timedelta(seconds=run.age))
        attempts = [name for name in left_over(Path(one.uri)) if name.startswith(("data/", "_deletions/"))]
        print(f"{one.name}: {len(attempts)} files of writes that others came before, which stay for a week")
        one.cleanup_old_versions(timedelta(seconds=run.age), delete_unverified=True)
        wrong += [f"{one.name}: {name} is left" for name in left_over(Path(one.uri))]
        wrong += [f"{job.job_type} failed: {job.error}" for job in one.jobs() if _is_fault(job.status, job.error)]
    return wrong


def _is_fault(status: str, error: str | None) -> bool:
    """Whether a job failed for something else than that others were faster."""
    return status != "DONE" and not any(word in (error or "") for word in ("others", "Run it again", "transient"))


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--age", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--readers", type=int, default=2)
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="table-load-"))
    run = Run(root, args.seed, args.writers, args.age, args.minutes * 60)
    make(run)
    roles = [(write, number) for number in range(args.writers)] + [(read, number) for number in range(args.readers)]
    roles += [(fill, 0), (refresh, 0), (keep_up, 0)]
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(len(roles))
    processes = [context.Process(target=begin, args=(role, run, number, ready)) for role, number in roles]
    for process in processes:
        process.start()
    for process in processes:
        process.join(args.minutes * 60 + 300)
    logs = {path.stem: json.loads(path.read_text()) for path in sorted(root.glob("*.json"))}
    wrong = [f"{name}: {text}" for name, told in logs.items() for text in told["wrong"]]
    wrong += [f"a process ended with {one.exitcode}" for one in processes if one.exitcode != 0]
    wrong += at_the_end(run) if not wrong else []
    for name, told in logs.items():
        print(f"{name}: {told['counts']}{' most bytes ' + format(told['most'], ',') if 'most' in told else ''}")
    size = size_of(root / "db")
    print(f"{size:,} bytes are left")
    print("\n".join(wrong[:40]) if wrong else "passed")
    if not wrong:
        shutil.rmtree(root)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
