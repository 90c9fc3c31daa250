"""The text of ROS definitions in its parts: messages, and those of services and actions with what ROS adds to them.

By the names that rosidl gives them (``rosidl_parser``, ``service_msgs``, and the design articles on actions and on
service introspection); ROS 1 has only requests and responses, named without an underscore.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from ....engine.limits import MAX_SCHEMA_BYTES
from .decoded import SchemaError

_SEPARATOR: Final = re.compile(r"^={3,}\s*$", re.MULTILINE)
_SECTION: Final = re.compile(r"\s*(?:MSG|SRV|ACTION):\s*([\w/]+)[^\n]*(?:\n|$)")
_LINE: Final = re.compile(
    r"(?P<type>[A-Za-z]\w*(?:/\w+)*)(?:<=(?P<bound>\d+))?(?P<array>\[(?:<=)?\d*\])?"
    r"\s+(?P<name>[A-Za-z_]\w*)\s*(?P<rest>=|#|$|\s.*$)",
    re.ASCII,
)


@dataclass
class Definition:
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


def read_sections(schema_name: str, schema_data: bytes) -> tuple[list[Definition], dict[str, list[Definition]]]:
    """The text's own definition, and those of the types that it uses, by short name.

    Each is a list of parts: one of a message, two of a service, three of an action, which ``---`` separates. Raises
    :class:`SchemaError`.
    """
    if len(schema_data) > MAX_SCHEMA_BYTES:
        raise SchemaError(f"the definition of {schema_name} has {len(schema_data):,} bytes, too many")
    main, *rest = _SEPARATOR.split(schema_data.decode("utf-8", errors="replace").replace("\r", ""))
    definitions: dict[str, list[Definition]] = {}
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


def _parse(name: str, text: str) -> list[Definition]:
    definition = Definition(name)
    parts = [definition]
    seen: set[str] = set()
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("---"):
            definition, seen = Definition(name), set()
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
            raise SchemaError(f"{name}, line {number}: the field {match['name']!r} is there twice")
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
    "service_msgs/ServiceEventInfo": Definition(
        "service_msgs/ServiceEventInfo",
        [
            ("event_type", "uint8", None),
            ("stamp", "builtin_interfaces/Time", None),
            ("client_gid", "char", "[16]"),
            ("sequence_number", "int64", None),
        ],
    ),
    "unique_identifier_msgs/UUID": Definition("unique_identifier_msgs/UUID", [("uuid", "uint8", "[16]")]),
}
"""Types that the generated messages use, and that a text with only the service's or action's own definition lacks."""


def base_of(name: str, parts: int) -> str:
    """The service or action, of so many parts, to which the message type ``name`` belongs. Raises
    :class:`SchemaError` when the name says none.

    >>> base_of("nav/ComputePath_SendGoal_Event", 3), base_of("std_srvs/SetBoolRequest", 2)
    ('nav/ComputePath', 'std_srvs/SetBool')
    """
    kinds = {2: (*_OF_SERVICES, *_ROS1_SERVICE), 3: _OF_ACTIONS}
    if parts not in kinds:
        raise SchemaError(f"{name} has {parts} parts: a service has two, an action three")
    found = [suffix for suffix in kinds[parts] if name.endswith(suffix)]
    if not found:
        what = "service" if parts == 2 else "action"
        raise SchemaError(f"the definition is that of a {what}, and {name} does not say which message of it is meant")
    return name.removesuffix(max(found, key=len))


def messages_of(base: str, parts: list[Definition]) -> dict[str, Definition]:
    """The message types of the service or action ``base`` by name."""
    if len(parts) == 2:
        own = {f"{base}{suffix}": part for suffix, part in zip(_SERVICE, parts, strict=True)}
        ros1 = {f"{base}{suffix}": part for suffix, part in zip(_ROS1_SERVICE, parts, strict=True)}
        return _named({**ros1, **own, **_event(base)})
    own = {f"{base}{suffix}": part for suffix, part in zip(_ACTION, parts, strict=True)}
    own |= {f"{base}{suffix}": Definition("", fields) for suffix, fields in generated_around(base).items()}
    for service in _GENERATED_SERVICES:
        own |= _event(base + service)
    return _named(own)


def generated_around(base: str) -> dict[str, Fields]:
    """What carries the parts of the action ``base``, by suffix of the name."""
    goal_id = ("goal_id", "unique_identifier_msgs/UUID", None)
    return {
        "_FeedbackMessage": [goal_id, ("feedback", f"{base}_Feedback", None)],
        "_SendGoal_Request": [goal_id, ("goal", f"{base}_Goal", None)],
        "_SendGoal_Response": [("accepted", "bool", None), ("stamp", "builtin_interfaces/Time", None)],
        "_GetResult_Request": [goal_id],
        "_GetResult_Response": [("status", "int8", None), ("result", f"{base}_Result", None)],
    }


def event_of(base: str) -> Fields:
    """What tells of a call of the service ``base``."""
    return [
        ("info", "service_msgs/ServiceEventInfo", None),
        ("request", f"{base}_Request", "[<=1]"),
        ("response", f"{base}_Response", "[<=1]"),
    ]


def _event(base: str) -> dict[str, Definition]:
    return {f"{base}_Event": Definition("", event_of(base))}


def _named(definitions: dict[str, Definition]) -> dict[str, Definition]:
    return {name: Definition(name, found.fields, found.constants) for name, found in definitions.items()}
