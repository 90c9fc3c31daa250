"""Faults of places: frames without transforms, trees that do not meet, circles, cameras without calibration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ..chunk import ChunkData
from .findings import Finding

_CHILD: Final = "Transform3D:child_frame"
_PARENT: Final = "Transform3D:parent_frame"
_USES: Final = ("CoordinateFrame:frame", "Pinhole:child_frame", "Pinhole:parent_frame")
_CAMERAS: Final = frozenset({"Image:buffer", "EncodedImage:blob", "VideoStream:sample"})
_CALIBRATION: Final = "Pinhole:image_from_camera"
_MOST_FRAMES: Final = 10_000
"""The most names of frames; more names are texts that differ in every row."""


class FrameChecks:
    """The frames of a recording: their transforms, their users, and the calibrated cameras."""

    def __init__(self) -> None:
        self._parents: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._uses: dict[str, str] = {}
        self._cameras: dict[str, str | None] = {}
        self._calibrated: dict[str, None] = {}
        self._frames_of: defaultdict[str, set[str]] = defaultdict(set)

    def add(self, data: ChunkData) -> None:
        """Take the names of frames in a chunk."""
        columns = {c.descriptor.component: c.values for c in data.components}
        entity = data.entity_path
        if _CHILD in columns or _PARENT in columns:
            self._add_edges(entity, columns)
        for name in _USES:
            if name in columns and len(self._uses) < _MOST_FRAMES:
                for frame in _texts(columns[name]):
                    self._uses.setdefault(frame, entity)
                    self._frames_of[entity].add(frame)
        if _CALIBRATION in columns:
            self._calibrated[entity] = None
        for name in _CAMERAS & columns.keys():
            self._cameras.setdefault(entity, name)

    def _add_edges(self, entity: str, columns: Mapping[str, pa.ListArray]) -> None:
        """Take pairs of frames. A frame without a name is the entity's own."""
        sides = []
        for name in (_CHILD, _PARENT):
            flat = columns[name].flatten() if name in columns else None
            sides.append(flat)
        child, parent = sides
        if child is None or parent is None or len(child) != len(parent):
            return
        pairs = pa.table({"child": child.cast(pa.string()), "parent": parent.cast(pa.string())})
        for row in pairs.group_by(["child", "parent"]).aggregate([]).to_pylist():
            if row["child"] and row["parent"] and len(self._parents) < _MOST_FRAMES:
                self._parents[_plain(row["child"])].setdefault(_plain(row["parent"]), entity)

    def findings(self) -> Iterator[Finding]:
        """The faults of all frames."""
        yield from self._circles()
        trees = self._trees()
        if trees:
            for frame, entity in sorted(self._uses.items()):
                if frame not in trees and not frame.startswith("tf#"):
                    yield Finding(
                        "missing-transform", entity, frame, value="no transform", expected="a transform that names it"
                    )
        roots: defaultdict[str, list[str]] = defaultdict(list)
        for frame, root in trees.items():
            roots[root].append(frame)
        if len(roots) > 1:
            ordered = sorted(roots.values(), key=lambda frames: (-len(frames), min(frames)))
            for frames in ordered[1:]:
                first = min(frames)
                named = next(e for f in sorted(frames) for e in self._parents.get(f, {}).values())
                said: dict[str, Any] = {
                    "value": f"{len(frames)} frames",
                    "expected": f"a connection to {min(ordered[0])}",
                }
                yield Finding("disconnected-frames", named, first, **said)
        yield from self._uncalibrated()

    def _trees(self) -> dict[str, str]:
        """Each frame that a transform names, with the frame that represents its tree."""
        stands: dict[str, str] = {}

        def root(frame: str) -> str:
            while stands.setdefault(frame, frame) != frame:
                stands[frame] = stands[stands[frame]]
                frame = stands[frame]
            return frame

        for child, parents in self._parents.items():
            for parent in parents:
                stands[root(child)] = root(parent)
        return {frame: root(frame) for frame in list(stands)}

    def _circles(self) -> Iterator[Finding]:
        done: set[str] = set()
        for start in sorted(self._parents):
            way: list[str] = []
            frame: str | None = start
            while frame is not None and frame not in done and frame not in way:
                way.append(frame)
                frame = next(iter(self._parents[frame]), None) if frame in self._parents else None
            if frame is not None and frame in way:
                circle = way[way.index(frame) :]
                first = min(circle)
                entity = next(iter(self._parents[first].values()))
                yield Finding("transform-cycle", entity, first, value=" -> ".join([*circle, circle[0]]))
            done.update(way)

    def _uncalibrated(self) -> Iterator[Finding]:
        if not any(self._has_calibration(camera) for camera in self._cameras):
            return
        for camera, component in sorted(self._cameras.items()):
            if not self._has_calibration(camera):
                yield Finding("missing-calibration", camera, component, value="none", expected="as other cameras have")

    def _has_calibration(self, camera: str) -> bool:
        """Return whether a camera is calibrated: at its entity or above, next to it (camera_info), or for its frame."""
        beside = camera.rsplit("/", 1)[0]
        for entity in self._calibrated:
            if (
                camera == entity
                or camera.startswith(entity.rstrip("/") + "/")
                or entity.rsplit("/", 1)[0] == beside != ""
            ):
                return True
            if self._frames_of[camera] & self._frames_of[entity]:
                return True
        return False


def _texts(values: pa.ListArray) -> Iterable[str]:
    return (_plain(text) for text in pc.unique(values.flatten().cast(pa.string())).to_pylist() if text)


def _plain(frame: str) -> str:
    """A frame without the slash that older releases of ROS put before it."""
    return frame.removeprefix("/")
