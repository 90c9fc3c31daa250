"""Go through random schedules of a table and of its views: each refresh gives what making the view anew would give.

    python tests/faults/view_schedules.py [--number N] [--seed N] [--case SEED,…]

A schedule is drawn from its seed: rows are appended, updated, deleted, upserted, replaced as a whole, compacted;
columns are added, and filled by a backfill or loaded; functions of the view change; the view, which asks for some of
the rows or counts them, is compacted, and refreshed to the newest version or to an older one, with other tasks and
fragments, and so is a view of it. In two of three schedules the process is killed at one point of a refresh, and
started again. After each refresh the view has the rows that its query gives for that version of the source, computed
here row by row; the function was called for as many as the plan said; and one more refresh does nothing and makes no
version. Prints ``N passed, M failed``, and a command for each failure.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from catalog_points import Case
from chunkmill.engine import faults
from chunkmill.engine.tables import NativeTable, TableConnection, connect, remember, udf
from fault_runs import warm_up
from point_cases import Attempt, cut_story, told

POINTS: Final = ("checkpoint.write", "view.write", "view.commit", "view.deletions", "job.write")
STEPS: Final = 14
ATTEMPTS: Final = 4

WHERES: Final[dict[str | None, Callable[[dict[str, Any]], bool]]] = {
    None: lambda _: True,
    "v % 3 != 0": lambda row: row["v"] % 3 != 0,
    "v > 20 AND t = 'x'": lambda row: row["v"] > 20 and row["t"] == "x",
    "w IS NOT NULL": lambda row: row["w"] is not None,
}
_called: deque[int] = deque()
"""The calls of this process: no list, whose values would be part of what the function is."""


def counted(version: int) -> Any:
    """A function of two columns that counts its calls, and multiplies by its version."""

    @udf(name="counted", version=str(version), input_columns=["v", "w"])
    def of_both(v: int, w: int | None) -> int | None:
        _called.append(v)
        return v * version + (w or 0)

    return of_both


@udf(version="1")
def doubled(v: int) -> int:
    """The source's own computed column."""
    return 2 * v


