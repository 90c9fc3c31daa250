"""Results of functions as arrays: what a type holds is kept as it is, and what it does not hold is refused by row."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.errors import FunctionResultError
from chunkmill.engine.tables import udf
from hypothesis import given, settings
from hypothesis import strategies as st


def computed(values: list, data_type: pa.DataType) -> pa.Array:
    """The column of a function that gives these values, row by row."""
    rows = pa.record_batch({"at": list(range(len(values)))})
    return udf(data_type, name="f")(lambda at: values[at]).compute(rows)


def of_arrays(result: Any, data_type: pa.DataType, rows: int = 2) -> pa.Array:
    """The column of a function that gives this for a batch."""

    def f(at: pa.Array) -> pa.Array:
        return result

    return udf(data_type)(f).compute(pa.record_batch({"at": list(range(rows))}))


NOON = datetime.datetime(2020, 1, 2, 12, tzinfo=datetime.UTC)
XY = pa.struct([("x", pa.int8()), ("y", pa.list_(pa.string()))])

KEPT = [
    ([1, None, np.int8(3), np.float64(4.0), 5.0], pa.int64(), [1, None, 3, 4, 5]),
    ([2**63, 0], pa.uint64(), [2**63, 0]),
    ([1, 2.5, np.float32(0.5), None], pa.float32(), [1.0, 2.5, 0.5, None]),
    ([2**24 + 1, None], pa.float32(), [2.0**24, None]),
    ([float("inf"), float("nan")], pa.float32(), [float("inf"), float("nan")]),
    ([1.5, 2], pa.float16(), [1.5, 2.0]),
    (["a", None, np.str_("b")], pa.string(), ["a", None, "b"]),
    (["a"], pa.large_string(), ["a"]),
    ([b"a", None, bytearray(b"b")], pa.binary(), [b"a", None, b"b"]),
    ([True, None, np.False_], pa.bool_(), [True, None, False]),
    ([None, None], pa.int8(), [None, None]),
    ([[1, 2], None, [], (3,)], pa.list_(pa.int32()), [[1, 2], None, [], [3]]),
    ([np.array([1, 2]), np.array([], np.int16)], pa.list_(pa.int8()), [[1, 2], []]),
    ([np.array([1.0, 2.0]), None, [3, 4]], pa.list_(pa.float32(), 2), [[1.0, 2.0], None, [3.0, 4.0]]),
    ([np.ones(2, np.float16), np.zeros(2, np.float16)], pa.list_(pa.float64(), 2), [[1.0, 1.0], [0.0, 0.0]]),
    ([np.eye(2), np.zeros((1, 2))], pa.list_(pa.list_(pa.float32())), [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 0.0]]]),
    ([np.eye(2), np.zeros((2, 3))], pa.list_(pa.list_(pa.int8())), [[[1, 0], [0, 1]], [[0, 0, 0], [0, 0, 0]]]),
    ([[2**24 + 1], [0.5]], pa.list_(pa.float32()), [[2.0**24], [0.5]]),
    ([pa.array([1.5, 2.0]), None], pa.large_list(pa.float32()), [[1.5, 2.0], None]),
    ([["a"], [None, "b"]], pa.list_(pa.string()), [["a"], [None, "b"]]),
    ([{"x": 1, "y": ["a"]}, {"x": None}, None], XY, [{"x": 1, "y": ["a"]}, {"x": None, "y": None}, None]),
    ([[{"x": 1}], []], pa.list_(pa.struct([("x", pa.int64())])), [[{"x": 1}], []]),
    ([{"k": 1}, [("l", 2)]], pa.map_(pa.string(), pa.int64()), [[("k", 1)], [("l", 2)]]),
    ([NOON, None], pa.timestamp("us", "UTC"), [NOON, None]),
    ([datetime.date(2020, 1, 2)], pa.date32(), [datetime.date(2020, 1, 2)]),
    ([decimal.Decimal("1.50")], pa.decimal128(5, 2), [decimal.Decimal("1.50")]),
]  # fmt: skip


@pytest.mark.parametrize(("values", "data_type", "expected"), KEPT)
def test_what_the_type_holds_is_kept(values: list, data_type: pa.DataType, expected: list) -> None:
    made = computed(values, data_type)
    made.validate(full=True)
    assert made.type == data_type
    assert made.equals(pa.array(expected, data_type)) or repr(made.to_pylist()) == repr(expected)  # nan is none


REFUSED = [
    ([1, 1.5], pa.int64(), "float 1.5 for row 1"),
    ([1, "2"], pa.int64(), "str '2' for row 1"),
    (["1", "2"], pa.int64(), "str '1' for row 0"),
    ([1, True], pa.int64(), "bool True for row 1"),
    ([1, 300], pa.int8(), "int 300 for row 1"),
    ([1, -1], pa.uint8(), "int -1 for row 1"),
    ([1.0, 1e300], pa.float32(), "float 1e[+]300 for row 1"),
    ([1.0, 1e6], pa.float16(), "float 1000000.0 for row 1"),
    ([1.0, "1.0"], pa.float64(), "str '1.0' for row 1"),
    (["a", 1], pa.string(), "int 1 for row 1"),
    ([b"a", 1], pa.binary(), "int 1 for row 1"),
    ([True, 1], pa.bool_(), "int 1 for row 1"),
    ([[1], 2], pa.list_(pa.int64()), "int 2 for row 1.*it is not a list"),
    ([[1], "2"], pa.list_(pa.int64()), "str '2' for row 1.*it is not a list"),
    ([["a"], "bc"], pa.list_(pa.string()), "str 'bc' for row 1.*it is not a list"),
    ([[1], [1.5]], pa.list_(pa.int64()), r"list \[1.5\] for row 1"),
    ([[1.0], [1e300]], pa.list_(pa.float32()), r"list \[1e[+]300\] for row 1"),
    ([np.ones(2), np.full(2, 0.5)], pa.list_(pa.int64(), 2), r"ndarray array\(\[0.5, 0.5\]\) for row 1"),
    ([np.ones(2), np.ones(3)], pa.list_(pa.float32(), 2), r"ndarray .* for row 1 .*it has 3 items"),
    ([np.ones(2), np.array(1.0)], pa.list_(pa.float32(), 2), r"ndarray array\(1.\) for row 1"),
    ([2**64, 0], pa.uint64(), "int 18446744073709551616 for row 0"),
    ([{"x": 1}, {"x": 1, "z": 2}], pa.struct([("x", pa.int8())]), "dict .* for row 1.*there is no field 'z', only"),
    ([{"x": 1}, 5], pa.struct([("x", pa.int8())]), "int 5 for row 1.*it has no field 'x'"),
    ([(1,), (1, 2)], pa.struct([("x", pa.int8())]), "tuple .* for row 1.*2 values for 1 fields"),
    ([{"x": 1}, {"x": "a"}], pa.struct([("x", pa.int8())]), "dict .* for row 1.*it is string"),
    ([object()], pa.string(), "object <object object at .* for row 0"),
]


@pytest.mark.parametrize(("values", "data_type", "said"), REFUSED)
def test_what_the_type_does_not_hold_is_refused_with_its_row(values: list, data_type: pa.DataType, said: str) -> None:
    with pytest.raises(FunctionResultError, match=f"(?s)UDF 'f' returned {said}") as caught:
        computed(values, data_type)
    assert "is not of type " in str(caught.value)


def test_a_value_is_shown_briefly() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError

    with pytest.raises(FunctionResultError, match="returned Odd … for row 0 of the batch, which is not of type int8"):
        computed([Odd()], pa.int8())
    with pytest.raises(FunctionResultError) as caught:
        computed(["x" * 10_000], pa.int8())
    assert len(str(caught.value)) < 300


def test_a_tensor_is_kept() -> None:
    made = computed([np.eye(2), None, np.zeros((2, 2))], pa.fixed_shape_tensor(pa.float32(), (2, 2)))
    assert made.type == pa.fixed_shape_tensor(pa.float32(), (2, 2))
    assert made.storage.to_pylist() == [[1.0, 0.0, 0.0, 1.0], None, [0.0] * 4]


# ------------------------------------------------------------------------------------------------------------ arrays


@pytest.mark.parametrize(
    ("result", "data_type", "expected"),
    [
        (pa.array([1, 2]), pa.int64(), [1, 2]),
        (pa.chunked_array([[1], [2]]), pa.int64(), [1, 2]),
        (pa.chunked_array([[1, 2]]), pa.int64(), [1, 2]),
        (np.array([1.0, 2.0]), pa.float32(), [1.0, 2.0]),
        (np.array([[1, 2], [3, 4]]), pa.list_(pa.float32(), 2), [[1.0, 2.0], [3.0, 4.0]]),
        ([1, None], pa.int8(), [1, None]),
        (pa.array([1.5, None]), pa.float32(), [1.5, None]),
        (pa.array([1, 2]), pa.float64(), [1.0, 2.0]),
        (pa.array([1.0, 2.0]), pa.int64(), [1, 2]),
        (pa.nulls(2), pa.list_(pa.int8()), [None, None]),
        (pa.array(["a", "b"]), pa.large_string(), ["a", "b"]),
        (pa.array([[1.5], None]), pa.list_(pa.float32()), [[1.5], None]),
        (pa.array([{"x": 1}, None]), pa.struct([("x", pa.int8())]), [{"x": 1}, None]),
        (pa.table({"x": [1, 2]}), pa.struct([("x", pa.int8())]), [{"x": 1}, {"x": 2}]),
        ({"x": [1, 2]}, pa.struct([("x", pa.int8())]), [{"x": 1}, {"x": 2}]),
    ],
)
def test_arrays_of_a_type_alike_are_cast(result: Any, data_type: pa.DataType, expected: list) -> None:
    made = of_arrays(result, data_type)
    assert (made.type, made.to_pylist()) == (data_type, expected)
    assert isinstance(made, pa.Array)


@pytest.mark.parametrize(
    ("result", "data_type", "said"),
    [
        (pa.array(["1", "2"]), pa.int64(), "returned an array of string, but its column has type int64"),
        (pa.array([1, 2]), pa.string(), "returned an array of int64, but its column has type string"),
        (pa.array([True, False]), pa.int64(), "returned an array of bool"),
        (pa.array([1.5, 2]), pa.int64(), "which is not an array of int64: Float value 1.500000 was truncated"),
        (pa.array([300, 2]), pa.int8(), "not an array of int8"),
        (pa.array([1e300, 2]), pa.float32(), "beyond the range of float"),
        (pa.array([[1], [2]]), pa.int64(), "returned an array of list<item: int64>"),
        (pa.array([{"y": 1}, None]), pa.struct([("x", pa.int8())]), "returned an array of struct<y: int64>"),
        (pa.scalar(1), pa.int64(), "which is not an array of int64"),
        (5, pa.int64(), "returned int 5, which is not an array of int64: it is not an array"),
        (None, pa.int64(), "returned NoneType None"),
        ("ab", pa.string(), "returned str 'ab'"),
        ({"x": [1, 2], "y": [1, 2]}, pa.struct([("x", pa.int8())]), "there is no field 'y'"),
        ({"x": [1, 2], "y": [1]}, pa.struct([("x", pa.int8()), ("y", pa.int8())]), "not an array of struct"),
    ],
)
def test_arrays_of_another_type_are_refused(result: Any, data_type: pa.DataType, said: str) -> None:
    with pytest.raises(FunctionResultError) as caught:
        of_arrays(result, data_type)
    assert said in str(caught.value)


def test_a_series_is_an_array() -> None:
    import pandas as pd

    assert of_arrays(pd.Series([1, 2]), pa.int32()).to_pylist() == [1, 2]


# --------------------------------------------------------------------------------------------------------- generated

LEAVES = st.sampled_from(
    [
        (pa.int8(), st.integers(-128, 127)),
        (pa.uint64(), st.integers(0, 2**64 - 1)),
        (pa.float64(), st.floats(allow_nan=False)),
        (pa.float32(), st.floats(width=32, allow_nan=False)),
        (pa.string(), st.text(max_size=3)),
        (pa.binary(), st.binary(max_size=3)),
        (pa.bool_(), st.booleans()),
    ]
)


def nested(inner: st.SearchStrategy) -> st.SearchStrategy:
    """Types made of types, each with a strategy of its values."""
    return st.one_of(
        inner.map(lambda one: (pa.list_(one[0]), st.lists(st.none() | one[1], max_size=3))),
        inner.map(lambda one: (pa.list_(one[0], 2), st.lists(st.none() | one[1], min_size=2, max_size=2))),
        st.tuples(inner, inner).map(
            lambda two: (
                pa.struct([("x", two[0][0]), ("y", two[1][0])]),
                st.fixed_dictionaries({"x": st.none() | two[0][1], "y": st.none() | two[1][1]}),
            )
        ),
    )


@settings(max_examples=150, deadline=None)
@given(st.recursive(LEAVES, nested, max_leaves=4), st.data())
def test_values_of_any_type_come_back(kind: tuple, data: st.DataObject) -> None:
    data_type, values = kind
    rows = data.draw(st.lists(st.none() | values, min_size=1, max_size=5))
    made = computed(rows, data_type)
    made.validate(full=True)
    assert (made.type, made.to_pylist()) == (data_type, rows)
