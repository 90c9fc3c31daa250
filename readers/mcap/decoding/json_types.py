"""The types that a JSON Schema declares, as a tree and in Arrow, and parsed values made to fit them."""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pybase64

from ....engine.limits import MAX_NESTING, MAX_SCHEMA_BYTES, MAX_SCHEMA_FIELDS, is_text
from .columns import SchemaError

REST: Final = "additionalProperties"
"""The field of a record that holds what else an object has, as JSON text."""

_SHOWN: Final = 40
_INTEGRAL: Final = 2.0**53


class MisfitError(ValueError):
    """A value that is not of the declared type; the text says where and why."""


@dataclass(frozen=True)
class Leaf:
    """A single value: ``integer``, ``unsigned``, ``number``, ``boolean``, ``string``, ``base64`` (bytes), or ``any``:
    whatever it is, as JSON text.
    """

    kind: str

    @property
    def arrow(self) -> pa.DataType:
        """Its Arrow type."""
        return _LEAVES[self.kind][0]

    @property
    def leaves(self) -> int:
        """One column."""
        return 1

    @property
    def by_column(self) -> bool:
        """Whether Arrow's own JSON reader can read it."""
        return self.kind != "any"


@dataclass(frozen=True)
class ListOf:
    """An array of values of one type."""

    element: JsonNode

    @cached_property
    def arrow(self) -> pa.DataType:
        """A list."""
        return pa.list_(self.element.arrow)


@dataclass(frozen=True)
class Record:
    """An object with declared properties. An ``open`` one has the field :data:`REST` behind these."""

    fields: tuple[tuple[str, JsonNode], ...]
    open: bool = False

    @cached_property
    def types(self) -> dict[str, JsonNode]:
        """The properties by name."""
        return dict(self.fields)

    @cached_property
    def arrow(self) -> pa.DataType:
        """A struct with a column for each property."""
        fields = [pa.field(name, node.arrow) for name, node in self.fields]
        return pa.struct([*fields, pa.field(REST, pa.string())] if self.open else fields)

    @cached_property
    def leaves(self) -> int:
        """The number of its leaf columns, at least 1."""
        return sum(innermost(node).leaves for _, node in self.fields) + 1

    @cached_property
    def by_column(self) -> bool:
        """See :attr:`Leaf.by_column`."""
        return not self.open and bool(self.fields) and all(innermost(node).by_column for _, node in self.fields)


JsonNode = Leaf | ListOf | Record


def innermost(node: JsonNode) -> Leaf | Record:
    """Return what lists, and lists of lists, have as elements."""
    return innermost(node.element) if isinstance(node, ListOf) else node


def as_declared(node: JsonNode, value: Any, path: str = "") -> Any:
    """``value``, parsed from JSON or CBOR, as what becomes an Arrow value of ``node``'s type.

    Null stays null wherever it stands, and so does what is missing. Raises :class:`MisfitError`.

    >>> point = Record((("x", Leaf("number")), ("blob", Leaf("base64"))))
    >>> as_declared(point, {"blob": "AAE=", "x": 2})
    {'x': 2.0, 'blob': b'\\x00\\x01'}
    """
    if value is None:
        return None
    if isinstance(node, Leaf):
        return _LEAVES[node.kind][1](value, path)
    if isinstance(node, ListOf):
        if not isinstance(value, list | tuple):
            raise _misfit(path, value, "an array")
        return [as_declared(node.element, element, f"{path}[{index}]") for index, element in enumerate(value)]
    if not isinstance(value, dict):
        raise _misfit(path, value, "an object")
    record = {name: as_declared(child, value.get(name), f"{path}.{name}") for name, child in node.fields}
    if len(value) > len(record) or not value.keys() <= record.keys():
        rest = {name: child for name, child in value.items() if name not in node.types}
        if not node.open:
            raise MisfitError(f"{path}: the schema does not declare its property {str(next(iter(rest)))[:_SHOWN]!r}")
        record[REST] = as_text(rest, path)
    return record


def as_text(value: Any, path: str = "") -> str:
    """``value`` as compact JSON; bytes become base64. Raises :class:`MisfitError` for what JSON cannot say."""
    _check_keys(value, path)

    def sayable(other: Any) -> str:
        if isinstance(other, bytes):
            return pybase64.b64encode_as_string(other)
        raise MisfitError(f"{path}: {type(other).__name__} has no equivalent in JSON")

    try:
        return json.dumps(value, default=sayable, ensure_ascii=False, separators=(",", ":"), check_circular=False)
    except RecursionError:
        raise MisfitError(f"{path}: it is nested too deeply") from None


