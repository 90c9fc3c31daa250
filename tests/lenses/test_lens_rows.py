"""Lenses for some of the rows, for entities below, for static chunks, and with components named by the data."""

from __future__ import annotations

import gc
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, ComponentDescriptor, TimeColumn
from chunkmill.engine.errors import LensError, SelectorError
from chunkmill.lenses import DeriveLens, LensSet, MutateLens, Selector, apply_lenses

MESSAGE = "Msg:message"


def chunk(rows: list[Any], kind: pa.DataType | None = None, entity: str = "/cam", extra: bool = False) -> Chunk:
    columns = [ComponentColumn(ComponentDescriptor(MESSAGE), pa.array([[r] for r in rows], kind and pa.list_(kind)))]
    if extra:
        columns.append(ComponentColumn(ComponentDescriptor("Other:x"), pa.array([[i] for i in range(len(rows))])))
    return Chunk.from_columns(entity, [TimeColumn("t", sequence=range(len(rows)))], columns)


def shown(chunks: list[Chunk]) -> list[tuple[str, dict[str, list[int]], dict[str, list[Any]]]]:
    return [
        (
            c.entity_path,
            {t.name: t.ticks.tolist() for t in c.data.timelines},
            {x.descriptor.component: x.values.to_pylist() for x in c.data.components},
        )
        for c in chunks
    ]


KINDS = [{"kind": "depth", "v": 1}, {"kind": "colour", "v": 2}, {"kind": None, "v": 3}, {"kind": "depth", "v": 4}]


def is_kind(word: str) -> Selector:
    return Selector(".kind").pipe(
        lambda kinds: pa.array([k == word if k is not None else None for k in kinds.to_pylist()])
    )


DEPTH = DeriveLens(MESSAGE).where(is_kind("depth")).to_component("Depth:v", ".v")
COLOUR = DeriveLens(MESSAGE).where(is_kind("colour")).to_component("Image:v", ".v")


@pytest.mark.parametrize("rows", [KINDS, KINDS[:1]], ids=["some", "all"])
@pytest.mark.heavy
def test_the_columns_of_a_chunk_are_free_as_soon_as_it_is_done_with(rows: list[Any]) -> None:
    lenses = LensSet([DEPTH, COLOUR])
    lenses.apply(chunk(rows))
    gc.collect()
    gc.disable()
    try:
        lenses.apply(chunk(rows))
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_lenses_share_the_rows_and_the_others_stay() -> None:
    found = shown(apply_lenses(chunk(KINDS), [DEPTH, COLOUR]))
    assert found == [
        ("/cam", {"t": [2]}, {MESSAGE: [[{"kind": None, "v": 3}]]}),
        ("/cam", {"t": [0, 3]}, {"Depth:v": [[1], [4]]}),
        ("/cam", {"t": [1]}, {"Image:v": [[2]]}),
    ]


def test_rows_left_over_stay_beside_other_columns_as_they_are() -> None:
    own, depth = shown(apply_lenses(chunk(KINDS, extra=True), DEPTH))
    kept = [None, [KINDS[1]], [KINDS[2]], None]
    assert own == ("/cam", {"t": [0, 1, 2, 3]}, {MESSAGE: kept, "Other:x": [[0], [1], [2], [3]]})
    assert depth[1] == {"t": [0, 3]}


@pytest.mark.parametrize(("mode", "entities"), [("drop_unmatched", 1), ("forward_unmatched", 2), ("forward_all", 2)])
def test_the_output_mode_says_whether_rows_left_over_are_kept(mode: str, entities: int) -> None:
    found = apply_lenses(chunk(KINDS), DEPTH, mode)
    assert len(found) == entities
    if mode == "forward_all":
        assert found[0].num_rows == 4


def test_rows_that_two_lenses_want_go_to_both_and_one_without_condition_takes_all() -> None:
    rows = [{"v": 1}, {"v": 2}]
    everything = DeriveLens(MESSAGE, output_child="all").to_component("A:v", ".v")
    found = shown(
        apply_lenses(chunk(rows), [everything, DeriveLens(MESSAGE).where(larger(1)).to_component("B:v", ".v")])
    )
    assert found == [("/cam", {"t": [1]}, {"B:v": [[2]]}), ("/cam/all", {"t": [0, 1]}, {"A:v": [[1], [2]]})]