class Schedule:
    """The schedule of a seed, step by step; what is drawn depends on the seed and the step alone."""

    def __init__(self, seed: int, root: Path) -> None:
        self.seed = seed
        self.root = root
        self.tables: TableConnection = connect(str(root / "lake"), executor="inline")
        draw = random.Random(seed)
        self.where = draw.choice(list(WHERES))
        self.cut = draw.choice([None, None, (draw.randrange(4), draw.choice([None, 5, 20]))])

    def step(self, number: int) -> None:
        """Do one step. Raises ``AssertionError`` where a view is not what it should be."""
        draw = random.Random(self.seed * 1000 + number)
        if number == 0:
            self._begin(draw)
            return
        weights = {"refresh": 5, "appended": 2, "updated": 3, "deleted": 2, "upserted": 1, "compacted": 2, "filled": 2}
        weights |= {"loaded": 1, "function": 1, "replaced": 0.3, "widened": 0.5, "view_compacted": 1}
        name = draw.choices(list(weights), list(weights.values()))[0]
        getattr(self, f"_{'refresh' if number == STEPS - 1 else name}")(draw)

    @property
    def source(self) -> NativeTable:
        return self.tables.open_table("src")

    def _begin(self, draw: random.Random) -> None:
        names = self.tables.table_names()
        if "src" not in names:
            self.tables.create_table("src", [{"id": 0, "v": 1, "t": "x", "w": None}], schema=SCHEMA)
        if self.source.count_rows() == 1:
            for _ in range(draw.randrange(1, 4)):
                self._appended(draw)
        if "mv" not in names:
            query = self.source.search(None)
            query = query if self.where is None else query.where(self.where)
            if self.cut is not None:
                query = query.offset(self.cut[0]).limit(self.cut[1])
            columns = {"id": "id", "more": "v + 1", "both": counted(1), "t": "t"}
            self.tables.create_materialized_view("mv", query.select(columns))
        if "mv2" not in names:
            query = self.tables.open_table("mv").search(None).where("more > 10").select({"twice": "both * 2"})
            self.tables.create_materialized_view("mv2", query)

    def _appended(self, draw: random.Random) -> None:
        import lance
        import pyarrow as pa

        count = draw.randrange(1, 12)
        first = draw.randrange(10_000)
        rows = [{"id": first + at, "v": draw.randrange(50), "t": draw.choice("xy"), "w": None} for at in range(count)]
        lance.write_dataset(pa.Table.from_pylist(rows, SCHEMA), self.source.uri, mode="append")

    def _updated(self, draw: random.Random) -> None:
        _dataset(self.source).update({"v": f"v + {draw.randrange(3)}"}, where=f"v % {draw.randrange(2, 7)} = 1")

    def _deleted(self, draw: random.Random) -> None:
        _dataset(self.source).delete(f"v % {draw.randrange(3, 9)} = 2")

    def _upserted(self, draw: random.Random) -> None:
        import pyarrow as pa

        dataset = _dataset(self.source)
        ids = dataset.to_table(columns=["id"])["id"].unique().to_pylist()
        chosen = sorted({*draw.sample(ids, min(3, len(ids))), 20_000 + draw.randrange(100)})
        values = [{"id": id_, "v": draw.randrange(50), "t": "x", "w": None} for id_ in chosen]
        if dataset.schema.names == SCHEMA.names:
            merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            merge.execute(pa.Table.from_pylist(values, SCHEMA))

    def _compacted(self, draw: random.Random) -> None:
        _dataset(self.source).optimize.compact_files(target_rows_per_fragment=draw.choice([8, 1000]))

    def _filled(self, draw: random.Random) -> None:
        del draw
        if "d" not in self.source.schema.names:
            self.source.add_columns({"d": doubled})
        self.source.backfill("d")

    def _loaded(self, draw: random.Random) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        ids = _dataset(self.source).to_table(columns=["id"])["id"].unique().to_pylist()
        chosen = ids[:: draw.randrange(1, 4)]
        path = self.root / f"load-{draw.randrange(1 << 30)}.parquet"
        pq.write_table(
            pa.table(
                {"id": pa.array(chosen, pa.int64()), "w": pa.array([draw.randrange(9) for _ in chosen], pa.int64())}
            ),
            path,
        )
        self.source.load_columns(str(path), "id", ["w"])

    def _function(self, draw: random.Random) -> None:
        version = draw.randrange(1, 4)
        (self.root / "function").write_text(str(version))
        self.tables.open_table("mv").alter_columns({"path": "both", "udf": counted(version)})

    def _replaced(self, draw: random.Random) -> None:
        rows = [{"id": 50 + at, "v": draw.randrange(50), "t": "x", "w": at} for at in range(draw.randrange(9))]
        self.tables.create_table("src", rows, schema=SCHEMA, mode="overwrite")

    def _widened(self, draw: random.Random) -> None:
        name = f"x{draw.randrange(1 << 20)}"
        _dataset(self.source).add_columns({name: "v * 7"})
        _dataset(self.source).drop_columns([name])

    def _view_compacted(self, draw: random.Random) -> None:
        del draw
        view = self.tables.open_table("mv")
        if view.count_rows():
            _dataset(view).create_scalar_index("id", "BTREE", replace=True)
        _dataset(view).optimize.compact_files()

    def _refresh(self, draw: random.Random) -> None:
        version = int((self.root / "function").read_text()) if (self.root / "function").exists() else 1
        remember(counted(version))
        view = self.tables.open_table("mv")
        newest = self.source.version
        target = None if draw.random() < 0.7 else draw.randrange(2, newest + 1)
        plan = view.plan_refresh(src_version=target)
        _called.clear()
        result = view.refresh(
            src_version=target,
            checkpoint_size=draw.choice([None, 3]),
            batch_checkpoint_flush_interval_seconds=draw.choice([0, 5]),
            max_rows_per_fragment=draw.choice([None, 4]),
            task_size=draw.choice([None, 5]),
        )
        source = _dataset(self.source, newest if target is None else target)
        rows = source.to_table(columns=["id", "v", "t", "w"], with_row_id=True).to_pylist()
        asked = [row for row in rows if WHERES[self.where](row)]
        if self.cut is not None:
            asked = asked[self.cut[0] :][: self.cut[1]]
        wanted = {
            row["_rowid"]: (row["id"], row["v"] + 1, row["v"] * version + (row["w"] or 0), row["t"]) for row in asked
        }
        found = view.to_arrow().to_pylist()
        got = {row["__source_row_id"]: (row["id"], row["more"], row["both"], row["t"]) for row in found}
        _same(got, wanted, f"mv at {source.version}")
        _same(len(found), len(wanted), "rows")
        _same(result.rows_refreshed, plan.total_rows_pending, "rows refreshed, and planned")
        if len(_called) > plan.total_rows_pending:
            raise AssertionError(f"{len(_called)} calls for {plan.total_rows_pending} rows")
        if not os.environ.get(faults.PLAN):
            _same(len(_called), plan.total_rows_pending, "calls, and planned")
        second = self.tables.open_table("mv2")
        second.refresh()
        over = {(row["__source_row_id"], row["twice"]) for row in second.to_arrow().to_pylist()}
        own = _dataset(view).to_table(columns=["more", "both"], with_row_id=True).to_pylist()
        _same(over, {(row["_rowid"], 2 * row["both"]) for row in own if row["more"] > 10}, "mv2")
        versions = view.version, second.version
        again = view.refresh(src_version=target).rows_refreshed, second.refresh().rows_refreshed
        _same((again, (view.version, second.version)), ((0, 0), versions), "a second refresh")


