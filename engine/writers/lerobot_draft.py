"""A proposal for a specification: everything in a recording that can be a feature, as a mapping for YAML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..chunk import Chunk, TimelineKind
from ..errors import UsageError
from ..stream import LazyChunkStream
from .lerobot_spec import DESCRIPTIONS

_PICTURES: Final = {"EncodedImage:blob": "image", "Image:buffer": "image", "VideoStream:sample": "video"}
_CLOCKS: Final = ("ros2_timestamp", "timestamp", "message_publish_time", "message_log_time")
"""Timelines, the best one first: stamps of the sensors, then stamps of the recorder."""
_MOST_NUMBERS: Final = 64
_FRAMES: Final = "Transform3D:child_frame"
_PLACES: Final = re.compile("(InstancePoses3D:translations|InstancePoses3D:quaternions|Transform3D:.*)")
_NAMES: Final = "SeriesLines:names"
_MOST_OFF: Final = 0.001
"""The largest difference between the length of a rotation's quaternion and 1."""


class _Numbers(NamedTuple):
    """Numbers of a component: their selector, how many they are, and the rule for rotations or other numbers."""

    selector: str
    size: int
    rule: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Proposal:
    """A feature, and the timelines of its entity."""

    feature: Mapping[str, Any]
    lines: frozenset[str]

    @property
    def is_scalar(self) -> bool:
        """Whether the feature is one number."""
        return self.feature.get("shape") == [1]

    @property
    def parts(self) -> list[str]:
        """The parts of its entity's path."""
        return str(self.feature["entity"]).strip("/").split("/")


def draft_spec(stream: LazyChunkStream, *, fps: int = 30) -> dict[str, Any]:
    """Propose a specification for recordings like this one. Pass it to :meth:`ExportSpec.of`.

    Images and videos become cameras, short lists of numbers become the state, and fields of messages become separate
    features. Similar entities with one number each, such as ``/arm/joint_1/position`` and ``/arm/joint_2/position``,
    become one feature. If there is only one such group, it is ``observation.state``. The action is not proposed,
    because a recording does not define it. Only the first chunk of each component is read. Raises ``UsageError`` if
    there are neither images nor numbers.
    """
    proposals: dict[str, _Proposal] = {}
    seen: set[tuple[str, str, str]] = set()
    for chunk in copy(stream):
        lines = frozenset(line.name for line in chunk.header.timelines if line.kind is not TimelineKind.SEQUENCE)
        if lines:
            for name, feature in _proposed(chunk):
                column = feature["entity"], feature["component"], feature.get("selector", "")
                if column not in seen:
                    seen.add(column)
                    proposals[_free(name, feature["component"], proposals)] = _Proposal(feature, lines)
    if not proposals:
        raise UsageError("the recording has neither numbers nor images", hint="chunkmill inspect lists its contents.")
    shared = frozenset.intersection(*(proposal.lines for proposal in proposals.values()))
    # Clocks are not mixed: their zeros may differ by years.
    timeline = next((name for name in _CLOCKS if name in shared), min(shared, default=None))
    start = {"fps": fps, "timeline": timeline, "task": "", "episodes": "recording", "minimum": 1.0}
    return {**start, "features": _with_groups(proposals)}


def _free(name: str, component: str, taken: Mapping[str, Any]) -> str:
    """Return a name that no other feature has, with the component if the entity has several."""
    name = name if name not in taken else f"{name}.{component.rpartition(':')[2]}"
    number, free = 2, name
    while free in taken:
        number, free = number + 1, f"{name}.{number}"
    return free


def _with_groups(proposals: Mapping[str, _Proposal]) -> dict[str, dict[str, Any]]:
    """Return the features, with siblings of one number each joined."""
    groups = _groups(proposals)
    names = {name: key for key, group in groups.items() for name in group}
    features: dict[str, dict[str, Any]] = {}
    for name, proposal in proposals.items():
        if name not in names:
            features[name] = dict(proposal.feature)
            continue
        key = names[name]
        group = groups[key]
        joined = "observation." + ".".join(part for part in key if part is not None)
        if len(groups) == 1:
            joined = "observation.state"
        while joined in proposals and joined not in group:
            joined += ".state"
        if joined not in features:
            features[joined] = _joined({proposals[each].parts[key.index(None)]: proposals[each] for each in group})
    return features


def _joined(group: Mapping[str, _Proposal]) -> dict[str, Any]:
    """Return one feature with the numbers of a group, by name."""
    first = next(iter(group.values())).feature
    entities = [proposal.feature["entity"] for proposal in group.values()]
    rest = {key: value for key, value in first.items() if key not in ("entity", "shape", "names")}
    return {"columns": entities, **rest, "shape": [len(group)], "names": list(group)}


