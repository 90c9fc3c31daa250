"""Columns of a frame of CDR messages, read block by block, to Arrow arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from .cdr_layout import Batch, Block, Frame, Program
from .cdr_walk import ElementsRun, PlainRun, TextRun, advance, constant_counts
from .gather import gather, not_utf8, offsets_of, pick
from .message_types import Node, Primitive, Sequence, Struct, Text

_TILE: Final = 1 << 18
"""Bytes of messages that are taken apart together: what stays in a core's own cache."""


class _Raw(NamedTuple):
    """One part of a block: one item for each row, or ``counts`` items for each. ``owner`` are the rows' messages."""

    items: np.ndarray
    owner: np.ndarray
    path: str
    counts: np.ndarray | None = None


class _Elements(NamedTuple):
    """A sequence: how many elements each row has, and the columns of all elements."""

    counts: np.ndarray
    rows: int
    columns: Iterator[_Column]


_Column = _Raw | TextRun | PlainRun | _Elements


def read(program: Program, frame: Frame) -> list[_Column]:
    """Read one ``program`` in every row of ``frame``: its columns, in the order of the fields.

    When rows were dropped on the way (the batch has faults), columns differ in length and are good for nothing.
    """
    columns: list[_Column] = []
    for block, var in program:
        items = _read_block(block, frame)
        counts = items.pop().view(f"{frame.batch.order}u4").astype(np.int64) if block.counted else None
        columns += [_Raw(item, frame.owner, part.path) for item, part in zip(items, block.parts, strict=False)]
        if var is None:
            continue
        run = advance(var, frame, constant_counts(var, len(frame)) if counts is None else counts)
        if isinstance(run, ElementsRun):
            columns.append(_Elements(run.counts, len(run.elements), iter(read(run.var.program, run.elements))))
        else:
            columns.append(run)
    return columns


def _read_block(block: Block, frame: Frame) -> list[np.ndarray]:
    """The parts of ``block``, each as an array of void with one item for each row; steps over the block."""
    residues, common = frame.enter(block)
    data, places = frame.batch.data, frame.place
    if common is not None:
        frame.place = places + block.layout(common)[1]
        return _pick_parts(data, places, block, common)
    frame.place = places + block.sizes[residues]
    items = [np.empty(len(places), f"V{part.size}") for part in block.parts]
    for residue in np.flatnonzero(np.bincount(residues)).tolist():
        rows = np.flatnonzero(residues == residue)
        for item, some in zip(items, _pick_parts(data, places[rows], block, residue), strict=True):
            item[rows] = some
    return items


def _pick_parts(data: np.ndarray, places: np.ndarray, block: Block, residue: int) -> list[np.ndarray]:
    """The parts of blocks that start at ``places``, all with one layout."""
    offsets, size = block.layout(residue)
    kinds = [f"V{part.size}" for part in block.parts]
    if not len(places):
        return [np.empty(0, kind) for kind in kinds]
    if not kinds:
        return []
    if len(kinds) == 1 and not offsets[0]:
        return [pick(data, size, places)]
    rows = max(_TILE // size, 16)
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
    """Views of the parts; blocks at equal distances are looked at where they are, others are copied together first."""
    count = len(places)
    start, stride, source = 0, size, data
    if count > 1 and bool((np.diff(places) == (step := int(places[1] - places[0]))).all()) and step > 0:
        start, stride = int(places[0]), step
    else:
        source = pick(data, size, places)
    for offset, kind in zip(offsets, kinds, strict=True):
        yield np.ndarray((count,), kind, source, start + offset, (stride,))


_STRING: Final = pa.string()


def numbers(node: Primitive, items: np.ndarray, batch: Batch, owner: np.ndarray, path: str) -> pa.Array:
    """Numbers from their bytes. ``owner`` are the messages that have equal shares of them, for wrong ones to be
    faults of.
    """
    values = items.view(node.wire[batch.order])
    if node.is_bool:
        if len(values) and int(values.max()) > 1:
            share = np.flatnonzero(values > 1) // (len(values) // len(owner))
            batch.faults.append((owner[share], f"{path}: a bool is neither 0 nor 1"))
        buffer = np.packbits(values, bitorder="little")
    else:
        buffer = values.astype(node.value, copy=not values.flags.aligned)
    return pa.Array.from_buffers(node.arrow, len(values), [None, pa.py_buffer(buffer)], null_count=0)


def strings(payload: np.ndarray, offsets: np.ndarray, batch: Batch, owner: np.ndarray, path: str) -> pa.Array:
    """Strings that lie one after the other; ``owner`` are the messages that have equal shares of them."""
    count = len(offsets) - 1
    wrong = not_utf8(payload, offsets)
    if len(wrong):
        batch.faults.append((owner[wrong // (count // len(owner))], f"{path}: the text is not UTF-8"))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(payload)]
    return pa.Array.from_buffers(_STRING, count, buffers, null_count=0)


def assemble(node: Node, columns: Iterator[_Column], rows: int, batch: Batch) -> pa.Array:
    """The array of ``rows`` values of type ``node`` that the next of ``columns`` hold.

    Values that are wrong (text that is not UTF-8, a bool that is neither 0 nor 1) become faults of the batch; the
    array is then not to be used.
    """
    if isinstance(node, Struct):
        children = [assemble(child, columns, rows, batch) for _, child in node.fields]
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
    """Which texts end in NUL."""
    some = lengths > 0
    if some.all():
        ended: np.ndarray = batch.data[starts + lengths - 1] == 0
    else:
        ended = np.zeros(len(lengths), np.bool_)
        ended[some] = batch.data[(starts + lengths - 1)[some]] == 0
    return ended


def _sequence(node: Sequence, column: _Column, rows: int, batch: Batch) -> pa.Array:
    if isinstance(column, _Raw):
        assert isinstance(node.element, Primitive)
        assert node.length is not None
        offsets = np.arange(0, (rows + 1) * node.length, node.length, dtype=np.int32)
        values = _numbers(node.element, column, batch)
    elif isinstance(column, _Elements):
        offsets = offsets_of(column.counts)
        values = assemble(node.element, column.columns, column.rows, batch)
    else:
        assert isinstance(column, PlainRun)
        offsets = offsets_of(column.counts)
        values = assemble(node.element, iter(_plain_columns(column, batch)), int(offsets[-1]), batch)
    return pa.Array.from_buffers(node.arrow, rows, [None, pa.py_buffer(offsets)], null_count=0, children=[values])


def _plain_columns(column: PlainRun, batch: Batch) -> list[_Raw]:
    """The parts of all elements of all rows."""
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
