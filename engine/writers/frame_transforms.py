"""Values moved from one coordinate frame to another, by the transforms of the recording.

Transforms are those of tf2: each is the pose of a child frame in its parent, and maps coordinates in the child to
coordinates in the parent. Quaternions are (x, y, z, w), as in ``geometry_msgs/Quaternion``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..chunk import Chunk
from ..errors import ReadError, UsageError
from .alignment import HELD, MISSING, Aligned, Alignment, Outside, Rule, Ticks, align, interpolated, slerped
from .lerobot_spec import FrameTransform

Floats = npt.NDArray[np.float64]

_CHILD: Final = "Transform3D:child_frame"
_PARENT: Final = "Transform3D:parent_frame"
_TRANSLATION: Final = "Transform3D:translation"
_QUATERNION: Final = "Transform3D:quaternion"
_COLUMNS: Final = (_CHILD, _PARENT, _TRANSLATION, _QUATERNION)
_KINDS: Final = {3: "point", 4: "rotation", 7: "pose"}
_WIDTHS: Final = {"point": 3, "vector": 3, "rotation": 4, "pose": 7}
_MOST_NAMES: Final = 20
_MOST_DEEP: Final = 1000
"""The most frames above a frame, as in tf2."""


@dataclass(frozen=True, slots=True)
class TransformLookup:
    """The transforms at some times, with an item for each: translations (m), unit quaternions, and their origin.

    ``outcome`` and ``staleness`` are as in :class:`Aligned`, and those of the worst transform on the way. Those of
    static transforms are ``EXACT`` and 0.
    """

    translations: Floats
    quaternions: Floats
    outcome: npt.NDArray[np.uint8]
    staleness: Ticks

    def applied(self, values: Floats, kind: str) -> Floats:
        """Return values in the other frame: points, vectors, rotations, or poses (x, y, z, then a quaternion)."""
        match kind:
            case "point":
                return rotated(self.quaternions, values) + self.translations
            case "vector":
                return rotated(self.quaternions, values)
            case "rotation":
                return multiplied(self.quaternions, values)
        points, turns = self.applied(values[:, :3], "point"), self.applied(values[:, 3:], "rotation")
        return np.concatenate([points, turns], axis=1)

    def mark(self, aligned: Aligned) -> Aligned:
        """Return the alignment of samples, with the outcomes of their transforms.

        A frame that takes a sample with a held transform counts as held; one without a transform has no value.
        """
        is_there = aligned.outcome != MISSING
        if not len(self.outcome):
            return aligned
        sides = [np.where(is_there, side, 0) for side in (aligned.first, aligned.second)]
        worst = np.maximum(*(self.outcome[side] for side in sides))
        stalest = np.maximum(*(self.staleness[side] for side in sides))
        outcome = np.where(is_there & (worst >= HELD), worst, aligned.outcome)
        return replace(
            aligned,
            first=np.where(outcome == MISSING, -1, aligned.first),
            second=np.where(outcome == MISSING, -1, aligned.second),
            weight=np.where(outcome == MISSING, 0.0, aligned.weight),
            staleness=np.where(is_there, np.maximum(aligned.staleness, stalest), aligned.staleness),
            outcome=outcome,
        )


@dataclass(frozen=True, slots=True)
class _Edge:
    """The transforms of one child in one parent; ``times`` is None if they are static."""

    times: Ticks | None
    translations: Floats
    quaternions: Floats
    others: frozenset[str]


@dataclass(frozen=True, slots=True)
class FrameTree:
    """The frames of a recording: those of the transforms at some entities, on one timeline.

    ``key`` names the feature in errors.
    """

    edges: Mapping[tuple[str, str], _Edge]
    parents: Mapping[str, Sequence[str]]
    path: str
    key: str

    @classmethod
    def of(cls, chunks: Iterable[Chunk], timeline: str, path: str, key: str) -> FrameTree:
        """Read the transforms. Raises ``UsageError`` if they are only on other timelines."""
        parts: dict[tuple[str, str], list[_Edge]] = {}
        for chunk in chunks:
            for ends, edge in _edges(chunk, timeline, path, key):
                parts.setdefault(ends, []).append(edge)
        parents: dict[str, list[str]] = {}
        for child, parent in parts:
            parents.setdefault(child, []).append(parent)
            parents.setdefault(parent, [])
        return cls({ends: _joined(some) for ends, some in parts.items()}, parents, path, key)

    def lookup(self, transform: FrameTransform, times: Ticks, alignment: Alignment) -> TransformLookup:
        """Return the transforms from the source frame to the target frame at some times.

        Each transform on the way is interpolated by itself. If none is within the tolerance (or, without a tolerance,
        before the first and after the last), ``alignment.outside`` decides.

        Raises
        ------
        UsageError
            A frame is unknown, has several parents, or is in a cycle; the two are not connected.
        ReadError
            A transform on the way has no rotation, or a number that is not finite.
        """
        source, target = (_plain(name) for name in (transform.source_frame, transform.target_frame))
        for key, name in (("source_frame", source), ("target_frame", target)):
            if name not in self.parents:
                raise self._wrong(f".{key}", f"there is no frame {name!r}", self._names(self.parents, transform))
        up, down = self._ancestors(source), self._ancestors(target)
        shared = next((name for name in up if name in down), None)
        if shared is None:
            ways = f"{_shown(up, ' -> ')}, and {_shown(down, ' -> ')}"
            raise self._wrong("", f"{source!r} and {target!r} are not connected: {ways}", self._names((), transform))
        first = self._way(up[: up.index(shared) + 1], times, alignment)
        second = self._way(down[: down.index(shared) + 1], times, alignment)
        back = second.quaternions * [-1, -1, -1, 1]
        return TransformLookup(
            rotated(back, first.translations - second.translations),
            multiplied(back, first.quaternions),
            np.maximum(first.outcome, second.outcome),
            np.maximum(first.staleness, second.staleness),
        )

    def _ancestors(self, name: str) -> list[str]:
        """Return a frame and all frames above it."""
        way = [name]
        while parents := self.parents[way[-1]]:
            if len(parents) > 1:
                names = _shown(sorted(map(repr, parents)))
                raise self._wrong(
                    "", f"the frame {way[-1]!r} has the parents {names}", "A frame can have only one parent."
                )
            if parents[0] in way:
                cycle = [*way[way.index(parents[0]) :], parents[0]]
                raise self._wrong("", f"frames form a cycle: {_shown(cycle, ' -> ')}", "Frames form a tree.")
            if len(way) > _MOST_DEEP:
                raise self._wrong(
                    "", f"{name!r} is below more than {_MOST_DEEP:,} frames", "Choose frames closer to it."
                )
            way.append(parents[0])
        return way

    def _way(self, names: Sequence[str], times: Ticks, alignment: Alignment) -> TransformLookup:
        """Return the transforms from the first frame to the last one; each frame is the parent of the one before."""
        made = TransformLookup(
            np.zeros((len(times), 3)),
            np.tile([0.0, 0.0, 0.0, 1.0], (len(times), 1)),
            np.zeros(len(times), np.uint8),
            np.zeros(len(times), np.int64),
        )
        for child, parent in pairwise(names):
            edge = self._at(child, parent, times, alignment)
            made = TransformLookup(
                edge.applied(made.translations, "point"),
                edge.applied(made.quaternions, "rotation"),
                np.maximum(made.outcome, edge.outcome),
                np.maximum(made.staleness, edge.staleness),
            )
        return made

    def _at(self, child: str, parent: str, times: Ticks, alignment: Alignment) -> TransformLookup:
        edge, what = self.edges[child, parent], f"the transform of {child!r} in {parent!r}"
        if edge.others:
            raise self._wrong("", f"{what} also has {', '.join(sorted(edge.others))}", "Leave it out.")
        lengths = np.linalg.norm(edge.quaternions, axis=1)
        if not np.isfinite(edge.translations).all() or not np.isfinite(lengths).all() or (lengths == 0).any():
            raise ReadError(f"{self.key}.transform: {what} is invalid", path=self.path, hint="Leave it out.")
        turns = edge.quaternions / lengths[:, None]
        if edge.times is None:
            count = len(times)
            zeros = np.zeros(count, np.int64)
            place, turn = (np.tile(rows[-1], (count, 1)) for rows in (edge.translations, turns))
            return TransformLookup(place, turn, zeros.astype(np.uint8), zeros)
        aligned = align(edge.times, times, Alignment(Rule.SLERP, alignment.tolerance, alignment.outside))
        outcome = aligned.outcome
        if alignment.tolerance is None:  # every known transform is near enough
            beyond = (times < edge.times.min()) | (times > edge.times.max())
            outcome = np.where(beyond, HELD if alignment.outside is Outside.HOLD else MISSING, outcome)
        places = interpolated(edge.translations, aligned)
        return TransformLookup(places, slerped(turns, aligned), outcome.astype(np.uint8), aligned.staleness)

    def _names(self, names: Iterable[str], transform: FrameTransform) -> str:
        some = sorted(names) or sorted(self.parents)
        entities = ", ".join(transform.entities)
        if not some:
            return f"There are no transforms at {entities}; name other entities by `entities` of the transform."
        return f"Frames at {entities} are {_shown(some)}."

    def _wrong(self, key: str, reason: str, hint: str) -> UsageError:
        return UsageError(f"{self.key}.transform{key}: {reason}", path=self.path, hint=hint)


def kind_of(transform: FrameTransform, width: int, rule: Rule, key: str, path: str) -> str:
    """Return the kind of values with ``width`` numbers. Raises ``UsageError`` if the transform cannot take it."""
    kind = transform.kind or _KINDS.get(width)
    if kind is None or _WIDTHS[kind] != width:
        raise UsageError(
            f"{key}.transform: values have {width} numbers, but a {kind or 'point has 3, a rotation 4, a pose'} has "
            f"{_WIDTHS[kind] if kind else 7}",
            path=path,
            hint="Give a selector that returns that many numbers: x, y, z, then the quaternion x, y, z, w.",
        )
    if rule is Rule.LINEAR and kind in ("rotation", "pose"):
        raise UsageError(f"{key}.rule: rotations cannot be interpolated linearly", path=path, hint="Take slerp.")
    return kind


def multiplied(left: Floats, right: Floats) -> Floats:
    """Return the products of quaternions: first the right rotation, then the left one."""
    vectors, others = left[:, :3], right[:, :3]
    part = left[:, 3:] * others + right[:, 3:] * vectors + np.cross(vectors, others)
    return np.concatenate([part, left[:, 3:] * right[:, 3:] - np.sum(vectors * others, axis=1, keepdims=True)], axis=1)


def rotated(turns: Floats, vectors: Floats) -> Floats:
    """Return vectors that were rotated by unit quaternions."""
    axis = turns[:, :3]
    twice = 2 * np.cross(axis, vectors)
    return np.asarray(vectors + turns[:, 3:] * twice + np.cross(axis, twice))


def _shown(names: Sequence[str], between: str = ", ") -> str:
    """Return names for an error, and the number of left-out ones if there are many."""
    more = f"{between}{len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return between.join(names[:_MOST_NAMES]) + more


def _plain(name: str) -> str:
    """Return the name of a frame without the leading slash of ROS 1."""
    return name.removeprefix("/")


def _edges(chunk: Chunk, timeline: str, path: str, key: str) -> Iterator[tuple[tuple[str, str], _Edge]]:
    header = chunk.header
    names = {component.descriptor.component for component in header.components}
    if not {_CHILD, _PARENT} <= names:
        return
    lines = [line.name for line in header.timelines]
    if not header.is_static and timeline not in lines:
        raise UsageError(
            f"{key}.transform.timeline: there is no {timeline!r}; {header.entity_path} has {', '.join(lines)}",
            path=path,
            hint="Choose a timeline on the feature's clock.",
        )
    data = chunk.data
    columns = {component.descriptor.component: component.values for component in data.components}
    ticks = None if header.is_static else next(line.ticks for line in data.timelines if line.name == timeline)
    ends = [_firsts(columns[name]) for name in (_CHILD, _PARENT)]
    translations = _vectors(columns.get(_TRANSLATION), (0.0, 0.0, 0.0), chunk.num_rows)
    quaternions = _vectors(columns.get(_QUATERNION), (0.0, 0.0, 0.0, 1.0), chunk.num_rows)
    others = frozenset(name for name in names if name.startswith("Transform3D:") and name not in _COLUMNS)
    codes = [pc.dictionary_encode(each) for each in ends]
    of = [np.asarray(pc.fill_null(each.indices, -1)).astype(np.int64) for each in codes]
    pairs = np.where((of[0] >= 0) & (of[1] >= 0), of[0] * len(codes[1].dictionary) + of[1], -1)
    order = np.argsort(pairs, kind="stable")  # by frame, in recorded order
    for rows in np.split(order, np.flatnonzero(np.diff(pairs[order])) + 1):
        if not len(rows) or pairs[rows[0]] < 0:
            continue
        child, parent = (_plain(each[int(rows[0])].as_py()) for each in ends)
        times = None if ticks is None else ticks[rows].copy()
        yield (child, parent), _Edge(times, translations[rows], quaternions[rows], others)


def _joined(some: Sequence[_Edge]) -> _Edge:
    """Return the transforms of several chunks. Static ones count for all times, as in tf2 and in Rerun's viewer."""
    some = [edge for edge in some if edge.times is None] or some
    times = None if some[0].times is None else np.concatenate([edge.times for edge in some if edge.times is not None])
    return _Edge(
        times,
        np.concatenate([edge.translations for edge in some]),
        np.concatenate([edge.quaternions for edge in some]),
        frozenset().union(*(edge.others for edge in some)),
    )


def _firsts(column: pa.ListArray) -> pa.Array:
    """Return the first value of each list, null if there is none."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(column), 0))
    places = pa.array(np.asarray(column.offsets)[:-1].astype(np.int64), mask=lengths == 0)
    return column.values.take(places)


def _vectors(column: pa.ListArray | None, default: Sequence[float], count: int) -> Floats:
    """Return the first vector of each row, the default if there is none."""
    rows = np.tile(np.array(default), (count, 1))
    if column is not None:
        values = _firsts(column)
        is_there = np.asarray(values.is_valid())
        rows[is_there] = np.asarray(values.drop_null().flatten(), np.float64).reshape(-1, len(default))
    return rows
