"""A message type compiled to what a columnar reader does, in order: fixed blocks, and what varies in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from .message_types import CDR, Node, Primitive, Sequence, Struct, Text, Wire


@dataclass(frozen=True)
class _Part:
    """A stretch of fixed width within a block: one number, a fixed array of numbers, or an element count."""

    size: int
    align: int
    path: str


@dataclass(frozen=True)
class Block:
    """A run of parts without anything variable between them. Where each lies depends on the alignment it starts at.

    With ``counted`` the last part is the element count (or byte length) of what follows the block.
    """

    parts: tuple[_Part, ...]
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
    parts: list[_Part] = []
    for piece in _pieces(node, path, wire):
        if isinstance(piece, _Part):
            parts.append(piece)
            continue
        counted = isinstance(piece, TextVar) or piece.length is None
        if counted:
            parts.append(_Part(4, min(4, wire.max_align), piece.path))
        steps.append((Block(tuple(parts), counted), piece))
        parts = []
    if parts:
        steps.append((Block(tuple(parts), False), None))
    return tuple(steps)


def _pieces(node: Node, path: str, wire: Wire) -> Iterator[_Part | Var]:
    if isinstance(node, Primitive):
        yield _Part(node.size, min(node.size, wire.max_align), path)
    elif isinstance(node, Text):
        yield TextVar(path)
    elif isinstance(node, Struct):
        if node.has_filler:
            yield _Part(1, 1, path)
        for name, child in node.fields:
            yield from _pieces(child, f"{path}.{name}" if path else name, wire)
    elif isinstance(node.element, Primitive) and node.length is not None:
        yield _Part(node.element.size * node.length, min(node.element.size, wire.max_align), path)
    else:
        yield _elements(node, path, wire)


def _elements(node: Sequence, path: str, wire: Wire) -> PlainVar | ElementsVar:
    program = compile_node(node.element, f"{path}[]", wire)
    block, var = program[0]
    if len(program) == 1 and var is None and block.parts[0].align == block.align:
        size = block.layout(0)[1]
        return PlainVar(block, size, size + -size % block.align, node.length, path)
    return ElementsVar(program, node.element.least, node.length, path)


@dataclass
class Batch:
    """The bytes of many messages, and what was found wrong with some: rows of (message indices, text)."""

    data: np.ndarray
    order: str
    wire: Wire = CDR
    faults: list[tuple[np.ndarray, str]] = field(default_factory=list)


class Frame:
    """Places in a batch, all arrays int64 of one length: ``place`` is read next, ``base`` is what alignment counts
    from, ``end`` is where the message ends, ``owner`` the message's index, ``row`` the row of the frame above.
    """

    __slots__ = ("base", "batch", "end", "owner", "place", "row")

    def __init__(
        self, batch: Batch, place: np.ndarray, base: np.ndarray, end: np.ndarray, owner: np.ndarray, row: np.ndarray
    ) -> None:
        self.batch = batch
        self.place = place
        self.base = base
        self.end = end
        self.owner = owner
        self.row = row

    def __len__(self) -> int:
        return len(self.place)

    def keep(self, mask: np.ndarray) -> None:
        """Go on with the rows where ``mask`` holds."""
        if not mask.all():
            self.place, self.base, self.end = self.place[mask], self.base[mask], self.end[mask]
            self.owner, self.row = self.owner[mask], self.row[mask]

    def require(self, good: np.ndarray, what: str) -> bool:
        """Drop the rows where ``good`` does not hold, as faults of their messages; True when none was dropped."""
        if good.all():
            return True
        self.batch.faults.append((self.owner[~good], what))
        self.keep(good)
        return False

    def residues(self, align: int) -> np.ndarray:
        """How far each place is past a multiple of ``align``."""
        past: np.ndarray = (self.place - self.base) & (align - 1)
        return past

    def enter(self, block: Block) -> tuple[np.ndarray, int | None]:
        """Make sure that ``block`` fits. Returns the residues, and the one residue when all rows share it."""
        residues = self.residues(block.align)
        common = int(residues[0]) if len(residues) and bool((residues == residues[0]).all()) else None
        size = block.sizes[residues] if common is None else block.layout(common)[1]
        good = self.place + size <= self.end
        if not self.require(good, f"{block.parts[-1].path if block.parts else ''}: the message ends before it"):
            residues = residues[good]
        return residues, common
