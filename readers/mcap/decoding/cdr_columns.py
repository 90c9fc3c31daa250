"""Reading a frame into raw columns: the bytes of each field, for all rows, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from .cdr_frame import Frame
from .cdr_layout import Block, Program
from .cdr_walk import ElementsRun, PlainRun, TextRun, advance, constant_counts
from .gather import pick

_TILE: Final = 1 << 18
"""Bytes of messages that are taken apart together: what stays in a core's own cache."""


class Raw(NamedTuple):
    """One part of a block: one item for each row, or ``counts`` items for each. ``owner`` are the rows' messages."""

    items: np.ndarray
    owner: np.ndarray
    path: str
    counts: np.ndarray | None = None


class Elements(NamedTuple):
    """A sequence: how many elements each row has, and the columns of all elements."""

    counts: np.ndarray
    rows: int
    columns: Iterator[Column]


Column = Raw | TextRun | PlainRun | Elements


def read(program: Program, frame: Frame) -> list[Column]:
    """Read one ``program`` in every row of ``frame``: its columns, in the order of the fields.

    When rows were dropped on the way (the batch has faults), columns differ in length and are good for nothing.
    """
    columns: list[Column] = []
    for block, var in program:
        items = read_block(block, frame)
        counts = items.pop().view(f"{frame.batch.order}u4").astype(np.int64) if block.counted else None
        columns += [Raw(item, frame.owner, part.path) for item, part in zip(items, block.parts, strict=False)]
        if var is None:
            continue
        run = advance(var, frame, constant_counts(var, len(frame)) if counts is None else counts)
        if isinstance(run, ElementsRun):
            columns.append(Elements(run.counts, len(run.elements), iter(read(run.var.program, run.elements))))
        else:
            columns.append(run)
    return columns


def read_block(block: Block, frame: Frame) -> list[np.ndarray]:
    """The parts of ``block``, each as an array of void with one item for each row; steps over the block."""
    residues, common = frame.enter(block)
    data, places = frame.batch.data, frame.place
    if common is not None:
        frame.place = places + block.layout(common)[1]
        return pick_parts(data, places, block, common)
    frame.place = places + block.sizes[residues]
    items = [np.empty(len(places), f"V{part.size}") for part in block.parts]
    for residue in np.flatnonzero(np.bincount(residues)).tolist():
        rows = np.flatnonzero(residues == residue)
        for item, some in zip(items, pick_parts(data, places[rows], block, residue), strict=True):
            item[rows] = some
    return items


def pick_parts(data: np.ndarray, places: np.ndarray, block: Block, residue: int) -> list[np.ndarray]:
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
