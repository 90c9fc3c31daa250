"""CDR messages as columns: by a template if their layouts agree, else block by block."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from .cdr_walk import MOST_PADDING, ElementsRun, PlainRun, TextRun, TooManyElementsError, advance, constant_counts
from .columns import (
    Batch,
    Faults,
    FixedBlock,
    Frame,
    MessageType,
    Node,
    Piece,
    Primitive,
    Program,
    SequenceType,
    Surplus,
    Text,
    Wire,
    compile_node,
    gather,
    lists,
    numbers,
    offsets_of,
    pick,
    regular_offsets,
    strided,
    strings,
)

MOST_BYTES: Final = 1 << 13
"""Larger messages are mostly blobs, which are not worth copying into one buffer first."""

_MOST_FIELDS: Final = 1024
"""With more single fields than this, a template is slower than reading sequences as such."""


class NoTemplateError(Exception):
    """A message that cannot be a template."""


@dataclass
class Slot:
    """The places of one field's values, one for each time the field occurs in the message.

    ``sizes`` are the bytes of each value: a number, a text without its final NUL, or a run of numbers. ``counts`` are
    the numbers of elements of sequences; ``children`` are a struct's fields, or a sequence's element.
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
        """The distance between numbers if there are several at equal distances; else 0."""
        steps = {after - before for before, after in pairwise(self.places)}
        return steps.pop() if len(steps) == 1 and isinstance(self.node, Primitive) else 0

    @cached_property
    def width(self) -> int:
        """The bytes of all values together."""
        return sum(self.sizes)

    @cached_property
    def columns(self) -> list[tuple[str, np.dtype[Any], int]]:
        """For each value with bytes: its name in the template's record, its type, and its offset among all values."""
        several = zip(self.places, self.sizes, accumulate(self.sizes, initial=0), strict=False)
        return [(f"v{place}", np.dtype(f"V{size}"), at) for place, size, at in several if size]


@dataclass(frozen=True)
class Template:
    """A layout of ``size`` bytes after the header. ``words`` are (place, value) of all counts, ``nuls`` the places of
    bytes that end texts. If a message agrees in both, it has the layout.
    """

    root: Slot
    size: int
    order: str
    words: tuple[tuple[int, int], ...]
    nuls: tuple[int, ...]

    def fits(self, body: bytes) -> bool:
        """Return whether the message ``body``, which must be at least as long, has this layout."""
        word = struct.Struct(f"{self.order}I").unpack_from
        same = all(word(body, place)[0] == value for place, value in self.words)
        return same and not any(body[place] for place in self.nuls)

    @cached_property
    def record(self) -> np.dtype[Any]:
        """One message as a numpy record: counts, ends of texts and values, named after their places."""
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
    """The name of the text end at ``place`` in a template's record."""
    return f"n{place}"


def _all_slots(slot: Slot) -> Iterator[Slot]:
    """Yield the slot and all slots in it, without unwanted ones."""
    if slot.wanted:
        yield slot
        for child in slot.children:
            yield from _all_slots(child)


def trace(node: Node, body: bytes, order: str, wire: Wire) -> Template:
    """Return the layout of the message ``body`` (without its header). Raises :class:`NoTemplateError`."""
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
    elif isinstance(node, SequenceType) and not isinstance(node.element, Primitive):
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
        elif isinstance(node, SequenceType):
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

    def _sequence(self, slot: Slot, node: SequenceType) -> None:
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
    """Takes messages apart by a template. They start at ``places`` (int64), after their headers; each has at least the
    template's size. ``owner`` are the messages' indices.
    """

    def __init__(self, template: Template, batch: Batch, places: np.ndarray, owner: np.ndarray) -> None:
        self._template = template
        self.batch = batch
        self._places = places
        self._owner = owner
        self.alike = np.ones(len(places), np.bool_)
        """A mask of the messages that have the layout; values of other messages are invalid."""
        self._named: list[tuple[str, np.ndarray]] = []
        self._stepped: list[tuple[Slot, np.ndarray]] = []
        self._buffers: dict[int, np.ndarray] = {}
        self._prepare(template.root)
        self._read()

    def array(self) -> pa.Array:
        """Return the messages. Wrong values become faults of the batch, and then the array is invalid."""
        return self._build(self._template.root)

    def _read(self) -> None:
        """Copy the bytes of all values, one tile of messages after another."""
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
        """Allocate memory for the values of ``slot``, if it is wanted, and record their places."""
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
        """Return all values of ``slot``, message by message."""
        node, rows = slot.node, len(self._places)
        buffer = self._buffers.get(id(slot), np.empty(0, np.uint8))
        if isinstance(node, Primitive):
            return numbers(node, buffer, self.batch, self._owner, slot.path)
        if isinstance(node, MessageType):
            children = [self._build(child) for child in slot.children if child.wanted]
            return pa.Array.from_buffers(node.arrow, rows * slot.times, [None], null_count=0, children=children)
        if isinstance(node, Text):
            return strings(buffer, regular_offsets(slot.sizes, rows), self.batch, self._owner, slot.path)
        assert isinstance(node, SequenceType)
        if isinstance(node.element, Primitive):
            values = numbers(node.element, buffer, self.batch, self._owner, slot.path)
        else:
            values = self._build(slot.children[0])
        buffers = [None, pa.py_buffer(regular_offsets(slot.counts, rows))]
        return pa.Array.from_buffers(node.arrow, rows * slot.times, buffers, null_count=0, children=[values])


