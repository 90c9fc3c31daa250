"""The pieces a selector is made of, and their text.

A selector is a :class:`SelectorPipeline` of stages, each a transformation of one Arrow array into another. The pieces
are plain data that compares, hashes and pickles; only :class:`Function` holds code.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

_ALPHABETIC_MARKS = frozenset({"Nl", "Mc"})
_ALPHANUMERIC_MARKS = frozenset({"Nl", "No", "Mc"})


def is_alphabetic(c: str) -> bool:
    """Return whether ``c`` is a letter: letters, letter numbers, spacing vowel signs."""
    return c.isalpha() or unicodedata.category(c) in _ALPHABETIC_MARKS


def is_alphanumeric(c: str) -> bool:
    """Return whether ``c`` is a letter or any kind of number."""
    return c.isalnum() or unicodedata.category(c) in _ALPHANUMERIC_MARKS


def is_name_part(c: str) -> bool:
    """Return whether ``c`` can continue a field name or an identifier."""
    return c in "-_" or is_alphanumeric(c)


def is_field_name(name: str) -> bool:
    """Return whether ``name`` can be written without quotes.

    >>> is_field_name("angle-x"), is_field_name("_x"), is_field_name("odd name")
    (True, False, False)
    """
    return name != "" and is_alphabetic(name[0]) and all(map(is_name_part, name))


@dataclass(frozen=True, slots=True)
class Identity:
    """``.``: the input."""


@dataclass(frozen=True, slots=True)
class FieldAccess:
    """``.name`` or ``."any name"``: a field of a struct."""

    name: str


@dataclass(frozen=True, slots=True)
class Index:
    """``[n]``: one element of each list; negative numbers count from its end."""

    position: int


@dataclass(frozen=True, slots=True)
class Each:
    """``[]``: all elements of all lists."""


@dataclass(frozen=True, slots=True)
class MapEach:
    """``map(…)``: the inner pipeline in each list; gives lists."""

    body: SelectorPipeline


@dataclass(frozen=True, slots=True)
class Nested:
    """``(…)``: a pipeline as one stage."""

    body: SelectorPipeline


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """``name`` or ``name("a"; "b")``: a function call."""

    name: str
    arguments: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Constant:
    """``"text"``: a string, once for each value."""

    text: str


@dataclass(frozen=True, slots=True)
class Marked:
    """A stage with its marks ``?`` (errors give nothing) and ``!`` (nulls count), in the order written."""

    inner: Node
    marks: str


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A user's callable; two are equal if they hold the very same callable."""

    callable: Callable[[pa.Array], Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Function) and self.callable is other.callable

    def __hash__(self) -> int:
        return id(self.callable)


@dataclass(frozen=True, slots=True)
class Jq:
    """A jq program on the JSON form of the elements; its outputs take the place of each element."""

    program: str
    datatype: pa.DataType | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Cast:
    """Cast the values to another Arrow type. A value that does not fit is an error."""

    datatype: pa.DataType


@dataclass(frozen=True, slots=True)
class Scaled:
    """Numbers, or lists of numbers, times a factor."""

    factor: float


@dataclass(frozen=True, slots=True)
class Nanoseconds:
    """Stamps (seconds and nanoseconds in a struct, or Arrow times) as int64 nanoseconds."""


@dataclass(frozen=True, slots=True)
class Pack:
    """Several numbers, times a factor, as one vector: a fixed-size list of ``datatype``.

    ``whole``: a null number makes the whole vector null. ``by_position``: a list as input gives its elements in order.
    ``datatype`` None is ``pack(…)``: values of any one type, unchanged; none may be missing.
    """

    parts: tuple[SelectorPipeline, ...]
    datatype: pa.DataType | None
    factor: float
    whole: bool
    by_position: bool


@dataclass(frozen=True, slots=True)
class PipelineStep:
    """A stage of a pipeline; ``piped``: written after a ``|``."""

    node: Node
    piped: bool


