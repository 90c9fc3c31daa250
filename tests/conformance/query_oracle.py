"""The queries of a dataset beside the reference's oracle, which knows the rules and is as slow as they are plain.

Datasets are what the oracle and the recorded queries have: lists of recordings with a segment, a layer and chunks, of
rows as dictionaries. ``python tests/conformance/query_oracle.py --count 20000 --seed 0`` compares the kernel with the
oracle on so many datasets, and says how many rows were equal.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from chunkmill.engine.chunk import Chunk, ChunkData, Component, ComponentDescriptor, Schema, Timeline, TimelineKind
from chunkmill.engine.query import (
    AnswerColumns,
    IndexValues,
    QueriedSegment,
    Query,
    QuerySemantics,
    lacking_guarantee,
    satisfiable,
    segment_guarantee,
    segments,
)
from chunkmill.engine.recordings import join_schemas
from chunkmill.engine.rrd import ChunkEntry, ChunkTable, Times, TimesWriter
from chunkmill.engine.stream import ContentFilter

_DATA = os.environ.get("CHUNKMILL_TEST_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data"
SHARED = Path(_DATA).parent
GOLDEN = SHARED / "golden" / "query"
ORACLE = SHARED / "tools" / "query_oracle.py"
ROW_ID = "rerun.controls.RowId"

Recording = dict[str, Any]
Row = dict[str, Any]


@cache
def oracle() -> Any:
    """The oracle, which is a program of its own."""
    spec = importlib.util.spec_from_file_location("query_oracle_of_the_reference", ORACLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- datasets


def chunk_of(chunk: dict[str, Any], number: int) -> ChunkData:
    """A chunk as it would be read."""
    rows = chunk["rows"]
    ids = [row[ROW_ID].to_bytes(8, "big") + (1).to_bytes(8, "big") for row in rows]
    timelines, components = [], []
    for column in chunk["columns"]:
        name, kind = column["name"], column["metadata"].get("rerun:kind")
        if kind == "index":
            datatype = _TYPES[column["type"]]
            times = pa.array([row[name] for row in rows], pa.int64()).cast(datatype)
            timelines.append(Timeline(name, TimelineKind.of(datatype), times))
        elif kind == "data":
            values = pa.array([row[name] for row in rows], _TYPES[column["type"]])
            components.append(Component(ComponentDescriptor(name, column["metadata"].get("rerun:archetype")), values))
    return ChunkData(
        number.to_bytes(16, "big"),
        chunk["entity_path"],
        pa.array(ids, pa.binary(16)),
        tuple(sorted(timelines, key=lambda t: t.name)),
        tuple(sorted(components, key=lambda c: c.descriptor.sort_key)),
    )


_TYPES = {
    "int64": pa.int64(),
    "timestamp[ns]": pa.timestamp("ns"),
    "duration[ns]": pa.duration("ns"),
    "list<item: int64>": pa.list_(pa.int64()),
    "list<item: bool>": pa.list_(pa.bool_()),
}


class References:
    """Chunks that are here, as if they lay in a file; ``taken`` are the rows of all that were needed."""

    def __init__(self, chunks: list[ChunkData], taken: list[int]) -> None:
        headers = (Chunk.from_data(data).header for data in chunks)
        self.table = ChunkTable.of([ChunkEntry(header, 0, 1, 1) for header in headers])
        self._chunks = chunks
        self._taken = taken

    def read(self, rows: Any) -> list[ChunkData]:
        """Some of them."""
        self._taken += rows.tolist()
        return [self._chunks[row] for row in rows.tolist()]


class Source:
    """A segment whose chunks are here; those of some layers have times."""

    def __init__(self, layers: list[References], times: list[Times | None]) -> None:
        self._layers = layers
        self._times = times

    @property
    def stored_bytes(self) -> int:
        """One for each chunk."""
        return sum(len(layer.table) for layer in self._layers)

    @property
    def has_times(self) -> bool:
        """Whether all layers have times."""
        return None not in self._times

    @property
    def layer_names(self) -> list[str]:
        """Numbers."""
        return [str(number) for number in range(len(self._layers))]

    def references(self) -> list[References]:
        """The chunks of each layer."""
        return self._layers

    def times(self) -> list[Times | None]:
        """The times of each layer that has some."""
        return self._times


_FOLDER = tempfile.TemporaryDirectory(prefix="chunkmill-times-")
_NUMBERS = count()


def times_of(chunks: list[ChunkData]) -> Times:
    """The times of chunks, in a file."""
    writer = TimesWriter()
    for data in chunks:
        writer.add(data)
    pieces, directory = writer.finish()
    path = f"{_FOLDER.name}/{next(_NUMBERS)}"
    Path(path).write_bytes(b"".join(pieces))
    return Times(path, 0, None, directory)


@dataclass(frozen=True)
class Reading:
    """Ways to read a segment, none of which changes its rows.

    Segments are cut into pieces of ``cut`` bytes of chunks, and read in windows of ``window`` bytes; of layers whose
    numbers ``told`` has, the times are known. ``names`` are the columns that are asked for.
    """

    cut: int | None = None
    window: int = segments.WINDOW_BYTES
    told: tuple[int, ...] = ()
    names: tuple[str, ...] | None = None

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Within the block, windows are of that size, and times are taken wherever there are some."""
        before = segments.WINDOW_BYTES, segments.saves
        segments.WINDOW_BYTES, segments.saves = self.window, lambda *_, **__: True
        try:
            yield
        finally:
            segments.WINDOW_BYTES, segments.saves = before


