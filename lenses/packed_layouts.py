"""What is at which place of the points of a cloud, as messages say it; clouds of equal layout together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..engine.limits import MAX_POINT_FIELD_OVERLAP
from .selector import lists

ROS_TYPES: Final[Mapping[int, str]] = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}
"""The codes of ``sensor_msgs/PointField``, as numpy types."""

FOXGLOVE_TYPES: Final[Mapping[int, str]] = {1: "u1", 2: "i1", 3: "u2", 4: "i2", 5: "u4", 6: "i4", 7: "f4", 8: "f8"}
"""The codes of ``foxglove.PackedElementField``, as numpy types."""

Ints = npt.NDArray[np.integer[Any]]
Flags = npt.NDArray[np.bool_]


class PackedField(NamedTuple):
    """A number of each point: its name, its offset in the point in bytes, and its numpy type (``f4``)."""

    name: str
    offset: int
    kind: str


class Layout(NamedTuple):
    """The fields of a point, and how many bytes lie between points."""

    fields: tuple[PackedField, ...]
    step: int
    big_endian: bool = False

    def field(self, name: str) -> PackedField | None:
        """The first field of that name."""
        return next((f for f in self.fields if f.name == name), None)

    def has(self, names: Iterable[str]) -> bool:
        """Whether all of these fields are there."""
        return all(self.field(name) is not None for name in names)


class Alike(NamedTuple):
    """Clouds of one layout, by ascending index; without a layout where it cannot be read."""

    layout: Layout | None
    clouds: Ints


@dataclass(frozen=True, slots=True)
class FieldTable:
    """The fields of each cloud, and how long its points are, as messages say it.

    ``fields`` is a list a cloud of structs with fields ``name``, ``offset`` (bytes) and ``code`` (one of ``types``);
    ``steps`` and ``big_endian`` have one value a cloud.
    """

    fields: pa.ListArray
    steps: Ints
    types: Mapping[int, str]
    big_endian: Flags | None = None
    code: str = "datatype"

    def groups(self) -> list[Alike]:
        """The clouds by layout.

        A layout cannot be read where a type code is unknown, a field does not end within the point, or more fields lie
        one over the other than any sensor writes (:data:`~chunkmill.engine.limits.MAX_POINT_FIELD_OVERLAP`).
        """
        counts = np.diff(lists.offsets_of(self.fields)).astype(np.int64)
        if self.fields.null_count:
            counts *= self.fields.is_valid().to_numpy(zero_copy_only=False)
        alike = [
            clouds
            for count in np.unique(counts).tolist()
            for clouds in self._apart(np.flatnonzero(counts == count), count)
        ]
        return [Alike(self._layout(int(clouds[0])), clouds) for clouds in alike]

    def _apart(self, clouds: Ints, count: int) -> list[Ints]:
        """Clouds of ``count`` fields each, by what their fields, steps and byte orders are."""
        if len(clouds) == 1:
            return [clouds]
        parts = [self.steps[clouds][:, None].astype(np.int64)]
        if self.big_endian is not None:
            parts.append(self.big_endian[clouds][:, None].astype(np.int64))
        places = (lists.offsets_of(self.fields)[clouds].astype(np.int64)[:, None] + np.arange(count)).reshape(-1)
        elements = self.fields.values.take(pa.array(places))
        names = elements.field("name").dictionary_encode().indices
        for numbers in (names, elements.field("offset"), elements.field(self.code)):
            found = numbers.fill_null(-1) if numbers.null_count else numbers
            parts.append(found.to_numpy(zero_copy_only=False).astype(np.int64).reshape(len(clouds), count))
        keys = np.concatenate(parts, axis=1)
        if (keys == keys[0]).all():
            return [clouds]
        _, group = np.unique(keys, axis=0, return_inverse=True)
        group = group.reshape(-1)
        return np.split(clouds[np.argsort(group, kind="stable")], np.cumsum(np.bincount(group))[:-1])

    def _layout(self, cloud: int) -> Layout | None:
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
        return Layout(tuple(fields.values()), step, self.big_endian is not None and bool(self.big_endian[cloud]))
