"""Columns that generated functions fill in generated tables, beside what the functions give by themselves.

    python tests/conformance/computed_values.py --count 300 --seed 0 [--executor spark]

Each case is a table of columns of any types, nulls and blobs among them, in several fragments; a function of one of the
kinds, of some of the columns; and a life: rows are added, changed, deleted, compacted, columns are added, the function
is replaced, the column is filled for a condition, for a window of fragments, in batches and tasks of any size.

After each backfill every row has the value that the function gives for it by itself, or what it had before where
nothing asked for it; row ids, addresses, the other columns and their files are what they were, byte for byte; another
backfill finds nothing to do and makes no version; and the plan counts no fewer rows that are out of date than there
are. Prints what is wrong with its seed, and ends with 1 then.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import lance
import pyarrow as pa
from chunkmill.engine.tables import UDF, Table, UnpackedUDF
from made_columns import KINDS, TYPES, Recipe, made_function, mixed, value_of
from seeded_cases import compare_seeds

BLOB: Final = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
_GONE: Final = -2
"""The number that a column of a file has when another file has that column."""
_OLDEST: Final = "2.0"
"""The version of Lance's files that has no null structs."""
_SHOWN: Final = 3


@dataclass
class Case:
    """A table, its function, and what each row should have: its values, of which inputs, and of which function."""

    seed: int
    root: Path
    executor: str
    random: random.Random = field(init=False)
    recomputing: random.Random = field(init=False)
    table: Table = field(init=False)
    has: dict[int, tuple[dict[str, Any], str, int] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.recomputing = random.Random(-self.seed)
        pick = self.random
        version = pick.choice([_OLDEST, "2.1", "2.2", "2.2"])
        self.types = [name for name in TYPES if version != _OLDEST or "struct" not in name]
        self.kinds = {f"c{at}": pick.choice(self.types) for at in range(pick.randint(1, 4))}
        self.has_blob = pick.random() < 0.25
        self.is_stable = pick.random() < 0.8
        self.next_key = 0
        self.outputs: list[str] = []
        place = self.root / "t.lance"
        lance.write_dataset(
            self.rows(pick.randint(1, 60)),
            place,
            max_rows_per_file=pick.choice([1000, 20, 7]),
            enable_stable_row_ids=self.is_stable,
            data_storage_version=version,
        )
        self.table = Table(str(place), executor=self.executor)
        names = [*self.kinds, "number", "text", *(["blob"] if self.has_blob else [])]
        self.kind = pick.choice(list(KINDS))
        self.inputs = pick.sample(names, min(len(names), pick.randint(1, 2)))
        if self.kind == "batch" and "blob" in self.inputs:
            self.inputs = ["number"]
        self.is_single = pick.random() < 0.6
        self.prefix = "" if self.is_single else pick.choice(["", "p_"])
        self.recipe = self.new_recipe()
        self.function = self.new_function()
        if self.is_single:
            self.table.add_columns({"out0": self.function})
        else:
            self.table.add_columns(UnpackedUDF(self.function, self.prefix) if self.prefix else self.function)
        self.outputs = [self.prefix + name for name in self.recipe.types]
        self.changes: list[Callable[[], None]] = [
            self.append,
            self.update,
            self.upsert,
            self.rewrite,
            self.delete,
            self.compact,
            self.widen,
        ]
        self.told: list[str] = []
        self.life: list[str] = []

    def rows(self, count: int) -> pa.Table:
        """New rows, of keys that no other has."""
        keys = list(range(self.next_key, self.next_key + count))
        self.next_key += count
        self.has |= dict.fromkeys(keys)
        columns = {"key": pa.array(keys), "number": pa.array([mixed(self.seed, key) % 100 for key in keys])}
        columns["text"] = pa.array([value_of(pa.string(), mixed("text", self.seed, key)) for key in keys], pa.string())
        for name, kind in self.kinds.items():
            type_ = TYPES[kind]
            columns[name] = pa.array([value_of(type_, mixed(name, self.seed, key)) for key in keys], type_)
        made = pa.table(columns)
        if self.has_blob:
            made = made.append_column(
                BLOB, pa.array([value_of(BLOB.type, mixed("blob", key)) for key in keys], BLOB.type)
            )
        return made

    def new_recipe(self) -> Recipe:
        """Another function of the same types."""
        if self.outputs:
            return self.recipe._replace(salt=self.recipe.salt + 1)
        count = 1 if self.is_single else self.random.randint(1, 3)
        types = {f"out{at}": TYPES[self.random.choice(self.types)] for at in range(count)}
        return Recipe(types, self.random.randint(1, 10**6), self.random.random() < 0.4)

    def new_function(self) -> UDF:
        """The function of the recipe."""
        pick = self.random
        options = {"checkpoint_size": pick.choice([None, 1, 5, 100]), "task_size": pick.choice([None, None, 3])}
        return made_function(self.recipe, self.kind, self.inputs, is_single=self.is_single, options=options)

    # --- what others do

    def append(self) -> None:
        """Add rows."""
        rows = self.rows(self.random.randint(1, 10))
        lance.write_dataset(rows, self.table.uri, mode="append", max_rows_per_file=self.random.choice([1000, 4]))

    def update(self) -> None:
        """Change rows, which moves them."""
        if self.has_blob:
            return
        lance.dataset(self.table.uri).update({"number": "number + 7", "text": "'new'"}, where=self.some())

    def upsert(self) -> None:
        """Put other rows in the place of some, by their key, and add some."""
        if self.has_blob or not self.is_stable:
            return
        keys = self.keys(self.some())[:8]
        rows = self.rows((self.next_key and len(keys)) or 1)
        fresh = rows["key"].to_pylist()
        source = rows.set_column(0, "key", pa.array([*keys, *fresh[len(keys) // 2 :]][: rows.num_rows]))
        here = lance.dataset(self.table.uri).schema
        for name in here.names:
            if name not in source.column_names and name not in self.outputs:
                source = source.append_column(name, pa.nulls(source.num_rows, here.field(name).type))
        merge = lance.dataset(self.table.uri).merge_insert("key").when_matched_update_all()
        merge.when_not_matched_insert_all().execute(source)

    def rewrite(self) -> None:
        """Change a column alone, by its key."""
        if self.has_blob:
            return
        keys = self.keys(self.some())
        if keys:
            source = pa.table({"key": keys, "number": [mixed(self.next_key, key) % 100 for key in keys]})
            lance.dataset(self.table.uri).merge_insert("key").when_matched_update_all().execute(source)

    def delete(self) -> None:
        """Remove rows."""
        self.table.delete(self.some())

    def compact(self) -> None:
        """Join fragments, and drop what was deleted."""
        if not self.has_blob:
            lance.dataset(self.table.uri).optimize.compact_files(
                target_rows_per_fragment=self.random.choice([1000, 15])
            )

    def widen(self) -> None:
        """Add a column that is none of the function's, unless it takes all."""
        name = f"more{self.next_key}_{len(self.table.schema.names)}"
        self.table.add_columns({name: "key * 2"})

    def replace_function(self) -> None:
        """Give the column another function."""
        self.recipe = self.new_recipe()
        self.function = self.new_function()
        if self.is_single:
            self.table.alter_columns({"path": self.outputs[0], "udf": self.function})

    def some(self) -> str:
        """A condition that is true in some rows."""
        pick, most = self.random, self.next_key
        begin = pick.randrange(most)
        return pick.choice(
            [
                f"key % {pick.randint(2, 5)} = 1",
                f"key >= {begin} AND key < {begin + 9}",
                f"number > {pick.randrange(100)}",
            ]
        )

    # --- backfills

    def fill(self, where: str | None, window: Mapping[str, int]) -> None:
        """Fill the column, and check all that there is then."""
        pick = self.random
        options: dict[str, Any] = {
            "checkpoint_size": pick.choice([None, 1, 3, 50]),
            "task_size": pick.choice([None, 2, 11]),
            "commit_granularity": pick.choice([None, 1, 3]),
            "batch_checkpoint_flush_interval_seconds": pick.choice([None, 0]),
        }
        options = {name: value for name, value in options.items() if value is not None or name == "commit_granularity"}
        udf_ = None if self.is_single and pick.random() < 0.5 else self.function
        chosen: dict[str, Any] = dict(window)
        if where is None and self.recomputing.random() < 0.3:
            chosen["recompute_stale"] = True
        self.life.append(f"fill {where or ''} {chosen or ''}")
        before, looked_at = State(self.table, self.outputs), self.in_window(window)
        asked = set(looked_at if where is None else self.keys(where)) & set(looked_at)
        plan = self.table.plan_backfill(self.outputs[0], where=where, udf=udf_, **chosen)
        result = self.table.backfill(self.outputs[0], where=where, udf=udf_, **chosen, **options)
        after = State(self.table, self.outputs)
        after.check_against(before, self.told)
        version = f"{self.recipe.salt}"
        computed = 0
        for key, row in after.rows.items():
            had, now = self.has[key], {name: row[name] for name in self.outputs}
            inputs = [row[name] for name in self.inputs]
            given = self.named(self.recipe.stored(inputs))
            is_null = had is None or any(value is None for value in had[0].values())
            is_stale = "recompute_stale" in chosen and had is not None and had[2] != mixed(*inputs)
            is_wanted = is_null or is_stale or where is not None or (had is not None and had[1] != version)
            is_asked = key in asked and is_wanted
            is_open = key in asked and where is None  # its fragment's other rows may have had it computed with them
            kept = dict.fromkeys(self.outputs) if had is None else had[0]
            if same(now, given) and (is_asked or (is_open and not same(now, kept))):
                self.has[key] = (given, version, mixed(*inputs))
                computed += 1
            elif is_asked or not same(now, kept):
                wanted = given if is_asked else kept
                self.wrong(f"row {key} has {now}, not {wanted}, of {inputs} (where={where}, {chosen}, {options})")
        done = result.columns[self.outputs[0]].rows_processed
        if done < computed:
            self.wrong(f"{computed} rows were computed, and {done} are told of")
        if plan.has_work != (done > 0):
            self.wrong(f"the plan said {plan}, and {done} rows were computed")
        stale = [
            key
            for key in looked_at
            if (had := self.has[key]) is not None
            and had[2] != mixed(*(after.rows[key][name] for name in self.inputs))
            and not same(had[0], self.named(self.recipe.stored([after.rows[key][name] for name in self.inputs])))
        ]
        if plan.stale_rows < len(stale) and not plan.srcfiles_mismatch:
            self.wrong(f"rows {stale} are out of date, and the plan told of {plan.stale_rows}")
        self.fill_again(where, window, udf_)

    def fill_again(self, where: str | None, window: Mapping[str, int], udf_: UDF | None) -> None:
        """See that nothing is left to do."""
        before, version = State(self.table, self.outputs), self.table.version
        if where is not None or any(row[name] is None for row in before.rows.values() for name in self.outputs):
            return  # rows without a value are asked for again
        plan = self.table.plan_backfill(self.outputs[0], udf=udf_, **window)
        if plan.has_work:
            self.wrong(f"after a backfill the plan is {plan}")
        self.table.backfill(self.outputs[0], udf=udf_, **window)
        if self.table.version != version:
            self.wrong(f"a backfill without work made version {self.table.version}")

    def in_window(self, window: Mapping[str, int]) -> list[int]:
        """The keys of the rows of the fragments that are looked at."""
        fragments = lance.dataset(self.table.uri).get_fragments()
        begin = window.get("skip_frags", 0)
        end = begin + window["num_frags"] if "num_frags" in window else None
        found = [one.to_table(columns=["key"])["key"].to_pylist() for one in fragments[begin:end]]
        return list(itertools.chain.from_iterable(found))

    def keys(self, where: str) -> list[int]:
        """The keys of the rows in which a condition is true."""
        found: list[int] = lance.dataset(self.table.uri).to_table(columns=["key"], filter=where)["key"].to_pylist()
        return found

    def named(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by the names of columns."""
        return {self.prefix + name: value for name, value in row.items()}

    def wrong(self, text: str) -> None:
        """Note what is wrong."""
        self.told.append(text)

    def run(self) -> list[str]:
        """Live a life; gives what is wrong."""
        pick = self.random
        for _ in range(pick.randint(1, 4)):
            for _ in range(pick.choice([0, 1, 1, 2])):
                change = pick.choice(self.changes)
                self.life.append(change.__name__)
                change()
                if lance.dataset(self.table.uri).count_rows() == 0:
                    self.append()
            if pick.random() < 0.2:
                self.replace_function()
                self.life.append("replace_function")
            count = len(lance.dataset(self.table.uri).get_fragments())
            window = (
                {"skip_frags": pick.randrange(count), "num_frags": pick.randint(1, 3)} if pick.random() < 0.3 else {}
            )
            self.fill(self.some() if pick.random() < 0.3 else None, window)
            if self.told:
                break
        head = f"{self.kind} of {self.inputs} ({self.kinds}) -> {dict(self.recipe.types)}, {', '.join(self.life)}"
        return [f"seed {self.seed}: {text}; {head}" for text in self.told[:_SHOWN]]


class State:
    """A version of a table: its rows, and the files of all columns but those that are filled."""

    def __init__(self, table: Table, outputs: Sequence[str], key: str = "key") -> None:
        dataset = lance.dataset(table.uri)
        rows = (
            dataset.scanner(with_row_id=True, with_row_address=True, blob_handling="all_binary").to_table().to_pylist()
        )
        self.outputs = set(outputs)
        self.names = dataset.schema.names
        self.rows = {row[key]: row for row in rows}
        own = {id_ for one in dataset.lance_schema.fields() if one.name() in outputs for id_ in ids_of(one)}
        self.files: dict[int, list[tuple[str, object]]] = {}
        for fragment in dataset.get_fragments():
            files = [(one.path, tuple(set(one.fields) - own - {_GONE})) for one in fragment.metadata.files]
            found = [(path, fields) for path, fields in files if fields]
            deletions = fragment.metadata.deletion_file
            self.files[fragment.fragment_id] = [*found, ("deletions", repr(deletions))]
        named = {path for files in self.files.values() for path, _ in files if path != "deletions"}
        data = Path(table.uri) / "data"
        self.digests = {name: hashlib.sha256((data / name).read_bytes()).hexdigest() for name in named}

    def check_against(self, before: State, told: list[str]) -> None:
        """Note what a backfill has changed beside its columns."""
        if self.files != before.files:
            told.append(f"the files of other columns were {before.files}, and are {self.files}")
        if self.digests != before.digests:
            told.append("files of other columns were written")
        if self.rows.keys() != before.rows.keys():
            told.append("there are other rows")
            return
        for key, row in self.rows.items():
            others = row.keys() - self.outputs
            if not same({name: row[name] for name in others}, {name: before.rows[key][name] for name in others}):
                told.append(f"row {key} was {before.rows[key]}, and is {row}")
                return


def ids_of(column: Any) -> Iterator[int]:
    """The numbers of a column and of what is in it."""
    yield column.id()
    for child in column.children():
        yield from ids_of(child)


def same(one: Any, other: Any) -> bool:
    """Whether values are the same, the types of numbers among them."""
    return repr(_sorted(one)) == repr(_sorted(other))


def _sorted(value: Any) -> Any:
    return sorted(value.items()) if isinstance(value, dict) else value


def compared(seed: int, executor: str = "inline") -> list[str]:
    """What is wrong with one case."""
    with tempfile.TemporaryDirectory(prefix="chunkmill-values-") as root, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Case(seed, Path(root), executor).run()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    return compare_seeds(__doc__, arguments, compared, "cases as the functions say")


if __name__ == "__main__":
    os.environ.setdefault("CHUNKMILL_EXECUTOR", "inline")
    sys.exit(main())
