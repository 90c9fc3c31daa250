"""Records that are kept as JSON, where anybody may have written: dataclasses whose fields are what they say."""

from __future__ import annotations

import json
from dataclasses import is_dataclass
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

R = TypeVar("R")


def parsed(data: bytes | str) -> Any:
    """The data of a text of JSON. Raises ``ValueError``, also where it is nested too deeply."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def record_of(kind: type[R], data: Any) -> R:
    """A dataclass of JSON data: numbers, texts, times, lists, dicts and dataclasses of such.

    Raises ``ValueError`` that names the field, for one that is missing, unknown, or of another type.
    """
    if not isinstance(data, dict):
        raise ValueError(f"it is {type(data).__name__}, and no object")
    of: Any = kind
    hints = _hints(of)
    if unknown := sorted(map(str, data.keys() - hints.keys())):
        raise ValueError(f"it has a field {unknown[0][:40]!r}")
    values = {name: _value(hints[name], value, name) for name, value in data.items()}
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(str(error)) from None


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(hint: Any, value: Any, name: str) -> Any:
    """The value of a field. Raises ``ValueError`` where it is not of the type."""
    arguments = get_args(hint)
    if hint is Any:
        return value
    if get_origin(hint) in (Union, UnionType):
        if value is None and NoneType in arguments:
            return None
        return _value(next(one for one in arguments if one is not NoneType), value, name)
    if get_origin(hint) is list and isinstance(value, list):
        return [_value(arguments[0], one, name) for one in value]
    if get_origin(hint) is dict and isinstance(value, dict):
        return {key: _value(arguments[1], one, name) for key, one in value.items()}
    if is_dataclass(hint) and isinstance(hint, type):
        return record_of(hint, value)
    if hint is datetime and isinstance(value, str):
        found = datetime.fromisoformat(value)
        if found.tzinfo is not None:
            return found
    elif type(value) is hint:
        return value
    raise ValueError(f"its {name} is {str(value)[:40]!r}")