def larger(than: int) -> Selector:
    return Selector(".v").pipe(lambda v: pa.array([x > than for x in v.to_pylist()]))


def test_a_condition_on_no_row_or_on_all_rows() -> None:
    rows = [{"v": 1}, {"v": 2}]
    none = DeriveLens(MESSAGE).where(larger(9)).to_component("B:v", ".v")
    assert shown(apply_lenses(chunk(rows), none)) == [("/cam", {"t": [0, 1]}, {MESSAGE: [[r] for r in rows]})]
    every = DeriveLens(MESSAGE).where(larger(0)).to_component("B:v", ".v")
    assert shown(apply_lenses(chunk(rows), every)) == [("/cam", {"t": [0, 1]}, {"B:v": [[1], [2]]})]
    missing = DeriveLens(MESSAGE).where(".nope").to_component("B:v", ".v")
    assert len(apply_lenses(chunk(rows), missing)) == 1


def test_a_condition_that_is_no_bool_is_an_error_and_loses_nothing_in_silence() -> None:
    lens = DeriveLens(MESSAGE).where(".v").to_component("B:v", ".v")
    with pytest.raises(LensError, match=r"A condition must give one bool per row, got List\(Int64\)"):
        apply_lenses(chunk([{"v": 1}]), lens)
    several = DeriveLens(MESSAGE).where(".v[]").to_component("B:v", ".v")
    with pytest.raises(LensError, match="one bool per row"):
        apply_lenses(chunk([{"v": [True, False]}]), several)


@pytest.mark.parametrize(("entity", "there"), [("/cam", "/cam/a/b"), ("/", "/a/b")])
def test_an_output_child_is_below_the_entity_of_the_input(entity: str, there: str) -> None:
    lens = DeriveLens(MESSAGE, output_child="a/b").to_component("A:v", ".v").to_constant("A:unit", ["m"])
    found = shown(apply_lenses(chunk([{"v": 1}], entity=entity), lens))
    assert found == [(there, {"t": [0]}, {"A:v": [[1]]}), (there, {}, {"A:unit": [["m"]]})]


def test_an_entity_and_a_child_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        DeriveLens(MESSAGE, output_entity="/a", output_child="b")


def test_static_rows_have_no_timelines() -> None:
    lens = (
        DeriveLens(MESSAGE, static=True, scatter=True).to_component("A:v", ".vs[]").to_timeline("s", "sequence", ".s")
    )
    (made,) = apply_lenses(chunk([{"vs": [1, 2], "s": 5}, {"vs": [3], "s": 6}]), lens)
    assert made.is_static
    assert shown([made]) == [("/cam", {}, {"A:v": [[1], [2], [3]]})]


def test_scatter_without_empty_rows() -> None:
    lens = DeriveLens(MESSAGE, scatter=True, keep_empty=False).to_component("A:v", ".vs[].v")
    lens = lens.to_timeline("s", "sequence", ".vs[].s")
    kind = pa.struct({"vs": pa.list_(pa.struct({"v": pa.int64(), "s": pa.int64()}))})
    rows = [{"vs": []}, {"vs": [{"v": 1, "s": 7}, {"v": 2, "s": 8}]}, {"vs": None}, {"vs": [{"v": 3, "s": 9}]}]
    found = shown(apply_lenses(chunk(rows, kind), lens))
    assert found == [("/cam", {"s": [7, 8, 9], "t": [1, 1, 3]}, {"A:v": [[1], [2], [3]]})]
    single = shown(apply_lenses(chunk([rows[0], rows[3]], kind), lens))
    assert single == [("/cam", {"s": [9], "t": [1]}, {"A:v": [[3]]})]
    assert apply_lenses(chunk([{"vs": []}, {"vs": None}], kind), lens) == []


def test_components_named_by_the_data() -> None:
    rows = [{"f": {"x": [1.0, 2.0], "ring": 1, "none": None}}, {"f": {"x": None, "ring": 2, "none": None}}]
    kind = pa.struct(
        {"f": pa.struct({"x": pa.list_(pa.float64()), "ring": pa.uint16(), "none": pa.int8()})},
    )
    lens = DeriveLens(MESSAGE).to_components("Points3D:", ".f", archetype="rerun.archetypes.Points3D")
    (made,) = apply_lenses(chunk(rows, kind), lens)
    assert shown([made])[0][2] == {"Points3D:ring": [[1], [2]], "Points3D:x": [[1.0, 2.0], None]}
    descriptor = made.data.components[0].descriptor
    assert descriptor == ComponentDescriptor("Points3D:ring", "rerun.archetypes.Points3D")
    with pytest.raises(LensError, match=r"need one struct per row, got List\(List\(Float64\)\)"):
        apply_lenses(chunk(rows, kind), DeriveLens(MESSAGE).to_components("P:", ".f.x"))


