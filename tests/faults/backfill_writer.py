"""A process that changes the rows of a table while others compute its columns, and what the rows are by its ledger."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from chunkmill.engine.lance import LanceTable
from chunkmill.engine.locations import located

WEIGHTS: Final = {"append": 6, "update": 4, "delete": 2, "compact": 1, "add": 1}
MOST_COLUMNS: Final = 3
CHANGE: Final = 1_000_000
"""What an update adds to a value, so that each is another."""
MOST_TRIES: Final = 200
CALLS: Final = 60
"""Calls of the functions for which there is a change, in the mean."""
LONGEST: Final = 1.0
BYTES_OF_A_CALL: Final = 8


class Row(NamedTuple):
    """A row as the ledger has it: its values, and those of the columns that were added while it was there."""

    a: int
    b: int
    more: dict[str, int]


class Ledger(NamedTuple):
    """What the writer has done: the rows in the end, all values that each had, and how often each kind was done."""

    rows: dict[int, Row]
    values: dict[int, set[int]]
    columns: tuple[str, ...]
    done: Counter[str]


def opened(uri: str, version: int | None = None) -> Any:
    """A version of a table, as Lance gives it."""
    return LanceTable(located(uri), "t").open(version)


def options_of(uri: str) -> dict[str, str] | None:
    """The options with which Lance opens the store of a table."""
    return LanceTable(located(uri), "t").storage_options


def make(uri: str, rows: int, per_file: int) -> None:
    """Make a table with rows."""
    import lance
    import pyarrow as pa

    data = pa.table({"k": range(rows), "a": range(rows), "b": range(rows)})
    lance.write_dataset(
        data, uri, max_rows_per_file=per_file, enable_stable_row_ids=True, storage_options=options_of(uri)
    )


def write(uri: str, root: Path, seed: int, rows: int) -> int:
    """Change a table until there is a file ``stop``: after some calls of the functions, or a while without any.

    So it is not left to the speed of a machine how much of what is computed is in vain.
    """
    parent = os.getppid()
    draw, ledger = random.Random(f"{seed}:writer"), root / "writes.jsonl"
    next_key = rows
    columns: list[str] = []
    with ledger.open("a") as file:
        while not (root / "stop").exists() and os.getppid() == parent:
            what = draw.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            change: dict[str, Any] = {"what": what}
            if what == "append":
                change["keys"] = [next_key, next_key + draw.randrange(2, 12)]
                next_key = change["keys"][1]
            elif what in ("update", "delete"):
                change["of"] = draw.choice((17, 23, 31))
                change["rest"] = draw.randrange(change["of"])
            elif what == "add":
                if len(columns) == MOST_COLUMNS:
                    continue
                change["column"] = f"x{len(columns)}"
                columns.append(change["column"])
            _again(lambda change=change: _changed(uri, change))  # type: ignore[misc]
            print(json.dumps(change), file=file, flush=True)
            calls, until = _calls(root) + draw.randrange(2 * CALLS), time.monotonic() + LONGEST
            while _calls(root) < calls and time.monotonic() < until and not (root / "stop").exists():
                time.sleep(0.005)
    return 0


def _calls(root: Path) -> int:
    return sum(path.stat().st_size for path in root.glob("calls-*")) // BYTES_OF_A_CALL


def _again(change: Callable[[], None]) -> None:
    """Do it until nobody else is in its way."""
    for _ in range(MOST_TRIES):
        try:
            change()
        except Exception as error:
            if "conflict" not in str(error).lower() and "preempted" not in str(error).lower():
                raise
            time.sleep(0.01)
        else:
            return
    raise TimeoutError("others were in the way all the time")


def _changed(uri: str, change: dict[str, Any]) -> None:
    import lance
    import pyarrow as pa

    dataset = opened(uri)
    what = change["what"]
    if what == "append":
        keys = list(range(*change["keys"]))
        data = pa.table({"k": keys, "a": keys, "b": keys})
        lance.write_dataset(data, dataset, mode="append", storage_options=options_of(uri))
    elif what == "update":
        dataset.update({"a": f"a + {CHANGE}"}, where=f"k % {change['of']} = {change['rest']}")
    elif what == "delete":
        dataset.delete(f"k % {change['of']} = {change['rest']} AND k % 2 = 1")
    elif what == "compact":
        dataset.optimize.compact_files(target_rows_per_fragment=60, num_threads=1)
    else:
        dataset.add_columns({change["column"]: "a + 1"})


def ledger_of(root: Path, rows: int) -> Ledger:
    """Go through what the writer has done."""
    now = {key: Row(key, key, {}) for key in range(rows)}
    values: dict[int, set[int]] = defaultdict(set, {key: {key} for key in range(rows)})
    columns: list[str] = []
    done = Counter[str]()
    for change in _changes(root):
        what = change["what"]
        done[what] += 1
        if what == "append":
            for key in range(*change["keys"]):
                now[key] = Row(key, key, {})
                values[key].add(key)
        elif what == "add":
            columns.append(change["column"])
            now = {key: row._replace(more={**row.more, columns[-1]: row.a + 1}) for key, row in now.items()}
        elif what in ("update", "delete"):
            for key in [key for key in now if key % change["of"] == change["rest"]]:
                if what == "update":
                    now[key] = now[key]._replace(a=now[key].a + CHANGE)
                    values[key].add(now[key].a)
                elif key % 2:
                    del now[key]
    return Ledger(now, dict(values), tuple(columns), done)


def _changes(root: Path) -> Iterator[dict[str, Any]]:
    path = root / "writes.jsonl"
    yield from map(json.loads, path.read_text().splitlines() if path.exists() else ())
