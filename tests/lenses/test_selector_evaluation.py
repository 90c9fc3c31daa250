"""Evaluation: the tables of what nulls, flattening and shapes come to; callables; what is zero-copy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from chunkmill.engine.errors import SelectorError
from chunkmill.lenses import Selector

X = pa.struct({"x": pa.int64()})
STRUCTS = pa.array([[{"x": 1}, {"x": 2}], [{"x": None}], [], None, [None, {"x": 5}]], pa.list_(X))
INTS = pa.list_(pa.int64())
FIXED = pa.list_(pa.int64(), 2)
PLISTS = pa.array(
    [[{"p": [{"x": 1}, None]}, {"p": []}], [{"p": None}], [{"p": [None]}]],
    pa.list_(pa.struct({"p": pa.list_(X)})),
)
LISTS = pa.array([[[1, 2], [3]], [[]], [], None, [None, [4, None]], [None]], pa.list_(INTS))
SHORT = pa.array([[[1, 2], [3]], [[]], [], None], pa.list_(INTS))
VECTORS = pa.array([[[1, 2], [3, 4]], [None], [], None], pa.list_(FIXED))


@pytest.mark.parametrize(
    ("source", "query", "rows"),
    [
        (STRUCTS, ".x", [[1, 2], [None], [], None, [None, 5]]),
        (STRUCTS, ".x!", [[1, 2], None, [], None, [None, 5]]),
        (LISTS, "[]", [[1, 2, 3], [], [], None, [4, None], None]),
        (SHORT, "[0]", [[1, 3], [None], [], None]),
        (SHORT, "[0]!", [[1, 3], None, [], None]),
        (VECTORS, "[]", [[1, 2, 3, 4], None, [], None]),
        (PLISTS, ".p[].x", [[1, None], None, [None]]),
        (PLISTS, ".p | map(.x)", [[[1, None], []], [None], [[None]]]),
    ],
)
def test_rows_are_flattened_as_the_table_says(source: pa.Array, query: str, rows: list) -> None:
    found = Selector(query).execute_per_row(source)
    found.validate(full=True)
    assert found.to_pylist() == rows
    assert found.type == pa.list_(pa.field("item", found.type.value_type))
    for start in range(len(source)):
        sliced = Selector(query).execute_per_row(source.slice(start, 2))
        sliced.validate(full=True)
        assert sliced.to_pylist() == rows[start : start + 2]


@pytest.mark.parametrize(
    ("source", "query", "flat"),
    [
        (pa.array([[1, 2], None, [3]], INTS), ".[]", [1, 2, 3]),
        (pa.array([{"x": 1}, {"x": None}, None], X), ".x", [1, None, None]),
        (pa.array([{"x": 1}], X), ".y", None),
        (pa.array([{"x": 1}], X), ".y?", None),
        (pa.array([1]), ".x?", None),
        (pa.array([{"q": 1}], pa.struct({"q": pa.int64()})), ".q.x?", None),
        (pa.array([[1]], INTS), "map(.x)?" if False else "(map(.x))?", None),
        (pa.array([[[1, None], None], None], pa.list_(INTS)), ".[][]", [1, None]),
        (pa.array([[], []], INTS), "[0]", [None, None]),
    ],
)
def test_flat_results(source: pa.Array, query: str, flat: list | None) -> None:
    found = Selector(query).execute(source)
    assert (None if found is None else found.to_pylist()) == flat


def test_a_mark_protects_only_its_own_segment() -> None:
    source = pa.array([{"q": 1}], pa.struct({"q": pa.int64()}))
    with pytest.raises(RuntimeError, match=r"cannot access field `\.x` on unexpected type Int64$"):
        Selector(".q?.x").execute(source)


def test_nulls_at_both_levels_of_two_flattenings() -> None:
    source = pa.array([[[[1], None], None], [None], [[]], None, [[None]]], pa.list_(pa.list_(INTS)))
    assert Selector("[][]").execute_per_row(source).to_pylist() == [[1], None, [], None, None]


def stored_under_null() -> pa.ListArray:
    """Two rows of two lists each; the second list is null and still owns two elements."""
    values = pa.array([1, 2, 3, 4, 5, 6, 7, 8])
    mask = pa.array([False, True, False, True])
    inner = pa.ListArray.from_arrays(pa.array([0, 2, 4, 6, 8], pa.int32()), values, mask=mask)
    return pa.ListArray.from_arrays(pa.array([0, 2, 4], pa.int32()), inner)


def test_what_lies_under_a_null_list_never_shows() -> None:
    rows = stored_under_null()
    assert Selector("[]").execute(rows.values).to_pylist() == [1, 2, 5, 6]
    assert Selector("[]").execute_per_row(rows).to_pylist() == [[1, 2], [5, 6]]
    assert Selector("map(.)").execute(rows.values).to_pylist() == [[1, 2], None, [5, 6], None]
    one_each = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3, 4], pa.int32()), rows.values)
    assert Selector("[]").execute_per_row(one_each).to_pylist() == [[1, 2], None, [5, 6], None]
    assert Selector("[0]").execute_per_row(one_each).to_pylist() == [[1], [None], [5], [None]]
    assert Selector("[0]!").execute_per_row(one_each).to_pylist() == [[1], None, [5], None]


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.struct({"x": pa.int64()}), pa.list_(pa.int64())])
def test_what_lies_in_a_null_slot_never_shows(kind: pa.DataType) -> None:
    one = {"x": 1} if pa.types.is_struct(kind) else [1] if pa.types.is_list(kind) else "1" if kind == pa.string() else 1
    mask = pa.array([False, True, False])
    slots = pa.FixedSizeListArray.from_arrays(pa.array([one, None, one, one, None, one], kind), 2, mask=mask)
    assert Selector("[]").execute(slots).to_pylist() == [one, None, None, None, None, one]
    rows = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), slots)
    assert Selector("[]").execute_per_row(rows).to_pylist() == [[one, None, None, None], [None, one]]
    assert Selector("[]").execute_per_row(rows.slice(1)).to_pylist() == [[None, one]]


def test_null_structs_hide_their_fields() -> None:
    inner = pa.StructArray.from_arrays([pa.array([1, 2, 3])], ["b"], mask=pa.array([False, True, False]))
    outer = pa.StructArray.from_arrays([inner], ["a"], mask=pa.array([False, False, True]))
    assert Selector(".a.b").execute(outer).to_pylist() == [1, None, None]
    assert Selector(".a.b").execute(outer.slice(1)).to_pylist() == [None, None]


def test_field_access_copies_nothing() -> None:
    numbers = pa.array(np.arange(1000.0))
    source = pa.StructArray.from_arrays([pa.StructArray.from_arrays([numbers], ["b"])], ["a"])
    rows = pa.ListArray.from_arrays(pa.array(np.arange(1001), pa.int32()), source)
    address = numbers.buffers()[1].address
    assert Selector(".a.b").execute(source).buffers()[1].address == address
    found = Selector(".a | .b").execute_per_row(rows)
    assert found.values.buffers()[1].address == address
    assert found.buffers()[1].address == rows.buffers()[1].address


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.float32(), [1.5, None, -2.0]),
        (pa.timestamp("ns"), [1, 2, None]),
        (pa.bool_(), [True, None, False]),
        (pa.string(), ["a", None, "ccc"]),
        (pa.struct({"x": pa.int8()}), [{"x": 1}, None, {"x": None}]),
        (pa.list_(pa.int8(), 2), [[1, 2], None, [3, 4]]),
        (pa.decimal128(5, 2), [None, None, None]),
        (pa.null(), [None, None, None]),
    ],
)
def test_elements_of_any_type_are_taken(kind: pa.DataType, values: list) -> None:
    column = pa.array(values, kind)
    source = pa.ListArray.from_arrays(pa.array([0, 2, 2, 3], pa.int32()), column)
    plain = column.to_pylist()
    assert Selector("[0]").execute(source).to_pylist() == [plain[0], None, plain[2]]
    assert Selector("[-1]").execute(source).to_pylist() == [plain[1], None, plain[2]]
    assert Selector("[0]").execute(source.slice(2)).to_pylist() == [plain[2]]


def test_extension_types_are_what_they_store() -> None:
    source = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16)))
    assert Selector(".").execute(source).equals(source)
    with pytest.raises(SelectorError, match="unexpected type"):
        Selector(".x").execute(source)


# --- callables


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda a: pc.multiply(a, 2), [[2, 4], [None], [], None, [None, 10]]),
        (lambda a: None, None),
        (lambda a: pc.cast(a, pa.string()), [["1", "2"], [None], [], None, [None, "5"]]),
    ],
)
def test_a_callable_gets_all_rows_at_once(fn: Callable, expected: list | None) -> None:
    found = Selector(".x").pipe(fn).execute_per_row(STRUCTS)
    assert (None if found is None else found.to_pylist()) == expected


def test_a_callable_sees_what_is_stored_outside_a_slice() -> None:
    seen = []
    Selector(".x").pipe(lambda a: seen.append(a.to_pylist()) or a).execute_per_row(STRUCTS.slice(1, 2))
    assert seen == [[1, 2, None, None, 5]]
    rows = Selector(".x").pipe(lambda a: a).execute_per_row(STRUCTS.slice(1, 2))
    assert rows.to_pylist() == [[None], []]


def test_nothing_ends_the_pipe() -> None:
    called = []
    selector = Selector(".x").pipe(lambda a: None).pipe(called.append)
    assert selector.execute_per_row(STRUCTS) is None
    assert Selector(".z").pipe(called.append).execute_per_row(STRUCTS) is None
    assert called == []


def test_a_callable_that_makes_lists_can_be_flattened() -> None:
    def listed(a: pa.Array) -> pa.Array:
        return pa.ListArray.from_arrays(pa.array(np.arange(len(a) + 1), pa.int32()), a)

    found = Selector(".x").pipe(listed).pipe(Selector(".[]")).execute_per_row(STRUCTS)
    assert found.to_pylist() == [[1, 2], [None], [], None, [None, 5]]


@pytest.mark.parametrize("given", [pa.array([1]), pa.array([1] * 99)])
def test_rows_need_as_many_values_as_there_were(given: pa.Array) -> None:
    with pytest.raises(SelectorError, match=r"changed the length: it got 5 values and returned (1|99)$"):
        Selector(".x").pipe(lambda a: given).execute_per_row(STRUCTS)
    assert Selector(".").pipe(lambda a: given).execute(STRUCTS).equals(given)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (5, "builtins.int"),
        ([1], "builtins.list"),
        (np.zeros(1), "numpy.ndarray"),
        (pa.chunked_array([[1]]), "pyarrow.lib.ChunkedArray"),
        (pa.scalar(1), "pyarrow.lib.Int64Scalar"),
    ],
)
def test_a_callable_must_return_an_array(given: object, shown: str) -> None:
    message = (
        "Selector execution failed: Failed to convert callback result to Arrow: "
        f"TypeError: Expected instance of pyarrow.lib.Array, got {shown}"
    )
    with pytest.raises(RuntimeError) as caught:
        Selector(".x").pipe(lambda a: given).execute(STRUCTS.values)
    assert str(caught.value) == f"CM405: {message}"


def test_what_a_callable_raises_is_named_and_kept() -> None:
    with pytest.raises(RuntimeError, match=r"Python callback failed: ZeroDivisionError: division by zero$") as caught:
        Selector(".").pipe(lambda a: 1 / 0).execute(STRUCTS)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


# --- values into other values


@pytest.mark.parametrize(
    ("selector", "source", "expected"),
    [
        (Selector(".").scaled(2), pa.array([1, None], pa.int32()), pa.array([2.0, None])),
        (Selector(".").scaled("mm"), pa.array([1500.0], pa.float32()), pa.array([1.5], pa.float32())),
        (Selector(".").scaled("deg", "rev"), pa.array([180.0]), pa.array([0.5])),
        (Selector(".").scaled(2), pa.array([[1.0, None], None], pa.list_(pa.float64(), 2)),
         pa.array([[2.0, None], None], pa.list_(pa.float64(), 2))),
        (Selector(".").scaled(2), pa.array([[1.0], None, []]), pa.array([[2.0], None, []])),
        (Selector(".").cast("int32"), pa.array([1, None]), pa.array([1, None], pa.int32())),
        (Selector(".").nanoseconds(), pa.array([{"sec": -1, "nanosec": 5}, {"sec": None, "nanosec": 1}]),
         pa.array([-999_999_995, None])),
        (Selector(".").nanoseconds(), pa.array([{"seconds": 1, "nanos": 5}, None]), pa.array([1_000_000_005, None])),
        (Selector(".").nanoseconds(), pa.array([5], pa.timestamp("us", "UTC")), pa.array([5000])),
        (Selector(".").nanoseconds(), pa.array([5], pa.duration("s")), pa.array([5_000_000_000])),
    ],
)  # fmt: skip
def test_conversions(selector: Selector, source: pa.Array, expected: pa.Array) -> None:
    assert selector.execute(source).equals(expected)
    assert selector.execute(pa.concat_arrays([source, source]).slice(len(source))).equals(expected)


@pytest.mark.parametrize(
    ("selector", "source", "message"),
    [
        (Selector(".").scaled(2), pa.array(["a"]), "cannot scale values of type Utf8"),
        (Selector(".").cast("int8"), pa.array([300]), "Arrow error: Integer value 300 not in range"),
        (Selector(".").nanoseconds(), pa.array([1]), "no stamp of seconds and nanoseconds in type Int64"),
        (Selector(".").nanoseconds(), pa.array([{"sec": 2**62, "nanosec": 0}]), "Arrow error: overflow"),
    ],
)
def test_conversions_that_fail(selector: Selector, source: pa.Array, message: str) -> None:
    with pytest.raises(SelectorError, match=message):
        selector.execute(source)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("furlong",), "Unknown unit 'furlong', expected a number or one of m, mm"),
        (("m", "deg"), "'m' is a unit of length, but 'deg' is a unit of angle"),
        ((2.0, "m"), "a factor given as a number cannot be combined"),
    ],
)
def test_units_are_checked(args: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Selector(".").scaled(*args)


@pytest.mark.parametrize("place", [0, 65_535, 65_536, 199_999])
@pytest.mark.parametrize("start", [0, 3, 64])
def test_one_null_list_with_elements_among_many(place: int, start: int) -> None:
    mask = np.zeros(200_000, dtype=bool)
    mask[[place, 10, 150_000]] = True
    lengths = np.ones(200_000, dtype=np.int32)
    lengths[[10, 150_000]] = 0
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    source = pa.ListArray.from_arrays(offsets, pa.array(np.arange(199_998)), mask=pa.array(mask)).slice(start)
    kept = np.arange(199_998)[offsets[start].as_py() :]
    assert Selector("[]").execute(source).to_pylist() == kept[kept != offsets[place].as_py()].tolist()
