"""Lenses on single chunks, beyond the listing of Rerun's: timelines, scatter, rows, ids; ``Chunk.apply_…``."""

from __future__ import annotations

import logging
import re
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, ComponentDescriptor, TimeColumn
from chunkmill.engine.errors import LensError
from chunkmill.lenses import DeriveLens, MutateLens, Selector, apply_lenses, apply_selector
from chunkmill.lenses.lens_set import LensSet
from hypothesis import given
from hypothesis import strategies as st

XT = pa.struct({"x": pa.float64(), "t": pa.int64()})
M = ComponentDescriptor("M:m", "M", "m.T")


def made(rows: list, kind: pa.DataType = XT, frames: list[int] | None = None, is_static: bool = False) -> Chunk:
    times = [] if is_static else [TimeColumn("frame", sequence=range(len(rows)) if frames is None else frames)]
    columns = [
        ComponentColumn(M, pa.array(rows, pa.list_(kind))),
        ComponentColumn(ComponentDescriptor("M:other"), pa.array([[1]] * len(rows), pa.list_(pa.int64()))),
    ]
    return Chunk.from_columns("/m", times, columns)


THREE = [[{"x": 1.0, "t": 30}], [{"x": 2.0, "t": 20}], [{"x": 3.0, "t": 10}]]


def columns(chunk: Chunk) -> dict[str, list]:
    out = {t.name: t.ticks.tolist() for t in chunk.data.timelines}
    return {**out, **{c.descriptor.component: c.values.to_pylist() for c in chunk.data.components}}


def derive(**arguments: Any) -> DeriveLens:
    return DeriveLens("M:m", **arguments).to_component("x", ".x")


@pytest.mark.parametrize(
    ("word", "kind"),
    [("sequence", pa.int64()), ("duration_ns", pa.duration("ns")), ("timestamp_ns", pa.timestamp("ns"))],
)
def test_a_timeline_of_a_name_the_chunk_has_replaces_it(word: str, kind: pa.DataType) -> None:
    _, chunk = made(THREE).apply_lenses(derive().to_timeline("frame", word, ".t"))
    (line,) = chunk.data.timelines
    assert (line.name, line.times.type) == ("frame", kind)
    assert columns(chunk) == {"frame": [10, 20, 30], "x": [[3.0], [2.0], [1.0]]}


def test_the_last_of_two_timelines_of_one_name_wins() -> None:
    lens = derive().to_timeline("t", "timestamp_ns", ".t").to_timeline("t", "sequence", ".t")
    _, chunk = made(THREE).apply_lenses(lens)
    assert [(t.name, str(t.times.type)) for t in chunk.data.timelines] == [("frame", "int64"), ("t", "int64")]


@pytest.mark.parametrize("mode", ["drop_unmatched", "forward_unmatched", "forward_all"])
@pytest.mark.parametrize("is_static", [True, False])
@pytest.mark.parametrize("more", [{"output_entity": "/o"}, {}])
def test_a_lens_with_a_timeline_that_gives_nothing_is_an_error(is_static: bool, more: dict, mode: str) -> None:
    lens = DeriveLens("M:m", **more).to_component("a", ".nope").to_component("b", ".no?")
    chunk = made(THREE, is_static=is_static)
    target = more.get("output_entity", "/m")
    text = f"No component outputs were produced for target entity `{target}`\n  in {chunk.id} of /m, component M:m, "
    with pytest.raises(LensError, match=re.escape(f"{text}selector .nope, .no?")) as caught:
        list(LensSet(lens.to_timeline("t", "sequence", ".t"), mode)(chunk))
    assert (caught.value.entity_path, caught.value.component) == ("/m", "M:m")
    both = list(LensSet(lens.to_component("x", ".x").to_timeline("t", "sequence", ".t"))(chunk))
    assert [list(columns(c)) for c in both] == [["frame", "t", "x"] if not is_static else ["t", "x"]]


