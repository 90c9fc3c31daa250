"""JSON and CBOR messages as columns, by the JSON Schema in the file."""

from __future__ import annotations

import binascii
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar, Final, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pybase64
from pyarrow import json as arrow_json

from ....engine.limits import MAX_CELLS, MAX_ELEMENTS, MAX_NESTING, MAX_SCHEMA_BYTES, MAX_SCHEMA_FIELDS, is_text
from .columns import Faults, MessageDecoder, Piece, SchemaError

REST: Final = "additionalProperties"
"""The field of a record with the undeclared members of an object, as JSON text."""

_SHOWN: Final = 40
_INTEGRAL: Final = 2.0**53


class MisfitError(ValueError):
    """A value that is not of the declared type; the text gives the place and reason."""


@dataclass(frozen=True)
class Leaf:
    """A single value: ``integer``, ``unsigned``, ``number``, ``boolean``, ``string``, ``base64`` (bytes), or ``any``
    (any value, as JSON text).
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
        """Return whether Arrow's own JSON reader can read it."""
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
    """An object with declared properties. If ``open``, it also has the field :data:`REST`, as the last one."""

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
    """Return the innermost element of a list, or of lists of lists; any other node is returned unchanged."""
    return innermost(node.element) if isinstance(node, ListOf) else node


def as_declared(node: JsonNode, value: Any, path: str = "") -> Any:
    """Convert ``value``, parsed from JSON or CBOR, for an Arrow array of ``node``'s type.

    Null stays null everywhere, and missing values become null. Raises :class:`MisfitError`.

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
    """``value`` as compact JSON; bytes become base64. Raises :class:`MisfitError` for values that JSON cannot hold."""
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
    """Raise :class:`MisfitError` if a map within ``value`` has keys other than texts."""
    left = [value]
    while left:
        some = left.pop()
        if isinstance(some, dict):
            if not all(isinstance(name, str) for name in some):
                raise MisfitError(f"{path}: a map has keys that are not strings")
            left += some.values()
        elif isinstance(some, list | tuple):
            left += some


def _misfit(path: str, value: Any, declared: str) -> MisfitError:
    shown = repr(value) if isinstance(value, str | bytes | int | float) else type(value).__name__
    return MisfitError(f"{path or 'the message'}: {shown[:_SHOWN]}, but {declared} is declared")


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
    """A number; 0 or 1 for a boolean, as some writers write flags where the schema declares numbers."""
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
    if isinstance(value, bytes):  # CBOR has plain bytes
        return value
    if not isinstance(value, str):
        raise _misfit(path, value, "a string")
    try:
        return from_base64(value)
    except ValueError:
        raise MisfitError(f"{path}: the text is not base64") from None


def from_base64(text: str) -> bytes:
    """Decode a base64 text. Raises ``ValueError`` for any other text.

    The library decodes 1 kB in 0.7 microseconds and 1 MB in 70; Python's own takes 8 and 6,000. It refuses texts whose
    last bits are not zero. Other programs write such texts, so they are left to Python's.
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
    """The type for Arrow's JSON reader, in which bytes are still base64."""
    if isinstance(node, Leaf):
        return pa.string() if node.kind == "base64" else node.arrow
    if isinstance(node, ListOf):
        return pa.list_(wired(node.element))
    return pa.struct([pa.field(name, wired(child)) for name, child in node.fields])


def _has_bytes(node: JsonNode) -> bool:
    """Return whether base64 is declared anywhere."""
    if isinstance(node, Leaf):
        return node.kind == "base64"
    if isinstance(node, ListOf):
        return _has_bytes(node.element)
    return any(_has_bytes(child) for _, child in node.fields)


