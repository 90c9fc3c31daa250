"""ROS definitions: the parts of their text, the types that they define, and ROS's additions to services and actions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa

from ....engine.limits import MAX_CHUNK_UNCOMPRESSED, MAX_NESTING, MAX_SCHEMA_BYTES, MAX_SCHEMA_FIELDS
from .columns import PRIMITIVES, TIME, MessageType, Node, Primitive, SchemaError, SequenceType, Text

_SEPARATOR: Final = re.compile(r"^={3,}\s*$", re.MULTILINE)
_SECTION: Final = re.compile(r"\s*(?:MSG|SRV|ACTION):\s*([\w/]+)[^\n]*(?:\n|$)")
_LINE: Final = re.compile(
    r"(?P<type>[A-Za-z]\w*(?:/\w+)*)(?:<=(?P<bound>\d+))?(?P<array>\[(?:<=)?\d*\])?"
    r"\s+(?P<name>[A-Za-z_]\w*)\s*(?P<rest>=|#|$|\s.*$)",
    re.ASCII,
)


@dataclass
class RosDefinition:
    """A message type: its fields as (name, type, array suffix), and the types of its constants."""

    name: str
    fields: list[tuple[str, str, str | None]] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)


def short(name: str) -> str:
    """``std_msgs/msg/Header`` and ``std_msgs/Header`` name the same type.

    >>> short("std_msgs/msg/Header"), short("Header")
    ('std_msgs/Header', 'Header')
    """
    parts = [part for part in name.split("/") if part]
    return f"{parts[0]}/{parts[-1]}" if len(parts) > 1 else "".join(parts)


def _read_sections(schema_name: str, schema_data: bytes) -> tuple[list[RosDefinition], dict[str, list[RosDefinition]]]:
    """Return the text's own definition, and the definitions of the types that it uses by short name.

    Each definition is a list of parts, which ``---`` separates: one for a message, two for a service, three for an
    action. Raises :class:`SchemaError`.
    """
    if len(schema_data) > MAX_SCHEMA_BYTES:
        raise SchemaError(f"the definition of {schema_name} has {len(schema_data):,} bytes, too many")
    main, *rest = _SEPARATOR.split(schema_data.decode("utf-8", errors="replace").replace("\r", ""))
    definitions: dict[str, list[RosDefinition]] = {}
    for section in rest:
        head = _SECTION.match(section)
        if head is None:
            if section.strip():
                raise SchemaError(f"{schema_name}: a section does not start with 'MSG: <type name>'")
            continue
        key = short(head[1])
        if key not in definitions:
            definitions[key] = _parse(key, section[head.end() :])
    return _parse(short(schema_name), main), definitions


def _parse(name: str, text: str) -> list[RosDefinition]:
    definition = RosDefinition(name)
    parts = [definition]
    seen: set[str] = set()
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("---"):
            definition, seen = RosDefinition(name), set()
            parts.append(definition)
            continue
        match = _LINE.match(line)
        if match is None:
            raise SchemaError(f"{name}, line {number}: {line[:60]!r} is neither a field nor a constant")
        if match["bound"] is not None and match["type"] not in ("string", "wstring"):
            raise SchemaError(f"{name}, line {number}: only strings have a bound, not {match['type']}")
        if match["rest"].lstrip().startswith("="):
            definition.constants.append(match["type"])
            continue
        if match["name"] in seen:
            raise SchemaError(f"{name}, line {number}: the field {match['name']!r} is defined twice")
        seen.add(match["name"])
        definition.fields.append((match["name"], match["type"], match["array"]))
    return parts


Fields = list[tuple[str, str, str | None]]

_SERVICE: Final = ("_Request", "_Response")
_ROS1_SERVICE: Final = ("Request", "Response")
_ACTION: Final = ("_Goal", "_Result", "_Feedback")
_GENERATED_SERVICES: Final = ("_SendGoal", "_GetResult")
_OF_SERVICES: Final = (*_SERVICE, "_Event")
_OF_ACTIONS: Final = (
    *_ACTION,
    "_FeedbackMessage",
    *(service + part for service in _GENERATED_SERVICES for part in _OF_SERVICES),
)

KNOWN: Final = {
    "service_msgs/ServiceEventInfo": RosDefinition(
        "service_msgs/ServiceEventInfo",
        [
            ("event_type", "uint8", None),
            ("stamp", "builtin_interfaces/Time", None),
            ("client_gid", "char", "[16]"),
            ("sequence_number", "int64", None),
        ],
    ),
    "unique_identifier_msgs/UUID": RosDefinition("unique_identifier_msgs/UUID", [("uuid", "uint8", "[16]")]),
}
"""Types used by the generated messages. A text with only the service's or action's own definition lacks them."""


def _base_of(name: str, parts: int) -> str:
    """Return the service (2 parts) or action (3 parts) that the message type ``name`` belongs to.

    Raises :class:`SchemaError` if it belongs to none.

    >>> _base_of("nav/ComputePath_SendGoal_Event", 3), _base_of("std_srvs/SetBoolRequest", 2)
    ('nav/ComputePath', 'std_srvs/SetBool')
    """
    kinds = {2: (*_OF_SERVICES, *_ROS1_SERVICE), 3: _OF_ACTIONS}
    if parts not in kinds:
        raise SchemaError(f"{name} has {parts} parts: a service has two, an action three")
    suffixes = [suffix for suffix in kinds[parts] if name.endswith(suffix)]
    if not suffixes:
        what = "service" if parts == 2 else "action"
        raise SchemaError(f"the definition has {what} messages, but the name {name} selects none of them")
    return name.removesuffix(max(suffixes, key=len))


def _messages_of(base: str, parts: list[RosDefinition]) -> dict[str, RosDefinition]:
    """Return the message types of the service or action ``base``, by name."""
    if len(parts) == 2:
        own = {f"{base}{suffix}": part for suffix, part in zip(_SERVICE, parts, strict=True)}
        ros1 = {f"{base}{suffix}": part for suffix, part in zip(_ROS1_SERVICE, parts, strict=True)}
        return _named({**ros1, **own, **_event(base)})
    own = {f"{base}{suffix}": part for suffix, part in zip(_ACTION, parts, strict=True)}
    own |= {f"{base}{suffix}": RosDefinition("", fields) for suffix, fields in generated_around(base).items()}
    for service in _GENERATED_SERVICES:
        own |= _event(base + service)
    return _named(own)


def generated_around(base: str) -> dict[str, Fields]:
    """Return the fields of the messages that carry the action ``base``'s parts, by the suffix of their names."""
    goal_id = ("goal_id", "unique_identifier_msgs/UUID", None)
    return {
        "_FeedbackMessage": [goal_id, ("feedback", f"{base}_Feedback", None)],
        "_SendGoal_Request": [goal_id, ("goal", f"{base}_Goal", None)],
        "_SendGoal_Response": [("accepted", "bool", None), ("stamp", "builtin_interfaces/Time", None)],
        "_GetResult_Request": [goal_id],
        "_GetResult_Response": [("status", "int8", None), ("result", f"{base}_Result", None)],
    }


