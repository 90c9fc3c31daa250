"""Raw columns to Arrow arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from .cdr_columns import Column, Elements, Raw, pick_parts
from .cdr_frame import Batch
from .cdr_walk import PlainRun, TextRun
from .gather import gather, not_utf8, offsets_of
from .message_types import Node, Primitive, Sequence, Struct, Text


def assemble(node: Node, columns: Iterator[Column], rows: int, batch: Batch) -> pa.Array:
    """The array of ``rows`` values of type ``node`` that the next of ``columns`` hold.

    Values that are wrong (text that is not UTF-8, a bool that is neither 0 nor 1) become faults of the batch; the
    array is then not to be used.
    """
    if isinstance(node, Struct):
        children = [assemble(child, columns, rows, batch) for _, child in node.fields]
        if not children:
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
    values = column.items.view(f"{batch.order}{node.code}")
    if node.is_bool:
        if len(values) and int(values.max()) > 1:
            owner = column.owner if column.counts is None else np.repeat(column.owner, column.counts)
            share = np.flatnonzero(values > 1) // (len(values) // len(owner))
            batch.faults.append((owner[share], f"{column.path}: a bool is neither 0 nor 1"))
        buffer = np.packbits(values, bitorder="little")
    else:
        buffer = values.astype(node.arrow.to_pandas_dtype(), copy=not values.flags.aligned)
    return pa.Array.from_buffers(node.arrow, len(values), [None, pa.py_buffer(buffer)], null_count=0)


def _strings(column: TextRun, batch: Batch) -> pa.Array:
    starts, lengths = column.starts, column.lengths
    some = lengths > 0
    if some.all():
        ended = batch.data[starts + lengths - 1] == 0
    else:
        ended = np.zeros(len(lengths), np.bool_)
        ended[some] = batch.data[(starts + lengths - 1)[some]] == 0
    lengths = lengths - ended
    payload, offsets = gather(batch.data, starts, lengths), offsets_of(lengths)
    wrong = not_utf8(payload, offsets)
    if len(wrong):
        batch.faults.append((column.owner[wrong], f"{column.path}: the text is not UTF-8"))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(payload)]
    return pa.Array.from_buffers(pa.string(), len(lengths), buffers, null_count=0)


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
