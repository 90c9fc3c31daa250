"""Specifications in YAML or JSON: their files are read, and each key is taken once. A key not taken is an error."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar

from .errors import MissingExtraError, ReadError, SourceMissingError, UsageError, extra_command
from .limits import MAX_SCHEMA_BYTES, check_limit


def read_spec(path: str | os.PathLike[str], example: str, extra: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the content of a file, and the line of each key by its full name, such as ``features.action``.

    Parameters
    ----------
    path
        A YAML file; JSON is YAML.
    example
        Example keys of such a file, for the hint of an error.
    extra
        The extra of chunkmill that brings PyYAML.

    Raises
    ------
    SourceMissingError, ReadError
        The file is missing, is not YAML, or gives a key twice.
    MissingExtraError
        PyYAML is not installed.
    """
    place = Path(path)
    try:
        size = place.stat().st_size
        check_limit(size, MAX_SCHEMA_BYTES, path=str(place), offset=None, what="the size of the file")
        text = place.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise SourceMissingError("there is no such file", path=str(place), hint="Check the path.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ReadError(f"cannot be read: {error}", path=str(place), hint="Give a YAML file.") from error
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError("a specification in YAML needs PyYAML", hint=extra_command(extra)) from error
    try:
        lines = _lines_of(yaml.parse(text, Loader=yaml.BaseLoader))
        given = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ReadError(f"is not YAML: {error}", path=str(place), hint="Correct the file.") from None
    if not isinstance(given, dict):
        raise ReadError(
            "is not a mapping", path=str(place), hint=f"A specification is a mapping with keys such as {example}."
        )
    return given, lines


class _Mapping:
    """A mapping whose YAML events are being read. ``place`` is its name; ``key`` is the key whose value comes next."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.key: str | None = None
        self.keys: set[str] = set()


def _lines_of(events: Iterator[Any]) -> dict[str, int]:
    """Return the line of each key, except in lists. Raises ``ValueError`` for a key that is given twice."""
    lines: dict[str, int] = {}
    around: list[_Mapping | None] = [None]
    for event in events:
        kind = type(event).__name__
        if kind in ("MappingEndEvent", "SequenceEndEvent"):
            around.pop()
        if kind not in ("ScalarEvent", "AliasEvent", "MappingStartEvent", "SequenceStartEvent"):
            continue
        inner, place = around[-1], ""
        if inner is not None and inner.key is None:
            inner.key, line = str(getattr(event, "value", "")), event.start_mark.line + 1
            name = f"{inner.place}{inner.key}"
            if kind == "ScalarEvent" and inner.key in inner.keys and inner.key != "<<":
                raise ValueError(f"the key {name} is given twice, the second time in line {line}")
            inner.keys.add(inner.key)
            lines[name] = line
        elif inner is not None:
            place, inner.key = f"{inner.place}{inner.key}.", None
        if kind == "MappingStartEvent":
            is_of_list = inner is None and len(around) > 1
            around.append(_Mapping("-." if is_of_list else place))
        elif kind == "SequenceStartEvent":
            around.append(None)
    return lines


class SpecKeys:
    """The keys of a mapping, each taken once; a key not taken is an error. ``lines``: each key's line in the file."""

    hint: ClassVar[str]
    """The hint of each error."""

    def __init__(self, given: Any, place: str, lines: Mapping[str, int] | None = None) -> None:
        self.place = place
        self.lines = lines or {}
        self._all: list[str] = []
        if not isinstance(given, Mapping):
            raise self.wrong("", f"{given!r} is not a mapping")
        self._left = dict(given)

    def at(self, key: str) -> str:
        """The full name of a key, or of the mapping if the key is empty."""
        return ".".join(filter(None, (self.place, key)))

    def wrong(self, key: str, reason: str) -> UsageError:
        """The error about a key, with its line."""
        name = self.at(key)
        line = f" (line {self.lines[name]})" if name in self.lines else ""
        return UsageError(f"{name or 'the specification'}{line}: {reason}", hint=self.hint)

    def take(self, key: str, kinds: Any, default: Any = None, *, required: bool = False) -> Any:
        """Take the value of a key. Raises ``UsageError`` if it has none of the types, or is missing."""
        self._all.append(key)
        if self._left.get(key) is None:
            self._left.pop(key, None)
            if required:
                raise self.wrong(key, "it is missing")
            return default
        value = self._left.pop(key)
        wanted = kinds if isinstance(kinds, tuple) else (kinds,)
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            raise self.wrong(key, f"{value!r} is not {' or '.join(kind.__name__ for kind in wanted)}")
        return value

    def close(self) -> None:
        """Raise ``UsageError`` for a key that was not taken."""
        for key in self._left:
            near = get_close_matches(str(key), self._all, 1)
            meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(self._all)}"
            raise self.wrong(str(key), f"there is no such key; {meant}")