def event_of(base: str) -> Fields:
    """Return the fields of the service ``base``'s event message."""
    return [
        ("info", "service_msgs/ServiceEventInfo", None),
        ("request", f"{base}_Request", "[<=1]"),
        ("response", f"{base}_Response", "[<=1]"),
    ]


def _event(base: str) -> dict[str, RosDefinition]:
    return {f"{base}_Event": RosDefinition("", event_of(base))}


def _named(definitions: dict[str, RosDefinition]) -> dict[str, RosDefinition]:
    return {
        name: RosDefinition(name, definition.fields, definition.constants) for name, definition in definitions.items()
    }


LARGEST: Final = MAX_CHUNK_UNCOMPRESSED
"""The maximum bytes of a message; larger fixed-size types are refused."""


class Dialect(NamedTuple):
    """The meaning of type names. With ``filled``, a message without fields takes one byte, and a definition with only
    constants is an enum; otherwise, both take no bytes.
    """

    primitives: dict[str, Primitive]
    builtins: dict[str, MessageType]
    filled: bool


ROS2: Final = Dialect(
    PRIMITIVES,
    {
        "builtin_interfaces/Time": TIME,
        "builtin_interfaces/Duration": MessageType("builtin_interfaces/Duration", TIME.fields),
        "time": TIME,
        "duration": TIME,
    },
    filled=True,
)
ROS1: Final = Dialect(
    # Historical names, which genmsg maps to these types.
    {**PRIMITIVES, "char": PRIMITIVES["uint8"], "byte": PRIMITIVES["int8"]},
    {
        "time": MessageType("time", (("sec", PRIMITIVES["uint32"]), ("nanosec", PRIMITIVES["uint32"]))),
        "duration": MessageType("duration", (("sec", PRIMITIVES["int32"]), ("nanosec", PRIMITIVES["int32"]))),
    },
    filled=False,
)


