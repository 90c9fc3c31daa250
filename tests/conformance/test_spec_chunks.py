"""The tables of chunks in the format's specification: what ``from_columns`` and ``apply_selector`` make and refuse."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, ComponentDescriptor, TimeColumn
from chunkmill.engine.errors import LensError, SelectorSyntaxError
from chunkmill.lenses import Selector


class Index:
    """A time column by its methods alone."""

    def __init__(self, name: str, times: Any) -> None:
        self._name, self._times = name, times

    def timeline_name(self) -> str:
        return self._name

    def as_arrow_array(self) -> Any:
        return self._times


class Column:
    """A component column by its methods alone."""

    def __init__(self, component: str, values: Any) -> None:
        self._component, self._values = component, values

    def component_descriptor(self) -> ComponentDescriptor:
        return ComponentDescriptor(self._component)

    def as_arrow_array(self) -> Any:
        return self._values


def of_values(values: pa.Array) -> pa.Array:
    """The stored column of ``values``."""
    return Chunk.from_columns("/a", [], [Column("x", values)]).to_record_batch().column("x")


# --- properties


def test_identity_truth_and_texts() -> None:
    one = Chunk.from_columns("/a/b", [Index("f", pa.array([1, 2, 3]))], [Column("x", pa.array([1, 2, 3]))])
    same = Chunk.from_record_batch(one.to_record_batch())
    assert one.id == same.id
    assert one != same
    assert one == one
    assert repr(one) == f"Chunk(id={one.id}, entity_path=/a/b, num_rows=3, num_columns=3)"
    assert re.fullmatch(r"chunk_[0-9A-F]{16}[0-9a-f]{16}", one.id)
    assert str(one) == one.format()
    assert bool(one)


@pytest.mark.parametrize(("lengths", "columns", "static"), [((0,), 3, False), ((), 1, True)])
def test_chunks_without_rows(lengths: tuple[int, ...], columns: int, static: bool) -> None:
    indexes = [Index("f", pa.array([1] * n, pa.int64())) for n in lengths]
    made = Chunk.from_columns("/a", indexes, [Column("x", pa.array([], pa.int8()))] if lengths else [])
    assert (made.num_rows, len(made), made.num_columns, made.is_static) == (0, 0, columns, static)
    assert made.is_empty
    assert not made


def test_indexes_of_no_rows_need_no_components() -> None:
    made = Chunk.from_columns("/a", [Index("f", pa.array([], pa.int64()))], [])
    assert (made.num_rows, made.is_static, made.timeline_names) == (0, False, ["f"])


# --- from_columns


def test_columns_come_from_any_iterable() -> None:
    indexes = (Index(n, pa.array([1, 2])) for n in "ab")
    columns = (Column(n, pa.array([1, 2])) for n in "xy")
    made = Chunk.from_columns("/a", indexes, columns)
    assert (made.timeline_names, made.num_columns) == (["a", "b"], 5)


@pytest.mark.parametrize(
    ("values", "datatype", "rows"),
    [
        (pa.array([1, None]), pa.int64(), [[1], [None]]),
        (pa.array([[1], None], pa.list_(pa.int64())), pa.int64(), [[1], None]),
        (pa.array([[1], None], pa.large_list(pa.int64())), pa.large_list(pa.int64()), [[[1]], [None]]),
        (pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), pa.list_(pa.int64(), 2), [[[1, 2]], [None]]),
        (pa.array([{"a": 1}, None]), pa.struct([("a", pa.int64())]), [[{"a": 1}], [None]]),
    ],
)
def test_values_that_are_no_lists_become_lists_of_one(values: pa.Array, datatype: pa.DataType, rows: Any) -> None:
    stored = of_values(values)
    assert stored.to_pylist() == rows
    assert stored.type == pa.list_(pa.field("item", datatype, nullable=True))


def test_in_a_record_batch_a_null_that_is_no_list_is_a_row_without_value() -> None:
    batch = Chunk.from_columns("/a", [], [Column("x", pa.array([[1], [2]]))]).to_record_batch()
    bare = batch.set_column(1, batch.schema.field(1).with_type(pa.int64()), pa.array([1, None]))
    assert Chunk.from_record_batch(bare).to_record_batch().column("x").to_pylist() == [[1], None]


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (pa.array([1], pa.int64()), pa.int64()),
        (pa.array([1], pa.timestamp("ns")), pa.timestamp("ns")),
        (pa.array([1], pa.timestamp("ns", "UTC")), pa.timestamp("ns")),
        (pa.array([1], pa.timestamp("ns", "Europe/Berlin")), pa.timestamp("ns")),
        (pa.array([1], pa.duration("ns")), pa.duration("ns")),
    ],
)
def test_index_types(given: pa.Array, stored: pa.DataType) -> None:
    batch = Chunk.from_columns("/a", [Index("f", given)], [Column("x", pa.array([1]))]).to_record_batch()
    assert batch.schema.field("f").type == stored


@pytest.mark.parametrize("datatype", [pa.int32(), pa.uint64(), pa.float64(), pa.timestamp("us"), pa.duration("ms")])
def test_other_index_types_are_refused(datatype: pa.DataType) -> None:
    text = "Error converting temporal data: Detected malformed Chunk: Invalid data_type for timeline: f"
    with pytest.raises(RuntimeError, match=f"^{text}$"):
        Chunk.from_columns("/a", [Index("f", pa.array([1], datatype))], [Column("x", pa.array([1]))])


TIMES = "Error converting temporal data: Detected malformed Chunk: Invalid timeline f: Time columns had nulls"
LENGTHS = "All columns must have the same length. Expected 3 but"


@pytest.mark.parametrize(
    ("indexes", "columns", "error", "text"),
    [
        ([("f", [1, None])], [("x", [1, 2])], RuntimeError, f"{TIMES}, but should be dense"),
        ([("f1", [1, 2, 3]), ("f2", [1, 2])], [], ValueError, f"{LENGTHS} timeline 'f2' has 2."),
        ([], [("x", [1, 2, 3]), ("y", [1, 2])], ValueError, f"{LENGTHS} component 'y' has 2."),
        (
            [("frame", [1, 2, 3])],
            [],
            RuntimeError,
            (
                "Detected malformed Chunk: All timelines in a chunk must have the same number of timestamps, matching "
                "the number of row IDs. Found 0 row IDs but 3 timestamps for timeline 'frame'"
            ),
        ),
    ],
)
def test_from_columns_refuses_verbatim(indexes: Any, columns: Any, error: type[Exception], text: str) -> None:
    times = [Index(n, pa.array(v)) for n, v in indexes]
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        Chunk.from_columns("/a", times, [Column(n, pa.array(v)) for n, v in columns])


@pytest.mark.parametrize("values", [[1], (1,), pa.chunked_array([[1]]), None])
def test_columns_must_be_arrow_arrays(values: Any) -> None:
    kind = type(values)
    text = f"Expected instance of pyarrow.lib.Array, got {kind.__module__}.{kind.__name__}"
    with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
        Chunk.from_columns("/a", [], [Column("x", values)])
    with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
        Chunk.from_columns("/a", [Index("f", values)], [])


def test_empty_names_are_allowed() -> None:
    made = Chunk.from_columns("/a", [Index("", pa.array([1]))], [Column("", pa.array([1]))])
    assert (made.timeline_names, made.num_columns) == ([""], 3)


def test_rows_that_are_in_order_stay_where_they_are() -> None:
    columns = [Index("b", pa.array([1, 1, 0])), Index("a", pa.array([2, 1, 3]))]
    made = Chunk.from_columns("/a", columns, [Column("x", pa.array([0, 1, 2]))]).to_record_batch()
    assert made.to_pydict() | {"rerun.controls.RowId": 0} == {
        "rerun.controls.RowId": 0,
        "a": [1, 2, 3],
        "b": [1, 1, 0],
        "x": [[1], [0], [2]],
    }
    assert made.schema.field("a").metadata[b"rerun:is_sorted"] == b"true"
    assert b"rerun:is_sorted" not in made.schema.field("b").metadata
    stable = Chunk.from_columns("/a", [Index("f", pa.array([1, 0, 1, 0]))], [Column("x", pa.array([0, 1, 2, 3]))])
    assert stable.to_record_batch().column("x").to_pylist() == [[1], [3], [0], [2]]


def test_a_time_column_of_no_kind() -> None:
    text = "TimeColumn: Exactly one of `sequence`, `duration`, and `timestamp` must be set (timeline='x')"
    with pytest.raises(ValueError, match=re.escape(text)):
        TimeColumn("x")


# --- with_entity_path


@pytest.mark.parametrize(
    ("path", "canonical"),
    [("", "/"), ("a//b/", "/a/b"), ("a b", r"/a\ b"), ("/**", r"/\*\*"), ("\\", r"/\\"), ("/ö/日本", "/ö/日本")],
)
def test_any_text_is_a_path(path: str, canonical: str) -> None:
    one = Chunk.from_columns("/a", [Index("f", pa.array([1]))], [Column("x", pa.array([1]))])
    moved = one.with_entity_path(path)
    assert moved.entity_path == canonical
    assert moved.id != one.id
    assert moved.to_record_batch().columns == one.to_record_batch().columns


# --- apply_selector

ROWS = [[{"x": 1, "y": [1, 2]}, {"x": 2, "y": [3]}], None, [{"x": 3, "y": []}]]


def structured() -> Chunk:
    datatype = pa.list_(pa.struct([("x", pa.int64()), ("y", pa.list_(pa.int64()))]))
    columns = [ComponentColumn("X", pa.array(ROWS, datatype)), ComponentColumn("F", [1.0, 2.0, 3.0])]
    return Chunk.from_columns("/s", [TimeColumn("t", sequence=[1, 2, 3])], columns)


@pytest.mark.parametrize(
    ("selector", "result"),
    [
        (".", ROWS),
        (".x", [[1, 2], None, [3]]),
        (".x!", [[1, 2], None, [3]]),
        (".y", [[[1, 2], [3]], None, [[]]]),
        (".y[]", [[1, 2, 3], None, []]),
        (".y[0]", [[1, 3], None, [None]]),
        (Selector(".x").pipe(lambda a: a), [[1, 2], None, [3]]),
    ],
)
@pytest.mark.parametrize("source", ["X", ComponentDescriptor("X", "any.archetype", "any.type")])
def test_selectors(source: Any, selector: Any, result: Any) -> None:
    one = structured()
    made = one.apply_selector(source, selector)
    before, after = one.to_record_batch(), made.to_record_batch()
    assert after.column("X").to_pylist() == result
    assert after.schema.field("X").metadata == before.schema.field("X").metadata
    assert after.column("F").equals(before.column("F"))
    assert after.column("t").equals(before.column("t"))
    assert made.id != one.id
    first = int(made.id.removeprefix("chunk_"), 16)
    assert [int(i.hex(), 16) for i in after.column(0).to_pylist()] == [first + 1, first + 2, first + 3]


APPLY = "Failed to apply operations to component"
NOTHING = "No component outputs were produced for target entity `/s`"


@pytest.mark.parametrize(
    ("source", "selector", "error", "text"),
    [
        ("nope", ".", LensError, "Component 'nope' not found in chunk for entity `/s`"),
        ("X", ".zz", LensError, NOTHING),
        ("X", ".zz?", LensError, NOTHING),
        ("X", Selector(".").pipe(lambda a: None), LensError, NOTHING),
        (
            "F",
            ".x",
            LensError,
            (
                f"{APPLY} 'F' (entity: `/s`, input: `F`): "
                "Invalid argument error: cannot access field `.x` on unexpected type Float64"
            ),
        ),
        (
            "X",
            Selector(".").pipe(lambda a: 1 / 0),
            LensError,
            f"{APPLY} 'X' (entity: `/s`, input: `X`): Python callback failed: ZeroDivisionError: division by zero",
        ),
        ("X", Selector(".").pipe(lambda a: a[:1]), LensError, "Python callback changed the length"),
        ("X", ".x |", SelectorSyntaxError, "Failed to parse selector: unexpected end of input"),
        ("X", "", SelectorSyntaxError, "Failed to parse selector: unexpected end of input"),
    ],
)
def test_selectors_that_fail(source: str, selector: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)) as caught:
        structured().apply_selector(source, selector)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("make", [lambda: structured().apply_selector("X", "bar"), lambda: Selector(". bar")])
def test_words_that_mean_nothing(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="bar"):
        make()
