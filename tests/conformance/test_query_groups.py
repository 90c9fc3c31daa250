"""Segments read together give the rows that they give one by one, whatever is in them."""

from __future__ import annotations

import copy
import random
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
import query_oracle
from chunkmill.engine.query import QueriedSegment, SegmentGroup, grouped, groups


def generated(random_: random.Random) -> list[dict[str, Any]]:
    """A dataset whose segments have the same entities and components at other times, with other values."""
    first = [one for one in query_oracle.generated(random_) if one["segment"] == "s0"]
    found = []
    for number in range(4):
        for recording in copy.deepcopy(first):
            recording["segment"] = f"s{number}"
            for chunk in recording["chunks"]:
                _change(random_, chunk)
            found.append(recording)
    return found


def _change(random_: random.Random, chunk: dict[str, Any]) -> None:
    """Give a chunk other times and values; sometimes it becomes static."""
    kinds = {column["name"]: column["metadata"]["rerun:kind"] for column in chunk["columns"]}
    if random_.random() < 0.2:
        chunk["columns"] = [c for c in chunk["columns"] if c["metadata"]["rerun:kind"] != "index"]
    for row in chunk["rows"]:
        for name, kind in kinds.items():
            if kind == "index":
                row[name] = random_.randint(-3, 8)
            elif kind == "data" and random_.random() < 0.3:
                row[name] = random_.choice([None, []])


def rows_of(batches: Any) -> list[dict[str, Any]]:
    found = []
    for batch in batches:
        assert batch.num_rows
        batch.validate(full=True)
        found += query_oracle.plain(batch)
    return found


def compared(seed: int) -> int:
    """Compare the rows of some questions; gives how many segments were read together."""
    random_ = random.Random(seed)
    recordings = generated(random_)
    dataset, together = query_oracle.Dataset(recordings), 0
    for _ in range(4):
        asked = {
            "index": random_.choice(["a", "a", "b", None]) if len(dataset.schema) else None,
            "contents": random_.choice([None, "/w/**", "/w/a /z"]),
            "empty": random_.random() < 0.3,
            "tomb": random_.random() < 0.3,
            "fill": random_.random() < 0.5,
            "profile": random_.random() < 0.5,
        }
        if asked["index"] not in {None, *dataset.schema.names}:
            continue
        if asked["index"] is not None and random_.random() < 0.3:
            given = random_.sample(range(-5, 11), random_.randint(0, 6))
            asked["uiv"] = given if random_.random() < 0.5 else {"s0": given, "s2": [1, 2]}
        query = query_oracle.query_of(asked)
        segments = sorted(dataset.layers)
        columns = dataset.columns(query, segments)
        told = random_.choice([(), (0,), (0, 1, 2)])  # layers whose rows times tell
        queried: list[QueriedSegment] = [dataset._segment(segment, columns, told) for segment in segments]
        predicate, _ = query_oracle.predicates(random_, columns)
        expected = [row for one in queried for row in rows_of(one.batches(None, predicate))]
        found = []
        for group in grouped([one for one in queried if one.may_have_rows]):
            together += isinstance(group, SegmentGroup)
            with mock.patch.object(groups, "saves", return_value=True):
                found += rows_of(group.batches(None, predicate))
        assert found == expected, f"seed {seed}: {asked}, filter {predicate}"
    return together


@pytest.mark.parametrize("seed", range(0, 40, 10))
@pytest.mark.heavy
def test_segments_that_are_read_together(seed: int) -> None:
    assert sum(compared(seed + i) for i in range(10)) > 0


def test_times_that_are_not_where_the_entry_says() -> None:
    """Segments are read one by one then: nothing of one gets into another."""
    recordings = generated(random.Random(1))
    dataset = query_oracle.Dataset(recordings)
    query = query_oracle.query_of({"index": "a", "fill": True})
    columns = dataset.columns(query, sorted(dataset.layers))
    whole = [dataset._segment(segment, columns) for segment in sorted(dataset.layers)]
    lying = [QueriedSegment(one.source, one.segment_id, columns, one.component_keys, (0, 1)) for one in whole]
    expected = [row for one in lying for row in rows_of(one.batches())]
    assert rows_of(SegmentGroup(tuple(lying)).batches()) == expected
    assert pa.array([row["a"] for row in expected]).cast(pa.int64()).to_pylist()
