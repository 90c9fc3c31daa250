"""One message at a time: the reference that the columnar reader is tested against, and what rare encodings need."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from ....engine.limits import MAX_ELEMENTS
from .cdr_types import CDR, ROS1_WIRE, MessageType, Node, Primitive, Sequence, Text, Wire

Reader = Callable[["CdrCursor"], Any]

_MOST_ELEMENTS: Final = MAX_ELEMENTS // 4
"""Strings and structs taken from one message: each becomes an object."""

_LAST_UNIT: Final = 0xFFFF
_PADDING: Final = 4
"""Fewer bytes than this after the last field are padding of the message as a whole."""


class CdrError(ValueError):
    """A message that its definition does not fit."""


@dataclass(frozen=True)
class CdrEncoding:
    """A layout of CDR: byte order, the largest alignment, and whether XCDR2's length headers are there.

    ``headed_lists`` precede sequences and arrays of anything but numbers, ``headed_structs`` precede every struct.
    ``wide_unit`` is the width of a character of a ``wstring``: two bytes by the standard, four as the middlewares of
    ROS 2 write them.
    """

    order: str
    max_align: int = 8
    headed_lists: bool = False
    headed_structs: bool = False
    wide_unit: int = 2
    wire: Wire = CDR


def _readings(order: str, kind: str) -> tuple[CdrEncoding, ...]:
    """The meanings that a label may have, the standard's first; a parameter list has none that needs no member ids."""
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
"""By the second byte of a message. Writers get the labels of XCDR2 wrong, so other readings are tried as well; one
other than the first counts only when it ends where the message ends."""

PARAMETER_LISTS: Final = frozenset({0x0A, 0x0B, 0x12, 0x13})
"""Labels whose standard meaning cannot be read: members go by ids that no ROS 2 definition has."""

_ROS1: Final = CdrEncoding("<", max_align=ROS1_WIRE.max_align, wire=ROS1_WIRE)

COLUMNAR: Final = {0x00: ">", 0x01: "<"}
"""Labels that the columnar reader knows, and their byte order."""


class CdrCursor:
    """A place in one message, after its four-byte header, from where alignment counts."""

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
        """The next ``size`` bytes; raises :class:`CdrError` when the message has fewer left."""
        if size > len(self.data) - self.place:
            raise CdrError(f"{size:,} bytes are needed, {max(len(self.data) - self.place, 0):,} are left")
        self.place += size
        return self.data[self.place - size : self.place]

    def word(self) -> int:
        """The next uint32: a count, or a length."""
        self.align(4)
        return int(struct.unpack(f"{self.encoding.order}I", self.take(4))[0])


def read_plain(reader: Reader, body: bytes, label: int, *, wide: bool) -> Any:
    """One message, without its header, as a Python value (dict, list, int, …); raises :class:`CdrError`.

    ``label`` is a key of :data:`ENCODINGS`; ``wide`` says that the type has a ``wstring``.
    """
    standard, *others = ENCODINGS[label]
    readings = [replace(reading, wide_unit=4) for reading in (standard, *others) if wide] + [standard, *others]
    if len(readings) == 1 and label not in PARAMETER_LISTS:
        return reader(CdrCursor(body, standard))
    for reading in readings:
        cursor = CdrCursor(body, reading)
        try:
            value = reader(cursor)
        except CdrError:
            continue
        if len(body) - cursor.place < _PADDING:
            return value
    if label in PARAMETER_LISTS:
        raise CdrError("it is encoded as a parameter list, which names members by ids that the definition lacks")
    return reader(CdrCursor(body, standard))


def read_plain_ros1(reader: Reader, body: bytes) -> Any:
    """The same for a message of ROS 1."""
    cursor = CdrCursor(body, _ROS1)
    value = reader(cursor)
    if cursor.place != len(body):
        raise CdrError("the message goes on after its last field")
    return value


def plain_reader(node: Node, path: str = "") -> Reader:
    """A function that reads one ``node`` from a cursor."""
    if isinstance(node, Primitive):
        return _number_reader(node, path)
    if isinstance(node, Text):
        return _wide_text_reader(path) if node.wide else _text_reader(path)
    if isinstance(node, Sequence):
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


def _list_reader(node: Sequence, path: str) -> Reader:
    element, length = node.element, node.length
    if isinstance(element, Primitive):
        return _numbers_reader(element, length, path)
    read_element = plain_reader(element, f"{path}[]")

    def read(cursor: CdrCursor) -> list[Any]:
        if cursor.encoding.headed_lists:
            cursor.word()
        count = cursor.word() if length is None else length
        if count * element.least > len(cursor.data) - cursor.place:
            raise CdrError(f"{path}: it has more elements than the message has room for")
        cursor.elements += count
        if cursor.elements > _MOST_ELEMENTS:
            raise CdrError(f"{path}: it has more elements than are taken from one message")
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
