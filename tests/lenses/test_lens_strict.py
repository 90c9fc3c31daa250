"""Lenses that want every field, and columns whose type has no nulls."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, ComponentDescriptor, TimeColumn
from chunkmill.engine.errors import LensError
from chunkmill.lenses import DeriveLens, Selector, apply_lenses

MESSAGE = "Msg:message"


def chunk(rows: list[Any]) -> Chunk:
    column = ComponentColumn(ComponentDescriptor(MESSAGE), pa.array([[row] for row in rows]))
    return Chunk.from_columns("/t", [TimeColumn("t", sequence=range(len(rows)))], [column])


LENS = DeriveLens(MESSAGE, strict=True).to_component("A:v", ".v")


@pytest.mark.parametrize(
    "lens",
    [
        LENS.to_component("A:w", ".w"),
        LENS.to_timeline("s", "sequence", ".w"),
        LENS.to_components("A:", ".w"),
        LENS.where(".w"),
        LENS.to_scalars(".v", ".w"),
    ],
)
def test_a_strict_lens_wants_every_field(lens: DeriveLens) -> None:
    with pytest.raises(LensError, match="gives nothing: there is no such field"):
        apply_lenses(chunk([{"v": 1}]), lens)


def test_a_strict_lens_takes_nulls() -> None:
    (made,) = apply_lenses(chunk([{"v": 1}, {"v": None}]), LENS)
    assert made.data.components[0].values.to_pylist() == [[1], [None]]


def test_a_column_without_nulls_says_so_in_its_type() -> None:
    lens = DeriveLens(MESSAGE).to_component("A:v", ".v", nullable=False)
    (made,) = apply_lenses(chunk([{"v": 1}, {"v": 2}]), lens)
    values = made.data.components[0].values
    assert (str(values.type), values.to_pylist()) == ("list<item: int64 not null>", [[1], [2]])
    with pytest.raises(LensError, match="a value is null in a column that allows no nulls"):
        apply_lenses(chunk([{"v": 1}, {"v": None}]), lens)


def test_numbers_packed_into_vectors() -> None:
    rows = pa.array([{"x": 1, "y": 2.5}, {"x": None, "y": 1.0}])
    packed = Selector.pack(".x", ".y").execute(rows)
    assert packed is not None
    assert str(packed.type) == "fixed_size_list<item: float not null>[2]"
    assert packed.to_pylist() == [[1, 2.5], None]
    flat = Selector.pack(".y", ".y", type="float64").pipe(Selector("[]")).execute(rows)
    assert flat is not None
    assert (flat.type, flat.to_pylist()) == (pa.float64(), [2.5, 2.5, 1, 1])
    assert Selector.pack(".x", ".nothing").execute(rows) is None


def test_packing_needs_selectors_and_a_float_type() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Selector.pack()
    with pytest.raises(ValueError, match="float32 and float64, not int32"):
        Selector.pack(".x", type="int32")


def test_a_field_whose_component_is_taken_is_left_out() -> None:
    lens = DeriveLens(MESSAGE).to_component("P:a", ".f.b").to_components("P:", ".f")
    (made,) = apply_lenses(chunk([{"f": {"a": 1, "b": 2}}]), lens)
    assert {c.descriptor.component: c.values.to_pylist() for c in made.data.components} == {"P:a": [[2]], "P:b": [[2]]}
