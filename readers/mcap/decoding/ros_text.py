"""The text of ROS message, service and action definitions, taken apart into fields."""

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
