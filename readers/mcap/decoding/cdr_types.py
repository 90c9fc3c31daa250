"""The types of ROS messages: as a tree, in Arrow, and compiled to blocks of bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from .columns import not_utf8, numbers_of, texts_of


@dataclass(frozen=True)
class Primitive:
    """A number of fixed width. ``code`` is its numpy type on the wire, without byte order."""

    name: str
    code: str
    arrow: pa.DataType

    @cached_property
    def size(self) -> int:
        """Bytes on the wire; also its alignment."""
        return int(self.code[1:])

    @cached_property
    def value(self) -> np.dtype[Any]:
        """The numpy type of one value in memory; of a bool, that of its byte."""
        return np.dtype(PRIMITIVES[self.name].code)

    @cached_property
    def wire(self) -> dict[str, np.dtype[Any]]:
        """The numpy type of one value on the wire, by byte order."""
        return {order: np.dtype(f"{order}{self.code}") for order in "<>"}

    @cached_property
    def is_bool(self) -> bool:
        """Return whether only 0 and 1 are values."""
        return bool(self.arrow == pa.bool_())

    @property
    def least(self) -> int:
        """The fewest bytes one takes, padding aside."""
        return self.size


@dataclass(frozen=True)
class Text:
    """A string; ``wide`` ones are UTF-16 on the wire. Bounds are not enforced."""

    wide: bool = False

    @property
    def arrow(self) -> pa.DataType:
        """A string."""
        return pa.string()

    @property
    def least(self) -> int:
        """The fewest bytes one takes: its length."""
        return 4


@dataclass(frozen=True)
class Sequence:
    """Many elements of one type: as many as the wire says, or exactly ``length``."""

    element: Node
    length: int | None = None

    @cached_property
    def arrow(self) -> pa.DataType:
        """A list, never one of fixed size."""
        return pa.list_(self.element.arrow)

    @cached_property
    def least(self) -> int:
        """The fewest bytes one takes, padding aside."""
        return 4 if self.length is None else self.length * self.element.least


@dataclass(frozen=True)
class MessageType:
    """A message type. One without fields takes one meaningless byte, as IDL demands, or none if not ``filled``.

    Fields that are ``left_out`` have bytes, which are skipped.
    """

    name: str
    fields: tuple[tuple[str, Node], ...]
    filled: bool = True
    left_out: frozenset[str] = frozenset()

    @property
    def has_filler(self) -> bool:
        """Return whether that byte is present."""
        return self.filled and not self.fields

    @cached_property
    def arrow(self) -> pa.DataType:
        """A struct with a column for each field."""
        return pa.struct([pa.field(name, node.arrow) for name, node in self.fields if name not in self.left_out])

    @cached_property
    def least(self) -> int:
        """The fewest bytes it can take on the wire: what bounds a declared element count."""
        return sum(node.least for _, node in self.fields) or int(self.filled)

    def projected(self, keeps: Callable[[str], bool], path: str = "") -> MessageType:
        """The same without the fields, of its own and of messages in it, whose paths are not kept."""
        fields, left_out = [], set()
        for name, node in self.fields:
            where = f"{path}.{name}" if path else name
            if not keeps(where):
                left_out.add(name)
            elif isinstance(node, MessageType):
                node = node.projected(keeps, where)
            fields.append((name, node))
        return replace(self, fields=tuple(fields), left_out=frozenset(left_out))


Node = Primitive | Text | Sequence | MessageType

PRIMITIVES: Final[dict[str, Primitive]] = {
    primitive.name: primitive
    for primitive in (
        Primitive("bool", "u1", pa.bool_()),
        Primitive("byte", "u1", pa.uint8()),
        Primitive("char", "u1", pa.uint8()),
        Primitive("int8", "i1", pa.int8()),
        Primitive("uint8", "u1", pa.uint8()),
        Primitive("int16", "i2", pa.int16()),
        Primitive("uint16", "u2", pa.uint16()),
        Primitive("int32", "i4", pa.int32()),
        Primitive("uint32", "u4", pa.uint32()),
        Primitive("int64", "i8", pa.int64()),
        Primitive("uint64", "u8", pa.uint64()),
        Primitive("float32", "f4", pa.float32()),
        Primitive("float64", "f8", pa.float64()),
    )
}

TIME: Final = MessageType("builtin_interfaces/Time", (("sec", PRIMITIVES["int32"]), ("nanosec", PRIMITIVES["uint32"])))
"""``Time`` and ``Duration`` of ``builtin_interfaces``, known even when no section of a schema defines them."""


class Wire(NamedTuple):
    """The layout of messages in bytes: ``header`` bytes come first; numbers lie at multiples of their size, but of no
    more than ``max_align``, counted from there. ``ended`` texts have a final NUL, ``exact`` messages end where their
    last field does.
    """

    header: int
    max_align: int
    ended: bool
    exact: bool


CDR: Final = Wire(4, 8, ended=True, exact=False)
"""Version 1 of it, as ROS 2 writes it."""

ROS1_WIRE: Final = Wire(0, 1, ended=False, exact=True)
"""The serialization of ROS 1: little-endian, nothing but the values and the counts before what varies in size."""


def is_wide(node: Node) -> bool:
    """Return whether a ``wstring`` occurs anywhere in the type."""
    if isinstance(node, Text):
        return node.wide
    if isinstance(node, Sequence):
        return is_wide(node.element)
    return isinstance(node, MessageType) and any(is_wide(child) for _, child in node.fields)


@dataclass(frozen=True)
class _Part:
    """A stretch of fixed width within a block: one number, a fixed array of numbers, or an element count."""

    size: int
    align: int
    path: str
    wanted: bool = True


@dataclass(frozen=True)
class FixedBlock:
    """A run of parts without anything variable between them. Their places depend on the alignment of the start.

    With ``counted`` the last part is the element count (or byte length) of what follows the block.
    """

    parts: tuple[_Part, ...]
    counted: bool
    _layouts: dict[int, tuple[tuple[int, ...], int]] = field(default_factory=dict, compare=False)

    @property
    def cut(self) -> str:
        """The fault of a message that ends within the block; a message without fields has a byte without a name."""
        path = self.parts[-1].path if self.parts else ""
        return f"{path}: the message ends before it" if path else "the message ends too early"

    @cached_property
    def picked(self) -> tuple[int, ...]:
        """The numbers of the parts that are looked at."""
        last = len(self.parts) - 1
        return tuple(i for i, part in enumerate(self.parts) if part.wanted or (self.counted and i == last))

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
        """The bits of a distance that are its residue."""
        return self.align - 1

    @cached_property
    def sizes(self) -> np.ndarray:
        """The same as an array (int64)."""
        return np.array(self.steps, np.int64)


@dataclass(frozen=True)
class TextVar:
    """The bytes of a string."""

    path: str
    wanted: bool = True


@dataclass(frozen=True)
class PlainVar:
    """Elements of one block each, at equal distances; ``length`` of them, or as many as counted."""

    block: FixedBlock
    size: int
    stride: int
    length: int | None
    path: str
    wanted: bool = True


@dataclass(frozen=True)
class ElementsVar:
    """Elements of varying size; ``least`` is the fewest bytes one can have."""

    program: Program
    least: int
    length: int | None
    path: str
    wanted: bool = True


Var = TextVar | PlainVar | ElementsVar
Program = tuple[tuple[FixedBlock, Var | None], ...]


def compile_node(node: Node, path: str, wire: Wire) -> Program:
    """The steps that read one ``node``: blocks, each followed by something variable except perhaps the last."""
    steps: list[tuple[FixedBlock, Var | None]] = []
    parts: list[_Part] = []
    for piece in _pieces(node, path, wire, True):
        if isinstance(piece, _Part):
            parts.append(piece)
            continue
        counted = isinstance(piece, TextVar) or piece.length is None
        if counted:
            parts.append(_Part(4, min(4, wire.max_align), piece.path, False))
        steps.append((FixedBlock(tuple(parts), counted), piece))
        parts = []
    if parts:
        steps.append((FixedBlock(tuple(parts), False), None))
    return tuple(steps)


def _pieces(node: Node, path: str, wire: Wire, wanted: bool) -> Iterator[_Part | Var]:
    if isinstance(node, Primitive):
        yield _Part(node.size, min(node.size, wire.max_align), path, wanted)
    elif isinstance(node, Text):
        yield TextVar(path, wanted)
    elif isinstance(node, MessageType):
        if node.has_filler:
            yield _Part(1, 1, path, wanted)
        for name, child in node.fields:
            yield from _pieces(child, f"{path}.{name}" if path else name, wire, wanted and name not in node.left_out)
    elif isinstance(node.element, Primitive) and node.length is not None:
        yield _Part(node.element.size * node.length, min(node.element.size, wire.max_align), path, wanted)
    else:
        yield _elements(node, path, wire, wanted)


def _elements(node: Sequence, path: str, wire: Wire, wanted: bool) -> PlainVar | ElementsVar:
    program = compile_node(node.element, f"{path}[]", wire)
    block, var = program[0]
    if len(program) == 1 and var is None and block.parts[0].align == block.align:
        size = block.layout(0)[1]
        return PlainVar(block, size, size + -size % block.align, node.length, path, wanted)
    return ElementsVar(program, node.element.least, node.length, path, wanted)


@dataclass
class Batch:
    """The bytes of many messages, and what was found wrong with some: rows of (message indices, text)."""

    data: np.ndarray
    order: str
    wire: Wire = CDR
    faults: list[tuple[np.ndarray, str]] = field(default_factory=list)


class Frame:
    """Places in a batch, all arrays int64 of one length: ``place`` is read next, alignment counts from ``base``,
    the message ends at ``end``, ``owner`` is its index, ``row`` the row of the frame above.
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
        """Drop the rows without ``good``, as faults of their messages; return True if none was dropped."""
        if good.all():
            return True
        self.batch.faults.append((self.owner[~good], what))
        self.keep(good)
        return False

    def residues(self, align: int) -> np.ndarray:
        """Return how far each place is past a multiple of ``align``."""
        past: np.ndarray = (self.place - self.base) & (align - 1)
        return past

    def enter(self, block: FixedBlock) -> tuple[np.ndarray, int | None]:
        """Make sure that ``block`` fits. Returns the residues, and the one residue when all rows share it."""
        residues = self.residues(block.align)
        common = int(residues[0]) if len(residues) and bool((residues == residues[0]).all()) else None
        size = block.sizes[residues] if common is None else block.layout(common)[1]
        good = self.place + size <= self.end
        if not self.require(good, block.cut):
            residues = residues[good]
        return residues, common


def numbers(node: Primitive, items: np.ndarray, batch: Batch, owner: np.ndarray, path: str) -> pa.Array:
    """Numbers from their bytes. ``owner`` are the messages that have equal shares of them, for wrong ones to be
    faults of.
    """
    values = items.view(node.wire[batch.order])
    if node.is_bool:
        if len(values) and int(values.max()) > 1:
            share = np.flatnonzero(values > 1) // (len(values) // len(owner))
            batch.faults.append((owner[share], f"{path}: a bool is neither 0 nor 1"))
    else:
        values = values.astype(node.value, copy=not values.flags.aligned)
    return numbers_of(node.arrow, values)


def strings(payload: np.ndarray, offsets: np.ndarray, batch: Batch, owner: np.ndarray, path: str) -> pa.Array:
    """Return consecutive strings; ``owner`` are the messages, each with an equal share of them."""
    count = len(offsets) - 1
    wrong = not_utf8(payload, offsets)
    if len(wrong):
        batch.faults.append((owner[wrong // (count // len(owner))], f"{path}: the text is not UTF-8"))
    return texts_of(payload, offsets)
