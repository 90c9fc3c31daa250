"""Columns that are loaded from generated sources into generated tables, beside a dictionary of the source.

    python tests/conformance/loaded_values.py --count 300 --seed 0 [--executor spark]

Each case is a table with a key of some type, nulls and keys that are there twice among them, in several fragments; and
sources of any format, in one file or several, with columns of any types, some of the table's keys and others. Loads
follow each other, with changes of the table between. After each every row has the source's value, or what becomes of
rows that the source lacks; a source that does not fit is refused, and nothing is written; row ids, addresses, the other
columns and their files are what they were. Prints what is wrong with its seed, and ends with 1 then.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import lance
import pyarrow as pa
import pyarrow.parquet as pq
from chunkmill.engine.errors import JobFailedError, UsageError
from chunkmill.engine.tables import Table
from computed_values import State, same
from made_columns import TYPES, mixed, value_of
from seeded_cases import compare_seeds

KEYS: Final[Mapping[str, pa.DataType]] = {
    name: TYPES[name]
    for name in ("int64", "uint8", "string", "large_string", "binary", "timestamp", "timestamp_utc", "date", "bool")
} | {"int8": pa.int8(), "uint64": pa.uint64(), "duration": pa.duration("us")}
_SPREAD: Final = {"bool": 2, "int8": 100, "uint8": 200}


def key_of(kind: str, number: int) -> Any:
    """A key of a type for a number: another for each, but that some types have few."""
    number %= _SPREAD.get(kind, 10**6)
    if kind in ("int8", "uint64", "int64", "uint8"):
        return number - 50 if kind in ("int8", "int64") else number
    if kind in ("string", "large_string"):
        return "" if number == 0 else f"k{number}"
    if kind == "binary":
        return number.to_bytes(number % 3 + 3, "big")
    if kind == "bool":
        return bool(number)
    plain = pa.array([number * 86_400_000 if kind != "date" else number], pa.int32() if kind == "date" else pa.int64())
    return plain.cast(KEYS[kind]).to_pylist()[0]


class Case:
    """A table, and what its rows should have."""

    def __init__(self, seed: int, root: Path, executor: str) -> None:
        self.random = pick = random.Random(seed)
        self.seed, self.root = seed, root
        self.key = pick.choice(list(KEYS))
        self.count = pick.randint(1, 60)
        place = root / "t.lance"
        version = pick.choice(["2.1", "2.2"])
        lance.write_dataset(
            self.rows(self.count),
            place,
            max_rows_per_file=pick.choice([1000, 20, 7]),
            enable_stable_row_ids=pick.random() < 0.8,
            data_storage_version=version,
        )
        self.table = Table(str(place), executor=executor)
        self.has: dict[str, dict[int, Any]] = {}
        self.wrong: list[str] = []

    def rows(self, count: int, first: int = 0) -> pa.Table:
        """Rows of the table: a number, the key, and another column."""
        pick = self.random
        keys = [None if pick.randrange(12) == 0 else key_of(self.key, pick.randrange(80)) for _ in range(count)]
        numbers = range(first, first + count)
        return pa.table({"n": numbers, "key": pa.array(keys, KEYS[self.key]), "other": [f"o{n}" for n in numbers]})

    def source(
        self, names: Sequence[str], kinds: Sequence[str], *, has_double: bool
    ) -> tuple[Any, dict[Any, Any], str]:
        """A source with columns: its place, its rows by their key, and its format."""
        pick = self.random
        own = {key_of(self.key, number): number for number in pick.sample(range(90), pick.randint(0, 70))}
        keys: list[Any] = list(own)
        by_key = {key: {} for key in keys}
        columns: dict[str, Any] = {"key": keys}
        for name, kind in zip(names, kinds, strict=True):
            columns[name] = [value_of(TYPES[kind], mixed(name, self.seed, repr(key), pick.random())) for key in keys]
            for key, value in zip(keys, pa.array(columns[name], TYPES[kind]).to_pylist(), strict=True):
                by_key[key][name] = value
        extra: list[Any] = [None] * pick.randint(0, 2) + ([keys[0]] if has_double and keys else [])
        for key in extra:  # keys that are null are no keys; one that is there twice is refused
            columns["key"] = [*columns["key"], key]
            for name in names:
                columns[name] = [*columns[name], None]
        schema = pa.schema([("key", KEYS[self.key]), *((name, TYPES[k]) for name, k in zip(names, kinds, strict=True))])
        order = list(range(len(columns["key"])))
        pick.shuffle(order)
        rows = pa.table({name: [columns[name][at] for at in order] for name in columns}, schema=schema)
        format_ = pick.choice(["parquet", "arrow", "lance"])
        place = self.root / f"source{pick.random()}"
        cut = pick.randint(0, rows.num_rows)
        if format_ == "lance":
            if not rows.num_rows:
                return self.source(names, kinds, has_double=has_double)
            lance.write_dataset(rows, f"{place}.lance", max_rows_per_file=pick.choice([1000, 9]))
            return f"{place}.lance", by_key, format_
        place.mkdir()
        found = []
        for number, part in enumerate((rows.slice(0, cut), rows.slice(cut))):
            found.append(str(place / f"{number}.{format_}"))
            if format_ == "parquet":
                pq.write_table(part, found[-1], row_group_size=pick.choice([5, 1000]))
            else:
                with pa.ipc.new_file(found[-1], part.schema) as writer:
                    writer.write_table(part, max_chunksize=pick.choice([5, 1000]))
        return pick.choice([str(place), found]), by_key, format_

    def change(self) -> None:
        """Change the table."""
        pick = self.random
        kind = pick.choice(["append", "delete", "compact", "update", "none"])
        dataset = lance.dataset(self.table.uri)
        if kind == "append":
            count = pick.randint(1, 8)
            lance.write_dataset(self.rows(count, self.count), self.table.uri, mode="append")
            self.count += count
        elif kind == "delete" and dataset.count_rows() > 9:
            dataset.delete(f"n % 7 = {pick.randrange(7)}")
        elif kind == "compact":
            dataset.optimize.compact_files()
        elif kind == "update":
            dataset.update({"other": "'new'"}, where=f"n % 5 = {pick.randrange(5)}")

    def load(self) -> None:
        """Load columns, and check what is there then."""
        pick = self.random
        names = [f"v{pick.randrange(4)}"] if pick.random() < 0.7 else ["v0", "v1"]
        kinds = [self.kinds.setdefault(name, pick.choice(list(TYPES))) for name in names]
        on_missing = pick.choice(["carry", "carry", "null", "error"])
        has_double = pick.random() < 0.1
        place, by_key, format_ = self.source(names, kinds, has_double=has_double)
        before = State(self.table, [*names], "n")
        keys = {number: row["key"] for number, row in before.rows.items()}
        is_missing = any(key is None or key not in by_key for key in keys.values())
        told = f"{format_} of {len(by_key)} keys, {self.key}, {names}: {kinds}, {on_missing}"
        options = {"task_size": pick.choice([None, 5]), "checkpoint_size": pick.choice([None, 3])}
        try:
            self.table.load_columns(place, "key", names, on_missing=on_missing, **options)
        except (UsageError, JobFailedError) as error:
            is_double = has_double and by_key and "duplicate primary key" in str(error)
            if not is_double and not (on_missing == "error" and is_missing and "have no match" in str(error)):
                self.wrong.append(f"{error}; {told}")
            if {*State(self.table, [], "n").names} - {*before.names}:
                self.wrong.append(f"it was refused, and columns were added; {told}")
        else:
            if (has_double and by_key) or (on_missing == "error" and is_missing):
                self.wrong.append(f"it was not refused; {told}")
            for name in names:
                had = self.has.setdefault(name, {})
                for number, key in keys.items():
                    if key is not None and key in by_key:
                        had[number] = by_key[key][name]
                    elif on_missing == "null":
                        had[number] = None
        self.check(before, names, told)

    def check(self, before: State, names: Sequence[str], told: str) -> None:
        """Check all rows."""
        after = State(self.table, [*names], "n")
        after.check_against(before, self.wrong)
        for name, had in self.has.items():
            for number, row in after.rows.items():
                if name in row and not same(row[name], had.get(number)):
                    self.wrong.append(
                        f"row {number} of key {row['key']!r} has {row[name]}, not {had.get(number)}; {told}"
                    )
                    return

    def run(self) -> list[str]:
        """Load and change the table; gives what is wrong."""
        self.kinds: dict[str, str] = {}
        for _ in range(self.random.randint(1, 4)):
            self.load()
            if self.wrong:
                break
            self.change()
        return [f"seed {self.seed}: {text}" for text in self.wrong[:3]]


def compared(seed: int, executor: str = "inline") -> list[str]:
    """What is wrong with one case."""
    with tempfile.TemporaryDirectory(prefix="chunkmill-loads-") as root, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Case(seed, Path(root), executor).run()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    return compare_seeds(__doc__, arguments, compared, "cases as their sources say")


if __name__ == "__main__":
    os.environ.setdefault("CHUNKMILL_EXECUTOR", "inline")
    sys.exit(main())
