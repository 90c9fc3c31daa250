"""A message type compiled to what a columnar reader does, in order: fixed blocks, and what varies in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from .message_types import Node, Primitive, Sequence, Struct, Text, Wire


@dataclass(frozen=True)
class Part:
    """A stretch of fixed width within a block: one number, a fixed array of numbers, or an element count."""

    size: int
    align: int
    path: str


@dataclass(frozen=True)
class Block:
    """A run of parts without anything variable between them. Where each lies depends on the alignment it starts at.

    With ``counted`` the last part is the element count (or byte length) of what follows the block.
    """

    parts: tuple[Part, ...]
    counted: bool
    _layouts: dict[int, tuple[tuple[int, ...], int]] = field(default_factory=dict, compare=False)

    @cached_property
    def align(self) -> int:
        """The largest alignment of its parts."""
        return max((part.align for part in self.parts), default=1)

    def layout(self, residue: int) -> tuple[tuple[int, ...], int]:
        """Offsets of the parts, and the whole size, for a block that starts ``residue`` bytes past an aligned place."""
        if residue not in self._layouts:
            at, offsets = residue, []
            for part in self.parts:
                at += -at % part.align
                offsets.append(at - residue)
                at += part.size
            self._layouts[residue] = tuple(offsets), at - residue
        return self._layouts[residue]

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """The whole size for each starting residue, 0 to ``align - 1``."""
        return tuple(self.layout(residue)[1] for residue in range(self.align))

    @cached_property
    def mask(self) -> int:
        """What of a distance is its residue."""
        return self.align - 1

    @cached_property
    def sizes(self) -> np.ndarray:
        """The same as an array (int64)."""
        return np.array(self.steps, np.int64)


@dataclass(frozen=True)
class TextVar:
    """The bytes of a string."""

    path: str


@dataclass(frozen=True)
class PlainVar:
    """Elements that are one block each and lie at equal distances; ``length`` of them, or as many as counted."""

    block: Block
    size: int
    stride: int
    length: int | None
    path: str


@dataclass(frozen=True)
class ElementsVar:
    """Elements of varying size; ``least`` is the fewest bytes one can have."""

    program: Program
    least: int
    length: int | None
    path: str


Var = TextVar | PlainVar | ElementsVar
Program = tuple[tuple[Block, Var | None], ...]


def compile_node(node: Node, path: str, wire: Wire) -> Program:
    """The steps that read one ``node``: blocks, each followed by something variable except perhaps the last."""
    steps: list[tuple[Block, Var | None]] = []
    parts: list[Part] = []
    for piece in _pieces(node, path, wire):
        if isinstance(piece, Part):
            parts.append(piece)
            continue
        counted = isinstance(piece, TextVar) or piece.length is None
        if counted:
            parts.append(Part(4, min(4, wire.max_align), piece.path))
        steps.append((Block(tuple(parts), counted), piece))
        parts = []
    if parts:
        steps.append((Block(tuple(parts), False), None))
    return tuple(steps)


def _pieces(node: Node, path: str, wire: Wire) -> Iterator[Part | Var]:
    if isinstance(node, Primitive):
        yield Part(node.size, min(node.size, wire.max_align), path)
    elif isinstance(node, Text):
        yield TextVar(path)
    elif isinstance(node, Struct):
        if node.has_filler:
            yield Part(1, 1, path)
        for name, child in node.fields:
            yield from _pieces(child, f"{path}.{name}" if path else name, wire)
    elif isinstance(node.element, Primitive) and node.length is not None:
        yield Part(node.element.size * node.length, min(node.element.size, wire.max_align), path)
    else:
        yield _elements(node, path, wire)


def _elements(node: Sequence, path: str, wire: Wire) -> PlainVar | ElementsVar:
    program = compile_node(node.element, f"{path}[]", wire)
    block, var = program[0]
    if len(program) == 1 and var is None and block.parts[0].align == block.align:
        size = block.layout(0)[1]
        return PlainVar(block, size, size + -size % block.align, node.length, path)
    return ElementsVar(program, node.element.least, node.length, path)
