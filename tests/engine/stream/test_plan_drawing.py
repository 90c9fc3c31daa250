"""A plan as an SVG: what is drawn, that nothing overlaps, and that any text is safe in it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest
from chunkmill.engine import Chunk, LazyChunkStream
from chunkmill.engine.stream.drawing import Arrow, Box, Graph, Payloads, draw_plan, graph_of, layers_of, picture_of
from chunkmill.engine.stream.lazy_stream import sink_of
from chunkmill.engine.stream.plan import compile_plan, explain_plan
from chunkmill.engine.stream.source import PlaceholderSource

SVG = "{http://www.w3.org/2000/svg}"


def same(chunk: Chunk) -> Chunk:
    return chunk


def source() -> LazyChunkStream:
    return LazyChunkStream.from_source(PlaceholderSource())


def diamond() -> LazyChunkStream:
    a, b = source().split(is_static=True)
    return LazyChunkStream.merge(a.map(same).filter(content="/a"), b)


def one_branch() -> LazyChunkStream:
    return source().split(content="/a")[1]


def many() -> LazyChunkStream:
    a, b = source().drop(content="/x").split(content="/a")
    c, d = b.filter(components=["y"]).split(has_timeline="t")
    side = source().filter(content="/map")
    return LazyChunkStream.merge(d, a.map(same), c.map(same).flat_map(lambda chunk: [chunk]), side, source())


PLANS = {"plain": source, "diamond": diamond, "one_branch": one_branch, "many": many}


def graph(stream: LazyChunkStream) -> Graph:
    return graph_of(sink_of(stream))


def drawn(stream: LazyChunkStream, title: str = "plan") -> ElementTree.Element:
    return ElementTree.fromstring(draw_plan(sink_of(stream), title))


def texts(root: ElementTree.Element) -> list[str]:
    return [t.text or "" for t in root.iter(f"{SVG}text")]


def test_a_diamond_is_drawn_as_one() -> None:
    found = graph(diamond())
    assert [box.kind for box in found.boxes] == ["read", "split", "map", "filter", "merge", "output"]
    assert found.arrows == (
        Arrow(0, 1),
        Arrow(1, 2, "selected"),
        Arrow(2, 3),
        Arrow(3, 4),
        Arrow(1, 4, "rest"),
        Arrow(4, 5),
    )


def test_the_output_may_be_half_of_a_split() -> None:
    assert graph(one_branch()).arrows == (Arrow(0, 1), Arrow(1, 2, "rest"))


def test_what_decodes_is_told_from_what_looks_at_headers() -> None:
    said = {box.detail: box.payloads for box in graph(many()).boxes}
    assert said["content='/x'"] is said["content='/a'"] is Payloads.PASSED
    assert said["components=['y']"] is said["same"] is Payloads.DECODED
    assert said["INPUT"] is Payloads.NONE
    shown = texts(drawn(many()))
    assert (shown.count("headers only"), shown.count("decodes payloads")) == (4, 4)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_every_step_is_a_box_and_every_arrow_a_path(plan: Callable[[], LazyChunkStream]) -> None:
    stream = plan()
    found, root = graph(stream), drawn(stream)
    boxes = [r for r in root.iter(f"{SVG}rect") if r.get("class") == "box"]
    ways = [p for p in root.iter(f"{SVG}path") if p.get("class") == "way"]
    assert (len(boxes), len(ways)) == (len(found.boxes), len(found.arrows))
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    for box in boxes:
        x, y, w, h = (float(box.get(n, "nan")) for n in ("x", "y", "width", "height"))
        assert x >= 0 and x + w <= width and y >= 0 and y + h <= height


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_arrows_go_from_left_to_right_and_nothing_overlaps(plan: Callable[[], LazyChunkStream]) -> None:
    found = graph(plan())
    picture = picture_of(found)
    for a, b in combinations(picture.places, 2):
        apart_x = a.x + a.width < b.x or b.x + b.width < a.x
        apart_y = a.y + a.height < b.y or b.y + b.height < a.y
        assert apart_x or apart_y
    for arrow, points in zip(found.arrows, picture.lines, strict=True):
        assert [x for x, _ in points] == sorted(x for x, _ in points)
        start, end = picture.places[arrow.start], picture.places[arrow.end]
        assert points[0][0] == start.x + start.width and points[-1][0] == end.x
        for (x, y), (_, other) in zip(points[1:-1:2], points[2:-1:2], strict=True):
            assert y == other
            assert not any(p.x <= x <= p.x + p.width and p.y <= y <= p.y + p.height for p in picture.places)
    starts = [points[0] for points in picture.lines]
    assert len(set(starts)) == len(starts)


def test_arrows_that_need_not_cross_do_not() -> None:
    boxes = tuple(Box("step", str(i)) for i in range(8))
    pairs = [(0, 1), (0, 2), (0, 3), (3, 4), (2, 5), (1, 6), (4, 7), (5, 7), (6, 7), (0, 7)]
    layers = layers_of(Graph(boxes, tuple(Arrow(*pair) for pair in pairs)))
    row = {knot: at for column in layers.columns for at, knot in enumerate(column)}
    place = {knot: at for at, column in enumerate(layers.columns) for knot in column}
    steps = [step for way in layers.ways for step in pairwise(way)]
    for (a, b), (c, d) in combinations(steps, 2):
        assert place[a] != place[c] or (row[a] - row[c]) * (row[b] - row[d]) >= 0


def test_any_text_is_escaped_and_long_ones_are_shortened() -> None:
    name = "/a<b>&\"'\x00\u202e]]>" + "é日本" * 40
    stream = source().filter(has_timeline=name)
    root = drawn(stream, f"<{name}>")
    shown = next(t for t in texts(root) if t.startswith("has_timeline"))
    assert "…" in shown and len(shown) <= 40
    titles = [t.text or "" for t in root.iter(f"{SVG}title")]
    assert titles[0].startswith("</a<b>&\"'\ufffd\ufffd]]>é日本")
    assert any("é日本" * 40 in t for t in titles[1:])


def test_a_drawing_needs_nothing_from_elsewhere() -> None:
    text = draw_plan(sink_of(many()), "plan")
    assert "<script" not in text and "@import" not in text
    assert text.count("http") == text.count("http://www.w3.org/2000/svg") == 1
    assert "prefers-color-scheme: dark" in text


def test_a_row_of_diamonds_is_explained_and_drawn_without_repeating_them() -> None:
    stream = source()
    for i in range(40):
        stream = LazyChunkStream.merge(*stream.split(content=f"/{i}"))
    sink = sink_of(stream)
    lines = explain_plan(sink, compile_plan(sink)).splitlines()
    assert sum(line.endswith(", as above") for line in lines) == 40
    assert len(lines) == 3 + 40 * 5 + 1 + 1
    assert len(graph(stream).boxes) == 82


def test_a_placeholder_has_no_splits_and_no_chunks() -> None:
    sink = sink_of(source().filter(content="/a"))
    plan = compile_plan(sink)
    assert "source INPUT: not named yet" in explain_plan(sink, plan)
    assert LazyChunkStream.from_source(PlaceholderSource()).to_chunks(executor="inline") == []
