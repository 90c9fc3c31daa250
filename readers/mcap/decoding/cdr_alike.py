"""Messages of one layout to Arrow arrays: every field is copied from all messages at once, at one offset."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from .cdr_arrow import numbers, strings
from .cdr_frame import Batch
from .cdr_template import Slot, Template, nul_name, word_name
from .gather import pick
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
    least the template's size. ``owner`` are the messages' indices.
    """

    def __init__(self, template: Template, batch: Batch, places: np.ndarray, owner: np.ndarray) -> None:
        self._template = template
        self.batch = batch
        self._places = places
        self._owner = owner
        self._named: list[tuple[str, np.ndarray]] = []
        self._stepped: list[tuple[Slot, np.ndarray]] = []
        self._buffers: dict[int, np.ndarray] = {}
        self._prepare(template.root)
        self.alike = np.ones(len(places), np.bool_)
        """Which messages really have the layout; what is read from the others is of no use."""
        for tile in self._tiles():
            self._read(tile)

    def array(self) -> pa.Array:
        """The messages. Wrong values become faults of the batch; the array is then not to be used."""
        return self._build(self._template.root)

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

    def _read(self, tile: _Tile) -> None:
        count = tile.rows.stop - tile.rows.start
        records: np.ndarray = np.ndarray((count,), self._template.record, tile.source, tile.start, (tile.stride,))
        differs = np.zeros(count, np.uint32)
        for place, value in self._template.words:
            differs |= records[word_name(place)] ^ np.uint32(value)
        for place in self._template.nuls:
            differs |= records[nul_name(place)]
        if differs.any():
            self.alike[tile.rows] = differs == 0
        for name, target in self._named:
            target[tile.rows] = records[name]
        for slot, items in self._stepped:
            kind, place, strides = items.dtype, tile.start + slot.places[0], (tile.stride, slot.step)
            items[tile.rows] = np.ndarray((count, slot.times), kind, tile.source, place, strides)

    def _prepare(self, slot: Slot) -> None:
        """Make room for the values of ``slot``, and say where they come from."""
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
        if isinstance(node, Struct):
            children = [self._build(child) for child in slot.children]
            return pa.Array.from_buffers(node.arrow, rows * slot.times, [None], null_count=0, children=children)
        if isinstance(node, Text):
            return strings(buffer, _offsets(slot.sizes, rows), self.batch, self._owner, slot.path)
        assert isinstance(node, Sequence)
        if isinstance(node.element, Primitive):
            values = numbers(node.element, buffer, self.batch, self._owner, slot.path)
        else:
            values = self._build(slot.children[0])
        buffers = [None, pa.py_buffer(_offsets(slot.counts, rows))]
        return pa.Array.from_buffers(node.arrow, rows * slot.times, buffers, null_count=0, children=[values])


def _offsets(counts: list[int], rows: int) -> np.ndarray:
    """List offsets (int32) for ``rows`` times lists of ``counts`` elements."""
    *starts, total = accumulate(counts, initial=0)
    offsets = np.empty(rows * len(counts) + 1, np.int32)
    np.add.outer(
        np.arange(rows, dtype=np.int32) * np.int32(total),
        np.array(starts, np.int32),
        out=offsets[:-1].reshape(rows, -1),
    )
    offsets[-1] = rows * total
    return offsets
