"""Lenses over several chunks: modes, content, errors, pickling; ``golden/lens_streams.txt`` is what Rerun answers."""

from __future__ import annotations

import ast
import logging
import pickle
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, ComponentDescriptor, TimeColumn
from chunkmill.engine.errors import LensError, error_from_dict
from chunkmill.engine.stream.operators import content_filter
from chunkmill.lenses import DeriveLens, LensSet, MutateLens, Selector
from chunkmill.lenses import lens as compiled
from pyspark import cloudpickle

SCALARS = ComponentDescriptor("Scalars:scalars", "rerun.archetypes.Scalars", "rerun.components.Scalar")
XT = pa.struct({"x": pa.float64(), "t": pa.int64()})


def accel(entity: str, kind: pa.DataType = XT, extra: str | None = None) -> Chunk:
    names = [f.name for f in kind]
    rows = [[dict.fromkeys(names, i)] for i in range(3)]
    columns = [ComponentColumn(ComponentDescriptor("Imu:accel", "Imu"), pa.array(rows, pa.list_(kind)))]
    if extra is not None:
        columns.append(ComponentColumn(ComponentDescriptor(extra, "Imu"), pa.array([["ok"]] * 3)))
    return Chunk.from_columns(entity, [TimeColumn("frame", sequence=range(3))], columns)


def other(entity: str) -> Chunk:
    column = ComponentColumn(ComponentDescriptor("Other:z"), pa.array([[1]] * 3))
    return Chunk.from_columns(entity, [TimeColumn("frame", sequence=range(3))], [column])


def abc() -> list[Chunk]:
    return [accel("/a", extra="Imu:status"), accel("/b"), other("/c")]


def derive(**arguments: Any) -> DeriveLens:
    return DeriveLens("Imu:accel", **arguments).to_component(SCALARS, ".x")


LENSES = {
    "derive same": [derive()],
    "derive other": [derive(output_entity="/o")],
    "mutate": [MutateLens("Imu:accel", ".x")],
    "mutate+other": [MutateLens("Imu:accel", ".x"), derive(output_entity="/o")],
    "derive same + timeline": [derive().to_timeline("t", "sequence", ".t")],
    "derive suppressed": [DeriveLens("Imu:accel").to_component(SCALARS, ".nope")],
    "[]": [],
    "content=/a": [derive()],
    "derive onto existing": [DeriveLens("Imu:accel").to_component("Imu:status", ".x")],
}


def blocks() -> dict[str, list[str]]:
    text = (Path(__file__).parent / "golden" / "lens_streams.txt").read_text(encoding="utf-8")
    parts = [block.splitlines() for block in text.split("=== ")[1:]]
    return {title: lines[1:] for title, *lines in parts}


BLOCKS = blocks()
MODES = [(m, name) for m in ("drop_unmatched", "forward_unmatched", "forward_all") for name in LENSES]
ABC_CONTENTS = [t for t in BLOCKS if t.startswith("content=")]
PROPERTY_CONTENTS = [t for t in BLOCKS if t.startswith("probe4 ")]


def run(lens_set: LensSet, chunks: list[Chunk]) -> list[Chunk]:
    return [out for chunk in chunks for out in lens_set(chunk)]


def described(chunks: list[Chunk], before: list[Chunk]) -> list[tuple]:
    ids = {c.id for c in before}
    rows = [c.data.row_ids for c in before]
    return [
        (
            c.entity_path,
            {*c.timeline_names, *(x.descriptor.component for x in c.data.components)},
            c.id in ids,
            any(c.data.row_ids.equals(r) for r in rows),
        )
        for c in chunks
    ]


def listed(lines: list[str]) -> list[tuple]:
    out = []
    for line in lines:
        path, columns, same_id, same_rows = re.match(r'"(\S+) (\[.*\]) sameid=(\w+) samerow=(\w+)"', line).groups()
        out.append((path, set(ast.literal_eval(columns)), same_id == "True", same_rows == "True"))
    return out


@pytest.mark.parametrize(("mode", "name"), MODES)
def test_output_modes(mode: str, name: str) -> None:
    before = abc()
    content = content_filter("/a") if name == "content=/a" else None
    chunks = run(LensSet(LENSES[name], mode, content=content), before)
    assert described(chunks, before) == listed(BLOCKS[f"{mode} {name}"])


def test_the_default_drops_what_is_unmatched() -> None:
    before = abc()
    assert described(run(LensSet(derive()), before), before) == listed(BLOCKS["default mode"])