def _check_keys(value: Any, path: str) -> None:
    """Raise :class:`MisfitError` where a map within ``value`` has keys that are no texts."""
    left = [value]
    while left:
        some = left.pop()
        if isinstance(some, dict):
            if not all(isinstance(name, str) for name in some):
                raise MisfitError(f"{path}: a map has keys that are not texts")
            left += some.values()
        elif isinstance(some, list | tuple):
            left += some


def _misfit(path: str, value: Any, declared: str) -> MisfitError:
    shown = repr(value) if isinstance(value, str | bytes | int | float) else type(value).__name__
    return MisfitError(f"{path or 'the message'}: {shown[:_SHOWN]} where {declared} is declared")


def _integer(low: int, high: int) -> Callable[[Any, str], int]:
    def read(value: Any, path: str) -> int:
        if isinstance(value, float) and value.is_integer() and abs(value) <= _INTEGRAL:
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise _misfit(path, value, "an integer")
        if not low <= value <= high:
            raise MisfitError(f"{path}: {str(value)[:_SHOWN]} does not fit into 64 bits")
        return value

    return read


def _number(value: Any, path: str) -> float:
    """A number; of a boolean 0 or 1, as writers give flags under a number's schema."""
    if not isinstance(value, int | float):
        raise _misfit(path, value, "a number")
    try:
        return float(value)
    except OverflowError:
        raise MisfitError(f"{path}: the number is too large") from None


def _boolean(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise _misfit(path, value, "a boolean")
    return value


def _string(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise _misfit(path, value, "a string")
    return value


def _bytes(value: Any, path: str) -> bytes:
    if isinstance(value, bytes):  # CBOR has them as they are
        return value
    if not isinstance(value, str):
        raise _misfit(path, value, "a string")
    try:
        return from_base64(value)
    except ValueError:
        raise MisfitError(f"{path}: the text is not base64") from None


def from_base64(text: str) -> bytes:
    """Decode a base64 text. Raises ``ValueError`` for any other text.

    The library decodes 1 kB in 0.7 microseconds and 1 MB in 70, where Python's own takes 8 and 6,000. It refuses texts
    whose last bits are not zero, which other programs write: those are left to Python's.
    """
    try:
        return pybase64.b64decode(text, validate=True)
    except ValueError:
        return binascii.a2b_base64(text, strict_mode=True)


_LEAVES: Final[dict[str, tuple[pa.DataType, Callable[[Any, str], Any]]]] = {
    "integer": (pa.int64(), _integer(-(1 << 63), (1 << 63) - 1)),
    "unsigned": (pa.uint64(), _integer(0, (1 << 64) - 1)),
    "number": (pa.float64(), _number),
    "boolean": (pa.bool_(), _boolean),
    "string": (pa.string(), _string),
    "base64": (pa.binary(), _bytes),
    "any": (pa.string(), as_text),
}


def wired(node: JsonNode) -> pa.DataType:
    """The type as Arrow's JSON reader reads it: bytes are still base64."""
    if isinstance(node, Leaf):
        return pa.string() if node.kind == "base64" else node.arrow
    if isinstance(node, ListOf):
        return pa.list_(wired(node.element))
    return pa.struct([pa.field(name, wired(child)) for name, child in node.fields])


def _has_bytes(node: JsonNode) -> bool:
    """Whether base64 is declared anywhere."""
    if isinstance(node, Leaf):
        return node.kind == "base64"
    if isinstance(node, ListOf):
        return _has_bytes(node.element)
    return any(_has_bytes(child) for _, child in node.fields)


def unwired(node: JsonNode, array: pa.Array) -> pa.Array:
    """An array of type :func:`wired` as one of ``node``'s own type. Raises ``ValueError`` for what is not base64."""
    if not _has_bytes(node):
        return array
    if isinstance(node, Leaf):
        texts = array.to_pylist()
        values = [None if text is None else from_base64(text) for text in texts]
        return pa.array(values, node.arrow)
    validity = array.buffers()[0] if array.null_count else None
    if isinstance(node, ListOf):
        buffers = [validity, array.buffers()[1]]
        values = unwired(node.element, array.values)
        return pa.Array.from_buffers(node.arrow, len(array), buffers, array.null_count, array.offset, [values])
    children = [unwired(child, array.field(index)) for index, (_, child) in enumerate(node.fields)]
    if validity is not None and array.offset:
        validity = pa.concat_arrays([array.is_valid()]).buffers()[1]
    return pa.Array.from_buffers(node.arrow, len(array), [validity], array.null_count, 0, children)


_ANY: Final = Leaf("any")
_INT64_MAX: Final = (1 << 63) - 1
_SIMPLE: Final = {"number": Leaf("number"), "boolean": Leaf("boolean")}


def parse_json_schema(schema_name: str, schema_data: bytes) -> JsonNode:
    """Return the type that ``schema_data`` declares; an empty schema declares nothing. Raises :class:`SchemaError`.

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
