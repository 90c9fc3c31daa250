"""Schemas, their columns and selectors; natural order of entities; the same questions put to Rerun."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, ComponentDescriptor, TimeColumn
from chunkmill.engine.chunk.columns import (
    ComponentColumnDescriptor,
    ComponentColumnSelector,
    IndexColumnDescriptor,
    IndexColumnSelector,
    path_order,
)
from chunkmill.engine.chunk.schema import Schema

TEXT = ComponentDescriptor("TextDocument:text", "rerun.archetypes.TextDocument", "rerun.components.Text")
CLEAR = ComponentDescriptor("Clear:is_recursive", "rerun.archetypes.Clear", "rerun.components.ClearIsRecursive")
NAME = ComponentDescriptor("RecordingInfo:name", "rerun.archetypes.RecordingInfo", "rerun.components.Name")
NOTHING = pa.array([[]], pa.list_(pa.int32()))


def chunks() -> list[Chunk]:
    at = [TimeColumn("frame", sequence=[1])]
    return [
        Chunk.from_columns("/b/c", at, [ComponentColumn("x", [1.0]), ComponentColumn(CLEAR, [True])]),
        Chunk.from_columns("/b/c", [], [ComponentColumn(TEXT, ["hi"])]),
        Chunk.from_columns(
            "/b/c",
            [TimeColumn("log_time", timestamp=[1.5]), TimeColumn("age", duration=[2])],
            [ComponentColumn("emp", NOTHING), ComponentColumn(ComponentDescriptor("A:x", "my.A", "t.T"), [1])],
        ),
        Chunk.from_columns("/b10", at, [ComponentColumn("v", [1])]),
        Chunk.from_columns("/b2", at, [ComponentColumn("v", [1])]),
        Chunk.from_columns("/__properties", [], [ComponentColumn(NAME, ["run"])]),
        Chunk.from_columns("/__properties/sub/x", [], [ComponentColumn("foo", [1])]),
    ]


@pytest.fixture
def schema() -> Schema:
    return Schema.from_headers(c.header for c in chunks())


def test_a_column_prints_as_in_the_specification() -> None:
    column = ComponentColumnDescriptor("/b/c", TEXT.component, TEXT.archetype, TEXT.component_type, True)
    assert str(column) == repr(column) == (
        "Column name: /b/c:TextDocument:text\n"
        "\tEntity path: /b/c\n"
        "\tArchetype: rerun.archetypes.TextDocument\n"
        "\tComponent type: rerun.components.Text\n"
        "\tComponent: TextDocument:text\n"
        "\tStatic: true"
    )  # fmt: skip
    bare = ComponentColumnDescriptor("/a", "value")
    assert str(bare) == (
        "Column name: /a:value\n\tEntity path: /a\n\tArchetype: None\n\tComponent type: \n\tComponent: value"
    )


def test_columns_come_in_order(schema: Schema) -> None:
    assert schema.column_names() == [
        "age",
        "frame",
        "log_time",
        "/b/c:emp",
        "/b/c:x",
        "/b/c:A:x",
        "/b/c:Clear:is_recursive",
        "/b/c:TextDocument:text",
        "/b2:v",
        "/b10:v",
        "property:RecordingInfo:name",
        "property:sub/x:foo",
    ]
    assert [c.name for c in schema] == schema.column_names()
    assert repr(schema) == str(schema) == "\n".join(map(str, schema))
    assert repr(schema).startswith("Index(timeline:age)\nIndex(timeline:frame)\n")
    assert repr(Schema([], [])) == ""


def test_what_a_column_says_of_itself(schema: Schema) -> None:
    text, clear = schema.column_for("b/c", "TextDocument:text"), schema.column_for("/b/c", "Clear:is_recursive")
    name, empty = schema.column_for("/__properties", "RecordingInfo:name"), schema.column_for("/b/c", "emp")
    assert text and clear and name and empty
    assert text.is_static and not text.is_property and text.datatype == pa.list_(pa.string())
    assert clear.is_tombstone and not clear.is_static
    assert name.is_property and name.is_static
    assert empty.is_semantically_empty and not clear.is_semantically_empty
    assert not schema.index_columns()[0].is_static
    with pytest.raises(AttributeError):
        text.component = "other"  # type: ignore[misc]


def test_chunks_of_one_column_are_put_together() -> None:
    def of(*parts: Chunk) -> ComponentColumnDescriptor:
        (column,) = Schema.from_headers(c.header for c in parts).component_columns()
        return column

    at = [TimeColumn("frame", sequence=[1])]
    empty = Chunk.from_columns("/x", at, [ComponentColumn("c", NOTHING)])
    full = Chunk.from_columns("/x", at, [ComponentColumn("c", pa.array([1], pa.int32()))])
    static = Chunk.from_columns("/x", [], [ComponentColumn("c", NOTHING)])
    assert of(empty).is_semantically_empty and not of(empty, full).is_semantically_empty
    assert not of(full, empty).is_semantically_empty
    assert of(full, static).is_static and of(static, full).is_static
    assert of(full, Chunk.from_columns("/x", at, [ComponentColumn("c", ["s"])])).datatype == pa.list_(pa.int32())


def test_equality_is_of_the_columns(schema: Schema) -> None:
    assert schema == Schema.from_headers(c.header for c in reversed(chunks()))
    assert schema != Schema.from_headers(c.header for c in chunks()[1:])
    assert schema != 1
    assert Schema([IndexColumnDescriptor("a")], []) == Schema([IndexColumnDescriptor("a")], [])
    with pytest.raises(TypeError, match="unhashable"):
        hash(schema)
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert len(set(schema)) == len(list(schema))


def test_arrow_and_back(schema: Schema) -> None:
    arrow = schema.to_arrow()
    assert arrow.names == ["rerun.controls.RowId", *schema.column_names()]
    assert arrow.field("/b/c:TextDocument:text").metadata == {
        b"rerun:kind": b"data",
        b"rerun:entity_path": b"/b/c",
        b"rerun:archetype": b"rerun.archetypes.TextDocument",
        b"rerun:component": b"TextDocument:text",
        b"rerun:component_type": b"rerun.components.Text",
        b"rerun:is_static": b"true",
    }
    assert Schema.from_arrow(arrow) == schema
    assert pa.schema(schema) == arrow
    names = {"/a:b:c": "b:c", "property:foo": "foo", "property:a/b:foo": "foo"}
    bare = pa.schema([pa.field(n, pa.list_(pa.int8()), metadata={"rerun:component": c}) for n, c in names.items()])
    assert Schema.from_arrow(bare).column_names() == list(names)
    assert Schema.from_arrow(pa.schema([pa.field("/a:b:c", pa.list_(pa.int8()))])).column_for("/a", "b:c")
    with pytest.raises(ValueError, match="timeline 't' has the type string"):
        Schema.from_arrow(pa.schema([pa.field("t", pa.string(), metadata={"rerun:kind": "index"})]))


def test_filters(schema: Schema) -> None:
    assert schema.archetypes() == ["my.A", "rerun.archetypes.Clear", "rerun.archetypes.TextDocument"]
    assert "rerun.archetypes.RecordingInfo" in schema.archetypes(include_properties=True)
    assert schema.component_types() == ["rerun.components.ClearIsRecursive", "rerun.components.Text", "t.T"]
    assert schema.entity_paths() == ["/b/c", "/b10", "/b2"]
    assert schema.entity_paths(include_properties=True)[0] == "/__properties"
    assert schema.column_names_for(entity_path="b2/") == ["/b2:v"]
    for name in ("TextDocument", "rerun.archetypes.TextDocument"):
        assert schema.column_names_for(archetype=name) == ["/b/c:TextDocument:text"]
    assert schema.column_names_for(archetype="archetypes.TextDocument") == []
    assert schema.column_names_for(archetype="RecordingInfo") == []
    assert schema.column_names_for(archetype="RecordingInfo", include_properties=True) == [
        "property:RecordingInfo:name"
    ]
    assert schema.column_names_for(component_type="t.T") == ["/b/c:A:x"]
    with pytest.raises(TypeError):
        schema.columns_for(archetype=int)


def test_columns_are_found_by_selector(schema: Schema) -> None:
    expected = schema.column_for("/b/c", "A:x")
    assert expected is not None
    for selector in ("/b/c:A:x", "b/c:A:x", ComponentColumnSelector("b/c", "A:x"), expected):
        assert schema.column_for_selector(selector) == expected
    absent = ComponentColumnDescriptor("/nowhere", "x")
    assert schema.column_for_selector(absent) is absent
    assert schema.column_for("/b/c", "nope") is None


@pytest.mark.parametrize(
    ("selector", "error", "message"),
    [
        ("/b/c", ValueError, "Expected string in the form of `entity_path:component_type`, got: /b/c"),
        ("", ValueError, "Expected column selector, found empty string"),
        ("nope:x", LookupError, "Could not find column for selector /nope:x"),
        ("property:RecordingInfo:name", LookupError, "Could not find column for selector /property:RecordingInfo:name"),
        (ComponentColumnSelector("/b/c", ""), LookupError, "Could not find column for selector /b/c:"),
        (1, TypeError, "argument 'selector'"),
        (IndexColumnSelector("frame"), ValueError, "argument 'selector'"),
    ],
)
def test_selectors_that_find_nothing(schema: Schema, selector: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        schema.column_for_selector(selector)
    assert caught.value.args[0].startswith(message)


def test_selectors() -> None:
    selector = ComponentColumnSelector(entity_path="a//b", component="x")
    assert (selector.entity_path, selector.component, repr(selector)) == ("/a/b", "x", "/a/b:x")
    assert selector == ComponentColumnSelector("/a/b", "x") != ComponentColumnSelector("/a/b", "y")
    assert (IndexColumnSelector(index="frame").name, repr(IndexColumnSelector("f"))) == ("frame", "Index(timeline:f)")
    assert pickle.loads(pickle.dumps([selector, IndexColumnSelector("f")])) == [selector, IndexColumnSelector("f")]
    for wrong in (lambda: ComponentColumnSelector(1, "x"), lambda: IndexColumnSelector(1)):  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(AttributeError):
        selector.component = "y"  # type: ignore[misc]


# --- descriptors


@pytest.mark.parametrize(
    ("component", "archetype", "moved_to", "expected"),
    [
        ("x", None, "Points3D", "Points3D:x"),
        ("x", None, "rerun.archetypes.Points3D", "Points3D:x"),
        ("A:b", None, "Q", "Q:A:b"),
        ("A:b", "rerun.archetypes.A", "x.y.Q", "x.y.Q:b"),
        ("A:b", "x.A", "Q", "Q:A:b"),
        ("A:b", "A", "", "A:b"),
    ],
)
def test_a_component_moves_to_an_archetype(component: str, archetype: str | None, moved_to: str, expected: str) -> None:
    moved = ComponentDescriptor(component, archetype).with_builtin_archetype(moved_to)
    assert (moved.component, moved.archetype) == (expected, moved_to or archetype)


def test_overrides() -> None:
    full, bare = ComponentDescriptor("x", "a", "t"), ComponentDescriptor("x", "", "")
    assert bare == ComponentDescriptor("x")
    assert full.with_overrides(archetype="b") == ComponentDescriptor("x", "b", "t")
    assert full.or_with_overrides("b", "u") == full
    assert bare.or_with_overrides("b", "u") == ComponentDescriptor("x", "b", "u")


def test_values_are_dealt_out_to_rows() -> None:
    column = ComponentColumn("v", pa.array([1, 2, 3]), lengths=[2, 0, 1])
    assert column.as_arrow_array().to_pylist() == [[1, 2], [], [3]]
    with pytest.raises(ValueError, match="add up to 2, but there are 3"):
        ComponentColumn("v", [1, 2, 3]).partition([1, 1])


# --- beside the real thing


def _their_schema(parts: list[Chunk]) -> Any:
    module = pytest.importorskip("rerun.chunk")
    real = [c for mine in parts for c in module.Chunk.from_record_batch(mine.to_record_batch())]
    return module.ChunkStore.from_chunks(real).schema()


def test_rerun_says_the_same(schema: Schema) -> None:
    real = _their_schema(chunks())
    assert repr(real) == repr(schema)
    assert real.to_arrow().equals(schema.to_arrow(), check_metadata=True)
    for properties in (False, True):
        assert real.archetypes(include_properties=properties) == schema.archetypes(include_properties=properties)
        assert real.component_types(include_properties=properties) == schema.component_types(
            include_properties=properties
        )
        assert real.entity_paths(include_properties=properties) == schema.entity_paths(include_properties=properties)
    for archetype in ("TextDocument", "my.A", "A", "Clear", "archetypes.Clear", "nope", ""):
        assert real.column_names_for(archetype=archetype) == schema.column_names_for(archetype=archetype)


def test_rerun_takes_its_own_archetype_classes() -> None:
    rr = pytest.importorskip("rerun")
    schema = Schema.from_headers(c.header for c in chunks())
    assert schema.column_names_for(archetype=rr.TextDocument) == ["/b/c:TextDocument:text"]


def test_rerun_lists_entities_in_the_same_order() -> None:
    r = random.Random(5)
    pieces = [*"aAbB_-012zZäÄ日ß²Σς ", "__", "01", "10", "007"]
    names = ["".join(r.choices(pieces, k=r.randint(1, 4))) for _ in range(400)]
    paths = {"/" + "/".join(r.choices(names, k=r.randint(0, 2))) for _ in range(300)}
    parts = [Chunk.from_columns(p, [], [ComponentColumn("v", [1])]) for p in sorted(paths)]
    expected = [c.entity_path for c in _their_schema(parts).component_columns()]
    assert sorted(sorted(expected), key=path_order) == expected