@pytest.mark.parametrize("more", [{"output_entity": "/o"}, {"output_child": "/o"}])
def test_a_lens_of_another_entity_that_gives_nothing(more: dict) -> None:
    lens = DeriveLens("M:m", **more).to_component("a", ".nope")
    with pytest.raises(LensError, match=r"produced for target entity `(/m)?/o`"):
        made(THREE).apply_lenses(lens)
    for quiet, chunk in (
        (lens, made(THREE, is_static=True)),
        (DeriveLens("M:m").to_component("a", ".nope"), made(THREE)),
        (DeriveLens("M:m", static=True).to_component("a", ".nope"), made(THREE)),
    ):
        (rest,) = chunk.apply_lenses(quiet)
        assert [c.descriptor.component for c in rest.data.components] == ["M:other"]


def test_nulls_on_a_timeline_become_0_and_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    chunk = made([[{"x": 1.0, "t": 5}], [{"x": 2.0, "t": None}]])
    with caplog.at_level(logging.WARNING):
        _, out = chunk.apply_lenses(derive().to_timeline("t", "sequence", ".t"))
    assert columns(out)["t"] == [5, 0]
    assert "1 nulls became 0" in caplog.text
    assert chunk.id in caplog.text


def test_times_that_do_not_belong_to_rows_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    chunk = made([[{"x": 1.0, "t": 5}, {"x": 2.0, "t": 6}], []])
    with caplog.at_level(logging.WARNING):
        chunk.apply_lenses(derive().to_timeline("t", "sequence", ".t"))
    assert "some rows have no time, others several" in caplog.text


def test_a_stamp_becomes_a_timeline() -> None:
    stamp = pa.struct({"stamp": pa.struct({"sec": pa.int32(), "nanosec": pa.uint32()}), "x": pa.int8()})
    rows = [[{"stamp": {"sec": 2, "nanosec": 7}, "x": 1}], [{"stamp": {"sec": 1, "nanosec": 0}, "x": 2}]]
    lens = derive().to_timeline("stamp", "timestamp_ns", Selector(".stamp").nanoseconds())
    _, chunk = made(rows, stamp).apply_lenses(lens)
    assert columns(chunk) == {"frame": [0, 1], "stamp": [2_000_000_007, 1_000_000_000], "x": [[1], [2]]}


def test_scatter_as_in_the_specification() -> None:
    kind = pa.struct({"items": pa.list_(pa.string())})
    rows = [[{"items": ["a", "b"]}], [{"items": []}], [{"items": None}], None, [], [{"items": ["c", None, "d"]}]]
    lens = DeriveLens("M:m", scatter=True).to_component("i", ".items[]")
    _, chunk = made(rows, kind).apply_lenses(lens)
    assert columns(chunk) == {
        "frame": [0, 0, 1, 2, 3, 4, 5, 5, 5],
        "i": [["a"], ["b"], [], None, None, [], ["c"], None, ["d"]],
    }


def test_scattered_times_go_with_their_elements() -> None:
    rows = [[{"x": 1.0, "t": 3}, {"x": 2.0, "t": 1}], [{"x": 3.0, "t": 2}]]
    lens = derive(scatter=True).to_component("y", ".x").to_timeline("t", "duration_ns", ".t")
    _, chunk = made(rows).apply_lenses(lens)
    assert columns(chunk) == {
        "frame": [0, 0, 1],
        "t": [1, 3, 2],
        "x": [[2.0], [1.0], [3.0]],
        "y": [[2.0], [1.0], [3.0]],
    }


def test_a_static_chunk_is_scattered_too() -> None:
    chunk = made([[{"x": 1.0, "t": 2}, {"x": 2.0, "t": 1}]], is_static=True)
    _, flat = chunk.apply_lenses(derive(scatter=True))
    assert (flat.is_static, flat.num_rows) == (True, 2)
    _, timed = chunk.apply_lenses(derive(scatter=True).to_timeline("t", "sequence", ".t"))
    assert columns(timed) == {"t": [1, 2], "x": [[2.0], [1.0]]}


_ROWS = st.lists(st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3), max_size=6)


def scattered(rows: list) -> list[tuple[int, list | None]]:
    """What scatter means, row by row."""
    out: list[tuple[int, list | None]] = []
    for i, row in enumerate(rows):
        if row:
            out.extend((i, None if v is None else [v]) for v in row)
        else:
            out.append((i, row))
    return out


