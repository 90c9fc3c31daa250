"""``ros2msg`` schema text: a message definition followed by the definitions of the types it uses."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from ....engine.limits import MAX_NESTING, MAX_SCHEMA_BYTES, MAX_SCHEMA_FIELDS
from .decoded import SchemaError
from .message_types import PRIMITIVES, TIME, Node, Primitive, Sequence, Struct, Text

_SEPARATOR: Final = re.compile(r"^={3,}\s*$", re.MULTILINE)
_SECTION: Final = re.compile(r"\s*MSG:\s*([\w/]+)[^\n]*(?:\n|$)")
_LINE: Final = re.compile(
    r"(?P<type>[A-Za-z]\w*(?:/\w+)*)(?:<=(?P<bound>\d+))?(?P<array>\[(?:<=)?\d*\])?"
    r"\s+(?P<name>[A-Za-z_]\w*)\s*(?P<rest>=|#|$|\s.*$)",
    re.ASCII,
)
_BUILTINS: Final = {
    "builtin_interfaces/Time": TIME,
    "builtin_interfaces/Duration": Struct("builtin_interfaces/Duration", TIME.fields),
    "time": TIME,
    "duration": TIME,
}
_LARGEST: Final = 1 << 40
"""Bytes that no message can have: a fixed-size type past it is refused."""


@dataclass
class _Definition:
    """One section: its fields as (name, type, array suffix), and the types of its constants."""

    name: str
    fields: list[tuple[str, str, str | None]] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)


def parse_ros2(schema_name: str, schema_data: bytes) -> Struct:
    """The type that ``schema_data`` defines for ``schema_name``. Raises :class:`SchemaError`.

    Names resolve as ROS 1 and ROS 2 write them: ``std_msgs/Header``, ``std_msgs/msg/Header``, ``Header``, and a bare
    name means the package it is used in. Constants, defaults and bounds are understood and dropped.

    >>> parse_ros2("my/msg/Point", b"float64 x 0.5  # metres\\nuint8 UNSET=0x0").arrow
    StructType(struct<x: double>)
    """
    if len(schema_data) > MAX_SCHEMA_BYTES:
        raise SchemaError(f"the definition of {schema_name} has {len(schema_data):,} bytes, too many")
    main, *rest = _SEPARATOR.split(schema_data.decode("utf-8", errors="replace").replace("\r", ""))
    definitions: dict[str, _Definition] = {}
    for section in rest:
        head = _SECTION.match(section)
        if head is None:
            if section.strip():
                raise SchemaError(f"{schema_name}: a section does not start with 'MSG: <type name>'")
            continue
        key = _short(head[1])
        definitions.setdefault(key, _parse_section(key, section[head.end() :]))
    top = _parse_section(_short(schema_name), main)
    node = _Resolver(definitions).resolve(top)
    if isinstance(node, Struct):
        return node
    return Struct(top.name, ())


def _short(name: str) -> str:
    """``std_msgs/msg/Header`` and ``std_msgs/Header`` name the same type."""
    parts = [part for part in name.split("/") if part]
    return f"{parts[0]}/{parts[-1]}" if len(parts) > 1 else "".join(parts)


def _parse_section(name: str, text: str) -> _Definition:
    definition = _Definition(name)
    seen: set[str] = set()
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("---"):
            raise SchemaError(f"{name}: service and action definitions are not messages")
        match = _LINE.match(line)
        if match is None:
            raise SchemaError(f"{name}, line {number}: {line[:60]!r} is neither a field nor a constant")
        if match["bound"] is not None and match["type"] not in ("string", "wstring"):
            raise SchemaError(f"{name}, line {number}: only strings have a bound, not {match['type']}")
        if match["rest"].lstrip().startswith("="):
            definition.constants.append(match["type"])
            continue
        if match["name"] in seen:
            raise SchemaError(f"{name}, line {number}: the field {match['name']!r} is there twice")
        seen.add(match["name"])
        definition.fields.append((match["name"], match["type"], match["array"]))
    return definition


class _Resolver:
    """Turns definitions into types, each once; counts what they expand to."""

    def __init__(self, definitions: dict[str, _Definition]) -> None:
        self._definitions = definitions
        self._done: dict[str, tuple[Node, int, int]] = {}
        self._open: list[str] = []

    def resolve(self, definition: _Definition) -> Node:
        return self._build(definition)[0]

    def _build(self, definition: _Definition) -> tuple[Node, int, int]:
        """The type, the number of its leaf columns and its depth."""
        name = definition.name
        if name in self._open:
            raise SchemaError(f"{name} contains itself ({' > '.join([*self._open, name])})")
        if name in self._done:
            return self._done[name]
        if len(self._open) >= MAX_NESTING:
            raise SchemaError(f"{self._open[0]} nests deeper than {MAX_NESTING} levels")
        if not definition.fields:
            return _without_fields(definition), 1, 1
        self._open.append(name)
        fields, leaves, depth = [], 0, 0
        for field_name, type_name, array in definition.fields:
            node, some, deep = self._field(name, type_name)
            leaves, depth = leaves + some, max(depth, deep)
            if leaves > MAX_SCHEMA_FIELDS or depth >= MAX_NESTING:
                raise SchemaError(f"{name} expands to more than {MAX_SCHEMA_FIELDS:,} fields or {MAX_NESTING} levels")
            fields.append((field_name, _with_array(node, array, f"{name}.{field_name}")))
        self._open.pop()
        struct = Struct(name, tuple(fields))
        if struct.least > _LARGEST:
            raise SchemaError(f"{name} is larger than any message can be")
        # A definition met as the main one may share its name with a section: only sections are looked up again.
        self._done[name] = struct, leaves, depth + 1
        return self._done[name]

    def _field(self, owner: str, type_name: str) -> tuple[Node, int, int]:
        if type_name in PRIMITIVES:
            return PRIMITIVES[type_name], 1, 1
        if type_name in ("string", "wstring"):
            return Text(wide=type_name == "wstring"), 1, 1
        for key in self._candidates(owner, type_name):
            if key in self._definitions:
                return self._build(self._definitions[key])
            if key in _BUILTINS:
                return _BUILTINS[key], 2, 2
        raise SchemaError(f"{owner} uses the type {type_name}, which nothing defines")

    def _candidates(self, owner: str, type_name: str) -> list[str]:
        if "/" in type_name:
            return [_short(type_name)]
        package = owner.split("/")[0] if "/" in owner else ""
        keys = [f"{package}/{type_name}", type_name]
        if type_name in ("Header", "Time", "Duration"):
            keys.append(f"std_msgs/{type_name}" if type_name == "Header" else f"builtin_interfaces/{type_name}")
        same = [key for key in self._definitions if key.endswith(f"/{type_name}")]
        return [*keys, *same] if len(same) == 1 else keys


def _without_fields(definition: _Definition) -> Node:
    """Constants alone, all of one type, are the enum idiom: the value is the one byte an empty message has."""
    kinds = set(definition.constants)
    if len(kinds) != 1 or not kinds <= PRIMITIVES.keys():
        return Struct(definition.name, ())
    kind = PRIMITIVES[kinds.pop()]
    if kind.size == 1:
        return kind
    signed = pa.types.is_signed_integer(kind.arrow)
    return Primitive(kind.name, "i1" if signed else "u1", kind.arrow)


def _with_array(node: Node, array: str | None, where: str) -> Node:
    if array is None:
        return node
    inner = array[1:-1]
    if inner.startswith("<=") or not inner:
        if inner == "<=":
            raise SchemaError(f"{where}: the array has a bound without a number")
        return Sequence(node)
    length = int(inner) if len(inner) < 12 else _LARGEST
    if not 0 < length < _LARGEST:
        raise SchemaError(f"{where}: an array of {inner} elements is impossible")
    sequence = Sequence(node, length)
    if sequence.least > _LARGEST:
        raise SchemaError(f"{where}: the array is larger than any message can be")
    return sequence
