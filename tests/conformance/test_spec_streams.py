"""The tables of readers and streams in the format's specification, case by case, in this process."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, ComponentDescriptor, TimeColumn
from chunkmill.engine.errors import ReadError, ReadWarning, SourceMissingError, UsageError
from chunkmill.engine.rrd import StoreEntry
from chunkmill.engine.stream import ContentFilter, LazyChunkStream, write_stores
from chunkmill.readers import RrdReader

CONSUMED = "This stream has already been consumed by a pipeline operation (e.g. filter, drop, split, or merge)."
IDS = {"application_id": "a", "recording_id": "r"}


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", "inline")


def chunk(path: str, *components: str, timeline: str | None = "frame") -> Chunk:
    indexes = [] if timeline is None else [TimeColumn(timeline, sequence=[0, 1])]
    return Chunk.from_columns(path, indexes, [ComponentColumn(c, [0.0, 1.0]) for c in components or ("x",)])


def stream(*chunks: Chunk) -> LazyChunkStream:
    return LazyChunkStream.from_iter(chunks or [chunk("/a"), chunk("/b")])


def entities(chunks: LazyChunkStream) -> list[str]:
    return [c.entity_path for c in chunks]


def recordings(path: Path, *stores: StoreEntry) -> RrdReader:
    write_stores(path, [(s, stream(chunk(f"/{s.recording_id}"))) for s in stores])
    return RrdReader(path)


REC = StoreEntry("recording", "a", "b")

# --- readers


def test_texts(tmp_path: Path) -> None:
    reader = recordings(tmp_path / "x.rrd", REC)
    assert repr(stream()) == "LazyChunkStream()"
    assert repr(reader) == f"RrdReader({tmp_path / 'x.rrd'})"
    assert reader.path == tmp_path / "x.rrd"
    assert repr(reader.recordings()) == "[StoreEntry(kind='recording', application_id='a', recording_id='b')]"
    assert repr(reader.stream()) == "LazyChunkStream()"


@pytest.mark.parametrize("path", [5, "none.rrd", Path("no") / "where.rrd", None])
def test_a_path_that_is_not_there(path: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"RRD file not found: {path}")) as caught:
        RrdReader(path)
    assert isinstance(caught.value, SourceMissingError)


def test_a_folder_is_no_recording(tmp_path: Path) -> None:
    reader = RrdReader(tmp_path)
    for use in (reader.recordings, reader.blueprints, reader.stream, reader.store):
        with pytest.raises(ReadError, match="not a file") as caught:
            use()
        assert isinstance(caught.value, RuntimeError)


def test_stores_come_in_order_and_are_values(tmp_path: Path) -> None:
    stores = [
        StoreEntry("blueprint", "a", "0"),
        StoreEntry("recording", "b", "1"),
        StoreEntry("recording", "a", "3"),
        StoreEntry("recording", "a", "2"),
    ]
    reader = recordings(tmp_path / "x.rrd", *stores)
    assert reader.recordings() == [stores[3], stores[2], stores[1]]
    assert reader.blueprints() == stores[:1]
    assert [entities(reader.stream(store=s)) for s in stores] == [["/0"], ["/1"], ["/3"], ["/2"]]
    assert [len(reader.store(store=s)) for s in stores] == [1, 1, 1, 1]


@pytest.mark.parametrize("method", ["stream", "store"])
def test_the_first_of_several_recordings_is_used_with_a_warning(method: str, tmp_path: Path) -> None:
    reader = recordings(tmp_path / "x.rrd", *(StoreEntry("recording", "aaa", r) for r in ("zzz", "yyy")))
    text = (
        'RRD contains 2 recording stores; implicitly using StoreId(Recording, "aaa", "yyy"). '
        "Pass `store=…` to select explicitly (see `recordings()`)."
    )
    with pytest.warns(ReadWarning, match=f"^{re.escape(text)}$"):
        made = getattr(reader, method)()
    assert [c.entity_path for c in made] == ["/yyy"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        getattr(reader, method)(store=reader.recordings()[1])


def test_the_path_of_a_reader_stays(tmp_path: Path) -> None:
    reader = recordings(tmp_path / "x.rrd", REC)
    with pytest.raises(AttributeError):
        reader.path = tmp_path / "y.rrd"  # type: ignore[misc]
    assert reader.path == tmp_path / "x.rrd"


@pytest.mark.parametrize("method", ["stream", "store"])
def test_stores_that_are_not_there(method: str, tmp_path: Path) -> None:
    read = getattr(recordings(tmp_path / "x.rrd", REC), method)
    with pytest.raises(UsageError, match=re.escape('Store StoreId(Recording, "a", "c") not found in RRD file')):
        read(store=StoreEntry("recording", "a", "c"))
    with pytest.raises(TypeError, match="argument 'store': 'int' object is not an instance of 'StoreEntry'"):
        read(store=5)
    with pytest.raises(TypeError, match="positional"):
        read(REC)
    only_blueprint = recordings(tmp_path / "y.rrd", StoreEntry("blueprint", "a", "b"))
    assert only_blueprint.recordings() == []
    assert len(only_blueprint.blueprints()) == 1
    with pytest.raises(ValueError, match="No recording store found in RRD file"):
        getattr(only_blueprint, method)()


# --- consumption

BUILDERS: list[Callable[[LazyChunkStream], object]] = [
    lambda s: s.filter(),
    lambda s: s.drop(),
    lambda s: s.split(),
    lambda s: s.map(lambda c: c),
    lambda s: s.flat_map(lambda c: [c]),
    lambda s: s.lenses([]),
    lambda s: LazyChunkStream.merge(s),
]
TERMINALS: list[Callable[[LazyChunkStream], object]] = [
    lambda s: s.to_chunks(),
    lambda s: s.collect(),
    lambda s: list(s),
]


@pytest.mark.parametrize("builder", BUILDERS)
def test_builders_consume(builder: Callable[[LazyChunkStream], object], tmp_path: Path) -> None:
    old = stream()
    builder(old)
    for use in [*BUILDERS, *TERMINALS, lambda s: s.write_rrd(tmp_path / "out.rrd", **IDS)]:
        with pytest.raises(ValueError, match=re.escape(CONSUMED)):
            use(old)
    assert list(tmp_path.iterdir()) == []


def test_terminals_do_not_consume_and_run_afresh(tmp_path: Path) -> None:
    seen: list[str] = []

    def count(c: Chunk) -> Chunk:
        seen.append(c.entity_path)
        return c

    recordings(tmp_path / "x.rrd", REC)
    counted = RrdReader(tmp_path / "x.rrd").stream().map(count)
    for use in [*TERMINALS, lambda s: s.write_rrd(tmp_path / "out.rrd", **IDS)]:
        use(counted)
    assert seen == ["/b"] * 4


def test_a_list_is_iterated_by_each_terminal() -> None:
    chunks = stream()
    assert len(chunks.to_chunks()) == len(list(chunks)) == len(chunks.collect()) == 2


def test_merging_a_stream_with_itself() -> None:
    one = stream()
    with pytest.raises(ValueError, match=re.escape(CONSUMED)):
        LazyChunkStream.merge(one, one)


# --- filter, drop, split


@pytest.mark.parametrize("method", ["filter", "drop", "split"])
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"content": 5}, "'int' object is not iterable"),
        ({"components": 5}, "'int' object is not iterable"),
        ({"is_static": "x"}, "argument 'is_static': 'str' object"),
        ({"has_timeline": 5}, "argument 'has_timeline': 'int' object"),
    ],
)
def test_selections_are_checked_at_once(method: str, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        getattr(stream(), method)(**arguments)
    with pytest.raises(
        TypeError, match=rf"^LazyChunkStream\.{method}\(\) takes 1 positional argument but 2 were given"
    ):
        getattr(stream(), method)("/a")


@pytest.mark.parametrize("name", ["nope", ""])
def test_a_timeline_that_nothing_has(name: str) -> None:
    chunks = [chunk("/a"), chunk("/s", timeline=None)]
    assert stream(*chunks).filter(has_timeline=name).to_chunks() == []
    assert entities(stream(*chunks).drop(has_timeline=name)) == ["/a", "/s"]


def test_components_are_compared_by_name_alone() -> None:
    x, y = chunk("/a", "x", "y"), chunk("/b", "y")
    (found,) = stream(x, y).filter(components=[ComponentDescriptor("x", "some.archetype", "some.type")])
    assert (found.entity_path, found.num_columns) == ("/a", 3)
    assert found.id != x.id
    (whole,) = stream(y).filter(components=["y", "z"])
    assert whole.id != y.id
    assert whole.to_record_batch().columns == y.to_record_batch().columns


def test_drop_removes_columns_and_then_chunks() -> None:
    x, y, z = chunk("/a", "x", "y"), chunk("/b", "x"), chunk("/c", "z")
    left = stream(x, y, z).drop(components=["x"]).to_chunks()
    assert [c.entity_path for c in left] == ["/a", "/c"]
    assert left[0].id != x.id
    assert left[1] is z
    kept = stream(x, y, z).drop(components=["x"], content="/a").to_chunks()
    assert [c.num_columns for c in kept] == [3, 3, 3]
    assert kept[1:] == [y, z]


def test_no_components_are_listed() -> None:
    chunks = [chunk("/a"), chunk("/b")]
    assert stream(*chunks).filter(components=[]).to_chunks() == []
    assert stream(*chunks).drop(components=[]).to_chunks() == chunks


def test_without_arguments() -> None:
    assert entities(stream().filter()) == ["/a", "/b"]
    assert stream().drop().to_chunks() == []
    one, two = stream().split()
    assert (entities(one), entities(two)) == (["/a", "/b"], [])


def test_properties_are_no_content_unless_they_are_named() -> None:
    chunks = [chunk("/a"), chunk("/__properties", timeline=None), chunk("/__properties/x", timeline=None)]
    assert entities(stream(*chunks)) == [c.entity_path for c in chunks]
    assert entities(stream(*chunks).filter(content="/**")) == ["/a"]
    assert entities(stream(*chunks).drop(content="/**")) == ["/__properties", "/__properties/x"]
    assert entities(stream(*chunks).filter(content="/__properties")) == ["/__properties"]
    everything = ContentFilter.everything().include_properties()
    assert len(stream(*chunks).filter(content=everything).to_chunks()) == 3


def test_split_in_components_mode_sends_what_fails_the_predicates_to_the_rest() -> None:
    chunks = [chunk("/a", "x", "y"), chunk("/b", "x")]
    one, two = stream(*chunks).split(content="/a", components=["x"])
    merged = LazyChunkStream.merge(one.map(lambda c: c.with_entity_path("/one")), two).to_chunks()
    assert [(c.entity_path, c.num_columns) for c in merged] == [("/one", 3), ("/a", 3), ("/b", 3)]
    assert merged[2] is chunks[1]


def test_one_branch_alone_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    one, two = stream().split(content="/a")
    with caplog.at_level(logging.WARNING, "chunkmill"):
        assert entities(one) == ["/a"]
    assert (
        "Only one branch of a split is connected to the pipeline. "
        "The split has been optimized into a filter/drop operation." in caplog.text
    )
    assert entities(two) == ["/b"]


def test_two_branches_run_apart_read_their_source_twice(tmp_path: Path) -> None:
    seen: list[str] = []

    def count(c: Chunk) -> Chunk:
        seen.append(c.entity_path)
        return c

    stream().write_rrd(tmp_path / "x.rrd", **IDS)
    one, two = RrdReader(tmp_path / "x.rrd").stream().map(count).split(content="/a")
    assert (entities(one), entities(two)) == (["/a"], ["/b"])
    assert len(seen) == 4
    one, two = RrdReader(tmp_path / "x.rrd").stream().map(count).split(content="/a")
    assert entities(LazyChunkStream.merge(two, one)) == ["/a", "/b"]  # in the order of the source
    assert len(seen) == 6


# --- functions


def fail(_: Chunk) -> Chunk:
    raise ZeroDivisionError("division by zero")


def broken() -> Iterator[Chunk]:
    yield chunk("/a")
    raise KeyError("gone")


@pytest.mark.parametrize(
    ("made", "error", "text"),
    [
        (lambda: stream().map(fail), ZeroDivisionError, "division by zero"),
        (lambda: stream().flat_map(fail), ZeroDivisionError, "division by zero"),
        (lambda: LazyChunkStream.from_iter(broken()), KeyError, "gone"),
        (lambda: stream().map(5), TypeError, "'int' object is not callable"),
        (lambda: stream().map(lambda c: None), AttributeError, "'NoneType' object"),
        (lambda: stream().map(lambda c: "x"), AttributeError, "'str' object"),
        (lambda: stream().flat_map(lambda c: None), TypeError, "'NoneType' object is not iterable"),
        (lambda: stream().flat_map(lambda c: c), TypeError, "'Chunk' object is not iterable"),
        (lambda: stream().flat_map(lambda c: [None]), AttributeError, "'NoneType' object"),
        (lambda: LazyChunkStream.from_iter([5]), AttributeError, "'int' object"),  # type: ignore[list-item]
    ],
)
def test_errors_of_functions_are_raised_when_they_run(
    made: Callable[[], LazyChunkStream], error: type[Exception], text: str, tmp_path: Path
) -> None:
    for use in [*TERMINALS, lambda s: s.write_rrd(tmp_path / "out.rrd", **IDS)]:
        with pytest.raises(error, match=text) as caught:
            use(made())
        assert type(caught.value) is error
    assert list(tmp_path.iterdir()) == []


def test_what_is_wrong_at_once() -> None:
    with pytest.raises(TypeError):
        LazyChunkStream.from_iter(5)  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="'int' object"):
        LazyChunkStream.merge(stream(), 5)  # type: ignore[arg-type]
    assert LazyChunkStream.merge().to_chunks() == []


@pytest.mark.parametrize("several", [lambda c: [c, c], lambda c: (c for _ in range(2)), lambda c: iter((c, c))])
def test_flat_map_takes_any_iterable_and_keeps_the_order(several: Callable[[Chunk], Any]) -> None:
    assert entities(stream().flat_map(several)) == ["/a", "/a", "/b", "/b"]
    assert entities(stream().flat_map(lambda c: [])) == []


def test_merge_keeps_the_order_of_its_inputs() -> None:
    merged = LazyChunkStream.merge(stream(), stream(chunk("/z"), chunk("/a")), LazyChunkStream.from_iter([]))
    assert entities(merged.map(lambda c: c)) == ["/a", "/b", "/z", "/a"]


# --- content


PATHS = ["/", "/World", "/world", "/world/car", "/world/car/wheel", "/__properties"]


@pytest.mark.parametrize(
    ("content", "matched"),
    [
        ("/World", ["/World"]),
        ("/world/**/wheel", []),
        ("/world/ /World/", ["/World", "/world"]),
        ("+    /world", ["/world"]),
        ("- /world/**", []),
        (["/world/**", "+ /World", "- /world/car/**"], ["/World", "/world"]),
        ("/world/** - /world/** + /world/car", ["/world/car"]),
        ("$origin/**", []),
        (ContentFilter.everything().exclude("/world/**"), ["/", "/World"]),
        (ContentFilter.nothing(), []),
        ("/** /__properties", PATHS),
    ],
)
def test_content(content: Any, matched: list[str]) -> None:
    chunks = [chunk(p) for p in PATHS]
    assert entities(stream(*chunks).filter(content=content)) == matched
    assert entities(stream(*chunks).drop(content=content)) == [p for p in PATHS if p not in matched]


def test_a_rule_of_a_filter_begins_with_a_slash() -> None:
    assert ContentFilter.everything().exclude("/foo").to_exprs() == ["/**", "-/foo"]
    for build in (ContentFilter.everything().include, ContentFilter.nothing().exclude):
        with pytest.raises(ValueError, match=r"^Entity path expression must start with '/', got: 'foo'$"):
            build("foo")
