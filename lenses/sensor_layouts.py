"""Packed sensor data: the rows of images and point clouds, their byte order, and the formats of clouds.

Rows have padding (``step``, ``row_step``), data may end early, and numbers may be big-endian. :class:`RowLayout` and
:func:`little_endian` bring images and clouds of every message type into one form: rows without padding. Data already
in that form is not copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..engine.chunk import IMAGE_ENCODINGS
from ..engine.limits import MAX_POINT_FIELD_OVERLAP
from . import arrays
from .arrays import Bytes, blob_array, bytes_of, fixed_lists

Ints = npt.NDArray[np.integer[Any]]
Flags = npt.NDArray[np.bool_]

_PIXEL_BYTES: Final = np.array([e.pixel_bytes for e in IMAGE_ENCODINGS.values()], np.int64)
_NUMERATORS: Final = np.array([e.row_factor.numerator for e in IMAGE_ENCODINGS.values()], np.int64)
_ELEMENT_BYTES: Final = np.array([e.number_bytes for e in IMAGE_ENCODINGS.values()], np.int64)
_DENOMINATORS: Final = np.array([e.row_factor.denominator for e in IMAGE_ENCODINGS.values()], np.int64)


def image_rows(data: pa.ListArray, widths: Ints, heights: Ints, steps: Ints, codes: Ints) -> RowLayout:
    """Return the rows of images of raw pixels; ``codes`` are for their encodings, which must be known.

    Rows are ``steps`` bytes apart. If a step is 0, all rows share the image's data equally.
    """
    rows = -(-np.minimum(heights.astype(np.int64), _MOST) * _NUMERATORS[codes] // _DENOMINATORS[codes])
    row_bytes = np.minimum(widths.astype(np.int64), _MOST) * _PIXEL_BYTES[codes]
    shares = _lengths(data) // np.maximum(rows, 1)
    return RowLayout.of(data, row_bytes, rows, np.where(steps > 0, steps, shares))


def cloud_rows(data: pa.ListArray, widths: Ints, heights: Ints, point_steps: Ints, row_steps: Ints) -> RowLayout:
    """Return the rows of clouds of ``widths`` times ``heights`` points."""
    row_bytes = np.minimum(widths.astype(np.int64), _MOST) * np.minimum(point_steps.astype(np.int64), _MOST)
    return RowLayout.of(data, row_bytes, heights, row_steps)


def element_bytes(codes: Ints) -> Ints:
    """Return the bytes of one number for each encoding's code, int64; 1 for YUV."""
    sizes: Ints = _ELEMENT_BYTES[codes]
    return sizes


_MOST: Final = 2**31
"""More bytes or rows than data in memory can have. The product of two such numbers fits an int64."""


DATA_ENDS_EARLY: Final = "have data that ends before the last row; the existing values are kept"
"""The remark of lenses on :attr:`RowLayout.short` data."""