def _dataset(table: NativeTable, version: int | None = None) -> Any:
    import lance

    return lance.dataset(table.uri, version=version)


def _same(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise AssertionError(f"{what}: {found}, not {wanted}")


def drive(seed: int, root: Path) -> int:
    """Go on with the schedule where it was cut. Gives 0 at its end, 1 after a failure, 3 where something is wrong."""
    warnings.simplefilter("ignore")
    schedule, ledger = Schedule(seed, root), root / "told"
    done = len(ledger.read_bytes()) if ledger.exists() else 0
    for number in range(done, STEPS):
        try:
            schedule.step(number)
        except AssertionError as error:
            print(f"step {number}: {error}")
            return 3
        ledger.write_bytes(b"." * (number + 1))
    return 0


def run(seed: int, root: Path) -> list[str]:
    """Go through one schedule; what went wrong."""
    draw = random.Random(~seed)
    is_cut = draw.random() < 0.67
    case = Case(draw.choice(POINTS), "kill", draw.randrange(1, 6)) if is_cut else None
    wrong = cut_story(case, root, partial(drive, seed, root), ATTEMPTS)
    return [one for one in wrong if "was not reached so often" not in one]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", help="seeds, with commas")
    options = parser.parse_args(arguments)
    seeds = [int(one) for one in options.case.split(",")] if options.case else None
    scratch, began = Path(tempfile.mkdtemp(prefix="chunkmill-views-")), time.monotonic()
    warm_up()
    try:

        def tried() -> Iterator[Attempt]:
            for seed in seeds or range(options.seed * 10_000, options.seed * 10_000 + options.number):
                yield str(seed), "schedule", partial(run, seed, scratch / str(seed))
                shutil.rmtree(scratch / str(seed))

        return told("view_schedules.py", "schedule", options.seed, began, tried())
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema([("id", pa.int64()), ("v", pa.int64()), ("t", pa.string()), ("w", pa.int64())])


SCHEMA: Final = _schema()

if __name__ == "__main__":
    os.environ["CHUNKMILL_EXECUTOR"] = "inline"
    sys.exit(main())
