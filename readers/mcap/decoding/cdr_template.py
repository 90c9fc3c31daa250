"""The layout of one message, taken as that of others too: where every field lies, once all counts are known.

Most messages of a channel have the same counts everywhere (joint names, transforms, a frame id), hence the same
layout. It is traced in one message; others are held against it, and taken apart with offsets that are plain numbers.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from .cdr_types import Batch, MessageType, Node, Primitive, Sequence, Text, Wire, numbers, strings
from .columns import pick, regular_offsets, strided

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
    """The slot and those in it."""
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


def _slots(node: Node, path: str) -> Slot:
    slot = Slot(node, path)
    if isinstance(node, MessageType):
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


class _Tile(NamedTuple):
    """Messages ``rows``; the first lies at ``start`` of ``source``, the others follow every ``stride`` bytes."""

    rows: slice
    source: Any
    start: int
    stride: int


class TemplateReader:
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
            self._take(_Still(template, frozenset(), ()))

    def array(self) -> pa.Array:
        """The messages. Wrong values become faults of the batch; the array is then not to be used."""
        made: dict[int, pa.Array] = {}
        array = self._build(self._template.root, made)
        if made and not self.batch.faults:
            keep(self._still, self._columns._replace(arrays={**self._columns.arrays, **made}))
        return array

    def _take(self, still: _Still) -> bool:
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
            yield _Tile(span, *strided(data, some, size))

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
            differs |= records[_word_name(place)] ^ np.uint32(value)
        for place in self._still.nuls:
            differs |= records[_nul_name(place)]
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
            return _first_of(kept, count)
        if not (self._still.slots and self._still.holds(slot)):
            return self._built(slot, made)
        array = made[id(slot)] = self._built(slot, {})
        return array

    def _built(self, slot: Slot, made: dict[int, pa.Array]) -> pa.Array:
        node, rows = slot.node, len(self._places)
        buffer = self._buffers.get(id(slot), np.empty(0, np.uint8))
        if isinstance(node, Primitive):
            return numbers(node, buffer, self.batch, self._owner, slot.path)
        if isinstance(node, MessageType):
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


class _KeptColumns(NamedTuple):
    """Columns of what is still, by slot (id): of as many messages as were asked for, with these bytes in all spans."""

    content: bytes
    arrays: dict[int, pa.Array]


_NOTHING: Final = _KeptColumns(b"", {})


class _Still:
    """Values of a template that are the same in many messages: those of ``slots`` (ids), within ``spans`` of bytes."""

    def __init__(self, template: Template, slots: frozenset[int], spans: tuple[Span, ...]) -> None:
        self.slots = slots
        self.spans = spans
        self.words = tuple((place, value) for place, value in template.words if not _within(place, spans))
        self.nuls = tuple(place for place in template.nuls if not _within(place, spans))
        self.kept = _NOTHING

    def columns(self, body: np.ndarray) -> _KeptColumns:
        """The columns that are kept for messages with the values of ``body`` (uint8)."""
        kept, content = self.kept, b"".join(body[start:stop].tobytes() for start, stop in self.spans)
        return kept if kept.content == content else _KeptColumns(content, {})

    def holds(self, slot: Slot) -> bool:
        """Whether all values of a slot, and of those in it, are the same. Counts are, in messages of one layout."""
        if slot.children:
            return all(map(self.holds, slot.children))
        return not slot.width or id(slot) in self.slots


class Memory:
    """Values that were the same in the messages of a template so far."""

    def __init__(self) -> None:
        self._misses = 0
        self._still: _Still | None = None

    def still(self, template: Template, data: np.ndarray, places: np.ndarray) -> _Still | None:
        """Return what may be the same in messages that begin at ``places``; None where that is too little."""
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


def keep(still: _Still, columns: _KeptColumns) -> None:
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


_kept: WeakKeyDictionary[_Still, int] = WeakKeyDictionary()
_lock = threading.Lock()


def _first_of(array: pa.Array, count: int) -> pa.Array:
    """The first ``count`` values of an array without nulls that begins where its buffers do; nothing is copied."""
    if len(array) == count:
        return array
    kind = array.type
    if pa.types.is_struct(kind):
        children = [_first_of(array.field(i), count) for i in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, count, [None], null_count=0, children=children)
    buffers = array.buffers()
    if pa.types.is_list(kind) or pa.types.is_string(kind):
        offsets = buffers[1].slice(0, 4 * (count + 1))
        end = int(np.frombuffer(offsets, np.int32)[-1])
        if pa.types.is_string(kind):
            return pa.Array.from_buffers(kind, count, [None, offsets, buffers[2].slice(0, end)], null_count=0)
        child = _first_of(array.values, end)
        return pa.Array.from_buffers(kind, count, [None, offsets], null_count=0, children=[child])
    values = buffers[1].slice(0, -(-count * kind.bit_width // 8))
    return pa.Array.from_buffers(kind, count, [None, values], null_count=0)


def _found(template: Template, same: np.ndarray) -> _Still:
    """Find what of a template may be still, where ``same`` (bool) tells of each byte whether it is."""
    differing = np.zeros(len(same) + 1, np.int64)
    np.cumsum(~same, out=differing[1:])
    before = differing.tolist()
    slots = [slot for slot in _all_slots(template.root) if slot.width]
    alike = [slot for slot in slots if all(before[start] == before[stop] for start, stop in _fields(slot))]
    parts = [field for slot in alike for field in _fields(slot)]
    counts = [(place, place + 4) for place, _ in template.words] + [(place, place + 1) for place in template.nuls]
    parts += [(start, stop) for start, stop in counts if before[start] == before[stop]]
    spans = tuple(span for span in _joined(sorted(parts), before) if span[1] - span[0] >= _LEAST_BYTES)
    covered = (slot for slot in alike if all(_within(start, spans) for start, _ in _fields(slot)))
    return _Still(template, frozenset(map(id, covered)), spans)


def _fields(slot: Slot) -> Iterator[Span]:
    return ((place, place + size) for place, size in zip(slot.places, slot.sizes, strict=True) if size)


def _joined(parts: list[Span], before: list[int]) -> list[Span]:
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


def _within(place: int, spans: tuple[Span, ...]) -> bool:
    return any(start <= place < stop for start, stop in spans)
