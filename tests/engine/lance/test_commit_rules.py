"""The rules by which Lance commits what was begun before another commit: tables rely on each of these.

A release of pylance with other rules than those of 14.0 would fail here first; the bound in ``pyproject.toml`` is why.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False, metadata=KEY), ("v", pa.int64())])

OK, RETRY, NEVER = "ok", "conflict", "incompatible"
FIRST = ("append", "overwrite", "replace", "insert", "insert other", "compact")
"""What is committed first."""

RULES = {
    "append": (OK, NEVER, OK, OK, OK, OK),
    "replace": (OK, NEVER, OK, OK, OK, OK),
    "insert": (OK, NEVER, OK, OK, OK, OK),
    "compact": (OK, NEVER, RETRY, OK, OK, RETRY),
    "overwrite": (OK, RETRY, OK, OK, OK, OK),
    "commit of an append": (OK, NEVER, OK, OK, OK, OK),
    "commit of an overwrite": (RETRY, RETRY, RETRY, RETRY, RETRY, RETRY),
}
"""What becomes of an operation that was begun before it."""

KEYS = {"append": [9], "insert": [50], "insert other": [51], "commit of an append": [8]}
"""The keys that operations add. One key that two insert is there once."""


def rows(keys: list[int], value: int) -> pa.Table:
    return pa.table({"k": keys, "v": [value] * len(keys)}, schema=SCHEMA)


def merge(dataset: Any, key: int) -> None:
    dataset.merge_insert("k").when_matched_update_all().when_not_matched_insert_all().execute(rows([key], 5))


def commit(dataset: Any, fragments: Any, *, overwrite: bool) -> None:
    kinds = lance.LanceOperation
    operation = kinds.Overwrite(SCHEMA, fragments) if overwrite else kinds.Append(fragments)
    lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version, max_retries=0)


DO: dict[str, Callable[[Any, Any], Any]] = {
    "append": lambda dataset, _: lance.write_dataset(rows([9], 9), dataset, mode="append"),
    "overwrite": lambda dataset, _: lance.write_dataset(rows([7], 7), dataset, mode="overwrite"),
    "replace": lambda dataset, _: merge(dataset, 2),
    "insert": lambda dataset, _: merge(dataset, 50),
    "insert other": lambda dataset, _: merge(dataset, 51),
    "compact": lambda dataset, _: dataset.optimize.compact_files(),
    "commit of an append": lambda dataset, fragments: commit(dataset, fragments, overwrite=False),
    "commit of an overwrite": lambda dataset, fragments: commit(dataset, fragments, overwrite=True),
}


@pytest.mark.parametrize("begun", RULES)
@pytest.mark.parametrize("first", FIRST)
def test_a_commit_after_another_goes_by_the_rules(tmp_path: Path, begun: str, first: str) -> None:
    place = str(tmp_path / "t")
    lance.write_dataset(rows([1, 2, 3], 0), place, enable_stable_row_ids=True)
    lance.write_dataset(rows([4, 5, 6], 0), place, mode="append")
    older = lance.dataset(place)
    fragments = lance.fragment.write_fragments(rows([8], 8), older) if begun.startswith("commit") else None
    DO[first](lance.dataset(place), None)
    rule = RULES[begun][FIRST.index(first)]
    if rule == OK:
        DO[begun](older, fragments)
    else:
        with pytest.raises(OSError, match="(?i)commit conflict" if rule == RETRY else "Incompatible transaction"):
            DO[begun](older, fragments)
    done = [first, begun] if rule == OK else [first]
    found = lance.dataset(place).to_table().to_pydict()
    if "overwrite" in done:
        assert found == {"k": [7], "v": [7]}
        return
    names = [first] if done == ["insert", "insert"] else done
    keys = [key for name in names for key in KEYS.get(name, [])]
    assert sorted(found["k"]) == sorted([1, 2, 3, 4, 5, 6, *keys])
    assert found["v"][found["k"].index(2)] == (5 if "replace" in done else 0)
