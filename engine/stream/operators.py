"""The operators of a pipeline: picklable functions of one chunk, fused into a chain; and content filters.

Each takes a chunk and yields the chunks made from it, in order. The plan chains them over an iterator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

from ..chunk import (
    Chunk,
    ChunkKind,
    Component,
    DescriptorLike,
    Fate,
    alternatives,
    descriptor_of,
    split_parts,
    timeline_called,
)
from ..errors import check_argument
from ..task_context import held

_PROPERTIES = ("__properties",)


@dataclass(frozen=True, slots=True)
class _Rule:
    """Includes or excludes an entity (``parts``), or the entity and all below it (``subtree``)."""

    include: bool
    parts: tuple[str, ...]
    subtree: bool


class ContentFilter:
    """An immutable set of include and exclude rules over entity paths.

    The most specific matching rule decides: a deeper path wins, and for the same path an exact rule wins over a
    subtree. If a rule is given twice, the last one counts. An entity that no rule matches is excluded. Recording
    properties (``/__properties/**``) are excluded unless a rule names them.

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
        """Make a filter from an argument: a filter, an expression, or several expressions.

        Raises ``TypeError`` for other objects.
        """
        return content_filter(content)

    @classmethod
    def everything(cls) -> ContentFilter:
        """A filter that includes all entities except the recording properties."""
        return cls(["/**"])

    @classmethod
    def nothing(cls) -> ContentFilter:
        """A filter that includes no entity."""
        return cls()

    def include(self, path: str, *, subtree: bool = False) -> ContentFilter:
        """A filter that also includes ``path``: an entity, or with ``/**`` a subtree. ``subtree`` appends ``/**``."""
        return ContentFilter([*self._exprs, _expression(path, subtree)])

    def exclude(self, path: str, *, subtree: bool = False) -> ContentFilter:
        """A filter that excludes ``path``: an entity, or with ``/**`` a subtree. ``subtree`` appends ``/**``."""
        return ContentFilter([*self._exprs, "-" + _expression(path, subtree)])

    def include_properties(self) -> ContentFilter:
        """A filter that also includes the recording properties."""
        return ContentFilter([*self._exprs, "/__properties/**"])

    def to_exprs(self) -> list[str]:
        """The rules as expressions, in the order given."""
        return list(self._exprs)

    def matches(self, entity_path: str) -> bool:
        """Return whether the entity (canonical path) is included."""
        is_included = self._known.get(entity_path)
        if is_included is None:
            is_included = self._known[entity_path] = self._decide(entity_path)
        return is_included

    def nearest(self, entities: Collection[str]) -> str:
        """Suggest existing entities with names similar to those in the rules.

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
    """Rerun's content filters, and ours."""

    def to_exprs(self) -> list[str]:
        """The rules as expressions, in the order given."""
        ...


Content = FilterLike | str | Iterable[str]
"""Entities: an expression, a list of expressions, or a filter of Rerun or chunkmill."""


def content_filter(content: Content) -> ContentFilter:
    """The filter for a ``content=`` argument. Raises ``TypeError`` for other types."""
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


Components = DescriptorLike | str | Iterable[DescriptorLike | str]
"""Component columns, by name or descriptor: one, or any number."""


class Operator(ABC):
    """A step of a pipeline."""

    __slots__ = ()

    has_fates: ClassVar[bool] = False
    """Whether :meth:`fate` may return ``PASSED_ON`` or ``LEFT_OUT``."""

    @abstractmethod
    def __call__(self, chunk: Chunk) -> Iterable[Chunk]:
        """Yield the chunks made from ``chunk``."""

    @abstractmethod
    def describe(self) -> str:
        """One line for the plan."""

    def fate(self, kind: ChunkKind) -> Fate:  # noqa: ARG002
        """Return the outcome for an unread chunk, by its header facts."""
        return Fate.LOOKED_INTO


@dataclass(frozen=True, slots=True)
class Selection:
    """The selection of ``filter``, ``drop`` and ``split``: chunks that match all predicates, columns by component.

    With ``components`` None, it selects whole chunks. It only reads headers, so selecting chunks decodes nothing.
    """

    content: ContentFilter | None = None
    has_timeline: str | None = None
    is_static: bool | None = None
    components: frozenset[str] | None = None

    @classmethod
    def of(
        cls,
        content: Content | None,
        has_timeline: str | None,
        is_static: bool | None,
        components: Components | None,
    ) -> Selection:
        """A selection from a method's arguments. Raises ``TypeError`` for other types."""
        check_argument("is_static", is_static, bool, type(None))
        check_argument("has_timeline", has_timeline, str, type(None))
        names = (
            None
            if components is None
            else frozenset(descriptor_of(c, "components").component for c in _each(components))
        )
        return cls(None if content is None else content_filter(content), has_timeline, is_static, names)

    def matches(self, chunk: Chunk | ChunkKind) -> bool:
        """Return whether the chunk predicates hold."""
        if self.content is not None and not self.content.matches(chunk.entity_path):
            return False
        if self.is_static is not None and chunk.is_static != self.is_static:
            return False
        return self.has_timeline is None or timeline_called(self.has_timeline, chunk.timeline_names) is not None

    def part(self, chunk: Chunk) -> tuple[Chunk | None, Chunk | None]:
        """Return ``chunk`` as (selected, rest); a part without components is None.

        A selected slice is always a new chunk; if no column is selected, the rest is the chunk itself.
        """
        if not self.matches(chunk):
            return None, chunk
        if self.components is None:
            return chunk, None
        taken = tuple(c for c in chunk.data.components if c.descriptor.component in self.components)
        if not taken:
            return None, chunk
        kept = tuple(c for c in chunk.data.components if c.descriptor.component not in self.components)
        return _sliced(chunk, taken), _sliced(chunk, kept) if kept else None

    def fates(self, kind: ChunkKind) -> tuple[Fate, Fate]:
        """The fates of a chunk in the selection and in the rest."""
        if not self.matches(kind):
            return Fate.LEFT_OUT, Fate.PASSED_ON
        if self.components is None:
            return Fate.PASSED_ON, Fate.LEFT_OUT
        return Fate.LOOKED_INTO, Fate.LOOKED_INTO

    def describe(self) -> str:
        """The arguments, as given."""
        shown = []
        if self.content is not None:
            shown.append(f"content={' '.join(self.content.to_exprs())!r}")
        if self.has_timeline is not None:
            shown.append(f"has_timeline={self.has_timeline!r}")
        if self.is_static is not None:
            shown.append(f"is_static={self.is_static}")
        if self.components is not None:
            shown.append(f"components={sorted(self.components)}")
        return ", ".join(shown)


def _each(components: Components) -> Iterable[DescriptorLike | str]:
    if isinstance(components, Iterable) and not isinstance(components, str):
        return components
    if isinstance(components, str) or hasattr(components, "component"):
        return (components,)
    raise TypeError(f"'{type(components).__name__}' object is not iterable")


def _sliced(chunk: Chunk, components: tuple[Component, ...]) -> Chunk:
    return Chunk.from_data(chunk.data.with_components(components))


@dataclass(frozen=True, slots=True)
class Filter(Operator):
    """Keeps the selected data, or with ``drops`` the rest."""

    selection: Selection
    drops: bool = False

    has_fates = True

    def __call__(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield the chunks made from ``chunk``."""
        kept = self.selection.part(chunk)[self.drops]
        if kept is not None:
            yield kept

    def fate(self, kind: ChunkKind) -> Fate:
        """The fate of a chunk."""
        return self.selection.fates(kind)[self.drops]

    def describe(self) -> str:
        """One line for the plan."""
        return f"{'drop' if self.drops else 'filter'}({self.selection.describe()})"


@dataclass(frozen=True, slots=True)
class Map(Operator):
    """Calls a user's function on each chunk."""

    function: Callable[[Chunk], Chunk]

    def __call__(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield the chunks made from ``chunk``."""
        yield as_chunk(self.function(chunk))

    def describe(self) -> str:
        """One line for the plan."""
        return f"map({_name(self.function)})"


@dataclass(frozen=True, slots=True)
class FlatMap(Operator):
    """Calls a user's function on each chunk and passes on the chunks that it returns."""

    function: Callable[[Chunk], Iterable[Chunk]]

    def __call__(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield the chunks made from ``chunk``."""
        given = self.function(chunk)
        if isinstance(given, Chunk) or not isinstance(given, Iterable):
            raise TypeError(f"'{type(given).__name__}' object is not iterable")
        for item in held(given):
            yield as_chunk(item)

    def describe(self) -> str:
        """One line for the plan."""
        return f"flat_map({_name(self.function)})"


def as_chunk(value: object) -> Chunk:
    """Return ``value`` if it is a chunk, or else raise ``AttributeError``, like Rerun."""
    if not isinstance(value, Chunk):
        raise AttributeError(
            f"expected a Chunk, but the function or iterator returned a '{type(value).__name__}' object"
        )
    return value


def _name(function: object) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


@dataclass(frozen=True, slots=True)
class Step:
    """A node of a fused chain: its operation, and the positions of the steps that it feeds."""

    operator: Operator | None
    selection: Selection | None
    feeds: tuple[int, ...]
    feeds_rest: tuple[int, ...]
    is_sink: bool

    def fate(self, kind: ChunkKind) -> tuple[Fate, tuple[int, ...]]:
        """Return the fate of a chunk in this step, and its next steps."""
        if self.selection is not None:
            selected, rest = self.selection.fates(kind)
            if Fate.LOOKED_INTO in (selected, rest):
                return Fate.LOOKED_INTO, ()
            return Fate.PASSED_ON, self.feeds if selected is Fate.PASSED_ON else self.feeds_rest
        if self.operator is None:
            return Fate.PASSED_ON, self.feeds
        return self.operator.fate(kind), self.feeds


@dataclass(frozen=True, slots=True)
class Chain:
    """The fused operators after one source."""

    steps: tuple[Step, ...]

    def __call__(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield the chunks made from ``chunk``."""
        return self._flow(0, chunk)

    @property
    def may_pass_on(self) -> bool:
        """Whether :meth:`fate` can decide for some chunks."""
        first = [self.steps[i] for i in (*self.steps[0].feeds, *self.steps[0].feeds_rest)]
        return all(step.operator is None or step.operator.has_fates for step in first)

    def fate(self, kind: ChunkKind) -> Fate:
        """The fate of a chunk. A chunk that is output more than once counts as looked into."""
        times = self._times(0, kind)
        return Fate.LOOKED_INTO if times is None or times > 1 else Fate(times)

    def _times(self, at: int, kind: ChunkKind) -> int | None:
        """Count how often a chunk is output unchanged; None if a step looks into it."""
        step = self.steps[at]
        fate, fed = step.fate(kind)
        if fate is Fate.LOOKED_INTO:
            return None
        if fate is Fate.LEFT_OUT:
            return 0
        total = int(step.is_sink)
        for i in fed:
            times = self._times(i, kind)
            if times is None:
                return None
            total += times
        return total

    def _flow(self, at: int, chunk: Chunk) -> Iterator[Chunk]:
        step = self.steps[at]
        if step.selection is not None:
            selected, rest = step.selection.part(chunk)
            yield from self._feed(step.feeds, selected)
            yield from self._feed(step.feeds_rest, rest)
            return
        for out in (chunk,) if step.operator is None else applied(step.operator, chunk):
            if step.is_sink:
                yield out
            yield from self._feed(step.feeds, out)

    def _feed(self, steps: tuple[int, ...], chunk: Chunk | None) -> Iterator[Chunk]:
        if chunk is not None:
            for at in steps:
                yield from self._flow(at, chunk)


def applied(operator: Operator, chunk: Chunk) -> Iterator[Chunk]:
    """Yield the chunks that ``operator`` makes from a chunk; errors get a note that names the chunk."""
    try:
        yield from operator(chunk)
    except (Exception, SystemExit) as error:
        from ..execution import add_note  # here, so that lenses, as operators, do not load executors

        add_note(error, f"In {operator.describe()} for {chunk.id} of {chunk.entity_path}.")
        raise