@given(_ROWS, st.integers(0, 3))
def test_scatter_is_what_it_means_row_by_row(rows: list, start: int) -> None:
    chunk = Chunk.from_data(made(rows, pa.int64()).data.slice(min(start, len(rows)), len(rows)))
    expected = scattered(rows[start:])
    found = apply_lenses(chunk, DeriveLens("M:m", scatter=True, output_entity="/o").to_component("v", "."))[-1]
    component = found.data.components[0].values
    component.validate(full=True)
    assert component.to_pylist() == [cell for _, cell in expected]
    assert found.data.timelines[0].ticks.tolist() == [min(start, len(rows)) + i for i, _ in expected]


@given(_ROWS, st.data())
def test_mutate_sorts_and_keeping_row_ids_does_not(rows: list, data: st.DataObject) -> None:
    frames = data.draw(st.lists(st.integers(0, 5), min_size=len(rows), max_size=len(rows)))
    chunk = made(rows, pa.int64())
    batch = chunk.to_record_batch()
    chunk = Chunk.from_record_batch(batch.set_column(1, batch.schema.field(1), pa.array(frames, pa.int64())))
    (kept,) = chunk.apply_lenses(MutateLens("M:m", ".", keep_row_ids=True))
    assert columns(kept) == columns(chunk)
    assert kept.data.row_ids.equals(chunk.data.row_ids)
    assert kept.id != chunk.id
    (fresh,) = chunk.apply_lenses(MutateLens("M:m", "."))
    order = sorted(range(len(rows)), key=lambda i: frames[i])
    assert columns(fresh)["M:m"] == [rows[i] for i in order]
    assert columns(fresh)["frame"] == sorted(frames)


def test_chunks_have_the_methods() -> None:
    chunk = made(THREE)
    (merged,) = chunk.apply_lenses([derive()])
    assert columns(merged) == {"frame": [0, 1, 2], "M:other": [[1]] * 3, "x": [[1.0], [2.0], [3.0]]}
    assert chunk.apply_lenses([]) == [chunk]
    assert chunk.apply_lenses(DeriveLens("no").to_component("a", ".")) == [chunk]
    other = chunk.apply_selector("M:m", ".x")
    assert columns(other) == columns(apply_selector(chunk, M, Selector(".x")))
    assert other.data.components[-1].descriptor == M
    ids = [int.from_bytes(v, "big") for v in other.data.row_ids.to_pylist()]
    assert ids == [int.from_bytes(other.data.chunk_id, "big") + i for i in (1, 2, 3)]


def test_apply_selector_reaches_properties_and_lenses_do_not() -> None:
    chunk = made(THREE).with_entity_path("/__properties/x")
    assert chunk.apply_lenses(derive()) == [chunk]
    assert columns(chunk.apply_selector("M:m", ".x"))["M:m"] == [[1.0], [2.0], [3.0]]


@pytest.mark.parametrize(
    ("source", "selector", "message"),
    [
        ("Nope", ".", "Component 'Nope' not found in chunk for entity `/m`"),
        ("M:m", ".nope", "No component outputs were produced for target entity `/m`"),
        ("M:m", ".x.y", "Failed to apply operations to component 'M:m' (entity: `/m`, input: `M:m`): Invalid argument"),
    ],
)
def test_apply_selector_says_what_is_wrong(source: str, selector: str, message: str) -> None:
    chunk = made(THREE)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared below
        chunk.apply_selector(source, selector)
    assert caught.value.args[0].startswith(message)
    assert f"in {chunk.id} of /m, component {source}, selector {selector}" in str(caught.value)


@pytest.mark.parametrize(
    ("selector", "hint"),
    [
        (".xx", "There is no field 'xx'. Did you mean x?"),
        (".nope", "There is no field 'nope'. There are: "),
        (".no?", ""),
    ],
)
def test_apply_selector_suggests_fields(selector: str, hint: str) -> None:
    with pytest.raises(LensError) as caught:
        made(THREE).apply_selector("M:m", selector)
    assert (caught.value.hint or "").startswith(hint) and bool(caught.value.hint) == bool(hint)
    assert hint in str(caught.value)


def test_an_empty_chunk_stays_empty() -> None:
    chunk = made([])
    lens = derive(scatter=True, output_entity="/o").to_timeline("t", "sequence", ".t")
    for out in chunk.apply_lenses([lens, derive(output_entity="/p"), MutateLens("M:other", ".")]):
        assert out.num_rows == 0
