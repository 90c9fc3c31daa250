"""Faults of numbers: NaN, dead and clipped sensors, invalid rotations. Topics without messages, too.

A few counts are kept for each number of a component. Components with many instances per row, such as the points of a
cloud, are checked for rotations only, as NaN marks points that their sensor did not see.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..chunk import ChunkData, Component, Timeline
from .findings import Finding

Numbers = npt.NDArray[np.float64]

LEAST_ROWS: Final = 50
"""The least number of equal values. Fewer may be chance, such as a coarse sensor at rest."""
CLIPPED: Final = 0.01
"""The share of rows at an extreme from which a sensor counts as clipped; noise reaches its extreme once."""
CLIPPED_RUN: Final = 3
"""The least number of consecutive rows at the extreme; noise does not stay there."""
OFF_UNIT: Final = 1e-2
"""The tolerance of the length of a rotation, which allows 16-bit numbers and rounded texts."""
_MOST_INSTANCES: Final = 16
_WIDEST: Final = 16
_SENSOR: Final = re.compile(
    r"(?<![a-z])(imu|linear_?acceleration|magnetic_?field|accelerometer|gyro(scope)?|magnetometer)"
    r"(?![a-z])",
    re.IGNORECASE,
)
"""Names of numbers that have noise in any real sensor."""
_NO_NOISE: Final = re.compile(r"covariance|orientation|temperature|quaternion", re.IGNORECASE)
_ROTATION: Final = "rerun.components.RotationQuat"
_QUATERNION: Final = frozenset("xyzw")


@dataclass(slots=True)
class _Place:
    """The first clock of a chunk, which dates its rows."""

    timeline: Timeline | None

    def of(self, first: int, last: int) -> dict[str, Any]:
        if self.timeline is None:
            return {}
        ticks = self.timeline.ticks
        name, kind = self.timeline.name, self.timeline.kind.value
        return {"timeline": name, "timeline_type": kind, "start": int(ticks[first]), "end": int(ticks[last])}


class _Number:
    """One number of a component, over all rows."""

    def __init__(self) -> None:
        self.count = self.bad = 0
        self.where: dict[str, Any] = {}
        self.least, self.most = np.inf, -np.inf
        self._extremes = {False: _Extreme(), True: _Extreme()}

    def add(self, values: Numbers, rows: npt.NDArray[np.int64], place: _Place) -> None:
        finite = np.isfinite(values)
        if not finite.all():
            bad = rows[~finite]
            span = place.of(int(bad[0]), int(bad[-1]))
            self.where = {**span, "start": self.where["start"]} if "start" in self.where and span else span
            self.bad += len(bad)
            values = values[finite]
        self.count += len(finite)
        if len(values):
            self.least, self.most = min(self.least, float(values.min())), max(self.most, float(values.max()))
            for is_most, extreme in self._extremes.items():
                extreme.add(values, self.most if is_most else self.least)

    def is_clipped(self) -> bool:
        """Return whether the number repeatedly stays at one of its extremes."""
        return any(e.longest >= CLIPPED_RUN and e.count >= CLIPPED * self.count for e in self._extremes.values())

    @property
    def clipped(self) -> tuple[int, float]:
        """The more frequent of the two extremes: its count of rows, and its value."""
        return max((extreme.count, extreme.value) for extreme in self._extremes.values())


@dataclass(slots=True)
class _Extreme:
    """The largest (or smallest) value so far: its rows, and the most of them in succession."""

    value: float = np.nan
    count: int = 0
    longest: int = 0

    def add(self, values: Numbers, extreme: float) -> None:
        if extreme != self.value:
            self.value, self.count, self.longest = extreme, 0, 0
        at = values == extreme
        if at.any():
            edges = np.flatnonzero(np.diff(at.astype(np.int8), prepend=0, append=0)).reshape(-1, 2)
            self.count += int(at.sum())
            self.longest = max(self.longest, int((edges[:, 1] - edges[:, 0]).max()))


class ValueChecks:
    """The numbers of a recording, and which of its entities have rows at all."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], _Number] = {}
        self._rotations: dict[tuple[str, str], tuple[int, float, dict[str, Any]]] = {}
        self._names: dict[str, list[str]] = {}
        self._schemas: dict[str, str] = {}
        self._topics: set[str] = set()
        self._filled: set[str] = set()
        self._empty: set[str] = set()

    def add(self, data: ChunkData) -> None:
        """Take the values of a chunk."""
        entity = data.entity_path
        if not data.timelines:
            self._add_static(data)
            return
        clock = next((t for t in data.timelines if t.kind.value != "sequence"), data.timelines[0])
        place = _Place(clock if data.num_rows else None)
        for component in data.components:
            if not data.num_rows or component.values.null_count == len(component.values):
                continue
            flat = component.values.flatten()
            if not len(flat):
                continue
            self._filled.add(entity)
            self._component(entity, component, flat, place)
        if entity not in self._filled:
            self._empty.add(entity)

    def _add_static(self, data: ChunkData) -> None:
        for component in data.components:
            name = component.descriptor.component
            if not name.startswith(("McapChannel:", "McapSchema:")):
                self._filled.add(data.entity_path)
            if name == "McapChannel:topic":
                self._topics.add(data.entity_path)
            elif name == "McapSchema:name" and len(component.values):
                self._schemas[data.entity_path] = str(component.values[-1].as_py())
            elif name == "SeriesLines:names" and len(component.values):
                self._names[data.entity_path] = list(map(str, component.values[-1].as_py() or []))
            elif component.descriptor.component_type == _ROTATION:
                flat = component.values.flatten()
                if len(flat):
                    self._rotation(data.entity_path, name, flat, np.zeros(len(flat), np.int64), _Place(None))

    def _component(self, entity: str, component: Component, flat: pa.Array, place: _Place) -> None:
        name = component.descriptor.component
        lengths = pc.fill_null(pc.list_value_length(component.values), 0).to_numpy()
        owners = np.repeat(np.arange(len(lengths)), lengths)
        if component.descriptor.component_type == _ROTATION:
            self._rotation(entity, name, flat, owners, place)
            return
        most = int(lengths.max())
        if most > _MOST_INSTANCES or len(flat) != most * int((lengths > 0).sum()):
            return
        for instance in range(most):
            rows, label = owners[instance::most], f"[{instance}]" if most > 1 else ""
            self._leaves(entity, name + label, flat[instance::most] if most > 1 else flat, rows, place)

    def _leaves(self, entity: str, name: str, values: pa.Array, rows: npt.NDArray[np.int64], place: _Place) -> None:
        """Take the numbers of structs and short vectors, by their names."""
        kind = values.type
        if values.null_count:
            valid = np.asarray(values.is_valid())
            values, rows = values.drop_null(), rows[valid]
        if not len(values):
            return
        if pa.types.is_struct(kind):
            fields = [field.name for field in kind]
            if frozenset(fields) == _QUATERNION and all(pa.types.is_floating(field.type) for field in kind):
                self._quaternion(entity, name, values, rows, place)
                return
            for at, field in enumerate(fields):
                self._leaves(entity, f"{name}.{field}", values.field(at), rows, place)
        elif pa.types.is_fixed_size_list(kind) and kind.list_size <= _WIDEST:
            flat = values.flatten()
            for at in range(kind.list_size):
                self._leaves(entity, f"{name}[{at}]", flat[at :: kind.list_size], rows, place)
        elif pa.types.is_floating(kind) or (pa.types.is_integer(kind) and self._is_sensor(entity, name)):
            number = self._numbers.setdefault((entity, name), _Number())
            number.add(values.to_numpy(zero_copy_only=False).astype(np.float64, copy=False), rows, place)

    def _quaternion(self, entity: str, name: str, values: pa.Array, rows: npt.NDArray[np.int64], place: _Place) -> None:
        """Take quaternions as structs. By a convention of ROS, all zeros mean that there is none."""
        parts = np.stack([values.field(part).to_numpy(zero_copy_only=False) for part in "xyzw"], axis=1)
        given = parts.any(axis=1)
        if given.any():
            self._lengths(entity, name, parts[given], rows[given], place)

    def _rotation(self, entity: str, name: str, flat: pa.Array, rows: npt.NDArray[np.int64], place: _Place) -> None:
        if flat.null_count:
            flat, rows = flat.drop_null(), rows[np.asarray(flat.is_valid())]
        parts = np.asarray(flat.flatten(), dtype=np.float64).reshape(-1, 4)
        self._lengths(entity, name, parts, rows, place)

    def _lengths(self, entity: str, name: str, parts: Numbers, rows: npt.NDArray[np.int64], place: _Place) -> None:
        lengths = np.sqrt((parts.astype(np.float64) ** 2).sum(axis=1))
        wrong = np.flatnonzero(~(np.abs(lengths - 1) <= OFF_UNIT))
        if len(wrong):
            count, length, where = self._rotations.get(
                (entity, name), (0, float(lengths[wrong[0]]), place.of(int(rows[wrong[0]]), int(rows[wrong[0]])))
            )
            where = {**where, **({"end": place.of(0, int(rows[wrong[-1]])).get("end")} if where else {})}
            self._rotations[entity, name] = (count + len(wrong), length, where)

    def _is_sensor(self, entity: str, name: str) -> bool:
        """Return whether a number has noise, by its name."""
        series, column = self._names.get(entity, []), re.search(r"\[(\d+)\]$", name)
        label = series[int(column[1])] if column and int(column[1]) < len(series) else ""
        text = f"{entity}:{self._schemas.get(entity, '')}:{name}:{label}"
        return _SENSOR.search(text) is not None and _NO_NOISE.search(text) is None

    def findings(self) -> Iterator[Finding]:
        """The faults of all numbers, and topics without messages."""
        for entity in sorted((self._topics | self._empty) - self._filled):
            yield Finding("no-messages", entity)
        for (entity, name), (count, length, where) in self._rotations.items():
            yield Finding(
                "non-unit-quaternion", entity, name, **where, value=f"length {length:.4g}", expected="1", count=count
            )
        for (entity, name), number in self._numbers.items():
            yield from self._of_number(entity, name, number)

    def _of_number(self, entity: str, name: str, number: _Number) -> Iterator[Finding]:
        if 0 < number.bad < number.count:
            share = f"{number.bad / number.count:.2%} of {number.count:,} rows"
            yield Finding(
                "not-finite", entity, name, **number.where, value=share, expected="finite numbers", count=number.bad
            )
        if number.count - number.bad < LEAST_ROWS or not self._is_sensor(entity, name):
            return
        if number.least == number.most:
            value = f"{number.least:.6g} in all {number.count:,} rows"
            yield Finding("constant-sensor", entity, name, value=value, expected="noise")
        elif number.is_clipped():
            count, extreme = number.clipped
            yield Finding("clipped", entity, name, value=f"{extreme:.6g} in {count:,} rows", count=count)
