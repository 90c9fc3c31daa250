"""Pipelines: what each operator keeps, move semantics, order, and the plan. Inline; a slice runs through Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, ComponentDescriptor, TimeColumn
from chunkmill.engine.errors import ChunkmillError, UsageError
from chunkmill.engine.stream import ChunkKind, Fate, LazyChunkStream, Source, Split
from chunkmill.engine.stream.operators import Filter, Map, Selection
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", "inline")


def chunk(path: str, *components: str, timeline: str | None = "frame", rows: int = 2) -> Chunk:
    indexes = [] if timeline is None else [TimeColumn(timeline, sequence=range(rows))]
    return Chunk.from_columns(path, indexes, [ComponentColumn(c, [float(i) for i in range(rows)]) for c in components])


def several() -> list[Chunk]:
    return [
        chunk("/a", "x", "y"),
        chunk("/a", "z", timeline=None),
        chunk("/b/c", "x", timeline="time"),
        chunk("/__properties", "name", timeline=None, rows=1),
    ]


def shape(chunks: list[Chunk]) -> list[tuple[str, tuple[str, ...]]]:
    return [(c.entity_path, tuple(d.descriptor.component for d in c.data.components)) for c in chunks]


ALL = [("/a", ("x", "y")), ("/a", ("z",)), ("/b/c", ("x",)), ("/__properties", ("name",))]

CASES: list[tuple[dict[str, Any], list[tuple[str, tuple[str, ...]]], list[tuple[str, tuple[str, ...]]]]] = [
    ({}, ALL, []),
    ({"content": "/a/**"}, ALL[:2], ALL[2:]),
    ({"content": "/**"}, ALL[:3], ALL[3:]),
    ({"has_timeline": "frame"}, ALL[:1], ALL[1:]),
    ({"has_timeline": "nope"}, [], ALL),
    ({"is_static": True}, [ALL[1], ALL[3]], [ALL[0], ALL[2]]),
    ({"is_static": False, "content": "/a"}, ALL[:1], ALL[1:]),
    ({"components": ["x"]}, [("/a", ("x",)), ("/b/c", ("x",))], [("/a", ("y",)), ALL[1], ALL[3]]),
    ({"components": ["x"], "content": "/a"}, [("/a", ("x",))], [("/a", ("y",)), *ALL[1:]]),
    ({"components": []}, [], ALL),
    ({"components": ["nope"]}, [], ALL),
]


@pytest.mark.parametrize(("arguments", "kept", "dropped"), CASES)
def test_filter_drop_and_split(arguments: dict[str, Any], kept: list[Any], dropped: list[Any]) -> None:
    assert shape(LazyChunkStream.from_iter(several()).filter(**arguments).to_chunks()) == kept
    assert shape(LazyChunkStream.from_iter(several()).drop(**arguments).to_chunks()) == dropped
    one, two = LazyChunkStream.from_iter(several()).split(**arguments)
    both = shape(LazyChunkStream.merge(one, two).to_chunks())
    assert sorted(both) == sorted([*kept, *dropped])


def test_untouched_chunks_keep_their_ids_and_sliced_ones_get_new_ones() -> None:
    chunks = several()
    assert [c.id for c in LazyChunkStream.from_iter(chunks).filter(content="/a/**").to_chunks()] == [
        c.id for c in chunks[:2]
    ]
    (sliced, whole) = LazyChunkStream.from_iter(chunks).filter(components=["x"]).to_chunks()
    assert sliced.id != chunks[0].id and whole.id != chunks[2].id
    assert sliced.to_record_batch().column(0).equals(chunks[0].to_record_batch().column(0))
    rest = LazyChunkStream.from_iter(chunks).drop(components=["x"]).to_chunks()
    assert rest[0].id != chunks[0].id and rest[1].id == chunks[1].id


def test_map_and_flat_map() -> None:
    stream = LazyChunkStream.from_iter(several()).map(lambda c: c.with_entity_path("/m" + c.entity_path))
    assert [c.entity_path for c in stream] == ["/m/a", "/m/a", "/m/b/c", "/m/__properties"]

    def twice(c: Chunk) -> Iterator[Chunk]:
        yield c
        yield c.with_entity_path("/copy")

    assert len(LazyChunkStream.from_iter(several()).flat_map(twice).to_chunks()) == 8
    assert LazyChunkStream.from_iter(several()).flat_map(lambda c: []).to_chunks() == []


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda s: s.map(5), TypeError, "'int' object is not callable"),
        (lambda s: s.map(lambda c: None), AttributeError, "'NoneType' object"),
        (lambda s: s.flat_map(lambda c: None), TypeError, "'NoneType' object is not iterable"),
        (lambda s: s.flat_map(lambda c: c), TypeError, "'Chunk' object is not iterable"),
        (lambda s: s.map(lambda c: 1 // 0), ZeroDivisionError, "division"),
    ],
)
def test_bad_functions_fail_when_they_run(
    build: Callable[[LazyChunkStream], LazyChunkStream], error: type[Exception], text: str
) -> None:
    stream = build(LazyChunkStream.from_iter(several()))
    with pytest.raises(error, match=text):
        stream.to_chunks()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"components": 5}, "'int' object is not iterable"),
        ({"content": 5}, "'int' object is not iterable"),
        ({"is_static": "x"}, "argument 'is_static'"),
        ({"has_timeline": 5}, "argument 'has_timeline'"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        LazyChunkStream.from_iter([]).filter(**arguments)


def test_the_elements_of_from_iter_must_be_chunks() -> None:
    with pytest.raises(AttributeError, match="'int' object"):
        LazyChunkStream.from_iter([1]).to_chunks()  # type: ignore[list-item]
    with pytest.raises(TypeError, match="not iterable"):
        LazyChunkStream.from_iter(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "use",
    [
        lambda s: s.filter(),
        lambda s: s.drop(),
        lambda s: s.split(),
        lambda s: s.map(lambda c: c),
        lambda s: s.flat_map(lambda c: [c]),
        lambda s: LazyChunkStream.merge(s),
        lambda s: s.to_chunks(),
        lambda s: list(s),
        lambda s: s.explain(),
        lambda s: s.write_rrd("never.rrd", application_id="a", recording_id="r"),
    ],
)
def test_a_consumed_stream_refuses(use: Callable[[LazyChunkStream], Any]) -> None:
    stream = LazyChunkStream.from_iter(several())
    stream.filter()
    with pytest.raises(ValueError, match="This stream has already been consumed by a pipeline operation"):
        use(stream)


def test_merge() -> None:
    assert LazyChunkStream.merge().to_chunks() == []
    one, two = LazyChunkStream.from_iter(several()), LazyChunkStream.from_iter([chunk("/z", "x")])
    assert [c.entity_path for c in LazyChunkStream.merge(one, two)][-1] == "/z"
    stream = LazyChunkStream.from_iter([])
    with pytest.raises(ValueError, match="consumed"):
        LazyChunkStream.merge(stream, stream)
    with pytest.raises(AttributeError, match="'int' object"):
        LazyChunkStream.merge(5)  # type: ignore[arg-type]


def test_a_split_runs_its_upstream_once_for_both_branches(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    def count(c: Chunk) -> Chunk:
        seen.append(c.entity_path)
        return c

    one, two = LazyChunkStream.from_iter(several()).map(count).split(content="/a/**")
    merged = LazyChunkStream.merge(one.map(lambda c: c.with_entity_path("/one")), two)
    assert [c.entity_path for c in merged] == ["/one", "/one", "/b/c", "/__properties"]
    assert len(seen) == 4
    assert not caplog.records


def test_one_branch_of_a_split_is_a_filter(caplog: pytest.LogCaptureFixture) -> None:
    one, two = LazyChunkStream.from_iter(several()).split(content="/a/**")
    with caplog.at_level(logging.WARNING, "chunkmill"):
        assert len(one.to_chunks()) == 2
    assert "Only one branch of a split is connected to the pipeline." in caplog.text
    assert len(two.to_chunks()) == 2


def test_explain_shows_the_stage_and_what_passes_undecoded() -> None:
    text = LazyChunkStream.from_iter(several()).filter(content="/a/**").explain()
    assert "source from_iter" in text and "filter(content='/a/**')" in text and "1 stage" in text
    assert "passed through undecoded" in text
    assert "decoded by map(" in LazyChunkStream.from_iter([]).map(lambda c: c).explain()


class Once:
    """An iterable that always gives the same iterator."""

    def __init__(self, chunks: list[Chunk]) -> None:
        self.left = iter(chunks)

    def __iter__(self) -> Iterator[Chunk]:
        return self.left


def test_a_list_is_read_again_by_each_terminal(executor: str, tmp_path: Path) -> None:
    chunks = several()
    stream = LazyChunkStream.from_iter(chunks).filter(content="/**")
    assert "from_iter" in stream.explain(executor=executor)
    assert shape(stream.to_chunks(executor=executor)) == ALL[:3]
    assert len(stream.collect(executor=executor)) == 3
    assert stream.write_rrd(tmp_path / "a.rrd", application_id="a", recording_id="r", executor=executor).chunks == 3
    chunks.append(chunk("/late", "x"))
    assert shape(stream.to_chunks(executor=executor)) == [*ALL[:3], ("/late", ("x",))]


@pytest.mark.parametrize(
    "make", [lambda: (c for c in several()), lambda: map(as_they_are, several()), lambda: Once(several())]
)
def test_what_can_be_iterated_once_is_refused_the_second_time(
    executor: str, make: Callable[[], Any], tmp_path: Path
) -> None:
    stream = LazyChunkStream.from_iter(make())
    stream.explain(executor=executor)
    assert len(stream.to_chunks(executor=executor)) == 4
    with pytest.raises(
        UsageError, match=r"given to from_iter was already consumed by an earlier run\. Give from_iter a list"
    ):
        stream.write_rrd(tmp_path / "a.rrd", application_id="a", recording_id="r", executor=executor)
    assert not (tmp_path / "a.rrd").exists()


def as_they_are(c: Chunk) -> Chunk:
    return c


pieces = st.lists(
    st.tuples(st.sampled_from(["/a", "/a/b", "/c"]), st.sets(st.sampled_from("xyz"), min_size=1), st.booleans()),
    max_size=6,
)
selections = st.fixed_dictionaries(
    {},
    optional={
        "content": st.sampled_from(["/a/**", "/a", "/** - /a"]),
        "is_static": st.booleans(),
        "has_timeline": st.sampled_from(["frame", "other"]),
        "components": st.lists(st.sampled_from("xyz"), max_size=2),
    },
)


def cells(chunks: list[Chunk]) -> list[tuple[Any, ...]]:
    """Every value with its row id, in sorted order: what must survive."""
    out = []
    for c in chunks:
        for component in c.data.components:
            for row, value in zip(c.data.row_ids.to_pylist(), component.values.to_pylist(), strict=True):
                out.append((c.entity_path, c.is_static, component.descriptor.component, row, tuple(value)))
    return sorted(out)


@given(pieces=pieces, selection=selections)
def test_split_and_merge_keep_every_value(pieces: list[Any], selection: dict[str, Any]) -> None:
    chunks = [chunk(p, *sorted(names), timeline=None if static else "frame") for p, names, static in pieces]
    one, two = LazyChunkStream.from_iter(chunks).split(**selection)
    assert cells(LazyChunkStream.merge(one, two).to_chunks()) == cells(chunks)
    kept = LazyChunkStream.from_iter(chunks).filter(**selection).to_chunks()
    left = LazyChunkStream.from_iter(chunks).drop(**selection).to_chunks()
    assert sorted(cells(kept) + cells(left)) == cells(chunks)


@pytest.mark.parametrize("one", ["x", ComponentDescriptor("x"), ["x"], [ComponentDescriptor("x", "ns.A", "ns.X")]])
def test_one_component_may_be_given_as_it_is(one: Any) -> None:
    def components(stream: LazyChunkStream) -> set[str]:
        return {c.descriptor.component for chunk in stream.to_chunks() for c in chunk.data.components}

    chunks = several()
    everything = components(LazyChunkStream.from_iter(chunks))
    matched, rest = LazyChunkStream.from_iter(chunks).split(components=one)
    assert components(LazyChunkStream.from_iter(chunks).filter(components=one)) == {"x"}
    assert components(LazyChunkStream.from_iter(chunks).drop(components=one)) == everything - {"x"}
    assert components(LazyChunkStream.merge(matched.filter(components=one), rest.drop(components=one))) == everything


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.filter(components=5),
        lambda s: s.filter(components=[5]),
        lambda s: s.drop(content=[5]),
        lambda s: s.split(is_static="yes"),
        lambda s: s.lenses(5),
        lambda s: s.lenses([], content=5),
        lambda s: s.lenses([], output_mode="some"),
        lambda s: LazyChunkStream.merge(s, 5),
        lambda s: LazyChunkStream.merge(s, s),
        lambda s: LazyChunkStream.merge(s, consumed()),
    ],
)
def test_a_builder_that_raises_leaves_its_stream(build: Callable[[LazyChunkStream], Any]) -> None:
    stream = LazyChunkStream.from_iter(several())
    with pytest.raises((TypeError, ValueError, AttributeError)):
        build(stream)
    assert len(stream.to_chunks()) == len(several())


def consumed() -> LazyChunkStream:
    stream = LazyChunkStream.from_iter([])
    stream.filter()
    return stream


def test_what_collect_gives_is_annotated() -> None:
    assert LazyChunkStream.collect.__annotations__["return"] == "ChunkStore"
    assert LazyChunkStream.collect.__annotations__["optimize"] == "OptimizationProfile | None"


class Plain:
    """A source that is derived from nothing."""

    def __init__(self, chunks: list[Chunk], paths: list[str] | None = None) -> None:
        self.chunks = chunks
        if paths is not None:
            self.paths = lambda: paths

    def describe(self) -> str:
        return "Plain"

    def splits(self) -> list[Split]:
        return [Split(str(i), 1) for i in range(len(self.chunks))]

    def read(self, split: Split) -> Iterator[Chunk]:
        yield self.chunks[int(split.label)]


class Derived(Plain, Source[Split]):
    """The same, derived from the base class, whose defaults it leaves as they are."""


@pytest.mark.parametrize("kind", [Plain, Derived])
def test_a_source_needs_three_methods(kind: type[Plain], tmp_path: Path) -> None:
    def stream() -> LazyChunkStream:
        return LazyChunkStream.from_source(kind(several()))

    assert shape(stream().to_chunks()) == ALL
    assert shape(stream().filter(content="/a/**").to_chunks()) == ALL[:2]
    assert "source Plain: 4 split(s), 4 bytes" in stream().explain()
    table = stream().to_arrow("/a", columns=["x"])
    assert table.to_pydict() == {"x": [0.0, 1.0]}
    report = stream().drop(content="/b/**").write_rrd(tmp_path / "a.rrd", application_id="a", recording_id="r")
    assert report.chunks == 3
    assert shape(list(LazyChunkStream.merge(stream(), LazyChunkStream.from_iter(several())))) == [*ALL, *ALL]


def test_the_files_of_a_source_are_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a.rrd"
    path.write_bytes(b"what is read")
    stream = LazyChunkStream.from_source(Plain(several(), [str(path)]))
    with pytest.raises(ChunkmillError):
        stream.write_rrd(path, application_id="a", recording_id="r")
    assert path.read_bytes() == b"what is read"


def test_an_operator_without_fates_looks_into_every_chunk() -> None:
    kind = ChunkKind("/a", False, ["frame"])
    assert (Map(several).has_fates, Map(several).fate(kind)) == (False, Fate.LOOKED_INTO)
    keeps = Filter(Selection.of("/a", None, None, None))
    assert (keeps.has_fates, keeps.fate(kind), keeps.fate(ChunkKind("/b", False, []))) == (
        True,
        Fate.PASSED_ON,
        Fate.LEFT_OUT,
    )
