"""Functions held against tables: columns that are missing, and types that do not go together."""

from __future__ import annotations

import datetime
import decimal
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.errors import UsageError
from chunkmill.engine.tables import UDF, check_against, connect, udf

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])


def of(annotation: Any) -> UDF:
    """A function of a column ``a`` that is annotated so."""

    def f(a):
        return None

    if annotation is not None:
        f.__annotations__["a"] = annotation
    return udf(pa.int8())(f)


def test_columns_have_to_be_there() -> None:
    @udf
    def x(a: int, zz: int, yy: int) -> int: ...

    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the whole text)
        check_against(SCHEMA, x)
    assert str(caught.value) == (
        "CM501: UDF 'x' expects input columns ['zz', 'yy'] which are not found in table schema. "
        "Available columns: ['a', 'b']."
    )
    with pytest.raises(UsageError, match=r"expects input columns \['c'\]"):
        check_against(SCHEMA, x.with_inputs(["a", "a", "c"]))
    check_against(SCHEMA, x.with_inputs(["a", "a", "a"]))


FITTING = [
    (int, pa.int8()),
    (int, pa.uint64()),
    (int | None, pa.int32()),
    (int, pa.null()),
    (float, pa.float32()),
    (float, pa.int64()),
    (float, pa.decimal128(5)),
    (str, pa.large_string()),
    (str, pa.dictionary(pa.int8(), pa.string())),
    (bool, pa.bool_()),
    (bytes, pa.large_binary()),
    (bytes, pa.binary(4)),
    (list, pa.list_(pa.int8())),
    (list[float], pa.list_(pa.float32(), 3)),
    (dict, pa.struct([("x", pa.int8())])),
    (datetime.datetime, pa.timestamp("ns")),
    (datetime.date, pa.date64()),
    (datetime.time, pa.time32("s")),
    (datetime.timedelta, pa.duration("ms")),
    (decimal.Decimal, pa.decimal256(50)),
    (Any, pa.string()),
    (object, pa.string()),
    (pa.Array, pa.string()),
]


@pytest.mark.parametrize(("annotation", "data_type"), FITTING)
def test_types_that_go_together_say_nothing(annotation: Any, data_type: pa.DataType) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_against(pa.schema([("a", data_type)]), of(annotation))


@pytest.mark.parametrize(
    ("annotation", "data_type"),
    [
        (int, pa.string()),
        (int, pa.float64()),
        (int, pa.bool_()),
        (str, pa.int64()),
        (float, pa.string()),
        (bytes, pa.string()),
        (bool, pa.int8()),
        (datetime.datetime, pa.string()),
        (datetime.date, pa.timestamp("us")),
        (int, pa.dictionary(pa.int8(), pa.string())),
        (int, pa.list_(pa.int64())),
        (int, pa.struct([("x", pa.int64())])),
        (str, pa.list_(pa.string())),
        (float, pa.date32()),
        (list, pa.int64()),
        (dict, pa.int64()),
        (datetime.datetime, pa.float64()),
    ],
)
def test_types_that_do_not_go_together_are_refused(annotation: Any, data_type: pa.DataType) -> None:
    with pytest.raises(ValueError, match=f"UDF 'f': its parameter 'a' is annotated as {annotation.__name__}, but the"):
        check_against(pa.schema([("a", data_type)]), of(annotation))


def test_a_table_refuses_a_function_that_does_not_fit_its_columns(tmp_path: Path) -> None:
    table = connect(str(tmp_path), executor="inline").create_table("t", [{"a": 1.5, "b": "x"}])

    @udf
    def x(a: int) -> int: ...

    @udf(input_columns=["b"])
    def y(a: float) -> int: ...

    for function in (x, y):
        with pytest.raises(ValueError, match=r"its parameter 'a' is annotated as (int|float), but the column"):
            table.add_columns({"c": function})
    with pytest.raises(ValueError, match="its parameter 'a' is annotated as int, but the column 'a' has type double"):
        table.search(None).select({"c": x}).to_arrow()
    assert table.schema.names == ["a", "b"] and table.version == 1


@pytest.mark.parametrize("annotation", [None, np.ndarray, "Nowhere", int | str])
def test_annotations_that_say_nothing_of_a_type_are_warned_of(annotation: Any) -> None:
    with pytest.warns(
        UserWarning, match=r"UDF 'f': the types of the columns \['a'\] are not checked, as a has no type"
    ):
        check_against(SCHEMA, of(annotation))


def test_columns_behind_the_parameters_are_warned_of() -> None:
    @udf(input_columns=["a", "b"])
    def first(*values) -> int: ...

    with pytest.warns(UserWarning, match=r"not checked, as \*, \* have no type annotation"):
        check_against(SCHEMA, first)


def test_a_function_of_a_batch_names_no_columns() -> None:
    def whole(rows: pa.RecordBatch): ...

    check_against(SCHEMA, udf(pa.int8())(whole))
    with pytest.raises(UsageError, match=r"UDF 'whole' takes a pyarrow.RecordBatch of all columns, but has input_col"):
        check_against(SCHEMA, udf(pa.int8(), input_columns=["a"])(whole))
