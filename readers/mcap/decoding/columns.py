"""Types of messages, in Arrow and compiled to blocks of bytes; and columns made from bytes at many places."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from ....engine.chunk import ComponentDescriptor

_LARGEST_BATCH: Final = (1 << 31) - 1

_STRING: Final = pa.string()

BLOB: Final = pa.list_(pa.field("item", pa.uint8(), nullable=False))
"""Bytes as in Rerun's ``Blob``."""

Piece = tuple[np.ndarray, pa.Array]
"""Some messages: their indices (int64), and their values."""


class Surplus(NamedTuple):
    """The number of messages that are longer than defined, and the first one's bytes and bytes left over."""

    messages: int = 0
    size: int = 0
    left: int = 0


class Faults(dict[int, str]):
    """The reasons why messages could not be decoded, by index; and the surplus of decoded messages."""

    surplus = Surplus()

    def add_surplus(self, more: Surplus) -> None:
        """Add messages that are longer than defined."""
        if more.messages:
            first = self.surplus if self.surplus.messages else more
            self.surplus = first._replace(messages=self.surplus.messages + more.messages)


class SchemaError(ValueError):
    """A message definition that cannot be used; the text is the reason. The channel's messages stay raw bytes."""


class Decoded(NamedTuple):
    """Many messages of one channel as one column.

    ``values`` has one element per good message, in order. ``bad`` are the indices (int64, ascending) of the messages
    that could not be decoded, ``reasons`` one text for each of them. ``surplus`` counts good messages that were not
    read to their end.
    """

    values: pa.Array
    bad: np.ndarray
    reasons: list[str]
    surplus: Surplus = Surplus()