class Dataset:
    """The chunks of each segment by layers, and the columns of each and of all."""

    def __init__(self, recordings: list[Recording]) -> None:
        self.layers: defaultdict[str, list[list[ChunkData]]] = defaultdict(list)
        schemas: defaultdict[str, list[pa.Schema]] = defaultdict(list)
        for recording in recordings:
            made = [chunk_of(chunk, number) for number, chunk in enumerate(recording["chunks"])]
            self.layers[recording["segment"]].append(made)
            headers = (Chunk.from_data(data).header for data in made)
            schemas[recording["segment"]].append(Schema.from_headers(headers).to_arrow())
        self.schemas = {segment: join_schemas(some) for segment, some in schemas.items()}
        self.schema = join_schemas(self.schemas.values())
        self.taken: list[int] = []

    @property
    def count(self) -> int:
        """The number of chunks."""
        return sum(len(made) for layers in self.layers.values() for made in layers)

    def columns(self, query: Query, segments: list[str]) -> AnswerColumns:
        """The columns of an answer over some segments."""
        return query.columns(self.schema, join_schemas(self.schemas[segment] for segment in segments))

    def rows(
        self,
        query: Query,
        segments: list[str] | None = None,
        predicate: pc.Expression | None = None,
        names: list[str] | None = None,
        reading: Reading | None = None,
    ) -> list[Row]:
        """The rows of a query, by segment and index."""
        chosen = [s for s in sorted(self.layers) if segments is None or s in segments]
        columns = self.columns(query, chosen)
        reading = reading or Reading(names=None if names is None else tuple(names))
        queried = [self._segment(segment, columns, reading.told) for segment in chosen]
        if reading.cut is not None:
            queried = [piece for segment in queried for piece in segment.cut(reading.cut)]
        if predicate is not None:
            guarantees = [
                segment_guarantee(columns, s.segment_id, s.bounds, lacking_guarantee(columns, s.component_keys))
                for s in queried
            ]
            queried = [queried[number] for number in satisfiable(predicate, guarantees, columns.arrow)]
        found: list[Row] = []
        for segment in queried:
            with reading.entered():
                for batch in segment.batches(reading.names, predicate):
                    assert batch.num_rows
                    batch.validate(full=True)
                    found += plain(batch)
        return found

    def _segment(self, segment_id: str, columns: AnswerColumns, told: tuple[int, ...] = ()) -> QueriedSegment:
        parts = Schema.from_arrow(self.schemas[segment_id]).component_columns()
        there = frozenset((c.entity_path, c.component) for c in parts)
        layers = self.layers[segment_id]
        times = [times_of(made) if number in told else None for number, made in enumerate(layers)]
        source = Source([References(made, self.taken) for made in layers], times)
        return QueriedSegment(source, segment_id, columns, there, self._span(columns.query, segment_id))

    def _span(self, query: Query, segment_id: str) -> tuple[int, int] | None:
        """The range of the index in a segment, as the oracle has it: of rows with some value."""
        ticks = [
            tick
            for data in chain.from_iterable(self.layers[segment_id])
            for t in data.timelines
            for row, tick in enumerate(t.ticks.tolist())
            if t.name == query.index and any(c.values[row].is_valid for c in data.components)
        ]
        return (min(ticks), max(ticks)) if ticks else None


