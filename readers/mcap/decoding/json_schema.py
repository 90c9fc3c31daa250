"""JSON Schema to the tree of types that messages become."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import unquote

from ....engine.limits import MAX_NESTING, MAX_SCHEMA_BYTES, MAX_SCHEMA_FIELDS, is_text
from .decoded import SchemaError
from .json_types import REST, JsonNode, Leaf, ListOf, Record

_ANY: Final = Leaf("any")
_INT64_MAX: Final = (1 << 63) - 1
_SIMPLE: Final = {"number": Leaf("number"), "boolean": Leaf("boolean")}


def parse_json_schema(schema_name: str, schema_data: bytes) -> JsonNode:
    """What ``schema_data`` declares; an empty schema declares nothing. Raises :class:`SchemaError`.

    Only what is declared has a type of its own, so that a column's type never depends on the data: properties become
    fields, ``integer`` int64 (uint64 when its ``maximum`` needs that), ``number`` double, a string with
    ``"contentEncoding": "base64"`` binary, arrays of one type lists, constants and ``enum`` the type of their values. A
    choice between a type and null is the type, since every value may be null. References within the schema are
    followed. What remains open (no type, several types, an object without properties, recursion) is kept as JSON text,
    and so is, in a field ``additionalProperties``, what an object has beyond its properties when the schema says by
    that word that it may have more.

    >>> parse_json_schema("Point", b'{"properties": {"x": {"type": "number"}, "tags": {}}}').arrow
    StructType(struct<x: double, tags: string>)
    """
    if len(schema_data) > MAX_SCHEMA_BYTES:
        raise SchemaError(f"the schema {schema_name} has {len(schema_data):,} bytes, too many")
    if not schema_data.strip():
        return _ANY
    try:
        schema = json.loads(schema_data)
    except RecursionError:
        raise SchemaError("it is nested too deeply") from None
    except ValueError as error:
        raise SchemaError(f"it is not JSON: {error}") from None
    if not isinstance(schema, dict | bool):
        raise SchemaError("it is neither an object nor a boolean")
    return _Builder(schema).build(schema, ())


class _Builder:
    """Turns schemas into types; counts what they expand to."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._leaves = 0

    def build(self, schema: Any, above: tuple[str, ...], depth: int = 1) -> JsonNode:
        """The type of ``schema``, which stands below the references ``above``."""
        if depth > MAX_NESTING:
            raise SchemaError(f"it nests deeper than {MAX_NESTING} levels")
        self._leaves += 1
        if self._leaves > MAX_SCHEMA_FIELDS:
            raise SchemaError(f"it expands to more than {MAX_SCHEMA_FIELDS:,} fields")
        if not isinstance(schema, dict):
            return _ANY
        if isinstance(schema.get("$ref"), str):
            return self._referenced(schema["$ref"], above, depth)
        for word in ("anyOf", "oneOf"):
            if isinstance(schema.get(word), list) and "properties" not in schema:
                return self._one_of([{**_type_of(schema), **_object(choice)} for choice in schema[word]], above, depth)
        if isinstance(schema.get("allOf"), list):
            return self._all_of(schema, above, depth)
        return self._typed(schema, above, depth)

    def _typed(self, schema: dict[str, Any], above: tuple[str, ...], depth: int) -> JsonNode:
        kind = _kind(schema)
        if kind == "object":
            return self._record(schema, above, depth)
        if kind == "array":
            return self._list(schema, above, depth)
        if kind == "integer":
            return Leaf("unsigned" if _is_large(schema) else "integer")
        if kind == "string":
            return Leaf("base64" if schema.get("contentEncoding") == "base64" else "string")
        return _SIMPLE.get(kind, _ANY)

    def _record(self, schema: dict[str, Any], above: tuple[str, ...], depth: int) -> JsonNode:
        properties = schema.get("properties")
        if not isinstance(properties, dict) or not properties:
            return _ANY
        if any("\0" in name or not is_text(name) for name in properties):
            raise SchemaError("the name of a property is no text")
        fields = tuple((name, self.build(child, above, depth + 1)) for name, child in properties.items())
        is_open = schema.get(REST, False) is not False or bool(schema.get("patternProperties"))
        if is_open and REST in properties:
            raise SchemaError(f"a property is named {REST!r}, and there may be others")
        return Record(fields, is_open)

    def _list(self, schema: dict[str, Any], above: tuple[str, ...], depth: int) -> JsonNode:
        items = schema.get("items")
        tuples = schema.get("prefixItems", items if isinstance(items, list) else None)
        if isinstance(tuples, list):
            rest = items if isinstance(items, dict) else schema.get("additionalItems")
            choices = [*tuples, rest] if isinstance(rest, dict) else tuples
            element = self._one_of(choices, above, depth + 1)
        else:
            element = self.build(items, above, depth + 1)
        return ListOf(element)

    def _one_of(self, choices: list[Any], above: tuple[str, ...], depth: int) -> JsonNode:
        """The type that all choices but null agree on."""
        left = [choice for choice in choices if not (isinstance(choice, dict) and _kind(choice) == "null")]
        kinds = {self.build(choice, above, depth + 1) for choice in left}
        if len(kinds) == 1:
            return kinds.pop()
        return Leaf("number") if kinds and kinds <= {Leaf("number"), Leaf("integer")} else _ANY

    def _all_of(self, schema: dict[str, Any], above: tuple[str, ...], depth: int) -> JsonNode:
        """The properties of all, if all are records; else what the only one is."""
        several = [part for part in schema["allOf"] if isinstance(part, dict)]
        if "properties" in schema:
            several.append({name: value for name, value in schema.items() if name != "allOf"})
        nodes = [self.build(part, above, depth + 1) for part in several]
        if len(nodes) == 1:
            return nodes[0]
        fields: dict[str, JsonNode] = {}
        for node in nodes:
            if not isinstance(node, Record) or any(fields.get(name, child) != child for name, child in node.fields):
                return _ANY
            fields |= node.types
        return Record(tuple(fields.items()), any(isinstance(node, Record) and node.open for node in nodes))

    def _referenced(self, reference: str, above: tuple[str, ...], depth: int) -> JsonNode:
        if reference in above or not reference.startswith("#"):
            return _ANY  # recursion, or another document
        found = self._root
        for step in reference[1:].split("/")[1:]:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            elif isinstance(found, dict) and key in found:
                found = found[key]
            else:
                raise SchemaError(f"it refers to {reference[:80]}, which it does not have")
        return self.build(found, (*above, reference), depth + 1)