DATA_GOES_ON: Final = "have data after the last row, which is left out"
"""The remark of lenses on :attr:`RowLayout.long` data."""


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The rows of each blob of packed data: bytes of a row, rows, distance between row starts, bytes in all (int64).

    A distance that contradicts the data is not used: a distance below the bytes of a row, and any distance if the data
    has exactly the bytes of all rows, as some writers do not update it.
    """

    row_bytes: Ints
    rows: Ints
    strides: Ints
    lengths: Ints

    @classmethod
    def of(cls, data: pa.ListArray, row_bytes: Ints, rows: Ints, steps: Ints) -> RowLayout:
        """Return the layout of ``data`` by the fields of its messages. A step of 0 means no padding."""
        row_bytes, rows, steps = (np.minimum(n.astype(np.int64), _MOST) for n in (row_bytes, rows, steps))
        lengths = _lengths(data)
        padded = (steps > row_bytes) & (lengths != row_bytes * rows)
        return cls(row_bytes, rows, np.where(padded, steps, row_bytes), lengths)

    @property
    def short(self) -> Flags:
        """Return a mask of the blobs that end before their last row does; the row's padding may be missing."""
        filled = self.row_bytes * self.rows > 0
        flags: Flags = filled & (self.lengths < self.strides * (self.rows - 1) + self.row_bytes)
        return flags

    @property
    def long(self) -> Flags:
        """Return a mask of the blobs that continue after their last row and its padding."""
        filled = self.row_bytes * self.rows > 0
        flags: Flags = self.lengths > np.where(filled, self.strides * self.rows, 0)
        return flags

    def packed(self, data: pa.ListArray) -> pa.ListArray:
        """Return the data without padding and without bytes after the last row.

        It is the same array if there are neither. Data that ends early stays short.
        """
        row_bytes, rows, strides, lengths = self.row_bytes, self.rows, self.strides, self.lengths
        if not ((strides > row_bytes) & (rows > 0)).any() and not (lengths > row_bytes * rows).any():
            return data
        content, offsets = bytes_of(data)
        # Blobs of equal layout are cut as one array, in a fifth of the time (50 of 640 x 480: 8 ms, not 34).
        # benchmarks/bench_convert.py guards the conversion of camera topics.
        layouts = np.stack([lengths, row_bytes, rows, strides])
        if len(offsets) > 1 and (layouts == layouts[:, :1]).all():
            length, *layout = layouts[:, 0].tolist()
            whole = content[offsets[0] : offsets[-1]].reshape(len(lengths), length)
            cut = _narrowed(whole, *layout)
            sizes = np.full(len(cut), cut.shape[1], np.int64)
            return blob_array(cut.reshape(-1), _offsets(sizes))
        parts = [
            _narrowed(content[begin : begin + length].reshape(1, length), *layout).reshape(-1)
            for begin, (length, *layout) in zip(offsets[:-1].tolist(), layouts.T.tolist(), strict=True)
        ]
        return blob_array(np.concatenate(parts), _offsets(np.array([len(part) for part in parts], np.int64)))


def little_endian(data: pa.ListArray, element_sizes: Ints, big_endian: Flags) -> pa.ListArray:
    """Return blobs in little-endian order, with numbers of ``element_sizes`` bytes; the same array if all already are.

    Bytes after the last whole number stay as they are.
    """
    swapped = np.flatnonzero(big_endian & (element_sizes > 1))
    if not len(swapped):
        return data
    content, offsets = bytes_of(data)
    first = int(offsets[0])
    out = content[first : offsets[-1]].copy()
    for blob in swapped.tolist():
        size, begin = int(element_sizes[blob]), int(offsets[blob]) - first
        whole = (int(offsets[blob + 1]) - first - begin) // size * size
        out[begin : begin + whole].view(f"u{size}").byteswap(inplace=True)
    return blob_array(out, offsets - offsets[0])


def _lengths(data: pa.ListArray) -> Ints:
    lengths: Ints = np.diff(arrays.offsets_of(data)).astype(np.int64)
    return lengths


def _narrowed(images: Bytes, row_bytes: int, rows: int, stride: int) -> Bytes:
    """Return the bytes without padding, for blobs of equal size, one blob per row."""
    count, length = images.shape
    if stride <= row_bytes:
        return images[:, : row_bytes * rows]
    whole = min(length // stride, rows)
    narrow = images[:, : whole * stride].reshape(count, whole, stride)[:, :, :row_bytes].reshape(count, -1)
    if whole == rows:
        return narrow
    return np.concatenate((narrow, images[:, whole * stride : whole * stride + row_bytes]), axis=1)


def _offsets(sizes: Ints) -> Ints:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


_IMAGE_PLANE: Final = "_image_plane"
"""The suffix that turns the name of a camera's frame into that of its images' frame."""

MATRIX: Final = 9
"""The number of elements of a camera's matrix."""


def image_plane(frames: pa.Array) -> pa.Array:
    """The frames of images, from their cameras' frames (string); an empty frame stays empty.

    >>> image_plane(pa.array(["camera", ""])).to_pylist()
    ['camera_image_plane', '']
    """
    planes = pc.binary_join_element_wise(frames, _IMAGE_PLANE, "")
    return pc.if_else(pc.equal(frames, ""), frames, planes)


def projections_of(numbers: npt.NDArray[Any]) -> pa.FixedSizeListArray:
    """Camera matrices, given row by row, as Rerun's projections: float32, column by column."""
    with np.errstate(over="ignore"):
        by_column = numbers.astype(np.float32).reshape(-1, 3, 3).swapaxes(1, 2)
    return fixed_lists(pa.array(by_column.reshape(-1)), MATRIX)


ROS_TYPES: Final[Mapping[int, str]] = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}
"""The codes of ``sensor_msgs/PointField``, as numpy types."""

