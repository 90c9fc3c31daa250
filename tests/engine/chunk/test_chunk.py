"""Chunks: building, reading, their properties and their errors."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, ComponentDescriptor, TimeColumn, TimelineKind
from hypothesis import given
from hypothesis import strategies as st

SCALARS = ComponentDescriptor("Scalars:scalars", "rerun.archetypes.Scalars", "rerun.components.Scalar")


def frames(*values: int, name: str = "frame") -> TimeColumn:
    return TimeColumn(name, sequence=values)


def scalars(*values: float | None) -> ComponentColumn:
    return ComponentColumn(SCALARS, pa.array(values, pa.float64()))


def test_rows_are_sorted_by_all_timelines_in_name_order() -> None:
    chunk = Chunk.from_columns("/a", [frames(1, 1, 0, name="b"), frames(2, 1, 3, name="a")], [scalars(0, 1, 2)])
    batch = chunk.to_record_batch()
    assert batch.column("a").to_pylist() == [1, 2, 3]
    assert batch.column("b").to_pylist() == [1, 1, 0]
    assert batch.column("Scalars:scalars").to_pylist() == [[1.0], [0.0], [2.0]]
    assert batch.schema.field("a").metadata[b"rerun:is_sorted"] == b"true"
    assert b"rerun:is_sorted" not in batch.schema.field("b").metadata


def test_row_ids_follow_from_the_chunk_id() -> None:
    chunk = Chunk.from_columns("/a", [frames(3, 1)], [scalars(0, 1)])
    first = int(chunk.id.removeprefix("chunk_"), 16)
    ids = [int(i.as_py().hex(), 16) for i in chunk.to_record_batch().column(0)]
    assert ids == [first + 1, first + 2]


def test_properties() -> None:
    chunk = Chunk.from_columns("a b//c/", [frames(1, 2), TimeColumn("t", timestamp=[0.5, 1.5])], [scalars(1, 2)])
    assert (chunk.entity_path, chunk.num_rows, len(chunk), chunk.num_columns) == (r"/a\ b/c", 2, 2, 4)
    assert chunk.timeline_names == ["frame", "t"]
    assert not chunk.is_static and not chunk.is_empty
    assert repr(chunk) == f"Chunk(id={chunk.id}, entity_path=/a\\ b/c, num_rows=2, num_columns=4)"
    static = Chunk.from_columns("/s", [], [scalars(1)])
    assert static.is_static
    assert static != Chunk.from_record_batch(static.to_record_batch())
    empty = Chunk.from_columns("/e", [frames()], [scalars()])
    assert empty.is_empty and not empty.is_static and not empty


def test_header_has_ranges_of_the_rows_that_hold_a_value() -> None:
    values = ComponentColumn("x", pa.array([[1], None, [], None], pa.list_(pa.int64())))
    header = Chunk.from_columns("/a", [frames(4, 5, 6, 7)], [values]).header
    assert (header.timelines[0].start, header.timelines[0].end) == (4, 7)
    (found,) = header.components[0].ranges
    assert (found.start, found.end, found.num_rows) == (4, 6, 2)
    assert header.components[0].is_empty is False


@pytest.mark.parametrize("rows", [[None, None], [[], []], [None, []]])
def test_a_component_of_nulls_and_empty_lists_is_empty(rows: list[object]) -> None:
    column = ComponentColumn("x", pa.array(rows, pa.list_(pa.int64())))
    assert Chunk.from_columns("/a", [frames(1, 2)], [column]).header.components[0].is_empty is True


def test_a_value_that_is_no_list_is_wrapped_and_null_becomes_a_list_of_null() -> None:
    batch = Chunk.from_columns("/a", [frames(1, 2)], [scalars(1.0, None)]).to_record_batch()
    assert batch.column("Scalars:scalars").to_pylist() == [[1.0], [None]]


def test_the_last_of_two_columns_with_one_name_wins() -> None:
    chunk = Chunk.from_columns("/a", [frames(1), frames(2)], [scalars(1), scalars(2)])
    assert chunk.to_record_batch().to_pylist()[0]["frame"] == 2
    assert chunk.num_columns == 3


@pytest.mark.parametrize(
    ("indexes", "columns", "error", "text"),
    [
        ([frames(1, 2, 3), frames(1, 2, name="f2")], [], ValueError, "Expected 3 but timeline 'f2' has 2."),
        ([frames(1, 2, 3)], [scalars(1, 2)], ValueError, "Expected 3 but component 'Scalars:scalars' has 2."),
        ([frames(1, 2, 3)], [], RuntimeError, "Found 0 row IDs but 3 timestamps for timeline 'frame'"),
    ],
)
def test_from_columns_refuses(indexes: list[object], columns: list[object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text.replace(".", r"\.")):
        Chunk.from_columns("/a", indexes, columns)  # type: ignore[arg-type]


class _Times:
    def __init__(self, values: object) -> None:
        self._values = values

    def timeline_name(self) -> str:
        return "f"

    def as_arrow_array(self) -> object:
        return self._values


@pytest.mark.parametrize(
    ("values", "error", "text"),
    [
        ([1, 2], TypeError, "Expected instance of pyarrow.lib.Array, got builtins.list"),
        (pa.chunked_array([[1]]), TypeError, "ChunkedArray"),
        (pa.array([1], pa.int32()), RuntimeError, "Invalid data_type for timeline: f"),
        (pa.array([1, None]), RuntimeError, "Invalid timeline f: Time columns had nulls, but should be dense"),
    ],
)
def test_a_bad_index_is_refused(values: object, error: type[Exception], text: str) -> None:
    length = len(values)  # type: ignore[arg-type]
    with pytest.raises(error, match=text):
        Chunk.from_columns("/a", [_Times(values)], [scalars(*range(length))])  # type: ignore[list-item]


ORDERS = {"row ids last": (1, 2, 0), "data first": (0, 2, 1), "no row ids": (1, 2), "two row ids": (0, 0, 1, 2)}
ORDERS |= {"two indexes": (0, 1, 1, 2), "two components": (0, 1, 2, 2)}
COLUMNS = {
    "row id type": (0, lambda c: c.cast(pa.binary())),
    "index type": (1, lambda c: c.cast(pa.int32())),
    "index nulls": (1, lambda c: pa.array([1, None])),
}


def edited(change: str) -> pa.RecordBatch:
    """A chunk's batch with one thing wrong."""
    batch = Chunk.from_columns("/a", [frames(1, 2)], [scalars(1, 2)]).to_record_batch()
    fields, columns, metadata = list(batch.schema), list(batch.columns), dict(batch.schema.metadata)
    metadata.pop(change.encode(), None)
    if change.startswith("id="):
        metadata[b"rerun:id"] = change[3:].encode()
    if change in COLUMNS:
        at, edit = COLUMNS[change]
        columns[at] = edit(columns[at])
    if change == "kind":
        fields[2] = fields[2].with_metadata({**fields[2].metadata, b"rerun:kind": b"zork"})
    order = ORDERS.get(change, (0, 1, 2))
    fields = [pa.field(fields[i].name, columns[i].type, fields[i].nullable, fields[i].metadata) for i in order]
    return pa.RecordBatch.from_arrays([columns[i] for i in order], schema=pa.schema(fields, metadata=metadata))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("no row ids", "Missing RowId column"),
        ("rerun:id", "Missing chunk ID"),
        ("rerun:entity_path", "Missing entity path"),
        (
            "id=zzz",
            'Failed to deserialize chunk id "zzz": Invalid ChunkId: Invalid TUID: invalid digit found in string',
        ),
        ("id=" + "1" * 33, "number too large to fit in target type"),
        ("id=row_12", 'Expected chunk_ prefix, got "row_12"'),
        ("row ids last", "Invalid column order: RowId column must be the first column; but the columns were: ["),
        ("data first", "Invalid column order: Index columns must come before any data columns"),
        ("two row ids", "Multiple RowId columns found: 2"),
        ("row id type", 'Expected column "rerun.controls.RowId" to be FixedSizeBinary(16), got Binary'),
        ("index type", "Unsupported time type: Int32"),
        (
            "index nulls",
            "Detected malformed Chunk: Bad time column 'frame': Time columns had nulls, but should be dense",
        ),
        ("two indexes", "Detected malformed Chunk: time column 'frame' was specified more than once"),
        ("two components", "component column '\"Scalars:scalars\"' was specified more than once"),
        ("kind", 'Unknown `rerun:kind` "zork" in column "Scalars:scalars".'),
    ],
)
def test_from_record_batch_refuses(change: str, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        Chunk.from_record_batch(edited(change))


def test_from_record_batch_wants_a_record_batch() -> None:
    table = pa.Table.from_batches([Chunk.from_columns("/a", [], [scalars(1)]).to_record_batch()])
    with pytest.raises(TypeError, match=r"Expected instance of pyarrow.lib.RecordBatch, got pyarrow.lib.Table"):
        Chunk.from_record_batch(table)  # type: ignore[arg-type]


def test_a_lying_sorted_flag_is_not_trusted() -> None:
    batch = Chunk.from_columns("/a", [frames(1, 2)], [scalars(1, 2)]).to_record_batch()
    swapped = pa.RecordBatch.from_arrays([c.take(pa.array([1, 0])) for c in batch.columns], schema=batch.schema)
    again = Chunk.from_record_batch(swapped).to_record_batch()
    assert b"rerun:is_sorted" not in again.schema.field("frame").metadata
    assert b"rerun:is_sorted" not in again.schema.field(0).metadata


times = st.integers(-(2**63), 2**63 - 1)
rows = st.lists(st.tuples(times, st.one_of(st.none(), st.lists(st.floats(allow_nan=False), max_size=3))), max_size=8)


@given(rows=rows, kind=st.sampled_from(list(TimelineKind)))
def test_a_batch_and_back_is_the_identity(rows: list[tuple[int, list[float] | None]], kind: TimelineKind) -> None:
    ticks = pa.array(np.array([r[0] for r in rows], np.int64)).view(kind.arrow_type)
    chunk = Chunk.from_columns(
        "/x", [_Times(ticks)], [ComponentColumn("v", pa.array([r[1] for r in rows], pa.list_(pa.float64())))]
    )
    batch = chunk.to_record_batch()
    again = Chunk.from_record_batch(batch)
    assert again.to_record_batch().equals(batch, check_metadata=True)
    assert again.header == chunk.header
    assert sorted(ticks.view(pa.int64()).to_pylist()) == batch.column("f").view(pa.int64()).to_pylist()


def test_chunks_pickle() -> None:
    chunk = Chunk.from_columns("/a", [frames(1)], [scalars(1)])
    assert pickle.loads(pickle.dumps(chunk)).to_record_batch().equals(chunk.to_record_batch(), check_metadata=True)


def test_with_entity_path_keeps_rows_and_renews_the_id() -> None:
    chunk = Chunk.from_columns("/a", [frames(1)], [scalars(1)])
    moved = chunk.with_entity_path("b/ c")
    assert moved.entity_path == r"/b/\ c" and moved.id != chunk.id
    assert moved.to_record_batch().column(0).equals(chunk.to_record_batch().column(0))
    with pytest.raises(TypeError):
        chunk.with_entity_path(5)  # type: ignore[arg-type]


def test_a_time_column_takes_exactly_one_kind() -> None:
    with pytest.raises(ValueError, match=r"Exactly one of `sequence`, `duration`, and `timestamp` must be set"):
        TimeColumn("x")
    assert TimeColumn("x", duration=[1.5]).as_arrow_array().to_pandas()[0].total_seconds() == 1.5


def test_rerun_objects_build_the_same_chunk() -> None:
    rr = pytest.importorskip("rerun")
    chunk = Chunk.from_columns("/a", [rr.TimeColumn("frame", sequence=[1, 2])], rr.Scalars.columns(scalars=[1.0, 2.0]))
    ours = Chunk.from_columns("/a", [frames(1, 2)], [scalars(1, 2)])
    assert chunk.to_record_batch().schema.equals(ours.to_record_batch().schema)
    assert chunk.header.components == ours.header.components
