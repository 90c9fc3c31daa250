"""What is the same, byte for byte, in all messages of a piece: names of joints, frames, covariances.

It is looked for in a few messages, and compared in all; its columns are then the first message's values, repeated, and
kept for the next piece.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from .cdr_template import Slot, Template, all_slots
from .gather import pick

_SAMPLE: Final = 32
"""Messages that are looked at to find what may be the same in all."""

_LEAST_ROWS: Final = 64
_LEAST_BYTES: Final = 24
"""Fewer bytes in a row are copied in less time than they are compared."""

_WIDEST_GAP: Final = 7
"""Bytes of padding between values."""

_MOST_MISSES: Final = 8
"""After so many pieces in which something changed after all, it is no longer looked for."""

_ROOM: Final = 8 << 20
"""Bytes of columns that are kept, of all readers in a process together."""

Span = tuple[int, int]


class Columns(NamedTuple):
    """Columns of what is still, by slot (id): of as many messages as were asked for, with these bytes in all spans."""

    content: bytes
    arrays: dict[int, pa.Array]


_NOTHING: Final = Columns(b"", {})


class Still:
    """Values of a template that are the same in many messages: those of ``slots`` (ids), within ``spans`` of bytes."""

    def __init__(self, template: Template, slots: frozenset[int], spans: tuple[Span, ...]) -> None:
        self.slots = slots
        self.spans = spans
        self.words = tuple((place, value) for place, value in template.words if not _within(place, spans))
        self.nuls = tuple(place for place in template.nuls if not _within(place, spans))
        self.kept = _NOTHING

    def columns(self, body: np.ndarray) -> Columns:
        """The columns that are kept for messages with the values of ``body`` (uint8)."""
        kept, content = self.kept, b"".join(body[start:stop].tobytes() for start, stop in self.spans)
        return kept if kept.content == content else Columns(content, {})

    def holds(self, slot: Slot) -> bool:
        """Whether all values of a slot, and of those in it, are the same. Counts are, in messages of one layout."""
        if slot.children:
            return all(map(self.holds, slot.children))
        return not slot.width or id(slot) in self.slots


class Memory:
    """What was the same in the messages of a template so far."""

    def __init__(self) -> None:
        self._misses = 0
        self._still: Still | None = None

    def still(self, template: Template, data: np.ndarray, places: np.ndarray) -> Still | None:
        """What may be the same in messages that begin at ``places``; None where that is too little."""
        if len(places) < _LEAST_ROWS or self._misses > _MOST_MISSES:
            return None
        if self._still is None:
            some = np.linspace(0, len(places) - 1, _SAMPLE).astype(np.int64)
            sample = pick(data, template.size, places[some]).view(np.uint8).reshape(_SAMPLE, -1)
            self._still = _found(template, (sample == sample[0]).all(axis=0))
        return self._still if self._still.spans else None

    def missed(self) -> None:
        """Something was not the same after all."""
        self._misses += 1
        self._still = None


def keep(still: Still, columns: Columns) -> None:
    """Keep columns for later messages, in place of columns of others if there is no room."""
    size = sum(int(array.nbytes) for array in columns.arrays.values())
    with _lock:
        _kept.pop(still, None)
        still.kept = _NOTHING if size > _ROOM else columns
        if size > _ROOM:
            return
        _kept[still] = size
        for oldest in list(_kept)[:-1]:
            if sum(_kept.values()) <= _ROOM:
                break
            oldest.kept = _NOTHING
            del _kept[oldest]


_kept: WeakKeyDictionary[Still, int] = WeakKeyDictionary()
_lock = threading.Lock()


def first_of(array: pa.Array, count: int) -> pa.Array:
    """The first ``count`` values of an array without nulls that begins where its buffers do; nothing is copied."""
    if len(array) == count:
        return array
    kind = array.type
    if pa.types.is_struct(kind):
        children = [first_of(array.field(i), count) for i in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, count, [None], null_count=0, children=children)
    buffers = array.buffers()
    if pa.types.is_list(kind) or pa.types.is_string(kind):
        offsets = buffers[1].slice(0, 4 * (count + 1))
        end = int(np.frombuffer(offsets, np.int32)[-1])
        if pa.types.is_string(kind):
            return pa.Array.from_buffers(kind, count, [None, offsets, buffers[2].slice(0, end)], null_count=0)
        child = first_of(array.values, end)
        return pa.Array.from_buffers(kind, count, [None, offsets], null_count=0, children=[child])
    values = buffers[1].slice(0, -(-count * kind.bit_width // 8))
    return pa.Array.from_buffers(kind, count, [None, values], null_count=0)


def _found(template: Template, same: np.ndarray) -> Still:
    """What of a template may be still, where ``same`` (bool) tells of each byte whether it is."""
    differing = np.zeros(len(same) + 1, np.int64)
    np.cumsum(~same, out=differing[1:])
    before = differing.tolist()
    slots = [slot for slot in all_slots(template.root) if slot.width]
    alike = [slot for slot in slots if all(before[start] == before[stop] for start, stop in _fields(slot))]
    parts = [field for slot in alike for field in _fields(slot)]
    counts = [(place, place + 4) for place, _ in template.words] + [(place, place + 1) for place in template.nuls]
    parts += [(start, stop) for start, stop in counts if before[start] == before[stop]]
    spans = tuple(span for span in _joined(sorted(parts), before) if span[1] - span[0] >= _LEAST_BYTES)
    covered = (slot for slot in alike if all(_within(start, spans) for start, _ in _fields(slot)))
    return Still(template, frozenset(map(id, covered)), spans)


def _fields(slot: Slot) -> Iterator[Span]:
    return ((place, place + size) for place, size in zip(slot.places, slot.sizes, strict=True) if size)


def _joined(parts: Sequence[Span], before: Sequence[int]) -> list[Span]:
    """Parts that follow each other as one, as far as what lies between them is the same in all messages as well."""
    if not parts:
        return []
    breaks = [
        index
        for index, ((_, end), (start, _)) in enumerate(pairwise(parts), 1)
        if start - end > _WIDEST_GAP or before[min(start, end)] != before[start]
    ]
    return [
        (parts[first][0], max(end for _, end in parts[first:last]))
        for first, last in pairwise([0, *breaks, len(parts)])
    ]


def _within(place: int, spans: Sequence[Span]) -> bool:
    return any(start <= place < stop for start, stop in spans)
