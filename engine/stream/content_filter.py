"""Expressions like ``/world/** - /world/car/**``, and the entities that they mean."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from ..chunk import alternatives, split_parts
from ..errors import check_argument

_PROPERTIES = ("__properties",)


@dataclass(frozen=True, slots=True)
class _Rule:
    """Includes or excludes an entity (``parts``), or the entity and all below it (``subtree``)."""

    include: bool
    parts: tuple[str, ...]
    subtree: bool


class ContentFilter:
    """An immutable set of include and exclude rules over entity paths.

    The most specific rule that matches an entity decides: the deeper path, and for one path the exact rule before the
    subtree. The same rule given twice: the last one. An entity that no rule matches is excluded. Recording properties
    (``/__properties/**``) are excluded unless a rule names them.

    >>> f = ContentFilter.everything().exclude("/camera/**")
    >>> f.to_exprs()
    ['/**', '-/camera/**']
    >>> f.matches("/camera/left"), f.matches("/imu"), f.matches("/__properties")
    (False, True, False)
    """

    __slots__ = ("_exprs", "_known", "_rules")

    def __init__(self, exprs: Iterable[str] = ()) -> None:
        self._exprs = tuple(exprs)
        self._known: dict[str, bool] = {}
        self._rules: dict[tuple[tuple[str, ...], bool], bool] = {(_PROPERTIES, True): False}
        for rule in _parse("\n".join(self._exprs)):
            self._rules[rule.parts, rule.subtree] = rule.include

    @classmethod
    def of(cls, content: Content) -> ContentFilter:
        """The filter that an argument means: a filter, an expression, or several. Raises ``TypeError`` for others."""
        return content_filter(content)

    @classmethod
    def everything(cls) -> ContentFilter:
        """All entities but the recording properties."""
        return cls(["/**"])

    @classmethod
    def nothing(cls) -> ContentFilter:
        """No entity."""
        return cls()

    def include(self, path: str, *, subtree: bool = False) -> ContentFilter:
        """A filter that also includes ``path``: an entity, or a subtree with ``/**``, which ``subtree`` appends."""
        return ContentFilter([*self._exprs, _expression(path, subtree)])

    def exclude(self, path: str, *, subtree: bool = False) -> ContentFilter:
        """A filter that excludes ``path``: an entity, or a subtree with ``/**``, which ``subtree`` appends."""
        return ContentFilter([*self._exprs, "-" + _expression(path, subtree)])

    def include_properties(self) -> ContentFilter:
        """A filter that also includes the recording properties."""
        return ContentFilter([*self._exprs, "/__properties/**"])

    def to_exprs(self) -> list[str]:
        """The rules as expressions, in the order given."""
        return list(self._exprs)

    def matches(self, entity_path: str) -> bool:
        """Whether the entity (canonical path) is included."""
        known = self._known.get(entity_path)
        if known is None:
            known = self._known[entity_path] = self._decide(entity_path)
        return known

    def nearest(self, entities: Collection[str]) -> str:
        """Suggest, of the entities that there are, those that its rules may mean.

        >>> ContentFilter(["/imuu/**"]).nearest(["/imu", "/gps"])
        'Did you mean /imu?'
        """
        named = next((rule.parts for rule in _parse("\n".join(self._exprs)) if rule.include), ())
        return alternatives("/" + "/".join(named), sorted(entities))

    def _decide(self, entity_path: str) -> bool:
        parts = tuple(split_parts(entity_path))
        exact = self._rules.get((parts, False))
        if exact is not None:
            return exact
        for depth in range(len(parts), -1, -1):
            subtree = self._rules.get((parts[:depth], True))
            if subtree is not None:
                return subtree
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ContentFilter) and self._exprs == other._exprs

    def __hash__(self) -> int:
        return hash(self._exprs)

    def __repr__(self) -> str:
        return f"ContentFilter({self.to_exprs()!r})"

    def __reduce__(self) -> tuple[type[ContentFilter], tuple[list[str]]]:
        return ContentFilter, (self.to_exprs(),)


class FilterLike(Protocol):
    """Rerun's own filters, and ours."""

    def to_exprs(self) -> list[str]:
        """The rules as expressions, in the order given."""
        ...


Content = FilterLike | str | Iterable[str]
"""Entities: an expression, a list of them, or a filter of Rerun's or ours."""


def content_filter(content: Content) -> ContentFilter:
    """The filter that a ``content=`` argument means. Raises ``TypeError`` for what is none."""
    if isinstance(content, ContentFilter):
        return content
    if isinstance(content, str):
        return ContentFilter([content])
    to_exprs = getattr(content, "to_exprs", None)
    if to_exprs is not None:
        return ContentFilter([" ".join(to_exprs())])
    if not isinstance(content, Iterable):
        raise TypeError(f"'{type(content).__name__}' object is not iterable")
    exprs = list(content)
    for expr in exprs:
        check_argument("content", expr, str)
    return ContentFilter([" ".join(exprs)])


def _expression(path: str, subtree: bool) -> str:
    check_argument("path", path, str)
    check_argument("subtree", subtree, bool)
    if not path.startswith("/"):
        raise ValueError(f"Entity path expression must start with '/', got: '{path}'")
    return path if not subtree or path.endswith("/**") else path.rstrip("/") + "/**"


def _parse(text: str) -> list[_Rule]:
    rules: list[_Rule] = []
    position = 0
    while True:
        while position < len(text) and text[position].isspace():
            position += 1
        if position == len(text):
            return rules
        include = True
        if text[position] in "+-":
            include = text[position] == "+"
            position += 1
            while position < len(text) and text[position] in " \t":
                position += 1
        start = position
        while position < len(text) and not text[position].isspace():
            position += 2 if text[position] == "\\" else 1
        position = min(position, len(text))
        rules.append(_rule(include, text[start:position]))


def _rule(include: bool, path: str) -> _Rule:
    subtree = path == "/**" or path.endswith("/**")
    return _Rule(include, tuple(split_parts(path[:-3] if subtree else path)), subtree)