def unwired(node: JsonNode, array: pa.Array) -> pa.Array:
    """Convert an array of type :func:`wired` to ``node``'s own type. Raises ``ValueError`` for invalid base64."""
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

    Only declared values have a type of their own, so that a column's type never depends on the data: properties become
    fields, ``integer`` int64 (uint64 when its ``maximum`` needs that), ``number`` double, a string with
    ``"contentEncoding": "base64"`` binary, arrays of one type lists, constants and ``enum`` the type of their values. A
    choice between a type and null is the type, since every value may be null. References within the schema are
    followed. Everything else (no type, several types, an object without properties, recursion) is kept as JSON text. If
    the schema allows more properties by ``additionalProperties``, the field of this name has them as JSON text.

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
    """Turns schemas into types, and counts the columns that they expand to."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._leaves = 0

    def build(self, schema: Any, above: tuple[str, ...], depth: int = 1) -> JsonNode:
        """Return the type of ``schema``, which is reached by the references ``above``."""
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
            raise SchemaError("the name of a property is not text")
        fields = tuple((name, self.build(child, above, depth + 1)) for name, child in properties.items())
        is_open = schema.get(REST, False) is not False or bool(schema.get("patternProperties"))
        if is_open and REST in properties:
            raise SchemaError(f"a property is named {REST!r}, which is the name for undeclared properties")
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
        """Return the common type of all choices except null."""
        left = [choice for choice in choices if not (isinstance(choice, dict) and _kind(choice) == "null")]
        kinds = {self.build(choice, above, depth + 1) for choice in left}
        if len(kinds) == 1:
            return kinds.pop()
        return Leaf("number") if kinds and kinds <= {Leaf("number"), Leaf("integer")} else _ANY

    def _all_of(self, schema: dict[str, Any], above: tuple[str, ...], depth: int) -> JsonNode:
        """Return a record with the properties of all parts, if all are records; a single part keeps its type."""
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
        target = self._root
        for step in reference[1:].split("/")[1:]:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and key.isdecimal() and int(key) < len(target):
                target = target[int(key)]
            elif isinstance(target, dict) and key in target:
                target = target[key]
            else:
                raise SchemaError(f"it refers to the missing definition {reference[:80]}")
        return self.build(target, (*above, reference), depth + 1)


def _kind(schema: dict[str, Any]) -> str:
    """Return the one type that a schema allows besides null, or an empty text."""
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
    """Return whether negative numbers are excluded, and numbers beyond int64 are allowed."""
    low, high = schema.get("minimum"), schema.get("maximum")
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return False
    return low >= 0 and high > _INT64_MAX


def _type_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {word: schema[word] for word in ("type", "contentEncoding") if word in schema}


def _object(choice: Any) -> dict[str, Any]:
    return choice if isinstance(choice, dict) else {}


_MOST_VALUES: Final = MAX_ELEMENTS // 4
"""The maximum number of values in one message. Each becomes an object."""

_FREE_VALUES: Final = MAX_ELEMENTS // 2
_PER_BYTE: Final = 2
"""The number of objects' values that each byte of the messages allows, besides the free values."""

_Messages = list[tuple[int, memoryview]]


class Parser(NamedTuple):
    """Functions on a message: ``parse`` returns its value, ``text`` the JSON text of an undeclared value; both raise
    :class:`MisfitError`. ``items`` returns at least the number of its values, or more than the given number;
    ``objects`` returns at least the number of its objects.
    """

    parse: Callable[[bytes], Any]
    text: Callable[[bytes], str]
    items: Callable[[bytes, int], int]
    objects: Callable[[bytes], int]


