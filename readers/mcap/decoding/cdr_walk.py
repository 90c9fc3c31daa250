"""CDR messages with strings and sequences: row offsets for columns, and a decoder of single messages."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from ....engine.limits import MAX_ELEMENTS
from .columns import (
    CDR,
    ROS1_WIRE,
    ElementsVar,
    Frame,
    MessageType,
    Node,
    PlainVar,
    Primitive,
    Program,
    SequenceType,
    Text,
    TextVar,
    Var,
    Wire,
    offsets_of,
    read_words,
)

_GROUP: Final = 8
"""After this many elements with equal counts, places have the same alignment again, for any element size."""

_MOST_WORDS: Final = 256
"""Repetitions are only searched for groups with at most this many counts."""


class TooManyElementsError(Exception):
    """A batch has too many elements of variable size to decode at once; half a batch may work."""


class _MisfitError(Exception):
    """An element does not fit into its message."""


class _Walker:
    """Steps over elements within ``data``; ``order`` is their byte order."""

    def __init__(self, data: np.ndarray, order: str) -> None:
        self._array = data
        self._data = data.data
        self._kind = f"{order}u4"
        self._word = struct.Struct(f"{order}I").unpack_from
        self._words: list[tuple[int, int]] = []
        self._total = 0

    def elements(self, var: ElementsVar, count: int, place: int, base: int, end: int) -> tuple[np.ndarray, int]:
        """Return the places of ``count`` elements, the first at ``place``, and where the last one ends.

        Alignment counts from ``base``; raises :class:`_MisfitError` when one reaches past ``end``.
        """
        places = np.empty(count, np.int64)
        index = 0
        pattern: tuple[int, list[tuple[int, int]]] = (-1, [])
        while index < count:
            self._words, start = [], place
            some = min(_GROUP, count - index)
            group = [0] * some
            for k in range(some):
                group[k] = place
                place = self.skip(var.program, place, base, end)
            places[index : index + some] = group
            index += some
            stride = place - start
            before, pattern = pattern, (stride, [(at - start, value) for at, value in self._words])
            if some == _GROUP and before == pattern and stride % _GROUP == 0 and len(self._words) <= _MOST_WORDS:
                times = self._repeats(
                    place, stride, pattern[1], min((count - index) // _GROUP, (end - place) // stride)
                )
                starts = np.add.outer(np.arange(1, times + 1) * stride, places[index - _GROUP : index])
                places[index : index + times * _GROUP] = starts.reshape(-1)
                index, place = index + times * _GROUP, place + times * stride
        return places, place

    def _repeats(self, place: int, stride: int, words: list[tuple[int, int]], most: int) -> int:
        """Count how often ``words`` repeat after ``place``, every ``stride`` bytes; at most ``most`` times."""
        times, step = 0, 16
        while times < most:
            some = min(step, most - times)
            good = np.ones(some, np.bool_)
            for at, value in words:
                values = np.ndarray((some,), self._kind, self._array, place + times * stride + at, (stride,))
                good &= values == value
            if not good.all():
                return times + int(good.argmin())
            times, step = times + some, 8 * step
        return times

    def skip(self, program: Program, place: int, base: int, end: int) -> int:
        """Return the end of the element that starts at ``place``; raises :class:`_MisfitError` past ``end``."""
        for block, var in program:
            place += block.steps[(place - base) & block.mask]
            if place > end:
                raise _MisfitError(block.cut)
            if isinstance(var, TextVar):
                count = self._word(self._data, place - 4)[0]
                self._words.append((place - 4, count))
                place += count
                if place > end:
                    raise _MisfitError(f"{var.path}: the string is longer than the rest of the message")
            elif var is not None:
                count = var.length
                if count is None:
                    count = self._word(self._data, place - 4)[0]
                    self._words.append((place - 4, count))
                place = self._skip_sequence(var, count, place, base, end) if count else place
        return place

    def _skip_sequence(self, var: PlainVar | ElementsVar, count: int, place: int, base: int, end: int) -> int:
        what = f"{var.path}: it has more elements than fit into the message"
        if isinstance(var, PlainVar):
            place += -(place - base) & (var.block.align - 1)
            place += (count - 1) * var.stride + var.size
            if place > end:
                raise _MisfitError(what)
            return place
        if count * var.least > end - place:
            raise _MisfitError(what)
        self._total += count
        if self._total > MAX_ELEMENTS:
            raise TooManyElementsError
        for _ in range(count):
            place = self.skip(var.program, place, base, end)
        return place


_FEW: Final = 24
"""With fewer rows than this, elements are located one by one, as array operations cost more than they save."""

_FAR: Final = 1 << 31
"""More bytes than any message has. Distances are capped to this, so that products with counts fit an int64."""


class TextRun(NamedTuple):
    """The places of strings; ``lengths`` are in bytes and include a final NUL."""

    starts: np.ndarray
    lengths: np.ndarray
    owner: np.ndarray
    path: str


class PlainRun(NamedTuple):
    """The places of sequences of blocks, and the number of blocks in each."""

    starts: np.ndarray
    counts: np.ndarray
    owner: np.ndarray
    var: PlainVar


class ElementsRun(NamedTuple):
    """The number of elements of each sequence, and a frame with one row for each element, in order."""

    counts: np.ndarray
    elements: Frame
    var: ElementsVar


def advance(var: Var, frame: Frame, counts: np.ndarray) -> TextRun | PlainRun | ElementsRun:
    """Step over ``var``, which has ``counts`` bytes or elements in each row; rows that it does not fit are dropped."""
    if isinstance(var, TextVar):
        good = counts <= frame.end - frame.place
        if not frame.require(good, f"{var.path}: the string is longer than the rest of the message"):
            counts = counts[good]
        text = TextRun(frame.place, counts, frame.owner, var.path)
        frame.place = frame.place + counts
        return text
    if isinstance(var, PlainVar):
        return _advance_plain(var, frame, counts)
    good = counts * min(var.least, _FAR) <= frame.end - frame.place
    if not frame.require(good, f"{var.path}: it has more elements than fit into the message"):
        counts = counts[good]
    return _locate(var, frame, counts)


def _advance_plain(var: PlainVar, frame: Frame, counts: np.ndarray) -> PlainRun:
    some = counts > 0
    starts = frame.place + (-(frame.place - frame.base) & (var.block.align - 1)) * some
    # A row without elements takes nothing, not even padding; the last element has no padding after it.
    span = ((counts - 1) * min(var.stride, _FAR) + min(var.size, _FAR)) * some
    good = span <= frame.end - starts
    if not frame.require(good, f"{var.path}: it has more elements than fit into the message"):
        starts, counts, span = starts[good], counts[good], span[good]
    frame.place = starts + span
    return PlainRun(starts, counts, frame.owner, var)


def _locate(var: ElementsVar, frame: Frame, counts: np.ndarray) -> ElementsRun:
    """Find where each element starts: the k-th elements of all rows together, then the next."""
    good = counts <= MAX_ELEMENTS
    if not frame.require(good, f"{var.path}: it has more than {MAX_ELEMENTS:,} elements"):
        counts = counts[good]
    if int(counts.sum()) > MAX_ELEMENTS:
        raise TooManyElementsError
    offsets = offsets_of(counts).astype(np.int64)
    places = np.empty(int(offsets[-1]), np.int64)
    after = frame.place.copy()
    done = counts == 0
    cursor = Frame(frame.batch, frame.place, frame.base, frame.end, frame.owner, np.arange(len(frame)))
    cursor.keep(~done)
    index = 0
    while len(cursor) >= _FEW:
        places[offsets[cursor.row] + index] = cursor.place
        skip(var.program, cursor)
        index += 1
        after[cursor.row] = cursor.place
        more = counts[cursor.row] > index
        if not more.all():
            done[cursor.row[~more]] = True
            cursor.keep(more)
    _locate_singly(var, cursor, index, offsets, places, after, done)
    frame.place = after
    row = np.repeat(np.arange(len(counts)), counts)
    if not done.all():
        mask = done[row]
        places, row = places[mask], row[mask]
        elements = Frame(frame.batch, places, frame.base[row], frame.end[row], frame.owner[row], row)
        frame.keep(done)
        return ElementsRun(counts[done], elements, var)
    elements = Frame(frame.batch, places, frame.base[row], frame.end[row], frame.owner[row], row)
    return ElementsRun(counts, elements, var)


def skip(program: Program, frame: Frame) -> None:
    """Step over one whole ``program`` in every row."""
    for block, var in program:
        residues, common = frame.enter(block)
        frame.place = frame.place + (block.sizes[residues] if common is None else block.layout(common)[1])
        if var is None:
            continue
        if block.counted:
            counts = read_words(frame.batch.data, frame.place - 4, frame.batch.order)
        else:
            counts = constant_counts(var, len(frame))
        advance(var, frame, counts)


def constant_counts(var: Var, rows: int) -> np.ndarray:
    """The element counts of a fixed-size array."""
    return np.full(rows, 0 if isinstance(var, TextVar) else var.length, np.int64)


def _locate_singly(
    var: ElementsVar,
    cursor: Frame,
    index: int,
    offsets: np.ndarray,
    places: np.ndarray,
    after: np.ndarray,
    done: np.ndarray,
) -> None:
    """Do the same as :func:`_locate` for the remaining rows, row by row."""
    walker = _Walker(cursor.batch.data, cursor.batch.order)
    for row, place, base, end, owner in zip(
        cursor.row.tolist(),
        cursor.place.tolist(),
        cursor.base.tolist(),
        cursor.end.tolist(),
        cursor.owner.tolist(),
        strict=True,
    ):
        start, stop = int(offsets[row]) + index, int(offsets[row + 1])
        try:
            places[start:stop], after[row] = walker.elements(var, stop - start, place, base, end)
        except _MisfitError as misfit:
            cursor.batch.faults.append((np.array([owner]), str(misfit)))
            continue
        done[row] = True


Reader = Callable[["CdrCursor"], Any]

_MOST_ELEMENTS: Final = MAX_ELEMENTS // 4
"""The maximum number of strings and structs in one message. Each becomes an object."""

_LAST_UNIT: Final = 0xFFFF
MOST_PADDING: Final = 3
"""Up to this many bytes after the last field are the message's padding."""