def plain(batch: pa.RecordBatch | pa.Table) -> list[Row]:
    """Rows as the oracle has them: times as integers."""
    columns = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        is_time = pa.types.is_timestamp(field.type) or pa.types.is_duration(field.type)
        columns[field.name] = (column.cast(pa.int64()) if is_time else column).to_pylist()
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def canonical(rows: list[Row]) -> list[str]:
    """Rows in an order of their own; nulls are left out, as a view has no column that its segments lack."""
    return sorted(json.dumps({k: v for k, v in row.items() if v is not None}, sort_keys=True) for row in rows)


# --- generated ones

_ENTITIES = ("/", "/w", "/w/a", "/w/a/b", "/w/b", "/z", "/__properties/p")
_INDEXES = (("a", "int64"), ("b", "timestamp[ns]"), ("c", "duration[ns]"))
_CLEAR = "Clear:is_recursive"


def generated(random_: random.Random) -> list[Recording]:
    """A dataset of few segments, layers and rows, in which all happens that may."""
    indexes = _INDEXES[: random_.randint(1, 3)]
    entities = random_.sample(_ENTITIES, random_.randint(1, 5))
    segments = [f"s{i}" for i in range(random_.randint(1, 3))]
    layers = [(s, f"l{i}") for s in segments for i in range(random_.randint(1, 3))]
    ids = random_.sample(range(1, 100_000), 2000)
    return [
        {"segment": s, "layer": layer, "chunks": [_chunk(random_, indexes, entities, ids) for _ in range(5)]}
        for s, layer in layers
    ]


def _chunk(random_: random.Random, indexes: tuple[Any, ...], entities: list[str], ids: list[int]) -> dict[str, Any]:
    is_static = random_.random() < 0.15
    on = [] if is_static else random_.sample(indexes, random_.randint(1, len(indexes)))
    names = random_.sample(["value", "other", "Points3D:colors"], random_.randint(1, 2))
    kinds = dict.fromkeys(names, "list<item: int64>")
    if random_.random() < 0.25:
        kinds = {_CLEAR: "list<item: bool>"} if random_.random() < 0.7 else {**kinds, _CLEAR: "list<item: bool>"}
    count = random_.randint(1, 5)
    mine = sorted(ids.pop() for _ in range(count))
    rows = []
    emptiness = random_.choice([0.2, 0.2, 1.0])
    for row_id in mine:
        row = {ROW_ID: row_id, **{name: random_.randint(-3, 8) for name, _ in on}}
        for name, kind in kinds.items():
            row[name] = _value(random_, kind, emptiness)
        rows.append(row)
    columns = [{"name": ROW_ID, "type": "", "metadata": {"rerun:kind": "control"}}]
    columns += [{"name": n, "type": t, "metadata": {"rerun:kind": "index"}} for n, t in on]
    columns += [{"name": n, "type": t, "metadata": {"rerun:kind": "data"}} for n, t in kinds.items()]
    return {"entity_path": random_.choice(entities), "columns": columns, "rows": rows}


def _value(random_: random.Random, kind: str, emptiness: float) -> list[Any] | None:
    if random_.random() < emptiness:
        return random_.choice([None, []])
    if "bool" in kind:
        return [random_.random() < 0.6]
    return [random_.randint(0, 99) for _ in range(random_.randint(1, 3))]


_CONTENTS = (None, None, "/w", "/w/**", "/w/a /z", "/** -/w/a/**", "/__properties/** /**", "/z/** /w/b")


def questions(random_: random.Random, recordings: list[Recording], count: int) -> list[dict[str, Any]]:
    """Arguments for the oracle."""
    segments = sorted({recording["segment"] for recording in recordings})
    indexes = oracle().load(recordings)[2]
    found = []
    for _ in range(count):
        asked: dict[str, Any] = {
            "index": random_.choice([*indexes, *indexes, None]),
            "contents": random_.choice(_CONTENTS),
            "empty": random_.random() < 0.3,
            "tomb": random_.random() < 0.3,
            "fill": random_.random() < 0.5,
        }
        if random_.random() < 0.3:
            asked["segments"] = random_.sample(segments, random_.randint(1, len(segments)))
        if asked["index"] is not None and random_.random() < 0.3:
            given = random_.sample(range(-5, 11), random_.randint(0, 6))
            asked["uiv"] = given if random_.random() < 0.5 else dict.fromkeys([*segments[:-1], "none"], given)
        if random_.random() < 0.5:
            asked |= {"profile": "0.33.1", "clear_fill": "resurrect"}
        found.append(asked)
    return found