def parse_ros(schema_name: str, schema_data: bytes, dialect: Dialect) -> MessageType:
    """Return the type that ``schema_data`` defines for ``schema_name``. Raises :class:`SchemaError`.

    Names resolve as in ROS 1 and ROS 2: ``std_msgs/Header``, ``std_msgs/msg/Header``, ``Header``. A bare name is
    searched in the package that uses it. Constants, defaults and bounds are parsed and dropped. The text may define a
    service or action if the name selects one of its messages: ``example/srv/Add_Event``.

    >>> parse_ros("my/msg/Point", b"float64 x 0.5  # metres\\nuint8 UNSET=0x0", ROS2).arrow
    StructType(struct<x: double>)
    >>> parse_ros("my/srv/Add_Response", b"int64 a\\nint64 b\\n---\\nint64 sum", ROS2).arrow
    StructType(struct<sum: int64>)
    """
    name = short(schema_name)
    main, sections = _read_sections(schema_name, schema_data)
    top = main[0]
    definitions = {key: parts[0] for key, parts in sections.items() if len(parts) == 1}
    for key, parts in sections.items():
        if len(parts) > 1:
            _check_parts(key, parts)
            definitions |= _messages_of(key, parts)
    if len(main) > 1:
        _check_parts(name, main)
        definitions |= _messages_of(_base_of(name, len(main)), main)
    # The text's own definition may follow a line that names it, like the other definitions.
    if len(main) > 1 or not (top.fields or top.constants):
        top = definitions.get(name, top)
        if len(main) > 1 and top is main[0]:
            raise SchemaError(f"the definition has no message {name}")
    definitions = KNOWN | definitions
    node = _Resolver(definitions, dialect).resolve(top).node
    return node if isinstance(node, MessageType) else MessageType(top.name, (), dialect.filled)


def _check_parts(name: str, parts: list[RosDefinition]) -> None:
    if len(parts) > 3:
        raise SchemaError(f"{name} has {len(parts)} parts: a service has two, an action three")


def known(name: str) -> MessageType:
    """Return one of the types that every service or action uses."""
    node = _Resolver(KNOWN, ROS2).resolve(KNOWN[name]).node
    assert isinstance(node, MessageType)
    return node


class Built(NamedTuple):
    """A type, the number of its leaf columns, and its nesting depth."""

    node: Node
    leaves: int = 1
    depth: int = 1


class TypeBuilder:
    """Builds types by name, each once, and limits the columns that they expand to."""

    def __init__(self) -> None:
        self._done: dict[str, Built] = {}
        self._open: list[str] = []

    def once(self, name: str, build: Callable[[], Built]) -> Built:
        """Return the type ``name``, built by ``build`` on first use. Raises :class:`SchemaError`."""
        if name in self._open:
            raise SchemaError(f"{name} contains itself ({' > '.join([*self._open, name])})")
        if name in self._done:
            return self._done[name]
        if len(self._open) >= MAX_NESTING:
            raise SchemaError(f"{self._open[0]} nests deeper than {MAX_NESTING} levels")
        self._open.append(name)
        built = build()
        self._open.pop()
        if built.node.least > LARGEST:
            raise SchemaError(f"{name} is larger than any message can be")
        self._done[name] = built
        return built