_BLOCK_TILE: Final = 1 << 18
"""Bytes of messages that are taken apart together: what stays in a core's own cache."""


class _Raw(NamedTuple):
    """One part of a block, with one item or ``counts`` items for each row. ``owner`` are the rows' messages."""

    items: np.ndarray
    owner: np.ndarray
    path: str
    counts: np.ndarray | None = None


class _Elements(NamedTuple):
    """A sequence: the number of elements of each row, and the columns of all elements."""

    counts: np.ndarray
    rows: int
    columns: Iterator[_Column]


_Column = _Raw | TextRun | PlainRun | _Elements


def _read_columns(program: Program, frame: Frame) -> list[_Column]:
    """Read one ``program`` in every row of ``frame``: its columns, in the order of the fields.

    If rows were dropped (the batch has faults), columns differ in length and are useless.
    """
    columns: list[_Column] = []
    for block, var in program:
        items = _read_block(block, frame)
        counts = items.pop().view(f"{frame.batch.order}u4").astype(np.int64) if block.counted else None
        paths = (block.parts[i].path for i in block.picked)
        columns += [_Raw(item, frame.owner, path) for item, path in zip(items, paths, strict=False)]
        if var is None:
            continue
        run = advance(var, frame, constant_counts(var, len(frame)) if counts is None else counts)
        if not var.wanted:
            continue
        if isinstance(run, ElementsRun):
            columns.append(_Elements(run.counts, len(run.elements), iter(_read_columns(run.var.program, run.elements))))
        else:
            columns.append(run)
    return columns


def _read_block(block: FixedBlock, frame: Frame) -> list[np.ndarray]:
    """Return the picked parts of ``block``, each as an array of void with one item per row, and step over the block."""
    residues, common = frame.enter(block)
    data, places = frame.batch.data, frame.place
    if common is not None:
        frame.place = places + block.layout(common)[1]
        return _pick_parts(data, places, block, common)
    frame.place = places + block.sizes[residues]
    items = [np.empty(len(places), f"V{block.parts[i].size}") for i in block.picked]
    for residue in np.flatnonzero(np.bincount(residues)).tolist():
        rows = np.flatnonzero(residues == residue)
        for item, some in zip(items, _pick_parts(data, places[rows], block, residue), strict=True):
            item[rows] = some
    return items