class CdrError(ValueError):
    """A message that does not fit its definition."""


@dataclass(frozen=True)
class CdrEncoding:
    """A layout of CDR: byte order, the largest alignment, and whether it has XCDR2's length headers.

    ``headed_lists`` precede sequences and arrays of anything but numbers, ``headed_structs`` precede every struct.
    ``wide_unit`` is the width of a character of a ``wstring``: two bytes in the standard, four in ROS 2's middlewares.
    """

    order: str
    max_align: int = 8
    headed_lists: bool = False
    headed_structs: bool = False
    wide_unit: int = 2
    wire: Wire = CDR


def _readings(order: str, kind: str) -> tuple[CdrEncoding, ...]:
    """Return a label's possible meanings, the standard's first. A parameter list is read as if it had no member ids."""
    plain = CdrEncoding(order)
    two = CdrEncoding(order, 4, headed_lists=True)
    delimited = CdrEncoding(order, 4, headed_lists=True, headed_structs=True)
    return {"cdr": (plain,), "cdr2": (two, plain), "delimited": (delimited, two, plain), "list": (plain,)}[kind]


ENCODINGS: Final[dict[int, tuple[CdrEncoding, ...]]] = {
    label + (order == "<"): _readings(order, kind)
    for order in (">", "<")
    for label, kind in (
        (0x00, "cdr"),
        (0x06, "cdr2"),
        (0x08, "delimited"),
        (0x0A, "list"),
        (0x10, "cdr2"),
        (0x12, "list"),
        (0x14, "delimited"),
    )
}
"""By the second byte of a message. As writers get the labels of XCDR2 wrong, other readings are tried, too. A reading
after the first counts only if it ends exactly at the message's end."""

