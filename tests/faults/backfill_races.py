"""Let processes fill columns of one table at once, and others write to it, and look whether nothing is lost or doubled.

    python tests/faults/backfill_races.py [--rounds 1] [--only RACE,…] [--where FOLDER|s3] [--executor inline|spark]
                                          [--rows 60] [--unsafe]

Races: two columns; one column twice, by one function and by two versions of it; a backfill beside four who append, and
beside one who compacts; loads of two columns, and of one column twice. Those who fill a column wait for each other at
their first row, so that all have planned the same. ``--unsafe`` plants a commit that does not look at what others have
made of a fragment. Prints ``N passed, M failed``, and a command for each failure.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from backfill_writer import make, opened, options_of
from chunkmill.engine.tables import Table, udf
from chunkmill.engine.tables.fill import BackfillRun
from fault_runs import forked, s3_bucket, waited, warm_up

PER_FILE: Final = 10
PATIENCE: Final = 120.0
Told = dict[str, Any]


@dataclass(frozen=True)
class World:
    """The place of a race."""

    root: Path
    uri: str
    rows: int
    executor: str
    unsafe: bool

    @property
    def table(self) -> Table:
        """The table."""
        return Table(self.uri, executor=self.executor)

    def values(self, column: str) -> dict[int, Any]:
        """The values of a column by the keys of rows."""
        rows = opened(self.uri).to_table(columns=["k", column]).to_pydict()
        return dict(zip(rows["k"], rows[column], strict=True))


def function(world: World, column: str, version: int = 1, waits: int = 1) -> Any:
    """A function that multiplies by its version; its first call waits until so many processes have called theirs."""
    calls, met = str(world.root / f"calls-{column}"), str(world.root / "met")

    @udf(name="times", version=str(version), input_columns=["k"])
    def times(k: int) -> int:
        mine = Path(f"{met}-{os.getpid()}")
        if not mine.exists():
            mine.touch()
            until = time.monotonic() + 30
            while len(list(mine.parent.glob("met-*"))) < waits and time.monotonic() < until:
                time.sleep(0.005)
        handle = os.open(calls, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(handle, f"{version}:{k}\n".encode())
        os.close(handle)
        return k * version

    return times


def filled(world: World, column: str, version: int = 1, waits: int = 1) -> Told:
    """Fill a column; gives what was told of it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wanted = function(world, column, version, waits)
        result = world.table.backfill(column, udf=wanted, commit_granularity=1, checkpoint_size=5)
    metrics = {one.name: one.n for job in world.table.jobs() if job.job_id == result.job_id for one in job.metrics}
    said = [str(one.message) for one in caught if "another job meanwhile filled" in str(one.message)]
    return {"rows": result.columns[column].rows_processed, "said": said, **metrics}


def loaded(world: World, column: str) -> Told:
    """Load a column."""
    return {"job": world.table.load_columns(f"{world.uri}-{column}.parquet", "k", [column], commit_granularity=1)}


def at_once(world: World, *works: Callable[[], Told | None]) -> list[Told]:
    """Let processes work at once; gives what each has told. Raises ``AssertionError`` where one fails."""

    def working(number: int, work: Callable[[], Told | None]) -> int:
        if world.unsafe:
            plant()
        (world.root / f"told-{number}").write_text(json.dumps(work() or {}))
        return 0

    pids = [forked(lambda n=n, w=w: working(n, w), world.root / f"said-{n}") for n, w in enumerate(works)]  # type: ignore[misc]
    codes = [waited(pid, PATIENCE) for pid in pids]
    for number, code in enumerate(codes):
        assert code == 0, f"process {number} ended with {code}: {(world.root / f'said-{number}').read_text()[-3000:]}"
    return [json.loads((world.root / f"told-{number}").read_text()) for number in range(len(works))]


def plant() -> None:
    """Let a commit bring in its files whatever others have made of the fragments."""
    whole = BackfillRun._committed

    def committed(self: Any, reader: Any, target: Any, files: Any) -> set[int]:
        return whole(self, self.table.at(), target, files)  # as if it had been planned on what is there now

    BackfillRun._committed = committed  # type: ignore[method-assign]


def add(world: World, *columns: str) -> None:
    """Add computed columns."""
    for column in columns:
        world.table.add_columns({column: function(world, column)})


def calls_of(world: World, column: str) -> Counter[str]:
    """How often the function was called, by its version and the key."""
    path = world.root / f"calls-{column}"
    return Counter(path.read_text().split()) if path.exists() else Counter()


def looked(world: World, look: Callable[[], None]) -> None:
    """Look at a table in a process of its own, as nobody here may have used Arrow."""
    at_once(world, lambda: look() or None)  # type: ignore[func-returns-value]


def two_columns(world: World) -> None:
    """Both land, each row computed once for each."""
    at_once(world, lambda: add(world, "c", "d"))
    at_once(world, lambda: filled(world, "c", waits=2), lambda: filled(world, "d", 3, waits=2))

    def look() -> None:
        for column, version in (("c", 1), ("d", 3)):
            assert world.values(column) == {k: k * version for k in range(world.rows)}, world.values(column)
            assert set(calls_of(world, column).values()) == {1}

    looked(world, look)