def struct_of(
    name: str, members: Iterable[tuple[str, Built]], *, base: Built | None = None, filled: bool = True
) -> Built:
    """Return the message type with the fields of ``base`` and ``members``. Raises :class:`SchemaError` if too many."""
    fields: list[tuple[str, Node]] = []
    leaves = depth = 0
    if base is not None and isinstance(base.node, MessageType):
        fields, leaves, depth = [*base.node.fields], base.leaves, base.depth - 1
    for field_name, built in members:
        leaves, depth = leaves + built.leaves, max(depth, built.depth)
        if leaves > MAX_SCHEMA_FIELDS or depth >= MAX_NESTING:
            raise SchemaError(f"{name} expands to more than {MAX_SCHEMA_FIELDS:,} fields or {MAX_NESTING} levels")
        fields.append((field_name, built.node))
    return Built(MessageType(name, tuple(fields), filled), leaves, depth + 1)


class _Resolver:
    """Turns definitions into types."""

    def __init__(self, definitions: dict[str, RosDefinition], dialect: Dialect) -> None:
        self._definitions = definitions
        self._dialect = dialect
        self._types = TypeBuilder()

    def resolve(self, definition: RosDefinition) -> Built:
        """Return the type that ``definition`` defines. Raises :class:`SchemaError`."""
        if not definition.fields:
            return Built(self._without_fields(definition))
        return self._types.once(definition.name, lambda: self._struct(definition))

    def _struct(self, definition: RosDefinition) -> Built:
        owner = definition.name
        members = (
            (field, _with_array(self._single(owner, type_name), array, f"{owner}.{field}"))
            for field, type_name, array in definition.fields
        )
        return struct_of(owner, members, filled=self._dialect.filled)

    def _single(self, owner: str, type_name: str) -> Built:
        if type_name in self._dialect.primitives:
            return Built(self._dialect.primitives[type_name])
        if type_name in ("string", "wstring"):
            return Built(Text(wide=type_name == "wstring"))
        for key in self._candidates(owner, type_name):
            if key in self._definitions:
                return self.resolve(self._definitions[key])
            if key in self._dialect.builtins:
                return Built(self._dialect.builtins[key], 2, 2)
        raise SchemaError(f"{owner} uses the undefined type {type_name}")

    def _candidates(self, owner: str, type_name: str) -> list[str]:
        if "/" in type_name:
            return [short(type_name)]
        package = owner.split("/")[0] if "/" in owner else ""
        keys = [f"{package}/{type_name}", type_name]
        if type_name in ("Header", "Time", "Duration"):
            keys.append(f"std_msgs/{type_name}" if type_name == "Header" else f"builtin_interfaces/{type_name}")
        same = [key for key in self._definitions if key.endswith(f"/{type_name}")]
        return [*keys, *same] if len(same) == 1 else keys

    def _without_fields(self, definition: RosDefinition) -> Node:
        """A definition with only constants of one type is an enum: its value is the one byte of an empty message."""
        kinds = set(definition.constants)
        if not self._dialect.filled or len(kinds) != 1 or not kinds <= PRIMITIVES.keys():
            return MessageType(definition.name, (), self._dialect.filled)
        kind = PRIMITIVES[kinds.pop()]
        if kind.size == 1:
            return kind
        signed = pa.types.is_signed_integer(kind.arrow)
        return Primitive(kind.name, "i1" if signed else "u1", kind.arrow)


def _with_array(built: Built, array: str | None, where: str) -> Built:
    if array is None:
        return built
    if not built.node.least:
        raise SchemaError(f"{where}: arrays of elements without fields are not supported")
    inner = array[1:-1]
    if inner == "<=":
        raise SchemaError(f"{where}: the array has a bound without a number")
    if inner.startswith("<=") or not inner:
        return built._replace(node=SequenceType(built.node))
    return built._replace(node=fixed_array(built.node, int(inner) if len(inner) < 12 else LARGEST, where))


def fixed_array(node: Node, length: int, where: str) -> SequenceType:
    """Return an array of exactly ``length`` elements. Raises :class:`SchemaError` if no message can hold it."""
    if not 0 < length < LARGEST:
        raise SchemaError(f"{where}: an array of {length} elements is impossible")
    sequence = SequenceType(node, length)
    if sequence.least > LARGEST:
        raise SchemaError(f"{where}: the array is larger than any message can be")
    return sequence