def query_of(asked: dict[str, Any]) -> Query:
    """The query that the oracle's arguments mean."""
    contents = asked.get("contents")
    values = asked.get("uiv")
    index = asked["index"]
    return Query(
        index,
        ContentFilter.everything() if contents is None else ContentFilter([contents]),
        asked.get("empty", False),
        asked.get("tomb", False),
        asked.get("fill", False),
        None if values is None else IndexValues.of(values, index),
        QuerySemantics.of("rerun-0.33" if asked.get("profile") else "contract"),
    )


def predicates(random_: random.Random, columns: AnswerColumns) -> tuple[pc.Expression | None, Any]:
    """A filter, for us and for rows of the oracle."""
    index = columns.query.index
    choices: list[tuple[pc.Expression, Any]] = []
    name = random_.choice([c.name for c in columns.components]) if columns.components else None
    if name is not None:
        choices.append((pc.field(name).is_valid(), lambda row: row[name] is not None))
    segment = random_.choice(["s0", "s1"])
    choices.append((pc.field("rerun_segment_id") == segment, lambda row: row["rerun_segment_id"] == segment))
    if index is not None:
        bound = random_.randint(-3, 8)
        value = pa.scalar(bound, pa.int64()).cast(columns.arrow.field(index).type)
        choices.append((pc.field(index) >= value, lambda row: row[index] >= bound))
        choices.append((pc.field(index) == value, lambda row: row[index] == bound))
        choices.append((pc.field(index) < value, lambda row: row[index] < bound))
    one, other = random_.choice(choices), random_.choice(choices)
    return random_.choice(
        [
            (None, lambda _: True),
            one,
            (one[0] & other[0], lambda row: one[1](row) and other[1](row)),
            (one[0] | other[0], lambda row: one[1](row) or other[1](row)),
        ]
    )


def readings(random_: random.Random, columns: AnswerColumns, query: Query) -> Reading:
    """A way to read segments; some columns are always asked for."""
    names = None
    if random_.random() < 0.5 and not query.semantics.selection_narrows:
        of_row = [name for name in ("rerun_segment_id", query.index) if name is not None]
        others = [name for name in columns.arrow.names if name not in of_row]
        names = (*of_row, *random_.sample(others, random_.randint(0, len(others))))
    return Reading(
        random_.choice([None, None, 1, 3]),
        random_.choice([1, 200, segments.WINDOW_BYTES]),
        random_.choice([(), (0,), (1,), (0, 1, 2), (0, 1, 2)]),
        names,
    )


def compared(seed: int, queries: int = 4) -> int:
    """Compare the answers over one generated dataset; gives the number of rows. Raises ``AssertionError``."""
    random_ = random.Random(seed)
    recordings = generated(random_)
    dataset, rows = Dataset(recordings), 0
    for asked in questions(random_, recordings, queries):
        expected = oracle().evaluate(recordings, **asked)
        query = query_of(asked)
        shown = sorted(asked.get("segments") or dataset.layers)
        predicate, holds = predicates(random_, dataset.columns(query, shown))
        expected = [row for row in expected if holds(row)]
        reading = readings(random_, dataset.columns(query, shown), query)
        found = dataset.rows(query, asked.get("segments"), predicate, reading=reading)
        if reading.names is not None:
            expected = [{name: row.get(name) for name in reading.names} for row in expected]
        assert canonical(found) == canonical(expected), f"seed {seed}: {asked}, filter {predicate}, {reading}"
        if query.index is not None:
            at = [(row["rerun_segment_id"], row[query.index]) for row in found]
            assert at == sorted(at), f"seed {seed}: {asked}: the order of rows"
        rows += len(found)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="datasets")
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    arguments = parser.parse_args()
    rows = 0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        rows += compared(seed)
    print(json.dumps({"datasets": arguments.count, "queries": 4 * arguments.count, "rows": rows, "differ": []}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