def _messages_of(
    data: np.ndarray, starts: np.ndarray, ends: np.ndarray, node: JsonNode, parser: Parser, faults: Faults
) -> _Messages:
    """Return the messages ``data[starts[i]:ends[i]]`` whose values fit the memory limit; other messages are faults.

    An object has a value for each field that its schema declares, even if the message has only few of them.
    """
    views = [data[start:end].data for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    element = innermost(node)
    if len(views) * element.leaves > MAX_CELLS:
        why = "messages of this type have too many fields in total"
        faults.update(dict.fromkeys(range(len(views)), why))
        return []
    total, widest = int((ends - starts).sum()), element.leaves if isinstance(element, Record) else 0
    if total * widest <= _FREE_VALUES:
        return list(enumerate(views))
    values = np.array([parser.objects(bytes(view)) * widest for view in views])
    ascending = np.argsort(values, kind="stable")
    over = np.zeros(len(views), np.bool_)
    over[ascending[np.cumsum(values[ascending]) > _FREE_VALUES + _PER_BYTE * total]] = True
    why = "it has too many objects with far fewer properties than their schema declares"
    faults.update(dict.fromkeys(np.flatnonzero(over).tolist(), why))
    return [(index, view) for index, view in enumerate(views) if not over[index]]


def _build_column(node: JsonNode, messages: _Messages, parser: Parser, faults: Faults) -> Piece:
    """Return the indices of messages, and their values; faults of messages go to ``faults``."""
    values: dict[int, Any] = {}
    for index, message in messages:
        try:
            values[index] = _value(node, bytes(message), parser)
        except MisfitError as error:
            faults[index] = str(error).lstrip(".: ")
        except RecursionError:
            faults[index] = "it is nested too deeply"
    return _joined(values, node.arrow, faults)


def _value(node: JsonNode, message: bytes, parser: Parser) -> Any:
    if len(message) > _MOST_VALUES and parser.items(message, _MOST_VALUES) > _MOST_VALUES:
        raise MisfitError("it has more values than allowed in one message")
    if isinstance(node, Leaf) and node.kind == "any":
        return parser.text(message)
    return as_declared(node, parser.parse(message))


def _joined(values: dict[int, Any], datatype: pa.DataType, faults: Faults) -> Piece:
    try:
        array = pa.array(values.values(), datatype)
    except UnicodeEncodeError:  # a single surrogate
        for index, value in list(values.items()):
            try:
                pa.array([value], datatype)
            except UnicodeEncodeError:
                faults[index] = "it has a text with an unpaired surrogate"
                del values[index]
        array = pa.array(values.values(), datatype)
    return np.fromiter(values, np.int64, len(values)), array


_OPEN: Final = b'{"m":'
_CLOSE: Final = b"}\n"
_FEW: Final = 64
"""At most this many messages are parsed one by one if one of them is odd."""


class _SchemaDecoder(MessageDecoder):
    """A decoder of messages that a JSON Schema describes, with a ``parser`` for single messages."""

    parser: ClassVar[Parser]
    nameless: ClassVar[str]

    def __init__(self, schema_name: str, schema_data: bytes) -> None:
        self._node = parse_json_schema(schema_name, schema_data)
        super().__init__(schema_name.replace("/", ".") or self.nameless, self._node.arrow)

    def _by_column(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, faults: Faults) -> Iterable[Piece]:
        return self._one_by_one(data, starts, ends, faults)

    def _one_by_one(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, faults: Faults) -> Iterable[Piece]:
        messages = _messages_of(data, starts, ends, self._node, self.parser, faults)
        yield _build_column(self._node, messages, self.parser, faults)


def _has_infinity(array: pa.Array) -> bool:
    """Return whether the array contains an infinite number, at any depth."""
    if pa.types.is_struct(array.type):
        return any(_has_infinity(array.field(index)) for index in range(array.type.num_fields))
    if pa.types.is_list(array.type):
        return _has_infinity(array.values)
    return bool(pa.types.is_floating(array.type) and pc.any(pc.is_inf(array)).as_py())


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise MisfitError("an object has a key twice")
    return members


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise MisfitError(f"{text[:40]} is too large for a number")
    return value


def _text(message: bytes) -> str:
    try:
        return message.decode("utf-8")
    except UnicodeDecodeError:
        raise MisfitError("it is not UTF-8") from None


def _parse(message: bytes) -> Any:
    return _loaded(_text(message), object_pairs_hook=_unique, parse_float=_finite)


def _loaded(text: str, **hooks: Any) -> Any:
    try:
        return json.loads(text, **hooks)
    except MisfitError:
        raise
    except RecursionError:
        raise MisfitError("it is nested too deeply") from None
    except ValueError as error:
        raise MisfitError(f"it is not JSON: {str(error)[:120]}") from None


def _as_it_is(message: bytes) -> str:
    """Return the text itself, if it is JSON. Duplicate keys and large numbers stay as written."""
    text = _text(message)
    _loaded(text)
    return text


def _count(message: bytes, _: int) -> int:
    return 1 + sum(map(message.count, (b",", b"[", b"{")))


def _count_objects(message: bytes) -> int:
    return message.count(b"{")


class JsonDecoder(_SchemaDecoder):
    """Decodes JSON messages of a ``jsonschema`` schema, or of none.

    See :func:`parse_json_schema` for the types. A message is bad if a value is undeclared or of another type than
    declared, if a key occurs twice, if a number does not fit, or if it is not UTF-8. ``NaN`` and ``Infinity``, which
    many programs write, are numbers.
    """

    parser = Parser(_parse, _as_it_is, _count, _count_objects)
    nameless = "json"

    def __init__(self, schema_name: str, schema_data: bytes) -> None:
        super().__init__(schema_name, schema_data)
        self._options = arrow_json.ParseOptions(
            explicit_schema=pa.schema([("m", wired(self._node))]), unexpected_field_behavior="error"
        )

    def _by_column(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, faults: Faults) -> Iterable[Piece]:
        if not innermost(self._node).by_column:
            return self._one_by_one(data, starts, ends, faults)
        messages = _messages_of(data, starts, ends, self._node, self.parser, faults)
        return self._columnar(messages, faults) if messages else ()

    def _columnar(self, messages: _Messages, faults: Faults) -> Iterator[Piece]:
        """Read ``messages``; if one is odd, read each half separately."""
        try:
            values = self._read([message for _, message in messages])
        except ValueError:  # Arrow's errors, and wrong base64
            if len(messages) <= _FEW:
                yield _build_column(self._node, messages, self.parser, faults)
                return
            half = len(messages) // 2
            yield from self._columnar(messages[:half], faults)
            yield from self._columnar(messages[half:], faults)
            return
        yield np.array([index for index, _ in messages]), values

    def _read(self, messages: list[memoryview]) -> pa.Array:
        """Read all messages with Arrow's reader of JSON lines. Raises ``ValueError``.

        Each message is the only member of an object on a separate line. As no text may contain a line end, each message
        gives at least one row; if there are as many rows as messages, each gave exactly one.
        """
        lines = _OPEN + (_CLOSE + _OPEN).join(messages) + _CLOSE
        lines.decode("utf-8")
        whole = arrow_json.ReadOptions(use_threads=False, block_size=min(len(lines) + 1, (1 << 31) - 1))
        table = arrow_json.read_json(pa.BufferReader(lines), whole, self._options)
        if table.num_rows != len(messages):
            raise ValueError("a message has more than one value")
        column = table.column(0)
        array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if _has_infinity(array):
            raise ValueError("a number may be too large")  # or it is written as infinity: parsing decides
        return unwired(self._node, array)


_ARGUMENTS: Final = {24: 1, 25: 2, 26: 4, 27: 8}
_INDEFINITE: Final = 31
_MAP: Final = 5
_READ_BY_TAG: Final = (0, 1, 4, 5, 30, 35, 36, 37, 52, 54, 100, 258, 260, 261, 1004, 43000)
"""Tags that the library turns into Python objects: dates, fractions, expressions, addresses."""

_REFERENCES: Final = (25, 28, 29, 256)


def _untagged(value: Any, _: bool) -> Any:
    return value


def _reference(_value: Any, _immutable: bool) -> Any:
    raise MisfitError("it has shared references")


def _tagged(tag: Any, _: bool) -> Any:
    return tag.value


def _open(value: Mapping[Any, Any], _: bool) -> Any:
    from cbor2 import undefined

    return {name: None if child is undefined else child for name, child in value.items()}


_DECODERS: Final = {**dict.fromkeys(_READ_BY_TAG, _untagged), **dict.fromkeys(_REFERENCES, _reference)}


def _parse_cbor(message: bytes) -> Any:
    from cbor2 import CBORDecodeError, CBORDecoder

    file = io.BytesIO(message)
    decoder = CBORDecoder(
        file,
        tag_hook=_tagged,
        object_hook=_open,
        semantic_decoders=_DECODERS,
        max_depth=MAX_NESTING,
        allow_duplicate_keys=False,
        strict_hashable_types=True,
    )
    try:
        value = decoder.decode()
    except CBORDecodeError as error:
        why = error.__cause__ if isinstance(error.__cause__, MisfitError) else error
        raise MisfitError(f"it is not CBOR: {str(why)[:120]}") from None
    if file.tell() != len(message):
        raise MisfitError("there are more bytes after its value")
    return value


def _text_cbor(message: bytes) -> str:
    return as_text(_parse_cbor(message))


def _items_of_cbor(message: bytes, most: int) -> int:
    """Count the items of the message, up to one more than ``most``."""
    return sum(1 for _ in islice(_majors(message), most + 1))


def _maps_of_cbor(message: bytes) -> int:
    return sum(1 for major in _majors(message) if major == _MAP)


def _majors(message: bytes) -> Iterator[int]:
    """Yield the major types of a message's items, in order, as far as the message is CBOR."""
    place = 0
    while place < len(message):
        major, info = message[place] >> 5, message[place] & 31
        size = _ARGUMENTS.get(info, 0)
        argument = int.from_bytes(message[place + 1 : place + 1 + size], "big") if size else info
        place += 1 + size + (argument if major in (2, 3) and info != _INDEFINITE else 0)
        yield major


class CborDecoder(_SchemaDecoder):
    """Decodes CBOR messages of a ``jsonschema`` schema, or of none.

    Types are those of :class:`JsonDecoder`: as declared by a JSON Schema, and JSON text for the rest, with bytes as
    base64. As in RFC 8949, section 6.1, tags are ignored and their values are used; big numbers count as numbers,
    ``undefined`` as null. References to other places in the message cannot be read.
    """

    parser = Parser(_parse_cbor, _text_cbor, _items_of_cbor, _maps_of_cbor)
    nameless = "cbor"
