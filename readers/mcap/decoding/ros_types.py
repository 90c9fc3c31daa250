"""ROS definitions to trees of types."""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa

from ....engine.limits import MAX_NESTING, MAX_SCHEMA_FIELDS
from .decoded import SchemaError
from .message_types import PRIMITIVES, TIME, Node, Primitive, Sequence, Struct, Text
from .ros_interfaces import KNOWN, Definition, base_of, messages_of, read_sections, short

LARGEST: Final = 1 << 40
"""Bytes that no message can have: a fixed-size type past it is refused."""


class Dialect(NamedTuple):
    """What the names of types mean. ``filled`` says that a message without fields takes one byte, and that constants
    alone are an enum; else it takes nothing.
    """

    primitives: dict[str, Primitive]
    builtins: dict[str, Struct]
    filled: bool


ROS2: Final = Dialect(
    PRIMITIVES,
    {
        "builtin_interfaces/Time": TIME,
        "builtin_interfaces/Duration": Struct("builtin_interfaces/Duration", TIME.fields),
        "time": TIME,
        "duration": TIME,
    },
    filled=True,
)
ROS1: Final = Dialect(
    # Historical names: genmsg maps them to these.
    {**PRIMITIVES, "char": PRIMITIVES["uint8"], "byte": PRIMITIVES["int8"]},
    {
        "time": Struct("time", (("sec", PRIMITIVES["uint32"]), ("nanosec", PRIMITIVES["uint32"]))),
        "duration": Struct("duration", (("sec", PRIMITIVES["int32"]), ("nanosec", PRIMITIVES["int32"]))),
    },
    filled=False,
)


def parse_ros(schema_name: str, schema_data: bytes, dialect: Dialect) -> Struct:
    """The type that ``schema_data`` defines for ``schema_name``. Raises :class:`SchemaError`.

    Names resolve as ROS 1 and ROS 2 write them: ``std_msgs/Header``, ``std_msgs/msg/Header``, ``Header``, and a bare
    name means the package it is used in. Constants, defaults and bounds are understood and dropped. The text may be
    that of a service or action, when the name says which of its messages is meant: ``example/srv/Add_Event``.

    >>> parse_ros("my/msg/Point", b"float64 x 0.5  # metres\\nuint8 UNSET=0x0", ROS2).arrow
    StructType(struct<x: double>)
    >>> parse_ros("my/srv/Add_Response", b"int64 a\\nint64 b\\n---\\nint64 sum", ROS2).arrow
    StructType(struct<sum: int64>)
    """
    name = short(schema_name)
    main, sections = read_sections(schema_name, schema_data)
    top = main[0]
    definitions = {key: parts[0] for key, parts in sections.items() if len(parts) == 1}
    for key, parts in sections.items():
        if len(parts) > 1:
            _check_parts(key, parts)
            definitions |= messages_of(key, parts)
    if len(main) > 1:
        _check_parts(name, main)
        definitions |= messages_of(base_of(name, len(main)), main)
    # The text's own definition may stand below a line that names it, like the others.
    if len(main) > 1 or not (top.fields or top.constants):
        top = definitions.get(name, top)
        if len(main) > 1 and top is main[0]:
            raise SchemaError(f"the definition has no message {name}")
    definitions = KNOWN | definitions
    node = Resolver(definitions, dialect).resolve(top)
    return node if isinstance(node, Struct) else Struct(top.name, (), dialect.filled)


def _check_parts(name: str, parts: list[Definition]) -> None:
    if len(parts) > 3:
        raise SchemaError(f"{name} has {len(parts)} parts: a service has two, an action three")


def known(name: str) -> Struct:
    """One of the types that every service or action uses."""
    node = Resolver(KNOWN, ROS2).resolve(KNOWN[name])
    assert isinstance(node, Struct)
    return node


