"""Cut writes and upkeep of a catalog's tables at every step, and look whether each is at one version or the next.

    python tests/faults/table_points.py [--every N] [--points P,…] [--seed N]
    python tests/faults/table_points.py --case POINT:KIND:NTH[:unsafe]

A driver goes through a story: tables are made, appended to, overwritten, upserted into and updated with keys that may
be null and that may not, tagged and restored, compacted, cleaned up; one is left by a creation that was cut. It is cut
at one point by SIGKILL, an exception or a full disk, and started again until it is done. Each time it finds tables,
those of tags among them, and rows as they were after the last step that it was told of, or after the one that was cut,
and does that one again. At the end nothing is at fault or left over. ``unsafe`` plants an overwrite of two commits.
Prints ``N passed, M failed``, and a command for each failure.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from catalog_points import Case
from chunkmill.engine import faults
from chunkmill.engine.catalog import CatalogClient, EntryId, maintenance
from chunkmill.engine.errors import ChunkmillError
from chunkmill.engine.lance import LanceTable
from point_cases import cut_story, try_points

KINDS: Final = ("kill", "exception", "enospc")
POINTS: Final = tuple(point for point in faults.POINTS if point.startswith("lance.") and point != "lance.fragments")
"""All but that of writes by Spark's tasks, which ``test_table_writes_on_spark.py`` cuts."""
ATTEMPTS: Final = 4

State = dict[str, list[list[Any]]]
"""The rows of each table, sorted."""
Step = Callable[[CatalogClient], object]


def _made(name: str, *, nullable: bool) -> Step:
    import pyarrow as pa

    key = pa.field("key", pa.int64(), nullable=nullable, metadata={"rerun:is_table_index": "true"})
    return lambda client: client.create_table(name, pa.schema([key, pa.field("v", pa.string())]))


def _abandoned(client: CatalogClient) -> None:
    """Make a table as a creation does that is cut before there is an entry."""
    import pyarrow as pa

    place = Path(client.url, "tables", str(EntryId.new()))
    LanceTable(place, "abandoned").create(pa.schema([("a", pa.int64())]))


def _cleaned(client: CatalogClient, name: str = "a") -> None:
    now = datetime.now(UTC)
    client.get_table(name).do_maintenance(cleanup_before=now, unsafe_allow_recent_cleanup=True)


def _tagged(client: CatalogClient, name: str) -> None:
    if "kept" not in client.get_table(name).tags():
        client.get_table(name).tag("kept")


def _untagged(client: CatalogClient, name: str) -> None:
    if "kept" in client.get_table(name).tags():
        client.get_table(name).untag("kept")


def _updates() -> Any:
    import pyarrow as pa

    return pa.table({"key": [2, 3, 9], "v": ["w", "w", "w"]})


def story() -> list[Step]:
    """The steps."""
    steps: list[Step] = []
    for name, nullable in (("a", True), ("b", False)):
        steps.append(_made(name, nullable=nullable))
        steps += [lambda c, n=name: c.get_table(n).upsert(key=[1, 2], v=["u", "u"])]  # type: ignore[misc]
        steps += [lambda c, n=name: c.get_table(n).append(key=[3, 4], v=["a", "a"])]  # type: ignore[misc]
        steps += [lambda c, n=name: c.get_table(n).upsert(key=[3, 5], v=["v", "v"])]  # type: ignore[misc]
        steps += [lambda c, n=name: c.get_table(n).update_rows(_updates())]  # type: ignore[misc]
        steps += [lambda c, n=name: c.get_table(n).do_maintenance(compact_fragments=True)]  # type: ignore[misc]
        steps += [lambda c, n=name: c.get_table(n).overwrite(key=[6], v=["o"])]  # type: ignore[misc]
        steps += [lambda c, n=name: c.get_table(n).append(key=[7], v=["a"])]  # type: ignore[misc]
        steps += [lambda c, n=name: _tagged(c, n)]  # type: ignore[misc]
        steps += [lambda c, n=name: c.get_table(n).overwrite(key=[9], v=["o"])]  # type: ignore[misc]
        steps += [lambda c, n=name: _cleaned(c, n)]  # type: ignore[misc]
        steps += [lambda c, n=name: c.get_table(n).restore("kept")]  # type: ignore[misc]
        steps += [lambda c, n=name: _untagged(c, n)]  # type: ignore[misc]
    steps += [lambda c: c.ctx.sql("INSERT INTO a VALUES (8, 's')"), _cleaned, _abandoned]
    return [*steps, lambda client: client.do_global_maintenance()]