def _groups(proposals: Mapping[str, _Proposal]) -> dict[tuple[str | None, ...], list[str]]:
    """Return groups of entities with one number each, whose paths differ in one name, which is None in the key.

    This name is the second from the end (``/arm/joint_1/position``) if several entities differ in it, else the last.
    Topics at the root are no siblings.
    """
    entities = [proposal.feature["entity"] for proposal in proposals.values()]
    scalars = {name: p for name, p in proposals.items() if p.is_scalar and entities.count(p.feature["entity"]) == 1}
    groups: dict[tuple[str | None, ...], list[str]] = {}
    for place in (-2, -1):
        left = {name: p for name, p in scalars.items() if not any(name in group for group in groups.values())}
        for key, members in _alike(left, place).items():
            kinds = {(left[name].feature["component"], left[name].feature.get("selector")) for name in members}
            if len(members) > 1 and len(kinds) == 1:
                groups[key] = sorted(members, key=lambda name: _natural(proposals[name].feature["entity"]))
    return groups


def _alike(proposals: Mapping[str, _Proposal], place: int) -> dict[tuple[str | None, ...], list[str]]:
    alike: dict[tuple[str | None, ...], list[str]] = {}
    for name, proposal in proposals.items():
        parts: list[str | None] = list(proposal.parts)
        if len(parts) > 1:
            parts[place] = None
            alike.setdefault(tuple(parts), []).append(name)
    return alike


def _natural(text: str) -> list[tuple[int, str]]:
    """Return a key that sorts joint_10 after joint_2."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"([0-9]+)", text)]


def _proposed(chunk: Chunk) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield features and their names."""
    entity = chunk.entity_path
    name = entity.strip("/").replace("/", ".") or "root"
    columns = {component.descriptor.component: component.values for component in chunk.data.components}
    for component_name, values in columns.items():
        source = {"entity": entity, "component": component_name}
        if component_name in _PICTURES:
            yield f"observation.images.{name}", {**source, "dtype": _PICTURES[component_name], "rule": "nearest"}
            continue
        if component_name.partition(":")[0] in DESCRIPTIONS:
            continue
        if _FRAMES in columns and component_name.startswith("Transform3D:"):
            continue  # its rows are of several frames
        for numbers in _numbers(component_name, values):
            ending = numbers.selector.strip(".").replace(".", "_") or _ending(component_name)
            key = f"observation.{name}{'.' + ending if ending else ''}"
            more = {"selector": numbers.selector} if numbers.selector else {}
            rest = {"dtype": "float32", "shape": [numbers.size], "rule": numbers.rule, "tolerance": 0.1}
            names = numbers.names or (_series(columns, numbers.size) if component_name == "Scalars:scalars" else ())
            yield key, {**source, **more, **rest, **({"names": list(names)} if names else {})}


def _ending(component: str) -> str:
    """Return the suffix of a feature's name: the field of a pose or transform component, else ""."""
    return component.rpartition(":")[2] if _PLACES.fullmatch(component) else ""


def _series(columns: Mapping[str, pa.ListArray], size: int) -> tuple[str, ...]:
    """Return the names of the series of a chunk, if they are the same in all rows."""
    if _NAMES not in columns:
        return ()
    rows = {tuple(row or ()) for row in columns[_NAMES].to_pylist()}
    names = rows.pop()
    return names if not rows and len(names) == size and len(set(names)) == size else ()


def _numbers(component: str, values: pa.ListArray) -> Iterable[_Numbers]:
    """Return the numbers of a component whose rows all have the same count."""
    inner = values.type.value_type
    lengths = pc.unique(pc.list_value_length(values).drop_null()).to_pylist()
    if pa.types.is_floating(inner):
        if len(lengths) != 1 or not 0 < lengths[0] <= _MOST_NUMBERS:
            return []
        return [_Numbers("", lengths[0], _rule(values.flatten(), lengths[0]))]
    if pa.types.is_fixed_size_list(inner) and pa.types.is_floating(inner.value_type):
        if lengths != [1] or not _PLACES.fullmatch(component):
            return []
        return [_Numbers("", inner.list_size, _rule(values.flatten().flatten(), inner.list_size))]
    if not pa.types.is_struct(inner):
        return []
    numbers = [f.name for f in inner if pa.types.is_floating(f.type) and f.name.isidentifier()]
    if lengths == [1] and numbers == ["x", "y", "z", "w"] and len(inner) == 4:
        return [_Numbers("", 4, "slerp", tuple(numbers))]
    return [_Numbers(f".{name}", 1, "linear") for name in numbers]


def _rule(numbers: pa.Array, size: int) -> str:
    """Return slerp for rows that are rotations, or places and rotations; else linear."""
    if size not in (4, 7) or numbers.null_count or not len(numbers):
        return "linear"
    lengths = np.linalg.norm(np.asarray(numbers, np.float64).reshape(-1, size)[:, -4:], axis=1)
    return "slerp" if (np.abs(lengths - 1) < _MOST_OFF).all() else "linear"
