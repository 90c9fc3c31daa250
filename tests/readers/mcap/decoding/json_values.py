"""JSON Schemas, the types they declare, and values of these."""

from __future__ import annotations

import base64
from typing import Any

from chunkmill.readers.mcap.decoding.json import JsonNode, Leaf, ListOf, Record
from hypothesis import strategies as st

SCHEMAS: dict[str, dict[str, Any]] = {
    "integer": {"type": "integer"},
    "unsigned": {"type": "integer", "minimum": 0, "maximum": 2**64 - 1},
    "number": {"type": "number"},
    "boolean": {"type": ["boolean", "null"]},
    "string": {"type": "string"},
    "base64": {"type": "string", "contentEncoding": "base64"},
    "any": {},
}
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "integer": st.integers(-(2**63), 2**63 - 1),
    "unsigned": st.integers(0, 2**64 - 1),
    "number": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9).map(float),
    "boolean": st.booleans(),
    "string": texts,
    "base64": st.binary(max_size=4),
    "any": st.sampled_from(["1", '"x"', '{"a":[1,null]}', "[]", "true"]),
}


def nodes(depth: int = 2, leaves: tuple[str, ...] = tuple(SCHEMAS)) -> st.SearchStrategy[JsonNode]:
    """Types of what is below the top."""
    single: st.SearchStrategy[JsonNode] = st.sampled_from([Leaf(kind) for kind in leaves])
    if not depth:
        return single
    return st.one_of(single, records(depth - 1, leaves), st.builds(ListOf, nodes(depth - 1, leaves)))


def records(depth: int = 2, leaves: tuple[str, ...] = tuple(SCHEMAS)) -> st.SearchStrategy[JsonNode]:
    """Types of objects."""
    fields = st.dictionaries(st.sampled_from("abcdeé"), nodes(depth, leaves), min_size=1, max_size=4)
    return fields.map(lambda found: Record(tuple(found.items())))


def schema_of(node: JsonNode) -> dict[str, Any]:
    """The schema that declares ``node``."""
    if isinstance(node, Leaf):
        return SCHEMAS[node.kind]
    if isinstance(node, ListOf):
        return {"type": "array", "items": schema_of(node.element)}
    return {"type": "object", "properties": {name: schema_of(child) for name, child in node.fields}}


def values(node: JsonNode) -> st.SearchStrategy[Any]:
    """What a message decodes to."""
    if isinstance(node, Leaf):
        return st.none() | VALUES[node.kind]
    if isinstance(node, ListOf):
        return st.none() | st.lists(values(node.element), max_size=3)
    return st.fixed_dictionaries({name: values(child) for name, child in node.fields})


def sayable(node: JsonNode, value: Any, parse: Any, *, binary: bool = False) -> Any:
    """``value`` as it stands in a message: bytes in base64 unless ``binary``, JSON text parsed, nulls left out."""
    if value is None:
        return None
    if isinstance(node, ListOf):
        return [sayable(node.element, element, parse, binary=binary) for element in value]
    if isinstance(node, Record):
        return {
            name: sayable(child, value[name], parse, binary=binary)
            for name, child in node.fields
            if value[name] is not None or name == "a"
        }
    if node.kind == "any":
        return parse(value)
    return base64.b64encode(value).decode() if node.kind == "base64" and not binary else value
