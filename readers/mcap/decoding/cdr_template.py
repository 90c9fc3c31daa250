"""The layout of one message, taken as that of others too: where every field lies, once all counts are known.

Most messages of a channel have the same counts everywhere (joint names, transforms, a frame id), hence the same
layout. It is traced in one message; others are held against it, and taken apart with offsets that are plain numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np

from .message_types import Node, Primitive, Sequence, Struct, Text, Wire

MOST_BYTES: Final = 1 << 13
"""Larger messages are mostly blobs, which are not worth copying together first."""

_MOST_FIELDS: Final = 1024
"""With more single fields than this, sequences are better read as sequences."""


class NoTemplateError(Exception):
    """A message that does not serve as a template."""


@dataclass
class Slot:
    """Where the values of one field lie, one place for each time the field occurs in the message.

    ``sizes`` are the bytes of each value: of a number, of a text without its final NUL, of a run of numbers.
    ``counts`` are the elements of sequences; ``children`` a struct's fields, or a sequence's element.
    """

    node: Node
    path: str
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
        fields: dict[str, tuple[str, int]] = {word_name(place): (f"{self.order}u4", place) for place, _ in self.words}
        fields |= {nul_name(place): ("u1", place) for place in self.nuls}
        for slot in all_slots(self.root):
            if not slot.step:
                several = (place for place, size in zip(slot.places, slot.sizes, strict=True) if size)
                fields |= {
                    name: (kind.str, place) for (name, kind, _), place in zip(slot.columns, several, strict=True)
                }
        formats, offsets = [kind for kind, _ in fields.values()], [place for _, place in fields.values()]
        names = list(fields)
        return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": max(self.size, 1)})


def word_name(place: int) -> str:
    """The name of the count at ``place`` in a template's record."""
    return f"w{place}"


def nul_name(place: int) -> str:
    """The name of the end of a text."""
    return f"n{place}"


def all_slots(slot: Slot) -> Iterator[Slot]:
    """The slot and those in it."""
    yield slot
    for child in slot.children:
        yield from all_slots(child)


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


def _slots(node: Node, path: str) -> Slot:
    slot = Slot(node, path)
    if isinstance(node, Struct):
        slot.children = [_slots(child, f"{path}.{name}" if path else name) for name, child in node.fields]
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
        """Where the next ``size`` bytes start."""
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