PARAMETER_LISTS: Final = frozenset({0x0A, 0x0B, 0x12, 0x13})
"""Labels whose standard meaning cannot be read: members have ids, which no ROS 2 definition has."""

_ROS1: Final = CdrEncoding("<", max_align=ROS1_WIRE.max_align, wire=ROS1_WIRE)

COLUMNAR: Final = {0x00: ">", 0x01: "<"}
"""Labels that the columnar reader knows, and their byte order."""


class CdrCursor:
    """A place in one message. Alignment counts from the end of its four-byte header."""

    __slots__ = ("data", "elements", "encoding", "place")

    def __init__(self, data: bytes, encoding: CdrEncoding) -> None:
        self.data = data
        self.encoding = encoding
        self.place = 0
        self.elements = 0

    def align(self, size: int) -> None:
        """Step to the next multiple of ``size``, as far as the encoding aligns at all."""
        self.place += -self.place % min(size, self.encoding.max_align)

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes. Raises :class:`CdrError` if fewer are left."""
        if size > len(self.data) - self.place:
            raise CdrError(f"{size:,} bytes are needed, but {max(len(self.data) - self.place, 0):,} are left")
        self.place += size
        return self.data[self.place - size : self.place]

    def word(self) -> int:
        """The next uint32: a count, or a length."""
        self.align(4)
        return int(struct.unpack(f"{self.encoding.order}I", self.take(4))[0])


def read_plain(reader: Reader, body: bytes, label: int, *, wide: bool) -> tuple[Any, int]:
    """Return a message, without its header, as a Python value (dict, list, int, …), and how many bytes follow it.

    Raises :class:`CdrError`.
    ``label`` is a key of :data:`ENCODINGS`; ``wide``: the type has a ``wstring``.
    """
    standard, *others = ENCODINGS[label]
    readings = [replace(reading, wide_unit=4) for reading in (standard, *others) if wide] + [standard, *others]
    if len(readings) == 1 and label not in PARAMETER_LISTS:
        return _read_all(reader, body, standard)
    for reading in readings:
        try:
            value, left = _read_all(reader, body, reading)
        except CdrError:
            continue
        if left <= MOST_PADDING:
            return value, left
    if label in PARAMETER_LISTS:
        raise CdrError("it is encoded as a parameter list, but the definition has no member ids")
    return _read_all(reader, body, standard)


def _read_all(reader: Reader, body: bytes, encoding: CdrEncoding) -> tuple[Any, int]:
    cursor = CdrCursor(body, encoding)
    value = reader(cursor)
    return value, len(body) - cursor.place


def read_plain_ros1(reader: Reader, body: bytes) -> tuple[Any, int]:
    """Do the same for a ROS 1 message, which nothing may follow."""
    value, left = _read_all(reader, body, _ROS1)
    if left:
        raise CdrError("the message continues after its last field")
    return value, left


def plain_reader(node: Node, path: str = "") -> Reader:
    """Return a function that reads one ``node`` from a cursor."""
    if isinstance(node, Primitive):
        return _number_reader(node, path)
    if isinstance(node, Text):
        return _wide_text_reader(path) if node.wide else _text_reader(path)
    if isinstance(node, SequenceType):
        return _list_reader(node, path)
    return _struct_reader(node, path)


def _number_reader(node: Primitive, path: str) -> Reader:
    def read(cursor: CdrCursor) -> Any:
        cursor.align(node.size)
        value = np.frombuffer(cursor.take(node.size), f"{cursor.encoding.order}{node.code}")[0].item()
        return _as_bool(value, path) if node.is_bool else value

    return read


def _as_bool(value: int, path: str) -> bool:
    if value > 1:
        raise CdrError(f"{path}: a bool is {value}")
    return bool(value)


def _text_reader(path: str) -> Reader:
    def read(cursor: CdrCursor) -> str:
        raw = cursor.take(cursor.word())
        try:
            return (raw[:-1] if cursor.encoding.wire.ended and raw[-1:] == b"\0" else raw).decode("utf-8")
        except UnicodeDecodeError:
            raise CdrError(f"{path}: the text is not UTF-8") from None

    return read


def _wide_text_reader(path: str) -> Reader:
    def read(cursor: CdrCursor) -> str:
        size = cursor.encoding.wide_unit
        raw = cursor.take(cursor.word() * size)
        units = np.frombuffer(raw, f"{cursor.encoding.order}u{size}")
        if len(units) and int(units.max()) > _LAST_UNIT:
            raise CdrError(f"{path}: a character is not UTF-16")
        try:
            text = units.astype("<u2").tobytes().decode("utf-16-le")
        except UnicodeDecodeError:
            raise CdrError(f"{path}: the text is not UTF-16") from None
        return text.removesuffix("\0")

    return read


def _list_reader(node: SequenceType, path: str) -> Reader:
    element, length = node.element, node.length
    if isinstance(element, Primitive):
        return _numbers_reader(element, length, path)
    read_element = plain_reader(element, f"{path}[]")

    def read(cursor: CdrCursor) -> list[Any]:
        if cursor.encoding.headed_lists:
            cursor.word()
        count = cursor.word() if length is None else length
        if count * element.least > len(cursor.data) - cursor.place:
            raise CdrError(f"{path}: it has more elements than fit into the message")
        cursor.elements += count
        if cursor.elements > _MOST_ELEMENTS:
            raise CdrError(f"{path}: it has more elements than allowed in one message")
        return [read_element(cursor) for _ in range(count)]

    return read


def _numbers_reader(element: Primitive, length: int | None, path: str) -> Reader:
    def read(cursor: CdrCursor) -> list[Any]:
        count = cursor.word() if length is None else length
        if not count:
            return []
        cursor.align(element.size)
        values = np.frombuffer(cursor.take(count * element.size), f"{cursor.encoding.order}{element.code}").tolist()
        return [_as_bool(value, path) for value in values] if element.is_bool else values

    return read


def _struct_reader(node: MessageType, path: str) -> Reader:
    readers = [(name, plain_reader(child, f"{path}.{name}" if path else name)) for name, child in node.fields]

    def read(cursor: CdrCursor) -> dict[str, Any]:
        if cursor.encoding.headed_structs:
            cursor.word()
        if node.has_filler:
            cursor.take(1)
        return {name: reader(cursor) for name, reader in readers}

    return read
