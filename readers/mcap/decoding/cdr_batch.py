"""Many messages of one type and byte order to Arrow arrays, in the quickest way their layouts allow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from .cdr_arrow import assemble, numbers, read, strings
from .cdr_layout import Batch, Frame, Program, compile_node
from .cdr_still import Memory, Still, first_of, keep
from .cdr_template import MOST_BYTES, NoTemplateError, Slot, Template, nul_name, trace, word_name
from .cdr_walk import TooManyElementsError
from .gather import pick, regular_offsets
from .message_types import Primitive, Sequence, Struct, Text, Wire

_TILE: Final = 1 << 19
"""Bytes of messages that are taken apart together: what stays in a core's own cache."""


class _Tile(NamedTuple):
    """Messages ``rows``; the first lies at ``start`` of ``source``, the others follow every ``stride`` bytes."""

    rows: slice
    source: Any
    start: int
    stride: int


class _Alike:
    """Takes messages apart by a template. ``places`` (int64) is where they start, after their headers; each has at
    least the template's size. ``owner`` are the messages' indices, ``memory`` is of the template.
    """

    def __init__(self, template: Template, memory: Memory, batch: Batch, places: np.ndarray, owner: np.ndarray) -> None:
        self._template = template
        self.batch = batch
        self._places = places
        self._owner = owner
        self.alike = np.ones(len(places), np.bool_)
        """Which messages really have the layout; what is read from the others is of no use."""
        still = memory.still(template, batch.data, places)
        if still is None or not self._take(still):
            if still is not None:
                memory.missed()
            self._take(Still(template, frozenset(), ()))

    def array(self) -> pa.Array:
        """The messages. Wrong values become faults of the batch; the array is then not to be used."""
        made: dict[int, pa.Array] = {}
        array = self._build(self._template.root, made)
        if made and not self.batch.faults:
            keep(self._still, self._columns._replace(arrays={**self._columns.arrays, **made}))
        return array

    def _take(self, still: Still) -> bool:
        """Take the bytes of all values; False where something that should be still is not the same in all messages."""
        size = self._template.record.itemsize
        self._still = still
        self._first: np.ndarray = self.batch.data[self._places[0] : self._places[0] + size]
        self._columns = still.columns(self._first)
        self._named: list[tuple[str, np.ndarray]] = []
        self._stepped: list[tuple[Slot, np.ndarray]] = []
        self._buffers: dict[int, np.ndarray] = {}
        self._prepare(self._template.root)
        return all(self._read(tile) for tile in self._tiles())

    def _tiles(self) -> Iterator[_Tile]:
        places, size, data = self._places, self._template.record.itemsize, self.batch.data
        rows = max(_TILE // size, 128)
        for first in range(0, len(places), rows):
            some = places[first : first + rows]
            span = slice(first, first + len(some))
            if len(some) > 1 and bool((np.diff(some) == (step := int(some[1] - some[0]))).all()) and step > 0:
                yield _Tile(span, data, int(some[0]), step)
            else:
                yield _Tile(span, pick(data, size, some), 0, size)

    def _read(self, tile: _Tile) -> bool:
        """Read the messages of a tile, unless what should be still differs: False."""
        count = tile.rows.stop - tile.rows.start
        for start, stop in self._still.spans:
            width = stop - start
            spans = np.ndarray((count,), f"V{width}", tile.source, tile.start + start, (tile.stride,))
            found: np.ndarray = np.ascontiguousarray(spans).view(np.uint8)
            if (found[:width] != self._first[start:stop]).any() or (found[width:] != found[:-width]).any():
                return False
        records: np.ndarray = np.ndarray((count,), self._template.record, tile.source, tile.start, (tile.stride,))
        differs = np.zeros(count, np.uint32)
        for place, value in self._still.words:
            differs |= records[word_name(place)] ^ np.uint32(value)
        for place in self._still.nuls:
            differs |= records[nul_name(place)]
        if differs.any():
            self.alike[tile.rows] = differs == 0
        for name, target in self._named:
            target[tile.rows] = records[name]
        for slot, items in self._stepped:
            kind, place, strides = items.dtype, tile.start + slot.places[0], (tile.stride, slot.step)
            items[tile.rows] = np.ndarray((count, slot.times), kind, tile.source, place, strides)
        return True

    def _prepare(self, slot: Slot) -> None:
        """Make room for the values of ``slot``, and say where they come from."""
        rows, width = len(self._places), slot.width
        if rows * slot.times <= len(self._columns.arrays.get(id(slot), ())):
            return
        if id(slot) in self._still.slots:
            fields = zip(slot.places, slot.sizes, strict=True)
            once = np.concatenate([self._first[place : place + size] for place, size in fields])
            self._buffers[id(slot)] = np.tile(once, rows)
        elif width:
            buffer = self._buffers[id(slot)] = np.empty(rows * width, np.uint8)
            if slot.step:
                self._stepped.append((slot, buffer.view(f"V{slot.sizes[0]}").reshape(rows, slot.times)))
            else:
                self._named += [
                    (name, np.ndarray((rows,), kind, buffer, at, (width,))) for name, kind, at in slot.columns
                ]
        for child in slot.children:
            self._prepare(child)

    def _build(self, slot: Slot, made: dict[int, pa.Array]) -> pa.Array:
        """All values of ``slot``, message after message; those that are still go to ``made`` if they are new."""
        count = len(self._places) * slot.times
        kept = self._columns.arrays.get(id(slot))
        if kept is not None and count <= len(kept):
            return first_of(kept, count)
        if not (self._still.slots and self._still.holds(slot)):
            return self._built(slot, made)
        array = made[id(slot)] = self._built(slot, {})
        return array

    def _built(self, slot: Slot, made: dict[int, pa.Array]) -> pa.Array:
        node, rows = slot.node, len(self._places)
        buffer = self._buffers.get(id(slot), np.empty(0, np.uint8))
        if isinstance(node, Primitive):
            return numbers(node, buffer, self.batch, self._owner, slot.path)
        if isinstance(node, Struct):
            children = [self._build(child, made) for child in slot.children]
            return pa.Array.from_buffers(node.arrow, rows * slot.times, [None], null_count=0, children=children)
        if isinstance(node, Text):
            return strings(buffer, regular_offsets(slot.sizes, rows), self.batch, self._owner, slot.path)
        assert isinstance(node, Sequence)
        if isinstance(node.element, Primitive):
            values = numbers(node.element, buffer, self.batch, self._owner, slot.path)
        else:
            values = self._build(slot.children[0], made)
        buffers = [None, pa.py_buffer(regular_offsets(slot.counts, rows))]
        return pa.Array.from_buffers(node.arrow, rows * slot.times, buffers, null_count=0, children=[values])


_MOST_TEMPLATES: Final = 4
_MOST_REMEMBERED: Final = 16
_LEAST_ALIKE: Final = 8
"""A template serves at least this many messages, and at least one in so many."""

Piece = tuple[np.ndarray, pa.Array]
Faults = dict[int, str]


class Messages(NamedTuple):
    """Messages ``data[starts[i]:ends[i]]``, header included; ``order`` is their byte order, ``"<"`` or ``">"``."""

    data: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    order: str


class ColumnarReader:
    """Reads messages of one type by column."""

    def __init__(self, node: Struct, wire: Wire) -> None:
        self._node = node
        self._wire = wire
        self._program: Program = compile_node(node, "", wire)
        self._templates: dict[tuple[str, int], tuple[Template, Memory]] = {}

    def read(self, messages: Messages, chosen: np.ndarray, faults: Faults) -> Iterator[Piece]:
        """Arrays of the messages ``chosen`` (indices, int64), each with the indices that it has the values of.

        What is wrong with a message goes to ``faults``.
        """
        read = []
        for group in _of_equal_length((messages.ends - messages.starts)[chosen]):
            alike = self._read_alike(messages, chosen[group])
            if alike is not None:
                yield alike
                read.append(alike[0])
        if sum(map(len, read)) < len(chosen):
            rest = np.setdiff1d(chosen, np.concatenate(read), assume_unique=True) if read else chosen
            yield from self._read_any(messages, rest, faults)

    def _read_alike(self, messages: Messages, chosen: np.ndarray) -> Piece | None:
        """Read those of ``chosen``, all of one length, that have the layout of the first; None when few have."""
        data, starts, ends, order = messages
        first = chosen[0]
        body = data[starts[first] + self._wire.header : ends[first]]
        known = self._templates.get((order, len(body)))
        if known is None or not known[0].fits(body.tobytes()):
            try:
                known = trace(self._node, body.tobytes(), order, self._wire), Memory()
            except NoTemplateError:
                return None
            if len(self._templates) >= _MOST_REMEMBERED:
                self._templates.clear()
            self._templates[order, len(body)] = known
        alike = self._take_apart(*known, messages, chosen)
        if not alike.alike.all():
            chosen = chosen[alike.alike]
            if len(chosen) * _LEAST_ALIKE < len(alike.alike):
                return None
            alike = self._take_apart(*known, messages, chosen)
        values = alike.array()
        return None if alike.batch.faults else (chosen, values)

    def _read_any(self, messages: Messages, chosen: np.ndarray, faults: Faults) -> Iterator[Piece]:
        """Read messages of any layout; those found wrong are left out and the others read again."""
        data, starts, ends, order = messages
        while True:
            batch = Batch(data, order, self._wire)
            base = starts[chosen] + self._wire.header
            try:
                frame = Frame(batch, base, base, ends[chosen], chosen, chosen)
                columns = read(self._program, frame)
            except TooManyElementsError:
                yield from self._read_halves(messages, chosen, faults)
                return
            if self._wire.exact:
                frame.require(frame.place == frame.end, "the message goes on after its last field")
            if not batch.faults:
                values = assemble(self._node, iter(columns), len(chosen), batch)
            if not batch.faults:
                yield chosen, values
                return
            for owners, what in batch.faults:
                for owner in owners.tolist():
                    faults.setdefault(owner, what)
            chosen = np.setdiff1d(chosen, np.concatenate([owners for owners, _ in batch.faults]))

    def _read_halves(self, messages: Messages, chosen: np.ndarray, faults: Faults) -> Iterator[Piece]:
        if len(chosen) == 1:
            faults[int(chosen[0])] = "it holds more elements than are taken from one message"
            return
        half = len(chosen) // 2
        yield from self._read_any(messages, chosen[:half], faults)
        yield from self._read_any(messages, chosen[half:], faults)

    def _take_apart(self, template: Template, memory: Memory, messages: Messages, chosen: np.ndarray) -> _Alike:
        batch = Batch(messages.data, messages.order, self._wire)
        return _Alike(template, memory, batch, messages.starts[chosen] + self._wire.header, chosen)


def _of_equal_length(lengths: np.ndarray) -> list[np.ndarray]:
    """Indices of messages of equal length, if a few lengths make up most of them."""
    if bool((lengths == lengths[0]).all()):
        return [np.arange(len(lengths))] if lengths[0] <= MOST_BYTES else []
    least = max(_LEAST_ALIKE, len(lengths) // _LEAST_ALIKE)
    values, counts = np.unique(lengths, return_counts=True)
    several = (counts >= least) & (values <= MOST_BYTES)
    if not several.any() or 2 * int(counts[several].sum()) < len(lengths):
        return []
    commonest = np.argsort(-counts[several], kind="stable")[:_MOST_TEMPLATES]
    return [np.flatnonzero(lengths == length) for length in values[several][commonest].tolist()]