@pytest.mark.parametrize("title", ABC_CONTENTS)
def test_content(title: str) -> None:
    before = abc()
    content = content_filter(ast.literal_eval(title.removeprefix("content=")))
    assert described(run(LensSet(derive(), content=content), before), before) == listed(BLOCKS[title])


@pytest.mark.parametrize("title", PROPERTY_CONTENTS)
def test_properties_match_no_lens(title: str) -> None:
    text = title.removeprefix("probe4 content ")
    content = None if text == "None" else content_filter(ast.literal_eval(text))
    before = [accel(e) for e in ("/__properties/x", "/__mcap_properties", "/a/b", "/a")]
    ids = {c.id for c in before}
    found = [
        f"{c.entity_path} {'untouched' if c.id in ids else 'LENSED'}"
        for c in run(LensSet(derive(), content=content), before)
    ]
    assert found == [ast.literal_eval(line) for line in BLOCKS[title]]


@pytest.mark.parametrize("mode", ["drop_unmatched", "forward_all"])
def test_properties_are_unmatched(mode: str) -> None:
    chunk = accel("/__properties")
    assert run(LensSet(derive(), mode), [chunk]) == ([] if mode == "drop_unmatched" else [chunk])


# --- errors


FAILED = "Failed to apply operations to"
PLACE = "(entity: `/a`, input: `Imu:accel`)"


def failing() -> LensSet:
    return LensSet(DeriveLens("Imu:accel").to_component(SCALARS, ".x.y"), "forward_all")


def test_an_error_says_where() -> None:
    chunk = accel("/a")
    with pytest.raises(RuntimeError) as caught:
        run(failing(), [other("/c"), chunk])
    error = caught.value
    assert isinstance(error, LensError)
    assert isinstance(error, ValueError)
    first, place = error.message.split("\n")
    assert first == (
        "Lenses error: Failed to apply operations to component 'Scalars:scalars' (entity: `/a`, input: `Imu:accel`): "
        "Invalid argument error: cannot access field `.y` on unexpected type Float64"
    )
    assert place == f"  in {chunk.id} of /a, component Imu:accel, selector .x.y"
    assert (error.entity_path, error.component, error.selector) == ("/a", "Imu:accel", ".x.y")
    assert error.chunk_id == chunk.id
    again = error_from_dict(error.to_dict())
    assert (str(again), again.selector, again.chunk_id) == (str(error), ".x.y", chunk.id)


def test_all_errors_of_one_chunk_come_together() -> None:
    lens = derive().to_component("a", ".x.y").to_component("b", ".t.z")
    with pytest.raises(LensError) as caught:
        run(LensSet([lens, derive()], "forward_all"), [accel("/a")])
    first, *places = caught.value.message.split("\n")
    assert first.removeprefix("Lenses error: ").split("; ") == [
        "Lens collision at entity `/a`: derive output `Scalars:scalars` already claimed by a prior lens",
        f"{FAILED} component 'a' {PLACE}: Invalid argument error: cannot access field `.y` on unexpected type Float64",
        f"{FAILED} component 'b' {PLACE}: Invalid argument error: cannot access field `.z` on unexpected type Int64",
    ]
    assert len(places) == 3


def test_an_error_after_good_outputs_takes_them_along() -> None:
    lenses = [MutateLens("Imu:accel", ".x"), derive(output_entity="/o").to_component("b", ".x.y")]
    lens_set = LensSet(lenses, on_error="skip")
    assert run(lens_set, [accel("/a")]) == []


def test_skip_leaves_the_chunk_out_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    lens_set = LensSet(derive(), "forward_all", on_error="skip")
    bad, good = accel("/bad", pa.struct({"x": pa.float64()})), accel("/good")
    failing_lens = LensSet(derive().to_timeline("t", "sequence", ".x"), "drop_unmatched", on_error="skip")
    with caplog.at_level(logging.WARNING):
        assert run(failing_lens, [bad]) == []
    assert bad.id in caplog.text
    assert [c.entity_path for c in run(lens_set, [bad, good])] == ["/bad", "/good"]


