"""The layout of one message, taken as that of others too: where every field lies, once all counts are known.

Most messages of a channel have the same counts everywhere (joint names, transforms, a frame id), hence the same
layout. It is traced in one message; others are held against it, and taken apart with offsets that are plain numbers.

Block by block, as messages of all layouts can be read, decoding takes 2.3 times as long for a mixture of 1.2 million
IMU samples, joint states and transforms (reading as a whole: 20 % longer), and 10 % longer for a recording of a vehicle
(2 cores, CPU time). Guarded by ``benchmarks/bench_convert.py`` (``test_convert_mixture``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from .cdr_types import Batch, MessageType, Node, Primitive, Sequence, Text, Wire, numbers, strings
from .columns import regular_offsets, strided

MOST_BYTES: Final = 1 << 13
"""Larger messages are mostly blobs, which are not worth copying together first."""

_MOST_FIELDS: Final = 1024
"""With more single fields than this, sequences are better read as sequences."""


class NoTemplateError(Exception):
    """A message that does not serve as a template."""


@dataclass
class Slot:
    """The places of the values of one field, one for each time the field occurs in the message.

    ``sizes`` are the bytes of each value: of a number, of a text without its final NUL, of a run of numbers.
    ``counts`` are the elements of sequences; ``children`` a struct's fields, or a sequence's element.
    """

    node: Node
    path: str
    wanted: bool = True
    times: int = 0
    places: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    children: list[Slot] = field(default_factory=list)

    @cached_property
    def step(self) -> int:
        """The distance between numbers, if it is always the same and there are several; else 0."""
        steps = {after - before for before, after in pairwise(self.places)}
        return steps.pop() if len(steps) == 1 and isinstance(self.node, Primitive) else 0

    @cached_property
    def width(self) -> int:
        """The bytes of all values together."""
        return sum(self.sizes)

    @cached_property
    def columns(self) -> list[tuple[str, np.dtype[Any], int]]:
        """For each value that has bytes its name in the template's record, its type, and where it is among all."""
        several = zip(self.places, self.sizes, accumulate(self.sizes, initial=0), strict=False)
        return [(f"v{place}", np.dtype(f"V{size}"), at) for place, size, at in several if size]


@dataclass(frozen=True)
class Template:
    """A layout: ``size`` bytes after the header. ``words`` are the (place, value) of all counts, ``nuls`` the places
    of the bytes that end texts: where both agree, the layout does.
    """

    root: Slot
    size: int
    order: str
    words: tuple[tuple[int, int], ...]
    nuls: tuple[int, ...]

    def fits(self, body: bytes) -> bool:
        """Whether the message ``body``, which is at least as long, has this layout."""
        word = struct.Struct(f"{self.order}I").unpack_from
        same = all(word(body, place)[0] == value for place, value in self.words)
        return same and not any(body[place] for place in self.nuls)

    @cached_property
    def record(self) -> np.dtype[Any]:
        """One message as a numpy record: counts, ends of texts and values under the names of their places."""
        fields: dict[str, tuple[str, int]] = {_word_name(place): (f"{self.order}u4", place) for place, _ in self.words}
        fields |= {_nul_name(place): ("u1", place) for place in self.nuls}
        for slot in _all_slots(self.root):
            if not slot.step:
                several = (place for place, size in zip(slot.places, slot.sizes, strict=True) if size)
                fields |= {
                    name: (kind.str, place) for (name, kind, _), place in zip(slot.columns, several, strict=True)
                }
        formats, offsets = [kind for kind, _ in fields.values()], [place for _, place in fields.values()]
        names = list(fields)
        return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": max(self.size, 1)})


def _word_name(place: int) -> str:
    """The name of the count at ``place`` in a template's record."""
    return f"w{place}"


def _nul_name(place: int) -> str:
    """The name of the end of a text."""
    return f"n{place}"


def _all_slots(slot: Slot) -> Iterator[Slot]:
    """The slot and those in it, of those that are wanted."""
    if slot.wanted:
        yield slot
        for child in slot.children:
            yield from _all_slots(child)


def trace(node: Node, body: bytes, order: str, wire: Wire) -> Template:
    """The layout of the message ``body`` (without its header). Raises :class:`NoTemplateError`."""
    if not 0 < len(body) <= MOST_BYTES:
        raise NoTemplateError
    tracer = _Tracer(body, order, wire)
    root = _slots(node, "")
    tracer.visit(root)
    if wire.exact and tracer.place != len(body):
        raise NoTemplateError
    return Template(root, tracer.place, order, tuple(tracer.words), tuple(tracer.nuls))


def _slots(node: Node, path: str, wanted: bool = True) -> Slot:
    slot = Slot(node, path, wanted)
    if isinstance(node, MessageType):
        slot.children = [
            _slots(child, f"{path}.{name}" if path else name, name not in node.left_out) for name, child in node.fields
        ]
    elif isinstance(node, Sequence) and not isinstance(node.element, Primitive):
        slot.children = [_slots(node.element, f"{path}[]")]
    return slot


