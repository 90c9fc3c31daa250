"""The messages that services and actions are made of: their parts, and what ROS generates around these.

By the names that rosidl gives them (``rosidl_parser``, ``service_msgs``, and the design articles on actions and on
service introspection); ROS 1 has only requests and responses, named without an underscore.
"""

from __future__ import annotations

from typing import Final

from .decoded import SchemaError
from .ros_text import Definition

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