def test_quarantine_gets_the_chunk_and_the_error() -> None:
    kept: list[tuple[Chunk, LensError]] = []
    lens = DeriveLens("Imu:accel").to_component(SCALARS, ".x").to_timeline("t", "sequence", ".t")
    lens_set = LensSet(lens, on_error="quarantine", quarantine=lambda chunk, error: kept.append((chunk, error)))
    bad, good = accel("/bad", pa.struct({"x": pa.float64(), "t": pa.int32()})), accel("/good")
    assert [c.entity_path for c in run(lens_set, [bad, good])] == ["/good"]
    ((chunk, error),) = kept
    assert chunk is bad
    assert "expected List<Int64>, got Int32" in str(error)
    assert error.selector == ".t"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"output_mode": "x"}, "Unknown output_mode 'x', expected 'forward_all', 'forward_unmatched', or 'drop_unm"),
        ({"on_error": "x"}, "Unknown on_error 'x', expected 'raise', 'skip', or 'quarantine'"),
        ({"on_error": "quarantine"}, "must be given together"),
        ({"quarantine": print}, "must be given together"),
    ],
)
def test_words_are_checked(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LensSet([], **arguments)


@pytest.mark.parametrize("lenses", ["x", ["x"], [derive(), 5], [Selector(".")]])
def test_what_is_no_lens_is_refused(lenses: Any) -> None:
    with pytest.raises(TypeError, match=r"expected a DeriveLens or MutateLens, got a '(str|int|Selector)' object"):
        LensSet(lenses)


# --- one step of a pipeline


def test_it_travels_with_its_callables() -> None:
    lens_set = LensSet(
        [derive(output_entity="/o").to_component("double", Selector(".x").pipe(lambda a: pa.compute.multiply(a, 2)))],
        content=content_filter("/a"),
    )
    run(lens_set, [accel("/a")])
    again = pickle.loads(cloudpickle.dumps(lens_set))
    (chunk,) = run(again, [accel("/a")])
    assert chunk.data.components[0].values.to_pylist() == [[0.0], [2.0], [4.0]]
    assert again.describe() == lens_set.describe()


def test_written_lenses_travel_by_plain_pickle() -> None:
    lens_set = LensSet([derive(), MutateLens("Imu:status", ".")], "forward_all", on_error="skip")
    again = pickle.loads(pickle.dumps(lens_set))
    assert again.describe() == lens_set.describe()
    assert again.lenses == lens_set.lenses


def test_selectors_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    added = []
    add = compiled.SelectorTable.add
    monkeypatch.setattr(compiled.SelectorTable, "add", lambda self, p: added.append(p) or add(self, p))
    lens_set = LensSet(derive().to_component("b", ".t"))
    run(lens_set, [accel("/a"), accel("/b")])
    assert len(added) == 2
    lens = derive().to_component("only here", ".")
    for _ in range(3):
        accel("/a").apply_lenses(lens)
    assert len(added) == 4


def test_what_selectors_begin_with_is_computed_once() -> None:
    calls = []

    def counted(a: pa.Array) -> pa.Array:
        calls.append(len(a))
        return a

    start = Selector(".").pipe(counted)
    lenses = [
        DeriveLens("Imu:accel")
        .to_component("a", start.pipe(Selector(".x")))
        .to_component("b", start.pipe(Selector(".t"))),
        MutateLens("Imu:accel", start.pipe(Selector(".x"))),
        DeriveLens("Imu:accel", output_entity="/o").to_component("c", start),
    ]
    assert len(run(LensSet(lenses), [accel("/a")])) == 2
    assert calls == [3]


class NotToBeLoaded:
    """A payload that nobody may touch."""

    def load(self) -> pa.RecordBatch:
        raise AssertionError("loaded")


@pytest.mark.parametrize("mode", ["drop_unmatched", "forward_unmatched", "forward_all"])
def test_chunks_that_match_no_lens_are_not_decoded(mode: str) -> None:
    chunk = Chunk.lazy(other("/c").header, NotToBeLoaded())
    assert run(LensSet(derive(), mode), [chunk]) == ([] if mode == "drop_unmatched" else [chunk])
    matching = Chunk.lazy(accel("/a").header, NotToBeLoaded())
    assert run(LensSet(derive(), mode, content=content_filter("/b")), [matching]) == [matching]
    with pytest.raises(AssertionError, match="loaded"):
        run(LensSet(derive(), mode), [matching])


def test_the_plan_shows_inputs_and_outputs() -> None:
    lenses = [
        derive(output_entity="/o", scatter=True).to_timeline("t", "sequence", ".t"),
        MutateLens("Imu:status", "."),
    ]
    text = LensSet(lenses, content=content_filter("/a"), on_error="skip").describe()
    assert text == (
        "lenses(Imu:accel -> at /o Scalars:scalars = .x, timeline t = .t (scattered); Imu:status = .; "
        "output_mode='drop_unmatched', content='/a', on_error='skip')"
    )
