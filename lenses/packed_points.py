"""Point clouds as messages carry them, taken apart: clouds of equal layout together, by one strided view a field."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .blobs import Bytes, bytes_of
from .packed_layouts import Alike, Ints, Layout
from .selector import lists


class PackedPoints:
    """Clouds whose fields come out as columns, one list of numbers, or of vectors, a cloud.

    ``data`` are blobs, one a cloud, ``groups`` the layouts of those to look at: the others are null in all columns.
    Bytes behind the last whole point are no point, and points of no bytes are none.
    """

    def __init__(self, data: pa.ListArray, groups: Sequence[Alike]) -> None:
        self._count = len(data)
        content, offsets = bytes_of(data)
        self._groups = [_Group(group.layout, group.clouds, content, offsets) for group in groups if group.layout]

    def numbers(self, name: str) -> pa.ListArray:
        """A field's numbers, in the type that they have; null for clouds without it.

        Where clouds differ in its type, in the smallest one that holds them all. Raises ``KeyError`` where no cloud
        has the field.
        """
        kinds = [np.dtype(f.kind) for group in self._groups if (f := group.layout.field(name)) is not None]
        if not kinds:
            raise KeyError(name)
        return self._column((name,), reduce(np.promote_types, kinds))

    def vectors(self, names: Sequence[str]) -> pa.ListArray:
        """Fields together as vectors of float32; null for clouds without one of them."""
        return self._column(tuple(names), np.dtype("f4"))

    def _column(self, names: tuple[str, ...], kind: np.dtype[Any]) -> pa.ListArray:
        groups = [group for group in self._groups if group.layout.has(names)]
        valid = np.zeros(self._count, bool)
        starts = np.zeros(self._count + 1, np.int64)
        for group in groups:
            valid[group.clouds] = True
            starts[group.clouds + 1] = group.sizes
        np.cumsum(starts, out=starts)
        # From Arrow's pool, which does not give memory back to the system between one chunk and the next.
        memory = pa.allocate_buffer(int(starts[-1]) * len(names) * kind.itemsize)
        out = np.frombuffer(memory, kind).reshape(int(starts[-1]), len(names))
        for group in groups:
            if group.total == len(out):
                group.copy_to(out, names)
            else:
                part = np.empty((group.total, len(names)), kind)
                group.copy_to(part, names)
                out[_ranges(starts[group.clouds], group.sizes)] = part
        flat = pa.array(out.reshape(-1))
        if len(names) > 1:
            item = pa.list_(pa.field("item", flat.type, nullable=False), len(names))
            flat = pa.Array.from_buffers(item, len(out), [None], children=[flat])
        return lists.list_array(flat, starts, valid)


class _Group:
    """Clouds of one layout, and their points."""

    def __init__(self, layout: Layout, clouds: Ints, content: Bytes, offsets: lists.Offsets) -> None:
        self.layout = layout
        self.clouds = clouds
        self._content = content
        self._starts = offsets[clouds].astype(np.int64)
        lengths = offsets[clouds + 1] - self._starts
        self.sizes: Ints = lengths // layout.step if layout.step > 0 else np.zeros_like(lengths)
        self.total = int(self.sizes.sum())
        self._found: Bytes | None = None

    @property
    def _points(self) -> Bytes:
        """One point a row: a view where the clouds lie one behind the other."""
        if self._found is None:
            step, starts = self.layout.step, self._starts
            if (starts[:-1] + self.sizes[:-1] * step == starts[1:]).all():
                begin = int(starts[0])
                self._found = self._content[begin : begin + self.total * step].reshape(self.total, step)
            else:
                spans = np.lib.stride_tricks.sliding_window_view(self._content, step)
                self._found = spans[_ranges(starts, self.sizes, step)]
        return self._found

    def copy_to(self, out: npt.NDArray[Any], names: Sequence[str]) -> None:
        """Write the named fields, one a column, converted to the type of ``out``."""
        if self.total == 0:
            return
        order = ">" if self.layout.big_endian else "<"
        fields = [(f.offset, np.dtype(order + f.kind)) for n in names if (f := self.layout.field(n)) is not None]
        with np.errstate(over="ignore", invalid="ignore"):  # one by one: numpy is slow at rows of few numbers
            for column, (offset, kind) in enumerate(fields):
                out[:, column] = self._points[:, offset : offset + kind.itemsize].view(kind)[:, 0]


def _ranges(starts: Ints, counts: Ints, step: int = 1) -> Ints:
    """``starts[i]``, ``starts[i] + step``, … for each ``i``, ``counts[i]`` of them."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before * step, counts) + np.arange(int(counts.sum()), dtype=np.int64) * step
