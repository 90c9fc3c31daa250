"""Cut computed columns at every durable step, and look whether each row has its value once the run went on.

    python tests/faults/backfill_points.py [--every N] [--points P,…] [--seed N]
    python tests/faults/backfill_points.py --case POINT:KIND:NTH[:unsafe]

A driver goes through a story: a column is added and filled, with rows that its policy skips and fragments that several
tasks share; rows are added, changed, deleted; it gets another function, is filled again by halves with a compaction in
between; another is computed of it, and one is loaded. It is cut at one point by SIGKILL, an exception, a full disk or a
torn write, and started again until it is done. After each step every row has the value of the function, or is null with
an error record that says why; each row was computed once for each version, but those of one checkpoint for the cut; in
the end no job runs, and no checkpoint is left. ``unsafe`` plants checkpoints that are taken without a look at their
digest. Prints ``N passed, M failed``, and a command for each failure.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from catalog_points import Case
from chunkmill.engine import faults
from chunkmill.engine.errors import ChunkmillError
from chunkmill.engine.tables import Table, skip_on_error, udf
from chunkmill.engine.tables.checkpoints import FragmentCheckpoints
from point_cases import cut_story, try_points

KINDS: Final = ("kill", "exception", "enospc", "torn")
POINTS: Final = (
    "checkpoint.write",
    "checkpoint.file",
    "errors.write",
    "column.write",
    "column.commit",
    "lance.commit",
    "job.write",
)
ATTEMPTS: Final = 4
ROWS: Final = 24
BATCH: Final = 2
"""Rows of a batch, each of which is kept: what a cut may cost."""
SKIPPED: Final = frozenset({5, 17})
SMALL: Final[dict[str, Any]] = {"checkpoint_size": BATCH, "batch_checkpoint_flush_interval_seconds": 0}

Step = Callable[[Table, Path], object]


def function(root: Path, version: int, column: str = "a") -> Any:
    """A function that multiplies by its version, notes its calls, and fails for some rows."""
    calls = root / "calls"

    @udf(name="times", version=str(version), input_columns=[column], on_error=skip_on_error())
    def times(a: int | None) -> int | None:
        with calls.open("a") as file:
            file.write(f"{column}*{version}:{a}\n")
        if a in SKIPPED:
            raise ValueError(f"no {a}")
        return None if a is None else a * version

    return times


def check(table: Table, column: str, of: str, version: int) -> None:
    """Raise unless each row has its value, or is null with a reason."""
    import lance

    rows = lance.dataset(table.uri).to_table(columns=[of, column], with_row_address=True).to_pylist()
    reasons = {one.row_address for one in table.get_errors(column_name=column)}
    for row in rows:
        wanted = None if row[of] in SKIPPED or row[of] is None else row[of] * version
        if row[column] != wanted:
            raise AssertionError(f"{column} of {row[of]} is {row[column]}, not {wanted}")
        if row[of] in SKIPPED and row["_rowaddr"] not in reasons:
            raise AssertionError(f"{column} of {row[of]} is null, and no record says why")


def _added(table: Table, root: Path) -> None:
    if "c" not in table.schema.names:
        table.add_columns({"c": function(root, 2)})


def _changed(table: Table, _: Path) -> None:
    import lance
    import pyarrow as pa

    dataset = lance.dataset(table.uri)
    if dataset.count_rows() == ROWS:
        dataset.update({"b": "b + 1"}, where="a % 5 = 1")
        dataset.delete("a % 6 = 2")
        lance.write_dataset(pa.table({"a": range(100, 106), "b": [0] * 6}), table.uri, mode="append")


def _compacted(table: Table, _: Path) -> None:
    import lance

    lance.dataset(table.uri).optimize.compact_files(target_rows_per_fragment=20)


def _filled(column: str, of: str, version: int, *, is_whole: bool = True, **options: Any) -> Step:
    def step(table: Table, root: Path) -> None:
        table.backfill(column, udf=function(root, version, of), **SMALL, **options)
        if is_whole:
            check(table, column, of, version)

    return step


def _loaded(table: Table, root: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not (root / "more.parquet").exists():
        pq.write_table(pa.table({"a": list(range(0, 120, 2)), "m": list(range(0, 240, 4))}), root / "more.parquet")
    table.load_columns(str(root / "more.parquet"), "a", ["m"])
    values = table.to_arrow()
    for a, m in zip(values["a"].to_pylist(), values["m"].to_pylist(), strict=True):
        if m != (None if a % 2 else 2 * a):
            raise AssertionError(f"m of {a} is {m}")


def story() -> list[Step]:
    """The steps."""
    return [
        _added,
        _filled("c", "a", 2, task_size=5),
        _changed,
        _filled("c", "a", 2),
        lambda table, root: table.alter_columns({"path": "c", "udf": function(root, 3)}),
        _filled("c", "a", 3, num_frags=2, commit_granularity=1, is_whole=False),
        _compacted,
        _filled("c", "a", 3),
        lambda table, root: None if "d" in table.schema.names else table.add_columns({"d": function(root, 10, "c")}),
        _filled("d", "c", 10, task_size=7),
        _loaded,
    ]


def drive(root: Path) -> int:
    """Go on with the story where it was cut. Gives 0 at its end, 1 after a failure, 3 where something is wrong."""
    import lance
    import pyarrow as pa

    warnings.simplefilter("ignore")
    place, ledger = root / "t.lance", root / "told"
    if not place.exists():
        data = pa.table({"a": range(ROWS), "b": range(ROWS)})
        lance.write_dataset(data, place, max_rows_per_file=8, enable_stable_row_ids=True)
    table, steps = Table(str(place), executor="inline"), story()
    done = len(ledger.read_bytes()) if ledger.exists() else 0
    for number, step in enumerate(steps[done:], done + 1):
        try:
            step(table, root)
        except AssertionError as error:
            print(f"step {number}: {error}")
            return 3
        except Exception as error:  # noqa: BLE001 (whatever it is, is judged)
            print(f"step {number}: {type(error).__name__}: {error}")
            text = f"{error} {error.__cause__}"
            is_planned = "planned" in text or any(point in text for point in faults.POINTS)
            return 1 if is_planned or (isinstance(error, ChunkmillError) and "No space left" in text) else 3
        ledger.write_bytes(b"." * number)
    table.cleanup_checkpoints()
    return 0


def calls_of(root: Path) -> Counter[str]:
    """How often the function was called for each row, by version."""
    return Counter((root / "calls").read_text().split())


def wrong_at_the_end(root: Path, clean: Counter[str] | None) -> list[str]:
    """What is not as it should be; ``clean`` are the calls of a story that was not cut."""
    wrong: list[str] = []
    if clean is not None:
        again = calls_of(root) - clean
        # a row that fails has the one beside it in its batch called again, and after a cut that is another
        if sum(again.values()) > BATCH + len(SKIPPED):
            wrong.append(f"computed again: {dict(again)}")
    home = root / "t.lance" / "_computed"
    left = [path.name for path in home.iterdir() if path.name.startswith(".")]
    left += [path.name for path in (home / "checkpoints").glob("*")]
    left += [path.name for path in (home / "jobs").iterdir() if path.suffix != ".json"]
    return [*wrong, f"{left} is left"] if left else wrong


def plant_unchecked_checkpoints(value: int | None = None) -> None:
    """Take a checkpoint that is torn for one whose rows have all this value."""
    import numpy as np
    import pyarrow as pa
    from chunkmill.engine.tables.checkpoints import Computed

    def read(self: Any, name: str) -> Any:
        data = self._checked(name, name[18:-6])
        if data is None:
            offsets = np.arange(int(name[:8], 16), int(name[9:17], 16) + 1, dtype=np.uint32)
            return Computed(offsets, pa.record_batch({"c": pa.array([value] * len(offsets), pa.int64())}))
        return _READ(self, name)

    FragmentCheckpoints._read = read  # type: ignore[method-assign]


_READ = FragmentCheckpoints._read


def run(case: Case | None, root: Path, clean: Counter[str] | None = None) -> list[str]:
    """Run the story with one fault, or none; what went wrong."""

    def driver() -> int:
        if case is not None and case.unsafe:
            plant_unchecked_checkpoints()
        return drive(root)

    return cut_story(case, root, driver, ATTEMPTS) or wrong_at_the_end(root, clean)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    return try_points(Path(__file__), __doc__, arguments, POINTS, KINDS, run, calls_of)


if __name__ == "__main__":
    os.environ["CHUNKMILL_EXECUTOR"] = "inline"
    sys.exit(main())