class Resolver:
    """Turns definitions into types, each once; counts what they expand to."""

    def __init__(self, definitions: dict[str, Definition], dialect: Dialect) -> None:
        self._definitions = definitions
        self._dialect = dialect
        self._done: dict[str, tuple[Node, int, int]] = {}
        self._open: list[str] = []

    def resolve(self, definition: Definition) -> Node:
        """The type that ``definition`` defines. Raises :class:`SchemaError`."""
        return self._build(definition)[0]

    def _build(self, definition: Definition) -> tuple[Node, int, int]:
        """The type, the number of its leaf columns and its depth."""
        name = definition.name
        if name in self._open:
            raise SchemaError(f"{name} contains itself ({' > '.join([*self._open, name])})")
        if name in self._done:
            return self._done[name]
        if len(self._open) >= MAX_NESTING:
            raise SchemaError(f"{self._open[0]} nests deeper than {MAX_NESTING} levels")
        if not definition.fields:
            return self._without_fields(definition), 1, 1
        self._open.append(name)
        fields, leaves, depth = [], 0, 0
        for field_name, type_name, array in definition.fields:
            node, some, deep = self._field(name, type_name)
            leaves, depth = leaves + some, max(depth, deep)
            if leaves > MAX_SCHEMA_FIELDS or depth >= MAX_NESTING:
                raise SchemaError(f"{name} expands to more than {MAX_SCHEMA_FIELDS:,} fields or {MAX_NESTING} levels")
            fields.append((field_name, _with_array(node, array, f"{name}.{field_name}")))
        self._open.pop()
        struct = Struct(name, tuple(fields), self._dialect.filled)
        if struct.least > LARGEST:
            raise SchemaError(f"{name} is larger than any message can be")
        # A definition met as the main one may share its name with a section: only sections are looked up again.
        self._done[name] = struct, leaves, depth + 1
        return self._done[name]

    def _field(self, owner: str, type_name: str) -> tuple[Node, int, int]:
        if type_name in self._dialect.primitives:
            return self._dialect.primitives[type_name], 1, 1
        if type_name in ("string", "wstring"):
            return Text(wide=type_name == "wstring"), 1, 1
        for key in self._candidates(owner, type_name):
            if key in self._definitions:
                return self._build(self._definitions[key])
            if key in self._dialect.builtins:
                return self._dialect.builtins[key], 2, 2
        raise SchemaError(f"{owner} uses the type {type_name}, which nothing defines")

    def _candidates(self, owner: str, type_name: str) -> list[str]:
        if "/" in type_name:
            return [short(type_name)]
        package = owner.split("/")[0] if "/" in owner else ""
        keys = [f"{package}/{type_name}", type_name]
        if type_name in ("Header", "Time", "Duration"):
            keys.append(f"std_msgs/{type_name}" if type_name == "Header" else f"builtin_interfaces/{type_name}")
        same = [key for key in self._definitions if key.endswith(f"/{type_name}")]
        return [*keys, *same] if len(same) == 1 else keys

    def _without_fields(self, definition: Definition) -> Node:
        """Constants alone, all of one type, are the enum idiom: the value is the one byte an empty message has."""
        kinds = set(definition.constants)
        if not self._dialect.filled or len(kinds) != 1 or not kinds <= PRIMITIVES.keys():
            return Struct(definition.name, (), self._dialect.filled)
        kind = PRIMITIVES[kinds.pop()]
        if kind.size == 1:
            return kind
        signed = pa.types.is_signed_integer(kind.arrow)
        return Primitive(kind.name, "i1" if signed else "u1", kind.arrow)


def _with_array(node: Node, array: str | None, where: str) -> Node:
    if array is None:
        return node
    if not node.least:
        raise SchemaError(f"{where}: elements without a byte cannot be counted")
    inner = array[1:-1]
    if inner.startswith("<=") or not inner:
        if inner == "<=":
            raise SchemaError(f"{where}: the array has a bound without a number")
        return Sequence(node)
    return fixed_array(node, int(inner) if len(inner) < 12 else LARGEST, where)


def fixed_array(node: Node, length: int, where: str) -> Sequence:
    """An array of exactly ``length`` elements; raises :class:`SchemaError` when no message can hold one."""
    if not 0 < length < LARGEST:
        raise SchemaError(f"{where}: an array of {length} elements is impossible")
    sequence = Sequence(node, length)
    if sequence.least > LARGEST:
        raise SchemaError(f"{where}: the array is larger than any message can be")
    return sequence
