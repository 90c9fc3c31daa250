"""FlatBuffers by column: each field is read from all messages at once, whatever their layouts."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from .flatbuffer_types import (
    FlatArray,
    FlatField,
    FlatNode,
    FlatNumber,
    FlatStruct,
    FlatTable,
    FlatText,
    FlatUnion,
    FlatVector,
)
from .gather import gather, not_utf8, offsets_of, pick
from .protobuf_columns import bitmap

_CELL: Final = 8
"""Bytes that a value counts for, against the budget."""


class OverBudgetError(Exception):
    """Messages refer to the same bytes so often that they become far more than they are."""


class Rows(NamedTuple):
    """Where values lie, as int64 arrays of one length: ``place`` in the data, the message from ``start`` to ``end``,
    and its index, ``owner``.
    """

    place: np.ndarray
    start: np.ndarray
    end: np.ndarray
    owner: np.ndarray

    def at(self, chosen: np.ndarray) -> Rows:
        """Those of a mask, or of indices."""
        return Rows(*(column[chosen] for column in self))


class FlatColumns:
    """Builds arrays from one buffer. ``faults`` collects (owners, text): what is built for these is of no use.

    Nothing outside a message is read for it. ``budget`` bounds the bytes of what is built.
    """

    def __init__(self, data: np.ndarray, budget: int) -> None:
        self._data = data
        self._budget = budget
        self.faults: list[tuple[np.ndarray, str]] = []

    def root(self, node: FlatTable, rows: Rows) -> pa.Array:
        """One table for each message, which begin at ``rows.place``."""
        return self._followed(node, rows, "")

    def _spend(self, amount: int) -> None:
        self._budget -= amount
        if self._budget < 0:
            raise OverBudgetError

    def _word(self, places: np.ndarray, code: str) -> np.ndarray:
        kind = np.dtype(f"<{code}")
        return pick(self._data, kind.itemsize, places).view(kind).astype(np.int64)

    def _check(self, rows: Rows, good: np.ndarray, what: str) -> np.ndarray:
        """``good``, where it does not hold a fault of the message."""
        if not good.all():
            self.faults.append((rows.owner[~good], what))
        return good

    def _followed(self, node: FlatNode, rows: Rows, path: str) -> pa.Array:
        """What the offsets at the places of ``rows`` refer to; null where that lies outside of the message."""
        inside = (rows.place >= rows.start) & (rows.place + 4 <= rows.end)
        kept = np.flatnonzero(self._check(rows, inside, f"{path}: it lies outside of the message"))
        found = rows.at(kept)
        offsets = self._word(found.place, "u4")
        target = found.place + offsets
        good = (offsets > 0) & (target + 4 <= found.end)
        self._check(found, good, f"{path}: it refers to what lies outside of the message")
        kept, found = kept[good], found.at(good)._replace(place=target[good])
        if isinstance(node, FlatTable):
            values, some = self._tables(node, found, path)
        elif isinstance(node, FlatStruct):
            some = self._check(found, found.place + node.size <= found.end, f"{path}: it does not fit")
            values = self._inline(node, found.at(some), path)
        elif isinstance(node, FlatText):
            values, some = self._texts(found, path)
        else:
            assert isinstance(node, FlatVector)
            values, some = self._vectors(node, found, path)
        return _spread(values, kept[some], len(rows.place))

    def _tables(self, node: FlatTable, rows: Rows, path: str) -> tuple[pa.Array, np.ndarray]:
        """Tables at the places of ``rows``, and for which there are any."""
        some = np.ones(len(rows.place), np.bool_)
        vtable = rows.place - self._word(rows.place, "i4")
        some &= self._check(rows, (vtable >= rows.start) & (vtable + 4 <= rows.end), f"{path}: its vtable is outside")
        rows, vtable = rows.at(some), vtable[some]
        length, inline = self._word(vtable, "u2"), self._word(vtable + 2, "u2")
        good = (length >= 4) & (vtable + length <= rows.end) & (rows.place + inline <= rows.end)
        self._check(rows, good, f"{path}: its vtable does not fit")
        some[some] = good
        rows, vtable, length, inline = rows.at(good), vtable[good], length[good], inline[good]
        self._spend(_CELL * node.leaves * len(rows.place))
        children = []
        for entry in node.fields:
            where = f"{path}.{entry.name}" if path else entry.name
            offset = self._slot(entry.slot, vtable, length)
            fits = (offset == 0) | (offset + entry.node.size <= inline)
            offset[~self._check(rows, fits, f"{where}: it does not fit")] = 0
            there = np.flatnonzero(offset)
            at = rows.at(there)._replace(place=rows.place[there] + offset[there])
            if isinstance(entry.node, FlatUnion):
                kinds = self._selectors(entry, rows, vtable, length, inline)
                children.append(self._unions(entry.node, at, kinds[there], there, len(vtable), where))
            elif isinstance(entry.node, FlatNumber):
                children.append(self._numbers_or_default(entry, at, there, len(vtable), where))
            else:
                children.append(_spread(self._values(entry.node, at, where), there, len(vtable)))
        return pa.Array.from_buffers(node.arrow, len(vtable), [None], null_count=0, children=children), some

    def _slot(self, slot: int, vtable: np.ndarray, length: np.ndarray) -> np.ndarray:
        """The offset in the table that its vtable has at ``slot``; 0 where there is none."""
        offset = np.zeros(len(vtable), np.int64)
        known = slot + 2 <= length
        offset[known] = self._word(vtable[known] + slot, "u2")
        return offset

    def _selectors(
        self, entry: FlatField, rows: Rows, vtable: np.ndarray, length: np.ndarray, inline: np.ndarray
    ) -> np.ndarray:
        offset = self._slot(entry.selector, vtable, length)
        there = (offset > 0) & (offset < inline)
        kinds = np.zeros(len(vtable), np.int64)
        kinds[there] = self._data[(rows.place + offset)[there]]
        return kinds

    def _unions(
        self, node: FlatUnion, at: Rows, kinds: np.ndarray, there: np.ndarray, count: int, path: str
    ) -> pa.Array:
        """Unions; of a type that the schema does not know, null."""
        children = []
        for number, name, member in node.members:
            chosen = np.flatnonzero(kinds == number)
            children.append(_spread(self._followed(member, at.at(chosen), f"{path}.{name}"), there[chosen], count))
        valid = np.zeros(count, np.bool_)
        valid[there] = np.isin(kinds, [number for number, _, _ in node.members])
        return pa.Array.from_buffers(node.arrow, count, [bitmap(valid)], children=children)

    def _values(self, node: FlatNode, rows: Rows, path: str) -> pa.Array:
        """Values of which the places are known to lie inside, with all that is inline of them."""
        if isinstance(node, FlatNumber | FlatStruct | FlatArray):
            return self._inline(node, rows, path)
        return self._followed(node, rows, path)

    def _inline(self, node: FlatNode, rows: Rows, path: str) -> pa.Array:
        if isinstance(node, FlatNumber):
            return self._numbers(node, pick(self._data, node.size, rows.place).view(node.wire), rows.owner, path)
        if isinstance(node, FlatArray):
            counts = np.full(len(rows.place), node.length, np.int64)
            every = _repeated(rows, counts, node.element.size)
            values = self._inline(node.element, every, f"{path}[]")
            return _lists(node.arrow, counts, values)
        assert isinstance(node, FlatStruct)
        children = [
            self._inline(child, rows._replace(place=rows.place + place), f"{path}.{name}")
            for (name, child), place in zip(node.members, node.places, strict=True)
        ]
        return pa.Array.from_buffers(node.arrow, len(rows.place), [None], null_count=0, children=children)

    def _numbers_or_default(self, entry: FlatField, at: Rows, there: np.ndarray, count: int, path: str) -> pa.Array:
        node = entry.node
        assert isinstance(node, FlatNumber)
        found = pick(self._data, node.size, at.place).view(node.wire)
        if len(there) == count:
            return self._numbers(node, found, at.owner, path)
        if entry.default is None:
            return _spread(self._numbers(node, found, at.owner, path), there, count)
        values = np.full(count, entry.default, node.wire)
        values[there] = found
        owner = np.zeros(count, np.int64)
        owner[there] = at.owner
        return self._numbers(node, values, owner, path)

    def _numbers(self, node: FlatNumber, values: np.ndarray, owner: np.ndarray, path: str) -> pa.Array:
        if node.is_bool:
            wrong = values > 1
            if wrong.any():
                self.faults.append((owner[wrong], f"{path}: a bool is neither 0 nor 1"))
            buffer = np.packbits(values, bitorder="little")
        else:
            buffer = np.ascontiguousarray(values)
        numbers = pa.Array.from_buffers(node.number, len(values), [None, pa.py_buffer(buffer)], null_count=0)
        if node.names is None:
            return numbers
        known = np.array([number for number, _ in node.names], np.int64 if node.code != "u8" else np.uint64)
        texts = pa.array([name for _, name in node.names], pa.string())
        index = np.searchsorted(known, values).clip(max=max(len(known) - 1, 0))
        unknown = known[index] != values if len(known) else np.ones(len(values), np.bool_)
        names = texts.take(pa.array(index, mask=unknown)) if len(known) else pa.nulls(len(values), pa.string())
        return pa.Array.from_buffers(node.arrow, len(values), [None], null_count=0, children=[names, numbers])

    def _texts(self, rows: Rows, path: str) -> tuple[pa.Array, np.ndarray]:
        lengths = self._word(rows.place, "u4")
        some = self._check(rows, rows.place + 4 + lengths <= rows.end, f"{path}: the string does not fit")
        rows, lengths = rows.at(some), lengths[some]
        self._spend(int(lengths.sum()) + _CELL * len(lengths))
        payload = gather(self._data, rows.place + 4, lengths)
        offsets = offsets_of(lengths)
        wrong = not_utf8(payload, offsets)
        if len(wrong):
            self.faults.append((rows.owner[wrong], f"{path}: the text is not UTF-8"))
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(payload)]
        return pa.Array.from_buffers(pa.string(), len(lengths), buffers, null_count=0), some

    def _vectors(self, node: FlatVector, rows: Rows, path: str) -> tuple[pa.Array, np.ndarray]:
        element, counts = node.element, self._word(rows.place, "u4")
        size = element.size
        some = self._check(rows, counts * size <= rows.end - rows.place - 4, f"{path}: the vector does not fit")
        rows, counts = rows.at(some)._replace(place=rows.place[some] + 4), counts[some]
        elements = int(counts.sum())
        if isinstance(element, FlatNumber) and element.names is None:
            self._spend(elements * size)
            values = self._numbers(
                element,
                gather(self._data, rows.place, counts * size).view(element.wire),
                np.repeat(rows.owner, counts) if element.is_bool else rows.owner,
                f"{path}[]",
            )
        else:
            self._spend(_CELL * elements * (element.leaves + 4))
            values = self._values(element, _repeated(rows, counts, size), f"{path}[]")
        return _lists(node.arrow, counts, values), some


def _repeated(rows: Rows, counts: np.ndarray, size: int) -> Rows:
    """A row for each of ``counts`` elements of ``size`` bytes, one behind the other."""
    first = np.cumsum(counts) - counts
    index = np.arange(int(counts.sum())) - np.repeat(first, counts)
    every = Rows(*(np.repeat(column, counts) for column in rows))
    return every._replace(place=every.place + index * size)


def _lists(kind: pa.DataType, counts: np.ndarray, values: pa.Array) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets_of(counts))]
    return pa.Array.from_buffers(kind, len(counts), buffers, null_count=0, children=[values])


def _spread(values: pa.Array, places: np.ndarray, rows: int) -> pa.Array:
    """``values`` at ``places`` (ascending) of ``rows`` rows, null elsewhere."""
    if len(places) == rows:
        return values
    index = np.zeros(rows, np.int64)
    index[places] = np.arange(len(places))
    absent = np.ones(rows, np.bool_)
    absent[places] = False
    return values.take(pa.array(index, mask=absent))