def test_names_of_several_series_are_one_constant() -> None:
    lens = DeriveLens(MESSAGE).to_scalars(".v", names=["a"]).to_constant("Unit:name", pa.array(["m"]))
    named = lens.to_scalars(".v", ".v", names=["b", "c"])
    assert [c.instances.to_pylist() for c in named.constants] == [["m"], ["a", "b", "c"]]


def test_such_lenses_compare_pickle_and_describe_themselves() -> None:
    lens = (
        DeriveLens(MESSAGE, output_child="below", scatter=True, keep_empty=False)
        .where(".ok")
        .to_components("P:", ".f")
        .to_constant("Unit:name", ["m"])
    )
    again = pickle.loads(pickle.dumps(lens))
    assert again == lens
    assert hash(again) == hash(lens)
    assert lens.describe() == "Msg:message where .ok -> below at below P:* = .f (scattered)"
    assert LensSet([lens]).describe().startswith("lenses(Msg:message where .ok")


def test_rows_keep_their_values_whatever_the_condition() -> None:
    rng = np.random.default_rng(5)
    values = rng.integers(0, 100, 500)
    rows = [{"v": int(v)} for v in values]
    cut = 37
    high = DeriveLens(MESSAGE).where(larger(cut)).to_component("H:v", ".v")
    low = shown(apply_lenses(chunk(rows), high))
    got = {t: v for _, lines, columns in low for t, (v,) in zip(lines["t"], next(iter(columns.values())), strict=True)}
    assert got == {i: v if v > cut else {"v": v} for i, v in enumerate(values.tolist())}


def test_a_required_component_that_is_not_there_is_an_error() -> None:
    rows = chunk([{"v": 1}, {"v": 2}])
    assert shown(apply_lenses(rows, DeriveLens(MESSAGE).to_component("A:v", ".v").to_component("A:w", ".w"))) == [
        ("/cam", {"t": [0, 1]}, {"A:v": [[1], [2]]})
    ]
    lens = DeriveLens(MESSAGE, output_child="a").to_component("A:v", ".v").to_component("A:w", ".w", required=True)
    with pytest.raises(LensError, match=r"`\.w` gives nothing: there is no such field"):
        apply_lenses(rows, lens)
    there = DeriveLens(MESSAGE).to_component("A:v", ".v", required=True)
    assert shown(apply_lenses(rows, there)) == [("/cam", {"t": [0, 1]}, {"A:v": [[1], [2]]})]


def test_a_callable_may_refuse_values_in_its_own_words() -> None:
    def refuse(values: pa.Array) -> pa.Array:
        raise SelectorError(f"{len(values)} values are too many")

    lens = DeriveLens(MESSAGE).to_component("A:v", Selector(".v").pipe(refuse))
    with pytest.raises(LensError, match=r"input: `Msg:message`\): 2 values are too many"):
        apply_lenses(chunk([{"v": 1}, {"v": 2}]), lens)


@pytest.mark.parametrize("scatter", [False, True])
def test_nothing_is_stored_under_rows_that_are_null(scatter: bool) -> None:
    rows = [{"v": 1}, {"v": None}, {"v": 3}]
    lens = DeriveLens(MESSAGE, output_child="a", scatter=scatter).to_component("A:v", ".v" if scatter else ".v!")
    (made,) = apply_lenses(chunk(rows, pa.struct({"v": pa.int64()})), lens)
    column = made.data.components[0].values
    assert (column.to_pylist(), len(column.values)) == ([[1], None, [3]], 2)
    (own,) = apply_lenses(chunk(rows), DeriveLens(MESSAGE).to_component("A:v", ".v!"))
    assert len(own.data.components[0].values.values) == 2
    (changed,) = apply_lenses(chunk(rows), MutateLens(MESSAGE, ".v!"))
    assert len(changed.data.components[0].values.values) == 2
