"""Filters of a query's frame, which decide what is read, beside the same filters of all of its rows.

    python tests/conformance/pushed_predicates.py --count 2000 --seed 0

Each predicate is one of DataFusion over the segment, the queried index, other indexes and components: comparisons, IN,
BETWEEN, null or not, functions, under and, or and not; of generated datasets (``query_oracle.py``), with and without
filling, given values and contents. ``--spark`` has Spark's workers read. Prints what differs, and ends with 1 then.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import query_oracle
from chunkmill.engine.catalog import CatalogClient
from datafusion import Expr, SessionContext, col, lit
from datafusion import functions as f
from generated_rrds import write_rrds

PREDICATES = 10
"""Predicates of a dataset."""


class Predicates:
    """Random predicates over the columns of a table."""

    def __init__(self, random_: random.Random, rows: pa.Table, index: str) -> None:
        self._random = random_
        self._rows = rows
        self._index = index
        self._others = [
            name for name in rows.column_names if name != index and not pa.types.is_list(rows.schema.field(name).type)
        ][1:]
        self._components = [name for name in rows.column_names if pa.types.is_list(rows.schema.field(name).type)]

    def tree(self, depth: int = 3) -> Expr:
        """A predicate of some leaves."""
        if depth == 0 or self._random.random() < 0.3:
            return self._leaf()
        one, other = self.tree(depth - 1), self.tree(depth - 1)
        return self._random.choice([one & other, one & other, one | other, ~one])

    def _leaf(self) -> Expr:
        kinds = [self._of_segment, self._of_index, self._of_index]
        kinds += [self._of_other] if self._others else []
        kinds += [self._of_component, self._of_component] if self._components else []
        return self._random.choice(kinds)()

    def _of_segment(self) -> Expr:
        column, names = col("rerun_segment_id"), [lit(f"s{self._random.randint(0, 3)}") for _ in range(2)]
        return self._random.choice(
            [
                column == names[0],
                names[0] == column,
                column != names[0],
                column > names[0],
                (column == names[0]) | (column == names[1]),
                f.in_list(column, names),
                f.in_list(column, names, negated=True),
                f.starts_with(column, lit("s1")),
                column.is_null(),
                lit(self._random.random() < 0.9),
            ]
        )

    def _of_index(self) -> Expr:
        return self._of_times(self._index)

    def _of_other(self) -> Expr:
        return self._of_times(self._random.choice(self._others))

    def _of_times(self, name: str) -> Expr:
        column, datatype = col(f'"{name}"'), self._rows.schema.field(name).type
        one, other, third = (self._time(datatype) for _ in range(3))
        return self._random.choice(
            [
                column == one,
                column != one,
                column < one,
                column <= one,
                column > one,
                one <= column,
                column.between(one, other),
                (column >= one) & (column < other),
                column.between(one, other, negated=True),
                f.in_list(column, [one, other, third]),
                f.in_list(column, [one, other], negated=True),
                column.is_null(),
                column.is_not_null(),
                f.coalesce(column, one) > other,
            ]
        )

    def _time(self, datatype: pa.DataType) -> Expr:
        bound = self._random.choice([*range(-4, 10), *range(-4, 10), -(1 << 63), (1 << 63) - 1])
        return lit(pa.scalar(bound, pa.int64()).cast(datatype))

    def _of_component(self) -> Expr:
        column = col(f'"{self._random.choice(self._components)}"')
        return self._random.choice(
            [
                column.is_not_null(),
                column.is_not_null(),
                column.is_null(),
                f.array_length(column) > lit(1),
                f.coalesce(f.cardinality(column), lit(0)) == lit(0),
            ]
        )


def compared(seed: int, folder: Path) -> int:
    """Compare the predicates of one dataset; gives the number of rows. Raises ``AssertionError``."""
    random_ = random.Random(seed)
    recordings = query_oracle.generated(random_)
    paths, layers, _ = write_rrds(recordings, folder / f"files-{seed}")
    dataset = CatalogClient(folder / "lake").create_dataset(f"d{seed}")
    registration = {"copy": True, "executor": "inline"} if seed % 2 else {"executor": "inline"}
    dataset.register([str(path) for path in paths], layer_name=layers, **registration).wait()
    count = 0
    for _ in range(PREDICATES):
        frame, index = _frame(random_, dataset)
        rows = frame.to_arrow_table()
        predicate = Predicates(random_, rows, index).tree()
        whole = SessionContext().from_arrow(rows)
        expected = _sorted(whole.filter(predicate).to_arrow_table(), index)
        filtered = frame.filter(predicate)
        found = _sorted(filtered.to_arrow_table(), index)
        assert found.to_pylist() == expected.to_pylist(), f"seed {seed}: {predicate}"
        assert filtered.count() == expected.num_rows, f"seed {seed}: the count of {predicate}"
        names = random_.sample(rows.column_names, random_.randint(1, len(rows.column_names)))
        some = filtered.select(*(col(f'"{name}"') for name in names)).to_arrow_table()
        assert _multiset(some) == _multiset(expected.select(names)), f"seed {seed}: {names} of {predicate}"
        count += expected.num_rows
    return count


def _frame(random_: random.Random, dataset: Any) -> tuple[Any, str]:
    """A frame over an index of a dataset."""
    index = random_.choice([column.name for column in dataset.schema().index_columns()])
    view: Any = dataset
    if random_.random() < 0.3:
        view = view.filter_contents(random_.choice(["/**", "/w/** /z/**", "/ /w/a/**"]))
    if random_.random() < 0.3:
        view = view.filter_segments(["s0", "s1"])
    given = sorted(random_.sample(range(-5, 11), 6)) if random_.random() < 0.3 else None
    frame = view.reader(
        index,
        include_semantically_empty_columns=random_.random() < 0.5,
        include_tombstone_columns=random_.random() < 0.3,
        fill_latest_at=random_.random() < 0.5,
        using_index_values=given,
    )
    return frame, index


def _sorted(rows: pa.Table, index: str) -> pa.Table:
    return rows.sort_by([("rerun_segment_id", "ascending"), (index, "ascending")])


def _multiset(rows: pa.Table) -> list[str]:
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in rows.to_pylist())


def main() -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="predicates")
    parser.add_argument("--seed", type=int, default=0, help="of the first dataset")
    parser.add_argument("--spark", action="store_true")
    arguments = parser.parse_args()
    os.environ["CHUNKMILL_EXECUTOR"] = "spark" if arguments.spark else "inline"
    rows, differ = 0, []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(arguments.seed, arguments.seed + arguments.count // PREDICATES):
            try:
                rows += compared(seed, Path(folder))
            except Exception as error:  # noqa: BLE001 (whatever it is)
                differ.append(f"{type(error).__name__}: {error}")
                print(seed, differ[-1][:600], flush=True)
    print(json.dumps({"predicates": arguments.count, "rows": rows, "differ": len(differ)}))
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