def state_of(client: CatalogClient) -> State:
    """What is there."""
    tables = {table.name: table for table in client.tables()}
    tables |= {f"{name} {tag}": table.at(tag) for name, table in tables.items() for tag in table.tags()}
    return {
        name: sorted(map(list, _rows(table.to_arrow_reader().read_all().to_pydict()))) for name, table in tables.items()
    }


def _rows(columns: dict[str, list[Any]]) -> Iterator[tuple[Any, ...]]:
    return zip(columns["key"], columns["v"], strict=True)


def drive(root: Path, states: Sequence[State] | None) -> int:
    """Go on with the story where it was cut. Gives 0 at its end, 1 after a failure, 3 where something is wrong.

    Without ``states`` it writes them, those before and after each step.
    """
    maintenance.WEEK = timedelta()  # type: ignore[misc]
    client, ledger, steps, seen = CatalogClient(root / "lake"), root / "told", story(), list[State]()
    done = len(ledger.read_bytes()) if ledger.exists() else 0
    now = state_of(client)
    if states is None:
        seen.append(now)
    elif now not in states[done : done + 2]:
        print(f"after {done} steps there is {now}, not {states[done : done + 2]}")
        return 3
    elif now != states[done]:
        done += 1
    for number, step in enumerate(steps[done:], done + 1):
        try:
            step(client)
        except Exception as error:  # noqa: BLE001 (whatever it is, is judged)
            print(f"{type(error).__name__}: {error}")
            is_planned = "planned" in str(error) or getattr(error, "filename", None) in faults.POINTS
            is_told = isinstance(error, ChunkmillError) and error.path is not None
            return 1 if is_planned or is_told else 3
        ledger.write_bytes(b"." * number)
        if states is None:
            seen.append(state_of(client))
    if states is None:
        (root / "states.json").write_text(json.dumps(seen))
    wrong = [str(fault) for fault in client.check()]
    wrong += [] if state_of(client) == (states or seen)[-1] else [f"at the end there is {state_of(client)}"]
    named = {Path(table.storage_url.removeprefix("file://")).name for table in client.tables()}
    left = {path.name for path in (root / "lake" / "tables").iterdir()} - named
    wrong += [f"{left} is left"] if left else []
    print("\n".join(wrong))
    return 3 if wrong else 0


def plant_unsafe_overwrite() -> None:
    """Let an overwrite be two commits: one without rows, and one with them."""
    overwrite = LanceTable.overwrite

    def overwritten(self: LanceTable, rows: Any) -> None:
        kept, rows._batches = rows._batches, [batch.slice(0, 0) for batch in rows._batches]
        overwrite(self, rows)
        rows._batches = kept
        self.append(rows)

    LanceTable.overwrite = overwritten  # type: ignore[method-assign]


def run(case: Case | None, root: Path, states: Sequence[State] | None) -> list[str]:
    """Run the story with one fault, or none; what went wrong."""

    def driver() -> int:
        if case is not None and case.unsafe:
            plant_unsafe_overwrite()
        return drive(root, states)

    return cut_story(case, root, driver, ATTEMPTS)


def states_of(root: Path) -> list[State]:
    """What a story has told of the states of its tables."""
    states: list[State] = json.loads((root / "states.json").read_text())
    return states


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    return try_points(Path(__file__), __doc__, arguments, POINTS, KINDS, run, states_of)


if __name__ == "__main__":
    os.environ["CHUNKMILL_EXECUTOR"] = "inline"
    sys.exit(main())
