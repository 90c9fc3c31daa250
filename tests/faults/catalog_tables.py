"""What a process of ``catalog_writers.py`` does with tables and their views, and what of it must be there.

Each process adds, changes and removes rows of its own in tables that all share, so that it knows them to the value;
columns are computed, views refreshed and fragments joined by whoever draws that.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from chunkmill import udf
from chunkmill.engine.catalog import CatalogClient, TableEntry
from chunkmill.engine.errors import ChunkmillError, CommitUnknownError, JobFailedError, NotFoundError
from chunkmill.engine.tables import Table, connect

TABLES: Final = ("t", "u")
WEIGHTS: Final = {"add": 8, "change": 5, "remove": 3, "look": 6, "fill": 4, "refresh": 3, "join": 2}
KEY: Final = {"rerun:is_table_index": "true"}
COLUMN: Final = "double"
OwnRows = dict[str, list[int | None]]
"""The values that a row may have, by its key; None: it may be gone."""


def schema() -> pa.Schema:
    """The columns of a table, one of them a key."""
    return pa.schema([pa.field("key", pa.string(), nullable=False, metadata=KEY), pa.field("v", pa.int64())])


@udf(version="1")
def double(v: int) -> int:
    """Twice the value."""
    return 2 * v


class TableWork:
    """The rows of one process, by table; a value of which nobody told whether it came through may be any of several."""

    def __init__(self, root: Path, number: int, draw: random.Random) -> None:
        self._views = root / "views"
        self._number = number
        self._draw = draw
        self._next = 0
        self.rows: dict[str, OwnRows] = {}

    def step(self, entry: TableEntry) -> str:
        """Do something with a table; gives what. Raises ``AssertionError`` where a row is not as it must be."""
        (what,) = self._draw.choices(list(WEIGHTS), list(WEIGHTS.values()))
        own = self.rows.setdefault(str(entry.id), {})
        sure = [key for key, values in own.items() if len(values) == 1]
        if what in ("change", "remove") and not sure:
            what = "add"
        if what in ("add", "change", "remove"):
            keys = [self._key() for _ in range(3)] if what == "add" else [self._draw.choice(sure)]
            self._write(entry, what, dict.fromkeys(keys, self._draw.randrange(1000)), own)
        else:
            getattr(self, f"_{what}")(entry)
        return what

    def _key(self) -> str:
        self._next += 1
        return f"{self._number}-{self._next}"

    def _write(self, entry: TableEntry, what: str, values: dict[str, int], own: OwnRows) -> None:
        try:
            if what == "add":
                entry.append(key=list(values), v=list(values.values()))
            elif what == "change":
                entry.upsert(key=list(values), v=list(values.values()))
            else:
                entry.computed().delete(f"key = '{next(iter(values))}'")
        except CommitUnknownError:
            for key, value in values.items():
                own[key] = [*own.get(key, [None]), None if what == "remove" else value]
            raise
        for key, value in values.items():
            own[key] = [value]
            if what == "remove":
                del own[key]

    def _look(self, entry: TableEntry) -> None:
        prefix = f"{self._number}-"
        rows = entry.computed().to_arrow().to_pylist()
        assert not (wrong := list(wrong_rows(rows, self.rows[str(entry.id)], prefix))), wrong[:5]

    def _fill(self, entry: TableEntry) -> None:
        table = entry.computed()
        if COLUMN not in table.schema.names:
            try:
                table.add_columns({COLUMN: double})
            except ValueError:
                if COLUMN not in entry.computed().schema.names:  # otherwise another was faster
                    raise
        table.backfill(COLUMN, udf=double)

    def _refresh(self, entry: TableEntry) -> None:
        view = view_of(self._views, entry)
        view.refresh()
        found = {row["key"]: row["twice"] for row in view.to_arrow().to_pylist() if row["__is_set"]}
        own = self.rows[str(entry.id)]
        lacking = [key for key, values in own.items() if None not in values and key not in found]
        assert not lacking, f"the view lacks {lacking[:5]}"

    def _join(self, entry: TableEntry) -> None:
        entry.do_maintenance(compact_fragments=True)


def view_of(folder: Path, entry: TableEntry) -> Table:
    """The view of all rows of a table; it is made where it is missing."""
    views = connect(str(folder), udf_modules=("catalog_tables",))
    name = f"of-{entry.id}"
    query = entry.computed().search(None).select({"key": "key", "v": "v", "twice": (double, ["v"])})
    try:
        return views.create_materialized_view(name, query)
    except ChunkmillError:
        return views.open_table(name)


def wrong_rows(rows: list[dict[str, Any]], own: OwnRows, prefix: str) -> Iterator[str]:
    """What is wrong with the rows of one process, those whose key begins so."""
    found = [(row["key"], row) for row in rows if row["key"].startswith(prefix)]
    by_key = dict(found)
    if len(by_key) != len(found):
        yield f"keys are there twice: {sorted(key for key, _ in found)}"
    for key in by_key.keys() | own.keys():
        value = by_key[key]["v"] if key in by_key else None
        if value not in own.get(key, [None]):
            yield f"{key} is {value}, not one of {own.get(key)}"


def judged_tables(client: CatalogClient, root: Path, told: list[dict[str, OwnRows]]) -> Iterator[str]:
    """What is wrong with the tables that are left, once all is computed; ``told`` are the rows of each process."""
    for entry in client.tables():
        if entry.name not in TABLES:
            continue
        table = entry.computed()
        rows = table.to_arrow().to_pylist()
        for number, tables in enumerate(told):
            yield from (
                f"{entry.name}: {text}" for text in wrong_rows(rows, tables.get(str(entry.id), {}), f"{number}-")
            )
        if COLUMN in table.schema.names:
            table.backfill(COLUMN, udf=double, recompute_stale=True)
            rows = table.to_arrow().to_pylist()
            yield from (f"{entry.name}: {row}" for row in rows if row[COLUMN] != 2 * row["v"])
        view = view_of(root / "views", entry)
        view.refresh()
        seen = sorted((row["key"], row["v"], row["twice"]) for row in view.to_arrow().to_pylist())
        if seen != sorted((row["key"], row["v"], 2 * row["v"]) for row in rows):
            yield f"{entry.name}: the view is another than its query: {len(seen)} rows of {len(rows)}"
        if view.plan_refresh().has_work:
            yield f"{entry.name}: the view that was just refreshed wants to be refreshed"


def is_gone(error: Exception) -> bool:
    """Whether an error says that the table's entry is gone."""
    cause = error.__cause__ if isinstance(error, JobFailedError) else error
    return isinstance(cause, NotFoundError)