def _one_column(world: World, *versions: int) -> None:
    at_once(world, lambda: add(world, "c"))
    told = at_once(world, *(lambda v=v: filled(world, "c", v, waits=2) for v in versions))  # type: ignore[misc]
    fragments = -(-world.rows // PER_FILE)
    assert sum(one["rows"] for one in told) == world.rows, told
    assert sum(one["fragments"] for one in told) == fragments, told
    for one in told:
        assert one["fragments"] + one["fragments_taken"] == fragments, told
        assert bool(one["said"]) == bool(one["fragments_taken"]), told

    def look() -> None:
        values = world.values("c")
        for first in range(0, world.rows, PER_FILE):
            mine = {k: values[k] for k in range(first, min(first + PER_FILE, world.rows))}
            assert any(mine == {k: k * v for k in mine} for v in versions), mine
        assert set(calls_of(world, "c").values()) <= {1, 2}

    looked(world, look)


def one_column_twice(world: World) -> None:
    """One wins each fragment, and the other says so."""
    _one_column(world, 1, 1)


def two_functions(world: World) -> None:
    """One wins each fragment, and the other says so: no fragment has values of both."""
    _one_column(world, 2, 3)


def beside_appenders(world: World) -> None:
    """No row is lost, and those that were added have no value, or their own."""
    at_once(world, lambda: add(world, "c"))

    def append(number: int) -> None:
        import lance
        import pyarrow as pa

        for at in range(5):
            first = world.rows + 100 * number + 10 * at
            keys = list(range(first, first + 3))
            data = pa.table({"k": keys, "a": keys, "b": keys})
            lance.write_dataset(data, world.uri, mode="append", storage_options=options_of(world.uri))

    at_once(world, lambda: filled(world, "c"), *(lambda n=n: append(n) for n in range(4)))  # type: ignore[misc]

    def look() -> None:
        values = world.values("c")
        assert len(values) == world.rows + 60 and opened(world.uri).count_rows() == len(values), len(values)
        assert all(value == k if k < world.rows else value in (k, None) for k, value in values.items()), values
        filled(world, "c")
        assert all(value == k for k, value in world.values("c").items()), world.values("c")
        assert set(calls_of(world, "c").values()) == {1}

    looked(world, look)


def beside_compaction(world: World) -> None:
    """Each row has its value once both are done."""
    at_once(world, lambda: add(world, "c"))

    def compact() -> None:
        for target in (2 * PER_FILE, 4 * PER_FILE):
            time.sleep(0.05)
            with contextlib.suppress(OSError):  # Lance's conflict with a commit of the backfill: the next one joins all
                opened(world.uri).optimize.compact_files(target_rows_per_fragment=target, num_threads=1)

    at_once(world, lambda: filled(world, "c"), compact)

    def look() -> None:
        assert world.values("c") == {k: k for k in range(world.rows)}, world.values("c")
        assert max(calls_of(world, "c").values()) <= 3

    looked(world, look)


def two_loads(world: World) -> None:
    """Both land."""
    at_once(world, lambda: source(world, "m", "n"))
    at_once(world, lambda: loaded(world, "m"), lambda: loaded(world, "n"))
    looked(world, lambda: _check_loads(world, "m", "n"))


def one_load_twice(world: World) -> None:
    """The column has the source's values."""
    at_once(world, lambda: source(world, "m"))
    at_once(world, lambda: loaded(world, "m"), lambda: loaded(world, "m"))
    looked(world, lambda: _check_loads(world, "m"))


def source(world: World, *columns: str) -> None:
    """Write the sources of columns, beside the table."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from chunkmill.engine.locations import located
    from chunkmill.engine.storage.folder import Folder

    for column in columns:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"k": range(world.rows), column: [f"{column}{k}" for k in range(world.rows)]}), sink)
        place = located(f"{world.uri}-{column}.parquet")
        Folder.at(place.parent).put(place.name, sink.getvalue().to_pybytes())


def _check_loads(world: World, *columns: str) -> None:
    for column in columns:
        assert world.values(column) == {k: f"{column}{k}" for k in range(world.rows)}, world.values(column)


RACES: Final = {
    race.__name__: race
    for race in (
        two_columns,
        one_column_twice,
        two_functions,
        beside_appenders,
        beside_compaction,
        two_loads,
        one_load_twice,
    )
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(RACES))
    parser.add_argument("--where", help="a folder, or s3; by default a temporary folder")
    parser.add_argument("--executor", choices=["inline", "spark"], default="inline")
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--unsafe", action="store_true")
    options = parser.parse_args(arguments)
    scratch, began = Path(tempfile.mkdtemp(prefix="chunkmill-races-")), time.monotonic()
    passed, failed = 0, 0
    warm_up()
    try:
        with contextlib.ExitStack() as served:
            home = options.where or str(scratch)
            if home == "s3":
                home = served.enter_context(s3_bucket(scratch))
            for number in range(options.rounds):
                for name in options.only:
                    uri = f"{home}/{name}-{number}.lance"
                    world = World(scratch / f"{name}-{number}", uri, options.rows, options.executor, options.unsafe)
                    world.root.mkdir()
                    try:
                        at_once(world, lambda uri=uri: make(uri, options.rows, PER_FILE))  # type: ignore[misc]
                        RACES[name](world)
                        passed += 1
                    except AssertionError as error:
                        failed += 1
                        print(f"FAILED {name}: {error}"[:4000])
                        print(f"  again: python tests/faults/backfill_races.py --rounds 20 --only {name}", flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"{passed} passed, {failed} failed; {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ["CHUNKMILL_EXECUTOR"] = "inline"
    sys.exit(main())