def _pick_parts(data: np.ndarray, places: np.ndarray, block: FixedBlock, residue: int) -> list[np.ndarray]:
    """Return the picked parts of blocks at ``places``, which have the same layout."""
    every, size = block.layout(residue)
    offsets = tuple(every[i] for i in block.picked)
    kinds = [f"V{block.parts[i].size}" for i in block.picked]
    if not len(places):
        return [np.empty(0, kind) for kind in kinds]
    if not kinds:
        return []
    if len(kinds) == 1:
        return [pick(data, block.parts[block.picked[0]].size, places + offsets[0])]
    rows = max(_BLOCK_TILE // size, 16)
    if len(places) <= rows:
        return [np.ascontiguousarray(part) for part in _split(data, places, size, offsets, kinds)]
    items = [np.empty(len(places), kind) for kind in kinds]
    for start in range(0, len(places), rows):
        for item, part in zip(items, _split(data, places[start : start + rows], size, offsets, kinds), strict=True):
            item[start : start + rows] = part
    return items


def _split(
    data: np.ndarray, places: np.ndarray, size: int, offsets: tuple[int, ...], kinds: list[str]
) -> Iterator[np.ndarray]:
    """Yield views of the parts: views of the data if blocks are at equal distances, else views of a copy."""
    source, start, stride = strided(data, places, size)
    for offset, kind in zip(offsets, kinds, strict=True):
        yield np.ndarray((len(places),), kind, source, start + offset, (stride,))


def _assemble(node: Node, columns: Iterator[_Column], rows: int, batch: Batch) -> pa.Array:
    """Return ``rows`` values of type ``node`` from the next of ``columns``.

    Wrong values (text that is not UTF-8, a bool other than 0 and 1) become faults of the batch, and then the array is
    invalid.
    """
    if isinstance(node, MessageType):
        children = [_assemble(child, columns, rows, batch) for name, child in node.fields if name not in node.left_out]
        if node.has_filler:
            next(columns)
        return pa.Array.from_buffers(node.arrow, rows, [None], null_count=0, children=children)
    column = next(columns)
    if isinstance(node, Primitive):
        assert isinstance(column, _Raw)
        return _numbers(node, column, batch)
    if isinstance(node, Text):
        assert isinstance(column, TextRun)
        return _strings(column, batch)
    return _sequence(node, column, rows, batch)


def _numbers(node: Primitive, column: _Raw, batch: Batch) -> pa.Array:
    owner = column.owner
    if node.is_bool and column.counts is not None:
        owner = np.repeat(owner, column.counts)
    return numbers(node, column.items, batch, owner, column.path)


def _strings(column: TextRun, batch: Batch) -> pa.Array:
    starts, lengths = column.starts, column.lengths
    if batch.wire.ended:
        lengths = lengths - _nuls(starts, lengths, batch)
    return strings(gather(batch.data, starts, lengths), offsets_of(lengths), batch, column.owner, column.path)


def _nuls(starts: np.ndarray, lengths: np.ndarray, batch: Batch) -> np.ndarray:
    """Return, for each text, whether it ends in NUL (bool)."""
    some = lengths > 0
    if some.all():
        ended: np.ndarray = batch.data[starts + lengths - 1] == 0
    else:
        ended = np.zeros(len(lengths), np.bool_)
        ended[some] = batch.data[(starts + lengths - 1)[some]] == 0
    return ended


def _sequence(node: SequenceType, column: _Column, rows: int, batch: Batch) -> pa.Array:
    if isinstance(column, _Raw):
        assert isinstance(node.element, Primitive)
        assert node.length is not None
        return lists(node.arrow, np.full(rows, node.length), _numbers(node.element, column, batch))
    if isinstance(column, _Elements):
        values = _assemble(node.element, column.columns, column.rows, batch)
    else:
        assert isinstance(column, PlainRun)
        values = _assemble(node.element, iter(_plain_columns(column, batch)), int(column.counts.sum()), batch)
    return lists(node.arrow, column.counts, values)


def _plain_columns(column: PlainRun, batch: Batch) -> list[_Raw]:
    """Return the parts of all elements in all rows."""
    var, counts = column.var, column.counts
    if var.stride == var.size:
        payload = gather(batch.data, column.starts, counts * var.size)
        if len(var.block.parts) == 1:
            return [_Raw(payload, column.owner, var.path, counts)]
        places = np.arange(0, len(payload), var.size)
        items = _pick_parts(payload, places, var.block, 0)
    else:
        first = offsets_of(counts)[:-1].astype(np.int64)
        places = np.repeat(column.starts - first * var.stride, counts) + np.arange(counts.sum()) * var.stride
        items = _pick_parts(batch.data, places, var.block, 0)
    return [_Raw(item, column.owner, part.path, counts) for item, part in zip(items, var.block.parts, strict=True)]


_MOST_TEMPLATES: Final = 4
_MOST_REMEMBERED: Final = 16
_LEAST_ALIKE: Final = 8
"""A template is used for at least this many messages, and at least for one in this many."""


class Messages(NamedTuple):
    """Messages ``data[starts[i]:ends[i]]``, header included; ``order`` is their byte order, ``"<"`` or ``">"``."""

    data: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    order: str


class ColumnarReader:
    """Reads messages of one type by column."""

    def __init__(self, node: MessageType, wire: Wire) -> None:
        self._node = node
        self._wire = wire
        self._program: Program = compile_node(node, "", wire)
        self._templates: dict[tuple[str, int], Template] = {}

    def read(self, messages: Messages, chosen: np.ndarray, faults: Faults) -> Iterator[Piece]:
        """Yield arrays of the messages ``chosen`` (indices, int64), each with the indices of its messages.

        Faults of messages go to ``faults``.
        """
        read = []
        for group in _of_equal_length((messages.ends - messages.starts)[chosen]):
            alike = self._read_alike(messages, chosen[group], faults)
            if alike is not None:
                yield alike
                read.append(alike[0])
        if sum(map(len, read)) < len(chosen):
            rest = np.setdiff1d(chosen, np.concatenate(read), assume_unique=True) if read else chosen
            yield from self._read_any(messages, rest, faults)

    def _read_alike(self, messages: Messages, chosen: np.ndarray, faults: Faults) -> Piece | None:
        """Read messages, all of one length, that have the layout of the first. Return None if only few have it."""
        data, starts, ends, order = messages
        first = chosen[0]
        body = data[starts[first] + self._wire.header : ends[first]]
        template = self._templates.get((order, len(body)))
        if template is None or not template.fits(body.tobytes()):
            try:
                template = trace(self._node, body.tobytes(), order, self._wire)
            except NoTemplateError:
                return None
            if len(self._templates) >= _MOST_REMEMBERED:
                self._templates.clear()
            self._templates[order, len(body)] = template
        alike = self._take_apart(template, messages, chosen)
        if not alike.alike.all():
            chosen = chosen[alike.alike]
            if len(chosen) * _LEAST_ALIKE < len(alike.alike):
                return None
            alike = self._take_apart(template, messages, chosen)
        values = alike.array()
        if alike.batch.faults:
            return None
        if (left := len(body) - template.size) > MOST_PADDING:
            faults.add_surplus(Surplus(len(chosen), len(body) + self._wire.header, left))
        return chosen, values

    def _read_any(self, messages: Messages, chosen: np.ndarray, faults: Faults) -> Iterator[Piece]:
        """Read messages of any layout. Faulty messages are left out, and the others are read again."""
        data, starts, ends, order = messages
        while True:
            batch = Batch(data, order, self._wire)
            base = starts[chosen] + self._wire.header
            try:
                frame = Frame(batch, base, base, ends[chosen], chosen, chosen)
                columns = _read_columns(self._program, frame)
            except TooManyElementsError:
                yield from self._read_halves(messages, chosen, faults)
                return
            if self._wire.exact:
                frame.require(frame.place == frame.end, "the message continues after its last field")
            if not batch.faults:
                values = _assemble(self._node, iter(columns), len(chosen), batch)
            if not batch.faults:
                faults.add_surplus(_surplus(frame, self._wire.header))
                yield chosen, values
                return
            for owners, what in batch.faults:
                for owner in owners.tolist():
                    faults.setdefault(owner, what)
            chosen = np.setdiff1d(chosen, np.concatenate([owners for owners, _ in batch.faults]))

    def _read_halves(self, messages: Messages, chosen: np.ndarray, faults: Faults) -> Iterator[Piece]:
        if len(chosen) == 1:
            faults[int(chosen[0])] = "it has more elements than allowed in one message"
            return
        half = len(chosen) // 2
        yield from self._read_any(messages, chosen[:half], faults)
        yield from self._read_any(messages, chosen[half:], faults)

    def _take_apart(self, template: Template, messages: Messages, chosen: np.ndarray) -> TemplateReader:
        batch = Batch(messages.data, messages.order, self._wire)
        return TemplateReader(template, batch, messages.starts[chosen] + self._wire.header, chosen)


def _surplus(frame: Frame, header: int) -> Surplus:
    """Return how many messages continue after their last field, which ends at the frame's places."""
    left = frame.end - frame.place
    rows = np.flatnonzero(left > MOST_PADDING)
    if not len(rows):
        return Surplus()
    first = rows[0]
    return Surplus(len(rows), int(frame.end[first] - frame.base[first]) + header, int(left[first]))


def _of_equal_length(lengths: np.ndarray) -> list[np.ndarray]:
    """Return indices of messages by length, if most messages have one of a few lengths."""
    if bool((lengths == lengths[0]).all()):
        return [np.arange(len(lengths))] if lengths[0] <= MOST_BYTES else []
    least = max(_LEAST_ALIKE, len(lengths) // _LEAST_ALIKE)
    values, counts = np.unique(lengths, return_counts=True)
    several = (counts >= least) & (values <= MOST_BYTES)
    if not several.any() or 2 * int(counts[several].sum()) < len(lengths):
        return []
    commonest = np.argsort(-counts[several], kind="stable")[:_MOST_TEMPLATES]
    return [np.flatnonzero(lengths == length) for length in values[several][commonest].tolist()]