class _Tracer:
    def __init__(self, body: bytes, order: str, wire: Wire) -> None:
        self._body = body
        self._wire = wire
        self._word = struct.Struct(f"{order}I").unpack_from
        self._visits = 0
        self.place = 0
        self.words: list[tuple[int, int]] = []
        self.nuls: list[int] = []

    def visit(self, slot: Slot) -> None:
        """Step over one value of the slot's type."""
        self._visits += 1
        if self._visits > _MOST_FIELDS:
            raise NoTemplateError
        slot.times += 1
        node = slot.node
        if isinstance(node, Primitive):
            slot.places.append(self._step(node.size, node.size))
            slot.sizes.append(node.size)
        elif isinstance(node, Text):
            self._text(slot)
        elif isinstance(node, Sequence):
            self._sequence(slot, node)
        else:
            for child in slot.children:
                self.visit(child)
            if node.has_filler:
                self._step(1, 1)

    def _step(self, align: int, size: int) -> int:
        """Step over the next ``size`` bytes, and return where they start."""
        start = self.place + -self.place % min(align, self._wire.max_align)
        self.place = start + size
        if self.place > len(self._body):
            raise NoTemplateError
        return start

    def _count(self) -> int:
        start = self._step(4, 4)
        self.words.append((start, self._word(self._body, start)[0]))
        return self.words[-1][1]

    def _text(self, slot: Slot) -> None:
        count = self._count()
        start = self._step(1, count)
        if count and self._wire.ended:
            if self._body[self.place - 1]:
                raise NoTemplateError
            self.nuls.append(self.place - 1)
        slot.places.append(start)
        slot.sizes.append(max(count - self._wire.ended, 0))

    def _sequence(self, slot: Slot, node: Sequence) -> None:
        count = self._count() if node.length is None else node.length
        slot.counts.append(count)
        if isinstance(node.element, Primitive):
            size = count * node.element.size
            slot.places.append(self._step(node.element.size if count else 1, size))
            slot.sizes.append(size)
            return
        for _ in range(count):
            self.visit(slot.children[0])


_TILE: Final = 1 << 19
"""Bytes of messages that are taken apart together: what stays in a core's own cache."""


class TemplateReader:
    """Takes messages apart by a template. ``places`` (int64) is where they start, after their headers; each has at
    least the template's size. ``owner`` are the messages' indices.
    """

    def __init__(self, template: Template, batch: Batch, places: np.ndarray, owner: np.ndarray) -> None:
        self._template = template
        self.batch = batch
        self._places = places
        self._owner = owner
        self.alike = np.ones(len(places), np.bool_)
        """Which messages really have the layout; what is read from the others is of no use."""
        self._named: list[tuple[str, np.ndarray]] = []
        self._stepped: list[tuple[Slot, np.ndarray]] = []
        self._buffers: dict[int, np.ndarray] = {}
        self._prepare(template.root)
        self._read()

    def array(self) -> pa.Array:
        """The messages. Wrong values become faults of the batch; the array is then not to be used."""
        return self._build(self._template.root)

    def _read(self) -> None:
        """Take the bytes of all values, a tile of messages after the other."""
        record = self._template.record
        count = max(_TILE // record.itemsize, 128)
        for first in range(0, len(self._places), count):
            rows = slice(first, first + count)
            places = self._places[rows]
            source, start, stride = strided(self.batch.data, places, record.itemsize)
            records: np.ndarray = np.ndarray((len(places),), record, source, start, (stride,))
            differs = np.zeros(len(places), np.uint32)
            for place, value in self._template.words:
                differs |= records[_word_name(place)] ^ np.uint32(value)
            for place in self._template.nuls:
                differs |= records[_nul_name(place)]
            self.alike[rows] = differs == 0
            for name, target in self._named:
                target[rows] = records[name]
            for slot, items in self._stepped:
                shape, strides = (len(places), slot.times), (stride, slot.step)
                items[rows] = np.ndarray(shape, items.dtype, source, start + slot.places[0], strides)

    def _prepare(self, slot: Slot) -> None:
        """Make room for the values of ``slot``, if it is wanted, and say where they come from."""
        if not slot.wanted:
            return
        rows, width = len(self._places), slot.width
        if width:
            buffer = self._buffers[id(slot)] = np.empty(rows * width, np.uint8)
            if slot.step:
                self._stepped.append((slot, buffer.view(f"V{slot.sizes[0]}").reshape(rows, slot.times)))
            else:
                self._named += [
                    (name, np.ndarray((rows,), kind, buffer, at, (width,))) for name, kind, at in slot.columns
                ]
        for child in slot.children:
            self._prepare(child)

    def _build(self, slot: Slot) -> pa.Array:
        """All values of ``slot``, message after message."""
        node, rows = slot.node, len(self._places)
        buffer = self._buffers.get(id(slot), np.empty(0, np.uint8))
        if isinstance(node, Primitive):
            return numbers(node, buffer, self.batch, self._owner, slot.path)
        if isinstance(node, MessageType):
            children = [self._build(child) for child in slot.children if child.wanted]
            return pa.Array.from_buffers(node.arrow, rows * slot.times, [None], null_count=0, children=children)
        if isinstance(node, Text):
            return strings(buffer, regular_offsets(slot.sizes, rows), self.batch, self._owner, slot.path)
        assert isinstance(node, Sequence)
        if isinstance(node.element, Primitive):
            values = numbers(node.element, buffer, self.batch, self._owner, slot.path)
        else:
            values = self._build(slot.children[0])
        buffers = [None, pa.py_buffer(regular_offsets(slot.counts, rows))]
        return pa.Array.from_buffers(node.arrow, rows * slot.times, buffers, null_count=0, children=[values])
