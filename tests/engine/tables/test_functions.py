"""Functions of computed columns: how they are made, with which columns they are called, and what they refuse."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from chunkmill.engine.errors import UsageError
from chunkmill.engine.tables import UDF, Columns, FunctionKind, Retry, Skip, UnpackedUDF, skip_on_error, udf


def batch(**columns: list) -> pa.RecordBatch:
    return pa.record_batch(columns)


class Size(NamedTuple):
    height: int
    width: float


@dataclasses.dataclass
class Point:
    x: int
    label: str | None


class Named(TypedDict):
    first: str
    last: str


@udf
def doubled(a: int) -> int:
    """Twice as much."""
    return a * 2


# ------------------------------------------------------------------------------------------------------------- kinds


def test_a_function_is_called_for_each_row_with_none_for_null() -> None:
    @udf
    def told(a: int | None, b: str) -> str:
        return f"{a}{b}"

    assert told.kind is FunctionKind.SCALAR
    assert told.inputs == ("a", "b")
    assert told.compute(batch(a=[1, None], b=["x", "y"])).to_pylist() == ["1x", "Noney"]


def test_a_function_is_called_with_whole_columns() -> None:
    @udf(pa.int64())
    def summed(a: pa.Array, b: pa.Array) -> pa.Array:
        assert isinstance(a, pa.Array)
        return pc.add(a, b)

    assert summed.kind is FunctionKind.ARRAY
    assert summed.compute(batch(b=[10, 20], a=[1, 2])).to_pylist() == [11, 22]


def test_a_function_is_called_with_a_batch_of_all_columns_or_of_some() -> None:
    @udf(data_type=pa.string())
    def names(rows: pa.RecordBatch) -> pa.Array:
        return pa.array(["".join(rows.schema.names)] * rows.num_rows)

    assert names.kind is FunctionKind.RECORD_BATCH
    assert names.inputs is None
    assert names.compute(batch(a=[1], b=[2])).to_pylist() == ["ab"]
    chosen = udf(data_type=pa.string(), input_columns=["c", "a"])(names.function)
    assert chosen.compute(batch(a=[1], b=[2], c=[3])).to_pylist() == ["ca"]


def test_columns_are_found_by_name_or_else_taken_in_order() -> None:
    @udf
    def less(a: int, b: int) -> int:
        return a - b

    assert less.compute(batch(b=[1], a=[5])).to_pylist() == [4]
    assert less.compute(batch(x=[5], y=[1])).to_pylist() == [4]
    assert less.with_inputs(["x", "x"]).compute(batch(x=[5])).to_pylist() == [0]
    with pytest.raises(
        UsageError, match=r"UDF 'less' is called with the columns \['a', 'b'\], but the batch has \['x'\]"
    ):
        less.compute(batch(x=[5]))


def test_no_rows_need_no_call() -> None:
    @udf(pa.list_(pa.int8()))
    def never(a: pa.Array) -> pa.Array:
        raise AssertionError

    made = never.compute(pa.record_batch({"a": pa.array([], pa.int64())}))
    assert (made.type, len(made)) == (pa.list_(pa.int8()), 0)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Size, [("height", pa.int64()), ("width", pa.float32())]),
        (Point, [("x", pa.int64()), ("label", pa.string())]),
        (Named, [("first", pa.string()), ("last", pa.string())]),
    ],
)
def test_columns_of_t_are_those_of_its_fields(kind: Any, fields: list) -> None:
    def f(a: int):
        return None

    f.__annotations__["return"] = Columns[kind]
    made = udf(f)
    assert made.outputs == tuple(pa.field(*one) for one in fields)
    assert made.data_type == pa.struct(fields)
    assert made.compute(batch(a=[1])).to_pylist() == [None]


def test_several_columns_come_of_tuples_objects_dicts_structs_and_arrays() -> None:
    expected = [{"height": 1, "width": 0.5}, None, {"height": 3, "width": 1.5}]
    rows = batch(a=[1, None, 3])

    class Box:
        def __init__(self, a: int) -> None:
            self.height, self.width = a, a / 2

    def of(function: Any) -> list:
        def f(a: int) -> Columns[Size]:
            return None if a is None else function(a)

        return udf(f).compute(rows).to_pylist()

    assert of(lambda a: Size(a, a / 2)) == expected
    assert of(lambda a: (a, a / 2)) == expected
    assert of(lambda a: {"width": a / 2, "height": a}) == expected
    assert of(Box) == expected

    @udf
    def arrays(a: pa.Array) -> Columns[Size]:
        return Size(a, pc.divide(pc.cast(a, pa.float64()), 2.0))

    @udf
    def batches(a: pa.Array) -> Columns[Size]:
        return pa.record_batch({"height": a, "width": pc.divide(pc.cast(a, pa.float64()), 2.0)})

    whole = [{"height": 1, "width": 0.5}, {"height": None, "width": None}, {"height": 3, "width": 1.5}]
    assert arrays.compute(rows).to_pylist() == batches.compute(rows).to_pylist() == whole
    assert arrays.compute(rows).type == pa.struct([("height", pa.int64()), ("width", pa.float32())])


def test_a_struct_may_say_the_types_of_several_columns() -> None:
    types = pa.struct([("height", pa.int8()), ("width", pa.list_(pa.float32()))])

    @udf(types)
    def sized(a: int) -> Columns[Size]:
        return Size(a, np.zeros(2))

    assert sized.outputs == tuple(types)
    with pytest.raises(UsageError, match=r"returns Columns of \['height', 'width'\], but its data_type is int8"):
        udf(pa.int8())(sized.function)


def test_the_type_of_a_field_may_stand_in_its_annotation() -> None:
    class Embedded(NamedTuple):
        vector: Annotated[list[float], pa.list_(pa.float32(), 2)]

    @udf
    def embedded(a: int) -> Columns[Embedded]:
        return Embedded([a, a])

    @udf
    def one(a: int) -> Annotated[int, pa.uint8()]:
        return a

    assert embedded.compute(batch(a=[1])).to_pylist() == [{"vector": [1.0, 1.0]}]
    assert one.compute(batch(a=[1])).type == pa.uint8()


# ------------------------------------------------------------------------------------------------------------- types


@pytest.mark.parametrize(
    ("annotation", "data_type"),
    [
        (float, pa.float32()),
        (int, pa.int64()),
        (str, pa.string()),
        (bool, pa.bool_()),
        (bytes, pa.binary()),
        (int | None, pa.int64()),
        (typing.Optional[str], pa.string()),  # noqa: UP045 (as older code has it)
        ("float | None", pa.float32()),
    ],
)
def test_types_follow_from_annotations(annotation: Any, data_type: pa.DataType) -> None:
    def f(a: int):
        return None

    f.__annotations__["return"] = annotation
    assert udf(f).data_type == data_type
    assert udf(pa.int8())(f).data_type == pa.int8()


@pytest.mark.parametrize(
    "annotation", [list[float], np.ndarray, dict, int | str, pa.Array, "unknown_name", "list[", type, None]
)
def test_other_types_have_to_be_given(annotation: Any) -> None:
    def f(a: int):
        return None

    f.__annotations__["return"] = annotation
    with pytest.raises(UsageError, match=r"UDF 'f' has the return annotation .*, which does not determine"):
        udf(f)
    assert udf(pa.list_(pa.float32()))(f).compute(batch(a=[1])).to_pylist() == [None]


def test_without_a_return_annotation_a_type_has_to_be_given() -> None:
    with pytest.raises(
        ValueError, match=r"UDF '<lambda>' has no return annotation.*Write @udf\(data_type=pyarrow\.…\)"
    ):
        udf(lambda a: a)
    assert udf(pa.int8())(lambda a: a + 1).compute(batch(a=[1])).to_pylist() == [2]


def test_functions_of_arrays_and_batches_need_a_type() -> None:
    def arrays(a: pa.Array) -> int: ...
    def batches(a: pa.RecordBatch) -> int: ...

    with pytest.raises(UsageError, match=r"UDF 'arrays' takes pyarrow\.Arrays, so the type"):
        udf(arrays)
    with pytest.raises(UsageError, match=r"UDF 'batches' takes a pyarrow\.RecordBatchs?, so the type"):
        udf(batches)


def test_columns_of_a_class_that_is_nowhere_to_be_found_are_refused() -> None:
    def f(a: int) -> Columns[Nowhere]: ...  # noqa: F821

    def g(a: int) -> Columns[int]: ...

    class Vague(NamedTuple):
        items: list[float]

    def h(a: int) -> Columns[Vague]: ...

    class Empty(NamedTuple):
        pass

    def none(a: int) -> Columns[Empty]: ...

    with pytest.raises(UsageError, match=r"UDF 'f' returns Columns\[Nowhere\], which cannot be resolved: NameError"):
        udf(f)
    with pytest.raises(UsageError, match=r"UDF 'g': Columns\[T\] needs a NamedTuple, a dataclass or a TypedDict, not"):
        udf(g)
    with pytest.raises(
        UsageError, match=r"UDF 'h': the type of the column 'items' cannot be derived from its annotation"
    ):
        udf(h)
    with pytest.raises(UsageError, match=r"Empty of Columns\[T\] has no fields"):
        udf(none)


# ------------------------------------------------------------------------------------------------------ parameters


def test_a_parameter_with_a_default_is_a_constant_unless_it_is_named() -> None:
    @udf
    def scaled(a: int, by: int = 10) -> int:
        return a * by

    assert scaled.inputs == ("a",)
    assert scaled.compute(batch(a=[2])).to_pylist() == [20]
    assert scaled.with_inputs(["a", "b"]).compute(batch(a=[2], b=[3])).to_pylist() == [6]


def test_inputs_are_bound_by_position_and_counted() -> None:
    @udf(input_columns=["price", "tax"])
    def total(a: int, b: int) -> int:
        return a + b

    assert total.inputs == ("price", "tax")
    assert total.with_inputs(["a", "b"]).inputs == ("a", "b")
    assert total.inputs == ("price", "tax")
    with pytest.raises(ValueError, match="UDF 'total' expects at least 2 parameters but 1 input_columns were provided"):
        total.with_inputs(["a"])
    with pytest.raises(ValueError, match="UDF 'total' expects at most 2 parameters but 3 input_columns were provided"):
        total.with_inputs(["a", "b", "c"])
    with pytest.raises(TypeError, match="input_columns must be a list of column names, not 'ab'"):
        total.with_inputs("ab")
    with pytest.raises(TypeError, match=r"not \[1, 2\]"):
        total.with_inputs([1, 2])


def test_any_number_of_columns_may_be_named() -> None:
    @udf(input_columns=["a", "b", "c"])
    def most(*values: int) -> int:
        return max(values)

    assert most.compute(batch(a=[1], b=[7], c=[3])).to_pylist() == [7]
    with pytest.raises(UsageError, match="expects at least 1 parameters but 0 input_columns"):
        most.with_inputs([])
    with pytest.raises(UsageError, match="has no parameter without a default"):
        udf(most.function)


def test_functions_that_are_no_columns_are_refused() -> None:
    def rows(a: int) -> Iterator[int]:
        yield a

    async def later(a: int) -> int:
        return a

    def nothing() -> int:
        return 1

    def keyword(*, a: int) -> int:
        return a

    def both(a: pa.Array, b: int) -> int: ...
    def two(a: pa.RecordBatch, b: pa.RecordBatch) -> int: ...

    class Idle:
        pass

    with pytest.raises(TypeError, match=r"UDF 'rows' yields rows: .*table functions"):
        udf(rows)
    with pytest.raises(TypeError, match="UDF 'later' is a coroutine function"):
        udf(later)
    with pytest.raises(UsageError, match="UDF 'nothing' has no parameter"):
        udf(nothing)
    with pytest.raises(UsageError, match="UDF 'keyword' has the keyword-only parameter 'a'"):
        udf(keyword)
    with pytest.raises(UsageError, match=r"UDF 'both' mixes pyarrow\.Array and row values"):
        udf(both)
    with pytest.raises(UsageError, match="a batch must be the only one"):
        udf(two)
    with pytest.raises(TypeError, match=r"__call__, which .*Idle.* lacks"):
        udf(Idle)
    with pytest.raises(TypeError, match=r"or a pyarrow\.DataType, not 'int64'"):
        udf("int64")
    with pytest.raises(TypeError, match="not for a 'partial' object"):
        udf(functools.partial(rows, 1))


# ----------------------------------------------------------------------------------------------------------- options


def test_options_are_kept_and_checked() -> None:
    made = udf(
        pa.int8(),
        name="n",
        version="v",
        num_cpus=2,
        num_gpus=0.5,
        memory=1 << 30,
        checkpoint_size=10,
        min_checkpoint_size=2,
        max_checkpoint_size=20,
        task_size=100,
        timeout=1.5,
        on_error=[Retry(OSError), Skip()],
        field_metadata={"unit": "m"},
        auto_backfill=True,
    )(doubled.function)
    assert (made.name, made.version, made.module, made.qualname) == ("n", "v", __name__, "doubled")
    assert (made.num_cpus, made.num_gpus, made.memory) == (2, 0.5, 1 << 30)
    assert (made.checkpoint_size, made.min_checkpoint_size, made.max_checkpoint_size, made.task_size) == (
        10,
        2,
        20,
        100,
    )
    assert (made.timeout, made.field_metadata, made.auto_backfill) == (1.5, {"unit": "m"}, True)
    assert [type(policy) for policy in made.policy] == [Retry, Skip]
    plain = doubled
    assert (plain.num_cpus, plain.num_gpus, plain.memory, plain.min_checkpoint_size, plain.policy) == (
        1,
        None,
        None,
        1,
        (),
    )
    assert (plain.version, plain.name) == (plain.digest, "doubled")


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"num_cpus": -1}, ValueError, "num_cpus is -1, but must be at least 0"),
        ({"num_cpus": None}, TypeError, "num_cpus must be a number, not None"),
        ({"num_cpus": float("nan")}, ValueError, "num_cpus is nan"),
        ({"memory": 1.5}, TypeError, "memory must be a number, not 1.5"),
        ({"memory": True}, TypeError, "memory must be a number, not True"),
        ({"min_checkpoint_size": 0}, ValueError, "must be at least 1"),
        ({"max_checkpoint_size": 2, "min_checkpoint_size": 3}, ValueError, "max_checkpoint_size 2 is less than"),
        ({"timeout": 0}, ValueError, "timeout is 0 seconds"),
        ({"timeout": "1"}, TypeError, "timeout must be a number"),
        ({"on_error": Skip(), "error_handling": Skip()}, ValueError, "two names of the same argument"),
        ({"checkpoint_size": 2, "batch_size": 3}, ValueError, "two names of the same argument"),
        ({"on_error": [ValueError]}, TypeError, "on_error must be a list of Retry, Skip and Fail, but has"),
        ({"field_metadata": {"virtual_column.udf": "x"}}, ValueError, "begins with virtual_column"),
    ],
)
def test_options_that_no_run_could_follow_are_refused(options: dict, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        udf(**options)(doubled.function)


def test_a_timeout_is_of_rows() -> None:
    with pytest.raises(UsageError, match="a timeout is for one row"):
        udf(pa.int8(), timeout=1)(_whole)


def _whole(a: pa.Array) -> pa.Array:
    return a


def test_older_names_of_options() -> None:
    with pytest.warns(DeprecationWarning, match="batch_size is an older name of checkpoint_size"):
        made = udf(batch_size=7, error_handling=skip_on_error())(doubled.function)
    assert (made.checkpoint_size, len(made.policy)) == (7, 1)


def test_a_udf_is_its_function_and_says_what_it_is() -> None:
    assert doubled(4) == 8
    assert repr(doubled) == "UDF(doubled(a) -> int64, scalar)"
    assert hash(doubled) and doubled != udf(doubled.function)
    assert isinstance(doubled, UDF)


def test_unpacked_functions_give_several_columns() -> None:
    @udf
    def sized(a: int) -> Columns[Size]:
        return Size(a, a)

    assert UnpackedUDF(sized, prefix="img_").prefix == "img_"
    with pytest.raises(UsageError, match="UDF 'doubled' returns one column"):
        UnpackedUDF(doubled)
    with pytest.raises(TypeError, match="argument 'udf'"):
        UnpackedUDF(len)