class MessageDecoder(ABC):
    """Decodes messages of one definition, many at a time.

    ``descriptor`` is the component of the messages, such as ``sensor_msgs.msg.Imu:message``; ``datatype`` is the type
    of one message.
    """

    def __init__(self, name: str, datatype: pa.DataType) -> None:
        self.descriptor = ComponentDescriptor(f"{name}:message", archetype=name)
        self.datatype = datatype

    @property
    def column(self) -> pa.ListType:
        """The type of the messages' component: one message per row."""
        return pa.list_(pa.field("item", self.datatype, nullable=not isinstance(self, RawDecoder)))

    def projected(self, keeps: Callable[[str], bool]) -> MessageDecoder:
        """Return a decoder of only those fields whose paths (``header.stamp``) are kept.

        By default, all fields are decoded, as for JSON and CBOR, which are parsed as a whole.
        """
        del keeps
        return self

    def _with(self, **parts: Any) -> Self:
        """Return a copy with these attributes."""
        made = copy(self)
        vars(made).update(parts)
        return made

    def decode(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Decoded:
        """Decode messages in ``data`` (uint8, 1-D): message ``i`` is ``data[starts[i]:ends[i]]``.

        ``starts`` and ``ends`` are int64 of equal length. Only a message's own bytes are read for it. A
        damaged message never raises: it is reported in :attr:`Decoded.bad`. More than 2 GiB of messages in
        one call raise ``ValueError``, because a list array cannot hold them.
        """
        if int((ends - starts).sum()) > _LARGEST_BATCH:
            raise ValueError("more than 2 GiB of messages in one call")
        return self._decoded(self._by_column, data, starts, ends)

    def decode_plain(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Decoded:
        """Decode one message at a time. This is the reference for :meth:`decode`."""
        return self._decoded(self._one_by_one, data, starts, ends)

    def _decoded(self, read: _Read, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Decoded:
        faults = Faults()
        values = _in_order(list(read(data, starts, ends, faults)), self.datatype)
        bad = np.array(sorted(faults), np.int64)
        return Decoded(values, bad, [faults[index] for index in bad.tolist()], faults.surplus)

    @abstractmethod
    def _by_column(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, faults: Faults) -> Iterable[Piece]:
        """Decode messages; their faults go to ``faults``."""

    def _one_by_one(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, faults: Faults) -> Iterable[Piece]:
        for index in range(len(starts)):
            message, wrong = slice(index, index + 1), Faults()
            yield from (
                (rows + index, values) for rows, values in self._by_column(data, starts[message], ends[message], wrong)
            )
            faults |= {index: wrong[0]} if wrong else {}


_Read = Callable[[np.ndarray, np.ndarray, np.ndarray, Faults], Iterable[Piece]]


def _in_order(pieces: list[Piece], datatype: pa.DataType) -> pa.Array:
    """Join arrays of messages by ascending index."""
    if not pieces:
        return pa.array([], datatype)
    if len(pieces) == 1:
        return pieces[0][1]
    indices = np.concatenate([indices for indices, _ in pieces])
    values = pa.concat_arrays([array for _, array in pieces])
    rank = np.argsort(indices)
    return values if bool((rank == np.arange(len(rank))).all()) else values.take(pa.array(rank))


class RawDecoder(MessageDecoder):
    """Gives each message as one blob, ``list<uint8>``; every message is good."""

    def __init__(self) -> None:
        self.descriptor = _RAW_DESCRIPTOR
        self.datatype = BLOB

    def _by_column(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, _: Faults) -> Iterable[Piece]:
        lengths = ends - starts
        return [(np.arange(len(starts)), blobs(gather(data, starts, lengths), lengths))]


_RAW_DESCRIPTOR: Final = ComponentDescriptor(
    "McapMessage:data", archetype="rerun.archetypes.McapMessage", component_type="rerun.components.Blob"
)


_EQUAL_CAP: Final = 1024
"""Pieces of equal length are picked by one indexed read of a sliding view if they have at most this many bytes."""


def _sliding(data: np.ndarray, size: int) -> np.ndarray:
    """A view of ``data`` with a piece of ``size`` bytes at every offset; empty if ``data`` is shorter."""
    return np.ndarray((max(len(data) - size + 1, 0),), f"V{size}", data, strides=(1,))


def pick(data: np.ndarray, size: int, places: np.ndarray) -> np.ndarray:
    """Return the ``size`` bytes at each of ``places`` (int64 offsets) as an array of void."""
    picked: np.ndarray = _sliding(data, size)[places]
    return picked


def strided(data: np.ndarray, places: np.ndarray, size: int) -> tuple[np.ndarray, int, int]:
    """Return a buffer with the ``size`` bytes at each of ``places``, the first piece's offset, and the distance.

    The buffer is ``data`` itself if the distances are equal, else a copy of the bytes.
    """
    if len(places) > 1 and bool((np.diff(places) == (step := int(places[1] - places[0]))).all()) and step > 0:
        return data, int(places[0]), step
    return pick(data, size, places), 0, size


def read_words(data: np.ndarray, places: np.ndarray, order: str) -> np.ndarray:
    """The uint32 at each of ``places`` (int64 offsets), as int64; ``order`` is ``"<"`` or ``">"``."""
    return pick(data, 4, places).view(f"{order}u4").astype(np.int64)


def gather(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the pieces ``data[starts[i] : starts[i] + lengths[i]]``, joined, as uint8.

    Each piece is copied once; a single piece is not copied at all.
    """
    if len(starts) == 1:
        single: np.ndarray = data[starts[0] : starts[0] + lengths[0]]
        return single
    if not len(starts) or not lengths.any():
        return np.empty(0, np.uint8)
    first = int(lengths[0])
    if 0 < first <= _EQUAL_CAP and bool((lengths == first).all()):
        return pick(data, first, starts).view(np.uint8)
    stops = starts + lengths
    if bool((starts[1:] >= stops[:-1]).all()):
        return _gather_ordered(data, starts, stops)
    view = data.data
    pieces = [view[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
    return np.frombuffer(b"".join(pieces), np.uint8)


def _gather_ordered(data: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Pieces and the gaps between them become one Arrow binary array over ``data``, of which every second is taken."""
    wide = len(data) > np.iinfo(np.int32).max
    width = np.int64 if wide else np.int32
    offsets = np.empty(2 * len(starts) + 1, width)
    offsets[0:-1:2] = starts
    offsets[1::2] = stops
    offsets[-1] = stops[-1]
    kind = pa.large_binary() if wide else pa.binary()
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    pieces = pa.Array.from_buffers(kind, 2 * len(starts), buffers)
    picked = pieces.take(pa.Array.from_buffers(pa.int64(), len(starts), [None, pa.py_buffer(_evens(len(starts)))]))
    return np.frombuffer(picked.buffers()[2], np.uint8)[: int((stops - starts).sum())]


def _evens(count: int) -> np.ndarray:
    return np.arange(0, 2 * count, 2, dtype=np.int64)


def offsets_of(counts: np.ndarray) -> np.ndarray:
    """Arrow list offsets (int32) for lists of ``counts`` elements."""
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def regular_offsets(counts: Sequence[int], rows: int) -> np.ndarray:
    """Return Arrow list offsets (int32) of ``rows`` rows, each with lists of ``counts`` elements."""
    *starts, total = accumulate(counts, initial=0)
    offsets = np.empty(rows * len(counts) + 1, np.int32)
    lines = offsets[:-1].reshape(rows, -1)
    np.add.outer(np.arange(rows, dtype=np.int32) * np.int32(total), np.array(starts, np.int32), out=lines)
    offsets[-1] = rows * total
    return offsets


def not_utf8(payload: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the indices (int64) of the strings ``payload[offsets[i] : offsets[i + 1]]`` that are not UTF-8."""
    none = np.empty(0, np.int64)
    if not len(payload) or int(payload.max()) < 0x80:
        return none
    strings = texts_of(payload, offsets, kind=pa.binary())
    try:
        strings.cast(pa.string())
    except pa.ArrowInvalid:
        return np.array([i for i, value in enumerate(strings) if not _is_utf8(value.as_py())], np.int64)
    return none


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def bitmap(valid: np.ndarray | None) -> pa.Buffer | None:
    """Return an Arrow validity bitmap, or None if all values are valid."""
    return None if valid is None or bool(valid.all()) else pa.py_buffer(np.packbits(valid, bitorder="little"))


def numbers_of(kind: pa.DataType, values: np.ndarray, valid: np.ndarray | None = None) -> pa.Array:
    """Return numbers, or bools given as 0 and 1, as an array."""
    buffer = np.packbits(values, bitorder="little") if pa.types.is_boolean(kind) else np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [bitmap(valid), pa.py_buffer(buffer)])


def texts_of(
    payload: np.ndarray, offsets: np.ndarray, valid: np.ndarray | None = None, kind: pa.DataType = _STRING
) -> pa.Array:
    """Return the strings, or bytes, ``payload[offsets[i] : offsets[i + 1]]`` as an array."""
    return pa.Array.from_buffers(kind, len(offsets) - 1, [bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(payload)])


def lists(kind: pa.DataType, counts: np.ndarray, values: pa.Array, valid: np.ndarray | None = None) -> pa.Array:
    """Return lists of ``counts`` consecutive ``values`` each."""
    buffers = [bitmap(valid), pa.py_buffer(offsets_of(counts))]
    return pa.Array.from_buffers(kind, len(counts), buffers, children=[values])


def blobs(data: bytes | np.ndarray, sizes: Sequence[int] | np.ndarray) -> pa.Array:
    """Return ``data``, split into values of these ``sizes``, without a copy."""
    return lists(BLOB, np.asarray(sizes), pa.Array.from_buffers(pa.uint8(), len(data), [None, pa.py_buffer(data)]))


def spread(values: pa.Array, places: np.ndarray, rows: int) -> pa.Array:
    """Return ``rows`` rows: ``values`` at ``places`` (ascending), null elsewhere."""
    if len(places) == rows:
        return values
    index = np.zeros(rows, np.int64)
    index[places] = np.arange(len(places))
    absent = np.ones(rows, np.bool_)
    absent[places] = False
    return values.take(pa.array(index, mask=absent))


def names_of(values: np.ndarray, names: Mapping[int, str]) -> tuple[pa.Array, np.ndarray]:
    """Return the name of each value of an enum, null for unknown numbers, and a mask of unknown numbers."""
    numbers = np.array(sorted(names), np.uint64 if values.dtype == np.uint64 else np.int64)
    if not len(numbers):
        return pa.nulls(len(values), pa.string()), np.ones(len(values), np.bool_)
    index = np.searchsorted(numbers, values).clip(max=len(numbers) - 1)
    unknown: np.ndarray = numbers[index] != values
    texts = pa.array([names[number] for number in numbers.tolist()], pa.string())
    return texts.take(pa.array(index, mask=unknown if unknown.any() else None)), unknown


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
        """The numpy type of one value in memory; for a bool, the type of its byte."""
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
class SequenceType:
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
    """A message type. Without fields, it takes one meaningless byte, as IDL demands, or none if not ``filled``.

    The bytes of ``left_out`` fields are skipped.
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
        """The fewest bytes it can take on the wire, which bounds declared element counts."""
        return sum(node.least for _, node in self.fields) or int(self.filled)

    def projected(self, keeps: Callable[[str], bool], path: str = "") -> MessageType:
        """Return the type without fields, at any depth, whose paths are not kept."""
        fields, left_out = [], set()
        for name, node in self.fields:
            where = f"{path}.{name}" if path else name
            if not keeps(where):
                left_out.add(name)
            elif isinstance(node, MessageType):
                node = node.projected(keeps, where)
            fields.append((name, node))
        return replace(self, fields=tuple(fields), left_out=frozenset(left_out))


Node = Primitive | Text | SequenceType | MessageType

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
    """The layout of messages: ``header`` bytes, then fields. From the header's end, numbers are aligned to their size,
    at most to ``max_align``. ``ended`` texts have a final NUL; ``exact`` messages end with their last field.
    """

    header: int
    max_align: int
    ended: bool
    exact: bool


CDR: Final = Wire(4, 8, ended=True, exact=False)
"""CDR of version 1, as ROS 2 writes it."""

ROS1_WIRE: Final = Wire(0, 1, ended=False, exact=True)
"""The serialization of ROS 1: little-endian, only values, and counts before values of variable size."""


def is_wide(node: Node) -> bool:
    """Return whether a ``wstring`` occurs anywhere in the type."""
    if isinstance(node, Text):
        return node.wide
    if isinstance(node, SequenceType):
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
    """A run of parts of fixed size. Their places depend on the alignment of the start.

    With ``counted``, the last part is the element count (or byte length) of the variable part after the block.
    """

    parts: tuple[_Part, ...]
    counted: bool
    _layouts: dict[int, tuple[tuple[int, ...], int]] = field(default_factory=dict, compare=False)

    @property
    def cut(self) -> str:
        """The fault of a message that ends within the block. The byte of a message without fields has no name."""
        path = self.parts[-1].path if self.parts else ""
        return f"{path}: the message ends before it" if path else "the message ends too early"

    @cached_property
    def picked(self) -> tuple[int, ...]:
        """The indices of the parts that are read."""
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
        """A mask of the bits of a distance that are its residue."""
        return self.align - 1

    @cached_property
    def sizes(self) -> np.ndarray:
        """The :attr:`steps` as an array (int64)."""
        return np.array(self.steps, np.int64)


@dataclass(frozen=True)
class TextVar:
    """The bytes of a string."""

    path: str
    wanted: bool = True


@dataclass(frozen=True)
class PlainVar:
    """Elements of one block each, at equal distances; ``length`` elements, or as many as the count before them."""

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
    """Return the steps that read one ``node``: blocks, each followed by a variable part, except perhaps the last."""
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


def _elements(node: SequenceType, path: str, wire: Wire, wanted: bool) -> PlainVar | ElementsVar:
    program = compile_node(node.element, f"{path}[]", wire)
    block, var = program[0]
    if len(program) == 1 and var is None and block.parts[0].align == block.align:
        size = block.layout(0)[1]
        return PlainVar(block, size, size + -size % block.align, node.length, path, wanted)
    return ElementsVar(program, node.element.least, node.length, path, wanted)


@dataclass
class Batch:
    """The bytes of many messages, and the faults in them: pairs of message indices and text."""

    data: np.ndarray
    order: str
    wire: Wire = CDR
    faults: list[tuple[np.ndarray, str]] = field(default_factory=list)


class Frame:
    """Places in a batch, as int64 arrays of one length: ``place`` is read next, alignment counts from ``base``, the
    message ends at ``end``, ``owner`` is the message's index, ``row`` the row of the frame above.
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
        """Keep only the rows where ``mask`` is true."""
        if not mask.all():
            self.place, self.base, self.end = self.place[mask], self.base[mask], self.end[mask]
            self.owner, self.row = self.owner[mask], self.row[mask]

    def require(self, good: np.ndarray, what: str) -> bool:
        """Drop rows that are not ``good``, as faults of their messages; return True if none was dropped."""
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
    """Return numbers from their bytes. ``owner`` are the messages, each with an equal share of the numbers; wrong
    numbers become faults of their message.
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
    """Return consecutive strings; ``owner`` are the messages, each with an equal share of the strings."""
    count = len(offsets) - 1
    wrong = not_utf8(payload, offsets)
    if len(wrong):
        batch.faults.append((owner[wrong // (count // len(owner))], f"{path}: the text is not UTF-8"))
    return texts_of(payload, offsets)
