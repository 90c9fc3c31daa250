"""Values of any type made of numbers, and functions of computed columns of any kind that give such."""

from __future__ import annotations

import datetime
import decimal
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
from chunkmill.engine.tables import UDF, Columns, udf

NULLS: Final = 5
"""One in so many values is null."""
_EPOCH: Final = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


def mixed(*parts: Any) -> int:
    """A number that stands for some values, in each process the same."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=6).digest(), "big")


def _time(number: int) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(milliseconds=number % 10**12)


_PLAIN: Final[Mapping[str, tuple[pa.DataType, Callable[[int], Any]]]] = {
    "int64": (pa.int64(), lambda number: number % 30_000),
    "uint8": (pa.uint8(), lambda number: number % 256),
    "float32": (pa.float32(), lambda number: (number % 4096) / 8),
    "float64": (pa.float64(), lambda number: (number % 4096) / 8),
    "bool": (pa.bool_(), lambda number: number % 2 == 1),
    "string": (pa.string(), lambda number: "é" * (number % 3) + f"{number % 10_000}" * (number % 4)),
    "large_string": (pa.large_string(), lambda number: "é" * (number % 3) + f"{number % 10_000}"),
    "binary": (pa.binary(), lambda number: number.to_bytes(8, "big") * (number % 7)),
    "large_binary": (pa.large_binary(), lambda number: number.to_bytes(8, "big") * (number % 7)),
    "timestamp": (pa.timestamp("us"), lambda number: _time(number).replace(tzinfo=None)),
    "timestamp_utc": (pa.timestamp("ms", "UTC"), _time),
    "date": (pa.date32(), lambda number: _time(number).date()),
    "duration": (pa.duration("us"), lambda number: datetime.timedelta(microseconds=number % 10**9)),
    "decimal": (pa.decimal128(12, 3), lambda number: decimal.Decimal(number % 10**8) / 1000),
}
_MADE: Final = dict(_PLAIN.values()) | {
    pa.int32(): _PLAIN["int64"][1],
    pa.int16(): _PLAIN["int64"][1],
}

TYPES: Final[Mapping[str, pa.DataType]] = {
    **{name: type_ for name, (type_, _) in _PLAIN.items()},
    "list": pa.list_(pa.int32()),
    "texts": pa.list_(pa.string()),
    "vector": pa.list_(pa.float32(), 3),
    "struct": pa.struct({"x": pa.int64(), "y": pa.string()}),
    "structs": pa.list_(pa.struct({"x": pa.float64(), "z": pa.list_(pa.int16())})),
}


def value_of(kind: pa.DataType, token: int) -> Any:
    """A value of a type for a number, the same for the same; now and then null."""
    number = token // NULLS
    if token % NULLS == 0:
        return None
    if pa.types.is_struct(kind):
        return {one.name: value_of(one.type, mixed(token, one.name)) for one in kind}
    if pa.types.is_fixed_size_list(kind):
        return [float(number % 100 + at) for at in range(kind.list_size)]
    if pa.types.is_list(kind):
        return [value_of(kind.value_type, mixed(token, at)) for at in range(number % 4)]
    return _MADE[kind](number)


class Recipe(NamedTuple):
    """A function of rows: its outputs and their types, a number that is its own, and whether it gives nulls."""

    types: Mapping[str, pa.DataType]
    salt: int
    has_nulls: bool

    def row(self, values: Sequence[Any]) -> dict[str, Any]:
        """The outputs for a row."""
        found = {}
        for name, kind in self.types.items():
            token = mixed(self.salt, name, *values)
            found[name] = value_of(kind, token if self.has_nulls else token // NULLS * NULLS + 1)
        return found

    def stored(self, values: Sequence[Any]) -> dict[str, Any]:
        """The outputs for a row, as columns have them."""
        row = self.row(values)
        return {name: pa.array([row[name]], kind).to_pylist()[0] for name, kind in self.types.items()}

    @property
    def fields(self) -> list[pa.Field]:
        """The outputs, as fields."""
        return [pa.field(name, type_) for name, type_ in self.types.items()]

    def of_row(self, *values: Any, is_single: bool) -> Any:
        """What a function of rows returns."""
        row = self.row(values)
        return next(iter(row.values())) if is_single else row

    def of_arrays(self, *columns: pa.Array, is_single: bool) -> Any:
        """What a function of arrays returns."""
        rows = [self.row(values) for values in zip(*(column.to_pylist() for column in columns), strict=True)]
        arrays = [pa.array([row[name] for row in rows], type_) for name, type_ in self.types.items()]
        return arrays[0] if is_single else pa.StructArray.from_arrays(arrays, fields=self.fields)


def _of_rows(recipe: Recipe, _: Sequence[str], *, is_single: bool) -> Any:
    def function(*values: Any) -> Any:
        return recipe.of_row(*values, is_single=is_single)

    return function


def _of_a_class(recipe: Recipe, _: Sequence[str], *, is_single: bool) -> Any:
    class Function:
        def __init__(self) -> None:
            self.made = partial(recipe.of_row, is_single=is_single)

        def __call__(self, *values: Any) -> Any:
            return self.made(*values)

    return Function


def _of_arrays(recipe: Recipe, inputs: Sequence[str], *, is_single: bool) -> Any:
    def one(a: pa.Array) -> Any:
        return recipe.of_arrays(a, is_single=is_single)

    def two(a: pa.Array, b: pa.Array) -> Any:
        return recipe.of_arrays(a, b, is_single=is_single)

    return one if len(inputs) == 1 else two


def _of_batches(recipe: Recipe, inputs: Sequence[str], *, is_single: bool) -> Any:
    def function(batch: pa.RecordBatch) -> Any:
        return recipe.of_arrays(*(batch.column(name) for name in inputs), is_single=is_single)

    return function


KINDS: Final = {"scalar": _of_rows, "class": _of_a_class, "array": _of_arrays, "batch": _of_batches}


def made_function(
    recipe: Recipe, kind: str, inputs: Sequence[str], *, is_single: bool, options: Mapping[str, Any]
) -> UDF:
    """A function of computed columns of one of the kinds, of one or two columns."""
    function = KINDS[kind](recipe, inputs, is_single=is_single)
    called = function.__call__ if isinstance(function, type) else function
    taken = {"batch": {"batch": pa.RecordBatch}, "array": dict.fromkeys("ab"[: len(inputs)], pa.Array)}
    called.__annotations__ = dict(taken.get(kind, {}))
    if not is_single:
        returned = NamedTuple("Made", [(name, Any) for name in recipe.types])  # type: ignore[misc]
        called.__annotations__["return"] = Columns[returned]
    data_type = recipe.fields[0].type if is_single else pa.struct(recipe.fields)
    named = {} if kind == "batch" else {"input_columns": list(inputs)}
    return udf(data_type, name=f"made_{kind}", version=f"{recipe.salt}", **named, **options)(function)
