"""Cut refreshes of views at every durable step, and look whether each row is right once the run went on.

    python tests/faults/view_points.py [--every N] [--points P,…] [--seed N]
    python tests/faults/view_points.py --case POINT:KIND:NTH

A driver goes through a story: a table and a view of it are made, with a row that the function's policy skips; the view
is refreshed; rows are added, changed and deleted, and the table is compacted; the view is refreshed, compacted, brought
back to an older version, given another function, and refreshed again; so is a view of it. It is cut at one point by
SIGKILL, an exception, a full disk or a torn write, and started again until it is done. At each step a reader sees the
view as it was before or as it is then; each row was computed once for each version of it, but those of one checkpoint
for the cut; in the end no job runs, and no checkpoint and no lock is left. Prints ``N passed, M failed``, and a command
for each failure.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from catalog_points import Case
from chunkmill.engine import faults
from chunkmill.engine.errors import ChunkmillError
from chunkmill.engine.execution import lease_holder
from chunkmill.engine.tables import TableConnection, connect, skip_on_error, udf
from point_cases import cut_story, try_points

KINDS: Final = ("kill", "exception", "enospc", "torn")
POINTS: Final = (
    "checkpoint.write",
    "errors.write",
    "view.write",
    "view.commit",
    "view.deletions",
    "lance.commit",
    "job.write",
)
ATTEMPTS: Final = 4
BATCH: Final = 2
"""Rows of a batch, each of which is kept: what a cut may cost."""
SKIPPED: Final = 7
SMALL: Final[dict[str, Any]] = {"checkpoint_size": BATCH, "batch_checkpoint_flush_interval_seconds": 0, "task_size": 5}

Step = Callable[[TableConnection, Path], object]


def function(root: Path, version: int) -> Any:
    """A function that multiplies by its version, notes its calls, and fails for a row."""
    calls = root / "calls"

    @udf(name="times", version=str(version), on_error=skip_on_error())
    def times(v: int) -> int:
        with calls.open("a") as file:
            file.write(f"{version}:{v}\n")
        if v == SKIPPED:
            raise ValueError(f"no {v}")
        return v * version

    return times


def _made(tables: TableConnection, root: Path) -> None:
    import lance
    import pyarrow as pa

    place = root / "lake" / "src.lance"
    if not place.exists():
        data = pa.table({"id": range(16), "v": range(16)})
        lance.write_dataset(data, place, max_rows_per_file=6, enable_stable_row_ids=True)
    if "mv" not in tables.table_names():
        query = tables.open_table("src").search(None).where("v % 5 != 1").select({"v": "v", "c": function(root, 2)})
        tables.create_materialized_view("mv", query)
    if "mv2" not in tables.table_names():
        query = tables.open_table("mv").search(None).where("c > 8").select({"half": "c / 2", "v": "v"})
        tables.create_materialized_view("mv2", query)


def _changed(tables: TableConnection, _: Path) -> None:
    import lance
    import pyarrow as pa

    dataset = lance.dataset(tables.open_table("src").uri)
    if dataset.count_rows() == 16:
        dataset.update({"v": "v + 100"}, where="id % 4 = 3")
        dataset.delete("id = 2 OR id = 8")
        lance.write_dataset(pa.table({"id": range(50, 56), "v": range(200, 206)}), dataset.uri, mode="append")
        lance.dataset(dataset.uri).optimize.compact_files(target_rows_per_fragment=9)


def _compacted(tables: TableConnection, _: Path) -> None:
    import lance

    lance.dataset(tables.open_table("mv").uri).optimize.compact_files()


def _altered(tables: TableConnection, root: Path) -> None:
    tables.open_table("mv").alter_columns({"path": "c", "udf": function(root, 3)})
    (root / "altered").touch()


def _refreshed(version: int | None) -> Step:
    def step(tables: TableConnection, root: Path) -> None:
        times = 3 if (root / "altered").exists() else 2
        _known(function(root, times))
        view = tables.open_table("mv")
        seen = [_rows(tables, "mv")]
        view.refresh(src_version=version, **SMALL)
        seen.append(_rows(tables, "mv"))
        wanted = _wanted(tables, version, times)
        if seen[1] != wanted:
            raise AssertionError(f"the view has {seen[1]}, not {wanted}")
        tables.open_table("mv2").refresh(**SMALL)
        over = sorted((row["half"], row["v"]) for row in tables.open_table("mv2").to_arrow().to_pylist())
        if over != sorted((c // 2, v) for v, c in wanted.values() if c is not None and c > 8):
            raise AssertionError(f"the view of the view has {over}, and the view {wanted}")
        failed = [one for one in view.get_errors() if one.error_message != f"no {SKIPPED}"]
        if failed:
            raise AssertionError(f"other errors are told: {failed}")

    return step


def _known(udf: Any) -> None:
    from chunkmill.engine.tables import remember

    remember(udf)


def _rows(tables: TableConnection, name: str) -> dict[int, tuple[Any, Any]]:
    rows = tables.open_table(name).to_arrow().to_pylist()
    found = {row["__source_row_id"]: (row["v"], row["c"]) for row in rows}
    if len(found) != len(rows) or len({row["__is_set"] for row in rows}) > 1:
        raise AssertionError(f"rows are there twice, or in part: {rows}")
    return found


def _wanted(tables: TableConnection, version: int | None, times: int) -> dict[int, tuple[int, int | None]]:
    import lance

    rows = lance.dataset(tables.open_table("src").uri, version=version).to_table(with_row_id=True).to_pylist()
    return {
        row["_rowid"]: (row["v"], None if row["v"] == SKIPPED else times * row["v"])
        for row in rows
        if row["v"] % 5 != 1
    }


def story() -> list[Step]:
    """The steps."""
    return [
        _made,
        _refreshed(None),
        _changed,
        _refreshed(None),
        _compacted,
        _refreshed(1),
        _altered,
        _refreshed(None),
        _refreshed(None),
    ]


def drive(root: Path) -> int:
    """Go on with the story where it was cut. Gives 0 at its end, 1 after a failure, 3 where something is wrong."""
    warnings.simplefilter("ignore")
    (root / "lake").mkdir(exist_ok=True)
    tables, steps, ledger = connect(str(root / "lake"), executor="inline"), story(), root / "told"
    done = len(ledger.read_bytes()) if ledger.exists() else 0
    try:
        if "mv" in tables.table_names() and tables.open_table("mv").to_arrow().num_rows:
            _rows(tables, "mv")  # whatever was cut, the view is whole
        for number, step in enumerate(steps[done:], done + 1):
            step(tables, root)
            ledger.write_bytes(b"." * number)
    except AssertionError as error:
        print(f"step: {error}")
        return 3
    except Exception as error:  # noqa: BLE001 (whatever it is, is judged)
        print(f"{type(error).__name__}: {error}")
        text = f"{error} {error.__cause__}"
        is_planned = "planned" in text or any(point in text for point in faults.POINTS)
        return 1 if is_planned or (isinstance(error, ChunkmillError) and "No space left" in text) else 3
    for name in tables.table_names():
        tables.open_table(name).cleanup_checkpoints()
    return 0


def calls_of(root: Path) -> Counter[str]:
    """How often the function was called for each row, by version."""
    return Counter((root / "calls").read_text().split())


def wrong_at_the_end(root: Path, clean: Counter[str] | None) -> list[str]:
    """What is not as it should be; ``clean`` are the calls of a story that was not cut."""
    wrong: list[str] = []
    if clean is not None:
        again = calls_of(root) - clean
        if sum(again.values()) > BATCH + 1:  # a row that fails has the one beside it in its batch called again
            wrong.append(f"computed again: {dict(again)}")
    left = []
    for home in (root / "lake").glob("*.lance/_computed"):
        left += [path.name for path in home.iterdir() if path.name.startswith(".")]
        left += [str(holder) for holder in [lease_holder(home, "refresh")] if holder is not None]
        left += [path.name for path in (home / "checkpoints").glob("*")]
        left += [path.name for path in (home / "jobs").glob("*") if path.suffix != ".json"]
    return [*wrong, f"{left} is left"] if left else wrong


def run(case: Case | None, root: Path, clean: Counter[str] | None = None) -> list[str]:
    """Run the story with one fault, or none; what went wrong."""
    return cut_story(case, root, partial(drive, root), ATTEMPTS) or wrong_at_the_end(root, clean)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    return try_points(Path(__file__), __doc__, arguments, POINTS, KINDS, run, calls_of)


if __name__ == "__main__":
    os.environ["CHUNKMILL_EXECUTOR"] = "inline"
    sys.exit(main())
