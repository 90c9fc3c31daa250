"""Raw columns to Arrow arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from .cdr_columns import Column, Elements, Raw, pick_parts
from .cdr_frame import Batch
from .cdr_walk import PlainRun, TextRun
from .gather import gather, not_utf8, offsets_of
from .message_types import Node, Primitive, Sequence, Struct, Text

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


def assemble(node: Node, columns: Iterator[Column], rows: int, batch: Batch) -> pa.Array:
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
        assert isinstance(column, Raw)
        return _numbers(node, column, batch)
    if isinstance(node, Text):
        assert isinstance(column, TextRun)
        return _strings(column, batch)
    return _sequence(node, column, rows, batch)


def _numbers(node: Primitive, column: Raw, batch: Batch) -> pa.Array:
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


def _sequence(node: Sequence, column: Column, rows: int, batch: Batch) -> pa.Array:
    if isinstance(column, Raw):
        assert isinstance(node.element, Primitive)
        assert node.length is not None
        offsets = np.arange(0, (rows + 1) * node.length, node.length, dtype=np.int32)
        values = _numbers(node.element, column, batch)
    elif isinstance(column, Elements):
        offsets = offsets_of(column.counts)
        values = assemble(node.element, column.columns, column.rows, batch)
    else:
        assert isinstance(column, PlainRun)
        offsets = offsets_of(column.counts)
        values = assemble(node.element, iter(_plain_columns(column, batch)), int(offsets[-1]), batch)
    return pa.Array.from_buffers(node.arrow, rows, [None, pa.py_buffer(offsets)], null_count=0, children=[values])


def _plain_columns(column: PlainRun, batch: Batch) -> list[Raw]:
    """The parts of all elements of all rows."""
    var, counts = column.var, column.counts
    if var.stride == var.size:
        payload = gather(batch.data, column.starts, counts * var.size)
        if len(var.block.parts) == 1:
            return [Raw(payload, column.owner, var.path, counts)]
        places = np.arange(0, len(payload), var.size)
        items = pick_parts(payload, places, var.block, 0)
    else:
        first = offsets_of(counts)[:-1].astype(np.int64)
        places = np.repeat(column.starts - first * var.stride, counts) + np.arange(counts.sum()) * var.stride
        items = pick_parts(batch.data, places, var.block, 0)
    return [Raw(item, column.owner, part.path, counts) for item, part in zip(items, var.block.parts, strict=True)]