FOXGLOVE_TYPES: Final[Mapping[int, str]] = {1: "u1", 2: "i1", 3: "u2", 4: "i2", 5: "u4", 6: "i4", 7: "f4", 8: "f8"}
"""The codes of ``foxglove.PackedElementField``, as numpy types."""


class PackedField(NamedTuple):
    """A number of each point: its name, its offset in the point in bytes, and its numpy type (``f4``)."""

    name: str
    offset: int
    kind: str


class PointLayout(NamedTuple):
    """The fields of a point, and the bytes from one point to the next."""

    fields: tuple[PackedField, ...]
    step: int
    big_endian: bool = False

    def field(self, name: str) -> PackedField | None:
        """The first field of that name."""
        return next((f for f in self.fields if f.name == name), None)

    def has(self, names: Iterable[str]) -> bool:
        """Return whether the layout has all of these fields."""
        return all(self.field(name) is not None for name in names)


class CloudGroup(NamedTuple):
    """Clouds of one layout, by ascending index; ``layout`` is None if it cannot be read."""

    layout: PointLayout | None
    clouds: Ints


@dataclass(frozen=True, slots=True)
class FieldTable:
    """The fields of each cloud and the length of its points, from its message.

    ``fields`` has, for each cloud, a list of structs with fields ``name``, ``offset`` (bytes) and ``code`` (one of
    ``types``); ``steps`` and ``big_endian`` have one value per cloud.
    """

    fields: pa.ListArray
    steps: Ints
    types: Mapping[int, str]
    big_endian: Flags | None = None
    code: str = "datatype"

    def groups(self) -> list[CloudGroup]:
        """Return the clouds by layout.

        A layout is unreadable if a type code is unknown, a field does not end within the point, or more fields
        overlap than any sensor writes (:data:`~chunkmill.engine.limits.MAX_POINT_FIELD_OVERLAP`).
        """
        counts = np.diff(arrays.offsets_of(self.fields)).astype(np.int64)
        if self.fields.null_count:
            counts *= self.fields.is_valid().to_numpy(zero_copy_only=False)
        alike = [
            clouds
            for count in np.unique(counts).tolist()
            for clouds in self._apart(np.flatnonzero(counts == count), count)
        ]
        return [CloudGroup(self._layout(int(clouds[0])), clouds) for clouds in alike]

    def _apart(self, clouds: Ints, count: int) -> list[Ints]:
        """Group clouds, of ``count`` fields each, by their fields, steps and byte orders."""
        if len(clouds) == 1:
            return [clouds]
        parts = [self.steps[clouds][:, None].astype(np.int64)]
        if self.big_endian is not None:
            parts.append(self.big_endian[clouds][:, None].astype(np.int64))
        places = (arrays.offsets_of(self.fields)[clouds].astype(np.int64)[:, None] + np.arange(count)).reshape(-1)
        elements = self.fields.values.take(pa.array(places))
        names = elements.field("name").dictionary_encode().indices
        for numbers in (names, elements.field("offset"), elements.field(self.code)):
            filled = numbers.fill_null(-1) if numbers.null_count else numbers
            parts.append(filled.to_numpy(zero_copy_only=False).astype(np.int64).reshape(len(clouds), count))
        keys = np.concatenate(parts, axis=1)
        if (keys == keys[0]).all():
            return [clouds]
        _, group = np.unique(keys, axis=0, return_inverse=True)
        group = group.reshape(-1)
        return np.split(clouds[np.argsort(group, kind="stable")], np.cumsum(np.bincount(group))[:-1])

    def _layout(self, cloud: int) -> PointLayout | None:
        step = int(self.steps[cloud])
        fields: dict[str, PackedField] = {}
        for field in self.fields[cloud].as_py() or ():
            name, offset, kind = field["name"], field["offset"], self.types.get(field[self.code])
            if kind is None or offset is None or name is None:
                return None
            if step > 0 and offset + np.dtype(kind).itemsize > step:
                return None
            fields.setdefault(name, PackedField(name, offset, kind))
        if sum(np.dtype(f.kind).itemsize for f in fields.values()) > step * MAX_POINT_FIELD_OVERLAP > 0:
            return None
        return PointLayout(tuple(fields.values()), step, self.big_endian is not None and bool(self.big_endian[cloud]))