@dataclass(frozen=True, slots=True)
class SelectorPipeline:
    """A sequence of stages; the output of each is the input of the next."""

    stages: tuple[PipelineStep, ...]

    def then(self, other: SelectorPipeline) -> SelectorPipeline:
        """Join this pipeline and ``other`` with ``|``."""
        first, *rest = other.stages
        return SelectorPipeline((*self.stages, PipelineStep(first.node, True), *rest))

    def then_node(self, node: Node) -> SelectorPipeline:
        """Append one more stage with ``|``."""
        return SelectorPipeline((*self.stages, PipelineStep(node, True)))

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The effective stages, with groups without marks flattened. Equal tuples mean equal selectors."""
        out: list[Node] = []
        for stage in self.stages:
            if isinstance(stage.node, Nested):
                out.extend(stage.node.body.nodes)
            elif not isinstance(stage.node, Identity):
                out.append(stage.node)
        return tuple(out)


Node = (
    Identity
    | FieldAccess
    | Index
    | Each
    | MapEach
    | Nested
    | FunctionCall
    | Constant
    | Marked
    | Function
    | Jq
    | Cast
    | Scaled
    | Nanoseconds
    | Pack
)


def pipeline_text(pipeline: SelectorPipeline) -> str:
    """The canonical query of a pipeline."""
    out = []
    for i, stage in enumerate(pipeline.stages):
        out.append(" | " if i and stage.piped else "")
        out.append(_node_text(stage.node))
    return "".join(out)


def quoted(text: str) -> str:
    r"""``text`` in double quotes, with the escapes of queries: ``\\ \" \n \t``."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def inner_nodes(pipeline: SelectorPipeline) -> Iterator[Node]:
    """Every node of a pipeline, at any depth."""
    for stage in pipeline.stages:
        yield from _below(stage.node)


def _below(node: Node) -> Iterator[Node]:
    yield node
    if isinstance(node, Marked):
        yield from _below(node.inner)
    elif isinstance(node, (MapEach, Nested)):
        yield from inner_nodes(node.body)
    elif isinstance(node, Pack):
        for part in node.parts:
            yield from inner_nodes(part)


def _node_text(node: Node) -> str:
    match node:
        case Identity():
            return "."
        case FieldAccess(name):
            return f".{name}" if is_field_name(name) else f".{quoted(name)}"
        case Index(position):
            return f"[{position}]"
        case Each():
            return "[]"
        case MapEach(body):
            return f"map({pipeline_text(body)})"
        case Nested(body):
            return f"({pipeline_text(body)})"
        case FunctionCall(name, arguments):
            return name if arguments is None else f"{name}({'; '.join(map(quoted, arguments))})"
        case Constant(text):
            return quoted(text)
        case Pack(parts, None):
            return f"pack({', '.join(map(pipeline_text, parts))})"
        case Marked(inner, marks):
            return _node_text(inner) + marks
        case _:
            return _beyond_text(node)


def _beyond_text(node: Node) -> str:
    """The text of a stage that no query can express, for people and not for the parser."""
    match node:
        case Jq(program):
            return f"jq({json.dumps(program, ensure_ascii=False)})"
        case Cast(datatype):
            return f"<cast {datatype}>"
        case Scaled(factor):
            return f"<scaled {factor:g}>"
        case Nanoseconds():
            return "<nanoseconds>"
        case Pack(parts, datatype):
            return f"<packed {', '.join(map(pipeline_text, parts))} as {datatype}>"
        case _:
            return "<function>"


def is_written(pipeline: SelectorPipeline) -> bool:
    """Return whether parsing the canonical text gives the same pipeline."""
    return not any(
        isinstance(n, (Function, Jq, Cast, Scaled, Nanoseconds)) or (isinstance(n, Pack) and n.datatype is not None)
        for n in inner_nodes(pipeline)
    )


def holds_code(pipeline: SelectorPipeline) -> bool:
    """Return whether the pipeline contains a user's callable, at any depth."""
    return any(isinstance(n, Function) for n in inner_nodes(pipeline))
