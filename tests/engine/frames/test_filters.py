"""Filters of query frames: the same rows as of the whole answer, filtered afterwards, whoever evaluates them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine import Chunk, LazyChunkStream
from chunkmill.engine.catalog import CatalogClient, DatasetEntry
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.frames.filters import conjuncts_of, taken_apart
from datafusion import DataFrame, Expr, SessionContext, col, lit
from datafusion import functions as f

INTEGERS = pa.list_(pa.int64())
A, B, C = (col(f'"/{name}:v"') for name in "abc")
FRAME, TICK, WHEN, SEGMENT = (col(name) for name in ("frame", "tick", "when", "rerun_segment_id"))


def chunk(entity: str, times: dict[str, Any], values: list[Any], datatype: pa.DataType = INTEGERS) -> Chunk:
    """A chunk of one component."""
    return Chunk.build(entity, times, [(ComponentDescriptor("v"), pa.array(values, datatype))])


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> DatasetEntry:
    """Two segments with three indexes, of which two are null in some rows."""
    folder = tmp_path_factory.mktemp("filters")
    ticks, times = pa.array([10, 20, 30, 40]), pa.array([1, 2, 3, 4], pa.timestamp("ns"))
    nested = pa.list_(pa.struct([("x", pa.float64())]))
    paths = []
    for number, name in enumerate(("one", "two")):
        some = [
            chunk("/a", {"frame": pa.array([1, 2, 3, 4]), "tick": ticks}, [[1], [2], [3], []]),
            chunk("/b", {"frame": pa.array([2, 3, 5, 6])}, [[2], [4 - number], [5], [6]]),
            chunk("/c", {"frame": pa.array([2, 3, 5, 6]), "when": times}, [[{"x": 0.5}], [], None, [None]], nested),
        ]
        path = folder / f"{name}.rrd"
        LazyChunkStream.from_iter(some).write_rrd(path, application_id="tests", recording_id=name)
        paths.append(str(path))
    found = CatalogClient(folder / "lake").create_dataset("drives")
    found.register(paths, executor="inline").wait()
    return found


def members(*values: Any) -> list[Expr]:
    return [lit(value) for value in values]


FILTERS = {
    "two components": A == B,
    "two components differ": A != B,
    "a component before another": A < B,
    "or something else": (A == B) | (FRAME > 4),
    "and something else": (A == B) & (FRAME > 2) & (lit("two") == SEGMENT),
    "is null": (A == B).is_null(),
    "itself": A == A,
    "a literal": lit(pa.scalar([2], INTEGERS)) == A,
    "into a component": f.array_element(A, lit(1)) == f.array_element(B, lit(1)),
    "structures": lit(pa.scalar([{"x": 0.5}], pa.list_(pa.struct([("x", pa.float64())])))) == C,
    "no component": A.is_null(),
    "in four": f.in_list(TICK, members(10, 20, 77, 78)),
    "not in four": f.in_list(TICK, members(10, 20, 77, 78), negated=True),
    "not of in four": ~f.in_list(TICK, members(10, 20, 77, 78)),
    "in four is not known": f.in_list(TICK, members(10, 20, 77, 78)).is_null(),
    "not in four, or": f.in_list(TICK, members(10, 20, 77, 78), negated=True) | (lit(1) == FRAME),
    "not in three": f.in_list(TICK, members(10, 20, 77), negated=True),
    "not in four and null": f.in_list(TICK, members(10, 20, 77, 78, None), negated=True),
    "the index not in four": f.in_list(FRAME, members(1, 2, 3, 77), negated=True),
    "the segment not in four": f.in_list(SEGMENT, members("one", "3", "4", "5"), negated=True),
    "times not in four": f.in_list(WHEN, [lit(pa.scalar(t, pa.timestamp("ns"))) for t in (1, 2, 7, 8)], negated=True),
    "not later": ~(lit(15) < TICK),
    "sums": TICK + lit(1) > lit(20),
    "two indexes": FRAME * lit(10) == TICK,
}


@pytest.mark.parametrize("fill", [False, True], ids=["exact", "filled"])
@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_takes_the_rows_in_which_it_is_true(dataset: DatasetEntry, name: str, fill: bool) -> None:
    frame = dataset.reader("frame", fill_latest_at=fill)
    whole = SessionContext().from_arrow(dataset.reader("frame", fill_latest_at=fill).to_arrow_table())

    def rows(frame: DataFrame) -> list[str]:
        return sorted(map(str, frame.to_pylist()))

    expected = rows(whole.filter(FILTERS[name]))
    assert rows(frame.filter(FILTERS[name])) == expected
    assert frame.filter(FILTERS[name]).count() == len(expected)
    assert len(frame.filter(FILTERS[name]).select("frame").to_pylist()) == len(expected)


def test_an_expression_is_taken_apart_as_it_is() -> None:
    import pyarrow.compute as pc

    field = pc.field
    whole = (field("a'\n: b") > 3) & ~field("b").isin(["x", "'y"]) & (field("c").is_valid() | field("d").is_null())
    assert [term.value for term in conjuncts_of(whole)] == ["greater", "invert", "or_kleene"]
    assert taken_apart(whole).fields == {"a'\n: b", "b", "c", "d"}
    assert taken_apart(whole).expression.equals(whole)
    assert taken_apart(field("a").cast("int32") == 3).kind == "opaque"
    assert conjuncts_of(None) == []
