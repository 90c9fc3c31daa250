"""Messages of one layout to Arrow arrays: every field is copied from all messages at once, at one offset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from .cdr_arrow import numbers, strings
from .cdr_layout import Batch
from .cdr_still import Memory, Still, first_of, keep
from .cdr_template import Slot, Template, nul_name, word_name
from .gather import pick, regular_offsets
from .message_types import Primitive, Sequence, Struct, Text

_TILE: Final = 1 << 19
"""Bytes of messages that are taken apart together: what stays in a core's own cache."""


class _Tile(NamedTuple):
    """Messages ``rows``; the first lies at ``start`` of ``source``, the others follow every ``stride`` bytes."""

    rows: slice
    source: Any
    start: int
    stride: int


class Alike:
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
