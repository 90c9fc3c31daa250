"""What Rerun's own lenses made of chunks, case by case: ``golden/lens_chunks.txt`` has a title and the outcome of each.

The outcome lists the chunks that came out (columns with types, values, archetype, component type) or the error.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, ComponentDescriptor, TimeColumn
from chunkmill.lenses import DeriveLens, MutateLens, Selector, apply_lenses, apply_selector

SCALARS = ComponentDescriptor("Scalars:scalars", "rerun.archetypes.Scalars", "rerun.components.Scalar")
ACCEL = ComponentDescriptor("Imu:accel", "Imu", "my.Accel")
STATUS = ComponentDescriptor("Imu:status", "Imu")
XYT = pa.struct({"x": pa.float64(), "y": pa.float64(), "t": pa.int64()})
ROWS = [[{"x": 1.0, "y": 4.0, "t": 10}], [{"x": 2.0, "y": 5.0, "t": 20}], [{"x": 3.0, "y": 6.0, "t": 30}]]


def imu(
    frames: list[int] = [0, 1, 2],  # noqa: B006 - never changed
    rows: list = ROWS,
    status: bool = True,
    kind: pa.DataType = XYT,
    entity: str = "/s/imu",
) -> Chunk:
    columns = [ComponentColumn(ACCEL, pa.array(rows, pa.list_(kind)))]
    if status:
        columns.append(ComponentColumn(STATUS, pa.array([["ok"]] * len(rows))))
    return Chunk.from_columns(entity, [TimeColumn("frame", sequence=frames)], columns)


def unsorted() -> Chunk:
    """Rows out of time order, as no constructor gives them."""
    batch = imu([0, 1, 2]).to_record_batch()
    return Chunk.from_record_batch(batch.set_column(1, batch.schema.field(1), pa.array([5, 1, 3])))


def static() -> Chunk:
    column = ComponentColumn(
        ComponentDescriptor("Imu:accel", "Imu"), pa.array([[{"x": 1.0, "y": 4.0, "t": 30}]], pa.list_(XYT))
    )
    return Chunk.from_columns("/st", [], [column])


ITEM = pa.struct({"x": pa.float64(), "t": pa.int64()})
NAMED = pa.struct({"items": pa.list_(ITEM), "name": pa.string()})


def items(other: bool = True) -> Chunk:
    def item(*xs: Any) -> list:
        return [{"x": x, "t": None if x is None else int(x)} for x in xs]

    rows = [
        [{"items": item(1.0, 2.0), "name": "a"}],
        [{"items": [], "name": "b"}],
        [{"items": None, "name": "c"}],
        None,
        [],
        [{"items": [*item(5.0), None, *item(None)], "name": "d"}],
        [{"items": item(6.0), "name": "e"}, {"items": item(7.0), "name": "f"}],
        [None],
    ]
    columns = [ComponentColumn(ComponentDescriptor("M:l", "M"), pa.array(rows, pa.list_(NAMED)))]
    if other:
        columns.append(ComponentColumn(ComponentDescriptor("M:z", "M"), pa.array([[i] for i in range(8)])))
    return Chunk.from_columns("/l", [TimeColumn("frame", sequence=range(8))], columns)


def times(*rows: list) -> Chunk:
    return imu(
        rows=[[{"x": 1.0 + i if len(row) == 1 else 1.0, "y": 0.0, "t": t} for t in row] for i, row in enumerate(rows)]
    )


def scattered_times() -> Chunk:
    kind = pa.list_(pa.list_(ITEM))
    rows = [[[{"x": 1.0, "t": 9}, {"x": 2.0, "t": 2}]], [[{"x": 3.0, "t": 8}]]]
    columns = [
        ComponentColumn(ComponentDescriptor("M:l", "M"), pa.array(rows, kind)),
        ComponentColumn(ComponentDescriptor("M:z", "M"), pa.array([[0], [1]])),
    ]
    return Chunk.from_columns("/l", [TimeColumn("frame", sequence=[0, 5])], columns)


def typed(kind: pa.DataType) -> Chunk:
    rows = pa.array([[{"x": 1.0, "t": t}] for t in (10, 20, 30)], pa.list_(pa.struct({"x": pa.float64(), "t": kind})))
    return Chunk.from_columns("/s/imu", [TimeColumn("frame", sequence=range(3))], [ComponentColumn(ACCEL, rows)])


def derive(**arguments: Any) -> DeriveLens:
    return DeriveLens("Imu:accel", **arguments)


def x_of(lens: DeriveLens) -> DeriveLens:
    return lens.to_component(SCALARS, ".x")


SAME, OTHER = x_of(derive()), x_of(derive(output_entity="/o"))
SCATTER = DeriveLens("M:l", scatter=True)
SCATTERED_X = SCATTER.to_component(SCALARS, ".items[].x")
NAMES = SCATTER.to_component("n", ".name")
BY_A = x_of(derive()).to_timeline("a", "sequence", ".t")
X = MutateLens("Imu:accel", ".x")
X_KEPT = MutateLens("Imu:accel", ".x", keep_row_ids=True)
ONE_OK_ONE_ERROR = SAME.to_component("b", ".x.y")

CASES: dict[str, tuple[Callable[[], Chunk], Any]] = {
    "input": (imu, []),
    "derive same entity": (imu, SAME),
    "derive same entity, only col": (lambda: imu(status=False), SAME),
    "derive str component": (imu, derive().to_component("foo", ".x")),
    "derive str component with colon": (imu, derive().to_component("Foo:bar", Selector(".x"))),
    "derive other entity": (imu, [OTHER]),
    "derive other entity same path": (imu, derive(output_entity="s/imu/").to_component("Imu:accel", ".x")),
    "derive input==output": (imu, derive().to_component("Imu:accel", ".x")),
    "derive no outputs": (imu, derive()),
    "derive only timeline": (imu, derive().to_timeline("t", "sequence", ".t")),
    "derive timeline same entity": (imu, SAME.to_timeline("t", "sequence", ".t")),
    "derive timeline float": (imu, SAME.to_timeline("t", "sequence", ".x")),
    "derive timeline missing field": (imu, SAME.to_timeline("t", "sequence", ".nope")),
    "derive missing field": (imu, derive().to_component("a", ".nope")),
    "derive missing field, only col": (lambda: imu(status=False), derive().to_component("a", ".nope")),
    "derive one ok one missing": (imu, SAME.to_component("b", ".nope")),
    "derive one ok one error": (imu, ONE_OK_ONE_ERROR),
    "derive dup output in one lens": (imu, SAME.to_component("Scalars:scalars", ".y")),
    "two derives": (imu, (SAME, derive().to_component("b", ".y"))),
    "collision derive": (imu, [SAME, derive().to_component(SCALARS, ".y")]),
    "collision derive same/other entity": (
        imu,
        [SAME, derive(output_entity="/s/imu").to_component(SCALARS, ".y")],
    ),
    "mutate": (imu, X),
    "mutate keep": (imu, X_KEPT),
    "mutate none": (imu, MutateLens("Imu:accel", ".nope")),
    "mutate none only col": (lambda: imu(status=False), MutateLens("Imu:accel", ".nope")),
    "mutate error": (imu, MutateLens("Imu:accel", ".x.y")),
    "mutate twice": (imu, [X, MutateLens("Imu:accel", ".y")]),
    "mutate two comps, one keep": (imu, [X, MutateLens("Imu:status", ".", keep_row_ids=True)]),
    "mutate+derive (derive sees original)": (imu, [X, derive().to_component(SCALARS, ".y")]),
    "derive onto existing column": (imu, derive().to_component("Imu:status", ".x")),
    "mutate then derive overwrites mutated": (
        imu,
        [MutateLens("Imu:status", "."), derive().to_component("Imu:status", ".x")],
    ),
    "no match": (imu, DeriveLens("Imu:nope").to_component("a", ".")),
    "matched by component_type?": (imu, DeriveLens("my.Accel").to_component("a", ".")),
    "matched by short name?": (imu, DeriveLens("accel").to_component("a", ".")),
    "input list": (items, []),
    "scatter x": (items, SCATTERED_X),
    "scatter x only col": (lambda: items(False), SCATTERED_X),
    "scatter x + t": (items, SCATTERED_X.to_timeline("t", "sequence", ".items[].t")),
    "scatter x + name mismatch": (items, SCATTERED_X.to_component("n", ".name")),
    "scatter name then x mismatch": (items, NAMES.to_component(SCALARS, ".items[].x")),
    "scatter missing field": (items, SCATTER.to_component(SCALARS, ".nope")),
    "scatter first missing second ok": (
        items,
        SCATTER.to_component("a", ".nope").to_component(SCALARS, ".items[].x"),
    ),
    "scatter first error second ok": (
        items,
        SCATTER.to_component("a", ".name.z").to_component(SCALARS, ".items[].x"),
    ),
    "scatter no each (inner elems)": (items, NAMES),
    "scatter list-valued": (items, SCATTER.to_component("n", ".items")),
    "scatter fewer times": (items, NAMES.to_timeline("t", "sequence", ".items[0].t")),
    "scatter unsorted": (
        scattered_times,
        SCATTER.to_component(SCALARS, "[].x").to_timeline("t", "sequence", "[].t"),
    ),
    "derive unsorted same entity (no new rowids)": (lambda: imu([1, 3, 5]), SAME),
    "derive unsorted other entity": (lambda: imu([1, 3, 5]), OTHER),
    "mutate unsorted": (lambda: imu([1, 3, 5]), X),
    "mutate unsorted keep": (lambda: imu([1, 3, 5]), X_KEPT),
    "apply_selector unsorted": (lambda: imu([1, 3, 5]), ("Imu:accel", ".x")),
    "derive timeline resort": (lambda: times([30], [20], [10]), BY_A),
    "derive timeline null": (lambda: times([30], [None], [10]), BY_A),
    "derive timeline null row": (lambda: imu(rows=[*ROWS[:2], None]), BY_A),
    "derive timeline 2 inst": (lambda: times([30, 30], [20], [10]), BY_A),
    "derive timeline 2+0 inst": (lambda: times([30, 30], [], [10]), BY_A),
    "to_timeline from timestamp": (lambda: typed(pa.timestamp("ns")), SAME.to_timeline("t", "timestamp_ns", ".t")),
    "to_timeline from i32": (lambda: typed(pa.int32()), SAME.to_timeline("t", "sequence", ".t")),
    "to_timeline from duration": (lambda: typed(pa.duration("ns")), SAME.to_timeline("t", "duration_ns", ".t")),
    "static input": (static, []),
    "static derive": (static, SAME),
    "static derive timeline": (static, BY_A),
    "static derive other": (static, OTHER),
    "callable returns wrong len": (imu, derive().to_component(SCALARS, Selector(".x").pipe(lambda a: a.slice(1)))),
    "callable raises": (imu, derive().to_component(SCALARS, Selector(".x").pipe(lambda a: 1 / 0))),
    "no cast: int into Scalars": (imu, derive(output_entity="/o").to_component(SCALARS, ".t")),
    "null rows": (lambda: imu(rows=[None, [], ROWS[2]]), SAME),
    "all null rows": (lambda: imu(rows=[None, None, None]), SAME),
    "apply_selector missing comp": (imu, ("Nope", ".x")),
    "apply_selector none": (imu, ("Imu:accel", ".nope")),
    "apply_selector err": (imu, ("Imu:accel", ".x.y")),
    "apply_selector ok": (imu, ("Imu:accel", Selector(".x"))),
    "apply_selector descr": (imu, (SCALARS, ".x")),
    "unsorted input": (unsorted, []),
    "unsorted derive merge": (unsorted, SAME),
    "unsorted derive other": (unsorted, OTHER),
    "unsorted mutate": (unsorted, X),
    "unsorted mutate keep": (unsorted, X_KEPT),
    "unsorted apply_selector": (unsorted, ("Imu:accel", ".x")),
}

ELSEWHERE = {
    "derive timeline bad type": "raises when it is built: test_lens_building.py",
    "derive timeline overrides existing": "its listing broke off: test_lens_chunks.py",
    "derive missing field, other entity": "nothing comes out, and no error: test_lens_chunks.py",
}

DIED = {
    "scatter x + t": "Found 12 row IDs but 5 timestamps for timeline 't'",
    "scatter fewer times": "Found 9 row IDs but 4 timestamps for timeline 't'",
    "derive timeline null row": "Found 3 row IDs but 2 timestamps for timeline 'a'",
    "callable returns wrong len": "changed the length",
}


def outcomes() -> dict[str, list[str]]:
    text = (Path(__file__).parent / "golden" / "lens_chunks.txt").read_text(encoding="utf-8")
    blocks = [block.splitlines() for block in text.split("=== ")[1:]]
    return {title.strip(): lines for title, *lines in blocks}


OUTCOMES = outcomes()


def listed(lines: list[str]) -> list[dict[str, Any]]:
    """The chunks of an outcome."""
    chunks: list[dict[str, Any]] = []
    for line in lines:
        if head := re.match(r"  chunk (\S+) rows=(\d+) static=(\w+) tl=(.*)$", line):
            entity, rows, is_static, timelines = head.groups()
            chunks.append({"": (entity, int(rows), is_static == "True", sorted(ast.literal_eval(timelines)))})
        elif column := re.match(r"    (\S+): (.+?) (\[.*\]) (\{.*\})$", line):
            name, kind, values, metadata = column.groups()
            meta = ast.literal_eval(metadata)
            described = (meta.get("rerun:archetype"), meta.get("rerun:component_type"))
            chunks[-1][name] = (kind, ast.literal_eval(values), *described)
    return chunks


def shown(chunk: Chunk) -> dict[str, Any]:
    """A chunk as :func:`listed` lists it."""
    data = chunk.data
    out: dict[str, Any] = {"": (chunk.entity_path, chunk.num_rows, chunk.is_static, chunk.timeline_names)}
    for t in data.timelines:
        out[t.name] = (str(t.times.type), t.times.to_pylist(), None, None)
    for c in data.components:
        c.values.validate(full=True)
        described = (c.descriptor.archetype, c.descriptor.component_type)
        out[c.descriptor.component] = (str(c.values.type), c.values.to_pylist(), *described)
    return out


def apply(case: tuple[Callable[[], Chunk], Any]) -> list[Chunk]:
    make, what = case
    if isinstance(what, tuple) and not isinstance(what[-1], (DeriveLens, MutateLens)):
        return [apply_selector(make(), *what)]
    return apply_lenses(make(), what)


def test_every_case_of_the_listing_is_here() -> None:
    assert OUTCOMES.keys() == CASES.keys() | ELSEWHERE.keys()


@pytest.mark.parametrize("title", CASES)
def test_lenses_do_what_reruns_do(title: str) -> None:
    lines = OUTCOMES[title]
    if lines[0].startswith("  ValueError: ") or title in DIED:
        message = DIED.get(title) or lines[0].removeprefix("  ValueError: ")
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
            apply(CASES[title])
        assert message in str(caught.value).splitlines()[0]
        assert title in DIED or caught.value.args[0].splitlines()[0] == message
    else:
        assert [shown(c) for c in apply(CASES[title])] == listed(lines)


def test_ids_follow_the_chunk_id_of_sorted_rows() -> None:
    (_, derived) = apply_lenses(unsorted(), OTHER)
    ids = [int.from_bytes(v, "big") for v in derived.data.row_ids.to_pylist()]
    first = int.from_bytes(derived.data.chunk_id, "big")
    assert ids == [first + 1, first + 2, first + 3]
    assert np.all(np.diff(derived.data.timelines[0].ticks) > 0)