class PackedPoints:
    """Clouds with their fields as columns: one list of numbers, or of vectors, for each cloud.

    ``data`` has one blob per cloud. Clouds that are not in ``groups`` are null in all columns. Bytes after the last
    whole point are ignored, and points without bytes do not count. One strided view per field reads all clouds of
    equal layout. That takes a quarter of the time of one cloud at a time (40 of 8,192 points: 4 ms, not 15), and the
    view halves the time for consecutive clouds; the type ``point_cloud2`` of ``benchmarks/bench_types.py`` guards both.
    """

    def __init__(self, data: pa.ListArray, groups: Sequence[CloudGroup]) -> None:
        self._count = len(data)
        content, offsets = bytes_of(data)
        self._groups = [_Group(group.layout, group.clouds, content, offsets) for group in groups if group.layout]

    def numbers(self, name: str) -> pa.ListArray:
        """A field's numbers, in the field's type; null for clouds without the field.

        If clouds differ in the type, it is the smallest type that holds all numbers. Raises ``KeyError`` if no cloud
        has the field.
        """
        kinds = [np.dtype(f.kind) for group in self._groups if (f := group.layout.field(name)) is not None]
        if not kinds:
            raise KeyError(name)
        return self._column((name,), reduce(np.promote_types, kinds))

    def vectors(self, names: Sequence[str]) -> pa.ListArray:
        """Fields joined to vectors of float32; null for clouds that lack one of them."""
        return self._column(tuple(names), np.dtype("f4"))

    def _column(self, names: tuple[str, ...], kind: np.dtype[Any]) -> pa.ListArray:
        groups = [group for group in self._groups if group.layout.has(names)]
        valid = np.zeros(self._count, bool)
        starts = np.zeros(self._count + 1, np.int64)
        for group in groups:
            valid[group.clouds] = True
            starts[group.clouds + 1] = group.sizes
        np.cumsum(starts, out=starts)
        # From Arrow's pool, which keeps its memory between chunks.
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
            flat = arrays.fixed_lists(flat, len(names))
        return arrays.list_array(flat, starts, valid)


class _Group:
    """Clouds of one layout, and their points."""

    def __init__(self, layout: PointLayout, clouds: Ints, content: Bytes, offsets: arrays.Offsets) -> None:
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
        """Return the points, one per row: a view if the clouds are consecutive."""
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
        """Write the named fields, one per column, converted to the type of ``out``."""
        if self.total == 0:
            return
        order = ">" if self.layout.big_endian else "<"
        fields = [(f.offset, np.dtype(order + f.kind)) for n in names if (f := self.layout.field(n)) is not None]
        with np.errstate(over="ignore", invalid="ignore"):  # field by field: numpy is slow at rows of few numbers
            for column, (offset, kind) in enumerate(fields):
                out[:, column] = self._points[:, offset : offset + kind.itemsize].view(kind)[:, 0]


def _ranges(starts: Ints, counts: Ints, step: int = 1) -> Ints:
    """For each ``i``, ``counts[i]`` numbers: ``starts[i]``, ``starts[i] + step``, …."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before * step, counts) + np.arange(int(counts.sum()), dtype=np.int64) * step