def _kind(schema: dict[str, Any]) -> str:
    """The one type that a schema allows beside null, or an empty text."""
    declared = schema.get("type")
    if isinstance(declared, list):
        kinds = {kind for kind in declared if kind != "null"} or {"null"}
        if kinds == {"integer", "number"}:
            return "number"
        return str(kinds.pop()) if len(kinds) == 1 else ""
    if isinstance(declared, str):
        return declared
    if "properties" in schema:
        return "object"
    if "items" in schema or "prefixItems" in schema:
        return "array"
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return _kind_of_values(values) if isinstance(values, list) else ""


def _kind_of_values(values: list[Any]) -> str:
    kinds = {type(value) for value in values if value is not None}
    if not kinds:
        return "null" if values else ""
    if kinds <= {int, float}:
        return "integer" if kinds == {int} else "number"
    return {frozenset({str}): "string", frozenset({bool}): "boolean"}.get(frozenset(kinds), "")


def _is_large(schema: dict[str, Any]) -> bool:
    """Whether no negative number is allowed, and some are that int64 does not hold."""
    low, high = schema.get("minimum"), schema.get("maximum")
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return False
    return low >= 0 and high > _INT64_MAX


def _type_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {word: schema[word] for word in ("type", "contentEncoding") if word in schema}


def _object(choice: Any) -> dict[str, Any]:
    return choice if isinstance(choice, dict) else {}
